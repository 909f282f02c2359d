"""Pairs of concepts through the compiled core (train/engines/compiled.py): a row asks for one end of a pair.

An update is one row, made on the values that the one before left; rows which share a draw are updated one after the
other. Tests hold it to train/engines/autograd.py where no row repeats.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from embtrain.common.types import LossInput, Negatives, Query
from embtrain.kernels.core.tables import Table
from embtrain.kernels.training.order import Rows, Rule, update
from embtrain.losses.base import LossConfig
from embtrain.losses.margin import Margin
from embtrain.losses.order import OrderLoss
from embtrain.models.order import Order
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.train.engines.compiled import Compiled

LOSSES = ("order", "margin")


def refusals(source: type[NegativeSource], negatives: NegativesConfig, loss: LossConfig) -> list[tuple[bool, str]]:
    """What speaks against it besides what speaks against the fused engine for any model."""
    return [
        (loss.name not in LOSSES, f"loss.name: {loss.name}: the kernels know {' and '.join(LOSSES)} for pairs"),
        (source.learns and negatives.share == "block",
         f"negatives.share: block: {negatives.source} hears of columns of one row's own; use share: row"),
    ]


class FusedPairs(Compiled):
    model: Order
    loss: OrderLoss | Margin
    WIDTHS: ClassVar[dict[str, int]] = {"row": 1, "window": 1}

    def _query(self, block: Any, vectors: bool) -> Query:
        if vectors:
            return self.model.encode(block).detach()
        return Query(torch.empty((len(block), 0)), *self.model.asked(block))

    def _n_draws(self, block: Any) -> int:
        return -(-len(block) // self.width)

    def _group(self, block: Any) -> Tensor | None:
        return None if self.width == 1 else torch.arange(len(block)) // self.width

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[float, Tensor | None]:
        x = self.model.x
        rows = Rows(*(of.contiguous().numpy() for of in (block.concept, block.target, block.slot)))
        rule = Rule(self.loss.name, self.loss.config.margin, self.model.config.orthant == "abs")  # type: ignore[arg-type]
        told = update(Table(x.detach().numpy(), self._accumulator(x)), rows, self._columns(drawn), rule,
                      self.optimizers[0].param_groups[0]["lr"], self.threads, keep)
        if told.scores is None:
            return told.loss, None
        scores = torch.from_numpy(told.scores)
        none = scores.new_zeros(len(scores))
        query = Query(none.unsqueeze(1), *self.model.asked(block))
        return told.loss, self.loss.negative(LossInput(none, scores, drawn, query))
