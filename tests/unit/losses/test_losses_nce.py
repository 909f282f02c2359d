"""NCE: the partition function, its start, its use and its state; errors."""

from __future__ import annotations

import math
from dataclasses import replace

import pydantic
import pytest
import torch
from helpers.worlds import DOUBLE, every_column, loss_world, make_loss, optimum

from embtrain.common.errors import UsageError
from embtrain.common.types import Negatives
from embtrain.data.text.windows import SkipGramBatch
from embtrain.losses.nce import NceConfig
from embtrain.models.base import find as find_model
from embtrain.negatives.base import find as find_source
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step


@pytest.mark.parametrize(("settings", "shape", "start"), [
    ({}, None, 0.0), ({"partition": "global"}, (), 0.0),
    ({"partition": "global", "log_z_start": "log n"}, (), math.log(5)),
    ({"partition": "context", "log_z_start": 2.5}, (3,), 2.5)])
def test_log_z_starts_as_configured(settings, shape, start):
    loss = make_loss("nce", loss_world().known, **settings)
    if shape is None:
        assert loss.c is None and not list(loss.parameters()) and loss.metrics() == {}
    else:
        assert loss.c.shape == shape and loss.c.requires_grad
        assert loss.metrics() == {"log_z/mean": pytest.approx(start), "log_z/sd": 0.0}


def test_log_z_per_context_needs_context_ids():
    with pytest.raises(UsageError, match=r"loss\.partition: context"):
        make_loss("nce", replace(loss_world().known, n_contexts=None), partition="context")


def test_start_that_is_not_a_number_is_rejected():
    for bad in (math.nan, math.inf, "log k"):
        with pytest.raises(pydantic.ValidationError):
            NceConfig(log_z_start=bad)


@pytest.mark.parametrize("gone", ["log_q", "log_q_target"])
def test_source_without_density_is_rejected(gone):
    world = loss_world()
    scored = every_column(world, 2.0, "private").scored(torch.zeros(world.p.shape, dtype=DOUBLE))
    scored = replace(scored, log_q=None) if gone == "log_q" else \
        replace(scored, drawn=replace(scored.drawn, log_q_target=None))
    with pytest.raises(UsageError, match="nce"):
        make_loss("nce", world.known)(scored)


@pytest.mark.parametrize("partition", ["global", "context"])
def test_evaluated_model_is_normalized_at_the_optimum(partition):
    """A free table and c share a constant: s − c is log P for any start of c, and c ends elsewhere."""
    world, learnt = loss_world(), []
    for start in (0.0, "log n"):
        logit, loss = optimum("nce", every_column(world, 3.0, "rows"), world, partition=partition, log_z_start=start)
        assert torch.allclose(logit.logsumexp(1), torch.zeros(3, dtype=DOUBLE), atol=1e-6)
        learnt.append(loss.metrics()["log_z/mean"])
    assert learnt[1] - learnt[0] > 0.05


def test_penalty_uses_the_z_of_the_evaluated_model():
    """Through the training step: log Σ e^{s − c}, c subtracted once."""
    problem = replace(loss_world().known, dim=3)
    model = find_model("skipgram")(find_model("skipgram").Config(dim=3), problem).double()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(torch.randn(p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(i)))
    target, centre = torch.tensor([0, 3, 4, 1]), torch.tensor([2, 2, 0, 1])
    batch = SkipGramBatch(target=target, slot=torch.zeros_like(target), centre=centre, window=torch.arange(4))
    drawn = Negatives(torch.tensor([[1, 2]]), log_q=torch.full((1, 1), -1.0), log_q_target=torch.full((4,), -1.0))
    costs = []
    for penalty in (0.0, 0.5):
        loss = make_loss("nce", problem, partition="context", log_z_start=1.25, penalty=penalty)
        step = Step(model, find_source("none")(find_source("none").Config(), problem), loss, [], TrainConfig())
        costs.append(loss(step.score(model.encode(batch), drawn)).per_example)
    scores = model.score(model.encode(batch), torch.arange(5).unsqueeze(0))
    torch.testing.assert_close(costs[1] - costs[0], 0.5 * ((scores - 1.25).logsumexp(1)).square())


def test_learned_partition_is_in_the_state():
    world = loss_world()
    one = make_loss("nce", world.known, partition="context", log_z_start=1.5)
    two = make_loss("nce", world.known, partition="context")
    two.load_state_dict(one.state_dict())
    assert torch.equal(one.c, two.c)
