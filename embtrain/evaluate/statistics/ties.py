"""Removes differences that are only rounding errors, before scores are ranked or compared.

A table contains float32 numbers, which are accurate to DIGITS decimal digits. Cosines that should be equal differ in
later digits, and a rank correlation or an average precision would then use an order that the vectors do not contain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DIGITS = int(np.finfo(np.float32).precision)  # 6
# A number near 0 has the rounding error of the terms that it was computed from, as log p = s − log Z. 16 is log Z of
# 9 million candidates with scores of 0.
MAX_TERM = 16.0
_POWERS = np.array([float(10 ** i) for i in range(301)])   # exact up to 1e22: equal decimals are equal floats


def round_scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of any shape, rounded to DIGITS decimals; above 1 to DIGITS significant digits. NaN and inf are kept."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log10(np.abs(scores)).round(9)                 # rounded, so that 1 + 2e-16 has no more digits than 1
    before_point = np.where(np.isfinite(log), np.clip(np.ceil(log), 0, 300), 0).astype(np.int64)     # digits
    up, down = _POWERS[np.maximum(DIGITS - before_point, 0)], _POWERS[np.maximum(before_point - DIGITS, 0)]
    return np.where(np.isfinite(scores), np.round(scores * up / down) / up * down, scores)


def snap_rounding(x: NDArray[np.float64], operands: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Replace numbers (n,) that all agree by one number, or else those within their rounding error of 0 by 0.

    Numbers agree if all are within their rounding errors of 0, or if all have one sign and one number, near the first,
    is within the rounding error of each. A number of exactly 0 stays 0.

    operands: the numbers (2, n) of which x is the difference. They set the rounding error of each difference, which is
    at least that of MAX_TERM. By default x itself sets it.
    """
    size = np.abs(x) if operands is None else np.maximum(np.abs(operands).max(0), MAX_TERM)
    rounding = 8 * np.spacing(size)                                                          # (n,)
    is_zero = np.abs(x) <= rounding
    if not is_zero.all() and ((x > 0).all() or (x < 0).all()):
        low, high = (x - rounding / 2).max(), (x + rounding / 2).min()
        if low <= high:
            return np.full_like(x, np.clip(x[0], low, high))
    return np.where(is_zero, 0.0, x)
