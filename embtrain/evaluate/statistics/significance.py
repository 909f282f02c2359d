"""Statistics of a comparison: is A better than B, and with what certainty?

Over seeds, for the paired differences d_i = x_i − y_i of n seeds, with mean d̄ and standard deviation s:

    interval     d̄ ± t_{n−1} s/√n,  p from t = d̄ √n / s  (Student 1908). Never a bootstrap: over 3, 5 and 10 seeds its
                 percentile interval covers the truth in 75, 84 and 90 % of cases, not in 95
    no spread    if all d_i are equal there is neither t nor interval; p is the sign test's, 2^{1−n}, or 1 at 0
    family       p_holm of the i-th smallest of m p values = max_{j≤i} (m−j+1) p_j, at most 1  (Holm 1979)

Over items (pairs of words, held-out examples) of two trained tables; this does not account for other seeds:

    means        a difference of means is a mean of differences: the t interval and the standard error of intervals.py,
                 over items or clusters of them
    bootstrap    other scores: items drawn with replacement, the same for A and B (Efron 1979); percentile interval,
                 standard error
    permutation  A and B swapped at random, by item or by cluster; p = (1 + #{|Σ ±d| ≥ |Σ d|}) / (1 + resamples),
                 or the exact share if the 2^C patterns of signs are no more than that
    Steiger      z = (artanh r_ac − artanh r_bc) √((n−3) / (2−2c)),  c = ψ / (1−r²)²,  r = (r_ac + r_bc)/2,
                 ψ = r_ab (1−2r²) − r²/2 (1 − 2r² − r_ab²), for correlations that share one variable (Steiger 1980).
                 For Spearman's ρ the variance is 1 + r²/2 times as large (Bonett and Wright 2000): without this
                 factor, up to 7 % of true nulls fall at 5 % in simulations
    randomized   for a score of sums, like BLEU: A and B swapped item by item, p as above with the scores of the sums
    power        as over seeds (see difference.py), with s = √n times the standard error; √C times it, and C for n,
                 where the signs of C clusters are permuted
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embtrain.evaluate.statistics.difference import NO_SEED, ONE_SEED, TOO_FEW_ITEMS, Difference, hedges_g, with_verdict
from embtrain.evaluate.statistics.intervals import (
    MIN_ITEMS,
    UNBOUNDED,
    Bounds,
    linearized,
    missing_note,
    percentile,
    ratio_intervals,
)
from embtrain.evaluate.statistics.ties import snap_rounding
from embtrain.evaluate.words.similarity import spearman

Floats = NDArray[np.float64]
Values = Mapping[int, float | None] | Sequence[float | None] | Floats  # per seed; a sequence: of seeds 0, 1, ...
Statistic = Callable[[Floats, Floats], Floats]  # items (n,) or (n, c), how often each was drawn (r, n) -> (r,)

_MAX_HELD = 1 << 21  # multiplicities or signs in memory at once


# --- over seeds ----------------------------------------------------------------------------------------------------

class MeanInterval(NamedTuple):
    """Mean, standard deviation and interval of n values."""

    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    n: int


def t_interval(values: Values, level: float = 0.95, bounds: Bounds = UNBOUNDED) -> MeanInterval:
    """Mean, standard deviation and t interval of one strategy's values; values that are not finite are left out.

    bounds: smallest and largest possible value; the interval is clipped to them, which leaves out no true mean.
    No interval if all values are equal: two seeds that agree are no evidence of zero variance.
    """
    x = np.array(list(_by_seed(values).values()), dtype=np.float64)
    x = snap_rounding(x[np.isfinite(x)])
    n = len(x)
    if n < 2:
        return MeanInterval(float(x[0]) if n else None, None, None, None, n)
    if np.ptp(x) == 0:
        return MeanInterval(float(x[0]), 0.0, None, None, n)
    from scipy import special  # decision 130: every run imports this module

    mean, sd = float(x.mean()), float(x.std(ddof=1))
    half = -float(special.stdtrit(n - 1, (1 - level) / 2)) * sd / math.sqrt(n)
    return MeanInterval(mean, sd, max(bounds[0], mean - half), min(bounds[1], mean + half), n)


def difference(x: Values, y: Values) -> dict[int, float]:
    """A − B at each seed that both have."""
    a, b = _by_seed(x), _by_seed(y)
    paired = {seed: (a[seed], b[seed]) for seed in a if seed in b}
    seeds = [seed for seed, (left, right) in paired.items() if left is not None and right is not None]
    values = np.array([paired[seed] for seed in seeds], dtype=np.float64).reshape(-1, 2)
    return dict(zip(seeds, snap_rounding(values[:, 0] - values[:, 1], values.T).tolist(), strict=True))


def paired_t(x: Values, y: Values, names: tuple[str, str], metric: str, level: float = 0.95,
             higher_better: bool = True) -> Difference:
    """A − B over the seeds with a finite value on both sides, tested on its own."""
    a, b = _by_seed(x), _by_seed(y)
    seeds = sorted(a.keys() | b.keys())
    paired = np.array([[side.get(seed) for seed in seeds] for side in (a, b)], dtype=np.float64)      # (2, seeds)
    paired = paired[:, np.isfinite(paired).all(0)]
    d, n = snap_rounding(paired[0] - paired[1], paired), paired.shape[1]
    note = "" if n == len(seeds) else f"{n} of {len(seeds)} seeds paired; the others are missing or not finite in one"
    mean, sd, low, high, _ = t_interval(d, level)
    p = None
    if mean is not None and sd is not None:
        if sd > 0:
            from scipy import special  # decision 130: every run imports this module

            p = float(2 * special.stdtr(n - 1, -abs(mean) * math.sqrt(n) / sd))
        else:
            p = 1.0 if mean == 0 else 2.0 ** (1 - n)
            note = "; ".join(filter(None, [note, "the same difference for every seed: sign test, no interval"]))
    effect = None if mean is None or sd is None else hedges_g(mean, sd, n)
    undecided = Difference(*names, metric, mean, low, high, p, None, effect, n, ONE_SEED if n else NO_SEED, None, None,
                           "seeds", sd, level, higher_better, note)
    return with_verdict(undecided)


def _by_seed(values: Values) -> Mapping[int, float | None]:
    return values if isinstance(values, Mapping) else dict(enumerate(values))


def holm(ps: Sequence[float] | Floats) -> Floats:
    """Adjusted p values, in the order of `ps`."""
    p = np.asarray(ps, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]), 1)
    return adjusted


def holm_family(differences: Sequence[Difference]) -> list[Difference]:
    """The same differences, judged together: Holm over those that have a p value."""
    adjusted = holm([d.p for d in differences if d.p is not None]).tolist()
    ps = iter(adjusted)
    return [d if d.p is None else with_verdict(d, adjusted, next(ps)) for d in differences]


def compare_to_baseline(values: Mapping[str, Values], baseline: str, metric: str, higher_better: bool = True,
                        level: float = 0.95) -> list[Difference]:
    """Every other strategy against the baseline, in one family."""
    return holm_family([paired_t(x, values[baseline], (name, baseline), metric, level, higher_better)
                        for name, x in values.items() if name != baseline])


# --- over items ----------------------------------------------------------------------------------------------------

class ItemDifference(NamedTuple):
    """Difference of a score between A and B over their items, with its interval."""

    mean: float | None  # score of A minus score of B
    low: float | None
    high: float | None
    se: float | None    # standard error
    n: int              # items finite on both sides
    reason: str = ""    # of a missing interval, as in `missing_note`


def correlations(items: Floats, m: Floats) -> Floats:
    """A Statistic: Spearman's ρ of the two columns of items (n, 2) in each resample, (r,)."""
    return spearman(items[:, 0], items[:, 1], m)


