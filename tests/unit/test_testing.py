"""`embtrain.testing.check_source`: correct sources pass, and a broken source fails by the rule that it breaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.negatives.static.unigram import Unigram
from embtrain.testing import ContractError, check_source

pytestmark = pytest.mark.long


class Even(NegativeSource):
    """Uniform draws; the broken sources below each change one thing of it."""

    name = "even"

    def ids(self, n: int, k: int) -> Tensor:
        return torch.randint(self.problem.n_candidates, (n, k), generator=self.random)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        n, draw_id = self.draw_layout(query)
        ids = self.ids(n, k)
        log_q = torch.full(ids.shape, -math.log(self.problem.n_candidates))
        return Negatives(ids, draw_id=draw_id, log_q=log_q, log_q_target=log_q[:1, 0].expand(len(query)),
                         total_weight=torch.full((1, 1), float(k)))

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return torch.full((len(query), ids.shape[1]), -math.log(self.problem.n_candidates))


class Learner(NegativeSource):
    """q(b) ∝ e^{m_b} with m the mean cost of b; false negatives are left out."""

    name = "learner"
    traits = Traits(learns=True, sharing_modes=("row",), supports_total_weight=False)

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.m = torch.zeros(problem.n_candidates)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        log_q = (2 * self.m).log_softmax(0)
        ids = torch.multinomial(log_q.exp().expand(len(query), -1), k, replacement=True, generator=self.random)
        return Negatives(ids, log_q=log_q[ids], log_q_target=log_q[query.target],
                         total_weight=torch.full((1, 1), float(k)))

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return (2 * self.m).log_softmax(0)[ids].expand(len(query), -1)

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        assert drawn.ids is not None
        counted = torch.ones_like(drawn.ids, dtype=torch.bool)
        if drawn.false_negatives is not None:
            counted[drawn.false_negatives[0], drawn.false_negatives[1]] = False
        self.update(drawn.ids[counted], cost[counted])
        return {}

    def update(self, ids: Tensor, cost: Tensor) -> None:
        n = torch.bincount(ids, minlength=len(self.m))
        mean = torch.zeros_like(self.m).index_add_(0, ids, cost) / n.clamp(min=1)
        self.m += torch.where(n > 0, 0.3 * (mean - self.m), 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "m": self.m}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.m = state["m"].clone()


class QueryDependent(NegativeSource):
    """q(b|x) is higher for every sixth candidate, from x on; a batch draws from the mean over its rows."""

    name = "query_dependent"
    traits = Traits(sharing_modes=("row", "batch"))

    def q(self, query: Query) -> Tensor:
        is_high = torch.arange(self.problem.n_candidates) % 6 == query.context.unsqueeze(1)
        return (1 + 9 * is_high.double()) / (1 + 9 * is_high.double()).sum(1, keepdim=True)              # (B, V)

    def mean_q(self, query: Query) -> Tensor:
        q = self.q(query)
        return q.mean(0, keepdim=True) if self.config.share_draws_by == "batch" else q                   # (G, V)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        q = self.mean_q(query)
        ids = torch.multinomial(q, k, replacement=True, generator=self.random)
        target = q.expand(len(query), -1).gather(1, query.target.unsqueeze(1))[:, 0]
        return Negatives(ids, log_q=q.gather(1, ids).log().float(), log_q_target=target.log().float(),
                         total_weight=torch.full((1, 1), float(k)))

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return self.q(query).gather(1, ids.expand(len(query), -1)).log().float()


@pytest.mark.parametrize(("source", "settings"), [
    (QueryDependent, {}), (QueryDependent, {"share_draws_by": "batch"}),
    (Even, {}), (Even, {"share_draws_by": "window"}), (Even, {"share_draws_by": "batch"}), (Learner, {}), (Unigram, {}),
    (Unigram, {"exponent": 0.5, "replacement": False}),
])
def test_correct_source_passes(source: type[NegativeSource], settings: dict[str, Any]) -> None:
    check_source(source, **settings)


# --- broken sources ------------------------------------------------------------------------------------------------

def changed_draw(**fields: Any) -> type[NegativeSource]:
    """Even, with fields of its draw replaced: by a value, or by a function of the draw."""
    class Broken(Even):
        def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
            drawn = super().draw(query, k, view)
            return replace(drawn, **{name: x(drawn) if callable(x) else x for name, x in fields.items()})
    return Broken


class Biased(Even):
    """Candidates below 20 are drawn twice as often as reported."""

    def ids(self, n: int, k: int) -> Tensor:
        low = torch.rand(n, k, generator=self.random) < 2 / 3
        return torch.randint(20, (n, k), generator=self.random) + torch.where(low, 0, 20)


class Unnormalized(Even):
    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return super().log_prob(query, ids) + 0.1


class GlobalRandom(Even):
    def ids(self, n: int, k: int) -> Tensor:
        return torch.randint(self.problem.n_candidates, (n, k))


class FixedSeed(Even):
    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        self.random = torch.Generator().manual_seed(1)


class IgnoresShare(Even):
    """Rows of a window do not share their draw."""

    def draw_layout(self, query: Query) -> tuple[int, Tensor | None]:
        return super().draw_layout(query)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        layout, self.draw_layout = self.draw_layout, lambda query: (len(query), None)  # type: ignore[method-assign]
        drawn = super().draw(query, k, view)
        self.draw_layout = layout  # type: ignore[method-assign]
        return drawn


class AcceptsAnything(Even):
    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config.model_copy(update={"replacement": True}), problem)


class ForgetsState(Learner):
    def state_dict(self) -> dict[str, Any]:
        return NegativeSource.state_dict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        NegativeSource.load_state_dict(self, state)


class LearnsFromMasked(Learner):
    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        assert drawn.ids is not None
        self.update(drawn.ids.flatten(), cost.flatten())
        return {}


class LearnsNothing(Learner):
    def update(self, ids: Tensor, cost: Tensor) -> None:
        pass


class LearnsBackwards(Learner):
    def update(self, ids: Tensor, cost: Tensor) -> None:
        super().update(ids, -cost)


class RecordsEveryDraw(Learner):
    """An evaluation moves q as training does."""

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        self.m[query.target] += 0.01
        return super().draw(query, k, view)


class ChangesModel(Even):
    traits = Traits(uses_model=True)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        view.table().mul_(0.9)
        return super().draw(query, k, view)


class ReadsModel(Even):
    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        view.table()
        return super().draw(query, k, view)


class ReadsCounts(Even):
    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return (self.problem.counts / self.problem.counts.sum()).log().float()[ids].expand(len(query), -1)

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        drawn = super().draw(query, k, view)
        assert drawn.ids is not None
        n, q = len(drawn.ids), self.problem.counts.expand(len(drawn.ids), -1)
        ids = torch.multinomial(q, k, replacement=True, generator=self.random)
        log_q = (self.problem.counts / self.problem.counts.sum()).log().float()
        return replace(drawn, ids=ids, log_q=log_q[ids].expand(n, -1), log_q_target=log_q[query.target])


class DependsOnOtherRows(Even):
    """The first row of a batch with several contexts has a q of its own."""

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        is_first = torch.arange(len(query)) == 0
        slope = 0.05 * is_first * (len(query.context.unique()) > 1)
        log_q = (slope.unsqueeze(1) * torch.arange(self.problem.n_candidates)).log_softmax(1)
        return log_q.gather(1, ids.expand(len(query), -1))

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        q = self.log_prob(query, torch.arange(self.problem.n_candidates).unsqueeze(0)).exp()
        ids = torch.multinomial(q, k, replacement=True, generator=self.random)
        return replace(super().draw(query, k, view), ids=ids, draw_id=None, log_q=self.log_prob(query, ids),
                       log_q_target=self.log_prob(query, query.target.unsqueeze(1))[:, 0])


class MeanInLogProb(QueryDependent):
    """log_prob of a batch is that of its shared draw."""

    def log_prob(self, query: Query, ids: Tensor) -> Tensor:
        return self.mean_q(query).expand(len(query), -1).gather(1, ids.expand(len(query), -1)).log().float()


class OwnTargetInSharedDraw(QueryDependent):
    """log_q_target of a shared draw is that of the row's own query."""

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        target = self.log_prob(query, query.target.unsqueeze(1))[:, 0]
        return replace(super().draw(query, k, view), log_q_target=target)


