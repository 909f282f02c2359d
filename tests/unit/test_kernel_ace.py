"""The adversary's kernel: core and twin agree, draws follow the density, and hostile arguments are refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from cores import CORES, using
from hypothesis import given, settings
from hypothesis import strategies as st

from embtrain.kernels import ace as kernel
from embtrain.kernels.reference import ace as twin


@dataclass
class Case:
    tables: kernel.Tables
    row: np.ndarray
    ids: np.ndarray
    q: np.ndarray     # (R, V) float64  the density by its formula


def made(seed: int, v: int = 60, alone: int = 37, groups: int = 3, hidden: int = 32, rows: int = 5, mix: float = 0.4,
         draws: int = 50, k: int = 4) -> Case:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(v))
    klass = np.minimum(np.arange(v), alone + np.arange(v) % groups)
    c = int(klass.max()) + 1
    mass = np.bincount(klass, p, c)
    within = np.where(klass < alone, 1.0, p / mass[klass])
    member = np.argsort(klass, kind="stable")
    first = np.searchsorted(klass[member], np.arange(c + 1))
    sums = np.cumsum(within[member])
    upto = sums - np.where(first > 0, sums[first - 1], 0.0)[klass[member]]
    z, w = (rng.normal(0, 0.5, (n, hidden)).astype(np.float32) for n in (rows, c))
    logits = z.astype(np.float64) @ w.T.astype(np.float64)
    log_z = np.log(np.exp(logits).sum(1))
    n = -(-c // kernel.WIDTH)
    g = np.zeros((rows, n * kernel.WIDTH), np.float32)
    g[:, :c] = np.exp(logits - log_z[:, None])
    ends = np.cumsum(g.reshape(rows, n, -1).sum(2).astype(np.float64), axis=1)
    accept, alias = table(p)
    tables = kernel.Tables(z, w, log_z.astype(np.float32), g, ends, kernel.words(klass, np.log(within), p),
                           accept, alias, member, first.astype(np.int64), upto, mix)
    q = mix * p + (1 - mix) * np.exp(logits - log_z[:, None])[:, klass] * within
    return Case(tables, rng.integers(rows, size=draws), rng.integers(v, size=(draws, k)), q)


def table(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An alias table by hand: each column is kept with probability V p, or the greatest rest is taken."""
    v, scaled = len(p), p * len(p)
    accept, alias = np.ones(v), np.arange(v)
    for _ in range(v):
        low, high = int(np.argmin(np.where(accept < 1, 9, scaled))), int(np.argmax(np.where(accept < 1, 0, scaled)))
        if scaled[low] >= 1 - 1e-12:
            break
        accept[low], alias[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
    bits = np.ldexp(np.where(accept >= 1, 0, accept), 64).astype(np.uint64)
    bits[accept >= 1] = 2 ** 64 - 1
    return bits, alias


SHAPES = st.fixed_dictionaries({
    "seed": st.integers(0, 10**6), "v": st.integers(2, 90), "alone": st.integers(1, 90), "groups": st.integers(1, 5),
    "hidden": st.integers(1, 40), "rows": st.integers(1, 6), "mix": st.sampled_from([0.0, 0.3, 1.0]),
    "draws": st.integers(0, 300), "k": st.integers(1, 6)})


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.sampled_from([None, 0, 1, 2]), st.integers(0, 2**64 - 1))
def test_every_core_and_the_twin_agree(shape, by_noise, seed):
    for level in CORES:
        with using(level):
            agree(shape, by_noise, seed)


def agree(shape: dict[str, int], by_noise: int | None, seed: int) -> None:
    of = made(**(shape | {"alone": min(shape["alone"], shape["v"])}))
    t = of.tables
    k = shape["k"]
    for here, there in zip(kernel.draw(t, of.row, k, by_noise, seed), twin.draw(t, of.row, k, by_noise, seed),
                           strict=True):
        assert np.array_equal(here, there)
    for here, there in zip(kernel.density(t, of.ids, of.row), twin.density(t, of.ids, of.row), strict=True):
        np.testing.assert_allclose(here, there, rtol=2e-5, atol=2e-5)
    a = np.random.default_rng(1).normal(size=of.ids.shape).astype(np.float32)
    sums = [[np.full(x.shape, 0.5, np.float32) for x in (t.w, t.z, t.log_z)] for _ in range(2)]
    kernel.collect(t, of.ids, of.row, a, *sums[0])
    twin.collect(t, of.ids, of.row, a, *sums[1])
    for here, there in zip(*sums, strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("by", [kernel, twin])
@pytest.mark.parametrize("mix", [0.0, 0.4, 1.0])
def test_densities_are_the_formula(by, mix):
    of = made(3, mix=mix)
    everyone = np.tile(np.arange(60), (5, 1))
    _, log_q = by.density(of.tables, everyone, np.arange(5))
    np.testing.assert_allclose(np.exp(log_q), of.q, rtol=3e-5)
    np.testing.assert_allclose(np.exp(log_q).sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("by", [kernel, twin])
def test_draws_follow_the_density(by):
    of = made(4)
    n = 60_000
    for row in (0, 3):
        ids, origin = by.draw(of.tables, np.full(n, row), 2, None, 11 + row)
        seen, expected = np.bincount(ids.reshape(-1), minlength=60), 2 * n * of.q[row]
        big = expected >= 50
        chi2 = ((seen - expected)[big] ** 2 / expected[big]).sum()
        assert chi2 < big.sum() + 4.5 * np.sqrt(2 * big.sum())
        assert abs((origin == 0).mean() - 0.4) < 4.5 * np.sqrt(0.24 / (2 * n))


def test_the_first_columns_are_the_noise_s():
    _, origin = kernel.draw(made(5).tables, np.zeros(7, np.int64), 5, 2, 0)
    assert (origin == [0, 0, 1, 1, 1]).all()


def test_a_class_without_mass_is_never_drawn():
    of = made(6, mix=0.0)
    t = of.tables
    t.g[:, 5:20] = 0
    t.ends[:] = np.cumsum(t.g.reshape(5, -1, kernel.WIDTH).sum(2).astype(np.float64), axis=1)
    ids, _ = kernel.draw(t, np.zeros(20_000, np.int64), 2, None, 1)
    assert not np.isin(ids, np.arange(5, 20)).any()


def test_what_does_not_fit_is_refused():
    of = made(7)
    t, row, ids = of.tables, of.row, of.ids
    a = np.zeros(ids.shape, np.float32)
    sums = [np.zeros(x.shape, np.float32) for x in (t.w, t.z, t.log_z)]
    for bad in (np.full(50, 5), np.full(50, -1)):
        with pytest.raises(IndexError):
            kernel.draw(t, bad, 4, None, 0)
        with pytest.raises(IndexError):
            kernel.density(t, ids, bad)
    for wrong in (np.full_like(ids, 60), np.full_like(ids, -1)):
        with pytest.raises(IndexError):
            kernel.density(t, wrong, row)
        with pytest.raises(IndexError):
            kernel.collect(t, wrong, row, a, *sums)
    assert not any(x.any() for x in sums)
    for field, value in (("w", t.w[:, ::2]), ("z", t.z.astype(np.float64)), ("g", t.g[:, :-1]), ("alias", t.alias[1:])):
        with pytest.raises(ValueError, match=field):
            kernel.density(t._replace(**{field: value}), ids, row)
