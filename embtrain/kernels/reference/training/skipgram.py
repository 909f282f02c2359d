"""The skip-gram update in NumPy, pair by pair in float64: scores, loss, gradients and updated rows.

A pair is a centre word a with table row u_a, and a context word b with row v_b: the target or one of K negatives.
In a unit (one window, or the windows of a block) every gradient is evaluated before the unit. Gradients of a repeated
row are summed, and then each row is updated once:

    s_ab = u_a · v_b      ∂L/∂u_a = Σ_b (∂L/∂s_ab) v_b      ∂L/∂v_b = Σ_a (∂L/∂s_ab) u_a

With a RowPool, u_a is the sum or the mean of several rows, and each of them receives ∂L/∂u_a as its gradient, under the
mean too: as in fastText [bojanowski2017], so that a row's step does not shrink with the length of its words.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from embtrain.kernels.arguments.updates import RowPool, SkipGramLossSpec, Windows
from embtrain.kernels.core.tables import NegativeBatch, Table, reads_total_weight
from embtrain.kernels.reference.training.rows import EPS, draw_terms, false_negative_pairs

MAX_EXPONENT = 10.0  # α-NCE: greater exponents of a power are continued by its tangent


class SlopeSpec(Protocol):
    """The part of a loss spec that `slopes` needs."""

    @property
    def loss(self) -> str: ...
    @property
    def margin(self) -> float: ...
    @property
    def ranking(self) -> bool: ...
    @property
    def positive_weight(self) -> float: ...


class PowerSpec(SlopeSpec, Protocol):
    """The part that α-NCE needs too."""

    @property
    def alpha(self) -> float: ...
    @property
    def centered(self) -> bool: ...


class Pair(NamedTuple):
    """The scores of one target t with K negatives, and what the loss subtracts from them."""

    s_t: float              # score of the target
    s: np.ndarray           # (K,) scores of the negatives
    log_q_t: float          # log probability of the target under the noise distribution q
    log_q: np.ndarray       # (K,) those of the negatives
    weight: np.ndarray      # (K,) weights of the negatives in the loss
    is_kept: np.ndarray     # (K,) bool: not masked and of nonzero weight
    c: float                # learned log Z that NCE subtracts; 0 if it learns none
    log_total_weight: float  # log M, M = Σ weight; 0 if the loss does not read it


def update(u: Table, v: Table, windows: Windows, negatives: NegativeBatch, loss_spec: SkipGramLossSpec, lr: float,
           pool: RowPool | None = None) -> tuple[float, np.ndarray, np.ndarray | None]:
    """Update the tables u and v in place by all windows. pool: of centres; None: each centre is a row of u.

    Returns the loss, summed over pairs, the scores of the negatives (G, K), and ∂L/∂c of the learned log Z, None if it
    learns none.
    """
    n_draws, k = negatives.ids.shape
    scores = np.zeros((n_draws, k))
    c_grad = None if loss_spec.c is None else np.zeros(loss_spec.c.shape)
    false_negatives = false_negative_pairs(negatives)
    loss, n, unit = 0.0, len(windows.centre), max(1, negatives.share)
    for first in range(0, n, unit):
        du, dv = dict[int, np.ndarray](), dict[int, np.ndarray]()
        for w in range(first, min(n, first + unit)):
            a = int(windows.centre[w])
            rows, x = _vector(u, a, pool)
            for p in range(int(windows.start[w]), int(windows.start[w + 1])):
                g = p if negatives.share == 0 else w // negatives.share
                t, ids = int(windows.target[p]), negatives.ids[g].tolist()
                pair = _pair(x, v, negatives, loss_spec, false_negatives, a, t, p, g)
                value, g_t, g_j, g_c = power_slopes(pair, loss_spec) if loss_spec.loss == "alpha_nce" else \
                    slopes(pair, loss_spec)
                loss += value
                if c_grad is not None:
                    c_grad[a if c_grad.ndim else ()] += g_c
                for b, slope in zip([t, *ids], [g_t, *g_j], strict=True):
                    for row in rows:
                        _add(du, row, slope * v.x[b].astype(np.float64))
                    _add(dv, b, slope * x)
            pairs = w if negatives.share else slice(int(windows.start[w]), int(windows.start[w + 1]))
            if negatives.share:
                g = w // negatives.share
                scores[g] += v.x[negatives.ids[g]].astype(np.float64) @ x / (min(n, first + unit) - first)
            else:
                scores[pairs] = v.x[negatives.ids[pairs]].astype(np.float64) @ x
        _move(u, du, lr)
        _move(v, dv, lr)
    return loss, scores, c_grad


def _vector(u: Table, a: int, pool: RowPool | None) -> tuple[list[int], np.ndarray]:
    """The rows of centre a and its vector (D,) in float64."""
    rows = [a] if pool is None else pool.row[pool.start[a]:pool.start[a + 1]].tolist()
    x = u.x[rows].astype(np.float64).sum(0)
    return rows, x / len(rows) if pool is not None and pool.mean else x


def _pair(x: np.ndarray, v: Table, negatives: NegativeBatch, loss_spec: SkipGramLossSpec,
          false_negatives: set[tuple[int, int]], a: int, t: int, p: int, g: int,
          ) -> Pair:
    ids = negatives.ids[g]
    weight, is_kept, log_q, log_q_t = draw_terms(negatives, false_negatives, t, p, g)
    c = 0.0 if loss_spec.c is None else float(loss_spec.c[a] if loss_spec.c.ndim else loss_spec.c)
    log_total_weight = math.log(negatives.total_weight) if reads_total_weight(loss_spec) else 0.0
    return Pair(float(v.x[t] @ x), v.x[ids].astype(np.float64) @ x, log_q_t, log_q, weight, is_kept, c,
                log_total_weight)


def slopes(pair: Pair, loss_spec: SlopeSpec) -> tuple[float, float, np.ndarray, float]:
    """The loss of a pair, ∂L/∂s_t, ∂L/∂s_j (K,), ∂L/∂c. Masked negatives have slope 0, whatever their values."""
    s_t, s, kept, k = pair.s_t, pair.s, np.flatnonzero(pair.is_kept), len(pair.s)
    g = np.zeros(k)
    w = pair.weight[kept]
    if loss_spec.loss == "margin":
        hinge = loss_spec.margin + s[kept] - s_t
        g[kept] = w * (hinge > 0)
        return float(w @ np.maximum(hinge, 0)), -float(g.sum()), g, 0.0
    if loss_spec.loss == "sampled_softmax":
        if len(kept) == 0:
            return 0.0, 0.0, g, 0.0
        o_t = s_t - pair.log_q_t if loss_spec.ranking else s_t
        o = s[kept] - pair.log_q[kept] - (0.0 if loss_spec.ranking else pair.log_total_weight) + np.log(w)
        others = float(np.logaddexp.reduce(o))
        beaten = float(sigmoid(others - o_t))
        g[kept] = beaten * np.exp(o - others)
        return float(softplus(others - o_t)), -beaten, g, 0.0
    if loss_spec.loss == "nce":
        s_t = s_t - pair.c - (pair.log_total_weight + pair.log_q_t)
        s = s - pair.c - (pair.log_total_weight + pair.log_q)
    g[kept] = w * sigmoid(s[kept])
    beta = loss_spec.positive_weight if loss_spec.loss == "gbce" else 1.0
    g_t = -beta * float(sigmoid(-s_t))
    return beta * float(softplus(-s_t)) + float(w @ softplus(s[kept])), g_t, g, -g_t - float(g.sum())


def power_slopes(pair: Pair, loss_spec: PowerSpec) -> tuple[float, float, np.ndarray, float]:
    """`slopes` of α-NCE (embtrain/losses/alpha_nce.py)."""
    kept, g, alpha = np.flatnonzero(pair.is_kept), np.zeros(len(pair.s)), loss_spec.alpha
    o_t, a = pair.s_t - pair.log_q_t, alpha * (pair.s[kept] - pair.log_q[kept]) + np.log(pair.weight[kept])
    log_sum = float(np.logaddexp.reduce(a)) if len(kept) else -math.inf
    log_a = log_sum - pair.log_total_weight
    if not loss_spec.centered:
        (first, d_first), (second, d_second) = _power((alpha - 1) * o_t), _power(log_a)
        g[kept] = d_second * np.exp(a - log_sum)
        return first / (1 - alpha) + second / alpha, -d_first, g, 0.0
    if len(kept) == 0:
        return 0.0, 0.0, g, 0.0
    gap = log_a / alpha - o_t
    value, slope = (gap, 1.0) if alpha == 1 else _power((1 - alpha) * gap)
    g[kept] = slope * np.exp(a - log_sum)
    return value if alpha == 1 else (value - 1) / (1 - alpha), -slope, g, 0.0


def _power(x: float) -> tuple[float, float]:
    """e^x, continued by its tangent beyond MAX_EXPONENT, and its slope."""
    slope = math.exp(min(x, MAX_EXPONENT))
    return slope * (1 + max(x - MAX_EXPONENT, 0.0)), slope


def softplus(x: np.ndarray | float) -> np.ndarray:
    return np.logaddexp(0.0, x)


def sigmoid(x: np.ndarray | float) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, np.negative(x)))


def _add(gradients: dict[int, np.ndarray], row: int, gradient: np.ndarray) -> None:
    gradients[row] = gradients.get(row, 0.0) + gradient


def _move(table: Table, gradients: dict[int, np.ndarray], lr: float) -> None:
    for row, g in gradients.items():
        if table.acc is None:
            table.x[row] -= lr * g
        else:
            table.acc[row] += np.mean(g * g)
            table.x[row] -= lr * g / (math.sqrt(table.acc[row]) + EPS)
