"""ACE's generator follows the gradient that its equations promise.

REINFORCE is unbiased under each baseline, noise columns teach the same through importance weights, a forgiven answer
pays the penalty, the hinge pulls only below c.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec, Query
from embtrain.negatives.adversarial.ace import Ace, AceConfig

V, CONTEXTS, ROWS, K = 7, 3, 20_000, 4
COST = torch.tensor([[0.1, 2.0, 0.3, 0.7, 1.5, 0.2, 0.9], [1.0, 0.2, 0.4, 2.5, 0.1, 0.6, 0.3],
                     [0.5, 0.5, 1.8, 0.2, 0.9, 1.1, 0.4]])


def made(**keys: Any) -> Ace:
    counts = torch.tensor([9.0, 5.0, 7.0, 3.0, 4.0, 6.0, 8.0], dtype=torch.float64)
    of = Ace(AceConfig(source="ace", k=K, min_perplexity=1, **keys),
             ProblemSpec(V, counts, CONTEXTS, raw_counts=counts, dim=4, seed=1))
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        of.generator.w.copy_(torch.randn(of.generator.w.shape, generator=draw) * 0.5)
    return of


def asked() -> Query:
    context = torch.arange(ROWS) % CONTEXTS
    target = torch.full((ROWS,), 6)
    return Query(torch.zeros(ROWS, 1), context, target, torch.zeros_like(target), context)


def exact(of: Ace, reward: torch.Tensor) -> list[torch.Tensor]:
    """The gradient of -E_x E_{y~g}[r(x, y)], rewards (CONTEXTS, V)."""
    of.generator.zero_grad()
    log_g = of.generator(torch.arange(CONTEXTS))
    (-(log_g.exp() * reward).sum(1).mean()).backward()
    return [p.grad.clone() for p in of.generator.parameters()]


def estimated(of: Ace, monkeypatch: pytest.MonkeyPatch, right_id: int | None = None) -> list[torch.Tensor]:
    """The gradient of one learning step on many draws."""
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(of.optimizer, "step", lambda: kept.extend(p.grad.clone() for p in of.generator.parameters()))
    query = asked()
    drawn = of.draw(query, K, None)  # type: ignore[arg-type]
    assert drawn.ids is not None
    if right_id is not None:
        drawn = replace(drawn, false_negatives=torch.stack((drawn.ids == right_id).nonzero(as_tuple=True)))
    of.learn(query, drawn, COST[query.context].gather(1, drawn.ids))
    return kept


def close(got: list[torch.Tensor], wanted: list[torch.Tensor], share: float = 0.06) -> bool:
    """Within `share` of the gradient's length: some five standard errors of 80,000 draws."""
    flat, true = (torch.cat([x.reshape(-1) for x in grads]) for grads in (got, wanted))
    return float((flat - true).norm()) < share * float(true.norm())


BASELINES = ["none", "moving", "leave_one_out", "self_critical"]


