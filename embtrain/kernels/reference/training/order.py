"""Twin of kernels/training/order.py, one row after the other in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from embtrain.kernels.reference.training.skipgram import EPS

if TYPE_CHECKING:
    from embtrain.kernels.core.tables import Columns, Table
    from embtrain.kernels.training.order import Rows, Rule

__all__ = ["EPS", "update"]


def update(table: Table, rows: Rows, columns: Columns, rule: Rule, lr: float) -> tuple[float, np.ndarray]:
    """Updates the table in place; the loss, and the columns' scores (B, K)."""
    x, k = table.x, columns.ids.shape[1]
    right = set() if columns.right is None else set(zip(*columns.right.tolist(), strict=True))
    scores, loss = np.zeros((len(rows.given), k)), 0.0
    for r, (g, to, slot) in enumerate(zip(*(of.tolist() for of in rows), strict=True)):
        draw, sign = r // columns.share, 1 - 2 * slot
        ids = [to, *columns.ids[draw].tolist()]                                 # the target first
        def value(i: int) -> np.ndarray:
            return np.abs(x[i].astype(np.float64)) if rule.abs else x[i].astype(np.float64)
        z = [np.maximum(sign * (value(c) - value(g)), 0) for c in ids]
        energy = np.array([(one * one).sum() for one in z])
        scores[r] = -energy[1:]
        weight = np.ones(k) if columns.weight is None else np.broadcast_to(columns.weight, columns.ids.shape)[draw]
        kept = np.array([(r, j) not in right and not (columns.forgive_target and ids[j + 1] == to)
                         for j in range(k)], bool)
        own = energy[0] if rule.loss == "margin" else 0.0
        hinge = np.where(kept, weight * np.maximum(rule.margin + own - energy[1:], 0), 0.0)
        active = np.where(hinge != 0, weight, 0.0)
        loss += hinge.sum() + (0.0 if rule.loss == "margin" else energy[0])
        slopes = [active.sum() if rule.loss == "margin" else 1.0, *(-active)]    # ∂L/∂E
        gradient: dict[int, np.ndarray] = {}
        for c, a, one in zip(ids, slopes, z, strict=True):
            for row, way in ((c, sign), (g, -sign)):
                turn = np.sign(x[row].astype(np.float64)) if rule.abs else 1.0
                gradient[row] = gradient.get(row, 0.0) + 2 * a * way * one * turn
        for row, of in gradient.items():
            rate = lr
            if table.acc is not None:
                table.acc[row] += np.mean(of * of)
                rate = lr / (math.sqrt(table.acc[row]) + EPS)
            x[row] -= rate * of
            if not rule.abs:
                x[row] = np.maximum(x[row], 0)
    return loss, scores
