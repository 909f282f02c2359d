"""Reference for kernels/training/order.py, row by row in float64."""

from __future__ import annotations

import math

import numpy as np

from embtrain.kernels.arguments.updates import OrderLossSpec, OrderRows
from embtrain.kernels.core.tables import NegativeBatch, Table
from embtrain.kernels.reference.training.skipgram import EPS

__all__ = ["EPS", "update"]


def update(table: Table, rows: OrderRows, negatives: NegativeBatch, loss_spec: OrderLossSpec,
           lr: float) -> tuple[float, np.ndarray]:
    """Update the table in place. Returns the loss and the scores of the negatives (B, K)."""
    x, k = table.x, negatives.ids.shape[1]
    false_negatives = set() if negatives.false_negatives is None else set(zip(*negatives.false_negatives.tolist(),
                                                                              strict=True))
    scores, loss = np.zeros((len(rows.given), k)), 0.0
    for r, (g, target, slot) in enumerate(zip(*(values.tolist() for values in rows), strict=True)):
        draw, sign = r // negatives.share, 1 - 2 * slot
        ids = [target, *negatives.ids[draw].tolist()]                                 # the target first
        def value(i: int) -> np.ndarray:
            return np.abs(x[i].astype(np.float64)) if loss_spec.abs else x[i].astype(np.float64)
        z = [np.maximum(sign * (value(c) - value(g)), 0) for c in ids]
        energy = np.array([(excess * excess).sum() for excess in z])
        scores[r] = -energy[1:]
        weight = np.ones(k) if negatives.weight is None else np.broadcast_to(negatives.weight,
                                                                             negatives.ids.shape)[draw]
        is_kept = np.array([(r, j) not in false_negatives and not (negatives.mask_target and ids[j + 1] == target)
                         for j in range(k)], bool)
        target_energy = energy[0] if loss_spec.loss == "margin" else 0.0
        hinge = np.where(is_kept, weight * np.maximum(loss_spec.margin + target_energy - energy[1:], 0), 0.0)
        active = np.where(hinge != 0, weight, 0.0)
        loss += hinge.sum() + (0.0 if loss_spec.loss == "margin" else energy[0])
        slopes = [active.sum() if loss_spec.loss == "margin" else 1.0, *(-active)]    # ∂L/∂E
        gradient: dict[int, np.ndarray] = {}
        for c, a, excess in zip(ids, slopes, z, strict=True):
            for row, direction in ((c, sign), (g, -sign)):
                slope = np.sign(x[row].astype(np.float64)) if loss_spec.abs else 1.0
                gradient[row] = gradient.get(row, 0.0) + 2 * a * direction * excess * slope
        for row, values in gradient.items():
            rate = lr
            if table.acc is not None:
                table.acc[row] += np.mean(values * values)
                rate = lr / (math.sqrt(table.acc[row]) + EPS)
            x[row] -= rate * values
            if not loss_spec.abs:
                x[row] = np.maximum(x[row], 0)
    return loss, scores
