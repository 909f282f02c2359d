"""The triples update of kernels/training/triples.py on a device, over PyTorch tensors.

One launch updates e and r by all queries. A unit is one query, or the `share` queries with one draw, and one program
updates it. Scores and gradients of a unit are evaluated before its rows change; each occurrence of a row is then an
update of its own. Units run at the same time and add to rows atomically (Hogwild), and each program updates unit after
unit, as in kernels/device/skipgram.py. Under Triton's interpreter units run in order.

Two differences from the reference: it evaluates the gradients of l1 and l2 at a row's current value, so that a row that
occurs twice in a unit has moved in between; and a projection onto a constraint may undo an addition that another
program makes meanwhile. The host never waits for the device here, and ids are not checked.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from embtrain.kernels.arguments.updates import TripleLossSpec
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
from embtrain.kernels.device.support import MAX_TILE, next_power_of_two
from embtrain.kernels.device.triples.units import update_units
from embtrain.kernels.reference.training.rows import EPS
from embtrain.kernels.training.triples import CONSTRAINTS, SCORES

MAX_EVALUATED = 4_096       # scores whose losses a program evaluates at once; more if one query has more
VALUES_PER_WARP = 1_024     # of the queries of a program: 32 registers of each thread hold them, 32 their gradient
UPDATED_PER_WARP = 512      # values that a program adds at once
MAX_WARPS = 16
MAX_SCRATCH = 1 << 26       # float32 values of all programs
QUERIES_AT_ONCE = 1 << 20   # more than any GPU holds


class QueryTensors(NamedTuple):
    """B rows of triples, as `TripleQueries` of kernels/arguments/updates.py."""

    entity: Tensor                # (B,) int64
    relation: Tensor              # (B,) int64
    slot: Tensor                  # (B,) int64
    target: Tensor                # (B,) int64
    weight: Tensor | None = None  # (B,) float32


def update(e: TableTensors, r: TableTensors, queries: QueryTensors, negatives: NegativeTensors,
           loss_spec: TripleLossSpec, lr: float, c: Tensor | None = None, keep_scores: bool = False,
           queries_at_once: int = QUERIES_AT_ONCE) -> DeviceResult:
    """Update e and r in one pass over the queries. c: () float32, the learned log Z of NCE; None: 0.

    About `queries_at_once` queries, at least one unit, are updated at the same time. The result is that of
    kernels/training/triples.py, in float32. `loss_spec.c` is ignored. Raises ValueError before anything is written if
    shapes, types, devices or the loss do not fit.
    """
    _check(e, r, queries, negatives, loss_spec, c, keep_scores)
    n, (g, k), dim, share = len(queries.target), negatives.ids.shape, e.x.shape[1], max(1, negatives.share)
    def scratch(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=e.x.device)
    loss, scores, c_slope = scratch(n), scratch(g, k) if keep_scores else None, None if c is None else scratch(n)
    values = (k + 1) * share + k * dim + 3 * share * dim                       # of the scratch of a program
    programs = max(1, min(triton.cdiv(n, share), queries_at_once // share, MAX_SCRATCH // values))
    block_d, block_k = next_power_of_two(dim), next_power_of_two(k)
    block_m = max(1, min(next_power_of_two(share), MAX_TILE // block_d))
    warps = max(1, min(MAX_WARPS, block_m * block_d // VALUES_PER_WARP))
    flags: dict[str, Any] = {
        "SHARE": share, "K": k, "DIM": dim, "SCORE": loss_spec.score, "LOSS": loss_spec.loss,
        "CONSTRAINT": loss_spec.constraint, "CORRECTS": loss_spec.loss in ("nce", "sampled_softmax"),
        "CORRECTS_TARGET": corrects_target(loss_spec), "MASKS_TARGET": negatives.mask_target,
        "WEIGHT_PER_DRAW": negatives.weight is not None and negatives.weight.ndim == 2, "BLOCK_M": block_m,
        "BLOCK_R": max(1, min(block_m, MAX_EVALUATED // block_k)),
        "BLOCK_G": max(1, warps * UPDATED_PER_WARP // block_d), "BLOCK_K": block_k,
        "BLOCK_D": block_d, "num_warps": warps}
    log_total = math.log(negatives.total_weight) if subtracts_log_q(loss_spec) else 0.0
    if n:
        update_units[(programs,)](
            e.x, r.x, e.acc, r.acc, *queries, negatives.ids, negatives.log_q, negatives.log_q_table,
            negatives.log_q_target, negatives.weight, negatives.is_masked, c, loss, c_slope, scores,
            scratch(programs, k + 1, share), scratch(programs, k, dim), scratch(programs, 3, share, dim), n,
            e.x.stride(0), r.x.stride(0), lr, EPS, loss_spec.margin, loss_spec.temperature,
            loss_spec.positive_weight, log_total, **flags)
    return DeviceResult(loss, scores, None if c_slope is None else c_slope.sum())


def _check(e: TableTensors, r: TableTensors, queries: QueryTensors, negatives: NegativeTensors,
           loss_spec: TripleLossSpec, c: Tensor | None, keep_scores: bool) -> None:
    """Raise ValueError unless shapes, types and devices fit. Reads no value of a tensor."""
    n, dim, score, constraint, loss = (len(queries.target), e.x.shape[-1], loss_spec.score, loss_spec.constraint,
                                       loss_spec.loss)
    if score not in SCORES or constraint not in CONSTRAINTS or loss not in (*LOSSES, "self_adversarial") \
            or (c is not None and loss != "nce"):
        raise ValueError(f"loss: {score!r}, {constraint!r} or {loss!r} is unknown, or a log Z without NCE")
    expect_negatives(negatives, n, n, loss_spec, keep_scores)
    if dim > MAX_TILE:
        raise ValueError(f"e: at most {MAX_TILE} dimensions expected, got {dim}")
    expect(e.x.device, [
        *of_table("e", e, dim), *of_table("r", r, dim), *of_negatives(negatives, n, len(e.x)),
        *((name, x, torch.int64, (n,)) for name, x in zip(QueryTensors._fields[:4], queries[:4], strict=True)),
        ("row_weight", queries.weight, torch.float32, (n,)), ("c", c, torch.float32, ())])
    if (e.acc is None) != (r.acc is None):
        raise ValueError("e and r differ in optimizer")
