"""Optimizers by rows: Adagrad against its formula, number by number; Adam against torch's."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.bits import same
from torch import nn

from embtrain.train import optimizers as rows
from embtrain.train.optimizers import LazyAdam, PaddedAdam, RowAdagrad

GRADS = [torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [3.0, 0.25, -1.0]]),
         torch.tensor([[0.5, 0.5, -4.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])]


def by_hand(lr: float) -> tuple[list[list[float]], list[float]]:
    x, h = [[1.0] * 3 for _ in range(3)], [0.0] * 3
    for grad in GRADS:
        for r, g in enumerate(grad.tolist()):
            h[r] += sum(v * v for v in g) / 3
            x[r] = [a - lr * v / (math.sqrt(h[r]) + 1e-10) for a, v in zip(x[r], g, strict=True)]
    return x, h


@pytest.mark.parametrize("chunk", [4, 6, 1 << 18])
@pytest.mark.parametrize("sparse", [False, True])
def test_row_adagrad_matches_its_formula(sparse: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "CHUNK", chunk)                # one row at a time, two, all
    table = nn.Parameter(torch.ones(3, 3))
    optimizer = RowAdagrad([table], lr=0.3)
    for grad in GRADS:
        table.grad = grad.clone()
        if sparse:  # rows 0 and 2, row 0 in two parts: they are added before they are squared
            read = torch.tensor([[0, 2, 0]])
            table.grad = torch.sparse_coo_tensor(read, torch.stack([grad[0] * 3, grad[2], grad[0] * -2]), (3, 3),
                                                 check_invariants=True)
        optimizer.step()
    x, h = by_hand(0.3)
    torch.testing.assert_close(table.detach(), torch.tensor(x))
    torch.testing.assert_close(optimizer.accumulator(table), torch.tensor(h))


def test_rows_that_repeat_are_added_without_their_number() -> None:
    """The update on a GPU, which the host does not wait for, is that of the summed rows."""
    random = torch.Generator().manual_seed(0)
    read = torch.tensor([3, 0, 3, 5, 0, 3])
    tables = []
    for uncoalesced in (False, True):
        table = nn.Parameter(torch.ones(7, 3))
        optimizer = RowAdagrad([table], lr=0.3)
        for _ in range(2):
            g = torch.randn(6, 3, generator=random.manual_seed(len(read)))
            if uncoalesced:
                with torch.no_grad():
                    optimizer._update_uncoalesced(table, optimizer.accumulator(table), read, g, 0.3)
            else:
                table.grad = torch.sparse_coo_tensor(read.unsqueeze(0), g, (7, 3), check_invariants=True)
                optimizer.step()
        tables.append((table.detach(), optimizer.accumulator(table)))
    for ours, oracle in zip(*tables, strict=True):
        torch.testing.assert_close(ours, oracle)
    assert (tables[1][0][[1, 2, 4, 6]] == 1).all()


def test_row_adagrad_state_is_restored() -> None:
    result = []
    for cut in (False, True):
        table = nn.Parameter(torch.ones(3, 3))
        optimizer = RowAdagrad([table], lr=0.3)
        for grad in GRADS:
            table.grad = grad
            optimizer.step()
            if cut:
                state, optimizer = optimizer.state_dict(), RowAdagrad([table], lr=0.1)
                optimizer.load_state_dict(state)
        result.append(table.detach().clone())
    assert same(result[0], result[1])


def test_table_without_gradient_is_unchanged() -> None:
    table, other = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(2, 3))
    optimizer = RowAdagrad([table, other], lr=0.3)
    other.grad = torch.ones(2, 3)
    optimizer.step()
    assert bool((table == 1).all()) and not bool((other == 1).any())


@pytest.mark.parametrize("optimizer", [RowAdagrad, LazyAdam])
def test_block_that_reads_no_row_updates_none(optimizer: type[torch.optim.Optimizer]) -> None:
    table = nn.Parameter(torch.ones(4, 3))
    none = torch.empty(1, 0, dtype=torch.int64)
    table.grad = torch.sparse_coo_tensor(none, torch.empty(0, 3), (4, 3), check_invariants=True)
    optimizer([table], lr=0.3).step()  # type: ignore[call-arg]
    assert bool((table == 1).all())


# --- Adam of the rows in the batch ------------------------------------------------------------------------------------

def grads(n: int, read: list[int], seed: int = 0) -> list[torch.Tensor]:
    """Return gradients of a table (5, 3); 0 in the rows that are not read."""
    draw, kept = torch.Generator().manual_seed(seed), torch.zeros(5, 1)
    kept[read] = 1
    return [torch.randn(5, 3, generator=draw) * kept for _ in range(n)]


def parts_of(grad: torch.Tensor, read: list[int]) -> torch.Tensor:
    """Return the same with an entry for each row that was read, and two for the last: they are one gradient."""
    rows = torch.tensor([[*read, read[-1]]])
    values = torch.cat([grad[read[:-1]], grad[read[-1:]] * 3, grad[read[-1:]] * -2])
    return torch.sparse_coo_tensor(rows, values, (5, 3), check_invariants=True)


def table() -> nn.Parameter:
    return nn.Parameter(torch.randn(5, 3, generator=torch.Generator().manual_seed(9)))


def test_lazy_adam_equals_adam_for_rows_read_by_every_update() -> None:
    read = [4, 0, 3]
    ours, plain, begun = table(), table(), table()
    lazy, adam = LazyAdam([ours], lr=0.05), PaddedAdam([plain], lr=0.05)
    for i, grad in enumerate(grads(40, read)):
        for group in (*lazy.param_groups, *adam.param_groups):
            group["lr"] = 0.05 / (1 + i)
        ours.grad, plain.grad = parts_of(grad, read), grad
        lazy.step()
        adam.step()
    torch.testing.assert_close(ours[read].detach(), plain[read].detach(), rtol=1e-5, atol=1e-6)
    assert torch.equal(ours[[1, 2]], begun[[1, 2]])
    for name in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(lazy.state[ours][name], adam.state[plain][name], rtol=1e-5, atol=1e-7)
    assert float(lazy.state[ours]["step"]) == 40


def test_unread_row_keeps_its_moments() -> None:
    """By hand, in doubles: t advances for every row, m and v do not."""
    x = nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))
    lazy, result, m, v = LazyAdam([x], lr=0.1), [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    for t, (row, g) in enumerate([(0, 1.0), (1, -2.0), (1, 0.5), (0, -3.0)], 1):
        value = torch.tensor([[g]], dtype=torch.float64)
        x.grad = torch.sparse_coo_tensor([[row]], value, (2, 1), check_invariants=True)
        lazy.step()
        m[row], v[row] = 0.9 * m[row] + 0.1 * g, 0.999 * v[row] + 0.001 * g * g
        result[row] -= 0.1 * (m[row] / (1 - 0.9 ** t)) / (math.sqrt(v[row] / (1 - 0.999 ** t)) + 1e-8)
        assert x.detach()[:, 0].tolist() == pytest.approx(result, rel=1e-12)


def test_dense_gradients_get_bitwise_adam() -> None:
    """Also after sparse gradients: both store their state under the same names."""
    every, result = list(range(5)), []
    for make in (LazyAdam, PaddedAdam):
        x, b = table(), nn.Parameter(torch.ones(3))
        optimizer = make([x, b], lr=0.05)
        for grad in grads(6, every):
            x.grad, b.grad = grad.clone(), grad[0].clone()
            optimizer.step()
        result.append((x, b, optimizer))
    assert same(result[0][0].detach(), result[1][0].detach()) and same(result[0][1].detach(), result[1][1].detach())
    (ours, b, lazy), (plain, _, adam) = result
    (grad,), b.grad = grads(1, every, seed=1), None
    ours.grad = parts_of(grad, every)
    lazy.step()
    plain.grad = grad
    adam.step()
    torch.testing.assert_close(ours.detach(), plain.detach(), rtol=1e-5, atol=1e-6)
    assert ours.grad is not None and ours.grad.is_sparse                # the gradient is left unchanged


def test_lazy_adam_state_is_restored() -> None:
    result, read = [], [1, 2]
    for cut in (False, True):
        x = table()
        optimizer = LazyAdam([x], lr=0.3)
        for grad in grads(5, read):
            x.grad = parts_of(grad, read)
            optimizer.step()
            if cut:
                state, optimizer = optimizer.state_dict(), LazyAdam([x], lr=0.1)
                optimizer.load_state_dict(state)
        result.append(x.detach().clone())
    assert same(result[0], result[1])
