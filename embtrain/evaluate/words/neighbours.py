"""Nearest neighbours: what stands close to a word, and whether ranks 45-50 are still about it.

    near, far   ranks 1-5 and 45-50 by cosine (Bose et al. 2018, table 1, reads them by eye)
    far_rank    mean frequency rank of all words in `far`: junk is rare, so a large number is a bad sign
    far_pmi     mean over (word, neighbour) in `far` of  PMI = log (n_ab + ½) / (e_ab + ½),  e_ab = n_a n_b / n     nats

n_ab: how often b stands within `window` words of a, inside one sequence · n_a = Σ_b n_ab · n = Σ_a n_a · e_ab: how
often they would meet by chance. Every meeting counts once for each side, so n_ab = n_ba. The ½ on both sides says 0 of
two rare words that never met: there is no evidence. Half a meeting in the place of none would call them close
(e_ab = .03 gives log .5/.03 = 2.8), and rare words are just what the number should find out.
Both numbers are means over all entries of `far` together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embtrain.data.vectors.vectors import Vectors

HALF = 0.5
_CHUNK = 1 << 20  # positions read at once

PairPMI = Callable[[Sequence[tuple[str, str]]], NDArray[np.float64]]


class Near(list[tuple[str, float]]):
    """Neighbours of a word with their cosines, nearest first."""

    found_as: str | None = None  # the spelling whose vector was used; None: the word has no vector


@dataclass(frozen=True)
class Neighbours:
    near: dict[str, Near]
    far: dict[str, Near]
    far_rank: float | None
    far_pmi: float | None
    missing: list[str] = field(default_factory=list)  # asked for, and not in the vocabulary

    @property
    def found_as(self) -> dict[str, str]:
        """The spelling of each word that is missing as it was given, but found in another case or form."""
        return {word: near.found_as for word, near in self.near.items() if near.found_as not in (word, None)}

    @property
    def note(self) -> str:
        spelled = ", ".join(f"{word} as {other}" for word, other in self.found_as.items())
        return "; ".join([*([f"not in the vocabulary: {', '.join(self.missing)}"] if self.missing else []),
                          *([f"found in another spelling: {spelled}"] if spelled else [])])

    def tree(self) -> dict[str, Any]:
        """What neighbours.json holds."""
        def lists(found: dict[str, Near]) -> dict[str, list[list[Any]]]:
            return {word: [[w, round(c, 6)] for w, c in pairs] for word, pairs in found.items()}
        return {"near": lists(self.near), "far": lists(self.far), "far_rank": self.far_rank, "far_pmi": self.far_pmi,
                "found_as": self.found_as}


def near(vectors: Vectors, word: str, first: int = 1, last: int = 5, lower: bool = True) -> Near:
    """Return the neighbours of ranks first..last: fewer in a small vocabulary, none of a missing word.

    lower: a word whose exact spelling is missing is looked up in other spellings.
    """
    return _listed(vectors, int(vectors.find([word], lower)[0]), first, last)


def _listed(vectors: Vectors, at: int, first: int, last: int) -> Near:
    if at < 0:
        return Near()
    found = Near((vectors.words[i], c) for i, c in _nearest(vectors, at, first, last))
    found.found_as = vectors.words[at]
    return found


def _nearest(vectors: Vectors, at: int, first: int, last: int) -> list[tuple[int, float]]:
    cosine = vectors.unit @ vectors.unit[at]                                                 # (V,)
    cosine[at] = -np.inf
    cosine[~np.isfinite(cosine)] = -np.inf  # NaN of a table that diverged is nobody's neighbour
    last = min(last, len(cosine) - 1)
    if last < first:
        return []
    edge = np.partition(cosine, -last)[-last]
    best = np.flatnonzero(cosine >= edge)
    best = best[np.argsort(-cosine[best], kind="stable")][first - 1:last]  # ties: the more frequent word first
    return [(int(i), float(np.clip(cosine[i], -1, 1))) for i in best if cosine[i] > -np.inf]


def neighbours(vectors: Vectors, words: Iterable[str], counts: NDArray[np.int64] | None = None,
               pmi: PairPMI | None = None, lower: bool = True) -> Neighbours:
    """Ranks 1-5 and 45-50 of each word, and the two numbers. Words that are missing are left out and noted.

    counts (V,): frequencies; None: the vectors are sorted by it. pmi: the PMI of pairs of words, NaN where unknown.
    """
    rank = np.arange(1, len(vectors) + 1)
    if counts is not None:
        rank = np.empty_like(rank)
        rank[np.argsort(-counts, kind="stable")] = np.arange(1, len(vectors) + 1)
    close: dict[str, Near] = {}
    far: dict[str, Near] = {}
    missing, ranks, pairs = [], [], []
    for word in dict.fromkeys(words):
        at = int(vectors.find([word], lower)[0])
        if at < 0:
            missing.append(word)
            continue
        close[word], far[word] = _listed(vectors, at, 1, 5), _listed(vectors, at, 45, 50)
        ranks += [int(rank[vectors.index[other]]) for other, _ in far[word]]
        pairs += [(vectors.words[at], other) for other, _ in far[word]]
    known = np.empty(0) if pmi is None or not pairs else pmi(pairs)
    known = known[np.isfinite(known)]
    return Neighbours(close, far, float(np.mean(ranks)) if ranks else None,
                      float(known.mean()) if len(known) else None, missing)


@dataclass(frozen=True)
class PMI:
    """PMI of pairs of words from a corpus: called with pairs, it reads the corpus once."""

    ids: NDArray[np.int32]       # (N,) the corpus, perhaps memory-mapped
    sequence: NDArray[np.int64]  # (S + 1,) offsets that a window never crosses
    index: Mapping[str, int]     # the id of each word
    window: int

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """(P,); NaN where a word does not occur."""
        at = np.array([[self.index.get(a, -1), self.index.get(b, -1)] for a, b in pairs], np.int64).reshape(-1, 2)
        met, of = cooccurrence(self.ids, self.sequence, self.window, at, len(self.index))
        n_a, n_b = of[at[:, 0]], of[at[:, 1]]
        value = np.log((met + HALF) / (n_a * n_b / max(of.sum(), 1) + HALF))
        return np.where((at >= 0).all(1) & (n_a > 0) & (n_b > 0), value, np.nan)


def cooccurrence(ids: NDArray[np.int32], sequence: NDArray[np.int64], window: int, pairs: NDArray[np.int64],
                 n_words: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """n_ab of each of the pairs (P, 2), and n_a of every word (n_words,), in one pass over ids (N,) by chunks."""
    wanted, of_pair = np.unique(np.sort(pairs, axis=1) @ np.array([n_words, 1]), return_inverse=True)  # code of a <= b
    interesting = np.zeros(n_words, bool)
    interesting[pairs[pairs >= 0]] = True
    met = np.zeros(len(wanted))
    of = np.zeros(n_words)
    N = len(ids)
    for start in range(0, N, _CHUNK):
        stop = min(start + _CHUNK, N)
        here = np.asarray(ids[start:min(stop + window, N)], dtype=np.int64)  # and those that this chunk's windows reach
        end = _end_of_sequence(sequence, start, stop)                        # (n,)
        position = np.arange(start, stop)
        n = stop - start
        for d in range(1, window + 1):
            reached = min(n, max(len(here) - d, 0))
            inside = position[:reached] + d < end[:reached]                  # both ends in one sequence
            a, b = here[:reached][inside], here[d:d + reached][inside]
            of += np.bincount(a, minlength=n_words) + np.bincount(b, minlength=n_words)
            both = interesting[a] & interesting[b]
            low, high = np.minimum(a[both], b[both]), np.maximum(a[both], b[both])
            code = low * n_words + high
            where = np.searchsorted(wanted, code)
            where = where[(where < len(wanted)) & (wanted[np.minimum(where, len(wanted) - 1)] == code)]
            met += np.bincount(where, minlength=len(wanted))
    # A meeting of a word with itself is counted from both its ends.
    twice = np.where(pairs[:, 0] == pairs[:, 1], 2.0, 1.0)
    return met[of_pair] * twice, of


def _end_of_sequence(sequence: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """For each position in [start, stop): where its sequence ends."""
    return sequence[np.searchsorted(sequence, np.arange(start, stop), side="right")]
