"""Hypernymy on the user's own pairs, labelled or graded.

    accuracy    a pair is predicted positive if s ≥ t; t has the highest accuracy on validation
    f1          the same with the threshold of the highest F1 on validation
    ap          average precision; no threshold
    spearman    ρ of scores and grades

Without positives, F1 and ap have no value: F1 would be 0 or undefined. Intervals are over pairs, that of ap if
MIN_BIASED_ITEMS or more are positive and as many are not. Thresholds are not chosen again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from embtrain.common.types import Score
from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.pairs.hypernymy import PairScores, ap, choose_thresholds, nan_to_lowest
from embtrain.evaluate.statistics.intervals import UNIT, f1_interval, mean_intervals, missing_note
from embtrain.evaluate.words.similarity import correlation

Scores = NDArray[np.float64]


def labelled_scores(
    benchmark: str, scores: Scores, right: NDArray[np.bool_], valid: PairScores, config: EvaluateConfig, note: str
) -> list[Score]:
    """Accuracy, F1 and average precision of pairs (n,) with labels; `right` (n,) marks the positives."""
    n, thresholds, s = len(scores), choose_thresholds(valid), nan_to_lowest(scores)
    hits = ((s >= thresholds.accuracy) == right).astype(np.float64)
    [(low, high)] = mean_intervals(hits[:, None], np.arange(n), config.resamples, config.interval, [UNIT])
    accuracy = Score(benchmark, "accuracy", float(hits.mean()), low, high, n,
                     f"{note}; {right.mean():.1%} hold; threshold {thresholds.accuracy:.4g} of valid"
                     + missing_note(low, n, config.resamples))
    if not right.any():
        return [accuracy, *(Score(benchmark, metric, None, n=n, note=f"{note}; no positives")
                            for metric in ("f1", "ap"))]
    predicted = s >= thresholds.f1
    found, errors = predicted & right, (predicted ^ right).astype(np.int64)                  # (n,)
    f1 = float(2 * found.sum() / (2 * found.sum() + errors.sum()))
    f1_low, f1_high = f1_interval(found, errors, config.resamples, config.interval)
    value, ap_low, ap_high, reason = ap(s, right, np.arange(n), config)
    return [accuracy,
            Score(benchmark, "f1", f1, f1_low, f1_high, n,
                  f"{note}; threshold {thresholds.f1:.4g} of valid"
                  + missing_note(f1_low, int((found | (errors > 0)).sum()), config.resamples,
                                 kind="true or predicted positives")),
            Score(benchmark, "ap", value, ap_low, ap_high, n, f"{note}; {right.mean():.3f} by chance{reason}")]


def graded_scores(benchmark: str, scores: Scores, gold: Scores, config: EvaluateConfig, note: str) -> list[Score]:
    """The score of pairs (n,) with grades."""
    return [correlation(benchmark, scores, gold, note, config)]
