"""Lexical entailment: measures against loops and scikit-learn, ambiguous words, gold files, runs."""

from __future__ import annotations

import gzip
import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score

from embtrain import experiment
from embtrain.common import shipped
from embtrain.common.errors import DataError, UsageError
from embtrain.data.catalogue.benchmark import GoldFormat
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.hierarchy import senses
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.vectors.vectors import Vectors, write
from embtrain.evaluate.config import EvaluateConfig, WordsConfig, words_config
from embtrain.evaluate.pairs import entailment
from embtrain.evaluate.pairs.entailment import FOLDS, DirectedScores, Gold
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.experiment.comparison.compare import Comparison
from embtrain.experiment.run import scoring
from embtrain.experiment.run.settings import resolve
from embtrain.models.base import Model
from embtrain.models.hierarchies.order import Order

pytestmark = pytest.mark.long

CONFIG = EvaluateConfig(resamples=50)
LABELLED = GoldFormat(columns=("word1", "word2", "label"))
ITEMS = st.lists(st.tuples(st.sampled_from([-1, 0, 1]), st.integers(-4, 0), st.integers(-4, 0)), min_size=FOLDS,
                 max_size=40)


def of(items: list[tuple[int, int, int]]) -> tuple[Gold, DirectedScores]:
    label, there, back = np.array(items, float).T
    return Gold([(f"u{i}", f"v{i}", "") for i in range(len(items))], label, len(items)), DirectedScores(there, back)


def values(metric: str, gold: Gold, result: DirectedScores) -> dict[str, float | None]:
    return {row.metric: row.value for row in entailment.scores("x", metric, gold, result, "said", CONFIG)}


# --- measures ------------------------------------------------------------------------------------------------------

@given(ITEMS)
def test_accuracy_is_that_of_the_best_threshold_of_the_other_folds(items: list[tuple[int, int, int]]) -> None:
    gold, result = of(items)
    ways = -1 in gold.label

    def n_correct(i: int, t: float) -> int:
        there, back = result.forward[i], result.backward[i]
        if not ways:
            return int(there >= t)
        return 0 if max(there, back) < t else 1 if there >= back else -1

    n = len(items)
    fold = np.random.default_rng(0).permutation(n) % FOLDS
    positive = []
    for i in range(n):
        others = [j for j in range(n) if fold[j] != fold[i]]
        m = np.maximum(result.forward, result.backward) if ways else result.forward
        # Between two scores of the others, or at their minimum: the highest of those with most of them correct. Above
        # them all only if more of them are correct there.
        seen = sorted({m[j] for j in others}, reverse=True)
        at = [(a + b) / 2 for a, b in pairwise(seen)] + seen[-1:]
        best = max([*at, np.nextafter(seen[0], np.inf)],
                   key=lambda t: (sum(n_correct(j, t) == gold.label[j] for j in others), t <= seen[0], t))
        positive.append(n_correct(i, best) == gold.label[i])
    assert entailment.correct(gold, result)[0].tolist() == positive


@given(ITEMS)
def test_average_precision_and_direction(items: list[tuple[int, int, int]]) -> None:
    gold, result = of(items)
    got = values("ap", gold, result)
    assert list(got) == ["ap", "direction"]
    positive = gold.label == 1
    assert got["ap"] == (pytest.approx(average_precision_score(positive, result.forward)) if positive.any() else None)
    way = [0.5 if there == back else float((there > back) == (y > 0)) for y, there, back in items if y]
    assert got["direction"] == (pytest.approx(np.mean(way)) if way else None)


def test_grades_are_ranked_and_missing_pairs_are_left_out_and_counted() -> None:
    random = np.random.default_rng(1)
    grade, there = random.normal(size=(2, 40))
    there[::4] = np.nan
    gold = Gold([("u", "v", "")] * 40, grade, 42)
    [row] = entailment.scores("x", "spearman", gold, DirectedScores(there, there), "said", CONFIG)
    known = ~np.isnan(there)
    assert row.value == pytest.approx(stats.spearmanr(there[known], grade[known]).statistic)
    assert row.n == 30 and row.low is not None and row.low < row.value < row.high
    assert row.note == "30 of 40 pairs found, others skipped; 2 duplicate lines; said"


@pytest.mark.parametrize(("n", "label", "reason"), [(40, 0, "no positives"), (40, -1, "no positives"),
                                                    (0, 0, "too few")])
