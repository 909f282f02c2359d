"""Dot products of queries with gathered rows, and their gradients, without gathering the rows.

    s_bk = h_b · c_i,  n_bk = c_i · c_i,  i = ids_bk             h (B, D), c (V, D), ids (B, K)
    ∂h_b = Σ_k g_bk c_i        ∂c_i = Σ_{b,k: ids_bk = i} g_bk h_b + 2 m_bk c_i        g = ∂s, m = ∂n

A gathered copy has B K D numbers, written and read once in the forward pass and several times in the backward pass.
Results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from embtrain.kernels.core.binding import call, check_array, check_range, check_rows, parallel_for, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.scoring import gathered_dot as reference

GRAIN = 1 << 18  # multiply-adds per thread that pay for the thread
MAX_ROWS_PER_ID = 16      # table rows per id beyond which ids are sorted instead of counted


class SparseGradient(NamedTuple):
    """A gradient of the table, 0 outside its rows."""

    ids: np.ndarray    # (U,) int64 ascending
    values: np.ndarray # (U, D) float32


def products(h: np.ndarray, c: np.ndarray, ids: np.ndarray, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """s and n, (B, K) float32. c may be part of a wider table. ValueError if an id is out of range."""
    _check(h, c, ids)
    if (library := core()) is None:
        return reference.products(h, c, ids)
    (b, k), d = ids.shape, h.shape[1]
    call("gathered_dot: ids", library.embtrain_gathered_dot_check, pointer(ids), ids.size, len(c))
    s, n = np.empty(ids.shape, np.float32), np.empty(ids.shape, np.float32)

    def part(begin: int, end: int) -> None:
        call("gathered_dot", library.embtrain_gathered_dot_products, pointer(h), pointer(c), pointer(ids),
             c.strides[0] // 4, d, k, begin, end, pointer(s), pointer(n))
    parallel_for(part, b, min(threads, ids.size * d // GRAIN))
    return s, n


def query_gradient(g: np.ndarray, c: np.ndarray, ids: np.ndarray, threads: int = 1) -> np.ndarray:
    """∂h (B, D); the ids must have passed `products`."""
    check_array("gathered_dot: g", g, np.float32, ids.shape)
    if (library := core()) is None:
        return reference.query_gradient(g, c, ids)
    (b, k), d = ids.shape, c.shape[1]
    to = np.zeros((b, d), np.float32)

    def part(begin: int, end: int) -> None:
        call("gathered_dot", library.embtrain_gathered_dot_query_gradient, pointer(g), pointer(c), pointer(ids),
             c.strides[0] // 4, d, k, begin, end, pointer(to))
    parallel_for(part, b, min(threads, ids.size * d // GRAIN))
    return to


def table_gradient(g: np.ndarray, m: np.ndarray | None, h: np.ndarray, c: np.ndarray, ids: np.ndarray, threads: int = 1
            ) -> SparseGradient:
    """∂c; the ids must have passed `products`; m None: 0."""
    for name, x in (("g", g), ("m", m)):
        if x is not None:
            check_array(f"gathered_dot: {name}", x, np.float32, ids.shape)
    if (library := core()) is None:
        return SparseGradient(*reference.table_gradient(g, m, h, c, ids))
    d = h.shape[1]
    unique_ids, begin, end, order = _places_by_id(library, ids.reshape(-1), len(c))
    to = np.zeros((len(unique_ids), d), np.float32)
    parts = max(1, min(threads, ids.size * d // GRAIN))
    # Ranges with equal numbers of places, because the first ids of a vocabulary have most of them.
    cuts = [*np.searchsorted(begin, [ids.size * i // parts for i in range(parts)]).tolist(), len(unique_ids)]

    def part(first: int, last: int) -> None:
        call("gathered_dot", library.embtrain_gathered_dot_table_gradient,
             *map(pointer, (g, m, h, c, unique_ids, begin, end, order)),
             c.strides[0] // 4, d, ids.shape[1], cuts[first], cuts[last], pointer(to))
    parallel_for(part, parts, parts)
    return SparseGradient(unique_ids, to)


def _places_by_id(library: Any, ids: np.ndarray, rows: int) -> tuple[np.ndarray, ...]:
    """The distinct ids, and for each the range of `order` that lists its places."""
    if rows > MAX_ROWS_PER_ID * len(ids):
        order = np.argsort(ids, kind="stable")
        unique_ids, begin = np.unique(ids[order], return_index=True)
        return unique_ids, begin, np.append(begin[1:], len(ids))[: len(unique_ids)], order
    begin, order = np.zeros(rows + 1, np.int64), np.empty(len(ids), np.int64)
    call("gathered_dot", library.embtrain_gathered_dot_order, pointer(ids), len(ids), rows, pointer(begin),
         pointer(order))
    unique_ids = np.flatnonzero(begin[1:] > begin[:-1])
    return unique_ids, begin[unique_ids], begin[unique_ids + 1], order


def _check(h: np.ndarray, c: np.ndarray, ids: np.ndarray) -> None:
    """Raise TypeError or ValueError unless shapes, types and layouts fit."""
    if h.ndim != 2 or c.ndim != 2 or ids.ndim != 2:
        raise ValueError(f"gathered_dot: h, c and ids must have two axes, got {h.ndim}, {c.ndim} and {ids.ndim}")
    check_array("gathered_dot: h", h, np.float32, h.shape)
    check_array("gathered_dot: ids", ids, np.int64, (len(h), ids.shape[1]))
    check_rows("gathered_dot: c", c)
    if c.shape[1] != h.shape[1]:
        raise ValueError(f"gathered_dot: c must have {h.shape[1]} columns, got {c.shape[1]}")
    if core() is None:
        check_range("gathered_dot: ids", ids, 0, len(c))
