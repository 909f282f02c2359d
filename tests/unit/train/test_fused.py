"""The fused engine against the step: the same update, log lines and costs for a source that learns.

Two worlds. `apart`: several windows in which no row of a table occurs twice, so that updates one after the other equal
one update. `crowded`: one window, or one block of windows, with few words, so that rows repeat and draws hit targets;
that is one update for both engines.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.bits import same
from helpers.looped import looped
from torch import Tensor

from embtrain.common.errors import ResourceError, UsageError
from embtrain.common.types import GENERATOR, NOISE, PROBE, ModelView, Negatives, ProblemSpec, Query
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.text.windows import SkipGramBatch, WindowBatch
from embtrain.kernels.core.loader import core
from embtrain.losses import base as losses
from embtrain.losses.base import Loss
from embtrain.models.hierarchies.order import OrderConfig
from embtrain.models.hierarchies.poincare import PoincareConfig
from embtrain.models.triples.distmult import DistMultConfig
from embtrain.models.triples.transe import TransEConfig
from embtrain.models.words.cbow import CbowConfig
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.models.words.subword import SubwordConfig
from embtrain.negatives import base as sources
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.train.checks.compatibility import incompatibilities
from embtrain.train.config import TrainConfig
from embtrain.train.engines import choose as engine, compiled, compiled_windows
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.base import StepResult
from embtrain.train.engines.compiled_pairs import CompiledPairs
from embtrain.train.engines.compiled_triples import CompiledTriples
from embtrain.train.engines.compiled_windows import CompiledWindows
from embtrain.train.engines.device.pairs import DevicePairs
from embtrain.train.engines.device.triples import DeviceTriples
from embtrain.train.engines.device.windows import DeviceWindows
from embtrain.train.engines.false_negatives import KnownPositives
from embtrain.train.hardness import hardness
from embtrain.train.loop import Trainer
from embtrain.train.optimizers import make_optimizers
from embtrain.train.state.metrics_log import read

pytestmark = pytest.mark.long

D = 5
APART = WindowBatch(torch.tensor([1, 30, 4]), torch.tensor([0, 2, 3, 6]), torch.tensor([50, 61, 72, 83, 94, 105]))
WINDOW = WindowBatch(torch.tensor([3]), torch.tensor([0, 4]), torch.tensor([1, 2, 0, 5]))
BLOCK = WindowBatch(torch.tensor([3, 6]), torch.tensor([0, 4, 6]), torch.tensor([1, 2, 0, 5, 1, 3]))

SOURCES: dict[str, dict[str, Any]] = {
    "unigram": {}, "unigram with a mass": {"total_weight": 4.5}, "unigram without replacement": {"replacement": False},
    "ace": {"min_perplexity": 3, "hidden": 2, "generator_lr": 0.1},
    "ace with columns of both": {"min_perplexity": 3, "hidden": 2, "sampling": "stratified", "mix": 0.3,
                                 "baseline": "moving"},
    "every": {}, "none": {},
}
SHARES = ("row", "window", "block", "batch")
LOSSES: dict[str, dict[str, Any]] = {
    "logistic": {}, "nce": {}, "nce global": {"partition": "global"}, "nce context": {"partition": "context"},
    "sampled_softmax": {}, "sampled_softmax ranking": {"form": "ranking"}, "margin": {}, "softmax": {},
    "gbce": {}, "alpha_nce": {}, "alpha_nce not centred": {"centered": False},
}
MASKS = ("none", "target", "observed")
OPTIMIZERS = ("sgd", "row-adagrad", "adagrad", "adam")
ALL = list(itertools.product(SOURCES, SHARES, LOSSES, MASKS, OPTIMIZERS))


@dataclass
class Built:
    model: SkipGram
    source: NegativeSource
    loss: Loss
    engine: Step | CompiledWindows
    seen_costs: list[tuple[Query, Negatives, Tensor]]

    def learned_values(self) -> dict[str, Tensor]:
        """Return every number that training changes."""
        result = {f"{part}.{name}": p.detach() for part in ("model", "loss")
                  for name, p in getattr(self, part).named_parameters()}
        if hasattr(self.source, "generator"):
            result |= {f"generator.{name}": p.detach() for name, p in self.source.generator.named_parameters()}
        for name, p in self.model.named_parameters():
            state = self.engine.optimizers[0].state.get(p, {})
            result |= {f"{name}.acc": state["acc"]} if "acc" in state else {}
        return result


class Third:
    """Every third candidate is a known positive."""

    def contains(self, context: Tensor, ids: Tensor) -> Tensor:
        return ids % 3 == 0


def problem(v: int) -> ProblemSpec:
    counts = torch.arange(v, 0, -1).double() / v + 1
    return ProblemSpec(v, counts, n_contexts=v, raw_counts=counts, dim=D, seed=4)


def parts(source: str, share: str, loss: str, mask: str, v: int, **more: Any) -> tuple[NegativeSource, Loss]:
    source_class, cost = sources.find(source.split()[0]), losses.find(loss.split()[0])
    of_batches = {"baseline": "leave_one_out"} if (source, share) == ("ace", "batch") else {}  # no probe for each row
    settings = source_class.Config(source=source_class.name, share_draws_by=share, share_size=2, filter=mask, k=3,
                                   **SOURCES[source] | of_batches | more)
    return source_class(settings, problem(v)), cost(cost.Config(name=cost.name, **LOSSES[loss]), problem(v))


def make(kind: type[Step] | type[CompiledWindows], source: NegativeSource, loss: Loss, v: int, **train: Any) -> Built:
    model = SkipGram(SkipGramConfig(dim=D), problem(v))
    draw = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw))
        for p in loss.parameters():
            p.copy_(torch.linspace(0.2, 1.2, p.numel()).reshape(p.shape))
    config, received = TrainConfig(**{"lr": 0.1, **train}), list[tuple[Query, Negatives, Tensor]]()
    answers: KnownPositives = (
        KnownPairs(torch.tensor([3, 3, 3, 6, 6]), torch.tensor([6, 4, 1, 0, 5]), v) if v < 10 else Third()
    )
    learn = source.learn
    source.learn = lambda *result: (received.append(result), learn(*result))[1]  # type: ignore[method-assign]
    built = kind(model, source, loss, make_optimizers(model, loss, config), config,
                 answers if source.config.filter == "observed" else None)
    return Built(model, source, loss, built, received)


def both(block: WindowBatch, source: str, share: str, loss: str, mask: str, v: int, **train: Any
         ) -> tuple[tuple[Built, StepResult], tuple[Built, StepResult]]:
    """Run the same block through both engines; APART with the first seed that draws no row twice."""
    for seed in range(50):
        one = make(Step, *parts(source, share, loss, mask, v), v, **train)
        one.source.random.manual_seed(seed)
        result = one.engine(block.pairs(), keep_costs=True)  # type: ignore[arg-type]
        if block is WINDOW or block is BLOCK or not collides(block, result.drawn):  # type: ignore[arg-type]
            other = make(CompiledWindows, *parts(source, share, loss, mask, v), v, **train)
            other.source.random.manual_seed(seed)
            return (one, result), (other, other.engine(block, keep_costs=True))  # type: ignore[arg-type]
    raise AssertionError("no draw without repeated rows")


def collides(block: WindowBatch, drawn: Negatives) -> bool:
    """Whether a row of the candidates' table would be updated twice. Probes update nothing."""
    assert drawn.ids is not None
    ids = drawn.ids if drawn.weight is None else drawn.ids[:, drawn.weight.expand(drawn.ids.shape)[0] > 0]
    moved = torch.cat([ids.reshape(-1), block.target])
    return len(moved.unique()) < len(moved)


