"""Kernel skipgram: core against the NumPy reference, reference against autograd of the torch losses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
import torch
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped
from helpers.skipgram_cases import Case
from hypothesis import given, settings, strategies as st

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.kernels.core import binding
from embtrain.kernels.core.tables import HUGE_PAGE_BYTES, NegativeBatch, Table, UpdateResult, zeros, zeros_on_huge_pages
from embtrain.kernels.reference.training import skipgram as reference
from embtrain.kernels.training import skipgram as wrapper
from embtrain.kernels.training.skipgram import RowPool, SkipGramLossSpec, Windows
from embtrain.losses import base as losses
from embtrain.train.engines.false_negatives import mark_false_negatives


def assert_agree(case: Case, core: str, expected: Any = None, **how: Any) -> None:
    """Assert that a core updates the tables as the reference does. expected: `case.expected()`, if it is known."""
    u, v, loss, scores, c_grad = expected or case.expected()
    u_, v_, output = case.run(core, keep_scores=True, **how)
    size = max(1.0, float(np.abs(u.x).max()), float(np.abs(v.x).max()))
    for actual, second in ((u_, u), (v_, v)):
        np.testing.assert_allclose(actual.x, second.x, rtol=2e-5, atol=2e-5 * size)
        if second.acc is not None:
            np.testing.assert_allclose(actual.acc, second.acc, rtol=5e-5, atol=1e-6)
        room = actual.x.base
        assert (room[:, actual.x.shape[1]:] == 7.0).all()  # the padding between rows must not change
    np.testing.assert_allclose(output.loss, loss, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(output.scores, scores, rtol=2e-5, atol=2e-5 * size)
    assert (output.c_grad is None) == (c_grad is None)
    if c_grad is not None:
        np.testing.assert_allclose(output.c_grad, c_grad, rtol=1e-4, atol=2e-5)


cases = st.builds(
    Case, seed=st.integers(0, 2**32), n_u=st.integers(1, 9), n_v=st.integers(2, 40),
    dim=st.sampled_from([1, 3, 4, 7, 8, 13, 16, 20, 31, 36, 100]), sizes=st.lists(st.integers(1, 6), min_size=1,
                                                                                  max_size=9),
    share=st.sampled_from([0, 0, 1, 1, 2, 3, 5, 8, 50]), k=st.sampled_from([0, 1, 2, 5, 8, 16, 19]),
    loss=st.sampled_from(sorted(wrapper.LOSSES)), adagrad=st.booleans(),
    weight=st.sampled_from(["none", "column", "cell"]), log_q=st.sampled_from(["static", "cell"]),
    c=st.sampled_from(["none", "one", "each"]), mask_target=st.booleans(),
    n_masked=st.sampled_from([0, 0, 5, 60]), pad=st.sampled_from([0, 1, 12]), ranking=st.booleans(),
    pool=st.sampled_from(["none", "mean", "sum"]))


@needs_core
@settings(max_examples=400)
@given(case=cases)
def test_core_matches_the_reference(case: Case) -> None:
    for core in NATIVE:
        assert_agree(case, core)


@needs_core
@looped("loss", sorted(wrapper.LOSSES))
@looped("share", [0, 1, 4])
@looped("adagrad", [False, True])
@looped("mask", ["none", "target", "observed"])
@looped("weight", ["none", "column", "cell"])
@looped("log_q", ["static", "cell"])
def test_every_combination(loss: str, share: int, adagrad: bool, mask: str, weight: str, log_q: str) -> None:
    case = Case(5, 7, 23, 36, [3, 1, 5, 2, 2, 4], share, 6, loss, adagrad, weight, log_q,
                c="each" if adagrad else "one", mask_target=mask == "target",
                n_masked=12 if mask == "observed" else 0)
    for core in NATIVE:
        assert_agree(case, core)


@needs_core
@pytest.mark.parametrize("size", [0.0, 1e-25, 1e-12, 1.0])
@pytest.mark.parametrize("share", [0, 1])
def test_rows_that_repeat_in_a_window(share: int, size: float) -> None:
    """The centre moves by the rows' old values, also where it is 0 or too small for its square."""
    for dim in (1, 20, 100, 150):
        for pool in ("none", "sum"):
            case = Case(dim, 7, 3, dim, [3, 1, 5], share, 40, "sampled_softmax", pool=pool)
            case.u_x *= np.float32(size)
            for core in NATIVE:
                assert_agree(case, core)


