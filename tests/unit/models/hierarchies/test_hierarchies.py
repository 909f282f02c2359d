"""Contracts of models of hierarchies: paths to a score, gradients, queries, directions, edges of the space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.hierarchy.examples import PairBatch
from embtrain.models import base as models
from embtrain.models.hierarchies import base
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.hierarchies.bounds import MAX_NORM
from embtrain.models.hierarchies.cone import min_norm
from embtrain.train.optimizers import RowAdagrad

V, D, B = 7, 4, 5
DOUBLE = torch.float64


@dataclass(frozen=True)
class Case:
    """A model with its settings."""

    name: str
    keys: dict[str, Any]
    chain: Tensor      # (n, D): each row entails all later ones
    corners: Tensor    # (n, D): points at the edges of the space
    is_transitive: bool = True


def axis(*values: float) -> Tensor:
    """Points on the first axis, (n, D)."""
    return torch.tensor([[x, 0.0, 0.0, 0.0] for x in values], dtype=DOUBLE)


def heights(*values: float) -> Tensor:
    """Points of the half-space above one another, with these log heights, (n, D)."""
    return axis(*values).roll(-1, 1)


def sides(*values: float) -> Tensor:
    """Boxes around 0 with these log half sides, (n, D)."""
    return torch.tensor([[0.0, 0.0, x, x] for x in values], dtype=DOUBLE)


BALL = axis(MAX_NORM, -MAX_NORM, min_norm(0.1), 0.5)
CASES = {
    "order": Case("order", {}, axis(3, 2, 1, 0), axis(0, 1e6)),
    "cone": Case("cone", {}, axis(0.99, 0.7, 0.3, 0.11), BALL),
    "umbral": Case("shadow_cone", {"radius": 1.0}, heights(-3, -1, 0, 2), heights(-40, 40, 0)),
    "penumbral": Case("shadow_cone", {"light": "penumbral", "height": 3}, heights(-3, -1, 0, 1),
                      heights(-40, math.log(3))),
    "poincare": Case("poincare", {}, axis(0.99, 0.7, 0.3, 0), BALL, is_transitive=False),
    "box": Case("box", {}, sides(-1, 0, 1, 2), torch.cat([sides(20, -20), axis(1e6)]), is_transitive=False),
}


def build(name: str) -> HierarchyModel:
    case = CASES[name]
    cls = models.find(case.name)
    problem = ProblemSpec(V, torch.ones(V, dtype=DOUBLE), context_sizes=(V, 2), dim=D, seed=3)
    model = cls(cls.Config(dim=D, **case.keys), problem)
    assert isinstance(model, HierarchyModel)
    return model


def spread(model: HierarchyModel, n: int = V, seed: int = 0) -> Tensor:
    """Valid points that are farther apart than the initial ones, (n, D), float64."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(n, D, generator=draw, dtype=DOUBLE)
    if model.name == "shadow_cone":
        return (x - torch.tensor([0.5, 0.5, 0.5, 0.7], dtype=DOUBLE)) * torch.tensor([1.0, 1.0, 1.0, 3.0], dtype=DOUBLE)
    if model.name in ("cone", "poincare"):
        norm = 0.11 + 0.8 * torch.rand(n, 1, generator=draw, dtype=DOUBLE).square()
        return torch.nn.functional.normalize(x - torch.tensor([0.0, 0.5, 0.5, 0.5], dtype=DOUBLE), dim=1) * norm
    return x


def batch() -> PairBatch:
    concept, target = torch.randint(V, (2, B), generator=torch.Generator().manual_seed(1))
    return PairBatch(target, torch.tensor([0, 1, 1, 0, 1]), concept)


