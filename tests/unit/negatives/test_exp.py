"""EXP: exact at extreme scores, stale if configured, and the only one without bias in the gradient (R6)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from scipy import stats

from embtrain.common.errors import UsageError
from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.losses.sampled_softmax import SampledSoftmaxConfig, SampledSoftmaxLoss
from embtrain.negatives import base
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.softmax import exp

DOUBLE = torch.float64


class VectorView:
    """A model whose scores are inner products of queries with its table."""

    geometry, tau = "dot", 1.0

    def __init__(self, table: torch.Tensor):
        self.c, self.n_candidates = table, len(table)

    def table(self) -> torch.Tensor:
        return self.c

    def score(self, query: Query, candidates: torch.Tensor) -> torch.Tensor:
        assert candidates.shape[0] == 1
        return query.vector @ self.c[candidates[0]].T


def problem(v: int, dim: int, seed: int = 3) -> ProblemSpec:
    return ProblemSpec(v, torch.arange(1, v + 1, dtype=DOUBLE).flip(0), dim=dim, seed=seed)


def build(name: str, v: int, dim: int, **settings: Any) -> NegativeSource:
    result = base.find(name)
    return result(result.Config(source=name, **settings), problem(v, dim))


def make_query(vectors: torch.Tensor, target: torch.Tensor) -> Query:
    """Return one query per row."""
    n = len(target)
    return Query(vectors, torch.arange(n), target, torch.zeros(n, dtype=torch.int64), torch.arange(n))


# --- the bias of the gradient ----------------------------------------------------------------------------------------

def bias(log_q: torch.Tensor, o: torch.Tensor, target: int, m: int) -> float:
    """Return ‖E ∂L'/∂o - ∂L/∂o‖ / ‖∂L/∂o‖ of eq. 6 over all V^m draws from log q (V,), draws of the target masked."""
    v = len(o)
    draws = torch.tensor(list(itertools.product(range(v), repeat=m)))                      # (V^m, m)
    draws = draws[torch.isfinite(log_q[draws]).all(1)]
    n = len(draws)
    chance = log_q[draws].sum(1).exp()
    assert float(chance.sum()) == pytest.approx(1, abs=1e-5)
    scores = o.clone().requires_grad_()
    table = scores.expand(n, v)
    positive = torch.stack((draws == target).nonzero(as_tuple=True))
    drawn = Negatives(
        draws, log_q=log_q[draws], total_weight=torch.full((1, 1), float(m), dtype=DOUBLE), false_negatives=positive
    )
    query = make_query(torch.zeros(n, 1), torch.full((n,), target))
    loss = SampledSoftmaxLoss(SampledSoftmaxConfig(), problem(v, 1))
    scored = LossInput(table[:, target], table.gather(1, draws), drawn, query, None, drawn.log_q)
    ((chance / chance.sum()) * loss(scored).per_example).sum().backward()
    exact = torch.softmax(o, 0)
    exact[target] -= 1
    assert scores.grad is not None
    return float((scores.grad - exact).norm() / exact.norm())


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("target", [0, 2, 4])
def test_only_softmax_without_target_leaves_gradient_unbiased(m: int, target: int) -> None:
    draw = torch.Generator().manual_seed(0)
    v, d = 5, 3
    view = VectorView(torch.randn(v, d, generator=draw, dtype=DOUBLE))
    h = torch.randn(1, d, generator=draw, dtype=DOUBLE)
    o = (h @ view.c.T)[0]
    query = make_query(h, torch.tensor([target]))
    everyone = torch.arange(v).unsqueeze(0)
    result = {}
    for case, settings in {"exp": {}, "exp with hits masked": {"exclude_target": False}, "uniform": {}, "unigram": {},
                           "quadratic": {"exclude_target": True}, "rff": {"exclude_target": True, "features": 64},
                           "maclaurin": {"exclude_target": True, "features": 64},
                           "positive_features": {"exclude_target": True, "features": 64}}.items():
        source = build(case.split()[0], v, d, **settings)
        source.on_epoch_start(view)
        log_q = source.log_prob(query, everyone).double().expand(1, -1)[0]
        result[case] = bias(log_q, o, target, m)
    assert result.pop("exp") < 1e-5
    assert all(one > 1e-3 for one in result.values()), result


# --- exactness ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("target", [0, 3, 39])
def test_dominant_target_keeps_the_q_of_the_rest(target: int) -> None:
    """q of the rest is exact to 1e-5, although it is e^-100 relative to the target and vanishes in any sum with it."""
    draw = torch.Generator().manual_seed(1)
    table = torch.randn(40, 1, generator=draw, dtype=DOUBLE)
    table[target] = 100.0
    source, view = build("exp", 40, 1), VectorView(table)
    query = make_query(torch.ones(1, 1, dtype=DOUBLE), torch.tensor([target]))
    source.on_epoch_start(view)
    exact = table[:, 0].masked_fill(torch.arange(40) == target, -torch.inf).log_softmax(0)
    log_q = source.log_prob(query, torch.arange(40).unsqueeze(0))[0].double()
    torch.testing.assert_close(log_q, exact, atol=1e-5, rtol=0)
    rows = 5000
    many = make_query(torch.ones(rows, 1, dtype=DOUBLE), torch.full((rows,), target))
    drawn = source.draw(many, 10, view)
    assert drawn.ids is not None and drawn.log_q is not None
    seen, expected = torch.bincount(drawn.ids.flatten(), minlength=40).double(), exact.exp() * rows * 10
    kept = expected >= 50
    assert float(seen[~kept].sum()) <= 100 and seen[target] == 0
    assert stats.chi2.sf(float(((seen - expected).square() / expected)[kept].sum()), int(kept.sum()) - 1) > 1e-4
    torch.testing.assert_close(drawn.log_q.double(), exact[drawn.ids], atol=1e-5, rtol=0)


