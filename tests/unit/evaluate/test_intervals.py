"""Intervals: known values, and coverage at the nominal level."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from embtrain.evaluate.statistics.intervals import (
    UNBOUNDED,
    UNIT,
    bias_corrected,
    f1_interval,
    few_note,
    logit_interval,
    mean_intervals,
    multiplicities,
    percentile,
    ratio_intervals,
    wilson,
)


def test_every_resample_draws_n_items_each_with_equal_probability() -> None:
    m = np.concatenate(list(multiplicities(40, 5000)))
    assert m.shape == (5000, 40) and (m.sum(1) == 40).all() and m.min() == 0
    # Each multiplicity is binomial(40, 1/40).
    seen = np.bincount(m.astype(int).ravel(), minlength=5)[:5] / m.size
    np.testing.assert_allclose(seen, stats.binom.pmf(np.arange(5), 40, 1 / 40), atol=0.004)


def test_resamples_repeat_and_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(multiplicities(31, 50)))
    monkeypatch.setattr("embtrain.evaluate.statistics.intervals._MAX_HELD", 100)
    chunks = list(multiplicities(31, 50))
    assert len(chunks) > 1 and (np.concatenate(chunks) == whole).all()


def test_percentile_interval() -> None:
    assert percentile(np.arange(101.0), 0.9, 50) == pytest.approx((5, 95))
    assert percentile(np.array([np.nan, 1.0, 2.0]), 0.5, 50) == pytest.approx((1.25, 1.75))
    assert percentile(np.array([np.nan, np.nan, 1.0]), 0.5, 50) == (None, None)
    assert percentile(np.array([]), 0.5, 50) == (None, None)
    assert percentile(np.arange(101.0), 0.9, 9) == (None, None)          # too few items
    assert percentile(np.array([0.3, 0.1 + 0.2]), 0.9, 50) == (None, None)  # equal but for rounding


@pytest.mark.parametrize("value", [0.0, 3.0, 12.0, 40.0])
def test_the_bias_corrected_interval_is_its_formula_in_scipy(value: float) -> None:
    scores = np.floor(np.random.default_rng(1).gamma(2, 5, 400))                          # skewed, with ties
    z0 = stats.norm.ppf(np.clip(stats.percentileofscore(scores, value, "mean") / 100, 0.5 / 400, 1 - 0.5 / 400))
    shares = stats.norm.cdf(2 * z0 + stats.norm.ppf([0.05, 0.95]))
    expected = np.quantile(scores, shares)
    assert bias_corrected(value, scores, 0.9, 30) == pytest.approx(tuple(expected), abs=1e-9)
    missing = np.append(scores, [np.nan] * 300)
    assert bias_corrected(value, missing, 0.9, 30) == pytest.approx(tuple(expected), abs=1e-9)


def test_the_bias_corrected_interval_is_the_percentile_interval_at_the_median_and_below_it_for_a_high_bias() -> None:
    scores = np.arange(101.0)
    assert bias_corrected(50.0, scores, 0.9, 50) == pytest.approx(percentile(scores, 0.9, 50))
    low, high = bias_corrected(40.0, scores, 0.9, 50)                    # the resamples are too high: so is the value
    assert low is not None and high is not None and low < 5 < high < 95
    below, above = bias_corrected(60.0, scores, 0.9, 50)
    assert (below, above) == pytest.approx((100 - high, 100 - low))


def test_biased_scores_of_few_items_have_no_interval() -> None:
    assert bias_corrected(50.0, np.arange(101.0), 0.9, 29) == (None, None)
    assert bias_corrected(1.0, np.ones(50), 0.9, 30) == (None, None)
    assert bias_corrected(1.0, np.array([np.nan, np.nan, 1.0]), 0.9, 30) == (None, None)
    assert bias_corrected(1.0, np.array([]), 0.9, 30) == (None, None)
    assert few_note(29, 10) == "; fewer than 30: no interval" and few_note(30, 10) == few_note(29, 0) == ""


@pytest.mark.parametrize("share", [0.03, 0.5, 0.98])
def test_the_logit_interval_of_a_share_is_that_of_its_log_odds(share: float) -> None:
    """A share has the derivatives (x_i − share) / n, and its log odds the standard error 1/√(n share (1 − share))."""
    n = 10_000
    x = np.arange(n) < share * n
    low, high = logit_interval(share, (x - share) / n, 0.95)
    half = 1.96 / np.sqrt(n * share * (1 - share))
    assert stats.logistic.ppf([low, high]) - stats.logistic.ppf(share) == pytest.approx([-half, half], rel=1e-3)


def test_a_score_without_variation_at_an_end_or_of_few_items_has_no_logit_interval() -> None:
    derivative = np.tile([0.01, -0.01], 15)
    assert logit_interval(0.5, derivative, 0.95)[0] is not None
    for value, part in ((0.5, derivative[:29]), (0.5, 0 * derivative), (1.0, derivative), (0.0, derivative),
                        (np.nan, derivative * np.nan)):
        assert logit_interval(value, part, 0.95) == (None, None)


def test_the_interval_of_a_mean_of_independent_items_is_the_normal_one() -> None:
    x = np.random.default_rng(1).normal(size=(2000, 2)) * [1, 5] + [0, 100]
    for j, (low, high) in enumerate(mean_intervals(x, np.arange(2000), 2000, 0.95)):
        half = 1.96 * x[:, j].std() / 2000**0.5
        assert low == pytest.approx(x[:, j].mean() - half, abs=half / 8)
        assert high == pytest.approx(x[:, j].mean() + half, abs=half / 8)


def test_clusters_widen_the_interval_to_its_nominal_coverage() -> None:
    rng = np.random.default_rng(2)
    held = {"clusters": 0, "items": 0}
    for _ in range(200):
        size = rng.integers(1, 20, 60)
        cluster = np.repeat(np.arange(60), size)
        x = (rng.normal(size=60)[cluster] + 0.3 * rng.normal(size=len(cluster)))[:, None]
        for name, ids in (("clusters", cluster), ("items", np.arange(len(cluster)))):
            low, high = mean_intervals(x, ids, 200, 0.9)[0]
            held[name] += low <= 0 <= high
    assert 165 <= held["clusters"] <= 195  # 180 expected, sd 4; a little less for 60 clusters
    assert held["items"] < 110


@pytest.mark.parametrize("clusters", [2, 9, 19, 20, 60])
def test_equal_values_have_no_interval_except_at_the_ends_of_their_range(clusters: int) -> None:
    x = np.tile([5.0, 0.1, 0.0, 1.0, 0.0], (3 * clusters, 1))
    ids = np.sort(np.arange(3 * clusters) % clusters)
    ids[0] = clusters - 1                                                # clusters of unequal sizes
    found = mean_intervals(x, ids, 100, 0.9, [UNBOUNDED, UNIT, UNIT, UNIT, UNBOUNDED])
    assert found[:2] == [(None, None)] * 2 and found[4] == (None, None)
    assert found[2:4] == [wilson(0, clusters, 0.9), wilson(clusters, clusters, 0.9)]


@pytest.mark.parametrize("clusters", [2, 4, 8, 19, 20])
def test_clusters_have_a_t_interval_with_nominal_coverage(clusters: int) -> None:
    rng, held = np.random.default_rng(clusters), 0
    for _ in range(400):
        ids = np.repeat(np.arange(clusters), 5)
        x = (rng.normal(size=clusters)[ids] + rng.normal(size=len(ids)))[:, None]
        low, high = mean_intervals(x, ids, 100, 0.9)[0]
        held += low <= 0 <= high
    assert 342 <= held <= 378                                            # 360 expected, sd 6


@pytest.mark.parametrize("n", [3, 20, 41, 500])
def test_the_interval_of_a_mean_is_scipys_t_interval_and_stays_within_the_bounds(n: int) -> None:
    """For any number of items: a percentile bootstrap is too narrow by 1/√(1 − 1/n) and by the t quantile."""
    x = np.random.default_rng(n).normal(size=(n, 1)).repeat(2, axis=1)
    theirs = stats.ttest_1samp(x[:, 0], 0).confidence_interval(0.95)
    bounds = (theirs.low + 0.01, theirs.high - 0.01)
    free, bound = mean_intervals(x, np.arange(n), 100, 0.95, [UNBOUNDED, bounds])
    assert free == pytest.approx((theirs.low, theirs.high)) and bound == bounds


@pytest.mark.parametrize("C", [3, 20, 60])
def test_a_ratio_has_the_interval_of_its_linearization(C: int) -> None:
    N = np.random.default_rng(C).integers(1, 9, C).astype(float)
    S = N / 2 + np.random.default_rng(C + 1).random(C)
    ratio = S.sum() / N.sum()
    half = stats.t.ppf(0.975, C - 1) * np.sqrt(C * (S - ratio * N).var(ddof=1)) / N.sum()   # the residuals sum to 0
    assert ratio_intervals(S[:, None], N, 100, 0.95)[0] == pytest.approx((ratio - half, ratio + half))


@pytest.mark.parametrize("hits", [0, 2, 3])
def test_clusters_without_a_denominator_do_not_narrow_the_interval_of_a_ratio(hits: int) -> None:
    S, N = np.arange(1000) < hits, np.arange(1000) < 3
    [found] = ratio_intervals(S[:, None] * 2.0, N * 2.0, 100, 0.95, [UNIT])
    assert found == ratio_intervals(S[:3, None] * 2.0, N[:3] * 2.0, 100, 0.95, [UNIT])[0]
    if hits != 2:
        assert found == wilson(hits, 3, 0.95)
    assert ratio_intervals(np.zeros((9, 1)), np.zeros(9), 100, 0.95) == [(None, None)]


def test_the_interval_of_f1_at_its_bounds_is_that_of_its_hits() -> None:
    """At 0 hits it ended at the largest share of hits h, which is less than F1 = 2h / (1 + h)."""
    hits = np.arange(9) < 3
    share = wilson(0, 3, 0.95)[1]
    for errors in (1, 2):                            # each positive is missed, without and with a false positive
        assert share is not None and f1_interval(hits & False, hits * errors, 100, 0.95) == pytest.approx(
            (0, 2 * share / (errors + share)))
    assert f1_interval(hits, hits * 0, 100, 0.95) == wilson(3, 3, 0.95)
    mixed = np.array([1, 1, 0]) == 1
    assert f1_interval(mixed, 1 - mixed, 100, 0.95) == ratio_intervals(
        2.0 * mixed[:, None], 1.0 + mixed, 100, 0.95, [UNIT])[0]
    assert f1_interval(mixed, 1 - mixed, 0, 0.95) == (None, None)


def test_of_means_returns_no_interval_for_one_cluster_no_resamples_or_infinities() -> None:
    x = np.array([[1.0, -np.inf], [2.0, 1.0], [3.0, 1.0]])
    assert mean_intervals(x, np.zeros(3, int), 100, 0.95) == [(None, None)] * 2
    assert mean_intervals(x, np.arange(3), 0, 0.95) == [(None, None)] * 2
    finite, infinite = mean_intervals(x, np.arange(3), 100, 0.95)
    assert finite[0] is not None and infinite == (None, None)


@pytest.mark.parametrize("k, n", [(0, 10), (3, 10), (10, 10), (470, 1000)])
def test_wilson_agrees_with_scipy(k: int, n: int) -> None:
    theirs = stats.binomtest(k, n).proportion_ci(0.9, "wilson")
    assert wilson(k, n, 0.9) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert wilson(0, 0, 0.9) == (None, None)
