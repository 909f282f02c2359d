"""Restrict a trained model to a subset of its candidates, to measure how samplers scale with n.

Candidate j of n is candidate ids[j] of all. Subsets are nested: the targets of the queries, then others in one random
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from embtrain.common.types import ModelView, ProblemSpec, Query

RATIO = 4      # size of a subset relative to the next smaller one
MIN_RATIO = 4     # minimum size of the smallest, relative to the number of targets


def nested_subsets(targets: Tensor, n_candidates: int, seed: int) -> list[Tensor]:
    """Ascending ids of each subset, (n,) with n = V / 4, V / 16, ...; smallest first, empty if V is small."""
    unique_targets = torch.unique(targets)
    others = torch.ones(n_candidates, dtype=torch.bool).index_fill_(0, unique_targets, False).nonzero().flatten()
    order = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
    ordered = torch.cat([unique_targets, others[order]])
    subsets, n = list[Tensor](), n_candidates // RATIO
    while n >= MIN_RATIO * len(unique_targets):
        subsets.insert(0, ordered[:n].sort().values)
        n //= RATIO
    return subsets


@dataclass(frozen=True, eq=False)
class SubsetView:
    """View of the candidates `ids` (n,), ascending, of another view."""

    full: ModelView
    ids: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", self.full.table().index_select(0, self.ids))

    @property
    def n_candidates(self) -> int:
        return len(self.ids)

    @property
    def geometry(self) -> str:
        return self.full.geometry

    @property
    def tau(self) -> float:
        return self.full.tau

    @property
    def has_frozen_table(self) -> bool:
        return self.full.has_frozen_table

    def table(self) -> Tensor:
        return self._rows  # type: ignore[attr-defined]

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return self.full.score(query, candidates if candidates.is_floating_point() else self.ids[candidates])

    def restrict_query(self, query: Query) -> Query:
        """The same queries with targets as positions in `ids`, which must contain them."""
        return replace(query, target=torch.searchsorted(self.ids, query.target))

    def restrict_problem(self, problem: ProblemSpec) -> ProblemSpec:
        def select(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[self.ids.to(x.device)]
        words: Sequence[str] | None = None if problem.words is None else [problem.words[i] for i in self.ids.tolist()]
        return replace(problem, n_candidates=len(self.ids), counts=problem.counts[self.ids.to(problem.counts.device)],
                       raw_counts=select(problem.raw_counts), words=words)
