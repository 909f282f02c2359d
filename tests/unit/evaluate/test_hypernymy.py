"""Hypernymy: thresholds, accuracy, F1 and average precision, against loops and scikit-learn; their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import average_precision_score

from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.pairs import entailment, hypernymy, own_pairs
from embtrain.evaluate.pairs.hypernymy import PairScores
from embtrain.evaluate.statistics.intervals import multiplicities

CONFIG = EvaluateConfig(resamples=0)
SCORES = st.lists(st.sampled_from([-3.0, -1.0, -0.5, 0.0, -math.inf]), min_size=4, max_size=24)


def judged(scores: list[float], m: int = 3) -> PairScores:
    n = len(scores) // (m + 1)
    table = np.array(scores[:n * (m + 1)]).reshape(n, m + 1)
    return PairScores(table[:, 0], table[:, 1:])


def random(seed: int, n: int = 60, m: int = 4) -> PairScores:
    draw = np.random.default_rng(seed)
    return PairScores(-draw.exponential(1, n), -draw.exponential(6, (n, m)))


@given(SCORES)
def test_thresholds_are_the_best_there_are(scores: list[float]) -> None:
    judged_scores = judged(scores)
    chosen, every = hypernymy.choose_thresholds(judged_scores), sorted({*judged_scores.pos, *judged_scores.neg.ravel()})
    above_all = np.nextafter(every[-1], np.inf)                     # every[-1] + 1 is not above -inf
    def measures(t: float) -> tuple[float, float]:
        tp, fp = (judged_scores.pos >= t).sum(), (judged_scores.neg >= t).sum()
        return tp + (judged_scores.neg < t).sum(), 2 * tp / (len(judged_scores.pos) + tp + fp)
    assert measures(chosen.accuracy)[0] == max(measures(t)[0] for t in [*every, above_all])
    assert measures(chosen.f1)[1] == pytest.approx(max(measures(t)[1] for t in every))


def test_if_most_pairs_are_negative_predicting_none_positive_may_be_best() -> None:
    tied = PairScores(np.zeros(2), np.zeros((2, 10)))  # ten negatives per positive, all with equal scores
    assert hypernymy.choose_thresholds(tied).accuracy > 0 and hypernymy.choose_thresholds(tied).f1 == 0
    accuracy = next(row for row in hypernymy.scores("test", tied, tied, CONFIG) if row.metric == "accuracy@10")
    assert accuracy.value == pytest.approx(10 / 11)


def test_a_threshold_separates_adjacent_floats() -> None:
    high = float(np.nextafter(1, 0))
    low = float(np.nextafter(high, 0))
    assert (high + low) / 2 == low                                  # rounded to the even one
    assert hypernymy.choose_thresholds(PairScores(np.full(4, high), np.full((4, 1), low))).accuracy == high


def test_the_threshold_of_valid_is_used_on_test() -> None:
    valid = PairScores(np.array([-1.0, -2.0]), np.array([[-4.0], [-6.0]]))
    test = PairScores(np.array([-2.5, -3.5]), np.array([[-2.9], [-5.0]]))
    accuracy, f1, ap = hypernymy.scores("test", test, valid, CONFIG, "noted")
    assert hypernymy.choose_thresholds(valid).accuracy == -3
    assert (accuracy.metric, accuracy.value, accuracy.n) == ("accuracy", 0.5, 2) and accuracy.note.endswith("noted")
    assert "threshold -3 of valid" in accuracy.note
    assert f1.value == pytest.approx(2 * 1 / (2 + 1 + 1)) and ap.metric == "ap"
    assert hypernymy.correct(test, valid).tolist() == [0.5, 0.5]


def test_one_negative_per_positive_alternates_between_both_kinds() -> None:
    pair_scores = PairScores(np.zeros(5), np.arange(10.0).reshape(5, 2))
    assert pair_scores.one_negative_each().neg.tolist() == [[0], [3], [4], [7], [8]]
    names = [row.metric for row in hypernymy.scores("test", pair_scores, pair_scores, CONFIG)]
    assert names == ["accuracy", "f1", "ap", "accuracy@2", "f1@2", "ap@2"]


@given(SCORES)
def test_average_precision_is_scikit_learn_s(scores: list[float]) -> None:
    pair_scores = judged([max(s, -1e9) for s in scores])
    *_, ap = hypernymy.scores("test", pair_scores, pair_scores, CONFIG)
    flat = np.concatenate([pair_scores.pos, pair_scores.neg.ravel()])
    assert ap.value == pytest.approx(average_precision_score(np.arange(len(flat)) < len(pair_scores.pos), flat))


def test_a_nan_score_ranks_below_all() -> None:
    pair_scores = PairScores(np.array([math.nan, -1.0]), np.array([[-5.0], [math.nan]]))
    accuracy, _, ap = hypernymy.scores("test", pair_scores, pair_scores, CONFIG)
    assert accuracy.value == 0.75 and ap.value == pytest.approx(0.5 + 0.5 * 2 / 4)


def test_intervals_contain_the_value_and_narrow_with_more_pairs() -> None:
    width = {}
    for n in (60, 960):
        pair_scores = random(1, n)
        for row in hypernymy.scores("test", pair_scores, random(2), EvaluateConfig(resamples=300)):
            assert row.low is not None and row.high is not None and row.value is not None
            assert row.low <= row.value <= row.high
            width[n, row.metric] = row.high - row.low
    assert all(2 < width[60, name] / width[960, name] < 8 for n, name in width if n == 60)


@pytest.mark.parametrize("n", [5, 40])
def test_average_precision_and_its_derivatives_are_those_of_weighted_items(n: int) -> None:
    pairs = random(3, n, 2)                                                                  # with ties
    s, positive = np.concatenate([pairs.pos, pairs.neg.ravel()]).round(1), np.arange(3 * n) < n
    order, last, _ = hypernymy.cuts(s)
    value, derivative = hypernymy.average_precision(positive[order], last)
    assert value == pytest.approx(average_precision_score(positive, s))
    for place, i in enumerate(order):
        up, down = (average_precision_score(positive, s, sample_weight=1 + h * (np.arange(3 * n) == i))
                    for h in (1e-4, -1e-4))
        assert derivative[place] == pytest.approx((up - down) / 2e-4, abs=1e-6)


def test_the_interval_of_average_precision_is_over_positives_with_their_negatives() -> None:
    """At many of them it is that of a bootstrap that draws them together, and wider than that of single items."""
    n, m = 400, 4
    pairs = random(3, n, m)
    shift = np.random.default_rng(4).normal(size=n)                                          # of a positive's negatives
    s = np.concatenate([pairs.pos, (pairs.neg + 2 * shift[:, None]).ravel()])
    owner, positive = np.concatenate([np.arange(n), np.repeat(np.arange(n), m)]), np.arange(len(s)) < n
    drawn = [average_precision_score(positive, s, sample_weight=single[owner])
             for many in multiplicities(n, 400) for single in many]
    value, low, high, _ = hypernymy.ap(s, positive, owner, EvaluateConfig())
    assert low < value < high and high - low == pytest.approx(2 * 1.966 * np.std(drawn), rel=0.15)
    assert hypernymy.ap(s, positive, owner, EvaluateConfig(resamples=0)) == (value, None, None, "")


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_f1_and_average_precision_have_no_value_without_positives(score: float) -> None:
    """F1 of labelled pairs would be 0 if one is predicted positive, else undefined."""
    clear, none = PairScores(np.ones(3), np.zeros((3, 1))), np.zeros(40, bool)
    accuracy, *rows = own_pairs.labelled_scores("own", np.full(40, score), none, clear, EvaluateConfig(), "own")
    assert accuracy.value == 1 - score and accuracy.low is not None
    assert [(row.metric, row.value, row.low, row.n, row.note) for row in rows] == [
        (metric, None, None, 40, "own; no positives") for metric in ("f1", "ap")]


@pytest.mark.parametrize("n_positives", [1, 2])
def test_f1_of_fewer_than_two_pairs_has_no_interval_and_its_row_gives_the_reason(n_positives: int) -> None:
    """Of pairs with labels, those count that are positive or predicted to be; the threshold is .5."""
    clear, right = PairScores(np.ones(3), np.zeros((3, 1))), np.arange(40) < n_positives
    _, f1, *_ = own_pairs.labelled_scores("own", right * 1.0, right, clear, EvaluateConfig(), "own")
    reason = "; fewer than 2 true or predicted positives: no interval"
    assert (f1.low is None) == f1.note.endswith(reason) == (n_positives < 2)
    perfect = PairScores(np.ones(n_positives), np.zeros((n_positives, 1)))
    for row in hypernymy.scores("test", perfect, clear, EvaluateConfig())[:2]:
        assert (row.low is None) == row.note.endswith("; fewer than 2: no interval") == (n_positives < 2)


def test_average_precision_of_few_pairs_has_no_interval_and_its_row_gives_the_reason() -> None:
    for n in (29, 30):
        rows = hypernymy.scores("test", random(1, n), random(2), EvaluateConfig(resamples=40))
        for row in rows:
            is_missing = row.metric.startswith("ap") and n < 30
            assert (row.low is None) == is_missing == row.note.endswith("; fewer than 30: no interval")


@pytest.mark.parametrize(("positives", "negatives", "shift", "reason"), [
    (2, 998, 0, "fewer than 30 positives: "), (29, 971, 0, "fewer than 30 positives: "), (30, 970, 0, ""),
    (971, 29, 0, "fewer than 30 negatives: "), (9, 9, 0, "fewer than 30: "), (500, 500, 99, "no variation: ")])
def test_average_precision_of_labelled_pairs_needs_positives_and_negatives(positives: int, negatives: int, shift: int,
                                                                           reason: str) -> None:
    n = positives + negatives
    right = np.arange(n) < positives
    s = np.random.default_rng(5).normal(size=n) + shift * right
    gold, config = entailment.Gold([("u", "v", "")] * n, right.astype(float), n), EvaluateConfig()
    own = own_pairs.labelled_scores("own", s, right, random(2), config, "own")[-1]
    for row in (own, entailment.scores("x", "ap", gold, entailment.DirectedScores(s, s), "", config)[0]):
        assert row.metric == "ap" and (row.low is None) == (row.high is None) == bool(reason)
        assert row.note.endswith(f" by chance; {reason}no interval" if reason else " by chance")
    if shift:
        perfect = PairScores(s[right], s[~right][:, None])
        assert hypernymy.scores("test", perfect, perfect, config)[-1].note.endswith("; no variation: no interval")
