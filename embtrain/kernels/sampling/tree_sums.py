"""Recomputes the sums of a tree from below: of blocks by Fourier features, of the nodes above from their children.

    S of a block = Σ_i π_i φ(c_i);     S of a node = Σ S of its children: float32 added in float64, int8 in float32
    φ by Fourier features: D^{-1/2} [cos a_1, …, cos a_D, sin a_1, …, sin a_D], a_j = w_j·y

Sums are replaced, not incremented, so recomputing a part gives the same result as recomputing all.
"""

from __future__ import annotations

from ctypes import byref

import numpy as np

from embtrain.kernels.arguments.trees import SumLevels
from embtrain.kernels.core.binding import call, check_array, check_range, parallel_for, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import tree_sums as reference

GRAIN = 1 << 18  # numbers per thread that pay for the thread


def update(levels: SumLevels, places: np.ndarray, threads: int = 1) -> None:
    """Recompute all nodes above places (n,) int64, in ascending order, of the last level. Independent of `threads`."""
    check_array("tree_sums: places", places, np.int64, (len(places),))
    check_range("tree_sums", places, 0, len(levels.sums[-1]))
    library = core()
    if library is not None and threads == 1:                     # without a call for each level
        call("tree_sums", library.embtrain_tree_sums_above, byref(levels.task), pointer(places), len(places),
             len(levels.sums[-1]))
        return
    nodes = places
    for level in range(len(levels.sums) - 2, -1, -1):
        parents = nodes // levels.fan
        first = np.ones(len(parents), np.bool_)
        np.not_equal(parents[1:], parents[:-1], out=first[1:])
        nodes = parents[first]
        if library is None:
            reference.add(levels, level, nodes)
            continue

        def part(begin: int, end: int, level: int = level, nodes: np.ndarray = nodes) -> None:
            call("tree_sums", library.embtrain_tree_sums_add, byref(levels.task), level, pointer(nodes[begin:end]),
                 end - begin, len(levels.sums[level]))
        parallel_for(part, len(nodes), min(threads, len(nodes) * levels.fan * levels.width // GRAIN))


def fourier(angle: np.ndarray, weight: np.ndarray, threads: int = 1) -> np.ndarray:
    """S (n, 2D) float32 of n blocks of L candidates, from their angles (n L, D) and weights (n, L) float32."""
    (n, leaf), frequencies = weight.shape, angle.shape[-1]
    check_array("tree_sums: angle", angle, np.float32, (n * leaf, frequencies))
    check_array("tree_sums: weight", weight, np.float32, (n, leaf))
    if (library := core()) is None:
        return reference.fourier(angle, weight)
    sums = np.empty((n, 2 * frequencies), np.float32)

    def part(begin: int, end: int) -> None:
        call("tree_sums", library.embtrain_tree_sums_fourier, pointer(angle[begin * leaf:end * leaf]),
             pointer(weight[begin:end]), end - begin, leaf, frequencies, pointer(sums[begin:end]))
    parallel_for(part, n, min(threads, angle.size // GRAIN))
    return sums
