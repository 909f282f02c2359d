"""TransD: maps entities into a relation-specific space with projection vectors of entity and relation (Ji et al. 2015).

    b⊥ = b + (b_p · b) r_p        s(h, r, t) = −‖h⊥ + r − t⊥‖        (entities and relations of equal dimension)

b: vector of an entity, b_p: its projection vector; r and r_p: those of a relation. The projected candidate depends on
the relation, so a row of the table is (b, b_p) and a query vector is (q, r_p), with q = h⊥ + r to predict the tail and
t⊥ − r to predict the head. `vectors` returns b alone.

The paper squares the L2 norm in s and limits h, r, t, h⊥ and t⊥ to length at most 1. Here the norm is L1 or L2, not
squared. After each update, `entities` constrains b and b_p; relations and projected entities are free.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.models.distances import pairwise_scores, vector_norms
from embtrain.models.triples.base import TripleModel, project_rows
from embtrain.models.triples.transe import TranslationalConfig


class TransDConfig(TranslationalConfig):
    """Configuration keys of TransD."""

    name: str = "transd"


class TransD(TripleModel):
    """TransD: tables e (V, 2D), r (R, 2D), each a vector followed by its projection vector."""

    name: ClassVar[str] = "transd"
    Config = TransDConfig
    geometry = "projected"
    config: TransDConfig

    def __init__(self, config: TransDConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        # span: initialization from U(-span, span), by default 6/√d as in TransE
        d, span = config.dim, config.span or 6 / math.sqrt(config.dim)
        self.e = nn.Parameter(self.uniform(problem.n_candidates, 2 * d, span))
        self.r = nn.Parameter(self.uniform(self.n_relations, 2 * d, span))
        for part in (slice(0, d), slice(d, 2 * d)):
            if config.span is None:
                project_rows(self.r.data[:, part], "sphere")
            project_rows(self.e.data[:, part], config.entities)
        self.to(problem.device)

    def query_vector(self, entity: Tensor, relation: Tensor, sign: Tensor) -> Tensor:
        # sign: +1 to predict the tail, −1 to predict the head
        r, r_p = self.rows(relation, self.r).chunk(2, 1)
        return torch.cat([_project_onto_relation(self.rows(entity, self.e), r_p) + sign * r, r_p], 1)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return pairwise_scores(query.vector, self.e, candidates, self._between, self.sparse)

    def relation_table(self, relation: int) -> tuple[str, Tensor]:
        """Return the norm and the entities projected for a relation, b⊥ (V, D): scores are −‖q − b⊥‖."""
        return self.config.norm, _project_onto_relation(self.e, self.r[relation, self.config.dim:])

    def _between(self, query: Tensor, candidates: Tensor) -> Tensor:
        """Return s = −‖q − b⊥‖ for query vectors (q, r_p) and candidates (b, b_p)."""
        q, r_p = query.chunk(2, 2)
        return -vector_norms(q - _project_onto_relation(candidates, r_p), self.config.norm)

    def after_update(self, batch: Batch) -> None:
        d = self.config.dim
        for part in (slice(0, d), slice(d, 2 * d)):
            project_rows(self.e.data[:, part], self.config.entities)

    def vectors(self, which: str = "input") -> Tensor:
        return self.e[:, :self.config.dim]


def _project_onto_relation(entity: Tensor, r_p: Tensor) -> Tensor:
    """Return b⊥ for rows (b, b_p), (..., 2D), and r_p (..., D)."""
    b, b_p = entity.chunk(2, -1)
    return b + (b * b_p).sum(-1, keepdim=True) * r_p
