"""Triples on a GPU, through the Triton kernel (kernels/device/triples).

Same update as compiled_triples.py, with units of a block updated at the same time. Most graphs have few relations, and
each query moves the row of one, so that the bounds of base.py matter more than for text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embtrain.common.machine import to_device
from embtrain.common.types import Negatives
from embtrain.data.triples.examples import TripleBatch
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples
from embtrain.train.engines.compiled_triples import CompiledTriples
from embtrain.train.engines.device.base import DeviceStep
from embtrain.train.engines.false_negatives import KnownPositives


@dataclass(frozen=True)
class PlacedTriples(TripleBatch):
    """Queries on the device. crowding: updates of a row by slope 1, per query, on average over updates, of the worse
    table.
    """

    crowding: float


class DeviceTriples(DeviceStep, CompiledTriples):
    """Compiled step of TransE and DistMult on a GPU."""

    kernel_name = "embtrain.kernels.device.triples.update"
    default_block_size = 65_536

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        super().__init__(model, source, loss, optimizers, config, known_positives)
        self.drawn_per_query = self._drawn_per_row()

    def _read(self, examples: Examples, epoch: int, block: int, number: int, shuffle: bool) -> PlacedTriples:
        return self._placed(next(examples.blocks(epoch, block, number, shuffle)))

    def _placed(self, block: Any) -> PlacedTriples:
        if isinstance(block, PlacedTriples):
            return block
        device = self.model.problem.device
        target, slot, entity, relation = (to_device(x, device)
                                          for x in (block.target, block.slot, block.entity, block.relation))
        weight = None if block.weight is None else to_device(block.weight, device)
        return PlacedTriples(target, slot, entity, relation, self._crowding(block), weight=weight)

    def _crowding(self, block: Any) -> float:
        known, targets = (np.bincount(x.numpy(), minlength=len(self.drawn_per_query))
                          for x in (block.entity, block.target))
        most = self._slopes_of_row              # a margin moves the rows of a query by the slopes of all negatives
        relations = most * np.bincount(block.relation.numpy()) / len(block)
        entities = most * (known + targets) / len(block) + self.drawn_per_query
        return max(float((x * x).sum() / x.sum()) for x in (relations, entities))

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Update on the queries. Returns the summed loss (), and if `keep` the costs of the negatives (G, K)."""
        kernel, lr = self.kernel, self.optimizers[0].param_groups[0]["lr"]
        e, r = self._table_tensors(self.model.e), self._table_tensors(self.model.r)
        negatives, terms = self._negative_tensors(drawn, len(block))
        spec, c = self._loss_spec(terms.total_weight), None if self.c is None else self.c.detach()
        losses, costs, share = list[Tensor](), list[Tensor](), self.units_per_draw
        for rows in self._chunks(len(block)):
            c_grads = list[Tensor]()
            for part in self._launches(rows):
                draws = slice(part.start // share, -(-part.stop // share)) if share else part
                queries = kernel.QueryTensors(*(x[part] for x in (block.entity, block.relation, block.slot,
                                                                  block.target)),
                                              None if block.weight is None else block.weight[part])
                part_negatives = negatives.rows(draws, part)
                result = kernel.update(e, r, queries, part_negatives, spec, lr, c, keep,
                                       self._rows_at_once(block.crowding, lr))
                losses.append(result.loss)
                if result.scores is not None:
                    costs.append(self._costs_from_scores(result.scores, part_negatives.ids))
                if result.c_grad is not None:
                    c_grads.append(result.c_grad)
            if self.c is not None:
                self.c.grad = torch.stack(c_grads).sum()
                self.optimizers[1].step()
        return torch.cat(losses).sum(dtype=torch.float64), torch.cat(costs) if costs else None
