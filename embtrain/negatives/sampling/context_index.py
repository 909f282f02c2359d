"""Index from contexts to the rows of a table. A context is one id, or several in a tuple.

    key = Σ_i x_i Π_{j>i} n_j        for a context (x_1, ..., x_C) with x_i < n_i; with one column the id itself

One column: a table with an entry for every id. Several columns: the sorted keys seen so far, because Π n_i entries
would be far more than ever occur.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec, Query


class ContextIndex:
    """Map from keys of contexts to rows.

    sizes: number of values of each context column.
    """

    def __init__(self, sizes: tuple[int, ...], device: torch.device | str):
        self.sizes, self.n_keys = sizes, math.prod(sizes)
        strides = [math.prod(sizes[i + 1:]) for i in range(len(sizes))]
        self.strides = torch.tensor(strides, dtype=torch.int64, device=device)            # (C,)
        self.moduli = torch.tensor(sizes, dtype=torch.int64, device=device)               # (C,)
        self.table = torch.full(sizes, -1, dtype=torch.int64, device=device) if len(sizes) == 1 else None
        self.keys = torch.empty(0, dtype=torch.int64, device=device)                      # (n,) sorted
        self.rows = torch.empty(0, dtype=torch.int64, device=device)                      # (n,) their rows

    def key(self, context: Tensor) -> Tensor:
        """Key of each context, (n,) or (n, C) -> (n,)."""
        return context if context.ndim == 1 else (context * self.strides).sum(1)

    def context(self, key: Tensor) -> Tensor:
        """Context of each key (n,): (n,), or (n, C) if there are several columns."""
        return key if self.table is not None else key.unsqueeze(1) // self.strides % self.moduli

    def find(self, key: Tensor) -> Tensor:
        """Row of each key (n,); -1 if it has none."""
        if self.table is not None:
            return self.table.index_select(0, key.reshape(-1)).view(key.shape)            # faster than [key]
        if len(self.keys) == 0:
            return torch.full_like(key, -1)
        position = torch.searchsorted(self.keys, key).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[position] == key, self.rows[position], -1)

    def missing(self, key: Tensor) -> Tensor:
        """The distinct keys among `key` (n,) that have no row, ascending."""
        if self.table is None:
            return torch.unique(key[self.find(key) < 0])
        present = torch.zeros(len(self.table), dtype=torch.bool, device=key.device)
        present[key] = True
        return (present & (self.table < 0)).nonzero()[:, 0]                                 # avoids a sort

    def add(self, new: Tensor, begin: int) -> None:
        """Assign rows begin, begin + 1, ... to distinct keys that have none."""
        rows = torch.arange(begin, begin + len(new), device=new.device)
        if self.table is not None:
            self.table[new] = rows
            return
        self.keys, order = torch.cat([self.keys, new]).sort()
        self.rows = torch.cat([self.rows, rows])[order]

    def stored_keys(self) -> Tensor:
        """The keys that have a row, (n,)."""
        return self.keys if self.table is None else (self.table >= 0).nonzero()[:, 0]

    def truncate(self, begin: int) -> None:
        """Remove the keys of the rows begin, begin + 1, ..."""
        if self.table is not None:
            self.table[self.table >= begin] = -1
        kept = self.rows < begin
        self.keys, self.rows = self.keys[kept], self.rows[kept]

    def clear(self) -> None:
        """Remove all keys."""
        if self.table is not None:
            self.table.fill_(-1)
        self.keys, self.rows = self.keys[:0], self.rows[:0]


def context_sizes_of(problem: ProblemSpec, source: str) -> tuple[int, ...]:
    """Number of values of each context column. Raises UsageError if contexts are not ids."""
    if problem.context_sizes is not None:
        return problem.context_sizes
    if problem.n_contexts is None:
        raise UsageError(f"{key('source')}: {source} conditions on context ids, but this model's contexts have none; "
                         "choose another source")
    return (problem.n_contexts,)


def group_starts(draw_id: Tensor) -> Tensor:
    """First row of each draw, (G,), if the rows of a draw are consecutive."""
    first = torch.ones_like(draw_id, dtype=torch.bool)
    torch.ne(draw_id[1:], draw_id[:-1], out=first[1:])
    return first.nonzero()[:, 0]


def row_offsets(n: int, draw_id: Tensor | None, query: Query) -> Tensor:
    """First row of each of n draws, and the end, (n + 1,). The rows of a draw are consecutive."""
    if draw_id is None:
        return torch.arange(n + 1, device=query.target.device)
    if query.window_offsets is not None:
        return query.window_offsets
    return torch.nn.functional.pad(group_starts(draw_id), (0, 1), value=len(draw_id))
