"""Negative sampling: its gradient in closed form."""

from __future__ import annotations

import pytest
import torch
from helpers.worlds import DOUBLE, every_column, loss_world, make_loss
from torch.nn.functional import softplus

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query


def test_gradient_is_sigma_minus_label():
    world = loss_world()
    table = torch.randn(world.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(0), requires_grad=True)
    exam = every_column(world, 3.0, "private")
    example = make_loss("logistic", world.known)(exam.scored(table)).per_example
    slope = torch.autograd.grad((exam.chance * example).sum(), table)[0]
    sigma, a = table.detach().sigmoid(), world.p_context[:, None]
    torch.testing.assert_close(slope, a * (world.p * (sigma - 1) + 3.0 * world.q * sigma))


def test_each_negative_once_per_query_is_binary_cross_entropy():
    """Over the rows of all positives: label 1 for each, 0 for the remaining candidates (KvsAll)."""
    answers, v = [[0], [1, 2, 4], [3, 4]], 6
    s = torch.randn(len(answers), v, dtype=DOUBLE, generator=torch.Generator().manual_seed(1), requires_grad=True)
    query_id = torch.tensor([a for a, known in enumerate(answers) for _ in known])
    target = torch.tensor([b for known in answers for b in known])
    positive = torch.tensor([(i, b) for i, a in enumerate(query_id.tolist()) for b in answers[a]]).T
    query = Query(torch.zeros(len(target), 2), query_id, target, torch.zeros_like(target))
    drawn = Negatives(torch.arange(v).unsqueeze(0), false_negatives=positive)
    scored = LossInput(s[query_id, target], s[query_id], drawn, query)
    known = ProblemSpec(v, torch.ones(v, dtype=DOUBLE), 3, dim=2)
    label = torch.zeros(len(answers), v, dtype=DOUBLE)
    label[query_id, target] = 1
    expected = torch.nn.functional.binary_cross_entropy_with_logits(s, label, reduction="sum")
    loss = make_loss("logistic", known, normalize_by="query")
    torch.testing.assert_close(loss(scored).per_example.sum(), expected)
    one, other = (torch.autograd.grad(x, s)[0] for x in (loss(scored).per_example.sum(), expected))
    torch.testing.assert_close(one, other)
    assert loss.traits.candidate_scope == "every"
    assert not loss.traits.estimates_log_prob and not loss.traits.estimates_log_odds
    assert not torch.allclose(make_loss("logistic", known)(scored).per_example.sum(), expected)


@pytest.mark.parametrize("targets", [[1], [1, 4], [1, 4, 4]])
def test_negatives_of_a_query_weigh_its_examples_over_its_known_positives(targets: list[int]) -> None:
    """n = 2 known positives; fewer targets if they are not all trained on, more if one is repeated."""
    known, v, m = [1, 4], 6, len(targets)
    s = torch.randn(1, v, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    target, query_id = torch.tensor(targets), torch.zeros(m, dtype=torch.int64)
    query = Query(torch.zeros(m, 2), query_id, target, torch.zeros_like(target))
    masked = torch.tensor([(i, b) for i in range(m) for b in known]).T
    drawn = Negatives(torch.arange(v).unsqueeze(0), false_negatives=masked)
    scored = LossInput(s[query_id, target], s[query_id], drawn, query)
    loss = make_loss("logistic", ProblemSpec(v, torch.ones(v, dtype=DOUBLE), 1, dim=2), normalize_by="query")
    negatives = [b for b in range(v) if b not in known]
    expected = softplus(-s[0, target]).sum() + m / len(known) * softplus(s[0, negatives]).sum()
    torch.testing.assert_close(loss(scored).per_example.sum(), expected)
    description = type(loss.config).model_fields["normalize_by"].description or ""
    assert "1/n if its query has n known positives" in description


def test_logistic_needs_no_density():
    world = loss_world()
    scored = every_column(world, 3.0, "private").scored(torch.zeros(world.p.shape, dtype=DOUBLE))
    loss = make_loss("logistic", world.known)
    expected = loss(scored).per_example
    object.__setattr__(scored, "log_q", None)
    assert loss.traits.needs_q == "no" and loss.traits.estimates_log_odds
    assert torch.equal(loss(scored).per_example, expected)
