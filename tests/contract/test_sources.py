"""What every negative source owes. Sources are found by walking the package; each has cases in source_worlds.CASES."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from source_worlds import CASES, CONTEXTS, OF_PAIRS, VECTORS, TableView, V, paired, query, source, taught, world

from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import UsageError
from embtrain.common.types import PROBE, Negatives, Query
from embtrain.negatives import base
from embtrain.negatives.softmax.kernels.base import KernelSource

IDS = [case for case in CASES if case not in VECTORS]  # vectors have test_continuous.py
DRAWING = [case for case in CASES if case != "none"]
EXACT = [case for case in DRAWING if source(case).density == "exact"]
CONDITIONAL = [case for case in DRAWING if source(case).density == "conditional"]
SAMPLED = [case for case in EXACT if not source(case).exhaustive]  # the others draw all, there are no frequencies
LEARNERS = [case for case in DRAWING if source(case).learns]
WITHOUT = [case for case in CONDITIONAL if getattr(source(case).config, "exclude_target", False)]
OF_OTHERS = [case for case in DRAWING if case.split()[0] == "in_batch"]   # negatives are the other rows' targets
TESTS = 3 * len(EXACT) + len(CONDITIONAL) + len(WITHOUT)  # sampling tests here: each rejects below .001 / TESTS
WANTED = 100_000                                 # draws of each sampling test


def as_drawn(drawn: Negatives, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids, weight (0 for probes) and log q, one line a row: (n, K) each."""
    ids = drawn.per_row(drawn.ids, n)
    weight = drawn.per_row(drawn.weight, n)
    weight = torch.ones_like(ids, dtype=torch.float64) if weight is None else weight.double()
    log_q = drawn.per_row(drawn.log_q, n)
    return ids, weight, log_q if log_q is None else log_q.double()


def test_every_source_has_a_case_and_every_case_a_source():
    assert {case.split()[0] for case in CASES} == set(base.names())


@pytest.mark.parametrize("name", base.names())
def test_it_has_an_equation_a_reference_and_a_strategy(name):
    module = inspect.getmodule(base.find(name))
    assert module is not None and module.__doc__
    used = {read_yaml(shipped.path("configs", s, "strategies")).tree["negatives"]["source"]
            for s in shipped.names("configs", "strategies")}
    assert name in used
    if name != "none":
        assert "=" in module.__doc__ or "∝" in module.__doc__


@pytest.mark.parametrize("name", base.names())
def test_what_it_cannot_share_or_draw_without_replacement_is_refused(name):
    found, case = base.find(name), next(case for case in CASES if case.split()[0] == name)
    fixed = CASES[case].keys() & {"share", "replacement"}
    assert not fixed and "row" in found.sharing_modes
    for share in ("row", "window", "block", "batch"):
        if share not in found.sharing_modes:
            with pytest.raises(UsageError, match=f"^negatives.share_draws_by: {name} .*, so '{share}' is not "
                                                 f"possible; use row"):
                source(case, share_draws_by=share)
        elif share != "window" or not getattr(found.Config.model_fields.get("exclude_target"), "default", False):
            keys = {"baseline": "leave_one_out"} if (name, share) == ("ace", "batch") else {}  # no probe a row
            of, view = taught(source(case, share_draws_by=share, **keys)), TableView()
            drawn = of.draw(query(), of.config.k, view)
            assert drawn.k >= 0 and (drawn.ids is None or len(drawn.ids) <= len(query()))
    if found.supports_without_replacement:
        assert all(len(set(line)) == 4 for line in source(case, replacement=False).draw(
            query(), 4, TableView()).ids.tolist())
    else:
        with pytest.raises(UsageError, match=f"^negatives.replacement: {name} cannot draw without replacement"):
            source(case, replacement=False)


