"""Nearest neighbours of words, and whether those of rank 45-50 are still related.

    near, far   ranks 1-5 and 45-50 by cosine (Bose et al. 2018, table 1, assesses them by eye)
    far_rank    mean frequency rank of all words in `far`: junk is rare, so a large number is a bad sign
    far_pmi     mean over (word, neighbour) in `far` of  PMI = log (n_ab + ½) / (e_ab + ½),  e_ab = n_a n_b / n     nats

n_ab: how often b occurs within `window` words of a, inside one sequence · n_a = Σ_b n_ab · n = Σ_a n_a · e_ab: how
often they would co-occur by chance. Every co-occurrence counts once for each side, so n_ab = n_ba. The ½ on both sides
gives 0 for two rare words that never co-occur: there is no evidence. Adding ½ to the numerator alone would call them
related (e_ab = .03 gives log .5/.03 = 2.8), and rare words are what the number has to detect.
Both numbers are means over all entries of `far` together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embtrain.data.vectors.vectors import Vectors

SMOOTHING = 0.5
FUNCTION_WORDS, CONTENT_LETTERS = 100, 4  # the most frequent words, and letters of a word that is not one of them
_CHUNK = 1 << 20  # positions per chunk
_ROWS = 512       # rows whose cosines are computed at once

PairPMI = Callable[[Sequence[tuple[str, str]]], NDArray[np.float64]]


class NeighbourList(list[tuple[str, float]]):
    """Neighbours of a word with their cosines, nearest first."""

    found_as: str | None = None  # the spelling whose vector was used; None: the word has no row
    is_composed: bool = False    # whether the vector was composed from the word's n-grams


@dataclass(frozen=True)
class NeighbourReport:
    """Near and far neighbours of several words, and the two numbers."""

    near: dict[str, NeighbourList]
    far: dict[str, NeighbourList]
    far_rank: float | None
    far_pmi: float | None
    missing: list[str] = field(default_factory=list)  # requested words outside the vocabulary
    added: list[str] = field(default_factory=list)    # words in their place

    @property
    def found_as(self) -> dict[str, str]:
        """The spelling used for each word that was found only in another case or form."""
        return {word: near.found_as for word, near in self.near.items() if near.found_as not in (word, None)}

    @property
    def note(self) -> str:
        """Missing and respelled words, as text."""
        spelled = ", ".join(f"{word} as {spelling}" for word, spelling in self.found_as.items())
        return "; ".join([*([f"not in the vocabulary: {', '.join(self.missing)}"] if self.missing else []),
                          *([f"in their place: {', '.join(self.added)}"] if self.added else []),
                          *([f"found in another spelling: {spelled}"] if spelled else [])])

    def tree(self) -> dict[str, Any]:
        """The contents of neighbours.json."""
        def lists(neighbours: dict[str, NeighbourList]) -> dict[str, list[list[Any]]]:
            return {word: [[w, round(c, 6)] for w, c in pairs] for word, pairs in neighbours.items()}
        return {"near": lists(self.near), "far": lists(self.far), "far_rank": self.far_rank, "far_pmi": self.far_pmi,
                "found_as": self.found_as}


def near(vectors: Vectors, word: str, first: int = 1, last: int = 5, lower: bool = True) -> NeighbourList:
    """Neighbours of ranks first..last: fewer in a small vocabulary, none of a word without a vector.

    A vector of zeros has no direction: its word has no neighbours, and is none. lower: also try other spellings of a
    missing word. Its vector is composed from its n-grams if the vectors have some.
    """
    row = int(vectors.find([word], lower)[0])
    if row >= 0 or not (vector := vectors.compose([word])[0].astype(np.float64)).any():
        return _listed(vectors, row, first, last)
    unit = (vector / np.linalg.norm(vector)).astype(np.float32)
    cosine = vectors.unit @ unit                                                              # (V,)
    best = _best(cosine, _zeros(vectors.unit, cosine), first, last)
    neighbours = NeighbourList((vectors.words[i], c) for i, c in best)
    neighbours.is_composed = True
    return neighbours


def _listed(vectors: Vectors, row: int, first: int, last: int) -> NeighbourList:
    if row < 0:
        return NeighbourList()
    neighbours = NeighbourList((vectors.words[i], c) for i, c in _nearest(vectors, row, first, last))
    neighbours.found_as = vectors.words[row]
    return neighbours


def _nearest(vectors: Vectors, row: int, first: int, last: int) -> list[tuple[int, float]]:
    if not vectors.unit[row].any():
        return []
    cosine = vectors.unit @ vectors.unit[row]                                                 # (V,)
    cosine[row] = -np.inf
    return _best(cosine, _zeros(vectors.unit, cosine), first, min(last, len(cosine) - 1))


def _zeros(unit: np.ndarray, cosine: np.ndarray) -> np.ndarray:
    """Return the rows of zeros of unit (V, D), whose cosines (V,) are 0."""
    may_be_zeros = np.flatnonzero(cosine == 0)
    return may_be_zeros[~unit[may_be_zeros].any(1)]


def _best(cosine: np.ndarray, zeros: np.ndarray, first: int, last: int) -> list[tuple[int, float]]:
    """Return the rows of ranks first..last by cosine (V,), and their cosines.

    Changes `cosine`. zeros: the rows of vectors of zeros, which have no direction, so that their cosine is undefined.
    """
    cosine[zeros] = -np.inf
    cosine[~np.isfinite(cosine)] = -np.inf  # NaN, in a table that diverged, is never a neighbour
    last = min(last, len(cosine))
    if last < first:
        return []
    edge = np.partition(cosine, -last)[-last]
    best = np.flatnonzero(cosine >= edge)
    best = best[np.argsort(-cosine[best], kind="stable")][first - 1:last]  # ties: the more frequent word first
    return [(int(i), float(np.clip(cosine[i], -1, 1))) for i in best if cosine[i] > -np.inf]


def query_words(vectors: Vectors, words: Sequence[str]) -> list[str]:
    """Return `words` if at least half have a row, else as many words that have one: frequent content words are added.

    A content word here has four letters or more and is not among the most frequent hundred or tenth of the rows: those
    are function words in most languages. Without any, the most frequent rows are added.
    """
    known = [word for word in words if vectors.find([word], True)[0] >= 0]
    if 2 * len(known) >= len(words):
        return list(words)
    rows = vectors.words[min(FUNCTION_WORDS, len(vectors) // 10):]
    content = [word for word in rows if len(word) >= CONTENT_LETTERS and word.isalpha()]
    added = [word for word in content or vectors.words if word not in known]
    return [*known, *added[:len(words) - len(known)]]


def nearest_rows(unit: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k nearest other rows of each unit row, nearest first: rows (n, k), −1 for none, and cosines (n, k)."""
    rows, cosines = np.full((len(unit), k), -1), np.zeros((len(unit), k))
    is_zeros: NDArray[np.bool_] = ~np.any(unit, axis=1)
    zeros = np.flatnonzero(is_zeros)
    for start in range(0, len(unit), _ROWS):
        for i, cosine in enumerate(unit[start:start + _ROWS] @ unit.T, start):
            cosine[i] = -np.inf
            best = [] if is_zeros[i] else _best(cosine, zeros, 1, min(k, len(unit) - 1))
            rows[i, :len(best)], cosines[i, :len(best)] = [row for row, _ in best], [value for _, value in best]
    return rows, cosines


