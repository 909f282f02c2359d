"""All pairs of source and loss: incompatible pairs are listed, all others learn the checkerboard world.

Checkerboard: even contexts are followed by even candidates, odd contexts by odd candidates.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.looped import looped
from helpers.source_worlds import CASES, VECTORS, Table, TableBatch, source

from embtrain.common.candidate_lists import CandidateLists, FixedLists
from embtrain.common.types import ProblemSpec, Query
from embtrain.data.known_pairs import KnownPairs
from embtrain.losses import base as losses
from embtrain.losses.base import Loss
from embtrain.negatives.base import NegativeSource
from embtrain.train.checks.compatibility import incompatibilities
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step

pytestmark = pytest.mark.long

LOSSES = {
    "logistic": ("target", {}), "nce": ("none", {}), "nce with a learned z": ("none", {"partition": "global"}),
    "nce with a z per context": ("none", {"partition": "context"}), "sampled_softmax": ("target", {}),
    "alpha_nce": ("none", {}), "alpha_nce of likelihood": ("none", {"alpha": 1.0}),
    "alpha_nce not centered": ("none", {"centered": False}),
    "sampled_softmax ranking": ("none", {"form": "ranking"}), "softmax": ("none", {}), "margin": ("target", {}),
    "sampled_softmax absolute": ("target", {"absolute": True}), "softmax absolute": ("none", {"absolute": True}),
    "self_adversarial": ("target", {}), "gbce": ("target", {}), "contrastive": ("target", {}),
    "contrastive debiased": ("none", {"prior": 0.02, "hardness": 0.5}),
    "order": ("target", {}), "hinged_softmax": ("target", {"margin": 1.0}),
    "vmf": ("none", {}), "power_spherical": ("none", {}), "cosine": ("none", {}),
}
#: Tables are trained in this file. test_continuous.py covers losses and sources that need a frozen table.
FIXED = {"vmf", "power_spherical", "cosine"}

DISTINCT = {"uniform without replacement", "unigram without replacement"}
#: The target has no q: it was excluded, or q is known only for the candidates that were examined.
TARGETLESS = DISTINCT | {case for case in CASES
                         if "without the target" in case or case.split()[0] in ("resampled", "kbgan")}
#: No negative has a q.
CHOSEN = {"none", "in_batch uncorrected", "candidates alone", *VECTORS,
          *(case for case in CASES if case.split()[0] in ("hardest", "nscaching", "most_informative"))}
#: Why a pair is rejected, by loss; every other pair must run.
REFUSED = {
    "logistic": {"none"}, "margin": {"none"}, "self_adversarial": {"none"}, "order": {"none"}, "gbce": {"none"},
    "hinged_softmax": {"none"},
    "contrastive": {"none"}, "contrastive debiased": {"none"},
    "sampled_softmax": CHOSEN, "sampled_softmax absolute": CHOSEN,
    "nce": CHOSEN | TARGETLESS, "nce with a learned z": CHOSEN | TARGETLESS,
    "nce with a z per context": CHOSEN | TARGETLESS, "alpha_nce": CHOSEN | TARGETLESS,
    "alpha_nce of likelihood": CHOSEN | TARGETLESS, "alpha_nce not centered": CHOSEN | TARGETLESS,
    "sampled_softmax ranking": CHOSEN | TARGETLESS | {
        "every", *(case for case in CASES if "stratified" in case or "total weight" in case)},
    "softmax": set(CASES) - {"every", "none"}, "softmax absolute": set(CASES) - {"every", "none"},
    **{loss: set(CASES) for loss in FIXED},
}
for refused in REFUSED.values():
    refused.update(VECTORS)
PAIRS = [(case, loss) for case in CASES for loss in LOSSES]
ALLOWED = [(case, loss) for case, loss in PAIRS if case not in REFUSED[loss]]

V = CONTEXTS = 16


def board() -> tuple[ProblemSpec, TableBatch]:
    context = torch.arange(CONTEXTS).repeat_interleave(V // 2)
    target = torch.arange(0, V, 2).repeat(CONTEXTS) + context % 2
    counts = torch.full((V,), float(CONTEXTS // 2), dtype=torch.float64)
    batch = TableBatch(target, torch.zeros_like(target), context, torch.arange(len(target)) // (V // 2))
    ids = np.arange(V * CONTEXTS)                            # of each context, the candidates that never follow it
    negatives = ids[ids // V % 2 != ids % V % 2]
    lists = CandidateLists.from_entries((0,), negatives[:, None] // V, negatives % V, np.ones(len(negatives)))
    return ProblemSpec(V, counts, CONTEXTS, raw_counts=counts, dim=V, seed=5, lists=FixedLists(lists)), batch


def sampler_of(case: str, problem: ProblemSpec, mask: str) -> NegativeSource:
    return source(case, of=problem, filter=mask, k=8 if case != "none" else 4)


def cost_of(loss: str, problem: ProblemSpec) -> Loss:
    loss_class = losses.find(loss.split()[0])
    return loss_class(loss_class.Config(name=loss_class.name, **LOSSES[loss][1]), problem)


@looped("case", CASES)
def test_incompatible_pairs_are_listed(case):
    problem, _ = board()
    model, samplers = Table(problem), {}
    for loss, (mask, _) in LOSSES.items():
        if mask not in samplers:
            samplers[mask] = sampler_of(case, problem, mask)
        reasons = incompatibilities(samplers[mask], cost_of(loss, problem), model)
        assert bool(reasons) == (case in REFUSED[loss]), loss
        assert all(len(reason.splitlines()) == 1 and ":" in reason for reason in reasons), loss


def test_number_of_combinations_that_run():
    tried = [pair for pair in PAIRS if pair[0] not in VECTORS and pair[1] not in FIXED]
    assert len(ALLOWED) == len(PAIRS) - sum(len(cases) for cases in REFUSED.values()) > 2 * len(tried) / 3
    assert {loss.split()[0] for loss in LOSSES} == set(losses.names())


@pytest.mark.parametrize(("loss", "mask"), [("sampled_softmax", "none"), ("sampled_softmax ranking", "target"),
                                            ("alpha_nce", "target"), ("softmax", "observed")])
def test_a_mask_incompatible_with_the_loss_is_rejected(loss, mask):
    problem, _ = board()
    model, cost = Table(problem), cost_of(loss, problem)
    sampler = source("every" if loss == "softmax" else "unigram", of=problem, filter=mask)
    assert any("negatives.filter" in reason for reason in incompatibilities(sampler, cost, model))


def test_a_geometry_incompatible_with_the_source_is_rejected(monkeypatch):
    problem, _ = board()
    model, sampler, cost = Table(problem), sampler_of("unigram", problem, "target"), cost_of("logistic", problem)
    monkeypatch.setattr(sampler, "traits", replace(sampler.traits, geometry=frozenset({"l1"})))
    assert any("one of l1" in reason for reason in incompatibilities(sampler, cost, model))


#: Hard-negative sources find the other positives of a query, half of all candidates in this world, and a window shares
#: them among its rows. If only the target is masked, these two learn little or nothing.
NEEDS_ANSWERS = {("nscaching with rare updates shared by windows", "order"),
                 ("kbgan complex shared by windows", "order")}
#: Hard-negative sources ignore candidates that cost the model little.
HARD = ("ace", "kbgan", "nscaching")


#: A positive below its negatives has none under a limit, and these losses have no term that raises it.
STUCK = {("hardest below the target", loss)
         for loss in ("margin", "order", "hinged_softmax", "contrastive", "contrastive debiased")}
#: Fitted to this world, q is almost P: candidates that never follow are hardly drawn, so few updates lower them.
STUCK |= {(case, loss) for case in ("adversarial_tree", "adversarial_tree fitted again by windows")
          for loss in ("logistic", "gbce", "nce", "order")}
STUCK |= {("adversarial_tree fitted again by windows", "alpha_nce not centered")}


#: The first case of each source learns here with the first form of each loss; the other forms learn with a static q, a
#: q per row and all candidates. The other pairs learn in make test-slow AREA=samplers.
FIRST = {first for names in (CASES, LOSSES) for first in {name.split()[0]: name for name in reversed(names)}.values()}
EVERY_FORM = ("unigram", "ace", "every", "none")


def is_fast(case: str, loss: str) -> bool:
    return case in FIRST and (loss in FIRST or case in EVERY_FORM)


@pytest.mark.parametrize(("case", "loss"), [
    pair if is_fast(*pair) else pytest.param(*pair, marks=pytest.mark.slow) for pair in ALLOWED if pair not in STUCK])
def test_it_learns_the_checkerboard(case, loss):
    problem, batch = board()
    answers = KnownPairs(batch.context, batch.target, V) if (case, loss) in NEEDS_ANSWERS else None
    sampler = sampler_of(case, problem, "observed" if answers else LOSSES[loss][0])
    model, cost = Table(problem), cost_of(loss, problem)
    step = Step(model, sampler, cost, [torch.optim.Adam([*model.parameters(), *cost.parameters()], lr=0.1)],
                TrainConfig(batch=64, reduction="mean"), answers)
    enough = 0.85 if any(name in case for name in HARD) else 0.95
    for update in range(150):
        result = step(batch)
        if update % 10 == 9 and ranking_accuracy(model, cost) > enough:
            break
    assert torch.isfinite(result.loss) and ranking_accuracy(model, cost) > enough


def ranking_accuracy(model: Table, cost: Loss) -> float:
    """Share of (positive, negative) pairs in the right order by the scores that evaluation reads."""
    is_positive = (torch.arange(CONTEXTS)[:, None] + torch.arange(V)) % 2 == 0
    s = cost.logit(model.s.detach(), Query(torch.zeros(CONTEXTS, 1), *[torch.arange(CONTEXTS)] * 3))
    return float(torch.stack([(line[ok][:, None] > line[~ok]).double().mean()
                              for line, ok in zip(s, is_positive, strict=True)]).mean())
