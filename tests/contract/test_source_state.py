"""`Negatives.state`: a trained source can draw again before it learns from the first draw, in any order.

Each draw and the `learn` after it are compared with a separate source that has the current parameters, makes only
this draw and learns only from it.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.looped import looped
from helpers.source_worlds import CASES, TableView, V, example, query, source, trained
from torch import Tensor

from embtrain.common.types import Negatives, Query
from embtrain.negatives.base import NegativeSource
from embtrain.train.engines.draws import costs_for_source
from embtrain.train.engines.false_negatives import mark_false_negatives

LEARNERS = [case for case in CASES if example(case).traits.learns]
VIEW = TableView()
QUERIES = query(30, seed=1), query(24, seed=2)              # of different sizes, so that one state cannot fit the other


def loaded(state: dict[str, Any], case: str) -> NegativeSource:
    """A source with this state and no draw since."""
    sampler = source(case, seed=11)
    sampler.load_state_dict(copy.deepcopy(state))
    return sampler


def draw(sampler: NegativeSource, queries: Query) -> Negatives:
    return mark_false_negatives(sampler.draw(queries, sampler.config.k, VIEW), queries, "target", None)


def learn(sampler: NegativeSource, queries: Query, drawn: Negatives) -> dict[str, float]:
    scores = VIEW.score(queries, drawn.per_row(drawn.ids, len(queries)))                     # type: ignore[arg-type]
    return sampler.learn(queries, drawn, costs_for_source(sampler, torch.nn.functional.softplus(scores), drawn))


def learnt(sampler: NegativeSource) -> dict[str, Any]:
    """The state after all collected data were used, without the random numbers."""
    for _ in range(2):                                       # a second step, because the first may leave a rest
        sampler.on_epoch_start(VIEW)
    return without_random(sampler.state_dict())


def without_random(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: without_random(value) for key, value in state.items() if key != "random"}
    return state


def assert_equal(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@looped("order", [(0, 1), (1, 0)])
@looped("case", LEARNERS)
def test_two_draws_before_learning_equal_separate_draws(case: str, order: tuple[int, int]) -> None:
    start = trained(source(case), steps=5).state_dict()
    sampler = loaded(start, case)
    drawn = [draw(sampler, queries) for queries in QUERIES]
    separate = [draw(loaded(start, case), QUERIES[0])]        # its source made only this draw
    drawer = loaded(start, case)
    separate.append([draw(drawer, queries) for queries in QUERIES][1])
    for actual, second in zip(drawn, separate, strict=True):
        assert torch.equal(actual.ids, second.ids)                                          # type: ignore[arg-type]
    state = start
    for i in order:
        learner = loaded(state, case)
        assert_equal(learn(sampler, QUERIES[i], drawn[i]), learn(learner, QUERIES[i], separate[i]))
        state = learner.state_dict()
    assert_equal(learnt(sampler), learnt(loaded(state, case)))


@looped("case", LEARNERS)
def test_a_draw_without_learning_changes_nothing(case: str) -> None:
    start = trained(source(case), steps=5).state_dict()
    results = []
    for more in (0, 1):
        sampler = loaded(start, case)
        drawn = draw(sampler, QUERIES[0])
        for _ in range(more):
            draw(sampler, QUERIES[1])
        results.append((learn(sampler, QUERIES[0], drawn), learnt(sampler)))
    assert_equal(*results)


@looped("case", [case for case in LEARNERS if example(case).traits.learns_from == "cost"])
def test_learning_uses_only_the_state_of_its_draw(case: str) -> None:
    sampler = source(case)
    drawn = draw(sampler, QUERIES[0])
    assert drawn.state is not None
    assert drawn.rows(slice(0, 5)).state is None              # part of a draw is not used for learning
    with pytest.raises(AssertionError):
        learn(sampler, QUERIES[0], replace(drawn, state=None))


def test_a_mixture_of_a_mixture_learns_from_the_adversary_alone() -> None:
    """Costs pass through two mixtures to the adversary, together with the state of its draw."""
    sampler, received = source("mixture of a mixture of an adversary"), list[Negatives]()
    adversary, inner = sampler.inner.inner, list[Negatives]()                               # type: ignore[attr-defined]
    adversary_draw, adversary_learn = adversary.draw, adversary.learn

    def record_draw(queries: Query, k: int, view: TableView) -> Negatives:
        inner.append(adversary_draw(queries, k, view))
        return inner[-1]

    def record_learn(queries: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        received.append(drawn)
        return adversary_learn(queries, drawn, cost)

    adversary.draw, adversary.learn = record_draw, record_learn
    drawn = [draw(sampler, queries) for queries in QUERIES]
    before = sampler.log_prob(QUERIES[0], torch.arange(V).unsqueeze(0))
    for i in (1, 0):
        assert learn(sampler, QUERIES[i], drawn[i])["reward"] > 0
    assert [actual.state for actual in received] == [inner[1].state, inner[0].state]
    for actual, expected in zip(received, reversed(inner), strict=True):
        kept = actual.origin == expected.origin                      # the others were replaced by noise
        assert kept.any() and not kept.all()
        assert torch.equal(actual.ids[kept], expected.ids[kept])                                 # type: ignore[index]
    assert not torch.equal(sampler.log_prob(QUERIES[0], torch.arange(V).unsqueeze(0)), before)
