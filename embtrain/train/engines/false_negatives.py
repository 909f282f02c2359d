"""Which drawn columns are right answers after all: (row, column) pairs, by sort and binary search.

mask  none: nothing is forgiven; target: a row's own target; observed: every answer seen in training for its question.
The weights and the mass stay: a correction undoes the draw, not the mask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, Self

import torch
from torch import Tensor

from embtrain.common.types import Negatives, Query


class KnownPositives(Protocol):
    """The exact set of right answers seen in training."""

    def contains(self, context: Tensor, ids: Tensor) -> Tensor: ...  # (n,) or (n, C), (n, K) -> (n, K) bool
    def to(self, device: torch.device | str) -> Self: ...
    @property
    def nbytes(self) -> int: ...


MAX_PAIRS_HELD = 4_000_000  # (row, column) cells of a shared draw looked at together


def mark_false_negatives(
    drawn: Negatives, query: Query, mask: str, known_positives: KnownPositives | None
) -> Negatives:
    """`drawn` with `right` set. Columns that are vectors have no id and are never right."""
    if mask == "none" or drawn.ids is None or drawn.k == 0:
        return drawn
    if mask == "observed":
        assert known_positives is not None, "mask: observed needs the set of observed pairs"
        return replace(drawn, false_negatives=_observed(drawn, query, known_positives))
    return replace(drawn, false_negatives=_targets(drawn, query.target))


def _observed(drawn: Negatives, query: Query, known_positives: KnownPositives) -> Tensor:
    n, parts = len(query), []
    step = max(1, MAX_PAIRS_HELD // drawn.k)
    for start in range(0, n, step):
        rows = slice(start, min(n, start + step))
        ids = drawn.per_row(drawn.ids, n)[rows]                                  # type: ignore[index]
        hit = known_positives.contains(query.context[rows], ids) | (ids == query.target[rows].unsqueeze(1))
        row, column = hit.nonzero(as_tuple=True)
        parts.append(torch.stack([row + start, column]))
    return torch.cat(parts, 1) if parts else torch.empty(2, 0, dtype=torch.int64, device=query.target.device)


def _targets(drawn: Negatives, target: Tensor) -> Tensor:
    ids = drawn.ids
    assert ids is not None
    draw = drawn.draw_of(len(target), target.device)
    if draw is None or ids.shape[1] <= 64:                                       # narrow: compare outright
        ids = ids if draw is None else ids.index_select(0, draw)
        return torch.stack((ids == target.unsqueeze(1)).nonzero(as_tuple=True))
    # Wide and shared: sort each draw once; a target's columns are one run of its sorted draw.
    values, order = ids.sort(dim=1, stable=True)                                 # (G, K)
    span = int(values.max()) + 1
    flat = (values + span * torch.arange(len(ids), device=ids.device).unsqueeze(1)).view(-1)
    key = target + span * draw
    first = torch.searchsorted(flat, key)
    last = torch.searchsorted(flat, key, right=True)
    run = torch.where(target < span, last - first, 0)                            # hits of each row
    row = torch.repeat_interleave(torch.arange(len(target), device=ids.device), run)
    offset = torch.arange(len(row), device=ids.device) - torch.repeat_interleave(run.cumsum(0) - run, run)
    return torch.stack([row, order.view(-1)[first[row] + offset]])
