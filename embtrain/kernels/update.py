"""The skip-gram update: scores, loss, gradients and moved rows in one pass over the windows.

    s(a,b) = u_a · v_b      v_b -= lr (∂L/∂s_ab) u_a      u_a -= lr Σ_b (∂L/∂s_ab) v_b

for the losses of embtrain/losses, with the columns' ids from outside in three layouts: each pair has its own K columns
(PAIR, share 0), a window's pairs share K (CENTRE, share 1), n windows share K (BLOCK, share n).

A unit is one window, or the windows of one block; an update is one unit after the other. Scores and gradients are those
at the values before the unit; where a row occurs in it more than once, its gradients are summed. So a unit means what a
batch of these pairs means to the torch step. Units depend on those before them, and the result for one thread is
the same every time. With more threads each takes a range of units, and rows are moved without locks (Hogwild): what
meets in one row is added up, up to lost writes.
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from embtrain.kernels.core import core
from embtrain.kernels.reference import update as reference

MOST = 2**31 - 1  # rows of a table


class Table(NamedTuple):
    """Rows that are updated in place. Padded to 16 floats and aligned to 64 bytes they are fastest."""

    x: np.ndarray                 # (n, D) float32, a row's elements contiguous, rows any distance apart
    acc: np.ndarray | None = None # (n,) float32: row-Adagrad, acc += mean_d g_d², x -= lr g / (√acc + eps); None: SGD


class Windows(NamedTuple):
    centre: np.ndarray  # (C,) int64
    start: np.ndarray   # (C+1,) int64  window w has the pairs start[w] .. start[w+1], at least one
    target: np.ndarray  # (P,) int64


class Columns(NamedTuple):
    ids: np.ndarray                         # (G, K) int64
    share: int                              # 0: G = P; n: n consecutive windows share a draw, G = ceil(C / n)
    log_q: np.ndarray | None = None         # (G, K) float32, or
    log_q_of: np.ndarray | None = None      # (V,) float32, looked up here
    log_q_target: np.ndarray | None = None  # (P,) float32; None: looked up in log_q_of
    weight: np.ndarray | None = None        # (K,) or (G, K) float32; 0: a probe, scored and not trained on; None: 1
    mass: float = 1.0                       # noise mass per positive
    forgive_target: bool = False            # a column that equals a pair's target is left out for that pair
    right: np.ndarray | None = None         # (2, N) int64 (pair, column), sorted by pair: left out as well


class Rule(NamedTuple):
    loss: Literal["logistic", "nce", "sampled_softmax", "margin"]
    margin: float = 1.0            # η of the margin loss
    c: np.ndarray | None = None    # () or (n_contexts,) float32: NCE's log Z; None: 0
    ranking: bool = False          # sampled softmax's other form: the target is corrected too

    @property
    def corrects(self) -> bool:
        """Whether log(mass·q) is subtracted."""
        return self.loss == "nce" or (self.loss == "sampled_softmax" and not self.ranking)


class Told(NamedTuple):
    loss: float                 # summed over the pairs
    scores: np.ndarray | None   # (G, K) float32: each column's s before its unit's update; BLOCK: mean over its windows
    c_grad: np.ndarray | None   # float64, of the shape of c: ∂L/∂c


LOSSES = {"logistic": 0, "nce": 1, "sampled_softmax": 2, "margin": 3}


class _Task(ctypes.Structure):
    """struct UpdateTask of source/update.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "u", "v", "u_acc", "v_acc", "centre", "start", "target", "ids", "log_q", "log_q_of", "log_q_target",
            "weight", "right", "c", "scores")),
        *((name, ctypes.c_int64) for name in (
            "n_u", "n_v", "u_stride", "v_stride", "dim", "n_windows", "n_pairs", "n_draws", "k", "share",
            "weight_stride", "n_right", "c_stride", "forgive_target", "loss", "ranking")),
        *((name, ctypes.c_double) for name in ("margin", "mass", "lr", "eps")))


_pool: list[tuple[int, ThreadPoolExecutor]] = []  # made when first needed; one for the process


