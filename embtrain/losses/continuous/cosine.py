"""Cosine loss: the prediction points in the direction of the target's vector.

    L = 1 − cos(h, e) = 1 − c / κ        ∂L/∂h = (c h / κ² − e) / κ

It equals ½ ‖ĥ − e‖², half the squared distance of unit vectors. h = 0 has no direction: L = 1, gradient 0.
Tokarchuk and Niculae 2024 use it with random targets.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from embtrain.losses.base import LossConfig
from embtrain.losses.continuous.base import Continuous, Terms, inverse


class CosineConfig(LossConfig):
    """Configuration keys of the cosine loss."""

    name: str = "cosine"


class Cosine(Continuous):
    """Cosine loss."""

    name = "cosine"
    Config = CosineConfig
    traits = replace(Continuous.traits, geometry=frozenset({"dot", "cosine"}))

    def terms(self, kappa2: Tensor, c: Tensor, d: int) -> Terms:
        inverse_kappa = inverse(kappa2.sqrt())
        cos = c * inverse_kappa
        return Terms(1 - cos, cos * inverse_kappa * inverse_kappa, -inverse_kappa)
