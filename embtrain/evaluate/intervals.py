"""Intervals: how far a score would move if the items it rests on were drawn anew.

    bootstrap   draw n items with replacement, score them, again and again; the interval is what lies between the
                (1 ± level)/2 quantiles of those scores (percentile interval; Efron 1979)
    clusters    items that hang together (centres in the same piece of text) are drawn together; the mean of resample r
                is Σ_c m_rc S_c / Σ_c m_rc N_c, for a cluster c of N_c items that sum to S_c
    wilson      (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n) for k = pn of n (Wilson 1927)

A resample is held as multiplicities m: how often it drew each item. Its seed is fixed, so a score has one interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float] | tuple[None, None]
NO_INTERVAL: Interval = (None, None)

_CELLS = 1 << 21  # multiplicities held at once
_SEED = 0


def multiplicities(n: int, resamples: int) -> Iterator[NDArray[np.float64]]:
    """Chunks (r, n) of `resamples` draws of n of n items: how often each was drawn; every row sums to n."""
    rng = np.random.default_rng(_SEED)
    for start in range(0, resamples, step := max(1, _CELLS // max(n, 1))):
        r = min(step, resamples - start)
        drawn = rng.integers(0, n, size=(r, n)) + n * np.arange(r)[:, None]
        yield np.bincount(drawn.ravel(), minlength=r * n).reshape(r, n).astype(np.float64)


def percentile(scores: NDArray[np.float64], level: float) -> Interval:
    """The interval of resampled scores (r,). None where fewer than half are numbers: too few items to say."""
    known = scores[np.isfinite(scores)]
    if len(known) == 0 or 2 * len(known) < len(scores):
        return NO_INTERVAL
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def of_means(values: NDArray[np.float64], clusters: NDArray[np.int64], resamples: int, level: float) -> list[Interval]:
    """One interval for the mean of each column of `values` (n, M); clusters (n,) are any ids."""
    M = values.shape[1]
    _, cluster = np.unique(clusters, return_inverse=True)
    N = np.bincount(cluster).astype(np.float64)                                              # (C,)
    if resamples == 0 or len(N) < 2:
        return [NO_INTERVAL] * M
    S = np.stack([np.bincount(cluster, weights=values[:, j]) for j in range(M)], axis=1)     # (C, M)
    with np.errstate(invalid="ignore"):  # 0 × ∞: such a column has no interval
        means = np.concatenate([(m @ S) / (m @ N)[:, None] for m in multiplicities(len(N), resamples)])  # (r, M)
    return [percentile(means[:, j], level) for j in range(M)]


def wilson(k: int, n: int, level: float) -> Interval:
    """For k hits of n independent trials; sound at 0 and n hits too, where a bootstrap sees no variation."""
    if n == 0:
        return NO_INTERVAL
    p, z = k / n, NormalDist().inv_cdf((1 + level) / 2)
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return (0.0 if k == 0 else low), (1.0 if k == n else high)
