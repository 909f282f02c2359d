"""Modules of embtrain.nn as programs use them: saving, copying, half precision, layouts, classes that never occur."""

from __future__ import annotations

import copy
import hashlib
import io
import itertools
import multiprocessing
import pickle
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as checkpoint
from helpers.looped import looped
from torch import Tensor, nn

import embtrain.nn as sampled
from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.losses import base as losses
from embtrain.negatives import base as negatives
from embtrain.negatives.adversarial.ace import Ace
from embtrain.negatives.base import NegativesConfig, NegativeSource
from embtrain.nn.module import SampledLoss
from embtrain.train.state import serialize

V, D, B = 40, 8, 12
ONE_VECTOR = ("synthetic_difference", "synthetic_projection")          # one negative for each row


@pytest.fixture
def query() -> Tensor:
    return torch.randn(B, D, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def weight() -> nn.Parameter:
    return nn.Parameter(torch.randn(V, D, generator=torch.Generator().manual_seed(2)))


@pytest.fixture
def target() -> Tensor:
    return torch.arange(B)


def source_of(name: str, k: int = 5) -> NegativeSource:
    kind = negatives.find(name)
    problem = ProblemSpec(V, torch.ones(V, dtype=torch.float64), dim=D)
    return kind(kind.Config(source=name, k=k, filter="target"), problem)


# -- evaluation --------------------------------------------------------------------------------------------------------

RECORDING = {"adversarial_tree": {"pairs": 30, "fits": None}, "in_batch": {"correction": "streaming"},
             "nscaching": {"num_contexts": V}, "ace": {"num_contexts": V, "update_every": 100}, "cluster": {},
             "midx": {}, "rff": {}, "exp": {"update_every": 5},
             "mixture": {"inner": {"source": "adversarial_tree", "pairs": 30}}}


@pytest.mark.parametrize("name", RECORDING)
def test_an_evaluation_leaves_the_source_as_it_was(name: str, query: Tensor, weight: Tensor, target: Tensor) -> None:
    """Before and between training calls, with targets and contexts that training lacks."""
    def trained(is_evaluated: bool) -> SampledLoss:
        loss = SampledLoss(name, loss="logistic", num_classes=V, num_sampled=5, counts=torch.ones(V),
                           **RECORDING[name])
        for _ in range(4):
            loss.eval()
            for seed in range(2 * is_evaluated):
                loss(torch.roll(query, seed), weight, V - 1 - target, context=V - 1 - target)
            loss.train()
            if loss.source is not None:
                loss.source.reseed(0)                                          # as a new one
            loss(query, weight, target, context=target).backward()
        return loss
    evaluated, plain = (trained(is_evaluated).source for is_evaluated in (True, False))
    assert evaluated is not None and plain is not None
    for source in (evaluated, plain):
        source.reseed(5)
    assert serialize.to_bytes(evaluated.state_dict()) == serialize.to_bytes(plain.state_dict())


# -- inference mode ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["ace", "nscaching", "cluster", "in_batch"])
@pytest.mark.parametrize("is_training", [False, True])
def test_calls_in_inference_mode_leave_a_loss_that_trains(name: str, is_training: bool, query: Tensor, weight: Tensor,
                                                          target: Tensor) -> None:
    """Also if a state was loaded there."""
    def made() -> SampledLoss:
        return sampled.NegativeSampling(name, num_classes=V, num_sampled=5, num_contexts=B,
                                        counts=None if name == "in_batch" else torch.ones(V)).train(is_training)
    def train(loss: SampledLoss) -> None:
        for _ in range(2):
            loss.train()(query, weight, target, context=torch.arange(B)).backward()
    first, second = made(), made()
    with torch.inference_mode():
        first(query, weight, target, context=torch.arange(B))
        second.load_state_dict(first.state_dict())
    train(first)
    train(second)
    third = made()
    with torch.inference_mode():
        third.load_state_dict(second.state_dict())
        third(query, weight, target, context=torch.arange(B))
    train(third)


# -- autocast ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["cluster", "midx", "exp", "rff", "quadratic", "ace", "mixture", "adversarial_tree"])
def test_probabilities_under_autocast_are_those_of_the_draws(name: str, query: Tensor, weight: Tensor, target: Tensor
                                                             ) -> None:
    loss = sampled.SampledSoftmax(name, num_classes=V, num_sampled=5, counts=torch.ones(V), num_contexts=B,
                                  **({"exclude_target": False} if name == "exp" else {}))
    context, ids = torch.arange(B), torch.arange(V)
    loss(query, weight, target, context=context)
    log_q = loss.log_prob(query, weight, ids, context=context)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss.log_prob(query, weight, ids, context=context), log_q)


