"""Windows of text on a GPU, through the Triton kernels (kernels/device/skipgram.py).

Same update as compiled_windows.py, with units of a block updated at the same time. Ids, scores and losses stay on the
device: with a static source and a filter other than `observed`, a step makes the host wait for nothing. The Triton
modules are imported when a step is built, because they need an optional package.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common.machine import to_device
from embtrain.common.types import Negatives
from embtrain.data.text.windows import WindowBatch
from embtrain.kernels.device.support import max_negatives
from embtrain.losses.base import Loss
from embtrain.models.base import Model, ModelConfig
from embtrain.models.words.cbow import CbowConfig
from embtrain.models.words.skipgram import SkipGramConfig
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.negatives.static.base import StaticSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples
from embtrain.train.engines.compiled import MAX_LOGGED_ROWS
from embtrain.train.engines.compiled_windows import CompiledWindows
from embtrain.train.engines.false_negatives import KnownPositives

# The most that the learning rate × the number of updates of a row at the same time may be, on average over updates. At
# 1.3 skip-gram on 18 million words is as good as on a CPU (bench skipgram --device cuda); four times as much diverged.
MAX_STEP = 1.3
MAX_READERS = 8    # threads that read blocks ahead; on 16 cores 16 were slower


@dataclass(frozen=True)
class PlacedWindows(WindowBatch):
    """Windows on the device, and the same windows on the host."""

    host: WindowBatch
    host_start: np.ndarray


class DeviceWindows(CompiledWindows):
    """Compiled step of skip-gram on a GPU."""

    device: ClassVar[str] = "cuda"
    default_block_size = 262_144

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        super().__init__(model, source, loss, optimizers, config, known_positives)
        self.kernel: Any = import_module("embtrain.kernels.device.skipgram")
        p = model.problem.counts.cpu().double() / model.problem.counts.sum().item()
        q = cast(StaticSource, source).log_q.cpu().double().exp() if self.static_source else p
        updates = p + float(source.config.total_weight or source.config.k) * q               # of each row, per pair
        self.crowding = float((updates * updates).sum() / updates.sum())                     # their mean over updates

    def batches(self, examples: Examples, epoch: int, block: int, start: int = 0, shuffle: bool = True
                ) -> Iterator[WindowBatch]:
        """Yield the windows of each block in order. Threads read the next blocks and copy them to the device."""
        numbers = iter(range(start, examples.n_blocks(epoch, block)))     # reads the epoch's text, before any thread

        def read(number: int) -> PlacedWindows:
            return self._placed(next(examples.windows(epoch, block, number, shuffle)))

        with ThreadPoolExecutor(self._n_readers()) as pool:
            ahead = deque(pool.submit(read, number) for number in itertools.islice(numbers, self.blocks_ahead()))
            try:
                while ahead:
                    placed = ahead.popleft().result()
                    ahead.extend(pool.submit(read, number) for number in itertools.islice(numbers, 1))
                    yield placed
            finally:
                for unread in ahead:
                    unread.cancel()

    def _n_readers(self) -> int:
        return min(self.threads, MAX_READERS)

    def blocks_ahead(self) -> int:
        return self._n_readers() + 1

    def block_bytes(self, block: WindowBatch) -> tuple[int, int]:
        n = sum(x.numel() * x.element_size() for x in (block.centre, block.start, block.target))
        return 2 * n, n        # on the host with the pinned copy, whose memory the allocator of PyTorch keeps

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
        u, v = (kernel.TableTensors(p.detach(), self._accumulator(p)) for p in (self.model.u, self.model.v))
        terms = self._draw_terms(drawn)
        negatives = kernel.NegativeTensors(
            cast(Tensor, drawn.ids).contiguous(), self.units_per_draw, terms.log_q, terms.log_q_table,
            terms.log_q_target, terms.weight, terms.total_weight, terms.mask_target,
            None if drawn.false_negatives is None else _mask(drawn.false_negatives, len(block.target), drawn.k))
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

    def _slice(self, block: PlacedWindows, negatives: Any, first: int, last: int) -> tuple[WindowBatch, Any]:
        """A range of the windows, with their pairs and draws."""
        if first == 0 and last == len(block):
            return block, negatives
        begin, end = (int(block.host_start[i]) for i in (first, last))
        pairs, share = slice(begin, end), negatives.share
        draws = slice(first // share, -(-last // share)) if share else pairs
        def cut(x: Tensor | None, rows: slice) -> Tensor | None:
            return None if x is None else x[rows]
        weight = negatives.weight
        return (WindowBatch(block.centre[first:last], block.start[first:last + 1] - begin, block.target[pairs]),
                negatives._replace(
                    ids=negatives.ids[draws], log_q=cut(negatives.log_q, draws),
                    log_q_target=cut(negatives.log_q_target, pairs), is_masked=cut(negatives.is_masked, pairs),
                    weight=weight if weight is None or weight.ndim == 1 else weight[draws]))

    def _leading_rows(self, block: WindowBatch) -> PlacedWindows:
        placed = cast(PlacedWindows, block)
        host, start = placed.host, placed.host_start
        last = int(np.searchsorted(start, min(MAX_LOGGED_ROWS, len(host.target))))
        return self._placed(WindowBatch(host.centre[:last], host.start[:last + 1], host.target[:int(start[last])]))


def why_not_fused_on_gpu(model: ModelConfig, negatives: NegativesConfig, train: TrainConfig, has_kernels: bool
                         ) -> list[tuple[bool, str]]:
    """Reasons against the kernels on a GPU, beyond those of `why_not_fused`: (applies, message)."""
    limit = max_negatives(model.dim)
    return [
        (isinstance(model, CbowConfig) or not isinstance(model, SkipGramConfig),
         f"train.device: {train.device}: {model.name} has no kernel on a GPU"),
        (isinstance(model, SkipGramConfig) and model.subword is not None,
         "model.subword: the kernels on a GPU have no pooled rows"),
        (negatives.k > limit, f"negatives.k: {negatives.k}: the kernels on a GPU keep a draw in registers, where "
                              f"{limit} negatives of {model.dim} dimensions fit"),
        (not has_kernels, f"train.device: {train.device}: the kernels on a GPU need the package triton; pip install "
                          "'embtrain[gpu]'"),
    ]


def _mask(false_negatives: Tensor, pairs: int, k: int) -> Tensor:
    """The pairs and columns of false negatives (2, N) as a mask (P, K) uint8."""
    mask = torch.zeros(pairs, k, dtype=torch.uint8, device=false_negatives.device)
    mask[false_negatives[0], false_negatives[1]] = 1
    return mask
