"""Negative sampling: is this pair one from the data? (NCE note eq. 15-18; Mikolov et al. 2013)

    L = −log σ(s_t) − Σ_j w_j log σ(−s_j)        ∂L/∂s_j = w_j σ(s_j),  ∂L/∂s_t = σ(s_t) − 1

The noise density does not enter. Its optimum is s = log P(b|a) − log(mass·q(b)), which is PMI − log k where q is the
marginal; where hits of the target are forgiven, as word2vec does, it is log P/(1−P) − log(mass·q).
(In the paper eq. 17-18 the product runs over b', and so must the score inside it.)
"""

from __future__ import annotations

from torch import Tensor

from embtrain.losses.base import Loss, apart, softplus
from embtrain.types import Scored


class Logistic(Loss):
    name = "logistic"
    likely = True
    odds = True
    column = "-log σ(-s), the column's training loss"

    def example(self, scored: Scored) -> Tensor:
        scored = apart(scored)
        return softplus(-scored.pos) + scored.total(softplus(scored.neg))

    def negative(self, scored: Scored) -> Tensor:
        return softplus(scored.neg)
