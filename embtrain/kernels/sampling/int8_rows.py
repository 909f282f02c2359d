"""Rows that are kept in eight bits and a scale.

    x = s (b − 128),   s = max |x| / 127,   b = 128 + round(x / s)  in 1 … 255, halves to even

s is NaN where a number of the row is not finite.
"""

from __future__ import annotations

from ctypes import c_int64, c_void_p

import numpy as np

from embtrain.kernels.core.library import address, checked, core, succeed, within
from embtrain.kernels.reference.sampling import int8_rows as twin


def write(b: np.ndarray, s: np.ndarray, at: np.ndarray, x: np.ndarray) -> None:
    """Rows at (n,) int64 of b (R, W) uint8 and s (R,) float32 become x (n, W) float32."""
    (rows, width), n = b.shape, len(at)
    checked("rounded: b", b, np.uint8, (rows, width))
    checked("rounded: s", s, np.float32, (rows,))
    checked("rounded: at", at, np.int64, (n,))
    checked("rounded: x", x, np.float32, (n, width))
    if (library := core()) is None:
        within("rounded", at, 0, rows)
        twin.write(b, s, at, x)
        return
    succeed("rounded", library.embtrain_rounded_write(
        c_void_p(address(x)), c_void_p(address(at)), c_int64(n), c_int64(rows), c_int64(width), c_void_p(address(b)),
        c_void_p(address(s))))
