"""Sources that select from another source's pool: resampled, hardest, mixture."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.looped import looped
from helpers.source_worlds import CASES, TableView, V, query, source, tiny_problem, trained

from embtrain.common.errors import UsageError
from embtrain.common.types import GENERATOR, NOISE, PROBE, Negatives, Query
from embtrain.experiment.run.settings import resolve
from embtrain.negatives.sampling import pool as inner
from embtrain.train.engines.false_negatives import mark_false_negatives

EVERYONE = torch.arange(V).unsqueeze(0)


def repeated_query(rows: int, context: int = 2, target: int = 7) -> Query:
    same = torch.zeros(rows, dtype=torch.int64)
    return Query(query(1).vector.expand(rows, -1), same + context, same + target, same, same, torch.arange(rows))


# ---- resampled ----------------------------------------------------------------------------------------------------


def test_resampled_negatives_follow_their_share_of_the_pool():
    """One shared pool, many rows: frequencies are ω, and log q = s − log Ẑ."""
    sampler, view, one_query = source("resampled", k=50), TableView(1.0), repeated_query(2000)
    kept: list[Negatives] = []
    keep = sampler.inner.draw

    def record(*values):
        kept.append(keep(*values))
        return kept[-1]

    sampler.inner.draw = record
    drawn = sampler.draw(one_query, 50, view)
    candidates, log_q0 = kept[0].ids[0], kept[0].log_q[0].double()
    v = (view.scores[2, candidates].double() - log_q0).exp() / len(candidates)
    share = torch.zeros(V, dtype=torch.float64).index_add_(0, candidates, v / v.sum())
    seen = torch.bincount(drawn.ids.flatten(), minlength=V).double() / drawn.ids.numel()
    assert (seen - share).abs().max() < 5 * math.sqrt(0.25 / drawn.ids.numel())
    expected = view.scores[2][drawn.ids].double() - v.sum().log()
    torch.testing.assert_close(drawn.log_q.double(), expected, atol=1e-5, rtol=0)


def test_correction_over_all_candidates_gives_the_partition_function():
    """Each row's Σ_j e^{s_j} / (k q_j) is Ẑ itself for any draw, and Ẑ is unbiased."""
    sampler, view = source("resampled from private candidates"), TableView(1.0)
    one_query = query(3000)
    drawn = sampler.draw(one_query, 4, view)
    z = (view.score(one_query, drawn.ids).double() - drawn.log_q.double()).exp()
    torch.testing.assert_close(z, z[:, :1].expand(-1, 4), rtol=1e-5, atol=0)
    away = z[:, 0] / view.scores[one_query.context].double().exp().sum(1) - 1
    assert abs(float(away.mean())) < 4 * float(away.std()) / math.sqrt(len(away))


# ---- kbgan --------------------------------------------------------------------------------------------------------


def test_adversary_starts_different_from_the_model():
    """Both tables are uniform on an interval and have one seed; their numbers differ."""
    sampler = source("kbgan", hidden=8)
    theirs = torch.rand(V, 8, generator=torch.Generator().manual_seed(sampler.problem.seed))
    assert abs(float(torch.corrcoef(torch.stack([sampler.scorer.v.detach().flatten(), theirs.flatten()]))[0, 1])) < 0.2


# ---- hardest ------------------------------------------------------------------------------------------------------


def pool_of(sampler, one_query, view):
    """Return the draw of `source`, and the pool (B, M) it selected from."""
    kept, keep = [], sampler.inner.draw

    def record(*values):
        kept.append(keep(*values))
        return kept[-1]

    sampler.inner.draw = record
    return sampler.draw(one_query, sampler.config.k, view), kept[0].per_row(kept[0].ids, len(one_query))


@pytest.mark.parametrize("choose", ["hardest", "semi_hard"])
def test_selection_matches_a_loop(choose):
    sampler, one_query, view = source("hardest", choose=choose, k=3), query(60), TableView()
    drawn, pool = pool_of(sampler, one_query, view)
    for i in range(60):
        s, t = view.scores[one_query.context[i]], int(one_query.target[i])
        left = sorted((float(s[j]) for j in pool[i].tolist() if j != t), reverse=True)
        below = [x for x in left if x < float(s[t])]
        above = sorted(x for x in left if x >= float(s[t]))
        expected = left[:3] if choose == "hardest" else (below + above)[:3]
        assert view.scores[one_query.context[i]][drawn.ids[i]].tolist() == pytest.approx(expected)
        assert (drawn.ids[i] != t).all() and drawn.weight[i].tolist() == [1, 1, 1]


