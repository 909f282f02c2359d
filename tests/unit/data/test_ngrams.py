"""Character n-grams against a loop over substrings, and their buckets against those that fastText returned."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from embtrain.common.errors import DataError
from embtrain.data.text import ngrams as module
from embtrain.data.text.ngrams import Ngrams

# Recorded from fasttext 0.9.2: train_unsupervised(..., minn, maxn, bucket).get_subwords(word), ids minus the number of
# words. tests/slow/parity/test_fasttext.py compares many more words.
RECORDED = {
    (3, 6, 2_000_000): {
        "cat": [916747, 1988973, 1428137, 289031, 1127995, 351106],
        "of": [997102, 1164528, 728930],
        "Käse": [1853943, 1909068, 1898507, 1086191, 1600106, 757277, 742809, 15954, 1749636, 455041],
        "北京大学": [1187847, 1321651, 1774625, 908877, 753389, 943851, 285519, 1462783, 92371, 363219],
        "👍🏽ok": [419533, 1012358, 1237655, 1088907, 1651084, 788645, 1565697, 1081074, 691876, 307651],
        "a": [1087600], "</s>": [],
    },
    (1, 2, 1000): {
        "x<y>z": [513, 695, 329, 539, 894, 76, 822, 777, 633, 933, 281],
        "ß": [53, 919, 763],
        "e\u0301te": [226, 744, 31, 942, 22, 267, 994, 744, 490],
    },
}
LETTERS = "ab<>é\u0301\u0800京👍\U0010ffff\ud800\n"


def substrings(word: str, min_n: int, max_n: int) -> list[str]:
    """Return the n-grams of a word in order."""
    text = f"<{word}>"
    found = [text[i:i + n] for i in range(len(text)) for n in range(min_n, max_n + 1) if i + n <= len(text)
             if not (n == 1 and i in (0, len(text) - 1))]
    return [] if word == "</s>" else found


def bucket(ngram: str, buckets: int) -> int:
    """Return fastText's bucket of an n-gram."""
    h = 2166136261
    for byte in ngram.encode("utf-8", "surrogatepass"):
        h = (h ^ (byte if byte < 0x80 else byte | 0xFFFFFF00)) * 16777619 % 2**32
    return h % buckets


def rows_of(ngrams: Ngrams, words: list[str]) -> list[list[int]]:
    start, row = ngrams.rows(words)
    assert start.dtype == row.dtype == np.int64 and len(start) == len(words) + 1 and start[-1] == len(row)
    return [row[a:b].tolist() for a, b in pairwise(start)]


@pytest.mark.parametrize("key", RECORDED)
def test_buckets_are_those_of_fasttext(key: tuple[int, int, int]) -> None:
    words = list(RECORDED[key])
    assert rows_of(Ngrams(*key), words) == list(RECORDED[key].values())


@given(st.lists(st.text(LETTERS, max_size=9), max_size=6), st.integers(1, 4), st.integers(0, 8),
       st.integers(1, 2**31 - 1))
def test_hashed_rows_are_those_of_a_loop(words: list[str], min_n: int, more: int, buckets: int) -> None:
    expected = [[bucket(text, buckets) for text in substrings(word, min_n, min_n + more)] for word in words]
    assert rows_of(Ngrams(min_n, min_n + more, buckets), words) == expected


@given(st.lists(st.text(LETTERS, max_size=9), max_size=6), st.lists(st.text(LETTERS, max_size=9), max_size=3),
       st.integers(1, 4), st.integers(0, 8))
def test_exact_rows_are_distinct_and_unknown_ngrams_are_left_out(words: list[str], unseen: list[str], min_n: int,
                                                                more: int) -> None:
    max_n = min_n + more
    ngrams = Ngrams.exact(min_n, max_n, words)
    texts = sorted({text for word in words for text in substrings(word, min_n, max_n)}, key=lambda t: (len(t), t))
    assert ngrams.texts() == texts and ngrams.n_rows == len(texts)
    index = {text: i for i, text in enumerate(texts)}
    expected = [[index[text] for text in substrings(word, min_n, max_n) if text in index] for word in words + unseen]
    assert rows_of(ngrams, words + unseen) == expected
    again = Ngrams.restore(ngrams.settings(), ngrams.texts())
    assert again.n_rows == ngrams.n_rows and rows_of(again, words + unseen) == expected


def test_words_in_several_chunks_have_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"word{i}" for i in range(50)]
    whole = [Ngrams(2, 5, 999), Ngrams.exact(2, 5, words[:30])]
    expected = [rows_of(ngrams, words) for ngrams in whole]
    monkeypatch.setattr(module, "_CELLS", 40)
    assert [rows_of(ngrams, words) for ngrams in whole] == expected


def test_hashed_settings_are_restored() -> None:
    ngrams = Ngrams(3, 6, 77)
    assert ngrams.texts() is None and not ngrams.is_exact
    again = Ngrams.restore(ngrams.settings(), None)
    assert rows_of(again, ["house"]) == rows_of(ngrams, ["house"]) and again.n_rows == 77


@pytest.mark.parametrize(("settings", "texts", "message"), [
    ({"min_n": 3, "max_n": 6}, None, "buckets"),
    ({"min_n": 3, "max_n": 2, "buckets": 5}, None, "min_n <= max_n"),
    ({"min_n": 3, "max_n": 6, "buckets": 2**31}, None, "buckets"),
    ({"min_n": 1, "max_n": 2}, ["ab", "a"], "order"),
    ({"min_n": 1, "max_n": 2}, ["a", "a"], "twice"),
    ({"min_n": 2, "max_n": 3}, ["a", "ab"], "not of 2 to 3 characters"),
])
def test_wrong_stored_ngrams_are_refused(settings: dict[str, int], texts: list[str] | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Ngrams.restore(settings, texts)
