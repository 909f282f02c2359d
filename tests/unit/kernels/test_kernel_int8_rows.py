"""Kernel int8_rows: core against reference and torch, bit for bit, and argument checks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped

from embtrain.kernels.reference.sampling import int8_rows as reference
from embtrain.kernels.sampling import int8_rows as kernel
from embtrain.negatives.sampling.row_store import RowStore, quantize

WIDTHS = (1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 100, 400)


def rows(n: int, width: int) -> np.ndarray:
    """Rows of all magnitudes: one is 0, one has halves of its scale, one is one-sided, one is denormal."""
    draw = np.random.default_rng([n, width])
    x = draw.normal(size=(n, width)) * 10.0 ** draw.integers(-20, 20, (n, 1))
    x[0], x[1], x[2], x[3] = 0, draw.integers(-253, 254, width) / 2, draw.random(width) + 5, 1e-41
    x[1, -1] = 127
    return x.astype(np.float32)


@looped("name", CORES)
@looped("width", WIDTHS)
def test_cores_reference_and_torch_agree_bitwise(name: str, width: int) -> None:
    x, order = rows(20, width), np.random.default_rng(1).permutation(30)[:20]
    b, s = np.zeros((30, width), np.uint8), np.zeros(30, np.float32)
    with using(name):
        kernel.write(b, s, order, x)
        kept = RowStore(30, width, "int8", "cpu")
        kept.write(torch.from_numpy(order), torch.from_numpy(x))
    full, scale = quantize(torch.from_numpy(x))
    assert np.array_equal(b[order], full.numpy() + 128) and np.array_equal(s[order], scale.numpy())
    assert np.array_equal(kept.stored.numpy()[order], b[order]) and np.array_equal(kept.scale.numpy(), s)
    assert b[order].min() >= 1 and (np.abs(b[order].astype(int) - 128).max(1) == 127)[4:].all()
    assert (b[order[0]] == 128).all()
    assert b[order[1]].tolist() == (np.rint(x[1]) + 128).tolist()       # rounds half to even
    back = kept.read(torch.from_numpy(order)).numpy()
    normal = np.abs(x).max(1) > 1e-36
    assert (np.abs(back - x) <= 0.5001 * s[order][:, None])[normal].all()
    untouched = np.setdiff1d(np.arange(30), order)
    assert not b[untouched].any() and not kept.read(torch.from_numpy(untouched)).any()


@looped("name", CORES)
@looped("value", [np.nan, np.inf, -np.inf])
def test_a_non_finite_row_has_no_scale(name: str, value: float) -> None:
    x = np.ones((3, 40), np.float32)
    x[1, 37] = value
    b, s = np.zeros((3, 40), np.uint8), np.zeros(3, np.float32)
    with using(name), np.errstate(invalid="ignore"):
        kernel.write(b, s, np.arange(3), x)
    assert np.isfinite(s).tolist() == [True, False, True]


@pytest.mark.parametrize("name", CORES)
def test_mismatched_arguments_are_rejected_before_any_write(name: str) -> None:
    b, s, x = np.zeros((5, 8), np.uint8), np.zeros(5, np.float32), np.ones((2, 8), np.float32)
    with using(name):
        for far in (np.array([0, 5]), np.array([-1, 0])):
            with pytest.raises(ValueError, match="int8_rows"):
                kernel.write(b, s, far, x)
        for bad in ((b, s[:4], np.arange(2), x), (b, s, np.arange(3), x), (b, s, np.arange(2), x[:, :5].copy())):
            with pytest.raises(ValueError, match="int8_rows: "):
                kernel.write(*bad)
        for bad in ((b.astype(np.int8), s, np.arange(2), x), (b, s.astype(float), np.arange(2), x),
                    (b, s, np.arange(2, dtype=np.int32), x), (b, s, np.arange(2), x.astype(float))):
            with pytest.raises(TypeError, match="int8_rows: "):
                kernel.write(*bad)
        kernel.write(b, s, np.arange(0), x[:0])
    assert not b.any() and not s.any()


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "write", lambda *a: pytest.fail("the reference rounded"))
    with using(NATIVE[-1]):
        kernel.write(np.zeros((5, 8), np.uint8), np.zeros(5, np.float32), np.arange(2), np.ones((2, 8), np.float32))
