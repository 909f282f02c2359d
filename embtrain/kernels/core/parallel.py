"""Parallel loops over ranges of a batch. The compiled functions release the GIL, so Python threads suffice."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

# A compiled update of a range: first, last, the sum of the loss, the address of ∂L/∂c.
RangeKernel = Callable[[int, int, ctypes.c_double, int | None], int]

_pool: list[tuple[int, ThreadPoolExecutor]] = []  # (process id, pool); created at the first use, one per process


def parallel_for(part: Callable[[int, int], None], n: int, parts: int) -> None:
    """Call part(begin, end) on `parts` ranges that cover 0..n, each range on its own thread."""
    if parts <= 1:
        part(0, n)
        return
    cuts = [n * i // parts for i in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(part, cuts[:-1], cuts[1:]))


def range_kernel(run: Callable[..., int], task: ctypes.Structure) -> RangeKernel:
    """Bind a compiled function (task, first, last, loss, ∂L/∂c) to its task."""
    def call(first: int, last: int, total: ctypes.c_double, c_grad_pointer: int | None) -> int:
        return int(run(ctypes.byref(task), ctypes.c_int64(first), ctypes.c_int64(last), ctypes.byref(total),
                       ctypes.c_void_p(c_grad_pointer)))
    return call


def run_ranges(call: RangeKernel, ranges: Sequence[tuple[int, int]],
               c: np.ndarray | None = None) -> tuple[float, np.ndarray | None]:
    """Run an update on every range, each on its own thread. Returns the sums of the loss and of ∂L/∂c.

    The pool is kept between calls, because an update of a small batch takes about as long as starting a thread.
    """
    shape = () if c is None else c.shape
    losses, c_grads = [ctypes.c_double(0.0) for _ in ranges], [np.zeros(shape) for _ in ranges]

    def part(i: int) -> int:
        return call(*ranges[i], losses[i], None if c is None else c_grads[i].ctypes.data)

    n = len(ranges)
    if any([part(i) for i in range(n)] if n < 2 else workers(n).map(part, range(n))):
        raise MemoryError("the update has no memory for its scratch buffers")
    return sum(x.value for x in losses), None if c is None else np.asarray(sum(c_grads, np.zeros(shape)))


def split_ranges(n: int, unit: int, threads: int) -> list[tuple[int, int]]:
    """Split n rows into at most `threads` ranges of whole units and nearly equal length."""
    units, threads = -(-n // unit), max(1, threads)
    edges = [min(n, units * i // threads * unit) for i in range(threads)] + [n]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def workers(n: int) -> ThreadPoolExecutor:
    """A pool of at least n threads. A forked child creates its own."""
    if not _pool or _pool[0][0] != os.getpid() or _pool[0][1]._max_workers < n:
        _pool[:] = [(os.getpid(), ThreadPoolExecutor(n, "embtrain"))]
    return _pool[0][1]
