"""What a softmax is taken of: the scores, or their sizes (Blanc and Rendle 2018; Rawat et al. 2019, section 4.1).

    P(b|a) ∝ e^{s_ab}      or, absolute,      P(b|a) ∝ e^{|s_ab|}

The absolute softmax suits draws that grow with |s|, as quadratic ones do. (Rawat et al. print τ once more beside a
score that has it already.) Its losses are those of the softmax with |s| for s in every place, and evaluation reads |s|
too.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput, LossOutput, ProblemSpec, Query
from embtrain.losses.base import Loss, LossConfig


class AbsoluteConfig(LossConfig):
    absolute: bool = Field(False, description="take the softmax of |s|, not of s, as beside quadratic draws")


class SoftmaxLoss(Loss):
    """A loss of the softmax; `absolute` puts |s| in the place of s."""

    config: AbsoluteConfig

    def __init__(self, config: AbsoluteConfig, world: ProblemSpec):
        super().__init__(config, world)
        self.monotone = not config.absolute

    def forward(self, scored: LossInput) -> LossOutput:
        if self.config.absolute:
            scored = replace(scored, pos=_abs(scored.pos), neg=_abs(scored.neg))
        return super().forward(scored)

    def logit(self, score: Tensor, query: Query) -> Tensor:
        return _abs(score) if self.config.absolute else score


def _abs(s: Tensor) -> Tensor:
    """|s|, whose slope at 0 is 1 and not 0: tables that begin at 0, as skip-gram's do, would stay there."""
    return torch.where(s < 0, -s, s)
