"""Walks down a tree of sums for many requests: draws of leaf nodes, and the probability of given ones.

    m_N(h) = max(φ(h)·S_N − w_N, ε(h) (P_N − p_N)),   0 if no candidate is left;   q(block) = Π m_N / Σ_{siblings} m

w and p are the shares of a request's target in the nodes above it, if the target is excluded. Sums may be int8, S = s_N
(b − 128); φ(h) is then quantized to s_h y with s_h = max |φ| / 127. Requests of one query at one node are processed
together. At level l, counted from the top, request i uses number i of the stream u64(seed, l), so ids do not depend on
threads, chunks or other requests.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from embtrain.kernels.core.library import check_array, check_range, core, raise_for_status
from embtrain.kernels.core.parallel import parallel_for
from embtrain.kernels.reference.sampling import tree_walk as reference

GRAIN = 4096     # requests per thread that pay for the thread
MAX_FAN = 64


class _TreeTask(ctypes.Structure):
    """struct TreeTask of source/sampling/trees/tree_nodes.h."""

    _fields_ = (*((name, ctypes.c_void_p) for name in ("sums", "scale", "prior", "count", "phi", "least", "query_id",
                                                       "position", "mass", "share", "wanted")),
                *((name, ctypes.c_int64) for name in ("levels", "fan", "leaf", "width", "candidates", "n_queries",
                                                      "n")),
                ("seed", ctypes.c_uint64), ("first", ctypes.c_int64))


class TreeLevels:
    """The arrays of a tree, top level first: S (places, W) float32, P float64 and |N| int64 (places,). Validated once.

    With scales s (places,) float32 the sums are b (places, W) uint8. All arrays are read in place, so later writes by
    their owner take effect.
    """

    def __init__(self, sums: Sequence[np.ndarray], prior: Sequence[np.ndarray], count: Sequence[np.ndarray], fan: int,
                 leaf: int, scale: Sequence[np.ndarray] | None = None):
        if not (0 < len(sums) == len(prior) == len(count) and 2 <= fan <= MAX_FAN and leaf >= 1):
            raise ValueError(f"tree: {len(sums)} levels with {fan} children a node and {leaf} candidates a block")
        if scale is not None and len(scale) != len(sums):
            raise ValueError(f"tree: scales of {len(scale)} levels of {len(sums)}")
        self.sums, self.prior, self.count, self.fan, self.leaf = list(sums), list(prior), list(count), fan, leaf
        self.scale = None if scale is None else list(scale)
        self.width, parents = sums[0].shape[1], 1
        for level, (s, p, n) in enumerate(zip(sums, prior, count, strict=True)):
            places = len(s)
            if places % fan or places // fan > parents:
                raise ValueError(f"tree: a level of {places} places below {parents}, {fan} to each")
            check_array("tree: sums", s, np.float32 if scale is None else np.uint8, (places, self.width))
            if scale is not None:
                check_array("tree: scale", scale[level], np.float32, (places,))
            check_array("tree: prior", p, np.float64, (places,))
            check_array("tree: count", n, np.int64, (places,))
            parents = places
        self.candidates = int(count[-1].sum())
        self.pointers = [None if arrays is None else (ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays))
                         for arrays in (sums, scale, prior, count)]
        self.task = _TreeTask(*(None if p is None else ctypes.addressof(p) for p in self.pointers))  # without requests
        self.task.levels, self.task.fan, self.task.leaf = len(sums), fan, leaf
        self.task.width, self.task.candidates = self.width, self.candidates


class WalkRequest(NamedTuple):
    """N requests for Q queries. With a target to exclude: its place, w and p."""

    phi: np.ndarray                     # (Q, W) float32   φ(h)
    least: np.ndarray                   # (Q,) float64     ε(h)
    query_id: np.ndarray                # (N,) int64
    position: np.ndarray | None = None  # (N,) int64
    mass: np.ndarray | None = None      # (N,) float64     w
    share: np.ndarray | None = None     # (N,) float64     p

    def check(self, width: int) -> None:
        q, r = len(self.least), len(self.query_id)
        check_array("tree: phi", self.phi, np.float32, (q, width))
        check_array("tree: least", self.least, np.float64, (q,))
        check_array("tree: query_id", self.query_id, np.int64, (r,))
        if self.position is not None and self.mass is not None and self.share is not None:
            check_array("tree: position", self.position, np.int64, (r,))
            check_array("tree: mass", self.mass, np.float64, (r,))
            check_array("tree: share", self.share, np.float64, (r,))
        elif not (self.position is None and self.mass is None and self.share is None):
            raise ValueError("tree: a target needs a position, a mass and a share")


def walk(levels: TreeLevels, request: WalkRequest, wanted: np.ndarray, seed: int = 0, first: int = 0, threads: int = 1
         ) -> tuple[np.ndarray, np.ndarray]:
    """A block per request and its log q: (N,) int64, (N,) float64. first: the number of the first request.

    If wanted (N,) int64 is -1 a block is drawn, else it is used. log q is -inf if no mass is left in it.
    """
    n = len(request.query_id)
    request.check(levels.width)
    check_array("tree: wanted", wanted, np.int64, (n,))
    if not 0 <= seed < 2 ** 64 or first < 0:
        raise ValueError(f"tree: draws from seed {seed}, starting at number {first}")
    if (library := core()) is None:
        check_range("tree", request.query_id, 0, len(request.least))
        check_range("tree", request.position, 0, levels.candidates)
        check_range("tree", wanted, -1, -(-levels.candidates // levels.leaf))
        return reference.walk(levels, request, wanted, seed, first)
    block, log_q = np.empty(n, np.int64), np.empty(n)

    def part(begin: int, end: int) -> None:
        task = _TreeTask.from_buffer_copy(levels.task)
        task.phi, task.least, task.n_queries = request.phi.ctypes.data, request.least.ctypes.data, len(request.least)
        task.query_id, task.position, task.mass, task.share, task.wanted = (
            None if x is None else x[begin:end].ctypes.data for x in (*request[2:], wanted))
        task.n, task.seed, task.first = end - begin, seed, first + begin
        outs = (ctypes.c_void_p(x[begin:end].ctypes.data) for x in (block, log_q))
        raise_for_status("tree", library.embtrain_tree_walk(ctypes.byref(task), *outs))

    parallel_for(part, n, min(threads, n // GRAIN))
    return block, log_q
