"""A trained model as if it had fewer candidates: how sources do as n grows, on one model's own vectors.

Candidate j of n is candidate ids[j] of all. Sets are nested: the targets that are asked about, then others in an order
drawn once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from embtrain.common.types import ModelView, ProblemSpec, Query

STEP = 4      # each set has so many times the candidates of the one before
LEAST = 4     # the smallest has so many times the targets


def nested(targets: Tensor, n_candidates: int, seed: int) -> list[Tensor]:
    """Ascending ids of each set, (n,) with n = V / 4, V / 16, ...; the smallest set first, none where all are few."""
    asked = torch.unique(targets)
    others = torch.ones(n_candidates, dtype=torch.bool).index_fill_(0, asked, False).nonzero().flatten()
    order = torch.randperm(len(others), generator=torch.Generator().manual_seed(seed))
    everyone = torch.cat([asked, others[order]])
    found, n = list[Tensor](), n_candidates // STEP
    while n >= LEAST * len(asked):
        found.insert(0, everyone[:n].sort().values)
        n //= STEP
    return found


@dataclass(frozen=True, eq=False)
class SubsetView:
    """The view of some candidates, ids (n,) ascending, of another view's."""

    of: ModelView
    ids: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", self.of.table().index_select(0, self.ids))

    @property
    def n_candidates(self) -> int:
        return len(self.ids)

    @property
    def geometry(self) -> str:
        return self.of.geometry

    @property
    def tau(self) -> float:
        return self.of.tau

    @property
    def has_frozen_table(self) -> bool:
        return self.of.has_frozen_table

    def table(self) -> Tensor:
        return self._rows  # type: ignore[attr-defined]

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return self.of.score(query, candidates if candidates.is_floating_point() else self.ids[candidates])

    def asked(self, query: Query) -> Query:
        """The same questions; their targets are among ids."""
        return replace(query, target=torch.searchsorted(self.ids, query.target))

    def world(self, world: ProblemSpec) -> ProblemSpec:
        def some(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[self.ids.to(x.device)]
        words: Sequence[str] | None = None if world.words is None else [world.words[i] for i in self.ids.tolist()]
        return replace(world, n_candidates=len(self.ids), counts=world.counts[self.ids.to(world.counts.device)],
                       raw_counts=some(world.raw_counts), words=words)
