"""Kernel reinforce: factors against the formula, collected gradients, core against reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.adversary import SHAPES, made
from helpers.cores import CORES, using
from hypothesis import given, settings, strategies as st

from embtrain.kernels.sampling import generator, reinforce
from embtrain.kernels.sampling.reinforce import DrawnNegatives, GradientSums, ReinforceSpec

V = 40


def columns(seed: int, n: int, k: int, forgiven: bool) -> tuple[np.ndarray, DrawnNegatives]:
    """Tables of words and negatives; the last negative is a probe."""
    rng = np.random.default_rng(seed)
    word = generator.pack_words(np.zeros(V, np.int64), np.zeros(V), rng.dirichlet(np.ones(V)))
    origin = rng.integers(2, size=(n, k)).astype(np.int8)
    origin[:, k - 1:] = 2
    wrong = rng.choice([0.0, 0.5, 1.0, 1.0], size=(n, k)).astype(np.float32)
    real = rng.normal(size=(2, n, k)).astype(np.float32)
    return word, DrawnNegatives(rng.integers(V, size=(n, k)), origin, real[0] * 2 - 4, np.exp(real[1]),
                         wrong if forgiven else None)


def by_hand(rule: ReinforceSpec, word: np.ndarray, of: DrawnNegatives) -> tuple[np.ndarray, list[float]]:
    n, k = of.ids.shape
    def reward(i: int, j: int) -> float:
        r = (float(of.cost[i, j]) - rule.centre) / rule.scale
        share = 1.0 if of.negative_share is None else float(of.negative_share[i, j])
        return share * r - (1 - share) * rule.penalty
    g_s = [(i, j) for i in range(n) for j in range(k) if of.origin[i, j] == 1]
    a, sums = np.zeros((n, k)), [0.0] * 9
    for i in range(n):
        for j in range(k):
            if rule.critic == "last":
                b = reward(i, k - 1)
            elif rule.critic == "others":
                others = [reward(*at) for at in g_s if at != (i, j)] if len(g_s) > 1 else []
                b = sum(others) / len(others) if others else 0.0
            else:
                b = rule.baseline
            rho = float(of.origin[i, j] == 1)
            if of.origin[i, j] == 0 and rule.importance:
                rho = min(math.exp(float(of.log_g[i, j])) / float(word["p"][of.ids[i, j]]), rule.clip)
            advantage = reward(i, j) - b
            a[i, j] = rho * advantage
            mine, cost = of.origin[i, j] == 1, float(of.cost[i, j])
            share = 0.0 if of.negative_share is None else 1 - float(of.negative_share[i, j])
            told = (mine, rho > 0, of.origin[i, j] == 0, of.origin[i, j] == 0 and rho >= rule.clip, mine * share,
                    mine * cost, mine * cost ** 2, mine * advantage, mine * advantage ** 2)
            sums = [x + float(y) for x, y in zip(sums, told, strict=True)]
    return a, sums


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 7), st.booleans(), st.booleans(),
       st.sampled_from(["none", "last", "others"]), st.sampled_from([0.0, -0.7]))
def test_factors_match_the_formula(seed, n, k, forgiven, importance, critic, baseline):
    word, of = columns(seed, n, k, forgiven)
    rule = ReinforceSpec(0.6, 1.7, 0.8, baseline, 3.0, critic, importance)
    a, sums = by_hand(rule, word, of)
    for level in CORES:
        with using(level):
            found, told = reinforce.factors(rule, word, of)
        np.testing.assert_allclose(found, a, rtol=2e-5, atol=2e-5, err_msg=level)
        np.testing.assert_allclose(list(told), sums, rtol=2e-5, atol=2e-4, err_msg=level)


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(1, 6))
def test_collected_gradients_match_the_formula(shape, k):
    of = made(**(shape | {"alone": min(shape["alone"], shape["v"])}))
    t, rng = of.tables, np.random.default_rng(1)
    ids, a = rng.integers(shape["v"], size=(len(of.row), k)), rng.normal(size=(len(of.row), k)).astype(np.float32)
    a[rng.random(a.shape) < 0.3] = 0
    wanted = [np.full(x.shape, 0.5) for x in (t.w, t.z, t.log_z, t.log_z)]
    for i, x in enumerate(of.row):
        for j in range(k):
            c = t.word["klass"][ids[i, j]]
            wanted[0][c] -= a[i, j] * t.z[x]
            wanted[1][x] -= a[i, j] * t.w[c]
            wanted[2][x] += a[i, j]
        wanted[3][x] += 1
    for level in CORES:
        into = GradientSums(*(np.full(x.shape, 0.5, np.float32) for x in wanted))
        with using(level):
            reinforce.collect(t, ids, of.row, a, into)
        for here, there in zip(into, wanted, strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-4, err_msg=level)


@pytest.mark.parametrize("level", CORES)
def test_mismatched_arguments_are_rejected(level):
    word, of = columns(3, 5, 3, False)
    rule = ReinforceSpec(0.0, 1.0, 0.0, 0.0, 1.0, "last", True)
    with using(level):
        for wrong in (-1, V):
            with pytest.raises(IndexError):
                reinforce.factors(rule, word, of._replace(ids=np.full((5, 3), wrong)))
        for field, value in (("cost", of.cost[:, :2]), ("origin", of.origin.astype(np.int64)),
                             ("wrong", np.zeros((5, 2), np.float32))):
            with pytest.raises((TypeError, ValueError), match=field):
                reinforce.factors(rule, word, of._replace(**{field: value}))
