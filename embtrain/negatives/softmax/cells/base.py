"""Sources that draw a cell of candidates first and a candidate inside it then: base of `cluster` and `midx`.

    q(i|h) = M_c(h) / Σ_c' M_c'(h) · r(i|c, h),   c the cell of i
    r      exact    e^{o_i} / Σ_{j in c} e^{o_j}, with the vectors as they are now
           copied   the same, with a copy of them in eight bits, cell by cell
           unigram  n(i)^α / Σ_{j in c} n(j)^α
           uniform  1 / n_c
    with exclude_target:  q(i|h, t) = q(i|h) / (1 - q(t|h)),  i ≠ t

How both are drawn stands in cells_draw.py; nothing is drawn twice. On the draw without the target eq. 6 of Rawat et al.
2019 has an unbiased gradient where q ∝ e^o (Bengio and Senécal 2008); on masked hits it has not.

M_c comes from summaries of the cells that are made anew every `refresh` draws, and the copy with them. The masses that
drew are those that are reported, however old, so q is exact at any age. Vectors of a cell lie anywhere in the model's
table, and a draw among many candidates waits for them most of its time: a copy is a quarter as much to read, in one
piece. Cells above the mean size are parted: a cell is drawn the more often the larger it is, and then all its members
are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.inverse_cdf import MOST_ROWS, Numbers
from embtrain.negatives.sampling.row_store import RowStore, stored
from embtrain.negatives.sampling.within_cell import Members, Room, refuse_settings
from embtrain.negatives.softmax.cells.sampler import HELD, CellSampling
from embtrain.negatives.static.unigram import unigram_masses

ROWS = 8192        # that are copied at once
LARGEST = 1        # times the mean size: a larger cell is parted
HEARD = 32         # questions of a batch, or all where it has fewer
Within = Literal["exact", "copied", "unigram", "uniform"]


class CellsConfig(NegativesConfig):
    inside: Within = Field("exact", description="r, how a candidate of a cell is drawn")
    exponent: float = Field(1.0, ge=-10, le=10, description="α of the unigram inside")
    exclude_target: bool = Field(False, description="draw among the candidates other than the target; it has no q then")
    refresh: int = Field(20, ge=0, description="draws between two summaries of the cells; 0: once an epoch")
    recluster: int = Field(1000, ge=0, description="draws between two groupings (sooner at first); 0: once an epoch")


class Cells(CellSampling):
    """A sub-class gives `cells` (how many it wants), `label`, `summarise` and `log_mass`; it may give `apart`."""

    geometry = inner_product.GEOMETRIES
    uses_model: ClassVar[bool] = True
    supports_total_weight: ClassVar[bool] = True
    sharing_modes: ClassVar[tuple[str, ...]] = ("row", "window")
    config: CellsConfig
    cells: int

    def __init__(self, config: CellsConfig, world: ProblemSpec):
        super().__init__(config, world)
        refuse_settings(self.name, config, config.exclude_target, world)
        if config.exclude_target:
            self.density = "conditional"
        self.exact, self.copies = config.inside in ("exact", "copied"), config.inside == "copied"
        self.excludes, v = config.exclude_target, world.n_candidates
        self.iid = config.mass in (None, config.k)  # else columns do not weigh 1
        w = unigram_masses(world, config.exponent, "after") if config.inside == "unigram" else torch.ones(v).double()
        if not (w > 0).any():
            raise UsageError("negatives.inside: unigram needs candidates that were counted")
        # Inside a cell that was drawn somebody must be: what was never counted weighs as the rarest that was.
        self.w = torch.where(w > 0, w, w[w > 0].min()).to(world.device)                         # (V,) float64
        self.view: ModelView | None = None
        self.labels: Tensor | None = None         # (V,)  what `label` gave; the cells follow from it
        self.alone: Tensor | None = None          # (V,)  and from what `apart` gave
        self.summary: tuple[Tensor, ...] = ()     # of the cells, as old as they may be
        self.copy: RowStore | None = None             # (V, D)  candidates in `order`, as old as the summary
        self.heard: Tensor | None = None          # (N, D)  questions of draws before, where it `hears`
        self.drawn = self.since = self.groupings = 0
        self.room, self.numbers = Room(), Numbers(self.random)

    # -- what a sub-class gives ---------------------------------------------------------------------------------

    def label(self, c: Tensor, seed: int) -> Tensor:
        """A label for each of c (V, D), (V,) int64: equal ones make a cell."""
        raise TypeError(f"{type(self).__name__} does not implement label")

    def apart(self, c: Tensor) -> Tensor | None:
        """Which of c (V, D) are cells of their own, (V,) bool; None: none."""
        return None

    def summarise(self, c: Tensor) -> tuple[Tensor, ...]:
        """What `log_mass` needs to know of the candidates c (V, D)."""
        raise TypeError(f"{type(self).__name__} does not implement summarise")

    # -- drawing ------------------------------------------------------------------------------------------------

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        self._follow(query, view)
        core = self._core()

        def some(query: Query) -> Drawn:
            return self._draw(query, k) if core is None else self._draw_by(core, query, k)

        n, step = len(query), self.at_once
        if n <= step:
            ids, log_q, group, log_q_target = some(query)
        else:
            slices = _slices(n, step) if self.config.share == "row" else _of_windows(query.windows(), step)
            ids, log_q, group, log_q_target = _joined(query, slices, some)
        weight, mass = self.weight_and_mass(k)
        return Negatives(ids, draw_id=group if self.config.share == "window" else None, log_q=log_q, weight=weight,
                         total_weight=mass, log_q_target=None if self.excludes else log_q_target)

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        if self.view is None:
            raise UsageError(f"negatives.source: {self.name} has not seen the model yet, so it has no probabilities")
        n = len(query)
        ids, step = ids.expand(n, -1), self._step(ids.shape[1])
        return torch.cat([self._log_prob(query.rows(r), ids[r]) for r in _slices(n, step)]).float()

    def _step(self, k: int) -> int:
        """Rows at once."""
        return max(1, min(MOST_ROWS, HELD // max(self.n_cells, k)))

    # -- keeping up with the model ------------------------------------------------------------------------------

    def prepare_log_prob(self, view: ModelView) -> None:
        self.view = view
        if self.labels is None:
            self._group(view)

    def refresh(self, view: ModelView) -> None:
        self.view = view
        if not self.drawn:      # as if nobody had asked before: clusters begin at those of `meet`, which promises that
            self.labels, self.groupings = None, 0
        self._group(view)

    def _follow(self, query: Query, view: ModelView) -> None:
        """Group or summarise anew where it is time to."""
        self.view = view
        # At first all vectors move: the wait begins at 10 draws and doubles up to `recluster`.
        wait = min(self.config.recluster, 10 + self.drawn - self.since)
        labels = self.labels
        if self.config.recluster and self.since >= wait:
            labels = None
        unheard = self.fits_to_queries and self.heard is None      # the first summary was made without a question
        if labels is None or unheard or (self.config.refresh and self.drawn % self.config.refresh == 0):
            self._record_queries(query, view)
            if labels is None:
                self._group(view)
            elif unheard:
                self._build_index(labels, inner_product.candidates(view))
            else:
                self._summarise(inner_product.candidates(view))
        self.drawn, self.since = self.drawn + 1, self.since + 1

    def _record_queries(self, query: Query, view: ModelView) -> None:
        """Keep some questions that are about to be answered, for summaries that are fitted to them."""
        if self.fits_to_queries:
            rows = torch.linspace(0, len(query) - 1, min(HEARD, len(query)), device=query.target.device).round().long()
            self.heard = inner_product.questions(query.rows(rows), view).detach()

    def _group(self, view: ModelView) -> None:
        c = inner_product.candidates(view)
        seed = int(np.random.SeedSequence([self.world.seed, self.groupings]).generate_state(1)[0])
        self._build_index(self.label(c, seed), c)
        self.groupings, self.since = self.groupings + 1, 0

    def _build_index(self, labels: Tensor, c: Tensor) -> None:
        self._part(labels, self.apart(c))
        self._summarise(c)

    def _summarise(self, c: Tensor) -> None:
        self.summary = self.summarise(c)
        if self.copies:
            copy = self._lay_copy(c.shape[1])
            for places in torch.arange(len(c), device=c.device).split(ROWS):
                copy.write(places, c[self.order[places]])

    def _lay_copy(self, dim: int) -> RowStore:
        """Room for a copy, where it is as large as before the same."""
        if self.copy is None or self.copy.stored.shape != (len(self.order), dim):
            self.copy = RowStore(len(self.order), dim, "int8", self.world.device)
        if self.members.copy is not self.copy:
            self.members = Members(self.order, self.start, self.copy)
        return self.copy

    def _part(self, labels: Tensor, alone: Tensor | None) -> None:
        """Cells 0..C-1 of labels (V,): `order` lists the candidates cell by cell, `start` (C + 1,) says from where."""
        v, device = len(labels), labels.device
        parted = labels
        if alone is not None:
            parted = torch.where(alone, labels.amax() + 1 + torch.arange(v, device=device), labels)
        order = torch.argsort(parted, stable=True)
        run = torch.unique_consecutive(parted[order], return_inverse=True)[1]
        count = torch.bincount(run)
        inside = torch.arange(v, device=device) - (count.cumsum(0) - count)[run]
        most = -(-LARGEST * v // self.cells)
        cell = torch.unique_consecutive(run * v + inside // most, return_inverse=True)[1]
        self.labels, self.alone = labels, alone
        self.order, self.start = order, torch.cat([cell.new_zeros(1), torch.bincount(cell).cumsum(0)])  # (C + 1,)
        self.log_size = (self.start[1:] - self.start[:-1]).log()                                # (C,)
        self.members, self.n_cells = Members(self.order, self.start), len(self.log_size)
        self.at_once = self._step(1)
        self.cell, self.place = torch.empty_like(cell), torch.empty_like(order)
        self.cell[order], self.place[order] = cell, torch.arange(v, device=device)              # (V,) each
        # Each cell for itself: in one running sum of all, who weighs little beside other cells would be lost.
        self.inner = self.w.new_zeros(self.n_cells, int(torch.bincount(cell).amax()))           # (C, L) float64
        self.inner[cell, torch.arange(v, device=device) - self.start[cell]] = self.w[order]
        self.total = self.inner.sum(1)                                                          # (C,)

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "labels": self.labels, "alone": self.alone, "summary": self.summary,
                "copy": stored(self.copy), "heard": self.heard, "drawn": self.drawn, "since": self.since,
                "groupings": self.groupings, "numbers": self.numbers.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.drawn, self.since, self.groupings = state["drawn"], state["since"], state["groupings"]
        self.numbers.load(state["numbers"])
        if state["labels"] is not None:
            alone, device = state.get("alone"), self.world.device
            self._part(state["labels"].to(device), None if alone is None else alone.to(device))
        self.summary = tuple(x.to(self.world.device) for x in state["summary"])
        if saved := state.get("copy"):
            for mine, of in zip(stored(self._lay_copy(saved[0].shape[1])), saved, strict=True):
                mine.copy_(of)
        self.heard = None if state["heard"] is None else state["heard"].to(self.world.device)


Drawn = tuple[Tensor, Tensor, Tensor | None, Tensor]


def _joined(query: Query, slices: Iterable[slice], draw: Callable[[Query], Drawn]) -> Drawn:
    """What slices of a batch draw; the draws that their rows read are counted through."""
    ids, log_q, group, log_q_target = zip(*(draw(query.rows(rows)) for rows in slices), strict=True)
    before = accumulate(map(len, ids), initial=0)
    counted = [g + n for g, n in zip(group, before, strict=False) if g is not None]
    return torch.cat(ids), torch.cat(log_q), torch.cat(counted) if counted else None, torch.cat(log_q_target)


def _slices(n: int, step: int) -> list[slice]:
    return [slice(i, min(n, i + step)) for i in range(0, max(n, 1), step)]


def _of_windows(window: Tensor, step: int) -> Iterator[slice]:
    """The same, but each ends where a window (B,) does, whose rows share a draw: at most `step` rows, or one window."""
    ends = [*(window[1:] != window[:-1]).nonzero().flatten().add(1).tolist(), len(window)]
    begin = end = 0
    for following in ends:
        if following - begin > step and end > begin:
            yield slice(begin, end)
            begin = end
        end = following
    yield slice(begin, end)
