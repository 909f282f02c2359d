"""Wrapper of row-wise dot products: core and reference against float64, at every width."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped

from embtrain.kernels.reference.scoring import row_products as reference
from embtrain.kernels.scoring import row_products as kernel

DTYPES = (np.float32, np.float64)
WIDTHS = (1, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 65, 300)  # around each loop stride


def rows(n: int, d: int, dtype: type, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng([seed, n, d])
    h, e, a, b = draw.normal(size=(n, d)), draw.normal(size=(n, d)), draw.normal(size=n), draw.normal(size=n)
    return h.astype(dtype), e.astype(dtype), a.astype(dtype), b.astype(dtype)


@looped("name", CORES)
@looped("dtype", DTYPES)
def test_products_equal_float64_sums(name: str, dtype: type) -> None:
    far = 4 * np.finfo(dtype).eps
    for d in WIDTHS:
        h, e, a, b = rows(11, d, dtype)
        x, y = h.astype(np.longdouble), e.astype(np.longdouble)
        with using(name):
            kappa2, c = kernel.measure(h, e)
            g = kernel.combine(h, e, a, b)
        assert kappa2.dtype == c.dtype == g.dtype == dtype and g.shape == (11, d)
        assert np.abs(kappa2 - (x * x).sum(1)).max() <= far * (x * x).sum(1).max()
        assert (np.abs(c - (x * y).sum(1)) <= far * np.abs(x * y).sum(1)).all()
        expected, size = a[:, None] * x + b[:, None] * y, np.abs(a[:, None] * x) + np.abs(b[:, None] * y)
        assert (np.abs(g - expected) <= far * size).all()


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_threads(name: str, dtype: type) -> None:
    h, e, a, b = rows(3 * kernel.GRAIN // 100 + 1, 100, dtype)
    with using(name):
        single, many = ([*kernel.measure(h, e, threads), kernel.combine(h, e, a, b, threads)] for threads in (1, 3))
    assert all(np.array_equal(x, y) for x, y in zip(single, many, strict=True))


@pytest.mark.parametrize("name", CORES)
def test_empty_input_is_valid_and_nan_stays_in_its_row(name: str) -> None:
    h, e, a, b = rows(3, 20, np.float32)
    h[1, 19] = np.nan
    with using(name):
        assert [len(x) for x in kernel.measure(h[:0], e[:0])] == [0, 0]
        assert kernel.combine(h[:0], e[:0], a[:0], b[:0]).shape == (0, 20)
        assert all(np.isfinite(x).tolist() == [True, False, True] for x in kernel.measure(h, e))
        assert np.argwhere(~np.isfinite(kernel.combine(h, e, a, b))).tolist() == [[1, 19]]


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "measure", lambda *a: pytest.fail("the reference summed"))
    monkeypatch.setattr(reference, "combine", lambda *a: pytest.fail("the reference summed"))
    h, e, a, b = rows(2, 5, np.float32)
    with using(NATIVE[-1]):
        kernel.measure(h, e)
        kernel.combine(h, e, a, b)


@pytest.mark.parametrize("name", CORES)
def test_mismatched_tables_are_rejected(name: str) -> None:
    h, e, a, b = rows(4, 6, np.float32)
    with using(name):
        for bad in ((h.astype(np.float16), e), (h, e.astype(np.float64)), (h[:, ::2], e[:, ::2]), (h[0], e[0])):
            with pytest.raises(TypeError, match="row_products: "):
                kernel.measure(*bad)
        for ab in ((a[:3], b), (a, b[:, None])):
            with pytest.raises(ValueError, match="row_products: "):
                kernel.combine(h, e, *ab)
        with pytest.raises(ValueError, match="row_products: e"):
            kernel.measure(h, e[:3])
        with pytest.raises(TypeError, match="row_products: a"):
            kernel.combine(h, e, a.astype(np.float64), b)
