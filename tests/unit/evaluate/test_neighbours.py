"""Neighbours against gensim, PMI against a loop in plain Python."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors.search_index import exact_search, measure
from embtrain.data.vectors.subword_table import SubwordTable
from embtrain.data.vectors.vectors import Vectors, write
from embtrain.evaluate.words import neighbours as module
from embtrain.evaluate.words.neighbours import PMI, cooccurrence, near, neighbours, query_words
from embtrain.experiment.inspect import neighbours as inspect


def word_vectors(n: int = 80) -> Vectors:
    return Vectors([f"w{i}" for i in range(n)], np.random.default_rng(0).normal(size=(n, 6)))


def test_gensim_names_the_same_neighbours() -> None:
    vectors = word_vectors()
    theirs = vectors.keyed().most_similar("w7", topn=50)
    for first, last in ((1, 5), (45, 50), (1, 50)):
        result = near(vectors, "W7", first, last)
        assert [w for w, _ in result] == [w for w, _ in theirs[first - 1:last]]
        assert [c for _, c in result] == pytest.approx([c for _, c in theirs[first - 1:last]], abs=1e-6)


def test_small_vocabularies_missing_words_ties_and_nan() -> None:
    vectors = word_vectors(48)
    assert len(near(vectors, "w0", 45, 50)) == 3 and near(word_vectors(20), "w0", 45, 50) == []
    assert near(vectors, "?") == [] and near(vectors, "W0", lower=False) == []
    equal_vectors = Vectors(["a", "b", "c", "d"], np.ones((4, 2)))
    assert [w for w, _ in near(equal_vectors, "c", 1, 2)] == ["a", "b"] \
        and [w for w, _ in near(equal_vectors, "c", 3, 9)] == ["d"]
    diverged = word_vectors(48)
    diverged.table[3] = np.nan
    assert len(near(diverged, "w0", 1, 60)) == 46


def test_a_vector_of_zeros_has_no_neighbours_and_is_none(tmp_path: Path) -> None:
    vectors = word_vectors(20)
    nonzero = Vectors(vectors.words[2:], vectors.table[2:])
    vectors.table[:2] = 0
    assert near(vectors, "w0", 1, 19) == [] and near(vectors, "W0").found_as == "w0"
    assert dict(near(vectors, "w7", 1, 19)) == pytest.approx(dict(near(nonzero, "w7", 1, 19)))
    rows, _ = module.nearest_rows(vectors.unit, 19)
    assert set(rows[:2].ravel()) == {-1} and all(set(row) == {-1, *range(2, 20)} - {i} for i, row in
                                                 enumerate(rows.tolist()[2:], 2))
    write(tmp_path / "kv.txt", vectors, "word2vec")
    result = inspect.neighbours(tmp_path / "kv.txt", ["W0"])
    assert inspect.format_text(result) == "W0 (found as w0): no neighbours, because its vector, or that of every " \
        "other word, is zeros or contains NaN"
    assert str(measure(vectors, exact_search(vectors))) == "keeps 100.00% of the 10 nearest neighbours of 18 words"


def test_a_missing_word_with_known_ngrams_has_the_neighbours_of_its_composed_vector() -> None:
    words, draw = ["king", "kind", "queen", "apple", "pear"], np.random.default_rng(4)
    ngrams = Ngrams.exact(2, 4, words)
    subwords = SubwordTable(ngrams, draw.normal(size=(ngrams.n_rows, 6)).astype(np.float32), words,
                            draw.normal(size=(len(words), 6)).astype(np.float32), "mean")
    vectors = Vectors(words, subwords.compose(words), subwords)
    kings, ranks = near(vectors, "kings", 1, 9), near(vectors, "kings", 2, 3)
    theirs = vectors.keyed().most_similar("kings", topn=9)
    assert [w for w, _ in kings] == [w for w, _ in theirs] and len(kings) == 5
    assert [c for _, c in kings] == pytest.approx([c for _, c in theirs], abs=1e-6)
    assert ranks == kings[1:3] and kings.is_composed and kings.found_as is None
    assert not near(vectors, "KING").is_composed and near(vectors, "KING").found_as == "king"
    assert near(vectors, "¶¶") == [] and not near(vectors, "¶¶").is_composed


def test_the_exact_spelling_comes_first_and_another_is_named() -> None:
    words = ["us", "we", "our", "US", "USA", "America", "Turkey", "turkey"]
    table = [[1, 0], [.99, .1], [.98, .15], [0, 1], [.1, .99], [.15, .98], [.2, .97], [.97, .2]]
    vectors = Vectors(words, np.array(table))
    us, turkey, others_first = (near(vectors, word, 1, 2) for word in ("US", "turkey", "TURKEY"))
    assert us == [("USA", pytest.approx(.995, abs=5e-4)), ("America", pytest.approx(.988, abs=5e-4))]
    assert turkey == [("our", pytest.approx(.999, abs=5e-4)), ("we", pytest.approx(.995, abs=5e-4))]
    names = [answer.found_as for answer in (us, turkey, others_first, near(vectors, "?"))]
    assert names == ["US", "turkey", "Turkey", None]
    result = neighbours(vectors, ["US", "us", "TURKEY"])
    assert [[w for w, _ in result.near[word]][:1] for word in ("US", "us")] == [["USA"], ["we"]]
    assert result.tree()["found_as"] == {"TURKEY": "Turkey"}


def test_the_two_numbers_are_means_over_ranks_45_to_50() -> None:
    vectors = word_vectors()
    value = {w: i / 7 for i, w in enumerate(vectors.words)}
    result = neighbours(vectors, ["w3", "queen", "W9", "w3"], pmi=lambda pairs: np.array([value[b] for _, b in pairs]))
    far = [vectors.words.index(w) for word in ("w3", "W9") for w, _ in result.far[word]]
    assert len(far) == 12 and list(result.near) == ["w3", "W9"] and result.missing == ["queen"]
    assert result.note == "not in the vocabulary: queen; found in another spelling: W9 as w9"
    assert result.far_rank == pytest.approx(np.mean(far) + 1) and result.far_pmi == pytest.approx(np.mean(far) / 7)
    counts = np.arange(80)  # the last word is the most frequent
    assert neighbours(vectors, ["w3", "w9"], counts).far_rank == pytest.approx(80 - np.mean(far))
    tree = json.loads(json.dumps(result.tree(), allow_nan=False))
    assert set(tree) == {"near", "far", "far_rank", "far_pmi", "found_as"} and tree["found_as"] == {"W9": "w9"}
    assert [len(tree["near"]["w3"]), len(tree["far"]["W9"])] == [5, 6] and tree["near"]["w3"][0] == [
        near(vectors, "w3")[0][0], pytest.approx(near(vectors, "w3")[0][1], abs=1e-6)]


def test_no_neighbours_no_numbers() -> None:
    result = neighbours(word_vectors(), ["queen"], pmi=lambda pairs: np.array([math.nan]))
    assert result.tree() == {"near": {}, "far": {}, "far_rank": None, "far_pmi": None, "found_as": {}}
    assert neighbours(word_vectors(), ["w1"], pmi=lambda pairs: np.full(len(pairs), math.nan)).far_pmi is None


def by_loop(sequences: list[list[int]], window: int) -> Counter[tuple[int, int]]:
    n: Counter[tuple[int, int]] = Counter()
    for words in sequences:
        for i, a in enumerate(words):
            for j in range(max(0, i - window), min(len(words), i + window + 1)):
                if j != i:
                    n[a, words[j]] += 1
    return n


@given(st.lists(st.lists(st.integers(0, 4), max_size=9), min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 7))
def test_cooccurrences_equal_the_loop_for_all_chunk_sizes(sequences: list[list[int]], window: int, chunk: int) -> None:
    ids = np.array([w for words in sequences for w in words], np.int32)
    offsets = np.cumsum([0, *map(len, sequences)])
    pairs = np.array([(a, b) for a in range(5) for b in range(5)] + [(0, 1)])
    loop = by_loop(sequences, window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        met, totals = cooccurrence(ids, offsets, window, pairs, 5)
    assert met.tolist() == [loop[a, b] for a, b in pairs.tolist()]
    assert totals.tolist() == [sum(loop[a, b] for b in range(5)) for a in range(5)]


def test_pmi_and_pairs_that_never_cooccur() -> None:
    # "a b a b | c a | d": n_ab = 3, n_ca = 1, n = 8 of both sides; c and b never cooccur; d is alone.
    index = {"a": 0, "b": 1, "c": 2, "d": 3}
    pmi = PMI(np.array([0, 1, 0, 1, 2, 0, 3], np.int32), np.array([0, 4, 6, 7]), index, window=1)
    result = pmi([("a", "b"), ("b", "a"), ("c", "a"), ("c", "b"), ("a", "d"), ("a", "?")])
    # n_a = 3 + 1, n_b = 3, n_c = 1
    expected = [math.log(3.5 / (12 / 8 + 0.5)), math.log(3.5 / 2), math.log(1.5 / (4 / 8 + 0.5)), math.log(0.5 / 0.875)]
    assert result[:4] == pytest.approx(expected) and np.isnan(result[4:]).all()


def test_pmi_of_a_random_corpus_is_zero_and_of_a_structured_one_is_not() -> None:
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 6, 40_000).astype(np.int32)
    index = {w: i for i, w in enumerate("abcdef")}
    pairs = [("a", "b"), ("c", "c"), ("e", "f")]
    assert np.abs(PMI(ids, np.array([0, 40_000]), index, 5)(pairs)).max() < 0.05
    ids[1::2] = ids[::2] // 2 * 2 + 1 - ids[::2] % 2  # a word always occurs with its partner
    together = PMI(ids, np.arange(0, 40_001, 2), index, 5)(pairs)
    assert together[[0, 2]] == pytest.approx(math.log(6), abs=0.05) and together[1] < -3


def test_frequent_content_words_take_the_place_of_missing_query_words() -> None:
    words = [f"w{i}" for i in range(20)] + ["und", "haus", "x-ray", "katze", "hund", "garten"]
    vectors = Vectors(words, np.eye(len(words), dtype=np.float32))
    assert query_words(vectors, ["katze", "queen", "king"]) == ["katze", "haus", "hund"]
    assert query_words(vectors, ["katze", "queen"]) == ["katze", "queen"]      # half of them have a row
    assert query_words(vectors, ["Katze", "hund", "queen"]) == ["Katze", "hund", "queen"]   # found in another case
    assert query_words(vectors, ["queen"] * 2) == ["haus", "katze"] and query_words(vectors, []) == []
    nodes = Vectors(["1", "2", "3"], np.eye(3, dtype=np.float32))
    assert query_words(nodes, ["queen", "king"]) == ["1", "2"]
    report = replace(neighbours(vectors, ["haus"]), missing=["queen"], added=["haus"])
    assert report.note == "not in the vocabulary: queen; in their place: haus"
