"""r(i|c, h), the probability of a candidate inside a cell: by fixed weights, or by score with PyTorch or the core.

Each class has `log_r` and `log_rest`; those of PyTorch draw too. The core draws a batch in one call (sampler.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from embtrain.common.types import ModelView, Query
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import MAX_ROWS, row_cdf, sample_proportional, searchsorted_rows
from embtrain.negatives.sampling.within_cell import CellCore
from embtrain.negatives.softmax.cells.index import CellIndex

MAX_SCORES = 8_000_000    # weights or scores held in memory at once
MIN_LOG_MASS = -87.0      # log of the smallest weight of a cell, relative to the largest, as in the core


class CellMasses(Protocol):
    """Weights of the cells."""

    def log_mass(self, h: Tensor) -> Tensor:
        """log M_c(h) of every cell, (Q, C), for h (Q, D)."""

    def linear_log_mass(self) -> tuple[Tensor, Tensor] | None:
        """μ (C, D) and log n (C,) in float32 if log M = log n + h·μ, which the core can compute; else None."""


class CellQueries:
    """The distinct queries of a batch: h (Q, D), the query of each row (B,), and log M of the cells (Q, C)."""

    def __init__(self, query: Query, view: ModelView, masses: CellMasses):
        unique, self.query_id = query.unique()
        self.view = view
        self.h = inner_product.query_vectors(unique, view)
        self.log_mass = masses.log_mass(self.h)

    @cached_property
    def log_p(self) -> Tensor:
        """Log share of each cell, (Q, C) float64."""
        log_mass = self.log_mass.double()
        return (log_mass - log_mass.amax(1, keepdim=True)).clamp(min=MIN_LOG_MASS).log_softmax(1)


class Inside(Protocol):
    """Probabilities inside cells."""

    def log_r(self, queries: CellQueries, query_id: Tensor, ids: Tensor, excluded: Tensor | None = None) -> Tensor:
        """log r of candidates (N,) for the queries (N,), or among the candidates other than `excluded` (N,)."""

    def log_rest(self, queries: CellQueries, target: Tensor) -> Tensor:
        """log of 1 - r of each row's target, (B,), as a sum over the others of its cell."""


