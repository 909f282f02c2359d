"""Contexts of words through the compiled core: CBOW, as windows of one pair whose centre is pooled.

The kernel is that of skip-gram: context i is a centre that is pooled from the rows of its words, and its pair is the
word in the middle of the window.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import Query
from embtrain.data.text.windows import ContextBatch
from embtrain.kernels.training.skipgram import RowPool, Windows
from embtrain.models.words.cbow import Cbow
from embtrain.train.engines.skipgram_kernel import SkipGramKernel


class CompiledContexts(SkipGramKernel):
    """Compiled step of CBOW."""

    tasks = ("contexts",)
    model: Cbow

    def _query(self, block: ContextBatch, vectors: bool) -> Query:
        """Same as `model.encode`; the vectors are filled in only if `vectors` is set."""
        if vectors:
            return self.model.encode(block)
        return Query(torch.empty((len(block), 0)), block.middle, block.target, block.slot)

    def _n_draws(self, block: ContextBatch) -> int:
        return -(-len(block) // max(1, self.units_per_draw))

    def _group(self, block: ContextBatch) -> Tensor | None:
        return torch.arange(len(block)) // self.units_per_draw if self.units_per_draw else None

    def _units(self, block: ContextBatch) -> tuple[Windows, RowPool]:
        n = len(block)
        return (Windows(np.arange(n), np.arange(n + 1), block.target.numpy()),
                self.model.kernel_rows(block.start, block.context))

    def _context_ids(self, block: ContextBatch) -> Tensor:
        return block.middle
