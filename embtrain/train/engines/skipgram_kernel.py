"""Blocks of text through the skip-gram kernel (train/engines/compiled.py): windows of skip-gram, contexts of CBOW.

An update covers one window, or the windows that share a draw, instead of train.batch examples, and sees the values
that the previous update wrote. The loss's own parameters (log Z) take a step about every train.batch examples. The
tests compare it with train/engines/autograd.py on blocks in which no row repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.types import LossInput, Negatives, Query
from embtrain.kernels.core.tables import NegativeBatch
from embtrain.kernels.training.skipgram import RowPool, SkipGramLossSpec, Windows, update
from embtrain.losses.alpha_nce import AlphaNce
from embtrain.losses.hinges.margin import Margin
from embtrain.losses.sampled_softmax import SampledSoftmaxLoss
from embtrain.models.words.skipgram import SkipGram
from embtrain.train.engines.compiled import CompiledStep


class SkipGramKernel(CompiledStep):
    """Base of the compiled steps of skip-gram and CBOW."""

    model: SkipGram
    UNITS_PER_DRAW: ClassVar[dict[str, int]] = {"row": 0, "window": 1}

    def _units(self, block: Any) -> tuple[Windows, RowPool | None]:
        """The block in the form of the kernel, and the rows that its centres are pooled from."""
        raise AbstractMethod(self, "_units")

    def _context_ids(self, block: Any) -> Tensor | None:
        """The context id of each centre of `_units`; None: the centre itself."""
        return None

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[float | Tensor, Tensor | None]:
        """Update on the windows in order. Returns the summed loss and, if `keep`, the costs of the negatives (G, K)."""
        u, v = self._table(self.model.u), self._table(self.model.v)
        columns, lr = self._columns(drawn), self.optimizers[0].param_groups[0]["lr"]
        (windows, pool), ids = self._units(block), self._context_ids(block)
        loss, costs = 0.0, list[Tensor]()
        for first, last in self._chunks(windows.start):
            part, part_columns = _slice(windows, columns, first, last)
            rule = self._loss_spec(columns.total_weight)._replace(c=self._log_z(ids))
            result = update(u, v, part, part_columns, rule, lr, self.threads, keep, pool)
            loss += result.loss
            if result.scores is not None:
                costs.append(self._costs_from_scores(
                    torch.from_numpy(result.scores), torch.from_numpy(part.centre), torch.from_numpy(part.start),
                    torch.from_numpy(part_columns.ids), ids))
            if self.c is not None and result.c_grad is not None:
                gradient = torch.from_numpy(np.asarray(result.c_grad, dtype=np.float32))
                self.c.grad = gradient if ids is None or not self.c.ndim else \
                    torch.zeros_like(self.c).index_add_(0, ids, gradient)
                self.optimizers[1].step()
        return loss, costs[0] if len(costs) == 1 else torch.cat(costs) if costs else None

    def _loss_spec(self, total_weight: float) -> SkipGramLossSpec:
        """The loss in the form of the kernels, without log Z."""
        margin = self.loss.config.margin if isinstance(self.loss, Margin) else 1.0
        ranking = isinstance(self.loss, SampledSoftmaxLoss) and self.loss.config.form == "ranking"
        spec = SkipGramLossSpec(self.loss.name, margin, None, ranking,  # type: ignore[arg-type]
                                self._positive_weight(total_weight))
        if isinstance(self.loss, AlphaNce):
            spec = spec._replace(alpha=self.loss.config.alpha, centered=self.loss.config.centered)
        return spec

    def _log_z(self, ids: Tensor | None) -> np.ndarray | None:
        """NCE's log Z of each centre, or one for all; None if the loss learns none."""
        if self.c is None:
            return None
        c = self.c.detach()
        return (c if ids is None or not c.ndim else c[ids]).numpy()

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

    def _costs_from_scores(self, scores: Tensor, centre: Tensor, start: Tensor, draws: Tensor,
                           ids: Tensor | None = None) -> Tensor:
        """Costs of the negatives from the scores (G, K) of draws that belong to one centre each, with their ids."""
        centre = centre if ids is None else ids[centre]
        if not self.units_per_draw:
            centre = centre.repeat_interleave(start.diff(), output_size=len(scores))
        zeros = scores.new_zeros(1).expand(len(scores))
        slot = torch.zeros(1, dtype=torch.int64, device=scores.device).expand(len(scores))
        query = Query(zeros.unsqueeze(1), centre, slot, slot)
        return self.loss.negative(LossInput(zeros, scores, Negatives(draws), query))


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
