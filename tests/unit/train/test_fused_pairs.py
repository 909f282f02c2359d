"""The fused engine for pairs: agreement with the step, rejected settings, reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_runs
from helpers.cores import NATIVE

from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.hierarchy.examples import PairBatch, known_pairs
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.models.hierarchies.cone import ConeConfig
from embtrain.models.hierarchies.order import OrderConfig
from embtrain.models.hierarchies.poincare import PoincareConfig
from embtrain.models.hierarchies.shadow_cone import ShadowConeConfig
from embtrain.negatives import base as negatives
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.compiled import MAX_LOGGED_ROWS
from embtrain.train.engines.compiled_pairs import CompiledPairs
from embtrain.train.optimizers import make_optimizers

pytestmark = pytest.mark.long

V, D = 400, 20
PAIRS = np.random.default_rng(0).permutation(V)[:60].reshape(30, 2)


def build(kind: type, seed: int = 2, **keys: object):
    problem = ProblemSpec(V, torch.ones(V).double(), dim=D, seed=seed, context_sizes=(V, 2))
    train = TrainConfig(optimizer=keys.pop("optimizer", "row-adagrad"), lr=0.1, batch=1)  # type: ignore[arg-type]
    config = keys.pop("model", None) or OrderConfig(dim=D, orthant=keys.pop("orthant", "clamp"))  # type: ignore[arg-type]
    model = models.find(config.name)(config, problem)  # type: ignore[attr-defined]
    margin = 0.3 if isinstance(config, OrderConfig) else 3.0   # so that negatives are within it
    loss = losses.find(str(name := keys.pop("loss", "order")))
    cost = loss(loss.Config(**{"name": name} | ({} if name == "sampled_softmax" else {"margin": margin})), problem)
    source = negatives.find(str(keys.pop("source", "uniform")))
    sampler = source(source.Config(source=source.name, **{"k": 4, "filter": "target"} | keys), problem)
    return kind(model, sampler, cost, make_optimizers(model, cost, train), train, known_pairs(PAIRS, V, 1 << 20))


def rows(n: int = 12) -> PairBatch:
    return PairBatch(torch.from_numpy(PAIRS[:n, 1]).clone(), torch.zeros(n, dtype=torch.int64),
                     torch.from_numpy(PAIRS[:n, 0]).clone())


@pytest.mark.parametrize("keys", [
    {}, {"optimizer": "sgd"}, {"loss": "margin"}, {"orthant": "abs"}, {"total_weight": 2.0}, {"filter": "observed"},
    {"share_draws_by": "block", "share_size": 3}, {"replacement": False},
    {"source": "unigram", "share_draws_by": "window"},
    {"source": "hardest", "choose": "hardest", "top": 8, "inner": {"source": "uniform", "k": 30}},
    {"source": "hardest", "choose": "violation", "k": 2, "inner": {"source": "uniform", "k": 30}, "loss": "margin"},
    {"source": "hardest", "choose": "violation", "k": 2, "inner": {"source": "uniform", "k": 30},
     "model": ShadowConeConfig(dim=D, start=0.5), "loss": "hinged_softmax"},
    {"model": PoincareConfig(dim=D), "loss": "sampled_softmax"},
    {"model": PoincareConfig(dim=D), "loss": "sampled_softmax", "total_weight": 3.0, "filter": "observed"},
    {"model": ConeConfig(dim=D, start=0.5), "optimizer": "sgd"},
    {"model": ShadowConeConfig(dim=D, start=0.5), "loss": "hinged_softmax", "filter": "observed"},
    {"model": ShadowConeConfig(dim=D, start=0.5, light="penumbral"), "loss": "hinged_softmax", "replacement": False},
    ], ids=str)
def test_fused_rows_equal_the_step(keys: dict[str, object]) -> None:
    """Batches of one row are the units of the core: equal draws give an equal table."""
    step, fused = build(Step, **dict(keys)), build(CompiledPairs, **dict(keys))
    block = rows()
    a, b = step(block), fused(block)
    np.testing.assert_allclose(fused.model.x.detach(), step.model.x.detach(), rtol=1e-4, atol=1e-6)
    assert float(a.loss) == pytest.approx(float(b.loss), rel=1e-4)


def test_log_gets_the_first_rows_before_their_update() -> None:
    fused = build(CompiledPairs)
    before = fused.model.x.detach().clone()
    block = PairBatch(*(x.repeat(120) for x in (rows().target, rows().slot, rows().concept)))
    result = fused(block, keep_costs=True)
    assert result.query is not None and result.cost is not None and result.drawn is not None
    assert result.cost.shape == (MAX_LOGGED_ROWS, 4) and len(result.query) == MAX_LOGGED_ROWS
    torch.testing.assert_close(result.query.vector, before[block.concept[:MAX_LOGGED_ROWS]])
    assert not torch.equal(before, fused.model.x)


def test_a_run_that_diverged_ends_by_its_loss(tmp_path: Path) -> None:
    """Not by the check of the tables alone, which the loss of a healthy run would contradict."""
    run = tiny_runs.made(tiny_runs.config(tiny_runs.write(tmp_path), "order", "fused"))
    with torch.no_grad():
        run.model.x[:] = torch.nan                                                                  # type: ignore[index]
    with pytest.raises(UsageError, match=r"^train\.lr: the loss is nan at block 2; .*train\.clip$"):
        tiny_runs.learning(run, tmp_path / "run").run()


def test_source_that_ignores_the_requested_layout_is_rejected() -> None:
    fused = build(CompiledPairs, replacement=False)
    draw = fused.source.draw
    fused.source.draw = lambda query, k, view: draw(query.rows(slice(0, 3)), k, view)
    with pytest.raises(UsageError, match=r"drew differently; set train\.engine: autograd$"):
        fused(rows())


@pytest.mark.parametrize(("keys", "says"), [
    ({"loss": "logistic"}, "the kernels support order, margin for order"), ({"share_draws_by": "batch"},
                                                                  "negatives.share_draws_by: batch"),
    ({"optimizer": "adam"}, "train.optimizer"), ({}, ""),
])
def test_unsupported_settings_are_rejected(keys: dict[str, str], says: str) -> None:
    source, loss = negatives.find("uniform"), losses.find(keys.get("loss", "order"))
    reasons = choose.why_not_fused(
        OrderConfig(),
        source,
        source.Config(source="uniform", share_draws_by=keys.get("share_draws_by", "row")),
        loss.Config(name=loss.name),
        TrainConfig(optimizer=keys.get("optimizer", "row-adagrad")),
        bool(NATIVE) or True,
    )
    assert (says in " ".join(reasons)) if says else reasons == []
