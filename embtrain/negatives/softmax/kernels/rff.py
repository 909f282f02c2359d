"""RF-softmax: the exponential kernel by random Fourier features. Rawat et al. 2019, section 3.2.

    φ(x) = D^{-1/2} [cos w_1·x, …, cos w_D·x, sin w_1·x, …, sin w_D·x],   w ~ N(0, I),  x = √ν h     (eq. 17)
    E φ(x)·φ(y) = e^{-‖x-y‖²/2},       e^{ν h·c} = e^{‖x‖²/2} e^{‖y‖²/2} e^{-‖x-y‖²/2}               (eq. 16, 18)
    q ∝ e^{‖y‖²/2} φ(x)·φ(y)                                                                        (eq. 19)

D frequencies give 2D numbers. w_j·x with w ~ N(0, I) is ω_j·h with ω ~ N(0, νI); the paper prints N(0, I/ν), which
gives another kernel. For unit vectors e^{‖y‖²/2} is constant; otherwise it is a weight, here e^{(‖y‖² - max ‖y‖²)/2}.
Products of Fourier features can be negative, more often for larger ν: the tree sets a floor (sum_tree.py). All features
have a similar size, and their noise is far above the int8 rounding error, so sums are stored as int8.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from embtrain.kernels.core.loader import core
from embtrain.kernels.sampling import tree_sums as kernel
from embtrain.negatives.sampling.row_store import StoredDtype
from embtrain.negatives.softmax.kernels.base import KernelSource
from embtrain.negatives.softmax.kernels.exponential import ExponentialConfig, ExponentialMap
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap
from embtrain.negatives.softmax.kernels.random_directions import DirectionKind, RandomDirections

MAX_LOG_WEIGHT = 60.0  # limit e^60 times the largest fitted weight: sums of millions still fit float32


class RffConfig(ExponentialConfig):
    """Settings of `rff`."""

    directions: DirectionKind = Field(
        "plain", description="w: independent, orthogonal blocks, or signs and Hadamard matrices")
    sum_dtype: StoredDtype = Field(
        "int8", description="dtype of the node sums; int8: one scale per node; float32: four times the memory")


class FourierMap(ExponentialMap):
    """Random Fourier features of the Gaussian kernel, times a weight of the class."""

    def __init__(self, config: RffConfig, dim: int, random: torch.Generator, device: str):
        super().__init__(config)
        self.w = RandomDirections(config.features, dim, config.directions, random, device)
        self.width = 2 * config.features
        self.largest = torch.zeros((), dtype=torch.float64, device=device)        # max ‖y‖² when fitted

    def fit(self, sample: Tensor, largest: float) -> None:
        self.largest.fill_(largest)

    def encode_classes(self, y: Tensor) -> Tensor:
        return self.encode_queries(y) * self._weight(y).unsqueeze(1)

    def _weight(self, y: Tensor) -> Tensor:
        """Weight e^{(‖y‖² - max ‖y‖²)/2} of classes y (..., d): (...)."""
        return ((y.square().sum(-1) - self.largest.to(y.dtype)) / 2).clamp(max=MAX_LOG_WEIGHT).exp()

    def sums(self, y: Tensor, prior: Tensor) -> Tensor:
        if y.device.type != "cpu" or y.dtype != torch.float32 or core() is None:
            return super().sums(y, prior)
        angle, weight = self.w.project(y.flatten(0, 1)), self._weight(y) * prior
        return torch.from_numpy(kernel.fourier(angle.contiguous().numpy(), weight.contiguous().numpy(),
                                               torch.get_num_threads()))

    def encode_queries(self, x: Tensor) -> Tensor:
        angle = self.w.project(x)                                                   # (n, D)
        return torch.cat([angle.cos(), angle.sin()], 1) / math.sqrt(self.w.n)

    def log_neutral(self, x: Tensor) -> Tensor:
        return -(x.square().sum(1) + self.largest) / 2

    def fourier(self) -> tuple[Tensor, float] | None:
        return None if self.w.kind == "structured" else (self.w.w, float(self.largest))

    def state(self) -> dict[str, Tensor]:
        return {"w": self.w.w, "largest": self.largest}


class Rff(KernelSource):
    """Kernel source with random Fourier features."""

    name = "rff"
    Config = RffConfig
    config: RffConfig

    def make_feature_map(self, random: torch.Generator) -> FeatureMap:
        return FourierMap(self.config, self.problem.dim, random, self.problem.device)
