"""Pairs of concepts on a GPU, through the Triton kernel (kernels/device/pairs): order embeddings.

Same update as compiled_pairs.py, with rows of a block updated at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common.machine import to_device
from embtrain.common.types import Negatives
from embtrain.data.hierarchy.examples import PairBatch
from embtrain.kernels.device.arguments import DeviceResult
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples
from embtrain.train.engines.compiled_pairs import CompiledPairs
from embtrain.train.engines.device.base import DeviceStep
from embtrain.train.engines.false_negatives import KnownPositives


@dataclass(frozen=True)
class PlacedPairs(PairBatch):
    """Rows on the device. crowding: updates of a concept at each row, on average over updates."""

    crowding: float


class DevicePairs(DeviceStep, CompiledPairs):
    """Compiled step of order embeddings on a GPU."""

    kernel_name = "embtrain.kernels.device.pairs.update"
    default_block_size = 65_536

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        super().__init__(model, source, loss, optimizers, config, known_positives)
        self.drawn_per_row = self._drawn_per_row()

    def _read(self, examples: Examples, epoch: int, block: int, number: int, shuffle: bool) -> PlacedPairs:
        return self._placed(next(examples.blocks(epoch, block, number, shuffle)))

    def _placed(self, block: Any) -> PlacedPairs:
        if isinstance(block, PlacedPairs):
            return block
        target, slot, concept = (to_device(x, self.model.problem.device)
                                 for x in (block.target, block.slot, block.concept))
        ends = np.bincount(np.concatenate([block.target.numpy(), block.concept.numpy()]),
                           minlength=len(self.drawn_per_row))
        updates = self._slopes_of_row * ends / len(block) + self.drawn_per_row
        return PlacedPairs(target, slot, concept, float((updates * updates).sum() / updates.sum()))

    def _update(self, block: PlacedPairs, drawn: Negatives, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Update on the rows. Returns the summed loss (), and if `keep` the costs of the negatives (B, K)."""
        kernel, lr, share = self.kernel, self.optimizers[0].param_groups[0]["lr"], self.units_per_draw
        table, spec = self._table_tensors(self.model.x), self._order_spec()
        negatives, _ = self._negative_tensors(drawn, len(block))
        results = list[DeviceResult]()
        for part in self._launches(slice(0, len(block))):
            rows = kernel.PairTensors(block.concept[part], block.target[part], block.slot[part])
            results.append(kernel.update(table, rows, negatives.rows(slice(part.start // share, -(-part.stop // share)),
                                                                     part),
                                         spec, lr, keep, self._rows_at_once(block.crowding, lr)))
        scores = torch.cat([cast(Tensor, result.scores) for result in results]) if keep else None
        return (torch.cat([result.loss for result in results]).sum(dtype=torch.float64),
                None if scores is None else self._costs_from_scores(block, scores, drawn))
