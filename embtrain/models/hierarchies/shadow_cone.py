"""Shadow cones in the half-space: light falls from above, and a hyponym is in the shadow of its hypernym. [yu2024].

Points (y, h) have a position y on the boundary and a height h > 0. a = ‖y_u − y_v‖, d: hyperbolic distance.

    umbral      light from h = ∞; concepts are balls of radius r; u is in the shadow if its ball is
                in the cone:  a ≤ sinh(r) (h_v − h_u)
    penumbral   light from all points of height H; concepts are points; the shadow has no light at all
                in the cone:  a ≤ √(H² − h_u²) − √(H² − h_v²)

    s(u, v) = − signed hyperbolic distance from u to the cone of v: positive inside. In training.

    umbral      arsinh((a − sinh(r) h_v) / h_u) + r,   if (a − sinh(r) h_v)² + h_u² ≤ (cosh(r) h_v)²
    penumbral   arsinh(sinh(d) sin θ),                 if cos θ ≥ 0
    both        d(u, v), otherwise: v itself is the nearest point of the edge

θ is the angle at v between the geodesic to u and the edge of the cone, whose half-aperture is ψ = arcsin(h_v / H):

    sinh(d) sin θ = a/h_u · cos ψ − c sin ψ        c = (h_v² − h_u² − a²) / (2 h_u h_v)
    sinh(d) cos θ = a/h_u · sin ψ + c cos ψ

Pairs are evaluated by angles instead, as in the paper: the half-aperture of v minus the angle at v between the axis
of the cone and u. Both scores are 0 at the edge. With another threshold the angle selects cones of another aperture,
which is again a transitive order for umbral cones; equal distances to an edge do not.

    umbral      arctan(sinh r) − arctan2(a, h_v − h_u)           Euclidean angle of the straight edge
    penumbral   ψ − Ξ,  sinh(d) sin Ξ = a/h_u,  sinh(d) cos Ξ = c        angle of the geodesic from v to u

Both orders are transitive. A row of the table is (y, t) with h = eᵗ, so that every row is a point; gradients are
Riemannian (riemannian.py). The penumbral half-space ends at H, where t is clamped.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.kernels.arguments.pairs import HyperbolicSpace
from embtrain.models.base import ModelConfig
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.hierarchies.bounds import keep_columns
from embtrain.models.hierarchies.riemannian import half_space_inverse_metric, with_inverse_metric

MAX_LOG_HEIGHT = 40.0  # |t|: the square of eᵗ and of its inverse are far from overflow, products of four too
TINY = 1e-30           # under a root: its slope at 0 is infinite


class ShadowConeConfig(ModelConfig):
    """Configuration keys of shadow cones."""

    name: str = "shadow_cone"
    dim: int = Field(10, ge=2, le=65_536, description="D, embedding dimension, of which one is the height")
    light: Literal["umbral", "penumbral"] = Field(
        "umbral", description="kind of cone: balls under light from infinity, or points under a source of some height")
    radius: float = Field(0.05, gt=0, le=10, description="umbral: r, hyperbolic radius of a concept")
    height: float = Field(20.0, gt=1, le=1e6, description="penumbral: H, height of the light; points start at 1")
    start: float = Field(1e-3, gt=0, le=1, description="bound of the initial coordinates around (0, h = 1)")
    table_dtype: ClassVar[torch.dtype] = torch.float64


class ShadowCone(HierarchyModel):
    """Shadow cones: one table x (V, D) of points (y, log h) of the half-space, float64."""

    name: ClassVar[str] = "shadow_cone"
    Config = ShadowConeConfig
    geometry = "order"
    entailment: ClassVar[str] = "half-aperture of v − angle of u"
    config: ShadowConeConfig
    unpadded_tables = frozenset({"x"})  # the compiled update reads contiguous float64

    def start(self, generator: torch.Generator) -> Tensor:
        shape, dtype = (self.problem.n_candidates, self.config.dim), self.config.table_dtype
        uniform = torch.rand(shape, generator=generator, dtype=dtype, device="cpu")
        return (2 * uniform - 1) * self.config.start

    def rows(self, ids: Tensor) -> Tensor:
        rows = super().rows(ids)
        return with_inverse_metric(rows, half_space_inverse_metric(rows))

    def pair_score(self, u: Tensor, v: Tensor) -> Tensor:
        return -signed_distance(u, v, self.config)

    @staticmethod
    def entailment_score(u: Tensor, v: Tensor, config: ModelConfig) -> Tensor:
        assert isinstance(config, ShadowConeConfig)
        gap = torch.linalg.vector_norm(u[..., :-1] - v[..., :-1], dim=-1)
        h_u, h_v, rise = u[..., -1].exp(), v[..., -1].exp(), v[..., -1] - u[..., -1]
        if config.light == "umbral":
            # h_v − h_u, with all digits if heights are close
            return math.atan(math.sinh(config.radius)) - torch.atan2(gap, h_u * rise.expm1())
        # sin Ξ sinh d = a / h_u and cos Ξ sinh d = c, both times 2 h_u h_v
        angle = torch.atan2(2 * gap * h_v, h_u.square() * (2 * rise).expm1() - gap.square())
        return (h_v / config.height).clamp(max=1 - 1e-12).asin() - angle

    def space(self) -> HyperbolicSpace:
        if self.config.light == "umbral":
            return HyperbolicSpace("umbral", self.config.radius, -MAX_LOG_HEIGHT, MAX_LOG_HEIGHT)
        return HyperbolicSpace("penumbral", self.config.height, -MAX_LOG_HEIGHT, math.log(self.config.height))

    def keep_bounds(self) -> None:
        keep_columns(self.x, self.x.grad, slice(-1, None), *self.space()[2:])


def signed_distance(u: Tensor, v: Tensor, config: ShadowConeConfig) -> Tensor:
    """Return the hyperbolic distance from u to the edge of the cone of v, negative inside, (...)."""
    gap = ((u[..., :-1] - v[..., :-1]).square().sum(-1) + TINY).sqrt()
    h_u, h_v = u[..., -1].exp(), v[..., -1].exp()
    inside, is_edge_nearest = (_umbral(gap, h_u, h_v, config.radius) if config.light == "umbral" else
                               _penumbral(gap, h_u, h_v, config.height))
    return torch.where(is_edge_nearest, inside, distance(gap, u[..., -1], v[..., -1]))


def distance(gap: Tensor, t_u: Tensor, t_v: Tensor) -> Tensor:
    """Return d(u, v) = 2 arsinh(√(a² + (h_u − h_v)²) / (2 √(h_u h_v))), (...), from a and log heights."""
    # |h_u − h_v| / (2 √(h_u h_v)) = sinh(|t_u − t_v| / 2)
    across = (gap.square() * (-t_u - t_v).exp()) / 4
    return 2 * (across + ((t_u - t_v) / 2).sinh().square()).sqrt().asinh()


def _umbral(gap: Tensor, h_u: Tensor, h_v: Tensor, r: float) -> tuple[Tensor, Tensor]:
    """Return the signed distance of u to the edge of the cone of v, and whether that is nearer than v."""
    outside = gap - math.sinh(r) * h_v
    return (outside / h_u).asinh() + r, outside.square() + h_u.square() <= (math.cosh(r) * h_v).square()


def _penumbral(gap: Tensor, h_u: Tensor, h_v: Tensor, height: float) -> tuple[Tensor, Tensor]:
    """Return the signed distance of u to the edge of the cone of v, and whether that is nearer than v."""
    sine = h_v / height
    cosine = ((1 - sine) * (1 + sine)).clamp_min(TINY).sqrt()
    across, down = gap / h_u, (h_v.square() - h_u.square() - gap.square()) / (2 * h_u * h_v)
    return (across * cosine - down * sine).asinh(), down * cosine + across * sine >= 0
