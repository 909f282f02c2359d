"""Hard negatives: selected by score from a pool, so none has a density.

    hardest    the k best-scored of a pool
    semi_hard  the k best-scored below the target, s_j < s_t; if there are too few, the lowest-scored above it
               (Schroff, Kalenichenko and Philbin, FaceNet, 2015)
    violation  draw until s_j > s_t − η; after N draws the target's rank is about ⌊(n − 1) / N⌋, and the negative has
               the weight Φ(rank) = Σ_{i=1}^{rank} 1 / i      (Weston, Bengio and Usunier, WSABIE, 2011: WARP)

    top        k of the M best in this order, uniformly and without replacement; with the hardest of a pool of N this is
               DNS(M, N)      (Shi et al. 2023)
    max_share  only s_j < s_t − (1 − ρ) |s_t|, which is ρ s_t for s_t > 0; `min_gap`: only s_j < s_t − g. Candidates
               scored like the positive often are positives      (NV-Retriever, Moreira et al. 2024)

The inner source draws the pool. Under `violation` the pool is split into k searches of M / k draws each. A search
without a violation has weight 0, as in WSABIE, which stops after n − 1 draws. The rank estimate needs a uniform pool; η
is the margin of the loss. The target is never its own negative. Other known positives are left to `negatives.filter`:
hard negatives often are positives. A negative that must be taken above the limit has weight 0: use a limit with a
trained model, or with a loss that has a term of the positive alone (`logistic`); `margin` cannot raise a low positive.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.pool import NestedSettings, PoolSource


class HardestConfig(NegativesConfig):
    """Settings of `hardest`."""

    choose: Literal["hardest", "semi_hard", "violation"] = Field("semi_hard", description="selection from the pool")
    inner: NestedSettings = Field(
        {"source": "uniform", "k": 200}, description="source of the pool, with settings; its k is the pool size M")
    margin: float = Field(1.0, ge=0, description="η of violation; set it equal to loss.margin")
    top: int | None = Field(None, ge=1, description="M, best candidates of which k are drawn; null: the k best")
    max_share: float | None = Field(
        None, gt=0, le=1, description="ρ, share of the target's score below which a negative must be; null: no limit")
    min_gap: float | None = Field(
        None, ge=0, description="g, by which a negative must be below the target's score; null: no limit")


class Hardest(PoolSource):
    """Selects the hardest, semi-hard or margin-violating candidates of a pool."""

    name = "hardest"
    Config = HardestConfig
    traits = replace(PoolSource.traits, density="none", equal_total_weights=False,
                     sharing_limit="chooses for each row (inner.share_draws_by shares the pool)")
    config: HardestConfig

    def __init__(self, config: HardestConfig, problem: ProblemSpec):
        super().__init__(config, config.inner, problem)
        pool = problem.n_candidates if self.inner.traits.exhaustive else self.inner.config.k
        if set(self.inner.traits.components) <= {"synthetic"} or self.inner.traits.learns:
            raise UsageError(f"{key('inner.source')}: {self.inner.name} does not draw a pool to choose from; use "
                             "uniform, unigram or log_uniform")
        if config.k > pool:
            raise UsageError(f"{key('k')}: {config.k} negatives cannot be chosen from a pool of {pool}; draw fewer"
                             + (f", or raise {key('inner.k')}" if not self.inner.traits.exhaustive else ""))
        if config.choose == "violation" and self.inner.name != "uniform":
            raise UsageError(f"{key('inner.source')}: violation estimates ranks by uniform draws, not by "
                             f"{self.inner.name}; use uniform")
        keys = [key for key in ("top", "max_share", "min_gap") if getattr(config, key) is not None]
        if config.choose == "violation" and keys:
            raise UsageError(f"{key(keys[0])}: violation takes the first violation, not one of the best; set "
                             f"{key('choose')} to hardest or semi_hard")
        if config.top is not None and not config.k <= config.top <= pool:
            raise UsageError(f"{key('top')}: {config.top}: at least the {config.k} of {key('k')}, and at most the "
                             f"{pool} of the pool, are possible")
        harmonic = torch.arange(1, max(2, problem.n_candidates), dtype=torch.float64, device=problem.device)
        self.phi = torch.cat([harmonic.new_zeros(1), harmonic.reciprocal().cumsum(0)]).float()  # Φ(0..n-1)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        ids, weight = self._select_in_chunks(query, k, view)
        return Negatives(ids, weight=weight, total_weight=weight.sum(1, keepdim=True))

    def _select(self, query: Query, pool_draw: Negatives, k: int, view: ModelView) -> tuple[Tensor, Tensor]:
        """Selected ids and their weights: (B, k) each."""
        n = len(query)
        pool = self._pool_ids(pool_draw, n)
        s = inner_product.require_finite(view.score(query, pool), "queries or candidates")                    # (B, M)
        pool = pool.expand(n, -1)
        is_target = pool == query.target.unsqueeze(1)
        s_t = view.score(query, query.target.unsqueeze(1))                                      # (B, 1)
        if self.config.choose == "violation":
            return self._first_violations(pool, is_target, (s > s_t - self.config.margin) & ~is_target, k)
        # Order of preference. Candidates scored above the target come after all below it, the nearest to it first. The
        # target itself and candidates above the limit come last, and have weight 0 if they must be taken.
        excluded = is_target | (s >= self._limit(s_t))
        above = s.amin(1, keepdim=True) - 1 - (s - s_t)
        preference = s if self.config.choose == "hardest" else torch.where(s < s_t, s, above)
        best = min(self.config.top or k, pool.shape[1])
        chosen = preference.masked_fill(excluded, -torch.inf).topk(best, dim=1).indices
        if self.config.top is not None:
            order = torch.rand(chosen.shape, generator=self.random, dtype=torch.float32, device=chosen.device)
            order = order.masked_fill_(excluded.gather(1, chosen), -1.0).topk(min(k, best), dim=1).indices
            chosen = chosen.gather(1, order)
        ids, weight = pool.gather(1, chosen), (~excluded.gather(1, chosen)).to(torch.float32)
        if (n_missing := k - ids.shape[1]) > 0:                   # pool too small, as in the last in_batch batch
            ids = torch.cat([ids, ids[:, :1].expand(-1, n_missing)], 1)
            weight = nn.functional.pad(weight, (0, n_missing))
        return ids, weight

    def _limit(self, s_t: Tensor) -> Tensor:
        """Score below which negatives must be, for targets of score s_t (B, 1): (B, 1)."""
        limit = torch.full_like(s_t, torch.inf)
        if self.config.max_share is not None:
            limit = s_t - (1 - self.config.max_share) * s_t.abs()
        return limit if self.config.min_gap is None else torch.minimum(limit, s_t - self.config.min_gap)

    def _first_violations(self, pool: Tensor, is_target: Tensor, violates: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """First violation in each of k equal parts of the pool (B, M), and its weight Φ(rank): (B, k) each."""
        n, n_tries = len(pool), pool.shape[1] // k
        pool, is_target, violates = (x[:, :k * n_tries].reshape(n, k, n_tries) for x in (pool, is_target, violates))
        first = violates.int().argmax(2, keepdim=True)          # the first violation
        N = (~is_target).cumsum(2).gather(2, first)             # draws up to it, without those of the target
        rank = (self.problem.n_candidates - 1) // N.clamp(min=1)
        return pool.gather(2, first).squeeze(2), (self.phi[rank] * violates.any(2, keepdim=True)).squeeze(2)