def test_top_draws_uniformly_from_the_best_of_the_pool():
    """DNS(M, N): every row chooses 2 of the 5 best of its pool, each equally often."""
    pool = {"source": "every"}
    sampler, rows, view = source("hardest", choose="hardest", top=5, k=2, inner=pool), 4000, TableView()
    drawn = sampler.draw(repeated_query(rows), 2, view)
    s = view.scores[2].clone()
    s[7] = -math.inf                                                                    # the target
    best = s.topk(5).indices
    seen = torch.bincount(drawn.ids.flatten(), minlength=V).double() / rows
    assert seen[best].sum() == pytest.approx(2) and (drawn.ids[:, 0] != drawn.ids[:, 1]).all()
    assert (seen[best] - 2 / 5).abs().max() < 5 * math.sqrt(0.4 * 0.6 / rows)


@looped("settings", [{"max_share": 0.8}, {"min_gap": 0.5}, {"max_share": 0.8, "min_gap": 0.5},
                     {"max_share": 0.8, "top": 6}])
@looped("choose", ["hardest", "semi_hard"])
def test_negatives_are_below_the_limit_of_their_target(choose, settings):
    sampler, one_query, view = source("hardest", choose=choose, k=3, **settings), query(200), TableView()
    drawn, pool = pool_of(sampler, one_query, view)
    s, s_t = view.score(one_query, drawn.ids), view.score(one_query, one_query.target.unsqueeze(1))
    limits = [s_t - 0.2 * s_t.abs()] * ("max_share" in settings) + [s_t - 0.5] * ("min_gap" in settings)
    limit = torch.stack(limits).amin(0)
    s_pool = view.score(one_query, pool)
    n_allowed = ((s_pool < limit) & (pool != one_query.target.unsqueeze(1))).sum(1)
    assert (s[drawn.weight > 0] < limit.expand_as(s)[drawn.weight > 0]).all()
    assert torch.equal(drawn.weight.sum(1), n_allowed.clamp(max=3).float())            # none is left out without need
    assert 0 < (n_allowed < 3).sum() < 200
    if "top" not in settings:
        best = s_pool.masked_fill((s_pool >= limit) | (pool == one_query.target.unsqueeze(1)), -math.inf).topk(3).values
        torch.testing.assert_close(s.masked_fill(drawn.weight == 0, -math.inf), best)


def test_batch_with_too_few_other_targets_is_filled_with_weight_0():
    sampler, one_query = source("hardest", choose="hardest", k=5, inner={"source": "in_batch", "k": 50}), query(4)
    drawn = sampler.draw(one_query, 5, TableView())
    assert drawn.ids.shape == (4, 5) and (drawn.weight[:, 4] == 0).all()         # four targets, one of them its own
    assert (drawn.weight[:, :4].sum(1) == (one_query.target[drawn.ids.new_tensor([range(4)] * 4)]
                                           != one_query.target.unsqueeze(1)).sum(1)).all()


@pytest.mark.parametrize("settings, says", [
    ({"k": V + 1, "inner": {"source": "every"}}, rf"{V + 1} negatives cannot be chosen from a pool of {V}; draw"),
    ({"top": 3, "k": 4}, r"negatives\.top: 3: at least the 4 of negatives\.k, and at most the 12 of the pool"),
    ({"choose": "violation", "min_gap": 1.0}, r"negatives\.min_gap: violation takes the first"),
    ({"k": 1, "inner": {"source": "synthetic_difference", "k": 1}}, "synthetic_difference does not draw a pool"),
])
def test_unsuitable_pools_are_rejected(settings, says):
    with pytest.raises(UsageError, match=says):
        source("hardest", **settings)


def test_unavoidable_target_has_weight_0():
    sampler = source("hardest", k=40, inner={"source": "uniform", "k": 40, "replacement": False})
    drawn = sampler.draw(query(8), 40, TableView())                # all candidates, including the target
    own = drawn.ids == query(8).target.unsqueeze(1)
    assert own.sum() == 8 and (drawn.weight[own] == 0).all() and (drawn.weight[~own] == 1).all()
    assert (drawn.total_weight == 39).all()


