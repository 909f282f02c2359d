"""ACE where rows that ask different questions share columns: what is drawn is what q says, and each row's gradient is
that of its own question."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from embtrain.common.config import Layer, build
from embtrain.common.errors import UsageError
from embtrain.common.types import GENERATOR, NOISE, PROBE, Negatives, ProblemSpec, Query
from embtrain.negatives.adversarial import shared_draws
from embtrain.negatives.adversarial.ace import Ace, AceConfig, AceState
from embtrain.negatives.adversarial.generator_cache import GeneratorCache
from embtrain.negatives.sampling.alias import AliasTable
from embtrain.negatives.softmax import mixture

V, CONTEXTS, K = 9, 5, 6
BASELINES = ["none", "moving", "leave_one_out", "self_critical"]
COST = torch.rand(CONTEXTS, V, generator=torch.Generator().manual_seed(3)) * 3


def made(double: bool = False, seed: int = 1, **keys: Any) -> Ace:
    """Groups of three rows; g is far from even, and another one for each question."""
    counts = torch.tensor([9.0, 5.0, 7.0, 3.0, 4.0, 6.0, 8.0, 2.0, 5.0], dtype=torch.float64)
    keys = {"share_draws_by": "block", "share_size": 3, "k": K, "min_perplexity": 1, "clip": 1e6} | keys
    world = ProblemSpec(V, counts, CONTEXTS, raw_counts=counts, dim=4, seed=seed)
    of = Ace(AceConfig(source="ace", **keys), world)
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        of.generator.w.copy_(torch.randn(of.generator.w.shape, generator=draw))
        of.generator.e.copy_(torch.randn(of.generator.e.shape, generator=draw))
    if double:  # by torch in place of the kernels
        of.generator.double()
        p = of.cache.p
        of.cache = GeneratorCache(of.generator, AliasTable(p.double(), "cpu"), p, of.config.mix)
    return of


def asked(context: list[int], target: list[int] | None = None) -> Query:
    n = len(context)
    x, y = torch.tensor(context), torch.tensor(target or [i % V for i in range(n)])
    return Query(torch.zeros(n, 1), x, y, torch.zeros_like(y), torch.unique(x, return_inverse=True)[1])


#: Groups 0 1 2 · 3 3 4 · 0 2, the last of them short.
UNEVEN = [0, 1, 2, 3, 3, 4, 0, 2]


def q_of(of: Ace, rows: list[int]) -> Tensor:
    """q of a group by its definition, (V,)."""
    g = of.generator(torch.tensor(rows)).exp().mean(0).detach()
    return of.config.mix * of.cache.p + (1 - of.config.mix) * g


def drawn_by(of: Ace, query: Query, k: int = K) -> Negatives:
    return of.draw(query, k, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("columns", ["mixture", "stratified"])
@pytest.mark.parametrize("share", ["block", "batch"])
def test_draws_are_those_of_the_density_that_is_reported(share: str, columns: str, double: bool,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_draws, "MAX_DENSITIES", 1 << (4 if double else 20))  # targets in pairs, or all at once
    baseline = "leave_one_out" if share == "batch" else "self_critical"
    of, query = made(double, share_draws_by=share, sampling=columns, mix=0.3, baseline=baseline), asked(UNEVEN)
    groups = [UNEVEN] if share == "batch" else [UNEVEN[:3], UNEVEN[3:6], UNEVEN[6:]]
    k = 100_000
    drawn = drawn_by(of, query, k)
    everyone = torch.arange(V).unsqueeze(0)
    log_p = of.log_prob(query, everyone)
    assert drawn.ids is not None and drawn.log_q is not None and drawn.log_q_target is not None
    assert drawn.origin is not None
    weight = torch.ones(1, drawn.k) if drawn.weight is None else drawn.weight
    if columns == "stratified":                                    # as they are weighted
        assert (drawn.origin[:, :k] == NOISE).all() and (drawn.origin[:, k:2 * k] == GENERATOR).all()
        assert float(weight[0, 0]) == pytest.approx(.3) and float(weight[0, k]) == pytest.approx(.7)
    first = 0
    for i, rows in enumerate(groups):
        q = q_of(of, rows)
        mine = slice(first, first := first + len(rows))
        torch.testing.assert_close(log_p[mine].exp(), q.expand(len(rows), V), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(drawn.log_q[i].exp(), q[drawn.ids[i]], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(drawn.log_q_target[mine].exp(), q[query.target[mine]], rtol=1e-5, atol=1e-6)
        components = [(drawn.origin[i] >= 0, q)] if columns == "mixture" else \
            [(drawn.origin[i] == NOISE, of.cache.p), (drawn.origin[i] == GENERATOR, (q - .3 * of.cache.p) / .7)]
        for which, p in components:
            ids = drawn.ids[i][which & (weight[0] > 0)]
            cell = torch.where(p * k < 50, p.argmax(), torch.arange(V))      # rare ids beside the commonest
            seen = torch.bincount(cell[ids], minlength=V).double()
            expected = torch.zeros(V, dtype=torch.float64).index_add_(0, cell, p.double() * k)
            cells = expected > 0
            assert len(ids) == k and int(cells.sum()) >= V - 3
            chi2 = float(((seen - expected).square() / expected)[cells].sum())
            assert stats.chi2.sf(chi2, int(cells.sum()) - 1) > 0.001 / 24
    probes = drawn.ids[:, drawn.origin[0] == PROBE]
    greedy = of.generator(torch.arange(CONTEXTS)).argmax(1)
    wanted = [greedy[rows + [rows[-1]] * (max(map(len, groups)) - len(rows))].tolist() for rows in groups]
    assert probes.tolist() == (wanted if baseline == "self_critical" else [[]])
    assert torch.equal(weight[0] == 0, drawn.origin[0] == PROBE)
    assert float(weight.sum()) == pytest.approx(k)


def exact(of: Ace, query: Query, reward: Tensor) -> Tensor:
    """The gradient of -(1/B) Σ_i E_{y~g(.|x_i)}[r_i], rewards (B, V)."""
    of.generator.zero_grad()
    log_g = of.generator(query.context)
    (-(log_g.exp() * reward).sum(1).mean()).backward()
    return torch.cat([p.grad.reshape(-1).clone() for p in of.generator.parameters()])


def estimates(of: Ace, query: Query, monkeypatch: pytest.MonkeyPatch, right: tuple[int, int] | None = None,
              draws: int = 800) -> Tensor:
    """The gradients of `draws` steps that leave the parameters as they are, (draws, numbers). right: for this row, this
    id is a right answer."""
    kept: list[Tensor] = []
    monkeypatch.setattr(of.optimizer, "step", lambda: kept.append(
        torch.cat([p.grad.reshape(-1).clone() for p in of.generator.parameters()])))
    monkeypatch.setattr("embtrain.negatives.adversarial.ace._moments", lambda *_: (0.8, 2.0))
    for _ in range(draws):
        of.reward_mean, of.reward_sd = torch.tensor(0.8), torch.tensor(2.0)
        drawn = drawn_by(of, query, 24)
        ids = drawn.per_row(drawn.ids, len(query))
        assert ids is not None
        if right is not None:
            column = (ids[right[0]] == right[1]).nonzero()[:, 0]
            drawn = replace(drawn, false_negatives=torch.stack([torch.full_like(column, right[0]), column]))
        of.learn(query, drawn, COST[query.context].gather(1, ids))
    return torch.stack(kept)


def is_mean(found: Tensor, wanted: Tensor) -> bool:
    """Whether the mean of the estimates is `wanted`: along each axis of their covariance its z, all pooled to a χ²."""
    found = found.double()
    spread, axes = torch.linalg.eigh(found.T.cov())
    moves = spread > 1e-8 * spread[-1]                       # the others are rounding
    error = (found.mean(0) - wanted.double()) @ axes
    chi2 = float((error[moves].square() / spread[moves]).sum()) * len(found)
    return float(error[~moves].abs().max()) < 1e-5 and stats.chi2.sf(chi2, int(moves.sum())) > 0.001 / 10


@pytest.mark.parametrize("mix", [0.0, 0.4])
@pytest.mark.parametrize("baseline", BASELINES)
def test_each_row_learns_the_gradient_of_its_own_question(baseline: str, mix: float,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows far apart share columns; with mix 0.4 noise columns teach too. A constant taken off the reward does not move
    the gradient, and the scale divides it."""
    of, query = made(baseline=baseline, mix=mix, entropy=0.0), asked(UNEVEN)
    found = estimates(of, query, monkeypatch)
    assert is_mean(found, exact(of, query, COST[query.context] / 2))


