"""Roofline micro-benchmarks in NumPy: random row updates, and multiply-adds of one number.

    rows           table[id_i] ← table[id_i] + 1 for each id, in turn
    multiply_adds  x ← a x + b, n times from x = 0

The compiled core updates several vectors where this file updates one float. kernels/roofline.py runs this file if the
core is missing.
"""

from __future__ import annotations

import numpy as np


def rows(table: np.ndarray, ids: np.ndarray) -> None:
    if len(ids) and not 0 <= ids.min() <= ids.max() < len(table):
        raise IndexError(f"roofline: an id beyond the {len(table)} rows")
    np.add.at(table, ids, np.float32(1))


def multiply_adds(n: int, a: float, b: float) -> float:
    x = np.float32(0)
    for _ in range(n):
        x = np.float32(a) * x + np.float32(b)
    return float(x)
