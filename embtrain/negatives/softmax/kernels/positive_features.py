"""Positive random features of the exponential kernel: no weight is negative, for vectors of any length.

    plain        φ_j(x) = D^{-1/2} e^{w_j·x - ‖x‖²/2},   w ~ N(0, I);   E φ(x)·φ(y) = e^{x·y}
                 FAVOR+: Choromanski et al., Rethinking Attention with Performers, 2021
    hyperbolic   the same for w_j and -w_j, D/2 directions: less variance
    bounded      φ_j(x) = D^{-1/2} (1-4A)^{d/4} e^{A ‖w_j‖² + √(1-4A) w_j·x - ‖x‖²/2},   A <= 0: no feature is larger
                 than (1-4A)^{d/4} e^{(u/2) ‖x‖²}, u = (1-4A)/(-2A) - 1
                 Likhosherstov et al., Chefs' Random Tables, 2022; A = (1-u')/8 has the least variance if
                 u' = (d + 2s + √((d+2s)² + 8ds)) / 2d and s = mean ‖x+y‖², here 2 mean ‖y‖²

and q ∝ φ(x)·φ(y). Features of classes are stored as e^{l_j(y) - m_j} with m_j the largest logarithm in a sample of
classes, and those of queries as e^{l_j(x) + m_j - max_j}. Nothing overflows, and q only loses a factor of the query.

With few features most e^{x·y} are estimated far below their mean, and a few large features compensate. Weights below
the floor (negatives.floor) are replaced by it. If nearly all are, draws are uniform, and a warning reports the share.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.negatives.softmax.kernels.base import KernelSource
from embtrain.negatives.softmax.kernels.exponential import ExponentialConfig, ExponentialMap
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.random_directions import RandomDirections

MAX_LOG_FEATURE = 60.0  # limit e^60 times the largest fitted feature: sums of millions still fit float32


class PositiveConfig(ExponentialConfig):
    """Settings of `positive_features`."""

    kind: Literal["plain", "hyperbolic", "bounded"] = Field("hyperbolic", description="kind of positive features")
    directions: Literal["plain", "orthogonal"] = Field("orthogonal", description="w: independent, or orthogonal blocks")


class PositiveMap(ExponentialMap):
    """Positive random features."""

    positive = True

    def __init__(self, config: PositiveConfig, dim: int, random: torch.Generator, device: str):
        super().__init__(config)
        self.kind, self.width, self.dim = config.kind, config.features, dim
        is_hyperbolic = config.kind == "hyperbolic"
        if is_hyperbolic and config.features % 2:
            raise UsageError(f"{key('features')}: hyperbolic features come in pairs, but {config.features} is odd; "
                             f"set an even number, or {key('kind')}: plain")
        n_directions = config.features // (2 if is_hyperbolic else 1)
        self.w = RandomDirections(n_directions, dim, config.directions, random, device)
        self.a = torch.zeros((), dtype=torch.float64, device=device)                           # A
        self.offset = torch.zeros(self.width, dtype=torch.float64, device=device)              # m

    def fit(self, sample: Tensor, largest: float) -> None:
        if self.kind == "bounded":
            d, s = self.dim, 2 * float(sample.square().sum(1).mean())
            self.a.fill_((1 - (d + 2 * s + math.sqrt((d + 2 * s) ** 2 + 8 * d * s)) / (2 * d)) / 8)
        self.offset.copy_(self.log_features(sample).amax(0))

    def log_features(self, x: Tensor) -> Tensor:
        """Logarithms l of the features, (n, D)."""
        a = float(self.a)
        projection = self.w.project(x) * math.sqrt(1 - 4 * a)
        if self.kind == "hyperbolic":
            projection = torch.cat([projection, -projection], 1)
        if self.kind == "bounded":
            projection = projection + (a * self.w.squared_norms() + self.dim / 4 * math.log(1 - 4 * a)).to(x.dtype)
        return projection - x.square().sum(1, keepdim=True) / 2 - math.log(self.width) / 2

    def encode_classes(self, y: Tensor) -> Tensor:
        return (self.log_features(y) - self.offset.to(y.dtype)).clamp_(max=MAX_LOG_FEATURE).exp_()

    def encode_queries(self, x: Tensor) -> Tensor:
        log = self.log_features(x) + self.offset
        return (log - log.amax(1, keepdim=True)).exp_()

    def log_neutral(self, x: Tensor) -> Tensor:
        return -(self.log_features(x) + self.offset).amax(1)

    def state(self) -> dict[str, Tensor]:
        return {"w": self.w.w, "a": self.a, "offset": self.offset}


class PositiveFeatures(KernelSource):
    """Kernel source with positive random features."""

    name = "positive_features"
    Config = PositiveConfig
    config: PositiveConfig

    def make_feature_map(self, random: torch.Generator) -> FeatureMap:
        return PositiveMap(self.config, self.problem.dim, random, self.problem.device)
