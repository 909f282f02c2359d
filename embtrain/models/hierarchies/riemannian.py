"""Riemannian gradients of points in curved space [nickel2017], [ganea2018].

With the metric tensor G_x of a space, steepest descent follows the Riemannian gradient G_x⁻¹ ∂L/∂x.

    ball         G_x = (2 / (1 − ‖x‖²))² I,  ‖x‖ < 1: the Poincaré ball
    half-space   (y, t) with height h = eᵗ:  G = diag(I / h², 1)

`with_inverse_metric` multiplies the gradient that reaches gathered rows by the diagonal of G⁻¹. Any optimizer therefore
receives Riemannian gradients, dense or sparse. Its step x ← x + Δx is the first-order retraction. In the ball, a point
that left the allowed norms then moves back along its radius (bounds.py). In the half-space every step is valid, because
t may be any number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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


def half_space_inverse_metric(x: Tensor) -> Tensor:
    """Return diag(h² I, 1) of points (y, log h) of the half-space (..., D): (..., D)."""
    factor = torch.ones_like(x)
    factor[..., :-1] = (2 * x.detach()[..., -1:]).exp()
    return factor
