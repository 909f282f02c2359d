"""A tiny problem with a fixed model, against which sources are checked: 6 contexts, 40 candidates, 8 dimensions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from embtrain.common.candidate_lists import CandidateLists, FixedLists
from embtrain.common.types import ProblemSpec, Query
from embtrain.negatives.base import NegativeSource
from embtrain.train.engines.draws import costs_for_source
from embtrain.train.engines.false_negatives import mark_false_negatives

CONTEXTS, V, D = 6, 40, 8
FEW_STEPS = 12  # of learning, for rules that hold for any q; the others need a q that is far from uniform


def tiny_problem(seed: int = 3) -> ProblemSpec:
    """Problem of V candidates with counts from 10 to 100, and lists of candidates for all contexts but the last."""
    draw = torch.Generator().manual_seed(0)
    counts = (torch.rand(V, generator=draw, dtype=torch.float64) * 90 + 10).round()
    return ProblemSpec(V, counts, CONTEXTS, raw_counts=counts.flip(0), dim=D, seed=seed, lists=FixedLists(lists()))


def lists() -> CandidateLists:
    """Lists of 1, 3, 5, ... candidates with weights from 1 to 4, for the contexts 0, 1, 2, ..."""
    size = 2 * np.arange(CONTEXTS - 1) + 1
    ids = np.arange(size.sum()) * 7 % V
    return CandidateLists.from_entries((0,), np.repeat(np.arange(CONTEXTS - 1), size)[:, None], ids, 1.0 + ids % 4)


def query(rows: int = 30, seed: int = 1, contexts: int = CONTEXTS, windows: int = 4) -> Query:
    """Queries of a batch, sorted by context; at most `windows` rows share a window, and a window has one context."""
    draw = torch.Generator().manual_seed(seed)
    context = torch.randint(contexts, (rows,), generator=draw).sort().values
    target = torch.randint(V, (rows,), generator=draw)
    query_id = torch.unique(context, return_inverse=True)[1]
    vector = torch.nn.functional.normalize(torch.randn(contexts, D, generator=draw), dim=1)[context]
    window = torch.unique_consecutive(context * rows + torch.arange(rows) // windows, return_inverse=True)[1]
    return Query(vector, context, target, torch.zeros_like(target), query_id, window)


def paired(context: Tensor) -> Tensor:
    """Split a context (n,) into two columns (n, 2) of 3 and 2 values."""
    return torch.stack([context // 2, context % 2], 1)


class TableView:
    """View of a trained model: scores (contexts, V) that favour a few candidates of each context."""

    geometry, tau, has_frozen_table = "dot", 1.0, False

    def __init__(self, scale: float = 4.0):
        draw = torch.Generator().manual_seed(9)
        self.scores = scale * torch.randn(CONTEXTS, V, generator=draw)
        self._table = torch.randn(V, D, generator=draw)
        self.n_candidates = V

    def table(self) -> Tensor:
        return self._table

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        context = query.context if query.context.ndim == 1 else query.context @ torch.tensor([2, 1])
        return self.scores[context.unsqueeze(1), candidates.expand(len(query), -1)]


class EmptyView:
    """View that raises at every access, for sources without the trait `uses_model`."""

    n_candidates, geometry, tau, has_frozen_table = V, "dot", 1.0, False

    def table(self) -> Tensor:
        raise AssertionError("view.table() is called")

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        raise AssertionError("view.score() is called")


def trained(source: NegativeSource, steps: int = 50) -> NegativeSource:
    """Run `steps` learning steps against the fixed view, then a refresh; return the source."""
    view = TableView()
    for step in range(steps):
        batch = query(60, seed=100 + step)
        if source.problem.context_sizes is not None:
            batch = replace(batch, context=paired(batch.context))
        drawn = mark_false_negatives(source.draw(batch, source.config.k, view), batch, "target", None)
        if source.traits.learns:
            ids = drawn.per_row(drawn.ids, len(batch))
            assert ids is not None, "a source that learns draws ids"
            cost = torch.nn.functional.softplus(view.score(batch, ids))
            source.learn(batch, drawn, costs_for_source(source, cost, drawn))
    source.on_epoch_start(view)
    return source
