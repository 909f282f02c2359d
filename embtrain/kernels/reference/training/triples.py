"""The update of triples, slow and obvious: embtrain/kernels/training/triples.py row by row, in float64.

Scores, slopes and q at the values before a unit; then its rows one after the other, each from where it stands by then:

    l1  ∂s/∂b = sign(q − b) = −∂s/∂q      l2  ∂s/∂b = (q − b) / ‖q − b‖ = −∂s/∂q      dot  ∂s/∂b = q, ∂s/∂q = b

with the ‖q − b‖ of the score. Columns that are shared are moved by the sum of their slopes over the rows. At last the
entities that moved are brought back onto the sphere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embtrain.kernels.core.tables import corrects
from embtrain.kernels.reference.training import skipgram as windows
from embtrain.kernels.reference.training.skipgram import EPS, Pair

if TYPE_CHECKING:
    from embtrain.kernels.core.tables import Columns, Table
    from embtrain.kernels.training.triples import Asked, Rule


class _Row(NamedTuple):
    """One row before its unit moves."""

    q: np.ndarray      # (D,)
    a: np.ndarray      # (D,) its entity
    r: np.ndarray      # (D,) its relation
    s_t: float
    s: np.ndarray      # (K,)
    g_t: float
    g: np.ndarray      # (K,)


def update(e: Table, r: Table, asked: Asked, columns: Columns, rule: Rule, lr: float,
           ) -> tuple[float, np.ndarray, np.ndarray | None]:
    """Updates e and r in place; the loss, the columns' scores (G, K), and ∂L/∂c."""
    scores, loss = np.zeros(columns.ids.shape), 0.0
    c_grad = None if rule.c is None else np.zeros(())
    right = set() if columns.right is None else set(zip(*columns.right.tolist(), strict=True))
    n, unit = len(asked.target), max(1, columns.share)
    for first in range(0, n, unit):
        rows = list[_Row]()
        draw = first // columns.share if columns.share else first
        ids = columns.ids[draw]
        for i in range(first, min(n, first + unit)):
            row, value, g_c = _row(e, r, asked, columns, rule, right, i, draw)
            rows.append(row)
            loss += value
            scores[draw] += row.s / (min(n, first + unit) - first)
            if c_grad is not None:
                c_grad += g_c
        dq = [np.zeros(e.x.shape[1]) for _ in rows]
        before = e.x[ids].astype(np.float64)                                             # (K, D)
        moved = list[int]()
        for i, (row, dq_i) in enumerate(zip(rows, dq, strict=True), first):
            own = zip(ids.tolist(), row.g, row.s, strict=True)
            for b, g, s in [(int(asked.target[i]), row.g_t, row.s_t), *([] if columns.share else own)]:
                if g != 0:
                    x = e.x[b].astype(np.float64)
                    dq_i += g * by_q(row.q, x, s, rule)
                    _move(e, b, g * by_b(row.q, x, s, rule), lr)
                    moved.append(b)
        for j, b in enumerate(ids.tolist() if columns.share else []):
            for row, dq_i in zip(rows, dq, strict=True):
                dq_i += row.g[j] * by_q(row.q, before[j], row.s[j], rule)
            _move(e, b, sum(row.g[j] * by_b(row.q, before[j], row.s[j], rule) for row in rows), lr)
            moved.append(b)
        for i, (row, dq_i) in enumerate(zip(rows, dq, strict=True), first):
            if not moved and not columns.share:
                continue
            dot, sign = rule.score == "dot", -1.0 if asked.slot[i] else 1.0
            _move(e, int(asked.entity[i]), dq_i * row.r if dot else dq_i, lr)
            _move(r, int(asked.relation[i]), dq_i * row.a if dot else sign * dq_i, lr)
            moved.append(int(asked.entity[i]))
        if rule.onto != "free":
            for b in dict.fromkeys(moved):
                length = float(np.sqrt(np.square(e.x[b].astype(np.float64)).sum()))
                e.x[b] /= max(length, 1e-12) if rule.onto == "sphere" else max(length, 1.0)
    return loss, scores, c_grad


def score(q: np.ndarray, b: np.ndarray, rule: Rule) -> np.ndarray:
    """s of candidates b (..., D)."""
    if rule.score == "dot":
        return b @ q
    return -np.abs(q - b).sum(-1) if rule.score == "l1" else -np.sqrt(np.square(q - b).sum(-1))


def by_b(q: np.ndarray, b: np.ndarray, s: float, rule: Rule) -> np.ndarray:
    """∂s/∂b."""
    if rule.score == "dot":
        return q
    if rule.score == "l1":
        return np.sign(q - b)
    return (q - b) / -s if s < 0 else np.zeros_like(q)


def by_q(q: np.ndarray, b: np.ndarray, s: float, rule: Rule) -> np.ndarray:
    """∂s/∂q."""
    return b if rule.score == "dot" else -by_b(q, b, s, rule)


def _row(e: Table, r: Table, asked: Asked, columns: Columns, rule: Rule, right: set[tuple[int, int]], i: int, draw: int,
         ) -> tuple[_Row, float, float]:
    """The row, its loss and ∂L/∂c."""
    a, of_r = e.x[asked.entity[i]].astype(np.float64), r.x[asked.relation[i]].astype(np.float64)
    q = a * of_r if rule.score == "dot" else a - of_r if asked.slot[i] else a + of_r
    ids, t = columns.ids[draw], int(asked.target[i])
    s_t, s = float(score(q, e.x[t].astype(np.float64), rule)), score(q, e.x[ids].astype(np.float64), rule)
    weight, kept, log_q, log_q_t = windows.drawn(columns, right, t, i, draw)
    gamma = rule.margin if rule.loss == "self_adversarial" else 0.0
    pair = Pair(gamma + s_t, gamma + s, log_q_t, log_q, weight, kept, 0.0 if rule.c is None else float(rule.c),
                math.log(columns.mass) if corrects(rule) else 0.0)
    if rule.loss == "self_adversarial":
        x = np.where(kept, rule.temperature * s, -np.inf)
        w = weight * np.exp(x - x.max()) if kept.any() else np.zeros(len(ids))
        pair = pair._replace(weight=w / w.sum() if kept.any() else w)
        rule = rule._replace(loss="logistic")
    loss, g_t, g, g_c = windows.slopes(pair, rule)
    return _Row(q, a, of_r, s_t, s, g_t, g), loss, g_c


def _move(table: Table, row: int, g: np.ndarray, lr: float) -> None:
    rate = lr
    if table.acc is not None:
        table.acc[row] += np.mean(g * g)
        rate = lr / (math.sqrt(table.acc[row]) + EPS)
    table.x[row] -= rate * g
