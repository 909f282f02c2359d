"""Windows of text on a GPU, through the Triton kernels (kernels/device/skipgram.py).

Same update as compiled_windows.py, with units of a block updated at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common.machine import to_device
from embtrain.common.types import Negatives
from embtrain.data.text.windows import WindowBatch
from embtrain.kernels.device.arguments import NegativeTensors
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.static.base import StaticSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples
from embtrain.train.engines.compiled import MAX_LOGGED_ROWS
from embtrain.train.engines.compiled_windows import CompiledWindows
from embtrain.train.engines.device.base import MAX_STEP, DeviceStep
from embtrain.train.engines.false_negatives import KnownPositives


@dataclass(frozen=True)
class PlacedWindows(WindowBatch):
    """Windows on the device, and the same windows on the host."""

    host: WindowBatch
    host_start: np.ndarray


class DeviceWindows(DeviceStep, CompiledWindows):
    """Compiled step of skip-gram on a GPU."""

    kernel_name = "embtrain.kernels.device.skipgram"
    default_block_size = 262_144

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        super().__init__(model, source, loss, optimizers, config, known_positives)
        p = model.problem.counts.cpu().double() / model.problem.counts.sum().item()
        q = cast(StaticSource, source).log_q.cpu().double().exp() if self.static_source else p
        updates = p + float(source.config.total_weight or source.config.k) * q               # of each row, per pair
        self.crowding = float((updates * updates).sum() / updates.sum())                     # their mean over updates

    def _read(self, examples: Examples, epoch: int, block: int, number: int, shuffle: bool) -> PlacedWindows:
        return self._placed(next(examples.windows(epoch, block, number, shuffle)))

    def _placed(self, block: WindowBatch) -> PlacedWindows:
        if isinstance(block, PlacedWindows):
            return block
        centre, start, target = (to_device(x, self.model.problem.device)
                                 for x in (block.centre, block.start, block.target))
        return PlacedWindows(centre, start, target, block, block.start.numpy())

    def _n_ranks(self, block: WindowBatch) -> int:
        return cast(int, self.model.problem.n_contexts)      # the largest centre is on the device

    def _update(self, block: WindowBatch, drawn: Negatives, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Update on the windows. Returns the summed loss (), and if `keep` the costs of the negatives (G, K)."""
        kernel, lr = self.kernel, self.optimizers[0].param_groups[0]["lr"]
        u, v = self._table_tensors(self.model.u), self._table_tensors(self.model.v)
        negatives, terms = self._negative_tensors(drawn, len(block.target))
        c = None if self.c is None else self.c.detach()
        losses, costs = list[Tensor](), list[Tensor]()
        for first, last in self._chunks(cast(PlacedWindows, block).host_start):
            part, part_negatives = self._slice(cast(PlacedWindows, block), negatives, first, last)
            result = kernel.update(u, v, kernel.WindowTensors(part.centre, part.start, part.target), part_negatives,
                                   self._loss_spec(terms.total_weight), lr, c, keep,
                                   self._windows_at_once(block, lr))
            losses.append(result.loss)
            if result.scores is not None:
                costs.append(self._costs_from_scores(result.scores, part.centre, part.start, part_negatives.ids))
            if self.c is not None:
                self.c.grad = result.c_grad
                self.optimizers[1].step()
        return torch.cat(losses).sum(dtype=torch.float64), torch.cat(costs) if costs else None

    def _windows_at_once(self, block: WindowBatch, lr: float) -> int:
        """The number of windows to update at a time, so that the moves of a row meanwhile are within MAX_STEP."""
        return max(1, int(MAX_STEP * len(block) / (max(lr, 1e-12) * len(block.target) * self.crowding)))

    def _slice(self, block: PlacedWindows, negatives: NegativeTensors, first: int, last: int
               ) -> tuple[WindowBatch, NegativeTensors]:
        """A range of the windows, with their pairs and draws."""
        if first == 0 and last == len(block):
            return block, negatives
        begin, end = (int(block.host_start[i]) for i in (first, last))
        pairs, share = slice(begin, end), negatives.share
        draws = slice(first // share, -(-last // share)) if share else pairs
        return (WindowBatch(block.centre[first:last], block.start[first:last + 1] - begin, block.target[pairs]),
                negatives.rows(draws, pairs))

    def _leading_rows(self, block: WindowBatch) -> PlacedWindows:
        placed = cast(PlacedWindows, block)
        host, start = placed.host, placed.host_start
        last = int(np.searchsorted(start, min(MAX_LOGGED_ROWS, len(host.target))))
        return self._placed(WindowBatch(host.centre[:last], host.start[:last + 1], host.target[:int(start[last])]))
