"""The top labels of a document, among all classes: PREC@k, nDCG@k and propensity-scored precision PSP@k.

    PREC@k   (1/k) Σ_{l in top k} y_l
    nDCG@k   Σ_{l in top k} y_l / log2(1 + place) divided by the same sum of the best order
    PSP@k    Σ_docs Σ_{l in top k} y_l / p_l   divided by the same sum of the best order of each document
    p_l      1 / (1 + C (N_l + B)^−A),   C = (ln N − 1)(B + 1)^A      N training documents, N_l of them have l
             (Jain, Prabhu and Varma 2016; the probability that a true label was observed at all)

Labels with equal scores share their places: each counts with its mean over all orders, so constant scores gain nothing.
A score that is NaN ranks last. Intervals are over documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embtrain.common.progress import Progress
from embtrain.common.types import Query, Score
from embtrain.evaluate.config import LabelsEvaluate
from embtrain.evaluate.statistics.intervals import UNIT, mean_intervals, missing_note, ratio_intervals

KS = (1, 3, 5)
PRECISION, NDCG, PSP = (tuple(f"{name}@{k}" for k in KS) for name in ("precision", "ndcg", "psp"))
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TopLabels:
    """Values of each document (n,), by measure; of psp the numerators, with the denominators in `best`."""

    values: dict[str, Floats]
    best: dict[str, Floats]

    def items(self) -> dict[str, Floats]:
        """Values whose means over documents are the measures."""
        return {name: x if name not in self.best else x / self.best[name].mean() for name, x in self.values.items()}


def propensity(counts: Floats, documents: int, a: float, b: float) -> Floats:
    """p_l of each label (V,); 1 if there are too few documents for a correction."""
    c = max(0.0, (math.log(max(documents, 1)) - 1) * (b + 1) ** a)
    return np.asarray(1 / (1 + c * (counts + b) ** -a))


@torch.no_grad()
def top_labels(logits: Callable[[Query], Tensor], query: Query, p: Floats, chunk_cells: int = 1 << 22) -> TopLabels:
    """Measure the top labels of Q documents.

    Rows of `query` are the (document, label) pairs, its groups the documents. `logits` maps Q documents to (Q, V) and
    receives each once. At most about `chunk_cells` scores are in memory.
    """
    documents, document_id = query.unique()
    n, pairs = len(documents), torch.argsort(document_id, stable=True)
    first = torch.searchsorted(document_id[pairs], torch.arange(n + 1, device=document_id.device)).tolist()
    better, equal = (torch.zeros(len(query), dtype=torch.float64, device=document_id.device) for _ in range(2))
    start, n_documents = 0, 1                                       # the first document alone, to learn V
    progress = Progress("evaluating", n, "documents")
    while start < n:
        stop = min(start + n_documents, n)
        z = logits(documents.rows(slice(start, stop)))                                       # (q, V)
        pairs_chunk = pairs[first[start]:first[stop]]
        row = document_id[pairs_chunk] - start
        target_score = z[row, query.target[pairs_chunk]]
        # Only labels among the best can count; the others are not compared with all V scores.
        ordered = z.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
        last = ordered.topk(min(max(KS), z.shape[1]), 1).values[:, -1]
        can_count = target_score >= last[row]
        better[pairs_chunk[~can_count]] = z.shape[1]
        for part in can_count.nonzero()[:, 0].split(max(1, chunk_cells // z.shape[1])):
            part_score = target_score[part, None]
            better[pairs_chunk[part]] = (z[row[part]] > part_score).sum(1).double()
            equal[pairs_chunk[part]] = (z[row[part]] == part_score).sum(1).double()
        progress.add(stop - start)
        start, n_documents = stop, max(1, chunk_cells // z.shape[1])
    progress.close()
    return _metrics(better.cpu().numpy(), np.maximum(equal.cpu().numpy(), 1), document_id.cpu().numpy(), n,
                    1 / p[query.target.cpu().numpy()])


def _metrics(better: Floats, equal: Floats, document_id: NDArray[np.int64], n: int, gain: Floats) -> TopLabels:
    """Measures of n documents from their pairs: counts of labels with a higher score, and with the same (or itself)."""
    def sum_by_document(x: Floats) -> Floats:
        return np.asarray(np.bincount(document_id, x, minlength=n), dtype=np.float64)
    order = np.lexsort((-gain, document_id))  # most valuable labels first
    place = np.arange(len(document_id)) - np.searchsorted(document_id[order], document_id[order])
    values, best = dict[str, Floats](), dict[str, Floats]()
    for k, precision, ndcg, psp in zip(KS, PRECISION, NDCG, PSP, strict=True):
        discount = np.concatenate([[0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
        low, high = np.minimum(better, k), np.minimum(better + equal, k)
        share = (high - low) / equal                                             # mean of [place ≤ k] over all orders
        values[precision] = sum_by_document(share) / k
        reached = (discount[high.astype(int)] - discount[low.astype(int)]) / equal
        n_best = np.minimum(np.bincount(document_id, minlength=n), k)
        values[ndcg] = sum_by_document(reached) / np.maximum(discount[n_best], 1e-300)
        values[psp] = sum_by_document(share * gain)
        best[psp] = np.asarray(
            np.bincount(document_id[order], gain[order] * (place < k), minlength=n), dtype=np.float64
        )
    return TopLabels(values, best)


def scores(tops: TopLabels, config: LabelsEvaluate, note: str) -> list[Score]:
    """One Score per measure, under the benchmark name `heldout`."""
    names = [*PRECISION, *NDCG, *PSP]
    n = len(tops.values[names[0]])
    if n == 0:
        return [Score("heldout", name, None, note="no held-out documents") for name in names]
    means = np.stack([tops.values[name] for name in (*PRECISION, *NDCG)], axis=1)
    intervals = mean_intervals(means, np.arange(n), config.resamples, config.interval, [UNIT] * means.shape[1])
    for name in PSP:
        intervals += ratio_intervals(
            tops.values[name][:, None], tops.best[name], config.resamples, config.interval, [UNIT]
        )
    about = f"A = {config.propensity_a:g}, B = {config.propensity_b:g}"
    values = {name: float(x.mean()) for name, x in tops.items().items()}
    counts = {name: int(np.count_nonzero(tops.best[name])) if name in tops.best else n for name in names}
    return [Score("heldout", name, values[name] if math.isfinite(values[name]) else None, low, high, n,
                  (f"{note}; {about}" if name in tops.best else note)
                  + missing_note(low, counts[name], config.resamples, kind="documents", value=values[name]))
            for name, (low, high) in zip(names, intervals, strict=True)]
