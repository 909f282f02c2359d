"""Analogies: equal to gensim on the same queries."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from embtrain.common.errors import DataError
from embtrain.common.types import Score
from embtrain.data.catalogue.benchmark import GoldFormat
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.evaluate.words import analogy
from embtrain.evaluate.words.analogy import Question, predict, read_questions, score

GOOGLE = GoldFormat(columns=("word1", "word2", "word3", "target"), delimiter="space")


def world(noise: float = 0.5, seed: int = 0) -> tuple[Vectors, list[Question]]:
    """Return vectors of capitals and countries, men and women, as offset plus noise, among other words."""
    rng = np.random.default_rng(seed)
    words, rows, queries = [], [], []
    for section, n in (("capital", 8), ("sex", 6)):
        offset = rng.normal(size=12)
        names = [(f"{section}{i}", f"{section.upper()}{i}b") for i in range(n)]
        for a, b in names:
            base = rng.normal(size=12)
            words += [a, b]
            rows += [base, base + offset + noise * rng.normal(size=12)]
        queries += [Question(section, *p, *q) for p, q in itertools.permutations(names, 2)]
    words += [f"crowd{i}" for i in range(60)]
    rows += list(rng.normal(size=(60, 12)))
    return Vectors(words, np.array(rows)), queries


def write(path: Path, queries: list[Question]) -> Path:
    with open(path, "w") as file:
        for section, group in itertools.groupby(queries, key=lambda q: q.section):
            file.write(f": {section}\n" + "".join(f"{q.a} {q.b} {q.c} {q.d}\n" for q in group))
    return path


def gensims(vectors: Vectors, path: Path, **settings: object) -> dict[str, tuple[int, int]]:
    _, sections = vectors.keyed().evaluate_word_analogies(str(path), **settings)
    return {s["section"]: (len(s["correct"]), len(s["correct"]) + len(s["incorrect"])) for s in sections}


def ours(rows: list[Score]) -> dict[str, tuple[int, int]]:
    names = {"accuracy": "Total accuracy"}
    return {names.get(r.metric, r.metric.removeprefix("accuracy/")): (round((r.value or 0) * r.n), r.n) for r in rows}


@pytest.mark.parametrize("noise", [0.3, 0.8, 1.5])
@pytest.mark.parametrize("lower", [True, False])
def test_gensim_counts_the_same_hits(tmp_path: Path, noise: float, lower: bool) -> None:
    vectors, queries = world(noise)
    queries = [q._replace(d="absent") if i % 7 == 0 else q for i, q in enumerate(queries)]
    # The vocabulary also contains words that differ only in case. Without `lower` some queries have their spelling;
    # with it no query has a spelling of the vocabulary, so all are case-folded as in gensim.
    queries = [Question(q.section, *(w + "xX" for w in q[1:])) if lower else
                 q._replace(a=q.a.title()) if i % 2 else q for i, q in enumerate(queries)]
    vectors = Vectors([w + "xx" * lower for w in [*vectors.words, "Capital1", "SEX0", "Crowd3"]],
                      np.concatenate([vectors.table, vectors.table[[2, 16, 1]] + 0.05]))
    path = write(tmp_path / "questions", queries)
    result = ours(score("google", vectors, read_questions(path, GOOGLE), WordsConfig(resamples=0), lower))
    assert result == gensims(vectors, path, case_insensitive=lower)
    assert 0 < result["Total accuracy"][0] < result["Total accuracy"][1]


def test_a_prediction_in_other_case_is_correct(tmp_path: Path) -> None:
    vectors = Vectors(["a", "b", "c", "x", "D"], np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [1, -3, 1], [0, 1, 1]]))
    path = write(tmp_path / "questions", [Question("s", *"abcd")])
    for lower, hits in ((True, (1, 1)), (False, (0, 0))):
        result = ours(score("x", vectors, [Question("s", *"abcd")], WordsConfig(), lower))
        assert result.get("s") == hits and (result == gensims(vectors, path, case_insensitive=True)) == lower


def test_an_exact_spelling_is_one_word_and_a_folded_one_all_spellings() -> None:
    vectors = Vectors(["a", "b", "c", "us", "US", "x", "A"], np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, .9],
                                                                       [0, 1, 1], [1, -3, 1], [0, 1, .8]]))
    assert ours(score("x", vectors, [Question("", *"abc", "US")], WordsConfig()))["Total accuracy"] == (1, 1)
    wrong = score("x", vectors, [Question("", *"abc", "us")], WordsConfig())[0]      # US and us are different words
    assert (wrong.value, wrong.note) == (0, "1 of 1 questions found")
    correct = score("x", vectors, [Question("", *"abc", "Us")], WordsConfig())[0]      # every spelling of Us is correct
    assert (correct.value, correct.note) == (1, "1 of 1 questions found; 1 word found in another spelling (Us as us)")
    vectors.table[4], vectors.table[6] = (0, -1, 1), (0, 1, 1)                       # A is the nearest now
    del vectors.__dict__["unit"]
    assert score("x", vectors, [Question("", *"abc", "us")], WordsConfig())[0].value == 0
    # `Á` in a Unicode form that the table lacks is a folded word: none of its spellings is a candidate.
    vectors = Vectors(["\u00e1", *vectors.words[1:-1], "\u00c1"], vectors.table)
    assert score("x", vectors, [Question("", "a\u0301", "b", "c", "us")], WordsConfig())[0].value == 1


def test_only_the_most_frequent_words_are_candidates_and_missing_ones_may_count_as_wrong(tmp_path: Path) -> None:
    vectors, queries = world()
    path = write(tmp_path / "questions", queries)
    rows = score("google", vectors, queries, WordsConfig(), most_frequent=20)
    assert ours(rows) == gensims(vectors, path, restrict_vocab=20)
    assert rows[0].n == 8 * 7 + 2 * 1 and rows[0].note == "58 of 86 questions found, others dropped"
    wrong = score("google", vectors, queries, WordsConfig(oov="zero"), most_frequent=20)
    assert ours(wrong) == gensims(vectors, path, restrict_vocab=20, dummy4unknown=True)
    assert wrong[0].note == "58 of 86 questions found, others count as wrong"


def test_a_batch_equals_its_queries_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, queries = world()
    items = np.stack([vectors.find([q[j] for q in queries]) for j in (1, 2, 3)], axis=1)
    at_once = predict(vectors, items, len(vectors))
    monkeypatch.setattr(analogy, "_MAX_SCORES_HELD", 1)
    assert (predict(vectors, items, len(vectors)) == at_once).all()
    assert not (at_once[:, None] == items).any()
    u = vectors.unit
    for (a, b, c), best in zip(items, at_once, strict=True):
        s = u @ (u[b] - u[a] + u[c])
        s[[a, b, c]] = -9
        assert best == s.argmax()


def test_the_interval_accounts_for_shared_word_pairs() -> None:
    # One pair of ten is so bad that every query with it fails: 18 of 90 predictions, with one cause.
    pairs = [(f"a{i}", f"b{i}") for i in range(10)]
    queries = [Question("x", *p, *q) for p, q in itertools.permutations(pairs, 2)]
    hit = np.array(["a0" not in (q.a, q.c) for q in queries])
    low, high, _ = analogy._interval(queries, hit, WordsConfig(resamples=4000))
    # Queries with the bad pair: p = 1 - m0-free share; m0 is 0 with probability .35, and then all are correct.
    assert high == 1.0 and low < 0.6
    shuffled = [Question("x", str(i), "", f"c{i}", "") for i in range(90)]  # no pair is repeated
    alone = analogy._interval(shuffled, hit, WordsConfig(resamples=4000))
    assert alone[0] > low and alone[1] < 1


def test_all_wrong_and_all_correct_have_an_interval() -> None:
    vectors, queries = world(noise=0.0)
    correct = score("x", vectors, queries, WordsConfig())[0]
    assert (correct.value, correct.high) == (1.0, 1.0)
    # Wilson's interval for 14 word pairs, not 86 predictions
    assert correct.low == pytest.approx(14 / (14 + 1.96 ** 2), abs=1e-4)
    wrong = score("x", vectors, [q._replace(d="crowd0") for q in queries], WordsConfig())[0]
    assert (wrong.value, wrong.low) == (0.0, 0.0)
    assert wrong.high == pytest.approx(1.96 ** 2 / (28 + 1.96 ** 2), abs=1e-4)
    none = score("x", vectors, [Question("", "?", "?", "?", "?")], WordsConfig())
    assert none == [Score("x", "accuracy", None, note="0 of 1 questions found, others dropped")]


def test_queries_of_both_layouts(tmp_path: Path) -> None:
    (tmp_path / "google").write_text(": one two\nAthens Greece Oslo Norway\n\n:three\na b c d\n")
    assert read_questions(tmp_path / "google", GOOGLE) == [
        ("one two", "Athens", "Greece", "Oslo", "Norway"), ("three", "a", "b", "c", "d")]
    (tmp_path / "msr").write_text(",type,word1,word2,word3,target\n0,JJ,good,better,rough,rougher\n")
    format = GoldFormat(columns=("id", "section", "word1", "word2", "word3", "target"), delimiter="comma", header=True)
    assert read_questions(tmp_path / "msr", format) == [("JJ", "good", "better", "rough", "rougher")]


@pytest.mark.parametrize("text, message", [(": x\na b c\n", r"q:2: should have 4 columns .* got 3"),
                                           (": x\n", "q: contains no questions")])
def test_malformed_queries(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "q").write_text(text)
    with pytest.raises(DataError, match=message):
        read_questions(tmp_path / "q", GOOGLE)


def test_the_published_file_is_read_whole() -> None:
    path = Path(os.environ.get("EMBTRAIN_DATA_MIRROR", ""), "analogy", "questions-words.txt")
    if not path.is_file():
        pytest.skip("data: analogy/questions-words.txt is not here")
    queries = read_questions(path, GOOGLE)
    assert len(queries) == 19_544 and len({q.section for q in queries}) == 14
