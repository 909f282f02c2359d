"""Kernel tree_walk: core against reference and a walk in plain Python, targets, threads, argument checks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.eight_bits import in_eight_bits, scale_of
from hypothesis import given, strategies as st
from scipy import stats

from embtrain.common.errors import UsageError
from embtrain.kernels.reference import splitmix64
from embtrain.kernels.reference.sampling import tree_walk as reference
from embtrain.kernels.sampling import tree_walk as kernel
from embtrain.kernels.sampling.tree_walk import TreeLevels, WalkRequest


@dataclass
class Planted:
    """A tree of candidates with φ (V, W) and π, and requests for three queries."""

    levels: TreeLevels
    phi: np.ndarray
    prior: np.ndarray
    request: WalkRequest

    @property
    def blocks(self) -> int:
        return -(-len(self.phi) // self.levels.leaf)


def planted(v: int, fan: int, leaf: int, width: int = 19, n: int = 60, seed: int = 0, excluded: bool = False,
            full: bool = False, eight: bool = False) -> Planted:
    """whole: all masses are integers, exact in any order of summation; otherwise a third of them is negative. eight:
    the sums are int8."""
    draw = np.random.default_rng([seed, v, fan, leaf])
    phi = draw.integers(0, 9, (v, width)).astype(float) if full else draw.normal(0.3, 1, (v, width))
    prior = np.ones(v) if full else draw.random(v) + 0.2
    depth, under = 1, leaf * fan
    while under < v:
        depth, under = depth + 1, under * fan
    sums, priors, counts = [], [], []
    for level in range(depth):
        span = leaf * fan ** (depth - 1 - level)
        real = -(-v // span)
        places = -(-real // fan) * fan
        starts = np.arange(places) * span
        sums.append(np.array([(prior[s:s + span, None] * phi[s:s + span]).sum(0) for s in starts], np.float32))
        priors.append(np.array([prior[s:s + span].sum() for s in starts]))
        counts.append(np.array([len(prior[s:s + span]) for s in starts], np.int64))
    h = np.eye(3, width) if full else draw.normal(0.3, 1, (3, width))
    query_id = draw.integers(0, 3, n)
    request = WalkRequest(h.astype(np.float32), np.array([0.01, 0.2, 1.5]), query_id)
    if excluded:
        target = draw.integers(0, v, n)
        request = WalkRequest(*request[:3], target, prior[target] * (phi[target] * h[query_id]).sum(1), prior[target])
    scales = [scale_of(s) for s in sums] if eight else None
    if scales is not None:
        sums = [in_eight_bits(s, scale) for s, scale in zip(sums, scales, strict=True)]
    return Planted(TreeLevels(sums, priors, counts, fan, leaf, scales), phi, prior, request)


def anywhere(n: int) -> np.ndarray:
    return np.full(n, -1)


SHAPES = st.tuples(st.integers(2, 150), st.integers(2, 20), st.integers(1, 7))


# --- the core and its reference ---------------------------------------------------------------------------------------

@given(SHAPES, st.booleans(), st.booleans(), st.integers(0, 2 ** 64 - 1), st.integers(1, 70))
def test_every_core_walks_like_the_reference(shape: tuple[int, int, int], excluded: bool, eight: bool, seed: int,
                                             width: int) -> None:
    excluded &= shape[0] > shape[2]
    tree = planted(*shape, width, excluded=excluded, eight=eight)
    n = len(tree.request.query_id)
    block, log_q = reference.walk(tree.levels, tree.request, anywhere(n), seed, 5)
    for name in NATIVE:
        with using(name):
            drawn, log_drawn = kernel.walk(tree.levels, tree.request, anywhere(n), seed, 5)
            assert (drawn != block).sum() <= 1, name          # a random number within rounding of a boundary
            np.testing.assert_allclose(kernel.walk(tree.levels, tree.request, block)[1], log_q, rtol=0, atol=1e-4)
            repeated, log_again = kernel.walk(tree.levels, tree.request, drawn)
        assert np.array_equal(repeated, drawn) and np.array_equal(log_again, log_drawn)


@pytest.mark.parametrize(("v", "fan", "leaf"), [(1000, 2, 1), (300, 16, 3), (70, 64, 1), (5, 3, 8)])
def test_equal_masses_give_identical_ids(v: int, fan: int, leaf: int) -> None:
    tree, seed = planted(v, fan, leaf, n=2000, full=True), 2 ** 64 - 3
    expected = reference.walk(tree.levels, tree.request, anywhere(2000), seed, 0)
    for name in NATIVE:
        with using(name):
            result = kernel.walk(tree.levels, tree.request, anywhere(2000), seed)
        assert np.array_equal(result[0], expected[0]), name
        np.testing.assert_allclose(result[1], expected[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("width", [1, 63, 64, 65, 400, (1 << 14) + 70, 70_000])
def test_int8_products_are_integer_products(name: str, width: int) -> None:
    """Includes the extreme int8 values; no core is off by one."""
    draw = np.random.default_rng(width)
    z = draw.integers(-127, 128, (4, width))
    phi = draw.integers(-127, 128, (2, width)).astype(np.float32)
    z[:, -1], phi[:, -1], z[3], phi[1] = 127, 127, 127, 127
    for fan in (2, 4):
        blocks, ones = 4 // fan * fan, np.ones(4 // fan * fan)
        sums, scale = (z[:blocks] + 128).astype(np.uint8)[:fan], np.float32([1, 2, 0.5, 1])[:fan]
        levels = TreeLevels([sums], [ones[:fan]], [ones[:fan].astype(np.int64)], fan, 1, [scale])
        m = np.maximum(phi.astype(np.int64) @ z[:fan].T * scale.astype(float), 1e-3)          # (2, fan)
        request = WalkRequest(phi, np.full(2, 1e-3), np.arange(2).repeat(fan))
        with using(name):
            log_q = kernel.walk(levels, request, np.tile(np.arange(fan), 2))[1].reshape(2, fan)
        np.testing.assert_allclose(log_q, np.log(m / m.sum(1, keepdims=True)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CORES)
def test_a_walk_equals_plain_python(name: str) -> None:
    """Two levels of two, one candidate per block: masses, clamps and random numbers by hand."""
    tree, seed, i = planted(4, 2, 1, n=40), 77, 0
    with using(name):
        block, log_q = kernel.walk(tree.levels, tree.request, anywhere(40), seed)
    for i in range(40):
        query_id, node, q = int(tree.request.query_id[i]), 0, 1.0
        for level, span in ((0, 2), (1, 1)):
            m = []
            for child in (2 * node, 2 * node + 1):
                subset = slice(child * span, (child + 1) * span)
                raw = float((tree.prior[subset, None] * tree.phi[subset]).sum(0) @ tree.request.phi[query_id])
                m.append(max(raw, tree.request.floor[query_id] * tree.prior[subset].sum()))
            u = (int(splitmix64(int(splitmix64(seed, np.array(level))), np.array(i))) >> 11) / 2 ** 53
            slot = int(u * sum(m) >= m[0])
            node, q = 2 * node + slot, q * m[slot] / sum(m)
        assert block[i] == node and log_q[i] == pytest.approx(math.log(q), abs=1e-5)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("eight", [False, True])
@pytest.mark.parametrize("excluded", [False, True])
def test_block_probabilities_sum_to_one(name: str, excluded: bool, eight: bool) -> None:
    for v, fan, leaf in ((40, 2, 1), (41, 5, 3), (17, 16, 1), (9, 3, 2)):
        tree = planted(v, fan, leaf, n=1, excluded=excluded, eight=eight)
        request = WalkRequest(tree.request.phi, tree.request.floor,
                              *(None if x is None else x.repeat(tree.blocks) for x in tree.request[2:]))
        with using(name):
            log_q = kernel.walk(tree.levels, request, np.arange(tree.blocks))[1]
        assert np.exp(log_q).sum() == pytest.approx(1, abs=1e-9)
        if excluded and leaf == 1:
            assert log_q[tree.request.position[0]] == -math.inf                     # type: ignore[index]


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("eight", [False, True])
def test_frequencies_match_the_probabilities(name: str, eight: bool) -> None:
    tree, n = planted(90, 4, 1, n=200_000, excluded=True, eight=eight), 200_000
    single = WalkRequest(tree.request.phi, tree.request.floor,
                         *(x[:1].repeat(n) for x in tree.request[2:]))   # type: ignore[index]
    with using(name):
        block, log_q = kernel.walk(tree.levels, single, anywhere(n), 3)
    observed, q = np.bincount(block, minlength=90), np.zeros(90)
    q[block] = np.exp(log_q)
    subset = q * n >= 50
    # type: ignore[index]
    assert q.sum() == pytest.approx(1, abs=0.01) and subset.sum() > 20 and observed[single.position[0]] == 0
    assert stats.chi2.sf(((observed - q * n)[subset] ** 2 / (q * n)[subset]).sum(), int(subset.sum()) - 1) > 1e-4


@needs_core
@pytest.mark.parametrize("eight", [False, True])
def test_ids_do_not_depend_on_threads_chunks_or_other_rows(eight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "GRAIN", 8)
    tree = planted(500, 3, 2, n=301, excluded=True, eight=eight)
    with using(NATIVE[-1]):
        full = kernel.walk(tree.levels, tree.request, anywhere(301), 9)
        for threads in (2, 3, 64):
            parts = kernel.walk(tree.levels, tree.request, anywhere(301), 9, threads=threads)
            assert all(map(np.array_equal, full, parts))
        for a, b in ((0, 100), (100, 301)):
            subset = WalkRequest(*tree.request[:2], *(x[a:b] for x in tree.request[2:]))           # type: ignore[index]
            parts = kernel.walk(tree.levels, subset, anywhere(b - a), 9, a)
            assert all(np.array_equal(x[a:b], y) for x, y in zip(full, parts, strict=True))


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "walk", lambda *a: pytest.fail("the reference walked"))
    tree = planted(9, 2, 1)
    with using(NATIVE[-1]):
        kernel.walk(tree.levels, tree.request, anywhere(60))


def test_an_underflowing_probability_keeps_its_logarithm() -> None:
    """A block below 40 nodes of probability e^-30 each."""
    depth = 40
    levels = TreeLevels([np.array([[1], [1e-13]] + [[0]] * (2 * min(1, k)), np.float32) for k in range(depth)],
                    [np.ones(2 + 2 * min(1, k)) for k in range(depth)],
                    [np.array([1, 1] + [0] * (2 * min(1, k))) for k in range(depth)], 2, 1)
    request = WalkRequest(np.ones((1, 1), np.float32), np.full(1, 1e-300), np.zeros(1, np.int64))
    for name in NATIVE:
        with using(name):
            log_q = kernel.walk(levels, request, np.array([0]))[1]
            assert log_q[0] == pytest.approx(0, abs=1e-9), name


# --- invalid arguments ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", CORES)
def test_invalid_arguments_are_rejected(name: str) -> None:
    tree = planted(30, 2, 3)
    request, n = tree.request, len(tree.request.query_id)
    places = np.zeros(n, np.int64)
    with using(name):
        for bad in (request._replace(phi=request.phi.astype(np.float64)),
                    request._replace(floor=request.floor.astype(np.float32)),
                    request._replace(query_id=request.query_id.astype(np.int32)),
                    request._replace(phi=request.phi[:, ::2])):
            with pytest.raises(TypeError, match="tree: "):
                kernel.walk(tree.levels, bad, anywhere(n))
        invalid = [(request._replace(phi=np.ascontiguousarray(request.phi[:, :3])), anywhere(n), 0),
                   (request._replace(position=places), anywhere(n), 0), (request, anywhere(n - 1), 0),
                   (request, anywhere(n), -1),
                   (request, anywhere(n), 2 ** 64), (request, np.full(n, 10), 0), (request, np.full(n, -2), 0),
                   (request._replace(query_id=places + 3), anywhere(n), 0),
                   (request._replace(query_id=places - 1), anywhere(n), 0),
                   (request._replace(position=places + 30, target_mass=places * 1.0, target_prior=places * 1.0),
                    anywhere(n), 0)]
        for bad, expected, seed in invalid:
            with pytest.raises(ValueError, match="tree: "):
                kernel.walk(tree.levels, bad, expected, seed)
        assert len(kernel.walk(tree.levels, request._replace(query_id=places[:0]), places[:0])[0]) == 0
    with pytest.raises(ValueError, match="children"):
        TreeLevels(tree.levels.sums, tree.levels.prior, tree.levels.count, 65, 1)
    with pytest.raises(ValueError, match="below 1"):
        TreeLevels(tree.levels.sums[1:], tree.levels.prior[1:], tree.levels.count[1:], 2, 3)
    eight = planted(30, 2, 3, eight=True).levels
    for scale, error in (([], ValueError), (eight.scale[:-1], ValueError), (None, TypeError),  # type: ignore[index]
                         ([s.astype(float) for s in eight.scale], TypeError),  # type: ignore[union-attr]
                         ([s[1:].copy() for s in eight.scale], ValueError)):  # type: ignore[union-attr]
        with pytest.raises(error, match="tree: "):
            TreeLevels(eight.sums, eight.prior, eight.count, 2, 3, scale)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("eight", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_masses_are_reported(name: str, value: float, eight: bool) -> None:
    tree = planted(30, 2, 3, eight=eight)
    tree.request.phi[1, 0] = value
    with using(name), pytest.raises(UsageError, match=r"not finite.*lower train\.lr"):
        kernel.walk(tree.levels, tree.request, anywhere(60))
