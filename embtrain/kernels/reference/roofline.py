"""Reference for kernels/roofline.py. Uses one float where the core uses a whole vector."""

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
