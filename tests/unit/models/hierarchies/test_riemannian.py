"""Riemannian gradients: against the metric, autograd and a loop; sparse and dense."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from embtrain.models.hierarchies.bounds import MAX_NORM
from embtrain.models.hierarchies.riemannian import ball_inverse_metric, with_inverse_metric

DOUBLE = torch.float64


def points(n: int = 6, d: int = 3) -> torch.Tensor:
    """Points of the ball, some near the rim."""
    x = nn.functional.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(1), dtype=DOUBLE), dim=1)
    return x * torch.linspace(0.1, MAX_NORM, n, dtype=DOUBLE)[:, None]


@pytest.mark.parametrize("sparse", [True, False])
def test_gathered_rows_receive_the_riemannian_gradient(sparse: bool) -> None:
    x, ids = points().requires_grad_(), torch.tensor([0, 3, 3, 5])
    weight = torch.randn(4, 3, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    rows = nn.functional.embedding(ids, x, sparse=sparse)
    (with_inverse_metric(rows, ball_inverse_metric(rows)) * weight).sum().backward()
    assert x.grad is not None
    euclidean = torch.zeros_like(x).index_add_(0, ids, weight)
    factor = torch.tensor([((1 - sum(c * c for c in row)) / 2) ** 2 for row in x.tolist()], dtype=DOUBLE)
    torch.testing.assert_close(x.grad.to_dense(), factor[:, None] * euclidean)


def test_a_small_step_moves_a_point_by_the_rate_times_the_riemannian_length_of_the_gradient() -> None:
    """For L = d(o, x) the gradient has length 1 in the metric, so a step of rate ε shortens d by ε, wherever x is."""
    x = points().requires_grad_()
    distance = 2 * torch.atanh(torch.linalg.vector_norm(with_inverse_metric(x, ball_inverse_metric(x)), dim=1))
    distance.sum().backward()
    assert x.grad is not None
    after = 2 * torch.atanh(torch.linalg.vector_norm(x - 1e-3 * x.grad, dim=1))
    torch.testing.assert_close((distance - after).detach(), torch.full((6,), 1e-3, dtype=DOUBLE), rtol=2e-3, atol=0)
