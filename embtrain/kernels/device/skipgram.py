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
from embtrain.kernels.device.private_draws import update_windows
from embtrain.kernels.device.shared_draws import update_units
from embtrain.kernels.device.support import max_negatives, next_power_of_two
from embtrain.kernels.reference.training.rows import EPS

MAX_PAIR_TILE = 4_096  # float32 values of the negatives of the pairs that a program reads at once
WINDOWS_AT_ONCE = 1 << 20  # more than any GPU holds
PAIRS_AT_ONCE = 8      # targets that a program reads at once if its negatives are shared


class TableTensors(NamedTuple):
    """Rows that are updated in place."""

    x: Tensor                   # (n, D) float32, contiguous within a row
    acc: Tensor | None = None   # (n,) float32: row-Adagrad; None: SGD


class WindowTensors(NamedTuple):
    """C windows of P pairs in total, as `Windows` of kernels/arguments/updates.py; (C,), (C+1,) and (P,) int64."""

    centre: Tensor
    start: Tensor
    target: Tensor


class NegativeTensors(NamedTuple):
    """G draws of K negatives, as `NegativeBatch` of kernels/core/tables.py, except for `is_masked`."""

    ids: Tensor                         # (G, K) int64
    share: int                          # windows per draw; 0: each pair has its own, G = P
    log_q: Tensor | None = None         # (G, K) float32, or
    log_q_table: Tensor | None = None   # (V,) float32
    log_q_target: Tensor | None = None  # (P,) float32; None: looked up in log_q_table
    weight: Tensor | None = None        # (K,) or (G, K) float32; None: 1
    total_weight: float = 1.0           # Σ_j w_j before masking
    mask_target: bool = False           # mask negatives that equal the target of a pair, for that pair
    is_masked: Tensor | None = None     # (P, K) uint8, 1 at false negatives; None: none


class DeviceResult(NamedTuple):
    """Tensors on the device."""

    loss: Tensor             # (C,) float32: the loss of each window, summed over its pairs
    scores: Tensor | None    # (G, K) float32: the score of each negative before its window's update
    c_grad: Tensor | None    # float32, shape of c: ∂L/∂c


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
    corrects, ranks = loss_spec.loss in ("nce", "sampled_softmax"), loss_spec.ranking
    block_k, block_d = next_power_of_two(k), next_power_of_two(dim)
    flags: dict[str, Any] = {
        "K": k, "DIM": dim, "LOSS": loss_spec.loss, "CORRECTS": corrects,
        "CORRECTS_TARGET": loss_spec.loss == "nce" or (corrects and ranks), "MASKS_TARGET": negatives.mask_target,
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
    (g, k), n, pairs, dim = negatives.ids.shape, len(windows.centre), len(windows.target), u.x.shape[-1]
    share, weight = negatives.share, negatives.weight
    if loss_spec.loss not in LOSSES or (c is not None and loss_spec.loss != "nce"):
        raise ValueError(f"loss: unknown loss {loss_spec.loss!r}, or a log Z without NCE")
    if share < 0 or g != (pairs if share == 0 else -(-n // share)):
        raise ValueError(f"negatives: {g} draws do not fit {n} windows of {pairs} pairs under share {share}")
    if not 1 <= k <= max_negatives(dim):
        raise ValueError(f"negatives: 1 to {max_negatives(dim)} per draw expected for {dim} dimensions, got {k}")
    if keep_scores and share > 1:
        raise ValueError(f"negatives: scores are of one window, so they are not kept under share {share}")
    if subtracts_log_q(loss_spec) and not negatives.total_weight > 0:
        raise ValueError(f"negatives: total_weight must be positive, got {negatives.total_weight}")
    corrects = loss_spec.loss in ("nce", "sampled_softmax")
    if corrects and negatives.log_q is None and negatives.log_q_table is None:
        raise ValueError(f"loss: {loss_spec.loss} subtracts log q; pass log_q or log_q_table")
    if (loss_spec.loss == "nce" or (corrects and loss_spec.ranking)) and negatives.log_q_target is None \
            and negatives.log_q_table is None:
        raise ValueError(f"loss: {loss_spec.loss} needs log q of the target; pass log_q_target or log_q_table")
    n_u, n_v = len(u.x), len(v.x)
    expected: list[tuple[str, Tensor | None, torch.dtype, tuple[int, ...]]] = [
        ("u", u.x, torch.float32, (n_u, dim)), ("v", v.x, torch.float32, (n_v, dim)),
        ("u.acc", u.acc, torch.float32, (n_u,)), ("v.acc", v.acc, torch.float32, (n_v,)),
        ("centre", windows.centre, torch.int64, (n,)), ("start", windows.start, torch.int64, (n + 1,)),
        ("target", windows.target, torch.int64, (pairs,)), ("ids", negatives.ids, torch.int64, (g, k)),
        ("log_q", negatives.log_q, torch.float32, (g, k)),
        ("log_q_table", negatives.log_q_table, torch.float32, (n_v,)),
        ("log_q_target", negatives.log_q_target, torch.float32, (pairs,)),
        ("weight", weight, torch.float32, (k,) if weight is not None and weight.ndim == 1 else (g, k)),
        ("is_masked", negatives.is_masked, torch.uint8, (pairs, k)),
        ("c", c, torch.float32, () if c is not None and c.ndim == 0 else (n_u,))]
    for name, x, dtype, shape in expected:
        if x is None:
            continue
        is_packed = x.stride(1) == 1 if name in "uv" else x.is_contiguous()
        if x.dtype != dtype or x.shape != shape or x.device != u.x.device or not is_packed:
            raise ValueError(f"{name}: {dtype} {shape} on {u.x.device} expected, contiguous, got {x.dtype} "
                             f"{tuple(x.shape)} on {x.device}")
    if (u.acc is None) != (v.acc is None):
        raise ValueError("u and v differ in optimizer")
