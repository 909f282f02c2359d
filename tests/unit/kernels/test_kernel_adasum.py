"""Kernel adasum: the properties of the combination, core against reference, and argument checks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, using
from helpers.looped import looped

from embtrain.kernels.reference.training import adasum as reference
from embtrain.kernels.training import adasum as kernel

DIMS = (1, 3, 8, 17, 100)
WIRES = tuple(kernel.WIRES.values())


def moves(n_ranks: int, dim: int, seed: int = 0, n: int = 40) -> list[reference.Part]:
    """Moves of some rows by each process, of sizes that differ by orders of magnitude, and one of zeros."""
    draw = np.random.default_rng([seed, n_ranks, dim])
    parts = []
    for _ in range(n_ranks):
        ids = np.flatnonzero(draw.random(n) < 0.6).astype(np.int32)
        move = draw.normal(size=(len(ids), dim)) * 10.0 ** draw.integers(-4, 2, (len(ids), 1))
        move[:1] = 0
        parts.append((ids, move.astype(np.float32)))
    return parts


def table(n: int, dim: int, wire: type[np.generic] = np.float32, **fields: Any) -> kernel.SharedTable:
    """A table of zeros, with rows that are padded."""
    return kernel.SharedTable(np.zeros((n, dim + 3), np.float32)[:, :dim], np.zeros((n, dim), np.float32), wire,
                              **fields)


def fold_parts(parts: list[reference.Part], mean: bool = False, threads: int = 1) -> reference.Part:
    """The fold of the moves of each process on the rows of one table."""
    tables = kernel.SharedTables([table(1, parts[0][1].shape[1], parts[0][1].dtype.type, mean=mean)])
    return reference.from_message(kernel.fold(tables, [reference.to_message([part]) for part in parts], threads),
                                  tables)[0]


def fold(name: str, *rows: list[float]) -> np.ndarray:
    """The fold of one row that each process moved."""
    with using(name):
        return fold_parts([(np.zeros(1, np.int32), np.array([row], np.float32)) for row in rows])[1][0]


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


@looped("name", CORES)
@looped("n_ranks, dim", itertools.product((1, 2, 3, 5), DIMS))
@looped("mean", [False, True])
def test_cores_agree_with_the_reference(name: str, n_ranks: int, dim: int, mean: bool) -> None:
    for wire in WIRES:
        parts = [(ids, reference.to_wire(move, wire)) for ids, move in moves(n_ranks, dim)]
        with using("off"):
            expected_ids, expected = fold_parts(parts, mean)
        with using(name):
            ids, folded = fold_parts(parts, mean)
        assert np.array_equal(ids, expected_ids) and folded.dtype == wire
        close = {"rtol": 1e-2, "atol": 1e-6} if wire is np.uint16 else {"rtol": 2e-5, "atol": 1e-6}
        assert np.allclose(reference.from_wire(folded), reference.from_wire(expected), **close)


@pytest.mark.parametrize("name", CORES)
def test_moved_rows_are_packed_for_their_owners_and_applied(name: str) -> None:
    draw = np.random.default_rng(3)
    padded = np.zeros((50, 16), np.float32)
    shared = kernel.SharedTable(padded[:, :11], draw.normal(size=(50, 11)).astype(np.float32), np.float32)
    shared.x[:] = shared.base
    shared.x[[0, 3, 4, 7, 8, 49], [0, 1, 10, 5, 2, 3]] += 1
    with using(name):
        tables = kernel.SharedTables([shared])
        messages, n = kernel.pack(tables, 4)
        parts = [reference.from_message(message, tables)[0] for message in messages]
        ids, packed = map(np.concatenate, zip(*parts, strict=True))
        assert ids.tolist() == [0, 4, 8, 49, 3, 7] and n == 6
        assert [len(of_owner) for of_owner, _ in parts] == [3, 1, 0, 2]
        limited = kernel.pack(tables, 2, [np.array([3, 5, 8], np.int32)])[0]
        assert [reference.from_message(part, tables)[0][0].tolist() for part in limited] == [[8], [3]]
        assert np.array_equal(packed, shared.x[ids] - shared.base[ids])
        before = shared.base.copy()
        changed = kernel.apply(tables, [reference.to_message([part]) for part in (
            (ids[:4], packed[:4] * 2), (ids[4:], packed[4:] * 2))])
    assert changed[0].tolist() == ids.tolist()
    assert np.array_equal(shared.base[ids], before[ids] + packed * 2) and np.array_equal(shared.x, shared.base)
    assert not padded[:, 11:].any()


def synchronized(n_ranks: int, threads: int) -> list[bytes]:
    """All messages and tables of processes that put three tables together, the second of which is cut."""
    sizes, draw, messages = ((90, 5), (45, 7), (61, 1)), np.random.default_rng(n_ranks), []
    limits = [np.flatnonzero(draw.random(90) < 0.8).astype(np.int32), None, None]
    names = 5 * np.arange(45, dtype=np.int32) + 2
    for _ in range(n_ranks):
        tables = kernel.SharedTables([table(n, dim, wire, mean=mean, names=own) for (n, dim), wire, mean, own in zip(
            sizes, (np.uint16, np.float32, np.float32), (False, False, True), (None, names, None), strict=True)])
        for one in tables:
            rows = np.flatnonzero(draw.random(len(one.x)) < 0.7)
            one.x[rows] += draw.normal(size=(len(rows), one.x.shape[1]))
        messages.append(kernel.pack(tables, n_ranks, limits, threads)[0])
    owned = kernel.SharedTables([table(n, dim, wire, mean=mean, step=step) for (n, dim), wire, mean, step in zip(
        sizes, (np.uint16, np.float32, np.float32), (False, False, True), (1, 5, 1), strict=True)])
    folded = [kernel.fold(owned, of_owner, threads) for of_owner in zip(*messages, strict=True)]
    changed = kernel.apply(owned, folded, threads)
    assert all(len(ids) > 20 for ids in changed)
    return [part.tobytes() for part in [*(x for of_rank in messages for x in of_rank), *folded, *changed,
                                        *(x for one in owned for x in (one.x, one.base))]]


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 5])
def test_the_bits_do_not_depend_on_the_number_of_threads(name: str, n_ranks: int,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    parts, run = list[int](), kernel._parallel
    monkeypatch.setattr(kernel, "GRAIN", 1)
    monkeypatch.setattr(kernel, "_parallel", lambda n, work: (parts.append(n), run(n, work)))
    with using(name):
        one, *others = (synchronized(n_ranks, threads) for threads in (1, 2, 3, 64))
    assert all(other == one for other in others)
    assert set(parts) == (set() if name == "off" else {1, 2, 3, 64})


@pytest.mark.parametrize("name", NATIVE)
def test_messages_have_the_bits_of_the_reference(name: str) -> None:
    """A sum of two rows is rounded as in NumPy; longer ones may be summed in another order."""
    results = {}
    for core in (name, "off"):
        with using(core):
            results[core] = [synchronized(n, 1)[:n * n] for n in (1, 4)]
    assert results[name] == results["off"]


@pytest.mark.parametrize("name", CORES)
def test_bfloat16_is_rounded_to_nearest_even(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.concatenate([np.random.default_rng(0).normal(size=60), [0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 3e38, np.inf,
                                                                   np.nan, 1e-40]]).astype(np.float32)[:, None]
    with using(name):
        shared = kernel.SharedTable(x, np.zeros_like(x), np.uint16)
        ids, wire = reference.from_message(kernel.pack(kernel.SharedTables([shared]), 1)[0][0], [shared])[0]
    expected = torch.from_numpy(x).bfloat16().float().numpy()[ids]
    assert len(ids) == len(x) - 1 and np.array_equal(reference.from_wire(wire), expected, equal_nan=True)


@pytest.mark.parametrize("name", CORES)
def test_invalid_arguments_are_rejected_before_any_write(name: str) -> None:
    shared, ids, rows = table(5, 3), np.array([1, 2], np.int32), np.ones((2, 3), np.float32)
    shared.x[:] = 1

    def message(ids: np.ndarray, rows: np.ndarray = rows) -> np.ndarray:
        return reference.to_message([(ids, rows)])

    tables, cut = kernel.SharedTables([shared]), kernel.SharedTables([replace(shared, step=2)])
    good, negative = message(ids), message(ids)
    negative[:8].view(np.int64)[0] = -1
    with using(name):
        for far in (np.array([0, 5], np.int32), np.array([-1, 0], np.int32)):
            for function in (lambda far=far: kernel.apply(tables, [good, message(far)]),
                             lambda far=far: kernel.pack(tables, 2, [far])):
                with pytest.raises(ValueError, match="adasum"):
                    function()
        with pytest.raises(ValueError, match="adasum"):
            kernel.apply(cut, [message(np.array([9, 10], np.int32))])
        for bad in (good[:-1], good[:4], np.append(good, good[:8]), negative, message(ids, rows[:, :2])):
            for function in (lambda bad=bad: kernel.fold(tables, [good, bad]),
                             lambda bad=bad: kernel.apply(tables, [bad])):
                with pytest.raises(ValueError, match="adasum"):
                    function()
        for unordered in (np.array([2, 1], np.int32), np.array([1, 1], np.int32)):
            with pytest.raises(ValueError, match="adasum"):
                kernel.fold(tables, [good, message(unordered)])
    assert not shared.base.any() and (shared.x == 1).all()


def test_tables_of_another_type_or_shape_are_rejected() -> None:
    shared = table(5, 3)
    with pytest.raises(ValueError, match="adasum: base"):
        kernel.SharedTables([replace(shared, base=shared.base[:4])])
    for wrong in (replace(shared, x=shared.x.astype(float)), replace(shared, names=np.arange(5))):
        with pytest.raises(TypeError, match="adasum"):
            kernel.SharedTables([wrong])
