"""Von Mises-Fisher loss: h defines a density over directions, centred at ĥ with concentration ‖h‖.

    p(e; h) = C(κ) e^{h·e},   κ = ‖h‖                                             (Kumar and Tsvetkov 2019)
    plain      L = −log C(κ) − h·e                       ∂L/∂h = R(κ) h − e
    reg1       L = −log C(κ) − h·e + λ₁ κ
    reg2       L = −log C(κ) − λ₂ h·e
    both       L = −log C(κ) − λ₂ h·e + λ₁ κ
    released   L = −log C(κ) + log(1 + κ) (η − cos(h, e))          minimized by the authors' program

The constant −log C(0) is omitted: at D = 300 it is −427.6, while training changes the loss by a few nats. bessel.py
computes log C and R. With `plain`, ‖h‖ grows without bound if cos is near 1; with `both` and `released`, the minimum is
at h = 0 while cos < λ₁ / λ₂, or η. With the dot product as score, h·e_b, the softmax over candidates is p restricted to
their vectors. Beam search adds log p.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field
from torch import Tensor

from embtrain.common.types import Query
from embtrain.losses.base import LossConfig
from embtrain.losses.bessel import log_c
from embtrain.losses.continuous.base import Continuous, Terms, inverse


class VmfConfig(LossConfig):
    """Configuration keys of the von Mises-Fisher loss."""

    name: str = "vmf"
    variant: Literal["plain", "reg1", "reg2", "both", "released"] = Field("both", description="variant of the loss")
    lambda1: float = Field(0.02, ge=0, description="λ₁ of reg1 and both, cost per unit of length; 0: none")
    lambda2: float = Field(0.1, gt=0, lt=1, description="λ₂ of reg2 and both, weight of h·e")
    eta: float = Field(0.2, ge=-1, le=1, description="η of released, cosine with value 0")


class Vmf(Continuous):
    """Von Mises-Fisher loss."""

    name = "vmf"
    Config = VmfConfig
    traits = replace(Continuous.traits, geometry=frozenset({"dot"}))
    config: VmfConfig

    def log_scale(self, query: Query) -> Tensor:
        """Return log C(κ) − log C(0)."""
        return log_c(query.vector.square().sum(1), query.vector.shape[1])[0].unsqueeze(1)

    def terms(self, kappa2: Tensor, c: Tensor, d: int) -> Terms:
        config, kappa = self.config, kappa2.sqrt()
        log, R = log_c(kappa2, d)
        if config.variant == "released":
            inverse_kappa, grown = inverse(kappa), kappa.log1p()
            cos = c * inverse_kappa
            slope = (config.eta - cos) / (1 + kappa) + cos * grown * inverse_kappa  # derivative of the second term by κ
            b = (grown * inverse_kappa).where(kappa > 0, 1.0)
            return Terms(grown * (config.eta - cos) - log, R + slope * inverse_kappa, -b)
        weight = config.lambda2 if config.variant in ("reg2", "both") else 1.0
        value, a = -weight * c - log, R
        if config.variant in ("reg1", "both"):
            value, a = value + config.lambda1 * kappa, a + config.lambda1 * inverse(kappa)
        return Terms(value, a, c.new_full((), -weight).expand_as(c))
