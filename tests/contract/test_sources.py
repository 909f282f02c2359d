"""The contract of sources. Sources are found in the package; each has cases in source_worlds.CASES.

The rules are those of embtrain.testing, which also checks sources of other packages.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch
from helpers.looped import looped
from helpers.source_worlds import (
    CASES,
    OF_PAIRS,
    TableView,
    V,
    case_of,
    example,
    paired,
    query,
    source,
    tiny_problem,
    trained,
)

from embtrain.common import shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import UsageError
from embtrain.common.types import PROBE
from embtrain.negatives import base
from embtrain.negatives.base import NegativeSource, grow_source
from embtrain.negatives.softmax.kernels.base import KernelSource
from embtrain.testing import density_rules as density, draw_rules as draws, state_rules as states
from embtrain.testing.case import SourceCase, log_prob_of_all, per_row, q_of_draws
from embtrain.testing.check import RULES
from embtrain.testing.worlds import FEW_STEPS

pytestmark = pytest.mark.long

DRAWING = [case for case in CASES if case != "none"]
EXACT = [case for case in DRAWING if example(case).traits.density == "exact"]
CONDITIONAL = [case for case in DRAWING if example(case).traits.density == "conditional"]
LEARNERS = [case for case in DRAWING if example(case).traits.learns]
MEMORIES = [case for case in DRAWING if case.startswith("memory")]
WITHOUT = [case for case in CONDITIONAL if getattr(example(case).config, "exclude_target", False)]


def cases(rule: Callable[[SourceCase], None]) -> pytest.MarkDecorator:
    """All cases that a rule of embtrain.testing applies to."""
    return pytest.mark.parametrize("case", [case for case in CASES if RULES[rule](example(case))])


def trained_once(snapshots: dict[str, NegativeSource], untrained: NegativeSource, steps: int = 50) -> NegativeSource:
    """A copy of the source that was trained first with these settings: training takes most of the time of a rule."""
    key = f"{steps} {untrained.config.model_dump_json()}"
    if key in snapshots:
        return copy.deepcopy(snapshots[key])
    sampler = trained(untrained, steps)
    try:
        snapshots[key] = copy.deepcopy(sampler)
    except ValueError as error:                                     # trees of features hold pointers of the core
        assert "ctypes" in str(error)
    return sampler


@pytest.fixture(scope="module")
def snapshots() -> dict[str, NegativeSource]:
    return {}


@pytest.fixture
def train_once(snapshots: dict[str, NegativeSource]) -> Iterator[None]:
    """For rules about a source after training. Rules about training itself train each time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (density, draws, states):
            patch.setattr(module, "trained", partial(trained_once, snapshots))
        yield


once = pytest.mark.usefixtures("train_once")


def test_the_significance_level_covers_all_tests_on_samples():
    """Each test rejects below 0.001 divided by the number of tests."""
    exact, excluding = len(EXACT), len(WITHOUT)
    assert 0.001 / (3 * exact + len(CONDITIONAL) + excluding) >= density.SIGNIFICANCE


def test_every_rule_is_checked():
    text = inspect.getsource(inspect.getmodule(cases))
    modules = {draws: "draws", density: "density", states: "states"}
    names = {f"{modules[inspect.getmodule(rule)]}.{rule.__name__}" for rule in RULES}
    assert [name for name in names if f"@cases({name})" not in text or f" {name}(case_of(case))" not in text] == []


def test_every_source_has_a_case_and_every_case_a_source():
    assert {case.split()[0] for case in CASES} == set(base.names())


@looped("name", base.names())
def test_it_has_an_equation_a_reference_and_a_strategy(name):
    module = inspect.getmodule(base.find(name))
    assert module is not None and module.__doc__
    used = {read_yaml(shipped.path("configs", s, "strategies")).tree["negatives"]["source"]
            for s in shipped.names("configs", "strategies")}
    assert name in used
    if name != "none":
        assert "=" in module.__doc__ or "∝" in module.__doc__


@cases(draws.settings)
def test_unsupported_sharing_or_replacement_is_rejected(case):
    draws.settings(case_of(case))


@cases(states.declared_use_of_counts)
def test_a_source_without_counts_draws_the_same_under_other_counts(case):
    states.declared_use_of_counts(case_of(case))


@looped("case", [case for case in DRAWING if example(case).traits.density in ("exact", "estimated")])
def test_counts_of_zero_leave_every_candidate_a_probability(case):
    """In a run, whose held-out data can contain candidates that training lacks."""
    counts = torch.arange(V, dtype=torch.float64)                                       # candidate 0 is not counted
    world = replace(tiny_problem(), counts=counts, raw_counts=counts, floors_counts=True)
    assert (log_prob_of_all(trained(source(case, of=world), FEW_STEPS), query()) > -torch.inf).all()
    if case == "unigram":
        floored = counts.clamp(min=1) ** 0.75
        assert torch.allclose(source(case, of=world).log_q.double().exp(), floored / floored.sum())
    if case == "in_batch":                                                    # it draws the targets that occur
        assert torch.allclose(source(case, of=world).log_q.exp()[1:], counts[1:] / counts.sum())


