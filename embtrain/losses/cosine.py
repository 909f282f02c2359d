"""The cosine loss: a prediction shall point where the right candidate does.

    L = 1 − cos(h, e) = 1 − c / κ        ∂L/∂h = (c h / κ² − e) / κ

It is ½ ‖ĥ − e‖², the squared distance of unit vectors. Where h = 0 there is no direction: L = 1, gradient 0.
Tokarchuk and Niculae 2024 train with it against random targets.
"""

from __future__ import annotations

from torch import Tensor

from embtrain.losses.base import LossConfig
from embtrain.losses.continuous import Continuous, Terms, inverse


class CosineConfig(LossConfig):
    name: str = "cosine"


class Cosine(Continuous):
    name = "cosine"
    Config = CosineConfig
    geometry: frozenset[str] = frozenset({"dot", "cosine"})

    def terms(self, kappa2: Tensor, c: Tensor, d: int) -> Terms:
        inverse_kappa = inverse(kappa2.sqrt())
        cos = c * inverse_kappa
        return Terms(1 - cos, cos * inverse_kappa * inverse_kappa, -inverse_kappa)
