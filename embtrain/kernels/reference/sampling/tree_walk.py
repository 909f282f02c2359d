"""Descends a complete tree of sums, in NumPy: draws a leaf block for each request, and its log probability.

V candidates stand in a fixed order of places. A leaf block holds `leaf` consecutive places, and every inner node has
`fan` children, so node N of a level has the children N·fan … N·fan + fan − 1 of the next. A candidate c of query h has
weight π_c φ(h)·φ(c): π is a prior weight, and the features φ (W,) approximate a nonnegative kernel, for example by
random Fourier features. A node stores S_N = Σ π_c φ(c) and P_N = Σ π_c over the candidates below it. A child is drawn
with probability m / Σ m, where the sum runs over the children of one node and the mass of a child is

    m_N(h) = max(φ(h)·S_N, ε(h) P_N),  or 0 if no candidate is below N       ε(h): floor, because φ(h)·S may be
                                                               negative

With a target to exclude, on each level the node that contains the target has S, P and its count reduced by those of the
target:
φ(h)·S_N − w, P_N − π_target and one candidate less, w = π_target φ(h)·φ(target).

The walk ends at a leaf block. The caller draws the candidate inside it (kernels/reference/sampling/tree_draw.py).
kernels/sampling/tree_walk.py runs this file if the compiled core, the C++ library, is missing; the tests compare the
two. The tree of kernel features is that of [blanc2018].
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.trees import TreeLevels, WalkRequest
from embtrain.kernels.reference import ZERO_POINT, quantize, splitmix64, uniform01
from embtrain.kernels.reference.sampling.cells import find


def walk(levels: TreeLevels, request: WalkRequest, forced_block: np.ndarray, seed: int,
         first_index: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leaf block of each of N requests, (N,) int64, and its log probability, (N,) float64.

    levels: per level below the root, top first, sums S (nodes, W), prior P and count (nodes,). request: features
    φ (Q, W) and floor ε (Q,) of Q queries, and the query of each request; optionally the place, w and π of its target.
    forced_block (N,): the block whose probability is evaluated, or −1 to draw one. At level l, request i uses number
    first_index + i of the random stream splitmix64(seed, l). The log is −inf for a block without mass.
    """
    n, depth = len(request.query_id), len(levels.sums)
    node, log_q = np.zeros(n, np.int64), np.zeros(n)
    for level in range(depth):
        u = uniform01(int(splitmix64(seed, np.array(level))), first_index + np.arange(n))
        for i in range(n):
            m = masses(levels, level, request, i, int(node[i]))
            if forced_block[i] >= 0:    # the digit of the block number in base fan
                child = forced_block[i] // levels.fan ** (depth - 1 - level) % levels.fan
            else:
                child = find(m, u[i])[0]
            node[i] = node[i] * levels.fan + child
            log_q[i] += np.log(m[child] / m.sum()) if m[child] > 0 else -np.inf
    return node, log_q


def masses(levels: TreeLevels, level: int, request: WalkRequest, i: int, parent: int) -> np.ndarray:
    """Return the masses m (fan,) of the children of a node for request i; `level` is the level of the children."""
    children, query_id = slice(parent * levels.fan, (parent + 1) * levels.fan), request.query_id[i]
    raw = products(levels, level, children, request.phi[query_id])
    prior, count = levels.prior[level][children].copy(), levels.count[level][children].copy()
    if request.position is not None and request.target_mass is not None and request.target_prior is not None:
        target_node = request.position[i] // (levels.leaf * levels.fan ** (len(levels.sums) - 1 - level))
        if target_node // levels.fan == parent:
            child = target_node % levels.fan
            raw[child] -= request.target_mass[i]
            prior[child] -= request.target_prior[i]
            count[child] -= 1
    return np.where(count <= 0, 0.0, np.maximum(raw, request.floor[query_id] * np.maximum(prior, 0.0)))


def products(levels: TreeLevels, level: int, nodes: slice, phi: np.ndarray) -> np.ndarray:
    """Return φ(h)·S of consecutive nodes of a level, for φ(h) = `phi` (W,).

    Quantized sums are S = scale (b − ZERO_POINT) with bytes b; φ(h) is then quantized, too, so that the products of the
    bytes are exact integers.
    """
    if levels.scale is None:
        exact: np.ndarray = levels.sums[level][nodes].astype(np.float64) @ phi.astype(np.float64)
        return exact
    y, scale = quantize(phi)
    int_products = (levels.sums[level][nodes].astype(np.int64) - ZERO_POINT) @ y
    return int_products * (scale * levels.scale[level][nodes].astype(np.float64))
