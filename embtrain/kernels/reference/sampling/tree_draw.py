"""Draws candidates through a tree of sums in NumPy: from queries h to ids and log q.

    q(i|h) = q(block|h) r(i|block, h)      q(block): the product of child probabilities (tree_walk.py), each ∝
                                           max(φ(h)·S, ε(h) P);  r ∝ e^{score} inside the block (cells.py)
    φ(x) = D^{-1/2} [cos w_j·x …, sin w_j·x …],  x = stretch h      ε(h) = floor e^{−(‖x‖² + largest)/2}

φ and ε are those of random Fourier features with D frequencies w_j [rawat2019], or are given with the request. With
`exclude`, the target and its mass are left out of the tree. `draw` returns ids (G, K) and their log q for G draws, and
the log q of the targets (B,), empty with `exclude`. kernels/sampling/tree_draw.py runs this file if the compiled core
is missing; the tests compare the two.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.trees import TreeBlocks, TreeDrawRequest, WalkRequest
from embtrain.kernels.reference import ZERO_POINT
from embtrain.kernels.reference.sampling import cells, tree_walk

MAX_LOG_WEIGHT = 60.0      # log of the largest weight of a candidate's features, as in the sums
MIN_LOG_FLOOR = -600.0   # log of the smallest ε


def draw(blocks: TreeBlocks, request: TreeDrawRequest, k: int, exclude: bool, seeds: tuple[int, int],
         touched: np.ndarray | None, first: int
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert request.draw_query is not None and request.row_query is not None
    h = request.h.astype(np.float64)                                                   # (Q, d)
    if request.tau > 0:
        h = unit(h) * request.tau
    phi, least = request.phi, request.least
    if blocks.w is not None:
        phi = fourier(blocks.w, request.stretch * h).astype(np.float32)                    # (Q, W)
        size = (request.stretch * h) ** 2
        least = request.floor * np.exp(np.maximum(-(size.sum(1) + request.largest) / 2, MIN_LOG_FLOOR))
    assert phi is not None and least is not None
    query_id, place = request.draw_query.repeat(k), blocks.place_of[request.target]
    wanted = np.full(len(query_id), -1)
    position = place.repeat(k)
    if exclude:
        mass = target_masses(blocks, request, phi) if request.mass is None else request.mass
        walk_request = WalkRequest(phi, least, query_id, position, mass.repeat(k), blocks.prior[position])
    else:
        query_id, wanted = np.concatenate([query_id, request.row_query]), np.concatenate([wanted, place])
        walk_request = WalkRequest(phi, least, query_id)
    block, log_q = tree_walk.walk(blocks.levels, walk_request, wanted // blocks.levels.leaf, seeds[0], first * k)
    final_place = block
    if blocks.members is not None:
        final_place, log_r, _ = cells.inside(blocks.members, h, query_id, block, wanted, position if exclude else None,
                                             seeds[1],
                                    first * k)
        log_q = log_q + log_r
    if touched is not None:
        touched[final_place] = True
        touched[place] = True
    n = len(request.draw_query) * k
    return (blocks.order[final_place[:n]].reshape(-1, k), log_q[:n].reshape(-1, k).astype(np.float32),
            log_q[n:].astype(np.float32))


def fourier(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """φ of x (n, d), (n, 2 D)."""
    angle = x @ w.T.astype(np.float64)
    return np.concatenate([np.cos(angle), np.sin(angle)], 1) / np.sqrt(len(w))


def target_masses(blocks: TreeBlocks, request: TreeDrawRequest, phi: np.ndarray) -> np.ndarray:
    """w of the target of each draw, (G,)."""
    place = blocks.place_of[request.target]
    if blocks.members is None:
        target_sums = blocks.levels.sums[-1][place].astype(np.float64)                          # (G, W)
        if blocks.levels.scale is not None:
            target_sums = (target_sums - ZERO_POINT) * blocks.levels.scale[-1][place].astype(np.float64)[:, None]
    else:
        assert blocks.w is not None
        y = blocks.members.table[request.target].astype(np.float64)
        y = (unit(y) if blocks.members.unit else y) * request.stretch * (request.tau if request.tau > 0 else 1)
        weight = np.exp(np.minimum(((y ** 2).sum(1) - request.largest) / 2, MAX_LOG_WEIGHT))
        target_sums = fourier(blocks.w, y) * (blocks.prior[place] * weight)[:, None]
    assert request.draw_query is not None
    product: np.ndarray = (phi[request.draw_query].astype(np.float64) * target_sums).sum(1)
    return product


def unit(x: np.ndarray) -> np.ndarray:
    length: np.ndarray = np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return x / length
