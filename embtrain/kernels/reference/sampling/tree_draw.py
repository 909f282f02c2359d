"""Twin of kernels/sampling/tree_draw.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embtrain.kernels.reference import ZERO
from embtrain.kernels.reference.sampling import cells, tree_walk
from embtrain.kernels.sampling.tree_walk import Asks as Walk

if TYPE_CHECKING:
    from embtrain.kernels.sampling.tree_draw import Asks, Blocks

MOST = 60.0      # log of the largest weight of a candidate's features, as in the sums
LEAST = -600.0   # log of the least ε


def draw(of: Blocks, asks: Asks, k: int, exclude: bool, seeds: tuple[int, int], touched: np.ndarray | None, first: int
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert asks.question is not None and asks.asked is not None
    h = asks.h.astype(np.float64)                                                   # (Q, d)
    if asks.tau > 0:
        h = unit(h) * asks.tau
    phi, least = asks.phi, asks.least
    if of.w is not None:
        phi = fourier(of.w, asks.stretch * h).astype(np.float32)                    # (Q, W)
        size = (asks.stretch * h) ** 2
        least = asks.floor * np.exp(np.maximum(-(size.sum(1) + asks.largest) / 2, LEAST))
    assert phi is not None and least is not None
    question, place = asks.question.repeat(k), of.place_of[asks.target]
    wanted = np.full(len(question), -1)
    position = place.repeat(k)
    if exclude:
        mass = target_masses(of, asks, phi) if asks.mass is None else asks.mass
        walk = Walk(phi, least, question, position, mass.repeat(k), of.prior[position])
    else:
        question, wanted = np.concatenate([question, asks.asked]), np.concatenate([wanted, place])
        walk = Walk(phi, least, question)
    block, log_q = tree_walk.walk(of.levels, walk, wanted // of.levels.leaf, seeds[0], first * k)
    at = block
    if of.members is not None:
        at, log_r, _ = cells.inside(of.members, h, question, block, wanted, position if exclude else None, seeds[1],
                                    first * k)
        log_q = log_q + log_r
    if touched is not None:
        touched[block] = True
        touched[place // of.levels.leaf] = True
    n = len(asks.question) * k
    return (of.order[at[:n]].reshape(-1, k), log_q[:n].reshape(-1, k).astype(np.float32),
            log_q[n:].astype(np.float32))


def fourier(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """φ of x (n, d), (n, 2 D)."""
    angle = x @ w.T.astype(np.float64)
    return np.concatenate([np.cos(angle), np.sin(angle)], 1) / np.sqrt(len(w))


def target_masses(of: Blocks, asks: Asks, phi: np.ndarray) -> np.ndarray:
    """w of the target of each draw, (G,)."""
    place = of.place_of[asks.target]
    if of.members is None:
        own = of.levels.sums[-1][place].astype(np.float64)                          # (G, W)
        if of.levels.scale is not None:
            own = (own - ZERO) * of.levels.scale[-1][place].astype(np.float64)[:, None]
    else:
        assert of.w is not None
        y = of.members.table[asks.target].astype(np.float64)
        y = (unit(y) if of.members.unit else y) * asks.stretch * (asks.tau if asks.tau > 0 else 1)
        weight = np.exp(np.minimum(((y ** 2).sum(1) - asks.largest) / 2, MOST))
        own = fourier(of.w, y) * (of.prior[place] * weight)[:, None]
    assert asks.question is not None
    product: np.ndarray = (phi[asks.question].astype(np.float64) * own).sum(1)
    return product


def unit(x: np.ndarray) -> np.ndarray:
    length: np.ndarray = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return x / length
