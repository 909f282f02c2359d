"""The update of points in hyperbolic space, in NumPy: Poincaré embeddings, entailment cones and shadow cones.

An example has a concept g, a target t that is a hypernym of g (slot 0) or a hyponym of g (slot 1), and K negatives j.
All are rows of one table x (n, D). A candidate c has the score s(u, v) of the hyponym u and the hypernym v, g and c in
the order of the slot. δ = u − v, q = ‖δ‖², n = ‖v‖. In the half-space, a row is (y, log h), and δ is of y alone.

    poincare   −2 arsinh √z,  z = q / ((1 − ‖u‖²)(1 − ‖v‖²))
    cone       arcsin(K (1 − n²) / n) − atan2((1 − n²) ‖δ − o v/n‖, (1 − n²) o − q n),  o = v · δ / n
    umbral     −arsinh((√q − sinh(r) h_v) / h_u) − r, or −d
    penumbral  −arsinh(√q / h_u · √(1 − σ²) − c σ), or −d,  σ = h_v / H, c = (h_v² − h_u² − q) / (2 h_u h_v)
               d = 2 arsinh √z,  z = q / (4 h_u h_v) + sinh²(log(h_u / h_v) / 2), if v is the nearest point of the edge

The losses are those of HyperbolicLossSpec. Scores and gradients of an example are evaluated before its update, those
of a repeated concept are summed and multiplied by the inverse metric: ((1 − ‖x‖²) / 2)² in the ball, h² for y in the
half-space. SGD or row-Adagrad then moves each row once, and the row returns into its bounds. [nickel2017],
[ganea2018] eq. 26 and 28, [yu2024].

Examples are updated one after the other, in float64. kernels/training/hyperbolic.py runs this file if the compiled
core, the C++ library, is missing; the tests compare the two.
"""

from __future__ import annotations

import math

import numpy as np

from embtrain.kernels.arguments.pairs import HyperbolicLossSpec, HyperbolicSpace, PairRows
from embtrain.kernels.core.tables import NegativeBatch, Table
from embtrain.kernels.reference.training.rows import draw_terms, false_negative_pairs, update_row

TINY = 1e-30             # under a root: its slope at 0 is infinite
MIN_AWAY = 1e-10         # distance from the axis of a cone below which the angle has no slope
MAX_SINE = 1 - 1e-12     # the slope of arcsin at 1 is infinite

Scored = tuple[float, np.ndarray, np.ndarray]  # s, ∂s/∂u, ∂s/∂v


def update(table: Table, rows: PairRows, negatives: NegativeBatch, space: HyperbolicSpace,
           loss_spec: HyperbolicLossSpec, lr: float) -> tuple[float, np.ndarray]:
    """Update the table (n, D) in place by B examples. Returns the sum of their losses and the scores s_j (B, K)."""
    x, k = table.x, negatives.ids.shape[1]
    false_negatives = false_negative_pairs(negatives)
    scores, loss = np.zeros((len(rows.concept), k)), 0.0
    for example, (g, target, slot) in enumerate(zip(*(field.tolist() for field in rows), strict=True)):
        draw = example // negatives.share
        candidates = [target, *negatives.ids[draw].tolist()]                    # the target first, then K negatives
        results = [pair_score(space, x[c], x[g]) if slot else pair_score(space, x[g], x[c]) for c in candidates]
        s = np.array([result[0] for result in results])                         # (1 + K,)
        scores[example] = s[1:]
        weight, is_kept, log_q, _ = draw_terms(negatives, false_negatives, target, example, draw)
        log_total_weight = math.log(negatives.total_weight) if negatives.total_weight > 0 else 0.0
        cost, slopes = loss_and_slopes(loss_spec, s, np.where(is_kept, weight, 0.0), log_q + log_total_weight)
        loss += cost
        gradients: dict[int, np.ndarray] = {}                                   # of each concept in the example: ∂L/∂x
        for c, slope, (_, of_u, of_v) in zip(candidates, slopes, results, strict=True):
            for concept, of_end in ((c, of_u if slot else of_v), (g, of_v if slot else of_u)):
                gradients[concept] = gradients.get(concept, 0.0) + slope * of_end
        for concept, gradient in gradients.items():
            update_row(table, concept, gradient * inverse_metric(space, x[concept]), lr)
            x[concept] = bounded(space, x[concept])
    return loss, scores


