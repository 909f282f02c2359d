"""Order embeddings on a device: one program for each row at a time, a concept with its target and K negatives.

    E(g, c) = ‖z‖²,  z = max(0, σ (x_c − x_g))      σ = 1 in slot 0, −1 in slot 1

BLOCK_K negatives are in registers at a time. Their gradients go through `gradient`, which each program has for itself:
rows are added to when all rows of the unit are read, so that its energies are those before its update.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor

from embtrain.kernels.device.row_updates import add_stored_rows, load_rows, own_units


@triton.jit(do_not_specialize=["n"])    # else it is compiled again for multiples of 16
def update_rows(x: tensor, acc: tensor, concept: tensor, target: tensor, slot: tensor, ids: tensor, weight: tensor,
                is_masked: tensor, loss: tensor, scores: tensor, gradient: tensor, n: tensor, stride: tensor,
                lr: tensor, eps: tensor, margin: tensor, SHARE: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
                LOSS: tl.constexpr, READS_ABS: tl.constexpr, MASKS_TARGET: tl.constexpr,
                WEIGHT_PER_DRAW: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr) -> None:
    """Update by the rows of this program. Arrays are those of kernels/device/pairs/update.py.

    None: the argument is absent. loss (n,), scores (n, K): out. gradient: scratch (K + 2, DIM) of each program, of the
    negatives, the target and the concept.
    """
    d = tl.arange(0, BLOCK_D)
    is_dim = d < DIM
    gradient += tl.program_id(0).to(tl.int64) * ((K + 2) * DIM)
    first_row, last_row = own_units(n)
    for i in range(first_row, last_row):
        draw = i // SHARE
        t = tl.load(target + i)
        sign = 1.0 - 2.0 * tl.load(slot + i).to(tl.float32)
        x_g = tl.load(x + tl.load(concept + i) * stride + d, mask=is_dim, other=0.0, cache_modifier=".cg")
        x_t = tl.load(x + t * stride + d, mask=is_dim, other=0.0, cache_modifier=".cg")
        z_t = _violations(x_t, x_g, sign, READS_ABS)
        energy_t = tl.sum(z_t * z_t, axis=0)
        threshold = margin
        if LOSS == "margin":
            threshold = margin + energy_t
        cost, slope_t, of_concept = 0.0, 0.0, tl.zeros((BLOCK_D,), tl.float32)
        for begin in range(0, K, BLOCK_K):
            column = begin + tl.arange(0, BLOCK_K)
            is_column = column < K
            drawn = tl.load(ids + draw * K + column, mask=is_column, other=0)
            rows = load_rows(x, stride, drawn, is_column, d, DIM)                        # (K, D)
            z = _violations(rows, x_g[None, :], sign, READS_ABS)
            energy = tl.sum(z * z, axis=1)
            if scores is not None:
                tl.store(scores + i * K + column, -energy, mask=is_column)
            weights = tl.where(is_column, 1.0, 0.0)
            if weight is not None:
                weights = tl.load(weight + (draw * K + column if WEIGHT_PER_DRAW else column), mask=is_column,
                                  other=0.0)
            is_active = is_column & ~(threshold <= energy) & (weights != 0.0)            # NaN too, for the loss
            if MASKS_TARGET:
                is_active = is_active & (drawn != t)
            if is_masked is not None:
                is_active = is_active & (tl.load(is_masked + i * K + column, mask=is_column, other=1) == 0)
            active = tl.where(is_active, weights, 0.0)
            cost += tl.sum(tl.where(is_active, weights * (threshold - energy), 0.0), axis=0)
            slope_t += tl.sum(active, axis=0)
            step = tl.where(is_active[:, None], -2.0 * sign * active[:, None] * z, 0.0)  # ∂L/∂v of the negatives
            of_concept -= tl.sum(step, axis=0)
            tl.store(gradient + column[:, None] * DIM + d[None, :], step * _sign(rows, READS_ABS),
                     mask=is_column[:, None] & is_dim[None, :])
        if LOSS == "order":
            slope_t, cost = 1.0, cost + energy_t
        step_t = 2.0 * sign * slope_t * z_t
        of_concept -= step_t
        tl.store(loss + i, cost)
        tl.store(gradient + K * DIM + d, step_t * _sign(x_t, READS_ABS), mask=is_dim)
        tl.store(gradient + (K + 1) * DIM + d, of_concept * _sign(x_g, READS_ABS), mask=is_dim)
        tl.debug_barrier()                                                    # all rows are read
        add_stored_rows(x, stride, acc, target + i, gradient + K * DIM, 1, d, lr, eps, DIM, 1)
        add_stored_rows(x, stride, acc, ids + draw * K, gradient, K, d, lr, eps, DIM, BLOCK_K)
        add_stored_rows(x, stride, acc, concept + i, gradient + (K + 1) * DIM, 1, d, lr, eps, DIM, 1)
        tl.debug_barrier()                                                    # the next row writes to the scratch
        if not READS_ABS:
            _clip(x, stride, target + i, 1, d, DIM, 1)
            _clip(x, stride, ids + draw * K, K, d, DIM, BLOCK_K)
            _clip(x, stride, concept + i, 1, d, DIM, 1)
            tl.debug_barrier()


@triton.jit
def _violations(c: tensor, g: tensor, sign: tensor, READS_ABS: tl.constexpr) -> tensor:
    """Return max(0, σ (v_c − v_g)); NaN stays NaN, which a maximum on a device drops."""
    if READS_ABS:
        c = tl.abs(c)
        g = tl.abs(g)
    z = sign * (c - g)
    return tl.where(z <= 0.0, 0.0, z)


@triton.jit
def _sign(x: tensor, READS_ABS: tl.constexpr) -> tensor:
    """Return ∂v/∂x."""
    result = 0.0 * x + 1.0
    if READS_ABS:
        result = tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, 0.0))
    return result


@triton.jit
def _clip(table: tensor, stride: tensor, ids: tensor, n: tensor, d: tensor, DIM: tl.constexpr, BLOCK: tl.constexpr
          ) -> None:
    """Set negative coordinates of the rows ids (n,) to 0, atomically: no addition of another program is lost."""
    for begin in range(0, n, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        is_row = row < n
        place = table + tl.load(ids + row, mask=is_row, other=0)[:, None] * stride + d[None, :]
        is_place = is_row[:, None] & (d < DIM)[None, :]
        x = tl.load(place, mask=is_place, other=0.0, cache_modifier=".cg")
        tl.atomic_max(place, tl.zeros_like(x), mask=is_place & (x < 0.0), sem="relaxed")
