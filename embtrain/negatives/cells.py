"""Sources that draw a cell of candidates first and a candidate inside it then: base of `cluster` and `midx`.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h),   c the cell of i
    r      exact    e^{o_i} / Σ_{j in c} e^{o_j}, with the vectors as they are now
           unigram  n(i)^α / Σ_{j in c} n(j)^α
           uniform  1 / n_c
    with exclude_target:  q(i|h, t) = q(i|h) / (1 - q(t|h)),  i ≠ t

One number u ~ U[0, 1) falls to the candidate whose interval of the cumulative sum holds it: in float64, cell by cell.
Without the target, u ~ U[0, 1 - q_t) steps over the target's interval; so nothing is drawn twice. On that draw eq. 6 of
Rawat et al. 2019 has an unbiased gradient where q ∝ e^o (Bengio and Senécal 2008); on masked hits it has not.

M_c comes from summaries of the cells that are made anew every `refresh` draws. The masses that drew are those that are
reported, however old, so q is exact at any age. Cells far above the mean size are parted: their exact inside is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from embtrain.errors import UsageError
from embtrain.negatives import product
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.search import BELOW_ONE, MOST_ROWS, search, sums
from embtrain.negatives.unigram import unigram_masses
from embtrain.types import Negatives, Query, View, World

HELD = 8_000_000   # masses or scores held at once
LARGEST = 4        # times the mean size: a larger cell is parted


class CellsConfig(NegativesConfig):
    inside: Literal["exact", "unigram", "uniform"] = Field("exact", description="r, how a candidate of a cell is drawn")
    exponent: float = Field(1.0, ge=-10, le=10, description="α of the unigram inside")
    exclude_target: bool = Field(False, description="draw among the candidates other than the target; it has no q then")
    refresh: int = Field(20, ge=0, description="draws between two summaries of the cells; 0: once an epoch")
    recluster: int = Field(1000, ge=0, description="draws between two groupings (sooner at first); 0: once an epoch")


class Cells(NegativeSource):
    """A sub-class gives `cells` (how many it wants), `label`, `summarise` and `log_mass`."""

    geometry = product.GEOMETRIES
    looks: ClassVar[bool] = True
    weighs: ClassVar[bool] = True
    config: CellsConfig
    cells: int

    def __init__(self, config: CellsConfig, world: World):
        super().__init__(config, world)
        v = world.n_candidates
        if v < 2:
            raise UsageError(f"negatives.source: {self.name} needs two candidates or more, and there is {v}")
        if config.share not in ("row", "window"):
            raise UsageError(f"negatives.share: {self.name} draws for each question, so use row or window; "
                             f"{config.share!r} is not possible")
        if not config.replacement:
            raise UsageError(f"negatives.replacement: {self.name} draws with replacement; false is not possible")
        if config.exclude_target:
            self.density = "conditional"
            if config.share != "row":
                raise UsageError("negatives.exclude_target: the rows of a window have targets of their own; "
                                 "set negatives.share: row")
        self.iid = config.mass in (None, config.k)  # else columns do not weigh 1
        w = unigram_masses(world, config.exponent, "after") if config.inside == "unigram" else torch.ones(v).double()
        if not (w > 0).any():
            raise UsageError("negatives.inside: unigram needs candidates that were counted")
        # Inside a cell that was drawn somebody must be: what was never counted weighs as the rarest that was.
        self.w = torch.where(w > 0, w, w[w > 0].min()).to(world.device)                         # (V,) float64
        self.view: View | None = None
        self.labels: Tensor | None = None         # (V,)  what `label` gave; the cells follow from it
        self.summary: tuple[Tensor, ...] = ()     # of the cells, as old as they may be
        self.drawn = self.since = self.groupings = 0

    # -- what a sub-class gives ---------------------------------------------------------------------------------

    def label(self, c: Tensor, seed: int) -> Tensor:
        """A label for each of c (V, D), (V,) int64: equal ones make a cell."""
        raise TypeError(f"{type(self).__name__} does not implement label")

    def summarise(self, c: Tensor) -> tuple[Tensor, ...]:
        """What `log_mass` needs to know of the candidates c (V, D)."""
        raise TypeError(f"{type(self).__name__} does not implement summarise")

    def log_mass(self, h: Tensor) -> Tensor:
        """log M_c(h) of every cell, (Q, C), for h (Q, D)."""
        raise TypeError(f"{type(self).__name__} does not implement log_mass")

    # -- drawing ------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: View) -> Negatives:
        self._follow(view)
        parts = [self._draw(query.rows(rows), k) for rows in self._slices(len(query), 1)]
        ids, log_q = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]).float()
        group, log_q_target = None, None
        if self.config.share == "window":
            offsets = np.cumsum([0, *(len(p[0]) for p in parts)])
            group = torch.cat([p[2] + int(o) for p, o in zip(parts, offsets[:-1], strict=True)])
        if not self.config.exclude_target:
            log_q_target = torch.cat([p[3] for p in parts]).float()
        weight, mass = self.weight_and_mass(k)
        return Negatives(ids, group=group, log_q=log_q, weight=weight, log_q_target=log_q_target, mass=mass)

    def _draw(self, query: Query, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """ids (G, k), their log q, the draw of each row (B,), log q of each row's target."""
        of = _Question(self, query)
        group = torch.arange(len(query), device=self.w.device)
        if self.config.share == "window":
            group = _runs(query, of.row)
        first = torch.full((int(group.max()) + 1,), len(query), device=group.device)
        first.scatter_reduce_(0, group, torch.arange(len(query), device=group.device), "amin")
        row = of.row[first].unsqueeze(1).expand(-1, k).reshape(-1)                              # (N,) N = G k
        below, log_r = self._place(of, of.row, query.target)
        cell = self.cell[query.target]
        log_q_target = of.log_p[of.row, cell] + log_r                                           # (B,) float64
        u = torch.rand(len(first), k, generator=self.random, device=row.device, dtype=torch.float64)
        without = torch.zeros((), dtype=torch.float64, device=row.device)
        if self.config.exclude_target:
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
        return ids.view(-1, k), log_q, group, log_q_target

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        if self.view is None:
            raise UsageError(f"negatives.source: {self.name} has not seen the model yet, so it has no probabilities")
        n = len(query)
        ids = ids.expand(n, -1)
        return torch.cat([self._log_prob(query.rows(r), ids[r]) for r in self._slices(n, ids.shape[1])]).float()

    def _log_prob(self, query: Query, ids: Tensor) -> Tensor:
        of = _Question(self, query)
        if self.config.exclude_target:
            ids = torch.cat([ids, query.target.unsqueeze(1)], 1)
        row = of.row.unsqueeze(1).expand(ids.shape).reshape(-1)
        flat = ids.reshape(-1)
        log_q = (of.log_p[row, self.cell[flat]] + self._place(of, row, flat)[1]).view(ids.shape)
        if self.config.exclude_target:
            log_q, q = log_q[:, :-1], log_q[:, -1:].exp().clamp(max=1 - 1e-9)
            log_q = (log_q - torch.log1p(-q)).masked_fill(ids[:, :-1] == ids[:, -1:], -torch.inf)
        return log_q

    def _slices(self, n: int, k: int) -> Iterator[slice]:
        step = max(1, min(MOST_ROWS, HELD // max(len(self.start) - 1, k)))
        return (slice(i, min(n, i + step)) for i in range(0, max(n, 1), step))

    # -- inside a cell ------------------------------------------------------------------------------------------

    def _inside(self, of: _Question, row: Tensor, cell: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """The candidate (N,) at the place `rest` of a cell's cumulative sum, and log r of it."""
        if self.config.inside != "exact":
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
        if self.config.inside != "exact":
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

    # -- keeping up with the model ------------------------------------------------------------------------------

    def meet(self, view: View) -> None:
        self.view = view
        if self.labels is None:
            self._group(view)

    def refresh(self, view: View) -> None:
        self.view = view
        self._group(view)

    def _follow(self, view: View) -> None:
        """Group or summarise anew where it is time to."""
        self.view = view
        # At first all vectors move: the wait begins at 10 draws and doubles up to `recluster`.
        wait = min(self.config.recluster, 10 + self.drawn - self.since)
        if self.labels is None or (self.config.recluster and self.since >= wait):
            self._group(view)
        elif self.config.refresh and self.drawn % self.config.refresh == 0:
            self.summary = self.summarise(product.candidates(view))
        self.drawn, self.since = self.drawn + 1, self.since + 1

    def _group(self, view: View) -> None:
        c = product.candidates(view)
        seed = int(np.random.SeedSequence([self.world.seed, self.groupings]).generate_state(1)[0])
        self._lay_out(self.label(c, seed))
        self.summary = self.summarise(c)
        self.groupings, self.since = self.groupings + 1, 0

    def _lay_out(self, labels: Tensor) -> None:
        """Cells 0..C-1 of labels (V,): `order` lists the candidates cell by cell, `start` (C + 1,) says from where."""
        v, device = len(labels), labels.device
        order = torch.argsort(labels, stable=True)
        run = torch.unique_consecutive(labels[order], return_inverse=True)[1]
        count = torch.bincount(run)
        inside = torch.arange(v, device=device) - (count.cumsum(0) - count)[run]
        most = -(-LARGEST * v // self.cells)
        cell = torch.unique_consecutive(run * v + inside // most, return_inverse=True)[1]
        self.labels, self.order = labels, order
        self.start = torch.cat([cell.new_zeros(1), torch.bincount(cell).cumsum(0)])             # (C + 1,)
        self.cell, self.place = torch.empty_like(cell), torch.empty_like(order)
        self.cell[order], self.place[order] = cell, torch.arange(v, device=device)              # (V,) each
        self.sums = torch.cat([self.w.new_zeros(1), self.w[order].cumsum(0)])                   # (V + 1,) float64

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "labels": self.labels, "summary": self.summary, "drawn": self.drawn,
                "since": self.since, "groupings": self.groupings}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.drawn, self.since, self.groupings = state["drawn"], state["since"], state["groupings"]
        if state["labels"] is not None:
            self._lay_out(state["labels"].to(self.world.device))
        self.summary = tuple(x.to(self.world.device) for x in state["summary"])


class _Question:
    """The distinct questions of some rows: h (Q, D), the question of each row (B,), log of the cells' shares (Q, C) and
    their cumulative sums."""

    def __init__(self, source: Cells, query: Query):
        assert source.view is not None
        asked, self.row = query.questions()
        self.view = source.view
        self.h = product.questions(asked, self.view)
        self.log_p = torch.log_softmax(source.log_mass(self.h).double(), 1)
        self.cdf = sums(self.log_p)


def _runs(query: Query, question: Tensor) -> Tensor:
    """The draw of each row (B,): rows of one window that ask the same question share one."""
    return torch.unique_consecutive(torch.stack([query.windows(), question], 1), dim=0, return_inverse=True)[1]
