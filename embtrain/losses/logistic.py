"""Negative sampling: binary cross-entropy that separates data pairs from noise pairs.

[nce_note] eq. 15-18; [mikolov2013].

    L = −log σ(s_t) − Σ_j w_j log σ(−s_j)        ∂L/∂s_j = w_j σ(s_j),  ∂L/∂s_t = σ(s_t) − 1

The noise density is not used. The optimum is s = log P(b|a) − log(mass·q(b)), which is PMI − log k if q is the
marginal; if accidental hits are masked, as in word2vec, it is log P/(1−P) − log(mass·q).

    normalize_by: query   L = −log σ(s_t) − 1/n Σ_j log σ(−s_j),  n the number of known positives of the query

over every candidate, known positives masked (`negatives.filter: observed`): the n rows of a query then sum to binary
cross-entropy with label 1 for each of them (KvsAll: Dettmers et al. 2018).
(In the paper's eq. 17-18 the product runs over b', and so must the score inside it.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput, ProblemSpec
from embtrain.losses.base import Loss, LossConfig, LossTraits, expand_if_rows_differ, softplus


class LogisticConfig(LossConfig):
    """Configuration keys of negative sampling."""

    normalize_by: Literal["row", "query"] = Field(
        "row", description=(
            "weight of the negatives: 1 per row, or 1 per query, whatever its number of positives "
            "(KvsAll)"))


class Logistic(Loss):
    """Negative sampling."""

    name = "logistic"
    Config = LogisticConfig
    config: LogisticConfig
    traits = LossTraits(estimates_log_prob=True, estimates_log_odds=True,
                        cost_label="-log σ(-s), the training loss of the negative")

    def __init__(self, config: LogisticConfig, world: ProblemSpec):
        super().__init__(config, world)
        if config.normalize_by == "query":
            self.traits = replace(self.traits, candidate_scope="every", estimates_log_prob=False,
                                  estimates_log_odds=False)

    def example(self, scored: LossInput) -> Tensor:
        scored = expand_if_rows_differ(scored)
        negative_term = scored.weighted_sum(softplus(scored.neg))
        if self.config.normalize_by == "query" and (mask := scored.negative_mask()) is not None:
            negative_term = negative_term / (~mask).sum(1).clamp(min=1)
        return softplus(-scored.pos) + negative_term

    def negative(self, scored: LossInput) -> Tensor:
        return softplus(scored.neg)
