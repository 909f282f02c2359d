"""A model of fastText: vectors of words and of their character n-grams [bojanowski2017].

    u_w = (1/|R_w|) Σ_{r ∈ R_w} input_r       R_w: the word's own row, if it has one, then those of its n-grams
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors.subword_table import SubwordTable

MODELS = {"cbow": 1, "sg": 2}
LOSSES = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}


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
    def subwords(self) -> SubwordTable | None:
        """The rows that pool the vector of any word; None if words have no n-grams."""
        given = self.settings
        if not given.has_ngrams:
            return None
        ngrams = Ngrams(max(given.minn, 1), given.maxn, given.bucket)
        return SubwordTable(ngrams, self.ngram_rows, self.words, self.word_rows, "mean")

    def table(self) -> np.ndarray:
        """Return the vectors (V, D) float32 of the words."""
        return self.word_rows if self.subwords is None else self.subwords.compose(self.words)


class ModelDetails(NamedTuple):
    """The parts of a model that are not vectors."""

    counts: np.ndarray | None = None                    # (V,) int64; None: unknown, written as 1 each
    output: np.ndarray | None = None                    # (V, D) float32; None: written as zeros
    settings: FastTextSettings = FastTextSettings(dim=1)  # of training; make_model sets sizes and n-grams

    def first(self, n: int | None) -> ModelDetails:
        """Return the details of the first n words; None: of all."""
        counts, output, settings = self
        return ModelDetails(None if counts is None else counts[:n], None if output is None else output[:n], settings)


def make_model(path: Path, words: list[str], table: np.ndarray, subwords: SubwordTable | None,
               details: ModelDetails) -> FastTextModel:
    """Return a model that has the vectors of `table` (V, D), and those that `subwords` gives to other words.

    words: V. DataError, which names `path`, for n-grams that fastText does not have.
    """
    (V, D), output = table.shape, details.output
    counts = np.ones(V, np.int64) if details.counts is None else details.counts
    settings = replace(details.settings, dim=D, min_count=int(counts.min(initial=details.settings.min_count)))
    if subwords is None:
        return FastTextModel(settings, words, counts, table, np.zeros((0, D), np.float32), output)
    if subwords.ngrams.is_exact or subwords.pooling != "mean":
        kind = "have a row each" if subwords.ngrams.is_exact else "are summed"
        raise DataError(f"{path}: its n-grams {kind}, which fastText's files cannot represent; train with "
                        "model.subword.buckets: 2000000 and model.subword.pooling: mean, or choose another format")
    rows = [subwords.index[word] for word in words]
    chosen = slice(V) if rows == list(range(V)) else rows      # a slice copies nothing
    settings = replace(settings, bucket=subwords.ngrams.n_rows, minn=subwords.ngrams.min_n, maxn=subwords.ngrams.max_n)
    return FastTextModel(settings, words, counts, subwords.word_rows[chosen], subwords.table, output)