@pytest.mark.parametrize("name", losses.names())
def test_every_loss_is_computed_in_float32(name: str, query: Tensor, weight: Tensor, target: Tensor) -> None:
    """Half queries and weights, with and without autocast, for every source that the loss can have."""
    rows = nn.functional.normalize(weight.detach(), dim=1)
    n_tested = 0
    for source, kind in itertools.product(["unigram", "every", "none", *ONE_VECTOR], [
            {}, {"frozen": True}, {"frozen": True, "similarity": "cosine"}]):
        def value(dtype: torch.dtype, weight_dtype: torch.dtype, cast: torch.dtype | None, source: str = source,
                  kind: dict[str, Any] = kind) -> Tensor:
            k = 1 if source in ONE_VECTOR else 5 if source == "unigram" else None
            loss = SampledLoss(source, loss=name, num_classes=V, num_sampled=k,
                               filter="none" if source in ("every", "none") else "target", counts=torch.ones(V), **kind)
            h = query.to(dtype, copy=True).requires_grad_()
            with torch.autocast("cpu", cast, enabled=cast is not None):
                found = loss(h, rows.to(weight_dtype), target)
            found.backward()
            assert h.grad is not None and h.grad.isfinite().all()
            return found.detach()
        try:
            expected = value(torch.float32, torch.float32, None)
        except UsageError:
            continue
        n_tested += 1
        full, bf16, f16 = torch.float32, torch.bfloat16, torch.float16
        for case in (bf16, bf16, None), (f16, f16, None), (bf16, full, bf16), (full, bf16, bf16), (f16, f16, bf16):
            found = value(*case)
            assert found.dtype == full
            assert torch.allclose(found, expected, rtol=0.04, atol=0.04), (source, kind, case)
        with pytest.raises(UsageError, match=r"^query: has the dtype torch.float64, .*; convert one of them$"):
            value(torch.float64, torch.float32, torch.bfloat16)
    assert n_tested


@looped("name", [name for name in negatives.names() if name not in ("none", "candidates", "reflexive", "typed")])
def test_every_source_draws_for_half_precision(name: str, query: Tensor, weight: Tensor, target: Tensor) -> None:
    one = name in ONE_VECTOR
    k = 1 if one else None if name == "every" else 5
    for dtype, weight_dtype, cast in ((torch.bfloat16, torch.bfloat16, None), (torch.float16, torch.float16, None),
                                      (torch.bfloat16, torch.float32, torch.bfloat16)):
        loss = SampledLoss(name, loss="margin" if one else "logistic", num_classes=V, num_sampled=k,
                           counts=torch.ones(V), num_contexts=B, frozen=one, similarity="cosine" if one else "dot")
        h = query.to(dtype).requires_grad_()
        table = nn.functional.normalize(weight.detach(), dim=1).to(weight_dtype).requires_grad_(not one)
        for _ in range(2):
            with torch.autocast("cpu", cast, enabled=cast is not None):
                value = loss(h, table, target, context=torch.arange(B))
            value.backward()
        assert value.dtype == torch.float32 and value.isfinite()
        assert h.grad is not None and h.grad.isfinite().all()


