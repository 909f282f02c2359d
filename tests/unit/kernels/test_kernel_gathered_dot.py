"""Wrapper of dot products with gathered rows: core and reference against float64, at every width."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using

from embtrain.kernels.reference.scoring import gathered_dot as reference
from embtrain.kernels.scoring import gathered_dot as kernel

WIDTHS = (1, 3, 4, 7, 8, 9, 16, 33, 200)   # around each loop stride
COLUMNS = (1, 2, 3, 4, 5, 9)


class Inputs(NamedTuple):
    h: np.ndarray
    c: np.ndarray
    ids: np.ndarray
    g: np.ndarray
    m: np.ndarray


def make_inputs(b: int, k: int, d: int, v: int = 23, pad: int = 0) -> Inputs:
    """With `pad`, c is the first columns of a wider table whose other columns are NaN."""
    draw = np.random.default_rng([b, k, d, v])
    h, g, m = (draw.normal(size=shape).astype(np.float32) for shape in ((b, d), (b, k), (b, k)))
    c = np.full((v, d + pad), np.nan, np.float32)
    c[:, :d] = draw.normal(size=(v, d))
    return Inputs(h, c[:, :d], draw.integers(v, size=(b, k)), g, m)


def expected_products(inputs: Inputs) -> tuple[np.ndarray, ...]:
    """s, n, ∂h and ∂c (V, D) in float64, and the sums of absolute terms of each."""
    h, rows, g, m = (x.astype(np.float64) for x in (inputs.h, inputs.c[inputs.ids], inputs.g, inputs.m))
    def products(h: np.ndarray, rows: np.ndarray, g: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, ...]:
        gradient = np.zeros(inputs.c.shape)
        np.add.at(gradient, inputs.ids, g[..., None] * h[:, None] + 2 * m[..., None] * rows)
        return (h[:, None] * rows).sum(2), (rows * rows).sum(2), (g[..., None] * rows).sum(1), gradient
    return (*products(h, rows, g, m), *products(*map(np.abs, (h, rows, g, m))))


def close(result: np.ndarray, expected: np.ndarray, size: np.ndarray) -> bool:
    assert result.dtype == np.float32 and result.shape == expected.shape
    return bool((np.abs(result - expected) <= 8 * np.finfo(np.float32).eps * size).all())


@pytest.mark.parametrize("pad", [0, 5])
@pytest.mark.parametrize("v", [3, 23, 5000], ids=["few rows", "some", "more than 16 for each id"])
def test_products_equal_float64_sums(pad: int, v: int) -> None:
    for d, k in product(WIDTHS, COLUMNS):
        inputs = make_inputs(6, k, d, v, pad)
        s, n, grad_h, grad_c, *size = expected_products(inputs)
        without_m = expected_products(inputs._replace(m=0 * inputs.m))
        for name in CORES:
            with using(name):
                result = kernel.products(inputs.h, inputs.c, inputs.ids)
                gradient = kernel.query_gradient(inputs.g, inputs.c, inputs.ids)
                rows = kernel.table_gradient(inputs.g, inputs.m, inputs.h, inputs.c, inputs.ids)
                single = kernel.table_gradient(inputs.g, None, inputs.h, inputs.c, inputs.ids)
            assert close(result[0], s, size[0]) and close(result[1], n, size[1]), name
            assert close(gradient, grad_h, size[2]), name
            assert np.array_equal(rows.ids, np.unique(inputs.ids)) and np.array_equal(single.ids, rows.ids), name
            assert close(rows.values, grad_c[rows.ids], size[3][rows.ids]), name
            assert close(single.values, without_m[3][rows.ids], without_m[7][rows.ids]), name


@pytest.mark.parametrize("name", NATIVE)
def test_results_do_not_depend_on_threads(name: str) -> None:
    inputs = make_inputs(97, 60, 200, 300)
    assert inputs.ids.size * 200 // kernel.GRAIN >= 3
    with using(name):
        single, many = ([*kernel.products(inputs.h, inputs.c, inputs.ids, n),
                         kernel.query_gradient(inputs.g, inputs.c, inputs.ids, n),
                         *kernel.table_gradient(inputs.g, inputs.m, inputs.h, inputs.c, inputs.ids, n)] for n in (1, 3))
    assert all(np.array_equal(x, y) for x, y in zip(single, many, strict=True))


@pytest.mark.parametrize("name", CORES)
def test_empty_input_is_valid_and_nan_stays_in_its_row(name: str) -> None:
    inputs = make_inputs(3, 4, 20)
    inputs.c[inputs.ids[1, 2], 19] = np.nan
    hit = inputs.ids == inputs.ids[1, 2]
    nothing = np.empty((0, 4), np.int64)
    with using(name):
        s, n = kernel.products(inputs.h, inputs.c, inputs.ids)
        assert np.array_equal(np.isnan(s), hit) and np.array_equal(np.isnan(n), hit)
        assert kernel.products(inputs.h[:0], inputs.c, nothing)[0].shape == (0, 4)
        assert kernel.query_gradient(inputs.g[:0], inputs.c, nothing).shape == (0, 20)
        assert kernel.table_gradient(inputs.g[:0], None, inputs.h[:0], inputs.c, nothing).values.shape == (0, 20)
        assert kernel.products(inputs.h, inputs.c, np.empty((3, 0), np.int64))[0].shape == (3, 0)


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in ("products", "query_gradient", "table_gradient"):
        monkeypatch.setattr(reference, function, lambda *a: pytest.fail("the reference multiplied"))
    inputs = make_inputs(2, 3, 5)
    with using(NATIVE[-1]):
        kernel.products(inputs.h, inputs.c, inputs.ids)
        kernel.query_gradient(inputs.g, inputs.c, inputs.ids)
        kernel.table_gradient(inputs.g, inputs.m, inputs.h, inputs.c, inputs.ids)


@pytest.mark.parametrize("name", CORES)
def test_mismatched_arguments_are_rejected(name: str) -> None:
    h, c, ids, g, _ = make_inputs(4, 3, 6)
    with using(name):
        for bad in (ids - 30, ids + 30):
            with pytest.raises(ValueError, match="gathered_dot: ids: a number is out of range"):
                kernel.products(h, c, bad)
        for invalid in ((h.astype(np.float64), c, ids), (h, c.astype(np.float64), ids), (h, c, ids.astype(np.int32)),
                        (h[:, ::2], c[:, :3], ids), (h, np.asfortranarray(c), ids)):
            with pytest.raises(TypeError, match="gathered_dot: "):
                kernel.products(*invalid)
        for invalid in ((h, c[:, :5], ids), (h[:3], c, ids), (h[0], c, ids), (h, c, ids[0])):
            with pytest.raises(ValueError, match="gathered_dot: "):
                kernel.products(*invalid)
        with pytest.raises(ValueError, match="gathered_dot: g"):
            kernel.query_gradient(g[:3], c, ids)
        with pytest.raises(ValueError, match="gathered_dot: m"):
            kernel.table_gradient(g, g[:3], h, c, ids)