def assert_agree(step: tuple[Built, StepResult], fast: tuple[Built, StepResult]) -> None:
    (one, result), (other, actual) = step, fast
    torch.testing.assert_close(other.learned_values(), one.learned_values(), rtol=2e-4, atol=2e-6)
    torch.testing.assert_close(actual.loss, result.loss, rtol=1e-5, atol=1e-6)
    assert actual.source == pytest.approx(result.source, rel=1e-3, abs=1e-5)
    assert actual.query is not None and actual.drawn is not None
    assert result.query is not None and result.drawn is not None
    assert actual.cost is not None and result.cost is not None
    torch.testing.assert_close(actual.cost, result.cost, rtol=1e-4, atol=1e-5)
    lines = [hardness(x.query, x.drawn, x.cost, m.engine.view) for m, x in (step, fast)]  # type: ignore[arg-type]
    assert lines[0].keys() == lines[1].keys() and lines[1] == pytest.approx(lines[0], rel=1e-3, abs=1e-4)
    n_masked = [0 if x.drawn.false_negatives is None else x.drawn.false_negatives.shape[1]
                for x in (result, actual)]  # type: ignore[union-attr]
    assert n_masked[0] == n_masked[1] and len(actual.query) * actual.drawn.k == len(result.query) * result.drawn.k
    assert len(one.seen_costs) == len(other.seen_costs) == int(one.source.traits.learns)
    for (query, drawn, cost), (queries, actual_drawn, costs) in zip(one.seen_costs, other.seen_costs, strict=True):
        assert cost.shape == ((len(query), drawn.k) if one.source.traits.learns_per_row else drawn.ids.shape)
        torch.testing.assert_close(costs, cost, rtol=1e-4, atol=1e-5)
        for name in ("context", "target", "slot", "window"):
            assert torch.equal(getattr(queries, name), getattr(query, name))
        if one.source.traits.uses_model:                     # others need not know which queries are equal
            assert torch.equal(queries.query_id, query.query_id)
        else:
            assert queries.query_id is None
        assert torch.equal(actual_drawn.ids, drawn.ids)
        assert drawn.false_negatives is None or torch.equal(actual_drawn.false_negatives, drawn.false_negatives)


