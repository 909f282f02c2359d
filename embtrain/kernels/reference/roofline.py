"""Roofline micro-benchmarks in NumPy: random row updates, and multiply-adds of one number.

    rows           table[id_i] ← table[id_i] + 1 for each id, in turn
    multiply_adds  x ← a x + b, n times from x = 0; returns the number of lanes, 1 here, and x

The compiled core updates a whole vector x where this file updates one float. kernels/roofline.py runs this file if the
core is missing.
"""

from __future__ import annotations

import numpy as np


def rows(table: np.ndarray, ids: np.ndarray) -> None:
    if len(ids) and not 0 <= ids.min() <= ids.max() < len(table):
        raise IndexError(f"roofline: an id beyond the {len(table)} rows")
    np.add.at(table, ids, np.float32(1))


def multiply_adds(n: int, a: float, b: float) -> tuple[int, float]:
    x = np.float32(0)
    for _ in range(n):
        x = np.float32(a) * x + np.float32(b)
    return 1, float(x)
