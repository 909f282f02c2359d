"""Clusters of candidates: first the cluster by an estimate of its softmax mass, then a candidate inside it.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h)                                       (see cells.py)
    M_c(h) = n_c e^{h·μ_c}                      centroid: first order
           = n_c e^{h·μ_c + ½ Σ_d h_d² σ²_cd}    diagonal
           = n_c e^{h·μ_c + ½ h'Σ_c h}           full: second order, exact for a Gaussian cluster

h and c are scaled so that o = h·c (cosine: h carries τ). μ, Σ are moments of a cluster's vectors; the clusters are
those of mini-batch k-means. With the exact inside, q_i / p_i depends on i by its cluster alone, and nears 1 as the
clusters shrink: all that is left of the softmax's distribution is the error of their masses.

Adaptive softmax by clusters: Bengio and Senécal 2008 wish for such a q; cluster-based sampling: Rawat et al. 2019, R36.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.errors import UsageError
from embtrain.negatives.cells import Cells, CellsConfig
from embtrain.negatives.kmeans import kmeans
from embtrain.types import World

MOST_MOMENTS = 1 << 29  # numbers that full covariances may hold: 2 GiB


class ClusterConfig(CellsConfig):
    clusters: int = Field(0, ge=0, le=1_000_000, description="how many clusters; 0: 4 √n")
    estimate: Literal["centroid", "diagonal", "full"] = Field(
        "centroid", description="M_c, by what is known of a cluster's spread")


class Cluster(Cells):
    name = "cluster"
    Config = ClusterConfig
    config: ClusterConfig

    def __init__(self, config: ClusterConfig, world: World):
        super().__init__(config, world)
        v = world.n_candidates
        if config.clusters > v:
            raise UsageError(f"negatives.clusters: {config.clusters:,} is more than the {v:,} candidates")
        # With √n of them q is further from the softmax, and a draw scores more members: slower too (docs/results).
        self.cells = config.clusters or min(v, 4 * round(math.sqrt(v)))
        if config.estimate == "full" and self.cells * world.dim ** 2 > MOST_MOMENTS:
            raise UsageError(f"negatives.estimate: full covariances of {self.cells:,} clusters in {world.dim:,} "
                             "dimensions take more than 2 GiB; use diagonal, or fewer negatives.clusters")

    def label(self, c: Tensor, seed: int) -> Tensor:
        start = None
        if self.labels is not None:
            count = torch.bincount(self.labels, minlength=self.cells)
            if (count > 0).all():
                start = c.new_zeros(self.cells, c.shape[1]).index_add_(0, self.labels, c) / count.unsqueeze(1)
        return kmeans(c, self.cells, seed, start)

    def summarise(self, c: Tensor) -> tuple[Tensor, ...]:
        n = (self.start[1:] - self.start[:-1]).unsqueeze(1)                                     # (C, 1)
        mean = c.new_zeros(len(n), c.shape[1]).index_add_(0, self.cell, c) / n                  # (C, D)
        if self.config.estimate == "centroid":
            return (mean,)
        away = c - mean[self.cell]                                                              # (V, D)
        if self.config.estimate == "diagonal":
            return mean, torch.zeros_like(mean).index_add_(0, self.cell, away.square()) / n
        away, bounds = away[self.order], self.start.tolist()
        spread = torch.empty(len(n), c.shape[1], c.shape[1], dtype=c.dtype, device=c.device)    # (C, D, D)
        for cell in range(len(n)):
            x = away[bounds[cell]:bounds[cell + 1]]
            spread[cell] = x.T @ x / len(x)
        return mean, spread

    def log_mass(self, h: Tensor) -> Tensor:
        mean, *spread = self.summary
        out = torch.addmm(self.log_size.to(h.dtype), h, mean.T)                                 # (Q, C)
        if self.config.estimate == "diagonal":
            out += 0.5 * h.square() @ spread[0].T
        elif self.config.estimate == "full":
            # Rows a few at a time: the products h_d h_e take D times the room of h.
            step = max(1, (1 << 24) // max(1, h.shape[1] ** 2))
            for i in range(0, len(h), step):
                pair = torch.einsum("qd,qe->qde", h[i:i + step], h[i:i + step]).flatten(1)      # (q, D²)
                out[i:i + step] += 0.5 * pair @ spread[0].flatten(1).T
        return out

    def linear(self) -> tuple[Tensor, Tensor] | None:
        plain = self.config.estimate == "centroid" and self.summary[0].dtype == torch.float32
        return (self.summary[0], self.log_size) if plain else None
