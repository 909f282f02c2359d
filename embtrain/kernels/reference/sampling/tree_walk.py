"""Twin of kernels/sampling/tree_walk.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embtrain.kernels.reference import ZERO, eight_bits, splitmix64, toss
from embtrain.kernels.reference.sampling.cells import find

if TYPE_CHECKING:
    from embtrain.kernels.sampling.tree_walk import Asks, Levels


def walk(levels: Levels, asks: Asks, wanted: np.ndarray, seed: int, first: int) -> tuple[np.ndarray, np.ndarray]:
    n, depth = len(asks.question), len(levels.sums)
    node, log_q = np.zeros(n, np.int64), np.zeros(n)
    for level in range(depth):
        u = toss(int(splitmix64(seed, np.array(level))), first + np.arange(n))
        for i in range(n):
            m = masses(levels, level, asks, i, int(node[i]))
            slot = wanted[i] // levels.fan ** (depth - 1 - level) % levels.fan if wanted[i] >= 0 else find(m, u[i])[0]
            node[i] = node[i] * levels.fan + slot
            log_q[i] += np.log(m[slot] / m.sum()) if m[slot] > 0 else -np.inf
    return node, log_q


def masses(levels: Levels, level: int, asks: Asks, i: int, parent: int) -> np.ndarray:
    """m of the children of a node, (fan,)."""
    children, question = slice(parent * levels.fan, (parent + 1) * levels.fan), asks.question[i]
    raw = products(levels, level, children, asks.phi[question])
    prior, count = levels.prior[level][children].copy(), levels.count[level][children].copy()
    if asks.position is not None and asks.mass is not None and asks.share is not None:
        above = asks.position[i] // (levels.leaf * levels.fan ** (len(levels.sums) - 1 - level))
        if above // levels.fan == parent:
            slot = above % levels.fan
            raw[slot], prior[slot], count[slot] = (raw[slot] - asks.mass[i], prior[slot] - asks.share[i],
                                                   count[slot] - 1)
    return np.where(count <= 0, 0.0, np.maximum(raw, asks.least[question] * np.maximum(prior, 0.0)))


def products(levels: Levels, level: int, children: slice, phi: np.ndarray) -> np.ndarray:
    """φ(h)·S of some places of a level, for φ (W,)."""
    if levels.scale is None:
        exact: np.ndarray = levels.sums[level][children].astype(np.float64) @ phi.astype(np.float64)
        return exact
    y, scale = eight_bits(phi)
    whole = (levels.sums[level][children].astype(np.int64) - ZERO) @ y
    return whole * (scale * levels.scale[level][children].astype(np.float64))
