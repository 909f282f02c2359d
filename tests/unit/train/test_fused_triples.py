"""The fused engine on triples against the step: the same update, log lines and costs for a source that learns, with
queries in which no entity and no relation occurs twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.bits import same
from helpers.cores import CORES, needs_core, using
from helpers.looped import looped
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ModelView, Negatives, ProblemSpec, Query
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as sources
from embtrain.negatives.base import NegativeSource, Traits
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.base import StepResult
from embtrain.train.engines.compiled_triples import CompiledTriples
from embtrain.train.loop import Trainer
from embtrain.train.optimizers import make_optimizers

pytestmark = pytest.mark.long

V, R, B, K = 200, 12, 8, 6


@dataclass(frozen=True)
class Triples(Batch):
    entity: Tensor
    relation: Tensor


DRAW = torch.Generator().manual_seed(4)
PLACES = torch.randperm(V, generator=DRAW)
APART = Triples(PLACES[:B], torch.tensor([0, 1] * (B // 2)), PLACES[B:2 * B], torch.randperm(R, generator=DRAW)[:B])
WORLD = ProblemSpec(V, torch.ones(V, dtype=torch.float64), context_sizes=(V, 2 * R), dim=5, seed=3)


class Apart(NegativeSource):
    """Draws ids that occur nowhere else, reports a density, and records the costs."""

    name = "apart-for-a-test"
    traits = Traits(learns=True)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, group = self.draw_layout(query)
        ids = PLACES[2 * B:2 * B + n * k].reshape(n, k)
        log_q = -(ids % 7).float() / 3 - 2
        weight = torch.ones(1, k)
        weight[0, -1] = 0                                                  # a probe
        return Negatives(ids, draw_id=group, log_q=log_q, log_q_target=-(query.target % 5).float() - 1, weight=weight,
                         total_weight=torch.full((1, 1), float(k)))

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        self.seen_cost = cost
        return {"seen_cost": float(cost.sum())}


class Answered:
    """A set of known positives: of query (a, r) the ids for which 3 divides a + id."""

    nbytes = 0

    def contains(self, context: Tensor, ids: Tensor) -> Tensor:
        return (context[:, :1] + ids) % 3 == 0

    def to(self, device: Any) -> Answered:
        return self


def trained(engine_class: type, model: str, keys: dict[str, Any], loss: str, share: str, optimizer: str, mask: str,
            block: Triples = APART) -> tuple[Any, StepResult, dict[str, Tensor]]:
    model_class, cost = models.find(model), losses.find(loss.split()[0])
    net = model_class(model_class.Config(name=model, dim=5, **keys), WORLD)
    settings = {"margin": {"margin": 3.0}, "self_adversarial": {"margin": 3.0, "temperature": 0.5},
                "nce global": {"partition": "global"}, "sampled_softmax ranking": {"form": "ranking"}}.get(loss, {})
    lossy = cost(cost.Config(name=loss.split()[0], **settings), WORLD)
    source = Apart(sources.NegativesConfig(source="unigram", k=K, share_draws_by=share, share_size=4, filter=mask),
                   WORLD)
    config = TrainConfig(optimizer=optimizer, lr=0.1, batch=B)
    run = engine_class(net, source, lossy, make_optimizers(net, lossy, config), config, Answered())
    return source, run(block, keep_costs=True), {**dict(net.named_parameters()), **dict(lossy.named_parameters())}


LOSSES = ["logistic", "self_adversarial", "margin", "nce", "nce global", "sampled_softmax", "sampled_softmax ranking",
          "gbce"]


@looped("core", [CORES[-1]])
@looped("optimizer", ["sgd", "row-adagrad"])
@looped("share", ["row", "block"])
@looped("model, keys", [("transe", {"norm": "l1"}), ("transe", {"norm": "l2", "entities": "ball"}),
                            ("distmult", {})])
@looped("loss", LOSSES)
def test_update_equals_the_step(core, optimizer, share, model, keys, loss) -> None:
    mask = "none" if "nce" in loss or "ranking" in loss else "observed"
    with using(core):
        a, b = (trained(engine_class, model, keys, loss, share, optimizer, mask)
                for engine_class in (Step, CompiledTriples))
    for name, x in a[2].items():
        torch.testing.assert_close(b[2][name], x, rtol=1e-4, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}")
    torch.testing.assert_close(a[1].loss, b[1].loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(a[0].seen_cost, b[0].seen_cost, rtol=1e-4, atol=1e-4)
    assert same(a[1].drawn.ids, b[1].drawn.ids) and same(a[1].query.context, b[1].query.context)
    assert a[1].source == pytest.approx(b[1].source, rel=1e-4)
    torch.testing.assert_close(a[1].cost, b[1].cost, rtol=1e-4, atol=1e-4)


@looped("share", ["row", "block"])
@looped("loss", ["self_adversarial", "margin", "nce global", "sampled_softmax ranking"])
def test_weights_of_examples_scale_the_update(share, loss) -> None:
    """As in the step; costs of negatives, which sources learn from, are not scaled. Log Z steps twice by Adam."""
    mask = "none" if "nce" in loss or "ranking" in loss else "observed"
    weighted = replace(APART, weight=torch.linspace(0.1, 3, B))
    case = ("transe", {"norm": "l1"}, loss, share, "sgd", mask)
    plain, a, b = (trained(*engine_case) for engine_case in (
        (Step, *case), (Step, *case, weighted), (CompiledTriples, *case, weighted)))
    for name, x in a[2].items():
        torch.testing.assert_close(b[2][name], x, rtol=1e-4, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}")
    torch.testing.assert_close(a[1].loss, b[1].loss, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(a[2]["e"], plain[2]["e"], atol=1e-3) and float(a[1].loss) != float(plain[1].loss)
    torch.testing.assert_close(a[0].seen_cost, plain[0].seen_cost)
    torch.testing.assert_close(b[0].seen_cost, plain[0].seen_cost, rtol=1e-4, atol=1e-4)


class Distinct(NegativeSource):
    """Ids of a row that differ from each other and from its entity and its target; they recur in other rows."""

    name = "distinct-for-a-test"

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, group = self.draw_layout(query)
        weight = torch.rand(n, V, generator=self.random)
        taken = torch.stack([query.context[:, 0], query.target], 1)
        ids = weight.scatter(1, taken, -1.0).topk(k, 1).indices
        return Negatives(ids, draw_id=group, total_weight=torch.full((1, 1), float(k)))


@needs_core
@looped("optimizer", ["sgd", "row-adagrad"])
@looped("norm", ["l1", "l2"])
@looped("temperature", [0.0, 1.0])
def test_recurring_rows_are_updated_as_by_steps_of_one_example(optimizer: str, norm: str, temperature: float) -> None:
    """300 examples of a graph in which each entity and relation recurs: the engines differ in the size of an update."""
    draw = torch.Generator().manual_seed(2)
    entity, relation = torch.randint(V, (300,), generator=draw), torch.randint(R, (300,), generator=draw)
    target = (entity + 7 * relation + 1 + torch.randint(3, (300,), generator=draw)) % V
    block = Triples(target, torch.randint(2, (300,), generator=draw), entity, relation)
    model_class, cost = models.find("transe"), losses.find("self_adversarial")
    tables = []
    for engine_class, batch in ((CompiledTriples, 300), (Step, 1), (Step, 300)):
        net = model_class(model_class.Config(name="transe", dim=5, norm=norm, span=0.5), WORLD)
        lossy = cost(cost.Config(name="self_adversarial", margin=3.0, temperature=temperature), WORLD)
        config = TrainConfig(optimizer=optimizer, lr=0.05, batch=batch)
        source = Distinct(sources.NegativesConfig(source="unigram", k=K, filter="none"), WORLD)
        engine_class(net, source, lossy, make_optimizers(net, lossy, config), config)(block)
        tables.append(torch.cat([net.e.detach()[:, :5], net.r.detach()[:, :5]]))
    fused, one, all_at_once = tables
    assert (fused - one).abs().max() < 2e-3 < .02 < (fused - all_at_once).abs().max()


class Examples:
    def n_blocks(self, epoch: int, block: int) -> int:
        return 3

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[Batch]:
        for i in range(start, 3):
            draw = torch.Generator().manual_seed(epoch * 3 + i)
            entity, relation = torch.randint(V, (600,), generator=draw), torch.randint(R, (600,), generator=draw)
            yield Triples((entity + 7 * relation + 1) % V, torch.zeros_like(entity), entity, relation)


def fit(folder: Path, strategy: str = "uniform", loss: str = "self_adversarial", **keys: Any) -> Trainer:
    model_class, cost, source = models.find("transe"), losses.find(loss), sources.find(strategy)
    net = model_class(model_class.Config(name="transe", dim=16, span=0.5), WORLD)
    lossy = cost(cost.Config(name=loss, margin=3.0), WORLD)
    negatives = source(source.Config(source=strategy, k=8, **keys.pop("negatives", {})), WORLD)
    config = TrainConfig(engine="fused", optimizer="row-adagrad", lr=0.3, epochs=6, threads=1, **keys)
    return Trainer(net, negatives, lossy, Examples(), config, folder, dict)


@needs_core
@pytest.mark.parametrize(("strategy", "negatives"), [("uniform", {}), ("uniform", {"share_draws_by": "block"}),
                                                     ("nscaching", {"cache_size": 9}), ("kbgan", {"hidden": 8}),
                                                     ("ace", {"min_perplexity": 8})])
def test_fused_engine_learns_and_resumes_bitwise(tmp_path: Path, strategy: str, negatives: dict[str, Any]) -> None:
    whole = fit(tmp_path / "a", strategy, negatives=negatives)
    before = _rank(whole.model)
    whole.run()
    assert _rank(whole.model) < before / 2
    part = fit(tmp_path / "b", strategy, negatives=negatives)
    blocks = part.read_blocks

    def two(*args: Any) -> Iterator[Batch]:
        for n, block in enumerate(blocks(*args)):
            if args[0] == 2 and n == 1:
                raise KeyboardInterrupt
            yield block

    part.read_blocks = two
    with pytest.raises(KeyboardInterrupt):
        part.run()
    part.save()
    again = fit(tmp_path / "b", strategy, negatives=negatives)
    again.load()
    again.run()
    assert same(again.model.e.detach(), whole.model.e.detach()) and same(again.model.r.detach(), whole.model.r.detach())


def _rank(model: Any) -> float:
    batch = next(Examples().blocks(0, 1))
    query = model.encode(batch).detach()
    with torch.no_grad():
        s = model.score(query, torch.arange(V).unsqueeze(0))
    return float((s > s.gather(1, batch.target.unsqueeze(1))).sum(1).double().mean())


def choice(model: str = "transe", loss: str = "self_adversarial", **keys: Any) -> list[str]:
    model_class, cost, source = models.find(model), losses.find(loss), sources.find("uniform")
    of_model, of_train = keys.pop("model_keys", {}), {"optimizer": "sgd"} | keys
    return choose.why_not_fused(model_class.Config(name=model, **of_model), source, source.Config(source="uniform"),
                           cost.Config(name=loss), TrainConfig(**of_train), compiled=True)


def test_unsupported_keys_are_rejected_by_name() -> None:
    assert choice() == choice("distmult") == choice(loss="margin") == []
    for reasons, says in ((choice("rotate"), "model.name: rotate"), (choice("transd"), "model.name: transd"),
                          (choice("distmult", model_keys={"penalty": 0.1}), "model.penalty"),
                          (choice(loss="softmax"), "loss.name: softmax"),
                          (choice("skipgram"), "loss.name: self_adversarial"),
                          (choice(optimizer="adam"), "train.optimizer: adam")):
        assert len(reasons) == 1 and reasons[0].startswith(says), reasons


def test_draws_that_are_not_as_many_as_shared_are_rejected() -> None:
    class Wrong(Apart):
        def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
            return Negatives(PLACES[:k].unsqueeze(0), total_weight=torch.ones(1, 1))

    model_class, cost = models.find("transe"), losses.find("logistic")
    net, lossy = model_class(model_class.Config(), WORLD), cost(cost.Config(), WORLD)
    config = TrainConfig(batch=B)
    run = CompiledTriples(net, Wrong(sources.NegativesConfig(k=K), WORLD), lossy, make_optimizers(net, lossy, config),
                          config)
    with pytest.raises(UsageError, match=r"train\.engine: fused needs ids of 8 draws"):
        run(APART)
