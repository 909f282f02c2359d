"""The contract of triple models, found in the package: a model without a formula in FORMULAS fails."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, Negatives, ProblemSpec
from embtrain.data.triples.examples import TripleExamples
from embtrain.data.triples.graph import TriplesConfig
from embtrain.losses.logistic import Logistic
from embtrain.losses.softmax import ExactSoftmaxLoss, SoftmaxConfig
from embtrain.models import base as models, distances
from embtrain.models.triples.base import FactorModel, TripleModel
from embtrain.negatives.base import NegativesConfig
from embtrain.negatives.none import NoNegatives
from embtrain.negatives.static.uniform import Uniform
from embtrain.train.config import TrainConfig
from embtrain.train.engines import autograd
from embtrain.train.engines.autograd import Step
from embtrain.train.optimizers import make_optimizers

V, R, D = 7, 3, 4
WORLD = ProblemSpec(V, torch.ones(V, dtype=torch.float64), context_sizes=(V, 2 * R), dim=D, seed=2)


@dataclass(frozen=True)
class Triples(Batch):
    entity: Tensor
    relation: Tensor


# ---- the same in plain Python: score of h, r, t from rows of the tables ----------------------------------------------

Score = list[float]


def l1(h: Score, r: Score, t: Score) -> float:
    return -sum(abs(a + b - c) for a, b, c in zip(h, r, t, strict=True))


def l2(h: Score, r: Score, t: Score) -> float:
    return -math.sqrt(sum((a + b - c) ** 2 for a, b, c in zip(h, r, t, strict=True)))


def product(h: Score, r: Score, t: Score) -> float:
    return sum(a * b * c for a, b, c in zip(h, r, t, strict=True))


def numbers(x: Score) -> list[complex]:
    return [complex(a, b) for a, b in zip(x[:len(x) // 2], x[len(x) // 2:], strict=True)]


def of_complex(h: Score, r: Score, t: Score) -> float:
    return sum((a * b * c.conjugate()).real for a, b, c in zip(*map(numbers, (h, r, t)), strict=True))


def turned(h: Score, r: Score, t: Score) -> float:
    return -sum(abs(a * cmath.exp(1j * b) - c) for a, b, c in zip(numbers(h), r, numbers(t), strict=True))


def projected(norm: Callable[[Score, Score, Score], float]) -> Callable[[Score, Score, Score], float]:
    def score(h: Score, r: Score, t: Score) -> float:
        def moved(x: Score) -> Score:
            along = sum(a * b for a, b in zip(x[:D], x[D:], strict=True))
            return [a + along * b for a, b in zip(x[:D], r[D:], strict=True)]
        return norm(moved(h), r[:D], moved(t))
    return score


FORMULAS: dict[str, tuple[str, dict[str, Any], Callable[[Score, Score, Score], float]]] = {
    "transe l1": ("transe", {"norm": "l1"}, l1), "transe l2": ("transe", {"norm": "l2"}, l2),
    "transe on a sphere": ("transe", {"norm": "l2", "entities": "sphere"}, l2),
    "distmult": ("distmult", {}, product), "complex": ("complex", {}, of_complex), "rotate": ("rotate", {}, turned),
    "transd l1": ("transd", {"norm": "l1"}, projected(l1)), "transd l2": ("transd", {"norm": "l2"}, projected(l2)),
}
each = pytest.mark.parametrize("case", FORMULAS)


def build(case: str, **keys: Any) -> TripleModel:
    name, settings, _ = FORMULAS[case]
    model_class = models.find(name)
    return model_class(model_class.Config(name=name, dim=D, **settings, **keys), WORLD).double()


def batch(*triples: tuple[int, int, int], slot: int = 0) -> Triples:
    h, r, t = torch.tensor(triples).T
    known_entity, target = (h, t) if slot == 0 else (t, h)
    return Triples(target, torch.full_like(h, slot), known_entity, r)


EVERY = torch.arange(V).unsqueeze(0)


def test_every_model_of_triples_has_a_formula() -> None:
    expected = {name for name in models.names() if models.find(name).task == "triples"}
    assert expected == {name for name, _, _ in FORMULAS.values()}


@each
@pytest.mark.parametrize("slot", [0, 1])
def test_scores_match_the_formula(case: str, slot: int) -> None:
    model, formula = build(case), FORMULAS[case][2]
    e, r = model.e.tolist(), model.r.tolist()
    triples = batch((0, 2, 3), (5, 0, 5), (1, 1, 6), slot=slot)
    s = model.score(model.encode(triples), EVERY).detach()
    for i, (known_entity, relation) in enumerate(zip(triples.entity.tolist(), triples.relation.tolist(), strict=True)):
        for b in range(V):
            h, t = (known_entity, b) if slot == 0 else (b, known_entity)
            assert float(s[i, b]) == pytest.approx(formula(e[h], r[relation], e[t]), rel=1e-9, abs=1e-12)


@each
def test_candidates_shared_private_and_as_vectors_have_the_same_scores(case: str, monkeypatch) -> None:
    model = build(case)
    query = model.encode(batch((0, 2, 3), (5, 0, 5), (1, 1, 6)))
    shared = model.score(query, EVERY)
    private = model.score(query, EVERY.expand(3, -1).contiguous())
    vectors = model.score(query, model.table()[EVERY.expand(3, -1)])
    torch.testing.assert_close(private, shared)
    torch.testing.assert_close(vectors, shared)
    torch.testing.assert_close(model.score(query, torch.tensor([[4, 4, 0]])), shared[:, [4, 4, 0]])
    monkeypatch.setattr(distances, "MAX_DIFFERENCES", 1)  # one row at a time, rebuilt for differentiation
    repeated = model.score(query, EVERY)
    torch.testing.assert_close(repeated, shared)
    with torch.no_grad():                                               # the result is written in pieces
        torch.testing.assert_close(model.score(query, EVERY), shared.detach())
    for single, second in zip(*(torch.autograd.grad(s.square().sum(), [model.e, model.r], retain_graph=True)
                                for s in (repeated, shared)), strict=True):
        torch.testing.assert_close(single.to_dense(), second.to_dense())


@each
@pytest.mark.parametrize("slot", [0, 1])
def test_gradients_match_finite_differences(case: str, slot: int) -> None:
    model = build(case)
    model.sparse = False
    triples = batch((0, 2, 3), (5, 0, 1), slot=slot)
    ids = torch.tensor([[2, 6, 4], [3, 0, 2]])

    def scores(e: Tensor, r: Tensor) -> Tensor:
        held = {"model.e": e, "model.r": r}
        def run(candidates: Tensor) -> Tensor:
            return torch.func.functional_call(_Scored(model), held, (triples, candidates))
        return torch.cat([run(ids), run(ids[:1])], 1)

    assert torch.autograd.gradcheck(scores, (model.e.detach().clone().requires_grad_(),
                                             model.r.detach().clone().requires_grad_()))


@pytest.mark.parametrize("case", ["transe l1", "transe l2", "rotate"])
def test_the_gradient_is_zero_if_a_candidate_equals_the_query(case: str) -> None:
    model = build(case)
    query = model.encode(batch((0, 2, 3), (5, 0, 1)))
    c = query.vector.detach().unsqueeze(1).requires_grad_()
    score = model.score(query, c)
    score.sum().backward()
    assert float(score.detach().abs().max()) < 1e-150 and (c.grad == 0).all() and (model.e.grad.to_dense() == 0).all()


@pytest.mark.parametrize(("optimizer", "is_dense"), [("row-adagrad", True), ("lazy-adam", False), ("adam", True)])
def test_gradients_of_a_small_table_are_dense_on_a_gpu_unless_unread_rows_rest(
        optimizer: str, is_dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lazy Adam leaves a row without a gradient as it is; by a dense gradient it would move it."""
    model = build("transe l1")
    make_optimizers(model, Logistic(Logistic.Config(), model.problem), TrainConfig(optimizer=optimizer))  # type: ignore[arg-type]
    with monkeypatch.context() as on_gpu:
        on_gpu.setattr(torch.Tensor, "is_cuda", True)
        rows = model.rows(torch.zeros(len(model.r), dtype=torch.int64), model.r)
    rows.sum().backward()
    assert model.r.grad is not None and model.r.grad.is_sparse != is_dense


