"""Negative sampling: binary cross-entropy that separates data pairs from noise pairs.
Mikolov et al. 2013 [mikolov2013]; unpublished notes [nce_note], eq. 15-18.

    L = −log σ(s_t) − Σ_j w_j log σ(−s_j)        ∂L/∂s_t = σ(s_t) − 1,  ∂L/∂s_j = w_j σ(s_j)

An example has a query a (in word2vec a centre word), its target t (the positive, a context word) and negatives j, drawn
from the noise distribution q. s_t and s_j are the model's scores of these candidates for a, and w_j is the weight of a
negative, 1 unless the source, the negative sampler, sets it. Masked negatives are left out of the sum
(`negatives.filter`).

q does not occur in L, but in the optimum. With the total weight M = Σ_j w_j, taken before masking, the optimal score of
a candidate b is

    s_ab = log P(b|a) − log(M q(b))                    if nothing is masked
    s_ab = log[P(b|a) / (1 − P(b|a))] − log(M q(b))    if negatives equal to the target are masked, as in word2vec

The first is PMI(a, b) − log k for k negatives of weight 1, if q is the marginal distribution of b. Erratum: in
[nce_note] eq. 17-18 the score inside the product should be s(a, b').

    normalize_by: query   L = −log σ(s_t) − 1/n Σ_j w_j log σ(−s_j)      n: number of known positives of a

This needs every candidate as a negative of weight 1, and all known positives of a masked (`negatives.source: every`,
`negatives.filter: observed`); if none is masked, n counts as 1. If an epoch has n examples with the query a, one for
each of its positives, their losses sum to the binary cross-entropy of all candidates with label 1 for these n and 0 for
the others: KvsAll, Ruffinelli et al. 2020 [ruffinelli2020], known as 1-N scoring since Dettmers et al. 2018
[dettmers2018]. With m examples the negatives of a weigh m/n: less than 1 if only some known positives are targets
(`triples.slot: random`, `pairs.observed: closure`), more if some are targets twice (`pairs.protocol: legacy`).
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
            "weight of the sum over the negatives of an example: 1 (row), or 1/n if its query has n known positives "
            "(query), so 1 over n examples (KvsAll)"))


class Logistic(Loss):
    """Negative sampling."""

    name = "logistic"
    Config = LogisticConfig
    config: LogisticConfig
    # With log q added, the optimal score is log P + const, or log[P / (1 − P)] + const if targets are masked.
    traits = LossTraits(estimates_log_prob=True, estimates_log_odds=True,
                        cost_label="-log σ(-s), the training loss of the negative")

    def __init__(self, config: LogisticConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if config.normalize_by == "query":
            # n masked positives per query, and all candidates as negatives: neither estimate holds.
            self.traits = replace(self.traits, candidate_scope="every", estimates_log_prob=False,
                                  estimates_log_odds=False)

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) of the targets and `neg` (R, K) of the negatives.

        R ≤ B: examples with the same query and negatives may share a scored row.
        """
        scored = expand_if_rows_differ(scored)
        negative_term = scored.weighted_sum(softplus(scored.neg))        # (B,) masked negatives excluded
        if self.config.normalize_by == "query" and (is_kept := scored.kept_negatives()) is not None:
            # (B, K), False at masked negatives. Every candidate occurs once and all known positives are masked, so the
            # number of masked negatives is n, the number of known positives.
            negative_term = negative_term / (~is_kept).sum(1).clamp(min=1)
        return softplus(-scored.pos) + negative_term

    def negative(self, scored: LossInput) -> Tensor:
        """Return −log σ(−s_j), the cost of each negative without its weight w_j, (R, K). Sources learn from it."""
        return softplus(scored.neg)
