"""Cases of every source, and a model with a free table of scores. The tiny problem is that of embtrain.testing."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.evaluate.gradient_bias import GradientError, error_of_draws, without_target
from embtrain.models.base import Model, ModelConfig
from embtrain.negatives import base
from embtrain.negatives.base import NegativeSource
from embtrain.testing.case import SourceCase
from embtrain.testing.worlds import CONTEXTS, TableView, V, paired, query, tiny_problem, trained

__all__ = ["CASES", "CONTEXTS", "OF_PAIRS", "VECTORS", "Table", "TableBatch", "TableView", "V", "case_of",
           "gradient_error", "paired", "query", "source", "tiny_problem", "trained"]

#: One entry for each configuration of a source that changes its draws. A new source needs an entry.
CASES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "uniform without replacement": {"replacement": False},
    "log_uniform": {},
    "unigram": {"exponent": 0.75},
    "unigram after subsampling": {"exponent": 1.0, "counts": "subsampled"},
    "unigram shared by windows": {"share_draws_by": "window"},
    "unigram shared by blocks": {"share_draws_by": "block", "share_size": 5},
    "unigram shared by the batch": {"share_draws_by": "batch"},
    "unigram with a total weight": {"total_weight": 1.5},
    "unigram without replacement": {"exponent": 1.0, "replacement": False, "share_draws_by": "batch"},
    "every": {},
    "none": {},
    "candidates": {},
    "candidates shared by windows": {"mix": 0.5, "share_draws_by": "window", "power": 0.0},
    "candidates shared by blocks": {"share_draws_by": "block", "share_size": 3, "power": 2.0},
    "candidates shared by the batch": {"share_draws_by": "batch", "fallback": {"source": "uniform"}},
    "candidates with a total weight": {"total_weight": 1.5},
    "candidates alone": {"mix": 0.0},
    "reflexive": {},
    "reflexive shared by windows": {"mix": 0.5, "share_draws_by": "window"},
    "typed": {},
    "typed by frequency shared by windows": {"power": 1.0, "share_draws_by": "window"},
    "ace": {"min_perplexity": 4, "generator_lr": 0.05},
    "ace shared by windows": {"min_perplexity": 4, "share_draws_by": "window", "generator_lr": 0.05},
    "ace with a shortlist": {"min_perplexity": 4, "shortlist": 17, "groups": 3, "generator_lr": 0.05},
    "ace with rare updates": {"min_perplexity": 4, "share_draws_by": "window", "update_every": 40, "shortlist": 30,
                              "groups": 4,
                              "generator_lr": 0.2},
    "ace stratified": {"min_perplexity": 4, "sampling": "stratified", "mix": 0.3, "generator_lr": 0.05},
    "ace shared by blocks": {"min_perplexity": 4, "share_draws_by": "block", "share_size": 3, "generator_lr": 0.05},
    "ace stratified shared by the batch": {
        "min_perplexity": 4, "sampling": "stratified", "mix": 0.3, "share_draws_by": "batch",
        "baseline": "leave_one_out", "clip": 60.0,
        "generator_lr": 0.05},
    "ace without noise": {"min_perplexity": 4, "mix": 0.0, "entropy": 5.0, "generator_lr": 0.05},
    "ace baseline none": {"min_perplexity": 4, "baseline": "none", "generator_lr": 0.05},
    "ace baseline moving": {"min_perplexity": 4, "baseline": "moving", "generator_lr": 0.05},
    "ace baseline leave one out": {"min_perplexity": 4, "baseline": "leave_one_out", "generator_lr": 0.05},
    "ace without entropy": {"min_perplexity": 4, "entropy": 0.0, "importance": False, "generator_lr": 0.05},
    "cluster": {"within_cell": "exact"},
    "cluster quantized": {"within_cell": "quantized", "update_every": 3},
    "cluster quantized without the target": {"within_cell": "quantized", "exclude_target": True,
                                             "estimate": "centroid"},
    "cluster with centroids": {"estimate": "centroid", "update_every": 2},
    "cluster with diagonals": {"estimate": "diagonal", "clusters": 5, "update_every": 1},
    "cluster with covariances": {"estimate": "full", "clusters": 5, "recluster_every": 3},
    "cluster unigram inside": {"within_cell": "unigram", "update_every": 0, "recluster_every": 0},
    "cluster uniform inside by windows": {"within_cell": "uniform", "share_draws_by": "window"},
    "cluster without the target": {"estimate": "full", "exclude_target": True},
    "cluster without the target unigram inside": {"within_cell": "unigram", "exclude_target": True},
    "resampled": {"inner": {"source": "unigram", "k": 12, "share_draws_by": "batch"}},
    "resampled from private candidates": {"inner": {"source": "uniform", "k": 12}},
    "resampled from distinct candidates": {"inner": {"source": "unigram", "k": 12, "replacement": False}},
    "in_batch": {},
    "in_batch streaming": {"correction": "streaming"},
    "in_batch uncorrected": {"correction": "none"},
    "memory": {"size": 50},
    "memory shorter than a batch by windows": {"size": 7, "epsilon": 0.4, "share_draws_by": "window"},
    "memory with a total weight": {"size": 30, "total_weight": 1.5},
    "hardest": {"inner": {"source": "uniform", "k": 12}},
    "hardest of a shared pool": {"choose": "hardest", "inner": {"source": "unigram", "k": 12,
                                                                "share_draws_by": "batch"}},
    "hardest of the top": {"choose": "hardest", "top": 9, "inner": {"source": "uniform", "k": 12}},
    "hardest below the target": {"choose": "hardest", "max_share": 0.9, "min_gap": 0.2,
                                 "inner": {"source": "uniform", "k": 30}},
    "hardest until a violation": {"choose": "violation", "inner": {"source": "uniform", "k": 24}},
    "most_informative": {},
    "synthetic_projection": {"k": 1},
    "synthetic_difference": {"k": 1},
    "mixture": {"inner": {"source": "cluster", "clusters": 5}},
    "mixture of an adversary and uniform": {
        "inner": {"source": "ace", "min_perplexity": 4, "generator_lr": 0.05},
        "plain": {"source": "uniform"}, "epsilon": 0.15},
    "mixture of a mixture of an adversary": {
        "epsilon": 0.05, "inner": {"source": "mixture", "plain": {"source": "uniform"},
                                   "inner": {"source": "ace", "min_perplexity": 4, "generator_lr": 0.05}}},
    "mixture of an adversarial tree": {
        "inner": {"source": "adversarial_tree", "pairs": 500, "features": 4}, "epsilon": 0.2},
    "midx": {"codewords": 3},
    "midx without the target": {"codewords": 3, "exclude_target": True},
    "midx product quantization": {"codewords": 3, "quantisation": "product", "within_cell": "unigram"},
    "midx quantized by windows": {"codewords": 3, "within_cell": "quantized", "share_draws_by": "window"},
    "midx exact inside": {"codewords": 3, "within_cell": "exact", "quantisation": "product"},
    "exp without the target": {},
    "exp": {"exclude_target": False},
    "exp of a stale table by windows": {"exclude_target": False, "update_every": 3, "share_draws_by": "window"},
    "quadratic": {},
    "quadratic without the target": {"leaf_size": 5, "branching": 4, "exclude_target": True},
    "rff": {"features": 64, "nu": 0.1},
    "rff with leaves without the target": {"features": 64, "temperature": 3.0, "branching": 4, "leaf_size": 6,
                                           "leaf_order": "frequency", "directions": "structured",
                                           "exclude_target": True},
    "rff quantized": {"features": 64, "nu": 0.1, "branching": 4, "leaf_size": 6, "within_leaf": "quantized"},
    "rff with features": {"features": 64, "nu": 0.1, "branching": 4, "leaf_size": 6, "keep_features": True},
    "rff with float32 sums": {"features": 64, "nu": 0.1, "sum_dtype": "float32"},
    "rff with a prior by windows": {"features": 64, "nu": 0.1, "prior_exponent": 0.75, "directions": "orthogonal",
                                    "share_draws_by": "window"},
    "maclaurin": {"features": 64, "nu": 0.1},
    "adversarial_tree": {"pairs": 500, "features": 4},
    "adversarial_tree fitted again by windows": {"pairs": 200, "fits": None, "share_draws_by": "window", "ridge": 1.0},
    "adversarial_tree with a total weight before its fit": {"fits": 0, "total_weight": 1.5},
    "nscaching": {"cache_size": 8, "pool_size": 6},
    "nscaching with rare updates shared by windows": {"cache_size": 5, "pool_size": 9, "share_draws_by": "window",
                                                "update_every": 3},
    "kbgan": {"candidates": 8, "hidden": 6, "generator_lr": 0.01},
    "kbgan complex shared by windows": {"candidates": 8, "hidden": 6, "generator": "complex",
                                                   "generator_lr": 0.1, "share_draws_by": "window"},
    "positive_features": {"features": 64},
    "positive_features bounded without the target": {"features": 64, "kind": "bounded", "exclude_target": True},
    "positive_features with int8 sums without the target": {"features": 64, "sum_dtype": "int8",
                                                                   "exclude_target": True},
}


def source(case: str, seed: int = 3, of: ProblemSpec | None = None, **more: Any) -> NegativeSource:
    name = case.split()[0]
    source_class = base.find(name)
    settings = {"source": name, "k": 4, **more, **CASES[case]} if case in VECTORS \
        else {"source": name, "k": 4, **CASES[case], **more}
    return source_class(source_class.Config(**settings), of or tiny_problem(seed))


@functools.cache
def example(case: str) -> NegativeSource:
    """A source of this case whose traits and settings tests read while they are collected; never drawn from."""
    return source(case)


#: Cases whose negatives are generated vectors, one per row.
VECTORS = [case for case in CASES if "synthetic" in base.find(case.split()[0]).traits.components]

#: Cases whose contexts can also have two columns, an entity and a relation.
OF_PAIRS = [case for case in CASES if case.split()[0] in ("ace", "nscaching", "kbgan")]


#: Cases that draw the same for every seed.
DETERMINISTIC = ("every", "none", "most_informative", "synthetic_projection", "synthetic_difference")


def case_of(name: str) -> SourceCase:
    """The case in the format of embtrain.testing."""
    return SourceCase(base.find(name.split()[0]), CASES[name], name in DETERMINISTIC)


@dataclass(frozen=True)
class TableBatch(Batch):
    context: Tensor
    window: Tensor


class Table(Model):
    """s(a, b) is a free parameter for each pair, so that any optimum can be reached."""

    name = "table"
    geometry = "dot"

    def __init__(self, of: ProblemSpec):
        super().__init__(ModelConfig(name="table", dim=of.n_candidates), of)
        assert of.n_contexts is not None
        self.s = torch.nn.Parameter(torch.zeros(of.n_contexts, of.n_candidates, dtype=torch.float64))
        self.one = torch.eye(of.n_candidates, dtype=torch.float64)

    def encode(self, batch: Batch) -> Query:
        assert isinstance(batch, TableBatch)
        group = torch.unique(batch.context, return_inverse=True)[1]
        return Query(self.s[batch.context], batch.context, batch.target, batch.slot, group, batch.window)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return query.vector.gather(1, candidates.expand(len(query), -1))

    def table(self) -> Tensor:
        return self.one


def gradient_error(o: Tensor, c: Tensor, target: Tensor, log_q: Tensor, m: int, draws: int,
                   random: torch.Generator) -> GradientError:
    """Bias and rmse of ∇' over `draws` draws of m columns from q̄, for a source that states log q of all (B, n)."""
    log_q = without_target(log_q, target)
    cdf = log_q.exp().cumsum(1)
    total = cdf[:, -1:]

    def draw(rows: int) -> tuple[Tensor, Tensor]:
        u = torch.rand(len(o), rows * m, generator=random, dtype=torch.float64, device=o.device) * total
        ids = torch.searchsorted(cdf, u, right=True).clamp(max=o.shape[1] - 1)
        return ids.view(-1, rows, m), (log_q.gather(1, ids) + math.log(m)).view(-1, rows, m)

    return error_of_draws(o, c, target, m, draws, draw)
