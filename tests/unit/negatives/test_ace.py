"""Gradient of ACE's generator against its equations.

REINFORCE is unbiased under each baseline, noise negatives teach the same gradient through importance weights, a false
negative receives the penalty, and the hinge acts only below c.
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


def build(**keys: Any) -> Ace:
    counts = torch.tensor([9.0, 5.0, 7.0, 3.0, 4.0, 6.0, 8.0], dtype=torch.float64)
    sampler = Ace(AceConfig(source="ace", k=K, min_perplexity=1, **keys),
                  ProblemSpec(V, counts, CONTEXTS, raw_counts=counts, dim=4, seed=1))
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        sampler.generator.w.copy_(torch.randn(sampler.generator.w.shape, generator=draw) * 0.5)
    return sampler


def make_query() -> Query:
    context = torch.arange(ROWS) % CONTEXTS
    target = torch.full((ROWS,), 6)
    return Query(torch.zeros(ROWS, 1), context, target, torch.zeros_like(target), context)


def exact(source: Ace, reward: torch.Tensor) -> list[torch.Tensor]:
    """Return the gradient of -E_x E_{y~g}[r(x, y)] for rewards (CONTEXTS, V)."""
    source.generator.zero_grad()
    log_g = source.generator(torch.arange(CONTEXTS))
    (-(log_g.exp() * reward).sum(1).mean()).backward()
    return [p.grad.clone() for p in source.generator.parameters()]


def estimated(source: Ace, monkeypatch: pytest.MonkeyPatch, masked_id: int | None = None) -> list[torch.Tensor]:
    """Return the gradient of one learning step on many draws."""
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(source.optimizer, "step",
                        lambda: kept.extend(p.grad.clone() for p in source.generator.parameters()))
    query = make_query()
    drawn = source.draw(query, K, None)  # type: ignore[arg-type]
    assert drawn.ids is not None
    if masked_id is not None:
        drawn = replace(drawn, false_negatives=torch.stack((drawn.ids == masked_id).nonzero(as_tuple=True)))
    source.learn(query, drawn, COST[query.context].gather(1, drawn.ids))
    return kept


def is_close(got: list[torch.Tensor], expected: list[torch.Tensor], share: float = 0.06) -> bool:
    """Compare within `share` of the gradient's length: about five standard errors of 80,000 draws."""
    flat, true = (torch.cat([x.reshape(-1) for x in grads]) for grads in (got, expected))
    return float((flat - true).norm()) < share * float(true.norm())


BASELINES = ["none", "moving", "leave_one_out", "self_critical"]


