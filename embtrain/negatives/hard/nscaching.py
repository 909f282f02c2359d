"""NSCaching: a cache, per query, of candidates that the model itself scores high (Zhang et al. 2019).

    draw     y ~ uniform over the cache C_x of x, |C_x| = cache_size
    update   C_x <- cache_size of C_x ∪ U, U ~ uniform, |U| = pool_size, without replacement with p(y) ∝ e^{s(x, y)}

The key of a cache is the context of the query: (h, r), (t, r⁻¹), a word. A cache starts with uniform candidates. It is
drawn from first and then updated, once for each draw in which the context occurs, whatever the number of its rows, and
every `update_every` draws of training. How likely an id was in the caches is not known, so there is no log q. A cache
may contain a candidate more than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.types import GENERATOR, ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling.context_index import ContextIndex, context_sizes_of, group_starts


class NSCachingConfig(NegativesConfig):
    """Settings of `nscaching`."""

    cache_size: int = Field(50, ge=1, le=100_000, description="N1, candidates in a cache")
    pool_size: int = Field(50, ge=1, le=100_000, description="N2, uniform candidates added at an update of a cache")
    update_every: int = Field(1, ge=1, description="draws between two updates of the caches")


class NSCaching(NegativeSource):
    """Draws uniformly from a cache of likely candidates per context."""

    name = "nscaching"
    Config = NSCachingConfig
    traits = Traits(density="none", iid=False, uses_model=True, components=("generator",),
                    sharing_modes=("row", "window"))
    config: NSCachingConfig

    def __init__(self, config: NSCachingConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.context_index = ContextIndex(context_sizes_of(problem, self.name), problem.device)
        self.n_rows, self.n_draws = 0, 0
        # (rows, N1), n_rows in use
        self.cache = torch.empty(0, config.cache_size, dtype=torch.int32, device=problem.device)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n_draws, draw_id = self.draw_layout(query)
        key = self.context_index.key(query.context)
        n_rows = self.n_rows
        row = self._rows(key)                                                                             # (B,)
        cache_row = row if draw_id is None else row[group_starts(draw_id)]                                # (G,)
        column = torch.randint(self.config.cache_size, (n_draws, k), generator=self.random, device=key.device)
        ids = self.cache[cache_row.unsqueeze(1), column].long()
        if query.is_training:
            self.n_draws += 1
            if self.n_draws % self.config.update_every == 0:
                self._update(query, row, view)
        elif self.n_rows > n_rows:                                        # no training draw has had these contexts
            self.context_index.truncate(n_rows)
            self.n_rows = n_rows
        return Negatives(ids, draw_id=draw_id, total_weight=key.new_full((1, 1), k, dtype=torch.float32),
                         origin=torch.full((1, 1), GENERATOR, dtype=torch.int8, device=key.device))

    def _rows(self, key: Tensor) -> Tensor:
        """Cache row of each key (B,). A new key gets a row of uniform candidates."""
        new = self.context_index.missing(key)
        if len(new):
            if self.n_rows + len(new) > len(self.cache):
                cache = self.cache.new_zeros(max(self.n_rows + len(new), 2 * self.n_rows), self.config.cache_size)
                cache[:self.n_rows] = self.cache[:self.n_rows]
                self.cache = cache
            self.cache[self.n_rows:self.n_rows + len(new)] = self._uniform(len(new), self.config.cache_size)
            self.context_index.add(new, self.n_rows)
            self.n_rows += len(new)
        return self.context_index.find(key)

    def _uniform(self, rows: int, n: int) -> Tensor:
        return torch.randint(self.problem.n_candidates, (rows, n), generator=self.random, device=self.cache.device,
                             dtype=torch.int32)

    def _update(self, query: Query, row: Tensor, view: ModelView) -> None:
        """Update the caches of the distinct queries of a batch; row (B,) is the cache row of each row."""
        unique, query_id = query.unique()
        cache_row = torch.empty(len(unique), dtype=torch.int64, device=row.device)
        cache_row[query_id] = row  # equal for all rows of a query
        pool = torch.cat([self.cache[cache_row], self._uniform(len(unique), self.config.pool_size)], 1)  # (Q, N1 + N2)
        noise = torch.empty(pool.shape, dtype=torch.float32, device=pool.device)
        noise.exponential_(generator=self.random).log_()
        kept = (view.score(unique, pool.long()) - noise).topk(self.config.cache_size, 1).indices  # Gumbel: p ∝ e^s
        self.cache[cache_row] = pool.gather(1, kept)

    def state_dict(self) -> dict[str, Any]:
        keys = torch.empty(self.n_rows, dtype=torch.int64, device=self.cache.device)
        stored_keys = self.context_index.stored_keys()
        keys[self.context_index.find(stored_keys)] = stored_keys
        return {**super().state_dict(), "keys": keys, "cache": self.cache[:self.n_rows].clone(), "draws": self.n_draws}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.context_index.clear()
        self.cache = state["cache"].to(self.cache.device).clone()
        self.n_rows, self.n_draws = len(state["keys"]), state["draws"]
        self.context_index.add(state["keys"].to(self.cache.device), 0)
