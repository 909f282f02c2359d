"""Dot products of queries with every row of a table, in NumPy.

kernels/scoring/table_products.py runs this file if the compiled core is missing; the tests compare the two.
"""

from __future__ import annotations

import numpy as np


def products(h: np.ndarray, table: np.ndarray) -> np.ndarray:
    s: np.ndarray = h @ table.T
    return s
