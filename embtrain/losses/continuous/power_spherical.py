"""Power spherical loss: a density over directions like von Mises-Fisher's, without Bessel functions.

    p(e; h) ∝ (1 + cos)^κ,   κ = ‖h‖,  cos = h·e / κ                              (De Cao and Aziz 2020)
    L = −κ log(1 + cos) + G(κ) − G(0),   G(κ) = κ log 2 + log Γ(β + κ) − log Γ(2β + κ),   β = (D − 1) / 2
    ∂L/∂κ = −log(1 + cos) + log 2 + ψ(β + κ) − ψ(2β + κ)  at a fixed cos

The constant at κ = 0 is omitted. log(1 + cos) is unbounded at cos = −1, so 1 + cos is clamped to at least 10^−6.
Evaluation uses κ log(1 + cos(h, e_b)), with the dot product as score, which is κ cos.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from embtrain.common.types import Query
from embtrain.losses.base import LossConfig
from embtrain.losses.continuous.base import Continuous, Terms, inverse

MIN_ONE_PLUS_COS = 1e-6  # lower limit of 1 + cos


def _log_scale(kappa: Tensor, beta: float) -> Tensor:
    """Return G(0) − G(κ), in float64."""
    G = kappa * math.log(2) + torch.lgamma(beta + kappa) - torch.lgamma(2 * beta + kappa)
    return math.lgamma(beta) - math.lgamma(2 * beta) - G


class PowerSphericalConfig(LossConfig):
    """Configuration keys of the power spherical loss."""

    name: str = "power_spherical"


class PowerSpherical(Continuous):
    """Power spherical loss."""

    name = "power_spherical"
    Config = PowerSphericalConfig
    traits = replace(Continuous.traits, geometry=frozenset({"dot"}))

    def log_scale(self, query: Query) -> Tensor:
        """Return G(0) − G(κ)."""
        kappa = query.vector.double().norm(dim=1, keepdim=True)
        return _log_scale(kappa, (query.vector.shape[1] - 1) / 2).to(query.vector.dtype)

    def terms(self, kappa2: Tensor, c: Tensor, d: int) -> Terms:
        beta = (d - 1) / 2
        kappa, dtype = kappa2.double().sqrt(), c.dtype   # each log Γ is in the hundreds, their difference is small
        inverse_kappa = inverse(kappa)
        cos = c.double() * inverse_kappa
        y = (1 + cos).clamp(min=MIN_ONE_PLUS_COS)
        slope = math.log(2) + torch.digamma(beta + kappa) - torch.digamma(2 * beta + kappa)
        a = (slope - y.log() + cos / y) * inverse_kappa
        return Terms((-_log_scale(kappa, beta) - kappa * y.log()).to(dtype), a.to(dtype), (-1 / y).to(dtype))

    def logit(self, score: Tensor, query: Query) -> Tensor:
        kappa = query.vector.norm(dim=1, keepdim=True).to(score.dtype)                       # (n, 1)
        return kappa * (1 + score * inverse(kappa)).clamp(min=MIN_ONE_PLUS_COS).log()
