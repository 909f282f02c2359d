"""Norms, dot products and gradients for losses that compare rows of two tables.

    κ²_n = h_n·h_n      c_n = h_n·e_n      g_n = a_n h_n + b_n e_n                          h, e (n, d)

Each is one pass over both tables. The core and the reference add in different orders, so sums agree to rounding.
Results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.core.binding import call, check_array, parallel_for, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.scoring import row_products as reference

GRAIN = 1 << 18  # numbers per thread that pay for the thread


def measure(h: np.ndarray, e: np.ndarray, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """κ² and c (n,) of h and e (n, d), float32 or float64, in the same dtype."""
    n, d, is_double = _checked_shape(h, e)
    if (library := core()) is None:
        return reference.measure(h, e)
    kappa2, c = np.empty(n, h.dtype), np.empty(n, h.dtype)

    def part(begin: int, end: int) -> None:
        call("row_products", library.embtrain_row_products_measure, pointer(h), pointer(e), is_double, begin, end, d,
             pointer(kappa2), pointer(c))
    parallel_for(part, n, min(threads, n * d // GRAIN))
    return kappa2, c


def combine(h: np.ndarray, e: np.ndarray, a: np.ndarray, b: np.ndarray, threads: int = 1) -> np.ndarray:
    """g (n, d) of h and e (n, d), a and b (n,), in the same dtype."""
    n, d, is_double = _checked_shape(h, e)
    for name, x in (("a", a), ("b", b)):
        check_array(f"row_products: {name}", x, h.dtype.type, (n,))
    if (library := core()) is None:
        return reference.combine(h, e, a, b)
    g = np.empty_like(h)

    def part(begin: int, end: int) -> None:
        call("row_products", library.embtrain_row_products_combine, *map(pointer, (h, e, a, b)), is_double, begin, end,
             d, pointer(g))
    parallel_for(part, n, min(threads, n * d // GRAIN))
    return g


def _checked_shape(h: np.ndarray, e: np.ndarray) -> tuple[int, int, int]:
    """n, d and whether the dtype is float64. Raises TypeError or ValueError unless h and e fit."""
    if h.dtype not in (np.float32, np.float64) or h.ndim != 2:
        raise TypeError(f"row_products: h must have two axes of float32 or float64, got {h.ndim} of {h.dtype}")
    for name, x in (("h", h), ("e", e)):
        check_array(f"row_products: {name}", x, h.dtype.type, h.shape)
    return len(h), h.shape[1], int(h.dtype == np.float64)
