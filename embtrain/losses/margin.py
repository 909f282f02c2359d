"""Margin ranking loss: the positive must score higher than each negative by η ([bose2018] eq. 3; [bordes2013]).

    L = Σ_j w_j max(0, η + s_j − s_t)

Higher scores are better, so distances enter negated. An adversary is trained on s_j, not on the hinge, which is zero
for every negative already below the margin: early on, nearly all of them.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput
from embtrain.losses.base import Loss, LossConfig, LossTraits


class MarginConfig(LossConfig):
    """Configuration keys of the margin ranking loss."""

    name: str = "margin"
    margin: float = Field(1.0, ge=0, description="η, by which the target must exceed a negative")


class Margin(Loss):
    """Margin ranking loss."""

    name = "margin"
    Config = MarginConfig
    traits = LossTraits(cost_label="s, the score of the negative (before the hinge)", pairwise=True)
    config: MarginConfig

    def example(self, scored: LossInput) -> Tensor:
        scored = scored.expanded()
        return scored.weighted_sum((self.config.margin + scored.neg - scored.pos.unsqueeze(1)).relu())
