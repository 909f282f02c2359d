"""How cells, and candidates in them, are drawn: the part of `cells.py` that works.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h),  c the cell of i;    with exclude_target q(i|h) / (1 - q(t|h)),  i ≠ t

Without the target, its cell is left the mass M_c (1 - r_t), and inside it r is of the others. All sums are of what is
left, and nothing is subtracted: the target may have all of q but a part that no 1 - q_t could hold.

The exact inside is the compiled core's where it can be (questions.py). Elsewhere torch: one number u ~ U[0, 1) falls to
the cell whose interval of the cumulative sum holds it, in float64, and the place where it falls there to the candidate.
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
from embtrain.negatives.sampling.inverse_cdf import BELOW_ONE, MOST_ROWS, Numbers, proportional, search, sums
from embtrain.negatives.sampling.row_store import RowStore
from embtrain.negatives.sampling.within_cell import Inside, Members, Room, flat

HELD = 8_000_000   # masses or scores held at once
LEAST = -87.0      # log of the least mass of a cell, in parts of the largest, as in the core


class CellSampling(NegativeSource):
    """`Cells` gives what is declared here."""

    exact: bool                # r is e^o
    copy: RowStore | None          # (V, D)  c in the order below, where o is of that
    excludes: bool             # draws are of the candidates other than the target
    view: ModelView | None
    w: Tensor                  # (V,) float64   what r is in proportion to, where it is not e^o
    order: Tensor              # (V,)           the candidates cell by cell
    start: Tensor              # (C + 1,)       where each cell begins in it
    members: Members           # both, as the core reads them
    log_size: Tensor           # (C,) float32   log of how many a cell has
    cell: Tensor               # (V,)           of each candidate
    place: Tensor              # (V,)           of each candidate in the order
    inner: Tensor              # (C, L) float64  w of each cell's members, 0 beyond the last
    total: Tensor              # (C,)            and their sum
    room: Room
    numbers: Numbers           # of the core's draws
    _laid: tuple[tuple[object, ...], kernel.CellLayout] | None = None

    def log_mass(self, h: Tensor) -> Tensor:
        """log M_c(h) of every cell, (Q, C), for h (Q, D)."""
        raise TypeError(f"{type(self).__name__} does not implement log_mass")

    def linear(self) -> tuple[Tensor, Tensor] | None:
        """μ (C, D) and log n (C,) in float32 where log M = log n + h·μ is all there is to it: the core does that."""
        return None

    # -- by the compiled core -------------------------------------------------------------------------------------

    def _core(self) -> Inside | None:
        return self.members.within(self.view) if self.exact and self.view is not None else None

    def _draw_by(self, core: Inside, query: Query, k: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """What `_draw` gives."""
        assert self.view is not None
        asked, question, row, group = query, None, None, None
        if query.query_id is not None or self.config.share == "window":
            asked, own = query.unique()
            group, rows = self._groups(query, own)
            question, row = flat(own if rows is group else own[rows]), flat(own)                # each row for itself
        linear, tau, h, log_mass = self.linear(), 0.0, asked.vector, None
        if linear is None or h.dtype != torch.float32:
            h = inner_product.questions(asked, self.view).float()
            linear, log_mass = None, flat(self.log_mass(h).float())
        elif self.view.geometry == "cosine":
            tau = self.view.tau
        asks = kernel.CellDrawRequest(flat(h), question, row, flat(query.target), tau, log_mass)
        n = asks.draws
        (ids, log_q, log_q_target), room = self.room.take(n, k, len(query))
        kernel.draw_into(room, self._layout(core, linear), asks, self.excludes, self.numbers.seeds,
                         self.numbers.draws(n, k), torch.get_num_threads())
        return ids, log_q, group, log_q_target

    def _layout(self, core: Inside, linear: tuple[Tensor, Tensor] | None) -> kernel.CellLayout:
        """Made anew where the table, cells or means have changed."""
        lies = core, self.cell, linear and linear[0]
        if self._laid is None or any(map(operator.is_not, self._laid[0], lies)):
            means = () if linear is None else (linear[0].numpy(), linear[1].numpy())
            self._laid = lies, kernel.CellLayout(core.members, self.cell.numpy(), self.place.numpy(), *means)
        return self._laid[1]

    # -- by torch -------------------------------------------------------------------------------------------------

    def _draw(self, query: Query, k: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """ids (G, k), their log q, the draw of each row (B,) (None: each its own), log q of each row's target."""
        of = _Question(self, query)
        group, first = self._groups(query, of.row)
        own, row = self.cell[query.target], of.row[first]                                       # (B,), (G,)
        log_q_target = of.log_p[of.row, own] + self._log_r(of, of.row, query.target)            # (B,) float64
        u = torch.rand(len(first), k, generator=self.random, device=row.device, dtype=torch.float64)
        without = None
        if self.excludes:                                                                       # G = B
            log_p = self._others(of, query.target).log_softmax(1)
            cell, rest, log_p = _choose_cells(log_p, torch.arange(len(row), device=row.device), u)
            without = torch.where(cell == own.unsqueeze(1), query.target.unsqueeze(1), -1).view(-1)
        else:
            cell, rest, log_p = _choose_cells(of.log_p, row, u)
        ids, log_r = self._inside(of, row.repeat_interleave(k), cell.view(-1), rest.view(-1), without)
        return ids.view(-1, k), (log_p + log_r.view(-1, k)).float(), group, log_q_target.float()

    def _groups(self, query: Query, question: Tensor) -> tuple[Tensor, Tensor]:
        """The draw of each row (B,), and the first row of each draw (G,)."""
        if self.config.share != "window":
            every = question if query.query_id is None else torch.arange(len(query), device=self.w.device)
            return every, every
        group = _runs(query, question)
        return group, first_occurrence(group)

    def _log_prob(self, query: Query, ids: Tensor) -> Tensor:
        of, cell = _Question(self, query), self.cell[ids]
        row, log_p, without = of.row.unsqueeze(1).expand(ids.shape), of.log_p[of.row], None
        if self.excludes:
            log_p = self._others(of, query.target).log_softmax(1)
            without = query.target.unsqueeze(1).expand(ids.shape)
        log_r = self._log_r(of, row.reshape(-1), ids.reshape(-1), None if without is None else without.reshape(-1))
        log_q = log_p.gather(1, cell) + log_r.view(ids.shape)
        return log_q if without is None else log_q.masked_fill(ids == without, -torch.inf)

    def _others(self, of: _Question, target: Tensor) -> Tensor:
        """log of what each cell has without the row's target, in parts of all that there is, (B, C)."""
        log_p, rows = of.log_p[of.row], torch.arange(len(target), device=target.device)
        log_p[rows, self.cell[target]] += self._log_rest(of, target)
        return log_p

    def _log_r(self, of: _Question, row: Tensor, ids: Tensor, without: Tensor | None = None) -> Tensor:
        """log r of candidates (N,), asked by the questions (N,); among the candidates other than `without` (N,)."""
        cell = self.cell[ids]
        if (core := self._core()) is not None:
            return core.places(of.h, row, cell, self.place[ids], None if without is None else self.place[without])[1]
        if without is not None:
            without = torch.where(self.cell[without] == cell, without, -1)
        if not self.exact:
            log_r = of.log_p.new_empty(len(ids))
            for part, w in self._weights(cell, without):
                log_r[part] = (w.gather(1, self._slot(ids[part])) / w.sum(1, keepdim=True)).log()[:, 0]
            return log_r
        log_r = of.log_p.new_empty(len(ids))
        for some, line, log in self._scored(of, row, cell, without):
            log_r[some] = log[line, self.place[ids[some]] - self.start[cell[some]]]
        return log_r

    def _weights(self, cell: Tensor, without: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
        """Some at a time, w of the members of cells (N,), (n, L): 0 beyond the last, and of `without`, if not -1."""
        step = max(1, HELD // self.inner.shape[1])
        for begin in range(0, len(cell), step):
            part = slice(begin, begin + step)
            w = self.inner[cell[part]]
            if without is not None:
                slot, gone = self._slot(without[part].clamp(min=0)), (without[part] >= 0).unsqueeze(1)
                w = w.scatter(1, slot, w.gather(1, slot).masked_fill(gone, 0.0))
            yield part, w

    def _slot(self, ids: Tensor) -> Tensor:
        """Where candidates (N,) stand in their cells, (N, 1)."""
        return (self.place[ids] - self.start[self.cell[ids]]).unsqueeze(1)

    def _log_rest(self, of: _Question, target: Tensor) -> Tensor:
        """log of 1 - r of each row's target, (B,), as the sum of the others of its cell."""
        cell, place = self.cell[target], self.place[target]
        start = self.start[cell]
        if (core := self._core()) is not None:
            return core.places(of.h, of.row, cell, place, None)[2].log()
        if not self.exact:
            others = torch.cat([w.sum(1) for _, w in self._weights(cell, target)])
            return (others / self.total[cell]).log()
        log_rest = of.log_p.new_empty(len(target))
        for some, line, log in self._scored(of, of.row, cell):
            for part in torch.arange(len(some), device=some.device).split(max(1, HELD // log.shape[1])):
                inside = (place - start)[some[part]].unsqueeze(1)
                log_rest[some[part]] = log[line[part]].scatter(1, inside, -torch.inf).logsumexp(1)
        return log_rest

    def _inside(self, of: _Question, row: Tensor, cell: Tensor, rest: Tensor, without: Tensor | None
                ) -> tuple[Tensor, Tensor]:
        """The candidate (N,) at the place `rest` of a cell's cumulative sum, and log r of it; of the candidates other
        than `without` (N,), which is of the cell, or -1."""
        start, last = self.start[cell], self.start[cell + 1] - 1
        ids, log_r = torch.empty_like(cell), torch.empty_like(rest)
        if not self.exact:
            for part, w in self._weights(cell, without):
                found = proportional(w, rest[part].unsqueeze(1))
                ids[part] = self.order[start[part] + found[:, 0]]
                log_r[part] = (w.gather(1, found) / w.sum(1, keepdim=True)).log()[:, 0]
            return ids, log_r
        for some, line, log in self._scored(of, row, cell, without):
            found = torch.minimum(search(sums(log), line, rest[some]), (last - start)[some])
            ids[some], log_r[some] = self.order[start[some] + found], log[line, found]
        return ids, log_r

    def _scored(self, of: _Question, row: Tensor, cell: Tensor, without: Tensor | None = None
                ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For requests (N,) of a question, a cell and a candidate of it that is left out, or -1: some of them, the line
        of each, and log r in lines (P, L).

        A line is for requests that are alike. Lines of one cell are scored together, a GEMM a cell.
        """
        n, each = len(of.h), 1 if without is None else len(self.order) + 1
        alike = (cell * n + row) * each + (0 if without is None else without + 1)
        pairs, line = torch.unique(alike, return_inverse=True)                                  # ascending by cell
        cells, rows, gone = pairs // (n * each), pairs // each % n, pairs % each - 1
        size = (self.start[1:] - self.start[:-1])[cells]
        step = max(1, min(MOST_ROWS, HELD // max(1, int(size.max()) if len(size) else 1)))
        order = torch.argsort(line, stable=True)
        for begin in range(0, len(pairs), step):
            part = slice(begin, min(len(pairs), begin + step))
            low, high = torch.searchsorted(line[order], torch.tensor([part.start, part.stop], device=line.device))
            score = of.h.new_full((part.stop - part.start, int(size[part].max())), -torch.inf)
            distinct, count = torch.unique_consecutive(cells[part], return_counts=True)
            h = of.h[rows[part]]                                                                # (P, D)
            if self.copy is not None:
                h = self.copy.of_query(h).to(h.dtype)
            wide = self.start[distinct + 1] - self.start[distinct]
            after, until = wide.cumsum(0), count.cumsum(0)
            shift = torch.repeat_interleave(self.start[distinct] - (after - wide), wide)
            places = torch.arange(len(shift), device=shift.device) + shift                      # members, cell by cell
            c = (inner_product.some(of.view, self.order[places]) if self.copy is None               # one gather for all
                 else self.copy.read(places).to(h.dtype)).T
            bounds = torch.stack([until - count, until, after - wide, after], 1).tolist()
            for a, b, first, last in bounds:
                score[a:b, :last - first] = h[a:b] @ c[:, first:last]
            if without is not None:
                lines = (gone[part] >= 0).nonzero()[:, 0]
                score[lines, (self.place[gone[part]] - self.start[cells[part]])[lines]] = -torch.inf
            some = order[low:high]
            yield some, line[some] - part.start, torch.log_softmax(score.double(), 1)


class _Question:
    """The distinct questions of some rows: h (Q, D), the question of each row (B,), and of the cells log M (Q, C), log
    of their shares and the running sums of these."""

    def __init__(self, source: CellSampling, query: Query):
        assert source.view is not None
        asked, self.row = query.unique()
        self.view = source.view
        self.h = inner_product.questions(asked, self.view)
        self.log_mass = source.log_mass(self.h)

    @cached_property
    def log_p(self) -> Tensor:
        log_mass = self.log_mass.double()
        return (log_mass - log_mass.amax(1, keepdim=True)).clamp(min=LEAST).log_softmax(1)


def _choose_cells(log_p: Tensor, row: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cells that u (G, k) fall to by the shares in their rows (G,) of log_p (n, C); where in them; and log p."""
    cdf, rows = sums(log_p), row.unsqueeze(1)
    cell = search(cdf, row.repeat_interleave(u.shape[1]), u.view(-1)).view(u.shape)
    p = log_p[rows, cell].exp()
    return cell, ((u - (cdf[rows, cell] - p)) / p).clamp(0, BELOW_ONE), log_p[rows, cell]


def _runs(query: Query, question: Tensor) -> Tensor:
    """The draw of each row (B,): rows of one window that ask the same question share one."""
    return torch.unique_consecutive(torch.stack([query.windows(), question], 1), dim=0, return_inverse=True)[1]
