"""Syn-margin by projection (Bhat, Kumar and Tsvetkov 2019): u = unit(ĥ − (ĥ·e) e), the part of ĥ orthogonal to e.

Beyond 135°, where u would turn ĥ the wrong way, the difference is used: embtrain/negatives/hard/synthetic.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embtrain.common.types import ProblemSpec
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.hard.synthetic import Synthetic, difference, projection

REVERSAL_COSINE = -math.sqrt(0.5)  # cos 135°


class SyntheticProjection(Synthetic):
    """The component of the query orthogonal to its target."""

    name = "synthetic_projection"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.is_reversed: Tensor | None = None          # (B,) rows of the last draw beyond 135°

    def synthesize(self, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        self.is_reversed = (h * e).sum(1) < REVERSAL_COSINE
        u, length = projection(h, e)
        if bool(self.is_reversed.any()):
            difference_u, difference_length = difference(h, e)
            is_beyond = self.is_reversed.unsqueeze(1)
            u, length = torch.where(is_beyond, difference_u, u), torch.where(is_beyond, difference_length, length)
        return u, length

    def metrics(self) -> dict[str, float]:
        is_reversed = self.is_reversed
        return {} if is_reversed is None or not len(is_reversed) else {"reversed": float(is_reversed.float().mean())}
