"""Intervals: how far a score would move if its items were drawn again.

    ratio       a mean, and any other ratio of sums R = Σ_c S_c / Σ_c N_c over C independent items or clusters with
                N_c > 0, has the t interval of its linearization (Cochran 1977, section 6.4):
                R ± t_{C−1} √(C/(C−1) Σ_c (S_c − R N_c)²) / Σ_c N_c
    clusters    items that depend on each other (centres in the same piece of text) are summed first; for a mean,
                cluster c has N_c items that sum to S_c
    wilson      (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n) for k = pn of n (Wilson 1927)
    f1          F1 = 2h/(2h + w) with h hits and w errors of C clusters is a ratio of sums; at 0, its upper end is
                2xC/(xC + w) for the upper end x of Wilson's interval for 0 of C
    bootstrap   other scores: draw n items with replacement, score them, repeat; the interval is between the
                (1 ± level)/2 quantiles of those scores (percentile interval; Efron 1979)
    biased      BLEU has the bias-corrected percentile interval (Efron 1981): the quantiles Φ(2 z0 ± z_{(1+level)/2})
                with z0 = Φ⁻¹(share of resamples below the score; equal ones count half)
    logit       average precision A has the t interval of its linearization on the logit scale (Boyd, Eng and Page
                2013): logit A ± t_{n−1} e / (A (1−A)), e² = n/(n−1) Σ_i (dA/dw_i)², w_i the weight of item i

Items without variation give no interval, because they are no evidence of the size of random error. The exception is a
ratio at 0 or 1 that cannot leave [0, 1]: it has Wilson's interval for C of C, or 0 of C, independent trials. A score
that is not a ratio, for example a correlation, has no interval below MIN_ITEMS items, because the bootstrap then covers
the truth too rarely (in simulations, Spearman's ρ = .9 in 77 % of samples of 5 at a nominal 95 %). Average precision
and BLEU, which are biased, need MIN_BIASED_ITEMS; average precision needs as many positives and as many negatives (in
simulations, it covers the truth in 85 % of samples of 5 positives and 1,000 negatives, or of 300 and 5). For a ratio
the bootstrap would be too narrow at any C: it lacks √(C/(C−1)) and t (decision 164).

A resample is stored as multiplicities m: how often it drew each item. Its seed is fixed, so a score has one interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float] | tuple[None, None]
NO_INTERVAL: Interval = (None, None)
Bounds = tuple[float, float]
UNBOUNDED: Bounds = (-math.inf, math.inf)
UNIT: Bounds = (0, 1)
ROUNDING = 1e-12  # relative error of float64 sums
MIN_ITEMS = 10  # for a bootstrap
MIN_BIASED_ITEMS = 30  # for an interval of average precision or BLEU

_MAX_HELD = 1 << 21  # multiplicities in memory at once
_SEED = 0


def multiplicities(n: int, resamples: int) -> Iterator[NDArray[np.float64]]:
    """Chunks (r, n) of `resamples` draws of n of n items: how often each was drawn; every row sums to n."""
    rng = np.random.default_rng(_SEED)
    for start in range(0, resamples, step := max(1, _MAX_HELD // max(n, 1))):
        r = min(step, resamples - start)
        drawn = rng.integers(0, n, size=(r, n)) + n * np.arange(r)[:, None]
        yield np.bincount(drawn.ravel(), minlength=r * n).reshape(r, n).astype(np.float64)


def percentile(scores: NDArray[np.float64], level: float, n: int) -> Interval:
    """The interval of resampled scores (r,) of n items or clusters.

    None if n < MIN_ITEMS, if fewer than half of the scores are finite, or if all scores are equal.
    """
    varying = _varying(scores)
    if n < MIN_ITEMS or len(varying) == 0:
        return NO_INTERVAL
    low, high = np.quantile(varying, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bias_corrected(value: float, scores: NDArray[np.float64], level: float, n: int) -> Interval:
    """The bias-corrected interval of a score `value` of n items, from resampled scores (r,).

    None if n < MIN_BIASED_ITEMS, and for the other reasons of `percentile`.
    """
    varying = _varying(scores)
    if n < MIN_BIASED_ITEMS or len(varying) == 0:
        return NO_INTERVAL
    rounding = ROUNDING * abs(value)
    below = float((varying < value - rounding).mean() + (varying <= value + rounding).mean()) / 2
    normal, least = NormalDist(), 0.5 / len(varying)                     # least: z0 stays finite
    z0, z = normal.inv_cdf(min(max(below, least), 1 - least)), normal.inv_cdf((1 + level) / 2)
    low, high = np.quantile(varying, [normal.cdf(2 * z0 - z), normal.cdf(2 * z0 + z)])
    return float(low), float(high)


def logit_interval(value: float, derivative: NDArray[np.float64], level: float) -> Interval:
    """The t interval of a score in [0, 1] on the logit scale.

    derivative (n,): of the score by the weight of each item. None if n < MIN_BIASED_ITEMS, at 0 and 1, and if the score
    does not depend on the weights.
    """
    n = len(derivative)
    if n < MIN_BIASED_ITEMS or not ROUNDING < value < 1 - ROUNDING:
        return NO_INTERVAL
    error = math.sqrt(n / (n - 1) * float(derivative @ derivative))
    if error <= ROUNDING * value:
        return NO_INTERVAL
    from scipy import special  # decision 130: every run imports this module

    middle, half = special.logit(value), _t_quantile(n - 1, level) * error / (value * (1 - value))
    return float(special.expit(middle - half)), float(special.expit(middle + half))


def few_note(n: int, resamples: int, least: int = MIN_BIASED_ITEMS, kind: str = "") -> str:
    """The reason why a score of n items has no interval, to follow its note; empty if it can have one.

    least: items that an interval needs; MIN_BIASED_ITEMS for a biased score. kind: their name, unless they are all.
    """
    return f"; fewer than {least}{kind and ' ' + kind}: no interval" if resamples and n < least else ""


def missing_note(low: float | None, n: int, resamples: int, least: int = 2, kind: str = "", value: float = 0,
                 resampled: NDArray[np.float64] | None = None) -> str:
    """The reason why a score of n items has no interval, to follow its note; empty if its lower end is a number.

    least, kind: as in `few_note`. value: of the score; if it is not finite, this is the reason, also without resamples.
    resampled: the scores (r,) of which the interval was computed, if it is a bootstrap.
    """
    if not math.isfinite(value):
        return "; not finite"
    if low is not None or resamples == 0:
        return ""
    if few := few_note(n, resamples, least, kind):
        return few
    return ("; no variation: no interval" if resampled is None or _is_mostly_finite(resampled) else
            "; most resamples have no value: no interval")


def _varying(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The finite ones of resampled scores (r,); none if fewer than half are finite, or if all are equal."""
    finite = scores[np.isfinite(scores)]
    return finite if _is_mostly_finite(scores) and has_spread(finite) else finite[:0]


