"""The binding of the wrappers to the compiled library: arrays, calls, status codes and threads.

A wrapper checks its arrays with `array_arg`, calls a compiled function with `call`, and splits long work over threads
with `parallel_for`. kernels/sampling/int8_rows.py is the shortest example. The compiled functions release the GIL, so
Python threads suffice.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from typing import Any, NoReturn, TypeVar

import numpy as np

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.kernels.core.loader import NO_MEMORY, NOT_FINITE, OK

T = TypeVar("T")
Shape = tuple[int, ...]

CACHE_LINE = 64     # bytes

_EmptyBuffer = ctypes.c_char * 0
_pool: list[tuple[int, ThreadPoolExecutor]] = []  # (process id, pool); created at the first use, one per process


# --- arrays --------------------------------------------------------------------------------------------------------

class BufferView:
    """Pointer, dtype and shape of a contiguous array owned by another object, usually a tensor.

    Cheaper than Tensor.numpy(), which matters for draws that take microseconds.
    """

    __slots__ = ("dtype", "owner", "pointer", "shape")

    def __init__(self, pointer: int, dtype: type, shape: Shape, owner: object):
        self.pointer, self.dtype, self.shape, self.owner = pointer, dtype, shape, owner

    def __len__(self) -> int:
        return self.shape[0]

    def __reduce__(self) -> NoReturn:
        """A copy would point to the memory of the original owner, which may be freed."""
        raise TypeError("a view of memory cannot be copied")

    def array(self) -> np.ndarray:
        """The array, valid as long as this view."""
        buffer = (ctypes.c_char * (math.prod(self.shape) * np.dtype(self.dtype).itemsize)).from_address(self.pointer)
        return np.frombuffer(memoryview(buffer), np.dtype(self.dtype)).reshape(self.shape)


def as_array(x: np.ndarray | BufferView | None) -> Any:
    return x.array() if isinstance(x, BufferView) else x


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A contiguous copy that begins at a cache line: vectors of 64 bytes that cross a line take twice as long to read.
    """
    memory = np.empty(array.nbytes + CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE
    copy = memory[begin:begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def array_arg(name: str, array: np.ndarray | BufferView | None, dtype: type | np.dtype, shape: Shape
              ) -> ctypes.c_void_p:
    """Check an array and return its pointer, null for None. TypeError and ValueError as from `check_array`."""
    if array is not None:
        check_array(name, array, dtype, shape)
    return pointer(array)


def check_array(name: str, array: np.ndarray | BufferView, dtype: type | np.dtype, shape: Shape) -> None:
    """Raise TypeError or ValueError unless the array is contiguous and has this dtype and shape."""
    matches = array.dtype is dtype if isinstance(array,
                                                 BufferView) else array.dtype == dtype and array.flags.c_contiguous
    if not matches:
        got = np.dtype(array.dtype)
        raise TypeError(f"{name} must be a contiguous array of {np.dtype(dtype).name}, got "
                        f"{'one that is not contiguous' if got == dtype else got.name}")
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}")


def check_rows(name: str, table: np.ndarray, shape: Shape | None = None) -> None:
    """Raise TypeError or ValueError unless the array has two axes and contiguous rows of float32, at any distance.

    NumPy may report any stride along an axis of length 1. shape: that of the table, if it is known.
    """
    if table.dtype != np.float32 or table.ndim != 2:
        raise TypeError(f"{name} must have two axes of float32, got {table.ndim} of {table.dtype}")
    (n, dim), (distance, step) = table.shape, table.strides
    if (n and dim > 1 and step != 4) or (n > 1 and (distance < 4 * dim or distance % 4)):
        raise TypeError(f"{name} must have contiguous rows, got strides {table.strides}")
    if shape is not None and table.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {table.shape}")


def check_range(name: str, x: np.ndarray | None, low: int, high: int) -> None:
    """Raise OutOfRange unless low <= x < high. For the reference; the core checks its own input."""
    if x is not None and x.size and not (low <= x.min() and x.max() < high):
        raise out_of_range(name)


def address(array: np.ndarray | BufferView | None) -> int | None:
    """The address of an array; None for None. Reading array.ctypes takes four times as long."""
    if array is None:
        return None
    if isinstance(array, BufferView):
        return array.pointer
    flags = array.flags
    if flags.writeable and flags.c_contiguous:
        return ctypes.addressof(_EmptyBuffer.from_buffer(array.data))
    return int(array.ctypes.data)


def pointer(array: np.ndarray | BufferView | None) -> ctypes.c_void_p:
    """The pointer of an array that needs no check, e.g. of an output; null for None."""
    return ctypes.c_void_p(address(array))


def fields(pointers: str, numbers: str = "", reals: str = "") -> list[tuple[str, type]]:
    """Fields of a C struct, by name: pointers, then int64, then double."""
    return [(name, kind) for names, kind in ((pointers, ctypes.c_void_p), (numbers, ctypes.c_int64),
                                             (reals, ctypes.c_double)) for name in names.split()]


# --- calls ---------------------------------------------------------------------------------------------------------

def call(name: str, function: Callable[..., int], *arguments: Any) -> None:
    """Call a compiled function and raise the error of its status; `name` begins the message.

    An int is passed as int64 or uint64, a float as double, everything else unchanged: pointers, bool and
    ctypes.c_int as int, ctypes.c_float as float, ctypes.byref(...) as a pointer to a struct.
    """
    status = function(*[ctypes.c_int64(x) if type(x) is int else ctypes.c_double(x) if type(x) is float else x
                        for x in arguments])  # in line, because a call per argument takes as long as a small kernel
    if status != OK:
        raise_for_status(name, status)


def raise_for_status(name: str, status: int) -> None:
    """Raise the error for a status code other than OK."""
    if status == NOT_FINITE:
        raise UsageError(f"{key('source')}: vectors are not finite, so nothing can be drawn from them; the training "
                         "has diverged: lower train.lr, or set train.clip")
    if status != OK:
        raise MemoryError(f"{name}: no memory") if status == NO_MEMORY else out_of_range(name)


class OutOfRange(IndexError, ValueError):
    """A number that is passed to a kernel, usually an id, is out of its range."""


def out_of_range(name: str) -> OutOfRange:
    return OutOfRange(f"{name}: a number is out of range")


# --- threads -------------------------------------------------------------------------------------------------------

def parallel_for(part: Callable[[int, int], None], n: int, parts: int) -> None:
    """Call part(begin, end) on `parts` ranges that cover 0..n, each range on its own thread."""
    if parts <= 1:
        part(0, n)
    else:
        parallel_map(part, pairwise(n * i // parts for i in range(parts + 1)))


def parallel_map(part: Callable[[int, int], T], ranges: Iterable[tuple[int, int]]) -> list[T]:
    """Call part(begin, end) on each range, each on its own thread. All have ended when it returns or raises.

    The pool is kept between calls, because an update of a small batch takes about as long as starting a thread. For the
    same reason the last range runs on the calling thread, which does not have to be woken. A part must not start a loop
    of its own.
    """
    ranges = list(ranges)
    if len(ranges) < 2:
        return [part(*both) for both in ranges]
    pool = workers(len(ranges) - 1)
    results = [pool.submit(copy_context().run, part, begin, end) for begin, end in ranges[:-1]]  # keys in messages
    try:
        last = part(*ranges[-1])
        return [*(result.result() for result in results), last]
    finally:
        for result in results:
            result.exception()


def workers(n: int) -> ThreadPoolExecutor:
    """A pool of at least n threads. A forked child creates its own."""
    if not _pool or _pool[0][0] != os.getpid() or _pool[0][1]._max_workers < n:
        _pool[:] = [(os.getpid(), ThreadPoolExecutor(n, "embtrain"))]
    return _pool[0][1]
