"""Intervals: known answers, and that they hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from embtrain.evaluate.intervals import multiplicities, of_means, percentile, wilson


def test_every_resample_draws_n_items_and_each_as_often_as_chance() -> None:
    m = np.concatenate(list(multiplicities(40, 5000)))
    assert m.shape == (5000, 40) and (m.sum(1) == 40).all() and m.min() == 0
    # Each multiplicity is binomial(40, 1/40).
    seen = np.bincount(m.astype(int).ravel(), minlength=5)[:5] / m.size
    np.testing.assert_allclose(seen, stats.binom.pmf(np.arange(5), 40, 1 / 40), atol=0.004)


def test_resamples_repeat_and_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(multiplicities(31, 50)))
    monkeypatch.setattr("embtrain.evaluate.intervals._CELLS", 100)
    chunks = list(multiplicities(31, 50))
    assert len(chunks) > 1 and (np.concatenate(chunks) == whole).all()


def test_percentile_interval() -> None:
    assert percentile(np.arange(101.0), 0.9) == pytest.approx((5, 95))
    assert percentile(np.array([np.nan, 1.0, 2.0]), 0.5) == pytest.approx((1.25, 1.75))
    assert percentile(np.array([np.nan, np.nan, 1.0]), 0.5) == (None, None)
    assert percentile(np.array([]), 0.5) == (None, None)


def test_the_interval_of_a_mean_is_that_of_the_normal_law_where_items_are_independent() -> None:
    x = np.random.default_rng(1).normal(size=(2000, 2)) * [1, 5] + [0, 100]
    for j, (low, high) in enumerate(of_means(x, np.arange(2000), 2000, 0.95)):
        half = 1.96 * x[:, j].std() / 2000**0.5
        assert low == pytest.approx(x[:, j].mean() - half, abs=half / 8)
        assert high == pytest.approx(x[:, j].mean() + half, abs=half / 8)


def test_clusters_widen_the_interval_and_it_then_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    held = {"clusters": 0, "items": 0}
    for _ in range(200):
        size = rng.integers(1, 20, 60)
        cluster = np.repeat(np.arange(60), size)
        x = (rng.normal(size=60)[cluster] + 0.3 * rng.normal(size=len(cluster)))[:, None]
        for name, ids in (("clusters", cluster), ("items", np.arange(len(cluster)))):
            low, high = of_means(x, ids, 200, 0.9)[0]
            held[name] += low <= 0 <= high
    assert 165 <= held["clusters"] <= 195  # 180 expected, sd 4; a little less for 60 clusters
    assert held["items"] < 110


def test_a_constant_has_an_interval_of_no_width_however_unequal_the_clusters() -> None:
    assert of_means(np.full((9, 1), 5.0), np.array([0, 1, 1, 1, 1, 1, 1, 1, 1]), 100, 0.9) == [(5, 5)]


def test_of_means_has_nothing_to_say_of_one_cluster_no_resamples_or_infinities() -> None:
    x = np.array([[1.0, -np.inf], [2.0, 1.0], [3.0, 1.0]])
    assert of_means(x, np.zeros(3, int), 100, 0.95) == [(None, None)] * 2
    assert of_means(x, np.arange(3), 0, 0.95) == [(None, None)] * 2
    finite, infinite = of_means(x, np.arange(3), 100, 0.95)
    assert finite[0] is not None and infinite == (None, None)


@pytest.mark.parametrize("k, n", [(0, 10), (3, 10), (10, 10), (470, 1000)])
def test_wilson_agrees_with_scipy(k: int, n: int) -> None:
    theirs = stats.binomtest(k, n).proportion_ci(0.9, "wilson")
    assert wilson(k, n, 0.9) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert wilson(0, 0, 0.9) == (None, None)
