"""Scores of translations and of predicted vectors.

    bleu          of detokenized text against the raw reference, both in lower case (sacreBLEU, case:lc, tok:13a)
    bleu_cased    the same with case (case:mixed); chrf also with case
    BLEU          100 · min(1, e^{1 − r/c}) · (Π_{n≤4} p_n)^{1/4},   p_n = Σ right_n / Σ of_n over all sentences, of
                  lengths c and r; the k-th n without any match counts as 1 / (2^k of_n)       (sacreBLEU; Post 2018)
    accuracy@k    the correct word is among the k nearest, given the correct words before it
    similarity    cosine of ê to its nearest row, if that row is the correct one and if not; to the correct row, if
                  it is not the nearest                                              (Bhat et al. 2019, table 2)

BLEU follows from ten numbers per sentence. Two systems are therefore compared by resampling sentences (bootstrap) and
by swapping them (approximate randomization; Riezler and Maxwell 2005).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.terminal import format_count
from embtrain.common.types import Score
from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.heldout import COSINES, PairRanks, value_bounds
from embtrain.evaluate.statistics.difference import Difference
from embtrain.evaluate.statistics.intervals import (
    MIN_BIASED_ITEMS,
    NO_INTERVAL,
    Interval,
    bias_corrected,
    mean_intervals,
    missing_note,
    multiplicities,
)
from embtrain.evaluate.statistics.significance import compare_sums

CUTOFFS = (1, 2, 5, 10)
ACCURACY = tuple(f"accuracy@{k}" for k in CUTOFFS)
BLEU_STATISTICS = ("length", "reference", *(f"right{n}" for n in range(1, 5)), *(f"of{n}" for n in range(1, 5)))
_MAX_SCORES_HELD = 1 << 22
Floats = NDArray[np.float64]


class TranslationEvaluate(EvaluateConfig):
    """Evaluation of a translator."""

    sentences: int = Field(5_000, ge=0, description="pairs judged of each held-out part at most, its first; 0: none")
    valid_sentences: int = Field(
        0, ge=0, description="validation sentences translated at each evaluation during training; 0: none")
    beam: int = Field(1, ge=1, le=100, description="translations kept at each word; 1: greedy")
    table: Literal["float32", "bfloat16"] = Field(
        "float32", description="bfloat16: greedy decoding finds 16 words by a rounded table and ranks them in float32")
    unknown: Literal["ban", "keep", "copy"] = Field(
        "ban", description="a predicted <unk>: excluded, kept, or replaced by the source word with the most attention")
    duplicates: Literal["keep", "remove"] = Field(
        "keep", description="a word that is predicted twice in a row: kept twice, or once")
    batch: int = Field(100, ge=1, le=10_000, description="sentences translated at once")
    examples: int = Field(5, ge=0, le=1000, description="sentences of test shown with the nearest words; 0: none")


# --- translations --------------------------------------------------------------------------------------------------

def bleu_statistics(translations: Sequence[str], references: Sequence[str]) -> Floats:
    """Statistics of lower-case BLEU, (n, 10) in the order of BLEU_STATISTICS, from plain text."""
    from sacrebleu.metrics import BLEU

    # An effective order changes only the score of single sentences, not their statistics.
    metric = BLEU(lowercase=True, force=True, effective_order=True)
    sentence_scores = [
        metric.sentence_score(translation, [reference])
        for translation, reference in zip(translations, references, strict=True)
    ]
    return np.array([[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in sentence_scores],
                    dtype=np.float64).reshape(-1, len(BLEU_STATISTICS))


def bleu(sums: Floats) -> Floats:
    """BLEU (r,) from sums over sentences (r, 10)."""
    c, r, hits, totals = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
    no_hits = (hits == 0) & (totals > 0)
    halved = 0.5 ** np.cumsum(no_hits, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(no_hits, halved, hits) / totals                                                 # (r, 4)
        score = 100 * np.exp(np.minimum(0, 1 - r / c) + np.log(p).mean(1))
    return np.where((totals > 0).all(1) & (hits[:, 0] > 0), score, 0.0)


def resampled_bleu(items: Floats, m: Floats) -> Floats:
    """BLEU of each resample, (r,), from items (n, 10) and multiplicities (r, n)."""
    return bleu(m @ items)


def difference(a: Floats, b: Floats, names: tuple[str, str], metric: str) -> Difference:
    """BLEU of A minus that of B on the same sentences, (n, 10) each."""
    return compare_sums(resampled_bleu, bleu, a, b, names, metric)


def bleu_scores(translations: Sequence[str], references: Sequence[str], config: TranslationEvaluate
              ) -> tuple[list[Score], Floats]:
    """Scores of the translations of a part, and the statistics of `bleu`, (n, 10).

    translations: n detokenized lines. references: n lines as written.
    """
    names = ("bleu", "bleu_cased", "chrf")
    if not len(references):
        return [Score("heldout", name, None, note="no held-out sentences") for name in names], np.zeros((0, 10))
    from sacrebleu.metrics import BLEU, CHRF

    items, scores = bleu_statistics(translations, references), []
    for name, metric in zip(names, (BLEU(lowercase=True, force=True), BLEU(force=True), CHRF()), strict=True):
        value = metric.corpus_score(list(translations), [list(references)]).score
        (low, high), note = NO_INTERVAL, str(metric.get_signature())
        if name == "bleu":
            low, high = _interval(items, config)
            note += missing_note(low, len(items), config.resamples, MIN_BIASED_ITEMS)
        scores.append(Score("heldout", name, float(value), low, high, len(items), note))
    return scores, items


def _interval(items: Floats, config: TranslationEvaluate) -> Interval:
    if config.resamples == 0 or len(items) < MIN_BIASED_ITEMS:
        return NO_INTERVAL
    drawn = np.concatenate([resampled_bleu(items, m) for m in multiplicities(len(items), config.resamples)])
    return bias_corrected(float(bleu(items.sum(0, keepdims=True))[0]), drawn, config.interval, len(items))


# --- predicted vectors ---------------------------------------------------------------------------------------------

class NearestRows(NamedTuple):
    """Nearest row and target of n predicted vectors, (n,) each."""

    is_target: NDArray[np.bool_]  # the nearest row is that of the target
    nearest_cosine: Floats           # cosine to the nearest row
    target_cosine: Floats               # cosine to the target's row


@torch.no_grad()
def nearest_rows(vector: Tensor, target: Tensor, table: Tensor) -> NearestRows:
    """Compare predicted vectors (n, D) with all rows of the table (V, D); target (n,) are the correct words."""
    unit, e = nn.functional.normalize(table, dim=1), nn.functional.normalize(vector, dim=1)
    is_target, nearest_cosine, target_cosine = [], [], []
    for rows, part_target in zip(*(x.split(max(1, _MAX_SCORES_HELD // len(table))) for x in (e, target)), strict=True):
        cosine = rows @ unit.T                                                                 # (·, V)
        best = cosine.max(1)
        is_target.append(best.indices == part_target)
        nearest_cosine.append(best.values)
        target_cosine.append(cosine.gather(1, part_target.unsqueeze(1))[:, 0])
    return NearestRows(*(torch.cat(x).cpu().double().numpy() if x[0].is_floating_point() else torch.cat(x).cpu().numpy()
                         for x in (is_target, nearest_cosine, target_cosine)))


def vector_scores(
    ranked: PairRanks, nearest: NearestRows, clusters: NDArray[np.int64], config: EvaluateConfig
) -> list[Score]:
    """Accuracies and mean ranks with intervals over sentences, clusters (n,), and the similarities."""
    columns = {name: (ranked.rank <= k).astype(np.float64) for name, k in zip(ACCURACY, CUTOFFS, strict=True)}
    columns |= {"mrr": 1 / ranked.rank, "log_likelihood": ranked.log_p}
    if len(ranked.rank) == 0:
        return [Score("heldout", name, None, note="no held-out words") for name in (*columns, *COSINES)]
    values = np.stack(list(columns.values()), axis=1)
    intervals = mean_intervals(
        values, clusters, config.resamples, config.interval, [value_bounds(name) for name in columns]
    )
    note = (f"{format_count(len(ranked.rank), 'word')}, {format_count(ranked.V, 'candidate')}, given the preceding "
            "reference words")
    resamples, n_clusters = config.resamples, len(np.unique(clusters))
    scores = [Score("heldout", name, _finite_or_none(mean), low, high, len(values),
                    note + missing_note(low, n_clusters, resamples, kind="sentences", value=mean))
              for name, mean, (low, high) in zip(columns, values.mean(0), intervals, strict=True)]
    for name, x, selected in zip(COSINES, (nearest.nearest_cosine, nearest.nearest_cosine, nearest.target_cosine),
                                 (nearest.is_target, ~nearest.is_target, ~nearest.is_target), strict=True):
        (low, high), n, reason, mean = NO_INTERVAL, int(selected.sum()), "; no words", math.nan
        if n:
            chosen, mean = clusters[selected], float(x[selected].mean())
            ((low, high),) = mean_intervals(x[selected, None], chosen, resamples, config.interval, [(-1, 1)])
            reason = missing_note(low, len(np.unique(chosen)), resamples, kind="sentences", value=mean)
        scores.append(Score("heldout", name, _finite_or_none(mean), low, high, n,
                            f"cosine to the {'right' if name == 'similarity_target' else 'nearest'} row, where the "
                            f"nearest is {'' if name == 'similarity_right' else 'not '}the right one{reason}"))
    return scores


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
