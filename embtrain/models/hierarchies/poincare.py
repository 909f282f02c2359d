"""Poincaré embeddings: related concepts are near each other in the Poincaré ball, general ones near its centre.
[nickel2017].

    d(u, v) = 2 arsinh(‖u − v‖ / √((1 − ‖u‖²)(1 − ‖v‖²)))       eq. 1, there as arcosh
    s(u, v) = −d(u, v)                                          in training: symmetric
    is-a    = −(1 + α (‖v‖ − ‖u‖)) d(u, v)                      in evaluation, eq. 7: a hypernym v has the smaller norm

The paper trains with a softmax over a positive and its k uniform negatives (eq. 5):

    L = −log( e^{s_t} / (e^{s_t} + c Σ_j e^{s_j}) )             c = 1

The strategy `poincare` corrects negatives for q = 1/V, as `sampled_softmax` does: c = V/k. Without masked negatives,
the loss `contrastive` has c = 1. Its `loss.floor` must be below the scores, which reach −25.

Points are kept within MAX_NORM, in float64, and trained with Riemannian gradients (riemannian.py).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from embtrain.kernels.arguments.pairs import HyperbolicSpace
from embtrain.models.base import ModelConfig
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.hierarchies.bounds import MAX_NORM, keep_norms
from embtrain.models.hierarchies.riemannian import ball_inverse_metric, with_inverse_metric

TINY = 1e-30  # under a root: its slope at 0 is infinite


class PoincareConfig(ModelConfig):
    """Configuration keys of Poincaré embeddings."""

    name: str = "poincare"
    dim: int = Field(10, ge=1, le=65_536, description="D, embedding dimension")
    alpha: float = Field(1000.0, ge=0, le=1e9, description="α, weight of the norms when pairs are evaluated")
    start: float = Field(0.001, gt=0, le=0.1, description="bound of the initial coordinates")
    table_dtype: ClassVar[torch.dtype] = torch.float64


class Poincare(HierarchyModel):
    """Poincaré embeddings: one table x (V, D) of points in the Poincaré ball, float64."""

    name: ClassVar[str] = "poincare"
    Config = PoincareConfig
    geometry = "hyperbolic"
    entailment: ClassVar[str] = "is-a score of norms and distance"
    config: PoincareConfig
    unpadded_tables = frozenset({"x"})  # the compiled update reads contiguous float64

    def start(self, generator: torch.Generator) -> Tensor:
        shape, dtype = (self.problem.n_candidates, self.config.dim), self.config.table_dtype
        uniform = torch.rand(shape, generator=generator, dtype=dtype, device="cpu")
        # A bound of .1 keeps points in the ball up to 99 dimensions; beyond, they start at its rim.
        x = (2 * uniform - 1) * self.config.start
        return x * (MAX_NORM / torch.linalg.vector_norm(x, dim=1, keepdim=True)).clamp(max=1)

    def rows(self, ids: Tensor) -> Tensor:
        rows = super().rows(ids)
        return with_inverse_metric(rows, ball_inverse_metric(rows))

    def pair_score(self, u: Tensor, v: Tensor) -> Tensor:
        return -distance(u, v)

    @staticmethod
    def entailment_score(u: Tensor, v: Tensor, config: ModelConfig) -> Tensor:
        assert isinstance(config, PoincareConfig)
        deeper = torch.linalg.vector_norm(v, dim=-1) - torch.linalg.vector_norm(u, dim=-1)
        return -(1 + config.alpha * deeper) * distance(u, v)

    def space(self) -> HyperbolicSpace:
        return HyperbolicSpace("poincare", 0.0, 0.0, MAX_NORM)

    def keep_bounds(self) -> None:
        keep_norms(self.x, self.x.grad, *self.space()[2:])


def distance(u: Tensor, v: Tensor) -> Tensor:
    """Return the hyperbolic distance d(u, v) of points of the ball (..., D), (...)."""
    room = (1 - u.square().sum(-1)) * (1 - v.square().sum(-1))
    return 2 * (((u - v).square().sum(-1) + TINY) / room).sqrt().asinh()
