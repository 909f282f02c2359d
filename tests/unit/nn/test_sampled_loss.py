"""embtrain.nn: equal to cross-entropy and to the trainer, draws, masks, learning, streams, states and errors."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.looped import looped
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import embtrain.nn as sampled
from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.losses import base as losses
from embtrain.losses.base import Loss
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.negatives import base as negatives
from embtrain.nn import module as nn_module
from embtrain.nn.module import SampledLoss
from embtrain.nn.rows import for_source, make_rows, masks_by_weight, table_of
from embtrain.nn.source import FIRST_REBUILD
from embtrain.nn.table import TableModel
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.false_negatives import mark_false_negatives
from embtrain.train.state import serialize

V, D, B, T, K = 60, 8, 24, 3, 12
COUNTS = torch.arange(1, V + 1, dtype=torch.float64)
ONE_VECTOR = ("synthetic_difference", "synthetic_projection")          # one negative for each row
UNSAMPLED = ("every", "none")
LISTED = ("candidates", "reflexive", "typed")                          # their lists come from a run's data
CONDITIONED = ("ace", "kbgan", "nscaching")                            # on the ids of the context
NEEDS_COUNTS = ("ace", "memory")     # they learn in the order of the counts
SOURCES = [name for name in negatives.names() if name not in ("none", *ONE_VECTOR, *LISTED)]


class Problem:
    """Queries, a weight, a bias and targets, with gradients, from a seed."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32):
        draw = torch.Generator().manual_seed(seed)
        def normal(*shape: int) -> Tensor:
            return (0.5 * torch.randn(*shape, generator=draw, dtype=torch.float64)).to(dtype).requires_grad_()
        self.query, self.weight, self.bias = normal(B, D), normal(V, D), normal(V)
        self.target = torch.randint(V, (B,), generator=draw)
        self.targets = torch.randint(V, (B, T), generator=draw)
        self.context = torch.arange(B)

    def gradients(self, loss: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(loss, [self.query, self.weight, self.bias], allow_unused=True)
        return [torch.zeros(1) if g is None else g.to_dense() for g in found]


def module(cls: type[SampledLoss] = sampled.SampledSoftmax, source: str = "unigram", **options: Any) -> SampledLoss:
    options = {"num_sampled": None if source in UNSAMPLED else K, "counts": COUNTS, "seed": 3,
               "num_contexts": B if source in CONDITIONED else None, **options}
    return cls(source, num_classes=V, **options)


def suitable(source: str) -> type[SampledLoss]:
    """Sampled softmax, or negative sampling for sources that report no q."""
    return sampled.SampledSoftmax if negatives.find(source).traits.density != "none" else sampled.NegativeSampling


# --- against PyTorch ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make", [
    lambda: sampled.Softmax(num_classes=V),
    lambda: sampled.SampledSoftmax("every", num_classes=V),
    lambda: sampled.SampledSoftmax("uniform", num_classes=V, num_sampled=V, replacement=False),
], ids=["softmax", "every", "without replacement"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_every_class_drawn_is_cross_entropy(make: Callable[[], SampledLoss], reduction: str) -> None:
    problem, loss = Problem(dtype=torch.float64), make()
    loss.reduction = reduction                                                     # type: ignore[assignment]
    ours = loss(problem.query, problem.weight, problem.target, problem.bias)
    theirs = cross_entropy(problem.query @ problem.weight.T + problem.bias, problem.target, reduction=reduction)
    assert torch.allclose(ours, theirs, rtol=1e-6)
    for mine, other in zip(problem.gradients(ours.sum()), problem.gradients(theirs.sum()), strict=True):
        assert torch.allclose(mine, other, atol=1e-6)


def test_cosine_is_cross_entropy_of_scaled_cosines() -> None:
    problem = Problem()
    loss = sampled.Softmax(num_classes=V, similarity="cosine", scale=7.0)
    scores = 7 * nn.functional.normalize(problem.query, dim=1) @ nn.functional.normalize(problem.weight, dim=1).T
    assert torch.allclose(loss(problem.query, problem.weight, problem.target), cross_entropy(scores, problem.target),
                          rtol=1e-5)


def test_the_gradient_is_that_of_the_corrected_log_q_loss() -> None:
    """[khrylchenko2025]: −stopgrad(1 − p_t) (s_t − log Σ_j e^{s_j} / (K q_j)), with p_t from the same negatives."""
    problem, loss = Problem(dtype=torch.float64), module()
    ours = loss(problem.query, problem.weight, problem.target, problem.bias)
    again = module()                                                      # the same seed: the same negatives
    again(problem.query, problem.weight, problem.target, problem.bias)
    drawn = redrawn(problem)
    scores = problem.query @ problem.weight.T + problem.bias
    log_q = (COUNTS**0.75 / (COUNTS**0.75).sum()).log()
    negative = (scores[:, drawn] - log_q[drawn] - torch.log(torch.tensor(float(K)))).masked_fill(
        drawn == problem.target.unsqueeze(1), -torch.inf).logsumexp(1)
    positive = scores.gather(1, problem.target.unsqueeze(1)).squeeze(1)
    p = torch.sigmoid(positive - negative).detach()
    theirs = (-(1 - p) * (positive - negative)).mean()
    for mine, other in zip(problem.gradients(ours), problem.gradients(theirs), strict=True):
        assert torch.allclose(mine, other, atol=1e-6) and mine.abs().max() > 0


def redrawn(problem: Problem) -> Tensor:
    """The ids (K,) that `module()` draws at its first call."""
    source = negatives.find("unigram")(negatives.find("unigram").Config(k=K, share_draws_by="batch"),
                                       ProblemSpec(V, COUNTS, dim=D, seed=3))
    query = Query(problem.query.detach(), problem.context, problem.target, torch.zeros(B, dtype=torch.int64))
    ids = source.draw(query, K, None).ids                                          # type: ignore[arg-type]
    assert ids is not None
    return ids[0]


# --- against the trainer --------------------------------------------------------------------------------------------

LOSSES = [("sampled_softmax", "target"), ("nce", "none"), ("logistic", "target"), ("margin", "target"),
          ("self_adversarial", "target")]


@looped("source", SOURCES)
@looped("loss, mask", LOSSES)
@looped("share", ["row", "batch"])
def test_loss_and_gradient_are_those_of_the_trainer(source: str, loss: str, mask: str, share: str) -> None:
    found = negatives.find(source)
    if share not in found.traits.sharing_modes or (source in ("ace", "kbgan") and share == "batch"):
        share = "row"
    config = found.Config(source=source, k=K, filter=mask, share_draws_by=share)   # type: ignore[arg-type]
    problem, spec = Problem(), ProblemSpec(V, COUNTS, B, dim=D, seed=3)
    try:
        ours = module(SampledLoss, source, loss=loss, num_contexts=B, share=None if source in UNSAMPLED else share,
                      filter=mask, reduction="sum")
        value = ours(problem.query, problem.weight, problem.target, context=problem.context)
    except UsageError as error:
        assert "no probabilities" in str(error) or "no probability for the target" in str(error)
        return
    model = SkipGram(SkipGramConfig(dim=D), spec)
    with torch.no_grad():
        model.u.copy_(problem.query)
        model.v.copy_(problem.weight)
    trainer = Step(model, found(config, spec), losses.find(loss)(losses.find(loss).Config(name=loss), spec), [],
                   TrainConfig(batch=B))
    trainer.source.on_epoch_start(trainer.view)
    batch = Batch(problem.target, torch.zeros_like(problem.target))
    query = Query(model.u[problem.context], problem.context, problem.target, batch.slot)
    drawn = trainer.source.draw(query.detach(), K, trainer.view)
    total, _ = trainer.gradients(batch, query, mark_false_negatives(drawn, query.detach(), mask, None), 0)
    assert torch.allclose(value, total, rtol=1e-5)
    mine = problem.gradients(value)
    for g, p in zip(mine, (model.u, model.v), strict=False):
        assert p.grad is not None and torch.allclose(g, p.grad.to_dense(), atol=1e-5)


@pytest.mark.parametrize("name", [name for name in losses.names() if losses.find(name).traits.accidental_hits != "kept"
                                  and losses.find(name).traits.candidate_scope == "drawn"
                                  and not losses.find(name).traits.needs_frozen_table
                                  and "dot" in (losses.find(name).traits.geometry or {"dot"})])
def test_a_mask_as_weights_is_a_mask_as_pairs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits of the target get weight 0 where the host would wait for a list; the CPU and the trainer list them."""
    problem, values = Problem(), list[Tensor]()
    for device in ("cuda", "cpu"):
        kinds: list[bool] = []

        def as_on(*of: Any, device: str = device, kinds: list[bool] = kinds) -> bool:
            kinds.append(masks_by_weight(*of[:3], torch.device(device)))
            return kinds[-1]

        monkeypatch.setattr(nn_module, "masks_by_weight", as_on)
        loss = SampledLoss("uniform", num_classes=V, num_sampled=200, loss=name, counts=COUNTS, seed=1,
                           reduction="none", filter="target")
        values.append(loss(problem.query, problem.weight, problem.target))
        assert kinds == [device == "cuda" and type(loss.loss).negative_weights is Loss.negative_weights]
    assert torch.allclose(values[0], values[1], rtol=1e-5)
    unmasked = SampledLoss("uniform", num_classes=V, num_sampled=200, loss="logistic", counts=COUNTS, seed=1,
                           reduction="none", filter="none")(problem.query, problem.weight, problem.target)
    assert name != "logistic" or (unmasked > values[0]).all()


# --- densities ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", [name for name in SOURCES if negatives.find(name).traits.density == "exact"])
@pytest.mark.parametrize("streamed", [False, True])
def test_log_prob_is_a_distribution(source: str, streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.nn.source.FIRST_REBUILD", 2 * B)
    counts = None if streamed and source not in NEEDS_COUNTS else COUNTS
    problem, loss = Problem(), module(suitable(source), source, counts=counts)
    for _ in range(3):
        loss(problem.query, problem.weight, problem.target, problem.bias, context=problem.context).backward()
    log_q = loss.log_prob(problem.query, problem.weight, torch.arange(V), problem.bias, target=problem.target,
                          context=problem.context)
    assert log_q.shape == (B, V)
    assert torch.allclose(log_q.double().exp().sum(1), torch.ones(B, dtype=torch.float64), atol=1e-4)


def test_a_source_of_the_softmax_follows_weight_and_bias() -> None:
    """`exp` draws from the softmax itself: log q equals log softmax, bias included, also after the weight changed."""
    problem = Problem()
    loss = module(source="exp", exclude_target=False)
    for _ in range(2):
        loss(problem.query, problem.weight, problem.target, problem.bias)
        log_q = loss.log_prob(problem.query, problem.weight, torch.arange(V), problem.bias)
        exact = torch.log_softmax(problem.query @ problem.weight.T + problem.bias, 1)
        assert torch.allclose(log_q, exact, atol=1e-4)
        with torch.no_grad():
            problem.weight.mul_(-1.5)
            problem.bias.add_(torch.linspace(0, 2, V))


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_table_of_a_source_gives_the_scores(has_bias: bool) -> None:
    """h·c of the augmented query and table equals the scores, bias included, in half precision too."""
    problem = Problem()
    for dtype in (torch.float32, torch.bfloat16):
        table = table_of(problem.weight.to(dtype), problem.bias.to(dtype) if has_bias else None, False, V, True)
        query = make_rows(problem.query.to(dtype), table, problem.target, None, None, None).query
        model = TableModel(ProblemSpec(V, COUNTS, dim=D), "dot", 1.0, False)
        model.use(table.weight, table.bias, table.sparse)
        scores = model.score(query, torch.arange(V).unsqueeze(0))
        assert scores.dtype == model.table().dtype == torch.float32
        assert torch.allclose(for_source(query).vector @ model.table().T, scores, atol=1e-5 if dtype.itemsize == 4
                              else 0.1)


def test_log_prob_draws_nothing() -> None:
    problem, loss, other = Problem(), module(source="cluster"), module(source="cluster")
    first = loss(problem.query, problem.weight, problem.target)
    loss.log_prob(problem.query, problem.weight, torch.arange(V), target=problem.target)
    other(problem.query, problem.weight, problem.target)
    assert torch.equal(loss(problem.query, problem.weight, problem.target),
                       other(problem.query, problem.weight, problem.target)) and first.isfinite()


def test_counts_are_estimated_while_streaming() -> None:
    """The noise starts uniform and follows the targets at each doubling; q stays that of the latest build."""
    loss = module(counts=None, exponent=1.0)
    weight, draw = torch.zeros(V, D), torch.Generator().manual_seed(5)
    p = COUNTS / COUNTS.sum()
    n = 0
    while n < 16 * FIRST_REBUILD:
        target = torch.multinomial(p, 512, replacement=True, generator=draw)
        loss(torch.zeros(512, D), weight, target)
        n += 512
        log_q = loss.log_prob(torch.zeros(1, D), weight, torch.arange(V))[0].exp().double()
        if n < FIRST_REBUILD:
            assert torch.allclose(log_q, torch.full((V,), 1 / V, dtype=torch.float64), atol=1e-6)
    assert 0.5 * (log_q - p).abs().sum() < 0.03
    loss.eval()
    before = saved(loss)["counts"]["n_targets"]
    loss(torch.zeros(512, D), weight, target)
    assert saved(loss)["counts"]["n_targets"] == before == n


def saved(loss: SampledLoss) -> dict[str, Any]:
    """What the state of a module contains."""
    return serialize.from_bytes(loss.state_dict()["_extra_state"].numpy().tobytes(), "state")


# --- learning -------------------------------------------------------------------------------------------------------

def parameters(loss: SampledLoss) -> list[Tensor]:
    """Copies of the parameters of a source's generator."""
    assert loss.source is not None
    state = loss.source.state_dict()
    return [x.clone() for x in (state["generator"] if "generator" in state else state["scorer"]).values()]


def has_changed(loss: SampledLoss, before: list[Tensor]) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(before, parameters(loss), strict=True))


