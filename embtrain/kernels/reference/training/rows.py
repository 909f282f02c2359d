"""Shared by the references of kernels/training: the terms of a row's negatives, and the update of a table row."""

from __future__ import annotations

import math

import numpy as np

from embtrain.kernels.core.tables import NegativeBatch, Table

EPS = 1e-10  # of row-Adagrad: acc += mean_d g_d², x -= lr g / (√acc + EPS)


def false_negative_pairs(negatives: NegativeBatch) -> set[tuple[int, int]]:
    """Return the (row, column) pairs of the false negatives."""
    if negatives.false_negatives is None:
        return set()
    return set(zip(*negatives.false_negatives.tolist(), strict=True))


def draw_terms(negatives: NegativeBatch, false_negatives: set[tuple[int, int]], t: int, p: int, g: int,
          ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Weights, mask and log q (K,) of the negatives of row p with target t and draw g, and the log q of the target.

    The mask is False at false negatives, at negatives of weight 0 and, with `mask_target`, at the target.
    """
    ids = negatives.ids[g]
    k = len(ids)
    weight = np.ones(k) if negatives.weight is None else np.broadcast_to(negatives.weight, negatives.ids.shape)[g]
    is_kept = (weight != 0) & np.array([(p, j) not in false_negatives for j in range(k)], bool)
    if negatives.mask_target:
        is_kept &= ids != t
    log_q, log_q_t = np.zeros(k), 0.0
    if negatives.log_q is not None:
        log_q = negatives.log_q[g].astype(np.float64)
    elif negatives.log_q_table is not None:
        log_q = negatives.log_q_table[ids].astype(np.float64)
    if negatives.log_q_target is not None:
        log_q_t = float(negatives.log_q_target[p])
    elif negatives.log_q_table is not None:
        log_q_t = float(negatives.log_q_table[t])
    return weight.astype(np.float64), is_kept, log_q, log_q_t


def update_row(table: Table, row: int, gradient: np.ndarray, lr: float, mean_square: float | None = None) -> None:
    """Update one row by its gradient (D,): SGD, or row-Adagrad if the table has an accumulator.

    mean_square: the value added to the accumulator; None: the mean square of the gradient.
    """
    rate = lr
    if table.acc is not None:
        table.acc[row] += np.mean(gradient * gradient) if mean_square is None else mean_square
        rate = lr / (math.sqrt(table.acc[row]) + EPS)
    table.x[row] -= rate * gradient