def zeros(n: int, dim: int) -> np.ndarray:
    """n rows of zeros, (n, dim), where the update is fastest: rows begin at lines of the cache, and large tables lie on
    huge pages, which NumPy asks the system for and torch does not. Rows are read at random, and to look up which small
    page one is on takes about as long as to read it."""
    stride = -(-dim // 16) * 16
    page = 1 << 19 if n * stride >= 1 << 22 else 16                              # in floats: 2 MiB, or a line
    room = np.zeros(n * stride + page, np.float32)
    begin = -room.ctypes.data // 4 % page
    return room[begin:begin + n * stride].reshape(n, stride)[:, :dim]


def update(u: Table, v: Table, windows: Windows, columns: Columns, rule: Rule, lr: float, threads: int = 1,
           keep_scores: bool = False) -> Told:
    """One pass over the windows. IndexError and ValueError before anything is written."""
    _check(u, v, windows, columns, rule)
    if (lib := core()) is None:
        loss, every_score, c_grad = reference.update(u, v, windows, columns, rule, lr)
        return Told(loss, every_score.astype(np.float32) if keep_scores else None, c_grad)
    scores = np.zeros(columns.ids.shape, np.float32) if keep_scores else None
    task = _task(u, v, windows, columns, rule, lr, scores)
    if lib.embtrain_update_check(ctypes.byref(task)) != 0:
        raise IndexError(_outside(u, v, windows, columns))
    ranges = _ranges(windows.start, max(1, columns.share), threads)
    shape = () if rule.c is None else rule.c.shape
    c_grads = [np.zeros(shape) for _ in ranges]
    losses = [ctypes.c_double(0.0) for _ in ranges]

    def part(i: int) -> int:
        first, last = ranges[i]
        into = c_grads[i].ctypes.data if rule.c is not None else None
        return int(lib.embtrain_update(ctypes.byref(task), ctypes.c_int64(first), ctypes.c_int64(last),
                                       ctypes.byref(losses[i]), ctypes.c_void_p(into)))

    ends = [part(i) for i in range(len(ranges))] if len(ranges) < 2 else list(workers(threads).map(
        part, range(len(ranges))))
    if any(ends):
        raise MemoryError("the update has no memory for its scratch")
    return Told(sum(x.value for x in losses), scores,
                np.asarray(sum(c_grads, np.zeros(shape))) if rule.c is not None else None)


def workers(n: int) -> ThreadPoolExecutor:
    """A pool of n threads; a fork's child makes its own."""
    if not _pool or _pool[0][0] != os.getpid() or _pool[0][1]._max_workers < n:
        _pool[:] = [(os.getpid(), ThreadPoolExecutor(n, "embtrain"))]
    return _pool[0][1]


def _ranges(start: np.ndarray, unit: int, threads: int) -> list[tuple[int, int]]:
    """Ranges of windows, of whole units and about equally many pairs."""
    n = len(start) - 1
    if threads <= 1 or n <= unit:
        return [(0, n)] if n else []
    cuts = np.searchsorted(start, np.linspace(0, int(start[-1]), threads + 1)[1:-1])
    edges = [0, *(int(c) // unit * unit for c in cuts), n]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def _task(u: Table, v: Table, windows: Windows, columns: Columns, rule: Rule, lr: float, scores: np.ndarray | None,
          ) -> _Task:
    def at(x: np.ndarray | None) -> int | None:
        return None if x is None or x.size == 0 else x.ctypes.data

    g, k = columns.ids.shape
    weight = columns.weight
    return _Task(
        at(u.x), at(v.x), at(u.acc), at(v.acc), at(windows.centre), at(windows.start), at(windows.target),
        at(columns.ids), at(columns.log_q), at(columns.log_q_of), at(columns.log_q_target), at(weight),
        at(columns.right), at(rule.c), at(scores),
        len(u.x), len(v.x), u.x.strides[0] // 4, v.x.strides[0] // 4, u.x.shape[1], len(windows.centre),
        len(windows.target), g, k, columns.share, k if weight is not None and weight.ndim == 2 else 0,
        0 if columns.right is None else columns.right.shape[1], 1 if rule.c is not None and rule.c.ndim else 0,
        columns.forgive_target, LOSSES[rule.loss], rule.ranking, rule.margin, columns.mass, lr, reference.EPS)


def _check(u: Table, v: Table, windows: Windows, columns: Columns, rule: Rule) -> None:
    """Shapes, types and layouts; ValueError. Without the core the ids too; IndexError."""
    for name, table in (("u", u), ("v", v)):
        x, acc = table
        if x.dtype != np.float32 or x.ndim != 2 or not x.flags.writeable or (x.size and x.strides[1] != 4) \
                or x.strides[0] % 4 or x.strides[0] < 4 * x.shape[1] or len(x) > MOST or x.shape[1] < 1:
            raise ValueError(f"{name}: rows of a writeable float32 table are wanted, got {x.dtype} {x.shape}")
        expect(f"{name}.acc", acc, np.float32, (len(x),))
    if u.x.shape[1] != v.x.shape[1] or (u.acc is None) != (v.acc is None):
        raise ValueError("u and v differ in dimension or optimiser")
    n, pairs = len(windows.centre), len(windows.target)
    if columns.ids.ndim != 2 or columns.share < 0:
        raise ValueError(f"columns: ids (G, K) and share >= 0 are wanted, got {columns.ids.shape}, {columns.share}")
    g, k = columns.ids.shape
    if g != (pairs if columns.share == 0 else -(-n // columns.share)):
        raise ValueError(f"columns: {g} draws do not fit {n} windows of {pairs} pairs under share {columns.share}")
    expect("centre", windows.centre, np.int64, (n,))
    expect("target", windows.target, np.int64, (pairs,))
    expect("start", windows.start, np.int64, (n + 1,))
    expect("ids", columns.ids, np.int64, (g, k))
    expect("log_q", columns.log_q, np.float32, (g, k))
    expect("log_q_of", columns.log_q_of, np.float32, (len(v.x),))
    expect("log_q_target", columns.log_q_target, np.float32, (pairs,))
    if columns.weight is not None:
        expect("weight", columns.weight, np.float32, (k,) if columns.weight.ndim == 1 else (g, k))
    if columns.right is not None:
        expect("right", columns.right, np.int64, (2, columns.right.shape[-1]))
    if rule.c is not None:
        expect("c", rule.c, np.float32, () if rule.c.ndim == 0 else (len(u.x),))
    if rule.loss not in LOSSES or (rule.c is not None and rule.loss != "nce"):
        raise ValueError(f"rule: unknown loss {rule.loss!r}, or a log Z that is not NCE's")
    if rule.corrects and not columns.mass > 0:
        raise ValueError(f"columns: the mass must be positive, got {columns.mass}")
    if rule.loss in ("nce", "sampled_softmax") and columns.log_q is None and columns.log_q_of is None:
        raise ValueError(f"rule: {rule.loss} corrects for the draw, and the columns have no log q")
    if (rule.loss == "nce" or rule.ranking) and columns.log_q_target is None and columns.log_q_of is None:
        raise ValueError(f"rule: {rule.loss} needs the target's log q")
    if core() is None and (bad := _outside(u, v, windows, columns)):
        raise IndexError(bad)


def expect(name: str, x: np.ndarray | None, dtype: type, shape: tuple[int, ...]) -> None:
    if x is not None and (x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous):
        raise ValueError(f"{name}: {np.dtype(dtype).name} {shape} is wanted, got {x.dtype} {x.shape}"
                         f"{'' if x.flags.c_contiguous else ', not contiguous'}")


def _outside(u: Table, v: Table, windows: Windows, columns: Columns) -> str:
    """Which id or offset is out of range, in words; empty where none is."""
    start = windows.start
    if start[0] != 0 or start[-1] != len(windows.target) or (np.diff(start) < 1).any():
        return f"start: offsets rise from 0 to {len(windows.target)} and no window is empty"
    for name, ids, n in (("centre", windows.centre, len(u.x)), ("target", windows.target, len(v.x)),
                         ("ids", columns.ids, len(v.x))):
        if ids.size and not 0 <= ids.min() <= ids.max() < n:
            return f"{name}: ids from {ids.min()} to {ids.max()}, and the table has {n} rows"
    right = columns.right
    if right is not None and right.size:
        row, column = right
        if row[0] < 0 or row[-1] >= len(windows.target) or (np.diff(row) < 0).any() or column.min() < 0 \
                or column.max() >= columns.ids.shape[1]:
            return "right: (pair, column) within range and sorted by pair are wanted"
    return ""
