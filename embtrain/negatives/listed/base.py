"""Base of sources that draw from a list of candidates per query, and from static noise otherwise.

    q(b|x) = (1 − ε) p(b|x) + ε q₀(b)        p(b|x) = w_xb^α / Σ_j w_xj^α over the list of x
    q(b|x) = q₀(b)                           if x has no list

ε is `mix`, α `power`, q₀ the distribution of `fallback`. log_q is that of the mixture, whichever part drew. With ε = 0
candidates outside of the list have q = 0, so that no density is reported.

Rows with different queries share a draw under `share_draws_by: block` and `batch`: each negative is drawn for a row of
the group, chosen uniformly, so that the draw has one exact q, the mean of q(·|x) over the rows of the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.candidate_lists import CandidateLists, ListReader
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling.alias_lists import AliasLists
from embtrain.negatives.sampling.context_index import ContextIndex, context_sizes_of, group_starts
from embtrain.negatives.sampling.pool import NestedSettingsOfSameK, build_nested
from embtrain.negatives.sampling.row_groups import RowGroups, group_rows
from embtrain.negatives.static.base import StaticSource

MAX_DENSITIES = 1 << 20  # densities computed at once for shared draws


class ListedConfig(NegativesConfig):
    """Settings of all sources with lists."""

    mix: float = Field(0.1, ge=0, le=1, description=(
        "ε, share of the fallback for queries with a list; 0: none, and then there is no q"))
    fallback: NestedSettingsOfSameK = Field(
        {"source": "unigram"}, description="unigram, uniform or log_uniform, with its settings")


class WeightedConfig(ListedConfig):
    """Settings of sources whose lists have weights."""

    power: float = Field(1.0, ge=0, le=10, description="α, exponent of the weights of a list; 0: uniform")


class ListedSource(NegativeSource):
    """Base of the sources with lists. A subclass implements `read_lists`."""

    Config = ListedConfig
    traits = Traits(supports_total_weight=True)
    needs_lists: ClassVar[bool] = True       # False: without any list all queries draw from the fallback
    config: ListedConfig

    def __init__(self, config: ListedConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if problem.lists is None:
            raise UsageError(f"{key('source')}: {self.name}: there are no lists of candidates for these data; choose "
                             "another source")
        sizes = context_sizes_of(problem, self.name)
        fallback = build_nested(config.fallback, "fallback", config.k, problem)
        if not isinstance(fallback, StaticSource) or not fallback.config.replacement:
            raise UsageError(f"{key('fallback.source')}: {fallback.name} with these settings does not draw from one "
                             "distribution with replacement; use unigram, uniform or log_uniform")
        self.traits = replace(self.traits, density="exact" if config.mix > 0 else "none",
                              iid=config.total_weight in (None, config.k), uses_counts=fallback.traits.uses_counts,
                              mixes_queries=config.share_draws_by in ("block", "batch"))
        lists = self.read_lists(problem.lists)
        self.columns = tuple(lists.columns.tolist())
        if max(self.columns) >= len(sizes):
            raise UsageError(f"{key('source')}: {self.name}: its lists belong to relations, but the queries of this "
                             "model have none; choose another source")
        self._check_range(lists, [sizes[c] for c in self.columns])
        self.index = ContextIndex(tuple(sizes[c] for c in self.columns), problem.device)
        self.index.add(self.index.key(torch.from_numpy(lists.keys).to(problem.device).squeeze(1)), 0)
        power = config.power if isinstance(config, WeightedConfig) else 1.0
        self.tables = AliasLists(lists, problem.n_candidates, power, problem.device)
        self.noise, self.q0 = fallback.alias, fallback.log_q.double().exp()              # (V,) float64
        self.share = torch.tensor(config.mix, dtype=torch.float64, device=problem.device)  # torch.where rounds a float
        self.has_list: Tensor | None = None                    # of each row of the last draw

    def read_lists(self, reader: ListReader) -> CandidateLists:
        """Return the lists of this source. UsageError or DataError if there are none."""
        raise AbstractMethod(self, "read_lists")

    def _check_range(self, lists: CandidateLists, sizes: list[int]) -> None:
        if not len(lists) and not self.needs_lists:
            return
        if not len(lists) or lists.ids.min() < 0 or lists.ids.max() >= self.problem.n_candidates or \
                (lists.keys < 0).any() or (lists.keys >= sizes).any() or not (lists.weights > 0).all():
            raise UsageError(f"{key('source')}: {self.name}: the lists do not fit these data; give at least one list, "
                             f"keys below {sizes}, candidates below {self.problem.n_candidates} and weights above 0")

    # -- drawing -----------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, draw_id = self.draw_layout(query)
        weight, total = self.weight_and_total(k)
        row = self._find_lists(query)                                                             # (B,)
        groups = group_rows(len(query), n, draw_id, row.device) if self.traits.mixes_queries else None
        self.has_list = row >= 0
        if groups is not None:
            drawing = row[groups.draw_rows(k, self.random)]                                       # (G, k)
        else:
            drawing = (row if draw_id is None else row[group_starts(draw_id)]).unsqueeze(1).expand(n, k)
        ids = self._draw_ids(drawing)
        if self.config.mix == 0:
            return Negatives(ids, draw_id=draw_id, weight=weight, total_weight=total)
        target = query.target.unsqueeze(1)                                                        # (B, 1)
        if groups is None:
            q, q_target = self._q(drawing, ids), self._q(row.unsqueeze(1), target)[:, 0]
        else:
            q = self._mean_q(row, groups, ids)
            q_target = self._mean_q(row, groups, query.target[groups.member])[groups.group_id, groups.position]
        return Negatives(ids, draw_id=draw_id, log_q=q.log().float(), weight=weight, total_weight=total,
                         log_q_target=q_target.log().float())

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        if self.config.mix == 0:
            return super().log_prob(query, ids)
        return self._q(self._find_lists(query).unsqueeze(1), ids).log().float()

    def metrics(self) -> dict[str, float]:
        return {} if self.has_list is None else {"listed": float(self.has_list.float().mean())}

    def _find_lists(self, query: Query) -> Tensor:
        """Return the list of each row's query, (B,); -1 if it has none."""
        context = query.context
        if context.ndim == 2:
            context = context[:, self.columns[0]] if len(self.columns) == 1 else context[:, list(self.columns)]
        return self.index.find(self.index.key(context))

    def _draw_ids(self, row: Tensor) -> Tensor:
        """Draw a candidate for each of the lists `row` (G, k); -1: no list."""
        noise = self.noise.draw(tuple(row.shape), self.random)
        listed = self.tables.draw(row.clamp(min=0), self.random)
        toss = torch.rand(row.shape, generator=self.random, device=row.device, dtype=torch.float64)
        return torch.where((row < 0) | (toss < self.config.mix), noise, listed)

    # -- probabilities -----------------------------------------------------------------------------------------------

    def _q(self, row: Tensor, ids: Tensor) -> Tensor:
        """Return q of ids for the lists `row`, float64; both are broadcast."""
        share = torch.where(row < 0, 1.0, self.share)
        return (1 - share) * self.tables.probability(row, ids) + share * self.q0[ids]

    def _mean_q(self, row: Tensor, groups: RowGroups, ids: Tensor) -> Tensor:
        """Return the mean of q over the rows of each group, for ids (G, M): (G, M) float64.

        The rows of a group with one list are counted, so that each list is looked up once.
        """
        n_lists = len(self.tables.start) + 1                                                      # the last: no list
        pair, count = torch.unique(groups.group_id * n_lists + row + 1, return_counts=True)       # (P,)
        group, row = pair // n_lists, pair % n_lists - 1
        share = (count.double() / groups.size[group]).unsqueeze(1)
        mean = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
        for columns in _column_chunks(ids.shape[1], len(pair)):
            q = share * self._q(row.unsqueeze(1), ids[group, columns])
            mean[:, columns].index_put_((group,), q, accumulate=True)   # in a fixed order on CUDA too
        return mean


def _column_chunks(n: int, height: int) -> Iterator[slice]:
    step = max(1, MAX_DENSITIES // max(1, height))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))
