"""Statistics of a comparison: by hand, by brute force, against scipy and against published numbers."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from embtrain.evaluate.heldout import metric_bounds
from embtrain.evaluate.statistics import difference, significance
from embtrain.evaluate.statistics.difference import (
    A_BEATS_B,
    B_BEATS_A,
    NO_SEED,
    NOT_SEPARABLE,
    ONE_SEED,
    TOO_FEW_ITEMS,
    TOO_FEW_SEEDS,
    Difference,
    hedges_g,
    least_effect,
)
from embtrain.evaluate.statistics.significance import (
    compare_correlations,
    compare_items,
    compare_to_baseline,
    holm,
    holm_family,
    paired_bootstrap,
    paired_means,
    paired_t,
    permutation_ranks,
    steiger,
    t_interval,
)

NAMES = ("nce", "sgns")


def draw(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


# --- over seeds ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
def test_paired_t_is_scipys(n: int) -> None:
    x, y = draw((2, n), n)
    for level in (0.8, 0.95):
        ours, theirs = paired_t(x, y, NAMES, "m", level), stats.ttest_rel(x, y)
        interval = theirs.confidence_interval(level)
        assert ours.p == pytest.approx(theirs.pvalue, rel=1e-12)
        assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-10)
        assert ours.mean == pytest.approx((x - y).mean()) and ours.sd == pytest.approx((x - y).std(ddof=1))
        assert (ours.n, ours.kind, ours.a, ours.b, ours.p_holm) == (n, "seeds", *NAMES, None)


def test_t_interval_is_scipys_and_leaves_out_what_is_not_finite() -> None:
    x = draw((6,))
    ours, theirs = t_interval([*x, math.nan, None, math.inf], 0.9), stats.ttest_1samp(x, 0).confidence_interval(0.9)
    assert ours == pytest.approx((x.mean(), x.std(ddof=1), theirs.low, theirs.high, 6))
    assert t_interval([0.1, 0.9], bounds=metric_bounds("training/cpu_seconds")).low == 0
    assert t_interval([0.01, 0.09], bounds=metric_bounds("test/mrr/head")) == pytest.approx(
        (0.05, 0.04 * math.sqrt(2), 0, 0.05 + stats.t.ppf(0.975, 1) * 0.04, 2))
    assert t_interval([3.0, math.nan]) == (3.0, None, None, None, 1)
    assert t_interval({}) == (None, None, None, None, 0)
    assert t_interval([0.1] * 3) == (0.1, 0, None, None, 3)  # equal values contain no information on the variance
    assert t_interval([0.1 + 0.2, 0.3]) == (0.1 + 0.2, 0, None, None, 2)   # nor do values that differ in the last bit


@pytest.mark.parametrize(("higher_better", "shift", "verdict"), [
    (True, 5, A_BEATS_B), (True, -5, B_BEATS_A), (True, 0, NOT_SEPARABLE),
    (False, 5, B_BEATS_A), (False, -5, A_BEATS_B), (False, 0, NOT_SEPARABLE),
])
def test_the_verdict_uses_the_direction_of_the_score(higher_better: bool, shift: float, verdict: str) -> None:
    y = draw((5,), 1)
    d = paired_t(y + shift + 0.1 * draw((5,), 2), y, NAMES, "m", higher_better=higher_better)
    assert d.verdict == verdict and (shift == 0 or d.mean == pytest.approx(shift, abs=0.3))


def test_seeds_are_paired_by_their_number_and_the_rest_is_noted() -> None:
    x = {1: 1.0, 2: 2.5, 4: 4.2, 5: None, 6: math.nan, 7: math.inf, 9: 3.0}
    y = {4: 4.0, 2: 2.0, 1: 0.9, 5: 1.0, 6: 1.0, 7: 1.0, 8: 1.0}
    d = paired_t(x, y, NAMES, "m")
    assert (d.n, d.mean) == (3, pytest.approx((0.1 + 0.5 + 0.2) / 3)) and d.note.startswith("3 of 8 seeds paired")
    assert paired_t([1.0, 2.5, 4.2], [0.9, 2.0, 4.0, 7.0], NAMES, "m").mean == d.mean
    assert paired_t([1.0, 2.5], [0.9, 2.0], NAMES, "m").note == ""


def test_one_seed_and_none() -> None:
    one, none = paired_t([2.0], [1.5], NAMES, "m"), paired_t({1: 2.0}, {2: 2.0}, NAMES, "m")
    assert (one.verdict, one.mean, one.n, none.verdict, none.mean, none.n) == (ONE_SEED, 0.5, 1, NO_SEED, None, 0)
    for d in (one, none):
        assert {d.low, d.high, d.p, d.effect, d.detectable, d.needed, d.sd} == {None}
    assert one.sentence() == "nce against sgns on m: one seed: no interval; the difference is +0.5."
    assert none.sentence() == "nce against sgns on m: no seed in common."


@pytest.mark.parametrize(("n", "higher_better", "verdict"), [
    (2, True, TOO_FEW_SEEDS), (2, False, TOO_FEW_SEEDS), (3, True, A_BEATS_B), (3, False, B_BEATS_A)])
def test_two_seeds_never_separate_whatever_p_is(n: int, higher_better: bool, verdict: str) -> None:
    """Their interval and p are printed, alone and in a family; three seeds of the same spread separate."""
    x = {1: 0.501, 2: 0.499, 3: 0.5}
    d = paired_t({seed: x[seed] for seed in list(x)[:n]}, dict.fromkeys(x, 0.3), NAMES, "m",
                 higher_better=higher_better)
    family = holm_family([d, d])[0]
    assert d.p is not None and d.p < 0.01 and d.low is not None and d.low > 0
    assert (d.verdict, family.verdict) == (verdict, verdict)
    if n == 2:
        assert d.detectable is None and d.needed == 3
        assert d.sentence() == ("nce against sgns on m: two seeds are too few to separate: +0.2 (95 % interval +0.187 "
                                "to +0.213, 2 seeds, p = 0.0032).")


def test_equal_differences_use_the_sign_test() -> None:
    y = draw((8,), 3)
    same = paired_t(y, y, NAMES, "m")
    assert (same.verdict, same.mean, same.p, same.effect, same.needed) == (NOT_SEPARABLE, 0, 1, 0, None)
    for n, verdict in ((2, TOO_FEW_SEEDS), (5, NOT_SEPARABLE), (6, A_BEATS_B), (8, A_BEATS_B)):
        d = paired_t(y[:n] + 0.3, y[:n], NAMES, "m")  # equal except for rounding
        assert (d.verdict, d.p, d.sd, d.needed) == (verdict, 2.0 ** (1 - n), 0, 6) and "sign test" in d.note
        assert (d.low, d.high, d.effect, d.detectable) == (None, None, None, None)
    # But a spread of a millionth counts: then scipy's t is used.
    d = paired_t(y + 0.3 + 1e-6 * draw((8,), 4), y, NAMES, "m")
    assert d.sd is not None and 1e-7 < d.sd < 1e-5 and d.p is not None and d.p < 1e-20


def test_effect_size_by_hand_and_unbiased() -> None:
    # The usual short form of J is 1 − 3/(4m−1).
    assert hedges_g(1.0, 2.0, 10) == pytest.approx(0.5 * (1 - 3 / 35), abs=3e-4)
    assert hedges_g(-1.0, 2.0, 3) == pytest.approx(-0.5 * math.sqrt(1 / math.pi), rel=1e-12)
    assert (hedges_g(1.0, 2.0, 2), hedges_g(1.0, 0.0, 5), hedges_g(0.0, 0.0, 5)) == (None, None, 0.0)
    x = draw((100_000, 5), 5) + 0.7
    g = x.mean(1) / x.std(1, ddof=1) * hedges_g(1.0, 1.0, 5)
    assert g.mean() == pytest.approx(0.7, abs=0.01)


# --- family --------------------------------------------------------------------------------------------------------

def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.2]).tolist() == [0.2] and holm([0.9, 0.8]).tolist() == [1, 1] and len(holm([])) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_what_the_steps_of_its_definition_reject(ps: list[float], alpha: float) -> None:
    adjusted = holm(ps)
    left = list(range(len(ps)))
    while left:  # reject the smallest while it is at most alpha / (number of remaining tests)
        smallest = min(left, key=lambda i: ps[i])
        if ps[smallest] * len(left) > alpha:
            break
        left.remove(smallest)
        assert adjusted[smallest] <= alpha
    assert all(adjusted[i] > alpha for i in left)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_holm_is_the_closed_test_of_bonferronis(numbers: list[int]) -> None:
    """Adjusted p of i = the largest Bonferroni p over all subsets that contain i (Marcus, Peritz and Gabriel 1976)."""
    ps = [n / 50 for n in numbers]
    for i, p in enumerate(holm(ps)):
        subsets = [s for k in range(len(ps)) for s in itertools.combinations([j for j in range(len(ps)) if j != i], k)]
        assert p == pytest.approx(max(min(1, (len(s) + 1) * min([ps[i], *(ps[j] for j in s)])) for s in subsets))


def test_a_family_is_corrected_by_holm_against_its_baseline() -> None:
    noise = draw((4, 6), 3)
    values = {"sgns": noise[0], "better": noise[0] + 1 + 0.1 * noise[1], "same": noise[0] + 0.1 * noise[2],
              "worse": noise[0] - 1 + 0.1 * noise[3], "alone": {2: 1.0}}
    result = compare_to_baseline(values, "sgns", "m")
    assert [(d.a, d.b, d.verdict) for d in result] == [
        ("better", "sgns", A_BEATS_B), ("same", "sgns", NOT_SEPARABLE), ("worse", "sgns", B_BEATS_A),
        ("alone", "sgns", ONE_SEED)]
    assert result[3].p_holm is None
    ps = [stats.ttest_rel(values[d.a], noise[0]).pvalue for d in result[:3]]
    assert [d.p_holm for d in result[:3]] == pytest.approx(holm(ps).tolist(), rel=1e-9)
    assert [d.verdict for d in compare_to_baseline(values, "sgns", "m", higher_better=False)][::2] == [
        B_BEATS_A, A_BEATS_B]
    # The detectable effect is that of the first step, at alpha / 3; correcting a family twice changes nothing.
    assert result[0].detectable == pytest.approx(result[0].sd * least_effect(6, (1 - 0.95) / 3))
    assert holm_family(result) == result


def test_holm_reverts_a_difference_that_alone_is_separated() -> None:
    y = np.zeros(5)
    near = draw((5,), 6)
    near = (near - near.mean()) / near.std(ddof=1) + 3.3 / math.sqrt(5)  # t = 3.3 on 4: p = .030
    alone = paired_t(near, y, NAMES, "m")
    far = [paired_t(draw((5,), 10 + i), y, ("x", "sgns"), "m") for i in range(3)]
    assert alone.verdict == A_BEATS_B and alone.p == pytest.approx(0.0299, abs=1e-3)
    judged = holm_family([alone, *far])[0]
    assert judged.verdict == NOT_SEPARABLE and judged.p_holm == pytest.approx(4 * alone.p)
    assert judged.needed > alone.needed and judged.detectable > alone.detectable


# --- power ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("n", "alpha"), [(2, 0.05), (3, 0.05), (3, 0.0125), (5, 0.05), (10, 0.01), (353, 0.05)])
def test_the_smallest_effect_is_detected_in_80_of_100(n: int, alpha: float) -> None:
    runs = 200_000 if n < 50 else 4000
    x = draw((runs, n), n) + least_effect(n, alpha)
    t = x.mean(1) / x.std(1, ddof=1) * math.sqrt(n)
    assert (t > stats.t.isf(alpha / 2, n - 1)).mean() == pytest.approx(0.8, abs=0.004 if n < 50 else 0.02)


def test_smallest_effects_of_a_published_table_and_of_many_items() -> None:
    # Cohen (1988): a paired t test, two-sided at 5 %, of d = .5 needs 34 pairs for power .8; of d = .8, 15.
    for d, n in ((0.5, 34), (0.8, 15), (0.2, 199)):
        assert least_effect(n, 0.05) <= d < least_effect(n - 1, 0.05)
    assert least_effect(1001, 0.05) == pytest.approx(least_effect(1000, 0.05), rel=3e-3)
    assert least_effect(5, 0.05) > least_effect(6, 0.05) and least_effect(5, 0.01) > least_effect(5, 0.05)


@given(st.integers(3, 12), st.floats(-4, 4), st.integers(0, 10_000), st.integers(1, 6))
def test_a_difference_that_is_not_separable_needs_more_and_is_below_detectable(n: int, mean: float, seed: int,
                                                                               m: int) -> None:
    x = draw((n,), seed) + mean
    d = holm_family([paired_t(x, np.zeros(n), (f"s{i}", "b"), "m") for i in range(m)])[0]
    assert d.detectable == pytest.approx(d.sd * least_effect(n, (1 - 0.95) / m))
    if d.verdict == NOT_SEPARABLE:
        assert abs(d.mean) < d.detectable and (d.needed is None or d.needed > n)
    if d.needed is not None:
        ratio, alpha = abs(d.mean) / d.sd, (1 - 0.95) / m
        assert least_effect(d.needed, alpha) <= ratio and (d.needed == 3 or least_effect(d.needed - 1, alpha) > ratio)


def test_needed_ends_at_a_thousand_seeds() -> None:
    x = draw((10,), 8)
    x = (x - x.mean()) / x.std(ddof=1)
    edge = least_effect(1000, 1 - 0.95)
    assert paired_t(x + edge * 1.0001, np.zeros(10), NAMES, "m").needed == 1000
    few = paired_t(x + edge * 0.9999, np.zeros(10), NAMES, "m")
    assert few.needed is None and few.sentence().endswith("; the difference seen would take more than 1000.")


def test_a_difference_of_more_items_than_are_reported_needs_more_than_there_are() -> None:
    few = compare_items(draw((9,), 2), np.zeros(9), NAMES, "m")
    (many,) = holm_family([replace(few, n=2_000_000, clusters=2_000_000, mean=1e-9)])
    assert many.needed is None and many.sentence().endswith("; the difference seen would take more than 2000000.")


# --- items ---------------------------------------------------------------------------------------------------------

def means(items: np.ndarray, m: np.ndarray) -> np.ndarray:
    """A Statistic whose bootstrap has known values."""
    return (m @ items) / m.sum(1)


def test_bootstrap_of_a_mean_is_the_normal_interval() -> None:
    a, b = draw((2, 1500), 9) + np.array([[0.2], [0.0]])
    d, se = a - b, (a - b).std() / math.sqrt(1500)
    seen = paired_bootstrap(means, a, b, resamples=3000)
    assert (seen.mean, seen.se, seen.n) == (pytest.approx(d.mean()), pytest.approx(se, rel=0.05), 1500)
    assert (seen.low, seen.high) == pytest.approx((d.mean() - 1.96 * se, d.mean() + 1.96 * se), abs=se / 8)


def test_bootstrap_by_brute_force_of_all_resamples() -> None:
    a, b = np.array([1.0, 4.0, 2.0]), np.array([0.5, 1.0, 3.0])
    every = [np.mean([(a - b)[i] for i in drawn]) for drawn in itertools.product(range(3), repeat=3)]
    seen = paired_bootstrap(means, a, b, resamples=20_000)
    assert seen.se == pytest.approx(np.std(every), rel=0.02)
    assert (seen.low, seen.high) == (None, None)  # with three items its coverage would be 75 %, not 95


def test_bootstrap_draws_the_same_items_on_both_sides() -> None:
    shared = 100 * draw((50,), 10)
    seen = paired_bootstrap(means, shared + 1, shared)
    assert (seen.mean, seen.low, seen.high) == (pytest.approx(1), None, None)  # no variation, no interval
    assert seen.se == pytest.approx(0, abs=1e-9)


def test_a_difference_over_items_without_an_interval_gives_the_reason() -> None:
    one, ordered = np.eye(40), np.arange(40.0)
    equal, few = "no variation: no interval", "fewer than 10 items: no interval"
    most = "most resamples have no value: no interval"     # 40 % contain both items that differ from the others
    gap = np.where(ordered == 3, np.nan, ordered)
    for d, note in ((compare_correlations(one[1], one[0], ordered, NAMES, "spearman"), most),
                    (compare_correlations(ordered, ordered, ordered, NAMES, "spearman"), equal),
                    (compare_correlations(*draw((3, 9), 1), NAMES, "spearman"), few),
                    (compare_items(ordered, ordered, NAMES, "m"), equal),
                    (compare_items(gap, ordered, NAMES, "m"),
                     f"39 of 40 items used; the others are missing or not finite in one; {equal}")):
        assert d.mean is not None and d.low is d.high is None and d.note == note
    assert compare_correlations(ordered, *draw((2, 40), 1), NAMES, "spearman").note == ""
    assert compare_correlations(ordered, ordered, ordered, NAMES, "spearman", resamples=0).note == ""


@pytest.mark.parametrize("c", [2, 19, 20, 41, 500])
@pytest.mark.parametrize("size", [1, 3])
def test_a_difference_of_means_has_the_t_interval_over_clusters(c: int, size: int) -> None:
    a, b = draw((2, c, size), c)
    clusters = None if size == 1 else np.repeat(np.arange(c) * 7 - 3, size)
    seen = compare_items(a.ravel(), b.ravel(), NAMES, "m", clusters)
    theirs = stats.ttest_rel(a.mean(1), b.mean(1)).confidence_interval(0.95)
    assert (seen.low, seen.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9)
    assert seen.sd == pytest.approx((a - b).mean(1).std(ddof=1) * math.sqrt(size)) and seen.clusters == c


def test_equal_differences_of_means_have_no_interval() -> None:
    x = draw((50,), 10)
    for shift in (0.0, 1.0):
        found = paired_means(x + shift, x, np.arange(50) // 2)
        assert found == (pytest.approx(shift), None, None, 0, 50, "; no variation: no interval")
    same = compare_items(x, x, NAMES, "m")
    assert (same.mean, same.low, same.high, same.p, same.verdict) == (0, None, None, 1, NOT_SEPARABLE)
    log_p = 3 * x - 17
    for clusters in (None, np.arange(50) // 3):
        d = compare_items(log_p, log_p - 0.001, NAMES, "m", clusters)  # equal except for the rounding of log p
        assert (d.mean, d.sd, d.low, d.high, d.effect) == (pytest.approx(0.001), 0, None, None, None)
        lost = compare_items(log_p, np.nextafter(log_p, 0), NAMES, "m", clusters)
        assert (lost.mean, lost.p, lost.effect) == (0, 1, 0)
    large = np.array([0, 0, 0, 1e10])  # only the difference of the last item has an error above 1e-5
    for items in (slice(None), slice(None, None, -1)):
        d = compare_items(large[items] + np.array([0, 0, 1e-5, 0])[items], large[items], NAMES, "m")
        assert (d.mean, d.sd) == (pytest.approx(2.5e-6), pytest.approx(5e-6))
    mixed = compare_items(large + 1.0, large, NAMES, "m")
    assert (mixed.mean, mixed.sd) == (1, 0)
    assert significance.difference([math.inf, 2.0], [1.0, 1.0]) == {0: math.inf, 1: 1.0}


def test_a_rounding_error_of_few_items_separates_nothing() -> None:
    log_p = np.array([-5.0] * 20 + [-1e-7])
    lost = compare_items(log_p - 1e-15 * (log_p > -1), log_p, NAMES, "m")
    assert (lost.mean, lost.sd, lost.p, lost.verdict) == (0, 0, 1, NOT_SEPARABLE)
    seeds = dict.fromkeys(range(9), 0.7) | {9: 1e-3}
    same = paired_t(seeds, seeds | {9: 1e-3 - 1e-17}, NAMES, "m")
    assert (same.mean, same.p, same.verdict) == (0, 1, NOT_SEPARABLE)
    assert significance.difference(seeds, seeds | {9: 1e-3 - 1e-17}) == dict.fromkeys(range(10), 0.0)
    # log p of two items is near 0, with the rounding error of s and log Z
    near_zero = np.concatenate([draw((198,), 14) - 9, [-1e-9, -3e-5]])
    for noise in (4e-16 * draw((200,), 15), np.where(near_zero > -1, -3e-15, 0)):
        noisy = compare_items(near_zero + noise, near_zero, NAMES, "m")
        assert (noisy.mean, noisy.sd, noisy.p) == (0, 0, 1)


def test_a_difference_of_0_stays_0_whatever_its_rounding_error() -> None:
    a, b = np.full((2, 50), 1e10)
    a[3], b[3] = 1.000005, 1.0
    for items in (slice(None), slice(None, None, -1)):
        d = compare_items(a[items], b[items], NAMES, "m")
        assert (d.mean, d.sd) == pytest.approx((1e-7, 5e-6 / math.sqrt(50)), rel=1e-6)
        assert (d.p, d.verdict) == (1, NOT_SEPARABLE)
    seen = significance.difference(a[:5], b[:5])
    assert seen == {0: 0, 1: 0, 2: 0, 3: pytest.approx(5e-6), 4: 0}
    b[:] = [*[1.0] * 49, 1e10]          # 1e10 + 3e-6 is 1e10 + 1.9e-6 or + 3.8e-6
    for shift, last in ((1e-9, 0), (3e-6, 3e-6), (3e-5, 3e-5)):
        seen = list(significance.difference(b + shift, b).values())
        assert seen[:49] == pytest.approx([shift] * 49, rel=1e-6) and seen[49] == pytest.approx(last, rel=1e-6)
    assert significance.t_interval([0.0, 1e-300, 1e-300]).sd == pytest.approx(1e-300 / math.sqrt(3))
    assert len(set(seen)) == 1          # the items agree within their rounding errors


@pytest.mark.parametrize("n_small", [1, 20, 39])
@pytest.mark.parametrize("sign", [1, -1])
def test_items_of_other_sizes_with_the_same_difference_have_no_spread(n_small: int, sign: int) -> None:
    """1e9 + 2e-7 is 1e9 + 2.4e-7: not 0, and less than the rounding error."""
    small, b = np.arange(40) < n_small, np.full(40, 1e9)
    b[small] = 1
    for items in (slice(None), slice(None, None, -1)):
        d = compare_items((b + sign * 2e-7)[items], b[items], NAMES, "m")
        assert (d.mean, d.sd) == (pytest.approx(sign * 2e-7, rel=1e-6), 0)
    # rounding errors of both signs are not one difference
    noise = np.where(small, 2e-7, np.where(np.arange(40) % 2, -1.2e-7, 1.2e-7))
    assert compare_items(b + noise, b, NAMES, "m").mean == pytest.approx(n_small / 40 * 2e-7, rel=1e-6)


def test_a_difference_of_correlations_of_few_items_has_neither_interval_nor_p() -> None:
    gold, a, b = np.arange(6.0), np.array([1.0, 0, 2, 3, 4, 5]), np.array([0.0, 2, 1, 3, 5, 4])
    few = compare_correlations(gold, a, b, NAMES, "spearman")
    assert few.mean == pytest.approx(6 * (4 - 2) / 210) and (few.low, few.high, few.p) == (None, None, None)
    assert few.verdict == TOO_FEW_ITEMS


def test_bootstrap_repeats_and_does_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = draw((2, 31), 12)
    seen = [paired_bootstrap(means, a, b, resamples=200, seed=seed) for seed in (0, 0, 1)]
    p = permutation_ranks(a, b, resamples=200)
    monkeypatch.setattr(significance, "_MAX_HELD", 31 * 7)
    assert seen[0] == seen[1] and seen[0] != seen[2]
    # a product of another shape rounds differently
    assert seen[0] == pytest.approx(paired_bootstrap(means, a, b, resamples=200))
    assert permutation_ranks(a, b, resamples=200) == p


def test_items_that_are_not_finite_are_left_out_in_pairs() -> None:
    a, b = draw((2, 60), 13)
    a_hole, b_hole = a.copy(), b.copy()
    a_hole[3], b_hole[7], b_hole[8] = math.nan, math.nan, -math.inf
    rest = np.delete(np.arange(60), [3, 7, 8])
    clusters = np.arange(60) // 2
    d, clean = (
        compare_items(a_hole, b_hole, NAMES, "m", clusters),
        compare_items(a[rest], b[rest], NAMES, "m", clusters[rest]),
    )
    assert d.note.startswith("57 of 60 items used") and {**asdict(d), "note": ""} == asdict(clean)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=6), st.data())
def test_permutation_is_exact_for_few_items(d: list[int], data: st.DataObject) -> None:
    clusters = data.draw(st.lists(st.integers(0, 3), min_size=len(d), max_size=len(d)))
    sums = [sum(x for x, c in zip(d, clusters, strict=True) if c == k) for k in set(clusters)]
    totals = [abs(sum(s * x for s, x in zip(signs, sums, strict=True)))
              for signs in itertools.product((1, -1), repeat=len(sums))]
    share = sum(total >= abs(sum(d)) for total in totals) / len(totals)
    a, b = np.array(d) + 0.1, np.full(len(d), 0.1)
    assert permutation_ranks(a, b, np.array(clusters)) == pytest.approx(share)


def test_permutation_agrees_with_t_and_is_never_zero() -> None:
    a, b = draw((2, 200), 14) + np.array([[0.2], [0.0]])
    assert permutation_ranks(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.012)
    assert permutation_ranks(a + 9, b, resamples=999) == 1 / 1000
    assert permutation_ranks(b, b) == 1 and permutation_ranks(np.empty(0), np.empty(0)) is None
    # Another order of summation rounds to slightly less; all signs equal, with either sign of the 0, give 4 of 64.
    assert permutation_ranks(np.array([0.0, 0.2, 0.9, 0.4, 0.3, 0.1]), np.zeros(6)) == 4 / 64
    # Five clusters: 2 of 32 patterns are as one-sided, for any number of items.
    assert permutation_ranks(np.ones(500), np.zeros(500), np.arange(500) % 5) == 2 / 32


@pytest.mark.parametrize(("r_ac", "r_bc", "r_ab", "n", "z"), [
    (0.0228, 0.3522, 0.3718, 553, -7.1345), (0.2493, 0.3395, 0.4082, 553, -2.0660),
])
def test_steiger_agrees_with_the_output_of_cocor(r_ac: float, r_bc: float, r_ab: float, n: int, z: float) -> None:
    """Published outputs of cocor's steiger1980, whose inputs have only four decimals."""
    assert steiger(r_ac, r_bc, r_ab, n)[0] == pytest.approx(z, abs=5e-4)
    assert steiger(r_bc, r_ac, r_ab, n)[0] == pytest.approx(-z, abs=5e-4)


