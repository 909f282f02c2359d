"""Order, limits and the file of the vocabulary."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from embtrain.common.errors import DataError
from embtrain.data.text.vocabulary import Vocabulary, build_vocabulary, extend_vocabulary

WORDS = ["pear", "Apple", "apple", "zebra", "émile", "rare"]
COUNTS = np.array([3, 5, 5, 9, 5, 1])


def test_order_is_count_then_code_points() -> None:
    vocabulary, new_ids = build_vocabulary(WORDS, COUNTS, 2, None)
    assert vocabulary.words == ["zebra", "Apple", "apple", "émile", "pear"]
    assert vocabulary.counts.tolist() == [9, 5, 5, 5, 3]
    assert vocabulary.total == 28  # the rare word is counted
    assert new_ids.tolist() == [4, 1, 2, 0, 3, -1]
    assert vocabulary.index["émile"] == 3


def test_max_size_keeps_the_first() -> None:
    vocabulary, new_ids = build_vocabulary(WORDS, COUNTS, 1, 2)
    assert vocabulary.words == ["zebra", "Apple"] and (new_ids >= 0).sum() == 2


def test_words_that_never_occur_have_no_id() -> None:
    assert build_vocabulary(["a", "b"], np.array([0, 2]), 1, None)[0].words == ["b"]


def test_empty_vocabulary_is_an_error() -> None:
    with pytest.raises(DataError, match=r"^walks\.min_count: no word occurs 10 times in .* \(28 tokens\)"):
        build_vocabulary(WORDS, COUNTS, 10, None, "walks")


@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.integers(0, 4)), min_size=1,
                unique_by=lambda pair: pair[0]), st.randoms(use_true_random=False))
def test_order_of_the_text_does_not_matter(pairs: list[tuple[str, int]], shuffler: object) -> None:
    if not any(count for _, count in pairs):
        return
    shuffled = list(pairs)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (build_vocabulary([w for w, _ in some], np.array([c for _, c in some]), 1, None)[0]
                     for some in (pairs, shuffled))
    assert first.words == second.words and first.counts.tolist() == second.counts.tolist()


def test_file_round_trip(tmp_path: Path) -> None:
    vocabulary, _ = build_vocabulary([*WORDS, "a\u2028b", "\ufffd"], np.append(COUNTS, [4, 4]), 1, None)
    vocabulary.write(tmp_path / "vocabulary.txt")
    again = Vocabulary.read(tmp_path / "vocabulary.txt")
    assert again.words == vocabulary.words and again.counts.tolist() == vocabulary.counts.tolist()
    assert again.total is None                               # the file does not have the words without an id


@pytest.mark.parametrize(("content", "message"), [
    (b"a\t1\nb 2\n", ":2: "), (b"a\t1\n\t3\n", ":2: "), (b"a\t-1\n", ":1: "), (b"a\t1\na\t2\n", "twice"),
    (b"\xff\t1\n", "not UTF-8"), (b"a\t" + b"9" * 40, ":1: "),
])
def test_damaged_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        Vocabulary.read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt"):
        Vocabulary.read(tmp_path / "none.txt")


@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.integers(1, 9)), unique_by=lambda x: x[0],
                min_size=1),
       st.lists(st.tuples(st.text("abcd", min_size=1, max_size=3), st.integers(0, 9)), unique_by=lambda x: x[0]),
       st.integers(1, 6), st.none() | st.integers(1, 20))
def test_an_extended_vocabulary(first: list[tuple[str, int]], further: list[tuple[str, int]], min_count: int,
                                max_size: int | None) -> None:
    """Against a loop: all earlier words with summed counts, the most frequent new ones, ids by count and word."""
    earlier = build_vocabulary([w for w, _ in first], np.array([c for _, c in first]), 1, None)[0]
    words, counts = [w for w, _ in further], np.array([c for _, c in further], np.int64)
    both, new_ids = extend_vocabulary(earlier, words, counts, min_count, max_size)
    new = sorted((x for x in further if x[0] not in earlier.index and x[1] >= min_count), key=lambda x: (-x[1], x[0]))
    new = new if max_size is None else new[:max(0, max_size - len(earlier))]
    expected = {w: c + dict(further).get(w, 0) for w, c in first} | dict(new)
    assert list(zip(both.words, both.counts.tolist(), strict=True)) \
        == sorted(expected.items(), key=lambda x: (-x[1], x[0]))
    assert [both.words[i] if i >= 0 else None for i in new_ids] == [w if w in expected else None for w in words]
    assert both.total == sum(c for _, c in first) + counts.sum()
