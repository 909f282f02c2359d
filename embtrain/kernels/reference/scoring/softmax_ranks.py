"""Log-softmax of targets and counts of better and equal scores, in NumPy.

kernels/scoring/softmax_ranks.py runs this file if the compiled core is missing; the tests compare the two.
"""

from __future__ import annotations

import numpy as np


def measure(scores: np.ndarray, first: np.ndarray, target: np.ndarray
            ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """top and log_sum of each row, score, better and equal of each target, as the wrapper returns them."""
    top, log_sum = np.empty(len(scores), np.float32), np.empty(len(scores))
    score = np.empty(len(target), np.float32)
    better, equal = np.empty(len(target), np.int64), np.empty(len(target), np.int64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for i, row in enumerate(scores):
            highest = row.max()
            top[i] = highest if np.isfinite(highest) else 0
            z = row - top[i]                                                                      # (V,)
            log_sum[i] = np.log(np.exp(z).sum(dtype=np.float64))
            for a in range(first[i], first[i + 1]):
                score[a] = z[target[a]]
                better[a], equal[a] = np.count_nonzero(z > score[a]), np.count_nonzero(z == score[a])
    return top, log_sum, score, better, equal