class _Scored(torch.nn.Module):
    def __init__(self, model: TripleModel):
        super().__init__()
        self.model = model

    def forward(self, triples: Batch, candidates: Tensor) -> Tensor:
        return self.model.score(self.model.encode(triples), candidates)


@each
def test_queries_have_context_slot_id_and_vector(case: str) -> None:
    model = build(case)
    query = model.encode(batch((0, 2, 3), (0, 2, 4), (4, 2, 0), (0, 1, 3)))
    assert query.context.tolist() == [[0, 2], [0, 2], [4, 2], [0, 1]] and query.query_id.tolist() == [1, 1, 2, 0]
    second = model.encode(batch((3, 2, 0), slot=1))
    assert second.context.tolist() == [[0, 2 + R]] and second.slot.tolist() == [1]
    assert query.vector.shape[1] == model.table().shape[1] and len(model.vectors()) == V


@pytest.mark.parametrize(("model", "onto"), [("transe", "sphere"), ("transe", "ball"), ("transd", "ball"),
                                             ("transd", "sphere")])
def test_entities_are_projected_after_each_update(model: str, onto: str) -> None:
    model_class = models.find(model)
    net = model_class(model_class.Config(name=model, dim=D, entities=onto), WORLD)
    loss, source = Logistic(Logistic.Config(), WORLD), Uniform(NegativesConfig(source="uniform", k=3), WORLD)
    config = TrainConfig(lr=2.0)
    step = Step(net, source, loss, make_optimizers(net, loss, config), config)
    before = net.e.detach().clone()
    for _ in range(3):
        step(batch((0, 2, 3), (5, 0, 1)))
    length = net.vectors().detach().norm(dim=1)
    assert float(length.max()) < 1 + 1e-5 and not torch.equal(before, net.e)
    assert onto == "ball" or float(length.min()) > 1 - 1e-5


