"""Kernel adasum: the properties of the combination, core against reference, and argument checks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers.cores import CORES, using

from embtrain.kernels.reference.training import adasum as reference
from embtrain.kernels.training import adasum as kernel

DIMS = (1, 3, 8, 17, 100)
WIRES = tuple(kernel.WIRES.values())


def moves(n_ranks: int, dim: int, seed: int = 0, n: int = 40) -> list[kernel.Part]:
    """Moves of some rows by each process, of sizes that differ by orders of magnitude, and one of zeros."""
    draw = np.random.default_rng([seed, n_ranks, dim])
    parts = []
    for _ in range(n_ranks):
        ids = np.flatnonzero(draw.random(n) < 0.6).astype(np.int32)
        move = draw.normal(size=(len(ids), dim)) * 10.0 ** draw.integers(-4, 2, (len(ids), 1))
        move[:1] = 0
        parts.append((ids, move.astype(np.float32)))
    return parts


def fold(name: str, *rows: list[float]) -> np.ndarray:
    """The fold of one row that each process moved."""
    with using(name):
        return kernel.fold([(np.zeros(1, np.int32), np.array([row], np.float32)) for row in rows])[1][0]


@pytest.mark.parametrize("name", CORES)
def test_parallel_moves_give_their_mean_and_orthogonal_moves_their_sum(name: str) -> None:
    assert np.array_equal(fold(name, [1, 2, -3], [1, 2, -3]), [1, 2, -3])
    assert np.allclose(fold(name, [1, 2, 3], [3, 6, 9]), [2, 4, 6])
    assert np.array_equal(fold(name, [1, 0, 0], [0, 2, 0]), [1, 2, 0])
    assert np.array_equal(fold(name, *np.eye(4).tolist()), np.ones(4))
    assert np.array_equal(fold(name, *[[4.0, -8.0]] * 8), [4, -8])
    assert np.array_equal(fold(name, [0, 0], [5, 1]), [5, 1])
    assert np.allclose(fold(name, [1, 1], [-1, -1]), [0, 0])


@pytest.mark.parametrize("name", CORES)
def test_three_moves_are_folded_by_pairs_in_order(name: str) -> None:
    rows = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    by_hand = reference.combine(reference.combine(rows[0], rows[1]), rows[2])
    assert np.allclose(fold(name, *rows.tolist()), by_hand, rtol=1e-6)


@pytest.mark.parametrize("name", CORES)
def test_the_length_of_a_fold_never_exceeds_that_of_the_sum_of_lengths(name: str) -> None:
    for seed in range(20):
        rows = np.random.default_rng(seed).normal(size=(2, 10)).astype(np.float32)
        assert np.linalg.norm(fold(name, *rows.tolist())) <= np.linalg.norm(rows, axis=1).sum() * (1 + 1e-6)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize(("n_ranks", "dim"), itertools.product((1, 2, 3, 5), DIMS))
@pytest.mark.parametrize("mean", [False, True])
def test_cores_agree_with_the_reference(name: str, n_ranks: int, dim: int, mean: bool) -> None:
    for wire in WIRES:
        parts = [(ids, reference.to_wire(move, wire)) for ids, move in moves(n_ranks, dim)]
        expected_ids, expected = reference.fold(parts, mean)
        with using(name):
            ids, folded = kernel.fold(parts, mean)
        assert np.array_equal(ids, expected_ids) and folded.dtype == wire
        close = {"rtol": 1e-2, "atol": 1e-6} if wire is np.uint16 else {"rtol": 2e-5, "atol": 1e-6}
        assert np.allclose(reference.from_wire(folded), reference.from_wire(expected), **close)


@pytest.mark.parametrize("name", CORES)
def test_moved_rows_are_found_by_owner_packed_and_applied(name: str) -> None:
    draw = np.random.default_rng(3)
    padded = np.zeros((50, 16), np.float32)
    x, base = padded[:, :11], draw.normal(size=(50, 11)).astype(np.float32)
    x[:] = base
    moved = np.array([0, 3, 4, 7, 8, 49])
    x[moved, [0, 1, 10, 5, 2, 3]] += 1
    with using(name):
        ids, count = kernel.find_moved(x, base, 4)
        assert ids.tolist() == [0, 4, 8, 49, 3, 7] and count.tolist() == [3, 1, 0, 2]
        assert kernel.find_moved(x, base, 2, np.array([3, 5, 8], np.int32))[0].tolist() == [8, 3]
        packed = kernel.pack(x, base, ids, np.float32)
        assert np.array_equal(packed, x[ids] - base[ids])
        before = base.copy()
        kernel.apply(x, base, ids, packed * 2)
    assert np.array_equal(base[ids], before[ids] + packed * 2) and np.array_equal(x, base)
    assert not padded[:, 11:].any()


@pytest.mark.parametrize("name", CORES)
def test_bfloat16_is_rounded_to_nearest_even(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.concatenate([np.random.default_rng(0).normal(size=60), [0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 3e38, np.inf,
                                                                   np.nan, 1e-40]]).astype(np.float32)[:, None]
    with using(name):
        wire = kernel.pack(x, np.zeros_like(x), np.arange(len(x), dtype=np.int32), np.uint16)
    expected = torch.from_numpy(x).bfloat16().float().numpy()
    assert np.array_equal(reference.from_wire(wire), expected, equal_nan=True)


@pytest.mark.parametrize("name", CORES)
def test_invalid_arguments_are_rejected_before_any_write(name: str) -> None:
    x, base = np.ones((5, 3), np.float32), np.zeros((5, 3), np.float32)
    ids, rows = np.array([1, 2], np.int32), np.ones((2, 3), np.float32)
    with using(name):
        for far in (np.array([0, 5], np.int32), np.array([-1, 0], np.int32)):
            for function, arguments in ((kernel.pack, (far, np.float32)), (kernel.apply, (far, rows)),
                                        (kernel.find_moved, (2, far))):
                with pytest.raises(ValueError, match="adasum"):
                    function(x, base, *arguments)
        for function in (lambda: kernel.apply(x, base, ids, rows[:1]), lambda: kernel.find_moved(x, base[:4], 2),
                         lambda: kernel.fold([(ids[::-1].copy(), rows)]), lambda: kernel.fold([(ids, rows[:1])])):
            with pytest.raises(ValueError, match="adasum"):
                function()
        for function in (lambda: kernel.apply(x, base, ids.astype(np.int64), rows),
                         lambda: kernel.find_moved(x.astype(float), base, 2),
                         lambda: kernel.fold([(ids, rows), (ids, rows.astype(float))])):
            with pytest.raises(TypeError, match="adasum"):
                function()
    assert not base.any() and (x == 1).all()
