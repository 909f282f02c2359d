"""Gumbel boxes: volumes against a loop and samples of corners, the limit of hard boxes, and odd dimensions."""

from __future__ import annotations

import math

import pytest
import torch

from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.models.hierarchies.box import EULER, Box, BoxConfig, corners

DOUBLE = torch.float64


def boxes(n: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=draw, dtype=DOUBLE) * 0.7


def probability(u: torch.Tensor, v: torch.Tensor, beta: float) -> torch.Tensor:
    return torch.sigmoid(Box.entailment_score(u, v, BoxConfig(dim=4, beta=beta)))


@pytest.mark.parametrize("beta", [0.05, 0.5])
def test_probability_equals_a_loop_over_the_formulas(beta: float) -> None:
    def volume(sides: list[float]) -> float:
        return math.prod(math.log1p(math.exp(s / beta - 2 * EULER)) for s in sides)

    u, v = boxes(30, 1), boxes(30, 2)
    for a, b, p in zip(u, v, probability(u, v, beta), strict=True):
        (low_a, high_a), (low_b, high_b) = ([x.tolist() for x in corners(z)] for z in (a, b))
        low = [beta * math.log(math.exp(x / beta) + math.exp(y / beta)) for x, y in zip(low_a, low_b, strict=True)]
        high = [-beta * math.log(math.exp(-x / beta) + math.exp(-y / beta))
                for x, y in zip(high_a, high_b, strict=True)]
        shared = volume([y - x for x, y in zip(low, high, strict=True)])
        assert float(p) == pytest.approx(shared / volume([y - x for x, y in zip(low_a, high_a, strict=True)]), rel=1e-6)


def test_small_noise_gives_the_share_of_the_volume_of_u_inside_v() -> None:
    u, v = boxes(200, 3), boxes(200, 4)
    (low_u, high_u), (low_v, high_v) = corners(u), corners(v)
    inside = (torch.minimum(high_u, high_v) - torch.maximum(low_u, low_v)).clamp_min(0).prod(1)
    torch.testing.assert_close(probability(u, v, 1e-4), inside / (high_u - low_u).prod(1), rtol=0, atol=5e-3)


def test_side_is_near_the_mean_side_of_sampled_corners() -> None:
    """Corners are Gumbel(m, β) and −Gumbel(−M, β); the softplus of the paper approximates E[max(0, M − m)]."""
    uniform = torch.rand(2, 400_000, generator=torch.Generator().manual_seed(5), dtype=DOUBLE)
    noise = -(-uniform.log()).log() * 0.3
    sampled = (1.0 - noise[0] - noise[1]).clamp_min(0).mean()
    assert 0.3 * math.log1p(math.exp(1.0 / 0.3 - 2 * EULER)) == pytest.approx(float(sampled), rel=0.05)


def test_disjoint_boxes_attract_each_other() -> None:
    """A negative of the gradient moves u towards v, however far it is."""
    for gap in (1.0, 30.0, 1000.0):
        u = torch.tensor([[0.0, 0.0, -1.0, -1.0]], dtype=DOUBLE, requires_grad=True)
        v = torch.tensor([[gap, 0.0, -1.0, -1.0]], dtype=DOUBLE)
        [grad] = torch.autograd.grad(Box.entailment_score(u, v, BoxConfig(dim=4)).sum(), u)
        assert float(grad[0, 0]) > 1


def test_an_odd_dimension_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"model\.dim: 5: box must be even, half for centres and half for sides"):
        Box(BoxConfig(dim=5), ProblemSpec(3, torch.ones(3), context_sizes=(3, 2), dim=5, seed=1))
