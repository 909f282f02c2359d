"""KeyedVectors that are filled from a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gensim.models import KeyedVectors


def add_words(wv: KeyedVectors, words: Sequence[Any], counts: np.ndarray, vectors: np.ndarray,
              ngrams: np.ndarray | None) -> None:
    """Fill empty vectors. counts: (V,). vectors: (V, D). ngrams: (B, D) of FastTextKeyedVectors; None: of others."""
    wv.add_vectors(words, vectors)
    wv.expandos["count"] = counts.copy()
    if ngrams is not None:
        wv.vectors_vocab, wv.vectors_ngrams = vectors, ngrams
        wv.recalc_char_ngram_buckets()
        wv.adjust_vectors()