def williams(r_ac: float, r_bc: float, r_ab: float, n: int) -> float:
    det, r = 1 - r_ac**2 - r_bc**2 - r_ab**2 + 2 * r_ac * r_bc * r_ab, (r_ac + r_bc) / 2
    return (r_ac - r_bc) * math.sqrt((n - 1) * (1 + r_ab) / (2 * det * (n - 1) / (n - 3) + r * r * (1 - r_ab) ** 3))


def test_steiger_agrees_with_williams_t() -> None:
    # The published output of bruceR for these is t(97) = -4.56.
    assert williams(0.2, 0.45, 0.8, 100) == pytest.approx(-4.56, abs=0.005)
    for r_ac, r_bc, r_ab, n in ((0.2, 0.25, 0.8, 100), (0.5, 0.4, 0.1, 103), (0.6, 0.62, 0.9, 353)):  # near the null
        assert steiger(r_ac, r_bc, r_ab, n)[0] == pytest.approx(williams(r_ac, r_bc, r_ab, n), rel=0.03)


def test_steiger_in_edge_cases() -> None:
    assert steiger(0.5, 0.5, 1.0, 100) == (0, 1) and steiger(math.nan, 0.5, 0.3, 100) != (0, 1)
    for impossible in ((1.0, 0.5, 0.5, 100), (0.6, 0.5, 1.0, 100), (0.6, 0.5, 0.2, 3), (1.0, 0.9, 0.9, 100)):
        assert all(map(math.isnan, steiger(*impossible)))
    z, p = steiger(0.6, 0.5, 0.7, 100)
    assert p == pytest.approx(2 * stats.norm.sf(z))
    assert steiger(0.6, 0.5, 0.7, 100, ranks=True)[0] == pytest.approx(z / math.sqrt(1 + 0.55**2 / 2))


