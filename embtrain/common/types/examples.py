"""Examples of a batch and their queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from embtrain.common.machine import to_device


@dataclass(frozen=True)
class Batch:
    """Examples: a target candidate and an open slot each. Each model adds the fields it needs."""

    target: Tensor  # (B,) int64  the positive
    slot: Tensor    # (B,) int64  the slot to predict (0 if a model has only one)
    weight: Tensor | None = field(default=None, kw_only=True)  # (B,) float32  factor of each example's loss; None: 1

    def __len__(self) -> int:
        return self.target.shape[0]

    def rows(self, index: slice | Tensor) -> Self:
        return replace(self, **_map_tensors(self, lambda x: x[index], tuple(f.name for f in fields(self))))

    def to(self, device: torch.device | str) -> Self:
        return replace(self, **_map_tensors(self, lambda x: to_device(x, device), tuple(f.name for f in fields(self))))


@dataclass(frozen=True)
class Query:
    """The queries of a batch: one vector per example, and the ids it was computed from."""

    vectors: Tensor                 # (B, D) float, with gradient; (Q, D) if `by_id`
    context: Tensor                 # (B,) or (B, C) int64  the known ids (a centre word; head and relation)
    target: Tensor                  # (B,) int64
    slot: Tensor                    # (B,) int64
    query_id: Tensor | None = None  # (B,) int64  rows with equal ids have the same query; ids 0..Q-1
    window: Tensor | None = None    # (B,) int64  rows of one window may share a draw; ids ascending
    # (W+1,) int64  the rows of window w, which all have one query, are offsets[w] .. [w+1]; None: unknown
    window_offsets: Tensor | None = None
    by_id: bool = False             # vectors[query_id] is the vector of each row; else `vectors` is
    is_training: bool = True        # False: a draw for them changes no state of a source but its random numbers

    def __len__(self) -> int:
        return self.target.shape[0]

    @property
    def vector(self) -> Tensor:
        """The vector of each row, (B, D)."""
        if not self.by_id:
            return self.vectors
        assert self.query_id is not None, "vectors by id need query_id"
        return self.vectors.index_select(0, self.query_id)

    def contexts(self, offsets: Tensor) -> Tensor:
        """Return the context of each draw, (G,) or (G, C), for the row offsets of the draws (G+1,)."""
        return self.context[offsets[:-1]]

    def windows(self) -> Tensor:
        """Return the window of each row, (B,) ascending; each row is its own window if examples come in none."""
        return torch.arange(len(self), device=self.target.device) if self.window is None else self.window

    def detach(self) -> Query:
        return replace(self, vectors=self.vectors.detach())

    def with_vector(self, vector: Tensor) -> Query:
        """Return the same queries with other vectors, one per row (B, D)."""
        return replace(self, vectors=vector, by_id=False)

    def rows(self, index: slice | Tensor) -> Query:
        part = self._rows_without_vectors(index)
        if part.query_id is None:
            return replace(part, vectors=self.vectors[index])
        ids, query_id = torch.unique(part.query_id, return_inverse=True)
        return replace(part, vectors=self.vectors[ids if self.by_id else index], query_id=query_id)

    def unique(self) -> tuple[Query, Tensor]:
        """Return the distinct queries (Q rows) and the index of each example's query, (B,)."""
        if self.query_id is None:
            return self, torch.arange(len(self), device=self.target.device)
        first = first_occurrence(self.query_id, len(self.vectors) if self.by_id else None)
        return replace(self._rows_without_vectors(first), vectors=self.vectors if self.by_id else self.vectors[first],
                       query_id=None, by_id=False), self.query_id

    def _rows_without_vectors(self, index: slice | Tensor) -> Query:
        names = ("context", "target", "slot", "query_id", "window")
        return replace(self, window_offsets=None, **_map_tensors(self, lambda x: x[index], names))


def first_occurrence(query_id: Tensor, n: int | None = None) -> Tensor:
    """Return the first row of each id 0..Q-1 in `query_id` (B,): (Q,); n: Q, if known. Deterministic everywhere."""
    n = (int(query_id.max()) + 1 if len(query_id) else 0) if n is None else n
    first = torch.full((n,), len(query_id), dtype=torch.int64, device=query_id.device)
    return first.scatter_reduce(0, query_id, torch.arange(len(query_id), device=query_id.device), "amin")


def _map_tensors(record: Any, change: Callable[[Tensor], Tensor], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields of a record, with `change` applied to the tensors among them."""
    return {n: change(v) if isinstance(v := getattr(record, n), Tensor) else v for n in names}
