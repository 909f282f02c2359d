"""TransE: a relation is a translation from head to tail (Bordes et al. 2013).

    s(h, r, t) = −‖h + r − t‖₁  or  −‖h + r − t‖₂
    q = h + r to predict the tail, t − r to predict the head: s = −‖q − b‖

Entities are projected to the unit sphere after each update, as in the paper, to the unit ball, or not at all.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.models.distances import distance_scores
from embtrain.models.triples.base import Entities, TripleConfig, TripleModel, project_rows


class TranslationalConfig(TripleConfig):
    """Configuration keys of TransE and TransD."""

    norm: Literal["l1", "l2"] = Field("l1", description="norm of the distance")
    entities: Entities = Field(
        "free", description="constraint of entity vectors; sphere: length 1, after each update; ball: at most 1")
    span: float | None = Field(
        None, gt=0, description=(
            "vectors are initialized from U(-span, span); null: 6/sqrt(D), with relations and, on a "
            "sphere, entities scaled to length 1"))


class TransEConfig(TranslationalConfig):
    """Configuration keys of TransE."""

    name: str = "transe"


class TransE(TripleModel):
    """TransE: tables e (V, D), r (R, D)."""

    name: ClassVar[str] = "transe"
    Config = TransEConfig
    config: TransEConfig

    def __init__(self, config: TransEConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.geometry = config.norm
        span = config.span or 6 / math.sqrt(config.dim)
        self.e = nn.Parameter(self.uniform(problem.n_candidates, config.dim, span))
        self.r = nn.Parameter(self.uniform(self.n_relations, config.dim, span))
        if config.span is None:
            project_rows(self.r.data, "sphere")
        project_rows(self.e.data, config.entities)
        self.to(problem.device)

    def query_vector(self, entity: Tensor, relation: Tensor, sign: Tensor) -> Tensor:
        return self.rows(entity, self.e) + sign * self.rows(relation, self.r)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return distance_scores(query.vector, self.e, candidates, self.config.norm, self.sparse)

    def after_update(self, batch: Batch) -> None:
        project_rows(self.e.data, self.config.entities)
