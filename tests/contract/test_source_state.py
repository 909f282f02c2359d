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
from helpers.source_worlds import CASES, TableView, V, query, source, trained
from torch import Tensor

from embtrain.common.types import Negatives, Query
from embtrain.negatives.base import NegativeSource
from embtrain.train.engines.autograd import costs_for_source
from embtrain.train.engines.false_negatives import mark_false_negatives

LEARNERS = [case for case in CASES if source(case).learns]
VIEW = TableView()
QUERIES = query(30, seed=1), query(24, seed=2)              # of different sizes, so that one state cannot fit the other


def loaded(state: dict[str, Any], case: str) -> NegativeSource:
    """A source with this state and no draw since."""
    made = source(case, seed=11)
    made.load_state_dict(copy.deepcopy(state))
    return made


def draw(made: NegativeSource, asked: Query) -> Negatives:
    return mark_false_negatives(made.draw(asked, made.config.k, VIEW), asked, "target", None)


def learn(made: NegativeSource, asked: Query, drawn: Negatives) -> dict[str, float]:
    scores = VIEW.score(asked, drawn.per_row(drawn.ids, len(asked)))                     # type: ignore[arg-type]
    return made.learn(asked, drawn, costs_for_source(made, torch.nn.functional.softplus(scores), drawn))


def learnt(made: NegativeSource) -> dict[str, Any]:
    """The state after all collected data were used, without the random numbers."""
    for _ in range(2):                                       # a second step, because the first may leave a rest
        made.on_epoch_start(VIEW)
    return without_random(made.state_dict())


def without_random(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: without_random(value) for key, value in state.items() if key != "random"}
    return state


def assert_equal(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("case", LEARNERS)
def test_two_draws_before_learning_equal_separate_draws(case: str, order: tuple[int, int]) -> None:
    start = trained(source(case), steps=5).state_dict()
    made = loaded(start, case)
    drawn = [draw(made, asked) for asked in QUERIES]
    separate = [draw(loaded(start, case), QUERIES[0])]        # its source made only this draw
    drawer = loaded(start, case)
    separate.append([draw(drawer, asked) for asked in QUERIES][1])
    for mine, other in zip(drawn, separate, strict=True):
        assert torch.equal(mine.ids, other.ids)                                          # type: ignore[arg-type]
    state = start
    for i in order:
        learner = loaded(state, case)
        assert_equal(learn(made, QUERIES[i], drawn[i]), learn(learner, QUERIES[i], separate[i]))
        state = learner.state_dict()
    assert_equal(learnt(made), learnt(loaded(state, case)))


@pytest.mark.parametrize("case", LEARNERS)
def test_a_draw_without_learning_changes_nothing(case: str) -> None:
    start = trained(source(case), steps=5).state_dict()
    results = []
    for more in (0, 1):
        made = loaded(start, case)
        drawn = draw(made, QUERIES[0])
        for _ in range(more):
            draw(made, QUERIES[1])
        results.append((learn(made, QUERIES[0], drawn), learnt(made)))
    assert_equal(*results)


@pytest.mark.parametrize("case", LEARNERS)
def test_learning_uses_only_the_state_of_its_draw(case: str) -> None:
    made = source(case)
    drawn = draw(made, QUERIES[0])
    assert drawn.state is not None
    assert drawn.rows(slice(0, 5)).state is None              # part of a draw is not used for learning
    with pytest.raises(AssertionError):
        learn(made, QUERIES[0], replace(drawn, state=None))


def test_a_mixture_of_a_mixture_learns_from_the_adversary_alone() -> None:
    """Costs pass through two mixtures to the adversary, together with the state of its draw."""
    made, received = source("mixture of a mixture of an adversary"), list[Negatives]()
    adversary, inner = made.inner.inner, list[Negatives]()                               # type: ignore[attr-defined]
    adversary_draw, adversary_learn = adversary.draw, adversary.learn

    def record_draw(asked: Query, k: int, view: TableView) -> Negatives:
        inner.append(adversary_draw(asked, k, view))
        return inner[-1]

    def record_learn(asked: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        received.append(drawn)
        return adversary_learn(asked, drawn, cost)

    adversary.draw, adversary.learn = record_draw, record_learn
    drawn = [draw(made, asked) for asked in QUERIES]
    before = made.log_prob(QUERIES[0], torch.arange(V).unsqueeze(0))
    for i in (1, 0):
        assert learn(made, QUERIES[i], drawn[i])["reward"] > 0
    assert [one.state for one in received] == [inner[1].state, inner[0].state]
    for one, own in zip(received, reversed(inner), strict=True):
        kept = one.origin == own.origin                      # the others were replaced by noise
        assert kept.any() and not kept.all()
        assert torch.equal(one.ids[kept], own.ids[kept])                                 # type: ignore[index]
    assert not torch.equal(made.log_prob(QUERIES[0], torch.arange(V).unsqueeze(0)), before)
