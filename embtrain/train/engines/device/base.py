"""Base of the training steps on a GPU: threads read blocks ahead and copy them; drawn negatives become tensors.

Units of a block are updated at the same time, and each misses the updates of the others. Their number is bounded:

    row-Adagrad  rows at the same time ≤ MAX_SHARE × rows before them (triples and pairs)
    SGD          learning rate × updates of a table row at the same time ≤ MAX_STEP, on average over updates

Under row-Adagrad the rate of a table row falls with the square root of its updates, so that the first ones decide.

Ids, scores and losses stay on the device: with a static source and a filter other than `observed`, a step makes the
host wait for nothing. The Triton modules are imported when a step is built, because they need an optional package.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.types import Negatives
from embtrain.kernels.device.arguments import NegativeTensors, TableTensors
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.static.base import StaticSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples
from embtrain.train.engines.compiled import CompiledStep, DrawTerms
from embtrain.train.engines.false_negatives import KnownPositives
from embtrain.train.optimizers import RowAdagrad

MAX_READERS = 8    # threads that read blocks ahead; on 16 cores 16 were slower
# The most that the learning rate × the number of updates of a row at the same time may be, on average over updates. At
# 1.3 skip-gram on 18 million words is as good as on a CPU (bench skipgram --device cuda); four times as much diverged.
MAX_STEP = 1.3
MAX_SHARE = 0.01   # of the rows before: those of triples and pairs updated at the same time, under row-Adagrad


class DeviceStep(CompiledStep):
    """Base of the compiled steps on a GPU."""

    device: ClassVar[str] = "cuda"
    #: Module of the kernel.
    kernel_name: ClassVar[str]

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        super().__init__(model, source, loss, optimizers, config, known_positives)
        self.n_trained = 0     # rows since the step was built; a resumed run begins with few units again
        self.kernel: Any = import_module(self.kernel_name)

    def _read(self, examples: Examples, epoch: int, block: int, number: int, shuffle: bool) -> Any:
        """Block `number` of an epoch, on the device."""
        raise AbstractMethod(self, "_read")

    def batches(self, examples: Examples, epoch: int, block: int, start: int = 0, shuffle: bool = True
                ) -> Iterator[Any]:
        """Yield the blocks of an epoch in order. Threads read the next ones and copy them to the device."""
        numbers = iter(range(start, examples.n_blocks(epoch, block)))     # reads the epoch's text, before any thread

        def read(number: int) -> Any:
            return self._read(examples, epoch, block, number, shuffle)

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

    def block_bytes(self, block: Any) -> tuple[int, int]:
        n = sum(x.numel() * x.element_size() for x in vars(block).values() if isinstance(x, Tensor))
        return 2 * n, n        # on the host with the pinned copy, whose memory the allocator of PyTorch keeps

    def _launches(self, rows: slice) -> Iterator[slice]:
        """Cut rows into launches, and count their rows as trained on.

        Under row-Adagrad a launch has at most as many rows as came before. Draws are not split.
        """
        unit, first = max(1, self.units_per_draw), rows.start
        while first < rows.stop:
            size = max(unit, self.n_trained // unit * unit) if self._is_adaptive else rows.stop
            part = slice(first, min(rows.stop, first + size))
            yield part
            self.n_trained += part.stop - part.start
            first = part.stop

    def _rows_at_once(self, crowding: float, lr: float) -> int:
        """The number of rows to update at the same time.

        crowding: the updates of a table row at each of them, by slope 1, on average over updates.
        """
        bound = MAX_SHARE * self.n_trained if self._is_adaptive else MAX_STEP / (max(lr, 1e-12) * crowding)
        return max(1, int(min(bound, 1 << 30)))

    def _drawn_per_row(self) -> np.ndarray:
        """How often each candidate is drawn for a row, (V,), by its weight; 0 if the source depends on the row."""
        if not self.static_source:
            return np.zeros(self.model.problem.n_candidates)
        q = cast(StaticSource, self.source).log_q.cpu().double().exp().numpy()
        return cast(np.ndarray, float(self.source.config.total_weight or self.source.config.k) * q)

    @property
    def _slopes_of_row(self) -> float:
        """The most that the slopes of a row's negatives may sum to: 1 for the losses that share out one slope."""
        shares = self.loss.config.name in ("sampled_softmax", "self_adversarial")
        return 1.0 if shares else float(self.source.config.total_weight or self.source.config.k)

    @property
    def _is_adaptive(self) -> bool:
        """Whether the rate of a table row falls as it is updated."""
        return isinstance(self.optimizers[0], RowAdagrad)

    def _table_tensors(self, p: Tensor) -> TableTensors:
        return TableTensors(p.detach(), self._accumulator(p))

    def _negative_tensors(self, drawn: Negatives, rows: int) -> tuple[NegativeTensors, DrawTerms]:
        """The negatives of P rows in the form of the kernels, and their terms."""
        terms = self._draw_terms(drawn)
        return NegativeTensors(
            cast(Tensor, drawn.ids).contiguous(), self.units_per_draw, terms.log_q, terms.log_q_table,
            terms.log_q_target, terms.weight, terms.total_weight, terms.mask_target,
            None if drawn.false_negatives is None else _mask(drawn.false_negatives, rows, drawn.k)), terms


def _mask(false_negatives: Tensor, rows: int, k: int) -> Tensor:
    """The rows and columns of false negatives (2, N) as a mask (P, K) uint8."""
    mask = torch.zeros(rows, k, dtype=torch.uint8, device=false_negatives.device)
    mask[false_negatives[0], false_negatives[1]] = 1
    return mask
