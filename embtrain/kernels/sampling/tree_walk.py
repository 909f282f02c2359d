"""Descends a complete tree of sums for many requests: draws a leaf block, or evaluates the probability of one.

Every node N has `fan` children and stores S_N = Σ π_c φ(c), P_N = Σ π_c and the number of candidates c below it, with a
prior π and features φ. A child is drawn in proportion to its mass m:

    m_N(h) = max(φ(h)·S_N − w_N, ε(h) (P_N − p_N)),   0 if no candidate is left;   q(block) = Π m_N / Σ_{siblings} m

If the target t of a request is excluded, w = π_t φ(h)·φ(c_t) and p = π_t in the nodes above it; else both are 0. ε(h)
is a floor, because φ(h)·S may be negative. The tree is that of [blanc2018]. Sums may be int8, S = s_N (b − 128); φ(h)
is then quantized to s_h y with s_h = max |φ| / 127. Requests of one query at one node are processed together. At level
l, counted from the top, request i uses number i of the stream u64(seed, l), so ids do not depend on threads, chunks or
other requests.
"""

from __future__ import annotations

from ctypes import byref

import numpy as np

from embtrain.kernels.arguments.trees import TreeLevels, TreeTask, WalkRequest
from embtrain.kernels.core.binding import address, call, check_array, check_range, parallel_for, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import tree_walk as reference

__all__ = ["TreeLevels", "WalkRequest", "walk"]

GRAIN = 4096     # requests per thread that pay for the thread


def walk(levels: TreeLevels, request: WalkRequest, forced_block: np.ndarray, seed: int = 0, first: int = 0,
         threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return a leaf block per request and its log q: (N,) int64, (N,) float64. first: the number of the first request.

    If forced_block (N,) int64 is -1 a block is drawn, else it is used. log q is -inf if no mass is left in it.
    """
    n = len(request.query_id)
    request.check(levels.width)
    check_array("tree: forced_block", forced_block, np.int64, (n,))
    if not 0 <= seed < 2 ** 64 or first < 0:
        raise ValueError(f"tree: draws from seed {seed}, starting at number {first}")
    if (library := core()) is None:
        check_range("tree", request.query_id, 0, len(request.floor))
        check_range("tree", request.position, 0, levels.candidates)
        check_range("tree", forced_block, -1, -(-levels.candidates // levels.leaf))
        return reference.walk(levels, request, forced_block, seed, first)
    block, log_q = np.empty(n, np.int64), np.empty(n)

    def part(begin: int, end: int) -> None:
        task = TreeTask.from_buffer_copy(levels.task)
        task.phi, task.least, task.n_queries = address(request.phi), address(request.floor), len(request.floor)
        task.query_id, task.position, task.mass, task.share, task.wanted = (
            None if x is None else address(x[begin:end]) for x in (*request[2:], forced_block))
        task.n, task.seed, task.first = end - begin, seed, first + begin
        call("tree", library.embtrain_tree_walk, byref(task), pointer(block[begin:end]), pointer(log_q[begin:end]))

    parallel_for(part, n, min(threads, n // GRAIN))
    return block, log_q
