"""Base of sources with one distribution q(b) for all queries.

With replacement: k draws from q through an alias table; density exact.
Without: the k largest of log q(b) + Gumbel noise. Given κ, the (k+1)-th largest, b is in the draw with probability
π(b) = 1 - exp(-q(b) e^{-κ}), and E Σ_j f(b_j) / π(b_j) = Σ_b f(b) (Duffield, Lund and Thorup 2007; Kool, van Hoof and
Welling 2019). So M q = π with the total weight M, and the density is conditional. If k = V all are drawn and π = 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling.alias import AliasTable

MAX_NOISE_VALUES = 4_000_000  # numbers of Gumbel noise held at once


def check_masses(masses: Tensor) -> Tensor:
    """Return the weights of a noise distribution, (V,). Raises UsageError if they are not finite or all 0."""
    if not torch.isfinite(masses).all() or not masses.sum() > 0:
        raise UsageError(f"{key('source')}: the noise distribution has no finite mass; change its settings")
    return masses


class StaticSource(NegativeSource):
    """Base of uniform, log_uniform and unigram. A subclass implements `masses`."""

    traits = Traits(uses_counts=True, supports_total_weight=True, supports_without_replacement=True)

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        masses = check_masses(self.masses())                         # (V,) float64
        q = masses / masses.sum()
        self.alias = AliasTable(q, problem.device)
        self.log_q = q.log().to(problem.device, torch.float32)        # (V,)
        self.traits = replace(self.traits, iid=config.total_weight in (None, config.k))     # else weights differ from 1
        if not config.replacement:
            self.traits = replace(self.traits, density="conditional", iid=False)
            if config.k > int((q > 0).sum()):
                raise UsageError(f"{key('k')}: {config.k} negatives cannot be drawn without replacement from "
                                 f"{int((q > 0).sum()):,} candidates; draw fewer, or set {key('replacement')}: true")

    def masses(self) -> Tensor:
        """Unnormalised q, (V,) float64."""
        raise AbstractMethod(self, "masses")

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, draw_id = self.draw_layout(query)
        weight, total = self.weight_and_total(k)
        if not self.config.replacement:
            ids, log_q = self._draw_without_replacement(n, k)
            return Negatives(ids, draw_id=draw_id, log_q=log_q, total_weight=total)
        ids = self.draw_ids(n, k)
        return Negatives(ids, draw_id=draw_id, log_q=self.log_q[ids], weight=weight, total_weight=total,
                         log_q_target=self.log_q[query.target])

    def draw_ids(self, n_draws: int, k: int) -> Tensor:
        """ids of a draw with replacement, (n_draws, k), for callers that look up log q themselves."""
        return self.alias.draw((n_draws, k), self.random)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return self.log_q[ids]

    def _draw_without_replacement(self, n: int, k: int) -> tuple[Tensor, Tensor]:
        """n draws of k distinct ids, and log(π / k): (n, k) each."""
        v = len(self.log_q)
        ids, log_q = [], []
        for start in range(0, n, step := max(1, MAX_NOISE_VALUES // v)):
            rows = min(step, n - start)
            noise = torch.empty(rows, v, dtype=torch.float64, device=self.log_q.device)
            noise.exponential_(generator=self.random).log_().neg_()              # standard Gumbel
            top = (self.log_q.double() + noise).topk(min(k + 1, v), dim=1)
            chosen = top.indices[:, :k]
            if k == v:
                inclusion = torch.zeros(rows, k, dtype=torch.float64, device=noise.device)
            else:
                kappa = top.values[:, k:]                                        # (rows, 1)
                inclusion = torch.log(-torch.expm1(-torch.exp(self.log_q.double()[chosen] - kappa)))
            ids.append(chosen)
            log_q.append((inclusion - math.log(k)).float())
        return torch.cat(ids), torch.cat(log_q)
