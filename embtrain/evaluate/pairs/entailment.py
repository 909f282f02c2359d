"""Lexical entailment: is u a kind of v, and to what degree? Higher scores s(u, v) mean more certain.

    spearman    ρ of s and the grades given by people
    ap          average precision of the pairs labelled 1 among all
    direction   of the pairs labelled 1 or −1: s(u, v) > s(v, u) if the label is 1, < if it is −1; a tie counts half
    accuracy    labels 1 and 0:      1 if s(u, v) ≥ t, else 0
                labels 1, 0 and −1:  0 if max(s(u, v), s(v, u)) < t, else 1 if s(u, v) ≥ s(v, u), else −1
    t           for each of FOLDS folds the best on the others; the folds depend only on the number of pairs

Pairs with an unknown word are left out and counted. A pair that occurs several times in a file counts once, with its
highest label. Intervals are over pairs, that of ap if MIN_BIASED_ITEMS or more are labelled 1 and as many are not;
thresholds are not chosen again.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embtrain.common.errors import DataError
from embtrain.common.types import Score
from embtrain.data.catalogue.benchmark import GoldFormat
from embtrain.data.formats.table_rows import number_remedy, to_number
from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.pairs.hypernymy import ap, cuts, threshold
from embtrain.evaluate.pairs.scorer import Scorer, WordPair
from embtrain.evaluate.statistics.intervals import UNIT, mean_intervals, missing_note
from embtrain.evaluate.words.gold import lines
from embtrain.evaluate.words.similarity import correlation

FOLDS = 10
_SEED = 0
LABELS = {"True": 1.0, "1": 1.0, "False": 0.0, "0": 0.0, "-1": -1.0}
POS = {"": "", "N": "n", "V": "v", "A": "a", "R": "r"}
Floats = NDArray[np.float64]


class Gold(NamedTuple):
    """Distinct pairs of a gold file, n of them."""

    pairs: list[WordPair]   # u, v, part of speech
    label: Floats        # (n,): 1, 0 or −1; or a grade
    lines: int           # lines of the file before duplicates were merged


class DirectedScores(NamedTuple):
    """Scores of n pairs, (n,) each, NaN for unknown words: forward (u, v) and backward (v, u)."""

    forward: Floats
    backward: Floats

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask of the pairs whose words are known, (n,)."""
        return ~np.isnan(self.forward)


def read(path: str | Path, format: GoldFormat, graded: bool) -> Gold:
    """Read a gold file; DataError names file and line.

    Columns: word1 (u), word2 (v), `score` if `graded`, else `label`, and an optional `pos`.
    """
    a, b, c = format.positions("word1", "word2", "score" if graded else "label")
    p = format.positions("pos")[0] if "pos" in format.columns else None
    golds: dict[WordPair, float] = {}
    n = 0
    for number, fields, _ in lines(path, format):
        pos = POS.get("" if p is None else fields[p])
        if not fields[a] or not fields[b] or pos is None:
            raise DataError(f"{path}:{number}: should contain two words" + ("" if p is None else " and N, V, A or R") +
                            f", got {', '.join(map(repr, fields))[:80]}; correct it, or remove the pair")
        gold, key = _gold(fields[c], graded, f"{path}:{number}"), (fields[a], fields[b], pos)
        golds[key], n = max(gold, golds.get(key, gold)), n + 1
    if not golds:
        raise DataError(f"{path}: contains no pairs; give one in each line")
    return Gold(list(golds), np.array(list(golds.values())), n)


def _gold(text: str, graded: bool, where: str) -> float:
    """The number of a score or label. DataError if it is not one."""
    value = to_number(text) if graded else LABELS.get(text)
    if value is None or not math.isfinite(value):
        expected = "score should be a number" if graded else f"label should be one of {', '.join(LABELS)}"
        remedy = number_remedy(text) if graded else ""
        raise DataError(f"{where}: {expected}, got {text[:40]!r}; {remedy or 'correct it, or remove the pair'}")
    return value