@pytest.mark.parametrize("excluded", [False, True])
def test_scores_beyond_exp_range_give_finite_probabilities(excluded: bool) -> None:
    table = torch.tensor([[2000.0], [0.0], [-2000.0]])
    source, view = build("exp", 3, 1, exclude_target=excluded), VectorView(table)
    for target in range(3):
        drawn = source.draw(make_query(torch.ones(1, 1), torch.tensor([target])), 200, view)
        assert drawn.ids is not None and drawn.log_q is not None
        assert torch.isfinite(drawn.log_q).all()
        assert not excluded or not (drawn.ids == target).any()
        if target != 0:
            assert (drawn.ids == 0).all()


def test_two_candidates_are_accepted_and_one_is_rejected() -> None:
    drawn = build("exp", 2, 1).draw(make_query(torch.ones(2, 1), torch.tensor([0, 1])), 6, VectorView(torch.ones(2, 1)))
    assert drawn.ids is not None and drawn.ids[0].tolist() == [1] * 6 and drawn.ids[1].tolist() == [0] * 6
    with pytest.raises(UsageError, match="two or more candidates, but there is 1"):
        build("exp", 1, 1)


@pytest.mark.parametrize("queries", [1, 7])
def test_many_candidates_are_drawn_from_the_softmax(queries: int) -> None:
    draw = torch.Generator().manual_seed(2)
    view = VectorView(torch.randn(10_000, 8, generator=draw))
    h = torch.randn(queries, 8, generator=draw)
    rows = 210
    group = torch.arange(rows) % queries
    query = Query(h[group], group, torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, dtype=torch.int64), group)
    source = build("exp", 10_000, 8, exclude_target=False)
    drawn = source.draw(query, 1000, view)
    assert drawn.ids is not None
    p = torch.softmax((h[0] @ view.c.T).double(), 0)
    seen = torch.bincount(drawn.ids[group == 0].flatten(), minlength=10_000).double()
    order = p.argsort(descending=True)
    cell = ((p[order] * seen.sum()).cumsum(0) / 60).long().clamp(max=int(seen.sum() / 60) - 1)
    expected, counted = (torch.zeros(int(cell.max()) + 1, dtype=DOUBLE).index_add_(0, cell, x[order])
                         for x in (p * seen.sum(), seen))
    some = expected >= 40
    assert int(some.sum()) > 100
    assert stats.chi2.sf(float(((counted - expected).square() / expected)[some].sum()), int(some.sum()) - 1) > 1e-4


@pytest.mark.parametrize("excluded", [False, True])
def test_chunk_size_does_not_change_draws(excluded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    v, rows, k = 3 * exp.BLOCK_SIZE + 5, 40, 9                              # the last block is not full
    draw = torch.Generator().manual_seed(5)
    view = VectorView(torch.randn(v, 6, generator=draw))
    query, result = make_query(torch.randn(rows, 6, generator=draw), torch.randint(v, (rows,), generator=draw)), []
    for near in (exp.MAX_CACHED_WEIGHTS, 2 * k * exp.BLOCK_SIZE):           # all rows; two, with scores of five queries
        monkeypatch.setattr(exp, "MAX_CACHED_WEIGHTS", near)
        source = build("exp", v, 6, exclude_target=excluded)
        drawn = source.draw(query, k, view)
        assert drawn.ids is not None and drawn.log_q is not None
        torch.testing.assert_close(drawn.log_q, source.log_prob(query, drawn.ids), rtol=0, atol=0)
        result.append((drawn.ids, drawn.log_q))
    for one, other in zip(*result, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


# --- stale -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tau", [1.0, 3.0])
def test_draws_between_refreshes_use_the_copied_table(tau: float) -> None:
    draw = torch.Generator().manual_seed(4)
    view = VectorView(torch.randn(30, 4, generator=draw))
    if tau != 1:
        view.geometry, view.tau = "cosine", tau
    query = make_query(torch.randn(6, 4, generator=draw), torch.arange(6))
    source, everyone = build("exp", 30, 4, update_every=3, exclude_target=False), torch.arange(30).unsqueeze(0)
    seen = []
    for _ in range(7):
        source.draw(query, 2, view)
        seen.append(source.log_prob(query, everyone))
        view.c.normal_(generator=draw)                       # in place, as training does
    same = [torch.equal(a, b) for a, b in itertools.pairwise(seen)]
    assert same == [True, True, False, True, True, False]
    old = view.c.clone()
    source.on_epoch_start(view)
    view.c += 1
    h, c = query.vector, old
    if tau != 1:
        h, c = (torch.nn.functional.normalize(x, dim=1) for x in (h, c))
    torch.testing.assert_close(source.log_prob(query, everyone), (tau * h @ c.T).log_softmax(1), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("settings", "says"), [
    ({"replacement": False}, "negatives.replacement: exp"), ({"share_draws_by": "batch"},
                                                             "negatives.share_draws_by: exp"),
    ({"share_draws_by": "window"}, "negatives.exclude_target: the rows of a window")])
def test_unsupported_settings_are_rejected(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        build("exp", 30, 4, **settings)


@pytest.mark.parametrize("refresh", [1, 2])
def test_scores_that_are_not_finite_are_named(refresh: int) -> None:
    table = torch.ones(30, 4)
    table[7, 2] = torch.nan
    with pytest.raises(UsageError, match="not finite"):
        build("exp", 30, 4, update_every=refresh).draw(make_query(torch.ones(2, 4), torch.tensor([0, 1])), 2,
                                                  VectorView(table))
