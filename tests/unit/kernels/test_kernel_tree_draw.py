"""Kernel tree_draw: core against reference, and against the walk and cell kernels that it combines."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.eight_bits import in_eight_bits, scale_of
from hypothesis import given, strategies as st
from scipy import stats

from embtrain.common.errors import UsageError
from embtrain.kernels.reference.sampling import tree_draw as reference
from embtrain.kernels.sampling import cells, tree_draw as kernel, tree_walk
from embtrain.kernels.sampling.tree_draw import TreeBlocks, TreeDrawRequest

SEEDS = st.integers(0, 2 ** 64 - 1)
WAYS = st.sampled_from(["row", "all", "without"])
S, TAU, FLOOR, QUESTIONS = 1.3, 3.0, 0.1, 3


@dataclass
class Planted:
    blocks: TreeBlocks
    h: np.ndarray          # (Q, d)
    largest: float         # L

    @property
    def unit(self) -> bool:
        return self.blocks.members is None or self.blocks.members.unit

    def request(self, rows: int, draws: int | None = None, seed: int = 1) -> TreeDrawRequest:
        """draws: the number of draws that the rows share; None: one for each row."""
        draw = np.random.default_rng(seed)
        row_query = draw.integers(0, QUESTIONS, rows)
        query_id = row_query if draws is None else draw.integers(0, QUESTIONS, draws)
        tau = TAU if self.unit else 0.0
        return TreeDrawRequest(self.h, query_id, row_query, draw.integers(0, self.blocks.levels.candidates, rows), tau,
                    S / TAU if self.unit else S, FLOOR, self.largest)


def planted(v: int, fan: int, leaf: int, d: int = 5, frequencies: int = 13, unit: bool = True, seed: int = 0,
            copied: bool = False, eight: bool = False) -> Planted:
    """Candidates in any order, and the feature sums of a tree, level by level. copied: blocks have a copy whose vectors
    differ from the table, to distinguish the two. eight: the sums are int8."""
    draw = np.random.default_rng([seed, v, fan, leaf])
    table, w = draw.normal(0, 0.5, (v, d)).astype(np.float32), draw.normal(size=(frequencies, d)).astype(np.float32)
    order, prior = draw.permutation(v), draw.random(v) + 0.5
    y = S * (reference.unit(table.astype(float)) if unit else table)[order]
    largest = float((y ** 2).sum(1).max())
    phi = reference.fourier(w, y) * (prior * np.exp(((y ** 2).sum(1) - largest) / 2))[:, None]
    depth, span, levels = 1, leaf * fan, []
    while span < v:
        depth, span = depth + 1, span * fan
    for level in range(depth):
        span = leaf * fan ** (depth - 1 - level)
        nodes = -(-v // span)
        starts = np.arange(-(-nodes // fan) * fan) * span
        levels.append((np.array([phi[s:s + span].sum(0) for s in starts], np.float32),
                       np.array([prior[s:s + span].sum() for s in starts]),
                       np.array([len(prior[s:s + span]) for s in starts])))
    sums, priors, counts = map(list, zip(*levels, strict=True))
    place = np.argsort(order)
    start = np.minimum(np.arange(-(-v // leaf) + 1) * leaf, v)
    copied_vectors = -table[order]
    copy = (in_eight_bits(copied_vectors, scale_of(copied_vectors)), scale_of(copied_vectors)) if copied else ()
    members = None if leaf == 1 else cells.CellMembers(table, unit, order, start, leaf, None, *copy)
    scales = [scale_of(s) for s in sums] if eight else None
    if scales is not None:
        sums = [in_eight_bits(s, scale) for s, scale in zip(sums, scales, strict=True)]
    blocks = TreeBlocks(tree_walk.TreeLevels(sums, priors, counts, fan, leaf, scales), members, order, place, prior, w)
    return Planted(blocks, draw.normal(0, 0.5, (QUESTIONS, d)).astype(np.float32), largest)


def with_features(tree: Planted, request: TreeDrawRequest) -> tuple[TreeBlocks, TreeDrawRequest]:
    """The same request with precomputed φ, ε and target masses."""
    h = reference.unit(request.h.astype(float)) * request.tau if request.tau else request.h.astype(float)
    phi = reference.fourier(tree.blocks.w, request.stretch * h).astype(np.float32)
    least = FLOOR * np.exp(-((request.stretch * h) ** 2).sum(1) / 2 - tree.largest / 2)
    mass = None
    if len(request.draw_query) == len(request.target):
        mass = reference.target_masses(tree.blocks, request, phi)
    return replace(tree.blocks, w=None), replace(request, phi=phi, least=least, mass=mass)


def close(result: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...], name: str) -> None:
    same = result[0] == expected[0]
    assert (~same).sum() <= 2, name                          # random numbers within rounding of a boundary
    np.testing.assert_allclose(result[1][same], expected[1][same], rtol=0, atol=1e-3, err_msg=name)
    np.testing.assert_allclose(result[2], expected[2], rtol=0, atol=1e-3, err_msg=name)


# --- the core and its reference ---------------------------------------------------------------------------------------

@given(st.integers(4, 150), st.integers(2, 20), st.integers(1, 7), st.integers(1, 20), st.integers(1, 30),
       st.booleans(), st.booleans(), st.booleans(), WAYS, SEEDS)
def test_every_core_draws_like_the_reference(v: int, fan: int, leaf: int, d: int, frequencies: int, unit: bool,
                                             copied: bool, eight: bool, way: str, seed: int) -> None:
    exclude = way == "without" and v > leaf
    tree, seeds = planted(v, fan, leaf, d, frequencies, unit, copied=copied, eight=eight), (seed, seed // 3)
    request = tree.request(9, 4 if way == "all" else None)
    bare, beforehand = with_features(tree, request)
    touched = np.zeros(v, bool)
    expected = reference.draw(tree.blocks, request, 3, exclude, seeds, touched, 5)
    for name in CORES:
        with using(name):
            result = kernel.draw(tree.blocks, request, 3, exclude, seeds, marks := np.zeros(v, bool), 5)
            close(result, expected, name)
            assert (result[0] != expected[0]).any() or (marks == touched).all()
            close(kernel.draw(bare, beforehand, 3, exclude, seeds, None, 5), expected, name)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize(("copied", "eight"), [(False, False), (True, True)])
@pytest.mark.parametrize(("leaf", "exclude", "unit"), [(1, False, True), (1, True, True), (4, False, False),
                                                       (4, True, True), (4, True, False)])
def test_a_draw_equals_the_walk_then_the_cell(name: str, leaf: int, exclude: bool, unit: bool, copied: bool, eight: bool
                                              ) -> None:
    """The same random numbers, one step after the other."""
    tree = planted(90, 3, leaf, unit=unit, copied=copied, eight=eight)
    request, k = tree.request(20), 6
    known = with_features(tree, request)[1]
    query_id, target_place = request.draw_query.repeat(k), tree.blocks.place_of[request.target]
    anywhere, position = np.full(len(query_id), -1), target_place.repeat(k)
    excluded = (position, known.mass.repeat(k), tree.blocks.prior[position]) if exclude else (None, None, None)
    h = (reference.unit(request.h.astype(float)) * TAU).astype(np.float32) if tree.unit else request.h
    with using(name):
        ids, log_q, log_target = kernel.draw(tree.blocks, request, k, exclude, (7, 8))
        walk = tree_walk.WalkRequest(known.phi, known.least, query_id, *excluded)
        index, log = tree_walk.walk(tree.blocks.levels, walk, anywhere, 7)
        target = tree_walk.walk(tree.blocks.levels, tree_walk.WalkRequest(known.phi, known.least, request.row_query),
                                target_place // leaf)[1]
        if leaf > 1:
            index, more, _ = cells.inside(tree.blocks.members, h, query_id, index, anywhere, excluded[0], 8)
            log = log + more
            target = target + cells.inside(tree.blocks.members, h, request.row_query, target_place // leaf,
                                           target_place,
                                           None)[1]
    same = tree.blocks.order[index] == ids.ravel()
    assert same.mean() > 0.98 and not (exclude and (ids == request.target[:, None]).any())
    np.testing.assert_allclose(log_q.ravel()[same], log[same], rtol=0, atol=1e-3)
    assert len(log_target) == (0 if exclude else 20)
    np.testing.assert_allclose(log_target, target[:len(log_target)], rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize(("leaf", "exclude"), [(1, False), (4, True)])
def test_query_ids_are_optional_with_one_query_per_row(name: str, leaf: int, exclude: bool,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "GRAIN", 4)
    tree, all_ids = planted(90, 3, leaf), np.arange(QUESTIONS)
    request = replace(tree.request(QUESTIONS), draw_query=all_ids, row_query=all_ids)
    positional = replace(request, draw_query=None, row_query=None)
    with using(name):
        output = kernel.draw(tree.blocks, request, 4, exclude, (3, 4), None, 2)
        for threads in (1, 2):
            assert all(map(np.array_equal, output,
                           kernel.draw(tree.blocks, positional, 4, exclude, (3, 4), None, 2, threads)))
        with pytest.raises(ValueError, match="tree_draw: "):
            kernel.draw(tree.blocks, replace(positional, target=request.target[:2]), 4, exclude, (3, 4))


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("size", [1e-3, 1.0, 300.0, 1e6])
def test_features_match_float64_at_any_angle(name: str, size: float) -> None:
    """One level of blocks, each a single feature next to a large one, so that shares reveal φ."""
    frequencies, d = 30, 7
    draw = np.random.default_rng(3)
    w = (size * draw.normal(size=(frequencies, d))).astype(np.float32)
    h = draw.normal(size=(11, d)).astype(np.float32)
    phi = reference.fourier(w, h.astype(float))                                       # (11, 60)
    sums = np.zeros((64, 2 * frequencies + 2), np.float32)
    sums[:60, :60] = np.eye(60)
    levels = tree_walk.TreeLevels([sums[:, :60].copy()], [np.ones(64)], [np.array([1] * 60 + [0] * 4)], 64, 1)
    tree = TreeBlocks(levels, None, np.arange(60), np.arange(60), np.ones(60), w)
    row_query = np.arange(11).repeat(60)
    request = TreeDrawRequest(h, row_query[:1], row_query, np.tile(np.arange(60), 11), 0.0, 1.0, 1e-3)
    with using(name):
        log_q = kernel.draw(tree, request, 1, False, (0, 0))[2].reshape(11, 60)
    m = np.maximum(phi, 1e-3 * np.exp(-(h.astype(float) ** 2).sum(1, keepdims=True) / 2))
    np.testing.assert_allclose(np.exp(log_q), m / m.sum(1, keepdims=True), rtol=0, atol=3e-8)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize(("leaf", "eight"), [(1, False), (1, True), (5, True)])
def test_frequencies_match_the_probabilities(name: str, exclude: bool, leaf: int, eight: bool) -> None:
    tree, k = planted(120, 4, leaf, eight=eight), 200_000
    request = tree.request(1)
    with using(name):
        ids, log_q, _ = kernel.draw(tree.blocks, request, k, exclude, (5, 6))
    observed, q = np.bincount(ids[0], minlength=120), np.zeros(120)
    q[ids[0]] = np.exp(log_q[0])
    subset = q * k >= 50
    assert q.sum() == pytest.approx(1, abs=0.01) and subset.sum() > 30 and (observed[request.target[0]] == 0) == exclude
    assert stats.chi2.sf(((observed - q * k)[subset] ** 2 / (q * k)[subset]).sum(), int(subset.sum()) - 1) > 1e-4


@needs_core
def test_ids_do_not_depend_on_threads_chunks_or_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "GRAIN", 8)
    tree = planted(400, 3, 2, frequencies=40)
    request, shared = tree.request(61), tree.request(61, 20)

    def draw_rows(rows: slice, first: int, threads: int, exclude: bool) -> tuple[np.ndarray, ...]:
        part = replace(request, draw_query=request.draw_query[rows], row_query=request.row_query[rows],
                       target=request.target[rows])
        return kernel.draw(tree.blocks, part, 5, exclude, (3, 4), None, first, threads)

    with using(NATIVE[-1]):
        for exclude in (False, True):
            full = draw_rows(slice(0, 61), 0, 1, exclude)
            for threads in (2, 3, 64):
                assert all(map(np.array_equal, full, draw_rows(slice(0, 61), 0, threads, exclude)))
            for a, b in ((0, 20), (20, 61)):
                result = draw_rows(slice(a, b), a, 1, exclude)
                assert all(np.array_equal(x[a:b], y) for x, y in zip(full, result, strict=True))
        single = kernel.draw(tree.blocks, shared, 5, False, (3, 4))
        assert all(map(np.array_equal, single, kernel.draw(tree.blocks, shared, 5, False, (3, 4), threads=3)))
        bare, inputs = with_features(tree, request)
        full = kernel.draw(bare, inputs, 5, True, (3, 4))
        assert all(map(np.array_equal, full, kernel.draw(bare, inputs, 5, True, (3, 4), threads=5)))


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "draw", lambda *a: pytest.fail("the reference drew"))
    tree = planted(20, 3, 2)
    with using(NATIVE[-1]):
        kernel.draw(tree.blocks, tree.request(2), 1, False, (0, 0))


# --- invalid arguments ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", CORES)
def test_invalid_arguments_are_rejected(name: str) -> None:
    tree = planted(30, 2, 3)
    request, far = tree.request(5), np.full(5, 30)
    bare, inputs = with_features(tree, request)
    with using(name):
        for bad in (replace(request, h=request.h.astype(float)),
                    replace(request, draw_query=request.draw_query.astype(np.int32)),
                    replace(request, target=request.target.repeat(2)[::2])):
            with pytest.raises(TypeError, match="tree_draw: "):
                kernel.draw(tree.blocks, bad, 1, False, (0, 0))
        invalid = [(tree.blocks, replace(request, draw_query=request.draw_query + 3), 1, False, (0, 0)),
                   (tree.blocks, replace(request, target=far), 1, False, (0, 0)),
                   (tree.blocks, request, 0, False, (0, 0)),
                   (tree.blocks, replace(request, row_query=request.row_query - 9), 1, False, (0, 0)),
                   (tree.blocks, request, 1, False, (-1, 0)),
                   (tree.blocks, replace(request, h=request.h[:, :3].copy()), 1, False, (0, 0)),
                   (tree.blocks, request, 1, False, (0, 0), np.zeros(31, bool)),
                   (tree.blocks, request, 1, False, (0, 0), None, -1),
                   (tree.blocks, tree.request(5, 2), 1, True, (0, 0)), (bare, request, 1, False, (0, 0)),
                   (bare, replace(inputs, mass=None), 1, True, (0, 0)),
                   (bare, replace(inputs, phi=inputs.phi[:, :4].copy()), 1, False, (0, 0))]
        for bad in invalid:
            with pytest.raises(ValueError, match="tree_draw: "):
                kernel.draw(*bad)
        for bad in (replace(tree.blocks, members=None), replace(tree.blocks, order=tree.blocks.order[:4].copy()),
                    replace(tree.blocks, w=tree.blocks.w[:4].copy())):
            with pytest.raises(ValueError, match="tree_draw: "):
                kernel.draw(bad, request, 1, False, (0, 0))


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("leaf", [1, 3])
def test_non_finite_vectors_are_reported(name: str, leaf: int) -> None:
    tree = planted(30, 2, leaf, unit=leaf > 1)
    request = tree.request(5)
    request.h[:, 2] = np.nan
    with using(name), pytest.raises(UsageError, match=r"not finite.*lower train\.lr"):
        kernel.draw(tree.blocks, request, 1, False, (0, 0))