@pytest.mark.parametrize("source", ["ace", "kbgan"])
def test_a_source_learns_in_backward_once_and_only_in_training(source: str) -> None:
    problem, loss = Problem(), module(sampled.NegativeSampling, source)
    def call() -> Tensor:
        return loss(problem.query, problem.weight, problem.target, context=problem.context)
    call().backward()                                                      # builds the optimizer's state
    value, before = call(), parameters(loss)
    assert not has_changed(loss, before)                                       # the forward pass alone
    value.backward(retain_graph=True)
    assert has_changed(loss, before)
    assert source != "ace" or loss.metrics()["reward"] != 0
    after = parameters(loss)
    value.backward()
    assert not has_changed(loss, after)                                        # each call is learnt from once
    with torch.no_grad():
        call()
    loss.eval()
    call().backward()
    assert not has_changed(loss, after)


def test_a_generator_learns_to_draw_costly_classes() -> None:
    """Scores favour class 7 for every query: ACE's generator raises its probability by far."""
    weight = torch.zeros(V, D)
    weight[7] = 3.0
    query, target = torch.ones(B, D).requires_grad_(), torch.arange(B) % 7
    loss = module(sampled.NegativeSampling, "ace", entropy=0.0, mix=0.5, generator_lr=0.1)
    first = None
    for _ in range(60):
        loss(query, weight, target, context=torch.arange(B)).backward()
        q = loss.log_prob(query, weight, torch.tensor([7]), context=torch.arange(B)).exp().mean()
        first = q if first is None else first
    assert first is not None and q > 4 * first


