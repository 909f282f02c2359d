"""Riemannian gradients and bounds of points in curved space [nickel2017], [ganea2018].

With the metric tensor G_x of a space, steepest descent follows the Riemannian gradient G_x⁻¹ ∂L/∂x.

    ball         G_x = (2 / (1 − ‖x‖²))² I,  ‖x‖ < 1: the Poincaré ball
    half-space   (y, t) with height h = eᵗ:  G = diag(I / h², 1)

`with_inverse_metric` multiplies the gradient that reaches gathered rows by the diagonal of G⁻¹. Any optimizer therefore
receives Riemannian gradients, dense or sparse. Its step x ← x + Δx is the first-order retraction. In the ball,
`keep_norms` then moves a point that left the allowed norms back along its radius. In the half-space every step is
valid, because t may be any number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MAX_NORM = 1 - 1e-5  # of points of the ball: 1 − ‖x‖² keeps eleven digits in float64


class _WithInverseMetric(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a given factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


def with_inverse_metric(x: Tensor, inverse_metric: Tensor) -> Tensor:
    """Return x, with gradients multiplied by G⁻¹: a diagonal that broadcasts to x, without gradient."""
    return _WithInverseMetric.apply(x, inverse_metric.detach())


def ball_inverse_metric(x: Tensor) -> Tensor:
    """Return ((1 − ‖x‖²) / 2)² of points of the ball (..., D): (..., 1)."""
    return ((1 - x.detach().square().sum(-1, keepdim=True)) / 2).square()


@torch.no_grad()
def keep_norms(table: Tensor, grad: Tensor | None, low: float, high: float) -> None:
    """Move the rows of a table (V, D) that the last update changed into low ≤ ‖x‖ ≤ high, in place.

    grad: the gradient of the update; a sparse one names the rows, otherwise all rows are checked. Rows keep their
    direction; a row of zeros, which has none, moves along the first axis.
    """
    rows = grad._indices()[0].unique() if grad is not None and grad.is_sparse else None
    x = table if rows is None else table[rows]
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    moved = x * (norm.clamp(low, high) / norm)
    if low > 0:
        moved = torch.where(norm > 0, moved, torch.eye(1, x.shape[1], dtype=x.dtype, device=x.device) * low)
    x = torch.where((norm < low) | (norm > high), moved, x)
    if rows is None:
        table.copy_(x)
    else:
        table[rows] = x


def half_space_inverse_metric(x: Tensor) -> Tensor:
    """Return diag(h² I, 1) of points (y, log h) of the half-space (..., D): (..., D)."""
    factor = torch.ones_like(x)
    factor[..., :-1] = (2 * x.detach()[..., -1:]).exp()
    return factor
