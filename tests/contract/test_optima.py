"""Real sources, masks and layouts reach the optimum of each combination through the real training step.

test_losses_optima compares losses alone with exact enumeration. Here nothing is replaced, so the draws are noisy:
many negatives, many steps and the mean of the last iterates, with a tolerance that each mutant below exceeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from _pytest.mark import ParameterSet
from helpers.source_worlds import Table, TableBatch

from embtrain.common.types import LossInput, ProblemSpec
from embtrain.losses import base as losses
from embtrain.negatives import base as sources
from embtrain.negatives.adversarial.generator_cache import GeneratorCache
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step

pytestmark = pytest.mark.long

#: How often each candidate follows each context: P(b|a) is a row over its sum.
COUNTS = torch.tensor([[12, 6, 3, 2, 1], [2, 2, 8, 4, 8], [5, 5, 5, 5, 4]])
P = COUNTS.double() / COUNTS.sum(1, keepdim=True)
K, STEPS, NEAR = 20, 450, 0.08


def examples() -> tuple[ProblemSpec, TableBatch]:
    context, target = (COUNTS.flatten() > 0).nonzero()[:, 0] // 5, (COUNTS.flatten() > 0).nonzero()[:, 0] % 5
    context, target = (x.repeat_interleave(COUNTS.flatten()) for x in (context, target))
    counts = COUNTS.sum(0).double()
    window = torch.arange(len(context)) // 4                       # windows of one context, as counts divide by 4
    return (ProblemSpec(5, counts, 3, raw_counts=counts, dim=5, seed=2),
            TableBatch(target, torch.zeros_like(target), context, window))


def trained(source: str, loss: str, mask: str, share: str, **keys: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores (3, 5) averaged over the last steps, and log(mass·q) as the source reports it, (3, 5)."""
    problem, batch = examples()
    model = Table(problem)
    k = keys.pop("k", 5 * K if share == "batch" and loss != "logistic" else K)  # one draw per step, of more negatives
    loss_keys = {key: keys.pop(key) for key in ("form", "partition") if key in keys}
    source_class, cost = sources.find(source), losses.find(loss)
    sampler = source_class(source_class.Config(source=source, k=k, filter=mask, share_draws_by=share, share_size=2,
                                               **keys), problem)
    if source == "ace":                                            # a fixed generator that differs by context
        draw = torch.Generator().manual_seed(1)
        with torch.no_grad():
            sampler.generator.w.copy_(torch.randn(sampler.generator.w.shape, generator=draw))
    of_loss = cost(cost.Config(name=loss, **loss_keys), problem)
    # A low beta2 soon discards the steep start: logistic scores end far from where they begin.
    optimizer = torch.optim.Adam([*model.parameters(), *of_loss.parameters()], lr=0.1, betas=(0.9, 0.98))
    query = model.encode(batch.rows(torch.tensor([0, 24, 48]))).detach()
    step, total, counted = Step(model, sampler, of_loss, [optimizer],
                                TrainConfig(batch=len(batch), reduction="mean")), 0, 0
    for i in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 if i < STEPS // 2 else 0.02 if i < STEPS * 3 // 4 else 0.004
        step(batch)
        if i >= STEPS * 3 // 4:
            s = model.s.detach()
            total, counted = total + of_loss.logit(s, query).detach(), counted + 1
    log_q = sampler.log_prob(query, torch.arange(5).unsqueeze(0)).double().expand(3, 5)
    mass = 5 if source == "every" else k
    return total / counted, math.log(mass) + log_q


def expected_scores(loss: str, mask: str, log_mass_q: torch.Tensor) -> torch.Tensor:
    log_p = P.log() - (torch.log1p(-P) if mask == "target" else 0)
    return log_p - log_mass_q if loss == "logistic" else log_p


def error(source: str, loss: str, mask: str, share: str, **keys: object) -> float:
    s, log_mass_q = trained(source, loss, mask, share, **keys)
    return float((s - expected_scores(loss, mask, log_mass_q)).abs().max())


LAYOUTS = ("row", "window", "block", "batch")


def halved(*axes: Sequence[str]) -> list[ParameterSet]:
    """All combinations; half of them are slow, and each pair of values of two axes has a fast one.

    The slow ones run in make test-slow AREA=samplers.
    """
    return [pytest.param(*(value for _, value in combination),
                         marks=pytest.mark.slow if sum(position for position, _ in combination) % 2 else ())
            for combination in product(*map(enumerate, axes))]