def neighbours(vectors: Vectors, words: Iterable[str], counts: NDArray[np.int64] | None = None,
               pmi: PairPMI | None = None, lower: bool = True) -> NeighbourReport:
    """Ranks 1-5 and 45-50 of each word, and the two numbers. Missing words are left out and noted.

    counts (V,): frequencies; None: the vectors are sorted by frequency. pmi: the PMI of pairs of words, NaN if unknown.
    """
    rank = np.arange(1, len(vectors) + 1)
    if counts is not None:
        rank = np.empty_like(rank)
        rank[np.argsort(-counts, kind="stable")] = np.arange(1, len(vectors) + 1)
    near_lists: dict[str, NeighbourList] = {}
    far_lists: dict[str, NeighbourList] = {}
    missing, ranks, pairs = [], [], []
    for word in dict.fromkeys(words):
        row = int(vectors.find([word], lower)[0])
        if row < 0:
            missing.append(word)
            continue
        near_lists[word], far_lists[word] = _listed(vectors, row, 1, 5), _listed(vectors, row, 45, 50)
        ranks += [int(rank[vectors.index[neighbour]]) for neighbour, _ in far_lists[word]]
        pairs += [(vectors.words[row], neighbour) for neighbour, _ in far_lists[word]]
    finite_pmi = np.empty(0) if pmi is None or not pairs else pmi(pairs)
    finite_pmi = finite_pmi[np.isfinite(finite_pmi)]
    return NeighbourReport(near_lists, far_lists, float(np.mean(ranks)) if ranks else None,
                           float(finite_pmi.mean()) if len(finite_pmi) else None, missing)


