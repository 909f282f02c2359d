"""Kernel alias: core against reference and exact integers, distribution of draws, and the source that uses it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped
from hypothesis import given, strategies as st
from scipy import stats

from embtrain.kernels.reference import splitmix64
from embtrain.kernels.reference.sampling import alias as reference
from embtrain.kernels.sampling import alias as kernel
from embtrain.negatives.sampling.alias import AliasTable

TOP = 2 ** 64 - 1
SEEDS = st.integers(0, TOP)
WORDS = st.one_of(st.sampled_from([0, 1, 2 ** 32 - 1, 2 ** 32, 2 ** 63, TOP - 1, TOP]), SEEDS)


def mix(seed: int, i: int) -> int:
    """SplitMix64 in plain integers."""
    z = (seed + (i + 1) * 0x9E3779B97F4A7C15) & TOP
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & TOP
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & TOP
    return z ^ z >> 31


def one_by_one(accept: list[int], alias: list[int], n: int, seed: int) -> list[int]:
    drawn = []
    for i in range(n):
        column, toss = divmod(mix(seed, i) * len(accept), 2 ** 64)
        drawn.append(column if toss < accept[column] else alias[column])
    return drawn


# --- random numbers ---------------------------------------------------------------------------------------------------

def test_splitmix_gives_the_published_numbers() -> None:
    assert [int(x) for x in splitmix64(1234567, np.arange(3))] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(SEEDS, st.lists(st.integers(0, 2 ** 63 - 1), max_size=20))
def test_splitmix_equals_plain_integers(seed: int, i: list[int]) -> None:
    assert splitmix64(seed, np.array(i, dtype=np.int64)).tolist() == [mix(seed, x) for x in i]


def test_splitmix_keeps_the_shape() -> None:
    assert splitmix64(3, np.zeros((2, 3), dtype=np.int64)).shape == (2, 3) and splitmix64(3, np.array(7)).shape == ()


# --- the core and its reference ---------------------------------------------------------------------------------------

@given(st.data(), st.integers(1, 40), st.integers(0, 60), SEEDS)
def test_every_core_draws_like_plain_integers(data: st.DataObject, v: int, n: int, seed: int) -> None:
    accept = data.draw(st.lists(WORDS, min_size=v, max_size=v))
    alias = data.draw(st.lists(st.integers(0, v - 1), min_size=v, max_size=v))
    for name in CORES:
        with using(name):
            drawn = kernel.draw(np.array(accept, dtype=np.uint64), np.array(alias, dtype=np.int64), n, seed)
        assert drawn.dtype == np.int64 and drawn.tolist() == one_by_one(accept, alias, n, seed), name


@given(SEEDS, st.integers(2, 100))
def test_a_random_number_equal_to_accept_takes_the_alias(seed: int, v: int) -> None:
    column, toss = divmod(mix(seed, 0) * v, 2 ** 64)
    for more, drawn in ((0, (column + 1) % v), (1, column)):
        accept = np.full(v, min(toss + more, TOP), dtype=np.uint64)
        for name in CORES:
            with using(name):
                assert kernel.draw(accept, (np.arange(v) + 1) % v, 1, seed).tolist() == [drawn], name


@pytest.mark.parametrize("v", [1, 2, 67_000, 2 ** 20 + 7])
def test_large_tables_and_any_thread_count(v: int) -> None:
    random = np.random.default_rng(v)
    accept, alias = random.integers(0, 2 ** 64, v, dtype=np.uint64), random.integers(0, v, v)
    n = 3 * kernel.GRAIN + 17
    expected = reference.draw(accept, alias, n, 5)
    for name in NATIVE:
        for threads in (0, 1, 2, 3, 64):
            with using(name):
                assert np.array_equal(kernel.draw(accept, alias, n, 5, threads), expected), (name, threads)


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "draw", lambda *a: pytest.fail("the reference drew"))
    with using(NATIVE[-1]):
        kernel.draw(np.array([TOP], dtype=np.uint64), np.zeros(1, dtype=np.int64), 3, 0)


@pytest.mark.parametrize("name", CORES)
def test_invalid_tables_are_rejected(name: str) -> None:
    accept, alias = np.zeros(4, dtype=np.uint64), np.zeros(4, dtype=np.int64)
    nothing = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    with using(name):
        for bad in ((accept.astype(np.int64), alias, 1, 0), (accept, alias.astype(np.int32), 1, 0),
                    (accept[::2], alias[:2], 1, 0), (accept[None], alias, 1, 0)):
            with pytest.raises((TypeError, ValueError), match="alias: "):
                kernel.draw(*bad)
        for bad in ((accept[:3], alias, 1, 0), (*nothing, 1, 0), (accept, alias, -1, 0), (accept, alias, 1, -1),
                    (accept, alias, 1, 2 ** 64)):
            with pytest.raises(ValueError, match="alias: "):
                kernel.draw(*bad)
        assert len(kernel.draw(accept, alias, 0, 0)) == 0


# --- the source's table -----------------------------------------------------------------------------------------------

@looped("name", CORES)
@looped("q", [[1.0], [0.5, 0.5], [0.7, 0.0, 0.1, 0.2], [1e-4, 0.4, 0.3, 0.2999]])
def test_frequencies_match_q(name: str, q: list[float]) -> None:
    table, n = AliasTable(torch.tensor(q, dtype=torch.float64), "cpu"), 600_000
    with using(name):
        ids = table.draw((n // 4, 4), torch.Generator().manual_seed(11))
    assert ids.shape == (n // 4, 4) and ids.dtype == torch.int64
    observed = np.bincount(ids.flatten().numpy(), minlength=len(q))
    expected = np.array(q) * n
    assert not observed[expected == 0].any()
    subset = expected > 0
    assert subset.sum() == 1 or stats.chisquare(observed[subset],
                                                expected[subset] * n / expected.sum()).pvalue > 1e-3 / 8


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1.0)), min_size=1, max_size=50).filter(any))
def test_the_table_stores_q_to_full_precision(masses: list[float]) -> None:
    q = np.array(masses) / np.sum(masses)
    table = AliasTable(torch.from_numpy(q), "cpu")
    kept = np.where(table.accept_bits == TOP, 1.0, np.ldexp(table.accept_bits.astype(np.float64), -64)) / len(q)
    held = kept + np.bincount(table.alias_ids, 1 / len(q) - kept, minlength=len(q))
    assert np.allclose(held, q, rtol=0, atol=1e-15)
    for column in np.flatnonzero(q == 0):
        assert table.accept_bits[column] == 0 and column not in table.alias_ids
    assert np.array_equal(table.accept_bits == TOP, table.alias_ids == np.arange(len(q)))


def test_the_generator_state_determines_the_stream() -> None:
    table, random = AliasTable(torch.full((100,), 0.01), "cpu"), torch.Generator().manual_seed(3)
    first = table.draw((7, 5), random)
    state = random.get_state()
    second = table.draw((7, 5), random)
    assert not torch.equal(first, second)
    assert torch.equal(table.draw((7, 5), torch.Generator().set_state(state)), second)
    assert table.draw((0, 5), random).shape == (0, 5)


def test_cores_and_threads_draw_the_same_ids() -> None:
    table, drawn = AliasTable(torch.arange(1.0, 2001) / 2001000, "cpu"), []
    for name in CORES:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with using(name):
                drawn.append(table.draw((2 * kernel.GRAIN + 1,), torch.Generator().manual_seed(3)))
    assert all(torch.equal(ids, drawn[0]) for ids in drawn)


def test_other_devices_draw_with_torch() -> None:
    table = AliasTable(torch.tensor([0.5, 0.5]), "meta")
    assert not hasattr(table, "bits") and table.accept.device.type == "meta"
