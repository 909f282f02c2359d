"""The update of triples: scores, loss, gradients and moved rows in one pass over questions about entities.

    l1  q = e_a ± r, s_b = −Σ_d |q_d − b_d|      l2  s_b = −‖q − b‖      dot  q = e_a ∘ r, s_b = q · b

±: minus where the slot is 1. For the losses of embtrain/losses, with the columns' ids from outside: each row has its
own K (share 0), or n rows share K (share n). What Columns and Told hold is said in embtrain/kernels/core/tables.py; P
and C are the rows.

A unit is a row, or the rows of one draw; an update is one unit after the other. Scores, slopes and q are those at the
values before the unit; then its rows are moved one after the other, each by its own gradient: with shared columns the
targets, the columns, and each row's entity and relation; with own ones the target, the columns, the entity, the
relation. A row that occurs twice moves twice: with an accumulator that is not the move by the sum, and l1 and l2 look
again at where a target or an own column stands. On a unit without repeated rows it is what a batch means to the torch
step. With more threads each takes a range of units, and rows are moved without locks (Hogwild).
"""

from __future__ import annotations

import ctypes
from typing import Literal, NamedTuple

import numpy as np

from embtrain.kernels.core.library import core
from embtrain.kernels.core.parallel import range_kernel, run_ranges, split_ranges
from embtrain.kernels.core.tables import (
    LOSSES,
    NegativeBatch,
    Table,
    UpdateResult,
    address,
    describe_out_of_range,
    expect,
    expect_correction,
    expect_negatives,
    expect_table,
)
from embtrain.kernels.reference.training import triples as reference

SCORES = {"l1": 0, "l2": 1, "dot": 2}
CONSTRAINTS = {"free": 0, "sphere": 1, "ball": 2}


class TripleQueries(NamedTuple):
    """The rows: which entity is given, by which relation, which side is open, and who is right."""

    entity: np.ndarray    # (B,) int64
    relation: np.ndarray  # (B,) int64  a row of r
    slot: np.ndarray      # (B,) int64  0, or 1 where the relation is read backwards
    target: np.ndarray    # (B,) int64


class TripleLossSpec(NamedTuple):
    score: Literal["l1", "l2", "dot"]
    loss: Literal["logistic", "self_adversarial", "nce", "sampled_softmax", "margin"]
    margin: float = 1.0            # η of the margin loss, γ of the self-adversarial one
    temperature: float = 1.0       # α of the self-adversarial loss
    c: np.ndarray | None = None    # () float32: NCE's log Z; None: 0
    ranking: bool = False          # sampled softmax's other form: the target is corrected too
    constraint: Literal["free", "sphere", "ball"] = "free"  # where entities are brought back to after a unit


class _TripleTask(ctypes.Structure):
    """struct TripleTask of source/triples.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "e", "r", "e_acc", "r_acc", "entity", "relation", "slot", "target", "ids", "log_q", "log_q_table",
            "log_q_target", "weight", "false_negatives", "c", "scores")),
        *((name, ctypes.c_int64) for name in (
            "n_e", "n_r", "e_stride", "r_stride", "dim", "n", "n_draws", "k", "share", "weight_stride",
            "n_false_negatives",
            "mask_target", "score", "loss", "ranking", "adversarial", "constraint")),
        *((name, ctypes.c_double) for name in ("margin", "gamma", "temperature", "total_weight", "lr", "eps")))


def update(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch, loss_spec: TripleLossSpec, lr: float,
           threads: int = 1,
           keep_scores: bool = False) -> UpdateResult:
    """One pass over the rows. IndexError and ValueError before anything is written."""
    _check(e, r, queries, negatives, loss_spec)
    if (lib := core()) is None:
        loss, all_scores, c_grad = reference.update(e, r, queries, negatives, loss_spec, lr)
        return UpdateResult(loss, all_scores.astype(np.float32) if keep_scores else None, c_grad)
    scores = np.zeros(negatives.ids.shape, np.float32) if keep_scores else None
    task = _task(e, r, queries, negatives, loss_spec, lr, scores)
    if lib.embtrain_triples_check(ctypes.byref(task)) != 0:
        raise IndexError(_describe_out_of_range(e, r, queries, negatives))
    parts = split_ranges(len(queries.target), max(1, negatives.share), threads)
    loss, c_grad = run_ranges(range_kernel(lib.embtrain_triples_update, task), parts, loss_spec.c)
    return UpdateResult(loss, scores, c_grad)


def _task(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch, loss_spec: TripleLossSpec, lr: float,
          scores: np.ndarray | None) -> _TripleTask:
    ptr, adversarial = address, loss_spec.loss == "self_adversarial"
    return _TripleTask(
        ptr(e.x), ptr(r.x), ptr(e.acc), ptr(r.acc), ptr(queries.entity), ptr(queries.relation), ptr(queries.slot),
        ptr(queries.target),
        ptr(negatives.ids), ptr(negatives.log_q), ptr(negatives.log_q_table), ptr(negatives.log_q_target),
        ptr(negatives.weight),
        ptr(negatives.false_negatives), ptr(loss_spec.c), ptr(scores),
        len(e.x), len(r.x), e.x.strides[0] // 4, r.x.strides[0] // 4, e.x.shape[1], len(queries.target),
        *negatives.numbers, negatives.mask_target, SCORES[loss_spec.score],
        LOSSES["logistic" if adversarial
               else loss_spec.loss], loss_spec.ranking, adversarial, CONSTRAINTS[loss_spec.constraint],
        loss_spec.margin, loss_spec.margin if adversarial else 0.0, loss_spec.temperature, negatives.total_weight, lr,
        reference.EPS)


def _check(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch, loss_spec: TripleLossSpec) -> None:
    """Shapes, types and layouts; ValueError. Without the core the ids too; IndexError."""
    expect_table("e", e, padded=True)
    expect_table("r", r, padded=True)
    if e.x.shape[1] != r.x.shape[1] or (e.acc is None) != (r.acc is None):
        raise ValueError("e and r differ in dimension or optimiser")
    n = len(queries.target)
    for name, ids in queries._asdict().items():
        expect(name, ids, np.int64, (n,))
    expect_negatives(negatives, n, n, len(e.x))
    expect("c", loss_spec.c, np.float32, ())
    score, constraint, loss = loss_spec.score, loss_spec.constraint, loss_spec.loss
    if score not in SCORES or constraint not in CONSTRAINTS or loss not in (*LOSSES, "self_adversarial") \
            or (loss_spec.c is not None and loss != "nce"):
        raise ValueError(f"rule: {score!r}, {constraint!r} or {loss!r} is unknown, or a log Z is not NCE's")
    expect_correction(loss_spec, negatives)
    if core() is None and (problem := _describe_out_of_range(e, r, queries, negatives)):
        raise IndexError(problem)


def _describe_out_of_range(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch) -> str:
    """Which id is out of range, in words; empty where none is."""
    n = len(e.x)
    return describe_out_of_range({"entity": (queries.entity, n), "relation": (queries.relation, len(r.x)),
                                  "slot": (queries.slot, 2),
                    "target": (queries.target, n), "ids": (negatives.ids, n)}, negatives, len(queries.target))