def _usable(a: Floats, b: Floats, clusters: NDArray[np.int64] | None) -> tuple[Floats, Floats, NDArray[np.int64], int]:
    """Items finite on both sides, their clusters as 0..C−1 (by default one each), and C."""
    finite = np.isfinite(np.column_stack([a, b])).all(1)
    ids = np.arange(int(finite.sum())) if clusters is None else np.unique(clusters[finite], return_inverse=True)[1]
    return a[finite], b[finite], ids, int(ids.max(initial=-1)) + 1


def _resamples(n: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Chunks (r, n): how often each item was drawn when n of n are."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, step := max(1, _MAX_HELD // max(n, 1))):
        yield rng.multinomial(n, np.full(n, 1 / n), size=min(step, resamples - start)).astype(np.float64)


def paired_bootstrap(stat: Statistic, items_a: Floats, items_b: Floats, resamples: int = 1000, seed: int = 0,
                     level: float = 0.95) -> ItemDifference:
    """stat of A's items minus stat of B's, with the same items drawn on both sides."""
    a, b, _, n = _usable(items_a, items_b, None)
    if n < 2:
        return ItemDifference(None, None, None, None, n)
    once = np.ones((1, n))
    mean = float((stat(a, once) - stat(b, once))[0])
    draws = np.concatenate([np.empty(0), *(stat(a, m) - stat(b, m) for m in _resamples(n, resamples, seed))])
    low, high = percentile(draws, level, n)
    finite = draws[np.isfinite(draws)]
    se = float(finite.std()) if len(finite) and 2 * len(finite) >= len(draws) else None
    return ItemDifference(mean if math.isfinite(mean) else None, low, high, se, n,
                          missing_note(low, n, resamples, MIN_ITEMS, "items", resampled=draws))


def paired_means(items_a: Floats, items_b: Floats, clusters: NDArray[np.int64] | None = None, level: float = 0.95
                 ) -> ItemDifference:
    """Mean of A's items (n,) minus that of B's, over clusters (n,); by default each item is a cluster."""
    S, N = _summed_differences(items_a, items_b, clusters)
    n = int(N.sum())
    if len(N) < 2:
        return ItemDifference(None, None, None, None, n)
    mean, se = linearized(S, N)
    [(low, high)] = ratio_intervals(S[:, None], N, 1, level)
    return ItemDifference(mean, low, high, se, n, missing_note(low, len(N), 1))


def _summed_differences(a: Floats, b: Floats, clusters: NDArray[np.int64] | None) -> tuple[Floats, Floats]:
    """Sum of A − B, without rounding errors, and number of items of each cluster: (C,) twice."""
    a, b, cluster, C = _usable(a, b, clusters)
    d = snap_rounding(a - b, np.stack([a, b]))
    return (np.bincount(cluster, weights=d, minlength=C).astype(np.float64),
            np.bincount(cluster, minlength=C).astype(np.float64))


def permutation_ranks(a: Floats, b: Floats, clusters: NDArray[np.int64] | None = None, resamples: int = 10_000,
                      seed: int = 0) -> float | None:
    """p of the hypothesis that A and B are equal, by swapping them; for any value per item. None without items."""
    S, _ = _summed_differences(a, b, clusters)
    C = len(S)
    if C == 0:
        return None
    observed = abs(S.sum()) - 1e-12 * np.abs(S).sum()  # sums in another order round differently
    exact = C < 63 and resamples >= 1 << C
    n, hits, rng = 1 << C if exact else resamples, 0, np.random.default_rng(seed)
    for start in range(0, n, step := max(1, _MAX_HELD // C)):
        r = min(step, n - start)
        swap = np.arange(start, start + r)[:, None] >> np.arange(C) & 1 if exact \
            else rng.random((r, C)) < 0.5
        hits += int((np.abs((1.0 - 2 * swap) @ S) >= observed).sum())
    return hits / n if exact else (1 + hits) / (1 + n)


def steiger(r_ac: float, r_bc: float, r_ab: float, n: int, ranks: bool = False) -> tuple[float, float]:
    """z and two-sided p of r_ac = r_bc, both measured on the same n items; `ranks`: Spearman correlations."""
    if r_ac == r_bc:
        return 0.0, 1.0
    r = (r_ac + r_bc) / 2
    psi = r_ab * (1 - 2 * r * r) - r * r / 2 * (1 - 2 * r * r - r_ab * r_ab)
    variance = (2 - 2 * psi / (1 - r * r) ** 2) * (1 + r * r / 2 if ranks else 1) if abs(r) < 1 else 0.0
    if n < 4 or variance < 1e-12 or max(abs(r_ac), abs(r_bc)) >= 1:  # impossible correlations, or a copied variable
        return math.nan, math.nan
    from scipy import special  # decision 130: every run imports this module

    z = (math.atanh(r_ac) - math.atanh(r_bc)) * math.sqrt((n - 3) / variance)
    return z, float(2 * special.ndtr(-abs(z)))


def compare_correlations(gold: Floats, a: Floats, b: Floats, names: tuple[str, str], metric: str, level: float = 0.95,
                         resamples: int = 1000, seed: int = 0) -> Difference:
    """Spearman's ρ with gold (n,) of two tables' cosines (n,): bootstrap over pairs of words, p by Steiger's test."""
    A, B = np.column_stack([a, gold]), np.column_stack([b, gold])
    bootstrap = paired_bootstrap(correlations, A, B, resamples, seed, level)
    p = math.nan
    if bootstrap.mean is not None and bootstrap.n >= MIN_ITEMS:  # below, the normal approximation of z is poor
        A, B, _, _ = _usable(A, B, None)
        once = np.ones((1, len(A)))
        r_ac, r_bc, r_ab = (float(spearman(x, y, once)[0]) for x, y in (A.T, B.T, (A[:, 0], B[:, 0])))
        p = steiger(r_ac, r_bc, r_ab, len(A), ranks=True)[1]
    return _item_difference(bootstrap, None if math.isnan(p) else p, len(gold), names, metric, level, True)


def compare_items(a: Floats, b: Floats, names: tuple[str, str], metric: str, clusters: NDArray[np.int64] | None = None,
                  higher_better: bool = True, level: float = 0.95, seed: int = 0) -> Difference:
    """Means of a value per item (n,), for example log p or 1/rank: t interval by cluster, p by permutation."""
    found = paired_means(a, b, clusters, level)
    p = None if found.mean is None else permutation_ranks(a, b, clusters, seed=seed)
    C = _usable(a, b, clusters)[3]
    return _item_difference(found, p, len(a), names, metric, level, higher_better, C)


def compare_sums(stat: Statistic, score: Callable[[Floats], Floats], a: Floats, b: Floats, names: tuple[str, str],
                 metric: str, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> Difference:
    """A score of sums over items (n, c), like BLEU: bootstrap by item, p by approximate randomization.

    stat: of resamples; score: of sums (r, c) -> (r,).
    """
    bootstrap, p = paired_bootstrap(stat, a, b, resamples, seed, level), None
    if bootstrap.mean is not None:
        A, B, _, n = _usable(a, b, None)
        hits, rng, n_swaps, delta = 0, np.random.default_rng(seed), 10 * resamples, B - A
        for start in range(0, n_swaps, step := max(1, _MAX_HELD // n)):
            shift = (rng.random((min(step, n_swaps - start), n)) < 0.5).astype(np.float64) @ delta    # (r, c)
            swapped = score(A.sum(0) + shift) - score(B.sum(0) - shift)
            hits += int((np.abs(swapped) >= abs(bootstrap.mean) - 1e-12).sum())
        p = (1 + hits) / (1 + n_swaps)
    return _item_difference(bootstrap, p, len(a), names, metric, level, True, bootstrap.n)


def _item_difference(found: ItemDifference, p: float | None, n: int, names: tuple[str, str], metric: str, level: float,
                     higher_better: bool, clusters: int | None = None) -> Difference:
    """The Difference of n items and its p. clusters: their number, if p is of permuted signs."""
    sd = None if found.se is None else found.se * math.sqrt(found.n)
    effect = None if found.mean is None or sd is None else hedges_g(found.mean, sd, found.n)
    notes = [f"{found.n} of {n} items used; the others are missing or not finite in one"] * (found.n != n)
    notes += [found.reason.removeprefix("; ")] * (found.mean is not None and found.reason != "")
    undecided = Difference(*names, metric, found.mean, found.low, found.high, p, None, effect, found.n,
                           TOO_FEW_ITEMS, None, None, "items", sd, level, higher_better, "; ".join(notes), clusters)
    return with_verdict(undecided)
