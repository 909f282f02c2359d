"""The base of the losses: discovery, the choice of examples for the penalty, errors."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pydantic
import pytest
import torch
from helpers.worlds import DOUBLE, every_column, loss_world, make_loss

from embtrain.common.errors import UsageError
from embtrain.losses.base import LossConfig, expand_if_rows_differ, find, names, softplus


def test_losses_of_the_package_are_discovered():
    assert {"logistic", "margin", "nce", "sampled_softmax", "softmax"} <= set(names())
    assert names() == sorted(names())


def test_unknown_loss_is_rejected_with_the_available_names():
    with pytest.raises(UsageError, match=r"loss\.name: .*'nse'.*logistic, margin, nce"):
        find("nse")


@pytest.mark.parametrize("bad", [{"penalty": -1}, {"penalty": math.inf}, {"penalty": math.nan}, {"penalty_share": 0},
                                 {"penalty_share": 1.5}, {"penalty_shares": 0.5}])
def test_settings_out_of_bounds_are_rejected(bad):
    with pytest.raises(pydantic.ValidationError):
        LossConfig(**bad)


def test_softplus_is_exact_beyond_the_library_threshold():
    x = torch.tensor([-800.0, -30.0, 0.0, 25.0, 800.0], dtype=DOUBLE)
    expected = torch.tensor([0.0, math.exp(-30), math.log(2), 25 + math.exp(-25), 800.0], dtype=DOUBLE)
    torch.testing.assert_close(softplus(x), expected, rtol=1e-13, atol=0)


def test_penalty_is_unbiased_over_the_choice_of_examples():
    world = loss_world()
    exam = every_column(world, 2.0, "private")
    table = torch.randn(world.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(4), requires_grad=True)
    scored, alpha, gamma, calls = exam.scored(table), 0.3, 0.1, 4000
    without = make_loss("logistic", world.known)(scored).per_example.detach()
    loss = make_loss("logistic", world.known, penalty=alpha, penalty_share=gamma)
    with torch.no_grad():
        total = sum(loss(scored).per_example - without for _ in range(calls)) / calls
        exact = alpha * table[exam.context].logsumexp(1).square()
    # 15 examples, each chosen with probability γ: 4.5 standard errors of its share.
    assert ((total / exact - 1).abs() < 4.5 * math.sqrt((1 - gamma) / gamma / calls)).all()


def test_log_z_is_computed_for_chosen_examples_only():
    world = loss_world()
    exam, n_computed = every_column(world, 2.0, "private"), []
    scored = exam.scored(torch.zeros(world.p.shape, dtype=DOUBLE))
    exact = scored.whole_table.log_partition

    def counted(rows):
        n_computed.append(len(torch.arange(15)[rows]))
        return exact(rows)

    object.__setattr__(scored, "whole_table", SimpleNamespace(log_partition=counted))
    loss = make_loss("logistic", world.known, penalty=0.3, penalty_share=0.2)
    for _ in range(50):
        loss(scored)
    assert 0.1 < sum(n_computed) / (50 * 15) < 0.3 and 0 not in n_computed


def test_engine_without_log_z_is_rejected():
    world = loss_world()
    scored = every_column(world, 2.0, "private").scored(torch.zeros(world.p.shape, dtype=DOUBLE))
    object.__setattr__(scored, "whole_table", None)
    with pytest.raises(UsageError, match=r"loss\.penalty.*engine"):
        make_loss("logistic", world.known, penalty=0.3)(scored)


def test_choice_depends_on_the_seed():
    world, states = loss_world(), []
    for seed in (0, 0, 1):
        known = world.known.__class__(**{**vars(world.known), "seed": seed})
        states.append(make_loss("logistic", known).get_extra_state())
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])


def test_rows_stay_shared_if_their_examples_agree():
    world = loss_world()
    table = torch.zeros(world.p.shape, dtype=DOUBLE)
    shared = every_column(world, 2.0, "rows").scored(table)
    assert (
        expand_if_rows_differ(shared).neg.shape[0] == 3
        and expand_if_rows_differ(shared, rows_differ=True).neg.shape[0] == 15
    )
    assert expand_if_rows_differ(every_column(world, 2.0, "rows", masked=True).scored(table)).neg.shape[0] == 15
