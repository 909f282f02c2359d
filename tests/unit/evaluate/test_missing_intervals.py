"""A score without an interval gives the reason in its note, for every kind of score that can have one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from embtrain.common.types import Score
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import heldout, label_precision, link_prediction
from embtrain.evaluate.config import EvaluateConfig, LabelsEvaluate, LikelihoodConfig, WordsConfig
from embtrain.evaluate.pairs import entailment, hypernymy, own_pairs
from embtrain.evaluate.pairs.entailment import DirectedScores, Gold
from embtrain.evaluate.pairs.hypernymy import PairScores
from embtrain.evaluate.statistics.intervals import missing_note
from embtrain.evaluate.translation import scores as translation
from embtrain.evaluate.words import analogy, similarity
from embtrain.evaluate.words.analogy import Question

EQUAL = "; no variation: no interval"
CLEAR = PairScores(np.ones(3), np.zeros((3, 1)))     # the threshold is .5


def hypernymy_rows(resamples: int) -> Iterator[tuple[Score, str]]:
    """Half of each positive and its negative are correct, or all but one of eleven, without exception."""
    config = EvaluateConfig(resamples=resamples)
    for low, high in ((0.9, 0.9), (0.1, 0.1)):
        for row in hypernymy.scores("test", PairScores(np.full(40, low), np.full((40, 10), high)), CLEAR, config):
            if row.low is None or row.metric.startswith("accuracy"):
                yield row, EQUAL
    right = np.arange(4) < 1
    yield own_pairs.labelled_scores("own", np.ones(1), right[:1], CLEAR, config, "own")[0], \
        "; fewer than 2: no interval"
    yield own_pairs.labelled_scores("own", right * 1.0, right, CLEAR, config, "own")[1], \
        "; fewer than 2 true or predicted positives: no interval"


def entailment_rows(resamples: int) -> Iterator[tuple[Score, str]]:
    for n, reason in ((1, "; fewer than 2: no interval"), (4, EQUAL)):
        gold, equal = Gold([("u", "v", "")] * n, np.ones(n), n), np.zeros(n)
        rows = entailment.scores("x", "ap", gold, DirectedScores(equal + n - 1, equal + 3), "", EvaluateConfig(
            resamples=resamples))
        yield rows[-1], reason


def word_rows(resamples: int) -> Iterator[tuple[Score, str]]:
    config = WordsConfig(resamples=resamples)
    vectors = Vectors([*"abcdxy"], np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))
    questions = [Question("", *words) for words in ("abcd", "abcx", "abcy", "abxc", "abyc")]
    [row] = analogy.score("x", vectors, questions, config)
    assert row.value == 1 / 5
    yield row, "; fewer than 10 pairs of words: no interval"
    yield similarity.correlation("x", np.arange(40.0), np.arange(40.0), "", config), EQUAL
    yield similarity.correlation("x", np.arange(9.0), np.arange(9.0), "", config), "; fewer than 10: no interval"
    one = np.eye(40)    # only 40 % of the resamples contain both items that differ from the others
    yield similarity.correlation("x", one[0], one[1], "", config), "; most resamples have no value: no interval"


def heldout_rows(resamples: int) -> Iterator[tuple[Score, str]]:
    log_p, ranks = np.full(6, -2.0), np.full(6, 3.0)
    one, two = "; fewer than 2 clusters: no interval", np.arange(6) // 3
    for log_p_of_pairs, clusters, reason in ((log_p, two, EQUAL), (log_p - np.arange(6), two * 0, one)):
        ranked = heldout.PairRanks(log_p_of_pairs, ranks, log_p, 9, 6)
        for row in heldout.scores(ranked, clusters, LikelihoodConfig(resamples=resamples)):
            if row.low is None:
                yield row, reason
    tops = {name: np.full(5, 0.5) for name in
            (*label_precision.PRECISION, *label_precision.NDCG, *label_precision.PSP)}
    best = {name: np.ones(5) for name in label_precision.PSP}
    for row in label_precision.scores(label_precision.TopLabels(tops, best), LabelsEvaluate(resamples=resamples), ""):
        yield row, EQUAL
    better = np.full(4, 2)
    for clusters, reason in ((np.zeros(4, np.int64), one), (np.arange(4), EQUAL)):
        found = link_prediction.Ranks(better, better * 0, better * 5)
        config = link_prediction.RankingConfig(resamples=resamples)
        for row in link_prediction.mean_scores("test", found, config, "", "", clusters):
            if row.low is None:
                yield row, reason
    nearest = translation.NearestRows(np.ones(6, bool), np.full(6, 0.5), np.full(6, 0.5))
    for row in translation.vector_scores(heldout.PairRanks(log_p, ranks, log_p, 9, 6), nearest, two,
                                         EvaluateConfig(resamples=resamples)):
        if row.value is not None and row.low is None:
            yield row, EQUAL


@pytest.mark.parametrize("rows", [hypernymy_rows, entailment_rows, word_rows, heldout_rows])
def test_a_row_without_an_interval_gives_the_reason(rows: object) -> None:
    found = list(rows(40))  # type: ignore[operator]
    assert len(found) > 1
    for row, reason in found:
        assert row.low is row.high is None and row.value is not None and row.note.endswith(reason), (row, reason)
    assert not any("no interval" in row.note for row, _ in rows(0))  # type: ignore[operator]


@pytest.mark.filterwarnings("error")
def test_a_translation_score_without_words_gives_the_reason() -> None:
    def rows(n: int, is_target: bool) -> dict[str, Score]:
        ranked = heldout.PairRanks(np.full(n, -2.0), np.ones(n), np.ones(n), 9, n)
        nearest = translation.NearestRows(np.full(n, is_target), np.full(n, 0.5), np.full(n, 0.5))
        config = EvaluateConfig(resamples=40)
        return {row.metric: row for row in translation.vector_scores(ranked, nearest, np.arange(n), config)}

    for is_target, missing in ((True, {"similarity_wrong", "similarity_target"}), (False, {"similarity_right"})):
        scores = rows(4, is_target)
        assert {name for name, row in scores.items() if row.value is None} == missing
        assert all(scores[name].note.endswith("; no words") and scores[name].n == 0 for name in missing)
    assert {row.value for row in rows(0, True).values()} == {None} and rows(0, True).keys() == rows(4, True).keys()
    assert {row.note for row in rows(0, True).values()} == {"no held-out words"}


def test_one_item_is_counted_in_the_singular() -> None:
    one = heldout.PairRanks(np.full(1, -2.0), np.ones(1), np.ones(1), 9, 1)
    clusters, resamples = np.zeros(1, np.int64), 0
    assert heldout.scores(one, clusters, LikelihoodConfig(resamples=resamples))[0].note == \
        "1 pair, 1 query, 9 candidates, 1 cluster"
    nearest = translation.NearestRows(np.ones(1, bool), np.ones(1), np.ones(1))
    assert translation.vector_scores(one, nearest, clusters, EvaluateConfig(resamples=resamples))[0].note.startswith(
        "1 word, 9 candidates, ")
    pairs = PairScores(np.ones(1), np.zeros((1, 1)))
    assert hypernymy.scores("test", pairs, CLEAR, EvaluateConfig(resamples=resamples))[0].note.startswith(
        "1 pair, 1 negative each; ")


def test_only_a_missing_interval_has_a_reason() -> None:
    assert missing_note(0.1, 1, 40) == missing_note(None, 1, 0) == ""
    assert missing_note(None, 1, 40) == "; fewer than 2: no interval"
    assert missing_note(None, 2, 40) == missing_note(None, 2, 40, resampled=np.array([np.nan, 1.0])) == EQUAL
    assert missing_note(None, 1, 40, resampled=np.full(40, np.nan)) == "; fewer than 2: no interval"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("resamples", [0, 40])
def test_a_row_that_is_not_finite_has_no_value_and_gives_the_reason(value: float, resamples: int) -> None:
    log_p, ranks, clusters = np.array([-2.0] * 5 + [value]), np.full(6, 3.0), np.arange(6) // 2
    ranked = heldout.PairRanks(log_p, ranks, log_p, 9, 6)
    nearest = translation.NearestRows(np.arange(6) > 3, np.full(6, 0.5), np.array([value] + [0.5] * 5))
    tops = {name: np.full(5, value) for name in
            (*label_precision.PRECISION, *label_precision.NDCG, *label_precision.PSP)}
    best = {name: np.ones(5) for name in label_precision.PSP}
    rows = [*heldout.scores(ranked, clusters, LikelihoodConfig(resamples=resamples)),
            *translation.vector_scores(ranked, nearest, clusters, EvaluateConfig(resamples=resamples)),
            *label_precision.scores(label_precision.TopLabels(tops, best), LabelsEvaluate(resamples=resamples), "")]
    missing = [row for row in rows if row.value is None]
    assert {row.metric for row in missing} == {"log_likelihood", "similarity_target", *tops}
    for row in missing:
        assert row.low is row.high is None and row.note.endswith("; not finite"), row
        assert "no interval" not in row.note
    assert not any("not finite" in row.note for row in rows if row.value is not None)
