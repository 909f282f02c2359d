"""Norms, dot products and gradients for losses that compare rows of two tables, in NumPy.

    measure: κ²_n = h_n·h_n, c_n = h_n·e_n, (n,) each       combine: a_n h_n + b_n e_n, (n, d)       h, e (n, d)

kernels/scoring/row_products.py runs this file if the compiled core is missing; the tests compare the two.
"""

from __future__ import annotations

import numpy as np


def measure(h: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.einsum("nd,nd->n", h, h), np.einsum("nd,nd->n", h, e)


def combine(h: np.ndarray, e: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total: np.ndarray = a[:, None] * h
    total += b[:, None] * e
    return total
