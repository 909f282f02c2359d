"""Removes differences that are only rounding errors, before scores are ranked or compared.

A table contains float32 numbers, which are accurate to DIGITS decimal digits. Cosines that should be equal differ in
later digits, and a rank correlation or an average precision would then use an order that the vectors do not contain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DIGITS = int(np.finfo(np.float32).precision)  # 6


def round_scores(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of any shape, rounded to DIGITS decimals; above 1 to DIGITS significant digits. NaN and inf are kept."""
    with np.errstate(divide="ignore", invalid="ignore"):
        n_digits = np.ceil(np.log10(np.abs(scores)))                        # digits before the decimal point; -inf at 0
    n_digits = np.where(np.isfinite(n_digits), np.clip(n_digits, 0, 300), 0.0)
    step = 10.0 ** (n_digits - DIGITS)
    return np.where(np.isfinite(scores), np.round(scores / step) * step, scores)


def snap_rounding(x: NDArray[np.float64], operands: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Replace numbers (n,) that differ only by rounding by the first of them, or by 0.

    operands: the numbers from which x was computed, which set the rounding error; by default x.
    """
    rounding = 8 * np.spacing(np.abs(x if operands is None else operands).max(initial=0))
    if not len(x) or np.ptp(x) > rounding:
        return x
    return np.full(len(x), 0.0 if np.abs(x).max() <= rounding else x[0])
