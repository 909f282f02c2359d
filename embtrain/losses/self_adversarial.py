"""Negative sampling with weights that depend on the model's own scores (Sun et al. 2019, eq. 5-6).

    L = −log σ(γ + s_t) − Σ_j w_j log σ(−γ − s_j)        w_j = m_j e^{α s_j} / Σ_i m_i e^{α s_i},  held constant

m_j is the source's weight; any source can be used. γ is the distance at which a triple is equally likely to be true or
false, for scores that are negated distances, and 0 for scores that can be positive. α = 0 keeps the source's weights,
normalized to a sum of 1. The noise density is not used.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput, Query
from embtrain.losses.base import Loss, LossConfig, LossTraits, expand_if_rows_differ, softplus


class SelfAdversarialConfig(LossConfig):
    """Configuration keys of self-adversarial negative sampling."""

    name: str = "self_adversarial"
    margin: float = Field(0.0, ge=0, description="γ, added to every score")
    temperature: float = Field(1.0, ge=0, description="α; 0: equal weights; large: the hardest negative alone")


class SelfAdversarial(Loss):
    """Self-adversarial negative sampling."""

    name = "self_adversarial"
    Config = SelfAdversarialConfig
    traits = LossTraits(cost_label="-log σ(-γ-s), the loss of the negative before its weight")
    config: SelfAdversarialConfig

    def example(self, scored: LossInput) -> Tensor:
        scored = expand_if_rows_differ(scored)
        return softplus(-self.config.margin - scored.pos) + scored.weighted_sum(self.negative(scored))

    def negative(self, scored: LossInput) -> Tensor:
        return softplus(self.config.margin + scored.neg)

    @torch.no_grad()
    def negative_weights(self, scored: LossInput) -> Tensor:
        s = scored.neg.detach()
        counted = torch.ones_like(s, dtype=torch.bool)
        if scored.weight is not None:
            counted = (scored.weight != 0).expand(s.shape)
        if scored.row is None and (mask := scored.negative_mask()) is not None:
            counted = counted & mask
        top = s.masked_fill(~counted, -torch.inf).max(1, keepdim=True).values if s.shape[1] else s
        x = self.config.temperature * (s - top)                          # no overflow at any α
        if scored.weight is not None:
            x = x + torch.where(counted, scored.weight, 1.0).log()
        x = x.masked_fill(~counted, -torch.inf)
        return torch.softmax(x, 1).nan_to_num(0.0)                       # weights 0 for a row without counted negatives

    def logit(self, score: Tensor, query: Query) -> Tensor:
        return self.config.margin + score
