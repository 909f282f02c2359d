"""Scores that are products, in every form of candidates: the core's way against torch's in double precision."""

from __future__ import annotations

import pytest
import torch
from helpers.cores import CORES, needs_core, using
from torch import Tensor

from embtrain.kernels.scoring import gathered_dot
from embtrain.models.base import pad_rows
from embtrain.models.products import cosine_scores, dot_scores

B, K, D, V, TAU = 7, 5, 11, 30, 11.1


def tables(rows: int = B) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(rows)
    h, c = torch.randn(rows, D, generator=draw), torch.randn(V, D, generator=draw)
    c[3] = 0
    h[0] = 0
    return h, c, torch.randint(V, (rows, K), generator=draw).index_fill(1, torch.tensor([2]), 3)


def right(of: str, h: Tensor, c: Tensor, ids: Tensor) -> Tensor:
    """By its definition, (B, K)."""
    rows = c[ids]
    s = (h.unsqueeze(1) * rows).sum(2)
    if of == "dot":
        return s
    return TAU * s / (h.norm(dim=1, keepdim=True).clamp(min=1e-12) * rows.norm(dim=2).clamp(min=1e-12))


def scores(of: str, h: Tensor, c: Tensor, ids: Tensor, sparse: bool) -> Tensor:
    return dot_scores(h, c, ids, sparse) if of == "dot" else cosine_scores(h, c, ids, sparse, TAU)


@pytest.mark.parametrize("name", CORES)
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("of", ["dot", "cosine"])
@pytest.mark.parametrize("rows", [1, 2, B])
def test_scores_and_gradients_are_those_of_double_precision(name: str, of: str, sparse: bool, rows: int) -> None:
    """A vector of no length has a score of 0 and finite gradients; its own is torch's business, and not compared."""
    h, c, ids = tables(rows)
    g = torch.randn(rows, K, generator=torch.Generator().manual_seed(1))
    x, y = (t.double().requires_grad_() for t in (h, c))
    wanted = right(of, x, y, ids)
    of_x, of_y = torch.autograd.grad(wanted, [x, y], g.double())
    table = torch.nn.Module()
    table.c = torch.nn.Parameter(c)
    pad_rows(table)  # type: ignore[arg-type]  # as in training: rows a multiple of 16 floats apart
    h = h.requires_grad_()
    with using(name):
        found = scores(of, h, table.c, ids, sparse)
        of_h, of_c = torch.autograd.grad(found, [h, table.c], g)
    assert of_c.is_sparse == sparse
    of_c = of_c.to_dense()
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    some, known = h.detach().norm(dim=1) > 0, c.norm(dim=1) > 0
    torch.testing.assert_close(of_h[some].double(), of_x[some], rtol=1e-4, atol=1e-4)
    if of == "dot":
        torch.testing.assert_close(of_c.double(), of_y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(of_c[known].double(), of_y[known], rtol=1e-4, atol=1e-4)
    assert of_c.isfinite().all() and of_h.isfinite().all()


@needs_core
def test_what_each_row_looks_up_is_read_by_the_core_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    h, c, ids = tables()
    calls = []
    monkeypatch.setattr(gathered_dot, "products", lambda *a, of=gathered_dot.products: (calls.append(1), of(*a))[1])
    for shape, n in ((ids, 1), (ids[:1], 0), (ids[:, :1], 0), (torch.arange(V).unsqueeze(0), 0), (c[ids], 0)):
        for of in ("dot", "cosine"):
            calls.clear()
            scores(of, h, c, shape, True)
            assert len(calls) == n, (of, shape.shape)
            scores(of, h.double(), c.double(), shape.double() if shape.is_floating_point() else shape, True)
            assert len(calls) == n


@needs_core
def test_a_table_that_stays_gets_no_gradient_and_a_question_that_stays_none_either(
        monkeypatch: pytest.MonkeyPatch) -> None:
    h, c, ids = tables()
    with monkeypatch.context() as patch:
        patch.setattr(gathered_dot, "table_gradient", lambda *a: pytest.fail("the table stays"))
        x = h.clone().requires_grad_()
        cosine_scores(x, c, ids, False, TAU).sum().backward()
        assert x.grad is not None
    monkeypatch.setattr(gathered_dot, "query_gradient", lambda *a: pytest.fail("the question stays"))
    y = c.clone().requires_grad_()
    cosine_scores(h, y, ids, False, TAU).sum().backward()
    assert y.grad is not None


@needs_core
def test_gradients_of_targets_and_columns_add_up() -> None:
    """As a step does it: one look-up for the target, one for the columns, both sparse."""
    h, c, ids = tables()
    y, z = c.clone().requires_grad_(), c.double().requires_grad_()
    (cosine_scores(h, y, ids[:, :1], True, TAU).sum() + cosine_scores(h, y, ids, True, TAU).sum()).backward()
    (right("cosine", h.double(), z, ids[:, :1]).sum() + right("cosine", h.double(), z, ids).sum()).backward()
    assert y.grad is not None and y.grad.is_sparse and z.grad is not None
    known = c.norm(dim=1) > 0
    torch.testing.assert_close(y.grad.to_dense()[known].double(), z.grad[known], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [B, 2 * D])
def test_every_candidate_at_once_fewer_questions_than_dimensions_or_more(rows: int) -> None:
    """In double precision against the definition: scores, and gradients of questions and of rows with a length."""
    h, c, _ = tables(rows)
    c[4] = 1e-13                                                 # below what is cut off: no slope along itself
    g = torch.randn(rows, V, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    everyone = torch.arange(V).unsqueeze(0)
    (x, y), (found_x, found_y) = ([t.double().requires_grad_() for t in (h, c)] for _ in range(2))
    wanted = right("cosine", x, y, everyone.expand(rows, V))
    found = cosine_scores(found_x, found_y, everyone, True, TAU)
    torch.testing.assert_close(found, wanted)
    of_x, of_y = torch.autograd.grad(wanted, [x, y], g)
    of_h, of_c = torch.autograd.grad(found, [found_x, found_y], g)
    some, known = h.norm(dim=1) > 0, c.norm(dim=1) > 0
    torch.testing.assert_close(of_h[some], of_x[some])
    torch.testing.assert_close(of_c[known], of_y[known], rtol=1e-6, atol=1e-6)
    assert of_c.isfinite().all()


def test_what_stays_gets_no_gradient_from_every_candidate() -> None:
    h, c, _ = tables()
    everyone = torch.arange(V).unsqueeze(0)
    for x, y in ((h.clone().requires_grad_(), c), (h, c.clone().requires_grad_())):
        cosine_scores(x, y, everyone, True, TAU).sum().backward()
        assert (x.grad is not None) == x.requires_grad
        assert (y.grad is not None) == y.requires_grad
