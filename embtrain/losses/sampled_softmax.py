"""Sampled softmax: softmax over the target and the negatives, corrected for the noise distribution. Two forms.

`sampled` (Rawat et al. 2019, eq. 5-6; Bengio and Senécal 2008): o'_t = s_t, o'_j = s_j − log(mass·q_j), j ≠ t

    L = −s_t + log Z',   Z' = e^{s_t} + Σ_{j≠t} w_j e^{s_j} / (mass·q_j)

Accidental hits must be masked: then E Z' = Z, else E Z' = (1 + p_t) Z. log Z' is low on average (Jensen), so this loss
is not a perplexity, and its optimum is P only in the limit of many negatives, or with every candidate drawn.

`ranking` (Ma and Collins 2018): the target is corrected as well, and accidental hits are kept

    L = −(s_t − log q_t) + log( e^{s_t − log q_t} + Σ_j w_j e^{s_j − log q_j} )          (the mass cancels)

The optimum is softmax(s) = P at every number of negatives, if they are iid draws from one q with weight 1. With
`absolute`, |s| replaces s (absolute.py).
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
        "sampled", description="sampled: target uncorrected, its hits masked; ranking: target corrected, hits kept")


class SampledSoftmax(SoftmaxLoss):
    """Sampled softmax, or ranking NCE with `form: ranking`."""

    name = "sampled_softmax"
    traits = LossTraits(estimates_log_prob=True, cost_label="s, the score of the negative")
    Config = SampledSoftmaxConfig
    config: SampledSoftmaxConfig

    def __init__(self, config: SampledSoftmaxConfig, world: ProblemSpec):
        super().__init__(config, world)
        ranking = config.form == "ranking"
        self.traits = replace(self.traits, needs_q="target" if ranking else "drawn", needs_iid=ranking,
                              accidental_hits="kept" if ranking else "masked")

    def example(self, scored: LossInput) -> Tensor:
        scored = expand_if_rows_differ(scored)
        assert scored.log_q is not None  # needs_q
        # (B,) log Σ_j w_j e^{s_j} / q_j
        log_negatives = scored.weighted_logsumexp(scored.neg - scored.log_q.to(scored.neg.dtype))
        if self.config.form == "ranking":
            assert scored.drawn.log_q_target is not None  # needs_q
            return softplus(log_negatives - (scored.pos - scored.drawn.log_q_target.to(scored.pos.dtype)))
        log_total_weight = scored.log_total_weight[:, 0]
        # A row without noise mass has no counted negative; −inf would turn its lowest `log_negatives` into +inf.
        return softplus(log_negatives - log_total_weight.masked_fill(log_total_weight.isneginf(), 0.0) - scored.pos)
