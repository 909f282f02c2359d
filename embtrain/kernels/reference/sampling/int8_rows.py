"""Twin of kernels/sampling/int8_rows.py."""

from __future__ import annotations

import numpy as np

from embtrain.kernels.reference import ZERO, eight_bits


def write(b: np.ndarray, s: np.ndarray, at: np.ndarray, x: np.ndarray) -> None:
    for row, numbers in zip(at, x, strict=True):
        z, s[row] = eight_bits(numbers)
        b[row] = z + ZERO
