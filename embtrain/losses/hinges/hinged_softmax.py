"""Softmax over hinged energies: the contrastive loss of shadow cones. [yu2024] section 4.

    L = −log( e^{−max(0, E_t)} / (e^{−max(0, E_t)} + Σ_j w_j e^{max(0, α − E_j)}) ),   E = −s

E_t and E_j are the energies, negated scores s, of the target t (the positive) and of negative j: distances to a cone
with a sign, negative inside. w_j is the weight of a negative, 1 unless the source sets it. Masked negatives are left
out of the sum.

The hinges are those of the order loss (order.py): positives are pulled to E ≤ 0, negatives pushed to E ≥ α, and no
further. The softmax divides the attention among a row's negatives by how deep in the cone they are, and each row's
gradient stays below 2, whatever the energies.

At the optimum over free scores every s is in [−α, 0]. There L is the loss of contrastive.py with negatives raised by α.
If that range suffices, the optimum for many draws is the one given there with m = M e^α and c = 1, in the order of
P / q; for large α, s_ab = log P(b|a) − log q(b) + const.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from embtrain.common.types import LossInput
from embtrain.losses.base import Loss, LossConfig, LossTraits, expand_if_rows_differ, softplus


class HingedSoftmaxConfig(LossConfig):
    """Configuration keys of the softmax over hinged energies."""

    name: str = "hinged_softmax"
    margin: float = Field(0.001, gt=0, description="α, energy from which a negative pair is not pushed further")


class HingedSoftmax(Loss):
    """Softmax over hinged energies."""

    name = "hinged_softmax"
    Config = HingedSoftmaxConfig
    traits = LossTraits(cost_label="s, the score of the negative (before the hinge)")
    config: HingedSoftmaxConfig

    def example(self, scored: LossInput) -> Tensor:
        """Return L of each example (B,), from the scores `pos` (B,) and `neg` (R, K), R ≤ B scored rows."""
        scored = expand_if_rows_differ(scored)
        log_negatives = scored.weighted_logsumexp((self.config.margin + scored.neg).relu())          # (B,)
        return softplus(log_negatives + (-scored.pos).relu())