@pytest.mark.parametrize(("case", "power"), [("distmult", 2), ("distmult", 3), ("complex", 3)])
def test_the_regulariser_is_the_sum_of_powers(case: str, power: int) -> None:
    model = build(case, penalty=0.25, power=power)
    triples = batch((0, 2, 3), (5, 0, 1))
    def size(row: Score) -> float:
        return sum(abs(x) ** power for x in (numbers(row) if case == "complex" else row))
    e, r = model.e.tolist(), model.r.tolist()
    expected = [0.25 * (size(e[h]) + size(r[k]) + size(e[t])) for h, k, t in ((0, 2, 3), (5, 0, 1))]
    assert model.penalty(triples).tolist() == pytest.approx(expected)
    assert build(case).penalty(triples) is None


@pytest.mark.parametrize(("slot", "times"), [("both", 2), ("random", 1)])
def test_a_triple_is_regularized_once_for_each_example(slot: str, times: int) -> None:
    triples = np.array([[0, 2, 3], [5, 0, 1]])
    examples = TripleExamples(triples, V, R, TriplesConfig.model_validate({"slot": slot}), seed=0)
    model = build("distmult", penalty=0.25)
    assert isinstance(model, FactorModel)
    in_epoch = sum(model.penalty(block).sum().item() for block in examples.blocks(0, 3))
    once = model.penalty(batch((0, 2, 3), (5, 0, 1))).sum().item()
    assert in_epoch == pytest.approx(times * once)
    assert "of each example, so twice per triple with triples.slot: both" in \
        (type(model.config).model_fields["penalty"].description or "")


def test_the_regulariser_reaches_the_tables_through_a_step() -> None:
    """Rows without a score move only by the gradient of the penalty, p λ |x|^(p-1)."""
    net = build("distmult", penalty=0.1, power=2)
    with torch.no_grad():
        net.r.zero_()                                                    # every score is 0, and so is its slope in e
    loss, config = Logistic(Logistic.Config(), WORLD).double(), TrainConfig(lr=0.5)
    step = Step(net, Uniform(NegativesConfig(source="uniform", k=3), WORLD), loss, make_optimizers(net, loss, config),
                config)
    before = net.e.detach().clone()
    step(batch((0, 2, 3)))
    for row in (0, 3):
        torch.testing.assert_close(net.e[row], before[row] * (1 - 0.5 * 0.1 * 2))
    assert torch.equal(net.e[1], before[1])


@pytest.mark.parametrize("case", ["distmult", "complex"])
@pytest.mark.parametrize("by_row", [False, True])
def test_the_gradient_of_the_regularised_softmax_is_that_of_finite_differences(
    case: str, by_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the step with N3 over all candidates, where equal queries are scored once, and one by one as on a GPU."""
    def is_by_row(_: object) -> bool:
        return by_row
    monkeypatch.setattr(autograd, "is_scored_by_row", is_by_row)
    net = build(case, penalty=0.2)
    loss = ExactSoftmaxLoss(SoftmaxConfig(), WORLD).double()
    examples = batch((0, 2, 3), (5, 0, 1), (0, 2, 4))
    step = Step(net, NoNegatives(NegativesConfig(source="none", filter="none"), WORLD), loss, [],
                TrainConfig(reduction="mean"))

    def cost() -> float:
        """The mean of −s_t + log Σ_b e^{s_b} + λ Σ |x|³, from the model's scores."""
        with torch.no_grad():
            scores = net.score(net.encode(examples), torch.arange(V).unsqueeze(0))
            own = scores.gather(1, examples.target.unsqueeze(1))[:, 0]
            penalty = net.penalty(examples)
            assert penalty is not None
            return float((scores.logsumexp(1) - own + penalty).mean())
    step.gradients(examples, net.encode(examples), Negatives(torch.empty(1, 0, dtype=torch.int64)), 0)
    for table in (net.e, net.r):
        assert table.grad is not None
        gradient = table.grad.to_dense()
        for place in ((0, 1), (2, 3), (1, 0)):
            costs = []
            for shift in (1e-5, -1e-5):
                with torch.no_grad():
                    table[place] += shift
                costs.append(cost())
                with torch.no_grad():
                    table[place] -= shift
            assert float(gradient[place]) == pytest.approx((costs[0] - costs[1]) / 2e-5, abs=1e-8)


def test_invalid_settings_are_rejected_in_one_line() -> None:
    for name in ("complex", "rotate"):
        model_class = models.find(name)
        with pytest.raises(UsageError, match=r"model\.dim: 5: .* must be even"):
            model_class(model_class.Config(name=name, dim=5), WORLD)
    model_class = models.find("transe")
    with pytest.raises(UsageError, match=r"model\.name: transe needs entities and relations"):
        model_class(model_class.Config(), ProblemSpec(V, torch.ones(V), n_contexts=V))
