"""The triples update: scores, loss, gradients and updated rows in one pass over queries about entities.

    l1  q = e_a ± r, s_b = −Σ_d |q_d − b_d|      l2  s_b = −‖q − b‖      dot  q = e_a ∘ r, s_b = q · b

±: minus if the slot is 1. For the losses of embtrain/losses. The ids of the negatives are given: each row has its own K
(share 0), or n rows share K (share n). NegativeBatch and UpdateResult are documented in
embtrain/kernels/core/tables.py; P and C are the rows.

A unit is a row, or the rows of one draw. Scores, slopes and q are evaluated before the unit. Then its rows are updated
in turn, each by its own gradient. With shared negatives the order is: targets, negatives, then each row's entity and
relation. With negatives per row: target, negatives, entity, relation.

A repeated row is updated twice. With an accumulator this differs from one update by the sum, and l1 and l2 evaluate the
gradient at the current value of a target or of a row's own negative. Without repeated rows a unit is equivalent to a
torch step on its batch. With more threads each takes a range of units, and rows are updated without locks (Hogwild).
"""

from __future__ import annotations

import ctypes

import numpy as np

from embtrain.kernels.arguments.updates import TripleLossSpec, TripleQueries
from embtrain.kernels.core.binding import address, check_array, fields
from embtrain.kernels.core.loader import core
from embtrain.kernels.core.tables import (
    LOSSES,
    NegativeBatch,
    Table,
    UpdateResult,
    describe_out_of_range,
    expect_correction,
    expect_negatives,
    expect_table,
    range_kernel,
    reference_result,
    run_ranges,
    split_ranges,
)
from embtrain.kernels.reference.training import triples as reference
from embtrain.kernels.reference.training.rows import EPS

__all__ = ["TripleLossSpec", "TripleQueries", "update"]

SCORES = {"l1": 0, "l2": 1, "dot": 2}
CONSTRAINTS = {"free": 0, "sphere": 1, "ball": 2}


class _TripleTask(ctypes.Structure):
    """struct TripleTask of source/training/triples/triples.h."""

    _fields_ = fields(
        "e r e_acc r_acc entity relation slot target row_weight ids log_q log_q_table log_q_target weight "
        "false_negatives c scores",
        "n_e n_r e_stride r_stride dim n n_draws k share weight_stride n_false_negatives mask_target score loss "
        "ranking adversarial constraint", "margin gamma temperature positive_weight total_weight lr eps")


def update(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch, loss_spec: TripleLossSpec, lr: float,
           threads: int = 1,
           keep_scores: bool = False) -> UpdateResult:
    """Update e and r in one pass over the rows. IndexError and ValueError before anything is written."""
    _check(e, r, queries, negatives, loss_spec)
    if (lib := core()) is None:
        return reference_result(*reference.update(e, r, queries, negatives, loss_spec, lr), keep_scores)
    scores = np.zeros(negatives.ids.shape, np.float32) if keep_scores else None
    task = _task(e, r, queries, negatives, loss_spec, lr, scores)
    if lib.embtrain_triples_check(ctypes.byref(task)) != 0:
        raise IndexError(_describe_out_of_range(e, r, queries, negatives))
    parts = split_ranges(len(queries.target), max(1, negatives.share), threads)
    loss, c_grad = run_ranges(range_kernel(lib.embtrain_triples_update, task), parts, loss_spec.c)
    return UpdateResult(loss, scores, c_grad)


def _task(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch, loss_spec: TripleLossSpec, lr: float,
          scores: np.ndarray | None) -> _TripleTask:
    adversarial = loss_spec.loss == "self_adversarial"
    arrays = (e.x, r.x, e.acc, r.acc, *queries, negatives.ids, negatives.log_q, negatives.log_q_table,
              negatives.log_q_target, negatives.weight, negatives.false_negatives, loss_spec.c, scores)
    return _TripleTask(
        *map(address, arrays), len(e.x), len(r.x), e.x.strides[0] // 4, r.x.strides[0] // 4, e.x.shape[1],
        len(queries.target), *negatives.numbers, negatives.mask_target, SCORES[loss_spec.score],
        LOSSES["logistic" if adversarial else loss_spec.loss], loss_spec.ranking, adversarial,
        CONSTRAINTS[loss_spec.constraint], loss_spec.margin, loss_spec.margin if adversarial else 0.0,
        loss_spec.temperature, loss_spec.positive_weight, negatives.total_weight, lr, EPS)


def _check(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch, loss_spec: TripleLossSpec) -> None:
    """Raise ValueError unless shapes, types and layouts fit. Without the core also IndexError for ids."""
    expect_table("e", e, padded=True)
    expect_table("r", r, padded=True)
    if e.x.shape[1] != r.x.shape[1] or (e.acc is None) != (r.acc is None):
        raise ValueError("e and r differ in dimension or optimizer")
    n = len(queries.target)
    for name, ids in queries._asdict().items():
        if name != "weight":
            check_array(name, ids, np.int64, (n,))
    if queries.weight is not None:
        check_array("weight", queries.weight, np.float32, (n,))
    expect_negatives(negatives, n, n, len(e.x))
    if loss_spec.c is not None:
        check_array("c", loss_spec.c, np.float32, ())
    score, constraint, loss = loss_spec.score, loss_spec.constraint, loss_spec.loss
    if score not in SCORES or constraint not in CONSTRAINTS or loss not in (*LOSSES, "self_adversarial") \
            or (loss_spec.c is not None and loss != "nce"):
        raise ValueError(f"loss: {score!r}, {constraint!r} or {loss!r} is unknown, or a log Z without NCE")
    expect_correction(loss_spec, negatives)
    if core() is None and (problem := _describe_out_of_range(e, r, queries, negatives)):
        raise IndexError(problem)


def _describe_out_of_range(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch) -> str:
    """Describe the first id that is out of range; empty if there is none."""
    n = len(e.x)
    return describe_out_of_range({"entity": (queries.entity, n), "relation": (queries.relation, len(r.x)),
                                  "slot": (queries.slot, 2),
                    "target": (queries.target, n), "ids": (negatives.ids, n)}, negatives, len(queries.target))
