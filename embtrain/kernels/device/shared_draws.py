"""Skip-gram update on a device, SHARE windows with the same negatives: one program for each draw at a time.

The K rows of the negatives are read once and stay in registers, with their gradient if several windows share them.
Phase 1 reads all rows and computes scores, slopes and the gradients of the centres; phase 2 adds to the rows. Slopes of
the targets, and the gradients of the centres if there are several, go through memory in between. All scores of a unit
are therefore those before its update, as in the compiled core.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor

from embtrain.kernels.device.row_updates import add_outer, add_row, add_rows, load_rows, own_units
from embtrain.kernels.device.slopes import slopes


@triton.jit(do_not_specialize=["n_windows"])    # else it is compiled again for multiples of 16
def update_units(u: tensor, v: tensor, u_acc: tensor, v_acc: tensor, centre: tensor, start: tensor, target: tensor,
                 ids: tensor, log_q: tensor, log_q_table: tensor, log_q_target: tensor, weight: tensor,
                 is_masked: tensor, c: tensor, loss: tensor, c_slope: tensor, target_slope: tensor,
                 centre_gradient: tensor, scores: tensor, n_windows: tensor, u_stride: tensor, v_stride: tensor,
                 lr: tensor, eps: tensor, margin: tensor, positive_weight: tensor, log_total: tensor,
                 SHARE: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr, LOSS: tl.constexpr, CORRECTS: tl.constexpr,
                 CORRECTS_TARGET: tl.constexpr, MASKS_TARGET: tl.constexpr, WEIGHT_PER_DRAW: tl.constexpr,
                 C_PER_CENTRE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
                 BLOCK_D: tl.constexpr) -> None:
    """Update by the units of this program. Arrays are those of kernels/device/skipgram.py.

    None: the argument is absent. loss, c_slope (C,): out. target_slope (P,): scratch. centre_gradient (C, D): scratch,
    or None if SHARE is 1. scores (C, K): out for SHARE 1, or None.
    """
    d, column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_K)
    is_dim, is_column = d < DIM, column < K
    first_unit, last_unit = own_units(tl.cdiv(n_windows, SHARE))
    for unit in range(first_unit, last_unit):
        first_window = unit * SHARE
        last_window = tl.minimum(first_window + SHARE, n_windows)
        draw_place = unit * K + column
        drawn = tl.load(ids + draw_place, mask=is_column, other=0)                       # (K,)
        rows = load_rows(v, v_stride, drawn, is_column, d, DIM)
        weights = tl.where(is_column, 1.0, 0.0)
        if weight is not None:
            weights = tl.load(weight + (draw_place if WEIGHT_PER_DRAW else column), mask=is_column, other=0.0)
        log_q_drawn = tl.zeros((BLOCK_K,), tl.float32)
        if CORRECTS:
            if log_q is not None:
                log_q_drawn = tl.load(log_q + draw_place, mask=is_column, other=0.0)
            else:
                log_q_drawn = tl.load(log_q_table + drawn, mask=is_column, other=0.0)
        x, du = tl.zeros((BLOCK_D,), tl.float32), tl.zeros((BLOCK_D,), tl.float32)
        g_column, d_rows = tl.zeros((BLOCK_K,), tl.float32), tl.zeros((BLOCK_K, BLOCK_D), tl.float32)
        a = tl.load(centre + first_window)
        for w in range(first_window, last_window):
            a = tl.load(centre + w)
            x = tl.load(u + a * u_stride + d, mask=is_dim, other=0.0, cache_modifier=".cg")
            s = tl.sum(rows * x[None, :], axis=1)                                        # (K,)
            if scores is not None:
                tl.store(scores + w * K + column, s, mask=is_column)
            log_z = 0.0
            if c is not None:
                log_z = tl.load(c + (a if C_PER_CENTRE else 0))
            du, total, c_total = tl.zeros((BLOCK_D,), tl.float32), 0.0, 0.0
            g_column = tl.zeros((BLOCK_K,), tl.float32)
            first, last = tl.load(start + w), tl.load(start + w + 1)
            for begin in range(first, last, BLOCK_M):
                pair = begin + tl.arange(0, BLOCK_M)
                is_pair = pair < last
                t = tl.load(target + pair, mask=is_pair, other=0)
                rows_t = load_rows(v, v_stride, t, is_pair, d, DIM)
                s_t = tl.sum(rows_t * x[None, :], axis=1)
                is_cell = is_pair[:, None] & is_column[None, :]
                is_kept = is_cell & (weights != 0.0)[None, :]
                if MASKS_TARGET:
                    is_kept = is_kept & (drawn[None, :] != t[:, None])
                if is_masked is not None:
                    is_kept = is_kept & (tl.load(is_masked + pair[:, None] * K + column[None, :], mask=is_cell,
                                                 other=1) == 0)
                shift_t, shift = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_K,), tl.float32)
                if CORRECTS:
                    shift = log_z + log_total + log_q_drawn
                if CORRECTS_TARGET:
                    if log_q_target is not None:
                        shift_t = log_z + log_total + tl.load(log_q_target + pair, mask=is_pair, other=0.0)
                    else:
                        shift_t = log_z + log_total + tl.load(log_q_table + t, mask=is_pair, other=0.0)
                cost, g_t, g = slopes(s_t, tl.broadcast_to(s[None, :], (BLOCK_M, BLOCK_K)), shift_t, shift[None, :],
                                      weights[None, :], is_kept, is_pair, margin, positive_weight, LOSS)
                tl.store(target_slope + pair, g_t, mask=is_pair)
                total += tl.sum(cost, axis=0)
                g_pairs = tl.sum(g, axis=0)
                c_total -= tl.sum(g_t, axis=0) + tl.sum(g_pairs, axis=0)
                g_column += g_pairs
                du += tl.sum(tl.where((g_t != 0.0)[:, None], g_t[:, None] * rows_t, 0.0), axis=0)
            # where, not multiply: a row of slope 0 may hold infinities
            du += tl.sum(tl.where((g_column != 0.0)[:, None], g_column[:, None] * rows, 0.0), axis=0)
            tl.store(loss + w, total)
            if c_slope is not None:
                tl.store(c_slope + w, c_total)
            if SHARE > 1:
                d_rows += g_column[:, None] * x[None, :]
                tl.store(centre_gradient + w * DIM + d, du, mask=is_dim)
        tl.debug_barrier()                                        # all rows are read, and all slopes are written
        for w in range(first_window, last_window):
            if SHARE > 1:
                x = tl.load(u + tl.load(centre + w) * u_stride + d, mask=is_dim, other=0.0, cache_modifier=".cg")
            first, last = tl.load(start + w), tl.load(start + w + 1)
            for begin in range(first, last, BLOCK_M):
                pair = begin + tl.arange(0, BLOCK_M)
                is_pair = pair < last
                t = tl.load(target + pair, mask=is_pair, other=0)
                slope_t = tl.load(target_slope + pair, mask=is_pair, other=0.0)
                add_outer(v, v_stride, v_acc, t, slope_t, x, d, lr, eps, DIM)
        if SHARE == 1:
            add_outer(v, v_stride, v_acc, drawn, g_column, x, d, lr, eps, DIM)
            add_row(u, u_stride, u_acc, a, du, d, lr, eps, DIM)
        else:
            is_moved = is_column & (tl.max(tl.abs(d_rows), axis=1) > 0.0)
            add_rows(v, v_stride, v_acc, drawn, d_rows, is_moved, d, lr, eps, DIM)
            tl.debug_barrier()                                    # the rows of all centres are read
            for w in range(first_window, last_window):
                gradient = tl.load(centre_gradient + w * DIM + d, mask=is_dim, other=0.0)
                add_row(u, u_stride, u_acc, tl.load(centre + w), gradient, d, lr, eps, DIM)
