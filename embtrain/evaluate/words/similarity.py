"""Word similarity: rank correlation of the cosine with human scores.

    s_i = cos(u_a, u_b) for pair i = (a, b);   ρ = Pearson correlation of the ranks of s and of the ranks of gold

Spearman's ρ with average ranks for ties. `oov` handles missing words: drop (the pair is left out, as in gensim), zero
(the pair's similarity is 0), mean (the word takes the mean vector of the table, so two missing words are identical).
A vector of zeros has no direction: the similarity of its pairs is 0, and the note counts them.
A word is looked up as it is spelled, and in another case only if that spelling is missing
(embtrain/data/text/spelling.py). Vectors with subwords have a second score, `spearman/composed`: words that are still
missing have the vectors that their n-grams give.
The interval resamples pairs: 353 pairs leave about ±.05 at ρ = .65. It does not account for other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embtrain.common.errors import DataError
from embtrain.common.types import Score
from embtrain.data.catalogue.benchmark import GoldFormat
from embtrain.data.formats.table_rows import number_remedy, to_number
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import EvaluateConfig, WordsConfig
from embtrain.evaluate.statistics.intervals import MIN_ITEMS, NO_INTERVAL, missing_note, multiplicities, percentile
from embtrain.evaluate.statistics.ties import round_scores
from embtrain.evaluate.words.gold import lines, zeros_note

_REMEDY = "correct it, or remove the pair"
MIN_MEAN = 1e-6  # length of a mean vector that is not rounding, relative to the rows


class RatedPair(NamedTuple):
    """Two words and their human similarity score."""

    word1: str
    word2: str
    gold: float


def read_pairs(path: str | Path, format: GoldFormat, half: Literal["odd", "even"] | None = None) -> list[RatedPair]:
    """Read the pairs of a gold file with columns word1, word2 and score; DataError names file and line.

    half: odd, the first, third, … pair; even, the others; None: all.
    """
    a, b, c = format.positions("word1", "word2", "score")
    pairs: list[RatedPair] = []
    for number, fields, _ in lines(path, format):
        gold = to_number(fields[c])
        if gold is None:
            header = "if it is a header, set `header: true` in the recipe" if not pairs and not format.header else ""
            remedy = number_remedy(fields[c]) or header or _REMEDY
            raise DataError(f"{path}:{number}: score should be a number, got {fields[c][:40]!r}; {remedy}")
        if not math.isfinite(gold):
            raise DataError(f"{path}:{number}: score should be a finite number, got {fields[c][:40]!r}; {_REMEDY}")
        if not fields[a] or not fields[b]:
            raise DataError(f"{path}:{number}: a word is empty; {_REMEDY}")
        pairs.append(RatedPair(fields[a], fields[b], gold))
    if not pairs:
        raise DataError(f"{path}: contains no pairs; give lines of two words and a score")
    return pairs if half is None else pairs[half == "even"::2]


def cosines(vectors: Vectors, pairs: Sequence[RatedPair], oov: Literal["drop", "zero", "mean"] = "drop",
            lower: bool = True, composed: bool = False) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Similarity of each pair (n,), NaN if dropped, and whether both its words were found (n,).

    composed: compose the vectors of missing words from their n-grams. Rounded (ties.py), so that pairs whose exact
    cosines are equal share a rank.
    """
    words = [[p.word1 for p in pairs], [p.word2 for p in pairs]]
    ids = np.stack([vectors.find(side, lower) for side in words])
    has_vector: NDArray[np.bool_] = ids >= 0
    rows = vectors.table[ids].astype(np.float64)                                              # (2, n, D)
    if composed:
        made = vectors.compose([words[side][i] for side, i in np.argwhere(~has_vector).tolist()])
        rows[~has_vector], has_vector[~has_vector] = made, made.any(1)
    in_vocabulary = np.all(has_vector, axis=0)
    if oov == "mean" and not in_vocabulary.all():
        rows[~has_vector] = _mean(vectors.table)
    norms = np.linalg.norm(rows, axis=2).prod(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        s = np.where(norms == 0, 0.0, (rows[0] * rows[1]).sum(1) / norms)
    if oov != "mean":
        s[~in_vocabulary] = math.nan if oov == "drop" else 0.0
    return round_scores(s), in_vocabulary


def _mean(table: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean of the rows (D,); 0 if it is rounding, as that of centred vectors, whose direction has no meaning."""
    mean = table.mean(0, dtype=np.float64)
    return mean * (np.linalg.norm(mean) > MIN_MEAN * np.sqrt(np.square(table, dtype=np.float64).sum(1).mean()))


def scores(benchmark: str, vectors: Vectors, pairs: Sequence[RatedPair], config: WordsConfig) -> list[Score]:
    """Spearman's ρ, and, if the vectors have subwords, the same with composed vectors of missing words."""
    with_words = score(benchmark, vectors, pairs, config)
    if vectors.subword_source is None:
        return [with_words]
    composed = score(benchmark, vectors, pairs, config, composed=True)
    return [with_words, composed._replace(metric=f"{composed.metric}/composed")]


def score(benchmark: str, vectors: Vectors, pairs: Sequence[RatedPair], config: WordsConfig, lower: bool = True,
          composed: bool = False) -> Score:
    """Spearman's ρ; `n` is the number of pairs used. lower: also try other spellings of missing words.

    composed: compose the vectors of words that are still missing from their n-grams.
    """
    s, in_vocabulary = cosines(vectors, pairs, config.oov, lower, composed)
    others = {"drop": "others dropped", "zero": "others scored 0", "mean": "missing words take the mean vector"}
    note = f"{int(in_vocabulary.sum())} of {len(pairs)} pairs found" + (
        "" if in_vocabulary.all() else f", {others[config.oov]}"
    )
    ids = np.stack([vectors.find(words, lower) for words in ([p.word1 for p in pairs], [p.word2 for p in pairs])])
    note += zeros_note(int((vectors.are_zeros(ids).any(0) & in_vocabulary).sum()), "pairs")
    if composed:
        words = list(dict.fromkeys(word for p in pairs for word in (p.word1, p.word2)))
        missing = [word for word, row in zip(words, vectors.find(words, lower).tolist(), strict=True) if row < 0]
        note += f"; {int(vectors.compose(missing).any(1).sum())} words composed from n-grams"
    note += vectors.spellings.note(word for p in pairs for word in (p.word1, p.word2)) if lower else ""
    used = in_vocabulary if config.oov == "drop" else np.ones_like(in_vocabulary)
    return correlation(benchmark, s[used], np.array([p.gold for p in pairs])[used], note, config)


def correlation(benchmark: str, x: NDArray[np.float64], y: NDArray[np.float64], note: str, config: EvaluateConfig
                ) -> Score:
    """ρ of scores x and gold y, (n,) each, with its interval; no value if there is nothing to rank."""
    if not np.isfinite(x).all():
        return Score(benchmark, "spearman", None, n=len(x), note=f"{note}; some vectors are not finite")
    value = float(spearman(x, y, np.ones((1, len(x))))[0])
    if not math.isfinite(value):
        return Score(benchmark, "spearman", None, n=len(x), note=f"{note}; too few, or all equal")
    (low, high), draws = NO_INTERVAL, None
    if config.resamples and len(x) >= MIN_ITEMS:
        draws = np.concatenate([spearman(x, y, m) for m in multiplicities(len(x), config.resamples)])
        low, high = percentile(draws, config.interval, len(x))
    return Score(benchmark, "spearman", value, low, high, len(x),
                 note + missing_note(low, len(x), config.resamples, MIN_ITEMS, resampled=draws))


def spearman(x: NDArray[np.float64], y: NDArray[np.float64], m: NDArray[np.float64]) -> NDArray[np.float64]:
    """ρ of x and y (n,) for each row of multiplicities m (r, n): (r,); NaN if either does not vary."""
    n = m.sum(1, keepdims=True)
    # The mean of the average ranks 1..n is (n+1)/2 whatever the ties.
    rx, ry = _ranks(x, m) - (n + 1) / 2, _ranks(y, m) - (n + 1) / 2                          # (r, n)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (m * rx * ry).sum(1) / np.sqrt((m * rx * rx).sum(1) * (m * ry * ry).sum(1))


def _ranks(x: NDArray[np.float64], m: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average ranks (r, n) of x (n,), where item i occurs m_ri times. Resamples are not sorted again."""
    _, group = np.unique(x, return_inverse=True)               # ties share a group, ascending
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    in_group = np.add.reduceat(m[:, order], starts, axis=1) if len(x) else m                 # (r, groups)
    return (np.cumsum(in_group, axis=1) - in_group + (in_group + 1) / 2)[:, group]
