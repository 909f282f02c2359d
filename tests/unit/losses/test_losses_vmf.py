"""The von Mises-Fisher loss: its numbers against 40 digits, its variants by their optimum."""

from __future__ import annotations

from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
from helpers.cores import CORES, NATIVE, using
from helpers.looped import looped
from torch import Tensor

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.losses.bessel import log_c, log_c0
from embtrain.losses.continuous.base import Continuous
from embtrain.losses.continuous.power_spherical import PowerSpherical, PowerSphericalConfig
from embtrain.losses.continuous.vmf import Vmf, VmfConfig

DIMS = (2, 3, 8, 50, 300, 1024)
KAPPA = [10 ** (x / 4) for x in range(-12, 21)]  # 1e-3 to 1e5
WORLD = ProblemSpec(5, torch.ones(5, dtype=torch.float64))
VARIANTS = ("plain", "reg1", "reg2", "both", "released")
DOUBLE = torch.float64


def exact(d: int, kappa: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Return log C(κ) − log C(0) and A(κ), with 40 digits."""
    with mpmath.workdps(40):
        v, k = mpmath.mpf(d) / 2 - 1, mpmath.mpf(kappa)
        below = mpmath.besseli(v, k)
        log = v * mpmath.log(k / 2) - mpmath.log(below) - mpmath.loggamma(v + 1)
        return log, mpmath.besseli(v + 1, k) / below


def loss(variant: str, **keys: float) -> Vmf:
    return Vmf(VmfConfig(variant=variant, **keys), WORLD)  # type: ignore[arg-type]


def make_loss(vmf_loss: Continuous, h: Tensor, e: Tensor) -> Tensor:
    none = torch.zeros(len(h), dtype=torch.int64)
    return vmf_loss(
        LossInput(none, h[:, :0], Negatives(), Query(h, none, none, none),
                  whole_table=SimpleNamespace(target_vectors=lambda: e))
    ).per_example


@looped("d", DIMS)
@looped("dtype", [torch.float64, torch.float32])
def test_log_c_and_derivative_against_forty_digits(d: int, dtype: torch.dtype) -> None:
    kappa = torch.tensor(KAPPA, dtype=dtype)
    log, ratio = log_c(kappa.square(), d)
    assert log.dtype == ratio.dtype == dtype
    a_off = log_off = 0.0
    for i, k in enumerate(kappa.tolist()):
        expected_log, a = exact(d, k)
        a_off = max(a_off, abs(float((float(ratio[i]) * k - a) / a)))
        log_off = max(log_off, abs(float(float(log[i]) - expected_log)) / max(1e-2, abs(float(expected_log))))
    double = dtype == torch.float64
    assert a_off < (1e-12 if double else 3e-7 if d == 300 else 5e-7)
    assert log_off < (1e-12 if double else 1e-6)


def test_log_c_at_0_is_one_over_the_surface_of_the_sphere() -> None:
    for d in DIMS:
        surface = 2 * mpmath.pi ** (mpmath.mpf(d) / 2) / mpmath.gamma(mpmath.mpf(d) / 2)
        assert log_c0(d) == pytest.approx(-float(mpmath.log(surface)), rel=1e-13)
    assert log_c0(300) == pytest.approx(427.607, abs=1e-3)


@looped("d", DIMS)
@looped("dtype", [torch.float64, torch.float32])
def test_log_c_is_finite_and_smooth_over_the_range_of_floats(d: int, dtype: torch.dtype) -> None:
    log, ratio = log_c(torch.tensor([0.0, 1e-30, 1e30, 1e38], dtype=dtype), d)
    assert log.isfinite().all() and ratio.isfinite().all() and (ratio > 0).all()
    assert float(ratio[0]) == pytest.approx(1 / d, rel=1e-6) and float(log[0]) == pytest.approx(0, abs=1e-8)
    kappa = torch.linspace(0, 50, 5001, dtype=torch.float64)
    steps = log_c(kappa.square(), d)[1].diff()
    assert (steps < 0).all() and (steps.diff().abs() < 2e-5).all()      # no switch from one formula to another


@looped("core", CORES)
@looped("d", [2, 3, 60])
@looped("variant", VARIANTS)
def test_gradient_equals_finite_differences_also_at_0(variant: str, d: int, core: str) -> None:
    draw = torch.Generator().manual_seed(0)
    length = torch.tensor([0, 0.01, 0.3, 1, 5, 40.0], dtype=DOUBLE)[:, None]
    h = (torch.randn(6, d, dtype=DOUBLE, generator=draw) * length).requires_grad_()
    e = torch.nn.functional.normalize(torch.randn(6, d, dtype=DOUBLE, generator=draw), dim=1)
    with using(core):
        assert torch.autograd.gradcheck(lambda x: make_loss(loss(variant), x, e), (h,), fast_mode=d > 3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_in_float32_equals_float64(variant: str) -> None:
    draw = torch.Generator().manual_seed(1)
    e = torch.nn.functional.normalize(torch.randn(12, 300, dtype=DOUBLE, generator=draw), dim=1).float()
    h = torch.randn(12, 300, generator=draw)
    h = (h / h.norm(dim=1, keepdim=True) * torch.logspace(-3, 4, 12)[:, None]).requires_grad_()
    x = h.detach().double().requires_grad_()
    make_loss(loss(variant), h, e).sum().backward()
    make_loss(loss(variant), x, e.double()).sum().backward()
    assert h.grad is not None and x.grad is not None
    assert float(((h.grad - x.grad).norm(dim=1) / x.grad.norm(dim=1)).max()) < 3e-7


def by_torch(h: Tensor, e: Tensor) -> Tensor:
    """Evaluate `plain` step by step: every pass written out, gradients by autograd."""
    class LogC(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, kappa2: Tensor) -> Tensor:
            log, ctx.ratio = log_c(kappa2, h.shape[1])  # type: ignore[attr-defined]
            return log

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            return -grad * ctx.ratio / 2  # type: ignore[attr-defined]
    return -LogC.apply(h.square().sum(1)) - (h * e).sum(1)


@looped("core", CORES)
@looped("dtype, far", [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_loss_and_gradient_match_the_readable_form(core: str, dtype: torch.dtype, far: float) -> None:
    """For weighted examples and for tables that are views, at lengths from 0 on."""
    draw = torch.Generator().manual_seed(2)
    length = torch.logspace(-6, 3, 40, dtype=dtype).view(40, 1, 1)
    of_all = torch.randn(40, 2, 300, dtype=dtype, generator=draw) * length
    e = torch.nn.functional.normalize(torch.randn(40, 300, dtype=dtype, generator=draw), dim=1)
    weight, result = torch.rand(40, dtype=dtype, generator=draw), []
    for way in (lambda h: make_loss(loss("plain"), h, e), lambda h: by_torch(h, e)):
        x = of_all.clone().requires_grad_()
        h = x[:, 1] * (torch.arange(40) > 0).to(dtype)[:, None]
        with using(core):
            value = way(h)
            (weight * value).sum().backward()
        assert x.grad is not None
        result.append((value.detach(), x.grad))
    for ours, read in zip(*result, strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, read, rtol=far, atol=far)


def test_core_and_reference_differ_by_rounding_only() -> None:
    draw, result = torch.Generator().manual_seed(3), []
    h, e = torch.randn(2, 50, 300, generator=draw)
    for core in CORES:
        x = h.clone().requires_grad_()
        with using(core):
            value = make_loss(loss("both"), x, e)
            value.sum().backward()
        result.append((value.detach(), x.grad))
    last = float(np.spacing(h.norm(dim=1).max().numpy()))  # the loss is a difference of terms as large as κ
    for core in range(1, len(NATIVE) + 1):
        for one, other, apart in zip(result[0], result[core], (last, 2e-7), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-6, atol=apart)


def test_loss_is_the_density_up_to_its_constant() -> None:
    """In three dimensions C(κ) = κ / (4π sinh κ); p sums to one over the sphere."""
    h = torch.tensor([[0.0, 0.0, 2.5]], dtype=DOUBLE)
    z = torch.linspace(-1, 1, 20_001, dtype=DOUBLE)
    e = torch.stack([(1 - z * z).clamp(min=0).sqrt(), torch.zeros_like(z), z], 1)
    log_p = -make_loss(loss("plain"), h.expand(len(e), -1), e) + log_c0(3)
    assert float(torch.trapezoid(log_p.exp() * 2 * torch.pi, z)) == pytest.approx(1, abs=1e-6)


@looped("variant, cos, best", [
    ("plain", 0.7, 411), ("plain", 0.3, 99), ("reg1", 1.0, 7400), ("reg1", 0.3, 91), ("reg2", 1.0, 30),
    ("reg2", 0.7, 21), ("reg2", 0.3, 9), ("both", 1.0, 24), ("both", 0.7, 15), ("both", 0.3, 3), ("released", 1.0, 15),
    ("released", 0.7, 12), ("released", 0.3, 5), ("both", 0.15, 0), ("released", 0.15, 0)])
def test_each_variant_has_its_optimal_length(variant: str, cos: float, best: float) -> None:
    """At D = 300: measured by their optimum in κ at a fixed angle."""
    kappa = torch.cat([torch.tensor([1e-6], dtype=DOUBLE), torch.logspace(-1, 4.3, 4000, dtype=DOUBLE)])
    vmf_loss = loss(variant)
    value = vmf_loss.terms(kappa.square(), cos * kappa, 300).value
    assert float(kappa[value.argmin()]) == pytest.approx(best, rel=0.1, abs=0.1)


def test_length_0_has_a_gradient() -> None:
    h, e = torch.zeros(1, 4, dtype=DOUBLE, requires_grad=True), torch.tensor([[0.5, 0.5, -0.5, 0.5]], dtype=DOUBLE)
    for variant, weight in (("plain", 1.0), ("reg1", 1.0), ("reg2", 0.1), ("both", 0.1), ("released", 1.0)):
        (slope,) = torch.autograd.grad(make_loss(loss(variant), h, e).sum(), h)
        torch.testing.assert_close(slope, -weight * e)


def test_power_spherical_density_sums_to_one_and_matches_evaluation() -> None:
    vmf_loss = PowerSpherical(PowerSphericalConfig(), WORLD)
    h = torch.tensor([[0.0, 0.0, 2.5]], dtype=DOUBLE)
    z = torch.linspace(-1, 1, 20_001, dtype=DOUBLE)
    e = torch.stack([(1 - z * z).clamp(min=0).sqrt(), torch.zeros_like(z), z], 1)
    log_p = -make_loss(vmf_loss, h.expand(len(e), -1), e) + log_c0(3)
    assert float(torch.trapezoid(log_p.exp() * 2 * torch.pi, z)) == pytest.approx(1, abs=1e-6)
    inner, none = slice(100, -1), torch.zeros(1, dtype=torch.int64)
    logit = vmf_loss.logit(h @ e.T, Query(h, none, none, none))[0]
    torch.testing.assert_close((logit - log_p)[inner], (logit - log_p)[inner][:1].expand(len(z) - 101))


@pytest.mark.parametrize("d", [2, 3, 60])
def test_power_spherical_gradient_equals_finite_differences(d: int) -> None:
    vmf_loss, draw = PowerSpherical(PowerSphericalConfig(), WORLD), torch.Generator().manual_seed(0)
    h = (torch.randn(5, d, dtype=DOUBLE, generator=draw) * torch.tensor([0.05, 0.3, 1, 5, 40.0])[:, None])
    e = torch.nn.functional.normalize(torch.randn(5, d, dtype=DOUBLE, generator=draw), dim=1)
    assert torch.autograd.gradcheck(lambda x: make_loss(vmf_loss, x, e), (h.requires_grad_(),))
    x = torch.stack([torch.zeros_like(e[0]), -3 * e[1]]).requires_grad_()    # zero, and the opposite
    value = make_loss(vmf_loss, x, e[:2])
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert value.isfinite().all() and slope.isfinite().all()
    torch.testing.assert_close(slope[0], -e[0])