def table(n: int, noise: tuple[float, float], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gold = draw((n,), seed)
    a, b = (gold + s * draw((n,), seed + i) for i, s in enumerate(noise, 1))
    return gold, a, b


def test_similarities_are_compared_on_the_same_pairs_of_words() -> None:
    gold, a, b = table(353, (0.5, 1.5), 20)
    d = compare_correlations(gold, a, b, NAMES, "wordsim353/spearman")
    r = [stats.spearmanr(x, y).statistic for x, y in ((a, gold), (b, gold), (a, b))]
    assert d.mean == pytest.approx(r[0] - r[1]) and d.p == pytest.approx(steiger(*r, 353, ranks=True)[1])
    assert (d.verdict, d.kind, d.n, d.note) == (A_BEATS_B, "items", 353, "")
    assert d.low < d.mean < d.high and d.low > 0
    swapped = compare_correlations(gold, b, a, NAMES, "m")
    assert (swapped.verdict, swapped.low, swapped.high) == (B_BEATS_A, -d.high, -d.low)


def test_similarities_with_words_missing_in_one_table() -> None:
    gold, a, b = table(100, (0.5, 0.6), 30)
    a[:10], b[5:15] = math.nan, math.nan
    d, rest = compare_correlations(gold, a, b, NAMES, "m"), compare_correlations(gold[15:], a[15:], b[15:], NAMES, "m")
    assert d.note.startswith("85 of 100 items used") and {**asdict(d), "note": ""} == asdict(rest)
    for few in (
        compare_correlations(gold[:15], a[:15], b[:15], NAMES, "m"),
        compare_correlations(gold, a, b * 0, NAMES, "m"),
    ):
        assert few.verdict == TOO_FEW_ITEMS and few.p is None
    copy = compare_correlations(gold[15:], a[15:], a[15:], NAMES, "m")
    assert (copy.verdict, copy.mean, copy.p, copy.needed) == (NOT_SEPARABLE, 0, 1, None)


def test_items_report_the_needed_number() -> None:
    rng = np.random.default_rng(40)
    d = compare_items(x := rng.normal(size=2000), x - 0.03 + rng.normal(size=2000), NAMES, "log_p")
    assert (d.verdict, d.kind) == (NOT_SEPARABLE, "items")
    assert d.detectable == pytest.approx(2.8016 / math.sqrt(2000), rel=0.1)
    assert d.needed == pytest.approx((2.8016 * d.sd / d.mean) ** 2, rel=1e-3)
    lower = compare_items(x, x - 0.5 + rng.normal(size=2000), NAMES, "rank", higher_better=False)
    assert lower.verdict == B_BEATS_A
    assert compare_items(x[:1], x[:1], NAMES, "m").verdict == TOO_FEW_ITEMS
    equal = compare_items(x, x - 0.5, NAMES, "m")
    assert (equal.verdict, equal.low, equal.detectable) == (A_BEATS_B, None, None)


@given(st.integers(2, 14), st.integers(1, 6), st.integers(1, 20), st.floats(-3, 3), st.integers(0, 10_000))
def test_power_over_items_is_that_of_a_permutation_of_clusters(C: int, m: int, size: int, mean: float, seed: int
                                                               ) -> None:
    """With C clusters p is at least 2^(1−C): below that no number of items in them separates anything."""
    clusters = np.repeat(np.arange(C), size)
    d = compare_items(np.repeat(draw((C,), seed) + mean, size), np.zeros(C * size), NAMES, "m", clusters)
    d = holm_family([d] * m)[0]
    smallest_p = 2.0 ** (1 - d.min_clusters) * (m if d.verdict == NOT_SEPARABLE else 1)
    assert (d.n, d.clusters) == (C * size, C) and smallest_p < 0.05 <= 2 * smallest_p
    if d.min_clusters > C:
        assert (d.verdict, d.detectable, d.needed) == (NOT_SEPARABLE, None, None)
        assert d.sentence().endswith(f" too few for the test, which takes {d.min_clusters} or more.")
    else:
        assert d.detectable > least_effect(C, 0.05 / m) * d.sd / math.sqrt(size) and not d.shortage
        assert d.needed is None or (d.needed % size == 0 and d.needed >= size * d.min_clusters)


@given(st.lists(st.tuples(st.integers(2, 12), st.integers(0, 4)), min_size=1, max_size=5))
def test_min_clusters_is_the_smallest_number_with_which_holm_separates(family: list[tuple[int, int]]) -> None:
    """family: clusters, and log2 of p over its smallest value. The other differences stay as they are."""
    base = compare_items(np.arange(1.0, 8), np.zeros(7), NAMES, "m")

    def judged(signs: list[tuple[int, int]]) -> list[Difference]:
        return holm_family([replace(base, n=C, clusters=C, p=min(1, 2.0 ** (steps + 1 - C))) for C, steps in signs])

    for i, d in enumerate(judged(family)):
        best = [judged([*family[:i], (C, 0), *family[i + 1:]])[i] for C in range(2, 13)]
        separating = [other.clusters for other in best if other.verdict == A_BEATS_B]
        assert d.min_clusters == min(separating) if d.verdict == NOT_SEPARABLE else d.clusters >= d.min_clusters
        assert bool(d.shortage) == (d.clusters < d.min_clusters) and (d.detectable is None or d.detectable < math.inf)


@pytest.mark.parametrize(("C", "alpha"), [(6, 0.05), (8, 0.0125), (12, 0.05)])
def test_a_permutation_detects_the_smallest_effect_in_70_to_80_of_100(C: int, alpha: float) -> None:
    x = draw((20_000, C), C) + least_effect(C, difference.sign_level(alpha, C))
    sums = np.array(list(itertools.product((1, -1), repeat=C))) @ x.T                                # (2^C, runs)
    p = (np.abs(sums) >= x.sum(1) - 1e-9).mean(0)
    assert 0.66 < (p < alpha).mean() < 0.82


def test_each_item_is_a_cluster_of_its_own_unless_clusters_are_given() -> None:
    few = compare_items(draw((5,), 1), np.zeros(5), NAMES, "m")
    assert few.sentence().endswith(" 5 items are too few for the test, which takes 6 or more.")
    assert compare_items(draw((6,), 1), np.zeros(6), NAMES, "m").detectable is not None


# --- sentences and files ----------------------------------------------------------------------------------------------

def test_sentences() -> None:
    x = np.array([1.0, 1.2, 0.9, 1.1, 1.3])
    beats = paired_t(x, np.zeros(5), NAMES, "mrr").sentence()
    assert beats == "nce beats sgns on mrr: +1.1 (95 % interval +0.904 to +1.3, 5 seeds, p = 0.0001)."
    reverse = compare_to_baseline({"sgns": np.zeros(5), "nce": x}, "sgns", "rank", higher_better=False)[0].sentence()
    assert reverse == "sgns beats nce on rank: -1.1 (95 % interval -1.3 to -0.904, 5 seeds, p = 0.0001, " \
                      "0.0001 after Holm)."
    flat = paired_t(x - 1, np.zeros(5), NAMES, "mrr")
    assert flat.sentence() == (
        "nce and sgns are not separable on mrr: +0.1 (95 % interval -0.0963 to +0.296, 5 seeds, p = 0.23). "
        f"5 seeds would have separated {flat.detectable:.3g} with 80 % power; the difference seen would take "
        f"{flat.needed}.")
    assert flat.needed == 22


def test_every_difference_can_be_written_as_json() -> None:
    y = draw((5,), 50)
    result = compare_to_baseline({"b": y, "same": y, "nan": y * math.nan, "one": [1.0], "far": y + 1e9,
                                 "noise": draw((5,), 51)}, "b", "m")
    result += [compare_items(y, y - 1, NAMES, "m"), compare_correlations(y, y, y, NAMES, "m")]
    assert len(result) == 7
    for d in result:
        assert Difference(**json.loads(json.dumps(asdict(d), allow_nan=False))) == d and d.sentence()
    assert difference.POWER == 0.8
