"""Wrappers in kernels/text/windows.py: core against reference, dependence on positions, and distributions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.cores import needs_core
from hypothesis import given, settings, strategies as st

from embtrain.kernels.reference.text import windows as reference
from embtrain.kernels.text import windows as kernel

BOTH = ["reference", pytest.param("core", marks=needs_core)]
seeds = st.integers(0, 2 ** 64 - 1)
lengths = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 200)), max_size=12)


def by_reference(call: Callable[[], Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "core", lambda: None)
        return call()


@pytest.fixture(params=BOTH)
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with the core and with the reference."""
    if request.param == "reference":
        monkeypatch.setattr(kernel, "core", lambda: None)
    return str(request.param)


def made(lengths: list[int], v: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(seed).integers(0, v, sum(lengths), dtype=np.int32)
    return ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# --- subsampling ------------------------------------------------------------------------------------------------------

@needs_core
@given(lengths, seeds, st.integers(1, 6))
def test_core_subsamples_like_the_reference(lengths: list[int], seed: int, threads: int) -> None:
    ids, sequence = made(lengths, seed=len(lengths))
    keep = np.random.default_rng(seed % 1000).random(50)
    keep[:3] = 0, 1, 2.0 ** -31
    expected = reference.subsample(ids, sequence, np.round(keep * 2.0 ** 31).astype(np.uint32), seed)
    assert same(kernel.subsample(ids, sequence, keep, seed, threads), expected)
    assert same(by_reference(lambda: kernel.subsample(ids, sequence, keep, seed, threads)), expected)


def test_subsampling_depends_on_the_position_alone(either: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, sequence = made([300] * 40)
    keep = np.full(50, 0.4)
    kept, offsets = kernel.subsample(ids, sequence, keep, 5)
    monkeypatch.setattr(kernel, "CHUNK", 700)
    assert same(kernel.subsample(ids, sequence, keep, 5, 7), (kept, offsets))
    monkeypatch.setattr(kernel, "PASS", 2000)
    for threads in (1, 3):
        assert same(kernel.subsample(ids, sequence, keep, 5, threads), (kept, offsets))
    part, upto = kernel.subsample(ids[:6000], sequence[:21], keep, 5)  # the text that follows has no effect
    assert upto.tolist() == offsets[:21].tolist() and part.tolist() == kept[:offsets[20]].tolist()
    repeated = np.full_like(sequence, 12_000)
    repeated[0] = 0  # and neither do sequence ends
    assert np.array_equal(kernel.subsample(ids, repeated, keep, 5)[0], kept)
    assert not np.array_equal(kernel.subsample(ids, sequence, keep, 6)[0], kept)
    assert kernel.subsample(ids, sequence, np.ones(50), 5)[0].tolist() == ids.tolist()
    assert kernel.subsample(ids, sequence, np.zeros(50), 5)[0].tolist() == []


def test_words_are_kept_with_their_probability(either: str) -> None:
    n, keep = 400_000, np.array([0.003, 0.1, 0.5, 0.97, 1.0])
    ids = np.tile(np.arange(5, dtype=np.int32), n // 5)
    kept, _ = kernel.subsample(ids, np.array([0, n]), keep, 11)
    result = np.bincount(kept, minlength=5)
    assert (np.abs(result - keep * n / 5) <= 4.5 * np.sqrt(n / 5 * keep * (1 - keep))).all()


# --- expected counts --------------------------------------------------------------------------------------------------

@needs_core
@given(lengths, st.integers(1, 7))
def test_core_expectations_match_the_reference(lengths: list[int], w: int) -> None:
    ids, sequence = made(lengths)
    rng = np.random.default_rng(w)
    keep, inside = rng.random(50), np.cumsum(rng.random(w + 1)) - 0.3
    found = kernel.expected_targets(ids, sequence, keep, inside)
    assert found == pytest.approx(reference.expected_targets(ids, sequence, keep, inside))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "PASS", 10)
        assert np.array_equal(kernel.expected_targets(ids, sequence, keep, inside), found)


# --- the permutation --------------------------------------------------------------------------------------------------

@given(st.one_of(st.integers(0, 40), st.integers(0, 3000)), seeds)
@settings(max_examples=200)
def test_a_permutation_is_a_bijection(n: int, seed: int) -> None:
    full = kernel.permutation(n, 0, n, seed)
    assert sorted(full.tolist()) == list(range(n))
    assert full.dtype == np.int64 and np.array_equal(full, reference.permutation(n, 0, n, seed))


@needs_core
@given(st.integers(1, kernel.BOUND), st.integers(0, 2 ** 52), st.integers(0, 600), seeds)
def test_core_permutes_like_the_reference(n: int, begin: int, size: int, seed: int) -> None:
    begin = begin % n
    end = min(begin + size, n)
    result = kernel.permutation(n, begin, end, seed)
    assert np.array_equal(result, reference.permutation(n, begin, end, seed))
    assert len(np.unique(result)) == end - begin and (len(result) == 0 or 0 <= result.min() <= result.max() < n)
    assert np.array_equal(result[size // 2:], kernel.permutation(n, min(begin + size // 2, end), end, seed))


@pytest.mark.parametrize("n", [99_856, 100_003])  # a square, and a prime
def test_an_order_looks_random(either: str, n: int) -> None:
    x = kernel.permutation(n, 0, n, 3)
    where = np.histogram2d(np.arange(n), x, bins=20)[0]                # positions before and after
    assert chi2(where) < 520                                           # 361 degrees of freedom, p = 1e-7
    steps = np.histogram((x[1:] - x[:-1]) % n, bins=50, range=(0, n))[0]
    assert chi2(steps) < 120                                           # 49 degrees of freedom
    following = np.histogram2d(x[:-1] % 30, x[1:] % 30, bins=30)[0]    # neighbours in their low bits
    assert chi2(following) < 1100                                      # 841 or so
    for lag in (1, 2, 316, 317):                                       # ⌈√n⌉ is the side of the network's square
        assert abs(np.corrcoef(x[lag:], x[:-lag])[0, 1]) < 5.5 / np.sqrt(n)
    runs = np.count_nonzero(np.diff(np.sign(np.diff(x))))              # turning points: 2/3 of all, variance 8/45
    assert abs(runs - 2 / 3 * n) < 5.5 * np.sqrt(8 / 45 * n)


def test_orders_of_different_seeds_are_independent(either: str) -> None:
    n, many = 120, 400
    orders = np.stack([kernel.permutation(n, 0, n, seed) for seed in range(many)])               # (seeds, n)
    places = np.stack([np.bincount(orders[:, i], minlength=n) for i in range(n)])                # (n, n)
    assert chi2(places) < 119 ** 2 + 5.5 * np.sqrt(2) * 119
    fixed = (orders == np.arange(n)).sum(1)
    assert abs(fixed.mean() - 1) < 5.5 / np.sqrt(many) and 0.6 < fixed.var() < 1.5
    agree = (orders[1:] == orders[:-1]).sum(1)                          # in neighbouring seeds
    assert abs(agree.mean() - 1) < 5.5 / np.sqrt(many)


def chi2(observed: np.ndarray) -> float:
    expected = observed.sum() / observed.size
    return float(((observed - expected) ** 2 / expected).sum())


# --- windows ----------------------------------------------------------------------------------------------------------

@needs_core
@given(lengths, st.one_of(st.integers(1, 12), st.integers(1, 150)), st.none() | seeds, seeds, st.data())
@settings(max_examples=200)
def test_core_builds_the_windows_of_the_reference(lengths: list[int], w: int, seed: int | None, order: int,
                                                  data: st.DataObject) -> None:
    text = kernel.text(*made(lengths))
    n = len(text.ids)
    begin = data.draw(st.integers(0, n))
    end = data.draw(st.integers(begin, n))
    centres = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=300) if n else st.just([])), dtype=np.int64)
    for args in ((centres, w, seed), ((begin, end), w, seed), ((begin, end), w, seed, order)):
        assert same(kernel.pairs(text, *args), by_reference(lambda args=args: kernel.pairs(text, *args)))


@given(lengths, st.integers(1, 70), st.none() | seeds, st.integers(1, 90), st.none() | seeds)
def test_blocks_make_up_the_whole(lengths: list[int], w: int, seed: int | None, block: int, order: int | None) -> None:
    text = kernel.text(*made(lengths))
    n = len(text.ids)
    full = kernel.pairs(text, (0, n), w, seed, order)
    parts = [kernel.pairs(text, (a, min(a + block, n)), w, seed, order) for a in range(0, n, block)]
    assert np.array_equal(np.concatenate([full.centre[:0], *(p.centre for p in parts)]), full.centre)
    assert np.array_equal(np.concatenate([full.target[:0], *(p.target for p in parts)]), full.target)
    assert np.array_equal(np.concatenate([full.start[:0], *(np.diff(p.start) for p in parts)]), np.diff(full.start))


@given(lengths, st.integers(1, 70), st.none() | seeds)
def test_no_window_crosses_a_sequence(lengths: list[int], w: int, seed: int | None) -> None:
    _, sequence = made(lengths)
    ids = np.arange(sequence[-1], dtype=np.int32)  # every word encodes its position
    result = kernel.pairs(kernel.text(ids, sequence), (0, len(ids)), w, seed)
    sequence_of_word = np.searchsorted(sequence, ids, "right")
    b = np.full(len(ids), w) if seed is None else reference.reach(ids.astype(np.int64), w, seed)
    expected = {i: [j for j in range(max(0, i - b[i]), min(len(ids), i + b[i] + 1)) if j != i
                    and sequence_of_word[i] == sequence_of_word[j]]
                for i in ids.tolist()}
    assert {c: result.target[s:e].tolist() for c, s, e in zip(result.centre.tolist(), result.start, result.start[1:],
                                                              strict=False)} == {c: t for c, t in expected.items() if t}


@pytest.mark.parametrize("w", [1, 4, 5, 13])
def test_the_reach_is_uniform(either: str, w: int) -> None:
    n = 60_000
    text = kernel.text(np.zeros(n, dtype=np.int32), np.array([0, n]))
    size = np.diff(kernel.pairs(text, (w, n - w), w, 8).start)
    assert set((size % 2).tolist()) == {0}
    observed = np.bincount(size // 2, minlength=w + 1)[1:]
    assert len(observed) == w and chi2(observed) < w + 8 * np.sqrt(w)
    b = (size // 2).astype(float)
    if w > 1:
        assert abs(np.corrcoef(b[1:], b[:-1])[0, 1]) < 5 / np.sqrt(n)


@given(lengths)
def test_every_sequence_start_has_a_bit(lengths: list[int]) -> None:
    ids, sequence = made(lengths)
    first = kernel.text(ids, sequence).first
    bits = np.unpackbits(first.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == sorted(set(sequence.tolist()))


def test_one_epoch_is_a_shuffle_of_the_text_in_order(either: str) -> None:
    ids, sequence = made([30, 1, 0, 50, 100], 500)
    text = kernel.text(ids, sequence)
    plain, mixed = (kernel.pairs(text, (0, 181), 3, 9, order) for order in (None, 1))
    def windows(x: kernel.Pairs) -> list[tuple[int, ...]]:
        return [(c, *x.target[s:e].tolist()) for c, s, e in zip(x.centre.tolist(), x.start[:-1], x.start[1:],
                                                                strict=True)]
    assert len(windows(plain)) == 180
    assert sorted(windows(plain)) == sorted(windows(mixed)) and windows(plain) != windows(mixed)


# --- invalid arguments ------------------------------------------------------------------------------------------------

def test_ids_beyond_the_vocabulary_are_rejected(either: str) -> None:
    for bad in (-1, 50, 2 ** 31 - 1, -2 ** 31):
        ids, sequence = made([9, 9])
        ids[12] = bad
        with pytest.raises(IndexError, match="vocabulary"):
            kernel.subsample(ids, sequence, np.ones(50), 0)
        with pytest.raises(IndexError, match="vocabulary"):
            kernel.expected_targets(ids, sequence, np.ones(50), np.arange(3.0))
    with pytest.raises(ValueError, match="inside is empty"):
        kernel.expected_targets(*made([9, 9]), np.ones(50), np.zeros(0))


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=40), st.integers(-9, 9))
def test_a_window_value_is_repeated_for_each_pair(sizes: list[int], least: int) -> None:
    start, value = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), np.arange(len(sizes)) * 7 + least
    expected = [value[c] for c, size in enumerate(sizes) for _ in range(size)]
    for result in (kernel.repeat_by_window(start, value), by_reference(lambda: kernel.repeat_by_window(start, value))):
        assert result.dtype == np.int64 and result.tolist() == expected


def test_invalid_offsets_are_rejected(either: str) -> None:
    value = np.arange(3)
    for start in (np.array([0, 2, 1, 3]), np.array([1, 2, 3, 4]), np.array([0, 1, 2]), np.arange(4, dtype=np.int32)):
        with pytest.raises((ValueError, TypeError)):
            kernel.repeat_by_window(start, value)


def test_mismatched_arguments_are_rejected(either: str) -> None:
    ids, sequence = made([9, 9])
    text = kernel.text(ids, sequence)
    for invalid in (sequence[1:], sequence + 1, np.array([0, 10, 9, 18]), sequence[:0], sequence.astype(np.int32)):
        with pytest.raises((ValueError, TypeError), match="sequence"):
            kernel.subsample(ids, invalid, np.ones(50), 0)
    with pytest.raises(TypeError, match="int32"):
        kernel.subsample(ids.astype(np.int64), sequence, np.ones(50), 0)
    with pytest.raises(TypeError, match="contiguous"):
        kernel.pairs(text._replace(ids=np.repeat(ids, 2)[::2]), (0, 3), 2, None)
    for first in (text.first[:0], np.zeros_like(text.first), text.first & ~np.uint64(1),
                  text.first ^ np.uint64(1 << 18)):
        with pytest.raises(ValueError, match="marks"):
            kernel.pairs(text._replace(first=first), (0, 3), 2, None)
    for centres in ((0, 19), (-1, 3), (3, 2), np.array([18]), np.array([-1])):
        with pytest.raises(ValueError, match="centre"):
            kernel.pairs(text, centres, 2, None)
    for window in (0, -1, 1 << 20):
        with pytest.raises(ValueError, match="window"):
            kernel.pairs(text, (0, 3), window, None)
    with pytest.raises(ValueError, match="order"):
        kernel.pairs(text, np.array([1]), 2, None, 5)
    for begin, end, n in ((0, 5, 4), (3, 2, 4), (-1, 2, 4), (0, 1, kernel.BOUND + 1)):
        with pytest.raises(ValueError, match="permutation"):
            kernel.permutation(n, begin, end, 0)
