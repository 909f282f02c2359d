"""ACE where rows with different queries share negatives: the draw follows the reported q, and each row has the
gradient of its own query."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.looped import looped
from scipy import stats
from torch import Tensor

from embtrain.common.config import Layer, build
from embtrain.common.errors import UsageError
from embtrain.common.types import GENERATOR, NOISE, PROBE, Negatives, ProblemSpec, Query
from embtrain.negatives.adversarial import shared_draws
from embtrain.negatives.adversarial.ace import Ace, AceConfig, AceState
from embtrain.negatives.adversarial.generator_cache import GeneratorCache
from embtrain.negatives.sampling.alias import AliasTable
from embtrain.negatives.sampling.row_groups import group_rows
from embtrain.negatives.softmax import mixture

V, CONTEXTS, K = 9, 5, 6
BASELINES = ["none", "moving", "leave_one_out", "self_critical"]
COST = torch.rand(CONTEXTS, V, generator=torch.Generator().manual_seed(3)) * 3


def build_source(double: bool = False, seed: int = 1, **keys: Any) -> Ace:
    """Build a source with groups of three rows; g is far from uniform and differs between queries."""
    counts = torch.tensor([9.0, 5.0, 7.0, 3.0, 4.0, 6.0, 8.0, 2.0, 5.0], dtype=torch.float64)
    keys = {"share_draws_by": "block", "share_size": 3, "k": K, "min_perplexity": 1, "clip": 1e6} | keys
    problem = ProblemSpec(V, counts, CONTEXTS, raw_counts=counts, dim=4, seed=seed)
    sampler = Ace(AceConfig(source="ace", **keys), problem)
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        sampler.generator.w.copy_(torch.randn(sampler.generator.w.shape, generator=draw))
        sampler.generator.e.copy_(torch.randn(sampler.generator.e.shape, generator=draw))
    if double:  # by torch in place of the kernels
        sampler.generator.double()
        p = sampler.cache.p
        sampler.cache = GeneratorCache(sampler.generator, AliasTable(p.double(), "cpu"), p, sampler.config.mix)
    return sampler


def make_query(context: list[int], target: list[int] | None = None) -> Query:
    n = len(context)
    x, y = torch.tensor(context), torch.tensor(target or [i % V for i in range(n)])
    return Query(torch.zeros(n, 1), x, y, torch.zeros_like(y), torch.unique(x, return_inverse=True)[1])


#: Groups 0 1 2 · 3 3 4 · 0 2; the last one is short.
UNEVEN = [0, 1, 2, 3, 3, 4, 0, 2]


def q_of(source: Ace, rows: list[int]) -> Tensor:
    """Return q of a group by its definition, (V,)."""
    g = source.generator(torch.tensor(rows)).exp().mean(0).detach()
    return source.config.mix * source.cache.p + (1 - source.config.mix) * g


def draw_shared(source: Ace, query: Query, k: int = K) -> Negatives:
    return source.draw(query, k, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("columns", ["mixture", "stratified"])
@pytest.mark.parametrize("share", ["block", "batch"])
def test_draws_follow_reported_density(share: str, columns: str, double: bool,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_draws, "MAX_DENSITIES", 1 << (4 if double else 20))  # targets in pairs, or all at once
    baseline = "leave_one_out" if share == "batch" else "self_critical"
    source = build_source(double, share_draws_by=share, sampling=columns, mix=0.3, baseline=baseline)
    query = make_query(UNEVEN)
    groups = [UNEVEN] if share == "batch" else [UNEVEN[:3], UNEVEN[3:6], UNEVEN[6:]]
    k = 100_000
    drawn = draw_shared(source, query, k)
    everyone = torch.arange(V).unsqueeze(0)
    log_p = source.log_prob(query, everyone)
    torch.testing.assert_close(log_p.exp(), torch.stack([q_of(source, [x]) for x in UNEVEN]), rtol=1e-5, atol=1e-6)
    assert drawn.ids is not None and drawn.log_q is not None and drawn.log_q_target is not None
    assert drawn.origin is not None
    weight = torch.ones(1, drawn.k) if drawn.weight is None else drawn.weight
    if columns == "stratified":                                    # by their weights
        assert (drawn.origin[:, :k] == NOISE).all() and (drawn.origin[:, k:2 * k] == GENERATOR).all()
        assert float(weight[0, 0]) == pytest.approx(.3) and float(weight[0, k]) == pytest.approx(.7)
    first = 0
    for i, rows in enumerate(groups):
        q = q_of(source, rows)
        actual = slice(first, first := first + len(rows))
        torch.testing.assert_close(drawn.log_q[i].exp(), q[drawn.ids[i]], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(drawn.log_q_target[actual].exp(), q[query.target[actual]], rtol=1e-5, atol=1e-6)
        components = [(drawn.origin[i] >= 0, q)] if columns == "mixture" else \
            [(drawn.origin[i] == NOISE, source.cache.p), (drawn.origin[i] == GENERATOR, (q - .3 * source.cache.p) / .7)]
        for which, p in components:
            ids = drawn.ids[i][which & (weight[0] > 0)]
            cell = torch.where(p * k < 50, p.argmax(), torch.arange(V))  # rare ids together with the most frequent one
            seen = torch.bincount(cell[ids], minlength=V).double()
            expected = torch.zeros(V, dtype=torch.float64).index_add_(0, cell, p.double() * k)
            cells = expected > 0
            assert len(ids) == k and int(cells.sum()) >= V - 3
            chi2 = float(((seen - expected).square() / expected)[cells].sum())
            assert stats.chi2.sf(chi2, int(cells.sum()) - 1) > 0.001 / 24
    probes = drawn.ids[:, drawn.origin[0] == PROBE]
    greedy = source.generator(torch.arange(CONTEXTS)).argmax(1)
    expected_probes = [greedy[rows + [rows[-1]] * (max(map(len, groups)) - len(rows))].tolist() for rows in groups]
    assert probes.tolist() == (expected_probes if baseline == "self_critical" else [[]])
    assert torch.equal(weight[0] == 0, drawn.origin[0] == PROBE)
    assert float(weight.sum()) == pytest.approx(k)


def exact(source: Ace, query: Query, reward: Tensor) -> Tensor:
    """Return the gradient of -(1/B) Σ_i E_{y~g(.|x_i)}[r_i], rewards (B, V)."""
    source.generator.zero_grad()
    log_g = source.generator(query.context)
    (-(log_g.exp() * reward).sum(1).mean()).backward()
    return torch.cat([p.grad.reshape(-1).clone() for p in source.generator.parameters()])


def estimate_gradients(source: Ace, query: Query, monkeypatch: pytest.MonkeyPatch,
                       positive: tuple[int, int] | None = None,
                       draws: int = 800) -> Tensor:
    """Return the gradients of `draws` steps that leave the parameters unchanged, (draws, numbers). positive: (row,
    id) of a known positive."""
    kept: list[Tensor] = []
    monkeypatch.setattr(source.optimizer, "step", lambda: kept.append(
        torch.cat([p.grad.reshape(-1).clone() for p in source.generator.parameters()])))
    monkeypatch.setattr("embtrain.negatives.adversarial.ace.moments", lambda *_: (0.8, 2.0))
    for _ in range(draws):
        source.reward_mean, source.reward_sd = torch.tensor(0.8), torch.tensor(2.0)
        drawn = draw_shared(source, query, 24)
        ids = drawn.per_row(drawn.ids, len(query))
        assert ids is not None
        if positive is not None:
            column = (ids[positive[0]] == positive[1]).nonzero()[:, 0]
            drawn = replace(drawn, false_negatives=torch.stack([torch.full_like(column, positive[0]), column]))
        source.learn(query, drawn, COST[query.context].gather(1, ids))
    return torch.stack(kept)


def is_mean(result: Tensor, expected: Tensor) -> bool:
    """Whether the mean of the estimates is `expected`: z along each axis of their covariance, pooled to a χ²."""
    result = result.double()
    spread, axes = torch.linalg.eigh(result.T.cov())
    moves = spread > 1e-8 * spread[-1]                       # the other axes are rounding
    error = (result.mean(0) - expected.double()) @ axes
    chi2 = float((error[moves].square() / spread[moves]).sum()) * len(result)
    return float(error[~moves].abs().max()) < 1e-5 and stats.chi2.sf(chi2, int(moves.sum())) > 0.001 / 10


@pytest.mark.parametrize("mix", [pytest.param(0.0, marks=pytest.mark.slow), 0.4])
@pytest.mark.parametrize("baseline", [
    baseline if baseline in ("leave_one_out", "self_critical") else pytest.param(baseline, marks=pytest.mark.slow)
    for baseline in BASELINES])
def test_each_row_gets_the_gradient_of_its_own_query(baseline: str, mix: float,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Distant rows share negatives; with mix 0.4 noise negatives teach too. A constant subtracted from the reward
    does not change the gradient, and the scale divides it."""
    source, query = build_source(baseline=baseline, mix=mix, entropy=0.0), make_query(UNEVEN)
    result = estimate_gradients(source, query, monkeypatch)
    assert is_mean(result, exact(source, query, COST[query.context] / 2))