@once
@cases(draws.shapes)
def test_shapes_dtypes_bounds_and_no_gradient(case):
    draws.shapes(case_of(case))


@once
@cases(density.densities)
def test_probabilities_sum_to_one_and_match_the_reported_ones(case):
    density.densities(case_of(case))


@once
@cases(density.frequencies)
def test_it_draws_with_the_probability_that_it_reports(case):
    density.frequencies(case_of(case))


@once
@cases(density.weighted_estimate)
def test_weighted_draws_estimate_a_sum_over_candidates(case):
    density.weighted_estimate(case_of(case))


@cases(density.conditional)
def test_a_conditional_draw_has_no_density_of_the_target(case):
    density.conditional(case_of(case))


@once
@cases(density.excluded_target)
def test_an_excluded_target_is_never_drawn(case):
    density.excluded_target(case_of(case))


@pytest.mark.parametrize("case", [case for case in WITHOUT if case.split()[0] == "quadratic"
                                  or not isinstance(example(case), KernelSource)])
def test_an_excluded_target_leaves_its_probability_to_the_others(case):
    """q of the others is q / (1 - q_t), except for trees of features, which clamp the remaining node masses."""
    sampler, plain, queries = trained(source(case)), trained(source(case, exclude_target=False)), query(400)
    sampler.draw(queries, 16, TableView())
    plain.draw(queries, 16, TableView())
    all_ids = torch.arange(V).unsqueeze(0)
    log_q, full = sampler.log_prob(queries, all_ids).double(), plain.log_prob(queries, all_ids).double()
    is_target = torch.nn.functional.one_hot(queries.target, V).bool()
    without = full - torch.log1p(-full[is_target].exp()).unsqueeze(1)
    torch.testing.assert_close(log_q[~is_target], without[~is_target], atol=1e-4, rtol=0)


@once
@cases(density.frequencies_without_target)
def test_without_the_target_it_draws_with_the_probability_that_it_reports(case):
    density.frequencies_without_target(case_of(case))


@once
@cases(density.independent_rows)
def test_rows_do_not_mix(case):
    density.independent_rows(case_of(case))


@cases(states.seeds)
def test_equal_seeds_give_equal_draws_and_different_seeds_do_not(case):
    states.seeds(case_of(case))


@once
@cases(states.state)
def test_same_seed_same_draws_and_the_state_resumes_the_stream(case):
    states.state(case_of(case))


@once
@cases(states.evaluation)
def test_an_evaluation_changes_only_the_random_numbers(case):
    states.evaluation(case_of(case))


@once
@cases(states.unchanged_model)
def test_the_model_stays_unchanged(case):
    states.unchanged_model(case_of(case))


@cases(states.declared_use_of_model)
def test_static_sources_need_no_query_vectors(case):
    """The compiled engine builds no query vectors for static sources."""
    states.declared_use_of_model(case_of(case))


@cases(states.masked_costs)
def test_learning_ignores_the_costs_of_false_negatives(case):
    states.masked_costs(case_of(case))


@looped("case", DRAWING)
def test_the_total_weight_is_split_among_negatives_or_rejected(case):
    sampler = source(case)
    if not sampler.traits.supports_total_weight or not sampler.config.replacement:
        with pytest.raises(UsageError, match=r"negatives\.total_weight"):
            source(case, total_weight=2.5)
        return
    plain, drawn = (source(case, total_weight=mass).draw(query(), 4, TableView()) for mass in (4.0, 2.5))
    ids, weight, log_q = per_row(drawn, 30)
    same_ids, before, same_q = per_row(plain, 30)
    assert torch.equal(ids, same_ids) and (log_q is same_q is None or torch.equal(log_q, same_q))
    torch.testing.assert_close(weight, before * 2.5 / 4, rtol=1e-6, atol=0)
    assert drawn.total_weight.flatten().tolist() == [2.5]


