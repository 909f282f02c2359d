"""Negative sampling: its gradient in closed form."""

from __future__ import annotations

import torch
from worlds import DOUBLE, every_column, loss_world, make_loss


def test_the_gradient_is_sigma_minus_label():
    world = loss_world()
    table = torch.randn(world.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(0), requires_grad=True)
    exam = every_column(world, 3.0, "private")
    example = make_loss("logistic", world.known)(exam.scored(table)).example
    slope = torch.autograd.grad((exam.chance * example).sum(), table)[0]
    sigma, a = table.detach().sigmoid(), world.p_context[:, None]
    torch.testing.assert_close(slope, a * (world.p * (sigma - 1) + 3.0 * world.q * sigma))


def test_it_asks_for_no_density():
    world = loss_world()
    scored = every_column(world, 3.0, "private").scored(torch.zeros(world.p.shape, dtype=DOUBLE))
    loss = make_loss("logistic", world.known)
    expected = loss(scored).example
    object.__setattr__(scored, "log_q", None)
    assert loss.needs_q == "no" and loss.odds and torch.equal(loss(scored).example, expected)
