"""Products of questions with rows that are looked up, and their gradient, without a copy of the rows.

    s_bk = h_b · c_i,  n_bk = c_i · c_i,  i = ids_bk             h (B, D), c (V, D), ids (B, K)
    ∂h_b = Σ_k g_bk c_i        ∂c_i = Σ_{b,k: ids_bk = i} g_bk h_b + 2 m_bk c_i        g = ∂s, m = ∂n

A copy would be B K D numbers, written and read once forward and several times back. Threads show in nothing.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from embtrain.kernels.core.library import checked, core, in_parts, out_of_range, succeed
from embtrain.kernels.reference.scoring import gathered_dot as twin

GRAIN = 1 << 18  # products of numbers that are worth a thread
SPREAD = 16      # rows for each id from which on ids are sorted, not counted


class Rows(NamedTuple):
    """A gradient of the table: 0 but for some rows."""

    ids: np.ndarray    # (U,) int64 ascending
    values: np.ndarray # (U, D) float32


def products(h: np.ndarray, c: np.ndarray, ids: np.ndarray, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """s and n, (B, K) float32. c may be rows of a wider table. ValueError where an id is out of range."""
    _check(h, c, ids)
    if (library := core()) is None:
        return twin.products(h, c, ids)
    (b, k), d = ids.shape, h.shape[1]
    succeed("gathered: ids", library.embtrain_gathered_check(_at(ids), *_ints(ids.size, len(c))))
    s, n = np.empty(ids.shape, np.float32), np.empty(ids.shape, np.float32)

    def part(begin: int, end: int) -> None:
        library.embtrain_gathered_products(_at(h), _at(c), _at(ids), *_ints(c.strides[0] // 4, d, k, begin, end),
                                           _at(s), _at(n))
    in_parts(part, b, min(threads, ids.size * d // GRAIN))
    return s, n


def of_questions(g: np.ndarray, c: np.ndarray, ids: np.ndarray, threads: int = 1) -> np.ndarray:
    """∂h (B, D) of ids that `products` has taken."""
    checked("gathered: g", g, np.float32, ids.shape)
    if (library := core()) is None:
        return twin.of_questions(g, c, ids)
    (b, k), d = ids.shape, c.shape[1]
    to = np.zeros((b, d), np.float32)

    def part(begin: int, end: int) -> None:
        library.embtrain_gathered_questions(_at(g), _at(c), _at(ids), *_ints(c.strides[0] // 4, d, k, begin, end),
                                            _at(to))
    in_parts(part, b, min(threads, ids.size * d // GRAIN))
    return to


def of_rows(g: np.ndarray, m: np.ndarray | None, h: np.ndarray, c: np.ndarray, ids: np.ndarray, threads: int = 1
            ) -> Rows:
    """∂c of ids that `products` has taken; m None: 0."""
    for name, x in (("g", g), ("m", m)):
        if x is not None:
            checked(f"gathered: {name}", x, np.float32, ids.shape)
    if (library := core()) is None:
        return Rows(*twin.of_rows(g, m, h, c, ids))
    d = h.shape[1]
    u, begin, end, order = _places(library, ids.reshape(-1), len(c))
    to = np.zeros((len(u), d), np.float32)
    parts = max(1, min(threads, ids.size * d // GRAIN))
    # Of as many places each: the first ids of a vocabulary stand at most of them.
    cuts = [*np.searchsorted(begin, [ids.size * i // parts for i in range(parts)]).tolist(), len(u)]

    def part(first: int, last: int) -> None:
        library.embtrain_gathered_rows(_at(g), _at(m), _at(h), _at(c), _at(u), _at(begin), _at(end), _at(order),
                                       *_ints(c.strides[0] // 4, d, ids.shape[1], cuts[first], cuts[last]), _at(to))
    in_parts(part, parts, parts)
    return Rows(u, to)


def _places(library: Any, ids: np.ndarray, rows: int) -> tuple[np.ndarray, ...]:
    """The distinct ids, and of each the range of `order` that lists where it stands."""
    if rows > SPREAD * len(ids):
        order = np.argsort(ids, kind="stable")
        u, begin = np.unique(ids[order], return_index=True)
        return u, begin, np.append(begin[1:], len(ids))[: len(u)], order
    begin, order = np.zeros(rows + 1, np.int64), np.empty(len(ids), np.int64)
    library.embtrain_gathered_order(_at(ids), *_ints(len(ids), rows), _at(begin), _at(order))
    u = np.flatnonzero(begin[1:] > begin[:-1])
    return u, begin[u], begin[u + 1], order


def _check(h: np.ndarray, c: np.ndarray, ids: np.ndarray) -> None:
    """TypeError or ValueError where shapes, types or layouts do not belong together."""
    if h.ndim != 2 or c.ndim != 2 or ids.ndim != 2:
        raise ValueError(f"gathered: h, c and ids must have two axes, got {h.ndim}, {c.ndim} and {ids.ndim}")
    checked("gathered: h", h, np.float32, h.shape)
    checked("gathered: ids", ids, np.int64, (len(h), ids.shape[1]))
    if c.dtype != np.float32 or c.strides[1] != 4 or c.strides[0] % 4 or c.strides[0] < 4 * c.shape[1]:
        raise TypeError(f"gathered: c must have rows of float32 that are contiguous, got {c.dtype}")
    if c.shape[1] != h.shape[1]:
        raise ValueError(f"gathered: c must have {h.shape[1]} columns, got {c.shape[1]}")
    if core() is None and ids.size and not (ids.min() >= 0 and ids.max() < len(c)):
        raise out_of_range("gathered: ids")


def _at(x: np.ndarray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if x is None else int(x.ctypes.data))


def _ints(*x: int) -> tuple[ctypes.c_int64, ...]:
    return tuple(map(ctypes.c_int64, x))
