"""The skip-gram update: scores, loss, gradients and updated rows in one pass over the windows.

    s(a,b) = u_a · v_b      v_b -= lr (∂L/∂s_ab) u_a      u_a -= lr Σ_b (∂L/∂s_ab) v_b

for the losses of embtrain/losses. The ids of the negatives are given in one of three layouts: each pair has its own K
negatives (PAIR, share 0), the pairs of a window share K (CENTRE, share 1), n windows share K (BLOCK, share n).

u_a is a row of u, or pooled from several rows (RowPool): of a word and of its character n-grams, or of the words of a
context. There may be more pools than rows.

A unit is one window, or the windows of one block. Scores and gradients are evaluated before the unit. If a row occurs
in it more than once, its gradients are summed. A unit is therefore equivalent to a torch step on a batch of these
pairs.

Units are processed in order, and the result for one thread is deterministic. With more threads each takes a range of
units, and rows are updated without locks (Hogwild): concurrent changes of a row are added, up to lost writes. Under
PAIR and CENTRE each thread has its own copies of the first rows of v, the most frequent words. It adds its changes to
the table when all threads together have used a row 128 times, or it 16 times, and at the end.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np

from embtrain.kernels.arguments.updates import RowPool, SkipGramLossSpec, Windows
from embtrain.kernels.core.binding import address, check_array, fields
from embtrain.kernels.core.loader import core, prefetches_near
from embtrain.kernels.core.tables import (
    LOSSES as SHARED_LOSSES,
    NegativeBatch,
    Table,
    UpdateResult,
    describe_out_of_range,
    expect_correction,
    expect_negatives,
    expect_table,
    range_kernel,
    reference_result,
    run_ranges,
)
from embtrain.kernels.reference.training import skipgram as reference
from embtrain.kernels.reference.training.rows import EPS

__all__ = ["RowPool", "SkipGramLossSpec", "Windows", "update"]

LOSSES = {**SHARED_LOSSES, "alpha_nce": len(SHARED_LOSSES)}  # enum Loss of the source


class _SkipGramTask(ctypes.Structure):
    """struct SkipGramTask of source/training/skipgram/skipgram.h."""

    _fields_ = fields(
        "u v u_acc v_acc centre start target ids log_q log_q_table log_q_target weight false_negatives c scores "
        "pool_start pool_row",
        "n_u n_v u_stride v_stride dim n_windows n_pairs n_draws k share weight_stride n_false_negatives c_stride "
        "mask_target loss ranking centered threads n_words n_pool_rows pool_mean prefetch_near",
        "margin positive_weight alpha total_weight lr eps")


def update(u: Table, v: Table, windows: Windows, negatives: NegativeBatch, loss_spec: SkipGramLossSpec, lr: float,
           threads: int = 1, keep_scores: bool = False, pool: RowPool | None = None) -> UpdateResult:
    """Update u and v in one pass over the windows. pool: of centres; None: each centre is a row of u.

    IndexError and ValueError before anything is written.
    """
    _check(u, v, windows, negatives, loss_spec, pool)
    if (lib := core()) is None:
        return reference_result(*reference.update(u, v, windows, negatives, loss_spec, lr, pool), keep_scores)
    scores = np.zeros(negatives.ids.shape, np.float32) if keep_scores else None
    task = _task(u, v, windows, negatives, loss_spec, lr, scores, pool)
    if lib.embtrain_skipgram_check(ctypes.byref(task)) != 0:
        raise IndexError(_describe_out_of_range(u, v, windows, negatives, pool))
    ranges = _ranges(windows.start, max(1, negatives.share), threads)
    task.threads = len(ranges)
    loss, c_grad = run_ranges(range_kernel(lib.embtrain_skipgram_update, task), ranges, loss_spec.c)
    return UpdateResult(loss, scores, c_grad)


def _ranges(start: np.ndarray, unit: int, threads: int) -> list[tuple[int, int]]:
    """Split the windows into ranges of whole units with nearly equal numbers of pairs."""
    n = len(start) - 1
    if threads <= 1 or n <= unit:
        return [(0, n)] if n else []
    cuts = np.searchsorted(start, np.linspace(0, int(start[-1]), threads + 1)[1:-1])
    edges = [0, *(int(c) // unit * unit for c in cuts), n]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def _task(u: Table, v: Table, windows: Windows, negatives: NegativeBatch, loss_spec: SkipGramLossSpec, lr: float,
          scores: np.ndarray | None, pool: RowPool | None) -> _SkipGramTask:
    arrays = (u.x, v.x, u.acc, v.acc, *windows, negatives.ids, negatives.log_q, negatives.log_q_table,
              negatives.log_q_target, negatives.weight, negatives.false_negatives, loss_spec.c, scores,
              *((None, None) if pool is None else pool[:2]))
    return _SkipGramTask(
        *map(address, arrays), len(u.x), len(v.x), u.x.strides[0] // 4, v.x.strides[0] // 4, u.x.shape[1],
        len(windows.centre), len(windows.target), *negatives.numbers,
        1 if loss_spec.c is not None and loss_spec.c.ndim else 0, negatives.mask_target, LOSSES[loss_spec.loss],
        loss_spec.ranking, loss_spec.centered, 1, _n_words(u, pool), 0 if pool is None else len(pool.row),
        pool is not None and pool.mean, prefetches_near(), loss_spec.margin, loss_spec.positive_weight, loss_spec.alpha,
        negatives.total_weight, lr, EPS)


def _n_words(u: Table, pool: RowPool | None) -> int:
    return len(u.x) if pool is None else len(pool.start) - 1


def _check(u: Table, v: Table, windows: Windows, negatives: NegativeBatch, loss_spec: SkipGramLossSpec,
           pool: RowPool | None) -> None:
    """Raise ValueError unless shapes, types and layouts fit. Without the core also IndexError for ids."""
    expect_table("u", u, padded=False)
    expect_table("v", v, padded=False)
    if u.x.shape[1] != v.x.shape[1] or (u.acc is None) != (v.acc is None):
        raise ValueError("u and v differ in dimension or optimizer")
    n, pairs = len(windows.centre), len(windows.target)
    check_array("centre", windows.centre, np.int64, (n,))
    check_array("target", windows.target, np.int64, (pairs,))
    check_array("start", windows.start, np.int64, (n + 1,))
    if pool is not None:
        check_array("pool.row", pool.row, np.int64, pool.row.shape[:1])
        check_array("pool.start", pool.start, np.int64, pool.start.shape[:1])
        if len(pool.start) < 1:
            raise ValueError("pool.start: an offset or more expected, got none")
    expect_negatives(negatives, pairs, n, len(v.x))
    if loss_spec.c is not None:
        check_array("c", loss_spec.c, np.float32, () if loss_spec.c.ndim == 0 else (_n_words(u, pool),))
    if loss_spec.loss not in LOSSES or (loss_spec.c is not None and loss_spec.loss != "nce"):
        raise ValueError(f"loss: unknown loss {loss_spec.loss!r}, or a log Z without NCE")
    expect_correction(loss_spec, negatives)
    if core() is None and (problem := _describe_out_of_range(u, v, windows, negatives, pool)):
        raise IndexError(problem)


def _describe_out_of_range(u: Table, v: Table, windows: Windows, negatives: NegativeBatch, pool: RowPool | None) -> str:
    """Describe the first id or offset that is out of range; empty if there is none."""
    start = windows.start
    if start[0] != 0 or start[-1] != len(windows.target) or (np.diff(start) < 1).any():
        return f"start: offsets must rise from 0 to {len(windows.target)}, without empty windows"
    ids = {"centre": (windows.centre, _n_words(u, pool)), "target": (windows.target, len(v.x)),
           "ids": (negatives.ids, len(v.x))}
    if problem := describe_out_of_range(ids, negatives, len(windows.target)):
        return problem
    return "" if pool is None else _describe_pool(pool, windows.centre, len(u.x))


def _describe_pool(pool: RowPool, centre: np.ndarray, n_rows: int) -> str:
    """Describe the first centre whose rows are out of range; empty if there is none."""
    begin, end = pool.start[centre], pool.start[centre + 1]
    if ((begin < 0) | (begin >= end) | (end > len(pool.row))).any():
        return f"pool.start: every centre needs one row or more, at offsets from 0 to {len(pool.row)}"
    rows = np.concatenate([pool.row[:0], *(pool.row[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True))])
    if rows.size and not 0 <= rows.min() <= rows.max() < n_rows:
        return f"pool.row: rows from {rows.min()} to {rows.max()}, allowed are 0 to {n_rows - 1}"
    return ""
