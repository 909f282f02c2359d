"""Scores of pairs of words: how surely is a u a v?

    s(u, v) = max over what u may mean, a, and what v may mean, b, of entails(x_a, x_b)

`entails` is the model's: −E(a, b) of order embeddings, and the cosine wherever a model does not tell which of two
stands above, as of plain vectors. What a word may mean, data/hierarchy/senses.py says: where the table is of WordNet's
synsets,
the best pair of synsets stands for two words, whatever those who judged them had in mind. A plain word means itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from embtrain.data.hierarchy.files import ConceptsByWord
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.statistics.ties import init_parameters
from embtrain.models.base import Model

CELLS = 1 << 22  # numbers held at once

Asked = tuple[str, str, str]  # u, v and their part of speech: n, v, a, r, or empty where nothing is known of it


class Scorer:
    """Scores by vectors, as `model` reads them; words: those that stand in concepts which they do not name."""

    def __init__(self, vectors: Vectors, model: type[Model] = Model, words: ConceptsByWord | None = None):
        self.vectors, self.model, self.words = vectors, model, words or {}

    @cached_property
    def senses(self) -> Senses:
        return Senses(self.vectors.words, self.words)

    def __call__(self, asked: Sequence[Asked]) -> NDArray[np.float64]:
        """(n,); NaN for a pair with a word that is not known. Rounded (ties.py), so that equal scores tie."""
        a, b, owner = list[int](), list[int](), list[int]()
        for i, (u, v, pos) in enumerate(asked):
            above = self.senses.concepts_of(v, pos)
            for sense in self.senses.concepts_of(u, pos):
                a += [sense] * len(above)
                b += above
                owner += [i] * len(above)
        best = np.full(len(asked), np.nan)
        if owner:
            at = np.array(owner)
            first = np.flatnonzero(np.diff(at, prepend=-1))
            best[at[first]] = np.maximum.reduceat(self._entails(np.array(a), np.array(b)), first)
        return best

    def said(self, asked: Sequence[Asked]) -> str:
        """What the scores of these pairs are, in words."""
        words = {(word, pos) for u, v, pos in asked for word in (u, v)}
        n = [len(of) for of in (self.senses.concepts_of(word, pos) for word, pos in words) if of]
        many = f" of the best pair of meanings ({np.mean(n):.1f} a word)" if n and max(n) > 1 else ""
        return self.model.entailment + many + self.senses.note(dict.fromkeys(w for u, v, _ in asked for w in (u, v)))

    def _entails(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
        table, found = self.vectors.table, []
        for start in range(0, len(a), step := max(1, CELLS // self.vectors.dim)):
            x, y = (torch.from_numpy(table[ids[start:start + step]]).double() for ids in (a, b))
            found.append(self.model.entailment_score(x, y).numpy())
        return init_parameters(np.concatenate(found))
