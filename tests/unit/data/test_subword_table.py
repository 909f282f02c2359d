"""Rows of words and n-grams: vectors of known and unknown words, files, and damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from embtrain.common.errors import DataError
from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors import subword_table
from embtrain.data.vectors.subword_table import SubwordTable, make_ngrams

WORDS = ["where", "aaaa", "œuvre", "no"]
Pooling = Literal["mean", "sum"]


def table(buckets: int | Literal["exact"], pooling: Pooling = "mean", dim: int = 5) -> SubwordTable:
    ngrams = make_ngrams(3, 4, buckets, WORDS)
    draw = np.random.default_rng(3)
    return SubwordTable(ngrams, draw.standard_normal((ngrams.n_rows, dim)).astype(np.float32), WORDS,
                        draw.standard_normal((len(WORDS), dim)).astype(np.float32), pooling)


@pytest.mark.parametrize("pooling", ["mean", "sum"])
@pytest.mark.parametrize("buckets", [7, "exact"])  # 7: several n-grams of a word share a row
def test_vector_is_pooled_over_word_and_ngrams(buckets: int | Literal["exact"], pooling: Pooling,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subword_table, "CHUNK", 1000)
    subwords = table(buckets, pooling)
    names = ["where", "unseen", "aaaa", "x", "no", "here"] * 300      # two chunks
    start, row = subwords.ngrams.rows(names)
    expected = []
    for i, word in enumerate(names):
        rows = [subwords.table[r] for r in row[start[i]:start[i + 1]]]
        rows += [subwords.word_rows[WORDS.index(word)]] if word in WORDS else []
        total = np.sum(rows, axis=0, dtype=np.float64) if rows else np.zeros(5)
        expected.append(total / max(1, len(rows)) if pooling == "mean" else total)
    vectors = subwords.compose(names)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
    assert vectors[names.index("where")].any() and subwords.compose([]).shape == (0, 5)


def test_unknown_word_without_ngrams_has_a_zero_vector() -> None:
    assert not table("exact").compose(["¶¶¶¶¶¶", ""]).any()


@pytest.mark.parametrize("buckets", [7, "exact"])
@pytest.mark.parametrize("pooling", ["mean", "sum"])
def test_file_keeps_every_bit(tmp_path: Path, buckets: int | Literal["exact"], pooling: Pooling) -> None:
    before = table(buckets, pooling)
    before.save(tmp_path / "x.safetensors")
    after = SubwordTable.load(tmp_path / "x.safetensors")
    assert after.words == WORDS and after.pooling == pooling and after.ngrams.settings() == before.ngrams.settings()
    assert after.compose(["unseen", *WORDS]).tobytes() == before.compose(["unseen", *WORDS]).tobytes()


def test_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    table(7).save(path)
    whole = path.read_bytes()
    for damaged in (whole[:-8], whole[:-3] + b"abc", b"", whole[:100] + b"?" + whole[101:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"x\.safetensors: ") as found:
            SubwordTable.load(path)
        assert "\n" not in str(found.value)
    with pytest.raises(DataError, match="cannot be read"):
        SubwordTable.load(tmp_path / "missing.safetensors")


def test_rows_must_fit_the_ngrams() -> None:
    with pytest.raises(ValueError, match="7 n-grams"):
        SubwordTable(Ngrams(3, 6, 7), np.zeros((6, 2), np.float32), ["a"], np.zeros((1, 2), np.float32), "sum")
