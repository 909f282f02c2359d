"""Base of `cluster` and `midx`: draw a cell of candidates, then a candidate inside it.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h),   c the cell of i
    r      exact      e^{o_i} / Σ_{j in c} e^{o_j}, with the current vectors
           quantized  the same, with an int8 copy of the vectors, stored cell by cell
           unigram    n(i)^α / Σ_{j in c} n(j)^α
           uniform    1 / n_c
    with exclude_target:  q(i|h, t) = q(i|h) / (1 - q(t|h)),  i ≠ t

sampler.py draws both, without rejection. Drawn without the target, eq. 6 of Rawat et al. 2019 has an unbiased
gradient if q ∝ e^o (Bengio and Senécal 2008); with masked hits it has not.

M_c comes from summaries of the cells, recomputed every `update_every` draws together with the copy. The stored weights
define both the draw and the reported q, so q is exact at any age. The vectors of a cell are scattered over the model's
table, and a draw among many candidates is memory-bound: a copy has a quarter of the bytes, and is contiguous. Cells
above the mean size are split: the larger a cell, the more often it is drawn, and then all its members are scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import CounterRng
from embtrain.negatives.sampling.row_store import RowStore, stored_tensors
from embtrain.negatives.sampling.within_cell import check_settings
from embtrain.negatives.softmax.cells.index import CellIndex
from embtrain.negatives.softmax.cells.sampler import CellRules, CellSampler
from embtrain.negatives.static.unigram import unigram_masses

ROWS_PER_WRITE = 8192           # rows of the int8 copy written at once
MAX_SIZE_RATIO = 1              # maximum size of a cell, in mean sizes; larger cells are split
MAX_RECENT_QUERIES = 32         # queries of a batch that summaries are fitted to
WithinCell = Literal["exact", "quantized", "unigram", "uniform"]


class CellsConfig(NegativesConfig):
    """Settings common to `cluster` and `midx`."""

    within_cell: WithinCell = Field("exact", description="r, distribution of a candidate within its cell")
    exponent: float = Field(1.0, ge=-10, le=10, description="α of the unigram distribution in a cell")
    exclude_target: bool = Field(
        False, description="draw among the candidates other than the target, whose q is then undefined")
    update_every: int = Field(20, ge=0, description="draws between two summaries of the cells; 0: once an epoch")
    recluster_every: int = Field(
        1000, ge=0, description="draws between two groupings (fewer at first); 0: once an epoch")


class Cells(NegativeSource):
    """Source that draws by cells; decides when to regroup and when to summarize.

    A subclass sets `n_cells_requested` and implements `label`, `summarise` and `log_mass`; it may implement
    `singletons` and `linear_log_mass`.
    """

    traits = Traits(geometry=inner_product.GEOMETRIES, uses_model=True, supports_total_weight=True,
                    sharing_modes=("row", "window"))
    config: CellsConfig
    n_cells_requested: int
    index: CellIndex                 # the cells; another one after each regrouping, and so the sampler
    sampler: CellSampler

    def __init__(self, config: CellsConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        check_settings(self.name, config, config.exclude_target, problem)
        self.traits = replace(self.traits, density="conditional" if config.exclude_target else "exact",
                              iid=config.total_weight in (None, config.k))                # else weights are not 1
        self.uses_copy = config.within_cell == "quantized"
        self.rules = CellRules(config.within_cell in ("exact", "quantized"), config.exclude_target,
                               config.share_draws_by == "window")
        uses_unigram = config.within_cell == "unigram"
        self.traits = replace(self.traits, uses_counts=uses_unigram)
        weights = unigram_masses(problem, config.exponent, "subsampled") if uses_unigram \
            else torch.ones_like(problem.counts)
        if not (weights > 0).any():
            raise UsageError(f"{key('within_cell')}: unigram needs counts of the candidates; choose another value")
        # A drawn cell must not be empty of weight: uncounted candidates get the smallest nonzero weight.
        weights = torch.where(weights > 0, weights, weights[weights > 0].min())
        self.candidate_weights = weights.to(problem.device)                                       # (V,) float64
        self.view: ModelView | None = None
        self.labels: Tensor | None = None                  # (V,)  result of `label`, which defines the cells
        self.singleton_mask: Tensor | None = None          # (V,)  result of `singletons`, which also does
        self.summary: tuple[Tensor, ...] = ()              # summary of the cells
        self.copy: RowStore | None = None                  # (V, D)  candidates in `order`, as old as the summary
        self.recent_queries: Tensor | None = None          # (N, D)  queries of an earlier draw, if fits_to_queries
        self.n_draws = self.draws_since_grouping = self.n_groupings = 0
        self.counter_rng = CounterRng(self.random)          # of all samplers, one after the other

    # -- methods of subclasses ----------------------------------------------------------------------------------

    def label(self, c: Tensor, seed: int) -> Tensor:
        """Label of each of c (V, D): (V,) int64. Candidates with equal labels form a cell."""
        raise AbstractMethod(self, "label")

    def singletons(self, c: Tensor) -> Tensor | None:
        """Mask of the candidates of c (V, D) that form cells of their own, (V,) bool; None: none."""
        return None

    def log_mass(self, h: Tensor) -> Tensor:
        """log M_c(h) of every cell, (Q, C), for h (Q, D)."""
        raise AbstractMethod(self, "log_mass")

    def linear_log_mass(self) -> tuple[Tensor, Tensor] | None:
        """μ (C, D) and log n (C,) in float32 if log M = log n + h·μ, which the core can compute; else None."""
        return None

    def summarise(self, c: Tensor) -> tuple[Tensor, ...]:
        """Summary of the candidates c (V, D), as `log_mass` needs it."""
        raise AbstractMethod(self, "summarise")

    # -- drawing ------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        if query.is_training:
            self._update_if_due(query, view)
        else:
            self.prepare_log_prob(view)
        is_target_looked_up = self.is_target_q_read and not self.rules.excludes_target
        ids, log_q, draw_id, log_q_target = self.sampler.draw(query, k, view, is_target_looked_up)
        weight, total = self.weight_and_total(k)
        return Negatives(ids, draw_id=draw_id if self.rules.by_window else None, log_q=log_q, weight=weight,
                         total_weight=total, log_q_target=log_q_target if is_target_looked_up else None)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        if self.view is None:
            raise UsageError(f"{key('source')}: {self.name} has not been fitted to the model yet, so it has no "
                             "probabilities")
        return self.sampler.log_prob(query, ids.expand(len(query), -1), self.view)

    # -- updates from the model ---------------------------------------------------------------------------------

    def prepare_log_prob(self, view: ModelView) -> None:
        self.view = view
        if self.labels is None:
            self._recluster(view)

    def on_epoch_start(self, view: ModelView) -> None:
        self.view = view
        if not self.n_draws:  # as without prepare_log_prob, which must not change draws: do not start from its clusters
            self.labels, self.n_groupings = None, 0
        self._recluster(view)

    def _update_if_due(self, query: Query, view: ModelView) -> None:
        """Regroup or summarize if it is due."""
        self.view = view
        # At first all vectors move quickly: the interval starts at 10 draws and doubles up to `recluster`.
        wait = min(self.config.recluster_every, 10 + self.n_draws - self.draws_since_grouping)
        labels = self.labels
        if self.config.recluster_every and self.draws_since_grouping >= wait:
            labels = None
        lacks_queries = self.traits.fits_to_queries and self.recent_queries is None   # before the first draw
        every = self.config.update_every
        if labels is None or lacks_queries or (every and self.n_draws % every == 0):
            self._record_queries(query, view)
            if labels is None:
                self._recluster(view)
            elif lacks_queries:
                self._build_index(labels, inner_product.candidate_vectors(view))
            else:
                self._summarise(inner_product.candidate_vectors(view))
        self.n_draws, self.draws_since_grouping = self.n_draws + 1, self.draws_since_grouping + 1

    def _record_queries(self, query: Query, view: ModelView) -> None:
        """Store some queries of the next draw, for summaries that are fitted to queries."""
        if self.traits.fits_to_queries:
            n = min(MAX_RECENT_QUERIES, len(query))
            rows = torch.linspace(0, len(query) - 1, n, dtype=torch.float32, device=query.target.device).round().long()
            self.recent_queries = inner_product.query_vectors(query.rows(rows), view).detach()

    def _recluster(self, view: ModelView) -> None:
        """Label all candidates and rebuild the cells."""
        c = inner_product.candidate_vectors(view)
        seed = int(np.random.SeedSequence([self.problem.seed, self.n_groupings]).generate_state(1)[0])
        self._build_index(self.label(c, seed), c)
        self.n_groupings, self.draws_since_grouping = self.n_groupings + 1, 0

    def _build_index(self, labels: Tensor, c: Tensor) -> None:
        """Split the candidates into cells by their labels (V,), and summarize them. c: (V, D)."""
        self._split_cells(labels, self.singletons(c))
        self._summarise(c)

    def _summarise(self, c: Tensor) -> None:
        """Recompute the summary of c (V, D), and the copy."""
        self.summary = self.summarise(c)
        if self.uses_copy:
            copy = self._allocate_copy(c.shape[1])
            for places in torch.arange(len(c), device=c.device).split(ROWS_PER_WRITE):
                copy.write(places, c.index_select(0, self.index.order[places]))

    def _allocate_copy(self, dim: int) -> RowStore:
        """Memory for a copy; reused if the size is unchanged."""
        n = self.problem.n_candidates
        if self.copy is None or self.copy.stored.shape != (n, dim):
            self.copy = RowStore(n, dim, "int8", self.problem.device)
        self.index.use_copy(self.copy)
        return self.copy

    def _split_cells(self, labels: Tensor, singleton_mask: Tensor | None) -> None:
        """Build the cells from labels (V,) and the singleton mask (V,)."""
        max_size = -(-MAX_SIZE_RATIO * len(labels) // self.n_cells_requested)
        self.labels, self.singleton_mask = labels, singleton_mask
        self.index = CellIndex(labels, singleton_mask, max_size, self.candidate_weights)
        self.sampler = CellSampler(self.index, self, self.rules, self.counter_rng)

    def reseed(self, seed: int) -> None:
        super().reseed(seed)
        self.counter_rng.restart()

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "labels": self.labels, "alone": self.singleton_mask, "summary": self.summary,
                "copy": stored_tensors(self.copy), "recent_queries": self.recent_queries, "drawn": self.n_draws,
                "since": self.draws_since_grouping, "groupings": self.n_groupings, "numbers": self.counter_rng.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.n_draws, self.draws_since_grouping, self.n_groupings = state["drawn"], state["since"], state["groupings"]
        self.counter_rng.load(state["numbers"])
        if state["labels"] is not None:
            singleton_mask, device = state.get("alone"), self.problem.device
            self._split_cells(state["labels"].to(device), None if singleton_mask is None else singleton_mask.to(device))
        self.summary = tuple(x.to(self.problem.device) for x in state["summary"])
        if saved := state.get("copy"):
            for tensor, saved_tensor in zip(stored_tensors(self._allocate_copy(saved[0].shape[1])), saved, strict=True):
                tensor.copy_(saved_tensor)
        recent_queries = state["recent_queries"]
        self.recent_queries = None if recent_queries is None else recent_queries.to(self.problem.device)
