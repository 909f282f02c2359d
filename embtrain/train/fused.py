"""The step without autograd: draw for a block of windows, then one pass of the compiled core updates the tables.

    drawn = source.draw(query, k, view);  kernels.update(u, v, windows, drawn);  source.learn(query, drawn, cost)

It means what train/step.py means (tests hold both to the same update where no row repeats), with these differences: an
update is one window, or the windows that share a draw, in place of train.batch examples; each is made on the values
that the one before left; the loss's own parameters (log Z) take a step about every train.batch examples. A query is
built only for who looks at it: sources whose q is one fixed distribution are asked for bare ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from embtrain.data.windows import WindowBatch
from embtrain.errors import UsageError
from embtrain.kernels.update import Columns, Rule, Table, Windows, update
from embtrain.losses.base import Loss
from embtrain.losses.margin import Margin
from embtrain.losses.nce import Nce
from embtrain.losses.sampled_softmax import SampledSoftmax
from embtrain.models.base import Model, pad_rows
from embtrain.models.skipgram import SkipGram
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.fixed import FixedSource
from embtrain.train.config import TrainConfig
from embtrain.train.forgive import Answers, forgive
from embtrain.train.rows import RowAdagrad
from embtrain.train.step import Step, Told, per_draw
from embtrain.types import Negatives, Query, Scored

TOLD_ROWS = 1024  # pairs at the beginning of a block that the log is told of; the window that reaches them is the last


class Fused:
    """The face of Step, for blocks of windows. What it cannot train is written in train/engine.py."""

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, answers: Answers | None = None):
        assert isinstance(model, SkipGram)
        self.model, self.source, self.loss, self.optimizers = model, source, loss, optimizers
        self.config, self.answers = config, answers
        self.step = Step(model, source, loss, optimizers, config, answers)  # scores what the log and a source are told
        self.view = self.step.view
        share = source.config.share
        self.width = {"row": 0, "window": 1}.get(share, source.config.block)  # windows of a draw; 0: pairs have own
        self.fixed = isinstance(source, FixedSource) and source.config.replacement \
            and type(source).draw is FixedSource.draw
        self.threads = torch.get_num_threads()
        self.c = loss.c if isinstance(loss, Nce) else None
        pad_rows(model)

    @torch.no_grad()
    def __call__(self, block: WindowBatch, keep_costs: bool = False) -> Told:
        """Train on a block. `keep_costs`: tell what the log wants to know, of the first TOLD_ROWS pairs."""
        n = len(block.target)
        if n == 0:
            return Told(torch.zeros(()), None, None, None, {})
        negatives, learns = self.source.config, self.source.learns
        query = None if self.fixed and negatives.mask != "observed" else self._query(block, self.source.looks)
        drawn = self._draw(block, query)
        if negatives.mask == "observed" or (learns and negatives.mask == "target"):
            assert query is not None
            drawn = forgive(drawn, query, negatives.mask, self.answers)
        said = self._say(block, drawn) if keep_costs else None           # before the update, as a step scores
        before = self._costs(self._query(block, True), drawn) if learns and self.width > 1 else None
        loss, cost = self._update(block, drawn, keep=learns and self.width <= 1)
        told = {}
        if learns:
            assert query is not None
            cost = per_draw(before, drawn) if before is not None else cost
            told = self.source.learn(query, drawn, cast(Tensor, cost))
        asked, answered, costs = said or (None, None, None)
        return Told(torch.tensor(loss / n), asked, answered, costs, told)

    # -- asking ---------------------------------------------------------------------------------------------------

    def _query(self, block: WindowBatch, vectors: bool) -> Query:
        """What the model's `encode` would make of the block's pairs; the vectors only where somebody looks."""
        window = _window_of(block)                                                                     # (P,)
        centre = block.centre[window]
        vector = self.model.u[centre] if vectors else centre.new_empty((len(centre), 0), dtype=torch.float32)
        rank = torch.zeros(len(self.model.u), dtype=torch.int64)
        rank[block.centre] = 1
        group = (rank.cumsum(0) - 1)[centre]                                   # unique's inverse, without its sort
        return Query(vector, centre, block.target, torch.zeros_like(centre), group, window)

    def _draw(self, block: WindowBatch, query: Query | None) -> Negatives:
        k, n = self.source.config.k, self._n_draws(block)
        if self.fixed:
            source = cast(FixedSource, self.source)
            weight, mass = source.weight_and_mass(k)
            return Negatives(source.draw_ids(n, k), group=self._group(block) if query is not None else None,
                             weight=weight, mass=mass)
        assert query is not None
        drawn = self.source.draw(query, k, self.view)
        if drawn.ids is None or len(drawn.ids) != n:
            raise UsageError(f"train.engine: fused wants ids of {n} draws under negatives.share: "
                             f"{self.source.config.share}, and {self.source.name} drew otherwise; use step")
        return drawn

    def _n_draws(self, block: WindowBatch) -> int:
        return -(-len(block.centre) // self.width) if self.width else len(block.target)

    def _group(self, block: WindowBatch) -> Tensor | None:
        """The draw of each pair, (P,); None where each has its own."""
        return _window_of(block) // self.width if self.width else None

    # -- updating -------------------------------------------------------------------------------------------------

    def _update(self, block: WindowBatch, drawn: Negatives, keep: bool) -> tuple[float, Tensor | None]:
        """Update on the windows in order; the summed loss, and the columns' costs (G, K) where they are kept."""
        u, v = (Table(p.detach().numpy(), self._accumulator(p)) for p in (self.model.u, self.model.v))
        columns, lr = self._columns(drawn), self.optimizers[0].param_groups[0]["lr"]
        windows = Windows(block.centre.numpy(), block.start.numpy(), block.target.numpy())
        c = None if self.c is None else self.c.detach().numpy()
        ranking = isinstance(self.loss, SampledSoftmax) and self.loss.config.form == "ranking"
        rule = Rule(self.loss.name, self.loss.config.margin if isinstance(self.loss, Margin) else 1.0, c,  # type: ignore[arg-type]
                    ranking)
        total, costs = 0.0, list[Tensor]()
        for first, last in self._pieces(windows.start):
            part, of = _cut(windows, columns, first, last)
            told = update(u, v, part, of, rule, lr, self.threads, keep)
            total += told.loss
            if told.scores is not None:
                costs.append(self._negative(torch.from_numpy(told.scores), part, of))
            if self.c is not None and told.c_grad is not None:
                self.c.grad = torch.from_numpy(np.asarray(told.c_grad, dtype=np.float32))
                self.optimizers[1].step()
        return total, torch.cat(costs) if costs else None

    def _pieces(self, start: np.ndarray) -> Iterator[tuple[int, int]]:
        """Windows that are passed to the core at once: all, or, where log Z is learnt, as many as have about
        train.batch pairs, for then it takes a step. Draws stay whole."""
        n, unit = len(start) - 1, max(1, self.width)
        first = 0
        while first < n:
            last = n
            if self.c is not None and start[n] - start[first] > self.config.batch:
                last = int(np.searchsorted(start, start[first] + self.config.batch, "right")) - 1
                last = min(n, first + max(unit, (last - first) // unit * unit))
            yield first, last
            first = last

    def _columns(self, drawn: Negatives) -> Columns:
        ids = cast(Tensor, drawn.ids)
        mask, corrects = self.source.config.mask, self.loss.needs_q != "no"
        mass = drawn.mass
        if mass is not None and mass.numel() != 1:
            raise UsageError(f"train.engine: fused wants one noise mass for all pairs, and {self.source.name} has one "
                             "for each; use step")
        fixed = cast(FixedSource, self.source).log_q.numpy() if self.fixed and corrects else None
        log_q = None if drawn.log_q is None or not corrects else drawn.log_q.float().expand(ids.shape).contiguous()
        weight = drawn.weight
        if weight is not None:
            one = weight.ndim < 2 or len(weight) == 1
            weight = weight.float().reshape(-1, weight.shape[-1]).expand(1 if one else len(ids), ids.shape[1])
            weight = weight[0].contiguous() if one else weight.contiguous()
        target = None if drawn.log_q_target is None or not corrects else drawn.log_q_target.float().contiguous()
        right = drawn.right                                     # already with the targets, where somebody asked
        return Columns(ids.contiguous().numpy(), self.width, _array(log_q), fixed, _array(target), _array(weight),
                       float(drawn.k if mass is None else mass), mask == "target" and right is None,
                       None if right is None else right.contiguous().numpy())

    def _accumulator(self, table: torch.nn.Parameter) -> np.ndarray | None:
        optimizer = self.optimizers[0]
        return optimizer.accumulator(table).numpy() if isinstance(optimizer, RowAdagrad) else None

    # -- telling --------------------------------------------------------------------------------------------------

    def _negative(self, scores: Tensor, windows: Windows, columns: Columns) -> Tensor:
        """The columns' costs, from the scores (G, K) of draws that one centre each asked for."""
        centre = torch.from_numpy(windows.centre)
        if columns.share == 0:
            centre = centre.repeat_interleave(torch.from_numpy(np.diff(windows.start)))
        none = scores.new_zeros(len(scores))
        query = Query(none.unsqueeze(1), centre, torch.zeros_like(centre), torch.zeros_like(centre))
        return self.loss.negative(Scored(none, scores, Negatives(torch.from_numpy(columns.ids)), query))

    def _costs(self, query: Query, drawn: Negatives) -> Tensor:
        """The columns' costs of each row (B, K) by the tables as they stand."""
        scored = self.step.score(query, replace(drawn, right=None))
        cost = self.loss.negative(scored)
        return cost if scored.row is None else cost[scored.row]

    def _say(self, block: WindowBatch, drawn: Negatives) -> tuple[Query, Negatives, Tensor]:
        """Query, draws and costs of the first windows, as a step tells them."""
        last = int(np.searchsorted(block.start.numpy(), min(TOLD_ROWS, len(block.target))))
        some = WindowBatch(block.centre[:last], block.start[:last + 1], block.target[:int(block.start[last])])
        query = self._query(some, True)
        group = drawn.group if drawn.group is not None else self._group(block)
        drawn = replace(drawn, group=group, right=None).rows(slice(0, len(query)))
        drawn = forgive(drawn, query, self.source.config.mask, self.answers)
        return query, drawn, self._costs(query, drawn)


def _window_of(block: WindowBatch) -> Tensor:
    """The window of each pair, (P,)."""
    return torch.repeat_interleave(torch.arange(len(block.centre)), block.start.diff(), output_size=len(block.target))


def _array(x: Tensor | None) -> np.ndarray | None:
    return None if x is None else x.numpy()


def _cut(windows: Windows, columns: Columns, first: int, last: int) -> tuple[Windows, Columns]:
    """Some of the windows, with their draws."""
    if first == 0 and last == len(windows.centre):
        return windows, columns
    start, share = windows.start[first:last + 1], columns.share
    pairs = slice(int(start[0]), int(start[-1]))
    draws = slice(first // share, -(-last // share)) if share else pairs
    right = columns.right
    if right is not None:
        a, b = np.searchsorted(right[0], [pairs.start, pairs.stop])
        right = np.ascontiguousarray(right[:, a:b]) - np.array([[pairs.start], [0]])
    def of(x: np.ndarray | None, rows: slice) -> np.ndarray | None:
        return x if x is None or (x.ndim == 1 and rows is draws) else x[rows]
    return (Windows(windows.centre[first:last], start - start[0], windows.target[pairs]),
            columns._replace(ids=columns.ids[draws], log_q=of(columns.log_q, draws), weight=of(columns.weight, draws),
                             log_q_target=None if columns.log_q_target is None else columns.log_q_target[pairs],
                             right=right))
