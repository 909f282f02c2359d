"""Scores of word pairs: how certain is it that u is a kind of v?

    s(u, v) = max over the senses a of u and b of v of entailment_score(x_a, x_b)

`entailment_score` is defined by the model: −E(a, b) for order embeddings, and the cosine if the model has no
direction, as for plain vectors. data/hierarchy/senses.py defines the senses of a word. With a table of WordNet
synsets, the best pair of synsets represents two words, whichever senses the annotators meant. A plain word has one
sense, itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from embtrain.common.errors import UsageError
from embtrain.data.hierarchy.files import ConceptsByWord
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.statistics.ties import round_scores
from embtrain.evaluate.words.gold import zeros_note
from embtrain.models.base import Model, ModelConfig

MAX_ELEMENTS = 1 << 22  # elements in memory at once

WordPair = tuple[str, str, str]  # u, v and their part of speech: n, v, a, r, or empty if unknown
AnyPair = WordPair | tuple[str, str]


class Scorer:
    """Scores pairs by vectors, as `model` with `config` defines.

    words: words of concepts that do not occur in the concept's name.
    """

    def __init__(self, vectors: Vectors, model: type[Model] = Model, words: ConceptsByWord | None = None,
                 config: ModelConfig | None = None):
        self.vectors, self.model, self.words, self.config = vectors, model, words or {}, config or model.Config()

    @cached_property
    def senses(self) -> Senses:
        """Index from words to the rows of their senses."""
        return Senses(self.vectors.words, self.words)

    def __call__(self, pairs: Sequence[AnyPair]) -> NDArray[np.float64]:
        """Scores (n,) of pairs (u, v) or (u, v, part of speech); NaN if a word is unknown.

        Rounded (ties.py), so that equal scores tie. UsageError for what is not a pair of words.
        """
        a, b, owner, first = self._combine_senses(pairs)
        best = np.full(len(pairs), np.nan)
        if len(owner):
            best[owner[first]] = np.maximum.reduceat(self._entails(a, b), first)
        return best

    def describe_scores(self, pairs: Sequence[WordPair]) -> str:
        """A note on the computation of the scores of these pairs."""
        words = {(word, pos) for u, v, pos in pairs for word in (u, v)}
        senses = [self.senses.concepts_of(word, pos) for word, pos in words]
        n = [len(rows) for rows in senses if rows]
        detail = f" of the best pair of meanings ({np.mean(n):.1f} a word)" if n and max(n) > 1 else ""
        is_cosine, used = self.model.entailment_score is Model.entailment_score, np.array([*chain(*senses)], np.int64)
        n_zeros = self._count_zeros(pairs) if is_cosine and self.vectors.are_zeros(used).any() else 0
        return self.model.entailment + detail + zeros_note(n_zeros, "pairs") + self.senses.note(
            dict.fromkeys(word for u, v, _ in pairs for word in (u, v)))

    def _combine_senses(self, pairs: Sequence[AnyPair]) -> tuple[NDArray[np.int64], ...]:
        """Combine each sense of u with each of v.

        Returns rows of u and v, the pair that each combination belongs to, and the first combination of each pair that
        has one.
        """
        a, b, owner = list[int](), list[int](), list[int]()
        for i, (u, v, pos) in enumerate(map(_with_pos, pairs)):
            hypernym_senses = self.senses.concepts_of(v, pos)
            for sense in self.senses.concepts_of(u, pos):
                a += [sense] * len(hypernym_senses)
                b += hypernym_senses
                owner += [i] * len(hypernym_senses)
        owners = np.array(owner, np.int64)
        return np.array(a, np.int64), np.array(b, np.int64), owners, np.flatnonzero(np.diff(owners, prepend=-1))

    def _count_zeros(self, pairs: Sequence[AnyPair]) -> int:
        """Count the pairs whose score is the cosine of a vector of zeros, and of no other vectors."""
        a, b, owner, first = self._combine_senses(pairs)
        if not len(owner):
            return 0
        scores, is_zero = self._entails(a, b), self.vectors.are_zeros(np.stack([a, b])).any(0)
        best_of_others = np.maximum.reduceat(np.where(is_zero, -np.inf, scores), first)
        return int((best_of_others < np.maximum.reduceat(scores, first)).sum())

    def _entails(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
        table, scores = self.vectors.table, []
        for start in range(0, len(a), step := max(1, MAX_ELEMENTS // self.vectors.dim)):
            x, y = (torch.from_numpy(table[ids[start:start + step]]).double() for ids in (a, b))
            scores.append(self.model.entailment_score(x, y, self.config).numpy())
        return round_scores(np.concatenate(scores))


def _with_pos(pair: AnyPair) -> WordPair:
    """Return u, v and their part of speech. UsageError if it is not a pair of words."""
    if isinstance(pair, str) or len(pair) not in (2, 3):
        raise UsageError(f"pairs: {pair!r}: is not a pair of words; give (u, v) or (u, v, part of speech)")
    return pair if len(pair) == 3 else (*pair, "")