@pytest.mark.parametrize("name", CASES)
def test_every_path_to_a_score_gives_that_of_the_pair(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, pairs = build(name), batch()
    query, everyone, x = model.encode(pairs), torch.arange(V)[None], model.table()
    expected = torch.stack([torch.stack([
        model.pair_score(*((x[g], x[c]) if s == 0 else (x[c], x[g]))) for c in range(V)])
        for g, s in zip(pairs.concept.tolist(), pairs.slot.tolist(), strict=True)]).float()
    ids = torch.randint(V, (B, 9), generator=torch.Generator().manual_seed(2))
    for cells in (1 << 24, 40):  # at once, and in chunks that are computed again
        monkeypatch.setattr(base, "MAX_DIFFERENCES", cells)
        torch.testing.assert_close(model.score(query, everyone), expected)
        with torch.no_grad():
            torch.testing.assert_close(model.score(query, everyone), expected)
        torch.testing.assert_close(model.score(query, ids), expected.gather(1, ids))
        torch.testing.assert_close(model.score(query, x[ids]), expected.gather(1, ids))
    assert model.score(query, ids).dtype == torch.float32


@pytest.mark.parametrize("name", CASES)
def test_gradient_equals_finite_differences(name: str) -> None:
    model = build(name)
    u, v = spread(model, 12, 1).requires_grad_(), spread(model, 12, 2).requires_grad_()
    assert torch.autograd.gradcheck(model.pair_score, (u, v))
    assert torch.autograd.gradcheck(lambda u, v: model.entailment_score(u, v, model.config), (u, v))


@pytest.mark.parametrize("name", CASES)
def test_a_chain_holds_upwards_and_not_downwards(name: str) -> None:
    model, chain = build(name), CASES[name].chain
    for i, u in enumerate(chain):
        up, down = (model.entailment_score(*pair, model.config) for pair in
                    ((u.expand_as(chain[i + 1:]), chain[i + 1:]), (chain[i + 1:], u.expand_as(chain[i + 1:]))))
        assert (up >= 0).all() and (down < 0).all(), (i, up, down)
        assert float(model.entailment_score(u, u, model.config)) >= -1e-9


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_transitive])
def test_entailment_is_transitive(name: str) -> None:
    """Among 100 random points: if u entails v and v entails w, u entails w."""
    model = build(name)
    x = spread(model, 100)
    score = model.entailment_score(x[:, None], x[None], model.config)
    holds = score >= 0
    by_two_steps = (holds.float() @ holds.float()) > 0
    assert (by_two_steps & ~torch.eye(100, dtype=torch.bool)).sum() > 20
    assert not (by_two_steps & (score < -1e-9)).any()


@pytest.mark.parametrize("name", CASES)
def test_scores_and_gradients_are_finite_at_the_edges_and_at_one_point(name: str) -> None:
    model = build(name)
    x = CASES[name].corners
    table = torch.cat([x, x, x + 1e-300, spread(model, 2)]).requires_grad_()
    n = len(table)
    scores = model.pair_score(table[:, None].expand(n, n, D), table[None].expand(n, n, D))
    assert scores.isfinite().all()
    scores.sum().backward()
    assert table.grad is not None and table.grad.isfinite().all()


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, RowAdagrad])
@pytest.mark.parametrize("name", CASES)
def test_huge_steps_leave_a_valid_table(name: str, optimizer: type[torch.optim.Optimizer]) -> None:
    model, pairs = build(name), batch()
    everyone = torch.arange(V).repeat(B, 1)
    step = optimizer(model.parameters(), lr=1e3)  # type: ignore[call-arg]
    for sign in (1, -1, 1, -1):
        step.zero_grad()
        (sign * model.score(model.encode(pairs), everyone)).sum().backward()
        step.step()
        model.after_update(pairs)
        assert model.score(model.encode(pairs), everyone).isfinite().all()
    if name in ("cone", "poincare"):
        assert torch.linalg.vector_norm(model.x, dim=1).max() <= MAX_NORM + 1e-12


@pytest.mark.parametrize("name", CASES)
def test_equal_queries_are_one_group_and_other_contexts_are_rejected(name: str) -> None:
    model = build(name)
    pairs = PairBatch(torch.tensor([1, 2, 3, 4]), torch.tensor([0, 0, 1, 0]), torch.tensor([5, 5, 5, 6]))
    query = model.encode(pairs)
    assert query.context.tolist() == [[5, 0], [5, 0], [5, 1], [6, 0]] and query.query_id is not None
    same = query.query_id[:, None] == query.query_id
    assert same.tolist() == [[a == b for b in query.context.tolist()] for a in query.context.tolist()]
    for sizes in (None, (V,), (V, 2, 3)):
        with pytest.raises(UsageError, match=rf"model.name: {CASES[name].name} needs pairs of concepts"):
            type(model)(model.config, ProblemSpec(V, torch.ones(V), context_sizes=sizes, dim=D, seed=3))


@pytest.mark.parametrize("name", CASES)
def test_the_initial_table_follows_its_seed(name: str) -> None:
    model = build(name)
    problem = ProblemSpec(V, torch.ones(V), context_sizes=(V, 2), dim=D, seed=4)
    assert torch.equal(model.x, build(name).x) and not torch.equal(model.x, type(model)(model.config, problem).x)
    assert model.x.shape == (V, D) and model.x.isfinite().all()
