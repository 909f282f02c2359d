"""Softmax samplers compared with EXP: seconds for 100 batches of 10 queries, 10 draws each with their log q.

EXP is the rival, implemented in torch on the table of the model: one GEMM of all queries with the table into an
allocated buffer, exp in place in float32, cumulative sums in float64, one binary search. Block sums instead of sums
over all would save it about a tenth with 100,000 classes. Our samplers return what a training step needs, including
log q of the target.

Vectors are random: √n centres on the unit sphere in 64 dimensions, n unit vectors c ∝ centre + .7 u, u uniform on the
sphere, groups of size ∝ rank^-½, counts ∝ 1 / rank; a query is ∝ c_t + .7 u for a class t drawn by its count, and
o = 16 cos(h, c), so that a query's group and all the rest have masses of equal order. Everything is seeded.

cluster      4 √n clusters, exact inside; masses are fitted to     rff        D = 200, ν = 4, 16-ary, exact blocks of 32
             another batch than that whose KL is taken; -copied:     -copied: blocks of 64, whose vectors are copies in
             2 √n, the vectors of each in one piece, in 8 bits       8 bits
rff-tree     the paper's: D = 200, binary, one class a leaf;        quadratic  α = 100, binary, blocks of 64
             -float32, where --only names it: float32 sums
midx         n^(3/8) codewords twice, uniform inside                unigram    count^.75, one alias table for all
tree-DN      rff-tree with D = N: run where --only names them, for the largest takes 2 GB among 500,000 classes

Vectors and sums do not change; `-kept` are rows with the default updates, `-kept-features` of a tree that also keeps
the features of each class; `build` is the time of a rebuild.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.cli.bench.harness.base import Group, Timed, choose, digits, run, timed
from embtrain.cli.bench.harness.planted import grouped_vectors, near, zipf_counts
from embtrain.common.types import ProblemSpec, Query
from embtrain.evaluate.gradient_bias import closeness
from embtrain.kernels.core.tables import zeros
from embtrain.negatives import base
from embtrain.negatives.base import NegativeSource

SIZES = {"10k": 10_000, "100k": 100_000, "500k": 500_000}
DIM, TAU, QUERIES, DRAWS = 64, 16.0, 10, 10
BATCHES, N_KL_QUERIES = 100, 4           # batches of a timed run; queries whose KL is taken
NEAR = 0.7
RFF: dict[str, Any] = {"source": "rff", "features": 200, "nu": 4.0, "update_every": 0}
CASES: dict[str, dict[str, Any]] = {
    "cluster": {"source": "cluster", "update_every": 0, "recluster_every": 0},
    "cluster-copied": {"source": "cluster", "within_cell": "quantized", "update_every": 0, "recluster_every": 0},
    "rff": {**RFF, "branching": 16, "leaf_size": 32},
    "rff-copied": {**RFF, "branching": 16, "leaf_size": 64, "within_leaf": "quantized"},
    "rff-tree": RFF,
    "quadratic": {"source": "quadratic", "update_every": 0},
    "midx": {"source": "midx", "update_every": 0, "recluster_every": 0},
    "unigram": {"source": "unigram"},
    "cluster-kept": {"source": "cluster", "recluster_every": 0},
    "cluster-copied-kept": {"source": "cluster", "within_cell": "quantized", "recluster_every": 0},
    "rff-kept": {**RFF, "branching": 16, "leaf_size": 32, "update_every": 1},
    "rff-kept-features": {**RFF, "branching": 16, "leaf_size": 32, "update_every": 1, "keep_features": True},
}
# Table 2 of Rawat et al. 2019 is EXP, `quadratic`, `rff-tree` and these trees.
ONLY_ON_REQUEST: dict[str, dict[str, Any]] = {
    **{f"tree-D{d}": {**RFF, "features": d, "max_gib": 12.0} for d in (50, 500, 1000)},
    "rff-tree-float32": {**RFF, "sum_dtype": "float32"}}
LARGE_TREE: dict[str, Any] = {**RFF, "features": 1000, "branching": 16, "leaf_size": 64}


class Planted:
    """A frozen synthetic model and its queries."""

    geometry, tau, has_frozen_table = "cosine", TAU, True

    def __init__(self, n: int):
        draw = torch.Generator().manual_seed(n)
        self.n_candidates, self.counts = n, zipf_counts(n)
        self.c = torch.from_numpy(zeros(n, DIM))     # in the layout of the fused engine
        self.c[:] = grouped_vectors(n, DIM, NEAR, draw)
        self.batches = [self._query(draw) for _ in range(BATCHES)]

    def _query(self, draw: torch.Generator) -> Query:
        target = torch.multinomial(self.counts, QUERIES, True, generator=draw)
        return Query(near(self.c[target], NEAR, draw), target, target, torch.zeros_like(target))

    def table(self) -> Tensor:
        return self.c

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        rows = self.c[candidates.expand(len(query), -1)]
        return TAU * torch.einsum("bd,bkd->bk", normalize(query.vector, dim=1), rows)


@dataclass
class Ours:
    """One source on one model."""

    settings: dict[str, Any]
    model: Planted
    threads: int
    build: float = 0.0             # seconds

    @cached_property
    def source(self) -> NegativeSource:
        settings = {**self.settings, "k": DRAWS}
        found = base.find(settings["source"])
        problem = ProblemSpec(self.model.n_candidates, self.model.counts, dim=DIM, seed=1)
        source: NegativeSource = found(found.Config(**settings), problem)
        begun = time.perf_counter()
        source.on_epoch_start(self.model)
        self.build = time.perf_counter() - begun
        if source.traits.fits_to_queries:
            source.draw(self.model.batches[-1], DRAWS, self.model)
        return source

    @cached_property
    def quality(self) -> dict[str, float]:
        query = self.model.batches[0].rows(slice(0, N_KL_QUERIES))
        everyone = torch.arange(self.model.n_candidates).unsqueeze(0)
        log_q = self.source.log_prob(query, everyone).expand(N_KL_QUERIES, -1)
        found = closeness(TAU * query.vector @ self.model.c.T, log_q)
        return {"KL": float(found.kl.mean()), "ESS": float(found.ess.mean())}

    def __call__(self) -> Timed:
        torch.set_num_threads(self.threads)
        quality, source = self.quality, self.source

        def draw() -> None:
            for query in self.model.batches:
                source.draw(query, DRAWS, self.model)

        return Timed(*timed(draw)[:2], quality)


class ExactSoftmax:
    """Exact draws from q = softmax(o) in torch."""

    def __init__(self, model: Planted, threads: int):
        self.model, self.threads, n = model, threads, model.n_candidates
        self.o, self.ends = torch.empty(QUERIES, n), torch.empty(QUERIES, n, dtype=torch.float64)
        self.random = torch.Generator().manual_seed(0)

    def draw(self, h: Tensor) -> tuple[Tensor, Tensor]:
        torch.mm(h, self.model.c.T, out=self.o)
        self.o.exp_()                                # o <= τ: no overflow
        torch.cumsum(self.o, 1, dtype=torch.float64, out=self.ends)
        total = self.ends[:, -1:]
        toss = torch.rand(len(h), DRAWS, generator=self.random, dtype=torch.float64) * total
        ids = torch.searchsorted(self.ends, toss, right=True).clamp_(max=len(self.model.c) - 1)
        return ids, self.o.gather(1, ids).log() - total.log()

    def __call__(self) -> Timed:
        torch.set_num_threads(self.threads)

        def draw() -> None:
            for query in self.model.batches:
                self.draw(TAU * query.vector)

        return Timed(*timed(draw)[:2], {"KL": 0.0, "ESS": 1.0})


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example cluster-100k."""
    cases = CASES | ONLY_ON_REQUEST if only else CASES
    known = {f"{case}-{size}-t{t}": (case, size, t) for size in SIZES for t in threads for case in cases}
    chosen = {name: known[name] for name in choose(known, only)}
    groups: list[Group] = []
    ours: dict[str, Ours] = {}
    for size, t in dict.fromkeys((size, t) for _, size, t in chosen.values()):
        model = Planted(SIZES[size])
        cases_of_size = {name: Ours(cases[case], model, t) for name, (case, *part) in chosen.items()
                         if part == [size, t]}
        groups.append(Group(t, cases_of_size, {"exp": ExactSoftmax(model, t)}))
        ours |= cases_of_size
    before = torch.get_num_threads()
    try:
        summary = run("samplers", f"s for {BATCHES} batches of {QUERIES} queries x {DRAWS} draws", groups, rounds, {
            "classes": SIZES, "dim": DIM, "tau": TAU, "settings": cases})
    finally:
        torch.set_num_threads(before)
    return summary | {"growth": growth(summary, chosen),
                      "build": {name: digits(case.build) for name, case in ours.items()},
                      "megabytes": megabytes({name: case.source for name, case in ours.items()})}


