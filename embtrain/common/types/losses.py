"""The input of a loss and its result."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from embtrain.common.types.examples import Query
from embtrain.common.types.negatives import Negatives

ROWS_DIFFER = "examples that share a scored row have different positives; call expanded() first"


class WholeTable(Protocol):
    """Values of the queries that need the whole table, computed when a loss requests them."""

    def log_partition(self, rows: Tensor | slice) -> Tensor: ...   # exact log Z of these rows, (n,), in chunks
    def target_vectors(self) -> Tensor: ...                        # unit vectors of the targets (B, D), no gradient


@dataclass(frozen=True)
class LossInput:
    """All that a loss may use.

    `neg` has R rows: B, or fewer if rows share both query and draw (then `row` maps examples to scored rows).
    Elementwise work on `neg` runs on the R rows; `weighted_sum` and `weighted_logsumexp` return (B,).
    A loss that compares `pos` with `neg` calls `expanded()` first.
    """

    pos: Tensor              # (B,)   score of the positive
    neg: Tensor              # (R, K) scores of the negatives
    drawn: Negatives
    query: Query
    row: Tensor | None = None  # (B,) int64  the scored row of each example; None: R = B
    # Per-draw fields aligned with the rows of neg; None if the source reported none.
    log_q: Tensor | None = field(default=None)   # (R, K), (1, K) or (1, 1)
    weight: Tensor | None = field(default=None)  # (R, K), (1, K) or (1, 1)
    whole_table: WholeTable | None = None        # None: the engine does not offer it

    def expanded(self) -> LossInput:
        """Return the same input with one scored row per example (R = B)."""
        if (row := self.row) is None:
            return self
        def lift(x: Tensor | None) -> Tensor | None:
            return x if x is None or x.shape[0] == 1 else x.index_select(0, row)
        return replace(self, neg=self.neg.index_select(0, row), row=None,
                       log_q=lift(self.log_q), weight=lift(self.weight))

    @property
    def log_total_weight(self) -> Tensor:
        """log M of the total weight per positive, (B, 1) or (1, 1); log K only if all K negatives have weight 1."""
        if self.drawn.total_weight is None:
            return torch.tensor([[math.log(max(self.drawn.k, 1))]], dtype=self.pos.dtype, device=self.pos.device)
        return self.drawn.total_weight.to(self.pos.dtype).log()

    def kept_negatives(self) -> Tensor | None:
        """Return a mask (B, K), True at the negatives that count, False at false negatives; None if all count."""
        if self.drawn.false_negatives is None or self.drawn.false_negatives.shape[1] == 0:
            return None
        assert self.row is None, ROWS_DIFFER
        keep = torch.ones(self.neg.shape, dtype=torch.bool, device=self.neg.device)
        keep[self.drawn.false_negatives[0], self.drawn.false_negatives[1]] = False
        return keep

    def _fill_false_negatives(self, x: Tensor, value: float) -> Tensor:
        """Return x (R, K) with `value` at false negatives, which then have no gradient. A mask takes more passes."""
        if (pairs := self.drawn.false_negatives) is None or pairs.shape[1] == 0:
            return x
        assert self.row is None, ROWS_DIFFER
        return x.index_put((pairs[0], pairs[1]), x.new_full((), value))

    def weighted_sum(self, x: Tensor) -> Tensor:
        """Return Σ_j weight_j x_j over the negatives, false negatives excluded: x (R, K) -> (B,)."""
        x, weight = self._fill_false_negatives(x, 0.0), self.weight
        if weight is not None:                  # where, not multiply: a negative of weight 0 may have an infinite score
            x = torch.where(weight != 0, weight * x, x.new_zeros(()))
        out = x.sum(1)
        return out if self.row is None else out.index_select(0, self.row)

    def weighted_logsumexp(self, x: Tensor) -> Tensor:
        """Return log Σ_j weight_j e^{x_j} over the negatives, false negatives excluded: x (R, K) -> (B,).

        A row without any counted negative gives a finite number near the lowest one and a zero gradient.
        """
        lowest = torch.finfo(x.dtype).min / 4
        x = self._fill_false_negatives(x, lowest)
        if self.weight is not None:
            counted = self.weight != 0
            x = torch.where(counted, x + torch.where(counted, self.weight, 1.0).log(), x.new_full((), lowest))
        out = x.logsumexp(1) if x.shape[1] else x.new_full((x.shape[0],), lowest)
        out = torch.where(out <= lowest / 2, x.new_full((), lowest), out)   # NaN stays NaN
        return out if self.row is None else out.index_select(0, self.row)


@dataclass(frozen=True)
class LossOutput:
    """The result of a loss."""

    per_example: Tensor   # (B,)   the complete weighted loss, the only differentiated output
    per_negative: Tensor  # (R, K) cost of each negative to the model: not hinged, not corrected for q, detached
