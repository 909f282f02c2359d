"""The update of TransE and DistMult in NumPy, row by row in float64.

A row is a query with an entity a and a relation r, its target and K negatives b. The score s_b is −‖q − b‖ with
q = a ± r (l1, l2; minus if the head is predicted), or q·b with q = a ∘ r (dot). A unit is a row, or the rows that share
one draw of negatives.
Scores, slopes and q are evaluated before a unit. Then its rows are updated in turn, each from its current value:

    l1  ∂s/∂b = sign(q − b) = −∂s/∂q      l2  ∂s/∂b = (q − b) / ‖q − b‖ = −∂s/∂q      dot  ∂s/∂b = q, ∂s/∂q = b

with the ‖q − b‖ of the score. Shared negatives are updated by the sum of their slopes over the rows. Finally the
updated entities are projected onto the constraint.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from embtrain.kernels.arguments.updates import TripleLossSpec, TripleQueries
from embtrain.kernels.core.tables import NegativeBatch, Table, subtracts_log_q
from embtrain.kernels.reference.training.rows import draw_terms, false_negative_pairs, update_row
from embtrain.kernels.reference.training.skipgram import Pair, slopes


class _Row(NamedTuple):
    """One row before the update of its unit."""

    q: np.ndarray      # (D,)
    a: np.ndarray      # (D,) its entity
    r: np.ndarray      # (D,) its relation
    s_t: float         # score of its target
    s: np.ndarray      # (K,) scores of its negatives
    g_t: float         # ∂L/∂s_t
    g: np.ndarray      # (K,) ∂L/∂s


def update(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch, loss_spec: TripleLossSpec, lr: float,
           ) -> tuple[float, np.ndarray, np.ndarray | None]:
    """Update the tables of entities e and relations r in place. Returns the loss, summed over rows, the scores of the
    negatives (G, K), and ∂L/∂c of the learned log Z, None if it learns none.
    """
    scores, loss = np.zeros(negatives.ids.shape), 0.0
    c_grad = None if loss_spec.c is None else np.zeros(())
    false_negatives = false_negative_pairs(negatives)
    n, unit = len(queries.target), max(1, negatives.share)
    for first in range(0, n, unit):
        rows = list[_Row]()
        draw = first // negatives.share if negatives.share else first
        ids = negatives.ids[draw]
        for i in range(first, min(n, first + unit)):
            row, value, g_c = _row(e, r, queries, negatives, loss_spec, false_negatives, i, draw)
            rows.append(row)
            loss += value
            scores[draw] += row.s / (min(n, first + unit) - first)
            if c_grad is not None:
                c_grad += g_c
        dq = [np.zeros(e.x.shape[1]) for _ in rows]
        before = e.x[ids].astype(np.float64)                                             # (K, D)
        moved_ids = list[int]()
        for i, (row, dq_i) in enumerate(zip(rows, dq, strict=True), first):
            column_terms = zip(ids.tolist(), row.g, row.s, strict=True)
            for b, g, s in [(int(queries.target[i]), row.g_t, row.s_t), *([] if negatives.share else column_terms)]:
                if g != 0:
                    x = e.x[b].astype(np.float64)
                    dq_i += g * gradient_q(row.q, x, s, loss_spec)
                    update_row(e, b, g * gradient_b(row.q, x, s, loss_spec), lr, _mean_square(g, row.q, s, loss_spec))
                    moved_ids.append(b)
        for j, b in enumerate(ids.tolist() if negatives.share else []):
            for row, dq_i in zip(rows, dq, strict=True):
                dq_i += row.g[j] * gradient_q(row.q, before[j], row.s[j], loss_spec)
            update_row(e, b, sum(row.g[j] * gradient_b(row.q, before[j], row.s[j], loss_spec) for row in rows), lr)
            moved_ids.append(b)
        for i, (row, dq_i) in enumerate(zip(rows, dq, strict=True), first):
            if not moved_ids and not negatives.share:
                continue
            dot, sign = loss_spec.score == "dot", -1.0 if queries.slot[i] else 1.0
            update_row(e, int(queries.entity[i]), dq_i * row.r if dot else dq_i, lr)
            update_row(r, int(queries.relation[i]), dq_i * row.a if dot else sign * dq_i, lr)
            moved_ids.append(int(queries.entity[i]))
        if loss_spec.constraint != "free":
            for b in dict.fromkeys(moved_ids):
                length = float(np.sqrt(np.square(e.x[b].astype(np.float64)).sum()))
                e.x[b] /= max(length, 1e-12) if loss_spec.constraint == "sphere" else max(length, 1.0)
    return loss, scores, c_grad


def score(q: np.ndarray, b: np.ndarray, loss_spec: TripleLossSpec) -> np.ndarray:
    """Scores s of candidates b (..., D)."""
    if loss_spec.score == "dot":
        return b @ q
    return -np.abs(q - b).sum(-1) if loss_spec.score == "l1" else -np.sqrt(np.square(q - b).sum(-1))


def gradient_b(q: np.ndarray, b: np.ndarray, s: float, loss_spec: TripleLossSpec) -> np.ndarray:
    """∂s/∂b."""
    if loss_spec.score == "dot":
        return q
    if loss_spec.score == "l1":
        return np.sign(q - b)
    return (q - b) / -s if s < 0 else np.zeros_like(q)


def gradient_q(q: np.ndarray, b: np.ndarray, s: float, loss_spec: TripleLossSpec) -> np.ndarray:
    """∂s/∂q."""
    return b if loss_spec.score == "dot" else -gradient_b(q, b, s, loss_spec)


def _row(e: Table, r: Table, queries: TripleQueries, negatives: NegativeBatch, loss_spec: TripleLossSpec,
         false_negatives: set[tuple[int, int]], i: int, draw: int,
         ) -> tuple[_Row, float, float]:
    """One row, its loss and ∂L/∂c."""
    a, r_vec = e.x[queries.entity[i]].astype(np.float64), r.x[queries.relation[i]].astype(np.float64)
    q = a * r_vec if loss_spec.score == "dot" else a - r_vec if queries.slot[i] else a + r_vec
    ids, t = negatives.ids[draw], int(queries.target[i])
    s_t, s = float(score(q, e.x[t].astype(np.float64), loss_spec)), score(q, e.x[ids].astype(np.float64), loss_spec)
    weight, is_kept, log_q, log_q_t = draw_terms(negatives, false_negatives, t, i, draw)
    gamma = loss_spec.margin if loss_spec.loss == "self_adversarial" else 0.0
    pair = Pair(gamma + s_t, gamma + s, log_q_t, log_q, weight, is_kept, 0.0 if loss_spec.c
                is None else float(loss_spec.c),
                math.log(negatives.total_weight) if subtracts_log_q(loss_spec) else 0.0)
    if loss_spec.loss == "self_adversarial":
        x = np.where(is_kept, loss_spec.temperature * s, -np.inf)
        w = weight * np.exp(x - x.max()) if is_kept.any() else np.zeros(len(ids))
        pair = pair._replace(weight=w / w.sum() if is_kept.any() else w)
        loss_spec = loss_spec._replace(loss="logistic")
    loss, g_t, g, g_c = slopes(pair, loss_spec)
    factor = 1.0 if queries.weight is None else float(queries.weight[i])
    return _Row(q, a, r_vec, s_t, s, factor * g_t, factor * g), factor * loss, factor * g_c


def _mean_square(g: float, q: np.ndarray, s: float, loss_spec: TripleLossSpec) -> float:
    """Mean square of g ∂s/∂b where the slopes are evaluated, before the unit: a row that repeats has moved since."""
    if loss_spec.score == "dot":
        return g * g * float(np.mean(q * q))
    return g * g if loss_spec.score == "l1" else g * g / len(q) if s < 0 else 0.0
