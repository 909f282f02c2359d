"""Self-adversarial negative sampling: the weight of a negative grows with the model's own score of it.
[sun2019] eq. 5-6.

    L = −log σ(γ + s_t) − Σ_j p_j log σ(−γ − s_j)        p_j = w_j e^{α s_j} / Σ_i w_i e^{α s_i},  no gradient

s_t and s_j are the scores of the target t (the positive) and of negative j. w_j is the weight that the source gives to
a negative, 1 unless set otherwise; any source can be used. The sums run over the negatives that are not masked.

γ (`margin`): for scores that are negated distances, the distance at which a triple is equally likely to be true or
false; 0 for scores that can be positive. α (`temperature`): 0 keeps the source's weights, normalized to a sum of 1. The
noise distribution is not used.
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
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows.

        `scored.weight` must be p, the result of `negative_weights`, as the engine sets it.
        """
        scored = expand_if_rows_differ(scored)
        return softplus(-self.config.margin - scored.pos) + scored.weighted_sum(self.negative(scored))

    def negative(self, scored: LossInput) -> Tensor:
        """Return −log σ(−γ − s_j), the unweighted cost of each negative, (R, K)."""
        return softplus(self.config.margin + scored.neg)

    @torch.no_grad()
    def negative_weights(self, scored: LossInput) -> Tensor:
        """Return p (R, K), detached. Masked negatives and those of weight 0 have p_j = 0."""
        s = scored.neg.detach()
        counted = torch.ones_like(s, dtype=torch.bool)
        if scored.weight is not None:
            counted = (scored.weight != 0).expand(s.shape)
        if scored.row is None and (is_kept := scored.kept_negatives()) is not None:
            counted = counted & is_kept
        top = s.masked_fill(~counted, -torch.inf).max(1, keepdim=True).values if s.shape[1] else s
        x = self.config.temperature * (s - top)                          # no overflow at any α
        if scored.weight is not None:
            x = x + torch.where(counted, scored.weight, 1.0).log()
        x = x.masked_fill(~counted, -torch.inf)
        return torch.softmax(x, 1).nan_to_num(0.0)                       # weights 0 for a row without counted negatives

    def logit(self, score: Tensor, query: Query) -> Tensor:
        """Return γ + s for scores (n, K)."""
        return self.config.margin + score
