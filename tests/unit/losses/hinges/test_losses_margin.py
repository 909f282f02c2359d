"""The margin loss: the hinge, and the cost that an adversary receives in spite of it."""

from __future__ import annotations

import torch
from helpers.worlds import DOUBLE, every_column, loss_world, make_loss

WORLD = loss_world()


def test_hinge_is_zero_beyond_the_margin_and_adversary_still_gets_costs():
    table = torch.zeros(WORLD.p.shape, dtype=DOUBLE)
    exam = every_column(WORLD, 3.0, "rows", masked=True)
    scored = exam.scored(table)
    object.__setattr__(scored, "pos", scored.pos + 5)
    cost = make_loss("margin", WORLD.known, margin=5.0)(scored)
    assert (cost.per_example == 0).all() and torch.equal(cost.per_negative, scored.neg)
    assert (make_loss("margin", WORLD.known, margin=5.01)(scored).per_example > 0).all()


def test_margin_is_per_negative_and_weighted():
    exam = every_column(WORLD, 3.0, "private")
    cost = make_loss("margin", WORLD.known, margin=2.0)(exam.scored(torch.zeros(WORLD.p.shape, dtype=DOUBLE)))
    torch.testing.assert_close(cost.per_example, torch.full_like(cost.per_example, 2.0 * 3.0))


def test_margin_declares_pairing():
    margin, logistic = (make_loss(name, WORLD.known).traits for name in ("margin", "logistic"))
    assert margin.pairwise and margin.needs_q == "no" and not logistic.pairwise
