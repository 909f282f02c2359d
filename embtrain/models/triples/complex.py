"""ComplEx: a relation weights complex dimensions, so scores need not be symmetric in h and t (Trouillon et al. 2016).

    s(h, r, t) = Re Σ_d h_d r_d t̄_d      q = h ∘ r to predict the tail, t ∘ r̄ to predict the head:
                                         s = Re Σ_d q_d b̄_d = q · b

A vector has D/2 real parts, then D/2 imaginary parts; the dot product is over all D.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from embtrain.common.types import ProblemSpec, Query
from embtrain.models.base import require_even
from embtrain.models.distances import moduli
from embtrain.models.products import dot_scores
from embtrain.models.triples.base import FactorConfig, FactorModel


class ComplExConfig(FactorConfig):
    """Configuration keys of ComplEx."""

    name: str = "complex"


class ComplEx(FactorModel):
    """ComplEx: tables e (V, D), r (R, D)."""

    name: ClassVar[str] = "complex"
    Config = ComplExConfig
    config: ComplExConfig

    def __init__(self, config: ComplExConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        require_even(config.name, config.dim, "real and half for imaginary parts")
        span = math.sqrt(1.5 / config.dim)
        self.e = nn.Parameter(self.uniform(problem.n_candidates, config.dim, span))
        self.r = nn.Parameter(self.uniform(self.n_relations, config.dim, span))
        self.to(problem.device)

    def query_vector(self, entity: Tensor, relation: Tensor, sign: Tensor) -> Tensor:
        return complex_product(self.rows(entity, self.e), self.rows(relation, self.r), sign)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return dot_scores(query.vector, self.e, candidates, self.sparse)

    def absolute_values(self, x: Tensor) -> Tensor:
        return moduli(x)


def complex_product(x: Tensor, y: Tensor, sign: Tensor) -> Tensor:
    """Return x ∘ y for complex vectors (B, D), or x ∘ ȳ where the sign (B, 1) is −1."""
    (a, b), (c, d) = x.chunk(2, 1), y.chunk(2, 1)
    d = sign * d
    return torch.cat([a * c - b * d, a * d + b * c], 1)
