"""Arguments of the kernels that draw negatives: the request, its output buffers, and the split over threads.

Arrays may be NumPy arrays or `BufferView`s of tensors. A view is turned into an array only if it is split over threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from embtrain.kernels.core.binding import (
    BufferView,
    address,
    as_array,
    check_array,
    check_range,
    parallel_for,
    pointer,
)

A = TypeVar("A", bound=np.ndarray | BufferView)


@dataclass(eq=False)  # not frozen: one is created per draw, and frozen dataclasses are slower to construct
class DrawRequest(Generic[A]):
    """G draws for Q queries, and the B targets of the rows."""

    h: A                   # (Q, d) float32
    draw_query: A | None   # (G,) int64   the query of each draw; None: G = Q, one draw per query
    row_query: A | None    # (B,) int64   the query of each row; None: B = Q
    target: A              # (B,) int64
    tau: float = 0.0       # if positive, τ h / ‖h‖ replaces h

    @property
    def draws(self) -> int:
        """G, the number of draws."""
        return len(self.h if self.draw_query is None else self.draw_query)

    def check(self, name: str, dim: int, k: int, exclude: bool, seeds: tuple[int, int], first: int) -> None:
        """Raise TypeError or ValueError if shapes, types or numbers do not fit. `name` begins the message."""
        q, b = len(self.h), len(self.target)
        check_array(f"{name}: h", self.h, np.float32, (q, dim))
        check_array(f"{name}: target", self.target, np.int64, (b,))
        if self.draw_query is not None:
            check_array(f"{name}: draw_query", self.draw_query, np.int64, (len(self.draw_query),))
        if self.row_query is not None:
            check_array(f"{name}: row_query", self.row_query, np.int64, (b,))
        elif b != q:
            raise ValueError(f"{name}: {q} queries for {b} rows; pass row_query")
        if exclude and self.draws != b:
            raise ValueError(f"{name}: {self.draws} draws cannot exclude {b} targets; pass one target per draw")
        if k < 1 or not 0 <= min(seeds) <= max(seeds) < 2 ** 64 or first < 0:
            raise ValueError(f"{name}: {k} draws from seeds {seeds}, starting at number {first}: out of range")

    def fill(self, task: Any, k: int, exclude: bool, seeds: tuple[int, int], first: int) -> None:
        """Fill the fields that the C++ structs of all draws share."""
        task.h, task.target = address(self.h), address(self.target)
        task.draw_query, task.row_query = address(self.draw_query), address(self.row_query)
        task.n_queries, task.draws, task.k, task.rows = len(self.h), self.draws, k, len(self.target)
        task.exclude, task.first, task.tau = exclude, first, self.tau
        task.seed, task.seed_inside = seeds

    def check_ids(self, name: str, candidates: int) -> None:
        """Raise ValueError if an id is out of range. For the reference; the core checks its own input."""
        for x, below in ((self.draw_query, len(self.h)), (self.row_query, len(self.h)), (self.target, candidates)):
            check_range(name, as_array(x), 0, below)

    def with_query_ids(self) -> Self:
        """The same request in arrays, with explicit query ids."""
        arrays: Any = type(self)(*map(as_array, vars(self).values()))
        every = np.arange(len(self.h))
        request: Self = replace(arrays, draw_query=every if arrays.draw_query is None else arrays.draw_query,
                                row_query=every if arrays.row_query is None else arrays.row_query)
        return request

    def subset(self, begin: int, end: int) -> Self:
        """Draws begin..end, with their targets if each draw has one; else the first subset gets all targets."""
        arrays: Any = self.with_query_ids()
        rows = slice(begin, end) if self.draws == len(self.target) else slice(0, 0 if begin else None)
        request: Self = replace(arrays, draw_query=arrays.draw_query[begin:end], row_query=arrays.row_query[rows],
                                target=arrays.target[rows])
        return request


class DrawOutput:
    """Buffers: ids (G, k) int64, their log q (G, k) and the log q of the targets (B,) float32. Checked once."""

    def __init__(self, ids: np.ndarray | BufferView, log_q: np.ndarray | BufferView,
                 log_target: np.ndarray | BufferView):
        shape = *ids.shape, *log_target.shape
        _check_buffers(ids, log_q, log_target, shape[:2], shape[2:])
        self._set(ids, log_q, log_target)

    def _set(self, ids: np.ndarray | BufferView, log_q: np.ndarray | BufferView,
             log_target: np.ndarray | BufferView) -> None:
        self.buffers = ids, log_q, log_target
        self.shape = *ids.shape, *log_target.shape
        self.pointers = pointer(ids), pointer(log_q), pointer(log_target)

    @classmethod
    def stack(cls, ids: BufferView, log_q: BufferView, log_target: BufferView) -> list[DrawOutput]:
        """P outputs that share three buffers: (P, G, k) int64, (P, G, k) and (P, B) float32."""
        n_outputs, n, k = ids.shape
        _check_buffers(ids, log_q, log_target, (n_outputs, n, k), (n_outputs, *log_target.shape[1:]))
        outputs = []
        for views in zip(*map(_split, (ids, log_q, log_target)), strict=True):
            outputs.append(output := cls.__new__(cls))
            output._set(*views)
        return outputs

    @classmethod
    def empty(cls, n: int, k: int, rows: int) -> DrawOutput:
        """Uninitialized buffers for n draws of k candidates and the targets of `rows` rows."""
        return cls(np.empty((n, k), np.int64), np.empty((n, k), np.float32), np.empty(rows, np.float32))

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids, their log q, and the log q of the targets."""
        ids, log_q, log_target = map(as_array, self.buffers)
        return ids, log_q, log_target

    def run(self, name: str, request: DrawRequest[Any], rows: int, draw: Callable[[Any, int, DrawOutput], None],
            threads: int) -> None:
        """Call draw(request, number of its first draw, output) on `threads` subsets of the draws."""
        n, _, n_targets = self.shape
        if (n, n_targets) != (request.draws, rows):
            raise ValueError(f"{name}: the output has room for {n} draws and {n_targets} targets, the request has "
                             f"{request.draws} draws and {len(request.target)} targets")
        if threads <= 1:
            draw(request, 0, self)
            return
        ids, log_q, log_target = self.arrays()

        def draw_subset(begin: int, end: int) -> None:
            targets = log_target[begin:end] if n == n_targets else log_target
            draw(request.subset(begin, end), begin, DrawOutput(ids[begin:end], log_q[begin:end], targets))

        parallel_for(draw_subset, n, threads)


def _check_buffers(ids: np.ndarray | BufferView, log_q: np.ndarray | BufferView, log_target: np.ndarray | BufferView,
                   draw_shape: tuple[int, ...], target_shape: tuple[int, ...]) -> None:
    check_array("draws: ids", ids, np.int64, draw_shape)
    check_array("draws: log_q", log_q, np.float32, draw_shape)
    check_array("draws: log_target", log_target, np.float32, target_shape)


def _split(view: BufferView) -> list[BufferView]:
    """The views along the first axis."""
    nbytes = np.dtype(view.dtype).itemsize * math.prod(view.shape[1:])
    return [BufferView(view.pointer + i * nbytes, view.dtype, view.shape[1:], view.owner) for i in range(len(view))]
