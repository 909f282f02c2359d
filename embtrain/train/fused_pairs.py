"""Pairs of concepts through the compiled core: draw for a block of rows, then one pass updates the table.

    drawn = source.draw(query, k, view);  kernels.order.update(x, rows, drawn);  source.learn(query, drawn, cost)

It means what train/step.py means (tests hold both to the same update where no row repeats), but that an update is one
row, made on the values that the one before left, and that rows which share a draw are updated one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.data.pairs import PairBatch
from embtrain.errors import UsageError
from embtrain.kernels.order import Columns, Rows, Rule, update
from embtrain.kernels.update import Table
from embtrain.losses.base import Loss, LossConfig
from embtrain.losses.margin import Margin
from embtrain.losses.order import OrderLoss
from embtrain.models.base import Model, pad_rows
from embtrain.models.order import Order
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.fixed import FixedSource
from embtrain.train.config import TrainConfig
from embtrain.train.forgive import Answers, forgive
from embtrain.train.rows import RowAdagrad
from embtrain.train.step import Step, Told
from embtrain.types import Negatives, Query, Scored

LOSSES = ("order", "margin")
TOLD_ROWS = 1024  # rows at the beginning of a block that the log is told of


def refusals(source: type[NegativeSource], negatives: NegativesConfig, loss: LossConfig) -> list[tuple[bool, str]]:
    """What speaks against it besides what speaks against the fused engine for any model."""
    return [
        (loss.name not in LOSSES, f"loss.name: {loss.name}: the kernels know {' and '.join(LOSSES)} for pairs"),
        (source.learns and negatives.share == "block",
         f"negatives.share: block: {negatives.source} hears of columns of one row's own; use share: row"),
    ]


class FusedPairs:
    """The face of Step, for blocks of pairs. What it cannot train is written in train/engine.py."""

    #: Rows of a draw by negatives.share; else it is negatives.block.
    WIDTHS: ClassVar[dict[str, int]] = {"row": 1, "window": 1}

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, answers: Answers | None = None):
        assert isinstance(model, Order) and isinstance(loss, OrderLoss | Margin)
        self.model, self.source, self.loss, self.optimizers = model, source, loss, optimizers
        self.config, self.answers = config, answers
        self.step = Step(model, source, loss, optimizers, config, answers)  # scores what the log is told
        self.view = self.step.view
        self.width = self.WIDTHS.get(source.config.share, source.config.block)
        self.fixed = isinstance(source, FixedSource) and source.config.replacement \
            and type(source).draw is FixedSource.draw
        self.threads = torch.get_num_threads()
        self.rule = Rule(loss.name, loss.config.margin, model.config.orthant == "abs")  # type: ignore[arg-type]
        pad_rows(model)

    @torch.no_grad()
    def __call__(self, block: PairBatch, keep_costs: bool = False) -> Told:
        """Train on a block. `keep_costs`: tell what the log wants to know, of the first TOLD_ROWS rows."""
        n = len(block)
        negatives, learns = self.source.config, self.source.learns
        query = None if self.fixed and negatives.mask != "observed" else self._query(block, self.source.looks)
        drawn = self._draw(block, query)
        if negatives.mask == "observed" or (learns and negatives.mask == "target"):
            assert query is not None
            drawn = forgive(drawn, query, negatives.mask, self.answers)
        # Before the update, as a step scores.
        asked, of, scores = self._say(block, drawn) if keep_costs else (None, None, None)
        loss, cost = self._update(block, drawn, keep=learns)
        told = {}
        if learns:
            assert query is not None and cost is not None
            told = self.source.learn(query, drawn, cost)
        return Told(torch.tensor(loss / max(1, n)), asked, of, scores, told)

    # -- asking ---------------------------------------------------------------------------------------------------

    def _query(self, block: PairBatch, vectors: bool) -> Query:
        """What the model's `encode` would make of the block; the vectors only where somebody looks."""
        if vectors:
            return self.model.encode(block).detach()
        nothing = torch.empty((len(block), 0))
        return Query(nothing, *self.model.asked(block))

    def _draw(self, block: PairBatch, query: Query | None) -> Negatives:
        k, n = self.source.config.k, -(-len(block) // self.width)
        if self.fixed:
            source = cast(FixedSource, self.source)
            weight, mass = source.weight_and_mass(k)
            return Negatives(source.draw_ids(n, k), group=self._group(block), weight=weight, mass=mass)
        assert query is not None
        drawn = self.source.draw(query, k, self.view)
        if drawn.ids is None or len(drawn.ids) != n:
            raise UsageError(f"train.engine: fused wants ids of {n} draws under negatives.share: "
                             f"{self.source.config.share}, and {self.source.name} drew otherwise; use step")
        return drawn

    def _group(self, block: PairBatch) -> Tensor | None:
        return None if self.width == 1 else torch.arange(len(block)) // self.width

    # -- updating -------------------------------------------------------------------------------------------------

    def _update(self, block: PairBatch, drawn: Negatives, keep: bool) -> tuple[float, Tensor | None]:
        """Update on the rows in order; the summed loss, and the columns' costs (B, K) where they are kept."""
        x, optimizer = self.model.x, self.optimizers[0]
        acc = optimizer.accumulator(x).numpy() if isinstance(optimizer, RowAdagrad) else None
        rows = Rows(*(of.contiguous().numpy() for of in (block.given, block.target, block.slot)))
        told = update(Table(x.detach().numpy(), acc), rows, self._columns(drawn), self.rule,
                      optimizer.param_groups[0]["lr"], self.threads, keep)
        if told.scores is None:
            return told.loss, None
        scores = torch.from_numpy(told.scores)
        none = scores.new_zeros(len(scores))
        query = Query(none.unsqueeze(1), *self.model.asked(block))
        return told.loss, self.loss.negative(Scored(none, scores, drawn, query))

    def _columns(self, drawn: Negatives) -> Columns:
        ids, weight, right = cast(Tensor, drawn.ids), drawn.weight, drawn.right
        if weight is not None:
            one = weight.ndim < 2 or len(weight) == 1
            weight = weight.float().reshape(-1, weight.shape[-1]).expand(1 if one else len(ids), ids.shape[1])
            weight = weight[0].contiguous() if one else weight.contiguous()
        return Columns(ids.contiguous().numpy(), self.width, None if weight is None else weight.numpy(),
                       self.source.config.mask == "target" and right is None,
                       None if right is None else np.ascontiguousarray(right.numpy()))

    # -- telling --------------------------------------------------------------------------------------------------

    def _say(self, block: PairBatch, drawn: Negatives) -> tuple[Query, Negatives, Tensor]:
        """Query, draws and costs of the first rows, as a step tells them."""
        some = block.rows(slice(0, TOLD_ROWS))
        query = self.model.encode(some).detach()
        drawn = replace(drawn, right=None).rows(slice(0, len(some)))
        drawn = forgive(drawn, query, self.source.config.mask, self.answers)
        scored = self.step.score(query, replace(drawn, right=None))
        cost = self.loss.negative(scored)
        return query, drawn, cost if scored.row is None else cost[scored.row]
