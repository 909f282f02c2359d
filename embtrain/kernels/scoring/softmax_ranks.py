"""Log-softmax of targets and counts of better and equal scores, in two passes over each row.

    top_i = max_v s_iv, or 0 if it is not finite       z_iv = s_iv − top_i       log_sum_i = log Σ_v e^{z_iv}
    better = #{v: z_iv > z_it}                         equal = #{v: z_iv = z_it}, with the target t itself

z is rounded to float32, and counts compare the rounded z, so core and reference agree to the bit except in log_sum.
NaN is neither better nor equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from embtrain.kernels.core.binding import call, check_array, check_range, parallel_for, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.scoring import softmax_ranks as reference

GRAIN = 1 << 18  # scores per thread that pay for the thread
TARGETS = "softmax_ranks: target"


class SoftmaxRanks(NamedTuple):
    """Results for Q rows of scores and P targets."""

    top: np.ndarray      # (Q,) float32
    log_sum: np.ndarray  # (Q,) float64
    score: np.ndarray    # (P,) float32  z of the target
    better: np.ndarray   # (P,) int64
    equal: np.ndarray    # (P,) int64


def measure(scores: np.ndarray, first: np.ndarray, target: np.ndarray, threads: int = 1) -> SoftmaxRanks:
    """Measure the targets target[first[i]:first[i + 1]] in row i of scores (Q, V) float32; first (Q+1,), target (P,).

    Raises TypeError or ValueError for other shapes, IndexError for a target that is not in 0..V-1.
    """
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise ValueError(f"softmax_ranks: scores must have two axes and a column, got the shape {scores.shape}")
    check_array("softmax_ranks: scores", scores, np.float32, scores.shape)
    check_array("softmax_ranks: first", first, np.int64, (len(scores) + 1,))
    check_array(TARGETS, target, np.int64, (target.size,))
    if first[0] != 0 or first[-1] != len(target) or (np.diff(first) < 0).any():
        raise ValueError(f"softmax_ranks: first must rise from 0 to {len(target)}")
    if (library := core()) is None:
        check_range(TARGETS, target, 0, scores.shape[1])
        return SoftmaxRanks(*reference.measure(scores, first, target))
    found = SoftmaxRanks(np.empty(len(scores), np.float32), np.empty(len(scores)), np.empty(len(target), np.float32),
                         np.empty(len(target), np.int64), np.empty(len(target), np.int64))

    def part(begin: int, end: int) -> None:
        call(TARGETS, library.embtrain_softmax_ranks, pointer(scores), scores.shape[1], pointer(first),
             pointer(target), begin, end, *map(pointer, found))

    parallel_for(part, len(scores), min(threads, scores.size // GRAIN))
    return found