def is_refused(source: str, share: str, loss: str, mask: str, optimizer: str) -> bool:
    """Return what engine.py rejects, written a second time."""
    return share == "batch" or loss == "softmax" or optimizer in ("adagrad", "adam") or source in ("every", "none")


@pytest.mark.parametrize("name", [name if name in ("unigram", "none") else pytest.param(name, marks=pytest.mark.slow)
                                  for name in SOURCES])
def test_every_combination_gives_the_same_update_or_is_rejected(name: str) -> None:
    counted = Counter[str]()
    for source, share, loss, mask, optimizer in (one for one in ALL if one[0] == name):
        draws, cost = parts(source, share, loss, mask, 40)
        model = SkipGram(SkipGramConfig(dim=D), problem(40))
        train = TrainConfig(optimizer=optimizer)
        refused = engine.why_not_fused(model.config, type(draws), draws.config, cost.config, train, True)
        assert bool(refused) == is_refused(source, share, loss, mask, optimizer)
        if incompatibilities(draws, cost, model):
            counted["means nothing"] += 1
        elif refused:
            counted["fused refuses"] += 1
        else:
            counted["runs"] += 1
            assert_agree(*both(APART, source, share, loss, mask, 1500, optimizer=optimizer))
            assert_agree(*both(BLOCK if share == "block" else WINDOW, source, share, loss, mask, 7,
                               optimizer=optimizer))
    assert counted == COUNTED[name] and sum(counted.values()) == 4 * 11 * 3 * 4


#: 4 shares · 11 losses · 3 masks · 4 optimizers = 528 of each source.
COUNTED = {
    "unigram": {"runs": 138, "fused refuses": 230, "means nothing": 160},
    "unigram with a mass": {"runs": 132, "fused refuses": 220, "means nothing": 176},
    "unigram without replacement": {"runs": 66, "fused refuses": 110, "means nothing": 352},
    "ace": {"runs": 138, "fused refuses": 230, "means nothing": 160},
    "ace with columns of both": {"runs": 132, "fused refuses": 220, "means nothing": 176},
    "every": {"fused refuses": 384, "means nothing": 144},
    "none": {"fused refuses": 32, "means nothing": 496},
}


def test_number_of_combinations_that_run() -> None:
    assert len(ALL) == 3696 and sum(result.get("runs", 0) for result in COUNTED.values()) == 606


#: Sources whose q follows the model, with how they share a draw and what they mask.
LOOKING: dict[str, dict[str, Any]] = {
    "exp": {}, "exp by windows": {"exclude_target": False, "share_draws_by": "window", "total_weight": 4.5},
    "quadratic": {"leaf_size": 3, "exclude_target": True}, "rff": {"features": 16, "nu": 0.1},
    "positive_features by windows": {"features": 16, "share_draws_by": "window"},
    "maclaurin": {"features": 16, "nu": 0.1},
    # else the same few are drawn again and again
    "cluster": {"clusters": 3, "exclude_target": True, "singleton_threshold": 0},
    "cluster by windows": {"clusters": 3, "share_draws_by": "window"},
    "midx": {"codewords": 2, "total_weight": 1.5}, "resampled": {"inner": {"source": "unigram", "k": 6,
                                                                           "share_draws_by": "block"}},
    "mixture": {"inner": {"source": "cluster", "clusters": 3}, "epsilon": 0.4},
    "mixture of an adversary": {"inner": {"source": "ace", "min_perplexity": 3, "hidden": 2}, "epsilon": 0.4},
}


