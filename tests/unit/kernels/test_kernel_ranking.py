"""Ranking wrapper: core against reference with equal counts, reference against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped
from hypothesis import given, strategies as st

from embtrain.kernels.reference.scoring import ranking as reference
from embtrain.kernels.scoring import ranking as kernel

NOTHING = np.zeros(0, dtype=np.int64)


def offsets(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return (np.cumsum([0, *map(len, lists)]).astype(np.int64),
            np.array([x for part in lists for x in part], dtype=np.int64))


@st.composite
def ranking_inputs(draw: st.DrawFn, sizes: tuple[int, ...] = (1, 2, 7, 255, 256, 257, 600)) -> tuple[Any, ...]:
    """(query, table, first, target, first_right, right): few distinct values, so that many costs are equal; some
    NaN; sometimes more candidates than fit into a tile."""
    v, d, q = draw(st.sampled_from(sizes)), draw(st.integers(1, 9)), draw(st.integers(0, 11))
    random = np.random.default_rng(draw(st.integers(0, 2 ** 32)))
    def vectors(n: int) -> np.ndarray:
        x = random.integers(-2, 3, (n, d)).astype(np.float32)
        if draw(st.booleans()):
            x[random.random((n, d)) < 0.05] = draw(st.sampled_from([np.nan, np.inf, 0.1]))
        return x
    def id_lists(limit: int) -> list[list[int]]:
        return [random.permutation(v)[:random.integers(0, min(limit, v) + 1)].tolist() for _ in range(q)]
    return (vectors(q), vectors(v), *offsets(id_lists(4)), *offsets(id_lists(30)))


def complex_rows(x: np.ndarray, geometry: str) -> np.ndarray:
    """The rows, with as many imaginary parts if the geometry is complex."""
    return np.hstack([x, x[:, ::-1] + np.float32(1)]) if geometry == "modulus" else x


@given(ranking_inputs(), st.sampled_from(kernel.GEOMETRIES))
def test_every_core_counts_like_the_reference(args: tuple[Any, ...], geometry: str) -> None:
    args = (*(complex_rows(x, geometry) for x in args[:2]), *args[2:])
    expected = reference.counts(*args[:2], geometry, *args[2:])
    for name in CORES:
        with using(name):
            for actual, counts in zip(kernel.counts(*args[:2], geometry, *args[2:]), expected, strict=True):
                assert actual.dtype == np.int64 and actual.tolist() == counts.tolist(), name


@given(ranking_inputs(sizes=(1, 2, 7)), st.sampled_from(kernel.GEOMETRIES))
def test_reference_equals_a_plain_python_loop(args: tuple[Any, ...], geometry: str) -> None:
    query, table, first, target, first_right, known_ids = (*(complex_rows(x, geometry) for x in args[:2]), *args[2:])
    better, equal = reference.counts(query, table, geometry, first, target, first_right, known_ids)

    def cost(q: np.ndarray, c: np.ndarray) -> np.float32:
        total, half = np.float32(0), len(q) // 2
        if geometry == "modulus":
            for k in range(half):
                a, b = q[k] - c[k], q[k + half] - c[k + half]
                total = np.float32(total + np.sqrt(np.float32(a * a + b * b)))
            return total
        for x, y in zip(q, c, strict=True):
            total = np.float32(total + {"dot": -(x * y), "l1": abs(x - y), "l2": (x - y) * (x - y)}[geometry])
        return total

    with np.errstate(all="ignore"):
        for i, q in enumerate(query):
            known = set(known_ids[first_right[i]:first_right[i + 1]].tolist())
            for a in range(first[i], first[i + 1]):
                target_cost = cost(q, table[target[a]])
                rivals = [cost(q, table[c]) for c in range(len(table)) if c not in known and c != target[a]]
                assert better[a] == (-1 if np.isnan(target_cost) else sum(x < target_cost for x in rivals))
                assert equal[a] == sum(x == target_cost for x in rivals)


@looped("name", CORES)
@looped("geometry", kernel.GEOMETRIES)
def test_a_positive_ties_with_itself_and_its_copies(name: str, geometry: str) -> None:
    """Products and sums of these numbers are rounded: a fused multiply-add would give different costs."""
    random = np.random.default_rng(0)
    single = random.normal(size=(1, 53)).astype(np.float32)
    table = np.repeat(complex_rows(single, geometry), 517, axis=0)
    query = complex_rows(random.normal(size=(37, 53)).astype(np.float32), geometry)
    target = random.integers(0, 517, 37)
    with using(name):
        better, equal = kernel.counts(query, table, geometry, np.arange(38), target, np.zeros(38, np.int64), NOTHING)
    assert better.tolist() == [0] * 37 and equal.tolist() == [516] * 37


@pytest.mark.parametrize("geometry", kernel.GEOMETRIES)
def test_padded_rows_and_any_thread_count(geometry: str) -> None:
    random = np.random.default_rng(1)
    wide = random.normal(size=(700, 32)).astype(np.float32)
    query, table = random.normal(size=(4 * kernel.GRAIN + 3, 20)).astype(np.float32), wide[:, :20]
    n = len(query)
    args = (np.arange(n + 1), random.integers(0, 700, n), *offsets([random.permutation(700)[:9].tolist()] * n))
    expected = reference.counts(query, np.ascontiguousarray(table), geometry, *args)
    for name in NATIVE:
        for threads in (1, 2, 3, 64):
            with using(name):
                actual = kernel.counts(query, table, geometry, *args, threads)
            assert all(np.array_equal(x, y) for x, y in zip(actual, expected, strict=True)), (name, threads)


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "counts", lambda *a: pytest.fail("the reference counted"))
    zeros = np.zeros((1, 2), dtype=np.float32)
    with using(NATIVE[-1]):
        kernel.counts(zeros, zeros, "l1", np.array([0, 1]), np.array([0]), np.array([0, 0]), NOTHING)


FLOAT, IDS = np.zeros((2, 3), dtype=np.float32), np.array([0, 1])
GOOD: dict[str, Any] = {"query": FLOAT, "table": FLOAT, "geometry": "l1", "target_offsets": np.array([0, 1, 2]),
                        "targets": IDS,
                        "known_offsets": np.array([0, 0, 2]), "known": IDS}


@looped("name", CORES)
@looped("invalid", [
    {"query": FLOAT.astype(np.float64)}, {"query": FLOAT[0]}, {"query": FLOAT[:, ::2]}, {"table": FLOAT[::-1]},
    {"table": FLOAT[:, :2]}, {"geometry": "modulus"}, {"query": FLOAT[:, :0], "table": FLOAT[:, :0]},
    {"geometry": "cosine"}, {"target_offsets": np.array([0, 2])}, {"target_offsets": np.array([1, 1, 2])},
    {"target_offsets": np.array([0, 1, 3])},
    {"target_offsets": np.array([0, 3, 2])}, {"target_offsets": np.array([0, 1, 2], dtype=np.int32)},
    {"targets": np.array([0, 2])},
    {"targets": np.array([-1, 0])}, {"known": np.array([0, 2])}, {"known": IDS.astype(np.float32)},
    {"known_offsets": np.array([0, 0, 1])}, {"targets": np.array([0, 9, 1, 9])[::2]},
])
def test_invalid_arguments_are_rejected(name: str, invalid: dict[str, Any]) -> None:
    with using(name):
        kernel.counts(**GOOD)
        with pytest.raises((TypeError, ValueError), match="ranking: "):
            kernel.counts(**{**GOOD, **invalid})
