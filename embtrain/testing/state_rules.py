"""Rules on seeds, saved state, the model, and learning."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from embtrain.common.types import PROBE
from embtrain.testing.case import SourceCase, drawn_values, log_prob_of_all, per_row
from embtrain.testing.worlds import CONTEXTS, FEW_STEPS, EmptyView, TableView, V, query, trained
from embtrain.train.engines.false_negatives import mark_false_negatives
from embtrain.train.state.serialize import to_bytes


def seeds(case: SourceCase) -> None:
    """Equal seeds give equal draws, different seeds different ones."""
    view = TableView()
    first, second, other = (drawn_values(trained(case.build(seed), FEW_STEPS).draw(query(), 4, view))
                            for seed in (3, 3, 4))
    case.require(torch.equal(first, second), "seed",
                 "two sources with one seed draw differently; pass generator=self.random to every random function")
    case.require(case.deterministic or not torch.equal(first, other), "seed",
                 "sources with different seeds draw the same; pass generator=self.random to every random function")


def state(case: SourceCase) -> None:
    """A new source with the state of a trained one draws the same as that one."""
    view, source, fresh = TableView(), trained(case.build()), case.build(seed=11)
    source.draw(query(), 4, view)
    saved = {key: value.clone() if isinstance(value, Tensor) else value for key, value in source.state_dict().items()}
    expected = source.draw(query(seed=7), 4, view)
    fresh.load_state_dict(saved)
    found = fresh.draw(query(seed=7), 4, view)
    same = torch.equal(drawn_values(expected), drawn_values(found))
    same &= expected.log_q is None or (found.log_q is not None and torch.equal(expected.log_q, found.log_q))
    case.require(same, "state_dict", "a source with the restored state draws differently; save all that a draw reads")


def evaluation(case: SourceCase) -> None:
    """A draw whose queries do not train changes no state but the random numbers."""
    view, (source, other) = TableView(), (trained(case.build(), FEW_STEPS) for _ in range(2))
    for seed in range(3):
        source.draw(replace(query(60, seed=seed), is_training=False), source.config.k, view)
    for each in (source, other):
        each.reseed(5)
    found, expected = source.state_dict(), other.state_dict()
    changed = [key for key in expected if to_bytes({key: found[key]}) != to_bytes({key: expected[key]})]
    case.require(not changed, "evaluation", f"a draw with query.is_training = False changes {', '.join(changed)} of "
                                            "the state; leave out what it would record")


def unchanged_model(case: SourceCase) -> None:
    """A source changes neither the model's tensors nor the query."""
    view, batch, source = TableView(), query(), trained(case.build(), FEW_STEPS)
    tensors = (view.scores, view.table(), batch.vector, batch.context, batch.target)
    before = [x.clone() for x in tensors]
    source.draw(batch, 4, view)
    source.on_epoch_start(view)
    case.require(all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True)), "read-only",
                 "the source changes a tensor of the view or of the query; clone it first")


def declared_use_of_counts(case: SourceCase) -> None:
    """A source without the trait uses_counts draws the same under other counts of the positives."""
    view, batch, drawn = TableView(), query(), []
    for counts in (torch.ones(V, dtype=torch.float64), torch.arange(V, 0, -1, dtype=torch.float64)):
        source = trained(case.build(counts=counts), FEW_STEPS)
        found = source.draw(batch, source.config.k, view)
        drawn.append((drawn_values(found), found.log_q))
    (a, log_a), (b, log_b) = drawn
    same = torch.equal(a, b) and (log_a is None or (log_b is not None and torch.equal(log_a, log_b)))
    case.require(same, "uses_counts", "draws depend on problem.counts or problem.raw_counts; declare "
                                      "traits = Traits(uses_counts=True)")


def declared_use_of_model(case: SourceCase) -> None:
    """A source without the trait uses_model draws the same without query vectors and without a view."""
    batch, found = query(), []
    without = batch.with_vector(batch.vector[:, :0])
    for variant, view in ((batch, TableView()), (without, EmptyView())):
        source = trained(case.build(), FEW_STEPS)
        try:
            drawn = source.draw(variant, source.config.k, view)
            if source.traits.learns:
                shape = (len(variant), drawn.k) if source.traits.learns_per_row else drawn_values(drawn).shape
                source.learn(variant, drawn, torch.ones(shape))
            found.append([drawn.ids, drawn.log_q, drawn.log_q_target, source.draw(variant, source.config.k, view).ids])
        except (AssertionError, IndexError, RuntimeError) as error:
            case.require(False, "uses_model", f"the source reads the model or query.vector ({error}); declare "
                                              "traits = Traits(uses_model=True)")
    same = all(a is b or (a is not None and b is not None and torch.equal(a, b))
               for a, b in zip(*found, strict=True))
    case.require(same, "uses_model", "draws depend on the model or on query.vector; declare "
                                     "traits = Traits(uses_model=True)")


def probes(case: SourceCase) -> None:
    """A negative of origin PROBE has weight 0."""
    source = trained(case.build(), FEW_STEPS)
    drawn = source.draw(query(), 4, TableView())
    ids, weight, _ = per_row(drawn, 30)
    origin = drawn.per_row(drawn.origin, 30)
    is_probe = torch.zeros_like(ids, dtype=torch.bool) if origin is None else origin == PROBE
    case.require((weight[is_probe] == 0).all(), "probes", "a probe has a weight; give it weight 0")


def masked_costs(case: SourceCase) -> None:
    """`learn` ignores the costs of false negatives, for draws per row."""
    states, batch, view = [], query(60, seed=8), TableView()
    for masked_cost in (0.0, 50.0):
        source = trained(case.build(), steps=5)
        drawn = mark_false_negatives(source.draw(batch, source.config.k, view), batch, "target", None)
        if drawn.ids is None or len(drawn.ids) != len(batch) or drawn.draw_id is not None:
            return
        assert drawn.false_negatives is not None and drawn.false_negatives.shape[1] > 0
        cost = torch.nn.functional.softplus(view.score(batch, drawn.ids))
        cost[drawn.false_negatives[0], drawn.false_negatives[1]] = masked_cost
        source.learn(batch, drawn, cost)
        after = source.draw(query(seed=9), source.config.k, view)
        states.append((drawn_values(after), after.log_q))
    (ids, log_q), (other_ids, other_log_q) = states
    same = torch.equal(ids, other_ids)
    same &= log_q is None or (other_log_q is not None and torch.equal(log_q, other_log_q))
    case.require(same, "masks", "learn uses the cost of a false negative; leave out drawn.false_negatives")


def learning(case: SourceCase) -> None:
    """Learning moves q at least 0.5 nats from uniform, towards candidates that cost the model more."""
    fresh, source = case.build(), trained(case.build())
    batch = query(CONTEXTS, contexts=CONTEXTS)
    batch = replace(batch, context=torch.arange(CONTEXTS), query_id=torch.arange(CONTEXTS))
    log_p, before = log_prob_of_all(source, batch), log_prob_of_all(fresh, batch)
    from_uniform = float((log_p.exp() * (log_p + math.log(V))).sum(1).mean())
    cost = torch.nn.functional.softplus(TableView().scores).double()
    gain = float((log_p.exp() * cost).sum(1).mean()) - float((before.exp() * cost).sum(1).mean())
    case.require(from_uniform > 0.5, "learning", f"q is {from_uniform:.3g} nats from uniform after 50 steps, not 0.5")
    case.require(gain > 0.5, "learning", f"the mean cost of a negative rises by {gain:.3g} in 50 steps, not by 0.5")
