"""Kernels of the adversary: core against reference, draws against the density, and argument checks."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.adversary import SHAPES, Case, made, tables_of
from helpers.cores import CORES, using
from helpers.looped import looped
from hypothesis import given, settings, strategies as st

from embtrain.kernels.reference.sampling import generator as reference
from embtrain.kernels.sampling import generator as kernel, reinforce


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.integers(1, 6), st.sampled_from([None, 0, 1, 2]), st.booleans(), st.integers(0, 2**64 - 1))
def test_every_core_and_the_reference_agree(shape, k, by_noise, probe, seed):
    case = made(**(shape | {"alone": min(shape["alone"], shape["v"])}))
    for level in CORES:
        with using(level):
            assert_agree(case, k, by_noise, probe, seed)


def assert_agree(case: Case, k: int, by_noise: int | None, probe: bool, seed: int) -> None:
    t = case.tables
    core_result = kernel.draw(t, case.row, k, by_noise, probe, seed)
    reference_result = kernel.GeneratorDraws(*reference.draw(t, case.row, k, by_noise, probe, seed))
    assert np.array_equal(core_result.origin, reference_result.origin)
    same = core_result.ids == reference_result.ids
    assert (~same).sum() <= 1                    # at most one draw within rounding of a boundary
    for a, b in ((core_result.log_g, reference_result.log_g), (core_result.log_q, reference_result.log_q)):
        np.testing.assert_allclose(a[same], b[same], rtol=2e-5, atol=2e-5)
    for a, b in zip(kernel.density(t, case.ids, case.row, case.start),
                    reference.density(t, case.ids, case.row, case.start),
                    strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 9), st.integers(1, 90), st.sampled_from([1.0, 30.0]))
def test_rows_of_every_core_and_the_reference_agree(seed, n, c, far):
    """Cumulative sums, log Z, the greedy class and its log g, g, and the gradient."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, far, (n, c)).astype(np.float32)
    log_best = np.where(np.arange(c) % 3 == 2, -rng.random(c) * 4, 0).astype(np.float32)
    a, h, entropy = rng.normal(0, 1, (3, n)).astype(np.float32)
    h, eta = np.maximum(h, 0), np.abs(rng.normal(0, 1, c)).astype(np.float32)
    outputs = {}
    for level in CORES:
        with using(level):
            into = kernel.GeneratorRows(np.full((n, kernel.n_ends(c)), 9, np.uint32), np.full(n, 9, np.float32),
                                        np.full(n, 9),
                               np.full(n, 9, np.float32))
            kernel.summarize_rows(logits, log_best, into)
            g = logits.copy()
            within = kernel.soften(g, into.log_z, eta)
            sloped = g.copy()
            kernel.slope(sloped, a, h, entropy, eta)
            outputs[level] = (into.ends / 2.0 ** 32, *into[1:], g, within, sloped)
    true = logits.astype(np.float64)
    log_z = np.log(np.exp(true).sum(1))
    np.testing.assert_allclose(outputs["off"][1], log_z, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs["off"][3], (true + log_best).max(1) - log_z, rtol=1e-4, atol=2e-5)
    blocks = np.add.reduceat(np.exp(true - log_z[:, None]), np.arange(0, c, kernel.WIDTH), axis=1)
    np.testing.assert_allclose(outputs["off"][0][:, :blocks.shape[1]], np.cumsum(blocks, 1), rtol=1e-4, atol=1e-6)
    assert (outputs["off"][0][:, blocks.shape[1] - 1:] > 0.999999).all()
    np.testing.assert_allclose(outputs["off"][4], np.exp(true - log_z[:, None]), rtol=1e-4, atol=1e-6)
    for level in CORES:
        for core_result, reference_result in zip(outputs[level], outputs["off"], strict=True):
            np.testing.assert_allclose(core_result, reference_result, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("by", [kernel, reference])
@pytest.mark.parametrize("mix", [0.0, 0.4, 1.0])
def test_densities_match_the_formula(by, mix):
    case = made(3, mix=mix)
    all_ids = np.tile(np.arange(60), (5, 1))
    _, log_q = by.density(case.tables, all_ids.reshape(-1), np.arange(5), np.arange(0, 301, 60))
    log_q = log_q.reshape(5, 60)
    np.testing.assert_allclose(np.exp(log_q), case.q, rtol=3e-5)
    np.testing.assert_allclose(np.exp(log_q).sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("by", [kernel, reference])
def test_draws_follow_the_density(by):
    case = made(4)
    n = 60_000
    for row in (0, 3):
        ids, origin, _, log_q = by.draw(case.tables, np.full(n, row), 2, None, True, 11 + row)
        assert (ids[:, 2] == case.tables.greedy[row]).all() and (origin[:, 2] == 2).all()
        np.testing.assert_allclose(np.exp(log_q), case.q[row][ids], rtol=3e-5)
        ids, origin = ids[:, :2], origin[:, :2]
        observed, expected = np.bincount(ids.reshape(-1), minlength=60), 2 * n * case.q[row]
        big = expected >= 50
        chi2 = ((observed - expected)[big] ** 2 / expected[big]).sum()
        assert chi2 < big.sum() + 4.5 * np.sqrt(2 * big.sum())
        assert abs((origin == 0).mean() - 0.4) < 4.5 * np.sqrt(0.24 / (2 * n))


def test_the_first_negatives_come_from_the_noise():
    origin = kernel.draw(made(5).tables, np.zeros(7, np.int64), 5, 2, False, 0).origin
    assert (origin == [0, 0, 1, 1, 1]).all()


def test_a_class_of_negligible_mass_is_not_drawn():
    case = made(6, mix=0.0)
    t = case.tables
    t.w[5:20] = -60 * t.z[0] / (t.z[0] ** 2).sum()
    logits, many = (t.z @ t.w.T), np.zeros(20_000, np.int64)
    best = np.zeros(5, np.int64)
    kernel.summarize_rows(logits, np.zeros(len(t.w), np.float32),
                          kernel.GeneratorRows(t.ends, t.log_z, best, t.log_best))
    drawn = kernel.draw(t._replace(panel=kernel.to_panels(t.w)), many, 2, None, False, 1)
    assert not np.isin(drawn.ids, np.arange(5, 20)).any()


@pytest.mark.parametrize("level", CORES)
def test_members_of_a_class_are_drawn_in_proportion_to_uneven_shares(level):
    """Very uneven members in two classes of different size; one member has probability 0."""
    rng = np.random.default_rng(2)
    n, v, draws = np.array([25, 15]), 40, 60_000
    within = np.concatenate([rng.dirichlet(np.full(size, 0.3)) for size in n])
    within[7] = 0.0
    within[:25] /= within[:25].sum()
    case = made(8, v=v, alone=1, groups=2, mix=0.0)
    first = np.array([0, 25, 40])
    keep, instead = tables_of(within, first)
    w = case.tables.w[:2].copy()
    logits = (case.tables.z @ w.T).astype(np.float64)
    g = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    t = case.tables._replace(w=w, panel=kernel.to_panels(w), log_z=np.log(np.exp(logits).sum(1)).astype(np.float32),
                             ends=reference.fixed_point(np.ones((5, 1))), keep=keep, instead=instead,
                             member=np.arange(v),
                             first=first, word=kernel.pack_words(np.repeat([0, 1], n), np.log(within + 1e-30),
                                                          np.full(v, 1 / v)))
    with using(level):
        core_result = kernel.draw(t, np.full(draws, 3), 1, 0, False, 5).ids[:, 0]
    reference_result = reference.draw(t, np.full(draws, 3), 1, 0, False, 5)[0][:, 0]
    assert (core_result != reference_result).sum() <= 1
    observed, expected = np.bincount(core_result, minlength=v), draws * np.repeat(g[3], n) * within
    big = expected >= 50
    chi2 = ((observed - expected)[big] ** 2 / expected[big]).sum()
    assert observed[7] == 0 and chi2 < big.sum() + 4.5 * np.sqrt(2 * big.sum())


def test_mismatched_arguments_are_rejected():
    case = made(7)
    t, row, ids, start = case.tables, case.row, case.ids, case.start
    a = np.zeros((50, 1), np.float32)
    into = reinforce.GradientSums(*(np.zeros(x.shape, np.float32) for x in (t.w, t.z, t.log_z, t.log_z)))
    for bad in (np.full(50, 5), np.full(50, -1)):
        with pytest.raises(IndexError):
            kernel.draw(t, bad, 4, None, True, 0)
        with pytest.raises(IndexError):
            kernel.density(t, ids, bad, start)
        with pytest.raises(IndexError):
            reinforce.collect(t, ids[:, None], bad, a, into)
    for invalid in (np.full_like(ids, 60), np.full_like(ids, -1)):
        with pytest.raises(IndexError):
            kernel.density(t, invalid, row, start)
        with pytest.raises(IndexError):
            reinforce.collect(t, invalid[:, None], row, a, into)
    assert not any(x.any() for x in into)
    for offsets in (start + 1, start[::-1].copy(), np.concatenate([start[:-1], [51]])):
        with pytest.raises(ValueError, match="start"):
            kernel.density(t, ids, row, offsets)
    for field, value in (("w", t.w[:, ::2]), ("z", t.z.astype(np.float64)), ("panel", t.panel[:, :-1]),
                         ("greedy", t.greedy[1:]), ("alias", t.alias[1:])):
        with pytest.raises((TypeError, ValueError), match=field):
            kernel.density(t._replace(**{field: value}), ids, row, start)


@looped("core", CORES)
@looped("mix, result", [(1.0, lambda case, g: -np.inf), (0.5, lambda case, g: np.log(0.5) + g)])
def test_a_candidate_without_noise_has_only_the_generator_density(core, mix, result):
    case = made(3, mix=mix)
    word = case.tables.word.copy()
    word["p"][5] = 0.0
    with using(core):
        log_g, log_q = kernel.density(case.tables._replace(word=word), np.full(1, 5), np.zeros(1, np.int64),
                                      np.array([0, 1]))
    assert log_q[0] == pytest.approx(result(case, log_g[0]), rel=1e-4)