# --- gradients and shapes -------------------------------------------------------------------------------------------

def test_an_embedding_decides_whether_its_gradient_is_sparse() -> None:
    problem, found = Problem(), []
    for is_sparse in (False, True):
        table = nn.Embedding(V, D, sparse=is_sparse)
        with torch.no_grad():
            table.weight.copy_(problem.weight)
        module()(problem.query, table, problem.target).backward()
        assert table.weight.grad is not None and table.weight.grad.is_sparse == is_sparse
        found.append(table.weight.grad.to_dense())
    assert torch.allclose(*found, atol=1e-7)
    module(sparse=True)(problem.query, problem.weight, problem.target).backward()
    assert problem.weight.grad is not None and problem.weight.grad.is_sparse


def test_a_linear_layer_brings_its_bias() -> None:
    problem, layer = Problem(), nn.Linear(D, V)
    ours = module()(problem.query, layer, problem.target)
    assert torch.equal(ours, module()(problem.query, layer.weight, problem.target, layer.bias))
    ours.backward()
    assert layer.bias.grad is not None and layer.bias.grad.abs().max() > 0


@pytest.mark.parametrize("source", ["uniform", "cluster", "in_batch"])
def test_several_targets_are_rows_of_their_query(source: str) -> None:
    """(B, T) equals the B·T pairs as rows; an ignored target has no row."""
    problem = Problem()
    targets = problem.targets.clone()
    targets[::2, 1] = -1
    loss, flat = module(source=source, reduction="none", ignore_index=-1), module(source=source, reduction="none")
    kept = targets != -1
    owner = kept.nonzero()[:, 0]
    ours, theirs = loss(problem.query, problem.weight, targets), flat(problem.query[owner], problem.weight,
                                                                      targets[kept])
    assert ours.shape == (B, T) and torch.allclose(ours[kept], theirs, rtol=1e-5) and (ours[~kept] == 0).all()
    mean = module(source=source, ignore_index=-1)(problem.query, problem.weight, targets)
    assert torch.allclose(mean, theirs.mean(), rtol=1e-5)


