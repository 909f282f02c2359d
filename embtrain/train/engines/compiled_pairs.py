"""Pairs of concepts through the compiled core (train/engines/compiled.py). A row queries one end of a pair.

An update covers one row and sees the values that the previous update wrote. Rows that share a draw are updated one
after the other. The tests compare it with train/engines/autograd.py on blocks in which no row repeats.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from embtrain.common.types import LossInput, Negatives, Query
from embtrain.kernels.training.order import OrderLossSpec, OrderRows, update
from embtrain.losses.base import LossConfig
from embtrain.losses.hinges.margin import Margin
from embtrain.losses.hinges.order import OrderLoss
from embtrain.models.hierarchies.order import Order
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.train.engines.compiled import CompiledStep

LOSSES = ("order", "margin")


def why_not_fused_pairs(
    source: type[NegativeSource], negatives: NegativesConfig, loss: LossConfig
) -> list[tuple[bool, str]]:
    """Reasons against the compiled engine for pairs, beyond those of `why_not_fused`: (applies, message)."""
    return [
        (loss.name not in LOSSES, f"loss.name: {loss.name}: the kernels support {' and '.join(LOSSES)} for pairs"),
        (source.traits.learns and negatives.share_draws_by == "block",
         f"negatives.share_draws_by: block: {negatives.source} receives the costs of negatives of a single row; use "
         "share_draws_by: row"),
    ]


class CompiledPairs(CompiledStep):
    """Compiled step of order embeddings."""

    tasks = ("pairs",)
    model: Order
    loss: OrderLoss | Margin
    UNITS_PER_DRAW: ClassVar[dict[str, int]] = {"row": 1, "window": 1}

    def _query(self, block: Any, vectors: bool) -> Query:
        if vectors:
            return self.model.encode(block).detach()
        return Query(torch.empty((len(block), 0)), *self.model.query_fields(block))

    def _n_draws(self, block: Any) -> int:
        return -(-len(block) // self.units_per_draw)

    def _group(self, block: Any) -> Tensor | None:
        return None if self.units_per_draw == 1 else torch.arange(len(block)) // self.units_per_draw

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[float, Tensor | None]:
        x = self.model.x
        rows = OrderRows(*(field.contiguous().numpy() for field in (block.concept, block.target, block.slot)))
        margin, is_absolute = self.loss.config.margin, self.model.config.orthant == "abs"
        rule = OrderLossSpec(self.loss.name, margin, is_absolute)  # type: ignore[arg-type]
        result = update(self._table(x), rows, self._columns(drawn), rule,
                        self.optimizers[0].param_groups[0]["lr"], self.threads, keep)
        if result.scores is None:
            return result.loss, None
        scores = torch.from_numpy(result.scores)
        zeros = scores.new_zeros(len(scores))
        query = Query(zeros.unsqueeze(1), *self.model.query_fields(block))
        return result.loss, self.loss.negative(LossInput(zeros, scores, drawn, query))
