"""The update of order embeddings [vendrov2016]: energies, loss, gradients and updated rows in one pass.

    E(g, c) = ‖max(0, σ (x_c − x_g))‖²      σ = 1 in slot 0 (c a hypernym of g), −1 in slot 1 (c a hyponym of g)
    x_c −= lr (∂L/∂E) 2 σ z                 x_g += lr Σ_c (∂L/∂E) 2 σ z,   z = max(0, σ (x_c − x_g))

for the losses `order`, E_t + Σ_j w_j max(0, α − E_j), and `margin`, Σ_j w_j max(0, η + E_t − E_j).

A unit is one row: a concept g, its target t and K negatives j. Energies are evaluated before the unit. If a concept
occurs in it more than once, its gradients are summed. A unit is therefore equivalent to a torch step on a batch of this
one row, followed by the projection onto the orthant.

PairRows and OrderLossSpec are documented in embtrain/kernels/arguments/pairs.py, NegativeBatch and UpdateResult in
embtrain/kernels/core/tables.py. P and C are the B rows, share is 1 or more, `false_negatives` contains no pair twice,
and scores are per row, (B, K). One thread is deterministic; with more, each thread takes a range of rows (Hogwild).
"""

from __future__ import annotations

import ctypes

import numpy as np

from embtrain.kernels.arguments.pairs import (
    PAIR_FIELDS,
    OrderLossSpec,
    PairRows,
    describe_pairs_out_of_range,
    expect_pairs,
    pair_values,
)
from embtrain.kernels.core.binding import fields
from embtrain.kernels.core.loader import core
from embtrain.kernels.core.tables import (
    NegativeBatch,
    Table,
    UpdateResult,
    expect_table,
    reference_result,
    run_ranges,
    split_ranges,
)
from embtrain.kernels.reference.training import order as reference
from embtrain.kernels.reference.training.rows import EPS

__all__ = ["OrderLossSpec", "PairRows", "update"]


class _OrderTask(ctypes.Structure):
    """struct OrderTask of source/training/order.cpp."""

    _fields_ = [*PAIR_FIELDS, *fields("", "ranking abs", "margin lr eps")]


def update(table: Table, rows: PairRows, negatives: NegativeBatch, loss_spec: OrderLossSpec, lr: float,
           threads: int = 1,
           keep_scores: bool = False) -> UpdateResult:
    """Update the table in one pass over the rows. IndexError and ValueError before anything is written."""
    _check(table, rows, negatives, loss_spec)
    if (lib := core()) is None:
        if problem := describe_pairs_out_of_range(len(table.x), rows, negatives):
            raise IndexError(problem)
        return reference_result(*reference.update(table, rows, negatives, loss_spec, lr), None, keep_scores)
    n, k = len(rows.concept), negatives.ids.shape[1]
    scores = np.zeros((n, k), np.float32) if keep_scores else None
    task = _OrderTask(*pair_values(table, rows, negatives, scores), loss_spec.loss == "margin", loss_spec.abs,
                      loss_spec.margin, lr, EPS)
    if lib.embtrain_order_check(ctypes.byref(task)) != 0:
        raise IndexError(describe_pairs_out_of_range(len(table.x), rows, negatives))

    def update_range(first: int, last: int, total: ctypes.c_double, c_grad_pointer: int | None) -> int:
        return int(lib.embtrain_order_update(ctypes.byref(task), ctypes.c_int64(first), ctypes.c_int64(last),
                                             ctypes.byref(total)))

    return UpdateResult(run_ranges(update_range, split_ranges(n, 1, threads))[0], scores, None)


def _check(table: Table, rows: PairRows, negatives: NegativeBatch, loss_spec: OrderLossSpec) -> None:
    """Raise ValueError unless shapes, types and layouts fit."""
    expect_table("x", table, padded=True)
    expect_pairs(rows, negatives, len(table.x))
    if loss_spec.loss not in ("order", "margin"):
        raise ValueError(f"loss: unknown loss {loss_spec.loss!r}")
