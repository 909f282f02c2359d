"""The adversary's closed-form gradient and its draws, held to autograd and to finite differences."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from embtrain.negatives.generator import Generator, _argmax, draw_rows

Q, B, K = 7, 40, 3


def made(v: int, dtype: torch.dtype = torch.float64) -> Generator:
    draw = torch.Generator().manual_seed(v)
    of = Generator(Q + 3, v, 5, torch.log_softmax(torch.randn(v, generator=draw), 0), 0).to(dtype)
    with torch.no_grad():
        of.w[:, :-1].mul_(60)
    return of


def asked(v: int) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(1)
    context = torch.tensor([2, 0, 5, 1, 9, 4, 3])
    question = torch.randint(Q, (B,), generator=draw)
    ids = torch.randint(v, (B, K), generator=draw)
    a = torch.randn(B, K, generator=draw, dtype=torch.float64)
    h = torch.rand(Q, generator=draw, dtype=torch.float64) * torch.tensor([1.0, 0, 1, 0, 1, 1, 0])
    return context, question, ids, a, h


def objective(of: Generator, v: int) -> torch.Tensor:
    context, question, ids, a, h = asked(v)
    log_g = of(context)
    entropy = -(log_g.exp() * log_g).sum(1)
    return (a * log_g[question.unsqueeze(1), ids]).sum() + (h * entropy).sum()


@pytest.mark.parametrize("v", [3, 16, 83, 160])
@pytest.mark.parametrize("pull", ["none", "some", "all"])
def test_the_gradient_is_that_of_autograd(v, pull):
    of = made(v)
    context, question, ids, a, h = asked(v)
    h = {"none": h * 0, "some": h, "all": h + 0.1}[pull]
    log_g = of(context)
    (-(a * log_g[question.unsqueeze(1), ids]).sum() + (h * (log_g.exp() * log_g).sum(1)).sum()).backward()
    wanted = [p.grad.clone() for p in of.parameters()]
    of.zero_grad()
    of.ascend(of.rows(context, question), ids, a, h)
    for p, grad in zip(of.parameters(), wanted, strict=True):
        torch.testing.assert_close(p.grad, grad, rtol=1e-9, atol=1e-11)


def test_the_gradient_is_that_of_finite_differences():
    v, of = 11, made(11)
    context, question, ids, a, h = asked(v)
    of.ascend(of.rows(context, question), ids, a, h)
    for p in of.parameters():
        grad = p.grad
        for at in torch.randperm(p.numel(), generator=torch.Generator().manual_seed(0))[:12].tolist():
            with torch.no_grad():
                flat, step = p.view(-1), 1e-6
                flat[at] += step
                up = objective(of, v)
                flat[at] -= 2 * step
                down = objective(of, v)
                flat[at] += step
            torch.testing.assert_close(-grad.view(-1)[at], (up - down) / (2 * step), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("v", [1, 5, 16, 17, 83])
def test_rows_are_the_softmax_its_entropy_and_its_greatest(v):
    of = made(v)
    context, question, ids, _, _ = asked(v)
    rows, log_g = of.rows(context, question), of(context).detach()
    torch.testing.assert_close(rows.g, log_g.exp())
    torch.testing.assert_close(rows.entropy, -(log_g.exp() * log_g).sum(1), atol=1e-10, rtol=1e-8)
    assert torch.equal(rows.greedy, log_g.argmax(1))
    torch.testing.assert_close(rows.log_prob(ids), log_g[question.unsqueeze(1), ids])


def test_a_kept_space_gives_the_same_rows():
    of, (context, question, *_) = made(33), asked(33)
    space = of.space_for(len(context) + 4)
    space.fill_(torch.nan)
    here, there = of.rows(context, question, space), of.rows(context, question)
    assert torch.equal(here.g, there.g) and torch.equal(here.log_z, there.log_z)


def test_the_first_of_equals_is_greedy():
    assert _argmax(torch.tensor([[0.25, 0.5, 0.25, 0.5] * 9])).tolist() == [1]


@pytest.mark.parametrize("v", [2, 16, 40, 83])
def test_draws_have_the_probabilities_of_their_row(v):
    of, (context, question, *_) = made(v), asked(v)
    g = of.rows(context, question).g
    n = 200_000
    row = torch.arange(Q).repeat_interleave(n // Q)
    drawn = draw_rows(g, row, torch.Generator().manual_seed(5))
    for q in range(Q):
        seen = torch.bincount(drawn[row == q], minlength=v).double()
        expected = g[q] * seen.sum()
        big = expected >= 50
        rest = torch.stack([seen[~big].sum(), expected[~big].sum()])
        o, e = torch.cat([seen[big], rest[:1]]), torch.cat([expected[big], rest[1:]])
        o, e = (o, e) if rest[1] >= 50 else (seen[big], expected[big])
        chi2, cells = float(((o - e).square() / e).sum()), len(e)
        assert cells < 2 or stats.chi2.sf(chi2, cells - 1) > 0.001 / (4 * Q)


def test_an_id_without_mass_is_never_drawn():
    g = torch.zeros(2, 50, dtype=torch.float64)
    g[0, 7] = g[0, 33] = 0.5
    g[1, 49] = 1.0
    drawn = draw_rows(g, torch.tensor([0, 1]).repeat_interleave(5_000), torch.Generator().manual_seed(0))
    assert set(drawn[:5_000].tolist()) == {7, 33} and set(drawn[5_000:].tolist()) == {49}