def loss_and_slopes(loss_spec: HyperbolicLossSpec, s: np.ndarray, weight: np.ndarray, shift: np.ndarray
                    ) -> tuple[float, np.ndarray]:
    """Return the loss of one example, and ∂L/∂s (1 + K,) of its target and negatives.

    s (1 + K,): scores. weight (K,): 0 at masked negatives. shift (K,): log(M q) of the negatives.
    """
    hinge = np.where(weight > 0, np.maximum(loss_spec.margin + s[1:], 0), 0.0)     # a masked score can be NaN
    if loss_spec.loss == "order":
        return float(np.maximum(-s[0], 0) + weight @ hinge), np.array([-float(s[0] < 0), *(weight * (hinge > 0))])
    kept = weight > 0
    if not kept.any():
        return 0.0, np.zeros(len(s))
    is_hinged = loss_spec.loss == "hinged_softmax"
    logits = hinge if is_hinged else s[1:] - shift
    top = logits[kept].max()
    exponentials = np.where(kept, weight * np.exp(np.where(kept, logits, top) - top), 0.0)
    z = top + math.log(exponentials.sum()) - (min(s[0], 0.0) if is_hinged else s[0])
    slope = math.exp(-np.logaddexp(0, -z))                                       # of log(1 + eᶻ)
    of_negatives = slope * exponentials / exponentials.sum()
    if is_hinged:
        return float(np.logaddexp(0, z)), np.array([-slope * (s[0] < 0), *(of_negatives * (hinge > 0))])
    return float(np.logaddexp(0, z)), np.array([-slope, *of_negatives])


def pair_score(space: HyperbolicSpace, u: np.ndarray, v: np.ndarray) -> Scored:
    """Return the score s of a hyponym u and a hypernym v (D,), ∂s/∂u and ∂s/∂v (D,)."""
    if space.score == "poincare":
        return _poincare(u, v)
    if space.score == "cone":
        return _cone(u, v, space.size)
    gap, q = u[:-1] - v[:-1], float(((u - v)[:-1] ** 2).sum()) + TINY
    s, of_t_u, of_t_v, of_q = (_umbral if space.score == "umbral" else _penumbral)(q, u[-1], v[-1], space.size)
    return s, np.append(2 * of_q * gap, of_t_u), np.append(-2 * of_q * gap, of_t_v)


def inverse_metric(space: HyperbolicSpace, x: np.ndarray) -> np.ndarray:
    """Return the diagonal of the inverse metric at a point x (D,), (D,)."""
    if space.score in ("poincare", "cone"):
        return np.full(len(x), ((1 - (x * x).sum()) / 2) ** 2)
    return np.append(np.full(len(x) - 1, math.exp(2 * x[-1])), 1.0)


def bounded(space: HyperbolicSpace, x: np.ndarray) -> np.ndarray:
    """Return the point x (D,), moved into the bounds: of its norm, or of its log height."""
    if space.score in ("umbral", "penumbral"):
        return np.append(x[:-1], np.clip(x[-1], space.low, space.high))
    norm = math.sqrt((x * x).sum())
    if not (norm < space.low or norm > space.high):      # also NaN, which training reports
        return x
    return x * (min(max(norm, space.low), space.high) / norm) if norm > 0 else space.low * np.eye(1, len(x))[0]


