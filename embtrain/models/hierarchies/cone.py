"""Entailment cones in the Poincaré ball: a hyponym is a point in the cone of its hypernym. [ganea2018] eq. 25 to 33.

    ψ(v) = arcsin(K (1 − ‖v‖²) / ‖v‖)      half-aperture of the cone of v: narrower towards the rim
    Ξ(v, u) = angle at v between the ray that leaves the origin and the geodesic from v to u
    s(u, v) = ψ(v) − Ξ(v, u)               at least 0 if u is in the cone of v, and then so is the cone of u

The energy of the paper is E = max(0, −s). The score also grades pairs inside the cone; with the `order` loss the hinge
of E remains for positives. Ξ is computed by atan2, which is accurate for all angles, unlike arccos.

ψ exists for ‖v‖ ≥ 2K / (1 + √(1 + 4K²)) only, where it is π/2. Points are kept from there to MAX_NORM, in float64, and
trained with Riemannian gradients (riemannian.py).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.types import ProblemSpec
from embtrain.kernels.arguments.pairs import HyperbolicSpace
from embtrain.models.base import ModelConfig
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.hierarchies.bounds import MAX_NORM, keep_norms
from embtrain.models.hierarchies.riemannian import ball_inverse_metric, with_inverse_metric


class ConeConfig(ModelConfig):
    """Configuration keys of entailment cones."""

    name: str = "cone"
    dim: int = Field(10, ge=1, le=65_536, description="D, embedding dimension")
    aperture: float = Field(0.1, gt=0, le=10, description="K, sine of the half-aperture times ‖v‖ / (1 − ‖v‖²)")
    start: float = Field(0.1, gt=0, lt=1, description="upper bound of the initial distances from the smallest norm")
    start_scale: float = Field(1.0, gt=0, le=1, description=(
        "factor of the vectors of train.start; below 1, points of Poincaré embeddings move away from the rim, where "
        "cones are narrow"))
    table_dtype: ClassVar[torch.dtype] = torch.float64


class Cone(HierarchyModel):
    """Entailment cones: one table x (V, D) of points in the Poincaré ball, float64."""

    name: ClassVar[str] = "cone"
    Config = ConeConfig
    geometry = "order"
    entailment: ClassVar[str] = "ψ(v) − Ξ(v, u)"
    config: ConeConfig
    unpadded_tables = frozenset({"x"})  # the compiled update reads contiguous float64

    def __init__(self, config: ConeConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.start_scale = config.start_scale

    def start(self, generator: torch.Generator) -> Tensor:
        shape, dtype = (self.problem.n_candidates, self.config.dim), self.config.table_dtype
        direction = torch.randn(shape, generator=generator, dtype=dtype, device="cpu")
        toss = torch.rand(shape[0], 1, generator=generator, dtype=torch.float32, device="cpu")
        norm = min_norm(self.config.aperture) + self.config.start * toss
        return torch.nn.functional.normalize(direction, dim=1) * norm.to(dtype).clamp(max=MAX_NORM)

    def rows(self, ids: Tensor) -> Tensor:
        rows = super().rows(ids)
        return with_inverse_metric(rows, ball_inverse_metric(rows))

    @staticmethod
    def entailment_score(u: Tensor, v: Tensor, config: ModelConfig) -> Tensor:
        assert isinstance(config, ConeConfig)
        return half_aperture(v, config.aperture) - angle(v, u)

    def space(self) -> HyperbolicSpace:
        return HyperbolicSpace("cone", self.config.aperture, min_norm(self.config.aperture), MAX_NORM)

    def keep_bounds(self) -> None:
        keep_norms(self.x, self.x.grad, *self.space()[2:])


def min_norm(aperture: float) -> float:
    """Return the norm from which points have a cone, where its half-aperture is π/2."""
    return 2 * aperture / (1 + (1 + 4 * aperture**2) ** 0.5)


def half_aperture(v: Tensor, aperture: float) -> Tensor:
    """Return ψ(v) of points (..., D), (...). [ganea2018] eq. 26."""
    norm = torch.linalg.vector_norm(v, dim=-1)
    # The slope of arcsin at 1 is infinite; a point may get there by rounding.
    return (aperture * (1 - norm.square()) / norm).clamp(max=1 - 1e-12).asin()


def angle(v: Tensor, u: Tensor) -> Tensor:
    """Return Ξ(v, u) of points (..., D), (...), in [0, π]; 0 if u = v. [ganea2018] eq. 28.

    The geodesic leaves v in the direction w = (1 − ‖v‖²) δ − ‖δ‖² v with δ = u − v.
    """
    norm, delta = torch.linalg.vector_norm(v, dim=-1, keepdim=True), u - v
    axis, shrunk = v / norm, 1 - norm.square()
    outward = (axis * delta).sum(-1, keepdim=True)
    across = (shrunk * torch.linalg.vector_norm(delta - outward * axis, dim=-1, keepdim=True)).squeeze(-1)
    along = (shrunk * outward - delta.square().sum(-1, keepdim=True) * norm).squeeze(-1)
    return torch.atan2(across, along)