@pytest.mark.parametrize("case", IDS)
def test_shapes_dtypes_bounds_and_no_gradient(case):
    of, view = taught(source(case)), TableView()
    for rows, k in ((30, 4), (1, 4), (30, 1), (1, 1)):
        asked = query(rows)
        drawn = source(case, k=k).draw(asked, k, view) if not of.learns else of.draw(asked, k, view)
        n_draws = drawn.ids.shape[0]
        assert drawn.ids.dtype == torch.int64
        assert n_draws in (1, rows) or drawn.draw_id is not None
        assert ((drawn.ids >= 0) & (drawn.ids < V)).all()
        for value in (drawn.log_q, drawn.weight, drawn.origin, drawn.total_weight, drawn.log_q_target):
            assert value is None or not value.requires_grad
        for value in (drawn.log_q, drawn.weight, drawn.origin):
            if value is not None:
                torch.broadcast_to(value, drawn.ids.shape)
        if drawn.draw_id is not None:
            assert drawn.draw_id.shape == (rows,) and int(drawn.draw_id.max()) + 1 == n_draws
        if drawn.log_q_target is not None:
            assert drawn.log_q_target.shape == (rows,)
        if case != "none":
            assert drawn.total_weight.shape in ((1, 1), (rows, 1))
            assert float(drawn.total_weight.min()) > 0 or (
                of.density == "none" and float(drawn.total_weight.min()) == 0
            )
            if rows == 1 and case in OF_OTHERS:               # alone: no noise, and a mass that has a logarithm
                assert drawn.false_negatives.tolist() == [[0], [0]] and float(drawn.total_weight) == 1
                continue
            _, weight, _ = as_drawn(drawn, rows)
            if drawn.false_negatives is not None:                      # what the source itself calls right is no noise
                weight = weight.clone()
                weight[drawn.false_negatives[0], drawn.false_negatives[1]] = 0
            torch.testing.assert_close(weight.sum(1).float(), drawn.total_weight.float().expand(rows, 1)[:, 0])


@pytest.mark.parametrize("case", EXACT)
def test_probabilities_sum_to_one_and_are_those_reported(case):
    of, asked = taught(source(case)), query()
    everyone = torch.arange(V).unsqueeze(0)
    log_p = of.log_prob(asked, everyone).double().expand(len(asked), V)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(len(asked), dtype=torch.float64), atol=1e-5, rtol=0)
    drawn = of.draw(asked, of.config.k, TableView())
    ids, _, log_q = as_drawn(drawn, len(asked))
    torch.testing.assert_close(log_p.gather(1, ids), log_q, atol=1e-5, rtol=0)
    torch.testing.assert_close(log_p.gather(1, asked.target.unsqueeze(1))[:, 0], drawn.log_q_target.double(), atol=1e-5,
                               rtol=0)


def draws_of_one_question(case: str, of: base.NegativeSource, context: int) -> Query:
    """Enough rows that ask the same question, no two of which share a draw."""
    rows = WANTED // of.config.k
    asked = query(1)
    return Query(asked.vector.expand(rows, -1), torch.full((rows,), context), torch.zeros(rows, dtype=torch.int64),
                 torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, dtype=torch.int64), torch.arange(rows))


@pytest.mark.parametrize("context", [0, 4])
@pytest.mark.parametrize("case", SAMPLED)
def test_it_draws_with_the_probability_that_it_reports(case, context):
    of, view = taught(source(case)), TableView()
    asked = draws_of_one_question(case, of, context)
    if of.config.share_draws_by in ("batch", "block"):
        drawn = of.draw(asked.rows(slice(0, 1)), WANTED, view)
    else:
        drawn = of.draw(asked, of.config.k, view)
    ids = drawn.ids
    weight = torch.ones(1, ids.shape[1], dtype=torch.float64) if drawn.weight is None \
        else drawn.weight.double().expand(-1, ids.shape[1])
    counted = torch.bincount(ids.flatten(), weight.expand(ids.shape).flatten(), minlength=V)
    variance_scale = float(weight.square().sum() / weight.sum())
    p = of.log_prob(asked.rows(slice(0, 1)), torch.arange(V).unsqueeze(0)).double().exp()[0]
    p = p / p.sum()
    expected, seen = binned(p, counted)
    chi2 = float(((seen - expected).square() / expected).sum()) / variance_scale
    assert expected.min() >= 50
    # Columns of both are two strata, which vary less than draws from the mixture: the bound holds all the more.
    assert stats.chi2.sf(chi2, len(expected) - 1) > 0.001 / TESTS


