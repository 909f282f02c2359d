"""Slices of the draws of a block, and costs of negatives in the form that a source learns from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from embtrain.common.types import LossInput, LossOutput, Negatives
from embtrain.negatives.base import NegativeSource


def slices(n: int, step: int) -> Iterator[slice]:
    """Consecutive slices of `step` rows that cover n rows; the last one may be shorter."""
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def split_draws(drawn: Negatives, n: int, step: int, share: int | None = None) -> Iterator[tuple[slice, Negatives]]:
    """Consecutive slices of `step` rows of n, each with its draws. share: rows of a draw, in order; None: unknown.

    False negatives ascend by row, so that one search finds those of all slices: the host waits once, not per slice.
    """
    parts, pairs = list(slices(n, step)), drawn.false_negatives
    last: list[int | None] = [None] * len(parts)            # None: all of them
    if pairs is not None and len(parts) > 1:
        last = torch.searchsorted(pairs[0].contiguous(), torch.tensor([r.stop for r in parts]).to(pairs)).tolist()
    for rows, a, b in zip(parts, [0, *last], last, strict=False):
        part = drawn.rows(rows, slice(a, b))
        is_one_draw = share is not None and rows.start // share == (rows.stop - 1) // share
        yield rows, _only(part, rows.start // share) if share is not None and is_one_draw else part


def _only(drawn: Negatives, draw: int) -> Negatives:
    """Return the draws reduced to one, which all rows read."""
    n = 0 if drawn.ids is None else len(drawn.ids)

    def cut(x: Tensor | None) -> Tensor | None:
        return x[draw:draw + 1] if x is not None and x.ndim == 2 and len(x) == n else x
    return replace(drawn, draw_id=None, ids=cut(drawn.ids), log_q=cut(drawn.log_q), weight=cut(drawn.weight),
                   origin=cut(drawn.origin))


def costs_per_example(cost: LossOutput, scored: LossInput, n: int) -> Tensor:
    """`cost.per_negative` expanded to one row per example, for the first n examples: (n, K)."""
    return cost.per_negative[:n] if scored.row is None else cost.per_negative[scored.row[:n]]


def costs_for_source(source: NegativeSource, cost: Tensor, drawn: Negatives) -> Tensor:
    """The costs (B, K) in the form that `source.learn` takes: per row (B, K), or per draw (G, K)."""
    return cost if source.traits.learns_per_row else per_draw(cost, drawn)


def per_draw(cost: Tensor, drawn: Negatives) -> Tensor:
    """Mean cost of each drawn negative over the rows that share the draw: (B, K) to (G, K).

    Rows for which the negative is false are excluded, unless that excludes all rows: a learning source then
    receives the same cost as for a draw of one row.
    """
    draw = drawn.draw_index(len(cost), cost.device)
    if draw is None:
        return cost
    assert drawn.ids is not None
    shape, all_rows = drawn.ids.shape, torch.bincount(draw, minlength=len(drawn.ids)).unsqueeze(1).to(cost.dtype)
    total = cost.new_zeros(shape).index_add_(0, draw, cost)
    if drawn.false_negatives is None or drawn.false_negatives.shape[1] == 0:
        return total / all_rows
    row, column = drawn.false_negatives
    entries = (draw[row], column)
    n_false = cost.new_zeros(shape).index_put_(entries, cost.new_ones(()), accumulate=True)
    n_counted = torch.where(n_false < all_rows, all_rows - n_false, all_rows)
    sums = torch.where(n_false < all_rows, total.index_put(entries, -cost[row, column], accumulate=True), total)
    return sums / n_counted
