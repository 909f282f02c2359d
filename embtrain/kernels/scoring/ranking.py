"""Counts the candidates that score better than a target, and those that score the same.

    cost(q, c) = Σ_k |q_k − c_k|     l1        (q_k − c_k)², summed, no root: l2        −q_k c_k, summed: dot
                 Σ_k √((q_k − c_k)² + (q_k' − c_k')²), k' = k + D/2     modulus, of D/2 complex dimensions
    better     = #{c: cost(q, c) < cost(q, t)},   equal = #{c ≠ t: cost(q, c) = cost(q, t)}

over all candidates c except the known positives of the query. Sums run from k = 0 in float32, with one rounding per
operation. The core and the reference therefore agree to the bit, and equal vectors have equal costs. A NaN cost is
neither better nor equal; better is −1 for a target whose cost is NaN.
"""

from __future__ import annotations

import ctypes

import numpy as np

from embtrain.common.errors import ResourceError
from embtrain.kernels.core.binding import call, check_array, check_range, check_rows, parallel_for, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.scoring import ranking as reference

GEOMETRIES = ("dot", "l1", "l2", "modulus")
GRAIN = 64  # queries per thread that pay for the thread


def counts(query: np.ndarray, table: np.ndarray, geometry: str, target_offsets: np.ndarray, targets: np.ndarray,
           known_offsets: np.ndarray, known: np.ndarray, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(better, equal), int64 (P,) each, for queries (Q, D) and candidates (V, D), float32.

    Query i ranks the targets targets[target_offsets[i]:target_offsets[i + 1]] and ignores its known positives
    known[known_offsets[i]:known_offsets[i + 1]]. Each id occurs at most once per query in both.
    """
    check_rows("ranking: query", query)
    check_rows("ranking: table", table)
    parts = 2 if geometry == "modulus" else 1
    if not 0 < query.shape[1] == table.shape[1] or geometry not in GEOMETRIES or query.shape[1] % parts:
        raise ValueError(f"ranking: {geometry} of {query.shape[1]} and {table.shape[1]} dimensions")
    for name, offsets, ids in (("target", target_offsets, targets), ("known", known_offsets, known)):
        check_array(f"ranking: offsets of {name}", offsets, np.int64, (len(query) + 1,))
        check_array(f"ranking: {name}", ids, np.int64, (ids.size,))
        if offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
            raise ValueError(f"ranking: the offsets of {name} do not split {len(ids)} ids among {len(query)} queries")
        check_range(f"ranking: {name}", ids, 0, len(table))
    if (library := core()) is None:
        return reference.counts(query, table, geometry, target_offsets, targets, known_offsets, known)
    target_cost = np.empty(len(targets), dtype=np.float32)
    better, equal = np.empty(len(targets), dtype=np.int64), np.empty(len(targets), dtype=np.int64)

    def part(begin: int, end: int) -> None:
        call("ranking", library.embtrain_rank, pointer(query), query.strides[0] // 4, pointer(table),
             table.strides[0] // 4, *table.shape, ctypes.c_int(GEOMETRIES.index(geometry)),
             *map(pointer, (target_offsets, targets, known_offsets, known)), begin, end,
             pointer(target_cost), pointer(better), pointer(equal))

    try:
        parallel_for(part, len(query), min(threads, len(query) // GRAIN))
    except MemoryError:
        raise ResourceError(f"ranking: no memory for {table.shape[1]:,} dimensions") from None
    return better, equal