def test_noise_alone_gives_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    source, query = build_source(baseline="leave_one_out", mix=1.0, entropy=0.0), make_query(UNEVEN)
    assert is_mean(estimate_gradients(source, query, monkeypatch), exact(source, query, COST[query.context] / 2))
    still = build_source(baseline="leave_one_out", mix=1.0, entropy=0.0, importance=False)
    assert not estimate_gradients(still, query, monkeypatch, draws=3).any()


def test_clipped_weights_bias_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    source, query = build_source(baseline="moving", mix=0.0, entropy=0.0, clip=0.5), make_query(UNEVEN)
    assert not is_mean(estimate_gradients(source, query, monkeypatch), exact(source, query, COST[query.context] / 2))


def test_false_negative_of_one_row_costs_that_row_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    source, query = build_source(baseline="self_critical", mix=0.2, entropy=0.0, penalty=3.0), make_query(UNEVEN)
    reward = (COST[query.context] - 0.8) / 2
    answer = int(source.generator(query.context[4:5]).argmax())  # drawn often, and the greedy candidate of that row
    reward[4, answer] = -3.0
    assert is_mean(estimate_gradients(source, query, monkeypatch, (4, answer)), exact(source, query, reward))


def by_hand(source: Ace, last: shared_draws.SharedDraw, drawn: Negatives, cost: Tensor) -> Tensor:
    """Return a (B, K), one entry at a time, from the densities of the generator."""
    assert drawn.ids is not None and drawn.origin is not None
    query_g = source.generator(torch.tensor(UNEVEN)).exp().detach().double()
    of_row = [0, 0, 0, 1, 1, 1, 2, 2]
    positive = set(map(tuple, drawn.false_negatives.T.tolist()))
    k, a = last.log_g.shape[1], torch.zeros(last.log_g.shape, dtype=torch.float64)

    def r(i: int, j: int) -> float:
        if (i, j) in positive:
            return -source.config.penalty
        return (float(cost[i, j]) - float(source.reward_mean)) / float(source.reward_sd)

    def rho(i: int, j: int) -> float:
        group, y = of_row[i], int(drawn.ids[of_row[i], j])
        if drawn.origin[group, j] == GENERATOR:
            members = [m for m in range(8) if of_row[m] == group]
            by = float(query_g[members, y].mean())
        else:
            by = float(source.cache.p[y]) if source.config.importance else math.inf
        return min(source.config.clip, float(query_g[i, y]) / by)
    for i in range(8):
        for j in range(k):
            others = [x for x in range(k) if x != j]
            b = {"self_critical": lambda i=i: r(i, k + i - of_row.index(of_row[i])), "moving": lambda: 0.0,
                 "none": lambda: -float(source.reward_mean) / float(source.reward_sd),
                 "leave_one_out": lambda i=i, others=others: sum(rho(i, x) * r(i, x) for x in others)
                 / (1 + sum(rho(i, x) for x in others))}[source.config.baseline]()
            a[i, j] = rho(i, j) * (r(i, j) - b)
    return a