def run_looking(case: str, loss: str, mask: str, kind: type[Step] | type[CompiledWindows], block: WindowBatch, v: int,
                seed: int) -> tuple[Built, StepResult] | None:
    """Run the block through one engine; None if the source does not fit the loss."""
    source_class, cost = sources.find(case.split()[0]), losses.find("sampled_softmax")
    config = source_class.Config(**{"source": source_class.name, "k": 3, "filter": mask, **LOOKING[case]})
    components = source_class(config, problem(v)), cost(cost.Config(name=cost.name, **LOSSES[loss]), problem(v))
    built = make(kind, *components, v)
    components[0].random.manual_seed(seed)
    if incompatibilities(*components, built.model):
        return None
    assert source_class.traits.uses_model
    assert not engine.why_not_fused(built.model.config, source_class, config, components[1].config, TrainConfig(), True)
    batch: Any = block.pairs() if kind is Step else block
    return built, built.engine(batch, keep_costs=True)


@looped("case", LOOKING)
@looped("loss, mask", [("sampled_softmax", "target"), ("sampled_softmax ranking", "none")])
def test_source_that_reads_the_model_gives_the_same_update(case: str, loss: str, mask: str) -> None:
    for block, v in ((APART, 600), (WINDOW, 7)):
        start = 134 if case == "cluster" and block is APART else 0   # all seeds before draw a row twice
        for seed in range(start, start + 200):
            first = run_looking(case, loss, mask, Step, block, v, seed)
            if first is None:
                assert loss == "sampled_softmax ranking"
                return
            if block is WINDOW or not collides(block, first[1].drawn):  # type: ignore[arg-type]
                second = run_looking(case, loss, mask, CompiledWindows, block, v, seed)
                assert second is not None
                assert_agree(first, second)
                break
        else:
            assert case == "resampled"  # few candidates, the best again and again


@pytest.mark.parametrize("name", ["in_batch", "hardest"])
def test_draws_of_another_shape_are_rejected_before_training(name: str) -> None:
    source_class, loss = sources.find(name), losses.find("logistic").Config()
    config = source_class.Config(source=name)
    assert engine.why_not_fused(SkipGramConfig(), source_class, config, loss, TrainConfig(), True)[0].startswith(
        f"negatives.source: {name}: its draws ")
    assert engine.choose(SkipGramConfig(), source_class, config, loss, TrainConfig())[0].engine == "autograd"


def test_source_that_reads_the_model_gets_the_blocks_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "core", object)
    for name, block in (("unigram", 32_768), ("cluster", 4096)):
        source_class = sources.find(name)
        loss = losses.find("logistic").Config()
        train = engine.choose(SkipGramConfig(), source_class, source_class.Config(source=name), loss, TrainConfig())[0]
        assert (train.engine, train.chunk) == ("fused", block)


# -- not among the combinations -------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", ["row", "window", "block"])
@pytest.mark.parametrize(("loss", "mask"), [("nce global", "none"), ("nce context", "observed")])
def test_learned_log_z_is_updated_every_batch(share: str, loss: str, mask: str) -> None:
    """Windows of two pairs, batches of four: three steps of c in both engines."""
    block = WindowBatch(torch.tensor([1, 30, 4, 9, 2, 7]), torch.arange(0, 13, 2), torch.arange(50, 170, 10))
    results = both(block, "unigram", share, loss, mask, 3000, batch=4)
    torch.testing.assert_close(*(built.learned_values() for built, _ in results), rtol=2e-4, atol=2e-6)
    torch.testing.assert_close(*(result.loss for _, result in results), rtol=1e-5, atol=1e-6)
    steps = [built.engine.optimizers[1].state[built.loss.c]["step"] for built, _ in results]
    assert steps == [3, 3]


class Given(NegativeSource):
    """Draws fixed negatives, and learns nothing from their costs."""

    name = "given"
    traits = Traits(learns=True, uses_model=True)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, group = self.draw_layout(query)
        ids = torch.randint(len(view.table()), (n, k), generator=self.random)
        look = view.score(query, torch.zeros(1, 1, dtype=torch.int64)).sum()    # NaN where no vectors are available
        assert torch.isfinite(look) and query.vector.shape == (len(query), D)
        return Negatives(ids, draw_id=group, log_q=torch.full((1, 1), -1.5), log_q_target=-torch.ones(len(query)),
                         weight=torch.rand(n, k, generator=self.random) + 0.2, total_weight=torch.full((1, 1), 3.5),
                         origin=torch.tensor([[NOISE, GENERATOR, PROBE]], dtype=torch.int8))


