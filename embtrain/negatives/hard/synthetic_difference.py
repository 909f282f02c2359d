"""Syn-margin by difference (Bhat, Kumar and Tsvetkov 2019): u = unit(ĥ − e), from the right answer to the prediction.

What it does to ĥ, and where there is none: embtrain/negatives/hard/synthetic.py.
"""

from __future__ import annotations

from torch import Tensor

from embtrain.negatives.hard.synthetic import Synthetic, difference


class SyntheticDifference(Synthetic):
    name = "synthetic_difference"

    def synthesize(self, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        return difference(h, e)
