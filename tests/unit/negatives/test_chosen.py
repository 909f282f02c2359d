"""Sources that work on what another one draws: resampled, hardest, mixture."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from helpers.source_worlds import CASES, TableView, V, query, source, trained, world

from embtrain.common.errors import UsageError
from embtrain.common.types import GENERATOR, NOISE, PROBE, Negatives, Query
from embtrain.negatives.sampling import pool as inner
from embtrain.train.engines.false_negatives import mark_false_negatives

EVERYONE = torch.arange(V).unsqueeze(0)


def one_question(rows: int, context: int = 2, target: int = 7) -> Query:
    same = torch.zeros(rows, dtype=torch.int64)
    return Query(query(1).vector.expand(rows, -1), same + context, same + target, same, same, torch.arange(rows))


# ---- resampled ----------------------------------------------------------------------------------------------------


def test_resampled_columns_are_drawn_by_their_share_of_the_candidates():
    """One shared set of candidates, many rows: frequencies are ω, and log q = s − log Ẑ."""
    of, view, asked = source("resampled", k=50), TableView(1.0), one_question(2000)
    kept: list[Negatives] = []
    keep = of.inner.draw

    def listen(*given):
        kept.append(keep(*given))
        return kept[-1]

    of.inner.draw = listen
    drawn = of.draw(asked, 50, view)
    candidates, log_q0 = kept[0].ids[0], kept[0].log_q[0].double()
    v = (view.scores[2, candidates].double() - log_q0).exp() / len(candidates)
    share = torch.zeros(V, dtype=torch.float64).index_add_(0, candidates, v / v.sum())
    seen = torch.bincount(drawn.ids.flatten(), minlength=V).double() / drawn.ids.numel()
    assert (seen - share).abs().max() < 5 * math.sqrt(0.25 / drawn.ids.numel())
    wanted = view.scores[2][drawn.ids].double() - v.sum().log()
    torch.testing.assert_close(drawn.log_q.double(), wanted, atol=1e-5, rtol=0)


def test_the_correction_over_all_candidates_makes_up_the_partition_function():
    """Each row's Σ_j e^{s_j} / (k q_j) is Ẑ itself, whichever columns were drawn, and Ẑ is right on average."""
    of, view = source("resampled from private candidates"), TableView(1.0)
    asked = query(3000)
    drawn = of.draw(asked, 4, view)
    z = (view.score(asked, drawn.ids).double() - drawn.log_q.double()).exp()
    torch.testing.assert_close(z, z[:, :1].expand(-1, 4), rtol=1e-5, atol=0)
    away = z[:, 0] / view.scores[asked.context].double().exp().sum(1) - 1
    assert abs(float(away.mean())) < 4 * float(away.std()) / math.sqrt(len(away))


# ---- kbgan --------------------------------------------------------------------------------------------------------


def test_an_adversary_does_not_begin_as_the_model_that_it_plays_against():
    """Both are tables of numbers that are even on an interval, of one seed; they are not the same numbers."""
    of = source("kbgan", hidden=8)
    theirs = torch.rand(V, 8, generator=torch.Generator().manual_seed(of.world.seed))
    assert abs(float(torch.corrcoef(torch.stack([of.scorer.v.detach().flatten(), theirs.flatten()]))[0, 1])) < 0.2


# ---- hardest ------------------------------------------------------------------------------------------------------


def pool_of(of, asked, view):
    """The draw of `of`, and the pool (B, M) it chose from."""
    kept, keep = [], of.inner.draw

    def listen(*given):
        kept.append(keep(*given))
        return kept[-1]

    of.inner.draw = listen
    return of.draw(asked, of.config.k, view), kept[0].per_row(kept[0].ids, len(asked))