def test_the_noise_alone_teaches_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    of, query = made(baseline="leave_one_out", mix=1.0, entropy=0.0), asked(UNEVEN)
    assert is_mean(estimates(of, query, monkeypatch), exact(of, query, COST[query.context] / 2))
    still = made(baseline="leave_one_out", mix=1.0, entropy=0.0, importance=False)
    assert not estimates(still, query, monkeypatch, draws=3).any()


def test_clipped_weights_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    of, query = made(baseline="moving", mix=0.0, entropy=0.0, clip=0.5), asked(UNEVEN)
    assert not is_mean(estimates(of, query, monkeypatch), exact(of, query, COST[query.context] / 2))


def test_a_right_answer_of_one_row_costs_that_row_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    of, query = made(baseline="self_critical", mix=0.2, entropy=0.0, penalty=3.0), asked(UNEVEN)
    reward = (COST[query.context] - 0.8) / 2
    answer = int(of.generator(query.context[4:5]).argmax())              # often drawn, and that row's greedy answer
    reward[4, answer] = -3.0
    assert is_mean(estimates(of, query, monkeypatch, (4, answer)), exact(of, query, reward))


def by_hand(of: Ace, last: shared_draws.SharedDraw, drawn: Negatives, cost: Tensor) -> Tensor:
    """a (B, K) one cell at a time, from densities of the generator itself."""
    assert drawn.ids is not None and drawn.origin is not None
    query_g = of.generator(torch.tensor(UNEVEN)).exp().detach().double()
    of_row, right = [0, 0, 0, 1, 1, 1, 2, 2], set(map(tuple, drawn.false_negatives.T.tolist()))  # type: ignore[union-attr]
    k, a = last.log_g.shape[1], torch.zeros(last.log_g.shape, dtype=torch.float64)

    def r(i: int, j: int) -> float:
        if (i, j) in right:
            return -of.config.penalty
        return (float(cost[i, j]) - float(of.reward_mean)) / float(of.reward_sd)

    def rho(i: int, j: int) -> float:
        group, y = of_row[i], int(drawn.ids[of_row[i], j])
        if drawn.origin[group, j] == GENERATOR:
            members = [m for m in range(8) if of_row[m] == group]
            by = float(query_g[members, y].mean())
        else:
            by = float(of.cache.p[y]) if of.config.importance else math.inf
        return min(of.config.clip, float(query_g[i, y]) / by)
    for i in range(8):
        for j in range(k):
            others = [x for x in range(k) if x != j]
            b = {"self_critical": lambda i=i: r(i, k + i - of_row.index(of_row[i])), "moving": lambda: 0.0,
                 "none": lambda: -float(of.reward_mean) / float(of.reward_sd),
                 "leave_one_out": lambda i=i, others=others: sum(rho(i, x) * r(i, x) for x in others)
                 / (1 + sum(rho(i, x) for x in others))}[of.config.baseline]()
            a[i, j] = rho(i, j) * (r(i, j) - b)
    return a


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("importance", [True, False])
@pytest.mark.parametrize("baseline", BASELINES)
def test_factors_are_the_formula(baseline: str, importance: bool, double: bool) -> None:
    of, query = made(double, baseline=baseline, importance=importance, clip=1.5, penalty=0.7), asked(UNEVEN)
    of.reward_mean, of.reward_sd = torch.tensor(0.8), torch.tensor(2.0)
    drawn = drawn_by(of, query)
    cost = torch.randn(8, drawn.k, generator=torch.Generator().manual_seed(4)).to(of.generator.w.dtype)
    drawn = replace(drawn, false_negatives=torch.tensor([[0, 4, 7], [2, 0, drawn.k - 1]]))
    assert isinstance(drawn.state, AceState) and drawn.state.shared is not None
    a, told = shared_draws.reinforce_coefficients(drawn.state.shared, drawn, cost, of._rule())
    torch.testing.assert_close(a.double(), by_hand(of, drawn.state.shared, drawn, cost), rtol=2e-4, atol=2e-4)
    assert drawn.origin is not None
    teaching = (drawn.origin == GENERATOR) | ((drawn.origin == NOISE) & importance)
    assert told.n_used == float((teaching.sum(1) * torch.tensor([3, 3, 2])).sum()) > 0


