"""Held-out measures against a loop in plain Python."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from embtrain.common.types import Query
from embtrain.evaluate import heldout as module
from embtrain.evaluate.config import WordsConfig
from embtrain.evaluate.heldout import METRICS, heldout, ranks

V, Q, N = 37, 9, 400
NO_INTERVALS = WordsConfig(resamples=0)


def world(ties: bool = True, grouped: bool = True) -> tuple[Tensor, Query]:
    """Return scores (Q, V) of every query, with many ties, and pairs in random order; vector = the query."""
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(Q, V, generator=g)
    scores = (scores * 2).round() / 2 if ties else scores
    query_id = torch.randint(Q, (N,), generator=g)
    query_id[:Q] = torch.arange(Q)
    target = torch.randint(V, (N,), generator=g)
    return scores, Query(query_id[:, None].float(), query_id * 100, target, torch.zeros(N, dtype=torch.int64),
                         query_id if grouped else None, torch.arange(N) // 3)


def measured(scores: Tensor, calls: list[int]) -> object:
    def logits(query: Query) -> Tensor:
        calls.extend(query.context.tolist())
        return scores[query.vector[:, 0].long()]
    return logits


def by_loop(scores: Tensor, query: Query) -> dict[str, float]:
    total = dict.fromkeys(METRICS, 0.0)
    for i in range(len(query)):
        z, t = scores[int(query.vector[i, 0])].tolist(), int(query.target[i])
        rank = 1 + sum(x > z[t] for x in z) + sum(x == z[t] for j, x in enumerate(z) if j != t) / 2
        total["log_likelihood"] += z[t] - math.log(sum(math.exp(x) for x in z))
        total["mrr"] += 1 / rank
        for k in (1, 10, 100):
            total[f"hits@{k}"] += rank <= k
    return {name: x / len(query) for name, x in total.items()}


@pytest.mark.parametrize("chunk_cells", [1, 3 * V, 1 << 22])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])                   # the kernel, and torch
@pytest.mark.parametrize("grouped", [True, False])
def test_measures_equal_the_loop_for_all_chunk_sizes(chunk_cells: int, dtype: torch.dtype, grouped: bool) -> None:
    scores, query = world(grouped=grouped)
    scores = scores.to(dtype)
    rows = heldout(measured(scores, []), query, NO_INTERVALS, chunk_cells=chunk_cells)
    assert {r.metric: r.value for r in rows} == pytest.approx(by_loop(scores, query), abs=1e-6)
    assert all(r.benchmark == "heldout" and r.n == N and (r.low, r.high) == (None, None) for r in rows)


def test_every_query_is_scored_once_within_the_memory_limit() -> None:
    scores, query = world()
    calls: list[int] = []
    sizes: list[int] = []
    logits = measured(scores, calls)
    ranks(lambda q: (sizes.append(len(q)), logits(q))[1], query, chunk_cells=4 * V)
    assert sorted(calls) == [100 * i for i in range(Q)]
    assert max(sizes) == 4


def test_equal_scores_rank_in_the_middle_and_nan_ranks_last() -> None:
    z = torch.zeros(3, 11)
    z[1, 4], z[2, 4] = math.nan, -math.inf
    query = Query(torch.arange(3.0)[:, None], torch.arange(3), torch.full((3,), 4), torch.zeros(3, dtype=torch.int64))
    log_p, rank, log_z, v, q = ranks(lambda q: z[q.vector[:, 0].long()], query)
    assert rank.tolist() == [6, 11, 11] and (v, q) == (11, 3)
    assert log_z[0] == pytest.approx(math.log(11)) and np.isnan(log_z[1])
    assert log_p[0] == pytest.approx(-math.log(11)) and np.isnan(log_p[1]) and log_p[2] == -math.inf
    rows = heldout(lambda q: z[q.vector[:, 0].long()], query, WordsConfig(resamples=50))
    assert rows[0].value is None and (rows[0].low, rows[0].high) == (None, None) and "not finite" in rows[0].note
    assert rows[1].value == pytest.approx((1 / 6 + 2 / 11) / 3) and rows[1].low is not None


def test_intervals_resample_neighbouring_centres_together() -> None:
    scores, query = world()
    config = WordsConfig(resamples=500)
    default = heldout(measured(scores, []), query, config)
    pairs = heldout(measured(scores, []), query, config, clusters=np.arange(N) // 150)  # 50 centres of 3 pairs each
    assert default == pairs and default[0].note == "400 pairs, 9 queries, 37 candidates, 3 clusters"
    alone = heldout(measured(scores, []), replace(query, window=None), config)
    assert "400 clusters" in alone[0].note
    for row in alone[:3]:
        assert row.low < row.value < row.high


def test_no_pairs_no_values() -> None:
    _, query = world()
    rows = heldout(lambda q: torch.empty(0, 0), query.rows(slice(0, 0)), WordsConfig())
    assert [r.metric for r in rows] == list(METRICS) and all(r.value is None and r.n == 0 for r in rows)


def test_no_gradient_is_stored() -> None:
    scores, query = world()
    scores.requires_grad_()
    seen = []
    heldout(lambda q: (seen.append(torch.is_grad_enabled()), scores[q.vector[:, 0].long()])[1], query, NO_INTERVALS)
    assert seen and not any(seen)


def test_log_z_equals_the_loop_and_each_pair_counts() -> None:
    """Contexts have different numbers of pairs, so a mean over contexts would differ."""
    scores, query = world()
    scores = scores - 4.2 + torch.linspace(-1, 1, Q)[:, None]  # log Z of both signs
    rows = {r.metric: r for r in heldout(measured(scores, []), query, WordsConfig(resamples=200, log_z=True))}
    log_z = [math.log(sum(math.exp(x) for x in scores[int(query.vector[i, 0])].tolist())) for i in range(N)]
    assert min(log_z) < -0.1 and max(log_z) > 0.1
    mean = sum(log_z) / N
    assert rows["log_z_mean"].value == pytest.approx(mean, abs=1e-6)
    assert rows["log_z_abs"].value == pytest.approx(sum(map(abs, log_z)) / N, abs=1e-6)
    assert rows["log_z_sd"].value == pytest.approx(math.sqrt(sum((x - mean) ** 2 for x in log_z) / N), abs=1e-6)
    per_query = [scores[q].logsumexp(0).item() for q in range(Q)]
    assert abs(mean - sum(per_query) / Q) > 1e-3
    assert rows["log_z_abs"].low < rows["log_z_abs"].value < rows["log_z_abs"].high and rows["log_z_sd"].low is None
    plain = heldout(measured(scores, []), query, WordsConfig(resamples=200))
    assert [r.metric for r in plain] == list(METRICS) and plain == list(rows.values())[:len(METRICS)]


def test_no_pairs_no_log_z() -> None:
    _, query = world()
    rows = heldout(lambda q: torch.empty(0, 0), query.rows(slice(0, 0)), WordsConfig(log_z=True))
    assert [r.metric for r in rows] == [*METRICS, "log_z_mean", "log_z_abs", "log_z_sd"]
    assert all(r.value is None for r in rows)


@pytest.mark.parametrize("shift", [1e9, -1e9, -1e30])
def test_scores_too_large_for_log_z_in_float32_are_evaluated_exactly(shift: float) -> None:
    same = torch.zeros(4, dtype=torch.int64)
    query = Query(vectors=torch.zeros(4, 1), context=same, slot=same, target=torch.arange(4))
    z = torch.zeros(4, 380) + shift                                       # all equal: exactly a uniform guess
    found = module.ranks(lambda part: z[:len(part)], query)
    assert found.log_p == pytest.approx([-math.log(380)] * 4, abs=1e-5)   # -5.94, and not 0.0
    assert found.log_z == pytest.approx([shift + math.log(380)] * 4, rel=1e-6)


@pytest.mark.parametrize("grouped", [True, False])
def test_both_ways_of_ranking_agree(grouped: bool) -> None:
    """By the kernel, and by torch for other devices and dtypes; with ties, infinite scores and NaN."""
    scores, query = world(grouped=grouped)
    scores[0, :9], scores[1, 3], scores[2, 4], scores[3] = math.nan, math.inf, -math.inf, -math.inf
    single, double = (ranks(measured(scores.to(dtype), []), query) for dtype in (torch.float32, torch.float64))
    assert np.array_equal(single.rank, double.rank)
    for name in ("log_p", "log_z"):
        assert np.allclose(getattr(single, name), getattr(double, name), rtol=1e-6, atol=1e-6, equal_nan=True)
