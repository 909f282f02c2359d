"""What the updates of tables share: tables, columns and what is told of them; checks; one pass in parts."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

MOST = 2**31 - 1  # rows of a table
LINE = 16         # floats of a line of the cache
HUGE = 1 << 21    # bytes of a huge page
LOSSES = {"logistic": 0, "nce": 1, "sampled_softmax": 2, "margin": 3}


class Table(NamedTuple):
    """Rows that are updated in place. Padded to 16 floats and aligned to 64 bytes they are fastest."""

    x: np.ndarray                 # (n, D) float32, a row's elements contiguous, rows any distance apart
    acc: np.ndarray | None = None # (n,) float32: row-Adagrad, acc += mean_d g_d², x -= lr g / (√acc + eps); None: SGD


class Columns(NamedTuple):
    ids: np.ndarray                         # (G, K) int64; what P and C are, the update says
    share: int                              # 0: G = P; n: n consecutive units share a draw, G = ceil(C / n)
    log_q: np.ndarray | None = None         # (G, K) float32, or
    log_q_of: np.ndarray | None = None      # (V,) float32, looked up here
    log_q_target: np.ndarray | None = None  # (P,) float32; None: looked up in log_q_of
    weight: np.ndarray | None = None        # (K,) or (G, K) float32; 0: a probe, scored and not trained on; None: 1
    mass: float = 1.0                       # noise mass per positive
    forgive_target: bool = False            # a column that equals a pair's target is left out for that pair
    right: np.ndarray | None = None         # (2, N) int64 (pair, column), sorted by pair: left out as well

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """n_draws, k, share, weight_stride and n_right, as the structs of the core have them."""
        g, k = self.ids.shape
        own = self.weight is not None and self.weight.ndim == 2
        return g, k, self.share, k if own else 0, 0 if self.right is None else self.right.shape[1]


class Told(NamedTuple):
    loss: float                 # summed over the pairs
    scores: np.ndarray | None   # (G, K) float32: each column's s before its unit's update, or their mean over a block
    c_grad: np.ndarray | None   # float64, of the shape of c: ∂L/∂c


class Corrected(Protocol):
    """The part of a rule that says whether the draw is corrected for."""

    @property
    def loss(self) -> str: ...
    @property
    def ranking(self) -> bool: ...


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


def on_huge_pages(n: int, dtype: type[np.generic] = np.float32) -> np.ndarray:
    """n zeros, on huge pages where the system has any and one would be filled. In a mapping of their own: of less than
    32 MB, what malloc hands out has often been used before, and then lies on the small pages of that time."""
    size = n * np.dtype(dtype).itemsize
    if size < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(n, dtype)
    try:
        room = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes: {error}") from None
    with suppress(OSError):                                                      # a system that was built without
        room.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(room, np.uint8)
    begin = -whole.ctypes.data % HUGE
    return whole[begin:begin + size].view(dtype)


Pass = Callable[[int, int, ctypes.c_double, int | None], int]  # first, last, sum of the loss, address of ∂L/∂c


def passes(run: Callable[..., int], task: ctypes.Structure) -> Pass:
    """A function of the core that takes a task, a range and where its sums go."""
    def call(first: int, last: int, total: ctypes.c_double, into: int | None) -> int:
        return int(run(ctypes.byref(task), ctypes.c_int64(first), ctypes.c_int64(last), ctypes.byref(total),
                       ctypes.c_void_p(into)))
    return call


def in_parts(call: Pass, ranges: Sequence[tuple[int, int]],
             c: np.ndarray | None = None) -> tuple[float, np.ndarray | None]:
    """`call(first, last, loss, address of ∂L/∂c)` on every range, each on a thread of its own; the sums of loss and
    ∂L/∂c."""
    shape = () if c is None else c.shape
    losses, c_grads = [ctypes.c_double(0.0) for _ in ranges], [np.zeros(shape) for _ in ranges]

    def part(i: int) -> int:
        return call(*ranges[i], losses[i], None if c is None else c_grads[i].ctypes.data)

    n = len(ranges)
    if any([part(i) for i in range(n)] if n < 2 else workers(n).map(part, range(n))):
        raise MemoryError("the update has no memory for its scratch")
    return sum(x.value for x in losses), None if c is None else np.asarray(sum(c_grads, np.zeros(shape)))


def ranges(n: int, unit: int, threads: int) -> list[tuple[int, int]]:
    """Ranges of n rows, of whole units and about equally many, one for each thread that gets any."""
    units, threads = -(-n // unit), max(1, threads)
    edges = [min(n, units * i // threads * unit) for i in range(threads)] + [n]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def workers(n: int) -> ThreadPoolExecutor:
    """A pool of n threads; a fork's child makes its own."""
    if not _pool or _pool[0][0] != os.getpid() or _pool[0][1]._max_workers < n:
        _pool[:] = [(os.getpid(), ThreadPoolExecutor(n, "embtrain"))]
    return _pool[0][1]


