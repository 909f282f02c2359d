"""The optimum of every loss, by exact expectation on a tiny world, for each masking mode and layout.

The last tests break a rule on purpose and assert that the same checks fail.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from helpers.looped import looped
from helpers.worlds import (
    DOUBLE,
    every_column,
    every_count,
    every_draw,
    every_once,
    loss_world,
    make_loss,
    optimum,
    two_components,
    with_probe,
)
from torch import Tensor

from embtrain.common.types import LossInput

pytestmark = pytest.mark.long

MASS = 3.0
LAYOUTS = ["private", "shared", "rows", "split"]
PARTITIONS = ["fixed", "global", "context"]


def close(a: Tensor, b: Tensor, atol: float = 2e-6) -> bool:
    return torch.allclose(a, b, rtol=0, atol=atol)


def world_of(layout: str):
    return loss_world(noise="common" if layout == "shared" else "by context")


def log_odds(p: Tensor) -> Tensor:
    return p.log() - (-p).log1p()


def nce_meets_its_optimum(layout: str, masked: bool, probe: bool, partition: str = "fixed") -> bool:
    world = world_of(layout)
    exam = every_column(world, MASS, layout, masked)
    exam = with_probe(exam, 1) if probe else exam
    table, _ = optimum("nce", exam, world, partition=partition)
    return close(table, log_odds(world.p) if masked else world.p.log())


def logistic_meets_its_optimum(layout: str, masked: bool, probe: bool) -> bool:
    world = world_of(layout)
    exam = every_column(world, MASS, layout, masked)
    exam = with_probe(exam, 1) if probe else exam
    table, _ = optimum("logistic", exam, world)
    return close(table, (log_odds(world.p) if masked else world.p.log()) - (MASS * world.q).log())


def ranking_meets_its_optimum(probe: bool) -> bool:
    world = loss_world()
    exam = every_draw(world, 2, masked=False)
    exam = with_probe(exam, 1) if probe else exam
    table, _ = optimum("sampled_softmax", exam, world, form="ranking")
    return close(table.softmax(1), world.p)


@looped("probe", [False, True])
@looped("masked", [False, True])
@looped("layout", LAYOUTS)
def test_nce(layout, masked, probe):
    assert nce_meets_its_optimum(layout, masked, probe)


@pytest.mark.parametrize("layout", ["rows", "split"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_nce_with_a_learned_partition(partition, layout):
    assert nce_meets_its_optimum(layout, masked=False, probe=True, partition=partition)


def test_nce_on_whole_draws():
    world = loss_world()
    table, _ = optimum("nce", every_draw(world, 2, masked=False), world)
    assert close(table, world.p.log())


@looped("probe", [False, True])
@looped("masked", [False, True])
@looped("layout", LAYOUTS)
def test_logistic(layout, masked, probe):
    assert logistic_meets_its_optimum(layout, masked, probe)


@looped("t", [0.0, 0.6, 1.0])
@looped("masked", [False, True])
@looped("layout", LAYOUTS)
def test_gbce_shifts_the_optimum_of_logistic_by_log_beta(layout, masked, t):
    world = world_of(layout)
    # In `split` rows of one context have masses M/2 and 3M/2, but β is linear in M: its mean is that of M.
    beta = 1 - t * (1 - MASS / (world.v - 1))
    table, _ = optimum("gbce", every_column(world, MASS, layout, masked), world, t=t)
    assert close(table, (log_odds(world.p) if masked else world.p.log()) - (MASS * world.q / beta).log())


@pytest.mark.parametrize("name", ["logistic", "nce"])
@pytest.mark.parametrize("by_query", [False, True])
def test_weights_of_examples_replace_p_by_p_w(name, by_query):
    """P_w(b|a) ∝ w(a, b) P(b|a); weights of the queries alone change nothing."""
    world = loss_world()
    exam = every_column(world, MASS, "private", masked=name == "logistic")
    w = torch.rand(world.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(6)) + 0.2
    w = w[:, :1].expand_as(w) if by_query else w
    p = w * world.p / (w * world.p).sum(1, keepdim=True)
    table, _ = optimum(name, replace(exam, chance=exam.chance * w[exam.context, exam.target]), world)
    assert close(table, p.log() if name == "nce" else log_odds(p) - (MASS * world.q).log())
    assert by_query == close(p, world.p)


def test_gbce_with_t_1_is_calibrated_for_uniform_negatives():
    world = loss_world()
    world = replace(world, q=torch.full_like(world.q, 1 / world.v))
    table, _ = optimum("gbce", every_column(world, MASS, "rows", masked=True), world, t=1.0)
    assert close(table - math.log(world.v / (world.v - 1)), log_odds(world.p))


@looped("alpha", [0.25, 0.5, 0.8, 1.0])
@looped("layout", LAYOUTS)
def test_centered_alpha_nce_gives_the_softmax(layout, alpha):
    world = world_of(layout)
    exam = with_probe(every_column(world, MASS, layout), 1)
    table, _ = optimum("alpha_nce", exam, world, alpha=alpha)
    assert close(table.softmax(1), world.p)


@looped("alpha", [0.25, 0.5, 0.8])
@looped("layout", LAYOUTS)
def test_alpha_nce_without_centering_is_self_normalized(layout, alpha):
    world = world_of(layout)
    exam = with_probe(every_column(world, MASS, layout), 1)
    table, _ = optimum("alpha_nce", exam, world, alpha=alpha, centered=False)
    assert close(table, world.p.log())


def test_alpha_nce_is_exact_at_two_draws_where_it_is_linear_in_the_negatives():
    world = loss_world()
    exam = every_draw(world, 2, masked=False)
    assert close(optimum("alpha_nce", exam, world)[0].softmax(1), world.p)
    assert close(optimum("alpha_nce", exam, world, alpha=0.8, centered=False)[0], world.p.log())
    assert not close(optimum("alpha_nce", exam, world, alpha=0.8)[0].softmax(1), world.p, 1e-3)


def test_alpha_nce_approaches_maximum_likelihood():
    """By a first-order expansion in 1 − α; a constant added to the scores changes nothing."""
    world = loss_world()
    table = torch.randn(world.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(4))
    exam = every_column(world, MASS, "private")
    value = {alpha: make_loss("alpha_nce", world.known, alpha=alpha)(exam.scored(table + shift)).per_example
             for alpha, shift in ((1 - 1e-6, 0.0), (1.0, 7.0))}
    assert close(value[1 - 1e-6], value[1.0], 1e-4) and not close(value[1.0], torch.zeros_like(value[1.0]), 0.1)


def centered(x: Tensor) -> Tensor:
    return x - x.mean(1, keepdim=True)


def contrastive_optimum(world, m: float, c: float = 1.0) -> Tensor:
    """u (C, V) of losses/contrastive.py, by iteration of R."""
    share = torch.ones(len(world.p), 1, dtype=DOUBLE)
    for _ in range(500):
        x = m * share * world.q / world.p
        u = (x + (x * x + 4 * c * x).sqrt()) / 2
        share = (world.p * u / (c + u)).sum(1, keepdim=True)
    return u


def test_the_contrastive_loss_gives_the_density_ratio_at_two_draws():
    world = loss_world()
    table, _ = optimum("contrastive", every_draw(world, 2, masked=False), world, floor=-80)
    assert close(centered(table), centered(world.p.log() - world.q.log()))


def slope(name: str, exam, world, table: Tensor, **settings: object) -> Tensor:
    """The gradient of the expected loss at a table (C, V)."""
    table = table.clone().requires_grad_()
    loss = make_loss(name, world.known, **settings)
    (exam.chance * loss(exam.scored(table, loss)).per_example).sum().backward()
    assert table.grad is not None
    return table.grad


@pytest.mark.parametrize("layout", ["private", "shared", "rows"])
def test_the_hinged_softmax_is_contrastive_with_raised_negatives_within_its_margin(layout):
    """Stationary wherever the optimum fits [−α, 0]; beyond, the only slopes lead back."""
    world, margin = world_of(layout), 4.0
    exam = every_column(world, MASS, layout)
    table = centered(-contrastive_optimum(world, MASS * math.exp(margin)).log()) - 2
    assert -margin < table.min() and table.max() < 0
    assert close(slope("hinged_softmax", exam, world, table, margin=margin), torch.zeros_like(table), 1e-12)
    table[:, 0], table[:, 1] = 0.5, -margin - 0.5
    beyond = slope("hinged_softmax", exam, world, table, margin=margin)
    assert (beyond[:, 0] > 0).all() and (beyond[:, 1] < 0).all()


@pytest.mark.parametrize("layout", ["private", "shared", "rows"])
@pytest.mark.parametrize("prior", [0.0, 0.1])
def test_the_debiased_contrastive_loss(prior, layout):
    world = world_of(layout)
    table, _ = optimum("contrastive", every_column(world, MASS, layout), world, prior=prior, floor=-80)
    m = MASS / (1 - prior)
    assert close(centered(table), centered(-contrastive_optimum(world, m, 1 - m * prior).log()))


def test_a_tilted_contrastive_loss_is_stationary():
    """P_b r_b = R × the derivative of log E_β in s_b, with r = M E_β / (e^s + M E_β)."""
    world, tilt = loss_world(), 0.3
    s, _ = optimum("contrastive", every_column(world, MASS, "private"), world, hardness=tilt, floor=-80)
    high, low = world.q * ((1 + tilt) * s).exp(), world.q * (tilt * s).exp()
    mean = high.sum(1, keepdim=True) / low.sum(1, keepdim=True)
    r = MASS * mean / (s.exp() + MASS * mean)
    share = (1 + tilt) * high / high.sum(1, keepdim=True) - tilt * low / low.sum(1, keepdim=True)
    assert close(world.p * r, (world.p * r).sum(1, keepdim=True) * share)


def test_logistic_gives_shifted_pmi_if_the_noise_is_the_marginal():
    world = loss_world(noise="marginal")
    table, _ = optimum("logistic", every_column(world, MASS, "shared"), world)
    pmi = (world.p / (world.p_context @ world.p)).log()
    assert close(table, pmi - math.log(MASS))


@pytest.mark.parametrize("probe", [False, True])
def test_ranking_nce_is_exact_at_two_draws(probe):
    assert ranking_meets_its_optimum(probe)


def test_ranking_nce_loses_its_optimum_if_false_negatives_are_masked():
    world = loss_world()
    table, _ = optimum("sampled_softmax", every_draw(world, 2, masked=True), world, form="ranking")
    assert not close(table.softmax(1), world.p, atol=1e-3)


@pytest.mark.parametrize("masked", [False, True])
def test_softmax(masked):
    world = loss_world()
    table, _ = optimum("softmax", every_once(world, masked), world)
    assert close(table.softmax(1), world.p)


def test_sampled_softmax_with_every_candidate_is_softmax():
    world = loss_world()
    exam = every_once(world, masked=True)
    table = torch.randn(world.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(1), requires_grad=True)
    results = []
    for name in ("sampled_softmax", "softmax"):
        example = make_loss(name, world.known)(exam.scored(table)).per_example
        results.append((example, torch.autograd.grad(example.sum(), table)[0]))
    assert close(results[0][0], results[1][0], 1e-12) and close(results[0][1], results[1][1], 1e-12)
    assert close(optimum("sampled_softmax", exam, world)[0].softmax(1), world.p)


def test_sampled_softmax_converges_with_the_number_of_draws():
    world = loss_world()
    kl = []
    for m in (2, 5, 12):
        table, _ = optimum("sampled_softmax", every_count(world, m, masked=True), world)
        kl.append(float((world.p_context[:, None] * world.p * (world.p.log() - table.log_softmax(1))).sum()))
    assert kl[0] > 2 * kl[1] > 4 * kl[2] > 1e-6


def test_counting_draws_and_listing_them_are_the_same_expectation():
    world = loss_world()
    table = torch.randn(world.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(2))
    loss = make_loss("sampled_softmax", world.known)
    values = []
    for exam in (every_draw(world, 3, masked=True), every_count(world, 3, masked=True)):
        assert float(exam.chance.sum()) == pytest.approx(1, abs=1e-12)
        values.append(float((exam.chance * loss(exam.scored(table)).per_example).sum()))
    assert values[0] == pytest.approx(values[1], abs=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_the_sampled_partition_is_unbiased_only_if_false_negatives_are_masked(masked):
    world = loss_world()
    exam = every_draw(world, 2, masked)
    table = torch.randn(world.p.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(3))
    scored = exam.scored(table)
    z = (make_loss("sampled_softmax", world.known)(scored).per_example + scored.pos).exp()  # Z' of each draw
    pair = exam.context * world.v + exam.target
    n = world.p.numel()
    mean = torch.zeros(n, dtype=DOUBLE).index_add(0, pair, exam.chance * z) / \
        torch.zeros(n, dtype=DOUBLE).index_add(0, pair, exam.chance)
    excess = mean.reshape(world.p.shape) / table.exp().sum(1, keepdim=True)
    assert close(excess, torch.ones_like(excess) if masked else 1 + table.softmax(1), 1e-12)


def mixture_is_corrected(density: str) -> bool:
    world = loss_world()
    generator = loss_world(seed=7).q
    table, _ = optimum("nce", two_components(world, MASS, generator, density), world)
    return close(table, world.p.log())


def test_nce_on_a_mixture():
    assert mixture_is_corrected("mixture")


def test_mutant_component_density_is_detected():
    assert not mixture_is_corrected("component")


def test_mutant_log_k_for_log_mass_is_detected(monkeypatch):
    def log_k(self: LossInput) -> Tensor:
        return torch.full((1, 1), math.log(self.drawn.k), dtype=self.pos.dtype)

    monkeypatch.setattr(LossInput, "log_total_weight", property(log_k))
    for layout in LAYOUTS:
        assert not nce_meets_its_optimum(layout, masked=False, probe=True)
    world = loss_world()
    exam = with_probe(every_once(world, masked=True), 1)  # one more negative than the noise mass
    assert not close(optimum("sampled_softmax", exam, world)[0].softmax(1), world.p, 1e-3)


def test_mutant_masked_draws_subtracted_from_the_mass_is_detected(monkeypatch):
    def after_masking(self: LossInput) -> Tensor:
        assert self.drawn.total_weight is not None
        weight = self.drawn.per_row(self.drawn.weight, len(self.pos))
        excluded = torch.zeros_like(self.pos)
        if self.drawn.false_negatives is not None and weight is not None:
            row, column = self.drawn.false_negatives
            excluded = excluded.index_add(0, row, weight[row, column])
        return (self.drawn.total_weight - excluded[:, None]).log()

    monkeypatch.setattr(LossInput, "log_total_weight", property(after_masking))
    for layout in LAYOUTS:
        assert nce_meets_its_optimum(layout, masked=False, probe=True)      # no masking, no change
        assert not nce_meets_its_optimum(layout, masked=True, probe=False)


def test_mutant_uncorrected_target_is_detected():
    """Ranking NCE that corrects only the negatives."""
    world = loss_world()
    exam = every_draw(world, 2, masked=False)
    flat = replace(exam, drawn=replace(exam.drawn, log_q_target=torch.full_like(exam.chance, -math.log(world.v))))
    table, _ = optimum("sampled_softmax", flat, world, form="ranking")
    assert not close(table.softmax(1), world.p, 1e-3)


@pytest.mark.parametrize(("name", "settings"), [("softmax", {}), ("nce", {"partition": "fixed"}),
                                                ("nce", {"partition": "global", "log_z_start": "log n"})])
def test_the_penalty_normalises_the_model(name, settings):
    """E|log Z| of the model falls with α; without α it is free or, for masked NCE, settles elsewhere."""
    world = loss_world()
    exam = every_once(world, masked=False) if name == "softmax" else every_column(world, MASS, "private", masked=True)
    size = []
    for penalty in (0.0, 0.1, 10.0):
        logit, _ = optimum(name, exam, world, penalty=penalty, **settings)
        size.append(float(logit.logsumexp(1).abs().mean()))
    assert size[0] > 1.2 * size[1] and size[1] >= size[2] - 1e-6 and size[2] < 0.05
