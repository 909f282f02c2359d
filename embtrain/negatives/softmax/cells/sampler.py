"""Draws a cell, then a candidate inside it.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h),  c the cell of i;    with exclude_target q(i|h) / (1 - q(t|h)),  i ≠ t

Without the target, its cell keeps the weight M_c (1 - r_t), and r inside it is over the other candidates. Everything is
summed over the remaining candidates, and nothing is subtracted: the target can have so much of q that 1 - q_t rounds to
0.

The compiled core draws if r ∝ e^o and it can read the model's table. Elsewhere PyTorch draws: one number u ~ U[0, 1)
selects the cell by its interval of the cumulative sum, in float64, and its position in that interval selects the
candidate.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from embtrain.common.types import ModelView, Query, first_occurrence
from embtrain.kernels.sampling import cells as kernel
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import BELOW_ONE, MAX_ROWS, CounterRng, row_cdf, searchsorted_rows
from embtrain.negatives.sampling.within_cell import CellCore, DrawBuffers, as_flat
from embtrain.negatives.softmax.cells.index import CellIndex
from embtrain.negatives.softmax.cells.inside import (
    MAX_SCORES,
    CellMasses,
    CellQueries,
    CoreInside,
    DrawableInside,
    Inside,
    ScoresInside,
    WeightsInside,
)

CellDraw = tuple[Tensor, Tensor, Tensor | None, Tensor]


@dataclass(frozen=True)
class CellRules:
    """Rules of a draw: r ∝ e^o if `exact`, else ∝ w; not the target; once for all rows of a window with one query."""

    exact: bool
    excludes_target: bool
    by_window: bool


class CellSampler:
    """Draws and probabilities by the cells of an index, with the compiled core or with PyTorch."""

    def __init__(self, index: CellIndex, masses: CellMasses, rules: CellRules, rng: CounterRng):
        self.index, self.masses, self.rules, self.rng = index, masses, rules, rng
        self.torch_inside: DrawableInside = ScoresInside(index) if rules.exact else WeightsInside(index)
        self.max_rows, self._buffers = self._rows_per_chunk(index.n_cells), DrawBuffers()
        self._layout_cache: tuple[tuple[object, ...], kernel.CellLayout] | None = None

    def draw(self, query: Query, k: int, view: ModelView, with_target: bool = True) -> CellDraw:
        """Draw k candidates for each draw.

        Returns ids (G, k), their log q (G, k), the draw of each row (B,) (None: one per row), and log q of the targets
        (B,). Without `with_target` these may be missing (0,): a target needs the scores of all members of its cell.
        """
        core = self._find_core(view)
        # The core computes linear masses for a few queries at a time.
        n, step = len(query), self.max_rows if core is None or self._linear(query) is None else self._rows_per_chunk(k)

        def draw_rows(rows: Query) -> CellDraw:
            return self._draw_with_torch(rows, k, view) if core is None else \
                self._draw_with_core(core, rows, k, view, with_target or self.rules.excludes_target)

        offsets = query.window_offsets if self.rules.by_window else None
        if (n if offsets is None else len(offsets) - 1) <= step:                    # the number of draws, or more
            return draw_rows(query)
        if not self.rules.by_window:
            return _concat_draws(query, _slices(n, step), draw_rows)
        query_id = torch.arange(n, device=query.target.device) if query.query_id is None else query.query_id
        slices = _draw_slices(_window_draw_ids(query, query_id), step)
        return draw_rows(query) if len(slices) == 1 else _concat_draws(query, slices, draw_rows)

    def log_prob(self, query: Query, ids: Tensor, view: ModelView) -> Tensor:
        """log q of ids (B, K), (B, K) float32; -inf for an excluded target."""
        core = self._find_core(view)
        inside = self.torch_inside if core is None else CoreInside(self.index, core)
        return torch.cat([self._log_prob(query.rows(rows), ids[rows], view, inside)
                          for rows in _slices(len(query), min(self.max_rows, self._rows_per_chunk(ids.shape[1])))]
                         ).float()

    def _find_core(self, view: ModelView) -> CellCore | None:
        """The compiled sampler; None if PyTorch has to draw."""
        return self.index.core(view) if self.rules.exact else None

    def _linear(self, query: Query) -> tuple[Tensor, Tensor] | None:
        """The lines of log M if the core computes it; else PyTorch does."""
        return self.masses.linear_log_mass() if query.vectors.dtype == torch.float32 else None

    def _rows_per_chunk(self, width: int) -> int:
        """Rows, or draws of windows, handled at once, with `width` numbers each: as many distinct queries at most."""
        return max(1, min(MAX_ROWS, MAX_SCORES // width))

    def _draw_ids(self, query: Query, query_id: Tensor) -> tuple[Tensor, Tensor]:
        """Draw of each row (B,), and the first row of each draw (G,)."""
        if not self.rules.by_window:
            row_draws = query_id if query.query_id is None else torch.arange(len(query), device=query_id.device)
            return row_draws, row_draws
        if query.window_offsets is not None:
            return query.windows(), query.window_offsets[:-1]
        draw_id = _window_draw_ids(query, query_id)
        return draw_id, first_occurrence(draw_id)

    # -- with the compiled core -----------------------------------------------------------------------------------

    def _draw_with_core(self, core: CellCore, query: Query, k: int, view: ModelView, with_target: bool) -> CellDraw:
        unique, draw_query, row_query, draw_id = query, None, None, None
        target = query.target if with_target else query.target[:0]
        if query.query_id is not None or self.rules.by_window:
            unique, query_id = query.unique()
            draw_id, first_row = self._draw_ids(query, query_id)
            draw_query = as_flat(query_id if first_row is draw_id else query_id[first_row])
            row_query = as_flat(query_id[:len(target)])
        elif not with_target:
            row_query = as_flat(query.target[:0])
        linear, tau, h, log_mass = self._linear(unique), 0.0, unique.vector, None
        if linear is None:
            h = inner_product.query_vectors(unique, view).float()
            log_mass = as_flat(self.masses.log_mass(h).float())
        elif view.geometry == "cosine":
            tau = view.tau
        batch = kernel.CellDrawRequest(as_flat(h), draw_query, row_query, as_flat(target), tau, log_mass)
        n = batch.draws
        (ids, log_q, log_q_target), outputs = self._buffers.take(n, k, len(target))
        kernel.draw_into(outputs, self._layout(core, linear), batch, self.rules.excludes_target, self.rng.seeds,
                         self.rng.reserve(n, k), torch.get_num_threads())
        return ids, log_q, draw_id, log_q_target

    def _layout(self, core: CellCore, linear: tuple[Tensor, Tensor] | None) -> kernel.CellLayout:
        """The cells as the core reads them; rebuilt if the table or the means have changed."""
        key = core, linear and linear[0]
        if self._layout_cache is None or any(map(operator.is_not, self._layout_cache[0], key)):
            means = () if linear is None else (linear[0].numpy(), linear[1].numpy())
            self._layout_cache = key, kernel.CellLayout(core.members, self.index.cell.numpy(), self.index.place.numpy(),
                                                        *means)
        return self._layout_cache[1]

    # -- with PyTorch ---------------------------------------------------------------------------------------------

    def _draw_with_torch(self, query: Query, k: int, view: ModelView) -> CellDraw:
        queries, inside = CellQueries(query, view, self.masses), self.torch_inside
        draw_id, first = self._draw_ids(query, queries.query_id)
        target_cell, query_id = self.index.cell[query.target], queries.query_id[first]  # (B,), (G,)
        log_q_target = queries.log_p[queries.query_id, target_cell]                     # (B,) float64
        log_q_target = log_q_target + inside.log_r(queries, queries.query_id, query.target)
        u = torch.rand(len(first), k, generator=self.rng.random, device=query_id.device, dtype=torch.float64)
        excluded = None
        if self.rules.excludes_target:                                                                 # G = B
            log_p = self._log_p_without_target(queries, query.target, inside).log_softmax(1)
            cell, position, log_p = _choose_cells(log_p, torch.arange(len(query_id), device=query_id.device), u)
            excluded = torch.where(cell == target_cell.unsqueeze(1), query.target.unsqueeze(1), -1).view(-1)
        else:
            cell, position, log_p = _choose_cells(queries.log_p, query_id, u)
        query_id = query_id.repeat_interleave(k)
        ids, log_r = inside.draw(queries, query_id, cell.view(-1), position.view(-1), excluded)
        return ids.view(-1, k), (log_p + log_r.view(-1, k)).float(), draw_id, log_q_target.float()

    def _log_prob(self, query: Query, ids: Tensor, view: ModelView, inside: Inside) -> Tensor:
        queries, cell = CellQueries(query, view, self.masses), self.index.cell[ids]
        query_id, log_p = queries.query_id.unsqueeze(1).expand(ids.shape), queries.log_p[queries.query_id]
        excluded = None
        if self.rules.excludes_target:
            log_p = self._log_p_without_target(queries, query.target, inside).log_softmax(1)
            excluded = query.target.unsqueeze(1).expand(ids.shape)
        log_r = inside.log_r(queries, query_id.reshape(-1), ids.reshape(-1),
                             None if excluded is None else excluded.reshape(-1))
        log_q = log_p.gather(1, cell) + log_r.view(ids.shape)
        return log_q if excluded is None else log_q.masked_fill(ids == excluded, -torch.inf)

    def _log_p_without_target(self, queries: CellQueries, target: Tensor, inside: Inside) -> Tensor:
        """Log weight of each cell without the row's target, relative to the total with it: (B, C)."""
        log_p, rows = queries.log_p[queries.query_id], torch.arange(len(target), device=target.device)
        log_p[rows, self.index.cell[target]] += inside.log_rest(queries, target)
        return log_p


