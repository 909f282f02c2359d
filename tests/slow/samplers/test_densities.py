"""The densities that sources state, at full size: a million draws for each of twenty seeds, n = 10,000 and 500,000.

What is asked of each source with an exact density (found by walking the package), on planted vectors and for a question
near a class, the target:
  bins    ids by rank of q, by node (blocks of 64 in order of the id are those of a tree; cells are those of a cluster),
          by block of ids, each of at least 50 expected draws; the target and its neighbour in id alone. No χ² has
          p < .001 / (seeds × ways); the p-values of all seeds are uniform (Kolmogorov-Smirnov, p > .001)
  sums    Σ exp(log_prob) = 1 to 1e-5, and log_prob of what was drawn is what the draw reported
  walk    log_prob against q summed by plain float64 matrix products, node by node, to 1e-4
and of each with a conditional one, E Σ weight f(id) / (mass q) = Σ f: z of all seeds together, |z| < 4.

EMBTRAIN_SAMPLERS narrows it: "500000:cluster,rff" is one size and some ways.
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
#: Ways to set up every source of an exact density that draws by itself; the others are in ELSEWHERE.
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
#: An adversary's density has its own slow tests; `every` draws all; `none` draws nothing.
ELSEWHERE = {"ace", "every", "none"}
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


def made(way: str, settings: dict[str, Any], planted: Planted) -> NegativeSource:
    n, found = planted.n_candidates, base.find(way.split()[0])
    counts = n / torch.arange(1, n + 1, dtype=torch.float64)
    of: NegativeSource = found(found.Config(**{"k": COLUMNS, **settings, "source": found.name}),
                               ProblemSpec(n, counts, 1, dim=DIM, seed=3))
    of.on_epoch_start(planted)
    if of.traits.fits_to_queries:
        of.draw(asked(planted, 4, 1), COLUMNS, planted)          # what it hears now shapes all that follow
    return of


def asked(planted: Planted, rows: int, target: int) -> Query:
    """The same question `rows` times; no two rows share a draw."""
    away = torch.randn(1, DIM, generator=torch.Generator().manual_seed(7))
    vector = normalize(planted.c[target:target + 1] + 0.5 * normalize(away, dim=1), dim=1).expand(rows, -1)
    zero = torch.zeros(rows, dtype=torch.int64)
    return Query(vector, zero, zero + target, zero, zero, torch.arange(rows))


def bins(key: np.ndarray, q: np.ndarray, draws: int) -> np.ndarray:
    """Ids (n,) in order of a key, the next bin where one expects 50: the bin of each, (n,)."""
    order = np.argsort(key, kind="stable")
    upto, of, edge, cell = np.cumsum(q[order] * draws), np.empty(len(q), np.int64), 0.0, 0
    at = 0
    while at < len(q):
        until = max(at + 1, int(np.searchsorted(upto, edge + 50)) + 1)
        of[order[at:until]] = cell
        edge, at, cell = upto[min(until, len(q)) - 1], until, cell + 1
    last = upto[-1] - (edge if cell < 2 else upto[np.flatnonzero(of[order] < cell - 1)[-1]])
    if last < 50 and cell > 1:                                 # what is left over at the end
        of[of == cell - 1] = cell - 2
    return of


def alone(bin_of: np.ndarray, ids: list[int], q: np.ndarray, draws: int) -> np.ndarray:
    """Those of `ids` that expect 50 draws have a bin to themselves."""
    bin_of = bin_of.copy()
    for i in ids:
        others = q[bin_of == bin_of[i]].sum() - q[i]
        if min(q[i], others) * draws >= 50:
            bin_of[i] = bin_of.max() + 1
    return bin_of


def node_of(of: NegativeSource, n: int) -> np.ndarray:
    """The lowest node of each candidate, or its block of 64 ids."""
    if isinstance(of, KernelSource):
        return of.blocks.place.numpy() // max(of.config.leaf_size, 16)
    index = getattr(of, "index", None)
    return np.arange(n) // 64 if index is None else index.cell.numpy()


def log_q_of_all(of: NegativeSource, asks: Query, n: int) -> np.ndarray:
    return of.log_prob(asks, torch.arange(n).unsqueeze(0)).double().expand(1, -1)[0].numpy()


def test_every_exact_source_of_the_package_is_here() -> None:
    assert {way.split()[0] for way in WAYS} | ELSEWHERE | {
        name for name in base.names() if base.find(name).traits.density != "exact"} == set(base.names())


@pytest.mark.parametrize("way", CHOSEN)
def test_a_million_draws_are_those_that_are_reported(way: str, planted: Planted) -> None:
    n, target = planted.n_candidates, planted.n_candidates // 3
    of = made(way, WAYS[way], planted)
    assert of.traits.density == "exact"
    one, many = asked(planted, 1, target), asked(planted, DRAWS // COLUMNS, target)
    log_q = log_q_of_all(of, one, n)
    q = np.exp(log_q)
    assert q.sum() == pytest.approx(1, abs=1e-5)
    q /= q.sum()
    node = node_of(of, n)
    cuts = {"q-rank": alone(bins(-q, q, DRAWS), [target, target + 1], q, DRAWS),
            "node": bins(node, q, DRAWS), "ids": bins(np.arange(n), q, DRAWS)}
    values = []
    for seed in range(SEEDS):
        of.random.manual_seed(1000 + seed)
        ids, log_drawn = [], []
        while sum(map(len, ids)) < DRAWS:                      # sources that share a draw give one line a call
            drawn = of.draw(many, COLUMNS, planted)
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
        mine = [p for kind, p in values if kind == name]
        assert not mine or stats.kstest(mine, "uniform").pvalue > 0.001, (way, name, sorted(mine))


@pytest.mark.parametrize("way", [way for way in CHOSEN if way.split()[0] in ("rff", "positive_features", "maclaurin",
                                                                          "quadratic", "cluster", "midx")])
def test_log_prob_is_a_walk_in_float64(way: str, planted: Planted) -> None:
    """Of the source's own sums and summaries, as they lie there in float32."""
    n, target = planted.n_candidates, planted.n_candidates // 3
    of, one = made(way, WAYS[way], planted), asked(planted, 1, target)
    log_q = log_q_of_all(of, one, n)
    c, h = planted.c.double(), TAU * normalize(one.vector.double(), dim=1)[0]
    c = c / c.norm(dim=1, keepdim=True)
    o = c @ h
    if not isinstance(of, KernelSource):
        log_m = of.log_mass(h.float().unsqueeze(0))[0].double()                    # type: ignore[attr-defined]
        if of.copy is not None:                                                    # type: ignore[attr-defined]
            o = torch.empty_like(o).index_copy_(0, of.index.order, of_copy(of, h))  # type: ignore[attr-defined]
        weight = torch.exp(o - o.max()) if of.rules.exact else of.candidate_weights                      # type: ignore[attr-defined]
        inside = torch.zeros(len(log_m), dtype=torch.float64).index_add_(0, of.index.cell, weight)  # type: ignore[attr-defined]
        walked = log_m.log_softmax(0)[of.index.cell] + weight.log() - inside.log()[of.index.cell]  # type: ignore[attr-defined]
    else:
        tree, x = of.tree, (h * of.feature_map.scale(TAU) / TAU).unsqueeze(0)
        phi, least = of.feature_map.encode_queries(x)[0], of.config.floor * float(of.feature_map.log_neutral(x).exp())
        place, share = torch.arange(n), torch.zeros(n, dtype=torch.float64)
        for level, sums in enumerate(tree.sums):
            m = sums.read(slice(None)) @ sums.round_query(phi.unsqueeze(0))[0]
            m = torch.maximum(m, least * tree.prior[level]).masked_fill(tree.count[level] == 0, 0.0)
            node = place // (tree.leaf * tree.fan ** (len(tree.sums) - 1 - level))
            share += m[node].log() - m.view(-1, tree.fan).sum(1).log()[node // tree.fan]
        if tree.leaf > 1:
            order = of.blocks.order
            if of.config.within_cell == "quantized":
                o = torch.empty_like(o).index_copy_(0, order, of_copy(of, h))
            if of.sampler.rules.exact:
                weight = torch.exp(o[order] - o.max())
            else:
                y = of.feature_map.scale(TAU) * c[order]
                k = torch.cat([of.feature_map.kernel(x, phi.unsqueeze(0), part.unsqueeze(0))[0]
                               for part in y.split(1 << 15)])
                weight = torch.maximum(k, torch.tensor(least)) * of.blocks.prior
            block = place // tree.leaf
            inside = torch.zeros(int(block[-1]) + 1, dtype=torch.float64).index_add_(0, block, weight)
            share += weight.log() - inside.log()[block]
        walked = torch.empty(n, dtype=torch.float64)
        walked[of.blocks.order] = share
    np.testing.assert_allclose(log_q, walked.numpy(), rtol=0, atol=1e-4)


def of_copy(of: Any, h: Tensor) -> Tensor:
    """o by place."""
    return of.copy.read(slice(None)) @ of.copy.round_query(h.unsqueeze(0))[0]


@pytest.mark.parametrize("way", CHOSEN_CONDITIONAL)
def test_conditional_draws_estimate_a_sum(way: str, planted: Planted) -> None:
    """f = e^o u / max, u ~ U[0, 1): what the draws are for, with something to be wrong in."""
    n, target, rows = planted.n_candidates, planted.n_candidates // 3, 200
    of, asks = made(way, {**CONDITIONAL[way], "k": 100}, planted), asked(planted, rows, target)
    assert of.traits.density == "conditional"
    o = TAU * planted.c @ asks.vector[0]
    f = torch.exp(o - o.max()).double() * torch.rand(n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    there = float(f.sum() - f[target]) if getattr(of.config, "exclude_target", False) else float(f.sum())
    estimates = []
    for seed in range(SEEDS):
        of.random.manual_seed(2000 + seed)
        drawn = of.draw(asks, 100, planted)
        assert drawn.ids is not None and drawn.log_q is not None and drawn.total_weight is not None
        weight = torch.ones(1) if drawn.weight is None else drawn.weight
        terms = weight.double() * f[drawn.ids] / (drawn.total_weight.double() * drawn.log_q.double().exp())
        estimates.append(terms.sum(1))
    each = torch.cat(estimates)
    z = float((each.mean() - there) / (each.std() / math.sqrt(len(each))))
    assert abs(z) < 4, (way, z, float(each.mean()), there)