def test_violations_are_the_first_and_have_the_weight_of_their_rank():
    sampler, one_query, view = source("hardest until a violation", k=2), query(80), TableView()
    drawn, pool = pool_of(sampler, one_query, view)
    none = 0
    for i in range(80):
        s, t = view.scores[one_query.context[i]], int(one_query.target[i])
        for j, tries in enumerate((pool[i, :12], pool[i, 12:])):
            tries = [y for y in tries.tolist() if y != t]
            result = next((n for n, y in enumerate(tries) if s[y] > s[t] - 1), None)
            if result is None:
                none += 1
                assert drawn.weight[i, j] == 0
                continue
            rank = (V - 1) // (result + 1)
            assert int(drawn.ids[i, j]) == tries[result]
            assert float(drawn.weight[i, j]) == pytest.approx(sum(1 / r for r in range(1, rank + 1)), rel=1e-5)
    assert 0 < none < 100
    torch.testing.assert_close(drawn.total_weight[:, 0], drawn.weight.sum(1))


@pytest.mark.parametrize("target", [3, 7, 20])
def test_rank_estimate_has_the_mean_of_its_law(target):
    """N ~ geometric(rank / (n − 1)) cut at 24 draws; mean weight against the sum over N."""
    sampler, view, rows = source("hardest until a violation", k=1), TableView(), 20_000
    drawn = sampler.draw(repeated_query(rows, target=target), 1, view)
    s = view.scores[2]
    violate = (s > s[target] - 1)
    violate[target] = False
    p, phi = int(violate.sum()) / (V - 1), [0.0]
    for r in range(1, V):
        phi.append(phi[-1] + 1 / r)
    # Draws of the target (1 in V) are not tries: tries in 24 draws are binomial, so the law is cut slightly earlier.
    tries = [math.comb(24, n) * (1 - 1 / V) ** n * (1 / V) ** (24 - n) for n in range(25)]
    mean = sum(chance * sum(p * (1 - p) ** (n - 1) * phi[(V - 1) // n] for n in range(1, most + 1))
               for most, chance in enumerate(tries))
    assert abs(float(drawn.weight.mean()) - mean) < 4 * float(drawn.weight.std()) / math.sqrt(rows)


# ---- mixture ------------------------------------------------------------------------------------------------------


def test_mixture_density_does_not_depend_on_the_component():
    sampler, one_query, view = trained(source("mixture")), query(), TableView()
    drawn = sampler.draw(one_query, 4, view)
    inner_q, plain_q = sampler.inner.log_prob(one_query, EVERYONE), sampler.plain.log_prob(one_query, EVERYONE)
    whole = 0.9 * inner_q.double().exp() + 0.1 * plain_q.exp()
    torch.testing.assert_close(sampler.log_prob(one_query, EVERYONE).double().exp(), whole, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(drawn.log_q.double().exp(), whole.gather(1, drawn.ids), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(drawn.log_q_target.double().exp(), whole.gather(1, one_query.target[:, None])[:, 0],
                               atol=1e-6, rtol=1e-4)
    assert float((1 / drawn.log_q.exp()).max()) <= float(1 / (0.1 * sampler.plain.log_q.exp().min())) + 1


def test_each_component_draws_its_share_from_its_own_density():
    sampler, view, one_query = trained(source("mixture", epsilon=0.3, k=10)), TableView(), repeated_query(6000)
    drawn = sampler.draw(one_query, 10, view)
    by_plain = drawn.origin == NOISE
    assert abs(float(by_plain.double().mean()) - 0.3) < 5 * math.sqrt(0.21 / 60_000)
    assert set(drawn.origin.unique().tolist()) == {NOISE, GENERATOR}
    for who, one in ((by_plain, sampler.plain), (~by_plain, sampler.inner)):
        seen = torch.bincount(drawn.ids[who], minlength=V).double() / who.sum()
        p = one.log_prob(one_query.rows(slice(0, 1)), EVERYONE).double().exp().expand(1, V)[0]
        assert (seen - p).abs().max() < 5 * math.sqrt(0.25 / float(who.sum()))


def test_inner_adversary_learns_from_its_own_negatives_only():
    sampler, view, one_query = source("mixture of an adversary and uniform"), TableView(), query(60)
    received: list[Negatives] = []

    def record(q, drawn, cost):
        received.append(drawn)
        return {"learned": 1.0}

    sampler.inner.learn = record
    assert sampler.traits.learns
    drawn = mark_false_negatives(sampler.draw(one_query, 4, view), one_query, "target", None)
    assert sampler.learn(one_query, drawn, torch.ones(60, drawn.k)) == {"learned": 1.0}
    plain = drawn.origin == NOISE
    assert plain.any() and (received[0].origin[plain] == PROBE).all()
    assert (received[0].origin[:, :4][~plain[:, :4]] != PROBE).all() and (received[0].origin[:, 4] == PROBE).all()
    assert (drawn.weight.expand(60, 5)[:, 4] == 0).all() and not plain[:, 4].any()


def test_floor_share_of_inner_source_is_reported():
    sampler = source("mixture", inner={"source": "rff", "features": 4, "nu": 50.0})
    one_query, view = query(), TableView()
    assert sampler.floored_fraction is None
    sampler.draw(one_query, 4, view)
    assert sampler.floored_fraction == sampler.inner.floored_fraction > 0


@pytest.mark.parametrize("name", ["resampled", "hardest"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_vectors_that_are_not_finite_are_rejected(name, value):
    sampler, one_query, view = source(name), query(), TableView()
    view.scores[:] = value
    with pytest.raises(UsageError, match="are not finite, so nothing can be drawn"):
        sampler.draw(one_query, 3, view)


def test_random_streams_of_components_differ():
    """One seed for both would draw equal numbers: the component of a negative would reveal its value."""
    sampler = source("mixture of an adversary and uniform", inner={"source": "uniform"}, epsilon=0.5)
    a, b = (one.draw(query(), 4, TableView()).ids for one in (sampler.inner, sampler.plain))
    assert not torch.equal(a, b)
    seeds = {one.problem.seed for one in (sampler, sampler.inner, sampler.plain)}
    assert len(seeds) == 3


# ---- state and errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in CASES if c.split()[0] in ("resampled", "hardest")])
def test_rows_are_selected_in_chunks(case, monkeypatch):
    whole = source(case).draw(query(), 4, TableView())
    monkeypatch.setattr(inner, "MAX_SCORES", 100)
    some = source(case).draw(query(), 4, TableView())
    assert torch.equal(whole.ids, some.ids) and torch.equal(whole.total_weight, some.total_weight)
    torch.testing.assert_close((some.log_q, some.weight), (whole.log_q, whole.weight))


@pytest.mark.parametrize("name", ["resampled", "hardest", "mixture"])
def test_inner_source_receives_the_model(name):
    sampler, view, received = source(name, k=12, inner={"source": "cluster", "clusters": 5, "k": 12}), TableView(), []
    sampler.inner.prepare_log_prob = sampler.inner.on_epoch_start = received.append
    sampler.prepare_log_prob(view)
    sampler.on_epoch_start(view)
    assert received == [view, view] and sampler.traits.geometry == sampler.inner.traits.geometry != frozenset()


@looped("case", [c for c in CASES if c.split()[0] in ("resampled", "hardest", "mixture")])
def test_inner_state_is_saved_with_the_source(case):
    view = TableView()
    a = trained(source(case), 7)
    fresh = source(case, seed=8)
    fresh.load_state_dict(a.state_dict())
    for seed in range(3):
        one, two = a.draw(query(seed=seed), 4, view), fresh.draw(query(seed=seed), 4, view)
        assert torch.equal(one.ids, two.ids)
        assert (one.log_q is None) == (two.log_q is None) and (one.log_q is None or torch.equal(one.log_q, two.log_q))


@looped("case, settings, says", [
    ("mixture", {"inner": {"source": "none"}}, r"negatives.inner: none with these settings does not draw"),
    ("mixture", {"inner": {"source": "resampled"}}, r"negatives.inner: resampled with these settings"),
    ("mixture", {"inner": {"source": "cluster", "exclude_target": True}}, r"negatives.inner: .* exclude_target: false"),
    ("mixture", {"plain": {"source": "ace", "min_perplexity": 4}}, r"negatives.plain.source: ace depends on the model"),
    ("mixture", {"inner": {"source": "clustre"}}, r"^negatives.inner.source: there is no 'clustre' \(did you mean"),
    ("mixture", {"inner": {"source": "cluster", "clusterz": 3}}, r"^negatives\.inner\.clusterz: unknown key"),
    ("mixture", {"inner": {"source": "cluster", "k": 9}}, r"negatives.inner.k: .* remove it"),
    ("mixture", {"k": 50, "plain": {"source": "uniform", "replacement": False}},
     r"^negatives\.k: 50 negatives .* set negatives\.plain\.replacement: true$"),
    ("hardest", {"inner": {"source": "mixture", "k": 50, "plain": {"source": "uniform", "replacement": False}}},
     r"^negatives\.inner\.k: 50 negatives .* set negatives\.inner\.plain\.replacement: true$"),
    ("mixture", {"inner": {"source": "exp", "share_draws_by": "block"}}, r"^negatives\.inner\.share_draws_by: exp"),
    ("mixture", {"plain": {"source": "uniform", "replacement": False, "total_weight": 3}},
     r"^negatives\.plain\.total_weight: .* set negatives\.plain\.total_weight: null$"),
    ("hardest", {"inner": {"source": "mixture", "inner": {"source": "exp", "replacement": False}}},
     r"^negatives\.inner\.inner\.replacement: exp"),
    ("mixture", {"plain": {"source": "unigram", "exponent": "negatives.k"}},
     r"^negatives\.plain\.exponent: .*, got 'negatives\.k'$"),
    ("hardest", {"inner": {"source": "mixture", "plain": {"source": "unigram", "exponent": "x negatives.k"}}},
     r"^negatives\.inner\.plain\.exponent: .*, got 'x negatives\.k'$"),
    ("mixture", {"inner": {"source": "a negatives.k"}}, r"^negatives\.inner\.source: there is no 'a negatives\.k'"),
    ("candidates", {"fallback": {"source": "unigram", "counted": "after"}},
     r"^negatives\.fallback\.counted: renamed to negatives\.fallback\.counts \("),
    ("hardest", {"inner": {"source": "mixture", "inner": {"source": "cluster", "inside": 1}}},
     r"negatives\.inner\.inner\.inside: renamed to negatives\.inner\.inner\.within_cell"),
    ("mixture", {"inner": {"source": "/tmp/negatives.k"}},
     r"^negatives\.inner\.source: there is no '/tmp/negatives\.k'"),
    ("mixture", {"inner": {"source": 3}}, r"negatives.inner.source: should be the name of a source, got 3"),
    ("mixture", {"share_draws_by": "batch"}, r"negatives.share_draws_by"),
    ("resampled", {"inner": {"source": "hardest"}}, r"negatives.inner.source: hardest states no probabilities"),
    ("resampled", {"replacement": False}, r"negatives.replacement"),
    ("resampled", {"inner": {"source": "unigram", "k": 0}}, r"^negatives\.inner\.k: should be greater"),
    ("hardest", {"k": 13}, r"negatives.k: 13 negatives cannot be chosen from a pool of 12"),
    ("hardest", {"choose": "violation", "inner": {"source": "unigram", "k": 9}}, r"estimates ranks by uniform"),
    ("hardest", {"inner": {"source": "none"}}, r"none does not draw a pool"),
])
def test_invalid_settings_are_one_line(case, settings, says):
    with pytest.raises(UsageError, match=says) as raised:
        source(case, **settings)
    assert len(str(raised.value).splitlines()) == 1


NESTED_EXP = {"hardest": {"source": "exp", "k": 12},
              "mixture": {"source": "mixture", "inner": {"source": "exp", "exclude_target": False}}}


@pytest.mark.parametrize("outer, key", [("hardest", "inner"), ("mixture", "inner.inner")])
def test_errors_after_the_construction_name_the_place_of_the_inner_source(outer, key):
    sampler, view = source(outer, inner=NESTED_EXP[outer]), TableView(math.inf)
    place = rf"^negatives\.{key}\.source: exp"
    with pytest.raises(UsageError, match=f"{place}: the model's scores are not finite"):
        sampler.draw(query(), 4, view)
    if outer == "mixture":
        with pytest.raises(UsageError, match=f"{place} has not been fitted to the model yet"):
            source(outer, inner=NESTED_EXP[outer]).log_prob(query(), EVERYONE)


def test_inner_source_has_its_own_settings_and_seed():
    sampler = inner.build_nested({"source": "unigram", "exponent": 0.5}, "inner", 6, tiny_problem())
    assert sampler.config.k == 6 and sampler.config.exponent == 0.5 and sampler.problem.seed != tiny_problem().seed
    assert inner.build_nested({"source": "unigram"}, "plain", 6,
                              replace(tiny_problem(), seed=3)).problem.seed != sampler.problem.seed


@pytest.mark.parametrize(("text", "sets", "line"), [
    ("{source: hardest, inner: {source: unigram, exponent: high}}", [],
     "own.yaml:2:55: negatives.inner.exponent: should be a valid number, got 'high'"),
    ("{source: mixture, plain: {source: uniform, expo: 3}}", [], "own.yaml:2:55: negatives.plain.expo: unknown key"),
    ("{source: hardest, inner: {source: uniform, counted: after}}", [],
     "own.yaml:2:55: negatives.inner.counted: renamed to "),
    ("{source: mixture, inner: {source: hardest, inner: {source: unigram, exponent: high}}}", [],
     "own.yaml:2:80: negatives.inner.inner.exponent: should be a valid number, got 'high'"),
    ("{source: candidates, file: f, fallback: {source: unigram, exponent: high}}", [],
     "own.yaml:2:70: negatives.fallback.exponent: should be a valid number, got 'high'"),
    ("{source: hardest, inner: {source: unigram}}", ["negatives.inner.exponent=high"],
     "--set negatives.inner.exponent=high: negatives.inner.exponent: should be a valid number, got 'high'"),
    ("{source: hardest, inner: {source: nosuch}}", [], "own.yaml:2:38: negatives.inner.source: there is no 'nosuch'; "),
    ("{source: hardest, inner: {source: unigrm}}", [],
     "own.yaml:2:38: negatives.inner.source: there is no 'unigrm' (did you mean 'unigram'?); there are: "),
    ("{source: hardest, inner: {source: 3}}", [], "own.yaml:2:38: negatives.inner.source: should be the name of a"),
    ("{source: mixture, inner: {source: hardest, inner: {source: sgns}}}", [],
     "own.yaml:2:63: negatives.inner.inner.source: there is no 'sgns': it is a strategy; its source is unigram; "),
    ("{source: resampled, inner: {source: nosuch}}", [], "own.yaml:2:40: negatives.inner.source: there is no 'nosuch'"),
    ("{source: mixture, plain: {source: [uniform]}}", [], "own.yaml:2:38: negatives.plain.source: should be the name "),
    ("{source: candidates, file: f, fallback: {source: unigra}}", [],
     "own.yaml:2:53: negatives.fallback.source: there is no 'unigra' (did you mean 'unigram'?)"),
    ("{source: mixture, k: 3, inner: {source: unigram, k: 5}}", [],
     "own.yaml:2:61: negatives.inner.k: it always equals negatives.k, 3; remove it"),
    ("{source: mixture, inner: {source: hardest, k: 5, inner: {source: mixture, k: 3, plain: {k: 4}}}}", [],
     "own.yaml:2:100: negatives.inner.inner.plain.k: it always equals negatives.inner.inner.k, 3; remove it"),
    ("{source: hardest}", ["negatives.inner.source=nosuch"],
     "--set negatives.inner.source=nosuch: negatives.inner.source: there is no 'nosuch'; there are: "),
    ("{source: hardest, inner: {source: unigram, exponent: 0.5, k: 7}}", [], None)])
def test_a_wrong_value_of_a_source_inside_another_has_its_place(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sets: list[str], line: str | None) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(f"# a strategy\nnegatives: {text}\n")
    if line is None:
        assert vars(resolve("own.yaml").negatives)["inner"]["k"] == 7
        return
    with pytest.raises(UsageError) as wrong:
        resolve("own.yaml", sets=sets)
    assert len(wrong.value.args) == 1 and str(wrong.value).startswith(line)