def test_average_precision_has_no_value_without_positives(n: int, label: int, reason: str) -> None:
    gold = Gold([("u", "v", "")] * n, np.full(n, label, float), n)
    [ap, _] = entailment.scores("x", "ap", gold, DirectedScores(np.zeros(n), np.zeros(n)), "cosine", CONFIG)
    assert (ap.metric, ap.value, ap.low, ap.n) == ("ap", None, None, n) and ap.note.endswith(f"; cosine; {reason}")


def test_a_missing_item_is_wrong_and_few_items_have_no_threshold() -> None:
    gold, result = of([(i % 2, -i % 2, 0) for i in range(2 * FOLDS)])
    there = result.forward.copy()
    there[3] = np.nan
    positive, t = entailment.correct(gold, DirectedScores(there, result.backward))
    assert np.flatnonzero(np.isnan(positive)).tolist() == [3] and t is not None
    few, lost = of([(1, 0, 0)] * (FOLDS - 1))
    assert values("accuracy", few, lost)["accuracy"] is None
    none = DirectedScores(np.full(2, np.nan), np.full(2, np.nan))
    for metric in ("spearman", "ap", "accuracy"):
        assert set(values(metric, Gold([("u", "v", "")] * 2, np.ones(2), 2), none).values()) == {None}


def test_the_interval_of_accuracy_contains_it() -> None:
    random = np.random.default_rng(0)
    label = random.integers(0, 2, 300).astype(float)
    gold, result = Gold([("u", "v", "")] * 300, label, 300), label + random.normal(size=300)
    [accuracy, ap, _] = entailment.scores("x", "accuracy", gold, DirectedScores(result, result), "said", CONFIG)
    assert accuracy.metric == "accuracy" and accuracy.low < accuracy.value < accuracy.high < accuracy.low + 0.15
    assert ap.low < ap.value < ap.high and "threshold" in accuracy.note and "by chance" in ap.note
    few, found = Gold(gold.pairs[:29], label[:29], 29), DirectedScores(result[:29], result[:29])
    ap = entailment.scores("x", "ap", few, found, "said", CONFIG)[0]
    assert ap.low is ap.high is None and ap.note.endswith(" by chance; fewer than 30: no interval")


# --- words and synsets --------------------------------------------------------------------------------------

NAMES = ["dog.n.01", "dog.n.02", "hot_dog.n.01", "run.v.01", "animal.n.01", "Dog"]


def test_a_word_means_every_synset_that_it_names_or_is_in() -> None:
    means = Senses(NAMES, {"beast": [4], "dog": [0], "hot_dog": [1]})
    assert (
        means.concepts_of("DOG") == [0, 1]
        and means.concepts_of("hot dog") == [2, 1]
        and means.concepts_of("beast") == [4]
    )
    assert (
        means.concepts_of("run", "n") == []
        and means.concepts_of("run", "v") == means.concepts_of("run") == [3]
        and means.concepts_of("cat") == []
    )
    assert Senses(["Bank", "bank", "x.n", "good.s.01"], {}).concepts_of("BANK") == [0]  # same lookup as similarity
    assert Senses(["us", "US", "US.n.01"], {}).concepts_of("US") == [1, 2] and means.concepts_of("Dog") == [
        5
    ]  # the exact spelling
    assert Senses(["Bank", "x.n", "good.s.01"], {}).concepts_of("good", "a") == [2]


def test_the_score_of_two_words_is_that_of_their_best_pair_of_synsets() -> None:
    table = np.abs(np.random.default_rng(0).normal(size=(len(NAMES), 3))).astype(np.float32)
    score = Scorer(Vectors(NAMES, table), Order, {"beast": [4, 1]})
    def e(u: int, v: int) -> float:
        return float(np.square(np.maximum(0, table[v].astype(float) - table[u])).sum())
    got = score([("dog", "animal", ""), ("dog", "cat", ""), ("animal", "dog", "n"), ("hot dog", "beast", "")])
    assert got[[0, 2, 3]] == pytest.approx([-min(e(0, 4), e(1, 4)), -min(e(4, 0), e(4, 1)), -min(e(2, 4), e(2, 1))])
    assert np.isnan(got[1])
    verb = score([("run", "animal", "n"), ("animal", "run", "n"), ("run", "animal", "")])
    assert np.isnan(verb).tolist() == [True, True, False]
    message = score.describe_scores([("dog", "animal", ""), ("cat", "run", "n")])
    assert message == "−E(u, v) of the best pair of meanings (1.5 a word)"


