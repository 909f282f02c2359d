"""Uniform noise: Q(b) = 1 / |B|.

With k = |B| draws, kQ(b) = 1 and NCE's logit is the bare score (corrects the remark after eq. 15 of [nce_note]).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from embtrain.negatives.static.base import StaticSource


class Uniform(StaticSource):
    """Equal noise for all candidates."""

    name = "uniform"
    traits = replace(StaticSource.traits, uses_counts=False)

    def masses(self) -> Tensor:
        return torch.ones(self.problem.n_candidates, dtype=torch.float64, device="cpu")