def _choose_cells(log_p: Tensor, row: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Choose cells by inverse CDF: u (G, k) in the rows `row` (G,) of the log shares log_p (n, C).

    Returns the cells, the position of u inside their intervals, and their log p: (G, k) each.
    """
    cdf, rows = row_cdf(log_p), row.unsqueeze(1)
    cell = searchsorted_rows(cdf, row.repeat_interleave(u.shape[1]), u.view(-1)).view(u.shape)
    p = log_p[rows, cell].exp()
    return cell, ((u - (cdf[rows, cell] - p)) / p).clamp(0, BELOW_ONE), log_p[rows, cell]


def _window_draw_ids(query: Query, query_id: Tensor) -> Tensor:
    """Draw of each row (B,): consecutive rows of one window with the same query share a draw."""
    window, begins = query.windows(), torch.zeros_like(query_id)
    begins[1:] = (window[1:] != window[:-1]) | (query_id[1:] != query_id[:-1])
    return begins.cumsum(0)


def _concat_draws(query: Query, slices: Iterable[slice], draw: Callable[[Query], CellDraw]) -> CellDraw:
    """Draw for slices of a batch, and concatenate. Draw ids are offset by the draws before."""
    ids, log_q, draw_ids, log_q_target = zip(*(draw(query.rows(rows)) for rows in slices), strict=True)
    n_before = accumulate(map(len, ids), initial=0)
    offset_ids = [g + n for g, n in zip(draw_ids, n_before, strict=False) if g is not None]
    return torch.cat(ids), torch.cat(log_q), torch.cat(offset_ids) if offset_ids else None, torch.cat(log_q_target)


def _slices(n: int, step: int) -> list[slice]:
    return [slice(i, min(n, i + step)) for i in range(0, max(n, 1), step)]


def _draw_slices(draw_id: Tensor, step: int) -> list[slice]:
    """Slices of the rows of at most `step` draws each; draw_id (B,): the draw of each row, ascending."""
    first_rows = torch.cat([draw_id.new_zeros(1), (draw_id[1:] != draw_id[:-1]).nonzero().flatten() + 1])
    begins = [*first_rows[::step].tolist(), len(draw_id)]
    return [slice(a, b) for a, b in pairwise(begins)]
