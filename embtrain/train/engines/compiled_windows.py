"""Windows of text through the compiled core (train/engines/compiled.py).

An update covers one window, or the windows that share a draw, instead of train.batch examples, and sees the values
that the previous update wrote. The loss's own parameters (log Z) take a step about every train.batch examples. The
tests compare it with train/engines/autograd.py on blocks in which no row repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import LossInput, Negatives, Query
from embtrain.data.text.windows import WindowBatch
from embtrain.kernels.core.tables import NegativeBatch
from embtrain.kernels.text.windows import repeat_by_window
from embtrain.kernels.training.skipgram import SkipGramLossSpec, Windows, update
from embtrain.losses.margin import Margin
from embtrain.losses.sampled_softmax import SampledSoftmaxLoss
from embtrain.models.skipgram import SkipGram
from embtrain.train.engines.base import Examples
from embtrain.train.engines.compiled import MAX_LOGGED_ROWS, CompiledStep


class CompiledWindows(CompiledStep):
    """Compiled step of skip-gram."""

    tasks = ("windows", "walks")
    model: SkipGram
    UNITS_PER_DRAW: ClassVar[dict[str, int]] = {"row": 0, "window": 1}

    def batches(self, examples: Examples, epoch: int, block: int, start: int = 0, shuffle: bool = True
                ) -> Iterator[WindowBatch]:
        """Read whole windows instead of their pairs."""
        return examples.windows(epoch, block, start, shuffle)

    def _query(self, block: WindowBatch, vectors: bool) -> Query:
        """Same as `model.encode` on the block's P pairs; vectors are filled in only if `vectors` is set.

        The ids of a block take at most 3% of the time of its update, so none is computed lazily.
        """
        context = _repeat_per_pair(block, block.centre)
        query_id = self._query_ids(block)
        vector = self._vectors(context, query_id) if vectors else torch.empty((len(context), 0), device=context.device)
        slot = torch.zeros(1, dtype=torch.int64, device=context.device).expand(len(context))
        return Query(vector, context, block.target, slot, query_id, _window_ids(block), block.start)

    def _query_ids(self, block: WindowBatch) -> Tensor:
        """The rank of each pair's centre among the distinct centres, (P,): as from torch.unique, without a sort."""
        rank = torch.zeros(self._n_ranks(block), dtype=torch.int64, device=block.centre.device)
        rank[block.centre] = 1
        return _repeat_per_pair(block, (rank.cumsum(0) - 1)[block.centre])

    def _n_ranks(self, block: WindowBatch) -> int:
        """A number above all centres of the block."""
        return int(block.centre.max()) + 1

    def _vectors(self, context: Tensor, query_id: Tensor) -> Tensor:
        """The input vector of each pair's centre, (P, D). query_id: (P,) rank of the centre among the distinct ones."""
        if self.model.pool is None:
            return self.model.u[context]
        words = context.new_empty(int(query_id.max()) + 1)
        words[query_id] = context
        return self.model.pool(self.model.u, words, False)[query_id]

    def _n_draws(self, block: WindowBatch) -> int:
        return -(-len(block.centre) // self.units_per_draw) if self.units_per_draw else len(block.target)

    def _group(self, block: WindowBatch) -> Tensor | None:
        """The draw of each pair, (P,); None if each pair has its own."""
        return _window_ids(block) // self.units_per_draw if self.units_per_draw else None

    def _update(self, block: WindowBatch, drawn: Negatives, keep: bool) -> tuple[float | Tensor, Tensor | None]:
        """Update on the windows in order. Returns the summed loss and, if `keep`, the costs of the negatives (G, K)."""
        u, v = self._table(self.model.u), self._table(self.model.v)
        columns, lr = self._columns(drawn), self.optimizers[0].param_groups[0]["lr"]
        windows = Windows(block.centre.numpy(), block.start.numpy(), block.target.numpy())
        c = None if self.c is None else self.c.detach().numpy()
        pool = None if self.model.pool is None else self.model.pool.kernel_rows()
        rule = self._loss_spec()._replace(c=c)
        loss, costs = 0.0, list[Tensor]()
        for first, last in self._chunks(windows.start):
            part, part_columns = _slice(windows, columns, first, last)
            result = update(u, v, part, part_columns, rule, lr, self.threads, keep, pool)
            loss += result.loss
            if result.scores is not None:
                costs.append(self._costs_from_scores(torch.from_numpy(result.scores), WindowBatch(
                    *map(torch.from_numpy, part)), torch.from_numpy(part_columns.ids)))
            if self.c is not None and result.c_grad is not None:
                self.c.grad = torch.from_numpy(np.asarray(result.c_grad, dtype=np.float32))
                self.optimizers[1].step()
        return loss, costs[0] if len(costs) == 1 else torch.cat(costs) if costs else None

    def _loss_spec(self) -> SkipGramLossSpec:
        """The loss in the form of the kernels, without log Z."""
        margin = self.loss.config.margin if isinstance(self.loss, Margin) else 1.0
        ranking = isinstance(self.loss, SampledSoftmaxLoss) and self.loss.config.form == "ranking"
        return SkipGramLossSpec(self.loss.name, margin, None, ranking)  # type: ignore[arg-type]

    def _chunks(self, start: np.ndarray) -> Iterator[tuple[int, int]]:
        """Ranges of windows per call of the core: all, or windows of about train.batch pairs if log Z is learned.

        log Z takes one step per call. Draws are not split.
        """
        n, unit = len(start) - 1, max(1, self.units_per_draw)
        first = 0
        while first < n:
            last = n
            if self.c is not None and start[n] - start[first] > self.config.batch:
                last = int(np.searchsorted(start, start[first] + self.config.batch, "right")) - 1
                last = min(n, first + max(unit, (last - first) // unit * unit))
            yield first, last
            first = last

    def _costs_from_scores(self, scores: Tensor, windows: WindowBatch, ids: Tensor) -> Tensor:
        """Costs of the negatives from the scores (G, K) of draws that belong to one centre each."""
        centre = windows.centre if self.units_per_draw else _repeat_per_pair(windows, windows.centre)
        zeros = scores.new_zeros(1).expand(len(scores))
        slot = torch.zeros(1, dtype=torch.int64, device=scores.device).expand(len(scores))
        query = Query(zeros.unsqueeze(1), centre, slot, slot)
        return self.loss.negative(LossInput(zeros, scores, Negatives(ids), query))

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


def _slice(windows: Windows, columns: NegativeBatch, first: int, last: int) -> tuple[Windows, NegativeBatch]:
    """A range of the windows, with their pairs and draws."""
    if first == 0 and last == len(windows.centre):
        return windows, columns
    start, share = windows.start[first:last + 1], columns.share
    pairs = slice(int(start[0]), int(start[-1]))
    draws = slice(first // share, -(-last // share)) if share else pairs
    false_negatives = columns.false_negatives
    if false_negatives is not None:
        a, b = np.searchsorted(false_negatives[0], [pairs.start, pairs.stop])
        false_negatives = np.ascontiguousarray(false_negatives[:, a:b]) - np.array([[pairs.start], [0]])
    def slice_draws(x: np.ndarray | None, rows: slice) -> np.ndarray | None:
        return x if x is None or (x.ndim == 1 and rows is draws) else x[rows]
    return (
        Windows(windows.centre[first:last], start - start[0], windows.target[pairs]),
        columns._replace(
            ids=columns.ids[draws],
            log_q=slice_draws(columns.log_q, draws),
            weight=slice_draws(columns.weight, draws),
            log_q_target=None if columns.log_q_target is None else columns.log_q_target[pairs],
            false_negatives=false_negatives,
        ),
    )
