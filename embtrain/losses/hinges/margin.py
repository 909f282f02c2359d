"""Margin ranking loss: a pairwise hinge; the positive must score higher than each negative by η.
[bordes2013]; [bose2018] eq. 3.

    L = Σ_j w_j max(0, η + s_j − s_t)

s_t and s_j are the scores of the target t (the positive) and of negative j. w_j is the weight of a negative, 1 unless
the source sets it. Masked negatives are left out of the sum. The noise distribution is not used. Higher scores are
better, so distances enter negated. The cost that an adversary is trained on is s_j, not the hinge, which is zero for
every negative already below the margin: early on, nearly all of them.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput
from embtrain.losses.base import Loss, LossConfig, LossTraits


class MarginConfig(LossConfig):
    """Configuration keys of the margin ranking loss."""

    name: str = "margin"
    margin: float = Field(1.0, ge=0, description="η, by which the score of the target must exceed that of a negative")


class Margin(Loss):
    """Margin ranking loss."""

    name = "margin"
    Config = MarginConfig
    traits = LossTraits(cost_label="s, the score of the negative (before the hinge)", pairwise=True)
    config: MarginConfig

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows."""
        scored = scored.expanded()
        return scored.weighted_sum((self.config.margin + scored.neg - scored.pos.unsqueeze(1)).relu())
