"""Loss of order embeddings, an absolute hinge: true pairs are in order, negatives violate it by at least α.
[vendrov2016] eq. 4.

    L = max(0, E_t) + Σ_j w_j max(0, α − E_j),   E = −s ≥ 0

E_t and E_j are the energies, negated scores s, of the target t (the positive) and of negative j: the violation of the
order, 0 for a pair in order. w_j is the weight of a negative, 1 unless the source sets it. Masked negatives are left
out of the sum.

Margin ranking (margin.py) compares each negative with its positive; this loss compares it with α. Energies therefore
have one zero for all queries, and one threshold separates true pairs from false ones. The cost that an adversary is
trained on is s_j, not the hinge.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput
from embtrain.losses.base import Loss, LossConfig, LossTraits, expand_if_rows_differ


class OrderLossConfig(LossConfig):
    """Configuration keys of the order loss."""

    name: str = "order"
    margin: float = Field(1.0, gt=0, description="α, energy from which a negative pair has no cost")


class OrderLoss(Loss):
    """Loss of order embeddings."""

    name = "order"
    Config = OrderLossConfig
    traits = LossTraits(cost_label="s, the score of the negative (before the hinge)")
    config: OrderLossConfig

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows."""
        scored = expand_if_rows_differ(scored)
        return (-scored.pos).relu() + scored.weighted_sum((self.config.margin + scored.neg).relu())
