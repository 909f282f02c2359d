"""The Triton kernels of distances, against the differences in float64 and their gradients by autograd."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from helpers.triton_kernels import DEVICE
from torch import Tensor

from embtrain.kernels.device import distances as kernel
from embtrain.models import distances
from embtrain.models.distances import moduli

pytestmark = pytest.mark.slow

GEOMETRIES = ("l1", "modulus")
#: Rows, columns, floats of a vector: one of each, tiles that are not full, sums in several parts.
SHAPES = [(1, 1, 2), (33, 5, 6), (5, 40, 140), (40, 70, 4)]


def pair(n: int, k: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors (n, dim) and (k, dim) in float64, of which two are equal, and slopes (n, k)."""
    random = torch.Generator().manual_seed(n * k + dim)
    x, y, g = (torch.randn(shape, generator=random, dtype=torch.float64) for shape in ((n, dim), (k, dim), (n, k)))
    y[0] = x[-1]
    return x.requires_grad_(), y.requires_grad_(), g


def exact(x: Tensor, y: Tensor, geometry: str) -> Tensor:
    difference = x.unsqueeze(1) - y
    return -(moduli(difference) if geometry == "modulus" else difference.abs()).sum(2)


def single(x: Tensor) -> Tensor:
    return x.detach().float().to(DEVICE)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_and_gradients_are_those_of_the_differences(shape: tuple[int, int, int], geometry: str) -> None:
    x, y, g = pair(*shape)
    expected = exact(x, y, geometry)
    expected.backward(g)
    tolerance = {"atol": 2e-5, "rtol": 1e-5}
    torch.testing.assert_close(kernel.scores(single(x), single(y), geometry).cpu().double(), expected.detach(),
                               **tolerance)
    for slope, a, b, gradient in ((g, x, y, x.grad), (g.T, y, x, y.grad)):
        torch.testing.assert_close(kernel.gradient(single(slope), single(a), single(b), geometry).cpu().double(),
                                   gradient, **tolerance)


def test_vectors_that_do_not_fit_are_rejected() -> None:
    x = torch.zeros(3, 4, device=DEVICE)
    for a, b, geometry in ((x, x[:, :2], "l1"), (x, x.double(), "l1"), (x[:, :3], x[:, :3], "modulus")):
        with pytest.raises(ValueError, match="distances"):
            kernel.scores(a, b, geometry)
    with pytest.raises(ValueError, match="gradient"):
        kernel.gradient(torch.zeros(3, 2, device=DEVICE), x, x, "l1")


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("ids", [[2, 0, 2], [0, 1, 2, 3]])
def test_shared_scores_update_the_rows_that_they_read(ids: list[int], geometry: str,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """Some candidates with a sparse gradient, in which one occurs twice, and all of them with a dense one."""
    def the_kernels() -> ModuleType:
        return kernel
    monkeypatch.setattr(distances, "_kernels", the_kernels)
    query, table, g = pair(5, 4, 6)
    candidates, g = torch.tensor([ids]), g[:, :1].expand(5, len(ids))
    expected = exact(query, table[candidates[0]], geometry)
    expected.backward(g)
    q, e = (single(x).requires_grad_() for x in (query, table))
    scores = distances.shared_scores(q, e, candidates.to(DEVICE), geometry, sparse=True)
    scores.backward(single(g))
    assert e.grad is not None and e.grad.is_sparse == (len(ids) == 3)
    for ours, oracle in ((scores, expected), (q.grad, query.grad), (e.grad.to_dense(), table.grad)):
        torch.testing.assert_close(ours.detach().cpu().double(), oracle.detach(), atol=2e-5, rtol=1e-5)
