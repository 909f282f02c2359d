"""Wrapper of the normalizer: core and reference against 40 digits, for all orders, widths and extreme values."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped

from embtrain.kernels.reference.scoring import bessel as reference
from embtrain.kernels.scoring import bessel as kernel
from embtrain.losses.bessel import MIN_ORDER, _coefficients

DTYPES = (np.float32, np.float64)
KAPPA = np.array([0.0, 1e-6, 1e-3, 0.1, 0.7, 3, 20, 149, 400, 5e3, 1e5])


def order(d: int, dtype: type) -> tuple[float, int, np.ndarray]:
    v = d / 2 - 1
    n = max(0, int(np.ceil(MIN_ORDER - v)))
    return v + n, n, _coefficients(v + n, 10 if dtype == np.float64 else 4)


@looped("name", CORES)
@looped("dtype", DTYPES)
@looped("d", [2, 3, 49, 50, 300, 1024])
def test_values_match_forty_digits(name: str, dtype: type, d: int) -> None:
    kappa2 = (KAPPA ** 2).astype(dtype)
    with using(name):
        log, r = kernel.log_c(kappa2, *order(d, dtype))
    assert log.dtype == r.dtype == dtype
    assert r[0] == pytest.approx(1 / d, rel=3e-7) and abs(log[0]) < (1e-13 if dtype == np.float64 else 1e-5)
    for i in range(1, len(KAPPA)):
        with mpmath.workdps(40):
            v, k = mpmath.mpf(d) / 2 - 1, mpmath.sqrt(mpmath.mpf(float(kappa2[i])))
            below = mpmath.besseli(v, k)
            expected = v * mpmath.log(k / 2) - mpmath.log(below) - mpmath.loggamma(v + 1)
            ratio = mpmath.besseli(v + 1, k) / below / k
        assert abs(float((float(r[i]) - ratio) / ratio)) < (1e-12 if dtype == np.float64 else 5e-7)
        assert abs(float(float(log[i]) - expected)) < (1e-12 if dtype == np.float64 else 1e-6) * max(1e-2,
                                                                                                     abs(expected))


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_do_not_depend_on_their_position(name: str, dtype: type) -> None:
    """The core processes sixteen or more values at once; each result equals that of a single value."""
    kappa2 = (np.logspace(-4, 4, 71) ** 2).astype(dtype)
    with using(name):
        for d in (3, 300):
            full = np.array(kernel.log_c(kappa2, *order(d, dtype)))
            assert np.array_equal(full, np.hstack([kernel.log_c(kappa2[i:i + 1].copy(), *order(d, dtype))
                                                   for i in range(71)]).reshape(2, 71))
            np.testing.assert_allclose(full, reference.log_c(kappa2.astype(float), *order(d, dtype)), atol=1e-9,
                                       rtol=2e-7 if dtype == np.float32 else 1e-12)


@looped("name", CORES)
@looped("d", [2, 300])
def test_empty_input_is_valid_and_nan_stays_nan(name: str, d: int) -> None:
    with using(name):
        assert [len(x) for x in kernel.log_c(np.empty(0), *order(d, np.float64))] == [0, 0]
        log, r = kernel.log_c(np.array([1, np.nan, 1e300, 4]), *order(d, np.float64))
    assert np.isfinite(log).tolist() == np.isfinite(r).tolist() == [True, False, True, True]


@needs_core
def test_core_is_used_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "log_c", lambda *a: pytest.fail("the reference computed"))
    with using(NATIVE[-1]):
        kernel.log_c(np.ones(3), *order(8, np.float64))


@pytest.mark.parametrize("name", CORES)
def test_mismatched_arguments_are_rejected(name: str) -> None:
    w, n, pairs = order(8, np.float64)
    x = np.ones(4)
    with using(name):
        for bad in ((x.astype(np.float16), w, n, pairs), (x[::2], w, n, pairs), (x, w, n, pairs.astype(np.float32))):
            with pytest.raises(TypeError, match="bessel: "):
                kernel.log_c(*bad)
        for bad in ((x[:, None].copy(), w, n, pairs), (x, 0.0, 0, pairs), (x, w, -1, pairs), (x, w, 25, pairs),
                    (x, np.inf, 0, pairs), (x, w, n, pairs[:0]), (x, w, n, pairs.T.copy())):
            with pytest.raises(ValueError, match="bessel: "):
                kernel.log_c(*bad)
