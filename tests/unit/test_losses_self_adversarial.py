"""Self-adversarial weights: of any source, detached, over the columns that count."""

from __future__ import annotations

import math

import pytest
import torch

from embtrain.losses.self_adversarial import SelfAdversarial, SelfAdversarialConfig
from embtrain.types import Negatives, Query, Scored, World

WORLD = World(9, torch.ones(9, dtype=torch.float64))


def scored(neg: list[list[float]], weight: list[float] | None = None,
           right: list[tuple[int, int]] | None = None) -> Scored:
    x = torch.tensor(neg, dtype=torch.float64, requires_grad=True)
    none = torch.zeros(len(x), dtype=torch.int64)
    of_weight = None if weight is None else torch.tensor([weight], dtype=torch.float64)
    drawn = Negatives(torch.arange(x.shape[1]).expand(len(x), -1), weight=of_weight,
                      right=None if right is None else torch.tensor(right).T.reshape(2, -1))
    return Scored(torch.zeros(len(x), dtype=torch.float64), x, drawn, Query(x[:, :1], none, none, none),
                  weight=of_weight)


def loss(temperature: float = 0.5, margin: float = 2.0) -> SelfAdversarial:
    return SelfAdversarial(SelfAdversarialConfig(temperature=temperature, margin=margin), WORLD)


def test_weights_are_a_softmax_of_the_scores_and_carry_no_gradient() -> None:
    w = loss().weigh(scored([[0.0, 2.0, -1.0]]))
    e = [math.exp(0.5 * x) for x in (0, 2, -1)]
    assert w.tolist()[0] == pytest.approx([x / sum(e) for x in e]) and not w.requires_grad


def test_the_source_s_weights_multiply_and_what_does_not_count_weighs_nothing() -> None:
    w = loss().weigh(scored([[0.0, 2.0, -1.0, 5.0]] * 2, weight=[1.0, 3.0, 2.0, 0.0], right=[(1, 1)])).tolist()
    e = [1.0, 3 * math.exp(1.0), 2 * math.exp(-0.5)]
    assert w[0] == pytest.approx([*(x / sum(e) for x in e), 0])
    assert w[1] == pytest.approx([e[0] / (e[0] + e[2]), 0, e[2] / (e[0] + e[2]), 0])


def test_a_row_whose_columns_are_all_right_answers_weighs_nothing() -> None:
    assert loss().weigh(scored([[0.0, 2.0]], right=[(0, 0), (0, 1)])).tolist() == [[0.0, 0.0]]


def test_at_temperature_zero_columns_weigh_alike_whatever_their_scores() -> None:
    assert loss(temperature=0).weigh(scored([[0.0, 200.0, -1.0, 5.0]])).tolist() == [[0.25] * 4]


def test_far_scores_stay_finite() -> None:
    w = loss(temperature=10.0).weigh(scored([[-4000.0, -1000.0]]))
    assert w.tolist() == [[0.0, 1.0]]
    x = scored([[-4000.0, 1000.0]])
    assert torch.isfinite(loss().example(x)).all()