@looped("double", [False, True])
@looped("importance", [True, False])
@looped("baseline", BASELINES)
def test_factors_match_the_formula(baseline: str, importance: bool, double: bool) -> None:
    source = build_source(double, baseline=baseline, importance=importance, clip=1.5, penalty=0.7)
    query = make_query(UNEVEN)
    source.reward_mean, source.reward_sd = torch.tensor(0.8), torch.tensor(2.0)
    drawn = draw_shared(source, query)
    cost = torch.randn(8, drawn.k, generator=torch.Generator().manual_seed(4)).to(source.generator.w.dtype)
    drawn = replace(drawn, false_negatives=torch.tensor([[0, 4, 7], [2, 0, drawn.k - 1]]))
    assert isinstance(drawn.state, AceState) and drawn.state.shared is not None
    a, reported = shared_draws.reinforce_coefficients(drawn.state.shared, drawn, cost, source._rule())
    torch.testing.assert_close(a.double(), by_hand(source, drawn.state.shared, drawn, cost), rtol=2e-4, atol=2e-4)
    assert drawn.origin is not None
    teaching = (drawn.origin == GENERATOR) | ((drawn.origin == NOISE) & importance)
    assert reported.n_used == float((teaching.sum(1) * torch.tensor([3, 3, 2])).sum()) > 0


