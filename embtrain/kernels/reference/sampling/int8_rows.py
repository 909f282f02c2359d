"""Quantizes rows to int8 with one scale per row, in NumPy.

    s = max |x| / 127        b = 128 + round(x / s), ties to even        x ≈ s (b − 128)

`write` stores rows x (n, W) float32 as bytes b and scales s, at the row ids (n,). kernels/sampling/int8_rows.py runs
this file if the compiled core is missing; the tests compare the two.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.reference import ZERO_POINT, quantize


def write(b: np.ndarray, s: np.ndarray, row_ids: np.ndarray, x: np.ndarray) -> None:
    for row, numbers in zip(row_ids, x, strict=True):
        z, s[row] = quantize(numbers)
        b[row] = z + ZERO_POINT