@looped("learns_per_row", [False, True])
@looped("share", ["row", "window", "block"])
@looped("loss, mask", [("logistic", "target"), ("nce context", "none"), ("margin", "observed")])
def test_source_that_learns_receives_the_same(share: str, loss: str, mask: str, learns_per_row: bool) -> None:
    """Weights of each draw, one log q for all, and a block whose negative is masked in some of its windows only."""
    result = []
    for kind in (Step, CompiledWindows):
        source = Given(NegativesConfig(share_draws_by=share, share_size=2, filter=mask, k=3), problem(7))
        source.traits = replace(source.traits, learns_per_row=learns_per_row)
        built = make(kind, source, parts("unigram", "row", loss, mask, 7)[1], 7)
        batch: Any = BLOCK if share == "block" else WINDOW
        result.append((built, built.engine(batch.pairs() if kind is Step else batch, keep_costs=True)))
    assert_agree(*result)


def test_unsupported_kernel_input_is_rejected_by_name() -> None:
    class Other(Given):
        def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
            model = super().draw(query, k, view)
            return Negatives(model.ids, total_weight=torch.full((len(query), 1),
                                                                2.0)) if self.config.share_draws_by == "row" else \
                Negatives(model.ids[:1])

    for share, says in (("row", "one total weight"), ("window", "needs ids of 2 draws")):
        says = rf"^train\.engine: fused .*{says}.*, but given \(.*Other in .*test_fused\.py\) .*; set train\."
        loss = parts("unigram", "row", "nce", "none", 7)[1]
        built = make(CompiledWindows, Other(NegativesConfig(share_draws_by=share, k=3), problem(7)), loss, 7)
        with pytest.raises(UsageError, match=says):
            built.engine(BLOCK)


@pytest.mark.parametrize("missing", ["log_q", "log_q_target"])
def test_a_draw_without_the_q_of_the_loss_is_refused_by_both_engines(missing: str) -> None:
    class Other(Given):
        def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
            return replace(super().draw(query, k, view), **{missing: None})

    for kind, block in ((CompiledWindows, BLOCK), (Step, BLOCK.pairs())):
        source = Other(NegativesConfig(share_draws_by="row", k=3), problem(7))
        built = make(kind, source, parts("unigram", "row", "nce", "none", 7)[1], 7)
        with pytest.raises(UsageError, match=r"^loss\.name: nce (corrects for|needs) the probability of "):
            built.engine(block)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", ["row", "window", "block"])
def test_query_of_windows_equals_query_of_their_pairs(share: str) -> None:
    """Its rows equal `encode` of the pairs, with the same draws; a slice of it has no windows."""
    block = WindowBatch(torch.tensor([3, 0, 3, 2]), torch.tensor([0, 2, 3, 6, 7]), torch.tensor([1, 0, 2, 2, 4, 0, 1]))
    compiled_engine = CompiledWindows.__new__(CompiledWindows)
    problem = ProblemSpec(5, torch.ones(5, dtype=torch.float64), 5)
    compiled_engine.model = SkipGram(SkipGramConfig(dim=3), problem)
    here, pairs = compiled_engine._query(block, True), block.pairs()
    there = compiled_engine.model.encode(pairs)
    for name in ("vector", "context", "target", "slot", "query_id", "window"):
        assert torch.equal(getattr(here, name), getattr(there, name)), name
    source = NegativeSource(NegativesConfig(share_draws_by=share, share_size=2), problem)  # type: ignore[arg-type]
    (n, group), (m, other) = source.draw_layout(here), source.draw_layout(there)
    assert n == m and (group is None) == (other is None) and (group is None or torch.equal(group, other))
    assert here.window_offsets is not None and here.rows(slice(2, 5)).window_offsets is None
    assert (
        here.contexts(here.window_offsets).tolist()
        == here.detach().contexts(here.window_offsets).tolist()
        == [3, 0, 3, 2]
    )
    other = torch.tensor([0, 2, 7])
    assert here.contexts(other).tolist() == here.detach().contexts(other).tolist() == [3, 0]


def test_block_without_pairs() -> None:
    built = make(CompiledWindows, *parts("unigram", "row", "logistic", "target", 7), 7)
    before = built.learned_values()
    none = torch.empty(0, dtype=torch.int64)
    result = built.engine(WindowBatch(none, torch.zeros(1, dtype=torch.int64), none), keep_costs=True)
    assert float(result.loss) == 0 and result.cost is None and all(same(x, before[n]) for n,
                                                                   x in built.learned_values().items())