@pytest.mark.parametrize("windows", [True, False])
def test_blocks_consist_of_windows_if_there_are_any(windows):
    queries = query(30) if windows else replace(query(30), window=None)
    n, group = source("unigram shared by blocks", share_size=3).draw_layout(queries)
    block_of_row = queries.window.tolist() if windows else list(range(30))
    assert group.tolist() == [sorted(set(block_of_row)).index(w) // 3 for w in block_of_row]
    assert n == int(group.max()) + 1


@once
@cases(states.learning)
def test_learning_moves_it_towards_costly_candidates(case):
    states.learning(case_of(case))


@pytest.mark.parametrize("case", [case for case in OF_PAIRS if case not in EXACT])
def test_later_draws_cost_more(case):
    """The same for sources that report no probability of every candidate."""
    fresh, sampler, view = source(case), trained(source(case), steps=150), TableView()
    queries = query(400)
    cost = [float(torch.nn.functional.softplus(view.score(queries, drawn.per_row(drawn.ids, len(queries)))).mean())
            for drawn in (each.draw(queries, 4, view) for each in (fresh, sampler))]
    assert cost[1] > cost[0] + 0.5


PAIRS = replace(tiny_problem(), n_contexts=None, context_sizes=(3, 2))


@pytest.mark.parametrize("case", OF_PAIRS)
def test_contexts_can_have_two_columns(case):
    """An entity and a relation: draws, probabilities, learning and state."""
    sampler, view = trained(source(case, of=PAIRS), steps=150), TableView()
    queries = query(3000)
    queries = replace(queries, context=paired(queries.context))
    state = sampler.state_dict()
    drawn = sampler.draw(queries, 4, view)
    ids = drawn.per_row(drawn.ids, len(queries))
    plain = source(case, of=PAIRS).draw(queries, 4, view)
    cost = [view.score(queries, x).clamp(min=0).mean() for x in (plain.per_row(plain.ids, len(queries)), ids)]
    assert float(cost[1]) > float(cost[0]) + 0.3
    if case in EXACT:
        log_p = log_prob_of_all(sampler, queries)
        torch.testing.assert_close(log_p.exp().sum(1), torch.ones(len(queries), dtype=torch.float64), atol=1e-5, rtol=0)
        log_q = q_of_draws(sampler, queries, drawn).log().gather(1, drawn.ids)
        # Logits and log Z of ACE are float32 numbers up to 51, of which 8 units in the last place are 3e-5.
        torch.testing.assert_close(log_q, drawn.log_q.double(), atol=3e-5 if case.startswith("ace") else 1e-5, rtol=0)
        spread = {tuple(x): log_p[i] for i, x in enumerate(queries.context.tolist())}
        assert float((spread[0, 0] - spread[2, 1]).abs().max()) > 0.5    # another query, another distribution
        columns = [float((spread[0, 0] - spread[second]).abs().max()) for second in ((0, 1), (1, 0))]
        # Without the entropy hinge it settles on few candidates, and one column is enough to distinguish them.
        assert (max if "without entropy" in case else min)(columns) > 0.1
    fresh = source(case, seed=11, of=PAIRS)
    fresh.load_state_dict(state)
    assert torch.equal(fresh.draw(queries, 4, view).ids, drawn.ids)


@once
@cases(states.probes)
def test_a_probe_has_no_weight(case):
    states.probes(case_of(case))


@pytest.mark.parametrize("case", MEMORIES)
def test_a_memory_is_the_counts_of_the_last_targets(case: str) -> None:
    """Against a list of all targets: q is the share among the last M, mixed with the counts."""
    memory, batch = source(case), query()
    size, epsilon = memory.config.size, memory.config.epsilon
    seen = memory.targets.tolist()
    for step in range(9):
        batch = replace(query(), target=(query().target + step) % V)
        memory.learn(batch, memory.draw(batch, 4, TableView()), torch.zeros(1, 4))
        seen += batch.target.tolist()
        share = torch.bincount(torch.tensor(seen[-size:]), minlength=V) / size
        noise = tiny_problem().counts / tiny_problem().counts.sum()
        q = (1 - epsilon) * share + epsilon * noise
        torch.testing.assert_close(memory.log_prob(batch, torch.arange(V)), q.log().float())
    again = source(case)
    again.load_state_dict(memory.state_dict())
    assert torch.equal(again.draw(batch, 4, TableView()).ids, memory.draw(batch, 4, TableView()).ids)
    assert torch.equal(again.count, memory.count)


def test_a_memory_goes_on_with_other_candidates() -> None:
    """Targets get their new ids, and those that the new run lacks are replaced by draws."""
    earlier, later = source("memory"), source("memory", seed=4)
    row = torch.arange(V).roll(1)                                   # new candidate b was b - 1
    row[5] = -1                                                     # is new; and the earlier one, 4, is gone
    assert grow_source(later, earlier, row) == ""
    kept = earlier.targets != 4
    assert torch.equal(later.targets[kept], (earlier.targets[kept] + 1) % V) and bool((~kept).any())
    assert torch.equal(later.count, torch.bincount(later.targets, minlength=V)) and int(later.count.sum()) == 50


@looped("case", LEARNERS)
def test_only_a_self_critical_baseline_draws_probes(case):
    sampler = trained(source(case), FEW_STEPS)
    drawn = sampler.draw(query(), 4, TableView())
    probes = torch.zeros(1, dtype=torch.bool) if drawn.origin is None else drawn.origin == PROBE
    learner = sampler
    while hasattr(learner, "inner"):                         # a mixture passes on the probes of its inner source
        learner = learner.inner
    assert bool(probes.any()) == (getattr(learner.config, "baseline", None) == "self_critical")


def test_the_world_is_not_empty():
    assert tiny_problem().counts.min() > 0
