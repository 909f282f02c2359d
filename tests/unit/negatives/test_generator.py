"""The adversary's classes, rows, draws and closed-form gradient against autograd, finite differences and counting."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.looped import looped
from scipy import stats
from torch import Tensor

from embtrain.common.types import GENERATOR, PROBE
from embtrain.negatives.adversarial.generator import Generator, argmax_rows, draw_rows
from embtrain.negatives.adversarial.generator_cache import GeneratorCache
from embtrain.negatives.adversarial.shortlist import Shortlist
from embtrain.negatives.sampling.alias import AliasTable

Q, B, K = 7, 40, 3


def noise(v: int) -> Tensor:
    return torch.softmax(torch.randn(v, generator=torch.Generator().manual_seed(v), dtype=torch.float64), 0)


def build(v: int, alone: int | None = None, dtype: torch.dtype = torch.float64, mix: float = 0.5) -> GeneratorCache:
    p = noise(v)
    generator = Generator((Q + 3,), Shortlist(p.log(), alone, 3), 5, 0).to(dtype)
    with torch.no_grad():
        generator.w[:, :-1].mul_(60)
    return GeneratorCache(generator, AliasTable(p, "cpu"), p, mix)


def make_draws(v: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return contexts (B,), ids and factors (B, K)."""
    draw = torch.Generator().manual_seed(1)
    context = torch.tensor([2, 0, 5, 1, 9, 4, 3])[torch.randint(Q, (B,), generator=draw)]
    return context, torch.randint(v, (B, K), generator=draw), torch.randn(B, K, generator=draw, dtype=torch.float64)


BETA, SCALE = 0.7, 0.3


def objective(generator: Generator, v: int, limit: float) -> Tensor:
    """Return the function whose gradient `gradient` sets."""
    context, ids, a = make_draws(v)
    log_g = generator(context)
    entropy = -(log_g.exp() * log_g).sum(1)
    return BETA * (limit - entropy).clamp(min=0).mean() - SCALE * (a * log_g.gather(1, ids)).sum()


