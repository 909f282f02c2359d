"""Finds false negatives: drawn candidates that are known positives, as (row, column) pairs.

mask  none: nothing is masked; target: the row's own target; observed: every positive of its query seen in training.
Weights and total weight are left unchanged: a correction undoes the draw, not the mask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, Self

import torch
from torch import Tensor

from embtrain.common.types import Negatives, Query


class KnownPositives(Protocol):
    """The exact set of (context, candidate) positives seen in training."""

    def contains(self, context: Tensor, ids: Tensor) -> Tensor: ...  # (n,) or (n, C), (n, K) -> (n, K) bool
    def to(self, device: torch.device | str) -> Self: ...
    @property
    def nbytes(self) -> int: ...


MAX_PAIRS_HELD = 4_000_000  # (row, column) pairs compared at once


def mark_false_negatives(
    drawn: Negatives, query: Query, mask: str, known_positives: KnownPositives | None
) -> Negatives:
    """Return `drawn` with `false_negatives` (2, N) filled in. Negatives that are vectors are never masked."""
    if mask == "none" or drawn.ids is None or drawn.k == 0:
        return drawn
    if mask == "observed":
        assert known_positives is not None, "filter: observed needs the set of observed pairs"
        return replace(drawn, false_negatives=_observed(drawn, query, known_positives))
    return replace(drawn, false_negatives=_targets(drawn, query.target))


def _observed(drawn: Negatives, query: Query, known_positives: KnownPositives) -> Tensor:
    """Pairs that are known positives, by lookup in chunks of rows."""
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
    """Pairs that equal the target of their row, by comparison or, for wide shared draws, by binary search."""
    ids = drawn.ids
    assert ids is not None
    draw = drawn.draw_index(len(target), target.device)
    # a search makes the host wait for a GPU more often
    is_small = target.is_cuda and len(target) * ids.shape[1] <= MAX_PAIRS_HELD
    if draw is None or ids.shape[1] <= 64 or is_small:                           # narrow: compare directly
        ids = ids if draw is None or len(ids) == 1 else ids.index_select(0, draw)
        return torch.stack((ids == target.unsqueeze(1)).nonzero(as_tuple=True))
    # Wide and shared: sort each draw once. The negatives equal to a target are one run of the sorted draw.
    values, order = ids.sort(dim=1, stable=True)                                 # (G, K)
    span = int(values.max()) + 1
    flat = (values + span * torch.arange(len(ids), device=ids.device).unsqueeze(1)).view(-1)
    key = target + span * draw
    first = torch.searchsorted(flat, key)
    last = torch.searchsorted(flat, key, right=True)
    run = torch.where(target < span, last - first, 0)                            # number of hits per row
    row = torch.repeat_interleave(torch.arange(len(target), device=ids.device), run)
    offset = torch.arange(len(row), device=ids.device) - torch.repeat_interleave(run.cumsum(0) - run, run)
    return torch.stack([row, order.view(-1)[first[row] + offset]])
