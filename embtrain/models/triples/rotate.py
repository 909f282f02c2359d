"""RotatE: a relation rotates each complex dimension (Sun et al. 2019).

    s(h, r, t) = −Σ_d |h_d e^{iθ_d} − t_d|        q = h ∘ e^{iθ} to predict the tail, t ∘ e^{−iθ} to predict the head:
                                                  s = −Σ_d |q_d − b_d|

A vector has D/2 real parts, then D/2 imaginary parts; a relation has D/2 angles θ.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.types import ProblemSpec, Query
from embtrain.models.base import ModelConfig, require_even
from embtrain.models.distances import has_shared_kernel, moduli, pairwise_scores, shared_scores
from embtrain.models.triples.base import TripleModel
from embtrain.models.triples.complex import complex_product


class RotatEConfig(ModelConfig):
    """Configuration keys of RotatE."""

    name: str = "rotate"
    span: float | None = Field(None, gt=0, description="entities are initialized from U(-span, span); null: 6/sqrt(D)")


class RotatE(TripleModel):
    """RotatE: tables e (V, D) and r (R, D/2), the angles."""

    name: ClassVar[str] = "rotate"
    Config = RotatEConfig
    geometry = "modulus"
    config: RotatEConfig

    def __init__(self, config: RotatEConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        require_even(config.name, config.dim, "real and half for imaginary parts")
        self.e = nn.Parameter(self.uniform(problem.n_candidates, config.dim, config.span or 6 / math.sqrt(config.dim)))
        self.r = nn.Parameter(self.uniform(self.n_relations, config.dim // 2, math.pi))
        self.to(problem.device)

    def query_vector(self, entity: Tensor, relation: Tensor, sign: Tensor) -> Tensor:
        angle = self.rows(relation, self.r)
        return complex_product(self.rows(entity, self.e), torch.cat([angle.cos(), angle.sin()], 1), sign)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        if has_shared_kernel(query.vector, candidates):
            return shared_scores(query.vector, self.e, candidates, "modulus", self.sparse)
        return pairwise_scores(query.vector, self.e, candidates, _between, self.sparse)


def _between(q: Tensor, c: Tensor) -> Tensor:
    return -moduli(q - c).sum(2)
