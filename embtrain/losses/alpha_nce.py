"""α-NCE: contrastive estimation with powers of the density ratio, from eNCE to maximum likelihood.
Centred: Ryu et al. 2025 [ryu2025]. Not centred, α = ½: eNCE, Liu et al. 2022 [liu2022].

    ρ_b = e^{s_b} / q_b        A = 1/M Σ_j w_j ρ_j^α, an estimate of E_q ρ^α
    centred       L = (ρ_t^{α−1} A^{(1−α)/α} − 1) / (1 − α),  0 < α < 1;     α = 1:  L = log A − log ρ_t
    not centred   L = ρ_t^{α−1} / (1 − α) + A / α,            0 < α < 1

s_t and s_j are the scores of the target t (the positive) and of negative j, q_b is the probability of b under the noise
distribution, w_j the weight of a negative, 1 unless the source sets it, and M = Σ_j w_j: k for k plain draws.

`centered` divides ρ by its power mean A^{1/α}, so that a constant added to all scores changes nothing. The limit α → 1
is the softmax with log Z estimated by draws from q: sampled softmax whose Z has no term of the target. The constants
(−1 here; a factor 4 in eNCE, which is printed as the mean of two exponentials) do not move the optimum.

With A at its expectation, softmax(s) = P(·|a) by Hölder's inequality; not centred, s_ab = log P(b|a). Draws give the
same optimum at every k where L is linear in A: centred with α = ½, and not centred. Else A^{(1−α)/α} is biased, less
with more draws. Negatives equal to the target are kept.

Beyond e^{10} a power is continued by its tangent: exponential losses have no bound on their slopes.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, ProblemSpec
from embtrain.kernels.reference.training.skipgram import MAX_EXPONENT
from embtrain.losses.base import Loss, LossConfig, LossTraits, expand_if_rows_differ


class AlphaNceConfig(LossConfig):
    """Configuration keys of α-NCE."""

    name: str = "alpha_nce"
    alpha: float = Field(0.5, gt=0, le=1, description="α, power of the density ratio; 1: maximum likelihood")
    centered: bool = Field(True, description="divide the density ratio by its power mean; false: scores are log P")


class AlphaNce(Loss):
    """Contrastive estimation by powers of the density ratio."""

    name = "alpha_nce"
    Config = AlphaNceConfig
    config: AlphaNceConfig
    traits = LossTraits(estimates_log_prob=True, needs_q="target", accidental_hits="kept",
                        cost_label="s, the score of the negative")

    def __init__(self, config: AlphaNceConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if config.alpha == 1 and not config.centered:
            raise UsageError("loss.alpha: 1: only the centered loss has this limit; set loss.centered: true, or "
                             "loss.alpha below 1")

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows."""
        scored, alpha = expand_if_rows_differ(scored), self.config.alpha
        assert scored.log_q is not None and scored.drawn.log_q_target is not None  # needs_q
        log_sum = scored.weighted_logsumexp(alpha * (scored.neg - scored.log_q.to(scored.neg.dtype)))
        log_m = scored.log_total_weight[:, 0]                                           # (B,) or (1,)
        log_a = log_sum - log_m.masked_fill(log_m.isneginf(), 0.0)                      # (B,) log A
        log_rho = scored.pos - scored.drawn.log_q_target.to(scored.pos.dtype)           # (B,) log ρ_t
        if not self.config.centered:
            return _power((alpha - 1) * log_rho) / (1 - alpha) + _power(log_a) / alpha
        gap = log_a / alpha - log_rho
        loss = gap if alpha == 1 else (_power((1 - alpha) * gap) - 1) / (1 - alpha)
        return torch.where(log_sum <= torch.finfo(scored.neg.dtype).min / 8, 0.0, loss)  # 0: no negative counts


def _power(x: Tensor) -> Tensor:
    """Return e^x, continued by its tangent beyond MAX_EXPONENT."""
    return x.clamp(max=MAX_EXPONENT).exp() * (1 + (x - MAX_EXPONENT).relu())