def test_the_right_direction_of_a_hypernym_pair_scores_higher() -> None:
    low, high = torch.tensor([[0.1, 0.2]]), torch.tensor([[0.5, 0.2]])
    assert (
        Order.entailment_score(high, low, Order.Config()).item() == 0
        > Order.entailment_score(low, high, Order.Config()).item() == pytest.approx(-0.16)
    )


def test_plain_vectors_are_scored_by_their_cosine() -> None:
    vectors = Vectors(["a", "b", "z"], np.array([[2, 0], [1, 1], [0, 0]]))
    score = Scorer(vectors)
    assert score([("a", "B", ""), ("b", "a", "n"), ("a", "z", "")]).tolist() == pytest.approx([0.5**0.5, 0.5**0.5, 0])
    assert score.describe_scores([("a", "b", "")]) == Model.entailment == "cosine"


@pytest.mark.parametrize(("dog", "n"), [((-1, 0), 1), ((1, 0), 0), ((0, 1), 0), ((0, 0), 1)])
def test_pairs_are_counted_whose_best_pair_of_meanings_has_zeros(dog: tuple[int, int], n: int) -> None:
    """A pair was not counted if another meaning of its word has a worse score, but if one has the cosine 0 too."""
    score = Scorer(Vectors(["dog.n.01", "dog.n.02", "animal", "plant"], np.array([dog, (0, 0), (1, 0), (1, 1)])))
    pairs = [("dog", "animal", ""), ("plant", "animal", ""), ("dog", "nowhere", "")]
    counted = f"; {n} pairs with a vector of zeros, whose cosine counts as 0" if n else ""
    assert score.describe_scores(pairs) == f"cosine of the best pair of meanings (1.3 a word){counted}"
    assert score(pairs)[0] == max(0, dog[0])


