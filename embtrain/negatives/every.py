"""All candidates, once each: the exact sum Z_a = Σ_b e^{s(a,b)} in place of an estimate.

The total weight is M = V and q = 1 / V, so M q = 1 for each negative, and an estimate over the negatives is the sum
itself. With the softmax loss this gives the full softmax ([nce_note] eq. 4-5), scored once per distinct query of a
batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits


class Every(NegativeSource):
    """All candidates as negatives, with q = 1 / V."""

    name = "every"
    traits = Traits(iid=False, exhaustive=True)

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.ids = torch.arange(problem.n_candidates, device=problem.device).unsqueeze(0)               # (1, V)
        self.log_q = torch.full((1, 1), -math.log(problem.n_candidates), dtype=torch.float32, device=problem.device)
        self.mass = torch.full((1, 1), float(problem.n_candidates), dtype=torch.float32, device=problem.device)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        return Negatives(
            self.ids, log_q=self.log_q, log_q_target=self.log_q[0].expand(len(query)), total_weight=self.mass
        )

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return self.log_q.expand(len(query), ids.shape[1])
