"""Dot products of queries with every row of a table.

    s_iv = h_i · c_v             h (n, D), c (V, D), s (n, V)

A sum runs over the dimensions in order, so a product depends neither on the other queries nor on the number of
threads. The reference adds in another order, so the two agree to rounding.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.core.binding import call, check_array, check_rows, parallel_for, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.scoring import table_products as reference

GRAIN = 1 << 20  # multiply-adds per thread that pay for the thread


def products(h: np.ndarray, table: np.ndarray, threads: int = 1) -> np.ndarray:
    """s (n, V) float32. The table may be part of a wider one.

    TypeError or ValueError unless h is a contiguous array (n, D) of float32 and the table has D columns of float32.
    """
    check_rows("table_products: table", table)
    (v, d), n = table.shape, len(h)
    check_array("table_products: h", h, np.float32, (n, d))
    if (library := core()) is None or d == 0:
        return reference.products(h, table)
    s = np.empty((n, v), np.float32)
    stride = table.strides[0] // 4 if v > 1 else d

    def part(begin: int, end: int) -> None:
        call("table_products", library.embtrain_table_products, pointer(h), n, d, pointer(table), stride, v, begin, end,
             pointer(s))
    parallel_for(part, v, min(threads, n * v * d // GRAIN))
    return s
