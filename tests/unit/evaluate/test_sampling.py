"""Distances of a source from the softmax, against sums written out for a few candidates."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from helpers.source_worlds import gradient_error

from embtrain.evaluate.gradient_bias import (
    closeness,
    error_of_draws,
    gradient,
    milliseconds,
    sampled_gradient,
    theorem1,
    theorem2,
    without_target,
)

B, N, D = 3, 5, 2
DOUBLE = torch.float64


def small(seed: int = 0, n: int = N) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return o (B, n), c (n, D), target (B,), log q (B, n)."""
    draw = torch.Generator().manual_seed(seed)
    h = torch.randn(B, D, generator=draw, dtype=DOUBLE)
    c = torch.randn(n, D, generator=draw, dtype=DOUBLE)
    return h @ c.T, c, torch.randint(n, (B,), generator=draw), torch.randn(B, n, generator=draw).double().log_softmax(1)


def test_distances_equal_their_sums():
    o, _, _, log_q = small()
    result = closeness(o, log_q)
    for i in range(B):
        z = sum(math.exp(x) for x in o[i].tolist())
        p, q = [math.exp(x) / z for x in o[i].tolist()], [math.exp(x) for x in log_q[i].tolist()]
        assert float(result.kl[i]) == pytest.approx(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
        assert float(result.tv[i]) == pytest.approx(sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2)
        assert float(result.ess[i]) == pytest.approx(1 / sum(a * a / b for a, b in zip(p, q, strict=True)))


def test_the_softmax_has_distance_zero_and_a_zero_of_q_an_infinite_one():
    o, _, _, log_q = small()
    same = closeness(o, o.log_softmax(1))
    for result, expected in ((same.kl, 0.0), (same.tv, 0.0), (same.ess, 1.0)):
        torch.testing.assert_close(result, torch.full((B,), expected, dtype=DOUBLE))
    log_q[0, 2] = -math.inf
    hole = closeness(o, log_q)
    assert float(hole.kl[0]) == math.inf and float(hole.ess[0]) == 0 and hole.kl[1:].isfinite().all()


def test_the_gradient_is_that_of_the_loss():
    o, c, target, _ = small()
    h = torch.linalg.lstsq(c, o.T).solution.T.requires_grad_()
    torch.nn.functional.cross_entropy(h @ c.T, target, reduction="sum").backward()
    torch.testing.assert_close(gradient(o, c, target), h.grad)


def enumerated(o, c, target, log_q, m, hits=False):
    """Return E ∇' − ∇ and √E‖∇' − ∇‖² of every query over all draws, by autograd through eq. 5 and 6.

    hits: draws may hit the target, which counts nothing."""
    log_q = log_q if hits else without_target(log_q, target)
    out, rmse = [], []
    for i in range(B):
        square = 0.0
        h = torch.linalg.lstsq(c, o[i]).solution.requires_grad_()
        total = torch.zeros(D, dtype=DOUBLE)
        others = [j for j in range(o.shape[1]) if hits or j != int(target[i])]
        for draw in itertools.product(others, repeat=m):
            s = torch.stack([c[target[i]] @ h, *(c[j] @ h - log_q[i, j] - math.log(m) for j in draw if j != target[i])])
            loss = s.logsumexp(0) - s[0]
            slope, chance = torch.autograd.grad(loss, h)[0], math.exp(float(log_q[i, list(draw)].sum()))
            total = total + slope * chance
            square += float((slope - gradient(o, c, target)[i]).square().sum()) * chance
        out.append(total - gradient(o, c, target)[i])
        rmse.append(math.sqrt(square))
    return torch.stack(out).detach(), torch.tensor(rmse, dtype=DOUBLE)


@pytest.mark.parametrize("m", [1, 3])
def test_bias_and_rmse_equal_those_of_all_draws(m):
    o, c, target, log_q = small()
    bias, rmse = enumerated(o, c, target, log_q, m)
    exact = bias.norm(dim=1)
    result = gradient_error(o, c, target, log_q, m, 40_000, torch.Generator().manual_seed(1))
    assert ((result.unbiased - exact).abs() < 4 * result.floor).all() and (exact > 10 * result.floor).any()
    torch.testing.assert_close(result.size, gradient(o, c, target).norm(dim=1))
    torch.testing.assert_close(result.rmse, rmse, rtol=0.02, atol=0)


def test_only_the_softmax_is_unbiased_and_its_floor_is_chance():
    """Bengio and Senécal 2008; R draws give a bias of rmse / √R if there is none."""
    o, c, target, _ = small()
    for m in (1, 2):
        assert enumerated(o, c, target, o.log_softmax(1), m)[0].abs().max() < 1e-12
        for tilt in (0.5, 2.0):
            assert enumerated(o, c, target, (tilt * o).log_softmax(1), m)[0].norm(dim=1).min() > 1e-3
    result = gradient_error(o, c, target, o.log_softmax(1), 3, 4000, torch.Generator().manual_seed(2))
    assert (result.bias < 3 * result.floor).all()
    torch.testing.assert_close(result.floor, result.rmse / math.sqrt(4000), rtol=0.05, atol=0)


def test_draws_and_density_of_a_source_give_equal_measures():
    o, c, target, log_q = small(3)
    draw, log_q_rest = torch.Generator().manual_seed(5), without_target(log_q, target)

    def one(rows: int):
        ids = torch.multinomial(log_q_rest.exp(), rows * 2, replacement=True, generator=draw)
        return ids.view(B, rows, 2), (log_q_rest.gather(1, ids) + math.log(2)).view(B, rows, 2)

    a = error_of_draws(o, c, target, 2, 20_000, one)
    b = gradient_error(o, c, target, log_q, 2, 20_000, torch.Generator().manual_seed(6))
    assert ((a.bias - b.bias).abs() < 4 * (a.floor + b.floor)).all()
    torch.testing.assert_close(a.rmse, b.rmse, rtol=0.05, atol=0)


def test_hits_of_the_target_count_nothing():
    o, c, target, _ = small()
    other = ((target + 1) % N).view(B, 1, 1)
    hit = torch.cat([target.view(B, 1, 1).expand(B, 1, 3), other], 2)
    result = sampled_gradient(o, c, target, hit, torch.zeros(B, 1, 4))
    torch.testing.assert_close(result, sampled_gradient(o, c, target, other, torch.zeros(B, 1, 1)))
    assert result.abs().max() > 0.01


def test_theorem_1_equals_its_sums():
    o, c, target, log_q = small()
    result, m = theorem1(o, c, target, without_target(log_q, target), 7), 7
    q, e = without_target(log_q, target).exp(), o.exp()
    for i in range(B):
        others = [j for j in range(N) if j != int(target[i])]
        z, z_t = float(e[i].sum()), sum(float(e[i, j]) for j in others)
        square = sum(float(e[i, j] ** 2 / q[i, j]) for j in others)
        ratio = [float(e[i, j] / q[i, j]) for j in others]
        M = float(c.abs().max())
        g = sum(float(e[i, j]) * c[j] for j in others)
        lower = -M * sum(float(e[i, j]) * abs(z_t - r) for j, r in zip(others, ratio, strict=True)) / (m * z * z)
        upper = (square - z_t ** 2) / (m * z ** 3) * g
        upper = upper + 2 * M / m * (max(ratio) - min(ratio)) * z_t / (z * z + square)
        assert float(result.chi[i]) == pytest.approx(square / z ** 2)
        assert float(result.gap[i]) == pytest.approx((max(ratio) - min(ratio)) / z)
        assert float(result.lower[i, 0]) == pytest.approx(lower)
        torch.testing.assert_close(result.upper[i], upper)
        torch.testing.assert_close(result.g[i], g / z)


def test_theorem_1_bounds_the_bias_where_g_is_positive():
    inside = outside = 0
    for seed in range(8):
        o, c, target, log_q = small(seed)
        m = 4
        bias, bound = enumerated(o, c, target, log_q, m)[0], theorem1(o, c, target, without_target(log_q, target), m)
        assert (bias >= bound.lower * (1 + 1 / m)).all()
        positive = bound.g >= 0
        assert (bias <= bound.upper + 1e-12)[positive].all()
        inside, outside = inside + int(positive.sum()), outside + int((~positive).sum())
    assert inside > 10 and outside > 10


@pytest.mark.parametrize("softmax", [pytest.param(False, marks=pytest.mark.slow), True])
def test_theorem_1_uses_the_draw_that_may_hit_the_target(softmax):
    """With q = p hits of the target leave a bias, but q̄ = p̄ has none: bounds for q̄ would be 0."""
    inside = beyond = 0
    for seed in range(8):
        o, c, target, log_q = small(seed)
        log_q = o.log_softmax(1) if softmax else log_q
        m, near = 4, theorem1(o, c, target, without_target(log_q, target), 4)
        bias, bound = enumerated(o, c, target, log_q, m, hits=True)[0], theorem1(o, c, target, log_q, m)
        assert (bias >= bound.lower * (1 + 1 / m)).all()
        positive = bound.g >= 0
        assert (bias <= bound.upper + 1e-12)[positive].all()
        inside += int(positive.sum())
        beyond += int((bias < near.lower * (1 + 1 / m) - 1e-9).sum() + ((bias > near.upper + 1e-9) & positive).sum())
    assert inside > 10 and (beyond > 10 if softmax else True)


def test_theorem_1_vanishes_at_the_softmax():
    o, c, target, _ = small()
    result = theorem1(o, c, target, without_target(o.log_softmax(1), target), 5)
    assert result.gap.max() < 1e-12 and result.deviation.max() < 1e-12 and result.upper.abs().max() < 1e-12


def test_theorem_2_holds_in_the_limit_only_with_its_factor():
    tau, nu = 9.0, 4.0
    draw = torch.Generator().manual_seed(0)
    h, c = (torch.nn.functional.normalize(torch.randn(n, D, generator=draw, dtype=DOUBLE), dim=1) for n in (B, N))
    o = tau * h @ c.T
    gauss = (-nu * torch.cdist(h, c).square() / 2).log_softmax(1)     # infinitely many features of the kernel
    result = theorem2(o, gauss, tau, nu)
    torch.testing.assert_close(result.low, torch.ones(B, dtype=DOUBLE))
    torch.testing.assert_close(result.high, torch.ones(B, dtype=DOUBLE))
    expected = (nu * h @ c.T).exp().sum(1) / (tau * h @ c.T).exp().sum(1)
    torch.testing.assert_close(result.factor, expected)
    assert (result.factor < 0.5).all()                                  # error of the theorem as printed
    other = theorem2(o, (nu * h @ c.T / 2).log_softmax(1), tau, nu)
    assert (other.low < 0.9).any() and (other.high > 1.1).any()


def test_large_scores_do_not_overflow():
    o, c, target, log_q = small()
    o = 2000 * o
    for value in (*vars(closeness(o, log_q)).values(), *vars(theorem1(o, c, target, log_q, 3)).values()):
        assert not value.isnan().any()


def test_a_call_is_timed_by_its_median():
    calls = []
    assert milliseconds(lambda: calls.append(1), seconds=0, max_calls=5) < 50
    assert len(calls) == 4
