"""A model of fastText: vectors of words and of their character n-grams [bojanowski2017].

    u_w = (1/|R_w|) Σ_{r ∈ R_w} input_r       R_w: the word's own row, if it has one, then those of its n-grams

The sum is in float32 and in this order, so that vectors are bitwise those of fastText.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors.pooling import add_rows

MODELS = {"cbow": 1, "sg": 2}
LOSSES = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}
_WORDS = 1 << 14      # words that are composed at once


@dataclass(frozen=True)
class FastTextSettings:
    """The settings in a file, in its order. model and loss: numbers of MODELS and LOSSES."""

    dim: int
    ws: int = 5
    epoch: int = 5
    min_count: int = 1
    neg: int = 5
    word_ngrams: int = 1
    loss: int = LOSSES["ns"]
    model: int = MODELS["sg"]
    bucket: int = 0
    minn: int = 0
    maxn: int = 0
    lr_update_rate: int = 100
    t: float = 1e-4

    @property
    def has_ngrams(self) -> bool:
        """Whether words have n-grams, and so vectors differ from the rows of words."""
        return self.bucket > 0 and self.maxn > 0 and self.minn <= self.maxn


@dataclass(frozen=True, eq=False)
class FastTextModel:
    """A model of V words, B buckets and D dimensions."""

    settings: FastTextSettings
    words: list[str]
    counts: np.ndarray          # (V,) int64
    word_rows: np.ndarray       # (V, D) float32
    ngram_rows: np.ndarray      # (B, D) float32
    output: np.ndarray | None   # (V, D) float32; None: not read, and written as zeros

    @cached_property
    def ngrams(self) -> Ngrams | None:
        """The n-grams of words; None if words have no n-grams."""
        given = self.settings
        return Ngrams(max(given.minn, 1), given.maxn, given.bucket) if given.has_ngrams else None

    def compose(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors (n, D) float32 of words with and without a row; zeros for a word without n-grams."""
        out = np.zeros((len(words), self.settings.dim), np.float32)
        for begin in range(0, len(words), _WORDS):
            chunk = words[begin:begin + _WORDS]
            ids = np.array([self._index.get(word, -1) for word in chunk], np.int64)
            known = ids >= 0
            sums = out[begin:begin + len(chunk)]
            sums[known] += self.word_rows[ids[known]]
            n_terms = known.astype(np.int64)
            if self.ngrams is not None:
                start, row = self.ngrams.rows(chunk)
                add_rows(sums, self.ngram_rows, start, row)
                n_terms += np.diff(start)
            sums *= (1 / np.maximum(n_terms, 1)).astype(np.float32)[:, None]
        return out

    def table(self) -> np.ndarray:
        """Return the vectors (V, D) float32 of the words."""
        return self.word_rows if self.ngrams is None else self.compose(self.words)  # a mean over one row is the row

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}


def plain_model(words: list[str], table: np.ndarray, counts: np.ndarray | None) -> FastTextModel:
    """Return a model without n-grams, with the vectors of `table` (V, D). counts: (V,); None: unknown, 1 each."""
    V, D = table.shape
    counts = np.ones(V, np.int64) if counts is None else counts
    settings = FastTextSettings(dim=D, min_count=int(min(counts.min(initial=1), 2**31 - 1)))
    return FastTextModel(settings, words, counts, table, np.zeros((0, D), np.float32), None)