def _is_mostly_finite(scores: NDArray[np.float64]) -> bool:
    return 2 * int(np.isfinite(scores).sum()) >= len(scores)


def has_spread(x: NDArray[np.float64]) -> bool:
    """Whether finite numbers (n,) differ by more than the rounding of sums."""
    return bool(len(x)) and float(np.ptp(x)) > ROUNDING * float(np.abs(x).max())


def mean_intervals(values: NDArray[np.float64], clusters: NDArray[np.int64], resamples: int, level: float,
                   bounds: Sequence[Bounds] | None = None) -> list[Interval]:
    """One interval for the mean of each column of `values` (n, M); clusters (n,) are arbitrary ids.

    bounds: smallest and largest possible mean of each column; default: unbounded. resamples: 0 for no intervals.
    """
    M = values.shape[1]
    _, cluster = np.unique(clusters, return_inverse=True)
    N = np.bincount(cluster).astype(np.float64)                                              # (C,)
    S = np.stack([_sums(cluster, values[:, j]) for j in range(M)], axis=1)                   # (C, M)
    return ratio_intervals(S, N, resamples, level, bounds)


def ratio_intervals(S: NDArray[np.float64], N: NDArray[np.float64], resamples: int, level: float,
                    bounds: Sequence[Bounds] | None = None) -> list[Interval]:
    """One interval for Σ_c S_c / Σ_c N_c of each column of S (C, M), with N (C,) >= 0.

    Clusters with N_c = 0, where S_c is 0 too, are left out: a thousand of them are no evidence of the ratio.

    bounds: smallest and largest possible ratio of each column; default: unbounded. resamples: 0 for no intervals.
    """
    S, N = S[N > 0], N[N > 0]
    C, M = S.shape
    if resamples == 0 or C < 2:
        return [NO_INTERVAL] * M
    t = _t_quantile(C - 1, level)
    out: list[Interval] = []
    for j in range(M):
        low, high = UNBOUNDED if bounds is None else bounds[j]
        ratio, error = linearized(S[:, j], N)
        if not math.isfinite(error):
            out.append(NO_INTERVAL)
        elif error == 0:
            at_bound = (low, high) == (0, 1) and math.isclose(ratio, round(ratio), abs_tol=1e-9)
            out.append(wilson(C * round(ratio), C, level) if at_bound else NO_INTERVAL)
        else:
            out.append((max(low, ratio - t * error), min(high, ratio + t * error)))
    return out