@pytest.mark.parametrize("choose", ["hardest", "semi_hard"])
def test_the_chosen_are_those_a_loop_would_choose(choose):
    of, asked, view = source("hardest", choose=choose, k=3), query(60), TableView()
    drawn, pool = pool_of(of, asked, view)
    for i in range(60):
        s, t = view.scores[asked.context[i]], int(asked.target[i])
        left = sorted((float(s[j]) for j in pool[i].tolist() if j != t), reverse=True)
        below = [x for x in left if x < float(s[t])]
        above = sorted(x for x in left if x >= float(s[t]))
        wanted = left[:3] if choose == "hardest" else (below + above)[:3]
        assert view.scores[asked.context[i]][drawn.ids[i]].tolist() == pytest.approx(wanted)
        assert (drawn.ids[i] != t).all() and drawn.weight[i].tolist() == [1, 1, 1]


def test_a_batch_with_fewer_others_than_columns_is_filled_with_columns_without_weight():
    of, asked = source("hardest", choose="hardest", k=5, inner={"source": "in_batch", "k": 50}), query(4)
    drawn = of.draw(asked, 5, TableView())
    assert drawn.ids.shape == (4, 5) and (drawn.weight[:, 4] == 0).all()         # four targets, one its own
    assert (drawn.weight[:, :4].sum(1) == (asked.target[drawn.ids.new_tensor([range(4)] * 4)]
                                           != asked.target.unsqueeze(1)).sum(1)).all()


@pytest.mark.parametrize("settings, says", [
    ({"k": V + 1, "inner": {"source": "every"}}, rf"{V + 1} negatives cannot be chosen from a pool of {V}; draw"),
    ({"k": 1, "inner": {"source": "synthetic_difference", "k": 1}}, "synthetic_difference does not draw a pool"),
])
def test_pools_that_cannot_serve_are_refused(settings, says):
    with pytest.raises(UsageError, match=says):
        source("hardest", **settings)


def test_a_target_that_must_be_taken_weighs_nothing():
    of = source("hardest", k=40, inner={"source": "uniform", "k": 40, "replacement": False})
    drawn = of.draw(query(8), 40, TableView())                     # all candidates, the target among them
    own = drawn.ids == query(8).target.unsqueeze(1)
    assert own.sum() == 8 and (drawn.weight[own] == 0).all() and (drawn.weight[~own] == 1).all()
    assert (drawn.total_weight == 39).all()


def test_violations_are_the_first_and_weigh_as_the_rank_that_they_tell():
    of, asked, view = source("hardest until a violation", k=2), query(80), TableView()
    drawn, pool = pool_of(of, asked, view)
    none = 0
    for i in range(80):
        s, t = view.scores[asked.context[i]], int(asked.target[i])
        for j, tries in enumerate((pool[i, :12], pool[i, 12:])):
            tries = [y for y in tries.tolist() if y != t]
            found = next((n for n, y in enumerate(tries) if s[y] > s[t] - 1), None)
            if found is None:
                none += 1
                assert drawn.weight[i, j] == 0
                continue
            rank = (V - 1) // (found + 1)
            assert int(drawn.ids[i, j]) == tries[found]
            assert float(drawn.weight[i, j]) == pytest.approx(sum(1 / r for r in range(1, rank + 1)), rel=1e-5)
    assert 0 < none < 100
    torch.testing.assert_close(drawn.total_weight[:, 0], drawn.weight.sum(1))


