"""Draws a cell, then a candidate inside it. The base class of `Cells`.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h),  c the cell of i;    with exclude_target q(i|h) / (1 - q(t|h)),  i ≠ t

Without the target, its cell keeps the weight M_c (1 - r_t), and r inside it is over the other candidates. Everything is
summed over the remaining candidates, and nothing is subtracted: the target can have so much of q that 1 - q_t rounds to
0.

The compiled core draws the exact inside if it can (sampling/within_cell.py). Elsewhere PyTorch draws: one number
u ~ U[0, 1) selects the cell by its interval of the cumulative sum, in float64, and its position in that interval
selects the candidate.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from embtrain.common.types import ModelView, Query, first_occurrence
from embtrain.kernels.sampling import cells as kernel
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import (
    BELOW_ONE,
    MAX_ROWS,
    CounterRng,
    row_cdf,
    sample_proportional,
    searchsorted_rows,
)
from embtrain.negatives.sampling.row_store import RowStore
from embtrain.negatives.sampling.within_cell import CellCore, CellIndex, DrawBuffers, as_flat

MAX_SCORES = 8_000_000    # weights or scores held in memory at once
MIN_LOG_MASS = -87.0      # log of the smallest weight of a cell, relative to the largest, as in the core


class CellSampling(NegativeSource):
    """Draws and probabilities by cells. `Cells` sets the attributes declared here."""

    exact: bool                 # r ∝ e^o
    copy: RowStore | None       # (V, D)          int8 copy of c in the order below, with within_cell: quantized
    excludes_target: bool       # the target is not drawn
    view: ModelView | None
    candidate_weights: Tensor   # (V,) float64    r ∝ w, if not exact
    order: Tensor               # (V,)            the candidates, cell by cell
    start: Tensor               # (C + 1,)        where each cell begins in `order`
    cell_index: CellIndex       # both, for the core
    log_size: Tensor            # (C,) float32    log of the number of candidates of each cell
    cell: Tensor                # (V,)            cell of each candidate
    place: Tensor               # (V,)            index of each candidate in `order`
    cell_weights: Tensor        # (C, L) float64  w of the members of each cell, 0 after the last
    cell_totals: Tensor         # (C,)            their sum
    buffers: DrawBuffers
    counter_rng: CounterRng     # random numbers of the core
    _layout_cache: tuple[tuple[object, ...], kernel.CellLayout] | None = None

    def log_mass(self, h: Tensor) -> Tensor:
        """log M_c(h) of every cell, (Q, C), for h (Q, D)."""
        raise TypeError(f"{type(self).__name__} does not implement log_mass")

    def linear_log_mass(self) -> tuple[Tensor, Tensor] | None:
        """μ (C, D) and log n (C,) in float32 if log M = log n + h·μ, which the core can compute; else None."""
        return None

    # -- with the compiled core -----------------------------------------------------------------------------------

    def _core(self) -> CellCore | None:
        """The compiled sampler; None if PyTorch has to draw."""
        return self.cell_index.cell_core(self.view) if self.exact and self.view is not None else None

    def _draw_with_core(self, core: CellCore, query: Query, k: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """As `_draw_with_torch`."""
        assert self.view is not None
        unique, draw_query, row_query, draw_id = query, None, None, None
        if query.query_id is not None or self.config.share_draws_by == "window":
            unique, query_id = query.unique()
            draw_id, first_row = self._draw_ids(query, query_id)
            draw_query = as_flat(query_id if first_row is draw_id else query_id[first_row])
            row_query = as_flat(query_id)
        linear, tau, h, log_mass = self.linear_log_mass(), 0.0, unique.vector, None
        if linear is None or h.dtype != torch.float32:
            h = inner_product.query_vectors(unique, self.view).float()
            linear, log_mass = None, as_flat(self.log_mass(h).float())
        elif self.view.geometry == "cosine":
            tau = self.view.tau
        batch = kernel.CellDrawRequest(as_flat(h), draw_query, row_query, as_flat(query.target), tau, log_mass)
        n = batch.draws
        (ids, log_q, log_q_target), outputs = self.buffers.take(n, k, len(query))
        kernel.draw_into(outputs, self._layout(core, linear), batch, self.excludes_target, self.counter_rng.seeds,
                         self.counter_rng.reserve(n, k), torch.get_num_threads())
        return ids, log_q, draw_id, log_q_target

    def _layout(self, core: CellCore, linear: tuple[Tensor, Tensor] | None) -> kernel.CellLayout:
        """The cells as the core reads them; rebuilt if the table, the cells or the means have changed."""
        key = core, self.cell, linear and linear[0]
        if self._layout_cache is None or any(map(operator.is_not, self._layout_cache[0], key)):
            means = () if linear is None else (linear[0].numpy(), linear[1].numpy())
            self._layout_cache = key, kernel.CellLayout(core.members, self.cell.numpy(), self.place.numpy(), *means)
        return self._layout_cache[1]

    # -- with PyTorch ---------------------------------------------------------------------------------------------

    def _draw_with_torch(self, query: Query, k: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Draw k candidates for each draw.

        Returns ids (G, k), their log q (G, k), the draw of each row (B,) (None: one per row), and log q of the targets
        (B,).
        """
        queries = _CellQueries(self, query)
        draw_id, first = self._draw_ids(query, queries.query_id)
        target_cell, query_id = self.cell[query.target], queries.query_id[first]  # (B,), (G,)
        log_q_target = queries.log_p[queries.query_id, target_cell]               # (B,) float64
        log_q_target = log_q_target + self._log_r(queries, queries.query_id, query.target)
        u = torch.rand(len(first), k, generator=self.random, device=query_id.device, dtype=torch.float64)
        excluded = None
        if self.excludes_target:                                                                       # G = B
            log_p = self._log_p_without_target(queries, query.target).log_softmax(1)
            cell, position, log_p = _choose_cells(log_p, torch.arange(len(query_id), device=query_id.device), u)
            excluded = torch.where(cell == target_cell.unsqueeze(1), query.target.unsqueeze(1), -1).view(-1)
        else:
            cell, position, log_p = _choose_cells(queries.log_p, query_id, u)
        query_id = query_id.repeat_interleave(k)
        ids, log_r = self._draw_within(queries, query_id, cell.view(-1), position.view(-1), excluded)
        return ids.view(-1, k), (log_p + log_r.view(-1, k)).float(), draw_id, log_q_target.float()

    def _draw_ids(self, query: Query, query_id: Tensor) -> tuple[Tensor, Tensor]:
        """Draw of each row (B,), and the first row of each draw (G,)."""
        if self.config.share_draws_by != "window":
            row_draws = query_id if query.query_id is None else torch.arange(len(query), device=query_id.device)
            return row_draws, row_draws
        draw_id = _window_draw_ids(query, query_id)
        return draw_id, first_occurrence(draw_id)

    def _log_prob(self, query: Query, ids: Tensor) -> Tensor:
        queries, cell = _CellQueries(self, query), self.cell[ids]
        query_id, log_p = queries.query_id.unsqueeze(1).expand(ids.shape), queries.log_p[queries.query_id]
        excluded = None
        if self.excludes_target:
            log_p = self._log_p_without_target(queries, query.target).log_softmax(1)
            excluded = query.target.unsqueeze(1).expand(ids.shape)
        log_r = self._log_r(queries, query_id.reshape(-1), ids.reshape(-1),
                            None if excluded is None else excluded.reshape(-1))
        log_q = log_p.gather(1, cell) + log_r.view(ids.shape)
        return log_q if excluded is None else log_q.masked_fill(ids == excluded, -torch.inf)

    def _log_p_without_target(self, queries: _CellQueries, target: Tensor) -> Tensor:
        """Log weight of each cell without the row's target, relative to the total with it: (B, C)."""
        log_p, rows = queries.log_p[queries.query_id], torch.arange(len(target), device=target.device)
        log_p[rows, self.cell[target]] += self._log_rest(queries, target)
        return log_p

    def _log_r(self, queries: _CellQueries, query_id: Tensor, ids: Tensor, excluded: Tensor | None = None) -> Tensor:
        """log r of candidates (N,) for the queries (N,), or among the candidates other than `excluded` (N,)."""
        cell = self.cell[ids]
        if (core := self._core()) is not None:
            excluded_place = None if excluded is None else self.place[excluded]
            return core.sample(queries.h, query_id, cell, self.place[ids], excluded_place)[1]
        if excluded is not None:
            excluded = torch.where(self.cell[excluded] == cell, excluded, -1)
        if not self.exact:
            log_r = queries.log_p.new_empty(len(ids))
            for part, weights in self._weight_chunks(cell, excluded):
                weight = weights.gather(1, self._rank_in_cell(ids[part]))
                log_r[part] = (weight / weights.sum(1, keepdim=True)).log()[:, 0]
            return log_r
        log_r = queries.log_p.new_empty(len(ids))
        for requests, line, log_r_rows in self._score_chunks(queries, query_id, cell, excluded):
            log_r[requests] = log_r_rows[line, self.place[ids[requests]] - self.start[cell[requests]]]
        return log_r

    def _weight_chunks(self, cell: Tensor, excluded: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
        """Weights w of the members of cells (N,), a chunk at a time: slices and (n, L).

        0 after the last member, and for `excluded` (N,) where that is not -1.
        """
        step = max(1, MAX_SCORES // self.cell_weights.shape[1])
        for begin in range(0, len(cell), step):
            part = slice(begin, begin + step)
            weights = self.cell_weights[cell[part]]
            if excluded is not None:
                rank, is_excluded = self._rank_in_cell(excluded[part].clamp(min=0)), (excluded[part] >= 0).unsqueeze(1)
                weights = weights.scatter(1, rank, weights.gather(1, rank).masked_fill(is_excluded, 0.0))
            yield part, weights

    def _rank_in_cell(self, ids: Tensor) -> Tensor:
        """Index of candidates (N,) in their cells, (N, 1)."""
        return (self.place[ids] - self.start[self.cell[ids]]).unsqueeze(1)

    def _log_rest(self, queries: _CellQueries, target: Tensor) -> Tensor:
        """log of 1 - r of each row's target, (B,), as a sum over the others of its cell."""
        cell, place = self.cell[target], self.place[target]
        start = self.start[cell]
        if (core := self._core()) is not None:
            return core.sample(queries.h, queries.query_id, cell, place, None)[2].log()
        if not self.exact:
            other_weights = torch.cat([weights.sum(1) for _, weights in self._weight_chunks(cell, target)])
            return (other_weights / self.cell_totals[cell]).log()
        log_rest = queries.log_p.new_empty(len(target))
        for requests, line, log_r in self._score_chunks(queries, queries.query_id, cell):
            for part in torch.arange(len(requests), device=requests.device).split(max(1, MAX_SCORES // log_r.shape[1])):
                rank = (place - start)[requests[part]].unsqueeze(1)
                log_rest[requests[part]] = log_r[line[part]].scatter(1, rank, -torch.inf).logsumexp(1)
        return log_rest

    def _draw_within(self, queries: _CellQueries, query_id: Tensor, cell: Tensor, position: Tensor,
                     excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        """The candidate (N,) at `position` of a cell's cumulative sum, and its log r.

        excluded (N,): a candidate of the cell that is not drawn, or -1.
        """
        start, last = self.start[cell], self.start[cell + 1] - 1
        ids, log_r = torch.empty_like(cell), torch.empty_like(position)
        if not self.exact:
            for part, weights in self._weight_chunks(cell, excluded):
                rank = sample_proportional(weights, position[part].unsqueeze(1))
                ids[part] = self.order[start[part] + rank[:, 0]]
                log_r[part] = (weights.gather(1, rank) / weights.sum(1, keepdim=True)).log()[:, 0]
            return ids, log_r
        for requests, line, log_r_rows in self._score_chunks(queries, query_id, cell, excluded):
            rank = searchsorted_rows(row_cdf(log_r_rows), line, position[requests])
            rank = torch.minimum(rank, (last - start)[requests])
            ids[requests], log_r[requests] = self.order[start[requests] + rank], log_r_rows[line, rank]
        return ids, log_r

    def _score_chunks(self, queries: _CellQueries, query_id: Tensor, cell: Tensor, excluded: Tensor | None = None
                ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Score requests (N,), each a query, a cell, and an excluded candidate of that cell, or -1.

        Yields the requests of a chunk, the line of each, and log r in lines (P, L). Equal requests share a line. Lines
        of one cell are scored together, with one GEMM per cell.
        """
        n, n_exclusions = len(queries.h), 1 if excluded is None else len(self.order) + 1
        key = (cell * n + query_id) * n_exclusions + (0 if excluded is None else excluded + 1)
        pairs, line = torch.unique(key, return_inverse=True)                                  # ascending by cell
        cells, row_query, excluded_id = pairs // (n * n_exclusions), pairs // n_exclusions % n, pairs % n_exclusions - 1
        size = (self.start[1:] - self.start[:-1])[cells]
        step = max(1, min(MAX_ROWS, MAX_SCORES // max(1, int(size.max()) if len(size) else 1)))
        order = torch.argsort(line, stable=True)
        for begin in range(0, len(pairs), step):
            part = slice(begin, min(len(pairs), begin + step))
            low, high = torch.searchsorted(line[order], torch.tensor([part.start, part.stop], device=line.device))
            score = queries.h.new_full((part.stop - part.start, int(size[part].max())), -torch.inf)
            distinct, count = torch.unique_consecutive(cells[part], return_counts=True)
            h = queries.h[row_query[part]]                                                                # (P, D)
            if self.copy is not None:
                h = self.copy.round_query(h).to(h.dtype)
            size_of_cell = self.start[distinct + 1] - self.start[distinct]
            member_end, row_end = size_of_cell.cumsum(0), count.cumsum(0)
            shift = torch.repeat_interleave(self.start[distinct] - (member_end - size_of_cell), size_of_cell)
            places = torch.arange(len(shift), device=shift.device) + shift  # members, cell by cell, in one gather
            c = (inner_product.candidate_rows(queries.view, self.order[places]) if self.copy is None
                 else self.copy.read(places).to(h.dtype)).T
            bounds = torch.stack([row_end - count, row_end, member_end - size_of_cell, member_end], 1).tolist()
            for a, b, first, last in bounds:
                score[a:b, :last - first] = h[a:b] @ c[:, first:last]
            if excluded is not None:
                masked = (excluded_id[part] >= 0).nonzero()[:, 0]
                score[masked, (self.place[excluded_id[part]] - self.start[cells[part]])[masked]] = -torch.inf
            requests = order[low:high]
            yield requests, line[requests] - part.start, torch.log_softmax(score.double(), 1)


class _CellQueries:
    """The distinct queries of a batch: h (Q, D), the query of each row (B,), and log M of the cells (Q, C)."""

    def __init__(self, source: CellSampling, query: Query):
        assert source.view is not None
        unique, self.query_id = query.unique()
        self.view = source.view
        self.h = inner_product.query_vectors(unique, self.view)
        self.log_mass = source.log_mass(self.h)

    @cached_property
    def log_p(self) -> Tensor:
        """Log share of each cell, (Q, C) float64."""
        log_mass = self.log_mass.double()
        return (log_mass - log_mass.amax(1, keepdim=True)).clamp(min=MIN_LOG_MASS).log_softmax(1)


def _choose_cells(log_p: Tensor, row: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Choose cells by inverse CDF: u (G, k) in the rows `row` (G,) of the log shares log_p (n, C).

    Returns the cells, the position of u inside their intervals, and their log p: (G, k) each.
    """
    cdf, rows = row_cdf(log_p), row.unsqueeze(1)
    cell = searchsorted_rows(cdf, row.repeat_interleave(u.shape[1]), u.view(-1)).view(u.shape)
    p = log_p[rows, cell].exp()
    return cell, ((u - (cdf[rows, cell] - p)) / p).clamp(0, BELOW_ONE), log_p[rows, cell]


def _window_draw_ids(query: Query, query_id: Tensor) -> Tensor:
    """Draw of each row (B,): rows of one window with the same query share a draw."""
    return torch.unique_consecutive(torch.stack([query.windows(), query_id], 1), dim=0, return_inverse=True)[1]
