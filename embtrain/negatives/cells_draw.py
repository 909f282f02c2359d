"""How cells, and candidates in them, are drawn: the part of `cells.py` that works.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h),  c the cell of i;    with exclude_target q(i|h) / (1 - q(t|h)),  i ≠ t

The exact inside is the compiled core's where it can be (questions.py): without the target, its cell is left the mass
M_c (1 - r_t), and inside it r is of the others; sums are of what is left, so that nothing is lost by subtracting.

Elsewhere torch: one number u ~ U[0, 1) falls to the candidate whose interval of the cumulative sum holds it, in
float64, cell by cell. Without the target, u ~ U[0, 1 - q_t) steps over the target's interval.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from embtrain.kernels import cells as kernel
from embtrain.negatives import product
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.questions import Inside, Members, Room, flat
from embtrain.negatives.search import BELOW_ONE, MOST_ROWS, Numbers, search, sums
from embtrain.types import Query, View, first_of

HELD = 8_000_000   # masses or scores held at once
LEAST = -87.0      # log of the least mass of a cell, in parts of the largest, as in the core


class CellDraws(NegativeSource):
    """`Cells` gives what is declared here."""

    exact: bool                # r is e^o
    excludes: bool             # draws are of the candidates other than the target
    view: View | None
    w: Tensor                  # (V,) float64   what r is in proportion to, where it is not e^o
    order: Tensor              # (V,)           the candidates cell by cell
    start: Tensor              # (C + 1,)       where each cell begins in it
    members: Members           # both, as the core reads them
    log_size: Tensor           # (C,) float32   log of how many a cell has
    cell: Tensor               # (V,)           of each candidate
    place: Tensor              # (V,)           of each candidate in the order
    sums: Tensor               # (V + 1,) float64  running sums of w along the order
    room: Room
    numbers: Numbers           # of the core's draws
    _laid: tuple[tuple[object, ...], kernel.Layout] | None = None

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
        if query.group is not None or self.config.share == "window":
            asked, own = query.questions()
            group, rows = self._groups(query, own)
            question, row = flat(own if rows is group else own[rows]), flat(own)                # each row for itself
        linear, tau, h, log_mass = self.linear(), 0.0, asked.vector, None
        if linear is None or h.dtype != torch.float32:
            h = product.questions(asked, self.view).float()
            linear, log_mass = None, flat(self.log_mass(h).float())
        elif self.view.geometry == "cosine":
            tau = self.view.tau
        asks = kernel.Asks(flat(h), question, row, flat(query.target), tau, log_mass)
        n = asks.draws
        (ids, log_q, log_q_target), room = self.room.take(n, k, len(query))
        kernel.draw_into(room, self._layout(core, linear), asks, self.excludes, self.numbers.seeds,
                         self.numbers.draws(n, k), torch.get_num_threads())
        return ids, log_q, group, log_q_target

    def _layout(self, core: Inside, linear: tuple[Tensor, Tensor] | None) -> kernel.Layout:
        """Made anew where the table, cells or means have changed."""
        lies = core, self.cell, linear and linear[0]
        if self._laid is None or any(map(operator.is_not, self._laid[0], lies)):
            means = () if linear is None else (linear[0].numpy(), linear[1].numpy())
            self._laid = lies, kernel.Layout(core.members, self.cell.numpy(), self.place.numpy(), *means)
        return self._laid[1]

    # -- by torch -------------------------------------------------------------------------------------------------

    def _draw(self, query: Query, k: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """ids (G, k), their log q, the draw of each row (B,) (None: each its own), log q of each row's target."""
        of = _Question(self, query)
        group, first = self._groups(query, of.row)
        row = of.row[first].unsqueeze(1).expand(-1, k).reshape(-1)                              # (N,) N = G k
        below, log_r = self._place(of, of.row, query.target)
        cell = self.cell[query.target]
        log_q_target = of.log_p[of.row, cell] + log_r                                           # (B,) float64
        u = torch.rand(len(first), k, generator=self.random, device=row.device, dtype=torch.float64)
        without = torch.zeros((), dtype=torch.float64, device=row.device)
        if self.excludes:
            q = log_q_target.exp().clamp(max=1 - 1e-9)
            start = of.cdf[of.row, cell] - of.log_p[of.row, cell].exp() * (1 - below)           # of t's interval
            u = u * (1 - q).unsqueeze(1)
            u = (u + q.unsqueeze(1) * (u >= start.unsqueeze(1))).clamp(max=BELOW_ONE)
            without = torch.log1p(-q).unsqueeze(1)
        u = u.reshape(-1)
        drawn = search(of.cdf, row, u)                                                         # (N,) cells
        p = of.log_p[row, drawn].exp()
        rest = ((u - (of.cdf[row, drawn] - p)) / p).clamp(0, BELOW_ONE)
        ids, log_r = self._inside(of, row, drawn, rest)
        log_q = (of.log_p[row, drawn] + log_r).view(-1, k) - without
        return ids.view(-1, k), log_q.float(), group, log_q_target.float()

    def _groups(self, query: Query, question: Tensor) -> tuple[Tensor, Tensor]:
        """The draw of each row (B,), and the first row of each draw (G,)."""
        if self.config.share != "window":
            every = question if query.group is None else torch.arange(len(query), device=self.w.device)
            return every, every
        group = _runs(query, question)
        return group, first_of(group)

    def _log_prob(self, query: Query, ids: Tensor) -> Tensor:
        of = _Question(self, query)
        if self.excludes:
            ids = torch.cat([ids, query.target.unsqueeze(1)], 1)
        row = of.row.unsqueeze(1).expand(ids.shape)
        log_r, others = self._log_inside(of, row, ids)
        log_p = of.log_p[row, self.cell[ids]]
        log_q = log_p + log_r
        if self.excludes:
            log_own, rest = log_p[:, -1:], others[:, -1:]
            left = -torch.expm1(log_own) + log_own.exp() * rest                                 # 1 - q_t
            log_q = log_q[:, :-1] - left.clamp(min=1e-9 if self._core() is None else 1e-300).log()
            log_q = log_q.masked_fill(ids[:, :-1] == ids[:, -1:], -torch.inf)
        return log_q

    def _log_inside(self, of: _Question, row: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """log r of ids (B, K), and 1 - r."""
        if (core := self._core()) is not None:
            found = core.places(of.h, row.reshape(-1), self.cell[ids].view(-1), self.place[ids].view(-1), None)
            return found[1].view(ids.shape), found[2].view(ids.shape)
        log_r = self._place(of, row.reshape(-1), ids.reshape(-1))[1].view(ids.shape)
        return log_r, -torch.expm1(log_r)

    def _inside(self, of: _Question, row: Tensor, cell: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """The candidate (N,) at the place `rest` of a cell's cumulative sum, and log r of it."""
        if not self.exact:
            low, high = self.sums[self.start[cell]], self.sums[self.start[cell + 1]]
            at = torch.searchsorted(self.sums[1:], low + rest * (high - low), right=True)
            ids = self.order[torch.minimum(torch.maximum(at, self.start[cell]), self.start[cell + 1] - 1)]
            return ids, (self.w[ids] / (high - low)).log()
        ids, log_r = torch.empty_like(cell), torch.empty_like(rest)
        for some, pair, log in self._scored(of, row, cell):
            found = search(sums(log), pair, rest[some])
            found = torch.minimum(found, self.start[cell[some] + 1] - self.start[cell[some]] - 1)
            ids[some], log_r[some] = self.order[self.start[cell[some]] + found], log[pair, found]
        return ids, log_r

    def _place(self, of: _Question, row: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Where candidates (N,) begin in their cells' cumulative sums, and log r of them."""
        cell = self.cell[ids]
        at = self.place[ids]
        if not self.exact:
            low, high = self.sums[self.start[cell]], self.sums[self.start[cell + 1]]
            return (self.sums[at] - low) / (high - low), (self.w[ids] / (high - low)).log()
        below, log_r = torch.empty(len(ids), dtype=torch.float64, device=ids.device), of.log_p.new_empty(len(ids))
        for some, pair, log in self._scored(of, row, cell):
            inside = at[some] - self.start[cell[some]]
            log_r[some] = log[pair, inside]
            below[some] = sums(log)[pair, inside] - log_r[some].exp()
        return below, log_r

    def _scored(self, of: _Question, row: Tensor, cell: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For requests (N,) of a question and a cell: some of them, the line of each, and log r in lines (P, L).

        A line is a distinct pair of cell and question. Lines of one cell are scored together, a GEMM a cell.
        """
        n = len(of.h)
        pairs, line = torch.unique(cell * n + row, return_inverse=True)                         # ascending by cell
        cells, rows = pairs // n, pairs % n
        size = (self.start[1:] - self.start[:-1])[cells]
        step = max(1, min(MOST_ROWS, HELD // max(1, int(size.max()) if len(size) else 1)))
        order = torch.argsort(line, stable=True)
        for begin in range(0, len(pairs), step):
            part = slice(begin, min(len(pairs), begin + step))
            low, high = torch.searchsorted(line[order], torch.tensor([part.start, part.stop], device=line.device))
            score = of.h.new_full((part.stop - part.start, int(size[part].max())), -torch.inf)
            distinct, count = torch.unique_consecutive(cells[part], return_counts=True)
            h = of.h[rows[part]]                                                                # (P, D)
            wide = self.start[distinct + 1] - self.start[distinct]
            after, until = wide.cumsum(0), count.cumsum(0)
            shift = torch.repeat_interleave(self.start[distinct] - (after - wide), wide)
            ids = self.order[torch.arange(len(shift), device=shift.device) + shift]             # members, cell by cell
            c = product.some(of.view, ids).T                                                    # one gather for all
            bounds = torch.stack([until - count, until, after - wide, after], 1).tolist()
            for a, b, first, last in bounds:
                score[a:b, :last - first] = h[a:b] @ c[:, first:last]
            some = order[low:high]
            yield some, line[some] - part.start, torch.log_softmax(score.double(), 1)


class _Question:
    """The distinct questions of some rows: h (Q, D), the question of each row (B,), and of the cells log M (Q, C), log
    of their shares and the running sums of these."""

    def __init__(self, source: CellDraws, query: Query):
        assert source.view is not None
        asked, self.row = query.questions()
        self.view = source.view
        self.h = product.questions(asked, self.view)
        self.log_mass = source.log_mass(self.h)

    @cached_property
    def log_p(self) -> Tensor:
        log_mass = self.log_mass.double()
        return (log_mass - log_mass.amax(1, keepdim=True)).clamp(min=LEAST).log_softmax(1)

    @cached_property
    def cdf(self) -> Tensor:
        return sums(self.log_p)


def _runs(query: Query, question: Tensor) -> Tensor:
    """The draw of each row (B,): rows of one window that ask the same question share one."""
    return torch.unique_consecutive(torch.stack([query.windows(), question], 1), dim=0, return_inverse=True)[1]