def f1_interval(hits: NDArray[np.bool_], errors: NDArray[np.int64], resamples: int, level: float) -> Interval:
    """The interval of F1 = 2 Σ_c h_c / Σ_c (2 h_c + w_c) of clusters with at most one hit h_c and with w_c errors.

    hits, errors (C,): true positives; false positives and false negatives. A hit in the place of a false negative adds
    2 to the numerator and 1 to the denominator, so that F1 exceeds the share of clusters that are hits. At F1 = 1 the
    lower end is that of the share, which is less. resamples: 0 for no interval.
    """
    h, w = hits.astype(np.float64), errors.astype(np.float64)
    [(low, high)] = ratio_intervals(2 * h[:, None], 2 * h + w, resamples, level, [UNIT])
    if low is None or high is None:
        return NO_INTERVAL
    if not hits.any():
        most_hits = high * np.count_nonzero(errors)
        high = float(2 * most_hits / (most_hits + w.sum()))
    return low, high


def _t_quantile(degrees: int, level: float) -> float:
    """The t with probability `level` between −t and t."""
    from scipy import special  # decision 130: every run imports this module

    return -float(special.stdtrit(degrees, (1 - level) / 2))


def _sums(cluster: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the values (n,) of each cluster, (C,)."""
    return np.bincount(cluster, weights=values).astype(np.float64)


def linearized(S: NDArray[np.float64], N: NDArray[np.float64]) -> tuple[float, float]:
    """R = Σ_c S_c / Σ_c N_c, with S and N (C,), C > 1, and its standard error.

    The error is 0 if all S_c = R N_c except for rounding, and not finite if a sum is not.
    """
    C = len(N)
    with np.errstate(invalid="ignore"):                                                      # ∞ − ∞
        ratio = float(S.sum() / N.sum())
        residual = S - ratio * N                                                             # (C,)
    if np.abs(residual).max() <= ROUNDING * np.abs(S).max():
        return ratio, 0.0
    return ratio, math.sqrt(C / (C - 1) * float(residual @ residual)) / float(N.sum())


def wilson(k: int, n: int, level: float) -> Interval:
    """Interval for k hits of n independent trials; also valid at 0 and n hits."""
    if n == 0:
        return NO_INTERVAL
    p, z = k / n, NormalDist().inv_cdf((1 + level) / 2)
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return (0.0 if k == 0 else low), (1.0 if k == n else high)
