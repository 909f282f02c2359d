"""α-NCE: the bound on its slopes, and the settings that it rejects."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from helpers.worlds import DOUBLE, every_column, loss_world, make_loss

from embtrain.common.errors import UsageError

WORLD = loss_world()
EXAM = every_column(WORLD, 3.0, "private")


@pytest.mark.parametrize("centered", [True, False])
def test_a_power_beyond_e_10_is_continued_by_its_tangent(centered):
    """The slope in the score of a target far below its negatives is −e^{10}, not more, and never vanishes."""
    table = torch.zeros(WORLD.p.shape, dtype=DOUBLE)
    loss, slopes = make_loss("alpha_nce", WORLD.known, centered=centered), []
    for low in (-15.0, -40.0, -4000.0):
        scored = EXAM.scored(table)
        pos = torch.full_like(scored.pos, low).requires_grad_()
        loss(replace(scored, pos=pos)).per_example.sum().backward()
        slopes.append(pos.grad)
    assert (slopes[0] > -math.exp(10)).all()
    torch.testing.assert_close(slopes[1], torch.full_like(slopes[1], -math.exp(10)))
    torch.testing.assert_close(slopes[2], slopes[1])


def test_the_limit_exists_only_if_centered():
    with pytest.raises(UsageError, match=r"^loss\.alpha: 1: .*set loss\.centered: true"):
        make_loss("alpha_nce", WORLD.known, alpha=1.0, centered=False)
    assert make_loss("alpha_nce", WORLD.known, alpha=1.0).config.centered
