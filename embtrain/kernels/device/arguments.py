"""Arguments of the updates on a device, as tensors: tables, drawn negatives, results; and their checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from embtrain.kernels.core.tables import CorrectedLoss, subtracts_log_q

Expected = tuple[str, Tensor | None, torch.dtype, tuple[int, ...]]  # name, tensor, its type and its shape


class TableTensors(NamedTuple):
    """Rows that are updated in place."""

    x: Tensor                   # (n, D) float32, contiguous within a row
    acc: Tensor | None = None   # (n,) float32: row-Adagrad; None: SGD


class NegativeTensors(NamedTuple):
    """G draws of K negatives for P rows, as `NegativeBatch` of kernels/core/tables.py, except for `is_masked`."""

    ids: Tensor                         # (G, K) int64
    share: int                          # units per draw; 0: each row has its own, G = P
    log_q: Tensor | None = None         # (G, K) float32, or
    log_q_table: Tensor | None = None   # (V,) float32
    log_q_target: Tensor | None = None  # (P,) float32; None: looked up in log_q_table
    weight: Tensor | None = None        # (K,) or (G, K) float32; None: 1
    total_weight: float = 1.0           # Σ_j w_j before masking
    mask_target: bool = False           # mask negatives that equal the target of a row, for that row
    is_masked: Tensor | None = None     # (P, K) uint8, 1 at false negatives; None: none

    def rows(self, draws: slice, rows: slice) -> NegativeTensors:
        """The negatives of a range of rows, and of the draws that these read."""
        def cut(x: Tensor | None, part: slice) -> Tensor | None:
            return None if x is None else x[part]
        weight = self.weight
        return self._replace(ids=self.ids[draws], log_q=cut(self.log_q, draws),
                             log_q_target=cut(self.log_q_target, rows), is_masked=cut(self.is_masked, rows),
                             weight=weight if weight is None or weight.ndim == 1 else weight[draws])


class DeviceResult(NamedTuple):
    """Tensors on the device."""

    loss: Tensor             # float32: the loss of each window (C,), summed over its pairs, or of each row (P,)
    scores: Tensor | None    # (G, K) float32: the score of each negative before the update of its unit
    c_grad: Tensor | None    # float32, shape of c: ∂L/∂c


def expect_negatives(negatives: NegativeTensors, rows: int, units: int, loss_spec: CorrectedLoss, keep_scores: bool
                     ) -> None:
    """Raise ValueError unless the negatives fit P rows, the units that may share a draw, and the loss."""
    (g, k), share = negatives.ids.shape, negatives.share
    if share < 0 or g != (rows if share == 0 else -(-units // share)):
        raise ValueError(f"negatives: {g} draws do not fit {units} units of {rows} rows under share {share}")
    if k < 1:
        raise ValueError(f"negatives: at least 1 per draw expected, got {k}")
    if keep_scores and share > 1:
        raise ValueError(f"negatives: scores are of one unit, so they are not kept under share {share}")
    if subtracts_log_q(loss_spec) and not negatives.total_weight > 0:
        raise ValueError(f"negatives: total_weight must be positive, got {negatives.total_weight}")
    corrects = loss_spec.loss in ("nce", "sampled_softmax")
    if corrects and negatives.log_q is None and negatives.log_q_table is None:
        raise ValueError(f"loss: {loss_spec.loss} subtracts log q; pass log_q or log_q_table")
    if corrects_target(loss_spec) and negatives.log_q_target is None and negatives.log_q_table is None:
        raise ValueError(f"loss: {loss_spec.loss} needs log q of the target; pass log_q_target or log_q_table")


def corrects_target(loss_spec: CorrectedLoss) -> bool:
    """Whether the loss subtracts log q from the score of the target."""
    return loss_spec.loss == "nce" or (loss_spec.loss == "sampled_softmax" and loss_spec.ranking)


def of_negatives(negatives: NegativeTensors, rows: int, candidates: int) -> list[Expected]:
    """The types and shapes of the negatives of P rows, for `expect`."""
    (g, k), weight = negatives.ids.shape, negatives.weight
    return [("ids", negatives.ids, torch.int64, (g, k)), ("log_q", negatives.log_q, torch.float32, (g, k)),
            ("log_q_table", negatives.log_q_table, torch.float32, (candidates,)),
            ("log_q_target", negatives.log_q_target, torch.float32, (rows,)),
            ("weight", weight, torch.float32, (k,) if weight is not None and weight.ndim == 1 else (g, k)),
            ("is_masked", negatives.is_masked, torch.uint8, (rows, k))]


def of_table(name: str, table: TableTensors, dim: int) -> list[Expected]:
    """The types and shapes of a table of D dimensions, for `expect`."""
    n = len(table.x)
    return [(name, table.x, torch.float32, (n, dim)), (f"{name}.acc", table.acc, torch.float32, (n,))]


def expect(device: torch.device, tensors: Iterable[Expected]) -> None:
    """Raise ValueError unless all tensors have their type and shape, on one device. Tables may have padded rows."""
    for name, x, dtype, shape in tensors:
        if x is None:
            continue
        is_packed = x.is_contiguous() or (name in "uverx" and x.stride(1) == 1)
        if x.dtype != dtype or x.shape != shape or x.device != device or not is_packed:
            raise ValueError(f"{name}: {dtype} {shape} on {device} expected, contiguous, got {x.dtype} "
                             f"{tuple(x.shape)} on {x.device}")
