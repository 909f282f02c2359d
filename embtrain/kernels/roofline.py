"""Roofline micro-benchmarks: random row updates,

    table[id_i] <- table[id_i] + 1

and the arithmetic of scores and gradients, with as many independent multiply-adds as the processor overlaps:

    x <- a x + b
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from embtrain.kernels.core.binding import array_arg, call, check_rows, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference import roofline as reference


def rows(table: np.ndarray, ids: np.ndarray) -> None:
    """Add 1 to row ids[i] of table (R, d) float32, in turn. Rows may be padded (core.tables.zeros). IndexError."""
    check_rows("roofline: table", table)
    ids_arg = array_arg("roofline: ids", ids, np.int64, (ids.size,))
    if (library := core()) is None:
        reference.rows(table, ids)
        return
    call("roofline", library.embtrain_roofline_rows, pointer(table), *table.shape, table.strides[0] // 4, ids_arg,
         len(ids))


class MultiplyAdds(NamedTuple):
    """What `multiply_adds` computed: vectors of equal size, and the sum of all their floats."""

    vectors: int
    floats: int
    total: float


def multiply_adds(n: int, a: float, b: float) -> MultiplyAdds:
    """x <- a x + b, n times in several vectors at once, of which number i starts from i in each of its floats."""
    if (library := core()) is None:
        return MultiplyAdds(1, 1, reference.multiply_adds(n, a, b))
    total, vectors, floats = ctypes.c_double(), ctypes.c_int64(), ctypes.c_int64()
    call("roofline", library.embtrain_roofline_multiply_adds, n, ctypes.c_float(a), ctypes.c_float(b),
         ctypes.byref(total), ctypes.byref(vectors), ctypes.byref(floats))
    return MultiplyAdds(vectors.value, floats.value, total.value)
