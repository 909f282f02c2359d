"""DistMult: a relation weights the dimensions (Yang et al. 2015).

    s(h, r, t) = Σ_d h_d r_d t_d        q = h ∘ r to predict the tail, t ∘ r to predict the head: s = q · b

Scores are symmetric in h and t, so a relation cannot be distinguished from its inverse.
"""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor, nn

from embtrain.common.types import ProblemSpec, Query
from embtrain.models.products import dot_scores
from embtrain.models.triples.base import FactorConfig, FactorModel


class DistMultConfig(FactorConfig):
    """Configuration keys of DistMult."""

    name: str = "distmult"


class DistMult(FactorModel):
    """DistMult: tables e (V, D), r (R, D)."""

    name: ClassVar[str] = "distmult"
    Config = DistMultConfig
    config: DistMultConfig

    def __init__(self, config: DistMultConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        span = math.sqrt(1.5 / config.dim)
        self.e = nn.Parameter(self.uniform(problem.n_candidates, config.dim, span))
        self.r = nn.Parameter(self.uniform(self.n_relations, config.dim, span))
        self.to(problem.device)

    def query_vector(self, entity: Tensor, relation: Tensor, sign: Tensor) -> Tensor:
        return self.rows(entity, self.e) * self.rows(relation, self.r)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return dot_scores(query.vector, self.e, candidates, self.sparse)