@pytest.mark.parametrize("baseline", BASELINES)
def test_reinforce_is_unbiased(baseline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(baseline=baseline, mix=0.0, importance=False, entropy=0.0)
    of.reward_mean, of.reward_sd = torch.tensor(0.8), torch.tensor(2.0)
    wanted = exact(of, COST / 2.0)  # a constant taken off the reward does not move its gradient; the scale divides it
    assert close(estimated(of, monkeypatch), wanted)


@pytest.mark.parametrize("baseline", BASELINES)
def test_noise_columns_teach_through_importance_weights(baseline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(baseline=baseline, mix=1.0, importance=True, clip=1e6, entropy=0.0)
    assert close(estimated(of, monkeypatch), exact(of, COST), 0.12)  # the weights spread the draws


def test_clipped_weights_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(baseline="moving", mix=1.0, importance=True, clip=0.5, entropy=0.0)
    assert not close(estimated(of, monkeypatch), exact(of, COST), 0.12)


def test_without_importance_noise_columns_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(baseline="moving", mix=1.0, importance=False, entropy=0.0)
    assert all(float(grad.abs().max()) == 0 for grad in estimated(of, monkeypatch))


def test_a_forgiven_answer_pays_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Id 1 is a right answer: its reward is -3 whatever it cost, and the greedy answer's too."""
    reward = COST.clone()
    reward[:, 1] = -3.0
    of = made(baseline="moving", mix=0.0, importance=False, entropy=0.0, penalty=3.0)
    wanted = exact(of, reward)
    assert close(estimated(of, monkeypatch, right_id=1), wanted)
    free = made(baseline="moving", mix=0.0, importance=False, entropy=0.0, penalty=0.0)
    assert not close(estimated(free, monkeypatch, right_id=1), wanted)


def test_few_candidates_have_fewer_modes_and_without_the_hinge_none_are_asked_for() -> None:
    def of(v: int, **keys: Any) -> Ace:
        counts = torch.ones(v, dtype=torch.float64)
        return Ace(AceConfig(source="ace", **keys), ProblemSpec(v, counts, CONTEXTS, raw_counts=counts, dim=4, seed=1))
    assert [of(v).modes for v in (7, 999, 1000, 5000)] == [4, 500, 500, 500]
    with pytest.raises(UsageError, match=r"negatives\.min_perplexity: 8 is more than the 7 candidates; remove it"):
        of(7, min_perplexity=8)
    assert of(7, min_perplexity=8, entropy=0.0).modes == 8


def test_the_hinge_pulls_below_c_and_not_above(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = made(baseline="moving", mix=0.0, importance=False, entropy=2.0)  # modes=1: c = 0, never below
    assert close(estimated(wide, monkeypatch), exact(wide, COST))
    tight = made(baseline="moving", mix=0.0, importance=False, entropy=2.0)
    tight.modes = V                                                         # c = log V: always below
    log_g = tight.generator(torch.arange(CONTEXTS))
    h = -(log_g.exp() * log_g).sum(1)
    (-(log_g.exp() * COST).sum(1).mean() + 2.0 * (math.log(V) - h).mean()).backward()
    wanted = [p.grad.clone() for p in tight.generator.parameters()]
    assert close(estimated(tight, monkeypatch), wanted)


def test_the_reward_is_not_the_corrected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contexts with equal costs and unequal densities get equal rewards: only `cost` enters."""
    of = made(baseline="none", mix=0.0, importance=False, entropy=0.0)
    told: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(of.cache, "collect", lambda ids, row, a: told.update(a=a, ids=ids))
    query = asked()
    drawn = of.draw(query, K, None)  # type: ignore[arg-type]
    of.learn(query, drawn, torch.ones_like(drawn.log_q))  # type: ignore[arg-type]
    assert float(told["a"].max()) == pytest.approx(float(told["a"].min()))


def window_query(rows: int, each: int, seed: int = 0) -> Query:
    """Windows of `each` pairs."""
    context = torch.randint(CONTEXTS, (rows,), generator=torch.Generator().manual_seed(seed)).repeat_interleave(each)
    window = torch.arange(rows).repeat_interleave(each)
    return Query(torch.zeros(rows * each, 1), context, torch.full((rows * each,), 6), torch.zeros(rows * each), context,
                 window)


@pytest.mark.parametrize("baseline", ["moving", "self_critical"])
def test_reinforce_is_unbiased_with_shared_draws_collected_over_blocks(
        baseline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows share their draw, and one step follows five blocks: the gradient is that of the same J."""
    of = made(baseline=baseline, mix=0.0, importance=False, entropy=0.0, share_draws_by="window", update_every=ROWS)
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(of.optimizer, "step", lambda: kept.extend(p.grad.clone() for p in of.generator.parameters()))
    monkeypatch.setattr("embtrain.negatives.adversarial.ace._moments", lambda *_: (0.0, 1.0))
    wanted = exact(of, COST)
    for block in range(5):
        query = window_query(ROWS // 5, 3, block)
        drawn = of.draw(query, K, None)  # type: ignore[arg-type]
        assert not kept and drawn.ids is not None and len(drawn.ids) == ROWS // 5
        of.learn(query, drawn, COST[query.context[::3]].gather(1, drawn.ids))
    assert close(kept, wanted)


def test_a_column_that_is_right_for_one_of_three_rows_pays_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    of = made(baseline="moving", mix=0.0, importance=False, entropy=0.0, share_draws_by="window", penalty=3.0)
    told: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(of.cache, "collect", lambda ids, row, a: told.update(a=a))
    query = window_query(2, 3)
    drawn = of.draw(query, K, None)  # type: ignore[arg-type]
    drawn = replace(drawn, false_negatives=torch.tensor([[4], [2]]))   # the second window's second pair
    of.learn(query, drawn, torch.full((2, K), 1.5))
    assert float(told["a"][1, 2]) == pytest.approx(2 / 3 * 1.5 - 1 / 3 * 3.0, abs=1e-6)
    assert told["a"].flatten().tolist().count(1.5) == 2 * K - 1


def test_the_adversary_rests_between_steps_and_goes_on_bit_for_bit() -> None:
    """A state taken between two steps: rows, collected gradients and the pace are there again."""
    keys: dict[str, Any] = {"share_draws_by": "window", "update_every": 100, "shortlist": 4, "groups": 2,
                            "generator_lr": 0.1}
    of, again = made(**keys), made(**keys)
    start = of.generator.w.detach().clone()
    told: list[dict[str, float]] = []
    for block in range(5):
        told.append(step(of, block))
        assert torch.equal(of.generator.w, start) == (block < 2)  # 40 windows each: the third block is the first step
        if block == 3:
            state = copy.deepcopy(of.state_dict())
    assert "entropy" not in told[1] and "entropy" in told[2] and told[3]["entropy"] == told[2]["entropy"]
    again.load_state_dict(state)
    assert step(again, 4) == told[4]
    for block in (5, 6):
        assert step(of, block) == step(again, block)
    for here, there in zip(of.generator.parameters(), again.generator.parameters(), strict=True):
        assert torch.equal(here, there)


def test_an_epoch_has_a_step_however_short() -> None:
    of = made(share_draws_by="window", update_every=100)
    for n_blocks, steps in ((0, 0), (1, 1), (4, 1), (1, 1), (3, 1)):   # of 40 windows each; what is over is kept
        before, seen = of.generator.w.detach().clone(), 0
        for block in range(n_blocks):
            step(of, block)
            seen += int(not torch.equal(before, of.generator.w))
            before = of.generator.w.detach().clone()
        of.on_epoch_start(None)  # type: ignore[arg-type]
        seen += int(not torch.equal(before, of.generator.w))
        assert seen == steps, n_blocks


def step(of: Ace, block: int) -> dict[str, float]:
    query = window_query(40, 2, block)
    drawn = of.draw(query, K, None)  # type: ignore[arg-type]
    assert drawn.ids is not None
    return of.learn(query, drawn, COST[query.context[::2]].gather(1, drawn.ids))


def test_the_scale_follows_the_raw_costs() -> None:
    of = made(baseline="moving", mix=0.0, importance=False)
    query = asked()
    for _ in range(200):
        drawn = of.draw(query.rows(slice(0, 90)), K, None)  # type: ignore[arg-type]
        of.learn(query.rows(slice(0, 90)), drawn, 5 + 3 * COST[query.context[:90]].gather(1, drawn.ids))  # type: ignore[arg-type]
    assert 5 < float(of.reward_mean) < 13 and 0.3 < float(of.reward_sd) < 3


def test_columns_that_do_not_weigh_1_are_not_drawn_independently_with_weight_1() -> None:
    assert made().traits.iid and made(total_weight=float(K)).traits.iid
    assert not made(total_weight=1.0).traits.iid and not made(sampling="stratified").traits.iid


def test_candidates_that_nobody_has_seen_make_no_noise() -> None:
    none = torch.zeros(V, dtype=torch.float64)
    with pytest.raises(UsageError, match="no finite mass"):
        Ace(AceConfig(source="ace", k=K, min_perplexity=1),
            ProblemSpec(V, none, CONTEXTS, raw_counts=none, dim=4, seed=1))
