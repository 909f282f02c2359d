"""Roofline micro-benchmarks: random row updates,

    table[id_i] <- table[id_i] + 1

and the arithmetic of scores and gradients, with as many independent multiply-adds as the processor overlaps:

    x <- a x + b
"""

from __future__ import annotations

import ctypes

import numpy as np

from embtrain.kernels.core.library import OK, core
from embtrain.kernels.reference import roofline as reference


def rows(table: np.ndarray, ids: np.ndarray) -> None:
    """Add 1 to row ids[i] of table (R, d) float32, in turn. Rows may be padded (core.tables.zeros). IndexError."""
    if table.dtype != np.float32 or table.ndim != 2 or table.strides[1] != 4 or table.strides[0] % 4:
        raise ValueError(f"roofline: a table of float32 rows expected, got {table.dtype} {table.shape}")
    if ids.dtype != np.int64 or ids.ndim != 1 or not ids.flags.c_contiguous:
        raise ValueError("roofline: ids must be a contiguous array of int64 with one axis")
    if (library := core()) is None:
        reference.rows(table, ids)
        return
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    if library.embtrain_roofline_rows(pointer(table.ctypes.data), int64(len(table)), int64(table.shape[1]),
                                    int64(table.strides[0] // 4), pointer(ids.ctypes.data), int64(len(ids))) != OK:
        raise IndexError(f"roofline: an id beyond the {len(table)} rows")


def multiply_adds(n: int, a: float, b: float) -> tuple[int, float]:
    """x <- a x + b, n times from 0, in several floats at once. Returns the number of floats and their sum."""
    if (library := core()) is None:
        return reference.multiply_adds(n, a, b)
    total, floats = ctypes.c_double(), ctypes.c_int64()
    library.embtrain_roofline_multiply_adds(ctypes.c_int64(n), ctypes.c_float(a), ctypes.c_float(b),
                                            ctypes.byref(total),
                                          ctypes.byref(floats))
    return floats.value, total.value