def collected(of: Ace, drawn: Negatives, query: Query) -> list[Tensor]:
    """What a block of given columns gives to the next step, and what is told."""
    assert drawn.ids is not None and drawn.origin is not None
    row = of.cache.find_rows(query.context)
    groups = shared_draws.group_rows(len(query), 3, drawn.draw_id, torch.device("cpu"))
    k = int((drawn.origin[0] != PROBE).sum())
    log_g = shared_draws._densities(of.cache, drawn.ids, row, groups)
    log_drawn = torch.where(drawn.origin == GENERATOR, groups.mean(log_g), of.cache.p[drawn.ids].log())
    shared = shared_draws.SharedDraw(row, groups, log_g[:, :k], log_drawn[:, :k].to(log_g.dtype))
    drawn = replace(drawn, state=AceState(of.cache.generation, row, shared.log_g, shared))
    ids = drawn.per_row(drawn.ids, len(query))
    told = of.learn(query, drawn, COST[query.context].gather(1, ids))  # type: ignore[arg-type]
    part = of.cache
    return [log_g, part.grad_w, part.grad_z[:part.n_rows], part.total[:part.n_rows], part.count[:part.n_rows],
            torch.tensor(list(told.values())), torch.tensor(float(of.columns_since_step))]


def test_the_kernels_and_torch_collect_the_same_in_one_piece_or_several(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, Any] = {"shortlist": 5, "groups": 2, "update_every": 100, "clip": 2.0}
    core, twin, query = made(**keys), made(True, **keys), asked(UNEVEN)
    assert core.cache.uses_core and not twin.cache.uses_core
    drawn = drawn_by(core, query)
    found = collected(core, drawn, query)
    wanted = collected(twin, drawn, query)
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x.double(), y.double(), rtol=1e-4, atol=1e-5)
    assert core.cache.n_draws == 8 and float(found[1].abs().max()) > 0.1
    monkeypatch.setattr(shared_draws, "MAX_DENSITIES", 20)               # fewer cells than three rows have
    for x, y in zip(collected(made(**keys), drawn, query), found, strict=True):
        torch.testing.assert_close(x, y)


