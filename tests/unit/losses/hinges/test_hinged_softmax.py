"""The softmax over hinged energies: ends of the hinges, large energies, rows without negatives."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.worlds import make_loss

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query

WORLD = ProblemSpec(n_candidates=4, counts=torch.ones(4, dtype=torch.float64))


def scored(pos: list[float], neg: list[list[float]]) -> LossInput:
    n = torch.zeros(len(pos), dtype=torch.int64)
    return LossInput(torch.tensor(pos).double().requires_grad_(), torch.tensor(neg).double().requires_grad_(),
                     Negatives(torch.zeros(len(pos), len(neg[0]), dtype=torch.int64)), Query(n[:, None], n, n, n))


def test_pairs_beyond_their_hinges_have_no_gradient_and_one_unit_each_in_the_softmax() -> None:
    inputs = scored([0.4, -0.3], [[-2.5, -9.0], [-2.5, -0.5]])
    cost = make_loss("hinged_softmax", WORLD, margin=2.0)(inputs)
    torch.testing.assert_close(cost.per_example.tolist(), [
        math.log(1 + 2), 0.3 + math.log(math.exp(-0.3) + 1 + math.exp(1.5))])
    cost.per_example.sum().backward()
    assert inputs.pos.grad is not None and inputs.neg.grad is not None
    z = math.exp(-0.3) + 1 + math.exp(1.5)
    torch.testing.assert_close(inputs.pos.grad.tolist(), [0.0, math.exp(-0.3) / z - 1])
    torch.testing.assert_close(inputs.neg.grad.tolist(), [[0.0, 0.0], [0.0, math.exp(1.5) / z]])
    assert cost.per_negative.tolist() == [[-2.5, -9.0], [-2.5, -0.5]]


@pytest.mark.parametrize("score", [-1e6, 1e6])
def test_huge_energies_give_finite_losses_and_gradients_of_at_most_1(score: float) -> None:
    inputs = scored([score, -score], [[score, 0.0], [-score, score]])
    cost = make_loss("hinged_softmax", WORLD)(inputs)
    cost.per_example.sum().backward()
    assert cost.per_example.isfinite().all()
    for grad in (inputs.pos.grad, inputs.neg.grad):
        assert grad is not None and grad.abs().max() <= 1


def test_a_row_without_negatives_costs_nothing() -> None:
    inputs = scored([-0.3], [[-0.5]])
    drawn = Negatives(inputs.drawn.ids, false_negatives=torch.tensor([[0], [0]]))
    cost = make_loss("hinged_softmax", WORLD)(LossInput(inputs.pos, inputs.neg, drawn, inputs.query))
    assert cost.per_example.tolist() == [0.0]
