"""Rows quantized to int8 with one scale per row.

    x = s (b − 128),   s = max |x| / 127,   b = 128 + round(x / s)  in 1 … 255, ties to even

s is NaN if a number of the row is not finite.
"""

from __future__ import annotations

from ctypes import c_int64, c_void_p

import numpy as np

from embtrain.kernels.core.library import address, check_array, check_range, core, raise_for_status
from embtrain.kernels.reference.sampling import int8_rows as reference


def write(b: np.ndarray, s: np.ndarray, row_ids: np.ndarray, x: np.ndarray) -> None:
    """Quantize x (n, W) float32 into rows row_ids (n,) int64 of b (R, W) uint8 and s (R,) float32."""
    (rows, width), n = b.shape, len(row_ids)
    check_array("int8_rows: b", b, np.uint8, (rows, width))
    check_array("int8_rows: s", s, np.float32, (rows,))
    check_array("int8_rows: at", row_ids, np.int64, (n,))
    check_array("int8_rows: x", x, np.float32, (n, width))
    if (library := core()) is None:
        check_range("int8_rows", row_ids, 0, rows)
        reference.write(b, s, row_ids, x)
        return
    raise_for_status("int8_rows", library.embtrain_int8_write(
        c_void_p(address(x)), c_void_p(address(row_ids)), c_int64(n), c_int64(rows), c_int64(width),
        c_void_p(address(b)),
        c_void_p(address(s))))
