"""Sampled softmax: cross-entropy of the target among the negatives, corrected for the noise distribution.
`form: sampled` [rawat2019] eq. 5-6, [bengio2008]; `form: ranking` [ma2018].

    sampled   L = −log( e^{s_t} / Z' ),  Z' = e^{s_t} + Σ_j w_j e^{s_j} / (M q_j)
    ranking   L = −log( e^{s_t} / q_t / Z'' ),  Z'' = e^{s_t} / q_t + Σ_j w_j e^{s_j} / q_j

An example has a query a, its target t (the positive) and negatives j, drawn from the noise distribution q. s_t and s_j
are the model's scores of these candidates for a, q_t and q_j their probabilities under q. w_j is the weight of a
negative, 1 unless the source sets it, and M = Σ_j w_j the total weight, taken before masking: k for k plain draws.
Compare the exact softmax, L = −log(e^{s_t} / Z) with Z = Σ_b e^{s_b} over all candidates b.

`sampled`: Z' estimates Z. Negatives equal to the target must be masked: then E Z' = Z, else E Z' = (1 + p_t) Z, with
p_t = e^{s_t} / Z. log Z' is below log Z on average (Jensen's inequality). So this loss is not a log-perplexity, and its
optimum is softmax(s) = P(·|a) only in the limit of many negatives, or if every candidate is drawn. Its gradient is that
of the corrected log-Q loss of [khrylchenko2025], −(1 − p'_t) ∇(s_t − log Σ_j w_j e^{s_j} / q_j) with a constant
p'_t = e^{s_t} / Z': the target is in Z' once, not as a draw (tests/unit/nn/test_sampled_loss.py compares them).

`ranking` (ranking NCE): the target is corrected as well, M cancels, and negatives equal to the target are kept. The
optimum is softmax(s) = P(·|a) at every number of negatives, if they are i.i.d. draws from one q with weight 1.

With `absolute`, |s| replaces s (absolute.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput, ProblemSpec
from embtrain.losses.absolute import AbsoluteConfig, SoftmaxLoss
from embtrain.losses.base import LossTraits, expand_if_rows_differ, softplus


class SampledSoftmaxConfig(AbsoluteConfig):
    """Configuration keys of sampled softmax."""

    name: str = "sampled_softmax"
    form: Literal["sampled", "ranking"] = Field(
        "sampled", description="sampled: target uncorrected, negatives equal to it masked; ranking: target corrected, "
                               "negatives equal to it kept")


class SampledSoftmaxLoss(SoftmaxLoss):
    """Sampled softmax, or ranking NCE with `form: ranking`."""

    name = "sampled_softmax"
    traits = LossTraits(estimates_log_prob=True, cost_label="s, the score of the negative")
    Config = SampledSoftmaxConfig
    config: SampledSoftmaxConfig

    def __init__(self, config: SampledSoftmaxConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        ranking = config.form == "ranking"
        self.traits = replace(self.traits, needs_q="target" if ranking else "drawn", needs_iid=ranking,
                              accidental_hits="kept" if ranking else "masked")

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows."""
        # −log(e^x / (e^x + e^y)) = softplus(y − x): x is the target's term in both forms, y the log of the sum over j.
        scored = expand_if_rows_differ(scored)
        assert scored.log_q is not None  # needs_q
        # (B,) log Σ_j w_j e^{s_j} / q_j
        log_negatives = scored.weighted_logsumexp(scored.neg - scored.log_q.to(scored.neg.dtype))
        if self.config.form == "ranking":
            assert scored.drawn.log_q_target is not None  # needs_q
            return softplus(log_negatives - (scored.pos - scored.drawn.log_q_target.to(scored.pos.dtype)))
        log_total_weight = scored.log_total_weight[:, 0]                       # log M, (B,) or (1,)
        # A row with M = 0 has no counted negative. Subtracting log M = −inf would turn its lowest value into +inf.
        return softplus(log_negatives - log_total_weight.masked_fill(log_total_weight.isneginf(), 0.0) - scored.pos)
