"""The skip-gram update of kernels/training/skipgram.py on a device, over PyTorch tensors.

One launch updates u and v by all windows. A unit is one window, or the `share` windows with one draw, and one program
updates it. Scores and gradients of a unit are evaluated before its rows change. Units run at the same time and add to
rows atomically (Hogwild): no addition is lost, but a unit may read rows in the middle of another update, so that two
runs on a GPU differ by rounding and by their order. Each program updates unit after unit, so that the number of
programs bounds how many updates a score may miss. Under Triton's interpreter units run in order.

The host never waits for the device here, and ids are not checked: a wrong id would read and write outside the tables.
Sources of other packages are checked where they draw (negatives/plugin_checks.py).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from embtrain.kernels.arguments.updates import SkipGramLossSpec
from embtrain.kernels.core.tables import LOSSES, subtracts_log_q
from embtrain.kernels.device.arguments import (
    DeviceResult,
    NegativeTensors,
    TableTensors,
    corrects_target,
    expect,
    expect_negatives,
    of_negatives,
    of_table,
)
from embtrain.kernels.device.private_draws import update_windows
from embtrain.kernels.device.shared_draws import update_units
from embtrain.kernels.device.support import max_negatives, next_power_of_two
from embtrain.kernels.reference.training.rows import EPS

MAX_PAIR_TILE = 4_096  # float32 values of the negatives of the pairs that a program reads at once
WINDOWS_AT_ONCE = 1 << 20  # more than any GPU holds
PAIRS_AT_ONCE = 8      # targets that a program reads at once if its negatives are shared


class WindowTensors(NamedTuple):
    """C windows of P pairs in total, as `Windows` of kernels/arguments/updates.py; (C,), (C+1,) and (P,) int64."""

    centre: Tensor
    start: Tensor
    target: Tensor


def update(u: TableTensors, v: TableTensors, windows: WindowTensors, negatives: NegativeTensors,
           loss_spec: SkipGramLossSpec, lr: float, c: Tensor | None = None, keep_scores: bool = False,
           windows_at_once: int = WINDOWS_AT_ONCE) -> DeviceResult:
    """Update u and v in one pass over the windows. c: () or (n_centres,) float32, the learned log Z of NCE; None: 0.

    About `windows_at_once` windows, at least one unit, are updated at the same time.

    The result is that of kernels/training/skipgram.py, in float32. `loss_spec.c` is ignored. Raises ValueError before
    anything is written if shapes, types, devices or the loss do not fit.
    """
    _check(u, v, windows, negatives, loss_spec, c, keep_scores)
    n, pairs, (g, k), dim = len(windows.centre), len(windows.target), negatives.ids.shape, u.x.shape[1]
    def scratch(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=u.x.device)
    loss, scores = scratch(n), scratch(g, k) if keep_scores else None
    c_slope = None if c is None else scratch(n)
    block_k, block_d = next_power_of_two(k), next_power_of_two(dim)
    flags: dict[str, Any] = {
        "K": k, "DIM": dim, "LOSS": loss_spec.loss,
        "CORRECTS": loss_spec.loss in ("nce", "sampled_softmax"), "CORRECTS_TARGET": corrects_target(loss_spec),
        "MASKS_TARGET": negatives.mask_target,
        "WEIGHT_PER_DRAW": negatives.weight is not None and negatives.weight.ndim == 2,
        "C_PER_CENTRE": c is not None and c.ndim == 1, "BLOCK_K": block_k, "BLOCK_D": block_d,
        "num_warps": 4 if block_k * block_d <= MAX_PAIR_TILE else 8}
    tables = (u.x, v.x, u.acc, v.acc, *windows, negatives.ids, negatives.log_q, negatives.log_q_table,
              negatives.log_q_target, negatives.weight, negatives.is_masked, c, loss, c_slope, scratch(pairs))
    log_total = math.log(negatives.total_weight) if subtracts_log_q(loss_spec) else 0.0
    programs = min(g if negatives.share else n, max(1, windows_at_once // max(1, negatives.share)))
    numbers = (n, u.x.stride(0), v.x.stride(0), lr, EPS, loss_spec.margin, loss_spec.positive_weight, log_total)
    if n and negatives.share == 0:
        update_windows[(programs,)](*tables, scratch(pairs, k), scores, *numbers, **flags,
                             BLOCK_M=max(1, min(PAIRS_AT_ONCE, MAX_PAIR_TILE // (block_k * block_d))))
    elif n:
        centre_gradient = None if negatives.share == 1 else scratch(n, dim)
        update_units[(programs,)](*tables, centre_gradient, scores, *numbers, **flags, SHARE=negatives.share,
                           BLOCK_M=PAIRS_AT_ONCE)
    return DeviceResult(loss, scores, None if c is None or c_slope is None else _sum_by_centre(c, windows, c_slope))


def _sum_by_centre(c: Tensor, windows: WindowTensors, slope: Tensor) -> Tensor:
    """∂L/∂c from the slopes of the windows (C,)."""
    return slope.sum() if c.ndim == 0 else torch.zeros_like(c).index_add_(0, windows.centre, slope)


def _check(u: TableTensors, v: TableTensors, windows: WindowTensors, negatives: NegativeTensors,
           loss_spec: SkipGramLossSpec, c: Tensor | None, keep_scores: bool) -> None:
    """Raise ValueError unless shapes, types and devices fit. Reads no value of a tensor."""
    k, n, pairs, dim = negatives.ids.shape[1], len(windows.centre), len(windows.target), u.x.shape[-1]
    if loss_spec.loss not in LOSSES or (c is not None and loss_spec.loss != "nce"):
        raise ValueError(f"loss: unknown loss {loss_spec.loss!r}, or a log Z without NCE")
    expect_negatives(negatives, pairs, n, loss_spec, keep_scores)
    if k > max_negatives(dim):
        raise ValueError(f"negatives: 1 to {max_negatives(dim)} per draw expected for {dim} dimensions, got {k}")
    expect(u.x.device, [
        *of_table("u", u, dim), *of_table("v", v, dim), *of_negatives(negatives, pairs, len(v.x)),
        ("centre", windows.centre, torch.int64, (n,)), ("start", windows.start, torch.int64, (n + 1,)),
        ("target", windows.target, torch.int64, (pairs,)),
        ("c", c, torch.float32, () if c is not None and c.ndim == 0 else (len(u.x),))])
    if (u.acc is None) != (v.acc is None):
        raise ValueError("u and v differ in optimizer")