@pytest.mark.parametrize("name", ["ace", "kbgan"])
def test_a_generator_learns_in_float32_in_a_backward_under_autocast(name: str, query: Tensor, weight: Tensor,
                                                                    target: Tensor) -> None:
    def trained(is_enabled: bool) -> bytes:
        loss = sampled.NegativeSampling(name, num_classes=V, num_sampled=5, counts=torch.ones(V), num_contexts=B)
        value = loss(query, weight, target, context=torch.arange(B))
        with torch.autocast("cpu", torch.bfloat16, enabled=is_enabled):
            value.backward()
        assert loss.source is not None
        return serialize.to_bytes(loss.source.state_dict())
    assert trained(True) == trained(False)


# -- counts of a stream ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["adversarial_tree", "mixture"])
def test_a_fitted_tree_outlives_the_doublings_of_the_counts(name: str, monkeypatch: pytest.MonkeyPatch, query: Tensor,
                                                            weight: Tensor, target: Tensor) -> None:
    """Before the fit, the counts set q and the collected examples stay; after it, q depends on the fit alone."""
    monkeypatch.setattr("embtrain.nn.source.FIRST_REBUILD", B)
    settings = {"pairs": 3 * B, "features": 4}
    loss = sampled.NCE(name, num_classes=V, num_sampled=5, **(
        settings if name == "adversarial_tree" else {"inner": {"source": "adversarial_tree", **settings}}))
    fitted = []
    for _ in range(10):                                                    # counts are doubled at calls 1, 2, 4 and 8
        loss(query, weight, target)
        tree = loss.source if name == "adversarial_tree" else loss.source.inner             # type: ignore[union-attr]
        fitted.append((tree.n_seen, tree.n_fits))                                           # type: ignore[union-attr]
        if len(fitted) == 3:
            assert tree.tree.counts[0] == 3                                                 # type: ignore[union-attr]
    assert fitted == [(B * (i + 1), int(i >= 3)) for i in range(10)]
    assert loss.log_prob(query, weight, torch.arange(V)).exp()[:, :B].sum(1).min() > 0.8


@pytest.mark.parametrize("name", ["uniform", "unigram", "cluster", "mixture", "ace"])
def test_processes_that_load_one_state_draw_by_seeds_of_their_own(name: str, query: Tensor, weight: Tensor,
                                                                  target: Tensor) -> None:
    def made() -> SampledLoss:
        return sampled.NegativeSampling(name, num_classes=V, num_sampled=5, counts=torch.ones(V), num_contexts=V)
    def call(loss: SampledLoss) -> float:
        return loss(query, weight, target, context=target).item()
    def reseeded(seed: int) -> SampledLoss:
        again = loaded(trained, made())
        again.reseed(seed)
        return again
    trained = made()
    call(trained)
    first, second, repeated = (call(reseeded(seed)) for seed in (1, 2, 1))
    assert first == repeated != second
    assert call(loaded(reseeded(1), made())) == call(copy.deepcopy(reseeded(1))) == first   # saved before its next call
    assert call(loaded(trained, reseeded(1))) == call(loaded(trained, made())) not in (first, second)
    used, new = loaded(trained, made()), made()
    call(used)
    used.reseed(1)
    new.reseed(1)
    assert call(used) == call(new) == first
    with pytest.raises(UsageError, match=r"^seed: -1"):
        new.reseed(-1)


class WithParameter(NegativeSource):
    """Draws by a parameter of its own, which the loss must not train."""

    name = "with_parameter"

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.logits = torch.zeros(problem.n_candidates, requires_grad=True)

    def draw(self, query: Query, k: int, view: ModelView | None) -> Negatives:
        n, group = self.draw_layout(query)
        ids = torch.randint(self.problem.n_candidates, (n, k), generator=self.random)
        return Negatives(ids, draw_id=group, log_q=self.logits.log_softmax(0)[ids],
                         total_weight=torch.full((1, 1), float(k)))

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return self.logits.log_softmax(0)[ids].expand(len(query), -1)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_sources_draw_without_gradients(mode: Any, query: Tensor, weight: Tensor, target: Tensor) -> None:
    source = WithParameter(NegativesConfig(source="with_parameter", k=5), ProblemSpec(V, torch.ones(V).double()))
    loss = SampledLoss(source, num_classes=V)
    with mode():
        loss(query, weight, target)
        assert not loss.log_prob(query, weight, torch.arange(V)).requires_grad
    loss(query, weight, target).backward()
    assert source.logits.grad is None


