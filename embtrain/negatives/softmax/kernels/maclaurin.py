"""Random Maclaurin features of the exponential kernel.

    e^{x·y} = Σ_N (x·y)^N / N!,      P(N) = 2^{-N-1}
    φ_j(x) = D^{-1/2} (2^{N_j + 1} / N_j!)^{1/2} Π_{i=1..N_j} ω_ji·x,   ω of random signs;   E φ(x)·φ(y) = e^{x·y}

Kar and Karnick, Random Feature Maps for Dot Product Kernels, 2012. Unbiased for any vectors, but the variance is high:
that of products of N projections. Included for comparison (Rawat et al. 2019, table 1). q ∝ φ(x)·φ(y), with a floor
where it is negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from embtrain.negatives.softmax.kernels.base import KernelSource
from embtrain.negatives.softmax.kernels.exponential import ExponentialConfig, ExponentialMap
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap


class MaclaurinMap(ExponentialMap):
    """Products of random projections."""

    def __init__(self, config: ExponentialConfig, dim: int, random: torch.Generator, device: str):
        super().__init__(config)
        self.width = n = config.features
        toss = torch.rand(n, generator=random, dtype=torch.float64, device="cpu")
        degree = (-toss.clamp(min=1e-12).log2()).floor().long().sort(descending=True).values   # (D,) N, largest first
        signs = 2 * torch.randint(0, 2, (int(degree.sum()), dim), generator=random, device="cpu") - 1
        self.load({"degree": degree.to(device), "signs": signs.to(device, torch.int8)})

    def encode_classes(self, y: Tensor) -> Tensor:
        degree = self.degree
        log_scale = ((degree + 1).float() * math.log(2) - torch.lgamma(degree.double() + 1) - math.log(len(degree))) / 2
        out = log_scale.exp().to(y.dtype).expand(len(y), -1).contiguous()                      # (n, D)
        for m, signs in zip(self.factors, self.signs.to(y.dtype).split(self.factors), strict=True):
            out[:, :m] *= y @ signs.T
        return out

    def encode_queries(self, x: Tensor) -> Tensor:
        return self.encode_classes(x)

    def state(self) -> dict[str, Tensor]:
        return {"degree": self.degree, "signs": self.signs}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.degree, self.signs = state["degree"], state["signs"]                              # (D,), (Σ N, d) int8
        # Features are sorted by degree: the i-th factor belongs to the first features only, self.factors[i] of them.
        self.factors = [int((self.degree > i).sum()) for i in range(int(self.degree[0]))]


class Maclaurin(KernelSource):
    """Kernel source with random Maclaurin features."""

    name = "maclaurin"
    Config = ExponentialConfig
    config: ExponentialConfig

    def make_feature_map(self, random: torch.Generator) -> FeatureMap:
        return MaclaurinMap(self.config, self.problem.dim, random, self.problem.device)
