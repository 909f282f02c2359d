"""Poincaré embeddings: the distance against the paper's arcosh, and the direction of the is-a score."""

from __future__ import annotations

import math

import pytest
import torch

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.losses import base as losses
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


@pytest.mark.parametrize(("name", "settings", "weight"), [("sampled_softmax", {}, 50 / 4),
                                                          ("contrastive", {"floor": -80}, 1.0)])
def test_losses_weigh_negatives_as_the_module_documents(name: str, settings: dict[str, float], weight: float) -> None:
    """With uniform negatives: sampled softmax corrects for q = 1/V, and eq. 5 of the paper is the contrastive loss."""
    s = -distance(ball(5, 1), ball(5, 2))                                       # of the positive, then of 4 negatives
    s[1:] -= 20.0                                                               # as between points at the rim
    problem, zero = ProblemSpec(50, torch.ones(50, dtype=DOUBLE)), torch.zeros(1, dtype=torch.int64)
    log_q = torch.full((1, 1), -math.log(50))
    drawn = Negatives(torch.tensor([[1, 2, 3, 4]]), log_q=log_q, total_weight=torch.full((1, 1), 4.0))
    query = Query(torch.zeros(1, 1), zero, zero, zero)
    loss = losses.find(name)(losses.find(name).Config(name=name, **settings), problem)
    value = loss(LossInput(s[:1], s[None, 1:], drawn, query, log_q=log_q)).per_example
    e = [math.exp(x) for x in s.tolist()]
    assert float(value) == pytest.approx(math.log1p(weight * sum(e[1:]) / e[0]), rel=1e-5)
