"""Roofline micro-benchmarks: random row updates,

    table[id_i] <- table[id_i] + 1

and the arithmetic of scores and gradients, with as many independent multiply-adds as the processor overlaps:

    x <- a x + b
"""

from __future__ import annotations

import ctypes

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


def multiply_adds(n: int, a: float, b: float) -> tuple[int, float]:
    """x <- a x + b, n times from 0, in several floats at once. Returns the number of floats and their sum."""
    if (library := core()) is None:
        return reference.multiply_adds(n, a, b)
    total, floats = ctypes.c_double(), ctypes.c_int64()
    call("roofline", library.embtrain_roofline_multiply_adds, n, ctypes.c_float(a), ctypes.c_float(b),
         ctypes.byref(total), ctypes.byref(floats))
    return floats.value, total.value