def test_observed_masks_every_target_of_the_query() -> None:
    problem = Problem()
    targets = torch.arange(B * 2).view(B, 2) % V
    loss = sampled.NegativeSampling("every", num_classes=V, filter="observed", reduction="none")
    ours = loss(problem.query, problem.weight, targets)
    scores = problem.query @ problem.weight.T
    wrong = torch.ones(B, V, dtype=torch.bool).scatter_(1, targets, False)
    negative = (nn.functional.softplus(scores) * wrong).sum(1, keepdim=True)
    assert torch.allclose(ours, nn.functional.softplus(-scores.gather(1, targets)) + negative, rtol=1e-4)


def test_candidates_of_the_user_replace_the_draw() -> None:
    problem = Problem()
    hard = torch.randint(V, (B, 5), generator=torch.Generator().manual_seed(2))
    loss = sampled.NegativeSampling("unigram", num_classes=V, filter="none", reduction="none")
    ours = loss(problem.query, problem.weight, problem.target, candidates=hard)
    scores = problem.query @ problem.weight.T
    expected = nn.functional.softplus(-scores.gather(1, problem.target.unsqueeze(1))).squeeze(1) + \
        nn.functional.softplus(scores.gather(1, hard)).sum(1)
    assert torch.allclose(ours, expected, rtol=1e-5)
    every = sampled.Candidates(torch.arange(V), torch.full((V,), -torch.log(torch.tensor(float(V)))))
    softmax = module()(problem.query, problem.weight, problem.target, problem.bias, candidates=every)
    assert torch.allclose(softmax, cross_entropy(problem.query @ problem.weight.T + problem.bias, problem.target),
                          rtol=1e-5)


