"""Reference for kernels/sampling/tree_walk.py."""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.trees import TreeLevels, WalkRequest
from embtrain.kernels.reference import ZERO, quantize, splitmix64, uniform01
from embtrain.kernels.reference.sampling.cells import find


def walk(levels: TreeLevels, request: WalkRequest, wanted: np.ndarray, seed: int, first: int) -> tuple[np.ndarray,
                                                                                                       np.ndarray]:
    n, depth = len(request.query_id), len(levels.sums)
    node, log_q = np.zeros(n, np.int64), np.zeros(n)
    for level in range(depth):
        u = uniform01(int(splitmix64(seed, np.array(level))), first + np.arange(n))
        for i in range(n):
            m = masses(levels, level, request, i, int(node[i]))
            slot = wanted[i] // levels.fan ** (depth - 1 - level) % levels.fan if wanted[i] >= 0 else find(m, u[i])[0]
            node[i] = node[i] * levels.fan + slot
            log_q[i] += np.log(m[slot] / m.sum()) if m[slot] > 0 else -np.inf
    return node, log_q


def masses(levels: TreeLevels, level: int, request: WalkRequest, i: int, parent: int) -> np.ndarray:
    """The masses m of the children of a node, (fan,)."""
    children, query_id = slice(parent * levels.fan, (parent + 1) * levels.fan), request.query_id[i]
    raw = products(levels, level, children, request.phi[query_id])
    prior, count = levels.prior[level][children].copy(), levels.count[level][children].copy()
    if request.position is not None and request.mass is not None and request.share is not None:
        target_node = request.position[i] // (levels.leaf * levels.fan ** (len(levels.sums) - 1 - level))
        if target_node // levels.fan == parent:
            slot = target_node % levels.fan
            raw[slot], prior[slot], count[slot] = (raw[slot] - request.mass[i], prior[slot] - request.share[i],
                                                   count[slot] - 1)
    return np.where(count <= 0, 0.0, np.maximum(raw, request.least[query_id] * np.maximum(prior, 0.0)))


def products(levels: TreeLevels, level: int, children: slice, phi: np.ndarray) -> np.ndarray:
    """φ(h)·S of the given places of a level, for φ (W,)."""
    if levels.scale is None:
        exact: np.ndarray = levels.sums[level][children].astype(np.float64) @ phi.astype(np.float64)
        return exact
    y, scale = quantize(phi)
    int_products = (levels.sums[level][children].astype(np.int64) - ZERO) @ y
    return int_products * (scale * levels.scale[level][children].astype(np.float64))
