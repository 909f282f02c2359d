"""Scores that are products, in every form of candidates: the core against torch in double precision."""

from __future__ import annotations

import pytest
import torch
from helpers.cores import CORES, needs_core, using
from helpers.looped import looped
from torch import Tensor

from embtrain.kernels.scoring import gathered_dot, table_products
from embtrain.models.base import pad_rows, rank_keys
from embtrain.models.products import FEWEST, all_candidates, cosine_scores, dot_scores, every_product

B, K, D, V, TAU = 7, 5, 11, 30, 11.1


def tables(rows: int = B) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(rows)
    h, c = torch.randn(rows, D, generator=draw), torch.randn(V, D, generator=draw)
    c[3] = 0
    h[0] = 0
    return h, c, torch.randint(V, (rows, K), generator=draw).index_fill(1, torch.tensor([2]), 3)


def reference_scores(similarity: str, h: Tensor, c: Tensor, ids: Tensor) -> Tensor:
    """Return the scores by their definition, (B, K)."""
    rows = c[ids]
    s = (h.unsqueeze(1) * rows).sum(2)
    if similarity == "dot":
        return s
    return TAU * s / (h.norm(dim=1, keepdim=True).clamp(min=1e-12) * rows.norm(dim=2).clamp(min=1e-12))


def scores(similarity: str, h: Tensor, c: Tensor, ids: Tensor, sparse: bool) -> Tensor:
    return dot_scores(h, c, ids, sparse) if similarity == "dot" else cosine_scores(h, c, ids, sparse, TAU)


