"""Analogies: a is to b as c is to d, with d predicted by 3CosAdd.

    d* = argmax over w not in {a, b, c} of cos(u_w, u_b/|u_b| − u_a/|u_a| + u_c/|u_c|)     (3CosAdd, Mikolov 2013)

Items whose four words are not all in the vocabulary are dropped (`oov: drop`) or count as wrong (zero, mean).
A word is looked up as it is spelled. If that spelling is missing, the first of its other spellings supplies the vector
(embtrain/data/text/spelling.py) and represents all of them: none of them may be predicted for its own item, and each
counts as correct.
Items of a section combine the same few word pairs, so they are not independent. The interval resamples word pairs, and
an item counts m(a,b)·m(c,d) times (Owen, The Pigeonhole Bootstrap, 2007). If all predictions are correct, or all are
wrong, the interval is Wilson's for as many independent trials as there are word pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embtrain.common.errors import DataError
from embtrain.common.types import Score
from embtrain.data.catalogue.benchmark import GoldFormat
from embtrain.data.formats.table_rows import SECTION_MARK
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.evaluate.statistics.intervals import (
    MIN_ITEMS,
    NO_INTERVAL,
    missing_note,
    multiplicities,
    percentile,
    wilson,
)
from embtrain.evaluate.words.gold import lines, zeros_note

MOST_FREQUENT = 300_000  # as gensim
_MAX_SCORES_HELD = 1 << 24         # scores in memory at once


class Question(NamedTuple):
    """One analogy item: a is to b as c is to d."""

    section: str
    a: str
    b: str
    c: str
    d: str


def read_questions(path: str | Path, format: GoldFormat) -> list[Question]:
    """Read a gold file; DataError names file and line.

    Columns word1, word2, word3, target; the section is a column `section`, or the last line `: section`.
    """
    columns = format.positions("word1", "word2", "word3", "target")
    section_column = format.positions("section")[0] if "section" in format.columns else None
    section, questions = "", []
    for number, fields, marked in lines(path, format, mark=SECTION_MARK):
        if marked:
            section = fields[0]
            continue
        a, b, c, d = (fields[i] for i in columns)
        if not (a and b and c and d):
            raise DataError(f"{path}:{number}: a word is empty")
        questions.append(Question(section if section_column is None else fields[section_column], a, b, c, d))
    if not questions:
        raise DataError(f"{path}: contains no questions")
    return questions


def score(benchmark: str, vectors: Vectors, questions: Sequence[Question], config: WordsConfig, lower: bool = True,
          most_frequent: int | None = MOST_FREQUENT) -> list[Score]:
    """`accuracy`, then `accuracy/SECTION` of each section, in order.

    lower: also try other spellings of missing words. Vectors are sorted by frequency; only the first `most_frequent`
    words are candidates, and items with rarer words count as missing. None: all words.
    """
    n_words = len(vectors.words) if most_frequent is None else min(most_frequent, len(vectors.words))
    ids = np.stack([vectors.find([q[j] for q in questions], lower) for j in (1, 2, 3, 4)], axis=1)  # (n, 4)
    in_vocabulary = np.all((ids >= 0) & (ids < n_words), axis=1)
    respelled = np.array([[vectors.words[i] != word for i, word in zip(row, q[1:], strict=True)]
                          for row, q in zip(ids, questions, strict=True)]) & in_vocabulary[:, None]            # (n, 4)
    hit = np.zeros(len(questions), bool)
    best = predict(vectors, ids[in_vocabulary, :3], n_words, respelled[in_vocabulary, :3])
    hit[in_vocabulary] = [
        row in vectors.spellings.same(d) if is_respelled else row == d
        for row, d, is_respelled in zip(
            best.tolist(), ids[in_vocabulary, 3].tolist(), respelled[in_vocabulary, 3], strict=True
        )
    ]
    note = zeros_note(int((vectors.are_zeros(ids).any(1) & in_vocabulary).sum()), "questions")
    note += vectors.spellings.note(word for q in questions for word in q[1:]) if lower else ""
    counted = in_vocabulary if config.oov == "drop" else np.ones_like(in_vocabulary)
    names = list(dict.fromkeys(q.section for q in questions))
    section = np.array([names.index(q.section) for q in questions])
    overall = _accuracy(benchmark, "accuracy", questions, hit, in_vocabulary, counted, config)
    scores = [overall._replace(note=overall.note + note)]
    if names != [""]:
        for i, name in enumerate(names):
            in_section = np.flatnonzero(section == i)
            scores.append(
                _accuracy(
                    benchmark,
                    f"accuracy/{name}",
                    [questions[int(j)] for j in in_section],
                    hit[in_section],
                    in_vocabulary[in_section],
                    counted[in_section],
                    config,
                )
            )
    return scores


def predict(vectors: Vectors, questions: NDArray[np.int64], n_words: int, respelled: NDArray[np.bool_] | None = None
           ) -> NDArray[np.int64]:
    """Predict d* (n,) for each (a, b, c) of `questions` (n, 3).

    respelled (n, 3): whether a word was found under another spelling; then no spelling of it may be predicted.
    """
    u = vectors.unit[:n_words]                                                               # (V', D)
    best = np.empty(len(questions), np.int64)
    for start in range(0, len(questions), step := max(1, _MAX_SCORES_HELD // max(n_words, 1))):
        abc = questions[start:start + step]
        s = (u[abc[:, 1]] - u[abc[:, 0]] + u[abc[:, 2]]) @ u.T                                # (q, V')
        s[np.arange(len(abc))[:, None], abc] = -np.inf
        for i, j in np.argwhere(respelled[start:start + step]) if respelled is not None else ():
            s[i, [row for row in vectors.spellings.same(int(abc[i, j])) if row < n_words]] = -np.inf
        best[start:start + step] = s.argmax(1)
    return best


def _accuracy(
    benchmark: str,
    metric: str,
    questions: Sequence[Question],
    hit: NDArray[np.bool_],
    in_vocabulary: NDArray[np.bool_],
    counted: NDArray[np.bool_],
    config: WordsConfig,
) -> Score:
    n, k = int(counted.sum()), int(hit[counted].sum())
    others = (
        "" if in_vocabulary.all() else ", others dropped" if config.oov == "drop" else ", others count as wrong"
    )
    note = f"{int(in_vocabulary.sum())} of {len(questions)} questions found{others}"
    if n == 0:
        return Score(benchmark, metric, None, note=note)
    low, high, reason = _interval([q for q, c in zip(questions, counted, strict=True) if c], hit[counted], config)
    return Score(benchmark, metric, k / n, low, high, n, note + reason)


def _interval(questions: Sequence[Question], hit: NDArray[np.bool_], config: WordsConfig
              ) -> tuple[float | None, float | None, str]:
    """The interval of n questions (n,), and the reason of a missing one, to follow the score's note."""
    if config.resamples == 0:
        return *NO_INTERVAL, ""
    k, n = int(hit.sum()), len(hit)
    pair_id: dict[tuple[str, str], int] = {}
    first = np.array([pair_id.setdefault((q.a, q.b), len(pair_id)) for q in questions])
    second = np.array([pair_id.setdefault((q.c, q.d), len(pair_id)) for q in questions])
    if k in (0, n):
        return *wilson(len(pair_id) if k else 0, len(pair_id), config.interval), ""
    accuracy = []
    for m in multiplicities(len(pair_id), config.resamples):                                  # (r, pairs)
        for weights in m:
            weight = weights[first] * weights[second]
            total = weight.sum()
            accuracy.append(weight[hit].sum() / total if total else np.nan)
    low, high = percentile(np.array(accuracy), config.interval, len(pair_id))
    return low, high, missing_note(low, len(pair_id), config.resamples, MIN_ITEMS, "pairs of words")
