"""Pairs of concepts through the compiled core (train/engines/compiled.py). A row queries one end of a pair.

Order embeddings have a kernel of their own, in float32; points in hyperbolic space another, in float64. An update
covers one row and sees the values that the previous update wrote. Rows that share a draw are updated one after the
other. The tests compare it with train/engines/autograd.py on blocks in which no row repeats.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from embtrain.common.types import LossInput, Negatives, Query
from embtrain.kernels.core.tables import UpdateResult
from embtrain.kernels.training import hyperbolic, order
from embtrain.kernels.training.hyperbolic import HyperbolicLossSpec
from embtrain.kernels.training.order import OrderLossSpec, PairRows
from embtrain.losses.base import LossConfig
from embtrain.models.base import ModelConfig
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.hierarchies.order import Order, OrderConfig
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.compiled import CompiledStep

LOSSES = ("order", "margin")
HYPERBOLIC_LOSSES = ("hinged_softmax", "order", "sampled_softmax")
LOSSES_OF_WEIGHTS = ("order", "margin", "hinged_softmax")  # read weights, but not their sum


def why_not_fused_pairs(
    model: ModelConfig, source: type[NegativeSource], negatives: NegativesConfig, loss: LossConfig
) -> list[tuple[bool, str]]:
    """Reasons against the compiled engine for pairs, beyond those of `why_not_fused`: (applies, message)."""
    losses = LOSSES if isinstance(model, OrderConfig) else HYPERBOLIC_LOSSES
    return [
        (loss.name not in losses, f"loss.name: {loss.name}: the kernels support {', '.join(losses)} for {model.name}"),
        (getattr(loss, "form", "sampled") == "ranking",
         "loss.form: ranking: the kernels support only form: sampled for pairs"),
        (source.traits.learns and negatives.share_draws_by == "block",
         f"negatives.share_draws_by: block: {negatives.source} receives the costs of negatives of a single row; use "
         "share_draws_by: row"),
    ]


def takes_any_total_weight(loss: LossConfig, train: TrainConfig) -> bool:
    """Whether rows may differ in the total weight of their negatives: the loss does not read it."""
    return loss.name in LOSSES_OF_WEIGHTS and train.device == "cpu"


class CompiledPairs(CompiledStep):
    """Compiled step of order embeddings, and of points in hyperbolic space."""

    tasks = ("pairs",)
    model: HierarchyModel
    losses_of_weights = LOSSES_OF_WEIGHTS
    UNITS_PER_DRAW: ClassVar[dict[str, int]] = {"row": 1, "window": 1}

    def _query(self, block: Any, vectors: bool) -> Query:
        if vectors:
            return self.model.encode(block).detach()
        return Query(torch.empty((len(block), 0), device=block.target.device), *self.model.query_fields(block))

    def _n_draws(self, block: Any) -> int:
        return -(-len(block) // self.units_per_draw)

    def _group(self, block: Any) -> Tensor | None:
        rows = torch.arange(len(block), device=block.target.device)
        return None if self.units_per_draw == 1 else rows // self.units_per_draw

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[float | Tensor, Tensor | None]:
        rows = PairRows(*(field.contiguous().numpy() for field in (block.concept, block.target, block.slot)))
        result = self._run(rows, drawn, keep)
        if result.scores is None:
            return result.loss, None
        return result.loss, self._costs_from_scores(block, torch.from_numpy(result.scores), drawn)

    def _costs_from_scores(self, block: Any, scores: Tensor, drawn: Negatives) -> Tensor:
        """Costs of the negatives of each row, (B, K)."""
        zeros = scores.new_zeros(len(scores))
        query = Query(zeros.unsqueeze(1), *self.model.query_fields(block))
        return self.loss.negative(LossInput(zeros, scores, drawn, query))

    def _order_spec(self) -> OrderLossSpec:
        """The loss of order embeddings in the form of the kernels."""
        margin, reads_abs = getattr(self.loss.config, "margin", 0.0), cast(Order, self.model).config.orthant == "abs"
        return OrderLossSpec(self.loss.name, margin, reads_abs)  # type: ignore[arg-type]

    def _run(self, rows: PairRows, drawn: Negatives, keep: bool) -> UpdateResult:
        model, name, margin = self.model, self.loss.name, getattr(self.loss.config, "margin", 0.0)
        table, negatives, lr = self._table(model.x), self._columns(drawn), self.optimizers[0].param_groups[0]["lr"]
        if isinstance(model, Order):
            return order.update(table, rows, negatives, self._order_spec(), lr, self.threads, keep)
        return hyperbolic.update(table, rows, negatives, model.space(), HyperbolicLossSpec(name, margin),  # type: ignore[arg-type]
                                 lr, self.threads, keep)