@looped("name", CORES)
@looped("sparse", [True, False])
@looped("similarity", ["dot", "cosine"])
@looped("rows", [1, 2, B])
def test_scores_and_gradients_match_double_precision(name: str, similarity: str, sparse: bool, rows: int) -> None:
    """A vector of length zero has a score of 0 and finite gradients; its own gradient is torch's, and not compared."""
    h, c, ids = tables(rows)
    g = torch.randn(rows, K, generator=torch.Generator().manual_seed(1))
    x, y = (t.double().requires_grad_() for t in (h, c))
    expected = reference_scores(similarity, x, y, ids)
    of_x, of_y = torch.autograd.grad(expected, [x, y], g.double())
    table = torch.nn.Module()
    table.c, table.unpadded_tables = torch.nn.Parameter(c), frozenset()  # type: ignore[assignment]
    pad_rows(table)  # type: ignore[arg-type]  # as in training: rows a multiple of 16 floats apart
    h = h.requires_grad_()
    with using(name):
        result = scores(similarity, h, table.c, ids, sparse)
        of_h, of_c = torch.autograd.grad(result, [h, table.c], g)
    assert of_c.is_sparse == sparse
    of_c = of_c.to_dense()
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    some, known = h.detach().norm(dim=1) > 0, c.norm(dim=1) > 0
    torch.testing.assert_close(of_h[some].double(), of_x[some], rtol=1e-4, atol=1e-4)
    if similarity == "dot":
        torch.testing.assert_close(of_c.double(), of_y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(of_c[known].double(), of_y[known], rtol=1e-4, atol=1e-4)
    assert of_c.isfinite().all() and of_h.isfinite().all()


@looped("name", CORES)
@looped("sparse", [True, False])
@looped("similarity", ["dot", "cosine"])
@looped("shared", ["rows of their own", "shared rows", "every row"])
def test_gradients_are_differentiable(name: str, similarity: str, sparse: bool, shared: str) -> None:
    """As a penalty of the gradient needs: against torch in double precision. A slice of h is not contiguous."""
    draw, ids = torch.Generator().manual_seed(4), tables()[2]
    leaves = torch.randn(B, D + 1, generator=draw), torch.randn(V, D, generator=draw)
    ids = {"rows of their own": ids, "shared rows": ids[:1], "every row": all_candidates(V, ids.device)}[shared]

    def gradients(dtype: torch.dtype) -> list[Tensor]:
        h, c = (x.to(dtype, copy=True).requires_grad_() for x in leaves)
        result = scores(similarity, h[:, :D], c, ids, sparse)
        of_h, = torch.autograd.grad(result.square().sum(), h, create_graph=True)
        return [x.to_dense().double() for x in torch.autograd.grad(of_h.square().sum() + result.sum(), [h, c])]
    with using(name):
        for found, expected in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@looped("name", CORES)
@looped("fixed", ["query", "table"])
@looped("similarity", ["dot", "cosine"])
@looped("shared", ["rows of their own", "shared rows", "every row"])
def test_gradients_are_differentiable_if_one_input_is_fixed(name: str, similarity: str, fixed: str, shared: str
                                                            ) -> None:
    draw, ids = torch.Generator().manual_seed(4), tables()[2]
    leaves = torch.randn(B, D, generator=draw), torch.randn(V, D, generator=draw)
    ids = {"rows of their own": ids, "shared rows": ids[:1], "every row": all_candidates(V, ids.device)}[shared]

    def gradient(dtype: torch.dtype) -> Tensor:
        h, c = (x.to(dtype, copy=True) for x in leaves)
        x = (c if fixed == "query" else h).requires_grad_()
        of_x, = torch.autograd.grad(scores(similarity, h, c, ids, False).square().sum(), x, create_graph=True)
        return torch.autograd.grad(of_x.square().sum(), x)[0].double()
    with using(name):
        found, expected = gradient(torch.float32), gradient(torch.float64)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@needs_core
def test_core_reads_only_candidates_looked_up_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    h, c, ids = tables()
    calls = []
    products = gathered_dot.products
    monkeypatch.setattr(gathered_dot, "products", lambda *a: (calls.append(1), products(*a))[1])
    for shape, n in ((ids, 1), (ids[:1], 0), (ids[:, :1], 0), (torch.arange(V).unsqueeze(0), 0), (c[ids], 0)):
        for similarity in ("dot", "cosine"):
            calls.clear()
            scores(similarity, h, c, shape, True)
            assert len(calls) == n, (similarity, shape.shape)
            scores(similarity, h.double(), c.double(), shape.double() if shape.is_floating_point() else shape, True)
            assert len(calls) == n


@needs_core
def test_fixed_table_and_fixed_query_get_no_gradient(
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
def test_gradients_of_targets_and_negatives_add_up() -> None:
    """As in a step: one look-up for the target, one for the negatives, both sparse."""
    h, c, ids = tables()
    y, z = c.clone().requires_grad_(), c.double().requires_grad_()
    (cosine_scores(h, y, ids[:, :1], True, TAU).sum() + cosine_scores(h, y, ids, True, TAU).sum()).backward()
    (reference_scores("cosine", h.double(), z, ids[:, :1]).sum() + reference_scores("cosine", h.double(), z,
                                                                                    ids).sum()).backward()
    assert y.grad is not None and y.grad.is_sparse and z.grad is not None
    known = c.norm(dim=1) > 0
    torch.testing.assert_close(y.grad.to_dense()[known].double(), z.grad[known], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [B, 2 * D])
def test_every_candidate_with_fewer_or_more_queries_than_dimensions(rows: int) -> None:
    """In double precision against the definition: scores, and gradients of queries and of rows with a length."""
    h, c, _ = tables(rows)
    c[4] = 1e-13                                                 # below the cutoff: no slope along itself
    g = torch.randn(rows, V, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    everyone = torch.arange(V).unsqueeze(0)
    (x, y), (found_x, found_y) = ([t.double().requires_grad_() for t in (h, c)] for _ in range(2))
    expected = reference_scores("cosine", x, y, everyone.expand(rows, V))
    result = cosine_scores(found_x, found_y, everyone, True, TAU)
    torch.testing.assert_close(result, expected)
    of_x, of_y = torch.autograd.grad(expected, [x, y], g)
    of_h, of_c = torch.autograd.grad(result, [found_x, found_y], g)
    some, known = h.norm(dim=1) > 0, c.norm(dim=1) > 0
    torch.testing.assert_close(of_h[some], of_x[some])
    torch.testing.assert_close(of_c[known], of_y[known], rtol=1e-6, atol=1e-6)
    assert of_c.isfinite().all()


@pytest.mark.parametrize("name", CORES)
def test_every_product_without_and_with_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core computes it for float32 on the CPU where no gradient is needed, also of rows that are not contiguous."""
    h, c, _ = tables(2 * FEWEST)
    wide, calls, products = torch.cat([c, c], 1), [], table_products.products
    monkeypatch.setattr(table_products, "products", lambda *a: (calls.append(1), products(*a))[1])
    learned = c.clone().requires_grad_()
    with using(name):
        for x, y, by_core in (
                (h, c, 1), (h, wide[:, D:], 1), (h[::2], c.T.contiguous().T, 1), (h, c[4].expand(V, D), 1),
                (h, learned.detach(), 1), (h[:, :1], wide[:, :1], 1), (h, c[:0], 1), (h[:FEWEST - 1], c, 0),
                (h[:0], c, 0), (h.double(), c.double(), 0), (h, learned, 0)):
            calls.clear()
            s = every_product(x, y)
            assert s.dtype == x.dtype and len(calls) == (by_core if name != "off" else 0)
            torch.testing.assert_close(s, x @ y.T, rtol=1e-5, atol=1e-5)
            assert s.requires_grad == y.requires_grad
        with torch.no_grad():
            calls.clear()
            every_product(h, learned)
            assert len(calls) == (name != "off")


def test_fixed_tensors_get_no_gradient_from_every_candidate() -> None:
    h, c, _ = tables()
    everyone = torch.arange(V).unsqueeze(0)
    for x, y in ((h.clone().requires_grad_(), c), (h, c.clone().requires_grad_())):
        cosine_scores(x, y, everyone, True, TAU).sum().backward()
        assert (x.grad is not None) == x.requires_grad
        assert (y.grad is not None) == y.requires_grad


@pytest.mark.parametrize("keys", [[], [7], [3, 3, 3], [5, 0, 9, 5, -2, 0]])
def test_ranks_of_keys_equal_the_inverse_of_unique(keys: list[int]) -> None:
    values = torch.tensor(keys, dtype=torch.int64)
    assert torch.equal(rank_keys(values), torch.unique(values, return_inverse=True)[1])


def test_ids_of_all_candidates_serve_training_after_an_evaluation() -> None:
    """They are kept from call to call; a first call under inference_mode must not spoil them."""
    n = 10_007                                                                  # of no other test
    with torch.inference_mode():
        first = all_candidates(n, torch.device("cpu"))
    weight = torch.ones(n, requires_grad=True)
    weight[all_candidates(n, torch.device("cpu"))].sum().backward()
    assert all_candidates(n, torch.device("cpu")) is first and weight.grad is not None and float(weight.grad.sum()) == n
