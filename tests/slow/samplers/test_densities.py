"""Reported densities of sources at full size: a million draws for each of twenty seeds, n = 10,000 and 500,000.

Checks of each source with an exact density (all modules of the package), on clustered vectors and for a query
near a candidate, the target:
  bins    ids by rank of q, by node (blocks of 64 ids for a tree; cells for a cluster source),
          by block of ids, each with at least 50 expected draws; the target and the next id separately. No χ² has
          p < .001 / (seeds × ways); the p-values of all seeds are uniform (Kolmogorov-Smirnov, p > .001)
  sums    Σ exp(log_prob) = 1 to 1e-5, and log_prob of drawn ids equals the reported log q
  walk    log_prob against q computed with float64 matrix products, node by node, to 1e-4
and of each with a conditional density, E Σ weight f(id) / (mass q) = Σ f: z over all seeds, |z| < 4.

EMBTRAIN_SAMPLERS selects a part: "500000:cluster,rff" is one size and two configurations.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.common.types import ProblemSpec, Query
from embtrain.negatives import base
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.softmax.kernels.base import KernelSource

pytestmark = pytest.mark.slow

SEEDS, DRAWS, DIM, TAU, COLUMNS = 20, 1_000_000, 32, 12.0, 1000
#: Configurations of every source with an exact density and a sampler; the others are in ELSEWHERE.
WAYS: dict[str, dict[str, Any]] = {
    "uniform": {}, "log_uniform": {}, "unigram": {},
    "exp": {"exclude_target": False},
    "cluster": {"update_every": 0, "recluster_every": 0},
    "cluster full": {"update_every": 0, "recluster_every": 0, "estimate": "full", "clusters": 200},
    "cluster centroid": {"update_every": 0, "recluster_every": 0, "estimate": "centroid", "within_cell": "uniform"},
    "cluster diagonal": {"update_every": 0, "recluster_every": 0, "estimate": "diagonal"},
    "cluster copied": {"update_every": 0, "recluster_every": 0, "within_cell": "quantized"},
    "cluster unigram": {"update_every": 0, "recluster_every": 0, "within_cell": "unigram"},
    "midx": {"update_every": 0, "recluster_every": 0},
    "midx exact": {"update_every": 0, "recluster_every": 0, "within_cell": "exact", "quantisation": "product"},
    "quadratic": {"update_every": 0},
    "rff": {"features": 64, "nu": 2.0, "update_every": 0},
    "rff float32": {"features": 64, "nu": 2.0, "update_every": 0, "sum_dtype": "float32"},
    "rff leaf": {"features": 64, "nu": 2.0, "update_every": 0, "branching": 16, "leaf_size": 64, "prior_exponent": 0.5},
    "rff copied": {"features": 64, "nu": 2.0, "update_every": 0, "branching": 16, "leaf_size": 64,
                   "within_leaf": "quantized"},
    "maclaurin": {"features": 64, "nu": 1.0, "update_every": 0, "leaf_size": 16},
    "positive_features": {"features": 64, "nu": 2.0, "update_every": 0, "branching": 4, "leaf_size": 8,
                          "leaf_order": "frequency"},
    "mixture": {"inner": {"source": "cluster", "update_every": 0, "recluster_every": 0}},
}
#: The density of an adversary has separate slow tests; `every` draws all; `none` draws nothing.
# Tested by tests/contract/test_sources.py alone; the last five need lists, earlier targets or positives.
ELSEWHERE = {"ace", "every", "none", "candidates", "reflexive", "typed", "memory", "adversarial_tree"}
CONDITIONAL: dict[str, dict[str, Any]] = {
    "exp": {}, "resampled": {"inner": {"source": "unigram", "k": 200, "share_draws_by": "row"}},
    **{way: WAYS[way] | {"exclude_target": True}
       for way in ("cluster", "midx exact", "cluster unigram", "quadratic", "rff", "rff leaf", "maclaurin",
                   "positive_features")},
    "uniform": {"replacement": False},
}

_SIZE, _, _NAMES = os.environ.get("EMBTRAIN_SAMPLERS", "").partition(":")
SIZES = [int(_SIZE)] if _SIZE else [10_000, 500_000]
CHOSEN = [way for way in WAYS if not _NAMES or way in _NAMES.split(",")]
CHOSEN_CONDITIONAL = [way for way in CONDITIONAL if not _NAMES or way in _NAMES.split(",")]


class Planted:
    geometry, tau = "cosine", TAU

    def __init__(self, n: int):
        draw = torch.Generator().manual_seed(n)
        centre = torch.randn(round(math.sqrt(n)), DIM, generator=draw)
        group = torch.randint(len(centre), (n,), generator=draw)
        self.n_candidates = n
        self.c = normalize(centre[group] + torch.randn(n, DIM, generator=draw), dim=1)

    def table(self) -> Tensor:
        return self.c

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        c = self.c[candidates.expand(len(query), -1)]
        return TAU * torch.einsum("bd,bkd->bk", normalize(query.vector, dim=1), c)


@pytest.fixture(scope="module", params=SIZES)
def planted(request: pytest.FixtureRequest) -> Planted:
    return Planted(request.param)


def build(way: str, settings: dict[str, Any], planted: Planted) -> NegativeSource:
    n, kind = planted.n_candidates, base.find(way.split()[0])
    counts = n / torch.arange(1, n + 1, dtype=torch.float64)
    source: NegativeSource = kind(kind.Config(**{"k": COLUMNS, **settings, "source": kind.name}),
                               ProblemSpec(n, counts, 1, dim=DIM, seed=3))
    source.on_epoch_start(planted)
    if source.traits.fits_to_queries:
        source.draw(queries_of(planted, 4, 1), COLUMNS, planted)  # this first query fits the source for all later draws
    return source


def queries_of(planted: Planted, rows: int, target: int) -> Query:
    """Return the same query `rows` times; no two rows share a draw."""
    away = torch.randn(1, DIM, generator=torch.Generator().manual_seed(7))
    vector = normalize(planted.c[target:target + 1] + 0.5 * normalize(away, dim=1), dim=1).expand(rows, -1)
    zero = torch.zeros(rows, dtype=torch.int64)
    return Query(vector, zero, zero + target, zero, zero, torch.arange(rows))


def bins(key: np.ndarray, q: np.ndarray, draws: int) -> np.ndarray:
    """Return the bin of each id, (n,): ids in the order of a key, a new bin after each 50 expected draws."""
    order = np.argsort(key, kind="stable")
    upto, bin_of, edge, cell = np.cumsum(q[order] * draws), np.empty(len(q), np.int64), 0.0, 0
    start = 0
    while start < len(q):
        until = max(start + 1, int(np.searchsorted(upto, edge + 50)) + 1)
        bin_of[order[start:until]] = cell
        edge, start, cell = upto[min(until, len(q)) - 1], until, cell + 1
    last = upto[-1] - (edge if cell < 2 else upto[np.flatnonzero(bin_of[order] < cell - 1)[-1]])
    if last < 50 and cell > 1:                                 # the rest at the end
        bin_of[bin_of == cell - 1] = cell - 2
    return bin_of


def alone(bin_of: np.ndarray, ids: list[int], q: np.ndarray, draws: int) -> np.ndarray:
    """Give each of `ids` with 50 expected draws a separate bin."""
    bin_of = bin_of.copy()
    for i in ids:
        others = q[bin_of == bin_of[i]].sum() - q[i]
        if min(q[i], others) * draws >= 50:
            bin_of[i] = bin_of.max() + 1
    return bin_of


def nodes(source: NegativeSource, n: int) -> np.ndarray:
    """Return the lowest node of each candidate, or its block of 64 ids."""
    if isinstance(source, KernelSource):
        return source.blocks.place.numpy() // max(source.config.leaf_size, 16)
    index = getattr(source, "index", None)
    return np.arange(n) // 64 if index is None else index.cell.numpy()


def all_log_q(source: NegativeSource, query: Query, n: int) -> np.ndarray:
    return source.log_prob(query, torch.arange(n).unsqueeze(0)).double().expand(1, -1)[0].numpy()


def test_every_exact_source_of_the_package_is_covered() -> None:
    assert {way.split()[0] for way in WAYS} | ELSEWHERE | {
        name for name in base.names() if base.find(name).traits.density != "exact"} == set(base.names())


@pytest.mark.parametrize("way", CHOSEN)
def test_a_million_draws_follow_the_reported_density(way: str, planted: Planted) -> None:
    n, target = planted.n_candidates, planted.n_candidates // 3
    source = build(way, WAYS[way], planted)
    assert source.traits.density == "exact"
    single, many = queries_of(planted, 1, target), queries_of(planted, DRAWS // COLUMNS, target)
    log_q = all_log_q(source, single, n)
    q = np.exp(log_q)
    assert q.sum() == pytest.approx(1, abs=1e-5)
    q /= q.sum()
    node = nodes(source, n)
    cuts = {"q-rank": alone(bins(-q, q, DRAWS), [target, target + 1], q, DRAWS),
            "node": bins(node, q, DRAWS), "ids": bins(np.arange(n), q, DRAWS)}
    values = []
    for seed in range(SEEDS):
        source.random.manual_seed(1000 + seed)
        ids, log_drawn = [], []
        while sum(map(len, ids)) < DRAWS:                      # sources that share a draw return one row per call
            drawn = source.draw(many, COLUMNS, planted)
            assert drawn.ids is not None and drawn.log_q is not None
            ids.append(drawn.ids.reshape(-1).numpy())
            log_drawn.append(drawn.log_q.expand(drawn.ids.shape).reshape(-1).double().numpy())
        every = np.concatenate(ids)
        np.testing.assert_allclose(np.concatenate(log_drawn), log_q[every], rtol=0, atol=1e-4)
        seen = np.bincount(every, minlength=n)
        for name, cut in cuts.items():
            counted, expected = np.bincount(cut, seen), np.bincount(cut, q) * len(every)
            assert expected.min() >= 49.9, name
            if len(counted) < 2:
                continue
            p = stats.chi2.sf(((counted - expected) ** 2 / expected).sum(), len(counted) - 1)
            assert p > 0.001 / (SEEDS * len(WAYS)), (way, name, seed, p)
            values.append((name, p))
    for name in cuts:
        p_values = [p for kind, p in values if kind == name]
        assert not p_values or stats.kstest(p_values, "uniform").pvalue > 0.001, (way, name, sorted(p_values))


@pytest.mark.parametrize("way", [way for way in CHOSEN if way.split()[0] in ("rff", "positive_features", "maclaurin",
                                                                          "quadratic", "cluster", "midx")])
def test_log_prob_equals_a_walk_in_float64(way: str, planted: Planted) -> None:
    """The walk uses the float32 sums and summaries of the source."""
    n, target = planted.n_candidates, planted.n_candidates // 3
    source, single = build(way, WAYS[way], planted), queries_of(planted, 1, target)
    log_q = all_log_q(source, single, n)
    c, h = planted.c.double(), TAU * normalize(single.vector.double(), dim=1)[0]
    c = c / c.norm(dim=1, keepdim=True)
    o = c @ h
    if not isinstance(source, KernelSource):
        log_m = source.log_mass(h.float().unsqueeze(0))[0].double()                    # type: ignore[attr-defined]
        if source.copy is not None:                                                    # type: ignore[attr-defined]
            # type: ignore[attr-defined]
            o = torch.empty_like(o).index_copy_(0, source.index.order, copied_logits(source, h))
        # type: ignore[attr-defined]
        weight = torch.exp(o - o.max()) if source.rules.exact else source.candidate_weights
        # type: ignore[attr-defined]
        inside = torch.zeros(len(log_m), dtype=torch.float64).index_add_(0, source.index.cell, weight)
        # type: ignore[attr-defined]
        walked = log_m.log_softmax(0)[source.index.cell] + weight.log() - inside.log()[source.index.cell]
    else:
        tree, x = source.tree, (h * source.feature_map.scale(TAU) / TAU).unsqueeze(0)
        phi, floor = source.feature_map.encode_queries(x)[0], source.config.floor * float(
            source.feature_map.log_neutral(x).exp())
        place, share = torch.arange(n), torch.zeros(n, dtype=torch.float64)
        for level, sums in enumerate(tree.sums):
            m = sums.read(slice(None)) @ sums.round_query(phi.unsqueeze(0))[0]
            m = torch.maximum(m, floor * tree.prior[level]).masked_fill(tree.count[level] == 0, 0.0)
            node = place // (tree.leaf * tree.fan ** (len(tree.sums) - 1 - level))
            share += m[node].log() - m.view(-1, tree.fan).sum(1).log()[node // tree.fan]
        if tree.leaf > 1:
            order = source.blocks.order
            if source.config.within_leaf == "quantized":
                o = torch.empty_like(o).index_copy_(0, order, copied_logits(source, h))
            if source.sampler.rules.exact:
                weight = torch.exp(o[order] - o.max())
            else:
                y = source.feature_map.scale(TAU) * c[order]
                k = torch.cat([source.feature_map.kernel(x, phi.unsqueeze(0), part.unsqueeze(0))[0]
                               for part in y.split(1 << 15)])
                weight = torch.maximum(k, torch.tensor(floor)) * source.blocks.prior
            block = place // tree.leaf
            inside = torch.zeros(int(block[-1]) + 1, dtype=torch.float64).index_add_(0, block, weight)
            share += weight.log() - inside.log()[block]
        walked = torch.empty(n, dtype=torch.float64)
        walked[source.blocks.order] = share
    np.testing.assert_allclose(log_q, walked.numpy(), rtol=0, atol=1e-4)


def copied_logits(source: Any, h: Tensor) -> Tensor:
    """Return o in the order of positions."""
    return source.copy.read(slice(None)) @ source.copy.round_query(h.unsqueeze(0))[0]


@pytest.mark.parametrize("way", CHOSEN_CONDITIONAL)
def test_conditional_draws_estimate_a_sum(way: str, planted: Planted) -> None:
    """f = e^o u / max, u ~ U[0, 1): the sum that the draws estimate, perturbed so that errors do not cancel."""
    n, target, rows = planted.n_candidates, planted.n_candidates // 3, 200
    source, query = build(way, {**CONDITIONAL[way], "k": 100}, planted), queries_of(planted, rows, target)
    assert source.traits.density == "conditional"
    o = TAU * planted.c @ query.vector[0]
    f = torch.exp(o - o.max()).double() * torch.rand(n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    total = float(f.sum() - f[target]) if getattr(source.config, "exclude_target", False) else float(f.sum())
    estimates = []
    for seed in range(SEEDS):
        source.random.manual_seed(2000 + seed)
        drawn = source.draw(query, 100, planted)
        assert drawn.ids is not None and drawn.log_q is not None and drawn.total_weight is not None
        weight = torch.ones(1) if drawn.weight is None else drawn.weight
        terms = weight.double() * f[drawn.ids] / (drawn.total_weight.double() * drawn.log_q.double().exp())
        estimates.append(terms.sum(1))
    each = torch.cat(estimates)
    z = float((each.mean() - total) / (each.std() / math.sqrt(len(each))))
    assert abs(z) < 4, (way, z, float(each.mean()), total)