def collect(source: Ace, drawn: Negatives, query: Query) -> list[Tensor]:
    """Return what a block of fixed negatives adds to the next step, and what it reports."""
    assert drawn.ids is not None and drawn.origin is not None
    row = source.cache.find_rows(query.context)
    groups = group_rows(len(query), 3, drawn.draw_id, torch.device("cpu"))
    k = int((drawn.origin[0] != PROBE).sum())
    log_g = shared_draws._densities(source.cache, drawn.ids, row, groups)
    log_drawn = torch.where(drawn.origin == GENERATOR, groups.mean(log_g), source.cache.p[drawn.ids].log())
    shared = shared_draws.SharedDraw(row, groups, log_g[:, :k], log_drawn[:, :k].to(log_g.dtype))
    drawn = replace(drawn, state=AceState(source.cache.generation, row, shared.log_g, shared))
    ids = drawn.per_row(drawn.ids, len(query))
    reported = source.learn(query, drawn, COST[query.context].gather(1, ids))  # type: ignore[arg-type]
    part = source.cache
    return [log_g, part.grad_w, part.grad_z[:part.n_rows], part.total[:part.n_rows], part.count[:part.n_rows],
            torch.tensor(list(reported.values())), torch.tensor(float(source.columns_since_step))]


def test_kernels_and_torch_collect_the_same_in_one_chunk_or_several(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, Any] = {"shortlist": 5, "groups": 2, "update_every": 100, "clip": 2.0}
    core, reference, query = build_source(**keys), build_source(True, **keys), make_query(UNEVEN)
    assert core.cache.uses_core and not reference.cache.uses_core
    drawn = draw_shared(core, query)
    result = collect(core, drawn, query)
    expected = collect(reference, drawn, query)
    for x, y in zip(result, expected, strict=True):
        torch.testing.assert_close(x.double(), y.double(), rtol=1e-4, atol=1e-5)
    assert core.cache.n_draws == 8 and float(result[1].abs().max()) > 0.1
    monkeypatch.setattr(shared_draws, "MAX_DENSITIES", 20)               # fewer entries than three rows have
    for x, y in zip(collect(build_source(**keys), drawn, query), result, strict=True):
        torch.testing.assert_close(x, y)