@pytest.mark.parametrize(("loss", "mask", "share"), halved(["nce", "logistic"], ["none", "target"], LAYOUTS))
def test_unigram_noise(loss, mask, share):
    assert error("unigram", loss, mask, share, exponent=0.75) < NEAR


@pytest.mark.parametrize(("loss", "mask"), halved(["nce", "logistic"], ["none", "target"]))
@pytest.mark.parametrize("columns", ["mixture", pytest.param("stratified", marks=pytest.mark.slow)])
def test_a_fixed_adversary(loss, mask, columns):
    """The correction uses the density of the mixture, by context; the probe has no weight."""
    assert error("ace", loss, mask, "row", sampling=columns, mix=0.3, min_perplexity=2, generator_lr=1e-12) < NEAR


def test_an_adversarial_tree():
    """q is that of each draw: it follows the query vectors, is fitted to them four times, and NCE still finds log P."""
    assert error("adversarial_tree", "nce", "none", "row", pairs=300, fits=4, features=3) < NEAR


@pytest.mark.parametrize(("loss", "mask"), halved(["nce", "logistic"], ["none", "target"]))
def test_every_candidate(loss, mask):
    assert error("every", loss, mask, "row") < 0.02


def test_nce_with_a_learned_partition():
    assert error("unigram", "nce", "none", "row", partition="context") < NEAR


@pytest.mark.parametrize("share", ["row", "batch"])
def test_distinct_draws_estimate_the_softmax(share):
    """Without replacement, all but one candidate: eq. 5-6 with weights that are correct in expectation."""
    s, _ = trained("unigram", "sampled_softmax", "target", share, k=4, replacement=False)
    assert float((s.softmax(1) - P).abs().max()) < 0.06


@pytest.mark.parametrize(("form", "share"), halved(["sampled", "ranking"], ["row", "window"]))
def test_sampled_softmax(form, share):
    s, _ = trained("unigram", "sampled_softmax", "target" if form == "sampled" else "none", share, form=form)
    assert float((s.softmax(1) - P).abs().max()) < 0.02


def test_softmax_with_every_candidate_and_with_none():
    for source in ("every", "none"):
        problem, batch = examples()
        model, source_class, cost = Table(problem), sources.find(source), losses.find("softmax")
        sampler = source_class(source_class.Config(source=source, filter="none"), problem)
        step = Step(model, sampler, cost(cost.Config(name="softmax"), problem),
                    [optimizer := torch.optim.Adam([model.s], lr=0.05)], TrainConfig(batch=len(batch)))
        for i in range(300):
            optimizer.param_groups[0]["lr"] = 0.05 if i < 200 else 0.005
            step(batch)
        assert float((model.s.detach().softmax(1) - P).abs().max()) < 1e-3


# --- mutants that must be detected ------------------------------------------------------------------------------------

def test_mutant_log_k_for_log_mass_is_detected(monkeypatch):
    """Negatives of both components and a probe: 2k + 1 negatives of mass k."""
    monkeypatch.setattr(LossInput, "log_total_weight", property(lambda s: torch.tensor([[math.log(s.neg.shape[1])]])))
    assert error("ace", "nce", "none", "row", sampling="stratified", mix=0.3, min_perplexity=2,
                 generator_lr=1e-12) > 2 * NEAR


def test_mutant_component_density_is_detected(monkeypatch):
    draw = GeneratorCache.draw

    def of_component(*args):
        drawn = draw(*args)
        return drawn._replace(log_q=drawn.log_g)

    monkeypatch.setattr(GeneratorCache, "draw", of_component)
    monkeypatch.setattr(GeneratorCache, "log_q", lambda self, ids, row, start: self.density(
        ids.unsqueeze(1), row.repeat_interleave(start.diff()))[0].squeeze(1))
    s, _ = trained("ace", "nce", "none", "row", mix=0.3, min_perplexity=2, generator_lr=1e-12)
    assert float((s - P.log()).abs().max()) > 2 * NEAR


def test_mutant_masked_draws_subtracted_from_the_mass_is_detected(monkeypatch):
    def log_mass(s: LossInput) -> torch.Tensor:
        keep = s.kept_negatives()
        n = torch.full((len(s.pos), 1), float(s.neg.shape[1])) if keep is None else keep.double().sum(1, keepdim=True)
        return n.clamp(min=0.5).log()

    monkeypatch.setattr(LossInput, "log_total_weight", property(log_mass))
    assert error("unigram", "nce", "target", "row", exponent=0.75) > 2 * NEAR
