"""Reference for kernels/sampling/int8_rows.py."""

from __future__ import annotations

import numpy as np

from embtrain.kernels.reference import ZERO, quantize


def write(b: np.ndarray, s: np.ndarray, row_ids: np.ndarray, x: np.ndarray) -> None:
    for row, numbers in zip(row_ids, x, strict=True):
        z, s[row] = quantize(numbers)
        b[row] = z + ZERO