def test_log_gets_the_first_windows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make(CompiledWindows, *parts("unigram", "window", "logistic", "target", 200), 200).engine(
        APART, keep_costs=True
    )
    monkeypatch.setattr(compiled_windows, "MAX_LOGGED_ROWS", 3)
    some = make(CompiledWindows, *parts("unigram", "window", "logistic", "target", 200), 200).engine(
        APART, keep_costs=True
    )
    assert whole.cost is not None and some.cost is not None and some.query is not None and len(some.query) == 3
    assert whole.cost.shape == (6, 3) and same(some.cost, whole.cost[:3]) and same(some.loss, whole.loss)
    assert (
        make(CompiledWindows, *parts("unigram", "window", "logistic", "target", 200), 200).engine(APART).query is None
    )


def test_fixed_source_draws_ids_only(monkeypatch: pytest.MonkeyPatch) -> None:
    built = make(CompiledWindows, *parts("unigram", "window", "nce", "none", 200), 200)
    monkeypatch.setattr(CompiledWindows, "_query", None)
    monkeypatch.setattr(type(built.source), "log_prob", None)
    assert torch.isfinite(built.engine(APART).loss)


# -- the choice of the engine -----------------------------------------------------------------------------------------


@looped("change, says", [
    ({"model.similarity": "cosine"}, "model.similarity"), ({"loss.penalty": 0.1}, "loss.penalty"),
    ({"train.clip": 1.0}, "train.clip"), ({"train.reduction": "mean"}, "train.reduction"),
    ({"train.device": "cuda:1"}, ""), ({"train.optimizer": "adam"}, "train.optimizer"),
    ({"train.device": "cuda", "negatives.k": 129}, "negatives.k"), ({"train.device": "cuda", "negatives.k": 128}, ""),
    ({"train.device": "cuda", "model.subword": SubwordConfig()}, "model.subword"),
    ({"train.device": "cuda", "train.clip": 1.0}, "train.clip"),
    ({"negatives.share_draws_by": "batch"}, "negatives.share_draws_by"),
    ({"negatives.share_draws_by": "block", "negatives.share_size": 5000}, "negatives.share_size"), ({}, ""),
])
def test_each_rejection_names_its_key(change: dict[str, Any], says: str) -> None:
    built = {"model": SkipGramConfig(), "negatives": NegativesConfig(), "loss": losses.find("logistic").Config(),
             "train": TrainConfig()}
    for key, value in change.items():
        part, name = key.split(".")
        built[part] = built[part].model_copy(update={name: value})
    unigram = sources.find("unigram")
    result = engine.why_not_fused(built["model"], unigram, built["negatives"], built["loss"], built["train"], True)
    assert len(result) == bool(says) and all(reason.startswith(f"{says}: ") for reason in result)


def test_the_gpu_has_kernels_for_some_models() -> None:
    train = TrainConfig(device="cuda")
    for model, negatives, reasons in (
            (TransEConfig(dim=256), NegativesConfig(k=512), []), (DistMultConfig(), NegativesConfig(), []),
            (CbowConfig(), NegativesConfig(), ["train.device: cuda: cbow has no kernel on a GPU"]),
            (PoincareConfig(), NegativesConfig(), ["train.device: cuda: poincare has no kernel on a GPU"]),
            (OrderConfig(), NegativesConfig(), []),
            (TransEConfig(dim=20_000), NegativesConfig(), [
                "model.dim: 20000: the kernels on a GPU keep a row in registers, where 16384 dimensions fit"])):
        loss = losses.find("order" if isinstance(model, OrderConfig | PoincareConfig) else "logistic").Config()
        assert engine.why_not_fused(model, sources.find("unigram"), negatives, loss, train, True) == reasons


