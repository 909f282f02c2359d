"""Compiled step of skip-gram: windows of text or of walks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import Query
from embtrain.data.text.windows import WindowBatch
from embtrain.kernels.text.windows import repeat_by_window
from embtrain.kernels.training.skipgram import RowPool, Windows
from embtrain.train.engines.base import Examples
from embtrain.train.engines.compiled import MAX_LOGGED_ROWS
from embtrain.train.engines.skipgram_kernel import SkipGramKernel


class CompiledWindows(SkipGramKernel):
    """Compiled step of skip-gram."""

    tasks = ("windows", "walks")

    def batches(self, examples: Examples, epoch: int, block: int, start: int = 0, shuffle: bool = True
                ) -> Iterator[WindowBatch]:
        """Read whole windows instead of their pairs."""
        return examples.windows(epoch, block, start, shuffle)

    def _query(self, block: WindowBatch, vectors: bool) -> Query:
        """Same as `model.encode` on the block's P pairs; vectors and distinct queries only if `vectors` is set."""
        context = _repeat_per_pair(block, block.centre)
        slot = torch.zeros(1, dtype=torch.int64, device=context.device).expand(len(context))
        if not vectors:
            no_vectors = torch.empty((len(context), 0), device=context.device)
            return Query(no_vectors, context, block.target, slot, None, _window_ids(block), block.start)
        words, query_id = self._distinct_centres(block)
        vector = self.model.u.index_select(0, words) if self.model.pool is None else \
            self.model.pool(self.model.u, words, False)                                          # (Q, D)
        return Query(vector, context, block.target, slot, query_id, _window_ids(block), block.start, by_id=True)

    def _distinct_centres(self, block: WindowBatch) -> tuple[Tensor, Tensor]:
        """The distinct centres, (Q,) ascending, and each pair's rank among them, (P,): torch.unique without a sort."""
        is_centre = torch.zeros(self._n_ranks(block), dtype=torch.bool, device=block.centre.device)
        is_centre[block.centre] = True
        return is_centre.nonzero().flatten(), _repeat_per_pair(block, (is_centre.cumsum(0) - 1)[block.centre])

    def _n_ranks(self, block: WindowBatch) -> int:
        """A number above all centres of the block."""
        return int(block.centre.max()) + 1

    def _n_draws(self, block: WindowBatch) -> int:
        return -(-len(block.centre) // self.units_per_draw) if self.units_per_draw else len(block.target)

    def _group(self, block: WindowBatch) -> Tensor | None:
        """The draw of each pair, (P,); None if each pair has its own."""
        return _window_ids(block) // self.units_per_draw if self.units_per_draw else None

    def _units(self, block: WindowBatch) -> tuple[Windows, RowPool | None]:
        return (Windows(block.centre.numpy(), block.start.numpy(), block.target.numpy()),
                None if self.model.pool is None else self.model.pool.kernel_rows())

    def _leading_rows(self, block: WindowBatch) -> WindowBatch:
        last = int(np.searchsorted(block.start.numpy(), min(MAX_LOGGED_ROWS, len(block.target))))
        return WindowBatch(block.centre[:last], block.start[:last + 1], block.target[:int(block.start[last])])


def _window_ids(block: WindowBatch) -> Tensor:
    """The window of each pair, (P,)."""
    return _repeat_per_pair(block, torch.arange(len(block.centre), device=block.centre.device))


def _repeat_per_pair(block: WindowBatch, value: Tensor) -> Tensor:
    """Repeat the value of each window for its pairs, (C,) to (P,)."""
    if value.device.type != "cpu":
        return value.repeat_interleave(block.start.diff(), output_size=len(block.target))
    return torch.from_numpy(repeat_by_window(block.start.numpy(), value.numpy()))
