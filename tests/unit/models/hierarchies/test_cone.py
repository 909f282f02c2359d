"""Entailment cones: aperture and angle against the formulas of the paper and a limit in the Euclidean plane."""

from __future__ import annotations

import math

import pytest
import torch

from embtrain.models.hierarchies.bounds import MAX_NORM
from embtrain.models.hierarchies.cone import ConeConfig, angle, half_aperture, min_norm

DOUBLE = torch.float64


def ball(n: int, seed: int, high: float = 0.95) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.normalize(torch.randn(n, 3, generator=draw, dtype=DOUBLE), dim=1)
    return x * (0.1 + (high - 0.1) * torch.rand(n, 1, generator=draw, dtype=DOUBLE))


def test_angle_equals_the_arccos_of_the_paper() -> None:
    for x, y in zip(ball(50, 1).tolist(), ball(50, 2).tolist(), strict=True):
        inner = sum(a * b for a, b in zip(x, y, strict=True))
        xx, yy = sum(a * a for a in x), sum(b * b for b in y)
        difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))
        cosine = (inner * (1 + xx) - xx * (1 + yy)) / (
            math.sqrt(xx) * difference * math.sqrt(1 + xx * yy - 2 * inner))
        value = float(angle(torch.tensor(x, dtype=DOUBLE), torch.tensor(y, dtype=DOUBLE)))
        assert value == pytest.approx(math.acos(cosine), abs=1e-7)


def test_angle_is_that_of_the_initial_velocity_of_the_geodesic() -> None:
    """The derivative of the hyperbolic distance to u along the axis of v is −cos Ξ, in units of the metric."""
    v, u = ball(20, 3).requires_grad_(), ball(20, 4)
    gap = (v - u).square().sum(1) / ((1 - v.square().sum(1)) * (1 - u.square().sum(1)))
    [grad] = torch.autograd.grad(torch.acosh(1 + 2 * gap).sum(), v)
    axis = v.detach() / torch.linalg.vector_norm(v.detach(), dim=1, keepdim=True)
    slope = (grad * axis).sum(1) * (1 - v.detach().square().sum(1)) / 2
    torch.testing.assert_close(angle(v.detach(), u).cos(), -slope)


@pytest.mark.parametrize("aperture", [0.01, 0.1, 1.0])
def test_half_aperture_falls_from_a_half_space_at_the_smallest_norm_to_nothing_at_the_rim(aperture: float) -> None:
    norm = torch.linspace(min_norm(aperture), MAX_NORM, 50, dtype=DOUBLE)
    psi = half_aperture(norm[:, None] * torch.tensor([0.6, 0.8], dtype=DOUBLE), aperture)
    assert float(psi[0]) == pytest.approx(math.pi / 2, abs=1e-5) and float(psi[-1]) < 3e-5 * aperture
    assert (psi.diff() < 0).all()
    torch.testing.assert_close(psi[1:].sin(), aperture * (1 - norm[1:] ** 2) / norm[1:])


def test_a_point_is_on_its_own_axis() -> None:
    """In every orthant: atan2(0, −0) would be π."""
    x = torch.cat([ball(100, 5), -torch.eye(3, dtype=DOUBLE) / 2, torch.eye(3, dtype=DOUBLE) / 2]).requires_grad_()
    own = angle(x, x.detach())
    assert (own == 0).all()
    own.sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_initial_points_have_a_cone() -> None:
    assert ConeConfig().aperture == 0.1 and min_norm(0.1) == pytest.approx(0.0990195)