@pytest.mark.parametrize("n", [1, B])
def test_candidates_of_the_user_need_no_draw_of_the_source(n: int) -> None:
    """A batch of one row, as the last of an epoch can be, has no negatives under in_batch."""
    problem, own = Problem(), sampled.Candidates(torch.arange(5), torch.zeros(5))
    first, second = (module(source=source)(problem.query[:n], problem.weight, problem.target[:n], candidates=own)
                     for source in ("in_batch", "uniform"))
    assert torch.equal(first, second)


def test_a_loss_that_does_not_read_log_q_takes_any() -> None:
    problem, own = Problem(), sampled.Candidates(torch.arange(2), torch.tensor([-torch.inf, torch.nan]))
    assert module(sampled.NegativeSampling)(problem.query, problem.weight, problem.target, candidates=own).isfinite()


def test_the_weight_is_not_a_parameter_of_the_module() -> None:
    problem = Problem()
    loss = module(sampled.NCE, loss_options={"partition": "global"})
    loss(problem.query, nn.Parameter(problem.weight.detach()), problem.target).backward()
    assert [name for name, _ in loss.named_parameters()] == ["loss.c"]
    assert loss.loss.c is not None and loss.loss.c.grad is not None                # type: ignore[union-attr]


def test_autocast_scores_in_half_and_sums_in_float32() -> None:
    problem = Problem()
    full = module(source="cluster")(problem.query, problem.weight, problem.target, problem.bias)
    with torch.autocast("cpu", torch.bfloat16):
        half = module(source="cluster")(problem.query, problem.weight, problem.target, problem.bias)
    assert half.dtype == torch.float32 and torch.allclose(half, full, rtol=0.1)
    assert all(g.isfinite().all() for g in problem.gradients(half))


