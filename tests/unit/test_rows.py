"""Adagrad by rows against its formula, number by number."""

from __future__ import annotations

import math

import pytest
import torch
from bits import same
from torch import nn

from embtrain.train.rows import RowAdagrad

GRADS = [torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [3.0, 0.25, -1.0]]),
         torch.tensor([[0.5, 0.5, -4.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])]


def by_hand(lr: float) -> tuple[list[list[float]], list[float]]:
    x, h = [[1.0] * 3 for _ in range(3)], [0.0] * 3
    for grad in GRADS:
        for r, g in enumerate(grad.tolist()):
            h[r] += sum(v * v for v in g) / 3
            x[r] = [a - lr * v / (math.sqrt(h[r]) + 1e-10) for a, v in zip(x[r], g, strict=True)]
    return x, h


@pytest.mark.parametrize("sparse", [False, True])
def test_it_is_its_formula(sparse: bool) -> None:
    table = nn.Parameter(torch.ones(3, 3))
    optimizer = RowAdagrad([table], lr=0.3)
    for grad in GRADS:
        table.grad = grad.clone()
        if sparse:  # rows 0 and 2, row 0 in two parts: they belong together before they are squared
            rows = torch.tensor([[0, 2, 0]])
            table.grad = torch.sparse_coo_tensor(rows, torch.stack([grad[0] * 3, grad[2], grad[0] * -2]), (3, 3),
                                                 check_invariants=True)
        optimizer.step()
    x, h = by_hand(0.3)
    torch.testing.assert_close(table.detach(), torch.tensor(x))
    torch.testing.assert_close(optimizer.accumulator(table), torch.tensor(h))


def test_its_state_goes_on() -> None:
    found = []
    for cut in (False, True):
        table = nn.Parameter(torch.ones(3, 3))
        optimizer = RowAdagrad([table], lr=0.3)
        for grad in GRADS:
            table.grad = grad
            optimizer.step()
            if cut:
                state, optimizer = optimizer.state_dict(), RowAdagrad([table], lr=0.1)
                optimizer.load_state_dict(state)
        found.append(table.detach().clone())
    assert same(found[0], found[1])


def test_a_table_without_gradient_stays() -> None:
    table, other = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(2, 3))
    optimizer = RowAdagrad([table, other], lr=0.3)
    other.grad = torch.ones(2, 3)
    optimizer.step()
    assert bool((table == 1).all()) and not bool((other == 1).any())