def address(x: np.ndarray | None) -> int | None:
    return None if x is None or x.size == 0 else x.ctypes.data


def expect(name: str, x: np.ndarray | None, dtype: type, shape: tuple[int, ...]) -> None:
    if x is not None and (x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous):
        raise ValueError(f"{name}: {np.dtype(dtype).name} {shape} is wanted, got {x.dtype} {x.shape}"
                         f"{'' if x.flags.c_contiguous else ', not contiguous'}")


def expect_table(name: str, table: Table, padded: bool) -> None:
    """`padded`: the kernel reads whole lines of a row, and what lies behind its D floats must be zeros."""
    x, acc = table
    unit = LINE if padded else 1
    if x.dtype != np.float32 or x.ndim != 2 or not x.flags.writeable or x.shape[1] < 1 or len(x) > MOST \
            or (x.size and x.strides[1] != 4) or x.strides[0] % (4 * unit) or x.strides[0] < 4 * x.shape[1]:
        what = f", padded with zeros to a multiple of {LINE}," if padded else ""
        raise ValueError(f"{name}: rows of a writeable float32 table{what} are wanted, got {x.dtype} {x.shape}, "
                         f"{x.strides[0] if x.ndim else 0} bytes a row")
    expect(f"{name}.acc", acc, np.float32, (len(x),))


def expect_columns(columns: Columns, rows: int, units: int, v: int) -> None:
    """Shapes and types for P rows, C units that may share a draw, and V candidates."""
    if columns.ids.ndim != 2 or columns.share < 0:
        raise ValueError(f"columns: ids (G, K) and share >= 0 are wanted, got {columns.ids.shape}, {columns.share}")
    g, k = columns.ids.shape
    if g != (rows if columns.share == 0 else -(-units // columns.share)):
        raise ValueError(f"columns: {g} draws do not fit {units} units of {rows} rows under share {columns.share}")
    expect("ids", columns.ids, np.int64, (g, k))
    expect("log_q", columns.log_q, np.float32, (g, k))
    expect("log_q_of", columns.log_q_of, np.float32, (v,))
    expect("log_q_target", columns.log_q_target, np.float32, (rows,))
    if columns.weight is not None:
        expect("weight", columns.weight, np.float32, (k,) if columns.weight.ndim == 1 else (g, k))
    if columns.right is not None:
        expect("right", columns.right, np.int64, (2, columns.right.shape[-1]))


def corrects(rule: Corrected) -> bool:
    """Whether log(mass·q) is subtracted."""
    return rule.loss == "nce" or (rule.loss == "sampled_softmax" and not rule.ranking)


def expect_correction(rule: Corrected, columns: Columns) -> None:
    """What a rule wants to know of the draw."""
    if corrects(rule) and not columns.mass > 0:
        raise ValueError(f"columns: the mass must be positive, got {columns.mass}")
    if rule.loss in ("nce", "sampled_softmax") and columns.log_q is None and columns.log_q_of is None:
        raise ValueError(f"rule: {rule.loss} corrects for the draw, and the columns have no log q")
    if (rule.loss == "nce" or rule.ranking) and columns.log_q_target is None and columns.log_q_of is None:
        raise ValueError(f"rule: {rule.loss} needs the target's log q")


def outside(ids: Mapping[str, tuple[np.ndarray, int]], columns: Columns, rows: int) -> str:
    """Which of the ids, each with its bound, or of the right answers is out of range, in words; empty where none is."""
    for name, (of, n) in ids.items():
        if of.size and not 0 <= of.min() <= of.max() < n:
            return f"{name}: ids from {of.min()} to {of.max()}, and there are {n}"
    right, k = columns.right, columns.ids.shape[1]
    if right is not None and right.size:
        row, column = right
        if row[0] < 0 or row[-1] >= rows or (np.diff(row) < 0).any() or column.min() < 0 or column.max() >= k:
            return "right: (row, column) within range and sorted by row are wanted"
    return ""