@pytest.mark.parametrize("target", [3, 7, 20])
def test_the_rank_estimate_has_the_mean_of_its_law(target):
    """N ~ geometric(rank / (n − 1)) cut at 24 draws; mean weight against the sum over N."""
    of, view, rows = source("hardest until a violation", k=1), TableView(), 20_000
    drawn = of.draw(one_question(rows, target=target), 1, view)
    s = view.scores[2]
    violate = (s > s[target] - 1)
    violate[target] = False
    p, phi = int(violate.sum()) / (V - 1), [0.0]
    for r in range(1, V):
        phi.append(phi[-1] + 1 / r)
    # Draws of the target (1 in V) are no tries: tries in 24 draws are binomial, so the law is cut a little earlier.
    tries = [math.comb(24, n) * (1 - 1 / V) ** n * (1 / V) ** (24 - n) for n in range(25)]
    mean = sum(chance * sum(p * (1 - p) ** (n - 1) * phi[(V - 1) // n] for n in range(1, most + 1))
               for most, chance in enumerate(tries))
    assert abs(float(drawn.weight.mean()) - mean) < 4 * float(drawn.weight.std()) / math.sqrt(rows)


# ---- mixture ------------------------------------------------------------------------------------------------------


def test_the_density_is_that_of_both_whoever_drew():
    of, asked, view = trained(source("mixture")), query(), TableView()
    drawn = of.draw(asked, 4, view)
    whole = 0.9 * of.inner.log_prob(asked, EVERYONE).double().exp() + 0.1 * of.plain.log_prob(asked, EVERYONE).exp()
    torch.testing.assert_close(of.log_prob(asked, EVERYONE).double().exp(), whole, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(drawn.log_q.double().exp(), whole.gather(1, drawn.ids), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(drawn.log_q_target.double().exp(), whole.gather(1, asked.target[:, None])[:, 0],
                               atol=1e-6, rtol=1e-4)
    assert float((1 / drawn.log_q.exp()).max()) <= float(1 / (0.1 * of.plain.log_q.exp().min())) + 1


def test_each_component_draws_its_share_from_its_own_density():
    of, view, asked = trained(source("mixture", epsilon=0.3, k=10)), TableView(), one_question(6000)
    drawn = of.draw(asked, 10, view)
    by_plain = drawn.origin == NOISE
    assert abs(float(by_plain.double().mean()) - 0.3) < 5 * math.sqrt(0.21 / 60_000)
    assert set(drawn.origin.unique().tolist()) == {NOISE, GENERATOR}
    for who, one in ((by_plain, of.plain), (~by_plain, of.inner)):
        seen = torch.bincount(drawn.ids[who], minlength=V).double() / who.sum()
        p = one.log_prob(asked.rows(slice(0, 1)), EVERYONE).double().exp().expand(1, V)[0]
        assert (seen - p).abs().max() < 5 * math.sqrt(0.25 / float(who.sum()))


def test_an_adversary_inside_hears_of_its_own_columns_alone():
    of, view, asked = source("mixture of an adversary and uniform"), TableView(), query(60)
    heard: list[Negatives] = []

    def listen(q, drawn, cost):
        heard.append(drawn)
        return {"told": 1.0}

    of.inner.learn = listen
    assert of.traits.learns
    drawn = mark_false_negatives(of.draw(asked, 4, view), asked, "target", None)
    assert of.learn(asked, drawn, torch.ones(60, drawn.k)) == {"told": 1.0}
    plain = drawn.origin == NOISE
    assert plain.any() and (heard[0].origin[plain] == PROBE).all()
    assert (heard[0].origin[:, :4][~plain[:, :4]] != PROBE).all() and (heard[0].origin[:, 4] == PROBE).all()
    assert (drawn.weight.expand(60, 5)[:, 4] == 0).all() and not plain[:, 4].any()


def test_the_share_that_a_floor_draws_is_told_of_the_inner_source():
    of, asked, view = source("mixture", inner={"source": "rff", "features": 4, "nu": 50.0}), query(), TableView()
    assert of.floored_fraction is None
    of.draw(asked, 4, view)
    assert of.floored_fraction == of.inner.floored_fraction > 0


@pytest.mark.parametrize("name", ["resampled", "hardest"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_vectors_that_are_not_finite_are_refused(name, value):
    of, asked, view = source(name), query(), TableView()
    view.scores[:] = value
    with pytest.raises(UsageError, match="are not finite, so nothing can be drawn"):
        of.draw(asked, 3, view)


def test_streams_of_the_components_differ():
    """One seed for both would draw the same numbers: which column is whose would tell what it is."""
    of = source("mixture of an adversary and uniform", inner={"source": "uniform"}, epsilon=0.5)
    a, b = (one.draw(query(), 4, TableView()).ids for one in (of.inner, of.plain))
    assert not torch.equal(a, b)
    seeds = {one.world.seed for one in (of, of.inner, of.plain)}
    assert len(seeds) == 3


# ---- state, and what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in CASES if c.split()[0] in ("resampled", "hardest")])
def test_rows_are_picked_for_some_at_a_time(case, monkeypatch):
    whole = source(case).draw(query(), 4, TableView())
    monkeypatch.setattr(inner, "MAX_SCORES", 100)
    some = source(case).draw(query(), 4, TableView())
    assert torch.equal(whole.ids, some.ids) and torch.equal(whole.total_weight, some.total_weight)
    torch.testing.assert_close((some.log_q, some.weight), (whole.log_q, whole.weight))


@pytest.mark.parametrize("name", ["resampled", "hardest", "mixture"])
def test_the_inner_source_hears_of_the_model(name):
    of, view, heard = source(name, k=12, inner={"source": "cluster", "clusters": 5, "k": 12}), TableView(), []
    of.inner.prepare_log_prob = of.inner.on_epoch_start = heard.append
    of.prepare_log_prob(view)
    of.on_epoch_start(view)
    assert heard == [view, view] and of.traits.geometry == of.inner.traits.geometry != frozenset()


@pytest.mark.parametrize("case", [c for c in CASES if c.split()[0] in ("resampled", "hardest", "mixture")])
def test_the_inner_state_goes_with_it(case):
    view = TableView()
    a = trained(source(case), 7)
    fresh = source(case, seed=8)
    fresh.load_state_dict(a.state_dict())
    for seed in range(3):
        one, two = a.draw(query(seed=seed), 4, view), fresh.draw(query(seed=seed), 4, view)
        assert torch.equal(one.ids, two.ids)
        assert (one.log_q is None) == (two.log_q is None) and (one.log_q is None or torch.equal(one.log_q, two.log_q))


@pytest.mark.parametrize(("case", "settings", "says"), [
    ("mixture", {"inner": {"source": "none"}}, r"negatives.inner: none with these settings does not draw"),
    ("mixture", {"inner": {"source": "resampled"}}, r"negatives.inner: resampled as set"),
    ("mixture", {"inner": {"source": "cluster", "exclude_target": True}}, r"negatives.inner: .* exclude_target: false"),
    ("mixture", {"plain": {"source": "ace", "min_perplexity": 4}}, r"negatives.plain.source: ace depends on the model"),
    ("mixture", {"inner": {"source": "clustre"}}, r"negatives.source: there is no 'clustre' \(did you mean 'cluster'"),
    ("mixture", {"inner": {"source": "cluster", "clusterz": 3}}, r"negatives.inner: clusterz: unknown key"),
    ("mixture", {"inner": {"source": "cluster", "k": 9}}, r"negatives.inner.k: .* remove it"),
    ("mixture", {"inner": {"source": 3}}, r"negatives.inner.source: should be the name of a source, got 3"),
    ("mixture", {"share_draws_by": "batch"}, r"negatives.share_draws_by"),
    ("resampled", {"inner": {"source": "hardest"}}, r"negatives.inner.source: hardest states no probabilities"),
    ("resampled", {"replacement": False}, r"negatives.replacement"),
    ("resampled", {"inner": {"source": "unigram", "k": 0}}, r"negatives.inner: k: should be greater"),
    ("hardest", {"k": 13}, r"negatives.k: 13 negatives cannot be chosen from a pool of 12"),
    ("hardest", {"choose": "violation", "inner": {"source": "unigram", "k": 9}}, r"estimates ranks by uniform"),
    ("hardest", {"inner": {"source": "none"}}, r"none does not draw a pool"),
])
def test_bad_settings_are_one_line(case, settings, says):
    with pytest.raises(UsageError, match=says) as raised:
        source(case, **settings)
    assert len(str(raised.value).splitlines()) == 1


def test_an_inner_source_has_its_settings_and_a_seed_of_its_own():
    of = inner.build_nested({"source": "unigram", "exponent": 0.5}, "inner", 6, world())
    assert of.config.k == 6 and of.config.exponent == 0.5 and of.world.seed != world().seed
    assert inner.build_nested({"source": "unigram"}, "plain", 6, replace(world(), seed=3)).world.seed != of.world.seed
