"""Skip-gram update on a device, each pair with its own negatives: one program for each window at a time.

Phase 1 reads each row of v once, and computes scores, slopes and the gradient of the centre from it. Phase 2 adds to
the rows of v and of u. Only the slopes, 4 bytes per row, go through memory in between. All scores of a window are
therefore those before its update, as in the compiled core.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor

from embtrain.kernels.device.row_updates import add_outer, add_row, load_rows, own_units
from embtrain.kernels.device.slopes import slopes


@triton.jit(do_not_specialize=["n_windows"])    # else it is compiled again for multiples of 16
def update_windows(u: tensor, v: tensor, u_acc: tensor, v_acc: tensor, centre: tensor, start: tensor, target: tensor,
                   ids: tensor, log_q: tensor, log_q_table: tensor, log_q_target: tensor, weight: tensor,
                   is_masked: tensor, c: tensor, loss: tensor, c_slope: tensor, target_slope: tensor, slope: tensor,
                   scores: tensor, n_windows: tensor, u_stride: tensor, v_stride: tensor, lr: tensor, eps: tensor,
                   margin: tensor, positive_weight: tensor, log_total: tensor, K: tl.constexpr, DIM: tl.constexpr,
                   LOSS: tl.constexpr, CORRECTS: tl.constexpr, CORRECTS_TARGET: tl.constexpr,
                   MASKS_TARGET: tl.constexpr, WEIGHT_PER_DRAW: tl.constexpr, C_PER_CENTRE: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr) -> None:
    """Update by the windows of this program. Arrays are those of kernels/device/skipgram.py.

    None: the argument is absent. loss, c_slope (C,): out. target_slope (P,), slope (P, K): scratch. scores (P, K): out,
    or None.
    """
    d, column = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_K)
    first_window, last_window = own_units(n_windows)
    for w in range(first_window, last_window):
        a, first, last = tl.load(centre + w), tl.load(start + w), tl.load(start + w + 1)
        x = tl.load(u + a * u_stride + d, mask=d < DIM, other=0.0, cache_modifier=".cg")           # (D,)
        log_z = 0.0
        if c is not None:
            log_z = tl.load(c + (a if C_PER_CENTRE else 0))
        du, total, c_total = tl.zeros((BLOCK_D,), tl.float32), 0.0, 0.0
        for begin in range(first, last, BLOCK_M):
            pair = begin + tl.arange(0, BLOCK_M)
            is_pair = pair < last
            t = tl.load(target + pair, mask=is_pair, other=0)
            place = pair[:, None] * K + column[None, :]                                  # (M, K)
            is_drawn = is_pair[:, None] & (column < K)[None, :]
            drawn = tl.load(ids + place, mask=is_drawn, other=0)
            rows_t = load_rows(v, v_stride, t, is_pair, d, DIM)
            rows = tl.load(v + drawn[:, :, None] * v_stride + d[None, None, :],
                           mask=is_drawn[:, :, None] & (d < DIM)[None, None, :], other=0.0,
                           cache_modifier=".cg")                                         # (M, K, D)
            s_t = tl.sum(rows_t * x[None, :], axis=1)
            s = tl.sum(rows * x[None, None, :], axis=2)
            if scores is not None:
                tl.store(scores + place, s, mask=is_drawn)
            is_kept = is_drawn
            if MASKS_TARGET:
                is_kept = is_kept & (drawn != t[:, None])
            if is_masked is not None:
                is_kept = is_kept & (tl.load(is_masked + place, mask=is_drawn, other=1) == 0)
            weights = tl.where(is_drawn, 1.0, 0.0)
            if weight is not None:
                weights = tl.load(weight + (place if WEIGHT_PER_DRAW else 0 * place + column[None, :]), mask=is_drawn,
                                  other=0.0)
                is_kept = is_kept & (weights != 0.0)
            shift_t, shift = tl.zeros((BLOCK_M,), tl.float32), tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
            if CORRECTS:
                if log_q is not None:
                    shift = log_z + log_total + tl.load(log_q + place, mask=is_drawn, other=0.0)
                else:
                    shift = log_z + log_total + tl.load(log_q_table + drawn, mask=is_drawn, other=0.0)
            if CORRECTS_TARGET:
                if log_q_target is not None:
                    shift_t = log_z + log_total + tl.load(log_q_target + pair, mask=is_pair, other=0.0)
                else:
                    shift_t = log_z + log_total + tl.load(log_q_table + t, mask=is_pair, other=0.0)
            cost, g_t, g = slopes(s_t, s, shift_t, shift, weights, is_kept, is_pair, margin, positive_weight, LOSS)
            tl.store(target_slope + pair, g_t, mask=is_pair)
            tl.store(slope + place, g, mask=is_drawn)
            total += tl.sum(cost, axis=0)
            c_total -= tl.sum(g_t, axis=0) + tl.sum(tl.sum(g, axis=1), axis=0)
            # where, not multiply: a row of slope 0 may hold infinities
            du += tl.sum(tl.where((g_t != 0.0)[:, None], g_t[:, None] * rows_t, 0.0), axis=0)
            du += tl.sum(tl.sum(tl.where((g != 0.0)[:, :, None], g[:, :, None] * rows, 0.0), axis=1), axis=0)
        tl.store(loss + w, total)
        if c_slope is not None:
            tl.store(c_slope + w, c_total)
        tl.debug_barrier()                                        # all rows are read, and all slopes are written
        for begin in range(first, last, BLOCK_M):
            pair = begin + tl.arange(0, BLOCK_M)
            is_pair = pair < last
            t = tl.load(target + pair, mask=is_pair, other=0)
            add_outer(v, v_stride, v_acc, t, tl.load(target_slope + pair, mask=is_pair, other=0.0), x, d, lr, eps, DIM)
            place = begin * K + tl.arange(0, BLOCK_M * BLOCK_K)                          # the M K negatives in a row
            is_drawn = place < tl.minimum(begin + BLOCK_M, last) * K
            drawn = tl.load(ids + place, mask=is_drawn, other=0)
            add_outer(v, v_stride, v_acc, drawn, tl.load(slope + place, mask=is_drawn, other=0.0), x, d, lr, eps, DIM)
        add_row(u, u_stride, u_acc, a, du, d, lr, eps, DIM)
