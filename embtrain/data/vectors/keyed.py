"""gensim's KeyedVectors that also return vectors of words without a row, pooled from their character n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np
from gensim.models import KeyedVectors

from embtrain.data.vectors.subword_table import SubwordTable


class SubwordKeyedVectors(KeyedVectors):
    """KeyedVectors in which every word is that has a row, or an n-gram with a row."""

    def __init__(self, words: list[str], table: np.ndarray, subwords: SubwordTable):
        super().__init__(table.shape[1])
        self.subwords = subwords
        self.add_vectors(words, table)

    def __contains__(self, key: object) -> bool:
        return self.has_index_for(key) or (isinstance(key, str) and bool(self.subwords.compose([key]).any()))

    def get_vector(self, key: Any, norm: bool = False) -> np.ndarray:
        """Return the vector (D,) of a word. KeyError if it has neither a row nor an n-gram with a row."""
        if self.has_index_for(key) or not isinstance(key, str):
            found: np.ndarray = super().get_vector(key, norm)
            return found
        vector = self.subwords.compose([key])[0]
        if not vector.any():
            raise KeyError(f"{key!r}: has no row and no n-gram with a row")
        return vector / np.linalg.norm(vector) if norm else vector
