"""Which labels stand on top, over all classes: PREC@k, nDCG@k and propensity-scored precision PSP@k.

    PREC@k   (1/k) Σ_{l in top k} y_l
    nDCG@k   Σ_{l in top k} y_l / log2(1 + place) over the same of the best order
    PSP@k    Σ_docs Σ_{l in top k} y_l / p_l   over the same of the best order of each document
    p_l      1 / (1 + C (N_l + B)^−A),   C = (ln N − 1)(B + 1)^A      N training documents, N_l of them have l
             (Jain, Prabhu and Varma 2016; the chance that a label that holds was noticed at all)

Labels that score alike share their places: each counts with its mean over all orders, so scoring all alike gains
nothing. A score that is NaN stands last. Intervals resample documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embtrain.common.types import Query, Score
from embtrain.evaluate.config import LabelsEvaluate
from embtrain.evaluate.statistics.intervals import UNIT, compare_means, of_ratios

KS = (1, 3, 5)
PRECISION, NDCG, PSP = (tuple(f"{name}@{k}" for k in KS) for name in ("precision", "ndcg", "psp"))
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tops:
    """What each document (n,) got, by the name of its measure; of psp the numerators, and in `best` what is below."""

    values: dict[str, Floats]
    best: dict[str, Floats]

    def items(self) -> dict[str, Floats]:
        """Values whose means over documents are the measures."""
        return {name: x if name not in self.best else x / self.best[name].mean() for name, x in self.values.items()}


def propensity(counts: Floats, documents: int, a: float, b: float) -> Floats:
    """p_l of each label (V,); 1 where so few documents leave nothing to correct for."""
    c = max(0.0, (math.log(max(documents, 1)) - 1) * (b + 1) ** a)
    return np.asarray(1 / (1 + c * (counts + b) ** -a))


@torch.no_grad()
def tops(logits: Callable[[Query], Tensor], query: Query, p: Floats, chunk_cells: int = 1 << 22) -> Tops:
    """Rows of `query` are the (document, label) pairs, documents its groups. `logits` gives (Q, V) for Q documents and
    is asked each once; at most about `chunk_cells` scores are held at once."""
    documents, of = query.unique()
    n, pairs = len(documents), torch.argsort(of, stable=True)
    first = torch.searchsorted(of[pairs], torch.arange(n + 1, device=of.device)).tolist()
    better, equal = (torch.zeros(len(query), dtype=torch.float64, device=of.device) for _ in range(2))
    start, rows = 0, 1                                       # the first document alone: it tells V
    while start < n:
        stop = min(start + rows, n)
        z = logits(documents.rows(slice(start, stop)))                                       # (q, V)
        mine = pairs[first[start]:first[stop]]
        line = of[mine] - start
        own = z[line, query.target[mine]]
        # Only who is among the best can count; the others are not worth a look at all V scores.
        last = z.nan_to_num(nan=-math.inf).topk(min(max(KS), z.shape[1]), 1).values[:, -1]
        near = own >= last[line]
        better[mine[~near]] = z.shape[1]
        for some in near.nonzero()[:, 0].split(max(1, chunk_cells // z.shape[1])):
            mark = own[some, None]
            better[mine[some]] = (z[line[some]] > mark).sum(1).double()
            equal[mine[some]] = (z[line[some]] == mark).sum(1).double()
        start, rows = stop, max(1, chunk_cells // z.shape[1])
    return _measured(better.cpu().numpy(), np.maximum(equal.cpu().numpy(), 1), of.cpu().numpy(), n,
                     1 / p[query.target.cpu().numpy()])


def _measured(better: Floats, equal: Floats, of: NDArray[np.int64], n: int, gain: Floats) -> Tops:
    """Measures of n documents from their pairs: how many labels are better, how many are alike, itself included."""
    def total(x: Floats) -> Floats:
        return np.asarray(np.bincount(of, x, minlength=n), dtype=np.float64)
    order = np.lexsort((-gain, of))                                              # the dearest labels of each first
    place = np.arange(len(of)) - np.searchsorted(of[order], of[order])
    values, best = dict[str, Floats](), dict[str, Floats]()
    for k, precision, ndcg, psp in zip(KS, PRECISION, NDCG, PSP, strict=True):
        discount = np.concatenate([[0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
        low, high = np.minimum(better, k), np.minimum(better + equal, k)
        share = (high - low) / equal                                             # mean of [place ≤ k] over all orders
        values[precision] = total(share) / k
        reached = (discount[high.astype(int)] - discount[low.astype(int)]) / equal
        most = np.minimum(np.bincount(of, minlength=n), k)
        values[ndcg] = total(reached) / np.maximum(discount[most], 1e-300)
        values[psp] = total(share * gain)
        best[psp] = np.asarray(np.bincount(of[order], gain[order] * (place < k), minlength=n), dtype=np.float64)
    return Tops(values, best)


def rows(found: Tops, config: LabelsEvaluate, note: str) -> list[Score]:
    """One row for each measure, under the benchmark name `heldout`."""
    names = [*PRECISION, *NDCG, *PSP]
    n = len(found.values[names[0]])
    if n == 0:
        return [Score("heldout", name, None, note="no held-out documents") for name in names]
    means = np.stack([found.values[name] for name in (*PRECISION, *NDCG)], axis=1)
    intervals = compare_means(means, np.arange(n), config.resamples, config.interval, [UNIT] * means.shape[1])
    for name in PSP:
        intervals += of_ratios(found.values[name][:, None], found.best[name], config.resamples, config.interval, [UNIT])
    about = f"A = {config.propensity_a:g}, B = {config.propensity_b:g}"
    values = {name: float(x.mean()) for name, x in found.items().items()}
    return [Score("heldout", name, values[name] if math.isfinite(values[name]) else None, low, high, n,
                f"{note}; {about}" if name in found.best else note)
            for name, (low, high) in zip(names, intervals, strict=True)]
