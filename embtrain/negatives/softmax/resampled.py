"""Sampling–importance–resampling: cheap candidates, resampled in proportion to their score by the model.

    y_1..y_M ~ q₀ (the inner source)      ω_l = v_l / Σ_l' v_l',   v_l = w_l e^{s_l} / (W q₀(y_l))
    k of them are drawn, with replacement, by ω;    log q_j = s_j − log Ẑ,   Ẑ = Σ_l v_l

w_l is the weight of a candidate and W = Σ_l w_l. Ẑ is an unbiased estimate of Z, and each negative, corrected by its
k q_j, adds Ẑ / k to the sum. The correction thus covers all M candidates: E Σ_j f(y_j) / (k q_j) =
E Σ_l w_l f(y_l) / (W q₀) = Σ_i f(i), exactly. The usual correction by the softmax itself, or by q₀, is biased. The
marginal probability of a negative or of the target is not known.

Rubin 1987; as a softmax sampler: Chen et al. 2021 (dynamic importance); Rawat et al. 2019 mention related work (R36).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import MAX_ROWS, row_cdf, searchsorted_rows
from embtrain.negatives.sampling.pool import NestedSettings, PoolSource


class ResampledConfig(NegativesConfig):
    """Settings of `resampled`."""

    inner: NestedSettings = Field(
        {"source": "unigram", "exponent": 1.0, "k": 500, "share_draws_by": "batch"}, description=(
            "q₀ with its settings; its k is M, its share_draws_by sets which rows share candidates"))


class Resampled(PoolSource):
    """Resamples k of M candidates by their softmax weight in the pool."""

    name = "resampled"
    Config = ResampledConfig
    traits = replace(PoolSource.traits, density="conditional",
                     sharing_limit="draws for each row (inner.share_draws_by shares the candidates)")
    max_rows: ClassVar[int] = MAX_ROWS
    config: ResampledConfig

    def __init__(self, config: ResampledConfig, problem: ProblemSpec):
        super().__init__(config, config.inner, problem)
        if self.inner.traits.density not in ("exact", "conditional") or not self.inner.traits.components:
            raise UsageError(f"{key('inner.source')}: {self.inner.name} states no probabilities for the correction; "
                             "use unigram, log_uniform or uniform")
        if self.inner.traits.learns:
            raise UsageError(f"{key('inner.source')}: {self.inner.name} learns from the costs of all its negatives, "
                             "but resampled trains on some of them; use unigram, log_uniform or uniform")

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        ids, log_q = self._select_in_chunks(query, k, view)
        mass = torch.full((1, 1), float(k), dtype=torch.float32, device=query.target.device)
        return Negatives(ids, log_q=log_q.float(), total_weight=mass)

    def _select(self, query: Query, pool_draw: Negatives, k: int, view: ModelView) -> tuple[Tensor, Tensor]:
        """Resampled ids and their log q: (B, k) each."""
        n = len(query)
        pool = self._pool_ids(pool_draw, n)                                                                   # (1|B, M)
        score = inner_product.require_finite(view.score(query, pool).double(), "queries or candidates")       # (B, M)
        log_q, weight = pool_draw.per_row(pool_draw.log_q, n), pool_draw.per_row(pool_draw.weight, n)
        assert log_q is not None and pool_draw.total_weight is not None
        log_v = score - log_q.double() - pool_draw.total_weight.double().log()
        if weight is not None:
            log_v = torch.where(weight > 0, log_v + weight.double().log(), -torch.inf)
        log_z = log_v.logsumexp(1, keepdim=True)                                                # (B, 1) log Ẑ
        row = torch.arange(n, device=score.device).unsqueeze(1).expand(-1, k).reshape(-1)
        u = torch.rand(n * k, generator=self.random, device=score.device, dtype=torch.float64)
        column = searchsorted_rows(row_cdf(log_v - log_z), row, u).view(n, k)
        return pool.expand(n, -1).gather(1, column), score.gather(1, column) - log_z
