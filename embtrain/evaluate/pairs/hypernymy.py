"""Hypernymy: separation of true pairs from negatives by their scores.

    predicted     s ≥ t; t is chosen on valid, for each measure: the midpoint between two scores
    accuracy      correct predictions ÷ pairs, with one negative per positive;  @m: with m of them
    f1            2 TP / (2 TP + FP + FN)
    ap            average precision Σ_k (R_k − R_{k−1}) P_k over the distinct scores k; no threshold

An interval is over positives, each with its negatives; that of ap needs MIN_BIASED_ITEMS positives and negatives.
Thresholds are not chosen again. A score that is NaN ranks below all others. Scores of `valid` use a threshold chosen on
the same pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embtrain.common.terminal import format_count
from embtrain.common.types import Score
from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.statistics.intervals import (
    NO_INTERVAL,
    UNIT,
    f1_interval,
    few_note,
    logit_interval,
    mean_intervals,
    missing_note,
)

Scores = NDArray[np.float64]


class PairScores(NamedTuple):
    """Scores of n held-out pairs and of m negatives each."""

    pos: Scores  # (n,)
    neg: Scores  # (n, m)

    def one_negative_each(self) -> PairScores:
        """One negative per pair, taking turns among the m, so that both kinds of negatives count."""
        n, m = self.neg.shape
        return PairScores(self.pos, self.neg[np.arange(n), np.arange(n) % m][:, None])


class Thresholds(NamedTuple):
    """Thresholds with the highest accuracy and the highest F1 on the pairs where they were chosen."""

    accuracy: float
    f1: float


def choose_thresholds(scored: PairScores) -> Thresholds:
    """The thresholds of the highest accuracy and of the highest F1, each the highest in a tie.

    If predicting no pair is most accurate, the threshold is above all scores.
    """
    s = nan_to_lowest(np.concatenate([scored.pos, scored.neg.ravel()]))
    right = np.arange(len(s)) < len(scored.pos)
    order, last, middle = cuts(s)
    k, tp, total = last + 1, np.cumsum(right[order])[last], len(scored.pos)         # predicted positive: the first k
    correct = tp + (len(s) - total) - (k - tp)
    return Thresholds(threshold(correct, middle, s, len(s) - total), float(middle[np.argmax(2 * tp / (total + k))]))


def threshold(correct: NDArray[np.int64], middle: Scores, scores: Scores, n_without: int) -> float:
    """The threshold in `middle` (R,) with the most `correct` (R,).

    Above all scores if predicting no pair, with n_without correct, is better.
    """
    return (
        float(middle[np.argmax(correct)]) if correct.max() >= n_without else float(np.nextafter(scores.max(), np.inf))
    )


def cuts(scores: Scores) -> tuple[NDArray[np.int64], NDArray[np.int64], Scores]:
    """Possible thresholds of N scores.

    Returns the items (N,) by decreasing score, the end of each run of equal scores in that order, and the threshold
    below each run: the midpoint to the next score, or the upper score if no number is between the two.
    """
    order = np.argsort(-scores, kind="stable")
    s = scores[order]
    last = np.flatnonzero(np.append(s[1:] != s[:-1], True))
    lower = np.append(s[last[:-1] + 1], s[last[-1]])
    middle = (s[last] + lower) / 2
    return order, last, np.where(np.isfinite(lower) & (middle > lower), middle, s[last])


def scores(part: str, scored: PairScores, valid: PairScores, config: EvaluateConfig, note: str = "") -> list[Score]:
    """Accuracy, F1 and average precision with thresholds chosen on `valid`: 1:1, and also 1:m if m > 1."""
    out = _scores(part, scored.one_negative_each(), valid.one_negative_each(), config, "", note)
    m = scored.neg.shape[1]
    return out if m < 2 else out + _scores(part, scored, valid, config, f"@{m}", note)


def correct(scored: PairScores, valid: PairScores) -> NDArray[np.float64]:
    """Contribution of each positive and its one negative to the accuracy: 0, 1/2 or 1, (n,)."""
    return _correct(scored.one_negative_each(), choose_thresholds(valid.one_negative_each()).accuracy)


def _scores(
    part: str, scored: PairScores, valid: PairScores, config: EvaluateConfig, suffix: str, note: str
) -> list[Score]:
    thresholds, n, m = choose_thresholds(valid), len(scored.pos), scored.neg.shape[1]
    hits = _correct(scored, thresholds.accuracy)
    [(low, high)] = mean_intervals(hits[:, None], np.arange(n), config.resamples, config.interval, [UNIT])
    # (n,) each
    tp, fp = nan_to_lowest(scored.pos) >= thresholds.f1, (nan_to_lowest(scored.neg) >= thresholds.f1).sum(1)
    f1_low, f1_high = f1_interval(tp, fp + ~tp, config.resamples, config.interval)
    pairs_note = f"{format_count(n, 'pair')}, {format_count(m, 'negative')} each"
    note_suffix = f"; {note}" if note else ""
    ap, ap_low, ap_high, reason = _ap(scored, config)
    return [Score(part, f"accuracy{suffix}", float(hits.mean()), low, high, n,
                  f"{pairs_note}; threshold {thresholds.accuracy:.4g} of valid{note_suffix}"
                  + missing_note(low, n, config.resamples)),
            Score(part, f"f1{suffix}", _f1(tp.sum(), fp.sum(), n), f1_low, f1_high, n,
                  f"{pairs_note}; threshold {thresholds.f1:.4g} of valid" + missing_note(f1_low, n, config.resamples)),
            Score(part, f"ap{suffix}", ap, ap_low, ap_high, n, pairs_note + reason)]


def _correct(scored: PairScores, threshold: float) -> NDArray[np.float64]:
    m = scored.neg.shape[1]
    return ((nan_to_lowest(scored.pos) >= threshold) + (nan_to_lowest(scored.neg) < threshold).sum(1)) / (m + 1)


def _f1(tp: float, fp: float, total: float) -> float:
    return float(2 * tp / (total + tp + fp))


def _ap(scored: PairScores, config: EvaluateConfig) -> tuple[float, float | None, float | None, str]:
    n, m = scored.neg.shape
    owner = np.concatenate([np.arange(n), np.repeat(np.arange(n), m)])  # the positive of each item
    return ap(
        nan_to_lowest(np.concatenate([scored.pos, scored.neg.ravel()])), np.arange(n * (m + 1)) < n, owner, config
    )


def ap(s: Scores, right: NDArray[np.bool_], owner: NDArray[np.int64], config: EvaluateConfig
       ) -> tuple[float, float | None, float | None, str]:
    """Average precision of scores (N,), its interval, and the reason of a missing one, to follow the score's note.

    owner (N,): the unit 0, 1, ... of each item; the interval is over units, each with all its items. There is none for
    fewer than MIN_BIASED_ITEMS units, positives or negatives, nor if no unit changes the value, as at 1.
    """
    order, last, _ = cuts(s)
    value, derivative = average_precision(right[order], last)
    if config.resamples == 0:
        return value, *NO_INTERVAL, ""
    by_unit = np.bincount(owner[order], weights=derivative).astype(np.float64)
    n_positives = int(right.sum())
    few = (few_note(len(by_unit), config.resamples)
           or few_note(n_positives, config.resamples, kind="positives")
           or few_note(len(right) - n_positives, config.resamples, kind="negatives"))
    low, high = NO_INTERVAL if few else logit_interval(value, by_unit, config.interval)
    return value, low, high, few or ("; no variation: no interval" if low is None else "")


def average_precision(right: NDArray[np.bool_], last: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
    """Average precision of items (N,) by decreasing score, and its derivative by the weight of each item, (N,).

        A = Σ_k t_k P_k / T,   P_k = T_k / N_k          run k: t_k positives; T_k positives and N_k items from the top
        T dA/dw_i = r_i (P_g + Σ_{k≥g} t_k / N_k − A) − Σ_{k≥g} t_k P_k / N_k        item i is in run g, r_i: positive

    last: the end of each run of equal scores. NaN without positives.
    """
    T, N = np.cumsum(right, dtype=np.float64)[last], last + 1.0
    if T[-1] == 0:
        return float("nan"), np.full(len(right), np.nan)
    t, precision = np.diff(T, prepend=0.0), T / N
    value = float((t * precision).sum() / T[-1])
    gain, loss = (np.cumsum((t / N * x)[::-1])[::-1] for x in (1.0, precision))
    run = np.repeat(np.arange(len(last)), np.diff(last, prepend=-1))
    return value, (right * (precision + gain - value)[run] - loss[run]) / T[-1]


def nan_to_lowest(scores: Scores) -> Scores:
    """Scores with NaN replaced by −inf."""
    return np.where(np.isnan(scores), -np.inf, scores)
