"""Base of models of hierarchies: one table x of concepts, and a score of the pair (hyponym u, hypernym v).

    slot 0: predict the hypernym v of u       slot 1: predict the hyponym u of v

A subclass defines the score of a pair, `pair_score`, which training uses, and `entailment_score`, which evaluation
uses. They are equal unless the subclass says otherwise.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.kernels.arguments.pairs import HyperbolicSpace
from embtrain.models.base import Model, ModelConfig, rank_keys
from embtrain.models.distances import evaluate_in_pieces

# elements of an array of differences (B, K, D): it fits the cache, which is seven times as fast as memory
MAX_DIFFERENCES = 1 << 18


class HierarchyModel(Model):
    """Base of models of hierarchies. Subclasses implement `start`, `entailment_score`, and mostly nothing else."""

    task: ClassVar[str] = "pairs"
    start_scale: float = 1.0  # factor of the vectors of `train.start`

    def __init__(self, config: ModelConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if problem.context_sizes is None or len(problem.context_sizes) != 2:
            raise UsageError(f"model.name: {self.name} needs pairs of concepts, but this corpus has none; choose "
                             "another model or corpus")
        self.x = nn.Parameter(self.start(torch.Generator().manual_seed(problem.seed)))
        self.to(problem.device)

    def start(self, generator: torch.Generator) -> Tensor:
        """Return the initial table, (V, D)."""
        raise AbstractMethod(self, "start")

    def keep_bounds(self) -> None:
        """Move the rows that the last update changed, all rows without a gradient, to the nearest allowed values."""

    def space(self) -> HyperbolicSpace:
        """Return the score and the bounds for the compiled update; only of points in hyperbolic space."""
        raise AbstractMethod(self, "space")

    def after_update(self, batch: Batch) -> None:
        self.keep_bounds()

    def encode(self, batch: Batch) -> Query:
        return Query(self.rows(batch.concept), *self.query_fields(batch))              # type: ignore[attr-defined]

    def query_fields(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the fields of a query after its vector: context (B, 2), target, slot, query_id."""
        concept, slot = batch.concept, batch.slot                                  # type: ignore[attr-defined]
        return torch.stack([concept, slot], 1), batch.target, slot, rank_keys(2 * concept + slot)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        h, slot = query.vector, query.slot
        if candidates.is_floating_point():
            return self.score_rows(h, slot, candidates)
        step = max(1, MAX_DIFFERENCES // max(1, h.numel()))
        if candidates.shape[1] <= step:
            return self._score_ids(h, slot, candidates)
        # The differences to all candidates are too many to keep at once.
        return evaluate_in_pieces(self._score_ids, ((h, slot, piece) for piece in candidates.split(step, 1)), 1,
                                  candidates.shape[1])

    def table(self) -> Tensor:
        return self.x

    def rows(self, ids: Tensor) -> Tensor:
        """Return the vectors of concepts, ids.shape + (D,), with gradients."""
        return nn.functional.embedding(ids, self.x, sparse=self.sparse)

    def score_rows(self, h: Tensor, slot: Tensor, c: Tensor) -> Tensor:
        """Score the vectors c (1|B, K, D) as the open end `slot` (B,) of queries with vectors h (B, D): (B, K)."""
        h, is_hypernym = h.unsqueeze(1), (slot == 0).view(-1, 1, 1)
        # In float32 for sources and losses, whatever the table needs.
        return self.pair_score(torch.where(is_hypernym, h, c), torch.where(is_hypernym, c, h)).to(torch.float32)

    def pair_score(self, u: Tensor, v: Tensor) -> Tensor:
        """Score the pairs of hyponyms u and hypernyms v (..., D) in training: (...)."""
        return self.entailment_score(u, v, self.config)

    def _score_ids(self, h: Tensor, slot: Tensor, ids: Tensor) -> Tensor:
        return self.score_rows(h, slot, self.rows(ids))