def test_without_vectors_of_zeros_they_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One search for each pair took ten times as long as the rest of the note."""
    searched, are_zeros = list[int](), Vectors.are_zeros
    monkeypatch.setattr(Vectors, "are_zeros", lambda self, rows: searched.append(rows.size) or are_zeros(self, rows))
    assert Scorer(Vectors(["a", "b"], np.eye(2))).describe_scores([("a", "b", "")] * 9) == "cosine"
    assert searched == [2]


def test_many_pairs_are_scored_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(0).normal(size=(9, 4))
    score, calls = Scorer(Vectors([f"w{i}" for i in range(9)], table)), [("w1", f"w{i}", "") for i in range(9)]
    whole = score(calls)
    monkeypatch.setattr("embtrain.evaluate.pairs.scorer.MAX_ELEMENTS", 8)
    assert score(calls).tolist() == whole.tolist()


def test_senses_are_written_and_read(tmp_path: Path) -> None:
    words, index = {"dog": [0, 1], "hot_dog": [2]}, {name: i for i, name in enumerate(NAMES)}
    assert senses.read(tmp_path / "none", index) == {}
    senses.write(tmp_path / "senses.txt", words, NAMES)
    assert senses.read(tmp_path / "senses.txt", index) == words
    for text in ("dog\n", "dog\tcat.n.01\n", "\tdog.n.01\n"):
        (tmp_path / "senses.txt").write_text(text)
        with pytest.raises(DataError, match=r"senses.txt:1: should be a word"):
            senses.read(tmp_path / "senses.txt", index)


# --- gold files ----------------------------------------------------------------------------------------------------

def test_a_pair_counts_once_and_is_positive_if_one_line_is(tmp_path: Path) -> None:
    text = "dog\tanimal\tFalse\ndog\tanimal\tTrue\nanimal\tdog\t0\ncat\tdog\t-1\n"
    (tmp_path / "gold").write_text(text)
    (tmp_path / "gold.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("gold", "gold.gz"):
        gold = entailment.read(tmp_path / name, LABELLED, graded=False)
        assert gold.pairs == [("dog", "animal", ""), ("animal", "dog", ""), ("cat", "dog", "")]
        assert gold.label.tolist() == [1, 0, -1] and gold.lines == 4


def test_a_part_of_speech_belongs_to_the_pair(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("a\tb\tN\t1.5\na\tb\tV\t2\n")
    gold = entailment.read(tmp_path / "gold", GoldFormat(columns=("word1", "word2", "pos", "score")), graded=True)
    assert gold.pairs == [("a", "b", "n"), ("a", "b", "v")] and gold.label.tolist() == [1.5, 2]


@pytest.mark.parametrize(("line", "message"), [
    ("a\tb\tyes", "gold:2: label should be one of True"), ("a\tb\t2", "label should be"), ("a\t\tTrue", "two words"),
    ("a\tb", "should have 3 columns")])
def test_a_malformed_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "gold").write_text(f"x\ty\tTrue\n{line}\n")
    with pytest.raises(DataError, match=message):
        entailment.read(tmp_path / "gold", LABELLED, graded=False)


def test_grades_are_numbers_and_files_hold_pairs(tmp_path: Path) -> None:
    form = GoldFormat(columns=("word1", "word2", "pos", "score"))
    remedy = "; correct it, or remove the pair"
    for text, message in (("a\tb\tN\tnan\n", f"score should be a number, got 'nan'{remedy}"),
                          ("a\tb\tN\t1_0\n", "score should be a number"), ("a\tb\tN\t1,5\n", "decimal point: 1.5"),
                          ("a\tb\tX\t1\n", "and N, V, A or R"), ("\n", "contains no pairs")):
        (tmp_path / "gold").write_text(text)
        with pytest.raises(DataError, match=message):
            entailment.read(tmp_path / "gold", form, graded=True)


# --- the shipped ones, and runs ------------------------------------------------------------------------------------

ENTAILMENT = [name for name in shipped.names("evals") if load_recipe("evals", name).kind == "entailment"]
COUNTS = {"hyperlex": (2616, None), "bless": (14533, 1337), "evalution": (6926, 1802), "wbless": (1668, 834),
          "bibless": (1668, 834), "shwartz": (52577, 13104)}  # distinct pairs, and positives among them


def test_the_required_benchmarks_ship() -> None:
    assert set(ENTAILMENT) == set(COUNTS)


@pytest.mark.parametrize("name", ENTAILMENT)
def test_the_published_files_have_their_number_of_pairs(name: str) -> None:
    recipe = load_recipe("evals", name)
    path = Path(os.environ.get("EMBTRAIN_DATA_MIRROR", ""), str(recipe.copies[0].mirror))
    if not path.is_file():
        pytest.skip(f"data: {recipe.copies[0].mirror} is not here")
    gold = entailment.read(path, recipe.format, graded=recipe.metric == "spearman")
    positive = None if recipe.metric == "spearman" else int((gold.label == 1).sum())
    assert (len(gold.pairs), positive) == COUNTS[name] and gold.lines == recipe.expected.pairs
    assert {pos for _, _, pos in gold.pairs} == ({"n", "v"} if name == "hyperlex" else {""})


WORDS = ["entity", "animal", "dog", "cat", "plant", "tree", "oak", "rose", "tool", "saw", "axe", "car"]
ABOVE = {1: 0, 2: 1, 3: 1, 4: 0, 5: 4, 6: 5, 7: 4, 8: 0, 9: 8, 10: 8, 11: 0}


@pytest.fixture
def gold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide wbless and hyperlex as small files in place of the published ones."""
    lines = ["word1\tword2\tlabel\trelation\tfold"]
    graded = ["word1\tword2\tpos\trelation\tscore\tfold"]
    for u, v in ABOVE.items():
        lines += [f"{WORDS[u]}\t{WORDS[v]}\tTrue\thyper\t-", f"{WORDS[v]}\t{WORDS[u]}\tFalse\tother\t-"]
        graded += [f"{WORDS[u]}\t{WORDS[v]}\tN\t-\t6\t-", f"{WORDS[v]}\t{WORDS[u]}\tN\t-\t1\t-"]
    (tmp_path / "wbless").write_text("\n".join([*lines, "dog\tsputnik\tFalse\tother\t-"]))
    (tmp_path / "hyperlex").write_text("\n".join([*graded, "dog\tanimal\tV\t-\t0\t-"]))
    monkeypatch.setattr("embtrain.data.catalogue.fetch.gold_path", lambda recipe: tmp_path / recipe.name)
    monkeypatch.setattr("embtrain.experiment.run.run.report.write", lambda folder: None)
    return tmp_path


def settings(folder: Path, *sets: str, corpus: str = "tree.tsv") -> experiment.Settings:
    lines = "".join(f"{WORDS[u]}.n.01\t{WORDS[v]}.n.01\n" for u, v in ABOVE.items())
    (folder / "tree.tsv").write_text(lines)
    return resolve("order", "order", str(folder / corpus), threads=1, sets=[
        "train.epochs=60", "model.dim=8", "train.lr=0.5", "train.batch=8", "evaluate.resamples=40", *sets])


