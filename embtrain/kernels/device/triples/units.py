"""Triples update on a device, SHARE queries with the same K negatives: one program for each unit at a time.

BLOCK_M queries are in registers, and all negatives pass by them twice, one row at a time: for the scores, and, once the
losses gave their slopes, for the gradients. Scores, slopes and gradients go through `slope`, `negative_gradient` and
`row_gradient`, which each program has for itself and which stay in the L2 cache. Rows are added to when all rows of the
unit are read, so that its scores and gradients are those before its update.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor

from embtrain.kernels.device.row_updates import add_stored_rows, load_rows, own_units
from embtrain.kernels.device.triples.row_losses import row_slopes
from embtrain.kernels.device.triples.vectors import (
    candidate_gradients,
    project_rows,
    queries,
    query_gradients,
    scores,
)


@triton.jit(do_not_specialize=["n"])    # else it is compiled again for multiples of 16
def update_units(e: tensor, r: tensor, e_acc: tensor, r_acc: tensor, entity: tensor, relation: tensor, slot: tensor,
                 target: tensor, row_weight: tensor, ids: tensor, log_q: tensor, log_q_table: tensor,
                 log_q_target: tensor, weight: tensor, is_masked: tensor, c: tensor, loss: tensor, c_slope: tensor,
                 scores_out: tensor, slope: tensor, negative_gradient: tensor, row_gradient: tensor, n: tensor,
                 e_stride: tensor, r_stride: tensor, lr: tensor, eps: tensor, margin: tensor, temperature: tensor,
                 positive_weight: tensor, log_total: tensor, SHARE: tl.constexpr, K: tl.constexpr, DIM: tl.constexpr,
                 SCORE: tl.constexpr, LOSS: tl.constexpr, CONSTRAINT: tl.constexpr, CORRECTS: tl.constexpr,
                 CORRECTS_TARGET: tl.constexpr, MASKS_TARGET: tl.constexpr, WEIGHT_PER_DRAW: tl.constexpr,
                 BLOCK_M: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_K: tl.constexpr,
                 BLOCK_D: tl.constexpr) -> None:
    """Update by the units of this program. Arrays are those of kernels/device/triples/update.py.

    None: the argument is absent. loss, c_slope (n,): out. scores_out (n, K): out for SHARE 1, or None. Scratch of each
    program: slope (K + 1, SHARE), the targets last; negative_gradient (K, DIM); row_gradient (3, SHARE, DIM): those of
    targets, entities and relations. BLOCK_R queries are evaluated and BLOCK_G rows are updated at a time.
    """
    d, column, m = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_M)
    is_dim = d < DIM
    program = tl.program_id(0).to(tl.int64)
    slope += program * ((K + 1) * SHARE)
    negative_gradient += program * (K * DIM)
    target_gradient = row_gradient + program * (3 * SHARE * DIM)
    entity_gradient = target_gradient + SHARE * DIM
    relation_gradient = entity_gradient + SHARE * DIM
    log_z = 0.0
    if c is not None:
        log_z = tl.load(c)
    first_unit, last_unit = own_units((n + SHARE - 1) // SHARE)
    for unit in range(first_unit, last_unit):
        first, first_id = unit * SHARE, unit * K
        n_rows = tl.minimum(n - first, SHARE)
        for begin in range(0, n_rows, BLOCK_M):
            row = begin + m
            is_row = row < n_rows
            i = first + row
            a = tl.load(entity + i, mask=is_row, other=0)
            t = tl.load(target + i, mask=is_row, other=0)
            relation_id = tl.load(relation + i, mask=is_row, other=0)
            sign = 1.0 - 2.0 * tl.load(slot + i, mask=is_row, other=0).to(tl.float32)
            q = queries(load_rows(e, e_stride, a, is_row, d, DIM),
                        load_rows(r, r_stride, relation_id, is_row, d, DIM), sign, SCORE)      # (M, D)
            s_t = scores(q, load_rows(e, e_stride, t, is_row, d, DIM), SCORE)
            tl.store(slope + K * SHARE + row, s_t, mask=is_row)
            b = _negative(e, e_stride, ids + first_id, d, DIM)                                 # (D,)
            for k in range(K):
                next_b = _negative(e, e_stride, ids + first_id + tl.minimum(k + 1, K - 1), d, DIM)
                s = scores(q, b[None, :], SCORE)
                tl.store(slope + k * SHARE + row, s, mask=is_row)
                if scores_out is not None:
                    tl.store(scores_out + i * K + k, s, mask=is_row)
                b = next_b
            tl.debug_barrier()                                                # all scores are written
            for part in range(begin, tl.minimum(begin + BLOCK_M, n_rows), BLOCK_R):
                _evaluate(part + tl.arange(0, BLOCK_R), n_rows, first, unit, column, target, row_weight, ids, log_q,
                          log_q_table, log_q_target, weight, is_masked, log_z, loss, c_slope, slope, margin,
                          temperature, positive_weight, log_total, SHARE, K, LOSS, CORRECTS, CORRECTS_TARGET,
                          MASKS_TARGET, WEIGHT_PER_DRAW)
            tl.debug_barrier()                                                # all slopes are written
            g_t = tl.load(slope + K * SHARE + row, mask=is_row, other=0.0)
            rows_t = load_rows(e, e_stride, t, is_row, d, DIM)
            of_target = candidate_gradients(g_t, q, rows_t, SCORE)
            place = row[:, None] * DIM + d[None, :]
            is_place = is_row[:, None] & is_dim[None, :]
            tl.store(target_gradient + place, of_target, mask=is_place)
            dq = query_gradients(of_target, g_t, rows_t, SCORE)
            b = _negative(e, e_stride, ids + first_id, d, DIM)
            for k in range(K):
                next_b = _negative(e, e_stride, ids + first_id + tl.minimum(k + 1, K - 1), d, DIM)
                g = tl.load(slope + k * SHARE + row, mask=is_row, other=0.0)
                of_negative = candidate_gradients(g, q, b[None, :], SCORE)
                dq += query_gradients(of_negative, g, b[None, :], SCORE)
                total = tl.sum(of_negative, axis=0)
                if SHARE > BLOCK_M:
                    total += tl.load(negative_gradient + k * DIM + d, mask=is_dim & (begin > 0), other=0.0)
                tl.store(negative_gradient + k * DIM + d, total, mask=is_dim)
                b = next_b
            if SCORE == "dot":
                rows_a = load_rows(e, e_stride, a, is_row, d, DIM)
                rows_r = load_rows(r, r_stride, relation_id, is_row, d, DIM)
                tl.store(entity_gradient + place, dq * rows_r, mask=is_place)
                tl.store(relation_gradient + place, dq * rows_a, mask=is_place)
            else:
                tl.store(entity_gradient + place, dq, mask=is_place)
                tl.store(relation_gradient + place, sign[:, None] * dq, mask=is_place)
        tl.debug_barrier()                                                    # all rows are read
        add_stored_rows(e, e_stride, e_acc, target + first, target_gradient, n_rows, d, lr, eps, DIM, BLOCK_G)
        add_stored_rows(e, e_stride, e_acc, ids + first_id, negative_gradient, K, d, lr, eps, DIM, BLOCK_G)
        add_stored_rows(e, e_stride, e_acc, entity + first, entity_gradient, n_rows, d, lr, eps, DIM, BLOCK_G)
        add_stored_rows(r, r_stride, r_acc, relation + first, relation_gradient, n_rows, d, lr, eps, DIM, BLOCK_G)
        tl.debug_barrier()                                                    # the next unit writes to the scratch
        if CONSTRAINT != "free":
            _project(e, e_stride, target + first, n_rows, d, DIM, CONSTRAINT, BLOCK_G)
            _project(e, e_stride, ids + first_id, K, d, DIM, CONSTRAINT, BLOCK_G)
            _project(e, e_stride, entity + first, n_rows, d, DIM, CONSTRAINT, BLOCK_G)
            tl.debug_barrier()


@triton.jit
def _negative(table: tensor, stride: tensor, place: tensor, d: tensor, DIM: tl.constexpr) -> tensor:
    """Read the row whose id is at `place`, (D,). The loops read one row ahead, so that they do not wait for it."""
    return tl.load(table + tl.load(place) * stride + d, mask=d < DIM, other=0.0, cache_modifier=".cg")


@triton.jit
def _evaluate(row: tensor, n_rows: tensor, first: tensor, unit: tensor, column: tensor, target: tensor,
              row_weight: tensor, ids: tensor, log_q: tensor, log_q_table: tensor, log_q_target: tensor,
              weight: tensor, is_masked: tensor, log_z: tensor, loss: tensor, c_slope: tensor, slope: tensor,
              margin: tensor, temperature: tensor, positive_weight: tensor, log_total: tensor, SHARE: tl.constexpr,
              K: tl.constexpr, LOSS: tl.constexpr, CORRECTS: tl.constexpr, CORRECTS_TARGET: tl.constexpr,
              MASKS_TARGET: tl.constexpr, WEIGHT_PER_DRAW: tl.constexpr) -> None:
    """Replace the scores of some queries of a unit in `slope` by their slopes; write their losses."""
    is_row, is_column = row < n_rows, column < K
    i, draw_place = first + row, unit * K + column
    is_cell = is_row[:, None] & is_column[None, :]
    cell = column[None, :] * SHARE + row[:, None]
    s = tl.load(slope + cell, mask=is_cell, other=0.0)
    s_t = tl.load(slope + K * SHARE + row, mask=is_row, other=0.0)
    drawn = tl.load(ids + draw_place, mask=is_column, other=0)
    t = tl.load(target + i, mask=is_row, other=0)
    weights = tl.where(is_column, 1.0, 0.0)
    if weight is not None:
        weights = tl.load(weight + (draw_place if WEIGHT_PER_DRAW else column), mask=is_column, other=0.0)
    is_kept = is_cell & (weights != 0.0)[None, :]
    if MASKS_TARGET:
        is_kept = is_kept & (drawn[None, :] != t[:, None])
    if is_masked is not None:
        is_kept = is_kept & (tl.load(is_masked + i[:, None] * K + column[None, :], mask=is_cell, other=1) == 0)
    shift_t, shift = 0.0 * s_t, 0.0 * weights
    if CORRECTS:
        if log_q is not None:
            shift = log_z + log_total + tl.load(log_q + draw_place, mask=is_column, other=0.0)
        else:
            shift = log_z + log_total + tl.load(log_q_table + drawn, mask=is_column, other=0.0)
    if CORRECTS_TARGET:
        if log_q_target is not None:
            shift_t = log_z + log_total + tl.load(log_q_target + i, mask=is_row, other=0.0)
        else:
            shift_t = log_z + log_total + tl.load(log_q_table + t, mask=is_row, other=0.0)
    cost, g_t, g = row_slopes(s_t, s, shift_t, shift[None, :], weights[None, :], is_kept, is_row, margin, temperature,
                              positive_weight, LOSS)
    if row_weight is not None:
        factor = tl.load(row_weight + i, mask=is_row, other=0.0)
        cost, g_t, g = factor * cost, factor * g_t, factor[:, None] * g
    tl.store(loss + i, cost, mask=is_row)
    if c_slope is not None:
        tl.store(c_slope + i, -g_t - tl.sum(g, axis=1), mask=is_row)
    tl.store(slope + K * SHARE + row, g_t, mask=is_row)
    tl.store(slope + cell, g, mask=is_cell)


@triton.jit
def _project(table: tensor, stride: tensor, ids: tensor, n: tensor, d: tensor, DIM: tl.constexpr,
             CONSTRAINT: tl.constexpr, BLOCK_G: tl.constexpr) -> None:
    """Project the rows ids (n,) onto the constraint."""
    for begin in range(0, n, BLOCK_G):
        row = begin + tl.arange(0, BLOCK_G)
        is_row = row < n
        project_rows(table, stride, tl.load(ids + row, mask=is_row, other=0), is_row, d, DIM, CONSTRAINT)
