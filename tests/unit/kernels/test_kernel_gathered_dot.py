"""Wrapper of dot products with gathered rows: core and reference against float64, at every width."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using

from embtrain.kernels.reference.scoring import gathered_dot as reference
from embtrain.kernels.scoring import gathered_dot as kernel

WIDTHS = (1, 3, 4, 7, 8, 9, 16, 33, 200)   # around each loop stride
COLUMNS = (1, 2, 3, 4, 5, 9)


class Given(NamedTuple):
    h: np.ndarray
    c: np.ndarray
    ids: np.ndarray
    g: np.ndarray
    m: np.ndarray


def given(b: int, k: int, d: int, v: int = 23, pad: int = 0) -> Given:
    """With `pad`, c is the first columns of a wider table whose other columns are NaN."""
    draw = np.random.default_rng([b, k, d, v])
    h, g, m = (draw.normal(size=shape).astype(np.float32) for shape in ((b, d), (b, k), (b, k)))
    c = np.full((v, d + pad), np.nan, np.float32)
    c[:, :d] = draw.normal(size=(v, d))
    return Given(h, c[:, :d], draw.integers(v, size=(b, k)), g, m)


def wanted(of: Given) -> tuple[np.ndarray, ...]:
    """s, n, ∂h and ∂c (V, D) in float64, and the sums of absolute terms of each."""
    h, rows, g, m = (x.astype(np.float64) for x in (of.h, of.c[of.ids], of.g, of.m))
    def all_of(h: np.ndarray, rows: np.ndarray, g: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, ...]:
        to = np.zeros(of.c.shape)
        np.add.at(to, of.ids, g[..., None] * h[:, None] + 2 * m[..., None] * rows)
        return (h[:, None] * rows).sum(2), (rows * rows).sum(2), (g[..., None] * rows).sum(1), to
    return (*all_of(h, rows, g, m), *all_of(*map(np.abs, (h, rows, g, m))))


def close(found: np.ndarray, right: np.ndarray, size: np.ndarray) -> bool:
    assert found.dtype == np.float32 and found.shape == right.shape
    return bool((np.abs(found - right) <= 8 * np.finfo(np.float32).eps * size).all())


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("pad", [0, 5])
@pytest.mark.parametrize("v", [3, 23, 5000], ids=["few rows", "some", "more than 16 for each id"])
def test_products_equal_float64_sums(name: str, pad: int, v: int) -> None:
    for d in WIDTHS:
        for k in COLUMNS:
            of = given(6, k, d, v, pad)
            s, n, of_h, of_c, *size = wanted(of)
            with using(name):
                found = kernel.products(of.h, of.c, of.ids)
                asked = kernel.query_gradient(of.g, of.c, of.ids)
                rows = kernel.table_gradient(of.g, of.m, of.h, of.c, of.ids)
                alone = kernel.table_gradient(of.g, None, of.h, of.c, of.ids)
            assert close(found[0], s, size[0]) and close(found[1], n, size[1]) and close(asked, of_h, size[2])
            assert np.array_equal(rows.ids, np.unique(of.ids)) and np.array_equal(alone.ids, rows.ids)
            assert close(rows.values, of_c[rows.ids], size[3][rows.ids])
            alone_right = wanted(of._replace(m=0 * of.m))
            assert close(alone.values, alone_right[3][rows.ids], alone_right[7][rows.ids])


@pytest.mark.parametrize("name", NATIVE)
def test_results_do_not_depend_on_threads(name: str) -> None:
    of = given(97, 60, 200, 300)
    assert of.ids.size * 200 // kernel.GRAIN >= 3
    with using(name):
        one, many = ([*kernel.products(of.h, of.c, of.ids, n), kernel.query_gradient(of.g, of.c, of.ids, n),
                      *kernel.table_gradient(of.g, of.m, of.h, of.c, of.ids, n)] for n in (1, 3))
    assert all(np.array_equal(x, y) for x, y in zip(one, many, strict=True))


@pytest.mark.parametrize("name", CORES)
def test_empty_input_is_valid_and_nan_stays_in_its_row(name: str) -> None:
    of = given(3, 4, 20)
    of.c[of.ids[1, 2], 19] = np.nan
    hit = of.ids == of.ids[1, 2]
    none = np.empty((0, 4), np.int64)
    with using(name):
        s, n = kernel.products(of.h, of.c, of.ids)
        assert np.array_equal(np.isnan(s), hit) and np.array_equal(np.isnan(n), hit)
        assert kernel.products(of.h[:0], of.c, none)[0].shape == (0, 4)
        assert kernel.query_gradient(of.g[:0], of.c, none).shape == (0, 20)
        assert kernel.table_gradient(of.g[:0], None, of.h[:0], of.c, none).values.shape == (0, 20)
        assert kernel.products(of.h, of.c, np.empty((3, 0), np.int64))[0].shape == (3, 0)


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    for of in ("products", "query_gradient", "table_gradient"):
        monkeypatch.setattr(reference, of, lambda *a: pytest.fail("the reference multiplied"))
    of = given(2, 3, 5)
    with using(NATIVE[-1]):
        kernel.products(of.h, of.c, of.ids)
        kernel.query_gradient(of.g, of.c, of.ids)
        kernel.table_gradient(of.g, of.m, of.h, of.c, of.ids)


@pytest.mark.parametrize("name", CORES)
def test_mismatched_arguments_are_rejected(name: str) -> None:
    h, c, ids, g, _ = given(4, 3, 6)
    with using(name):
        for bad in (ids - 30, ids + 30):
            with pytest.raises(ValueError, match="gathered_dot: ids: a number is out of range"):
                kernel.products(h, c, bad)
        for wrong in ((h.astype(np.float64), c, ids), (h, c.astype(np.float64), ids), (h, c, ids.astype(np.int32)),
                      (h[:, ::2], c[:, :3], ids), (h, np.asfortranarray(c), ids)):
            with pytest.raises(TypeError, match="gathered_dot: "):
                kernel.products(*wrong)
        for wrong in ((h, c[:, :5], ids), (h[:3], c, ids), (h[0], c, ids), (h, c, ids[0])):
            with pytest.raises(ValueError, match="gathered_dot: "):
                kernel.products(*wrong)
        with pytest.raises(ValueError, match="gathered_dot: g"):
            kernel.query_gradient(g[:3], c, ids)
        with pytest.raises(ValueError, match="gathered_dot: m"):
            kernel.table_gradient(g, g[:3], h, c, ids)
