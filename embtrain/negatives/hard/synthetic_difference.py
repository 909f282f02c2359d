"""Syn-margin by difference (Bhat, Kumar and Tsvetkov 2019): u = unit(ĥ − e), from the target to the prediction.

embtrain/negatives/hard/synthetic.py describes its effect on ĥ, and when it does not exist.
"""

from __future__ import annotations

from torch import Tensor

from embtrain.negatives.hard.synthetic import Synthetic, difference


class SyntheticDifference(Synthetic):
    """The direction from the target to the query."""

    name = "synthetic_difference"

    def synthesize(self, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        return difference(h, e)