def binned(p: torch.Tensor, counted: torch.Tensor) -> list[torch.Tensor]:
    """Expected and seen, rare ids put together until a cell expects at least 50."""
    order = p.argsort()
    expected, seen = (p * counted.sum())[order], counted[order]
    edges, total, cell = [], 0.0, torch.zeros(len(p), dtype=torch.int64)
    for i, e in enumerate(expected.tolist()):
        cell[i] = len(edges)
        total += e
        if total >= 50:
            edges.append(i)
            total = 0.0
    cell.clamp_(max=len(edges) - 1)
    return [torch.zeros(len(edges), dtype=torch.float64).index_add_(0, cell, x) for x in (expected, seen)]


@pytest.mark.parametrize("case", EXACT + CONDITIONAL)
def test_weighted_draws_estimate_a_sum_over_candidates(case):
    """E Σ_j w_j f(id_j) / (mass q_j) = Σ_id f(id), within its standard error."""
    of, view = taught(source(case)), TableView()
    f = torch.rand(V, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    rows, estimates = 60, []
    asked = query(rows)
    for _ in range(200):
        drawn = of.draw(asked, of.config.k, view)
        ids, weight, log_q = as_drawn(drawn, rows)
        terms = torch.where(weight > 0, weight * f[ids] / (drawn.total_weight.double() * log_q.exp()), 0.0)
        estimates.append(terms.sum(1).mean())                # shared draws are one estimate a batch, so is the mean
    estimates = torch.stack(estimates)
    there = f.sum() - f[asked.target] if case in WITHOUT else f.sum()
    error = float(estimates.mean() - there.mean())
    if of.exhaustive:
        assert abs(error) < 1e-4
        return
    z = error / float(estimates.std() / math.sqrt(len(estimates)))
    assert 2 * stats.norm.sf(abs(z)) > 0.001 / TESTS


@pytest.mark.parametrize("case", CONDITIONAL)
def test_a_conditional_draw_has_no_density_of_the_target(case):
    of = source(case)
    drawn = of.draw(query(), 4, TableView())
    assert drawn.log_q_target is None
    assert of.config.replacement or all(len(set(line.tolist())) == 4 for line in drawn.ids)


@pytest.mark.parametrize("case", WITHOUT)
def test_an_excluded_target_is_never_drawn_and_the_others_share_what_it_had(case):
    of, plain, view = taught(source(case)), taught(source(case, exclude_target=False)), TableView()
    asked = query(400)
    ids = of.draw(asked, 16, view).ids
    assert not (ids == asked.target.unsqueeze(1)).any()
    everyone = torch.arange(V).unsqueeze(0)
    log_q, whole = of.log_prob(asked, everyone).double(), plain.log_prob(asked, everyone).double()
    own = torch.nn.functional.one_hot(asked.target, V).bool()
    assert (log_q[own] == -math.inf).all()
    if isinstance(of, KernelSource) and of.name != "quadratic":
        return  # a tree takes the target from its nodes' masses, and floors what is left: that is not q / (1 - q_t)
    without = whole - torch.log1p(-whole[own].exp()).unsqueeze(1)
    torch.testing.assert_close(log_q[~own], without[~own], atol=1e-4, rtol=0)


@pytest.mark.parametrize("case", [case for case in WITHOUT if source(case).config.share_draws_by == "row"])
def test_without_the_target_it_draws_with_the_probability_that_it_reports(case):
    of, view = taught(source(case)), TableView()
    asked = replace(draws_of_one_question(case, of, 4), target=torch.full((WANTED // of.config.k,), 7))
    counted = torch.bincount(of.draw(asked, of.config.k, view).ids.flatten(), minlength=V).double()
    p = of.log_prob(asked.rows(slice(0, 1)), torch.arange(V).unsqueeze(0)).double().exp()[0]
    expected, seen = binned(p, counted)
    assert stats.chi2.sf(float(((seen - expected).square() / expected).sum()), len(expected) - 1) > 0.001 / TESTS


@pytest.mark.parametrize("case", EXACT)
def test_rows_do_not_mix(case):
    of, asked = taught(source(case)), query()
    order = torch.randperm(len(asked), generator=torch.Generator().manual_seed(2))
    if of.learns_per_row:                                            # rows of a group share a q: they stay together
        order = order[asked.window[order].argsort(stable=True)]
    ids = torch.randint(V, (len(asked), 7), generator=torch.Generator().manual_seed(3))
    here = of.log_prob(asked, ids).expand(len(asked), 7)
    there = of.log_prob(asked.rows(order), ids[order]).expand(len(asked), 7)
    torch.testing.assert_close(there, here[order])


@pytest.mark.parametrize("case", IDS)
def test_same_seed_same_draws_and_the_state_resumes_the_stream(case):
    view = TableView()
    a, b, other = taught(source(case)), taught(source(case)), taught(source(case, seed=4))
    assert torch.equal(a.draw(query(), 4, view).ids, b.draw(query(), 4, view).ids)
    state = a.state_dict()
    state = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
    fresh = source(case, seed=11)
    first = a.draw(query(seed=7), 4, view)
    fresh.load_state_dict(state)
    again = fresh.draw(query(seed=7), 4, view)
    assert torch.equal(first.ids, again.ids)
    if first.log_q is not None:
        assert torch.equal(first.log_q, again.log_q)
    if case not in ("every", "none", "most_informative"):    # they have no chance in them
        assert not torch.equal(b.draw(query(), 4, view).ids, other.draw(query(), 4, view).ids)


@pytest.mark.parametrize("case", CASES)
def test_the_model_is_left_alone(case):
    view = TableView()
    scores, table = view.scores.clone(), view.table().clone()
    of = taught(source(case))
    asked = query()
    vector = asked.vector.clone()
    of.draw(asked, 4, view)
    of.on_epoch_start(view)
    assert torch.equal(view.scores, scores) and torch.equal(view.table(), table) and torch.equal(asked.vector, vector)


class Blind:
    """A view that shows nothing."""

    def __getattr__(self, name: str) -> None:
        raise AssertionError(f"it declares looks = False, and asked the view for {name}")


@pytest.mark.parametrize("case", [case for case in CASES if not source(case).uses_model])
def test_what_does_not_look_needs_nothing_to_look_at(case):
    """The fused engine builds no vectors for it."""
    asked = query()
    unseen, found = replace(asked, vector=asked.vector[:, :0]), []
    for question, view in ((asked, TableView()), (unseen, Blind())):
        of = taught(source(case))
        drawn = of.draw(question, of.config.k, view)
        shape = (len(question), drawn.k) if of.learns_per_row else drawn.ids.shape
        told = of.learn(question, drawn, torch.ones(shape)) if of.learns else {}
        found.append([drawn.ids, drawn.log_q, drawn.log_q_target, of.draw(question, of.config.k, view).ids, told])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


@pytest.mark.parametrize("case", DRAWING)
def test_a_mass_is_shared_among_the_columns_or_refused(case):
    of = source(case)
    if not of.supports_total_weight or not of.config.replacement:
        with pytest.raises(UsageError, match=r"negatives\.total_weight"):
            source(case, total_weight=2.5)
        return
    plain, drawn = (source(case, total_weight=mass).draw(query(), 4, TableView()) for mass in (4.0, 2.5))
    ids, weight, log_q = as_drawn(drawn, 30)
    same_ids, before, same_q = as_drawn(plain, 30)
    assert torch.equal(ids, same_ids) and torch.equal(log_q, same_q)
    torch.testing.assert_close(weight, before * 2.5 / 4, rtol=1e-6, atol=0)
    assert drawn.total_weight.flatten().tolist() == [2.5]


@pytest.mark.parametrize("windows", [True, False])
def test_a_block_is_of_windows_where_there_are_some(windows):
    asked = query(30) if windows else replace(query(30), window=None)
    n, group = source("unigram shared by blocks", share_size=3).draw_layout(asked)
    of = asked.window.tolist() if windows else list(range(30))
    assert group.tolist() == [sorted(set(of)).index(w) // 3 for w in of] and n == int(group.max()) + 1


@pytest.mark.parametrize("case", [case for case in LEARNERS if case in EXACT])
def test_what_it_learns_moves_it_towards_the_costly_answers(case):
    """At least .5 nats from uniform, and its mass lies on answers that cost the model more than noise does."""
    fresh, of = source(case), taught(source(case))
    asked = query(CONTEXTS, contexts=CONTEXTS)
    asked = replace(asked, context=torch.arange(CONTEXTS), query_id=torch.arange(CONTEXTS))
    everyone = torch.arange(V).unsqueeze(0)
    # One at a time: a q that rows share is that of them all.
    log_p, before = (torch.cat([x.log_prob(asked.rows(slice(i, i + 1)), everyone) for i in range(CONTEXTS)]).double()
                     for x in (of, fresh))
    from_uniform = (log_p.exp() * (log_p + math.log(V))).sum(1).mean()
    cost = torch.nn.functional.softplus(TableView().scores).double()
    assert float(from_uniform) > 0.5
    assert float((log_p.exp() * cost).sum(1).mean()) > float((before.exp() * cost).sum(1).mean()) + 0.5


@pytest.mark.parametrize("case", [case for case in OF_PAIRS if case not in EXACT])
def test_what_it_draws_later_costs_more(case):
    """The same of those that state no probability of every candidate."""
    fresh, of, view = source(case), taught(source(case), steps=150), TableView()
    asked = query(400)
    cost = [float(torch.nn.functional.softplus(view.score(asked, drawn.per_row(drawn.ids, len(asked)))).mean())
            for drawn in (each.draw(asked, 4, view) for each in (fresh, of))]
    assert cost[1] > cost[0] + 0.5


PAIRS = replace(world(), n_contexts=None, context_sizes=(3, 2))


@pytest.mark.parametrize("case", OF_PAIRS)
def test_contexts_of_two_columns_are_as_good_as_one(case):
    """An entity and a relation: draws, probabilities, learning and state."""
    of, view = taught(source(case, of=PAIRS), steps=150), TableView()
    asked = query(3000)
    asked = replace(asked, context=paired(asked.context))
    state = of.state_dict()
    drawn = of.draw(asked, 4, view)
    ids = drawn.per_row(drawn.ids, len(asked))
    plain = source(case, of=PAIRS).draw(asked, 4, view)
    cost = [view.score(asked, x).clamp(min=0).mean() for x in (plain.per_row(plain.ids, len(asked)), ids)]
    assert float(cost[1]) > float(cost[0]) + 0.3
    if case in EXACT:
        log_p = of.log_prob(asked, torch.arange(V).unsqueeze(0)).double().expand(len(asked), V)
        torch.testing.assert_close(log_p.exp().sum(1), torch.ones(len(asked), dtype=torch.float64), atol=1e-5, rtol=0)
        torch.testing.assert_close(log_p.gather(1, ids), drawn.per_row(drawn.log_q, len(asked)).double(), atol=1e-5,
                                   rtol=0)
        row = {tuple(x): i for i, x in enumerate(asked.context.tolist())}
        spread = {x: of.log_prob(asked.rows(slice(i, i + 1)), torch.arange(V).unsqueeze(0))[0] for x, i in row.items()}
        assert float((spread[0, 0] - spread[2, 1]).abs().max()) > 0.5    # another question, another distribution
        columns = [float((spread[0, 0] - spread[other]).abs().max()) for other in ((0, 1), (1, 0))]
        # Without the entropy hinge it settles on few answers, and one column is enough to tell which.
        assert (max if "without entropy" in case else min)(columns) > 0.1
    fresh = source(case, seed=11, of=PAIRS)
    fresh.load_state_dict(state)
    assert torch.equal(fresh.draw(asked, 4, view).ids, drawn.ids)


@pytest.mark.parametrize("case", LEARNERS)
def test_a_probe_has_no_weight(case):
    of = taught(source(case))
    drawn = of.draw(query(), 4, TableView())
    probes = torch.zeros(1, dtype=torch.bool) if drawn.origin is None else drawn.origin == PROBE
    learner = getattr(of, "inner", of)                       # a mixture passes on what the source inside it probes
    assert bool(probes.any()) == (getattr(learner.config, "baseline", None) == "self_critical")
    if probes.any():
        assert (drawn.weight.expand(drawn.ids.shape)[probes] == 0).all()


def test_the_world_is_not_empty():
    assert world().counts.min() > 0
