"""Softmax over scores or over absolute scores (Blanc and Rendle 2018; Rawat et al. 2019, section 4.1).

    P(b|a) ∝ e^{s_ab}      or, absolute,      P(b|a) ∝ e^{|s_ab|}

The absolute softmax suits noise distributions that grow with |s| (quadratic ones). (Rawat et al. print τ once
more next to a score that already contains it.) Its losses are those of the softmax with |s| in place of s, and
evaluation uses |s| too.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput, LossOutput, ProblemSpec, Query
from embtrain.losses.base import Loss, LossConfig


class AbsoluteConfig(LossConfig):
    """Configuration keys of softmax losses."""

    absolute: bool = Field(False, description="softmax of |s| instead of s, as with quadratic draws")


class SoftmaxLoss(Loss):
    """Base of the softmax losses; `absolute` replaces s by |s|."""

    config: AbsoluteConfig

    def __init__(self, config: AbsoluteConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.traits = replace(self.traits, monotone=not config.absolute)

    def forward(self, scored: LossInput) -> LossOutput:
        if self.config.absolute:
            scored = replace(scored, pos=_abs(scored.pos), neg=_abs(scored.neg))
        return super().forward(scored)

    def logit(self, score: Tensor, query: Query) -> Tensor:
        return _abs(score) if self.config.absolute else score


def _abs(s: Tensor) -> Tensor:
    """Return |s| with slope 1 at 0; with slope 0, tables initialized to 0, as skip-gram's, would never change."""
    return torch.where(s < 0, -s, s)