def test_torch_draws_and_states_what_the_kernels_do() -> None:
    """Of the same columns the same log q, by either."""
    core, twin, query = made(), made(True), asked(UNEVEN)
    for of, other in ((core, twin), (twin, core)):
        drawn = drawn_by(of, query)
        log_q = other.log_prob(query, drawn.per_row(drawn.ids, 8))  # type: ignore[arg-type]
        torch.testing.assert_close(log_q.double(), drawn.per_row(drawn.log_q, 8).double(),  # type: ignore[union-attr]
                                   rtol=1e-4, atol=1e-5)


def test_rows_of_a_group_that_never_draw_each_others_answers_stay_finite() -> None:
    of, query = made(mix=0.0, clip=10.0, update_every=100), asked(UNEVEN)
    with torch.no_grad():
        of.generator.w.mul_(400)
    drawn = drawn_by(of, query)
    assert drawn.log_q is not None and torch.isfinite(drawn.log_q).all()
    told = of.learn(query, drawn, COST[query.context].gather(1, drawn.per_row(drawn.ids, 8)))  # type: ignore[arg-type]
    assert all(math.isfinite(x) for x in told.values()) and torch.isfinite(of.cache.grad_w).all()
    assert isinstance(of.columns_since_step, int) and of.columns_since_step == 8 * K   # rows without a reward too


@pytest.mark.parametrize("share", ["block", "batch"])
def test_it_goes_on_bit_for_bit_between_two_steps(share: str) -> None:
    keys: dict[str, Any] = {"share_draws_by": share, "update_every": 30, "shortlist": 4, "groups": 2,
                            "generator_lr": 0.1,
                            "baseline": "leave_one_out" if share == "batch" else "self_critical"}
    of, again = made(**keys), made(seed=7, **keys)

    def step(which: Ace, block: int) -> dict[str, float]:
        query = asked([(block + i * i) % CONTEXTS for i in range(8)])
        drawn = drawn_by(which, query)
        ids = drawn.per_row(drawn.ids, 8)
        return which.learn(query, drawn, COST[query.context].gather(1, ids))  # type: ignore[arg-type]
    start, moved = of.generator.w.detach().clone(), []
    for block in range(6):
        step(of, block)
        moved.append(not torch.equal(of.generator.w, start))
    assert moved == [False, False, False, True, True, True]  # eight rows each: the fourth block is the first step
    again.load_state_dict(copy.deepcopy(of.state_dict()))
    for block in range(6, 10):
        assert step(of, block) == step(again, block)
    for here, there in zip(of.generator.parameters(), again.generator.parameters(), strict=True):
        assert torch.equal(here, there)


def test_a_probe_for_each_row_of_a_batch_is_refused() -> None:
    with pytest.raises(UsageError, match=r"negatives\.baseline: self_critical needs one candidate .* "
                                         r"share_draws_by: block"):
        made(share_draws_by="batch", baseline="self_critical")


def test_what_needs_a_draw_for_each_row_refuses_it() -> None:
    counts = torch.ones(V, dtype=torch.float64)
    config = build(mixture.MixtureConfig, [Layer("test", {
        "source": "mixture", "inner": {"source": "ace", "share_draws_by": "block", "min_perplexity": 1}})])
    with pytest.raises(UsageError, match=r"^negatives\.inner: ace with these settings does not draw"):
        mixture.Mixture(config, ProblemSpec(V, counts, CONTEXTS, raw_counts=counts, dim=4))
