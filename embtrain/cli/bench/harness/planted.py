"""Classes with planted vectors: groups of size ∝ rank^-½, counts ∝ 1 / rank; and a problem of classification.

    t ~ prior,  x ~ N(c_t, σ² I)     =>     P(t|x) = softmax_t(x·c_t / σ² + log prior_t),  because all ‖c‖ = 1

so a linear encoder and a table of vectors can represent P.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

FEATURES, DISTANCE, SIGMA = 32, 0.7, 0.4  # of a problem; DISTANCE: of a vector from the centre of its group
N_HELD_OUT = 2048                # examples of the test, and as many for choices
MAX_SCORES = 1 << 25             # scores in memory at once
METRICS = ("log-likelihood", "recall@10")


def zipf_counts(n: int) -> Tensor:
    """Counts ∝ 1 / rank, (n,) float64; the rarest class has 1."""
    return n / torch.arange(1, n + 1, dtype=torch.float64)


def grouped_vectors(n: int, dim: int, distance: float, random: torch.Generator) -> Tensor:
    """Unit vectors (n, dim) in √n groups: each is ∝ the centre of its group + distance · u, u uniform on the sphere."""
    groups = round(math.sqrt(n))
    size = torch.arange(1, groups + 1, dtype=torch.float64).rsqrt()
    group = torch.multinomial(size, n, True, generator=random)
    return near(normalize(torch.randn(groups, dim, generator=random), dim=1)[group], distance, random)


def near(x: Tensor, distance: float, random: torch.Generator) -> Tensor:
    """Unit vectors ∝ x + distance · u, u uniform on the sphere; x: (n, dim)."""
    away = normalize(torch.randn(x.shape, generator=random), dim=1)
    return normalize(x + distance * away, dim=1)


class Scores(NamedTuple):
    """Means over examples, with the softmax over all classes."""

    log_likelihood: float
    recall: float                # share of examples whose target is among the 10 best classes

    def named(self, suffix: str = "") -> dict[str, float]:
        return {f"{metric}{suffix}": value for metric, value in zip(METRICS, self, strict=True)}


class Problem:
    """Planted classes, examples of them, and the scores of a model."""

    def __init__(self, n: int, device: str = "cpu"):
        self.n, self.device, self.counts = n, device, zipf_counts(n)
        self.vectors = grouped_vectors(n, FEATURES, DISTANCE, torch.Generator().manual_seed(n)).to(device)
        self.log_prior = (self.counts / self.counts.sum()).log().float().to(device)
        self.ends = self.counts.cumsum(0)
        self.valid, self.test = (self.examples(N_HELD_OUT, torch.Generator().manual_seed(seed)) for seed in (1, 2))
        self.optimum = self.scores(self.test[0] / SIGMA ** 2, self.vectors, self.test[1], self.log_prior)

    def examples(self, size: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features (size, FEATURES) and targets (size,), on the device of the problem; drawn on the CPU."""
        place = torch.rand(size, generator=random, dtype=torch.float64) * self.ends[-1]
        target = torch.searchsorted(self.ends, place, right=True).clamp_(max=self.n - 1)
        noise = SIGMA * torch.randn(size, FEATURES, generator=random)
        target = target.to(self.device)
        return self.vectors[target] + noise.to(self.device), target

    @torch.no_grad()
    def scores(self, query: Tensor, table: Tensor, target: Tensor, bias: Tensor | None = None) -> Scores:
        """Scores of softmax(query · table + bias), in chunks of rows."""
        log_p, is_found = [], []
        rows = max(1, MAX_SCORES // self.n)
        for h, t in zip(query.split(rows), target.split(rows), strict=True):
            s = h @ table.T if bias is None else (h @ table.T).add_(bias)
            at_target = s.gather(1, t.unsqueeze(1))
            log_p.append(at_target[:, 0] - s.logsumexp(1))
            is_found.append((s > at_target).sum(1) < 10)
        return Scores(float(torch.cat(log_p).mean()), float(torch.cat(is_found).float().mean()))
