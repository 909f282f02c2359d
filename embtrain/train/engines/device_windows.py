"""Windows of text on a GPU, through the Triton kernels (kernels/device/skipgram.py).

Same update as compiled_windows.py, with units of a block updated at the same time. Ids, scores and losses stay on the
device: with a static source and a filter other than `observed`, a step makes the host wait for nothing. The Triton
modules are imported when a step is built, because they need an optional package.
"""

from __future__ import annotations

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
from embtrain.train.config import TrainConfig
from embtrain.train.engines.compiled import MAX_LOGGED_ROWS
from embtrain.train.engines.compiled_windows import CompiledWindows
from embtrain.train.engines.false_negatives import KnownPositives


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

    def _placed(self, block: WindowBatch) -> PlacedWindows:
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
                                   self._loss_spec(terms.total_weight), lr, c, keep)
            losses.append(result.loss)
            if result.scores is not None:
                costs.append(self._costs_from_scores(result.scores, part.centre, part.start, part_negatives.ids))
            if self.c is not None:
                self.c.grad = result.c_grad
                self.optimizers[1].step()
        return torch.cat(losses).sum(dtype=torch.float64), torch.cat(costs) if costs else None

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
