"""Reference for kernels/scoring/row_products.py."""

from __future__ import annotations

import numpy as np


def measure(h: np.ndarray, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.einsum("nd,nd->n", h, h), np.einsum("nd,nd->n", h, e)


def combine(h: np.ndarray, e: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total: np.ndarray = a[:, None] * h
    total += b[:, None] * e
    return total