class DrawableInside(Inside, Protocol):
    """Probabilities and draws inside cells."""

    def draw(self, queries: CellQueries, query_id: Tensor, cell: Tensor, position: Tensor,
             excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        """The candidate (N,) at `position` of a cell's cumulative sum, and its log r.

        excluded (N,): a candidate of the cell that is not drawn, or -1.
        """


class CoreInside:
    """r ∝ e^o, by the compiled core."""

    def __init__(self, index: CellIndex, core: CellCore):
        self.index, self.core = index, core

    def log_r(self, queries: CellQueries, query_id: Tensor, ids: Tensor, excluded: Tensor | None = None) -> Tensor:
        place = self.index.place
        return self.core.sample(queries.h, query_id, self.index.cell[ids], place[ids],
                                None if excluded is None else place[excluded])[1]

    def log_rest(self, queries: CellQueries, target: Tensor) -> Tensor:
        index = self.index
        return self.core.sample(queries.h, queries.query_id, index.cell[target], index.place[target], None)[2].log()


class WeightsInside:
    """r ∝ w, fixed weights, with PyTorch."""

    def __init__(self, index: CellIndex):
        self.index = index

    def log_r(self, queries: CellQueries, query_id: Tensor, ids: Tensor, excluded: Tensor | None = None) -> Tensor:
        cell = self.index.cell[ids]
        log_r = queries.log_p.new_empty(len(ids))
        for part, weights in self._chunks(cell, _only_in_cell(self.index, excluded, cell)):
            weight = weights.gather(1, self._rank(ids[part]))
            log_r[part] = (weight / weights.sum(1, keepdim=True)).log()[:, 0]
        return log_r

    def log_rest(self, queries: CellQueries, target: Tensor) -> Tensor:
        cell = self.index.cell[target]
        other_weights = torch.cat([weights.sum(1) for _, weights in self._chunks(cell, target)])
        return (other_weights / self.index.totals[cell]).log()

    def draw(self, queries: CellQueries, query_id: Tensor, cell: Tensor, position: Tensor,
             excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        start = self.index.start[cell]
        ids, log_r = torch.empty_like(cell), torch.empty_like(position)
        for part, weights in self._chunks(cell, excluded):
            rank = sample_proportional(weights, position[part].unsqueeze(1))
            ids[part] = self.index.order[start[part] + rank[:, 0]]
            log_r[part] = (weights.gather(1, rank) / weights.sum(1, keepdim=True)).log()[:, 0]
        return ids, log_r

    def _chunks(self, cell: Tensor, excluded: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
        """Weights w of the members of cells (N,), a chunk at a time: slices and (n, L).

        0 after the last member, and for `excluded` (N,) where that is not -1.
        """
        step = max(1, MAX_SCORES // self.index.weights.shape[1])
        for begin in range(0, len(cell), step):
            part = slice(begin, begin + step)
            weights = self.index.weights[cell[part]]
            if excluded is not None:
                rank, is_excluded = self._rank(excluded[part].clamp(min=0)), (excluded[part] >= 0).unsqueeze(1)
                weights = weights.scatter(1, rank, weights.gather(1, rank).masked_fill(is_excluded, 0.0))
            yield part, weights

    def _rank(self, ids: Tensor) -> Tensor:
        """Index of candidates (N,) in their cells, (N, 1)."""
        return (self.index.place[ids] - self.index.start[self.index.cell[ids]]).unsqueeze(1)


class ScoresInside:
    """r ∝ e^o, with PyTorch."""

    def __init__(self, index: CellIndex):
        self.index = index

    def log_r(self, queries: CellQueries, query_id: Tensor, ids: Tensor, excluded: Tensor | None = None) -> Tensor:
        index, cell = self.index, self.index.cell[ids]
        log_r = queries.log_p.new_empty(len(ids))
        excluded = _only_in_cell(index, excluded, cell)
        for requests, line, log_r_rows in self._chunks(queries, query_id, cell, excluded):
            log_r[requests] = log_r_rows[line, index.place[ids[requests]] - index.start[cell[requests]]]
        return log_r

    def log_rest(self, queries: CellQueries, target: Tensor) -> Tensor:
        cell, place = self.index.cell[target], self.index.place[target]
        start, log_rest = self.index.start[cell], queries.log_p.new_empty(len(target))
        for requests, line, log_r in self._chunks(queries, queries.query_id, cell):
            for part in torch.arange(len(requests), device=requests.device).split(max(1, MAX_SCORES // log_r.shape[1])):
                rank = (place - start)[requests[part]].unsqueeze(1)
                log_rest[requests[part]] = log_r[line[part]].scatter(1, rank, -torch.inf).logsumexp(1)
        return log_rest

    def draw(self, queries: CellQueries, query_id: Tensor, cell: Tensor, position: Tensor,
             excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        start, last = self.index.start[cell], self.index.start[cell + 1] - 1
        ids, log_r = torch.empty_like(cell), torch.empty_like(position)
        for requests, line, log_r_rows in self._chunks(queries, query_id, cell, excluded):
            rank = searchsorted_rows(row_cdf(log_r_rows), line, position[requests])
            rank = torch.minimum(rank, (last - start)[requests])
            ids[requests], log_r[requests] = self.index.order[start[requests] + rank], log_r_rows[line, rank]
        return ids, log_r

    def _chunks(self, queries: CellQueries, query_id: Tensor, cell: Tensor, excluded: Tensor | None = None
                ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Score requests (N,), each a query, a cell, and an excluded candidate of that cell, or -1.

        Yields the requests of a chunk, the line of each, and log r in lines (P, L). Equal requests share a line. Lines
        of one cell are scored together, with one GEMM per cell.
        """
        all_starts, copy = self.index.start, self.index.copy
        n, n_exclusions = len(queries.h), 1 if excluded is None else len(self.index.order) + 1
        key = (cell * n + query_id) * n_exclusions + (0 if excluded is None else excluded + 1)
        pairs, line = torch.unique(key, return_inverse=True)                                  # ascending by cell
        cells, row_query, excluded_id = pairs // (n * n_exclusions), pairs // n_exclusions % n, pairs % n_exclusions - 1
        size = (all_starts[1:] - all_starts[:-1])[cells]
        step = max(1, min(MAX_ROWS, MAX_SCORES // max(1, int(size.max()) if len(size) else 1)))
        order = torch.argsort(line, stable=True)
        for begin in range(0, len(pairs), step):
            part = slice(begin, min(len(pairs), begin + step))
            low, high = torch.searchsorted(line[order], line.new_tensor([part.start, part.stop]))
            score = queries.h.new_full((part.stop - part.start, int(size[part].max())), -torch.inf)
            distinct, count = torch.unique_consecutive(cells[part], return_counts=True)
            h = queries.h[row_query[part]]                                                                # (P, D)
            if copy is not None:
                h = copy.round_query(h).to(h.dtype)
            size_of_cell = all_starts[distinct + 1] - all_starts[distinct]
            member_end, row_end = size_of_cell.cumsum(0), count.cumsum(0)
            shift = torch.repeat_interleave(all_starts[distinct] - (member_end - size_of_cell), size_of_cell)
            places = torch.arange(len(shift), device=shift.device) + shift  # members, cell by cell, in one gather
            c = (inner_product.candidate_rows(queries.view, self.index.order[places]) if copy is None
                 else copy.read(places).to(h.dtype)).T
            bounds = torch.stack([row_end - count, row_end, member_end - size_of_cell, member_end], 1).tolist()
            for a, b, first, last in bounds:
                score[a:b, :last - first] = h[a:b] @ c[:, first:last]
            if excluded is not None:
                masked = (excluded_id[part] >= 0).nonzero()[:, 0]
                score[masked, (self.index.place[excluded_id[part]] - all_starts[cells[part]])[masked]] = -torch.inf
            requests = order[low:high]
            yield requests, line[requests] - part.start, torch.log_softmax(score.double(), 1)


def _only_in_cell(index: CellIndex, excluded: Tensor | None, cell: Tensor) -> Tensor | None:
    """`excluded` (N,) where it is in the cell (N,), else -1."""
    return None if excluded is None else torch.where(index.cell[excluded] == cell, excluded, -1)
