"""Reads of table rows on a device, and their updates by atomic additions.

    SGD           x_r -= lr g_r
    row-Adagrad   acc_r += mean_d g_rd²;  x_r -= lr g_r / (√acc_r + ε)

Programs run at the same time and do not lock rows (Hogwild). An addition is atomic, so none is lost. `acc` is None for
SGD. Under row-Adagrad each occurrence of a row in a unit is an update of its own, whereas the compiled core sums them
first; without repeated rows both are equal.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor


@triton.jit
def own_units(n: tensor) -> tuple[tensor, tensor]:
    """The range of the n units that this program updates: the first, and the first of the next program."""
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    return program * n // programs, (program + 1) * n // programs


@triton.jit
def load_rows(table: tensor, stride: tensor, row: tensor, is_read: tensor, d: tensor, DIM: tl.constexpr) -> tensor:
    """Read rows (R,) as (R, D); 0 where `is_read` (R,) is not set. Bypasses the L1 cache, which keeps old values."""
    return tl.load(table + row[:, None] * stride + d[None, :], mask=is_read[:, None] & (d < DIM)[None, :], other=0.0,
                   cache_modifier=".cg")


@triton.jit
def rates(acc: tensor, row: tensor, mean_square: tensor, is_moved: tensor, lr: tensor, eps: tensor) -> tensor:
    """Add the mean squares of gradients to the accumulators of rows; return the rows' learning rates."""
    rate = lr + 0.0 * mean_square
    if acc is not None:
        earlier = tl.atomic_add(acc + row, mean_square, mask=is_moved, sem="relaxed")
        total = tl.where(is_moved, earlier + mean_square, 1.0)                # a masked addition returns any number
        rate = tl.where(is_moved, lr / (tl.sqrt(total) + eps), 0.0)
    return rate


@triton.jit
def add_outer(table: tensor, stride: tensor, acc: tensor, row: tensor, slope: tensor, x: tensor, d: tensor, lr: tensor,
              eps: tensor, DIM: tl.constexpr) -> None:
    """Update rows whose gradients are slope_i x: row and slope (R,), x (D,). Rows of slope 0 are not touched."""
    is_moved = slope != 0.0
    rate = rates(acc, row, slope * slope * (tl.sum(x * x, axis=0) / DIM), is_moved, lr, eps)
    tl.atomic_add(table + row[:, None] * stride + d[None, :], -(rate * slope)[:, None] * x[None, :],
                  mask=is_moved[:, None] & (d < DIM)[None, :], sem="relaxed")


@triton.jit
def add_rows(table: tensor, stride: tensor, acc: tensor, row: tensor, gradient: tensor, is_moved: tensor, d: tensor,
             lr: tensor, eps: tensor, DIM: tl.constexpr) -> None:
    """Update rows by their gradients: row and is_moved (R,), gradient (R, D)."""
    rate = rates(acc, row, tl.sum(gradient * gradient, axis=1) / DIM, is_moved, lr, eps)
    tl.atomic_add(table + row[:, None] * stride + d[None, :], -rate[:, None] * gradient,
                  mask=is_moved[:, None] & (d < DIM)[None, :], sem="relaxed")


@triton.jit
def add_stored_rows(table: tensor, stride: tensor, acc: tensor, ids: tensor, gradient: tensor, n: tensor, d: tensor,
                    lr: tensor, eps: tensor, DIM: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Update the rows whose ids (n,) and gradients (n, DIM) are in memory, BLOCK at a time."""
    for begin in range(0, n, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        is_row = row < n
        g = tl.load(gradient + row[:, None] * DIM + d[None, :], mask=is_row[:, None] & (d < DIM)[None, :], other=0.0)
        is_moved = is_row & (tl.max(tl.abs(g), axis=1) > 0.0)
        add_rows(table, stride, acc, tl.load(ids + row, mask=is_row, other=0), g, is_moved, d, lr, eps, DIM)


@triton.jit
def add_row(table: tensor, stride: tensor, acc: tensor, row: tensor, gradient: tensor, d: tensor, lr: tensor,
            eps: tensor, DIM: tl.constexpr) -> None:
    """Update one row by its gradient (D,)."""
    rate = rates(acc, row, tl.sum(gradient * gradient, axis=0) / DIM, row >= 0, lr, eps)
    tl.atomic_add(table + row * stride + d, -rate * gradient, mask=d < DIM, sem="relaxed")
