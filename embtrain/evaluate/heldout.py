"""Held-out text: how likely is the true context word among all V, and where does it rank?

    log_likelihood   mean over pairs of  z_t − log Σ_v e^{z_v}      nats; the sum runs over every candidate
    rank             1 + #{v: z_v > z_t} + #{v ≠ t: z_v = z_t} / 2   realistic: scoring all alike gains nothing
    mrr, hits@k      mean of 1/rank, of [rank ≤ k]

z = logits(question) (V,) for the true candidate t. A sampled loss is no stand-in: E log Z' < log Z (Jensen).
A pair whose own score is NaN ranks last. The interval resamples clusters of pairs, for neighbouring centres share
words; what a whole document shares it does not see.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.intervals import of_means
from embtrain.types import Query, Row

HITS = (1, 10, 100)
METRICS = ("log_likelihood", "mrr", *(f"hits@{k}" for k in HITS))
CENTRES = 50  # neighbouring centres that make one cluster
_CACHED = 1 << 18


def heldout(logits: Callable[[Query], Tensor], query: Query, config: EvaluateConfig,
            clusters: NDArray[np.int64] | None = None, chunk_cells: int = 1 << 22) -> list[Row]:
    """One row for each of METRICS. `logits` gives (Q, V) for Q distinct questions; it is asked each of them once.

    clusters (B,): ids of what is resampled together; by default CENTRES neighbouring centres (Query.window).
    At most about `chunk_cells` scores are held at once.
    """
    n = len(query)
    if n == 0:
        return [Row("heldout", metric, None, note="no held-out pairs") for metric in METRICS]
    log_p, rank, V, Q = ranks(logits, query, chunk_cells)
    values = np.stack([log_p, 1 / rank, *((rank <= k).astype(np.float64) for k in HITS)], axis=1)  # (n, M)
    if clusters is None:
        clusters = (np.arange(n) if query.window is None else query.window.cpu().numpy() // CENTRES)
    intervals = of_means(values, clusters, config.resamples, config.interval)
    note = f"{n:,} pairs, {Q:,} questions, {V:,} candidates, {len(np.unique(clusters)):,} clusters"
    rows = []
    for metric, value, (low, high) in zip(METRICS, values.mean(0), intervals, strict=True):
        if math.isfinite(value):
            rows.append(Row("heldout", metric, float(value), low, high, n, note))
        else:
            rows.append(Row("heldout", metric, None, None, None, n, f"{note}; not finite"))
    return rows


@torch.no_grad()
def ranks(logits: Callable[[Query], Tensor], query: Query, chunk_cells: int = 1 << 22,
          ) -> tuple[NDArray[np.float64], NDArray[np.float64], int, int]:
    """log p (n,) and rank (n,) of each pair's target, the number of candidates V and of distinct questions Q."""
    questions, of = query.questions()
    pairs_of = torch.argsort(of, stable=True).split(torch.bincount(of, minlength=len(questions)).tolist())
    log_p = torch.empty(len(query), dtype=torch.float64, device=of.device)
    rank = torch.empty_like(log_p)
    start, rows, V = 0, 1, 0  # the first question alone: it tells V
    while start < len(questions):
        stop = min(start + rows, len(questions))
        z = logits(questions.rows(slice(start, stop)))                                       # (q, V)
        log_z = z.logsumexp(1).double()                                                      # (q,)
        V = z.shape[1]
        # Question by question, few pairs at a time: the comparisons stay in the cache, 5 times faster than at once.
        for i, pairs in enumerate(pairs_of[start:stop]):
            for some in pairs.split(max(1, _CACHED // V)):
                own = z[i, query.target[some]]                                               # (p,)
                log_p[some] = own.double() - log_z[i]
                rank[some] = _rank(z[i], own)
        start, rows = stop, max(1, chunk_cells // V)
    return log_p.cpu().numpy(), rank.cpu().numpy(), V, len(questions)


def _rank(z: Tensor, own: Tensor) -> Tensor:
    """Realistic rank (p,) of scores `own` (p,), each one of z (V,)."""
    better = (z > own[:, None]).sum(1)
    not_worse = (z >= own[:, None]).sum(1)  # counts the target itself
    worst = torch.full_like(own, len(z), dtype=torch.float64)
    return torch.where(own.isnan(), worst, 1 + better + (not_worse - better - 1).double() / 2)
