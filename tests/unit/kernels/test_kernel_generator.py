"""Kernels of the adversary: core against reference, draws against the density, and argument checks."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.adversary import SHAPES, Case, made, tables_of
from helpers.cores import CORES, using
from helpers.looped import looped
from hypothesis import example, given, settings, strategies as st

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
    """Cumulative sums, log Z, the greedy class and its log g."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, far, (n, c)).astype(np.float32)
    log_best = np.where(np.arange(c) % 3 == 2, -rng.random(c) * 4, 0).astype(np.float32)
    outputs = {}
    for level in CORES:
        with using(level):
            into = empty_rows(n, c)
            kernel.summarize_rows(logits, kernel.to_panels(np.eye(c, dtype=np.float32)), log_best, into)
            outputs[level] = (into.ends / 2.0 ** 32, *into[1:])
    true = logits.astype(np.float64)
    log_z = np.log(np.exp(true).sum(1))
    np.testing.assert_allclose(outputs["off"][1], log_z, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs["off"][3], (true + log_best).max(1) - log_z, rtol=1e-4, atol=2e-5)
    blocks = np.add.reduceat(np.exp(true - log_z[:, None]), np.arange(0, c, kernel.WIDTH), axis=1)
    np.testing.assert_allclose(outputs["off"][0][:, :blocks.shape[1]], np.cumsum(blocks, 1), rtol=1e-4, atol=1e-6)
    assert (outputs["off"][0][:, blocks.shape[1] - 1:] > 0.999999).all()
    for level in CORES:
        for core_result, reference_result in zip(outputs[level], outputs["off"], strict=True):
            np.testing.assert_allclose(core_result, reference_result, rtol=1e-4, atol=2e-5)


def empty_rows(n: int, c: int) -> kernel.GeneratorRows:
    return kernel.GeneratorRows(np.full((n, kernel.n_ends(c)), 9, np.uint32), np.full(n, 9, np.float32), np.full(n, 9),
                                np.full(n, 9, np.float32))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 70), st.integers(1, 200), st.integers(1, 40))
@example(0, 37, 2100, 17)
def test_gradients_of_every_core_and_of_the_formula_agree(seed, n, c, hidden):
    """Tiles of 32 rows and 2,048 classes, the ends of both, and rows with and without the entropy term."""
    rng = np.random.default_rng(seed)
    z, w = rng.normal(0, 1, (n, hidden)).astype(np.float32), rng.normal(0, .3, (c, hidden)).astype(np.float32)
    total, share, eta = rng.normal(0, 1, n), rng.random(n), np.abs(rng.normal(0, 1, c))
    logits = z.astype(float) @ w.T.astype(float)
    log_z = np.log(np.exp(logits).sum(1))
    g = np.exp(logits - log_z[:, None])
    entropy = log_z - (z * (g @ w)).sum(1) + g @ eta
    ordered = np.sort(np.concatenate([entropy, [0.0]]))
    widest = np.diff(ordered).argmax() if n else 0           # a limit that is far from every entropy
    limit = float(ordered[widest:widest + 2].mean())
    h = np.where(entropy < limit, .7 * share, 0)[:, None]
    slope = g * (total[:, None] + h * (np.log(g) - eta + entropy[:, None]))
    objective = kernel.EntropyObjective(*(x.astype(np.float32) for x in (total, share, eta)), .7, limit)
    case = made(3)
    tables = case.tables._replace(z=z, w=w, panel=kernel.to_panels(w), log_z=log_z.astype(np.float32),
                                  ends=np.zeros((n, kernel.n_ends(c)), np.uint32), greedy=np.zeros(n, np.int64),
                                  log_best=np.zeros(n, np.float32), first=np.zeros(c + 1, np.int64))
    for level in CORES:
        with using(level):
            into_w, into_z = np.ones_like(w), np.ones_like(z)
            result = kernel.gradient(tables, objective, into_w, into_z)
        np.testing.assert_allclose(result, entropy, rtol=1e-4, atol=1e-4)
        for actual, expected in ((into_w, slope.T @ z), (into_z, slope @ w)):
            largest = max(1, np.abs(expected).max(initial=0))
            np.testing.assert_allclose(actual - 1, expected, rtol=1e-4, atol=2e-5 * largest)


@pytest.mark.parametrize("level", CORES)
def test_rows_and_gradients_do_not_depend_on_threads(level):
    rng = np.random.default_rng(3)
    n, c, hidden = 3 * kernel.GRAIN + 5, 50, 16
    z, w = rng.normal(0, 1, (n, hidden)).astype(np.float32), rng.normal(0, .3, (c, hidden)).astype(np.float32)
    objective = kernel.EntropyObjective(*(rng.random(m).astype(np.float32) for m in (n, n, c)), 1.0, 3.8)
    results = []
    for threads in (1, 3):
        with using(level):
            rows, into_w, into_z = empty_rows(n, c), np.zeros_like(w), np.zeros_like(z)
            kernel.summarize_rows(z, kernel.to_panels(w), objective.eta, rows, threads)
            tables = made(3).tables._replace(z=z, w=w, panel=kernel.to_panels(w), log_z=rows.log_z, ends=rows.ends,
                                             greedy=rows.best, log_best=rows.log_top, first=np.zeros(c + 1, np.int64))
            results.append((*rows, kernel.gradient(tables, objective, into_w, into_z, threads), into_z, into_w))
    for one, three in zip(*results, strict=True):
        np.testing.assert_allclose(one, three, rtol=1e-5, atol=1e-5)


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
    best, many = np.zeros(5, np.int64), np.zeros(20_000, np.int64)
    kernel.summarize_rows(t.z, kernel.to_panels(t.w), np.zeros(len(t.w), np.float32),
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
    two = np.repeat(ids, 2)
    two[-1] = 60                                             # only the last id
    with pytest.raises(IndexError):
        kernel.density(t, two, row, np.arange(0, 101, 2))
    with pytest.raises(IndexError):
        reinforce.collect(t, two.reshape(50, 2), row, np.zeros((50, 2), np.float32), into)
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