def limit_of(cache: GeneratorCache, pull: str) -> float:
    entropy = cache.generator(torch.arange(Q)).detach().exp()
    entropy = -(entropy * entropy.log()).sum(1).sort().values
    return {"none": -1.0, "some": float(entropy[Q // 2 - 1:Q // 2 + 1].mean()), "all": math.log(1e6)}[pull]


def set_gradient(generator: GeneratorCache, v: int, limit: float, pieces: int = 1) -> tuple[float, float]:
    """Add the same draws in several calls, as from several blocks."""
    context, ids, a = make_draws(v)
    for part in torch.arange(B).chunk(pieces):
        row = generator.find_rows(context[part])
        generator.collect(ids[part].contiguous(), row, a[part].to(generator.z.dtype))
    return generator.gradient(SCALE, BETA, limit)


CASES = [(3, None), (16, None), (83, None), (160, None), (83, 1), (83, 32), (83, 50), (160, 159)]


@looped("v, alone", CASES)
@looped("pull", ["none", "some", "all"])
def test_gradient_equals_autograd(v: int, alone: int | None, pull: str) -> None:
    cache = build(v, alone)
    limit = limit_of(cache, pull)
    objective(cache.generator, v, limit).backward()
    expected = [p.grad.clone() for p in cache.generator.parameters()]
    _, hinge = set_gradient(cache, v, limit)
    assert (hinge > 0) == (pull != "none")
    for p, grad in zip(cache.generator.parameters(), expected, strict=True):
        exact = alone is None  # the proportions of groups are float32
        torch.testing.assert_close(p.grad, grad, rtol=1e-8 if exact else 1e-4, atol=1e-10 if exact else 1e-7)


def test_gradient_equals_finite_differences() -> None:
    v, cache = 11, build(11, 6)
    limit = limit_of(cache, "all")
    set_gradient(cache, v, limit)
    for p in cache.generator.parameters():
        grad = p.grad
        for at in torch.randperm(p.numel(), generator=torch.Generator().manual_seed(0))[:12].tolist():
            with torch.no_grad():
                flat, step = p.view(-1), 1e-6
                flat[at] += step
                up = objective(cache.generator, v, limit)
                flat[at] -= 2 * step
                down = objective(cache.generator, v, limit)
                flat[at] += step
            torch.testing.assert_close(grad.view(-1)[at], (up - down) / (2 * step), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("alone", [None, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_collected_by_block_equals_gradient_at_once(alone: int | None, dtype: torch.dtype) -> None:
    """Between two steps the division of draws into calls does not matter."""
    v = 83
    once, often = build(v, alone, dtype), build(v, alone, dtype)
    limit = limit_of(once, "some")
    reported = set_gradient(once, v, limit), set_gradient(often, v, limit, 7)
    assert reported[0] == pytest.approx(reported[1], rel=1e-5)
    for a, b in zip(once.generator.parameters(), often.generator.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


@looped("v, alone", CASES)
def test_kernels_and_torch_agree(v: int, alone: int | None) -> None:
    native, plain = build(v, alone, torch.float32), build(v, alone)
    assert native.uses_core and not plain.uses_core
    limit = limit_of(plain, "some")
    context, ids, _ = make_draws(v)
    for here, there in zip(native.density(ids, native.find_rows(context)), plain.density(ids, plain.find_rows(context)),
                           strict=True):
        torch.testing.assert_close(here.double(), there, rtol=1e-4, atol=1e-4)
    assert torch.equal(native.greedy[:native.n_rows], plain.greedy[:plain.n_rows])
    reported = set_gradient(native, v, limit), set_gradient(plain, v, limit)
    assert reported[0] == pytest.approx(reported[1], rel=1e-3, abs=1e-5)
    for a, b in zip(native.generator.parameters(), plain.generator.parameters(), strict=True):
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-3, atol=1e-4)


@looped("dtype", [torch.float32, torch.float64])
@looped("v, alone", [(1, None), (5, None), (17, None), (83, None), (83, 20), (83, 1)])
def test_rows_contain_the_density_and_its_maximum(v: int, alone: int | None, dtype: torch.dtype) -> None:
    cache = build(v, alone, dtype)
    context = torch.tensor([2, 0, 5, 0])
    row, log_g = cache.find_rows(context), cache.generator(context).detach()
    everyone = torch.arange(v).repeat(4, 1)
    result, log_q = cache.density(everyone, row)
    torch.testing.assert_close(result, log_g, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(log_q.exp().sum(1), torch.ones(4, dtype=dtype), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(log_q.exp(), 0.5 * cache.p + 0.5 * log_g.exp(), rtol=1e-4, atol=1e-6, check_dtype=False)
    assert torch.equal(cache.greedy[row], log_g.argmax(1))
    torch.testing.assert_close(cache.log_best[row], log_g.amax(1), rtol=1e-5, atol=2e-5)
    flat, log_p = cache.log_q(everyone.reshape(-1), row, torch.arange(0, 4 * v + 1, v)), log_q.reshape(-1)
    torch.testing.assert_close(flat, log_p, rtol=1e-5, atol=1e-6)


def test_greedy_candidate_is_the_first_of_equals() -> None:
    assert argmax_rows(torch.tensor([[0.25, 0.5, 0.25, 0.5] * 9])).tolist() == [1]


def test_classes_keep_the_proportions_of_the_noise() -> None:
    p = noise(83)
    generator = Shortlist(p.log(), 20, 4)
    assert generator.n_classes == 24 and generator.n_single == 20
    rare = generator.klass >= 20
    assert float(p[~rare].min()) >= float(p[rare].max())
    assert torch.equal(generator.log_within[~rare], torch.zeros(20))
    for c in range(20, 24):
        inside = generator.klass == c
        torch.testing.assert_close(generator.log_within[inside].exp(), (p / p[inside].sum())[inside].float())
        assert float(p[inside].sum()) == pytest.approx(float(p[rare].sum()) / 4, rel=0.25)
        assert generator.likeliest[c] == (p * inside).argmax()
    assert torch.equal(Shortlist(p.log(), 500, 4).klass, torch.arange(83))


def test_shortlist_of_uniform_noise_is_the_most_frequent() -> None:
    counts = torch.tensor([1.0, 9, 4, 4, 7, 2], dtype=torch.float64)
    assert torch.equal(Shortlist(torch.zeros(6), 3, 1, counts).klass, torch.tensor([3, 0, 2, 3, 1, 3]))
    assert torch.equal(Shortlist(torch.zeros(6), 3, 1).klass, torch.tensor([0, 1, 2, 3, 3, 3]))
    p = torch.tensor([0.1, 0.1, 0.3, 0.5]).log()                  # ordered by noise, then by counts
    assert torch.equal(Shortlist(p, 3, 1, torch.tensor([1.0, 2, 0, 0])).klass, torch.tensor([3, 2, 1, 0]))


def test_id_without_noise_counts_as_the_rarest() -> None:
    p = noise(30)
    p[7] = 0
    generator = Shortlist(p.log(), 10, 2)
    assert torch.isfinite(generator.log_within).all() and torch.isfinite(generator.log_mass).all()
    assert float(generator.log_mass.exp().sum()) == pytest.approx(1, abs=1e-5)


@looped("dtype", [torch.float32, torch.float64])
@looped("v, alone", [(2, None), (40, None), (83, None), (83, 20), (83, 70)])
def test_draws_follow_the_probabilities_of_their_row(v: int, alone: int | None, dtype: torch.dtype) -> None:
    cache, n = build(v, alone, dtype, mix=0.0), 60_000
    context = torch.tensor([2, 0, 5])
    row = cache.find_rows(context).repeat_interleave(n // 2)
    ids, origin, log_g, log_q = cache.draw(row, 2, None, True, torch.Generator().manual_seed(5))
    assert (origin[:, :2] == GENERATOR).all() and (origin[:, 2] == PROBE).all()
    assert torch.equal(ids[:, 2], cache.greedy[row])
    for result, expected_p in zip((log_g, log_q), cache.density(ids, row), strict=True):
        torch.testing.assert_close(result, expected_p, rtol=1e-5, atol=1e-5)
    ids = ids[:, :2]
    g = cache.generator(context).detach().exp().double()
    for q in range(3):
        seen = torch.bincount(ids[q * n // 2:(q + 1) * n // 2].reshape(-1), minlength=v).double()
        expected = g[q] * n
        big = expected >= 50
        rest = torch.stack([seen[~big].sum(), expected[~big].sum()])
        o, e = torch.cat([seen[big], rest[:1]]), torch.cat([expected[big], rest[1:]])
        o, e = (o, e) if rest[1] >= 50 else (seen[big], expected[big])
        chi2, cells = float(((o - e).square() / e).sum()), len(e)
        assert cells < 2 or stats.chi2.sf(chi2, cells - 1) > 0.001 / 30


def test_id_without_mass_is_never_drawn() -> None:
    g = torch.zeros(2, 50, dtype=torch.float64)
    g[0, 7] = g[0, 33] = 0.5
    g[1, 49] = 1.0
    drawn = draw_rows(g, torch.tensor([0, 1]).repeat_interleave(5_000), torch.Generator().manual_seed(0))
    assert set(drawn[:5_000].tolist()) == {7, 33} and set(drawn[5_000:].tolist()) == {49}


def test_forget_clears_everything() -> None:
    cache, fresh = build(83, 20, torch.float32), build(83, 20, torch.float32)
    set_gradient(cache, 83, limit_of(cache, "all"))
    cache.invalidate()
    for x in (cache, fresh):
        set_gradient(x, 83, limit_of(x, "all"))
    for a, b in zip(cache.generator.parameters(), fresh.generator.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("pieces", [1, 5])
def test_snapshot_is_restored_bitwise(pieces: int) -> None:
    """Between two steps the rows are rebuilt, and what was collected is restored."""
    cache, again = build(83, 20, torch.float32), build(83, 20, torch.float32)
    context, ids, a = make_draws(83)
    for part in torch.arange(B).chunk(pieces):
        cache.collect(ids[part].contiguous(), cache.find_rows(context[part]), a[part].float())
    again.load_state_dict(cache.state_dict())
    n = cache.n_rows
    for name in ("z", "ends", "log_z", "greedy", "log_best", "total", "count", "grad_z"):
        assert torch.equal(getattr(cache, name)[:n], getattr(again, name)[:n]), name
    assert torch.equal(cache.context_index.table, again.context_index.table) and again.n_rows == n
    cache.gradient(SCALE, BETA, 9.0)
    again.gradient(SCALE, BETA, 9.0)
    for x, y in zip(cache.generator.parameters(), again.generator.parameters(), strict=True):
        assert torch.equal(x.grad, y.grad)
