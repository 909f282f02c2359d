"""Poincaré embeddings: the distance against the paper's arcosh, and the direction of the is-a score."""

from __future__ import annotations

import math

import pytest
import torch

from embtrain.common.types import ProblemSpec
from embtrain.models.hierarchies.bounds import MAX_NORM
from embtrain.models.hierarchies.poincare import Poincare, PoincareConfig, distance

DOUBLE = torch.float64


def ball(n: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.normalize(torch.randn(n, 3, generator=draw, dtype=DOUBLE), dim=1)
    return x * torch.rand(n, 1, generator=draw, dtype=DOUBLE)


def test_distance_equals_the_arcosh_of_the_paper_and_the_radius_of_a_point() -> None:
    for x, y in zip(ball(50, 1).tolist(), ball(50, 2).tolist(), strict=True):
        gap, xx, yy = sum((a - b) ** 2 for a, b in zip(x, y, strict=True)), *(sum(a * a for a in z) for z in (x, y))
        value = float(distance(torch.tensor(x, dtype=DOUBLE), torch.tensor(y, dtype=DOUBLE)))
        assert value == pytest.approx(math.acosh(1 + 2 * gap / ((1 - xx) * (1 - yy))), rel=1e-9)
    rim = torch.tensor([[0.0, MAX_NORM, 0.0]], dtype=DOUBLE)
    assert float(distance(torch.zeros_like(rim), rim)) == pytest.approx(2 * math.atanh(MAX_NORM), rel=1e-9)


def test_is_a_score_equals_its_formula() -> None:
    u, v = ball(20, 3), ball(20, 4)
    expected = [-(1 + 7 * (float(b.norm()) - float(a.norm()))) * float(distance(a, b))
                for a, b in zip(u, v, strict=True)]
    actual = Poincare.entailment_score(u, v, PoincareConfig(alpha=7))
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=DOUBLE))


@pytest.mark.parametrize(("dim", "start"), [(5, 0.001), (200, 0.1)])
def test_initial_points_are_in_the_ball(dim: int, start: float) -> None:
    problem = ProblemSpec(50, torch.ones(50), context_sizes=(50, 2), dim=dim, seed=1)
    x = Poincare(PoincareConfig(dim=dim, start=start), problem).x.detach()
    assert torch.linalg.vector_norm(x, dim=1).max() <= MAX_NORM + 1e-12
    assert 0.5 * min(start, 0.07) < float(x.abs().max()) <= start and float(x.min()) < 0
