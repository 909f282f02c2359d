"""The output layer of a user's program, as a model that sources and losses read.

    s(a, b) = h_a · c_b + bias_b            (`dot`)
    s(a, b) = scale · cos(h_a, c_b)         (`cosine`)

A bias enters as one more dimension, h = [h, 1] and c = [c, bias], so that a source that approximates the softmax by
inner products follows the bias as well.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from embtrain.common.types import ProblemSpec, Query
from embtrain.models.base import Model, ModelConfig
from embtrain.models.products import cosine_scores, dot_scores
from embtrain.nn.arguments import HALF


class TableModel(Model):
    """Scores against the weight of the latest call. It holds references to the user's tensors, never parameters."""

    name = "table"

    def __init__(self, problem: ProblemSpec, similarity: Literal["dot", "cosine"], scale: float, frozen: bool):
        super().__init__(ModelConfig(name="table", dim=max(1, problem.dim)), problem)
        self.geometry, self.tau, self.has_frozen_table = similarity, scale, frozen
        self._weight: tuple[Tensor, Tensor | None] | None = None   # a tuple: a Parameter would be registered

    def use(self, weight: Tensor, bias: Tensor | None, sparse: bool) -> None:
        """Score against weight (V, D) and bias (V,) from now on. sparse: kind of the gradient of the weight."""
        self._weight, self.sparse = (weight, bias), sparse

    def release(self) -> None:
        """Forget the weight, so that its memory is not held."""
        self._weight = None

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        """Scores (B, K) of ids (1, K) or (B, K), or of vectors (B, K, D), at least in float32."""
        weight, bias = self._current()
        vector = query.vector
        if vector.dtype not in HALF or not torch.is_autocast_enabled(vector.device.type):    # autocast converts half
            if candidates.is_floating_point():
                vector, candidates = _of_one_dtype(vector, candidates)
            else:
                vector, weight = _of_one_dtype(vector, weight)
        if self.geometry == "cosine":
            scores = cosine_scores(vector, weight, candidates, self.sparse, self.tau)
        elif bias is None or candidates.is_floating_point():
            scores = dot_scores(vector, weight, candidates, self.sparse)
        else:
            scores = dot_scores(vector[:, :-1], weight, candidates, self.sparse) + bias[candidates]
        return scores.float() if scores.dtype in HALF else scores

    def table(self) -> Tensor:
        """Candidate vectors (V, D), or (V, D + 1) with a bias; at least in float32."""
        weight, bias = self._current()
        table = weight if bias is None else torch.cat([weight, bias.unsqueeze(1).to(weight.dtype)], 1)
        return table.float() if table.dtype in HALF else table

    def _current(self) -> tuple[Tensor, Tensor | None]:
        assert self._weight is not None, "use() precedes every score"
        return self._weight


def _of_one_dtype(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the larger dtype: sources compute in float32, and so do losses, whatever query and weight are."""
    dtype = torch.promote_types(a.dtype, b.dtype)
    return a.to(dtype), b.to(dtype)
