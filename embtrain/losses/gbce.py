"""gBCE: negative sampling whose positive term has the weight β, which corrects for the few negatives drawn.
Petrov and Macdonald 2023 [petrov2023].

    L = −β log σ(s_t) − Σ_j w_j log σ(−s_j)        β = α (t (1 − 1/α) + 1/α) = 1 − t (1 − α),   α = M / (V − 1)

s_t and s_j are the scores of the target t of an example (the positive) and of negative j. w_j is the weight of a
negative, 1 unless the source sets it, and M = Σ_j w_j, taken before masking: M = k for k plain draws. α is the share of
the other candidates that is drawn, and β the power of the positive's probability, σ(s_t)^β. The calibration t (`t`) is
0 for negative sampling (logistic.py), and 1 for calibrated probabilities.

q does not occur in L, but in the optimum, where negative sampling has been shifted by log β. For a candidate b:

    s_ab = log P(b|a) − log(M q(b) / β)                    if nothing is masked
    s_ab = log[P(b|a) / (1 − P(b|a))] − log(M q(b) / β)    if negatives equal to the target are masked

Uniform negatives have M q = M / V ≈ α, and with t = 1 β = α cancels it: if targets are masked, σ(s_ab) = P(b|a), up to
the factor V / (V − 1) of the odds. With t = 0, k ≪ V negatives make the log-odds too large by log(V / k).
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import Field
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, ProblemSpec
from embtrain.losses.base import Loss, LossConfig, LossTraits, expand_if_rows_differ, softplus

T = TypeVar("T", float, Tensor)


class GbceConfig(LossConfig):
    """Configuration keys of gBCE."""

    name: str = "gbce"
    t: float = Field(0.75, ge=0, le=1, description="calibration; 0: negative sampling, 1: calibrated for uniform draws")


class Gbce(Loss):
    """Generalized binary cross-entropy."""

    name = "gbce"
    Config = GbceConfig
    config: GbceConfig
    # The optimum is that of negative sampling plus the constant log β.
    traits = LossTraits(estimates_log_prob=True, estimates_log_odds=True,
                        cost_label="-log σ(-s), the training loss of the negative")

    def __init__(self, config: GbceConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if problem.n_candidates < 2:
            raise UsageError("loss.name: gbce needs 2 candidates or more, for a share of the others; use logistic")

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows."""
        scored = expand_if_rows_differ(scored)
        beta = self.positive_weight(scored.log_total_weight[:, 0].exp())                    # (B,) or (1,)
        return beta * softplus(-scored.pos) + scored.weighted_sum(softplus(scored.neg))

    def positive_weight(self, total_weight: T) -> T:
        """Return β for the total weight M."""
        alpha = total_weight / (self.problem.n_candidates - 1)
        return 1 - self.config.t * (1 - alpha)

    def negative(self, scored: LossInput) -> Tensor:
        """Return −log σ(−s_j), the cost of each negative without its weight w_j, (R, K)."""
        return softplus(scored.neg)
