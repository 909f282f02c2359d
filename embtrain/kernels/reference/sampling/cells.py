"""Draws a cell by its mass, then a candidate inside it by a softmax of its scores, in NumPy float64.

    q(i|h) = P(c) r(i|c, h)       P(c) = M_c / Σ M       r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j}
    o_i = h·c_i, or h·c_i / ‖c_i‖ if the candidates are unit vectors

A cell c is a cluster of candidates that are contiguous in the order of places, M_c its approximate mass for the query
h: e^{log_mass}, or size e^{h·mean}. If a target is excluded, its cell keeps the share 1 − r of its mass, and r is that
of the others. `draw` returns ids (G, K), log q (G, K) and the log q of the targets (B,). kernels/sampling/cells.py runs
this file if the compiled core is missing; the tests compare the two.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.cells import CellDrawRequest, CellLayout, CellMembers
from embtrain.kernels.reference import ZERO_POINT, quantize, uniform01

MIN_LOG_MASS = -87.0    # log of the smallest mass relative to the largest


def draw(layout: CellLayout, request: CellDrawRequest, k: int, exclude: bool, seeds: tuple[int, int], first: int
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert request.draw_query is not None and request.row_query is not None
    members, n, h, log_mass = layout.members, len(request.draw_query), request.h.astype(np.float64), request.log_mass
    if request.tau > 0:
        h *= request.tau / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    if log_mass is None:
        assert layout.mean is not None and layout.log_size is not None
        rounded_h, mean = (x if members.copy is None else rounded(x) for x in (h, layout.mean))
        log_mass = layout.log_size + rounded_h @ mean.T.astype(np.float64)                # (Q, C)
    target_cell, target_place = layout.cell_of[request.target], layout.place_of[request.target]  # (B,) each
    _, log_r, rest = inside(members, h, request.row_query, target_cell, target_place, None, 0, 0)
    cell, log_q = np.empty((n, k), np.int64), np.empty((n, k))
    u = uniform01(seeds[0], first * k + np.arange(n * k)).reshape(n, k)
    for i, query_id in enumerate(request.draw_query):
        m = masses(log_mass[query_id].astype(np.float64), None)                     # (C,)
        if exclude:
            m[target_cell[i]] *= rest[i]
        cell[i], log_q[i] = find(m, u[i])
    place, log_inside, _ = inside(members, h, request.draw_query.repeat(k), cell.ravel(), np.full(n * k, -1),
                                  target_place.repeat(k) if exclude else None, seeds[1], first * k)
    log_target = np.empty(len(target_cell))
    for r, query_id in enumerate(request.row_query):
        m = masses(log_mass[query_id].astype(np.float64), None)
        log_target[r] = np.log(m[target_cell[r]] / m.sum()) + log_r[r]
    return (members.order[place].reshape(n, k), (log_q + log_inside.reshape(n, k)).astype(np.float32),
            log_target.astype(np.float32))


def rounded(x: np.ndarray) -> np.ndarray:
    """Rows x (n, d) in int8, as float64."""
    integers, scale = quantize(x.astype(np.float32))
    return integers * scale[:, None].astype(np.float64)


def inside(members: CellMembers, h: np.ndarray, query_id: np.ndarray, cell: np.ndarray, wanted: np.ndarray,
           without: np.ndarray | None, seed: int, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = len(query_id)
    place, log_r, rest = np.empty(n, np.int64), np.empty(n), np.empty(n)
    u = uniform01(seed, first + np.arange(n))
    for i in range(n):
        low = members.start[cell[i]]
        m = cell_masses(members, h[query_id[i]], int(cell[i]), None if without is None else int(without[i]))
        slot = wanted[i] - low if wanted[i] >= 0 else find(m, u[i])[0]
        place[i] = low + slot
        log_r[i] = np.log(m[slot] / m.sum()) if m[slot] > 0 else -np.inf
        rest[i] = (m[:slot].sum() + m[slot + 1:].sum()) / m.sum() if m.any() else 1.0
    return place, log_r, rest


def cell_masses(members: CellMembers, h: np.ndarray, cell: int, without: int | None) -> np.ndarray:
    low, high = members.start[cell], members.start[cell + 1]
    o = scores(members, slice(low, high), h)
    return masses(o, without - low if without is not None and low <= without < high else None)


def scores(members: CellMembers, places: slice, h: np.ndarray) -> np.ndarray:
    """Scores o of the given places for h (d,), (n,) float64."""
    if members.copy is not None and members.scale is not None:
        y, scale = quantize(h.astype(np.float32))
        int_products = (members.copy[places].astype(np.int64) - ZERO_POINT) @ y
        quantized_scores: np.ndarray = int_products * (scale * members.scale[places].astype(np.float64))
        return quantized_scores
    c = members.table[members.order[places]].astype(np.float64)
    if members.unit:
        c /= np.maximum(np.linalg.norm(c, axis=1, keepdims=True), 1e-12)
    o: np.ndarray = c @ h.astype(np.float64)
    return o


def masses(log_mass: np.ndarray, skip: int | None) -> np.ndarray:
    is_kept = np.ones(len(log_mass), bool)
    if skip is not None:
        is_kept[skip] = False
    top = log_mass[is_kept].max() if is_kept.any() else 0.0
    return np.where(is_kept, np.exp(np.maximum(log_mass - top, MIN_LOG_MASS)), 0.0)


def find(m: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The index where u falls in the running sums of m, and its log share."""
    ends = m.cumsum()
    slot = np.minimum(np.searchsorted(ends, u * ends[-1], side="right"), np.flatnonzero(m)[-1])
    return slot, np.log(m[slot] / ends[-1])
