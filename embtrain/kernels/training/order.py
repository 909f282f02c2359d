"""The update of order embeddings: energies, loss, gradients and moved rows in one pass over rows of pairs.

    E(g, c) = ‖max(0, σ (x_c − x_g))‖²      σ = 1 in slot 0, −1 in slot 1
    x_c −= lr (∂L/∂E) 2 σ z                 x_g += lr Σ_c (∂L/∂E) 2 σ z,   z = max(0, σ (x_c − x_g))

for the losses `order`, E_t + Σ_j w_j max(0, α − E_j), and `margin`, Σ_j w_j max(0, η + E_t − E_j). A unit is one row: a
given concept, its target and K columns. Energies are those before the unit; where a concept occurs in it more than
once, its gradients are summed. So a unit means what a batch of this one row means to the torch step, with the orthant
kept after it. What Columns and Told hold is said in embtrain/kernels/core/tables.py; P and C are the rows, share is 1
or more, `right` holds no pair twice, and the scores are (B, K), each row's own. One thread gives the same result every
time; with more, each takes a range of rows (Hogwild).
"""

from __future__ import annotations

import ctypes
from typing import Literal, NamedTuple

import numpy as np

from embtrain.kernels.core.library import core
from embtrain.kernels.core.tables import (
    Columns,
    Table,
    Told,
    address,
    expect,
    expect_columns,
    expect_table,
    in_parts,
    outside,
    ranges,
)
from embtrain.kernels.reference.training import order as reference


class Rows(NamedTuple):
    given: np.ndarray   # (B,) int64
    target: np.ndarray  # (B,) int64
    slot: np.ndarray    # (B,) int64: 0 or 1


class Rule(NamedTuple):
    loss: Literal["order", "margin"]
    margin: float                     # α, or η
    abs: bool = False                 # the orthant is kept by reading |x|; else by setting to 0 what fell below


class _Task(ctypes.Structure):
    """struct OrderTask of source/order.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "acc", "given", "target", "slot", "ids", "weight", "right",
                                               "scores")),
        *((name, ctypes.c_int64) for name in ("n", "stride", "dim", "n_rows", "n_draws", "k", "share", "weight_stride",
                                              "n_right", "forgive_target", "ranking", "abs")),
        *((name, ctypes.c_double) for name in ("margin", "lr", "eps")))


def update(table: Table, rows: Rows, columns: Columns, rule: Rule, lr: float, threads: int = 1,
           keep_scores: bool = False) -> Told:
    """One pass over the rows. IndexError and ValueError before anything is written."""
    _check(table, rows, columns, rule)
    if (lib := core()) is None:
        if bad := _outside(table, rows, columns):
            raise IndexError(bad)
        loss, every_score = reference.update(table, rows, columns, rule, lr)
        return Told(loss, every_score.astype(np.float32) if keep_scores else None, None)
    n, k = len(rows.given), columns.ids.shape[1]
    scores = np.zeros((n, k), np.float32) if keep_scores else None
    task = _task(table, rows, columns, rule, lr, scores)
    if lib.embtrain_order_check(ctypes.byref(task)) != 0:
        raise IndexError(_outside(table, rows, columns))
    def call(first: int, last: int, total: ctypes.c_double, into: int | None) -> int:
        return int(lib.embtrain_order(ctypes.byref(task), ctypes.c_int64(first), ctypes.c_int64(last),
                                      ctypes.byref(total)))

    return Told(in_parts(call, ranges(n, 1, threads))[0], scores, None)


def _task(table: Table, rows: Rows, columns: Columns, rule: Rule, lr: float, scores: np.ndarray | None) -> _Task:
    at = address
    return _Task(
        at(table.x), at(table.acc), at(rows.given), at(rows.target), at(rows.slot), at(columns.ids),
        at(columns.weight), at(columns.right), at(scores),
        len(table.x), table.x.strides[0] // 4, table.x.shape[1], len(rows.given), *columns.numbers,
        columns.forgive_target, rule.loss == "margin", rule.abs, rule.margin, lr, reference.EPS)


def _check(table: Table, rows: Rows, columns: Columns, rule: Rule) -> None:
    """Shapes, types and layouts; ValueError."""
    expect_table("x", table, padded=True)
    n = len(rows.given)
    for name, ids in zip(Rows._fields, rows, strict=True):
        expect(name, ids, np.int64, (n,))
    if columns.share < 1:
        raise ValueError(f"columns: share >= 1 is wanted, got {columns.share}")
    expect_columns(columns, n, n, len(table.x))
    if rule.loss not in ("order", "margin"):
        raise ValueError(f"rule: unknown loss {rule.loss!r}")


def _outside(table: Table, rows: Rows, columns: Columns) -> str:
    """Which id is out of range, in words; empty where none is."""
    n, right, k = len(table.x), columns.right, columns.ids.shape[1]
    bad = outside({"given": (rows.given, n), "target": (rows.target, n), "slot": (rows.slot, 2),
                   "ids": (columns.ids, n)}, columns, len(rows.given))
    if not bad and right is not None and (np.diff(right[0] * k + right[1]) < 1).any():
        return "right: each (row, column) once, ascending, is wanted"
    return bad
