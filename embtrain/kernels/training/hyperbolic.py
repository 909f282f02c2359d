"""The update of points in hyperbolic space: scores, loss, Riemannian gradients and updated rows in one pass.

    poincare   Poincaré embeddings: −d(u, v) in the ball [nickel2017]
    cone       entailment cones: ψ(v) − Ξ(v, u) in the ball [ganea2018]
    umbral, penumbral   shadow cones: −(signed distance of u to the cone of v) in the half-space [yu2024]

for the losses of HyperbolicLossSpec. The formulas are those of embtrain/kernels/reference/training/hyperbolic.py.

A unit is one row: a concept g, its target t and K negatives j. Scores are evaluated before the unit. If a concept
occurs in it more than once, its gradients are summed. A unit is therefore equivalent to a torch step on a batch of this
one row, followed by the projection into the bounds.

PairRows, HyperbolicSpace and HyperbolicLossSpec are documented in embtrain/kernels/arguments/pairs.py, NegativeBatch
and UpdateResult in embtrain/kernels/core/tables.py. The table is float64 (n, D) with accumulators in float64. P and C
are the B rows, share is 1 or more, and scores are per row, (B, K). One thread is deterministic; with more, each thread
takes a range of rows (Hogwild).
"""

from __future__ import annotations

import ctypes
import math

import numpy as np

from embtrain.kernels.arguments.pairs import (
    PAIR_FIELDS,
    HyperbolicLossSpec,
    HyperbolicSpace,
    PairRows,
    describe_pairs_out_of_range,
    expect_pairs,
    pair_values,
)
from embtrain.kernels.core.binding import address, check_array, fields
from embtrain.kernels.core.loader import core
from embtrain.kernels.core.tables import (
    MAX_ROWS,
    NegativeBatch,
    Table,
    UpdateResult,
    expect_correction,
    reference_result,
    run_ranges,
    split_ranges,
)
from embtrain.kernels.reference.training import hyperbolic as reference
from embtrain.kernels.reference.training.rows import EPS

__all__ = ["HyperbolicLossSpec", "HyperbolicSpace", "PairRows", "update"]

SCORES = {"poincare": 0, "cone": 1, "umbral": 2, "penumbral": 3}
LOSSES = {"hinged_softmax": 0, "order": 1, "sampled_softmax": 2}


class _HyperbolicTask(ctypes.Structure):
    """struct HyperbolicTask of source/training/hyperbolic.cpp."""

    _fields_ = [*PAIR_FIELDS, *fields("log_q log_q_table", "space loss",
                                      "size low high margin log_total_weight lr eps")]


def update(table: Table, rows: PairRows, negatives: NegativeBatch, space: HyperbolicSpace,
           loss_spec: HyperbolicLossSpec, lr: float, threads: int = 1, keep_scores: bool = False) -> UpdateResult:
    """Update the table in one pass over the rows. IndexError and ValueError before anything is written."""
    _check(table, rows, negatives, space, loss_spec)
    if (lib := core()) is None:
        if problem := describe_pairs_out_of_range(len(table.x), rows, negatives):
            raise IndexError(problem)
        return reference_result(*reference.update(table, rows, negatives, space, loss_spec, lr), None, keep_scores)
    n, k = len(rows.concept), negatives.ids.shape[1]
    scores = np.zeros((n, k), np.float32) if keep_scores else None
    total_weight = negatives.total_weight
    task = _HyperbolicTask(
        *pair_values(table, rows, negatives, scores), address(negatives.log_q), address(negatives.log_q_table),
        SCORES[space.score], LOSSES[loss_spec.loss], space.size, space.low, space.high, loss_spec.margin,
        math.log(total_weight) if total_weight > 0 else 0.0, lr, EPS)
    if lib.embtrain_hyperbolic_check(ctypes.byref(task)) != 0:
        raise IndexError(describe_pairs_out_of_range(len(table.x), rows, negatives))

    def update_range(first: int, last: int, total: ctypes.c_double, c_grad_pointer: int | None) -> int:
        return int(lib.embtrain_hyperbolic_update(ctypes.byref(task), ctypes.c_int64(first), ctypes.c_int64(last),
                                                  ctypes.byref(total)))

    return UpdateResult(run_ranges(update_range, split_ranges(n, 1, threads))[0], scores, None)


def _check(table: Table, rows: PairRows, negatives: NegativeBatch, space: HyperbolicSpace,
           loss_spec: HyperbolicLossSpec) -> None:
    """Raise ValueError unless shapes, types and layouts fit."""
    x, acc = table
    smallest = 1 if space.score in ("poincare", "cone") else 2
    if x.dtype != np.float64 or x.ndim != 2 or not x.flags.writeable or not x.flags.c_contiguous or len(x) > MAX_ROWS \
            or x.shape[1] < smallest:
        raise ValueError(f"x: a writeable contiguous float64 table of at least {smallest} columns expected, got "
                         f"{x.dtype} {x.shape}")
    if acc is not None:
        check_array("x.acc", acc, np.float64, (len(x),))
    expect_pairs(rows, negatives, len(x))
    if space.score not in SCORES:
        raise ValueError(f"space: unknown score {space.score!r}")
    if loss_spec.loss not in LOSSES or loss_spec.ranking:
        raise ValueError(f"loss: unknown loss {loss_spec.loss!r}{', ranking' * loss_spec.ranking}")
    expect_correction(loss_spec, negatives)
