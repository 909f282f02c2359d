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


def word_and_negatives(seed: int, n: int, k: int, masked: bool) -> tuple[np.ndarray, DrawnNegatives]:
    """Tables of words and negatives; the last negative is a probe."""
    rng = np.random.default_rng(seed)
    word = generator.pack_words(np.zeros(V, np.int64), np.zeros(V), rng.dirichlet(np.ones(V)))
    origin = rng.integers(2, size=(n, k)).astype(np.int8)
    origin[:, k - 1:] = 2
    share = rng.choice([0.0, 0.5, 1.0, 1.0], size=(n, k)).astype(np.float32)
    real = rng.normal(size=(2, n, k)).astype(np.float32)
    return word, DrawnNegatives(rng.integers(V, size=(n, k)), origin, real[0] * 2 - 4, np.exp(real[1]),
                         share if masked else None)


def by_hand(rule: ReinforceSpec, word: np.ndarray, negatives: DrawnNegatives) -> tuple[np.ndarray, list[float]]:
    n, k = negatives.ids.shape
    def reward(i: int, j: int) -> float:
        r = (float(negatives.cost[i, j]) - rule.centre) / rule.scale
        share = 1.0 if negatives.negative_share is None else float(negatives.negative_share[i, j])
        return share * r - (1 - share) * rule.penalty
    g_s = [(i, j) for i in range(n) for j in range(k) if negatives.origin[i, j] == 1]
    a, sums = np.zeros((n, k)), [0.0] * 9
    for i in range(n):
        for j in range(k):
            if rule.baseline_kind == "last":
                b = reward(i, k - 1)
            elif rule.baseline_kind == "others":
                others = [reward(*index) for index in g_s if index != (i, j)] if len(g_s) > 1 else []
                b = sum(others) / len(others) if others else 0.0
            else:
                b = rule.baseline
            rho = float(negatives.origin[i, j] == 1)
            if negatives.origin[i, j] == 0 and rule.importance:
                rho = min(math.exp(float(negatives.log_g[i, j])) / float(word["p"][negatives.ids[i, j]]), rule.clip)
            advantage = reward(i, j) - b
            a[i, j] = rho * advantage
            is_own, cost = negatives.origin[i, j] == 1, float(negatives.cost[i, j])
            share = 0.0 if negatives.negative_share is None else 1 - float(negatives.negative_share[i, j])
            terms = (is_own, rho > 0, negatives.origin[i, j] == 0, negatives.origin[i, j] == 0 and rho >= rule.clip,
                     is_own * share, is_own * cost, is_own * cost ** 2, is_own * advantage, is_own * advantage ** 2)
            sums = [x + float(y) for x, y in zip(sums, terms, strict=True)]
    return a, sums


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 7), st.booleans(), st.booleans(),
       st.sampled_from(["none", "last", "others"]), st.sampled_from([0.0, -0.7]))
def test_factors_match_the_formula(seed, n, k, masked, importance, kind, baseline):
    word, negatives = word_and_negatives(seed, n, k, masked)
    rule = ReinforceSpec(0.6, 1.7, 0.8, baseline, 3.0, kind, importance)
    a, sums = by_hand(rule, word, negatives)
    for level in CORES:
        with using(level):
            factors, totals = reinforce.factors(rule, word, negatives)
        np.testing.assert_allclose(factors, a, rtol=2e-5, atol=2e-5, err_msg=level)
        np.testing.assert_allclose(list(totals), sums, rtol=2e-5, atol=2e-4, err_msg=level)


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(1, 6))
def test_collected_gradients_match_the_formula(shape, k):
    case = made(**(shape | {"alone": min(shape["alone"], shape["v"])}))
    t, rng = case.tables, np.random.default_rng(1)
    ids = rng.integers(shape["v"], size=(len(case.row), k))
    a = rng.normal(size=(len(case.row), k)).astype(np.float32)
    a[rng.random(a.shape) < 0.3] = 0
    expected = [np.full(x.shape, 0.5) for x in (t.w, t.z, t.log_z, t.log_z)]
    for i, x in enumerate(case.row):
        for j in range(k):
            c = t.word["klass"][ids[i, j]]
            expected[0][c] -= a[i, j] * t.z[x]
            expected[1][x] -= a[i, j] * t.w[c]
            expected[2][x] += a[i, j]
        expected[3][x] += 1
    for level in CORES:
        into = GradientSums(*(np.full(x.shape, 0.5, np.float32) for x in expected))
        with using(level):
            reinforce.collect(t, ids, case.row, a, into)
        for core_result, reference_result in zip(into, expected, strict=True):
            np.testing.assert_allclose(core_result, reference_result, rtol=1e-4, atol=1e-4, err_msg=level)


@pytest.mark.parametrize("level", CORES)
def test_mismatched_arguments_are_rejected(level):
    word, negatives = word_and_negatives(3, 5, 3, False)
    rule = ReinforceSpec(0.0, 1.0, 0.0, 0.0, 1.0, "last", True)
    with using(level):
        for invalid in (-1, V):
            with pytest.raises(IndexError):
                reinforce.factors(rule, word, negatives._replace(ids=np.full((5, 3), invalid)))
        for field, value in (("cost", negatives.cost[:, :2]), ("origin", negatives.origin.astype(np.int64)),
                             ("negative_share", np.zeros((5, 2), np.float32))):
            with pytest.raises((TypeError, ValueError), match=field):
                reinforce.factors(rule, word, negatives._replace(**{field: value}))
