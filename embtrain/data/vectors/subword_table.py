"""Rows of words and of character n-grams, from which the vector of any word is pooled [bojanowski2017].

    h_a = Σ_r x_r      pooling: sum; times 1 / (number of rows) under mean
    rows: that of the word a, if it is in the vocabulary, then those of its n-grams, repeated ones counted again

The sum is in float32 and in this order, and the reciprocal is rounded, so that vectors are bitwise those of fastText.

The file is subwords.safetensors of a run folder, next to its vectors. It has a sha256 (data/storage/checksummed.py):

    ngram_rows  (B, D) float32    word_rows  (V, D) float32    words  uint8: UTF-8, separated by newlines
    numbers     (4,) int64: min_n, max_n, buckets, 1 for mean or 0 for sum; buckets is 0 if the n-grams are exact
    ngrams      uint8: the n-gram of each row, separated by newlines; empty if they are hashed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import safetensors

from embtrain.common.errors import DataError, read_error
from embtrain.common.files import write_atomically
from embtrain.data.storage import checksummed
from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors.files import check_memory
from embtrain.data.vectors.open import default_max_bytes

FILE = "subwords.safetensors"
CHUNK = 1 << 14  # words that are pooled at once
_CELLS = 1 << 22  # numbers that are added at once
SHAPES = {"ngram_rows": ("F32", 2), "word_rows": ("F32", 2), "words": ("U8", 1), "numbers": ("I64", 1),
          "ngrams": ("U8", 1)}


def make_ngrams(min_n: int, max_n: int, buckets: int | str, words: Sequence[str]) -> Ngrams:
    """The n-grams of min_n to max_n characters in `buckets` rows; "exact": with a row for each of those of the words.
    """
    return Ngrams.exact(min_n, max_n, words) if isinstance(buckets, str) else Ngrams(min_n, max_n, buckets)


def ngram_rows(min_n: int, max_n: int, buckets: int | str, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int]:
    """The rows of the n-grams of words, as a ProblemSpec gives them to models: start, row, number of rows."""
    ngrams = make_ngrams(min_n, max_n, buckets, words)
    return *ngrams.rows(words), ngrams.n_rows


@dataclass(frozen=True, eq=False)
class SubwordTable:
    """The rows of V words and of B n-gram rows, and how they are pooled."""

    ngrams: Ngrams
    table: np.ndarray                 # (B, D) float32  rows of the n-grams
    words: Sequence[str]              # V
    word_rows: np.ndarray             # (V, D) float32
    pooling: Literal["mean", "sum"]

    def __post_init__(self) -> None:
        if self.table.shape != (self.ngrams.n_rows, self.word_rows.shape[1]) or len(self.words) != len(self.word_rows):
            raise ValueError(f"{self.ngrams.n_rows:,} n-grams with rows of shape {self.table.shape}, and "
                             f"{len(self.words):,} words with rows of shape {self.word_rows.shape}")

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word of the vocabulary."""
        return {word: i for i, word in enumerate(self.words)}

    def compose(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of words, known or not, (n, D) float32; zeros for an unknown word without n-grams."""
        vectors = np.zeros((len(words), self.word_rows.shape[1]), np.float32)
        for begin in range(0, len(words), CHUNK):
            part, out = words[begin:begin + CHUNK], vectors[begin:begin + CHUNK]
            start, row = self.ngrams.rows(part)
            ids = np.array([self.index.get(word, -1) for word in part], np.int64)
            known = ids >= 0
            out[known] += self.word_rows[ids[known]]
            _add_rows(out, self.table, start, row)
            if self.pooling == "mean":
                out *= (1 / np.maximum(np.diff(start) + known, 1)).astype(np.float32)[:, None]
        return vectors

    def of_words(self, words: Sequence[str]) -> SubwordTable:
        """Return the table with all rows of n-grams, and the rows of these words only, in their order."""
        if list(words) == list(self.words):
            return self
        return replace(self, words=words, word_rows=self.word_rows[[self.index[word] for word in words]])

    def hashed_rows(self, min_n: int, max_n: int, buckets: int | str, pooling: str) -> np.ndarray | None:
        """The rows (B, D) of n-grams that are hashed and pooled in this way; None if these are others."""
        settings = {"min_n": min_n, "max_n": max_n, "buckets": buckets}
        return self.table if self.ngrams.settings() == settings and self.pooling == pooling else None

    def save(self, path: Path) -> None:
        """Write the file atomically; a table is not copied."""
        settings = self.ngrams.settings()
        numbers = [settings["min_n"], settings["max_n"], settings.get("buckets", 0), int(self.pooling == "mean")]
        arrays = {"ngram_rows": self.table, "word_rows": self.word_rows, "words": _encode(self.words),
                  "ngrams": _encode(self.ngrams.texts() or []), "numbers": np.array(numbers, np.int64)}
        with write_atomically(path) as file:
            file.writelines(checksummed.file_chunks(arrays))

    @classmethod
    def load(cls, path: Path) -> SubwordTable:
        """Read a file that `save` wrote. DataError if it is another file or damaged, ResourceError if it is too large.
        """
        try:
            with safetensors.safe_open(path, framework="numpy") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  it is not a dict
                found = {name: (x.get_dtype(), len(x.get_shape())) for name, x in slices.items()}
                if found != SHAPES or checksummed.CHECKSUM_KEY not in (file.metadata() or {}):
                    raise DataError(f"{path}: is not a file of subwords as training writes it; restore that file")
                rows, dim = slices["ngram_rows"].get_shape()
                check_memory(path, rows + slices["word_rows"].get_shape()[0], dim, default_max_bytes())
                arrays = {name: file.get_tensor(name) for name in SHAPES}
                checksummed.check(path, file.metadata(), arrays)
            min_n, max_n, buckets, is_mean = arrays["numbers"].tolist()
            settings = {"min_n": min_n, "max_n": max_n} | ({"buckets": buckets} if buckets else {})
            ngrams = Ngrams.restore(settings, None if buckets else _decode(arrays["ngrams"]))
            return cls(ngrams, arrays["ngram_rows"], _decode(arrays["words"]), arrays["word_rows"],
                       "mean" if is_mean else "sum")
        except (OSError, safetensors.SafetensorError, ValueError) as error:
            raise read_error(path, error, f"cannot be read as a file of subwords: {error}; restore the file that "
                                          "training wrote") from error


def _encode(texts: Sequence[str]) -> np.ndarray:
    return np.frombuffer("\n".join(texts).encode("utf-8", "surrogatepass"), np.uint8)


def _decode(code: np.ndarray) -> list[str]:
    return code.tobytes().decode("utf-8", "surrogatepass").split("\n") if len(code) else []


def _add_rows(sums: np.ndarray, table: np.ndarray, start: np.ndarray, row: np.ndarray) -> None:
    """Add the rows row[start[i]:start[i + 1]] of a table (R, D) to sums[i], one after the other, from left to right.

    sums: (n, D) float32. start: (n + 1,). `np.add.reduceat` would sum in pairs.
    """
    length = np.diff(start)
    order = np.argsort(-length, kind="stable")                 # the longest first: sums that go on are a prefix
    for begin in range(0, len(order), step := max(1, _CELLS // max(table.shape[1], 1))):
        ids = order[begin:begin + step]
        first, longest_first, total = start[ids], -length[ids], sums[ids]
        for j in range(-int(longest_first[0])):
            m = int(np.searchsorted(longest_first, -j))        # sums that have more than j terms
            with np.errstate(over="ignore"):                   # infinity, which callers reject
                total[:m] += table[row[first[:m] + j]]
        sums[ids] = total
