"""Contrastive loss (InfoNCE) whose negatives are debiased and tilted towards hard ones, without a correction for q.
Debiased: Chuang et al. 2020 [chuang2020]. Hard negatives: Robinson et al. 2021 [robinson2021].

    L = −log( e^{s_t} / (e^{s_t} + M g) ),   g = max( (E_β − τ⁺ e^{s_t}) / (1 − τ⁺), e^{floor} )
    E_β = Σ_j w_j e^{(1+β) s_j} / Σ_j w_j e^{β s_j}

s_t and s_j are the scores of the target t (the positive) and of negative j, w_j is the weight of a negative, 1 unless
the source sets it, and M = Σ_j w_j before masking: k for k plain draws. τ⁺ (`prior`) is the share of the draws that are
positives of the query: their part is estimated by the target and subtracted, so hits must not be masked as well. The
floor keeps g positive; for scores in [−1/T, 1/T] the papers set it to −1/T. β (`hardness`) tilts the negatives to q
e^{βs}; 0: their mean.

q does not occur in L, but in the optimum. With τ⁺ = 0, β = 0 and i.i.d. draws, s_ab = log P(b|a) − log q(b) + const at
every k. With τ⁺ > 0 and many draws of total weight M, e^{s_b} ∝ 1 / u_b, where u is the positive root of

    u_b² / (c + u_b) = m R q_b / P_b,   m = M / (1 − τ⁺),   c = 1 − m τ⁺,   R = Σ_b P_b u_b / (c + u_b)

which has the order of P / q while c > 0.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput, ProblemSpec
from embtrain.losses.base import Loss, LossConfig, LossTraits, expand_if_rows_differ, softplus


class ContrastiveConfig(LossConfig):
    """Configuration keys of the contrastive loss."""

    name: str = "contrastive"
    prior: float = Field(0.0, ge=0, lt=1, description="τ⁺, share of the draws that are positives; 0: not debiased")
    hardness: float = Field(0.0, ge=0, le=100, description="β, tilt towards high scores; 0: the mean of the negatives")
    floor: float = Field(-10.0, ge=-80, le=80, description="log of the least g; -1/T for scores in [-1/T, 1/T]")


class Contrastive(Loss):
    """Debiased and tilted contrastive loss."""

    name = "contrastive"
    Config = ContrastiveConfig
    config: ContrastiveConfig
    traits = LossTraits(cost_label="s, the score of the negative")

    def __init__(self, config: ContrastiveConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        is_plain = config.prior == 0 and config.hardness == 0
        self.traits = replace(self.traits, estimates_log_odds=is_plain,
                              accidental_hits="any" if config.prior == 0 else "kept")

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows."""
        scored, prior, tilt = expand_if_rows_differ(scored), self.config.prior, self.config.hardness
        log_weight = scored.weighted_logsumexp(tilt * scored.neg)                           # (B,) log Σ_j w_j e^{β s_j}
        log_mean = scored.weighted_logsumexp((1 + tilt) * scored.neg) - log_weight           # (B,) log E_β
        excess = scored.pos + (math.log(prior) if prior > 0 else -torch.inf) - log_mean      # log(τ⁺ e^{s_t} / E_β)
        is_floored = excess >= 0                                                             # also false for NaN
        log_g = log_mean + torch.log(-torch.expm1(torch.where(is_floored, -1.0, excess))) - math.log1p(-prior)
        log_g = torch.where(is_floored, -torch.inf, log_g).clamp(min=self.config.floor)
        has_none = log_weight <= torch.finfo(log_weight.dtype).min / 8
        log_m = scored.log_total_weight[:, 0]                                                # (B,) or (1,)
        return torch.where(has_none, 0.0, softplus(log_m + log_g - scored.pos))
