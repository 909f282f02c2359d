"""Rows quantized to int8 with one scale per row.

    x = s (b − 128),   s = max |x| / 127,   b = 128 + round(x / s)  in 1 … 255, ties to even

s is NaN if a number of the row is not finite.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.core.binding import array_arg, call, check_range
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import int8_rows as reference


def write(b: np.ndarray, s: np.ndarray, row_ids: np.ndarray, x: np.ndarray) -> None:
    """Quantize x (n, W) float32 into rows row_ids (n,) int64 of b (R, W) uint8 and s (R,) float32."""
    (rows, width), n = b.shape, len(row_ids)
    b_arg = array_arg("int8_rows: b", b, np.uint8, (rows, width))
    s_arg = array_arg("int8_rows: s", s, np.float32, (rows,))
    ids_arg = array_arg("int8_rows: row_ids", row_ids, np.int64, (n,))
    x_arg = array_arg("int8_rows: x", x, np.float32, (n, width))
    if (library := core()) is None:
        check_range("int8_rows", row_ids, 0, rows)
        reference.write(b, s, row_ids, x)
    else:
        call("int8_rows", library.embtrain_int8_write, x_arg, ids_arg, n, rows, width, b_arg, s_arg)