@pytest.mark.parametrize("installed", [True, False])
def test_the_gpu_needs_triton(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the compiled core: auto then trains by autograd, and fused ends in one line that names the package."""
    monkeypatch.setattr(engine, "core", lambda: None)
    monkeypatch.setattr(engine, "has_triton", lambda: installed)
    options = (SkipGramConfig(), sources.find("unigram"), NegativesConfig(), losses.find("logistic").Config())
    train, reasons = engine.choose(*options, TrainConfig(device="cuda"))
    assert (train.engine, train.chunk) == (("fused", 262_144) if installed else ("autograd", 4096))
    assert engine.engine_class(train, "windows") is (DeviceWindows if installed else Step)
    if not installed:
        (reason,) = reasons
        assert reason.startswith("train.device: cuda: ") and "pip install 'embtrain[gpu]'" in reason
        with pytest.raises(ResourceError, match=r"^train\.engine: fused: train\.device: cuda: "):
            engine.choose(*options, TrainConfig(device="cuda", engine="fused"))


def test_each_device_has_its_step() -> None:
    for device, kind, triples, pairs, size in (("cpu", CompiledWindows, CompiledTriples, CompiledPairs, 32_768),
                                               ("cuda:1", DeviceWindows, DeviceTriples, DevicePairs, 65_536)):
        train = TrainConfig(engine="fused", device=device)
        for task in ("windows", "walks"):
            assert engine.engine_class(train, task) is kind
        assert engine.engine_class(train, "triples") is triples and engine.engine_class(train, "pairs") is pairs
        assert engine.block_size(train, "fused", False, "triples") == size
        assert engine.block_size(train, "fused", True, "triples") == 4096


@pytest.mark.parametrize("compiled", [True, False])
def test_auto_uses_the_fused_engine_if_possible(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "core", lambda: object() if compiled else None)
    unigram, softmax = sources.find("unigram"), losses.find("softmax").Config()
    logistic, model, negatives = losses.find("logistic").Config(), SkipGramConfig(), NegativesConfig()
    train, reasons = engine.choose(model, unigram, negatives, logistic, TrainConfig())
    assert (train.engine, train.chunk) == (("fused", 32_768) if compiled else ("autograd", 4096))
    assert bool(reasons) != compiled
    train, reasons = engine.choose(model, unigram, negatives, softmax, TrainConfig(chunk=7))
    assert (train.engine, train.chunk) == ("autograd", 7) and any("loss.name: softmax" in reason for reason in reasons)
    assert engine.choose(model, unigram, negatives, logistic, TrainConfig(engine="autograd"))[0].engine == "autograd"
    with pytest.raises(UsageError, match=r"train\.engine: fused: loss\.name: softmax"):
        engine.choose(model, unigram, negatives, softmax, TrainConfig(engine="fused"))
    if not compiled:
        with pytest.raises(ResourceError, match="embtrain doctor"):
            engine.choose(model, unigram, negatives, logistic, TrainConfig(engine="fused"))


# -- the loop ---------------------------------------------------------------------------------------------------------

V = 12


class Blocks:
    """Blocks of eight windows each, determined by (epoch, block): even words occur next to even words."""

    def __init__(self, n: int = 4):
        self.n = n

    def n_blocks(self, epoch: int, block: int) -> int:
        return self.n

    def windows(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[WindowBatch]:
        for i in range(start, self.n):
            draw = torch.Generator().manual_seed(1000 * epoch + i)
            centre = torch.randint(V, (8,), generator=draw)
            target = torch.randint(V // 2, (24,), generator=draw) * 2 + centre.repeat_interleave(3) % 2
            yield WindowBatch(centre, torch.arange(0, 25, 3), target)

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[SkipGramBatch]:
        return (block.pairs() for block in self.windows(epoch, block, start, shuffle))


def fit(folder: Path, source: str = "unigram", loss: str = "logistic", share: str = "row", blocks: int = 4, **train: Any
        ) -> Trainer:
    draws, cost = parts(source, share, loss, "none" if loss.startswith("nce") else "target", V)
    model = SkipGram(SkipGramConfig(dim=D), problem(V))
    settings = {"epochs": 2, "lr": 0.1, "log_every": 1, "engine": "fused", **train}
    return Trainer(model, draws, cost, Blocks(blocks), TrainConfig(**settings), folder, dict)


CASES = [("unigram", "logistic", "block", "sgd"), ("unigram", "nce global", "window", "row-adagrad"),
         ("ace", "nce context", "row", "row-adagrad")]


@pytest.mark.parametrize(("source", "loss", "share", "optimizer"), CASES)
def test_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, source: str, loss: str, share: str, optimizer: str
                                                 ) -> None:
    settings = {"source": source, "loss": loss, "share": share, "optimizer": optimizer}
    whole = fit(tmp_path / "whole", **settings)
    whole.run()
    first = fit(tmp_path / "parts", cpu_seconds=1e-9, min_lr=0.1, **settings)
    first.config = first.config.model_copy(update={"cpu_seconds": None, "min_lr": 0.0001})
    steps = []
    first._should_stop = lambda: len(steps) >= 3 or steps.append(1)  # type: ignore[method-assign, func-returns-value]
    first.run()
    assert first.position.step < whole.position.step
    second = fit(tmp_path / "parts", **settings)
    second.load()
    second.run()
    assert second.position.step == whole.position.step and second.position.examples == whole.position.examples == 8 * 24
    for part in ("model", "loss", "source"):
        assert same(getattr(second, part).state_dict(), getattr(whole, part).state_dict())
    result = [[{k: v for k, v in line.items() if "seconds" not in k} for line in read(tmp_path / x / "metrics.jsonl")]
              for x in ("whole", "parts")]
    assert result[0] == result[1]


@pytest.mark.parametrize(("source", "loss", "share", "optimizer"), CASES)
def test_one_thread_is_bitwise_repeatable(tmp_path: Path, source: str, loss: str, share: str, optimizer: str
                                          ) -> None:
    result = []
    for name in "ab":
        built = fit(tmp_path / name, source, loss, share, optimizer=optimizer)
        built.run()
        result.append([built.model.state_dict(), built.loss.state_dict(), built.source.state_dict()])
    assert same(result[0], result[1])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("share", ["row", "window", "block"])
def test_fused_engine_learns_the_checkerboard(tmp_path: Path, share: str, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        built = fit(tmp_path, share=share, epochs=12, blocks=20, log_every=1000)
        assert built.step.threads == threads  # type: ignore[union-attr]
        built.run()
    finally:
        torch.set_num_threads(before)
    s = (built.model.u @ built.model.v.T).detach()  # type: ignore[operator, union-attr]
    positive = (torch.arange(V)[:, None] + torch.arange(V)) % 2 == 0
    assert float(s[positive].min()) > float(s[~positive].max())


def test_both_engines_write_the_same_lines(tmp_path: Path) -> None:
    """The same keys, and the same numbers at a rate that changes nothing."""
    for name in ("autograd", "fused"):
        built = fit(tmp_path / name, "ace", "nce global", engine=name, lr=1e-9, min_lr=0.0, loss_lr=1e-9)
        with torch.no_grad():
            for p in built.model.parameters():
                p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(len(p))))
        built.run()
    step, fast = ([line for line in read(tmp_path / name / "metrics.jsonl") if "loss" in line]
                  for name in ("autograd", "fused"))
    assert len(step) == len(fast) == 8
    for one, other in zip(step, fast, strict=True):
        assert list(one) == list(other) and {"loss/noise", "loss/generator", "masked", "source/entropy"} <= one.keys()
        assert [other[k] for k in one if "seconds" not in k] == pytest.approx(
            [one[k] for k in one if "seconds" not in k], rel=1e-4, abs=1e-5)


# -- the tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [5, 16, 100])
def test_table_layout_for_kernels_is_invisible(dim: int) -> None:
    model, plain = (SkipGram(SkipGramConfig(dim=dim), problem(30)) for _ in range(2))
    compiled.pad_rows(model)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert p.stride() == (-(-dim // 16) * 16, 1) and p.data_ptr() % 64 == 0 and same(p.detach(), q.detach())
        whole = p.detach().as_strided((len(p), p.stride(0)), p.stride())
        assert not whole[:, dim:].any()
    query = model.encode(WINDOW.pairs())
    torch.testing.assert_close(model.score(query, torch.arange(30)[None]), plain.score(query, torch.arange(30)[None]))
    model.load_state_dict(plain.state_dict())
    assert model.u.stride(0) % 16 == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_step_on_padded_tables_equals_a_step(optimizer: str) -> None:
    """F.embedding, its sparse gradients and every optimizer work on the view of a wider table."""
    result = []
    for pad in (False, True):
        built = make(Step, *parts("unigram", "row", "logistic", "target", 30), 30, optimizer=optimizer)
        if pad:
            compiled.pad_rows(built.model)
        for _ in range(3):
            built.engine(BLOCK.pairs())
        result.append(built.learned_values())
    torch.testing.assert_close(result[1], result[0], rtol=1e-5, atol=1e-6)


def test_core_is_loaded_if_it_exists() -> None:
    """A core that exists and fails to load must not pass for a missing one."""
    built = make(CompiledWindows, *parts("unigram", "row", "logistic", "target", 7), 7)
    assert built.engine.threads == 1 and (core() is None or built.model.u.stride(0) == 16)  # type: ignore[union-attr]