def _poincare(u: np.ndarray, v: np.ndarray) -> Scored:
    gap, room_u, room_v = u - v, 1 - (u * u).sum(), 1 - (v * v).sum()
    z = ((gap * gap).sum() + TINY) / (room_u * room_v)
    slope = -1 / math.sqrt(z * (1 + z))
    across = 2 * gap / (room_u * room_v)
    return -2 * math.asinh(math.sqrt(z)), slope * (across + 2 * z / room_u * u), slope * (2 * z / room_v * v - across)


def _cone(u: np.ndarray, v: np.ndarray, aperture: float) -> Scored:
    norm, gap = math.sqrt((v * v).sum()), u - v
    axis, shrunk, q = v / norm, 1 - norm * norm, (gap * gap).sum()
    outward = float(axis @ gap)
    sideways = gap - outward * axis
    away = math.sqrt((sideways * sideways).sum())
    across, along = shrunk * away, shrunk * outward - q * norm
    square = across * across + along * along
    of_across, of_along = (along / square, -across / square) if square > 0 else (0.0, 0.0)
    unit = sideways / away if away > MIN_AWAY else np.zeros(len(v))
    of_gap = of_across * shrunk * unit + of_along * (shrunk * axis - 2 * norm * gap)
    of_v = of_across * (-shrunk * outward / norm * unit - 2 * away * v) \
        + of_along * (shrunk / norm * sideways - 2 * outward * v - q * axis)
    sine = aperture * shrunk / norm
    of_psi = np.zeros(len(v)) if sine > MAX_SINE else \
        -aperture * (1 + 1 / (norm * norm)) / math.sqrt((1 - sine) * (1 + sine)) * axis
    return math.asin(min(sine, MAX_SINE)) - math.atan2(across, along), -of_gap, of_psi - of_v + of_gap


def _to_apex(q: float, t_u: float, t_v: float) -> tuple[float, float, float, float]:
    across, room = q * math.exp(-t_u - t_v) / 4, 4 * math.exp(t_u + t_v)
    z = across + math.sinh((t_u - t_v) / 2) ** 2
    slope, turn = -1 / math.sqrt(z * (1 + z)), math.sinh(t_u - t_v) / 2
    return -2 * math.asinh(math.sqrt(z)), slope * (turn - across), slope * (-turn - across), slope / room


def _umbral(q: float, t_u: float, t_v: float, r: float) -> tuple[float, float, float, float]:
    """Return s and its slopes in log h_u, in log h_v and in q."""
    gap, h_u, h_v = math.sqrt(q), math.exp(t_u), math.exp(t_v)
    outside = gap - math.sinh(r) * h_v
    # outside² + h_u² > (cosh(r) h_v)², without cancellation: it does not hold for u = v
    if gap * (gap - 2 * math.sinh(r) * h_v) > (h_v - h_u) * (h_v + h_u):
        return _to_apex(q, t_u, t_v)
    x = outside / h_u
    slope = -1 / math.sqrt(1 + x * x)
    return -math.asinh(x) - r, -slope * x, -slope * math.sinh(r) * h_v / h_u, slope / (2 * h_u * gap)


def _penumbral(q: float, t_u: float, t_v: float, height: float) -> tuple[float, float, float, float]:
    """Return s and its slopes in log h_u, in log h_v and in q."""
    gap, h_u, h_v = math.sqrt(q), math.exp(t_u), math.exp(t_v)
    sine = h_v / height
    under = (1 - sine) * (1 + sine)
    cosine, across, down = math.sqrt(max(under, TINY)), gap / h_u, ((h_v - h_u) * (h_v + h_u) - q) / (2 * h_u * h_v)
    if down * cosine + across * sine < 0:
        return _to_apex(q, t_u, t_v)
    y = across * cosine - down * sine
    slope = -1 / math.sqrt(1 + y * y)
    turn = -across * sine**2 / cosine if under >= TINY else 0.0
    return (-math.asinh(y), slope * (-across * cosine + (down + h_u / h_v) * sine), slope * (turn - sine * h_v / h_u),
            slope * (cosine / (2 * h_u * gap) + sine / (2 * h_u * h_v)))
