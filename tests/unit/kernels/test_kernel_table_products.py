"""Wrapper of products with a whole table: core and reference against float64, at every width."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using
from hypothesis import given, settings, strategies as st

from embtrain.kernels.core.tables import zeros
from embtrain.kernels.reference.scoring import table_products as reference
from embtrain.kernels.scoring import table_products as kernel

WIDTHS = (0, 1, 3, 7, 8, 9, 16, 31, 100, 255, 256, 257, 263, 520)  # around the sizes of transposed tiles and of a panel


def arrays(n: int, v: int, d: int, padded: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng([seed, n, v, d])
    table = zeros(v, d) if padded else np.empty((v, d), np.float32)
    table[:] = draw.normal(size=(v, d))
    return draw.normal(size=(n, d)).astype(np.float32), table


def assert_exact(s: np.ndarray, h: np.ndarray, table: np.ndarray) -> None:
    x, y = h.astype(np.float64), table.astype(np.float64)
    far = (h.shape[1] + 1) * np.finfo(np.float32).eps
    assert s.dtype == np.float32 and s.shape == (len(h), len(table))
    assert (np.abs(s - x @ y.T) <= far * (np.abs(x) @ np.abs(y).T)).all()


@settings(max_examples=60)
@given(n=st.integers(0, 19), v=st.integers(0, 110), d=st.sampled_from(WIDTHS), padded=st.booleans(),
       seed=st.integers(0, 99))
def test_products_equal_float64_sums(n: int, v: int, d: int, padded: bool, seed: int) -> None:
    h, table = arrays(n, v, d, padded, seed)
    for core in CORES:
        with using(core):
            assert_exact(kernel.products(h, table), h, table)


@pytest.mark.parametrize("name", NATIVE)
def test_a_product_depends_on_its_query_and_row_alone(name: str) -> None:
    """Not on the threads, nor on other queries or rows: targets have the bits that they have among all candidates."""
    h, table = arrays(23, 3 * kernel.GRAIN // (23 * 100) + 5, 100, True)
    with using(name):
        expected = kernel.products(h, table)
        assert np.array_equal(kernel.products(h, table, 3), expected)
        for rows in (slice(0, 1), slice(3, 12), slice(9, 23)):
            assert np.array_equal(kernel.products(h[rows], table), expected[rows])
        assert np.array_equal(kernel.products(h, table[7:60]), expected[:, 7:60])


@pytest.mark.parametrize("name", CORES)
def test_numbers_that_are_not_finite_stay_in_their_row(name: str) -> None:
    h, table = arrays(5, 60, 20, False)
    h[1, 19], table[58, 0] = np.nan, np.inf
    with using(name):
        finite = np.isfinite(kernel.products(h, table))
    assert not finite[1].any() and not finite[:, 58].any() and finite[[0, 2, 3, 4]][:, :58].all()


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "products", lambda *a: pytest.fail("the reference multiplied"))
    with using(NATIVE[-1]):
        kernel.products(*arrays(2, 3, 5, False))


@pytest.mark.parametrize("name", CORES)
def test_mismatched_arrays_are_rejected(name: str) -> None:
    h, table = arrays(4, 9, 6, False)
    with using(name):
        for bad in ((h.astype(np.float64), table), (h, table.astype(np.float64)), (h[:, ::2], table[:, ::2]),
                    (h, table[:, ::-1]), (h, table[0])):
            with pytest.raises(TypeError, match="table_products: "):
                kernel.products(*bad)
        with pytest.raises(ValueError, match="table_products: h must have the shape"):
            kernel.products(h[:, :5].copy(), table)