@needs_core
@looped("pool", ["mean", "sum"])
@looped("adagrad", [False, True])
@looped("share", [0, 1, 4])
@looped("loss", sorted(wrapper.LOSSES))
def test_pooled_centres(loss: str, share: int, adagrad: bool, pool: str) -> None:
    """Rows that centres of a block share, and rows that occur twice in a word, at every remainder of a chunk."""
    for dim in (1, 4, 36, 100, 128, 150, 301):
        case = Case(dim, 7, 23, dim, [3, 1, 5, 2, 2, 4], share, 6, loss, adagrad, c="each", pool=pool, scale=0.2)
        for core in NATIVE:
            assert_agree(case, core)


@needs_core
@pytest.mark.parametrize("adagrad", [False, True])
@pytest.mark.parametrize("share", [0, 1, 4])
def test_more_pools_than_rows(share: int, adagrad: bool) -> None:
    """As in CBOW: each window has one target and a pool of its own, of up to 6 of 7 rows, some of them twice."""
    draw = np.random.default_rng(share)
    case = Case(3, 7, 23, 20, [1] * 19, share, 5, "nce", adagrad, scale=0.2)
    rows = [draw.integers(0, 7, draw.integers(1, 7)) for _ in range(19)]
    case.pool = RowPool(np.cumsum([0, *map(len, rows)]), np.concatenate(rows), True)
    case.windows = case.windows._replace(centre=np.arange(19))
    for core in CORES:
        assert_agree(case, core)
    case.windows.centre[18] = 19
    u, v = case.tables()
    for core in CORES:
        with using(core), pytest.raises(IndexError, match="centre"):
            wrapper.update(u, v, case.windows, case.negatives, case.rule, 0.1, pool=case.pool)
    assert (u.x == case.u_x).all() and (v.x == case.v_x).all()


@needs_core
@pytest.mark.parametrize("share", [0, 1, 2])
def test_sum_with_zero_rows_equals_plain_rows(share: int) -> None:
    """The unit sees the word's row alone; the zero rows then receive the same gradient."""
    sizes = [4] if share < 2 else [3, 1]
    plain, pooled = (Case(5, 6, 30, 20, sizes, share, 5, "nce", distinct=True, pool=pool) for pool in ("none", "sum"))
    pooled.u_x[6:] = 0
    for core in NATIVE:
        (u, v, output), (u_, v_, output_) = plain.run(core), pooled.run(core)
        np.testing.assert_array_equal(v.x, v_.x)
        np.testing.assert_allclose(u_.x[:6], u.x, rtol=1e-6, atol=1e-7)
        assert output.loss == output_.loss
        change = u_.x - pooled.u_x
        for word in pooled.windows.centre:
            np.testing.assert_allclose(change[6 + 2 * word:8 + 2 * word], change[[word, word]], rtol=1e-4, atol=1e-7)


def test_repeated_row_of_a_word_by_hand() -> None:
    """Its gradients are summed before the accumulator; under the mean they are not divided by the number of rows."""
    for core in CORES:
        u, v = Table(np.ones((3, 2), np.float32), np.zeros(3, np.float32)), Table(np.ones((1, 2), np.float32),
                                                                                np.zeros(1, np.float32))
        with using(core):
            wrapper.update(u, v, Windows(np.array([0]), np.array([0, 1]), np.array([0])),
                           NegativeBatch(np.zeros((1, 0), np.int64), 1), SkipGramLossSpec("logistic"), 0.1,
                           pool=RowPool(np.array([0, 4]), np.array([0, 1, 2, 1]), True))
        g = -1 / (1 + np.exp(2.0))                                                  # σ(s) − 1 at s = 2
        np.testing.assert_allclose(u.acc, [g * g, 4 * g * g, g * g], rtol=1e-5)
        np.testing.assert_allclose(u.x, 1 + 0.1, rtol=1e-5)


