"""The loss of order embeddings: its cost, and the cost that an adversary receives."""

from __future__ import annotations

import torch
from helpers.worlds import make_loss

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query

WORLD = ProblemSpec(n_candidates=4, counts=torch.ones(4, dtype=torch.float64))


def scored(pos: list[float], neg: list[list[float]]) -> LossInput:
    n = torch.zeros(len(pos), dtype=torch.int64)
    return LossInput(torch.tensor(pos).double().requires_grad_(), torch.tensor(neg).double().requires_grad_(),
                  Negatives(torch.zeros(len(pos), len(neg[0]), dtype=torch.int64)), Query(n[:, None], n, n, n))


def test_positives_cost_their_energy_and_negatives_what_they_lack_of_alpha() -> None:
    inputs = scored([-0.3, 0.0], [[-0.2, -5.0], [-2.0, 0.0]])
    cost = make_loss("order", WORLD, margin=2.0)(inputs)
    torch.testing.assert_close(cost.per_example, torch.tensor([0.3 + 1.8, 0.0 + 0.0 + 2.0]).double())
    cost.per_example.sum().backward()
    assert inputs.pos.grad is not None and inputs.pos.grad.tolist() == [-1, 0]
    assert inputs.neg.grad is not None and inputs.neg.grad.tolist() == [[1, 0], [0, 1]]


def test_adversary_also_gets_costs_beyond_the_hinge() -> None:
    cost = make_loss("order", WORLD, margin=1.0)(scored([0.0], [[-7.0, -0.5]]))
    assert cost.per_negative.tolist() == [[-7.0, -0.5]]


def test_negative_is_compared_with_alpha_not_with_the_positive() -> None:
    near, far = (make_loss("order", WORLD)(scored([pos], [[-0.5]])).per_example for pos in (0.0, -3.0))
    assert float(far.detach() - near.detach()) == 3.0
