"""Syn-margin by projection (Bhat, Kumar and Tsvetkov 2019): u = unit(ĥ − (ĥ·e) e), what of ĥ is at right angles to e.

Beyond 135°, where u would turn ĥ the wrong way, the difference stands in its place:
embtrain/negatives/hard/synthetic.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embtrain.common.types import ProblemSpec
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.hard.synthetic import Synthetic, difference, projection

REVERSAL = -math.sqrt(0.5)  # cos 135°


class SyntheticProjection(Synthetic):
    name = "synthetic_projection"

    def __init__(self, config: NegativesConfig, world: ProblemSpec):
        super().__init__(config, world)
        self.reversed: Tensor | None = None                                      # (B,) rows of the last draw

    def made(self, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        self.reversed = (h * e).sum(1) < REVERSAL
        u, length = projection(h, e)
        if bool(self.reversed.any()):
            other, whole = difference(h, e)
            beyond = self.reversed.unsqueeze(1)
            u, length = torch.where(beyond, other, u), torch.where(beyond, whole, length)
        return u, length

    def metrics(self) -> dict[str, float]:
        reversed = self.reversed
        return {} if reversed is None or not len(reversed) else {"reversed": float(reversed.float().mean())}
