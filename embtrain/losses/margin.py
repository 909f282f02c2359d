"""The margin loss: the right candidate must beat each column by η (slides eq. 3; Bordes et al. 2013).

    L = Σ_j w_j max(0, η + s_j − s_t)

Scores are higher-is-better, so a distance enters negated. What an adversary hears is s_j, not the hinge: the hinge says
nothing about the columns that already lie below it, which early on are nearly all it draws.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput
from embtrain.losses.base import Loss, LossConfig


class MarginConfig(LossConfig):
    name: str = "margin"
    margin: float = Field(1.0, ge=0, description="eta, by which the right candidate must win")


class Margin(Loss):
    name = "margin"
    Config = MarginConfig
    cost_label = "s, the score of the column (un-hinged)"
    pairwise = True
    config: MarginConfig

    def example(self, scored: LossInput) -> Tensor:
        scored = scored.expanded()
        return scored.weighted_sum((self.config.margin + scored.neg - scored.pos.unsqueeze(1)).relu())