@pytest.mark.parametrize(("fields", "message"), [
    ({"ids": torch.zeros(1, 7, dtype=torch.int64)}, "returned 7 negatives, but k is 5; return k negatives"),
    ({"ids": torch.zeros(1, 5, dtype=torch.int32)}, r"returned ids of torch\.int32"),
    ({"ids": torch.full((1, 5), V)}, f"return ids from 0 to {V - 1}"),
    ({"log_q": torch.full((1, 1), torch.nan)}, "returned log_q that is not finite"),
    ({"log_q": -3.0}, "returned log_q of the type float; return a tensor")])
def test_a_source_of_the_user_is_checked_as_an_object_too(
        fields: dict[str, Any], message: str, query: Tensor, weight: Tensor, target: Tensor) -> None:
    class Wrong(WithParameter):
        def draw(self, query: Query, k: int, view: ModelView | None) -> Negatives:
            drawn = Negatives(torch.zeros(1, k, dtype=torch.int64), log_q=torch.zeros(1, 1))
            return replace(drawn, **fields)

    source = Wrong(NegativesConfig(source="with_parameter", k=5), ProblemSpec(V, torch.ones(V).double()))
    loss = SampledLoss(source, num_classes=V)
    assert loss.source is source and isinstance(source, Wrong)
    with pytest.raises(UsageError, match=rf"^{__file__}:\d+: negatives: with_parameter: draw .*{message}"):
        loss(query, weight, target)


def test_a_source_of_the_user_without_settings_is_refused() -> None:
    class Empty(WithParameter):
        def __init__(self) -> None:
            pass

    with pytest.raises(UsageError, match=r"^negatives: with_parameter \(.*Empty in .*: has no settings; call super"):
        SampledLoss(Empty(), num_classes=V)


def test_a_source_of_embtrain_keeps_its_class() -> None:
    source = Ace(Ace.Config(source="ace", min_perplexity=3), ProblemSpec(V, torch.ones(V).double(), V, dim=D))
    assert type(SampledLoss(source, num_classes=V).source) is Ace


def test_a_weight_of_half_precision_has_no_sparse_gradient_for_float32(query: Tensor, weight: Tensor, target: Tensor
                                                                       ) -> None:
    loss = SampledLoss("uniform", num_classes=V, sparse=True)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UsageError, match=r"^weight: .*no sparse gradient"):
        loss(query.float(), weight.bfloat16(), target)


def loaded(loss: SampledLoss, other: SampledLoss) -> SampledLoss:
    other.load_state_dict(loss.state_dict())
    return other


@pytest.mark.parametrize("resume", [loaded, lambda loss, other: copy.deepcopy(loss)], ids=["loaded", "copied"])
@pytest.mark.parametrize(("name", "options"), [
    ("unigram", {}), ("cluster", {}), ("cluster", {"within_cell": "unigram"}), ("rff", {"prior_exponent": 0.75}),
    ("mixture", {}), ("hardest", {"inner": {"source": "unigram", "k": 9}}), ("adversarial_tree", {"pairs": 2 * B})])
def test_a_module_continues_at_the_call_that_doubles_the_counts(
        resume: Callable[[SampledLoss, SampledLoss], SampledLoss], name: str, options: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch, query: Tensor, weight: Tensor, target: Tensor) -> None:
    monkeypatch.setattr("embtrain.nn.source.FIRST_REBUILD", 2 * B)
    random = torch.Generator().manual_seed(3)
    weights = [torch.randn(V, D, generator=random, requires_grad=True) for _ in range(7)]
    def call(loss: SampledLoss, i: int) -> float:
        return loss(query, weights[i], target, context=target).item()
    def made() -> SampledLoss:
        return sampled.NegativeSampling(name, num_classes=V, num_sampled=5, **options)
    straight = made()
    expected = [call(straight, i) for i in range(7)]
    for n in (1, 3):                                       # the counts are doubled at the second and the fourth call
        loss = made()
        assert [call(loss, i) for i in range(n)] == expected[:n]
        again = resume(loss, made())
        assert [call(again, i) for i in range(n, 7)] == expected[n:]