@needs_core
@looped("share", [0, 1, 3, 64])
@looped("loss", sorted(wrapper.LOSSES))
def test_large_windows_and_many_negatives(loss: str, share: int) -> None:
    """More rows than one comparison step, more negatives than a tile, in a small and in a large table."""
    for n_v in (50, 4000):
        case = Case(3, 30, n_v, 52, [9, 30, 1, 12, 17, 4, 8], share, 37, loss, mask_target=True, n_masked=30, lr=0.02,
                      scale=0.2)
        for core in NATIVE:
            assert_agree(case, core)


@needs_core
@looped("share", [0, 1, 3])
@looped("scale", [0.0, 1e-20, 8.0, 300.0])
@looped("loss", sorted(wrapper.LOSSES))
def test_extreme_scores(loss: str, scale: float, share: int) -> None:
    """Scores of 1e5 and scores of 0: no overflow, no NaN, equal to the reference."""
    case = Case(11, 5, 30, 24, [2, 3, 1], share, 5, loss, weight="cell", scale=scale, mask_target=True, lr=0.01)
    for core in NATIVE:
        assert_agree(case, core)


@needs_core
@looped("share", [0, 1, 3])
@looped("loss", sorted(wrapper.LOSSES))
def test_a_probe_is_scored_without_an_update(loss: str, share: int) -> None:
    """A negative of weight 0 changes nothing, even if its row is extreme."""
    with_probe = Case(2, 5, 30, 12, [2, 3, 1, 2], share, 4, loss, weight="column")
    ids = with_probe.negatives.ids.copy()
    ids[:, 2] = 29
    with_probe.windows.target[:] %= 29
    ids[:, [0, 1, 3]] %= 29
    weight = np.array([1, 0.5, 0, 2], np.float32)
    with_probe.v_x[29] = 1e30
    with_probe.negatives = with_probe.negatives._replace(ids=ids, weight=weight)
    without = Case(2, 5, 30, 12, [2, 3, 1, 2], share, 4, loss, weight="column")
    without.v_x[29], without.windows.target[:] = with_probe.v_x[29], with_probe.windows.target
    keep = [0, 1, 3]
    without.negatives = without.negatives._replace(ids=np.ascontiguousarray(ids[:, keep]), weight=weight[keep],
                                                   total_weight=with_probe.negatives.total_weight)
    for core in NATIVE:
        u, v, output = with_probe.run(core, keep_scores=True)
        u_, v_, output_ = without.run(core, keep_scores=True)
        np.testing.assert_allclose(u.x, u_.x, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(v.x, v_.x, rtol=1e-5, atol=1e-6)
        assert (v.x[29] == with_probe.v_x[29]).all() and np.isfinite(output.loss)
        assert output.loss == pytest.approx(output_.loss, rel=1e-5)
        assert output.scores is not None and output_.scores is not None
        np.testing.assert_allclose(output.scores[:, keep], output_.scores, rtol=1e-5, atol=1e-6)


@looped("place", ["centre", "target", "negative", "masked", "probe"])
@looped("share", [0, 1, 3])
@looped("loss", sorted(wrapper.LOSSES))
def test_a_score_that_is_nan_reaches_the_loss(loss: str, share: int, place: str) -> None:
    """Training stops when the loss is not finite. A negative that does not count cannot stop it."""
    case = Case(11, 5, 60, 24, [2, 3, 1], share, 5, loss, distinct=True)
    table, row = {"centre": (case.u_x, case.windows.centre[0]), "target": (case.v_x, case.windows.target[0])}.get(
        place, (case.v_x, case.negatives.ids[0, 2]))
    table[row] = np.nan
    if place == "masked":
        n = {0: 1, 1: 2, 3: 6}[share]                                # pairs with the first draw
        case.negatives = case.negatives._replace(false_negatives=np.array([range(n), [2] * n]))
    if place == "probe":
        case.negatives = case.negatives._replace(weight=np.array([1, 1, 0, 1, 1], np.float32))
    with np.errstate(invalid="ignore"):
        for core in CORES:
            assert np.isnan(case.run(core)[2].loss) == (place not in ("masked", "probe")), core


@needs_core
@looped("share", [0, 1, 2])
@looped("loss", sorted(wrapper.LOSSES))
def test_every_negative_masked(loss: str, share: int) -> None:
    case = Case(4, 5, 9, 10, [2, 1, 2], share, 3, loss)
    g, pairs = case.negatives.ids.shape[0], 5
    pair, column = np.divmod(np.arange(pairs * 3), 3)
    case.negatives = case.negatives._replace(false_negatives=np.stack([pair, column]).astype(np.int64))
    for core in NATIVE:
        assert_agree(case, core)
    if loss in ("margin", "sampled_softmax"):
        u, v, loss_, _, _ = case.expected()
        assert loss_ == 0 and (u.x == case.u_x).all() and (v.x == case.v_x).all() and g > 0


@needs_core
@pytest.mark.parametrize("pool", ["none", "mean"])
@pytest.mark.parametrize("share", [0, 1, 2])
def test_threads_are_exact_if_rows_are_disjoint(share: int, pool: str) -> None:
    case = Case(6, 60, 500, 40, [3] * 40, share, 2, "logistic", distinct=True, pool=pool)
    for core in NATIVE:
        single, many = case.run(core, keep_scores=True), case.run(core, keep_scores=True, threads=3)
        np.testing.assert_array_equal(single[0].x, many[0].x)
        np.testing.assert_array_equal(single[1].x, many[1].x)
        np.testing.assert_array_equal(single[2].scores, many[2].scores)
        assert single[2].loss == pytest.approx(many[2].loss)


class SequentialThreads:
    """Threads that run one after the other."""

    @staticmethod
    def submit(part: Callable[..., Any], *range_of: int) -> Future[Any]:
        future = Future[Any]()
        future.set_result(part(*range_of))
        return future


@needs_core
@settings(max_examples=100)
@given(case=st.builds(
    Case, seed=st.integers(0, 2**32), n_u=st.integers(1, 9), n_v=st.integers(2, 400),
    dim=st.sampled_from([1, 8, 13, 20]),
    sizes=st.lists(st.integers(1, 6), min_size=3, max_size=9).map(lambda sizes: 25 * sizes),
    share=st.sampled_from([0, 1]), k=st.sampled_from([0, 1, 5, 11]), loss=st.sampled_from(sorted(wrapper.LOSSES)),
    adagrad=st.booleans(), weight=st.sampled_from(["none", "column"]), mask_target=st.booleans(),
    pad=st.sampled_from([0, 1, 12]), scale=st.just(0.2), lr=st.just(0.02)))
def test_row_copies_equal_the_rows(case: Case) -> None:
    """Threads on disjoint rows equal one thread bitwise, although each updates copies."""
    for library in NATIVE:
        first = case.run(library, keep_scores=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(binding, "workers", lambda n: SequentialThreads)
            many = case.run(library, keep_scores=True, threads=3)
        for single, parallel in zip(first[:2], many[:2], strict=True):
            np.testing.assert_array_equal(single.x, parallel.x)
            if single.acc is not None:
                np.testing.assert_array_equal(single.acc, parallel.acc)
        np.testing.assert_array_equal(first[2].scores, many[2].scores)
        assert first[2].loss == pytest.approx(many[2].loss)


@needs_core
@pytest.mark.parametrize("share", [0, 1])
def test_threads_add_up_if_rows_overlap(share: int) -> None:
    """With an unreachable margin no gradient depends on a score, and no sum on its order. Few writes are lost."""
    draw = np.random.default_rng(3)
    n, rows = 20_000, 12
    u_x = draw.random((n, 16), dtype=np.float32)
    windows = Windows(np.arange(n), np.arange(n + 1), draw.integers(0, 4, n))  # targets and negatives are disjoint: the
    negatives = NegativeBatch(draw.integers(4, rows, (n, 5)), share)                   # updates of a row have one sign
    for library in NATIVE:
        with using(library):
            tables = []
            for threads in (1, 3):
                v = Table(np.zeros((rows, 16), np.float32), np.zeros(rows, np.float32) if share else None)
                u = Table(u_x.copy(), np.zeros(n, np.float32) if share else None)
                wrapper.update(u, v, windows, negatives, SkipGramLossSpec("margin", margin=1e9), 0.01, threads)
                tables.append(v)
        sums = [x.acc if share else x.x for x in tables]                           # Adagrad's steps depend on the order
        assert np.median(np.abs(sums[1] / sums[0] - 1)) < 0.05


@needs_core
def test_threads_and_log_z() -> None:
    for c in ("one", "each"):
        case = Case(8, 60, 500, 8, [3] * 40, 1, 2, "nce", distinct=True, c=c)
        for core in NATIVE:
            assert_agree(case, core, threads=4)


@needs_core
@pytest.mark.parametrize("pool", ["none", "mean"])
@pytest.mark.parametrize("share", [0, 1, 3])
def test_one_thread_is_bitwise_reproducible(share: int, pool: str) -> None:
    case = Case(9, 9, 30, 100, [3, 4, 1, 5] * 5, share, 5, "sampled_softmax", mask_target=True, pool=pool)
    for core in NATIVE:
        single, two = case.run(core), case.run(core)
        assert single[0].x.tobytes() == two[0].x.tobytes() and single[1].x.tobytes() == two[1].x.tobytes()
        assert single[2].loss == two[2].loss


@needs_core
@looped("dim", [1, 13, 36, 64, 100, 128, 129])
@looped("pool", ["none", "mean"])
@looped("share, k", [(0, 5), (1, 5), (1, 64)])
def test_both_ways_to_prefetch_have_the_same_bits(dim: int, pool: str, share: int, k: int) -> None:
    case = Case(3, 9, 300, dim, [3, 4, 1, 5] * 9, share, k, "sampled_softmax", pool=pool)
    expected = case.expected()                       # takes most of the time
    for core in NATIVE:
        near, early = (_update(case, core, expected, is_near) for is_near in (True, False))
        assert near[0].x.tobytes() == early[0].x.tobytes() and near[1].x.tobytes() == early[1].x.tobytes()
        assert near[2].loss == early[2].loss


def _update(case: Case, core: str, expected: Any, prefetch_near: bool) -> tuple[Table, Table, UpdateResult]:
    """Update the tables of a case as on a processor for which the rows are prefetched in this way, and check them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wrapper, "prefetches_near", lambda: prefetch_near)
        assert_agree(case, core, expected)
        return case.run(core)


@looped("core", CORES)
@looped("field, index, value", [
    ("centre", 3, 9), ("centre", 0, -1), ("target", 5, 30), ("target", 2, -7), ("ids", 1, 30), ("ids", 0, -2**63),
    ("start", 1, 4), ("start", 0, 1), ("start", 4, 20), ("false_negatives", 0, 99), ("false_negatives", 3, 5),
    ("false_negatives", 0, 9),
])
@looped("share", [0, 1, 2])
def test_out_of_range_ids_are_rejected_before_any_write(core: str, field: str, index: int, value: int,
                                                        share: int) -> None:
    case = Case(1, 9, 30, 8, [2, 2, 2, 4], share, 5, "logistic")
    case.negatives = case.negatives._replace(false_negatives=np.array([[0, 1], [2, 3]]))
    array = getattr(case.windows if field in ("centre", "start", "target") else case.negatives, field)
    array.flat[index] = value
    u, v = case.tables()
    with using(core), pytest.raises(IndexError, match=field):
        wrapper.update(u, v, case.windows, case.negatives, case.rule, 0.1)
    assert (u.x == case.u_x).all() and (v.x == case.v_x).all()


@looped("core", CORES)
@looped("field, index, value", [
    ("row", 1, 15), ("row", 0, -1), ("row", 2, 2**62), ("start", 0, -1), ("start", 1, 0), ("start", 1, 999),
    ("start", 1, -5), ("centre", 3, 9), ("centre", 0, -1)])
@looped("share", [0, 1, 2])
def test_pools_out_of_range_are_rejected_before_any_write(core: str, field: str, index: int, value: int, share: int
                                                          ) -> None:
    case = Case(1, 9, 30, 8, [2, 2, 2, 4], share, 5, "logistic", pool="mean")
    assert case.pool is not None and len(case.u_x) == 15
    case.windows.centre[:] = [0, 8, 0, 3]
    room = np.zeros(2000, np.int64)                               # a read beyond the array would find a valid row
    room[50:50 + len(case.pool.row)] = case.pool.row
    case.pool = case.pool._replace(row=room[50:50 + len(case.pool.row)])
    (case.windows.centre if field == "centre" else getattr(case.pool, field))[index] = value
    u, v = case.tables()
    with using(core), pytest.raises(IndexError, match="centre" if field == "centre" else "pool"):
        wrapper.update(u, v, case.windows, case.negatives, case.rule, 0.1, pool=case.pool)
    assert (u.x == case.u_x).all() and (v.x == case.v_x).all()


@pytest.mark.parametrize("core", CORES)
def test_pools_of_the_wrong_type_are_rejected(core: str) -> None:
    case = Case(1, 9, 30, 8, [2, 2, 2, 4], 1, 5, "logistic", pool="mean")
    u, v = case.tables()
    assert case.pool is not None
    for change in ({"row": case.pool.row.astype(np.int32)}, {"start": case.pool.start[:0]},
                   {"start": case.pool.start[::-1]}, {"row": case.pool.row[None]}):
        with using(core), pytest.raises((TypeError, ValueError)):
            wrapper.update(u, v, case.windows, case.negatives, case.rule, 0.1, pool=case.pool._replace(**change))
    assert (u.x == case.u_x).all()


@pytest.mark.parametrize("change", [
    {"ids": np.zeros((3, 5), np.int64)}, {"ids": np.zeros((4, 5), np.int32)}, {"share": -1}, {"share": 2},
    {"log_q_table": np.zeros(29, np.float32)}, {"log_q_table": None}, {"weight": np.ones(4, np.float32)},
    {"weight": np.ones((2, 5), np.float32)}, {"total_weight": 0.0}, {"total_weight": float("nan")},
    {"log_q": np.zeros((5, 4), np.float32).T}, {"false_negatives": np.zeros((3, 2), np.int64)},
], ids="-".join)
def test_mismatched_shapes_are_rejected(change: dict[str, Any]) -> None:
    case = Case(1, 9, 30, 8, [2, 2, 2, 4], 1, 5, "nce")
    case.negatives = case.negatives._replace(**change)
    u, v = case.tables()
    with pytest.raises((TypeError, ValueError)):
        wrapper.update(u, v, case.windows, case.negatives, case.rule, 0.1)


def test_mismatched_tables_are_rejected() -> None:
    case = Case(1, 9, 30, 8, [2, 2, 2, 4], 1, 5, "logistic")
    u, v = case.tables()
    still = Table(u.x.copy())
    still.x.flags.writeable = False
    for bad in (Table(u.x[:, :7]), Table(u.x.astype(np.float64)), Table(np.zeros((8, 9), np.float32).T), still,
                Table(u.x, np.zeros(9, np.float32)), Table(u.x[::-1])):
        with pytest.raises(ValueError):
            wrapper.update(bad, v, case.windows, case.negatives, case.rule, 0.1)
    with pytest.raises(ValueError, match="log Z"):
        wrapper.update(u, v, case.windows, case.negatives, SkipGramLossSpec("margin", c=np.array(0, np.float32)), 0.1)


def test_reference_runs_without_a_core() -> None:
    case = Case(2, 9, 30, 8, [2, 2, 2, 4], 0, 5, "nce", c="one")
    u, v, loss, scores, c_grad = case.expected()
    u_, v_, output = case.run("off", keep_scores=True)
    np.testing.assert_allclose(u_.x, u.x, atol=1e-6)
    np.testing.assert_allclose(v_.x, v.x, atol=1e-6)
    assert output.loss == pytest.approx(loss) and output.scores is not None and output.scores.dtype == np.float32
    np.testing.assert_allclose(output.scores, scores, atol=1e-6)
    assert output.c_grad is not None and output.c_grad == pytest.approx(c_grad, rel=1e-5)
    assert case.run("off")[2].scores is None


@pytest.mark.parametrize(("n", "dim"), [(1, 5), (3, 5), (7, 16), (40_000, 112)])
def test_table_rows_are_aligned_to_cache_lines(n: int, dim: int) -> None:
    x = zeros(n, dim)
    assert x.shape == (n, dim) and x.dtype == np.float32 and not x.any()
    assert x.ctypes.data % 64 == 0 and (n < 2 or x.strides == (-(-dim // 16) * 64, 4))
    assert n * dim < 1 << 22 or x.ctypes.data % (1 << 21) == 0


@needs_core
@looped("alpha, centered", [(0.2, True), (0.8, True), (1.0, True), (0.5, False), (0.9, False)])
@looped("share", [0, 1, 3])
@looped("n_masked", [0, 7])
@looped("scale", [0.3, 8.0])
def test_each_form_of_alpha_nce(alpha: float, centered: bool, share: int, n_masked: int, scale: float) -> None:
    """Also where powers are continued by their tangent: scale 8."""
    case = Case(11, 5, 30, 24, [2, 3, 1, 4], share, 5, "alpha_nce", weight="cell", scale=scale, n_masked=n_masked,
                lr=0.01 / scale)
    case.rule = case.rule._replace(alpha=alpha, centered=centered)
    for core in NATIVE:
        assert_agree(case, core)


# -- the reference against autograd ------------------------------------------------------------------------------------

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "logistic": ("logistic", {}), "nce": ("nce", {}), "nce, one z": ("nce", {"partition": "global"}),
    "nce, a z per context": ("nce", {"partition": "context"}), "margin": ("margin", {"margin": 0.4}),
    "sampled_softmax": ("sampled_softmax", {}), "sampled_softmax, ranking": ("sampled_softmax", {"form": "ranking"}),
    "gbce": ("gbce", {"t": 0.8}), "alpha_nce": ("alpha_nce", {}), "alpha_nce, α = .8": ("alpha_nce", {"alpha": 0.8}),
    "alpha_nce, α = 1": ("alpha_nce", {"alpha": 1.0}), "eNCE": ("alpha_nce", {"centered": False}),
    "α = .3, not centred": ("alpha_nce", {"alpha": 0.3, "centered": False}),
}


@looped("form", FORMS)
@looped("share", [0, 1, 2])
@looped("mask", ["none", "target"])
@looped("weighted", [False, True])
def test_reference_gradients_match_the_torch_losses(form: str, share: int, mask: str, weighted: bool) -> None:
    """One unit with SGD: the tables change by lr times the autograd gradient of the summed loss."""
    name, keys = FORMS[form]
    ranking = keys.get("form") == "ranking"
    sizes = [4] if share < 2 else [3, 1]
    c = {"global": "one", "context": "each"}.get(keys.get("partition", ""), "none")
    case = Case(12, 4, 9, 6, sizes, share, 5, name, weight="cell" if weighted else "none", log_q="cell", c=c,
                  mask_target=mask == "target", ranking=ranking)
    negatives, windows = case.negatives, case.windows
    case.rule = case.rule._replace(positive_weight=1 - 0.8 * (1 - negatives.total_weight / 8),         # 9 candidates
                                   alpha=keys.get("alpha", 0.5), centered=keys.get("centered", True))
    u, v = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (case.u_x, case.v_x))
    kind = losses.find(name)
    loss_module = kind(kind.Config(name=name, **keys),
                       ProblemSpec(9, torch.ones(9).double(), n_contexts=4, seed=1)).double()
    if case.rule.c is not None:
        with torch.no_grad():
            next(loss_module.parameters()).copy_(torch.tensor(case.rule.c))
    window = np.repeat(np.arange(len(sizes)), sizes)
    group = np.arange(4) if share == 0 else window // share
    def tensor(x: np.ndarray | None) -> torch.Tensor | None:
        return None if x is None else torch.tensor(x[group]).double()
    centre, target = torch.tensor(windows.centre[window]), torch.tensor(windows.target)
    drawn = Negatives(
        torch.tensor(negatives.ids[group]),
        log_q=tensor(negatives.log_q),
        weight=tensor(negatives.weight),
        log_q_target=torch.tensor(negatives.log_q_target).double(),
        total_weight=torch.full((1, 1), negatives.total_weight),
    )
    query = Query(u[centre], centre, target, torch.zeros(4, dtype=torch.int64))
    drawn = mark_false_negatives(drawn, query, mask, None)
    scored = LossInput(
        (u[centre] * v[target]).sum(1),
        torch.einsum("bd,bkd->bk", u[centre], v[drawn.ids]),
        drawn,
        query,
        log_q=drawn.log_q,
        weight=drawn.weight,
    )
    cost = loss_module(scored).per_example.sum()
    cost.backward()
    u_, v_, loss, scores, c_grad = case.expected()
    assert loss == pytest.approx(cost.item(), rel=1e-6)
    np.testing.assert_allclose(u_.x, case.u_x - case.lr * u.grad.numpy(), atol=1e-7)
    np.testing.assert_allclose(v_.x, case.v_x - case.lr * v.grad.numpy(), atol=1e-7)
    if c_grad is not None:
        np.testing.assert_allclose(c_grad, next(loss_module.parameters()).grad.numpy(), atol=1e-6)
    if share < 2:
        np.testing.assert_allclose(scores if share == 0 else scores[group], scored.neg.detach().numpy(), atol=1e-9)


def test_row_adagrad_by_hand() -> None:
    """acc += mean_d g_d², x -= lr g / √acc, both with the values before the window."""
    u, v = Table(np.array([[1.0, 2.0]]), np.array([0.5])), Table(np.array([[0.5, -0.5]]), np.array([0.0]))
    g = -1 / (1 + np.exp(-0.5))  # σ(s) − 1 at s = −½
    reference.update(u, v, Windows(np.array([0]), np.array([0, 1]), np.array([0])),
                NegativeBatch(np.zeros((1, 0), np.int64), 1), SkipGramLossSpec("logistic"), 0.1)
    assert u.acc == pytest.approx(0.5 + g * g * 0.25) and v.acc == pytest.approx(g * g * 2.5)
    np.testing.assert_allclose(v.x[0], [0.5 + 0.1 / np.sqrt(2.5), -0.5 + 0.2 / np.sqrt(2.5)])
    np.testing.assert_allclose(u.x[0], [1 - 0.05 * g / np.sqrt(u.acc[0]), 2 + 0.05 * g / np.sqrt(u.acc[0])])


@pytest.mark.parametrize("n", [0, 5, HUGE_PAGE_BYTES // 4 - 1, HUGE_PAGE_BYTES // 4, HUGE_PAGE_BYTES // 2 + 3])
def test_zeros_on_huge_pages_are_writable(n: int) -> None:
    array = zeros_on_huge_pages(n)
    assert array.shape == (n,) and array.dtype == np.float32 and not array.any() and array.flags.c_contiguous
    array += 1
    small = zeros_on_huge_pages(4 * n, np.uint8)
    assert small.shape == (4 * n,) and small.dtype == np.uint8 and not small.any() and small.flags.writeable
    assert array.sum() == n and (sys.platform != "linux" or 4 * n < HUGE_PAGE_BYTES
                                 or array.ctypes.data % HUGE_PAGE_BYTES == 0)
