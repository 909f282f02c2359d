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
from embtrain.kernels.core.library import NO_MEMORY, core
from embtrain.kernels.core.parallel import parallel_for
from embtrain.kernels.reference.scoring import ranking as reference

GEOMETRIES = ("dot", "l1", "l2", "modulus")
GRAIN = 64  # queries per thread that pay for the thread


def counts(query: np.ndarray, table: np.ndarray, geometry: str, target_offsets: np.ndarray, targets: np.ndarray,
           known_offsets: np.ndarray, known: np.ndarray, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """(better, equal), int64 (P,) each, for queries (Q, D) and candidates (V, D), float32.

    Query i ranks the targets targets[target_offsets[i]:target_offsets[i + 1]] and ignores its known positives
    known[known_offsets[i]:known_offsets[i + 1]]. Each id occurs at most once per query in both.
    """
    for name, array in (("query", query), ("table", table)):
        if array.dtype != np.float32 or array.ndim != 2 or array.shape[1] < 1 or not _is_row_contiguous(array):
            raise TypeError(f"ranking: {name} must be float32 with two axes and contiguous rows")
    parts = 2 if geometry == "modulus" else 1
    if query.shape[1] != table.shape[1] or geometry not in GEOMETRIES or query.shape[1] % parts:
        raise ValueError(f"ranking: {geometry} of {query.shape[1]} and {table.shape[1]} dimensions")
    for name, offsets, ids in (("target", target_offsets, targets), ("known", known_offsets, known)):
        if not all(x.dtype == np.int64 and x.ndim == 1 and x.flags.c_contiguous for x in (offsets, ids)):
            raise TypeError(f"ranking: {name} and its offsets must be contiguous int64 with one axis")
        if len(offsets) != len(query) + 1 or offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
            raise ValueError(f"ranking: the offsets of {name} do not split {len(ids)} ids among {len(query)} queries")
        if len(ids) and not 0 <= ids.min() <= ids.max() < len(table):
            raise ValueError(f"ranking: an id of {name} is not among the {len(table)} candidates")
    if (library := core()) is None:
        return reference.counts(query, table, geometry, target_offsets, targets, known_offsets, known)
    target_cost = np.empty(len(targets), dtype=np.float32)
    better, equal = np.empty(len(targets), dtype=np.int64), np.empty(len(targets), dtype=np.int64)

    def part(begin: int, end: int) -> None:
        status = library.embtrain_rank(
            _pointer(query), ctypes.c_int64(query.strides[0] // 4), _pointer(table),
            ctypes.c_int64(table.strides[0] // 4),
            ctypes.c_int64(len(table)), ctypes.c_int64(table.shape[1]), ctypes.c_int(GEOMETRIES.index(geometry)),
            _pointer(target_offsets), _pointer(targets), _pointer(known_offsets), _pointer(known),
            ctypes.c_int64(begin), ctypes.c_int64(end),
            _pointer(target_cost), _pointer(better), _pointer(equal))
        if status == NO_MEMORY:
            raise ResourceError(f"ranking: no memory for {table.shape[1]:,} dimensions")

    parallel_for(part, len(query), max(1, min(threads, len(query) // GRAIN)))
    return better, equal


def _is_row_contiguous(rows: np.ndarray) -> bool:
    """Whether rows are contiguous and a whole number of floats apart. NumPy may report any stride along an axis of
    length 1.
    """
    (n, d), (step, touch) = rows.shape, rows.strides
    return (n == 0 or d == 1 or touch == 4) and (n < 2 or (step >= 0 and step % 4 == 0))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
