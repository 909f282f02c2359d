"""Base of the training steps on a GPU: threads read blocks ahead and copy them; drawn negatives become tensors.

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

import torch
from torch import Tensor

from embtrain.common.types import Negatives
from embtrain.kernels.device.arguments import NegativeTensors, TableTensors
from embtrain.losses.base import Loss
from embtrain.models.base import AbstractMethod, Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples
from embtrain.train.engines.compiled import CompiledStep, DrawTerms
from embtrain.train.engines.false_negatives import KnownPositives

MAX_READERS = 8    # threads that read blocks ahead; on 16 cores 16 were slower


class DeviceStep(CompiledStep):
    """Base of the compiled steps on a GPU."""

    device: ClassVar[str] = "cuda"
    #: Module of the kernel.
    kernel_name: ClassVar[str]

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        super().__init__(model, source, loss, optimizers, config, known_positives)
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

        readers = min(self.threads, MAX_READERS)
        with ThreadPoolExecutor(readers) as pool:
            ahead = deque(pool.submit(read, number) for number in itertools.islice(numbers, readers + 1))
            try:
                while ahead:
                    placed = ahead.popleft().result()
                    ahead.extend(pool.submit(read, number) for number in itertools.islice(numbers, 1))
                    yield placed
            finally:
                for unread in ahead:
                    unread.cancel()

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
