"""Held-out pairs: log-likelihood and rank of the positive among all V candidates.

    log_likelihood   mean over pairs of  z_t − log Σ_v e^{z_v}      nats; the sum runs over every candidate
    rank             1 + #{v: z_v > z_t} + #{v ≠ t: z_v = z_t} / 2   realistic: constant scores gain nothing
    mrr, hits@k      mean of 1/rank, of [rank ≤ k]

z = logits(query), (V,); t is the positive. A sampled loss cannot replace the sum: E log Z' < log Z (Jensen).
With `log_z`, log Z_a = log Σ_v e^{z_v} of each pair's context is also reported: log_z_mean, log_z_abs = mean |log Z|,
and log_z_sd, its standard deviation over the pairs. A context counts as often as it has pairs.

A pair whose own score is NaN ranks last. The interval is over clusters of pairs, because neighbouring centres share
words. It does not account for what a whole document has in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embtrain.common.progress import Progress
from embtrain.common.terminal import format_count
from embtrain.common.types import Query, Score
from embtrain.evaluate.config import LikelihoodConfig
from embtrain.evaluate.statistics.intervals import UNBOUNDED, UNIT, Bounds, mean_intervals, missing_note
from embtrain.kernels.scoring import softmax_ranks

HITS = (1, 10, 100)
METRICS = ("log_likelihood", "mrr", *(f"hits@{k}" for k in HITS))
LOG_Z = ("log_z_mean", "log_z_abs")
LOWER_BETTER = (LOG_Z[1], "log_z_sd", "perplexity", "mr")  # mr: see link_prediction.py
COSINES = ("similarity_right", "similarity_wrong", "similarity_target")  # see translation/scores.py
NO_SCORES = (LOG_Z[0], "learned_log_z", "log_sum_mean", *COSINES)  # neither higher nor lower is better
# Benchmarks whose metrics describe a run: its costs (lower is better), how far earlier words moved, distant neighbours.
TRAINING, DRIFT, FAR_NEIGHBOURS = "training", "drift", "neighbours 45-50"
DESCRIPTIONS = (TRAINING, DRIFT, FAR_NEIGHBOURS)
BOUNDS: dict[str, Bounds] = {
    "log_likelihood": (-math.inf, 0), "perplexity": (1, math.inf), "mr": (1, math.inf), "amri": (-1, 1),
    **dict.fromkeys(("log_z_abs", "log_z_sd", "seconds", "cpu_seconds"), (0, math.inf)),
    **dict.fromkeys(("spearman", *COSINES), (-1, 1)),
    **dict.fromkeys(("bleu", "bleu_cased", "chrf"), (0, 100)),
    **dict.fromkeys(("mrr", "accuracy", "f1", "ap", "direction"), UNIT)}
CENTRES = 50  # neighbouring centres per cluster
MAX_SCORES_HELD = 1 << 22  # scores in memory at once


def higher_better(metric: str) -> bool:
    """Whether higher values of BENCHMARK/METRIC are better; also for parts like test/mr/head."""
    part, _, name = metric.partition("/")
    return part != TRAINING and name.partition("/")[0] not in LOWER_BETTER


def value_bounds(name: str) -> Bounds:
    """Smallest and largest possible value of a measure, like mrr; its interval is clipped to them."""
    return UNIT if "@" in name else BOUNDS.get(name, UNBOUNDED)


def metric_bounds(metric: str) -> Bounds:
    """`value_bounds` of BENCHMARK/METRIC; also for parts like test/mr/head."""
    part, name, *_ = metric.split("/")
    return UNBOUNDED if part in (DRIFT, FAR_NEIGHBOURS) else value_bounds(name)


class PairRanks(NamedTuple):
    """Log-likelihood, rank and log Z of n held-out pairs."""

    log_p: NDArray[np.float64]  # (n,) log p of the target
    rank: NDArray[np.float64]   # (n,)
    log_z: NDArray[np.float64]  # (n,) log Z of the context
    V: int                      # candidates
    Q: int                      # distinct queries


def heldout(logits: Callable[[Query], Tensor], query: Query, config: LikelihoodConfig,
            clusters: NDArray[np.int64] | None = None, chunk_cells: int = MAX_SCORES_HELD) -> list[Score]:
    """Score held-out pairs: one Score per measure.

    `logits` maps Q distinct queries to (Q, V) and receives each of them once. clusters (B,): ids of the
    clusters of the intervals; by default CENTRES neighbouring centres (Query.window). At most about
    `chunk_cells` scores are in memory.
    """
    if len(query) == 0:
        names = METRICS + ((*LOG_Z, "log_z_sd") if config.log_z else ())
        return [Score("heldout", metric, None, note="no held-out pairs") for metric in names]
    return scores(ranks(logits, query, chunk_cells), default_clusters(query) if clusters is None else clusters, config)


def default_clusters(query: Query) -> NDArray[np.int64]:
    """The cluster of each pair (B,): CENTRES neighbouring centres; each pair its own without windows."""
    return (np.arange(len(query)) if query.window is None else query.window.cpu().numpy() // CENTRES).astype(np.int64)


def scores(ranked: PairRanks, clusters: NDArray[np.int64], config: LikelihoodConfig) -> list[Score]:
    """Means of all measures, with intervals over clusters (n,), under the benchmark name `heldout`."""
    columns = {"log_likelihood": ranked.log_p, "mrr": 1 / ranked.rank}
    columns |= {f"hits@{k}": (ranked.rank <= k).astype(np.float64) for k in HITS}
    columns |= {"log_z_mean": ranked.log_z, "log_z_abs": np.abs(ranked.log_z)} if config.log_z else {}
    note = (f"{format_count(len(ranked.rank), 'pair')}, {format_count(ranked.Q, 'query', 'queries')}, "
            f"{format_count(ranked.V, 'candidate')}, {format_count(len(np.unique(clusters)), 'cluster')}")
    rows = mean_scores(columns, clusters, config, note)
    if config.log_z and np.isfinite(ranked.log_z).all():
        rows.append(Score("heldout", "log_z_sd", float(ranked.log_z.std()), None, None, len(ranked.rank), note))
    return rows


def mean_scores(columns: Mapping[str, NDArray[np.float64]], clusters: NDArray[np.int64], config: LikelihoodConfig,
                note: str) -> list[Score]:
    """The mean of each column (n,), with an interval over clusters (n,)."""
    values = np.stack(list(columns.values()), axis=1)  # (n, M)
    intervals = mean_intervals(
        values, clusters, config.resamples, config.interval, [value_bounds(name) for name in columns]
    )
    n_clusters = len(np.unique(clusters))
    return [Score("heldout", metric, float(value) if math.isfinite(value) else None, low, high, len(values),
                  note + missing_note(low, n_clusters, config.resamples, kind="clusters", value=value))
            for metric, value, (low, high) in zip(columns, values.mean(0), intervals, strict=True)]


@torch.no_grad()
def ranks(logits: Callable[[Query], Tensor], query: Query, chunk_cells: int = MAX_SCORES_HELD) -> PairRanks:
    """Log p and rank of each pair's target, and log Z of its context. Arguments are those of `heldout`."""
    queries, query_id = query.unique()
    order = torch.argsort(query_id, stable=True)                                    # the pairs, by query
    first = [0, *torch.bincount(query_id, minlength=len(queries)).cumsum(0).tolist()]   # (Q+1,) offsets in `order`
    log_p = torch.empty(len(query), dtype=torch.float64, device=query_id.device)
    rank, log_z = torch.empty_like(log_p), torch.empty_like(log_p)
    start, n_queries, V = 0, 1, 0  # the first query alone, to learn V
    progress = Progress("evaluating", len(queries), "queries")
    while start < len(queries):
        stop = min(start + n_queries, len(queries))
        scores = logits(queries.rows(slice(start, stop)))                                  # (q, V)
        V = scores.shape[1]
        pairs = order[first[start]:first[stop]]
        measure = _by_kernel if scores.device.type == "cpu" and scores.dtype == torch.float32 else _by_torch
        log_p[pairs], rank[pairs], log_z[pairs] = measure(
            scores, [offset - first[start] for offset in first[start:stop + 1]], query.target[pairs])
        progress.add(stop - start)
        start, n_queries = stop, max(1, chunk_cells // V)
    progress.close()
    return PairRanks(log_p.cpu().numpy(), rank.cpu().numpy(), log_z.cpu().numpy(), V, len(queries))


def _by_kernel(scores: Tensor, first: list[int], target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log p, rank and log Z (p,) of target[first[i]:first[i + 1]] in row i of scores (q, V), float32 on the CPU."""
    offsets = np.array(first, np.int64)
    top, log_sum, score, better, equal = map(torch.from_numpy, softmax_ranks.measure(
        scores.contiguous().numpy(), offsets, target.contiguous().numpy(), torch.get_num_threads()))
    row = torch.from_numpy(np.repeat(np.arange(len(scores)), np.diff(offsets)))                       # (p,)
    return score - log_sum[row], _realistic(better, equal, score, scores.shape[1]), (log_sum + top)[row]


def _by_torch(scores: Tensor, first: list[int], target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same as `_by_kernel` for any device and dtype."""
    # Shift in the scores' own precision, exact near the maximum: next to 1e9, float32 has no digit left for log Σ.
    top = scores.amax(1, keepdim=True)                                                     # (q, 1)
    top = torch.where(top.isfinite(), top, 0.0)
    z = scores - top
    log_sum = z.exp().sum(1).log().double()                                                # (q,) of shifted scores
    row = torch.repeat_interleave(torch.arange(len(z)), torch.tensor(first).diff()).to(z.device)          # (p,)
    log_p, rank = (torch.empty(len(target), dtype=torch.float64, device=z.device) for _ in range(2))
    for part in torch.arange(len(target), device=z.device).split(len(z)):                  # no more rows than scores
        of_target = z[row[part]]                                                           # (r, V)
        score = of_target.gather(1, target[part].unsqueeze(1)).squeeze(1)                  # (r,)
        log_p[part], rank[part] = score.double() - log_sum[row[part]], _rank(of_target, score)
    return log_p, rank, (log_sum + top[:, 0].double())[row]


def _rank(z: Tensor, target_score: Tensor) -> Tensor:
    """Realistic rank (r,) of target_score (r,), one in each row of z (r, V)."""
    better = (z > target_score[:, None]).sum(1)
    equal = (z == target_score[:, None]).sum(1)                                            # with the target itself
    return _realistic(better, equal, target_score, z.shape[1])


def _realistic(better: Tensor, equal: Tensor, score: Tensor, V: int) -> Tensor:
    """Rank (r,) of targets from their counts (r,); the last if their own score is NaN."""
    return torch.where(score.isnan(), float(V), 1 + better + (equal - 1).double() / 2)
