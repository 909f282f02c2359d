"""Riemannian gradients and bounds: against the metric, autograd and a loop; sparse and dense."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from embtrain.models.hierarchies.riemannian import MAX_NORM, ball_inverse_metric, keep_norms, with_inverse_metric

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


@pytest.mark.parametrize("sparse", [True, False])
def test_rows_outside_the_bounds_move_along_their_radius(sparse: bool) -> None:
    table = torch.tensor([[3.0, 4.0], [0.03, 0.04], [0.3, 0.4], [0.0, 0.0], [9.0, 0.0]], dtype=DOUBLE)
    leaf = table.clone().requires_grad_()
    nn.functional.embedding(torch.tensor([0, 1, 2, 3, 0]), leaf, sparse=sparse).sum().backward()  # not the last row
    keep_norms(table, leaf.grad, 0.1, 0.9)
    expected = [[0.54, 0.72], [0.06, 0.08], [0.3, 0.4], [0.1, 0.0], [9.0, 0.0] if sparse else [0.9, 0.0]]
    torch.testing.assert_close(table, torch.tensor(expected, dtype=DOUBLE))


def test_a_table_within_the_bounds_keeps_its_bits_and_zero_is_allowed_without_a_lower_bound() -> None:
    table = torch.cat([points(), torch.zeros(1, 3, dtype=DOUBLE)])
    before = table.clone()
    keep_norms(table, None, 0.0, MAX_NORM + 1e-15)
    assert torch.equal(table, before) and not math.isnan(float(table.sum()))