def test_torch_reports_the_same_log_q_as_the_kernels() -> None:
    """Compare the log q of equal negatives between both implementations."""
    core, reference, query = build_source(), build_source(True), make_query(UNEVEN)
    for source, other in ((core, reference), (reference, core)):
        drawn = draw_shared(source, query)
        assert drawn.ids is not None and drawn.log_q is not None and isinstance(drawn.state, AceState)
        assert drawn.state.shared is not None
        groups, row = drawn.state.shared.groups, other.cache.find_rows(query.context)
        log_g = groups.mean(shared_draws._densities(other.cache, drawn.ids, row, groups))
        torch.testing.assert_close(other.cache.mixture(log_g, drawn.ids).double(), drawn.log_q.double(),
                                   rtol=1e-4, atol=1e-5)
        everyone = torch.arange(V).unsqueeze(0)
        torch.testing.assert_close(other.log_prob(query, everyone).double(), source.log_prob(query, everyone).double(),
                                   rtol=1e-4, atol=1e-5)


def test_rows_that_never_draw_each_others_candidates_stay_finite() -> None:
    source, query = build_source(mix=0.0, clip=10.0, update_every=100), make_query(UNEVEN)
    with torch.no_grad():
        source.generator.w.mul_(400)
    drawn = draw_shared(source, query)
    assert drawn.log_q is not None and torch.isfinite(drawn.log_q).all()
    reported = source.learn(query, drawn,
                            COST[query.context].gather(1, drawn.per_row(drawn.ids, 8)))  # type: ignore[arg-type]
    assert all(math.isfinite(x) for x in reported.values()) and torch.isfinite(source.cache.grad_w).all()
    # rows without a reward too
    assert isinstance(source.columns_since_step, int) and source.columns_since_step == 8 * K


@pytest.mark.parametrize("share", ["block", "batch"])
def test_resume_between_steps_is_bitwise(share: str) -> None:
    keys: dict[str, Any] = {"share_draws_by": share, "update_every": 30, "shortlist": 4, "groups": 2,
                            "generator_lr": 0.1,
                            "baseline": "leave_one_out" if share == "batch" else "self_critical"}
    source, again = build_source(**keys), build_source(seed=7, **keys)

    def step(which: Ace, block: int) -> dict[str, float]:
        query = make_query([(block + i * i) % CONTEXTS for i in range(8)])
        drawn = draw_shared(which, query)
        ids = drawn.per_row(drawn.ids, 8)
        return which.learn(query, drawn, COST[query.context].gather(1, ids))  # type: ignore[arg-type]
    start, moved = source.generator.w.detach().clone(), []
    for block in range(6):
        step(source, block)
        moved.append(not torch.equal(source.generator.w, start))
    assert moved == [False, False, False, True, True, True]  # eight rows each: the fourth block is the first step
    again.load_state_dict(copy.deepcopy(source.state_dict()))
    for block in range(6, 10):
        assert step(source, block) == step(again, block)
    for here, there in zip(source.generator.parameters(), again.generator.parameters(), strict=True):
        assert torch.equal(here, there)


def test_row_probe_of_a_shared_draw_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"negatives\.baseline: self_critical needs one candidate .* "
                                         r"negatives\.share_draws_by: block"):
        build_source(share_draws_by="batch", baseline="self_critical")


def test_settings_that_need_a_draw_per_row_are_rejected() -> None:
    counts = torch.ones(V, dtype=torch.float64)
    config = build(mixture.MixtureConfig, [Layer("test", {
        "source": "mixture", "inner": {"source": "ace", "share_draws_by": "block", "min_perplexity": 1}})])
    with pytest.raises(UsageError, match=r"^negatives\.inner: ace with these settings does not draw"):
        mixture.Mixture(config, ProblemSpec(V, counts, CONTEXTS, raw_counts=counts, dim=4))