def test_a_run_is_evaluated_on_words_at_its_end_and_later(gold: Path) -> None:
    run = experiment.fit(settings(gold, "evaluate.benchmarks=[hyperlex, wbless]"), gold / "run")
    rows = {f"{row.benchmark}/{row.metric}": row for row in run.scores}
    assert rows["wbless/direction"].value > 0.8 and rows["wbless/ap"].value > 0.7
    assert rows["hyperlex/spearman"].value > 0.5 and rows["hyperlex/spearman"].n == 22    # no verbs
    assert rows["wbless/accuracy"].note.startswith("22 of 23 pairs found, others skipped; −E(u, v)")
    after = experiment.evaluate(run.folder, ["hyperlex", "wbless"])
    assert after == [row for row in run.scores if row.benchmark in ("hyperlex", "wbless")]
    items = scoring.read_items(run.folder / "items.safetensors")
    assert np.nanmean(items["wbless/correct"]) == pytest.approx(rows["wbless/accuracy"].value)
    assert np.isnan(items["wbless/correct"]).sum() == 1 and len(items["wbless/cluster"]) == 23
    assert len(items["hyperlex/score"]) == len(items["hyperlex/gold"]) == 23
    unjudged = experiment.fit(settings(gold, "train.epochs=1"), gold / "other")
    assert {row.benchmark for row in unjudged.scores} == {"valid", "test", "training"}


def test_a_run_of_wordnet_maps_words_that_name_no_synset(gold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(gold / "cache"))
    folder = gold / "dict"
    folder.mkdir()
    up = [f"1 @ {ABOVE[i] + 1:08d} n 0000" if i in ABOVE else "0" for i in range(len(WORDS))]
    (folder / "data.noun").write_text("".join(f"{i + 1:08d} 03 n 01 {word} 0 00{hypernym} | gloss\n"
                                              for i, (word, hypernym) in enumerate(zip(WORDS, up, strict=True))))
    named = {word: i for i, word in enumerate(WORDS)} | {"sputnik": WORDS.index("tool")}
    (folder / "index.noun").write_text("".join(f"{word} n 1 0 1 0 {i + 1:08d}\n" for word, i in named.items()))
    run = experiment.fit(settings(gold, "train.epochs=2", "evaluate.benchmarks=[wbless]", corpus="dict"), gold / "run")
    assert "sputnik\ttool.n.01\n" in (run.folder / "senses.txt").read_text()
    rows = [row for row in run.scores if row.benchmark == "wbless"]
    assert rows[0].note.startswith("23 of 23 pairs found; ") and experiment.evaluate(run.folder, ["wbless"]) == rows


def test_a_vector_file_is_evaluated_by_its_cosine_without_direction(gold: Path) -> None:
    table = np.random.default_rng(0).normal(size=(len(WORDS), 5))
    write(gold / "words.txt", Vectors(WORDS, table), "word2vec")
    rows = {row.metric: row for row in experiment.evaluate(gold / "words.txt", ["wbless"])}
    assert rows["direction"].value == 0.5 and "; cosine; " in rows["accuracy"].note


def test_a_benchmark_without_entailment_is_refused_before_training(gold: Path) -> None:
    with pytest.raises(
            UsageError,
            match=r"evaluate.benchmarks: wordsim353 is of kind similarity.*choose from bibless, bless") as caught:
        experiment.fit(settings(gold, "evaluate.benchmarks=[wordsim353]"), gold / "run")
    assert "\n" not in str(caught.value) and not (gold / "run").exists()


def test_word_benchmarks_have_the_intervals_of_a_run() -> None:
    assert words_config(EvaluateConfig(resamples=7, interval=0.5)) == WordsConfig(resamples=7, interval=0.5)
    own = WordsConfig(oov="mean")
    assert words_config(own) is own


def test_a_comparison_names_the_measure_of_each_benchmark(tmp_path: Path) -> None:
    metrics = ["test/accuracy", "hyperlex/spearman", "bless/ap", "bless/direction", "wbless/accuracy", "wbless/ap"]
    summary = [{"strategy": "s", "metric": metric, "mean": 0.5, "low": 0.4, "high": 0.6, "n": 3} for metric in metrics]
    (tmp_path / "results.json").write_text(json.dumps({
        "plan": {"metric": "test/accuracy", "benchmarks": ["hyperlex", "bless", "wbless"]}, "summary": summary,
        "verdict": ["said"]}))
    n_correct = Comparison(tmp_path).table()
    assert [metric for metric in metrics if metric in n_correct] == [metrics[i] for i in (0, 1, 2, 4)]
