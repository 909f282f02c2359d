"""Clusters: draw a cluster by an estimate of its softmax weight, then a candidate inside it.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h)                                       (see base.py)
    M_c(h) = e^{b_c + h·g_c}                     fitted, at the last queries h_1, …, h_N
             L_c(h) = log Σ_{i in c} e^{h·c_i},  g_c = 1/N Σ_n ∇L_c(h_n),  b_c = 1/N Σ_n (L_c(h_n) - h_n·g_c)
           = n_c e^{h·μ_c}                      centroid: first order
           = n_c e^{h·μ_c + ½ Σ_d h_d² σ²_cd}    diagonal
           = n_c e^{h·μ_c + ½ h'Σ_c h}           full: second order, exact for a Gaussian cluster

h and c are scaled so that o = h·c (cosine: h contains τ). μ, Σ are moments of a cluster's vectors; the clusters are
those of k-means. With within_cell: exact, q_i / p_i depends on i by its cluster alone, and approaches 1 as
the clusters shrink: the only error that remains is that of the clusters' weights.

L_c is convex, and log n_c + h·μ_c is its tangent at h = 0, where no query is. The queries of a model have a mean far
from 0, which changes slowly. A line with the average value and slope of L_c at the queries costs a draw as much as the
tangent, and is closer. Before the first query h_1 = 0: the tangent. With within_cell: quantized, lines and the queries
multiplied with them are int8 too.

In a language model few candidates have most of the probability. A line through a cell with one of them is far from
L_c, while a cell of one candidate has no error at all. Therefore candidates with

    1/(N-1) ( Σ_n p_i(h_n) - max_n p_i(h_n) ) > a / V,   p = softmax(o)

at the recent queries are cells of their own. The query that gives a candidate its largest probability is left out,
since the next query will be another.

Adaptive softmax by clusters: Bengio and Senécal 2008 wish for a q like this; cluster-based sampling: Rawat et al. 2019,
R36. Monath et al. 2023 follow the trained vectors of a dual encoder with a tree of clusters.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.negatives.sampling.kmeans import group_means, kmeans
from embtrain.negatives.sampling.row_store import rounded
from embtrain.negatives.softmax.cells.base import Cells, CellsConfig
from embtrain.negatives.softmax.cells.inside import MIN_LOG_MASS

LINEAR_ESTIMATES = ("fitted", "centroid")  # estimates with a linear log M
MAX_MOMENTS = 1 << 29                      # numbers in full covariances: 2 GiB
ROWS_PER_CHUNK = 8192                      # candidates handled at once: no full copy, and the chunk stays in the cache


class ClusterConfig(CellsConfig):
    """Settings of `cluster`."""

    clusters: int = Field(0, ge=0, le=1_000_000, description="number of clusters; 0: 4 √n, or 2 √n when quantized")
    estimate: Literal["fitted", "centroid", "diagonal", "full"] = Field(
        "fitted", description="M_c, fitted to recent queries, or estimated from the spread of a cluster")
    singleton_threshold: float | None = Field(
        None, ge=0, le=1e9, description=(
            "a: a candidate with more than a/V of the mass gets its own cell, if masses are fitted; null: "
            "2 if they are; 0: no cells of their own"))


class Cluster(Cells):
    """Draws by k-means clusters."""

    name = "cluster"
    Config = ClusterConfig
    config: ClusterConfig

    def __init__(self, config: ClusterConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        v = problem.n_candidates
        if config.clusters > v:
            raise UsageError(f"{key('clusters')}: {config.clusters:,} is more than the {v:,} candidates; set fewer")
        is_fitted = config.estimate == "fitted"
        self.traits = replace(self.traits, fits_to_queries=is_fitted)
        if config.singleton_threshold and not is_fitted:
            raise UsageError(f"{key('singleton_threshold')}: {config.estimate} masses are not fitted to queries, so "
                             f"prominent candidates are unknown; remove it, or set {key('estimate')}: fitted")
        threshold = 2.0 if config.singleton_threshold is None else config.singleton_threshold
        self.singleton_share = threshold / v if is_fitted else 0.0
        # With √n clusters q is further from the softmax, and a draw scores more members, so it is slower too
        # (docs/results). Scoring a copied member takes half as long, and half as many clusters are fastest.
        self.n_cells_requested = config.clusters or min(v, (2 if self.uses_copy else 4) * round(math.sqrt(v)))
        n_clusters = self.n_cells_requested
        if config.estimate == "full" and n_clusters * problem.dim ** 2 > MAX_MOMENTS:
            raise UsageError(f"{key('estimate')}: full covariances of {n_clusters:,} clusters in {problem.dim:,} "
                             f"dimensions take more than 2 GiB; use diagonal, or fewer {key('clusters')}")

    def label(self, c: Tensor, seed: int) -> Tensor:
        start = None
        if self.labels is not None and len(torch.unique(self.labels)) == self.n_cells_requested:  # none is empty
            start = group_means(c, self.labels, self.n_cells_requested)
        return kmeans(c, self.n_cells_requested, seed, start)

    def singletons(self, c: Tensor) -> Tensor | None:
        """The candidates above the threshold; the likeliest, if there are more than clusters."""
        if self.recent_queries is None or len(self.recent_queries) < 2 or not self.singleton_share:
            return None
        p = (c @ self.recent_queries.to(c.dtype).T).softmax(0)                                           # (V, N)
        rest = p.sum(1).sub_(p.amax(1)).div_(len(self.recent_queries) - 1)
        is_singleton = rest > self.singleton_share
        if is_singleton.sum() > self.n_cells_requested:
            likeliest = rest.topk(self.n_cells_requested).indices
            is_singleton = torch.zeros_like(is_singleton).index_fill_(0, likeliest, True)
        return is_singleton

    def summarise(self, c: Tensor) -> tuple[Tensor, ...]:
        if self.config.estimate in LINEAR_ESTIMATES:
            return self._fit_lines(c)
        n = (self.index.start[1:] - self.index.start[:-1]).unsqueeze(1)                                     # (C, 1)
        mean = group_means(c, self.index.cell, len(n))                                                # (C, D)
        deviation = c - mean[self.index.cell]                                                         # (V, D)
        if self.config.estimate == "diagonal":
            return mean, torch.zeros_like(mean).index_add_(0, self.index.cell, deviation.square()) / n
        deviation, bounds = deviation[self.index.order], self.index.start.tolist()
        covariance = torch.empty(len(n), c.shape[1], c.shape[1], dtype=c.dtype, device=c.device)    # (C, D, D)
        for cell in range(len(n)):
            x = deviation[bounds[cell]:bounds[cell + 1]]
            covariance[cell] = x.T @ x / len(x)
        return mean, covariance

    def _fit_lines(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """Slope g (C, D) and intercept b (C,) of log M; μ and log n before the first query."""
        h = c.new_zeros(1, c.shape[1]) if self.recent_queries is None else self.recent_queries.to(c.dtype)      # (N, D)
        o = c @ h.T                                                                             # (V, N)
        weight = o.sub_(o.amax(0)).exp_()                               # scaled: the largest of a query is 1
        mass = weight.new_zeros(self.index.n_cells, len(h)).index_add_(0, self.index.cell, weight)          # (C, N)
        mass.clamp_(min=math.exp(MIN_LOG_MASS))
        g, share = c.new_zeros(self.index.n_cells, c.shape[1]), 1 / (len(h) * mass)
        chunks = (x.split(ROWS_PER_CHUNK) for x in (self.index.cell, c, weight))
        for cell, vectors, weights in zip(*chunks, strict=True):
            g.index_add_(0, cell, vectors * (weights * share[cell]).sum(1, keepdim=True))
        if self.uses_copy:
            g = rounded(g)
        return g, mass.log_().mean(1) - g @ h.mean(0)

    def log_mass(self, h: Tensor) -> Tensor:
        slope, second = self.summary
        is_linear = self.config.estimate in LINEAR_ESTIMATES
        if is_linear and self.uses_copy:
            h = rounded(h)
        out = torch.addmm((second if is_linear else self.index.log_size).to(h.dtype), h, slope.T)           # (Q, C)
        if self.config.estimate == "diagonal":
            out += 0.5 * h.square() @ second.T
        elif self.config.estimate == "full":
            # A chunk of rows at a time: the products h_d h_e need D times the memory of h.
            step = max(1, (1 << 24) // max(1, h.shape[1] ** 2))
            for i in range(0, len(h), step):
                pair = torch.einsum("qd,qe->qde", h[i:i + step], h[i:i + step]).flatten(1)      # (q, D²)
                out[i:i + step] += 0.5 * pair @ second.flatten(1).T
        return out

    def linear_log_mass(self) -> tuple[Tensor, Tensor] | None:
        slope, second = self.summary
        return (slope, second) if self.config.estimate in LINEAR_ESTIMATES and slope.dtype == torch.float32 else None