# -- classes that never occur ------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("kind", "source"), [
    (sampled.NCE, "unigram"), (sampled.RankingNCE, "unigram"), (sampled.SampledSoftmax, "in_batch"),
    (sampled.NCE, "in_batch")])
def test_a_target_of_count_0_is_refused(kind: type[SampledLoss], source: str, query: Tensor, weight: Tensor,
                                        target: Tensor) -> None:
    """Its log q is infinite: the loss would be infinite, or not depend on it."""
    loss = kind(source, num_classes=V, num_sampled=5, counts=torch.arange(V))
    with pytest.raises(UsageError, match=rf"^target: class 0 occurs, but its probability under {source} is 0; give"):
        loss(query, weight, target)
    assert loss(query, weight, target + 1).isfinite()


def test_a_target_of_count_0_has_a_loss_that_does_not_read_its_q(query: Tensor, weight: Tensor, target: Tensor) -> None:
    for kind in (sampled.SampledSoftmax, sampled.NegativeSampling):
        assert kind("unigram", num_classes=V, num_sampled=5, counts=torch.arange(V))(query, weight, target).isfinite()


# -- states and copies -------------------------------------------------------------------------------------------------

def learning(**options: object) -> SampledLoss:
    return sampled.NegativeSampling("ace", num_classes=V, num_sampled=5, counts=torch.ones(V), num_contexts=B,
                                    **options)  # type: ignore[arg-type]


def test_a_loaded_state_is_a_copy(query: Tensor, weight: Tensor, target: Tensor) -> None:
    first, second = learning(), learning()
    def step(loss: SampledLoss) -> Tensor:
        value = loss(query, weight, target, context=target)
        value.backward()
        return value.detach()
    for _ in range(3):
        step(first)
    second.load_state_dict(first.state_dict())
    before = first.state_dict()["_extra_state"].clone()
    expected = step(copy.deepcopy(first))
    for _ in range(3):
        step(second)
    assert torch.equal(first.state_dict()["_extra_state"], before)
    assert torch.equal(step(first), expected)


@pytest.mark.parametrize("save", [
    lambda state: safetensors.torch.load(safetensors.torch.save(state)),
    lambda state: {key: value.clone() for key, value in state.items()},
    lambda state: {key: value.cpu() for key, value in state.items()},
])
def test_a_state_is_made_of_tensors(save: Callable[[dict[str, Tensor]], dict[str, Tensor]], query: Tensor,
                                    weight: Tensor, target: Tensor) -> None:
    loss, other = learning(), learning(seed=9)
    loss(query, weight, target, context=target).backward()
    other.load_state_dict(save(loss.state_dict()))
    assert torch.equal(loss(query, weight, target, context=target), other(query, weight, target, context=target))


@pytest.mark.filterwarnings("ignore")                                      # of a checkpoint by one process
@pytest.mark.parametrize("source", ["unigram", "cluster"])
def test_a_distributed_checkpoint_loads_into_a_state_of_the_saved_size(source: str, tmp_path: Path, query: Tensor,
                                                                       weight: Tensor, target: Tensor) -> None:
    """As docs/guide/modules/index.md describes it: the state of a new module has another size."""
    loss, new = (sampled.SampledSoftmax(source, num_classes=V, num_sampled=5) for _ in range(2))
    loss(query, weight, target)
    checkpoint.save(loss.state_dict(), checkpoint_id=tmp_path, no_dist=True)
    saved: dict[str, Any] = checkpoint.FileSystemReader(tmp_path).read_metadata().state_dict_metadata
    state = {key: torch.empty(saved[key].size, dtype=torch.uint8) for key in new.state_dict()}
    assert state["_extra_state"].shape != new.state_dict()["_extra_state"].shape
    checkpoint.load(state, checkpoint_id=tmp_path, no_dist=True)
    new.load_state_dict(state)
    assert torch.equal(loss(query, weight, target), new(query, weight, target))


