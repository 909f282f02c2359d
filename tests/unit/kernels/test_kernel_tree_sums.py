"""Wrapper of tree sums: every core against the reference, plain sums, threads, and argument checks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped
from hypothesis import given, strategies as st

from embtrain.kernels.reference.sampling import tree_sums as reference
from embtrain.kernels.reference.sampling.int8_rows import write
from embtrain.kernels.sampling import tree_sums as kernel
from embtrain.kernels.sampling.tree_walk import TreeLevels


@dataclass
class Planted:
    """A tree without sums, and the sums S of its blocks."""

    levels: TreeLevels
    sums: np.ndarray


def planted(blocks: int, fan: int, width: int, eight: bool, seed: int = 0) -> Planted:
    draw = np.random.default_rng([seed, blocks, fan, width])
    places, real = [], blocks
    while not places or places[0] > fan:
        places.insert(0, -(-real // fan) * fan)
        real = places[0] // fan
    kind = np.uint8 if eight else np.float32
    counts = [np.zeros(n, np.int64) for n in places]
    counts[-1][:blocks] = 1
    levels = TreeLevels([np.zeros((n, width), kind) for n in places], [np.ones(n) for n in places], counts, fan, 1,
                    [np.zeros(n, np.float32) for n in places] if eight else None)
    sums = draw.normal(size=(blocks, width)) * 10.0 ** draw.integers(-3, 4, (blocks, 1))
    sums[blocks // 2] = 0
    return Planted(levels, sums.astype(np.float32))


def read(levels: TreeLevels, level: int) -> np.ndarray:
    sums = levels.sums[level].astype(float)
    return sums if levels.scale is None else (sums - 128) * levels.scale[level].astype(float)[:, None]


def keep(levels: TreeLevels, blocks: np.ndarray, sums: np.ndarray) -> None:
    if levels.scale is None:
        levels.sums[-1][blocks] = sums
    else:
        write(levels.sums[-1], levels.scale[-1], blocks, sums)


def stored(levels: TreeLevels) -> list[np.ndarray]:
    return [*levels.sums, *(levels.scale or [])]


SHAPES = st.tuples(st.integers(2, 90), st.integers(2, 20), st.integers(1, 70))


@given(SHAPES, st.booleans(), st.integers(0, 99))
def test_every_core_sums_like_the_reference(shape: tuple[int, int, int], eight: bool, seed: int) -> None:
    subset = np.unique(np.random.default_rng(seed).integers(0, shape[0], 9))
    for name in CORES:
        tree, all_ids = planted(*shape, eight, seed), np.arange(shape[0])
        with using(name):
            keep(tree.levels, all_ids, tree.sums)
            kernel.update(tree.levels, all_ids)
            keep(tree.levels, subset, tree.sums[subset] * np.float32(-3))
            kernel.update(tree.levels, subset)
        for level in range(len(tree.levels.sums) - 1):       # from the children that this core computed
            nodes = np.arange(len(tree.levels.sums[level + 1]) // shape[1])
            actual = tree.levels.sums[level][nodes]
            scale = None if tree.levels.scale is None else tree.levels.scale[level][nodes]
            reference.add(tree.levels, level, nodes)
            expected = tree.levels.sums[level][nodes]
            if tree.levels.scale is None:
                np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=0, err_msg=name)
                continue
            # The core rounds each product and each sum to float32, and both versions round the scale.
            bound = (2 * shape[1] + 3) * 2.0 ** -24 * tree.levels.scale[level + 1].reshape(-1, shape[1]).sum(1)
            assert (np.abs(scale - tree.levels.scale[level][nodes]) <= bound).all(), name
            off = np.abs(actual.astype(int) - expected)      # which may round to the next integer
            assert off.max() <= 1 and (off > 0).sum() <= 1 + 0.01 * off.size, name


@looped("name", CORES)
@looped("eight", [False, True])
def test_a_node_is_the_sum_of_its_children(name: str, eight: bool) -> None:
    tree = planted(70, 4, 33, eight)
    with using(name):
        keep(tree.levels, np.arange(70), tree.sums)
        kernel.update(tree.levels, np.arange(70))
    bound = 1e-6 if not eight else 0.5 / 127 + 1e-6        # relative to the largest value of the row
    rows, largest = read(tree.levels, len(tree.levels.sums) - 1)[:70], np.abs(tree.sums).max(1, keepdims=True)
    assert (np.abs(rows - tree.sums) <= bound * largest).all() and (rows[35] == 0).all()
    for level in range(len(tree.levels.sums) - 1):
        children = read(tree.levels, level + 1).reshape(-1, 4, 33).sum(1)
        actual = read(tree.levels, level)
        assert (np.abs(actual[:len(children)] - children) <= bound * np.abs(children).max(1, keepdims=True)).all()
        assert (actual[len(children):] == 0).all()


@looped("name", CORES)
@looped("eight", [False, True])
def test_a_partial_update_equals_a_full_sum(name: str, eight: bool) -> None:
    single, all_of = planted(90, 3, 40, eight), planted(90, 3, 40, eight)
    all_ids, draw = np.arange(90), np.random.default_rng(5)
    with using(name):
        keep(single.levels, all_ids, single.sums)
        kernel.update(single.levels, all_ids)
        for _ in range(30):
            subset = np.unique(draw.integers(0, 90, 4))
            single.sums[subset] = draw.normal(size=(len(subset), 40))
            keep(single.levels, subset, single.sums[subset])
            kernel.update(single.levels, subset)
        keep(all_of.levels, all_ids, single.sums)
        kernel.update(all_of.levels, all_ids)
    assert all(map(np.array_equal, stored(single.levels), stored(all_of.levels)))


@looped("name", CORES)
@looped("frequencies", [1, 15, 16, 17, 50])
def test_features_are_cosines_and_sines(name: str, frequencies: int) -> None:
    draw = np.random.default_rng(frequencies)
    angle = (30 * draw.normal(size=(5 * 7, frequencies))).astype(np.float32)
    weight = draw.random((5, 7)).astype(np.float32)
    weight[2, 3:] = 0
    angle[2 * 7 + 3:3 * 7] = 1e30                          # a position beyond the last candidate adds nothing
    with using(name):
        result = kernel.fourier(angle, weight)
    x = angle.astype(float).reshape(5, 7, -1)
    expected = (weight[..., None] * np.concatenate([np.cos(x), np.sin(x)], 2)).sum(1) / np.sqrt(frequencies)
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", NATIVE)
def test_results_do_not_depend_on_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "GRAIN", 64)
    draw = np.random.default_rng(1)
    angle, weight = draw.normal(size=(400, 30)).astype(np.float32), draw.random((100, 4)).astype(np.float32)
    with using(name):
        kept = []
        for threads in (1, 3):
            tree = planted(90, 3, 40, True)
            keep(tree.levels, np.arange(90), tree.sums)
            kernel.update(tree.levels, np.arange(90), threads)
            kept.append([*stored(tree.levels), kernel.fourier(angle, weight, threads)])
    assert all(map(np.array_equal, *kept))


@pytest.mark.parametrize("name", CORES)
def test_mismatched_arguments_are_rejected_before_any_write(name: str) -> None:
    tree = planted(20, 3, 8, True)
    blocks, angle, weight = np.arange(2), np.zeros((6, 5), np.float32), np.ones((2, 3), np.float32)
    with using(name):
        for far in (np.array([0, 21]), np.array([-1, 0])):
            with pytest.raises(ValueError, match="tree_sums"):
                kernel.update(tree.levels, far)
        with pytest.raises(TypeError, match="tree_sums: places"):
            kernel.update(tree.levels, blocks.astype(np.int32))
        with pytest.raises(ValueError, match="tree_sums: angle"):
            kernel.fourier(angle[:5], weight)
        with pytest.raises(TypeError, match="tree_sums: weight"):
            kernel.fourier(angle, weight.astype(float))
        kernel.update(tree.levels, blocks[:0])               # empty input
    assert not any(x.any() for x in stored(tree.levels))


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    for what in ("add", "fourier"):
        monkeypatch.setattr(reference, what, lambda *a: pytest.fail("the reference summed"))
    tree = planted(20, 3, 8, False)
    with using(NATIVE[-1]):
        keep(tree.levels, np.arange(20), tree.sums)
        kernel.update(tree.levels, np.arange(20))
        kernel.fourier(np.zeros((6, 5), np.float32), np.ones((2, 3), np.float32))
