"""Kernel cells: core against reference and plain sums, exclusion, threads, and argument checks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.eight_bits import in_eight_bits, scale_of
from helpers.looped import looped
from hypothesis import given, strategies as st
from scipy import special, stats

from embtrain.common.errors import UsageError
from embtrain.kernels.reference.sampling import cells as reference
from embtrain.kernels.sampling import cells as kernel
from embtrain.kernels.sampling.cells import CellDrawRequest, CellLayout, CellMembers

SEEDS = st.integers(0, 2 ** 64 - 1)


@contextmanager
def scoring(name: str, by_columns: bool) -> Iterator[None]:
    """Draw with a core; the members of all cells, or of none, are stored by columns."""
    with using(name), mock.patch.object(kernel, "QUERIES_FOR_COLUMNS", 0 if by_columns else 1 << 40):
        yield


def layout(v: int, d: int, cells: int, unit: bool = True, seed: int = 0, spread: float = 1.0, copied: bool = False
           ) -> CellMembers:
    """Candidates in nonempty cells of any size. copied: with an int8 copy, and a table of NaN."""
    draw = np.random.default_rng([seed, v, d])
    cuts = np.sort(draw.choice(np.arange(1, v), cells - 1, replace=False))
    start = np.concatenate([[0], cuts, [v]]).astype(np.int64)
    table = (spread * draw.normal(size=(v, d))).astype(np.float32)
    members = CellMembers(table, unit, draw.permutation(v), start, int(np.diff(start).max()))
    if not copied:
        return members
    c = table[members.order]
    if unit:
        c = c / np.linalg.norm(c, axis=1, keepdims=True)
    scale = scale_of(c)
    return replace(members, table=np.full_like(table, np.nan), copy=in_eight_bits(c, scale), scale=scale)


def vectors(members: CellMembers, places: np.ndarray) -> np.ndarray:
    """(n, d) float64."""
    if members.copy is not None:
        return (members.copy[places] - 128.0) * members.scale[places].astype(float)[:, None]       # type: ignore[index]
    c = members.table[members.order[places]].astype(np.float64)
    return c / np.linalg.norm(c, axis=1, keepdims=True) if members.unit else c


def requests(n: int, members: CellMembers, queries: int = 3, seed: int = 1
             ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """h (Q, d), query id and cell (N,)."""
    draw = np.random.default_rng(seed)
    h = (2 * draw.normal(size=(queries, members.table.shape[1]))).astype(np.float32)
    return h, draw.integers(0, queries, n), draw.integers(0, len(members.start) - 1, n)


def cell_layout(members: CellMembers, mean: np.ndarray | None = None, log_size: np.ndarray | None = None) -> CellLayout:
    place = np.empty(len(members.order), np.int64)
    place[members.order] = np.arange(len(place))
    return CellLayout(members, np.searchsorted(members.start, place, side="right") - 1, place, mean, log_size)


def draws(rows: int, members: CellMembers, draws: int | None = None, seed: int = 2) -> CellDrawRequest:
    """draws: the number of draws that the rows share; None: one for each row."""
    v, cells, random = len(members.order), len(members.start) - 1, np.random.default_rng(seed)
    h, row_query, _ = requests(rows, members)
    log_mass = random.normal(size=(3, cells)).astype(np.float32)
    query_id = row_query if draws is None else random.integers(0, 3, draws)
    return CellDrawRequest(h, query_id, row_query, random.integers(0, v, rows), log_mass=log_mass)


def plain_log_q(members: CellMembers, request: CellDrawRequest, query_id: int, target: int | None = None) -> np.ndarray:
    """log q (V,) of all candidates by plain sums."""
    p = special.log_softmax(request.log_mass[query_id].astype(np.float64))
    inside = np.concatenate([log_r(members, request.h[query_id], cell) for cell in range(len(p))])
    q = p[cell_layout(members).cell_of[members.order]] + inside
    log_q = np.empty(len(q))
    log_q[members.order] = q
    if target is not None:
        log_q[target] = -np.inf
        log_q -= special.logsumexp(log_q)
    return log_q


def log_r(members: CellMembers, h: np.ndarray, cell: int, without: int = -1) -> np.ndarray:
    """log r of the positions of a cell."""
    places = np.arange(members.start[cell], members.start[cell + 1])
    if members.copy is not None:
        h = np.rint(h / scale_of(h[None])) * scale_of(h[None])
    o = vectors(members, places) @ h.astype(np.float64)
    o = np.where(places == without, -np.inf, o)
    return o - special.logsumexp(o)


# --- draws ------------------------------------------------------------------------------------------------------------

@given(st.integers(4, 300), st.integers(1, 40), st.booleans(), st.booleans(), st.integers(1, 5),
       st.sampled_from(["row", "all", "without"]), SEEDS)
def test_every_core_draws_like_the_reference(v: int, d: int, unit: bool, copied: bool, k: int, way: str, seed: int
                                             ) -> None:
    members, seeds = layout(v, d, min(9, v // 2), unit, copied=copied), (seed, seed // 3)
    request, exclude = draws(9, members, 4 if way == "all" else None), way == "without"
    ids, log_q, log_target = reference.draw(cell_layout(members), request, k, exclude, seeds, 5)
    for name in NATIVE:
        by_rows: list[np.ndarray] = []
        for by_columns in (False, True):
            with scoring(name, by_columns):
                result = kernel.draw(cell_layout(members), request, k, exclude, seeds, 5)
            same = result[0] == ids
            assert (~same).sum() <= 2, name                       # random numbers within rounding of a boundary
            np.testing.assert_allclose(result[1][same], log_q[same], rtol=0, atol=1e-4)
            np.testing.assert_allclose(result[2], log_target, rtol=0, atol=1e-4)
            if copied and by_rows:                               # int8 products are exact in any order
                assert all(map(np.array_equal, by_rows, result)), name
            by_rows = list(result)


@pytest.mark.parametrize("copied", [False, True])
def test_thousands_of_requests_are_drawn_like_the_reference(copied: bool) -> None:
    members, random = layout(300, 9, 9, copied=copied), np.random.default_rng(3)
    h, query_id, _ = requests(1200, members, 700)
    request = CellDrawRequest(h, query_id, query_id, random.integers(0, 300, 1200),
                              log_mass=random.normal(size=(700, 9)).astype(np.float32))
    expected = reference.draw(cell_layout(members), request, 5, False, (6, 7), 0)
    for name in NATIVE:
        for by_columns in (False, True):
            with scoring(name, by_columns):
                result = kernel.draw(cell_layout(members), request, 5, False, (6, 7))
            same = result[0] == expected[0]
            assert (~same).sum() <= 2, name
            np.testing.assert_allclose(result[1][same], expected[1][same], rtol=0, atol=1e-4)
            np.testing.assert_allclose(result[2], expected[2], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("by_columns", [False, True])
def test_reported_log_q_equals_plain_sums(name: str, exclude: bool, unit: bool, copied: bool, by_columns: bool) -> None:
    members = layout(120, 6, 7, unit, spread=0.5, copied=copied)
    request = draws(8, members)
    with scoring(name, by_columns):
        ids, log_q, log_target = kernel.draw(cell_layout(members), request, 20, exclude, (1, 2))
    for row in range(8):
        full = plain_log_q(members, request, int(request.draw_query[row]))
        q = plain_log_q(members, request, int(request.draw_query[row]), int(request.target[row])) if exclude else full
        np.testing.assert_allclose(log_q[row], q[ids[row]], rtol=0, atol=1e-4)
        assert log_target[row] == pytest.approx(full[request.target[row]], abs=1e-4)
        assert not exclude or request.target[row] not in ids[row]


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("copied", [False, True])
def test_frequencies_match_the_probabilities(name: str, exclude: bool, copied: bool) -> None:
    members, k = layout(200, 8, 9, spread=0.5, copied=copied), 200_000
    request = draws(1, members)
    with using(name):
        ids = kernel.draw(cell_layout(members), request, k, exclude, (5, 6))[0][0]
    q = np.exp(plain_log_q(members, request, int(request.draw_query[0]),
                           int(request.target[0]) if exclude else None)) * k
    observed, subset = np.bincount(ids, minlength=200), q >= 50
    assert (observed[request.target[0]] == 0) == exclude and subset.sum() > 50
    assert stats.chi2.sf(((observed - q)[subset] ** 2 / q[subset]).sum(), int(subset.sum()) - 1) > 1e-4


@pytest.mark.parametrize("cells", [1, 3, 63, 65])
def test_equal_masses_give_identical_ids(cells: int) -> None:
    n = cells * 4
    members = CellMembers(np.ones((n, 2), np.float32), False, np.arange(n), np.arange(0, n + 1, 4), 4)
    request = CellDrawRequest(np.zeros((1, 2), np.float32), np.zeros(300, np.int64), np.zeros(300, np.int64),
                              np.arange(300) % n,
                log_mass=np.zeros((1, cells), np.float32))
    for exclude in (False, True):
        expected = reference.draw(cell_layout(members), request, 3, exclude, (8, 9), 0)
        for name in NATIVE:
            with using(name):
                result = kernel.draw(cell_layout(members), request, 3, exclude, (8, 9))
            # Without a target the masses are 3/4, exact in float32.
            assert np.array_equal(result[0], expected[0]), name
            np.testing.assert_allclose(result[1], -math.log(n - exclude), atol=1e-6)


@pytest.mark.parametrize("name", NATIVE)
def test_masses_far_apart_are_drawn_as_reported(name: str) -> None:
    """Masses are clamped at e^-87 of the largest, which is too rare to matter."""
    members, request = layout(30, 3, 3), draws(1, layout(30, 3, 3))
    request = replace(request, log_mass=np.array([[0, 500, -500]] * 3, np.float32),
                      target=members.order[members.start[2]:][:1].copy())
    with using(name):
        ids, log_q, log_target = kernel.draw(cell_layout(members), request, 500, False, (1, 2))
    inside = log_r(members, request.h[request.draw_query[0]], 1)
    assert (cell_layout(members).cell_of[ids] == 1).all()
    np.testing.assert_allclose(log_q, inside[cell_layout(members).place_of[ids] - members.start[1]], atol=1e-5)
    assert log_target[0] == pytest.approx(-87 + log_r(members, request.h[request.draw_query[0]], 2)[0], abs=0.1)


# --- draws inside a cell ----------------------------------------------------------------------------------------------

@given(st.integers(4, 400), st.integers(1, 40), st.booleans(), st.booleans(), st.booleans(), SEEDS)
def test_every_core_draws_inside_cells_like_the_reference(v: int, d: int, unit: bool, copied: bool, excluded: bool,
                                                          seed: int
                                                          ) -> None:
    members = layout(v, d, min(4, v // 2), unit, copied=copied)
    h, query_id, cell = requests(60, members)
    requested = np.where(np.random.default_rng(2).random(cell.shape) < 0.3, members.start[cell], -1)
    without = None
    if excluded:                                               # no cell contains the excluded candidate alone
        without = members.start[np.argmax(np.diff(members.start))].repeat(60)
    place, expected, others = reference.inside(members, h, query_id, cell, requested, without, seed, 7)
    for name in NATIVE:
        with using(name):
            drawn, log, left = kernel.inside(members, h, query_id, cell, requested, without, seed, 7)
            repeated = kernel.inside(members, h, query_id, cell, drawn, without)
        same = drawn == place
        assert (~same).sum() <= 1 and (drawn[requested >= 0] == requested[requested >= 0]).all(), name
        np.testing.assert_allclose(log[same], expected[same], rtol=0, atol=1e-4)
        np.testing.assert_allclose(left[same], others[same], rtol=1e-4, atol=1e-12)
        assert all(map(np.array_equal, repeated, (drawn, log, left)))


@looped("name", CORES)
@looped("unit", [False, True])
@looped("copied", [False, True])
@looped("d", [1, 3, 8, 64, 67])
def test_log_r_equals_plain_sums(name: str, unit: bool, copied: bool, d: int) -> None:
    members = layout(150, d, 5, unit, copied=copied)
    h, query_id, _ = requests(1, members)
    with using(name):
        for cell in range(5):
            places = np.arange(members.start[cell], members.start[cell + 1])
            n = len(places)
            for excluded in (-1, int(places[0])):
                if n == 1:
                    continue
                without = None if excluded < 0 else np.full(n, excluded)
                log, left = kernel.inside(members, h, query_id.repeat(n), np.full(n, cell), places, without)[1:]
                expected = log_r(members, h[query_id[0]], cell, excluded)
                np.testing.assert_allclose(log, expected, rtol=0, atol=2e-5)
                np.testing.assert_allclose(left, -np.expm1(expected), rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("name", CORES)
def test_a_dominant_target_keeps_the_shares_of_the_rest(name: str) -> None:
    table = np.array([[60], [1], [2], [-40]], np.float32)
    members = CellMembers(table, False, np.arange(4), np.array([0, 4]), 4)
    h, zero = np.array([[2]], np.float32), np.zeros(4, np.int64)
    with using(name):
        log, left = kernel.inside(members, h, zero, zero, np.arange(4), zero)[1:]
        full = kernel.inside(members, h, zero[:1], zero[:1], zero[:1], None)[2]
    expected = np.array([2, 4, -80]) - special.logsumexp([2, 4, -80])
    assert log[0] == -np.inf and log[1:] == pytest.approx(expected, abs=1e-4)
    assert left[1] == pytest.approx(special.expit(2), rel=1e-5)
    assert 0 < full[0] < math.exp(-85)                       # 1 - r must not be lost to the rounding of r


@pytest.mark.parametrize("name", CORES)
def test_a_singleton_cell_without_its_candidate_has_no_mass(name: str) -> None:
    members = CellMembers(np.ones((2, 3), np.float32), True, np.arange(2), np.array([0, 1, 2]), 1)
    zero, h = np.zeros(1, np.int64), np.ones((1, 3), np.float32)
    request = CellDrawRequest(h, zero, zero, zero, log_mass=np.zeros((1, 2), np.float32))
    with scoring(name, True):
        place, log, left = kernel.inside(members, h, zero, zero, zero, None)
        excluded = kernel.inside(members, h, zero, zero, zero, zero)[1]
        ids, log_q, _ = kernel.draw(cell_layout(members), request, 50, True, (1, 2))
    assert (place.item(), log.item(), left.item(), excluded.item()) == (0, 0, 0, -np.inf)
    assert (ids == 1).all() and np.abs(log_q).max() < 1e-7


@pytest.mark.parametrize("name", NATIVE)
def test_no_draw_from_a_cell_whose_only_candidate_is_excluded(name: str) -> None:
    members = CellMembers(np.ones((2, 3), np.float32), True, np.arange(2), np.array([0, 1, 2]), 1)
    zero, h = np.zeros(1, np.int64), np.ones((1, 3), np.float32)
    with using(name), pytest.raises(UsageError, match="nothing can be drawn"):
        kernel.inside(members, h, zero, zero, zero - 1, zero)


@needs_core
@pytest.mark.parametrize("by_columns", [False, True])
def test_ids_do_not_depend_on_threads_chunks_or_other_rows(by_columns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "GRAIN", 8)
    members = layout(500, 12, 9)
    h, query_id, cell = requests(61, members)
    anywhere, without, request = np.full(61, -1), np.random.default_rng(1).integers(0, 500, 61), draws(61, members)

    def both(rows: slice, first: int, threads: int) -> list[np.ndarray]:
        subset = replace(request, draw_query=request.draw_query[rows], row_query=request.row_query[rows],
                         target=request.target[rows])
        return [*kernel.inside(members, h, query_id[rows], cell[rows], anywhere[rows], without[rows], 9, first,
                               threads),
                *kernel.draw(cell_layout(members), subset, 5, True, (3, 4), first, threads)]

    with scoring(NATIVE[-1], by_columns):
        full = both(slice(0, 61), 0, 1)
        for threads in (2, 3, 64):
            assert all(map(np.array_equal, full, both(slice(0, 61), 0, threads)))
        for a, b in ((0, 20), (20, 61)):
            assert all(np.array_equal(x[a:b], y) for x, y in zip(full, both(slice(a, b), a, 1), strict=True))
        means = replace(request, log_mass=None, tau=2.0)
        averaged = cell_layout(members, members.table[:9].copy(), np.ones(9, np.float32))
        assert all(map(np.array_equal, kernel.draw(averaged, means, 5, False, (3, 4), 0, 1),
                       kernel.draw(averaged, means, 5, False, (3, 4), 0, 7)))
        shared = draws(61, members, 20)
        single = kernel.draw(cell_layout(members), shared, 5, False, (3, 4))
        assert all(map(np.array_equal, single, kernel.draw(cell_layout(members), shared, 5, False, (3, 4), 0, 3)))


@given(st.integers(4, 200), st.integers(1, 70), st.integers(1, 40), st.integers(1, 15), st.booleans(), st.booleans(),
       SEEDS)
def test_masses_can_be_computed_from_cell_means(v: int, d: int, cells: int, rows: int, exclude: bool, copied: bool,
                                                seed: int) -> None:
    """Means and scaled queries give the same draws as precomputed masses; both are int8 with a copy.

    With a copy queries are not scaled: the last bit of a number can decide how it is rounded.
    """
    members = layout(v, d, min(cells, v // 2), copied=copied)
    draw, before = np.random.default_rng([v, d]), draws(rows, members)
    before = replace(before, h=(2 * draw.normal(size=(rows, d))).astype(np.float32), draw_query=None, row_query=None)
    mean = draw.normal(size=(len(members.start) - 1, d)).astype(np.float32)
    size = draw.normal(size=len(mean)).astype(np.float32)
    request = replace(before, log_mass=None, tau=0.0 if copied else 3.0)
    h = before.h if copied else (3 * before.h / np.linalg.norm(before.h, axis=1, keepdims=True)).astype(np.float32)
    factors = [h, mean]
    if copied:
        factors = [np.rint(x / scale_of(x)[:, None]) * scale_of(x)[:, None].astype(float) for x in factors]
    plain = replace(before, h=h, log_mass=(size + factors[0] @ factors[1].T).astype(np.float32))
    ids, log_q, log_target = reference.draw(cell_layout(members), plain.with_query_ids(), 4, exclude, (seed, seed // 3),
                                            2)
    for name in CORES:
        with using(name):
            result = kernel.draw(cell_layout(members, mean, size), request, 4, exclude, (seed, seed // 3), 2)
        same = result[0] == ids
        assert (~same).sum() <= 2, name
        np.testing.assert_allclose(result[1][same], log_q[same], rtol=0, atol=1e-4)
        np.testing.assert_allclose(result[2], log_target, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("n_queries", [1, 5, 12, 13, 40])
def test_masses_from_means_of_queries_with_several_draws(name: str, n_queries: int) -> None:
    """Queries are computed in groups; requests of one query are in any order and number."""
    members, random = layout(300, 9, 20), np.random.default_rng(4)
    h = random.normal(size=(n_queries, 9)).astype(np.float32)
    mean, log_size = random.normal(size=(20, 9)).astype(np.float32), random.normal(size=20).astype(np.float32)
    request = CellDrawRequest(h, random.integers(0, n_queries, 150), random.integers(0, n_queries, 90),
                              random.integers(0, 300, 90))
    plain = replace(request, log_mass=(log_size + h.astype(float) @ mean.T).astype(np.float32))
    with using(name):
        computed = kernel.draw(cell_layout(members, mean, log_size), request, 3, False, (3, 4))
        given = kernel.draw(cell_layout(members), plain, 3, False, (3, 4))
    same = computed[0] == given[0]
    assert (~same).sum() <= 2
    np.testing.assert_allclose(computed[1][same], given[1][same], rtol=0, atol=1e-4)
    np.testing.assert_allclose(computed[2], given[2], rtol=0, atol=1e-4)


@needs_core
@pytest.mark.parametrize(("n_queries", "k", "values", "by_columns"), [
    (16, 9, 1 << 20, True), (16, 8, 1 << 20, False), (15, 40, 1 << 20, False),
    (16, 9, 1200, True), (16, 9, 1100, False)])
def test_the_order_of_a_sum_does_not_depend_on_threads(n_queries: int, k: int, values: int, by_columns: bool,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells with 16 queries in all threads together are stored by columns if the largest one is small enough."""
    monkeypatch.setattr(kernel, "GRAIN", 8)
    monkeypatch.setattr(kernel, "MAX_COLUMN_VALUES", values)
    members, random = layout(500, 12, 9), np.random.default_rng(5)
    assert 1100 < members.largest * 12 <= 1200
    h, every = random.normal(size=(n_queries, 12)).astype(np.float32), np.arange(n_queries)
    request = CellDrawRequest(h, every, every, random.integers(0, 500, n_queries),
                              log_mass=random.normal(size=(n_queries, 9)).astype(np.float32))
    with using(NATIVE[-1]):
        one, many = (kernel.draw(cell_layout(members), request, k, False, (3, 4), 0, threads) for threads in (1, 5))
    monkeypatch.setattr(kernel, "MAX_COLUMN_VALUES", 1 << 20)
    with scoring(NATIVE[-1], by_columns):
        forced = kernel.draw(cell_layout(members), request, k, False, (3, 4))
    with scoring(NATIVE[-1], not by_columns):
        other = kernel.draw(cell_layout(members), request, k, False, (3, 4))
    assert all(map(np.array_equal, one, many)) and all(map(np.array_equal, one, forced))
    assert not np.array_equal(forced[1], other[1])


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("by_columns", [False, True])
def test_table_rows_can_have_a_stride(name: str, by_columns: bool) -> None:
    """The compiled engine pads rows; the padding must not be read."""
    members = layout(60, 5, 7)
    room = np.full((60, 16), np.nan, np.float32)
    room[:, :5] = members.table
    with scoring(name, by_columns):
        result = [kernel.draw(cell_layout(subset), draws(9, subset), 4, True, (3, 4))
                  for subset in (members, replace(members, table=room[:, :5]))]
    assert all(map(np.array_equal, *result))


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("exclude", [False, True])
def test_query_ids_are_optional_with_one_query_per_row(name: str, exclude: bool, monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    monkeypatch.setattr(kernel, "GRAIN", 8)
    members, all_ids = layout(90, 6, 7), np.arange(9)
    few = draws(9, members)
    request = replace(few, h=requests(0, members, 9)[0], log_mass=few.log_mass[few.row_query], draw_query=all_ids,
                      row_query=all_ids)
    with using(name):
        output = kernel.draw(cell_layout(members), request, 4, exclude, (3, 4), 2)
        for threads in (1, 2):
            positional = replace(request, draw_query=None, row_query=None)
            assert all(map(np.array_equal, output,
                           kernel.draw(cell_layout(members), positional, 4, exclude, (3, 4), 2, threads)))
        for bad in (replace(request, row_query=None, target=request.target[:8]),
                    replace(positional, h=request.h[:8].copy())):
            with pytest.raises(ValueError, match="cells: "):
                kernel.draw(cell_layout(members), bad, 4, exclude, (3, 4))


@pytest.mark.parametrize("name", CORES)
def test_a_target_has_the_q_of_its_own_query_if_there_are_as_many_draws_as_rows(name: str) -> None:
    members = layout(90, 6, 7)
    some = draws(6, members)
    request = replace(some, draw_query=np.arange(6) % 3, row_query=(np.arange(6) + 1) % 3)
    with using("off"):
        expected = kernel.draw(cell_layout(members), request, 4, False, (3, 4))[2]
    with using(name):
        found = kernel.draw(cell_layout(members), request, 4, False, (3, 4))[2]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in ("inside", "draw"):
        monkeypatch.setattr(reference, function, lambda *a: pytest.fail("the reference drew"))
    members = layout(20, 3, 2)
    h, query_id, cell = requests(2, members)
    with using(NATIVE[-1]):
        kernel.inside(members, h, query_id, cell, np.full(2, -1), None)
        kernel.draw(cell_layout(members), draws(2, members), 1, False, (0, 0))


# --- invalid arguments ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", CORES)
def test_invalid_arguments_are_rejected(name: str) -> None:
    members = layout(30, 4, 3)
    h, query_id, cell = requests(5, members)
    anywhere, far, request = np.full(5, -1), np.full(5, 30), draws(5, members)
    second = np.where(cell == 0, members.start[1], members.start[0])                      # a position in another cell
    with using(name):
        eight = layout(30, 4, 3, copied=True)
        for bad in ((members, h.astype(float), query_id, cell, anywhere, None),
                    (members, h, query_id.astype(np.int32), cell, anywhere, None),
                    (members, h, query_id, cell.repeat(2)[::2], anywhere, None),
                    (replace(members, table=members.table.astype(float)), h, query_id, cell, anywhere, None),
                    (replace(eight, copy=members.table), h, query_id, cell, anywhere, None),
                    # type: ignore[union-attr]
                    (replace(eight, scale=eight.scale.astype(float)), h, query_id, cell, anywhere, None)):
            with pytest.raises(TypeError, match="cells: "):
                kernel.inside(*bad)
        for bad in ((members, h[:, :3].copy(), query_id, cell, anywhere, None),
                    (members, h, query_id + 3, cell, anywhere, None),
                    (members, h, query_id, cell + 3, anywhere, None), (members, h, query_id, cell, second, None),
                    (members, h, query_id, cell, anywhere - 1, None), (members, h, query_id, cell, anywhere, far),
                    (replace(eight, copy=np.zeros((30, 3), np.uint8)), h, query_id, cell, anywhere, None),
                    (replace(eight, scale=None), h, query_id, cell, anywhere, None),
                    (replace(eight, scale=np.ones(29, np.float32)), h, query_id, cell, anywhere, None),
                    (members, h, query_id, cell, anywhere, None, -1), (members, h, query_id, cell[:1], anywhere, None)):
            with pytest.raises(ValueError, match="cells: "):
                kernel.inside(*bad)
        plan, bare, means = cell_layout(members), replace(request, log_mass=None), members.table[:3].copy()
        invalid = [(plan, replace(request, draw_query=query_id + 3), 1, False, (0, 0)),
                   (plan, replace(request, target=far), 1, False, (0, 0)),
                   (plan, replace(request, row_query=query_id - 9), 1, False, (0, 0)),
                   (plan, request, 0, False, (0, 0)),
                   (plan, request, 1, False, (0, 2 ** 64)), (plan, request, 1, False, (0, 0), -1),
                   (plan, draws(5, members, 2), 1, True, (0, 0)),
                   (plan, replace(request, log_mass=request.log_mass[:2]), 1, False, (0, 0)),
                   (plan, bare, 1, False, (0, 0)),
                   (replace(plan, mean=means), bare, 1, False, (0, 0)),
                   (replace(plan, mean=means, log_size=np.ones(4, np.float32)), bare, 1, False, (0, 0)),
                   (replace(plan, mean=means[:2].copy(), log_size=np.ones(2, np.float32)), bare, 1, False, (0, 0)),
                   (replace(plan, cell_of=plan.cell_of[:9].copy()), request, 1, False, (0, 0))]
        for bad in invalid:
            with pytest.raises(ValueError, match="cells: "):
                kernel.draw(*bad)
        with pytest.raises(TypeError, match="cells: log_mass"):
            kernel.draw(cell_layout(members), replace(request, log_mass=request.log_mass.astype(float)), 1, False,
                        (0, 0))
        assert len(kernel.inside(members, h, query_id[:0], cell[:0], anywhere[:0], None)[0]) == 0


@looped("name", NATIVE)
@looped("room", [(8, 1, 9), (9, 1, 8), (9, 1, 0)])
def test_an_output_buffer_of_another_shape_is_rejected(name: str, room: tuple[int, int, int]) -> None:
    members = layout(30, 4, 3)
    with using(name), pytest.raises(ValueError, match="cells: the output has room for"):
        kernel.draw_into(kernel.DrawOutput.empty(*room), cell_layout(members), draws(9, members), False, (0, 0))


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_vectors_are_reported(name: str, value: float) -> None:
    members, zero, h = layout(30, 4, 1), np.zeros(1, np.int64), np.ones((1, 4), np.float32)
    request = draws(2, members)
    request.log_mass[:] = value
    with using(name):
        with pytest.raises(UsageError, match=r"not finite.*lower train\.lr"):
            kernel.draw(cell_layout(members), request, 1, False, (0, 0))
        members.table[17, 2] = value
        for unit in (False, True):
            with pytest.raises(UsageError, match="not finite"):
                kernel.inside(replace(members, unit=unit), h, zero, zero, zero - 1, None)
