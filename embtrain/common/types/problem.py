"""The facts of a problem and of its model that components receive, and the score of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from embtrain.common.candidate_lists import ListReader
from embtrain.common.types.examples import Query


class ModelView(Protocol):
    """Read-only protocol of the model for a source, without gradients."""

    @property
    def n_candidates(self) -> int: ...
    @property
    def geometry(self) -> str: ...           # score function: dot, s = h·c; cosine, s = τ cos(h, c); ...
    @property
    def tau(self) -> float: ...              # τ, the inverse temperature; 1 for dot
    @property
    def has_frozen_table(self) -> bool: ...  # the rows of the table have length 1 and are not trained
    def table(self) -> Tensor: ...                                       # (V, D)
    def score(self, query: Query, candidates: Tensor) -> Tensor: ...     # (B, K) of ids (1|B, K), vectors (B, K, D)


class WordVectors(Protocol):
    """Protocol of a file of word vectors."""

    @property
    def table(self) -> np.ndarray: ...                                   # (n, D)
    def find(self, words: Iterable[str], lower: bool = False) -> np.ndarray: ...  # rows (m,), -1: unknown in any case


@dataclass(frozen=True)
class ProblemSpec:
    """The facts about the problem that models, sources and losses receive before training."""

    n_candidates: int                       # V
    counts: Tensor                          # (V,) float64  how often each candidate is a positive in training
    n_contexts: int | None = None           # contexts are ids 0..n-1; None: they are not single ids
    context_sizes: tuple[int, ...] | None = None  # number of ids in each column of Query.context, if it has several
    raw_counts: Tensor | None = None        # (V,) float64  counts before subsampling, if they differ
    dim: int = 0                            # D of the model
    seed: int = 0
    device: str = "cpu"
    n_features: int | None = None           # length of the sparse input vectors; None: inputs are ids
    feature_counts: Tensor | None = None    # (n_features,) float64  training documents with each feature
    words: Sequence[str] | None = None      # the V candidates, if they are words
    vectors: Callable[[str], WordVectors] | None = None  # reads a file or folder of vectors
    lists: ListReader | None = None         # lists of candidates by query, from a file or from the training data
    # min_n, max_n, buckets or "exact", n words -> start (n + 1,), row (R,) of their character n-grams, number of rows
    ngram_rows: Callable[[int, int, int | str, Sequence[str]], tuple[np.ndarray, np.ndarray, int]] | None = None
    new_table: Callable[[int, int, bool], Tensor] | None = None  # n, D, is_padded -> zeros in a file; None: memory
    floors_counts: bool = False  # noise by counts takes a count of 0 as the smallest one above 0; False: as 0


class Score(NamedTuple):
    """One line of scores.json: a value, its 95 % interval, the number of items and a note."""

    benchmark: str
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    note: str = ""