# --- states ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_saved_module_goes_on_bitwise(source: str, streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """State through a file, read with weights_only, into a module that has not been called, and into a used one."""
    if streamed and source in NEEDS_COUNTS:
        with pytest.raises(UsageError, match=f"^counts: {source} learns"):
            module(source=source, counts=None)(Problem().query, Problem().weight, Problem().target,
                                              context=torch.arange(B))
        return
    counts = None if streamed else COUNTS
    monkeypatch.setattr("embtrain.nn.source.FIRST_REBUILD", 2 * B)
    def make() -> SampledLoss:
        return module(suitable(source), source, counts=counts, refresh=3)
    def call(loss: SampledLoss, seed: int) -> Tensor:
        problem = Problem(seed)
        value = loss(problem.query, problem.weight, problem.target, context=problem.context)
        value.backward()
        return value.detach()
    loss = make()
    for seed in range(5):
        call(loss, seed)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    straight = [call(loss, seed) for seed in range(100, 105)]
    for is_used in (False, True):
        other = make()
        if is_used:
            call(other, 50)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        assert all(torch.equal(call(other, seed), value) for seed, value in zip(range(100, 105), straight,
                                                                                strict=True))


@pytest.mark.parametrize("source", ["cluster", "ace", "unigram"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
def test_a_copy_goes_on_bitwise(source: str, duplicate: Callable[[SampledLoss], SampledLoss]) -> None:
    loss = module(suitable(source), source)
    def call(loss: SampledLoss, seed: int) -> Tensor:
        problem = Problem(seed)
        value = loss(problem.query, problem.weight, problem.target, context=problem.context)
        value.backward()
        return value.detach()
    for seed in range(3):
        call(loss, seed)
    other = duplicate(loss)
    assert [call(loss, seed) for seed in range(7, 10)] == [call(other, seed) for seed in range(7, 10)]
    assert f"{source}, num_classes=60{'' if source in UNSAMPLED else ', num_sampled=12'}\n" in repr(other)


def test_it_works_in_a_compiled_model() -> None:
    """torch.compile leaves the module out and compiles what is around it."""
    problem, loss = Problem(), module()
    compiled = torch.compile(lambda q: loss(2 * q, problem.weight, problem.target), backend="eager")
    assert torch.allclose(compiled(problem.query), module()(2 * problem.query, problem.weight, problem.target))
    loss, ids = module(), torch.arange(V)
    log_q = torch.compile(lambda q: loss.log_prob(2 * q, problem.weight, ids), backend="aot_eager")(problem.query)
    assert torch.equal(log_q, module().log_prob(2 * problem.query, problem.weight, ids))


def test_same_seed_same_draws_and_another_seed_others() -> None:
    problem = Problem()
    values = [module(seed=seed)(problem.query, problem.weight, problem.target) for seed in (1, 1, 2)]
    assert torch.equal(values[0], values[1]) and not torch.equal(values[0], values[2])


@pytest.mark.parametrize("source, share", [("every", None), ("none", None), ("unigram", None), ("unigram", "block")])
def test_a_share_size_of_none_is_the_default(source: str, share: str | None) -> None:
    assert module(source=source, share=share, share_size=None)._spec == module(source=source, share=share)._spec


# --- errors ---------------------------------------------------------------------------------------------------------

@looped("change, words", [
    (lambda p: module(source="sgns"), "negatives: there is no 'sgns': it is a strategy; its source is unigram; there"),
    (lambda p: module(source="unigrm"), "negatives: there is no 'unigrm' (did you mean 'unigram'?"),
    (lambda p: module(expnent=1), "expnent: unknown key (did you mean 'exponent'?"),
    (lambda p: module(k=3), "set by the arguments negatives, num_sampled and share"),
    (lambda p: module(counts=[1.0, 2.0]), "counts: should be 60 numbers"),
    (lambda p: module(counts=-COUNTS), "counts: entry 0 is -1.0; it should be a finite number of at least 0"),
    (lambda p: SampledLoss(num_classes=1), "num_classes: 1"),
    (lambda p: module(similarity="l2"), "similarity: 'l2': should be one of dot, cosine"),
    (lambda p: SampledLoss(num_classes=V, loss="nc"), "loss: there is no 'nc'"),
    (lambda p: module()(p.query, p.weight[1:], p.target), "weight: has the shape (59, 8)"),
    (lambda p: module()(p.query[:, 1:], p.weight, p.target), "query: has the shape (24, 7)"),
    (lambda p: module()(p.query, p.weight, p.target[1:]), "target: has the shape (23,)"),
    (lambda p: module()(p.query, p.weight, p.target.float()), "int64"),
    (lambda p: module()(p.query, p.weight, p.target + V), "target: "),
    (lambda p: module()(p.query, p.weight, p.target - V), "is not one of the ids, 0 to 59"),
    (lambda p: module()(p.query, p.weight, p.target * 0 - 100), "; leave padding out, or pass ignore_index=-100 to"),
    (lambda p: module()(p.query, p.weight, p.target + V), "is not one of the ids, 0 to 59 (num_classes = 60)"),
    (lambda p: module().log_prob(p.query[:0], p.weight, p.target), "query: has no rows; pass one or more"),
    (lambda p: module(source="in_batch")(p.query[:1], p.weight, p.target[:1]),
     "needs two or more; make the batch larger or leave it out"),
    (lambda p: module()(p.query, p.weight, p.target, p.bias[1:]), "bias: has the shape (59,)"),
    (lambda p: module(similarity="cosine")(p.query, p.weight, p.target, p.bias), "bias: a cosine has no bias"),
    (lambda p: module()(p.query.bfloat16(), p.weight, p.target), "query: has the dtype torch.bfloat16"),
    (lambda p: module()(p.query, nn.Linear(D, V), p.target, p.bias), "bias: this nn.Linear has a bias"),
    (lambda p: module()(p.query, p.weight, p.target, candidates=torch.arange(5)), "pass log_q, as in Candidates("),
    (lambda p: module(sampled.NegativeSampling)(p.query, p.weight, p.target, candidates=p.target + V), "candidates: "),
    (lambda p: module(sampled.NegativeSampling)(p.query, p.weight, p.target, candidates=p.targets[1:]), "(24, K)"),
    (lambda p: module(source="ace", num_contexts=None)(p.query, p.weight, p.target), "pass num_contexts= here and"),
    *((lambda p, source=source, n=n: module(source=source, num_contexts=n)(p.query, p.weight, p.target, context=n and
       p.context), f"negatives: {source}: draws from lists that a run alone has; choose another source, and pass")
      for source in LISTED for n in (None, B)),
    *((lambda p, n=n: module(sampled.NCE, num_contexts=n, loss_options={"partition": "context"}),
       "context needs one context id for each query; pass num_contexts=, one number, and context= in the call, or set")
      for n in (None, (B, 2))),
    (lambda p: module(source="ace")(p.query, p.weight, p.target), "context: is missing, and this module was made with"),
    (lambda p: module(source="ace")(p.query, p.weight, p.target, context=p.context + 1), "(num_contexts = 24)"),
    (lambda p: module(source="ace")(p.query, p.weight, p.target, context=p.targets), "it should be (24,) of int64"),
    (lambda p: sampled.Softmax(num_classes=V, num_sampled=5), "num_sampled: 5: every takes all classes as negatives"),
    *((lambda p, key=key, value=value: module(source="none", **{"num_sampled": None, key: value}),
       f"{key}: {value}: none draws no negatives; leave the argument out, or pass None")
      for key, value in (("num_sampled", 5), ("share", "row"), ("share_size", 3))),
    (lambda p: module(source="every", num_sampled=None, share="block"), "share: block: every takes all classes as neg"),
    *((lambda p, share=share: module(share=share, share_size=3),
       "share_size: 3: has no effect without share='block'; set it, or leave share_size out")
      for share in (None, "row", "query", "batch")),
    (lambda p: module(scale=20.0), "scale: 20.0: multiplies cosines only; set similarity='cosine', or multiply the"),
    (lambda p: module(source="mixture", num_sampled=V + 1, plain={"source": "uniform", "replacement": False})(
        p.query, p.weight, p.target), f"num_sampled: {V + 1} negatives cannot be drawn without replacement"),
    (lambda p: module(num_sampled=0), "num_sampled: should be greater than or equal to 1"),
    (lambda p: module(share="rows"), "share: 'rows': should be one of row, query, block, batch"),
    (lambda p: module(counts=0 * COUNTS), "counts: all are 0; give each class that occurs a count above 0"),
    (lambda p: module(source="none", loss="vmf")(p.query, p.weight, p.target), "pass frozen=True"),
    (lambda p: module(source="none", loss="vmf", similarity="cosine", frozen=True)(p.query, p.weight, p.target),
     "but this module's similarity is cosine"),
    (lambda p: module(sampled.NCE)(p.query, p.weight, p.target, candidates=sampled.Candidates(
        torch.arange(5), torch.zeros(5))), "pass log_q_target, as in Candidates("),
    (lambda p: module()(p.query, p.weight, p.target, candidates=sampled.Candidates(torch.arange(5), torch.zeros(4))),
     "candidates: log_q: has the shape (4,)"),
    (lambda p: module()(p.query, p.weight, p.target, candidates=sampled.Candidates(torch.arange(5), -2.0)),
     "candidates: log_q: is a float; it should be a tensor"),
    *((lambda p, log_q=log_q: module()(p.query, p.weight, p.target, candidates=sampled.Candidates(
        torch.arange(2), torch.tensor([-1.0, log_q]))), f"candidates: log_q: {log_q} is not the logarithm of a prob")
      for log_q in (-torch.inf, torch.inf, torch.nan)),
    (lambda p: module(sampled.NCE)(p.query, p.weight, p.target, candidates=sampled.Candidates(
        torch.arange(2), torch.zeros(2), torch.full((B,), -torch.inf))), "candidates: log_q_target: -inf is not the"),
    (lambda p: module()(p.query, p.weight, p.target, candidates=[1, 2]), "candidates: ids: is a list"),
    (lambda p: module().load_state_dict(module(source="uniform").state_dict()), "the state is that of uniform"),
    (lambda p: module(source="hardest")(p.query, p.weight, p.target), "negatives: hardest states no probabilities"),
    (lambda p: module(sampled.NegativeSampling, "hardest").log_prob(p.query, p.weight, p.target), "no probability"),
    (lambda p: module(source="in_batch")(p.query[:1], p.weight, p.target[:1]), "in_batch"),
    (lambda p: module().load_state_dict(module(counts=None).state_dict()), "counts: the state was saved by a module"),
])
def test_a_mistake_ends_in_one_line(change: Callable[[Problem], object], words: str) -> None:
    with pytest.raises(UsageError) as found:
        change(Problem())
    assert words in str(found.value) and "\n" not in str(found.value)


# --- devices --------------------------------------------------------------------------------------------------------

@pytest.mark.gpu
@pytest.mark.parametrize("source", ["uniform", "unigram", "log_uniform", "in_batch"])
@pytest.mark.parametrize("cls", [sampled.SampledSoftmax, sampled.NegativeSampling, sampled.NCE])
def test_a_step_on_cuda_does_not_wait_for_the_host(source: str, cls: type[SampledLoss]) -> None:
    problem = Problem()
    loss = module(cls, source, counts=None)
    def on_device(x: Tensor) -> Tensor:
        return x.detach().cuda().requires_grad_(x.is_floating_point())
    query, weight, bias, target = map(on_device, (problem.query, problem.weight, problem.bias, problem.target))
    loss(query, weight, target, bias).backward()                           # the first call builds the source
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):   # the mode does not find every wait
            torch.cuda.set_sync_debug_mode("error")
        loss(query, weight, target, bias).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_works_on_cuda(source: str) -> None:
    problem, loss = Problem(), module(suitable(source), source)
    query, weight = problem.query.detach().cuda().requires_grad_(), problem.weight.detach().cuda().requires_grad_()
    for _ in range(2):
        value = loss(query, weight, problem.target.cuda(), context=problem.context.cuda())
        value.backward()
    assert value.isfinite() and weight.grad is not None and weight.grad.isfinite().all()
    with pytest.raises(UsageError, match="make one module for each device"):
        loss(problem.query, problem.weight, problem.target, context=problem.context)


@pytest.mark.parametrize("name", ["softmax", "unigram"])
def test_a_first_call_in_inference_mode_leaves_a_loss_that_trains(name: str) -> None:
    """As a validation before training does it: the source is built there, and its tensors serve autograd later."""
    loss = sampled.Softmax(num_classes=20) if name == "softmax" else sampled.SampledSoftmax(
        name, num_classes=20, num_sampled=5, counts=torch.ones(20))
    layer, target = torch.nn.Linear(4, 20), torch.arange(6)
    with torch.inference_mode():
        loss(torch.ones(6, 4), layer.weight, target, layer.bias)
    loss(torch.ones(6, 4), layer.weight, target, layer.bias).backward()
    assert layer.bias.grad is not None and layer.bias.grad.isfinite().all() and layer.bias.grad.abs().sum() > 0
