"""The losses by name: SampledSoftmax, RankingNCE, NCE, NegativeSampling and Softmax. Each is a `SampledLoss`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from embtrain.nn.module import SampledLoss


class SampledSoftmax(SampledLoss):
    """Sampled softmax: cross-entropy over the target and the negatives, corrected for q ([rawat2019] eq. 5-6).

    Its gradient is that of the log-Q-corrected loss of [khrylchenko2025]. If every class is drawn it equals
    `torch.nn.functional.cross_entropy`.
    """

    loss_name = "sampled_softmax"


class RankingNCE(SampledLoss):
    """Ranking NCE ([ma2018]): the target is corrected for q too, and its accidental hits are kept.

    The optimum is the softmax at every number of negatives. The negatives must be i.i.d. draws from one q.
    """

    loss_name = "sampled_softmax"
    loss_defaults: ClassVar[Mapping[str, Any]] = {"form": "ranking"}
    default_filter = "none"


class NCE(SampledLoss):
    """Noise-contrastive estimation ([gutmann2010], [mnih2012]): scores become log-probabilities.

    loss_options={"partition": "global"} learns log Z, which is 0 by default; pass `parameters()` of the module to the
    optimizer then.
    """

    loss_name = "nce"
    default_filter = "none"


class NegativeSampling(SampledLoss):
    """Negative sampling ([mikolov2013]): binary cross-entropy of the target against the negatives.

    Does not correct for q: scores become log P − log q + const.
    """

    loss_name = "logistic"


class Softmax(SampledLoss):
    """Exact softmax over all classes, as `torch.nn.functional.cross_entropy`: the reference of a comparison."""

    loss_name = "softmax"
    default_filter = "none"

    def __init__(self, *, num_classes: int, **options: Any):
        super().__init__(options.pop("negatives", "every"), num_classes=num_classes, **options)
