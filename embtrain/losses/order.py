"""The loss of order embeddings: right pairs shall be in order, wrong ones out of it by α (Vendrov et al. 2016, eq. 4).

    L = max(0, E_t) + Σ_j w_j max(0, α − E_j),   E = −s ≥ 0

Unlike margin ranking it compares with α and not with the right candidate, so the energies have one zero for all
questions: a threshold then tells pairs that hold from pairs that do not. What an adversary hears is s_j, not the hinge.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput
from embtrain.losses.base import Loss, LossConfig, expand_if_rows_differ


class OrderLossConfig(LossConfig):
    name: str = "order"
    margin: float = Field(1.0, gt=0, description="alpha, the energy from which on a wrong pair costs nothing")


class OrderLoss(Loss):
    name = "order"
    Config = OrderLossConfig
    cost_label = "s, the score of the column (un-hinged)"
    config: OrderLossConfig

    def example(self, scored: LossInput) -> Tensor:
        scored = expand_if_rows_differ(scored)
        return (-scored.pos).relu() + scored.weighted_sum((self.config.margin + scored.neg).relu())
