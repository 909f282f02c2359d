"""Quadratic kernel: q(c|h) ∝ α z² + 1. Blanc and Rendle, Adaptive Sampled Softmax with Kernel Based Sampling, 2018.

    z = o, the score (`argument: score`; Rawat et al. 2019, section 4.1), or z = h·c (`argument: product`; their eq. 15)
    φ(x) = [√α (x ⊗ x), 1],   x ⊗ x as the d(d+1)/2 numbers x_i x_j, i <= j, those with i < j times √2

The two differ by τ² inside α. The kernel is exact and positive, so there is no floor. But it grows with |o| and is far
from e^o for negative o, which is why Blanc and Rendle train the absolute softmax with it.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.negatives.softmax.kernels.base import KernelConfig, KernelSource
from embtrain.negatives.softmax.kernels.feature_map import FeatureMap


class QuadraticConfig(KernelConfig):
    """Settings of `quadratic`."""

    alpha: float = Field(100.0, gt=0, le=1e6, description="α of the kernel")
    argument: Literal["score", "product"] = Field("score", description="z: the score o = τ h·c, or h·c itself")
    leaf_size: int = Field(64, ge=1, le=65_536, description="candidates per leaf")
    within_leaf: Literal["exact", "kernel"] = Field(
        "kernel", description="distribution within a leaf: by the kernel K, or by e^o")


class QuadraticMap(FeatureMap):
    """The exact features of the quadratic kernel."""

    def __init__(self, config: QuadraticConfig, dim: int, device: str):
        self.alpha, self.scored_by = config.alpha, config.argument
        self.i, self.j = torch.triu_indices(dim, dim, device=device)
        self.pair_scale = torch.where(self.i == self.j, 1.0, 2.0).double().sqrt()
        self.width, self.dim = len(self.i) + 1, dim
        self.description = f"{key('alpha')} = {config.alpha:g}"

    @property
    def row_width(self) -> int:
        return self.dim

    def scale(self, tau: float) -> float:
        return math.sqrt(tau) if self.scored_by == "score" else 1.0

    @torch.no_grad()
    def encode_classes(self, y: Tensor) -> Tensor:
        # Slices of equal i, instead of gathering 2 W columns.
        d, first = y.shape[1], 0
        out, scaled = y.new_empty(len(y), self.width), y * math.sqrt(2 * self.alpha)
        for i in range(d):
            run = out[:, first:first + d - i]
            torch.mul(y[:, i:], scaled[:, i:i + 1], out=run)
            run[:, 0] *= math.sqrt(0.5)                                           # i = j
            first += d - i
        out[:, -1] = 1.0
        return out

    def encode_queries(self, x: Tensor) -> Tensor:
        return self.encode_classes(x)

    def sums(self, y: Tensor, prior: Tensor) -> Tensor:
        # Σ π y_i y_j as one product per block: features of each candidate would need d/2 times the memory.
        pairs = torch.bmm((y * prior.unsqueeze(2)).transpose(1, 2), y)[:, self.i, self.j]  # (n, d (d + 1) / 2)
        pairs *= (math.sqrt(self.alpha) * self.pair_scale).to(y.dtype)
        return torch.cat([pairs, prior.sum(1, keepdim=True)], 1)

    def all_products(self, x: Tensor, phi: Tensor, query_id: Tensor, y: Tensor) -> Tensor:
        return (x[query_id] @ y.T).square_().mul_(self.alpha).add_(1)

    def kernel(self, x: Tensor, phi: Tensor, y: Tensor) -> Tensor:
        return self.alpha * torch.bmm(y, x.unsqueeze(2)).squeeze(2).square() + 1


class Quadratic(KernelSource):
    """Kernel source with the quadratic kernel."""

    name = "quadratic"
    Config = QuadraticConfig
    config: QuadraticConfig

    def make_feature_map(self, random: torch.Generator) -> FeatureMap:
        return QuadraticMap(self.config, self.problem.dim, self.problem.device)