@pytest.mark.parametrize("content", [b"", b"\x05" + bytes(7) + b"{", b"\xff" * 30, b"\x02" + bytes(7) + b"[]"])
def test_a_damaged_state_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^_extra_state: is not a state that was saved"):
        learning().set_extra_state(torch.tensor(list(content), dtype=torch.uint8))


def test_a_state_of_something_else_is_refused() -> None:
    content = serialize.to_bytes({"classes": V})
    with pytest.raises(DataError, match=r"^_extra_state: is not the state of a module of embtrain\.nn$"):
        learning().set_extra_state(torch.tensor(list(content), dtype=torch.uint8))


@pytest.mark.parametrize("source", ["midx", "nscaching", "unigram"])
def test_a_state_of_another_size_is_refused(source: str, query: Tensor, weight: Tensor, target: Tensor) -> None:
    def make(n: int) -> SampledLoss:
        return sampled.NegativeSampling(source, num_classes=n, num_sampled=5, counts=torch.ones(n), num_contexts=B)
    loss = make(V)
    loss(query, weight, target, context=target)
    with pytest.raises(UsageError, match=r"^num_classes: the state has 40 classes, this module has 50; load"):
        make(50).load_state_dict(loss.state_dict())


@pytest.mark.parametrize("source", ["cluster", "rff", "unigram", "quadratic"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
def test_a_module_with_a_source_of_its_own_is_copied(source: str, duplicate: Callable[[SampledLoss], SampledLoss],
                                                     query: Tensor, weight: Tensor, target: Tensor) -> None:
    loss = sampled.SampledSoftmax(source_of(source), num_classes=V)
    fresh = duplicate(loss)
    assert torch.equal(loss(query, weight, target), fresh(query, weight, target))
    other = duplicate(loss)
    assert torch.equal(loss(query, weight, target), other(query, weight, target))


def _loss_and_state(loss: SampledLoss, *tensors: Tensor) -> tuple[float, str]:
    return loss(*tensors).item(), hashlib.sha256(serialize.to_bytes(loss.state_dict())).hexdigest()


def _put_losses(values: SimpleQueue, modules: list[SampledLoss], *tensors: Tensor) -> None:
    values.put([_loss_and_state(loss, *tensors) for loss in modules])


def test_a_spawned_process_goes_on_bitwise(query: Tensor, weight: nn.Parameter, target: Tensor) -> None:
    """PyTorch shares tensors with the process by file descriptors, which temporary tensors close before it starts."""
    tensors = query, weight.detach(), target
    modules = [sampled.SampledSoftmax("unigram", num_classes=V, num_sampled=5), sampled.NCE("uniform", num_classes=V),
               sampled.SampledSoftmax(source_of("rff"), num_classes=V)]
    for loss in modules[1:]:
        loss(*tensors)
    context = multiprocessing.get_context("spawn")
    values = context.SimpleQueue()
    process = context.Process(target=_put_losses, args=(values, modules, *tensors))
    process.start()
    process.join()
    assert process.exitcode == 0 and values.get() == [_loss_and_state(loss, *tensors) for loss in modules]


@pytest.mark.parametrize("option", [{"num_sampled": 64}, {"filter": "none"}, {"share": "batch"}, {"exponent": 0.3},
                                    {"counts": torch.ones(V)}, {"num_contexts": 3}, {"nonsense": 1}])
def test_settings_next_to_a_source_are_refused(option: dict[str, object]) -> None:
    name, = option
    with pytest.raises(UsageError, match=f"^{name}: negatives is a source, which has settings of its own"):
        sampled.NCE(source_of("unigram"), num_classes=V, **option)  # type: ignore[arg-type]


# -- numbers and layouts -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", ["midx", "exp", "hardest", "unigram"])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_a_weight_of_columns_gives_the_same_loss(source: str, similarity: str, query: Tensor, weight: Tensor,
                                                 target: Tensor) -> None:
    columns = nn.Parameter(weight.detach().T.contiguous())
    results = []
    for table, leaf in ((weight, weight), (columns.T, columns)):
        loss = sampled.NegativeSampling(source, num_classes=V, num_sampled=5, counts=torch.ones(V), share="row",
                                        similarity=similarity)(query, table, target)  # type: ignore[arg-type]
        gradient, = torch.autograd.grad(loss, leaf)
        results.append((loss, gradient if leaf is weight else gradient.T))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("source", ["cluster", "rff", "in_batch", "mixture"])
def test_a_weight_of_columns_is_learnt(source: str, query: Tensor, weight: Tensor, target: Tensor) -> None:
    columns = nn.Parameter(weight.detach().T.contiguous())
    loss = sampled.SampledSoftmax(source, num_classes=V, num_sampled=5, counts=torch.ones(V))(query, columns.T, target)
    loss.backward()
    assert loss.isfinite() and columns.grad.isfinite().all() and columns.grad.any()


@pytest.mark.parametrize("source", ["rff", "cluster", "exp", "quadratic", "unigram"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sources_learn_the_table_outside_autocast(source: str, dtype: torch.dtype, query: Tensor, weight: Tensor,
                                                  target: Tensor) -> None:
    loss, encoder = sampled.SampledSoftmax(source, num_classes=V, num_sampled=5, counts=torch.ones(V)), nn.Linear(D, D)
    with torch.autocast("cpu", dtype):
        value = loss(encoder(query), weight, target)
        log_q = loss.log_prob(encoder(query), weight, torch.arange(V), target=target)
    value.backward()
    assert value.isfinite() and weight.grad.isfinite().all()
    torch.testing.assert_close(log_q.double().exp().sum(1), torch.ones(B, dtype=torch.float64), atol=1e-5, rtol=0)


@pytest.mark.parametrize("source", ["exp", "resampled", "hardest", "nscaching", "cluster"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sources_score_a_weight_of_half_precision(source: str, dtype: torch.dtype, query: Tensor, weight: Tensor,
                                                  target: Tensor) -> None:
    table = nn.Parameter(weight.detach().to(dtype))
    loss = sampled.NegativeSampling(source, num_classes=V, num_sampled=5, counts=torch.ones(V), num_contexts=B)
    loss(query.to(dtype), table, target, context=target).backward()
    assert table.grad.dtype == dtype and table.grad.isfinite().all()


# -- arguments ---------------------------------------------------------------------------------------------------------

def test_candidates_of_ignored_targets_are_left_out(query: Tensor, weight: Tensor) -> None:
    target = torch.tensor([[0, -100], [1, 2], [-100, 3]])
    ids = torch.randint(V, (6, 5), generator=torch.Generator().manual_seed(3))
    own = sampled.Candidates(ids, -torch.rand(6, 5), -torch.rand(6))
    loss = sampled.NCE(num_classes=V, ignore_index=-100, reduction="none")
    values = loss(query[:3], weight, target, candidates=own)
    assert (values[target == -100] == 0).all()
    for row, column in (target != -100).nonzero().tolist():
        i = 2 * row + column
        one = sampled.Candidates(ids[i], own.log_q[i], own.log_q_target[i:i + 1])
        single = sampled.NCE(num_classes=V)(query[row:row + 1], weight, target[row, column:column + 1], candidates=one)
        torch.testing.assert_close(values[row, column], single)
    with pytest.raises(UsageError, match=r"it should be \(K,\) or \(6, K\) of int64"):
        loss(query[:3], weight, target, candidates=ids[:4])


@pytest.mark.parametrize("source", ["exp", "cluster", "rff"])
def test_log_prob_needs_the_target_that_is_never_drawn(source: str, query: Tensor, weight: Tensor, target: Tensor
                                                       ) -> None:
    loss = sampled.SampledSoftmax(source, num_classes=V, num_sampled=5, exclude_target=True)
    loss(query, weight, target)
    with pytest.raises(UsageError, match=rf"^target: is missing, and {source} never draws it; pass it, or make"):
        loss.log_prob(query, weight, torch.arange(V))
    log_q = loss.log_prob(query, weight, torch.arange(V), target=target)
    assert (log_q.gather(1, target.unsqueeze(1)) == -torch.inf).all()
    torch.testing.assert_close(log_q.double().exp().sum(1), torch.ones(B, dtype=torch.float64), atol=1e-5, rtol=0)


def test_a_source_without_density_is_named(query: Tensor, weight: Tensor, target: Tensor) -> None:
    with pytest.raises(UsageError, match=r"^negatives: resampled has no probability of a draw; use another source"):
        sampled.SampledSoftmax("resampled", num_classes=V, num_sampled=5).log_prob(query, weight, target)


@pytest.mark.parametrize(("option", "message"), [
    ({"scale": nn.Parameter(torch.ones(()))}, "scale: .*should be a number above 0; to train it, multiply the query"),
    ({"scale": 0.0}, "scale: 0.0: should be a number above 0"), ({"scale": float("nan")}, "scale: nan: should be"),
    ({"seed": None}, "seed: None: should be a whole number"), ({"seed": -1}, "seed: -1: should be a whole number"),
])
def test_wrong_numbers_are_refused(option: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        sampled.SampledSoftmax(num_classes=V, similarity="cosine", **option)  # type: ignore[arg-type]


def test_a_state_is_saved_by_torch(query: Tensor, weight: Tensor, target: Tensor) -> None:
    loss, file = learning(), io.BytesIO()
    loss(query, weight, target, context=target).backward()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other = learning(seed=9)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(loss(query, weight, target, context=target), other(query, weight, target, context=target))


@pytest.mark.parametrize("source", ["cluster", "exp", "midx", "rff"])
@pytest.mark.parametrize("diverged", ["query", "weight"])
def test_the_remedy_for_vectors_that_are_not_finite_is_not_a_setting_of_a_run(
        source: str, diverged: str, query: Tensor, weight: Tensor, target: Tensor) -> None:
    {"query": query, "weight": weight.data}[diverged][3] = torch.nan
    loss = sampled.SampledSoftmax(source, num_classes=V, num_sampled=5)
    with pytest.raises(UsageError, match=r"^negatives: .*not finite.*lower the learning rate") as caught:
        loss(query, weight, target)
    assert "train." not in str(caught.value)


# -- a state under other counts ---------------------------------------------------------------------------------------

def shuffled_counts(seed: int) -> Tensor:
    return torch.randperm(V, generator=torch.Generator().manual_seed(seed)) + 1.0


@looped("options", [{"negatives": "ace", "num_contexts": V, "shortlist": 20, "groups": 4, "mix": 0.0},
                    {"negatives": "rff", "leaf_order": "frequency"}])
def test_a_state_keeps_its_probabilities_under_other_counts(options: dict[str, Any], query: Tensor, weight: Tensor,
                                                            target: Tensor) -> None:
    """The parameters of a class stay those of that class, whatever its rank by count is."""
    def make(seed: int) -> SampledLoss:
        return sampled.SampledLoss(num_classes=V, num_sampled=5, counts=shuffled_counts(seed), **options)

    def log_q(loss: SampledLoss) -> Tensor:
        return loss.log_prob(query, weight, torch.arange(V), context=target)
    saved, other = make(1), make(2)
    if options["negatives"] == "ace":
        for _ in range(20):
            saved(query.clone().requires_grad_(), weight, target, context=target).backward()
    before = log_q(saved)
    other.load_state_dict(saved.state_dict())
    source = saved.source
    if options["negatives"] == "ace":                            # classes of a group share its mass by the counts
        assert isinstance(source, Ace)
        frequent = source.generator.shortlist.klass < 20
        torch.testing.assert_close(log_q(other)[:, frequent], before[:, frequent])
        assert not torch.allclose(log_q(make(2))[:, frequent], before[:, frequent], atol=0.1)
    else:
        torch.testing.assert_close(log_q(other), log_q(make(2)))
