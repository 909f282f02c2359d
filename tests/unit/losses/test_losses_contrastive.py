"""The contrastive loss: gradients where the estimate of the negatives meets its floor."""

from __future__ import annotations

import math

import pytest
import torch

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.losses import base as losses


@pytest.mark.parametrize("steps", range(-3, 4))
def test_gradients_are_finite_where_the_estimate_vanishes(steps: int) -> None:
    """log(E − τ⁺ e^{s_t}) with a difference of a few units in the last place, above and below 0."""
    kind = losses.find("contrastive")
    loss = kind(kind.Config(name="contrastive", prior=0.1), ProblemSpec(10, torch.ones(10, dtype=torch.float64), 5))
    target, up = torch.tensor([2.4]), torch.tensor([9.0])
    negative = target + math.log(0.1)
    for _ in range(abs(steps)):
        negative = torch.nextafter(negative, math.copysign(1, steps) * up)
    pos, neg = target.requires_grad_(), negative.unsqueeze(1).requires_grad_()
    zero = torch.zeros(1, dtype=torch.int64)
    drawn = Negatives(torch.ones(1, 1, dtype=torch.int64), total_weight=torch.ones(1, 1))
    value = loss(LossInput(pos, neg, drawn, Query(torch.zeros(1, 1), zero, zero, zero))).per_example
    value.sum().backward()
    assert torch.isfinite(value).all() and torch.isfinite(pos.grad).all() and torch.isfinite(neg.grad).all()
