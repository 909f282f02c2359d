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
from embtrain.kernels.core.tables import (
    LOSSES,
    Columns,
    Table,
    Told,
    address,
    expect,
    expect_columns,
    expect_correction,
    expect_table,
    in_parts,
    outside,
    passes,
    ranges,
)
from embtrain.kernels.reference.training import triples as reference

SCORES = {"l1": 0, "l2": 1, "dot": 2}
ONTO = {"free": 0, "sphere": 1, "ball": 2}


class Asked(NamedTuple):
    """The rows: which entity is given, by which relation, which side is open, and who is right."""

    entity: np.ndarray    # (B,) int64
    relation: np.ndarray  # (B,) int64  a row of r
    slot: np.ndarray      # (B,) int64  0, or 1 where the relation is read backwards
    target: np.ndarray    # (B,) int64


class Rule(NamedTuple):
    score: Literal["l1", "l2", "dot"]
    loss: Literal["logistic", "self_adversarial", "nce", "sampled_softmax", "margin"]
    margin: float = 1.0            # η of the margin loss, γ of the self-adversarial one
    temperature: float = 1.0       # α of the self-adversarial loss
    c: np.ndarray | None = None    # () float32: NCE's log Z; None: 0
    ranking: bool = False          # sampled softmax's other form: the target is corrected too
    onto: Literal["free", "sphere", "ball"] = "free"  # where entities are brought back to after a unit


class _Task(ctypes.Structure):
    """struct TripleTask of source/triples.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "e", "r", "e_acc", "r_acc", "entity", "relation", "slot", "target", "ids", "log_q", "log_q_of",
            "log_q_target", "weight", "right", "c", "scores")),
        *((name, ctypes.c_int64) for name in (
            "n_e", "n_r", "e_stride", "r_stride", "dim", "n", "n_draws", "k", "share", "weight_stride", "n_right",
            "forgive_target", "score", "loss", "ranking", "adversarial", "onto")),
        *((name, ctypes.c_double) for name in ("margin", "gamma", "temperature", "mass", "lr", "eps")))


def update(e: Table, r: Table, asked: Asked, columns: Columns, rule: Rule, lr: float, threads: int = 1,
           keep_scores: bool = False) -> Told:
    """One pass over the rows. IndexError and ValueError before anything is written."""
    _check(e, r, asked, columns, rule)
    if (lib := core()) is None:
        loss, every_score, c_grad = reference.update(e, r, asked, columns, rule, lr)
        return Told(loss, every_score.astype(np.float32) if keep_scores else None, c_grad)
    scores = np.zeros(columns.ids.shape, np.float32) if keep_scores else None
    task = _task(e, r, asked, columns, rule, lr, scores)
    if lib.embtrain_triples_check(ctypes.byref(task)) != 0:
        raise IndexError(_outside(e, r, asked, columns))
    parts = ranges(len(asked.target), max(1, columns.share), threads)
    loss, c_grad = in_parts(passes(lib.embtrain_triples, task), parts, rule.c)
    return Told(loss, scores, c_grad)


def _task(e: Table, r: Table, asked: Asked, columns: Columns, rule: Rule, lr: float, scores: np.ndarray | None,
          ) -> _Task:
    at, adversarial = address, rule.loss == "self_adversarial"
    return _Task(
        at(e.x), at(r.x), at(e.acc), at(r.acc), at(asked.entity), at(asked.relation), at(asked.slot), at(asked.target),
        at(columns.ids), at(columns.log_q), at(columns.log_q_of), at(columns.log_q_target), at(columns.weight),
        at(columns.right), at(rule.c), at(scores),
        len(e.x), len(r.x), e.x.strides[0] // 4, r.x.strides[0] // 4, e.x.shape[1], len(asked.target),
        *columns.numbers, columns.forgive_target, SCORES[rule.score],
        LOSSES["logistic" if adversarial else rule.loss], rule.ranking, adversarial, ONTO[rule.onto],
        rule.margin, rule.margin if adversarial else 0.0, rule.temperature, columns.mass, lr, reference.EPS)


def _check(e: Table, r: Table, asked: Asked, columns: Columns, rule: Rule) -> None:
    """Shapes, types and layouts; ValueError. Without the core the ids too; IndexError."""
    expect_table("e", e, padded=True)
    expect_table("r", r, padded=True)
    if e.x.shape[1] != r.x.shape[1] or (e.acc is None) != (r.acc is None):
        raise ValueError("e and r differ in dimension or optimiser")
    n = len(asked.target)
    for name, ids in asked._asdict().items():
        expect(name, ids, np.int64, (n,))
    expect_columns(columns, n, n, len(e.x))
    expect("c", rule.c, np.float32, ())
    if rule.score not in SCORES or rule.onto not in ONTO or rule.loss not in (*LOSSES, "self_adversarial") \
            or (rule.c is not None and rule.loss != "nce"):
        raise ValueError(f"rule: {rule.score!r}, {rule.onto!r} or {rule.loss!r} is unknown, or a log Z is not NCE's")
    expect_correction(rule, columns)
    if core() is None and (bad := _outside(e, r, asked, columns)):
        raise IndexError(bad)


def _outside(e: Table, r: Table, asked: Asked, columns: Columns) -> str:
    """Which id is out of range, in words; empty where none is."""
    n = len(e.x)
    return outside({"entity": (asked.entity, n), "relation": (asked.relation, len(r.x)), "slot": (asked.slot, 2),
                    "target": (asked.target, n), "ids": (columns.ids, n)}, columns, len(asked.target))
