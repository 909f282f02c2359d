"""Twin of kernels/sampling/cells.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embtrain.kernels.reference import ZERO, eight_bits, toss

if TYPE_CHECKING:
    from embtrain.kernels.sampling.cells import Asks, Layout, Members

LEAST = -87.0    # log of the least mass, in parts of the largest


def draw(of: Layout, asks: Asks, k: int, exclude: bool, seeds: tuple[int, int], first: int
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert asks.question is not None and asks.asked is not None
    members, n, h, log_mass = of.members, len(asks.question), asks.h.astype(np.float64), asks.log_mass
    if asks.tau > 0:
        h *= asks.tau / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    if log_mass is None:
        assert of.mean is not None and of.log_size is not None
        log_mass = of.log_size + h @ of.mean.T.astype(np.float64)                # (Q, C)
    own, at = of.cell_of[asks.target], of.place_of[asks.target]                 # (B,) each
    _, log_r, others = inside(members, h, asks.asked, own, at, None, 0, 0)
    cell, log_q = np.empty((n, k), np.int64), np.empty((n, k))
    u = toss(seeds[0], first * k + np.arange(n * k)).reshape(n, k)
    for i, question in enumerate(asks.question):
        m = masses(log_mass[question].astype(np.float64), None)                     # (C,)
        if exclude:
            m[own[i]] *= others[i]
        cell[i], log_q[i] = find(m, u[i])
    place, log_inside, _ = inside(members, h, asks.question.repeat(k), cell.ravel(), np.full(n * k, -1),
                                  at.repeat(k) if exclude else None, seeds[1], first * k)
    log_target = np.empty(len(own))
    for r, question in enumerate(asks.asked):
        m = masses(log_mass[question].astype(np.float64), None)
        log_target[r] = np.log(m[own[r]] / m.sum()) + log_r[r]
    return (members.order[place].reshape(n, k), (log_q + log_inside.reshape(n, k)).astype(np.float32),
            log_target.astype(np.float32))


def inside(members: Members, h: np.ndarray, question: np.ndarray, cell: np.ndarray, wanted: np.ndarray,
           without: np.ndarray | None, seed: int, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = len(question)
    place, log_r, others = np.empty(n, np.int64), np.empty(n), np.empty(n)
    u = toss(seed, first + np.arange(n))
    for i in range(n):
        low = members.start[cell[i]]
        m = of_cell(members, h[question[i]], int(cell[i]), None if without is None else int(without[i]))
        at = wanted[i] - low if wanted[i] >= 0 else find(m, u[i])[0]
        place[i] = low + at
        log_r[i] = np.log(m[at] / m.sum()) if m[at] > 0 else -np.inf
        others[i] = (m[:at].sum() + m[at + 1:].sum()) / m.sum() if m.any() else 1.0
    return place, log_r, others


def of_cell(members: Members, h: np.ndarray, cell: int, without: int | None) -> np.ndarray:
    low, high = members.start[cell], members.start[cell + 1]
    o = scores(members, slice(low, high), h)
    return masses(o, without - low if without is not None and low <= without < high else None)


def scores(members: Members, places: slice, h: np.ndarray) -> np.ndarray:
    """o of some places for h (d,), (n,) float64."""
    if members.copy is not None and members.scale is not None:
        y, scale = eight_bits(h.astype(np.float32))
        whole = (members.copy[places].astype(np.int64) - ZERO) @ y
        of_copy: np.ndarray = whole * (scale * members.scale[places].astype(np.float64))
        return of_copy
    c = members.table[members.order[places]].astype(np.float64)
    if members.unit:
        c /= np.maximum(np.linalg.norm(c, axis=1, keepdims=True), 1e-12)
    o: np.ndarray = c @ h.astype(np.float64)
    return o


def masses(log_mass: np.ndarray, skip: int | None) -> np.ndarray:
    there = np.ones(len(log_mass), bool)
    if skip is not None:
        there[skip] = False
    top = log_mass[there].max() if there.any() else 0.0
    return np.where(there, np.exp(np.maximum(log_mass - top, LEAST)), 0.0)


def find(m: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where u of the running sums falls, and the log of that share."""
    ends = m.cumsum()
    at = np.minimum(np.searchsorted(ends, u * ends[-1], side="right"), np.flatnonzero(m)[-1])
    return at, np.log(m[at] / ends[-1])