def growth(summary: Mapping[str, Any], chosen: Mapping[str, tuple[str, str, int]]) -> dict[str, float]:
    """Median time with the most classes ÷ with the fewest, of each sampler and of EXP."""
    small, *_, large = SIZES if len(SIZES) > 1 else (*SIZES, *SIZES)
    found = {}
    for name, (case, size, t) in chosen.items():
        other = f"{case}-{small}-t{t}"
        if size == large != small and other in chosen:
            for way, times in ((case, summary["ours"]), ("exp", summary["rivals"]["exp"])):
                found[f"{way}-t{t}"] = digits(_median(times[name]) / _median(times[other]))
    return found


def _median(times: Sequence[float]) -> float:
    return max(statistics.median(times), 1e-4)


def megabytes(sources: Mapping[str, NegativeSource]) -> dict[str, float]:
    """Memory of each source, and of the tree of 500,000 classes with D = 1000 in blocks of 64."""
    found = {name: held(source) for name, source in sources.items()}
    n = 500_000
    tree = base.find("rff")
    large = tree(tree.Config(**LARGE_TREE), ProblemSpec(n, torch.ones(n, dtype=torch.float64), dim=DIM, seed=1))
    return {name: digits(size / 1e6) for name, size in {**found, "rff-D1000-500k": held(large)}.items()}


def held(value: object) -> int:
    """Bytes of the tensors of an object, its lists and its parts; shared memory counts once."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in _tensors(value, set())}.values())


def _tensors(value: object, visited: set[int]) -> Iterator[Tensor]:
    """The tensors of an object and its parts; parts may refer back to the object."""
    if id(value) in visited:
        return
    visited.add(id(value))
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part, visited)
    elif type(value).__module__.startswith("embtrain.negatives"):
        for name, part in vars(value).items():
            if name not in ("problem", "config", "view"):
                yield from _tensors(part, visited)