def score_pairs(gold: Gold, scorer: Scorer) -> DirectedScores:
    """Score all pairs in both directions."""
    return DirectedScores(scorer(gold.pairs), scorer([(v, u, pos) for u, v, pos in gold.pairs]))


def scores(
    benchmark: str, metric: str, gold: Gold, directed: DirectedScores, description: str, config: EvaluateConfig
) -> list[Score]:
    """Scores of a benchmark, by metric.

    spearman: of grades; ap: ap and direction, of labels; accuracy: accuracy, then these two. description: how the
    scores were computed, for the note.
    """
    known, n = directed.known, len(gold.pairs)
    note = f"{int(known.sum()):,} of {n:,} pairs found" + ("" if known.all() else ", others skipped")
    note += "" if gold.lines == n else f"; {gold.lines - n:,} duplicate lines"
    note += f"; {description}"
    forward, backward, label = directed.forward[known], directed.backward[known], gold.label[known]
    if metric == "spearman":
        return [correlation(benchmark, forward, label, note, config)]
    rows = []
    if metric == "accuracy":
        right, t = correct(gold, directed)
        threshold_note = (
            "" if t is None else f"; threshold {t:.4g}, the mean over {FOLDS} folds, each chosen on the others"
        )
        rows.append(_mean(benchmark, "accuracy", right[known], note + threshold_note, config))
    rows.append(_ap(benchmark, forward, label == 1, note, config))
    has_direction = label != 0
    agreement = (np.sign(forward - backward) * label)[has_direction]
    return [*rows, _mean(benchmark, "direction", (agreement + 1) / 2, "pairs that hold in one direction", config)]


def correct(gold: Gold, directed: DirectedScores) -> tuple[Floats, float | None]:
    """Whether each pair is classified correctly, (n,), NaN if unknown; and the mean threshold, None for few pairs."""
    known = np.flatnonzero(directed.known)
    out = np.full(len(gold.pairs), np.nan)
    if len(known) < FOLDS:
        return out, None
    forward, backward, label = directed.forward[known], directed.backward[known], gold.label[known]
    labels_direction = bool((gold.label == -1).any())
    strength = np.maximum(forward, backward) if labels_direction else forward
    predicted = np.where(forward >= backward, 1, -1) if labels_direction else np.ones(len(strength))
    above, below = predicted == label, label == 0                 # correct if strength ≥ t, if strength < t
    fold = np.random.default_rng(_SEED).permutation(len(strength)) % FOLDS
    thresholds = np.array([_threshold(strength[fold != f], above[fold != f], below[fold != f]) for f in range(FOLDS)])
    out[known] = np.where(strength >= thresholds[fold], above, below)
    return out, float(thresholds.mean())


def _threshold(strength: Floats, above: NDArray[np.bool_], below: NDArray[np.bool_]) -> float:
    """The t with the most correct pairs: the highest in a tie, above all scores if predicting no pair is best."""
    order, last, middle = cuts(strength)
    right = np.cumsum(above[order])[last] + below.sum() - np.cumsum(below[order])[last]
    return threshold(right, middle, strength, int(below.sum()))


def _mean(benchmark: str, metric: str, values: Floats, note: str, config: EvaluateConfig) -> Score:
    n = len(values)
    if n == 0 or not np.isfinite(values).all():
        return Score(benchmark, metric, None, n=n, note=f"{note}; too few")
    [(low, high)] = mean_intervals(values[:, None], np.arange(n), config.resamples, config.interval, [UNIT])
    return Score(benchmark, metric, float(values.mean()), low, high, n,
                 note + missing_note(low, n, config.resamples))


def _ap(benchmark: str, s: Floats, right: NDArray[np.bool_], note: str, config: EvaluateConfig) -> Score:
    if not right.any():
        return Score(benchmark, "ap", None, n=len(s), note=f"{note}; {'no positives' if len(s) else 'too few'}")
    value, low, high, reason = ap(s, right, np.arange(len(s)), config)
    return Score(benchmark, "ap", value, low, high, len(s), f"{note}; {right.mean():.3f} by chance{reason}")