@pytest.mark.parametrize("baseline", BASELINES)
def test_reinforce_is_unbiased(baseline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = build(baseline=baseline, mix=0.0, importance=False, entropy=0.0)
    source.reward_mean, source.reward_sd = torch.tensor(0.8), torch.tensor(2.0)
    # a constant subtracted from the reward does not change its gradient; the scale divides it
    expected = exact(source, COST / 2.0)
    assert is_close(estimated(source, monkeypatch), expected)


@pytest.mark.parametrize("baseline", BASELINES)
def test_noise_negatives_are_importance_weighted(baseline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = build(baseline=baseline, mix=1.0, importance=True, clip=1e6, entropy=0.0)
    # the weights increase the variance of the estimate
    assert is_close(estimated(source, monkeypatch), exact(source, COST), 0.12)


def test_clipped_weights_bias_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    source = build(baseline="moving", mix=1.0, importance=True, clip=0.5, entropy=0.0)
    assert not is_close(estimated(source, monkeypatch), exact(source, COST), 0.12)


def test_noise_negatives_without_importance_weights_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    source = build(baseline="moving", mix=1.0, importance=False, entropy=0.0)
    assert all(float(grad.abs().max()) == 0 for grad in estimated(source, monkeypatch))


def test_false_negative_receives_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Id 1 is a false negative: its reward is -3 whatever its cost, also as the greedy candidate."""
    reward = COST.clone()
    reward[:, 1] = -3.0
    source = build(baseline="moving", mix=0.0, importance=False, entropy=0.0, penalty=3.0)
    expected = exact(source, reward)
    assert is_close(estimated(source, monkeypatch, masked_id=1), expected)
    free = build(baseline="moving", mix=0.0, importance=False, entropy=0.0, penalty=0.0)
    assert not is_close(estimated(free, monkeypatch, masked_id=1), expected)


def test_n_modes_is_limited_by_candidates_and_zero_without_hinge() -> None:
    def sampler(v: int, **keys: Any) -> Ace:
        counts = torch.ones(v, dtype=torch.float64)
        return Ace(AceConfig(source="ace", **keys), ProblemSpec(v, counts, CONTEXTS, raw_counts=counts, dim=4, seed=1))
    assert [sampler(v).modes for v in (7, 999, 1000, 5000)] == [4, 500, 500, 500]
    with pytest.raises(UsageError, match=r"negatives\.min_perplexity: 8 is more than the 7 candidates; remove it"):
        sampler(7, min_perplexity=8)
    assert sampler(7, min_perplexity=8, entropy=0.0).modes == 8


def test_hinge_raises_entropy_only_below_c(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = build(baseline="moving", mix=0.0, importance=False, entropy=2.0)  # modes=1: c = 0, never below
    assert is_close(estimated(wide, monkeypatch), exact(wide, COST))
    tight = build(baseline="moving", mix=0.0, importance=False, entropy=2.0)
    tight.modes = V                                                         # c = log V: always below
    log_g = tight.generator(torch.arange(CONTEXTS))
    h = -(log_g.exp() * log_g).sum(1)
    (-(log_g.exp() * COST).sum(1).mean() + 2.0 * (math.log(V) - h).mean()).backward()
    expected = [p.grad.clone() for p in tight.generator.parameters()]
    assert is_close(estimated(tight, monkeypatch), expected)


def test_reward_is_uncorrected_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contexts with equal costs and different densities get equal rewards: only `cost` enters."""
    source = build(baseline="none", mix=0.0, importance=False, entropy=0.0)
    reported: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(source.cache, "collect", lambda ids, row, a: reported.update(a=a, ids=ids))
    query = make_query()
    drawn = source.draw(query, K, None)  # type: ignore[arg-type]
    source.learn(query, drawn, torch.ones_like(drawn.log_q))  # type: ignore[arg-type]
    assert float(reported["a"].max()) == pytest.approx(float(reported["a"].min()))


def window_query(rows: int, each: int, seed: int = 0) -> Query:
    """Build a query of windows with `each` pairs."""
    context = torch.randint(CONTEXTS, (rows,), generator=torch.Generator().manual_seed(seed)).repeat_interleave(each)
    window = torch.arange(rows).repeat_interleave(each)
    return Query(torch.zeros(rows * each, 1), context, torch.full((rows * each,), 6), torch.zeros(rows * each), context,
                 window)


@pytest.mark.parametrize("baseline", ["moving", "self_critical"])
def test_reinforce_is_unbiased_with_shared_draws_over_blocks(
        baseline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows share their draw, and one step follows five blocks: the gradient is that of the same J."""
    source = build(baseline=baseline, mix=0.0, importance=False, entropy=0.0, share_draws_by="window",
                   update_every=ROWS)
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(source.optimizer, "step",
                        lambda: kept.extend(p.grad.clone() for p in source.generator.parameters()))
    monkeypatch.setattr("embtrain.negatives.adversarial.ace.moments", lambda *_: (0.0, 1.0))
    expected = exact(source, COST)
    for block in range(5):
        query = window_query(ROWS // 5, 3, block)
        drawn = source.draw(query, K, None)  # type: ignore[arg-type]
        assert not kept and drawn.ids is not None and len(drawn.ids) == ROWS // 5
        source.learn(query, drawn, COST[query.context[::3]].gather(1, drawn.ids))
    assert is_close(kept, expected)


def test_false_negative_of_one_of_three_rows_receives_a_third_of_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    source = build(baseline="moving", mix=0.0, importance=False, entropy=0.0, share_draws_by="window", penalty=3.0)
    reported: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(source.cache, "collect", lambda ids, row, a: reported.update(a=a))
    query = window_query(2, 3)
    drawn = source.draw(query, K, None)  # type: ignore[arg-type]
    drawn = replace(drawn, false_negatives=torch.tensor([[4], [2]]))   # the second pair of the second window
    source.learn(query, drawn, torch.full((2, K), 1.5))
    assert float(reported["a"][1, 2]) == pytest.approx(2 / 3 * 1.5 - 1 / 3 * 3.0, abs=1e-6)
    assert reported["a"].flatten().tolist().count(1.5) == 2 * K - 1


def test_resume_between_steps_is_bitwise() -> None:
    """A state saved between two steps restores the rows, the collected gradients and the pace."""
    keys: dict[str, Any] = {"share_draws_by": "window", "update_every": 100, "shortlist": 4, "groups": 2,
                            "generator_lr": 0.1}
    source, again = build(**keys), build(**keys)
    start = source.generator.w.detach().clone()
    reported: list[dict[str, float]] = []
    for block in range(5):
        reported.append(step(source, block))
        # 40 windows each: the third block is the first step
        assert torch.equal(source.generator.w, start) == (block < 2)
        if block == 3:
            state = copy.deepcopy(source.state_dict())
    assert "entropy" not in reported[1] and "entropy" in reported[2]
    assert reported[3]["entropy"] == reported[2]["entropy"]
    again.load_state_dict(state)
    assert step(again, 4) == reported[4]
    for block in (5, 6):
        assert step(source, block) == step(again, block)
    for here, there in zip(source.generator.parameters(), again.generator.parameters(), strict=True):
        assert torch.equal(here, there)


@pytest.mark.parametrize("own, other", [
    ({"shortlist": 2, "groups": 2}, {"shortlist": 3, "groups": 2}), ({"shortlist": 2, "groups": 2}, {}),
    ({"shortlist": 2, "groups": 2}, {"shortlist": 2, "groups": 3}), ({}, {"shortlist": 2, "groups": 2}),
    ({"shortlist": 2, "groups": 5}, {"shortlist": 2, "groups": 6}),
    ({"shortlist": 2, "groups": 5}, {})])
def test_a_state_of_another_shortlist_is_refused(own: dict[str, Any], other: dict[str, Any]) -> None:
    source, state = build(mix=0.0, **own), copy.deepcopy(build(mix=0.0, **other).state_dict())
    before = copy.deepcopy(source.state_dict())
    with pytest.raises(ValueError, match=r"^negatives\.shortlist and negatives\.groups: the state has "):
        source.load_state_dict(state)
    query = Query(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long),
                  torch.zeros(1, dtype=torch.long))
    assert float(source.log_prob(query, torch.arange(V).unsqueeze(0)).exp().sum()) == pytest.approx(1, abs=1e-5)
    assert torch.equal(source.state_dict()["random"], before["random"])


def test_a_shortlist_of_all_candidates_loads_the_state_of_any_groups() -> None:
    source, other = build(shortlist=V, groups=2), build(groups=3)
    with torch.no_grad():
        other.generator.w.mul_(2)
    source.load_state_dict(copy.deepcopy(other.state_dict()))
    assert torch.equal(source.generator.w, other.generator.w)


def test_short_epoch_has_a_step() -> None:
    source = build(share_draws_by="window", update_every=100)
    for n_blocks, steps in ((0, 0), (1, 1), (4, 1), (1, 1), (3, 1)):   # of 40 windows each; the remainder is kept
        before, seen = source.generator.w.detach().clone(), 0
        for block in range(n_blocks):
            step(source, block)
            seen += int(not torch.equal(before, source.generator.w))
            before = source.generator.w.detach().clone()
        source.on_epoch_start(None)  # type: ignore[arg-type]
        seen += int(not torch.equal(before, source.generator.w))
        assert seen == steps, n_blocks


def step(source: Ace, block: int) -> dict[str, float]:
    query = window_query(40, 2, block)
    drawn = source.draw(query, K, None)  # type: ignore[arg-type]
    assert drawn.ids is not None
    return source.learn(query, drawn, COST[query.context[::2]].gather(1, drawn.ids))


def test_scale_follows_raw_costs() -> None:
    source = build(baseline="moving", mix=0.0, importance=False)
    query = make_query()
    for _ in range(200):
        drawn = source.draw(query.rows(slice(0, 90)), K, None)  # type: ignore[arg-type]
        source.learn(query.rows(slice(0, 90)), drawn,
                     5 + 3 * COST[query.context[:90]].gather(1, drawn.ids))  # type: ignore[arg-type]
    assert 5 < float(source.reward_mean) < 13 and 0.3 < float(source.reward_sd) < 3


def test_negatives_with_other_weights_are_not_iid_with_weight_1() -> None:
    assert build().traits.iid and build(total_weight=float(K)).traits.iid
    assert not build(total_weight=1.0).traits.iid and not build(sampling="stratified").traits.iid


def test_candidates_without_counts_make_no_noise() -> None:
    none = torch.zeros(V, dtype=torch.float64)
    with pytest.raises(UsageError, match="no finite mass"):
        Ace(AceConfig(source="ace", k=K, min_perplexity=1),
            ProblemSpec(V, none, CONTEXTS, raw_counts=none, dim=4, seed=1))