class DrawsForFirstRow(QueryDependent):
    """A shared draw is for the first row, and its log_q is that of the mean."""

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        q = self.mean_q(query)
        ids = torch.multinomial(self.q(query)[:1], k, replacement=True, generator=self.random)
        return replace(super().draw(query, k, view), ids=ids, log_q=q.gather(1, ids).log().float())


class RaisesInDraw(Even):
    def ids(self, n: int, k: int) -> Tensor:
        raise KeyError("nothing")


@pytest.mark.parametrize(("rule", "source", "settings"), [
    ("shapes", changed_draw(ids=lambda drawn: drawn.ids.int()), {}),
    ("shapes", changed_draw(log_q=lambda drawn: drawn.log_q[:, :3].clone() if drawn.k > 3 else drawn.log_q), {}),
    ("shapes", changed_draw(log_q=lambda drawn: drawn.log_q.requires_grad_()), {}),
    ("ids", changed_draw(ids=lambda drawn: drawn.ids + 1), {}),
    ("weights", changed_draw(total_weight=torch.ones(1, 1)), {}),
    ("log_q", changed_draw(log_q=lambda drawn: drawn.log_q + 0.1), {}),
    ("log_q", changed_draw(log_q_target=None), {}),
    ("log_prob", Unnormalized, {}),
    ("frequencies", Biased, {}),
    ("seed", GlobalRandom, {}),
    ("seed", FixedSeed, {}),
    ("sharing", IgnoresShare, {}),
    ("settings", AcceptsAnything, {}),
    ("state_dict", ForgetsState, {}),
    ("masks", LearnsFromMasked, {}),
    ("learning", LearnsNothing, {}),
    ("learning", LearnsBackwards, {}),
    ("evaluation", RecordsEveryDraw, {}),
    ("read-only", ChangesModel, {}),
    ("uses_model", ReadsModel, {}),
    ("uses_counts", ReadsCounts, {}),
    ("rows", DependsOnOtherRows, {"share_draws_by": "row", "replacement": True}),
    ("rows", MeanInLogProb, {}),
    ("log_q", OwnTargetInSharedDraw, {"share_draws_by": "batch"}),
    ("frequencies", DrawsForFirstRow, {"share_draws_by": "batch"}),
    ("settings", RaisesInDraw, {}),
])
def test_broken_source_fails_by_its_rule(rule: str, source: type[NegativeSource], settings: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match=rf"^{source.name}: {rule}: [^\n]+$") as error:
        check_source(source, **settings)
    assert error.value.rule == rule


def test_deterministic_source_is_declared() -> None:
    class First(Even):
        traits = Traits(density="none")

        def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
            drawn = super().draw(query, k, view)
            assert drawn.ids is not None
            return replace(drawn, ids=torch.arange(k).expand(len(drawn.ids), k), log_q=None, log_q_target=None)

    with pytest.raises(ContractError, match="seed: sources with different seeds draw the same"):
        check_source(First)
    check_source(First, deterministic=True)