@dataclass(frozen=True)
class PMI:
    """PMI of pairs of words in a corpus; a call reads the corpus once."""

    ids: NDArray[np.int32]       # (N,) the corpus, which may be memory-mapped
    sequence: NDArray[np.int64]  # (S + 1,) offsets that a window never crosses
    index: Mapping[str, int]     # the id of each word
    window: int

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """PMI of the pairs (P,); NaN if a word does not occur."""
        pair_ids = np.array([[self.index.get(a, -1), self.index.get(b, -1)] for a, b in pairs], np.int64).reshape(-1, 2)
        n_ab, n_word = cooccurrence(self.ids, self.sequence, self.window, pair_ids, len(self.index))
        n_a, n_b = n_word[pair_ids[:, 0]], n_word[pair_ids[:, 1]]
        value = np.log((n_ab + SMOOTHING) / (n_a * n_b / max(n_word.sum(), 1) + SMOOTHING))
        return np.where((pair_ids >= 0).all(1) & (n_a > 0) & (n_b > 0), value, np.nan)


def cooccurrence(ids: NDArray[np.int32], sequence: NDArray[np.int64], window: int, pairs: NDArray[np.int64],
                 n_words: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """n_ab of the pairs (P, 2), and n_a of every word (n_words,), in one pass over ids (N,) by chunks."""
    codes, code_of_pair = np.unique(
        np.sort(pairs, axis=1) @ np.array([n_words, 1]), return_inverse=True
    )  # code of a <= b
    is_queried = np.zeros(n_words, bool)
    is_queried[pairs[pairs >= 0]] = True
    n_ab = np.zeros(len(codes))
    n_word = np.zeros(n_words)
    for start in range(0, len(ids), _CHUNK):
        stop = min(start + _CHUNK, len(ids))
        chunk = np.asarray(ids[start:stop + window])                            # and what its windows reach
        position, (begin, end) = np.arange(start, stop), _bounds(sequence, start, stop)
        n_reached = np.minimum(position - begin, window) + np.minimum(end - 1 - position, window)
        n_word += np.bincount(chunk[:len(position)], n_reached, n_words)
        queried = is_queried[chunk]                                             # few words are
        place = queried[:len(position)].nonzero()[0]
        for d in range(1, window + 1):
            near = place[position[place] + d < end[place]]                      # both ends in one sequence
            near = near[queried[near + d]]
            a, b = chunk[near].astype(np.int64), chunk[near + d].astype(np.int64)
            code = np.minimum(a, b) * n_words + np.maximum(a, b)
            match = np.searchsorted(codes, code)
            match = match[(match < len(codes)) & (codes[np.minimum(match, len(codes) - 1)] == code)]
            n_ab += np.bincount(match, minlength=len(codes))
    # A co-occurrence of a word with itself counts from both ends.
    factor = np.where(pairs[:, 0] == pairs[:, 1], 2.0, 1.0)
    return n_ab[code_of_pair] * factor, n_word


def _bounds(sequence: NDArray[np.int64], start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The begin and the end of its sequence, for each position in [start, stop)."""
    first, last = np.searchsorted(sequence, start, side="right") - 1, np.searchsorted(sequence, stop)
    edges = sequence[first:last + 1]
    length = np.diff(edges.clip(start, stop))
    return edges[:-1].repeat(length), edges[1:].repeat(length)
