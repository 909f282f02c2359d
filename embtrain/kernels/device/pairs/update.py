"""The update of order embeddings of kernels/training/order.py on a device, over PyTorch tensors.

One launch updates the table by all rows. A unit is one row, and one program updates unit after unit, as in
kernels/device/skipgram.py. Energies and gradients of a unit are evaluated before its rows of the table change. Under
row-Adagrad each occurrence of a concept in a unit is an update of its own, whereas the reference sums them first. The
host never waits for the device here, and ids are not checked.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embtrain.kernels.arguments.pairs import OrderLossSpec
from embtrain.kernels.device.arguments import (
    DeviceResult,
    NegativeTensors,
    TableTensors,
    expect,
    of_negatives,
    of_table,
)
from embtrain.kernels.device.pairs.units import update_rows
from embtrain.kernels.device.support import MAX_TILE, next_power_of_two
from embtrain.kernels.reference.training.rows import EPS

MAX_READ = 2_048            # float32 values of the negatives that a program reads at once
VALUES_PER_WARP = 1_024
MAX_SCRATCH = 1 << 26       # float32 values of all programs
ROWS_AT_ONCE = 1 << 20      # more than any GPU holds


class PairTensors(NamedTuple):
    """B rows of a hierarchy, as `PairRows` of kernels/arguments/pairs.py; (B,) int64 each."""

    concept: Tensor
    target: Tensor
    slot: Tensor


def update(table: TableTensors, rows: PairTensors, negatives: NegativeTensors, loss_spec: OrderLossSpec, lr: float,
           keep_scores: bool = False, rows_at_once: int = ROWS_AT_ONCE) -> DeviceResult:
    """Update the table in one pass over the rows, about `rows_at_once` of them at the same time.

    The result is that of kernels/training/order.py, in float32, with scores of each row (B, K). Raises ValueError
    before anything is written if shapes, types, devices or the loss do not fit.
    """
    _check(table, rows, negatives, loss_spec)
    n, k, dim = len(rows.target), negatives.ids.shape[1], table.x.shape[1]
    def scratch(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=table.x.device)
    loss, scores = scratch(n), scratch(n, k) if keep_scores else None
    programs = max(1, min(n, rows_at_once, MAX_SCRATCH // ((k + 2) * dim)))
    block_d = next_power_of_two(dim)
    block_k = max(1, min(next_power_of_two(k), MAX_READ // block_d))
    if n:
        update_rows[(programs,)](
            table.x, table.acc, *rows, negatives.ids, negatives.weight, negatives.is_masked, loss, scores,
            scratch(programs, k + 2, dim), n, table.x.stride(0), lr, EPS, loss_spec.margin, SHARE=negatives.share, K=k,
            DIM=dim, LOSS=loss_spec.loss, READS_ABS=loss_spec.abs, MASKS_TARGET=negatives.mask_target,
            WEIGHT_PER_DRAW=negatives.weight is not None and negatives.weight.ndim == 2, BLOCK_K=block_k,
            BLOCK_D=block_d, num_warps=max(1, min(8, block_k * block_d // VALUES_PER_WARP)))
    return DeviceResult(loss, scores, None)


def _check(table: TableTensors, rows: PairTensors, negatives: NegativeTensors, loss_spec: OrderLossSpec) -> None:
    """Raise ValueError unless shapes, types and devices fit. Reads no value of a tensor."""
    n, (g, k), dim = len(rows.target), negatives.ids.shape, table.x.shape[-1]
    if loss_spec.loss not in ("order", "margin"):
        raise ValueError(f"loss: unknown loss {loss_spec.loss!r}")
    if negatives.share < 1 or g != -(-n // negatives.share) or k < 1:
        raise ValueError(f"negatives: {g} draws of {k} do not fit {n} rows under share {negatives.share}")
    if dim > MAX_TILE:
        raise ValueError(f"x: at most {MAX_TILE} dimensions expected, got {dim}")
    expect(table.x.device, [
        *of_table("x", table, dim), *of_negatives(negatives, n, len(table.x)),
        *((name, ids, torch.int64, (n,)) for name, ids in zip(PairTensors._fields, rows, strict=True))])
