"""Shared by the training kernels: argument types, validation, aligned allocation and the parallel loop."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from embtrain.kernels.core.binding import check_array, parallel_map

MAX_ROWS = 2**31 - 1  # rows of a table
LINE_FLOATS = 16         # floats of a cache line
HUGE_PAGE_BYTES = 1 << 21    # bytes of a huge page
LOSSES = {"logistic": 0, "nce": 1, "sampled_softmax": 2, "margin": 3, "gbce": 4}


class Table(NamedTuple):
    """Rows that are updated in place. Fastest if padded to 16 floats and aligned to 64 bytes."""

    x: np.ndarray                 # (n, D) float32, contiguous within a row, any distance between rows
    acc: np.ndarray | None = None # (n,) float32: row-Adagrad, acc += mean_d g_d², x -= lr g / (√acc + eps); None: SGD


class NegativeBatch(NamedTuple):
    """G draws of K negatives for P rows, which form C units. Each update defines its rows and its units."""

    ids: np.ndarray                         # (G, K) int64
    share: int                              # units per draw: unit i reads draw i // share; 0: row i reads draw i, G = P
    log_q: np.ndarray | None = None         # (G, K) float32, or
    log_q_table: np.ndarray | None = None   # (V,) float32, looked up by the core
    log_q_target: np.ndarray | None = None  # (P,) float32; None: looked up in log_q_table
    weight: np.ndarray | None = None        # (K,) or (G, K) float32; 0: a probe, scored but not trained on; None: 1
    total_weight: float = 1.0               # weight of the noise per positive, Σ_j w_j before masking
    mask_target: bool = False               # mask negatives that equal the target of a row, for that row
    # (2, N) int64: N masked negatives, their rows in line 0 (ascending) and their columns 0..K-1 in line 1
    false_negatives: np.ndarray | None = None

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """n_draws, k, share, weight_stride and n_false_negatives, as in the structs of the core."""
        g, k = self.ids.shape
        per_draw = self.weight is not None and self.weight.ndim == 2
        n_false_negatives = 0 if self.false_negatives is None else self.false_negatives.shape[1]
        return g, k, self.share, k if per_draw else 0, n_false_negatives


class UpdateResult(NamedTuple):
    loss: float                 # summed over the rows
    # (G, K) float32: the score of each negative before its unit's update, or its mean over a block
    scores: np.ndarray | None
    c_grad: np.ndarray | None   # float64, shape of c: ∂L/∂c


def reference_result(loss: float, scores: np.ndarray, c_grad: np.ndarray | None, keep_scores: bool) -> UpdateResult:
    """Return the result of a reference implementation, in the types of the core."""
    return UpdateResult(loss, scores.astype(np.float32) if keep_scores else None, c_grad)


class CorrectedLoss(Protocol):
    """The part of a loss spec that decides on the correction by log q."""

    @property
    def loss(self) -> str: ...
    @property
    def ranking(self) -> bool: ...


def zeros(n: int, dim: int) -> np.ndarray:
    """Allocate zeros (n, dim) with the fastest layout for updates.

    Rows begin at cache lines, and large tables use huge pages, which NumPy requests from the system and torch does not.
    Rows are accessed at random, where a TLB miss on 4 KB pages costs about as much as the read.
    """
    stride = -(-dim // 16) * 16
    alignment = 1 << 19 if n * stride >= 1 << 22 else 16  # in floats: 2 MiB, or a cache line
    buffer = np.zeros(n * stride + alignment, np.float32)
    offset = -buffer.ctypes.data // 4 % alignment
    return buffer[offset:offset + n * stride].reshape(n, stride)[:, :dim]


def zeros_on_huge_pages(n: int, dtype: type[np.generic] = np.float32) -> np.ndarray:
    """Allocate n zeros on huge pages, if the system has them and at least one is filled.

    Uses its own mapping: for less than 32 MB malloc often returns memory that is already on small pages.
    """
    size = n * np.dtype(dtype).itemsize
    if size < HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(n, dtype)
    try:
        buffer = mmap.mmap(-1, size + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes: {error}") from None
    with suppress(OSError):                                                      # a kernel built without huge pages
        buffer.madvise(mmap.MADV_HUGEPAGE)
    as_bytes = np.frombuffer(buffer, np.uint8)
    offset = -as_bytes.ctypes.data % HUGE_PAGE_BYTES
    return as_bytes[offset:offset + size].view(dtype)


def expect_table(name: str, table: Table, padded: bool) -> None:
    """Raise ValueError unless the table is a writeable float32 table. `padded`: rows are read in whole cache lines, so
    that everything beyond their D floats must be zero.
    """
    x, acc = table
    unit = LINE_FLOATS if padded else 1
    if x.dtype != np.float32 or x.ndim != 2 or not x.flags.writeable or x.shape[1] < 1 or len(x) > MAX_ROWS \
            or (x.size and x.strides[1] != 4) or x.strides[0] % (4 * unit) or x.strides[0] < 4 * x.shape[1]:
        padding = f", padded with zeros to a multiple of {LINE_FLOATS}," if padded else ""
        raise ValueError(f"{name}: rows of a writeable float32 table{padding} expected, got {x.dtype} {x.shape}, "
                         f"{x.strides[0] if x.ndim else 0} bytes a row")
    _check_optional(f"{name}.acc", acc, np.float32, (len(x),))


def expect_negatives(negatives: NegativeBatch, rows: int, units: int, v: int) -> None:
    """Raise ValueError unless shapes and types fit P rows, C units that may share a draw, and V candidates."""
    if negatives.ids.ndim != 2 or negatives.share < 0:
        raise ValueError(f"negatives: ids (G, K) and share >= 0 expected, got {negatives.ids.shape}, {negatives.share}")
    g, k = negatives.ids.shape
    if g != (rows if negatives.share == 0 else -(-units // negatives.share)):
        raise ValueError(f"negatives: {g} draws do not fit {units} units of {rows} rows under share {negatives.share}")
    check_array("ids", negatives.ids, np.int64, (g, k))
    _check_optional("log_q", negatives.log_q, np.float32, (g, k))
    _check_optional("log_q_table", negatives.log_q_table, np.float32, (v,))
    _check_optional("log_q_target", negatives.log_q_target, np.float32, (rows,))
    if negatives.weight is not None:
        check_array("weight", negatives.weight, np.float32, (k,) if negatives.weight.ndim == 1 else (g, k))
    if negatives.false_negatives is not None:
        check_array("false_negatives", negatives.false_negatives, np.int64, (2, negatives.false_negatives.shape[-1]))


def _check_optional(name: str, array: np.ndarray | None, dtype: type, shape: tuple[int, ...]) -> None:
    if array is not None:
        check_array(name, array, dtype, shape)


def subtracts_log_q(loss_spec: CorrectedLoss) -> bool:
    """Whether the loss subtracts log(total_weight·q) from scores."""
    return loss_spec.loss == "nce" or (loss_spec.loss == "sampled_softmax" and not loss_spec.ranking)


def reads_total_weight(loss_spec: CorrectedLoss) -> bool:
    """Whether the loss reads the sum of the weights."""
    return subtracts_log_q(loss_spec) or loss_spec.loss == "alpha_nce"


def expect_correction(loss_spec: CorrectedLoss, negatives: NegativeBatch) -> None:
    """Raise ValueError if the negatives lack the log q that the loss needs."""
    if reads_total_weight(loss_spec) and not negatives.total_weight > 0:
        raise ValueError(f"negatives: total_weight must be positive, got {negatives.total_weight}")
    is_corrected = loss_spec.loss in ("nce", "sampled_softmax", "alpha_nce")
    if is_corrected and negatives.log_q is None and negatives.log_q_table is None:
        raise ValueError(f"loss: {loss_spec.loss} subtracts log q; pass log_q or log_q_table")
    if (loss_spec.loss in ("nce", "alpha_nce")
        or loss_spec.ranking) and negatives.log_q_target is None and negatives.log_q_table is None:
        raise ValueError(f"loss: {loss_spec.loss} needs log q of the target; pass log_q_target or log_q_table")


def describe_out_of_range(ids: Mapping[str, tuple[np.ndarray, int]], negatives: NegativeBatch, rows: int) -> str:
    """Describe the first id or false negative that is out of range; empty if there is none."""
    for name, (values, n) in ids.items():
        if values.size and not 0 <= values.min() <= values.max() < n:
            return f"{name}: ids from {values.min()} to {values.max()}, allowed are 0 to {n - 1}"
    false_negatives, k = negatives.false_negatives, negatives.ids.shape[1]
    if false_negatives is not None and false_negatives.size:
        row, column = false_negatives
        if row[0] < 0 or row[-1] >= rows or (np.diff(row) < 0).any() or column.min() < 0 or column.max() >= k:
            return "false_negatives: (row, column) must be within range and sorted by row"
    return ""


# --- the parallel loop ---------------------------------------------------------------------------------------------

# A compiled update of a range: first, last, the sum of the loss, the address of ∂L/∂c.
RangeKernel = Callable[[int, int, ctypes.c_double, int | None], int]


def range_kernel(run: Callable[..., int], task: ctypes.Structure) -> RangeKernel:
    """Bind a compiled function (task, first, last, loss, ∂L/∂c) to its task."""
    def call(first: int, last: int, total: ctypes.c_double, c_grad_pointer: int | None) -> int:
        return int(run(ctypes.byref(task), ctypes.c_int64(first), ctypes.c_int64(last), ctypes.byref(total),
                       ctypes.c_void_p(c_grad_pointer)))
    return call


def run_ranges(call: RangeKernel, ranges: Sequence[tuple[int, int]],
               c: np.ndarray | None = None) -> tuple[float, np.ndarray | None]:
    """Run an update on every range, each on its own thread. Returns the sums of the loss and of ∂L/∂c."""
    shape = () if c is None else c.shape

    def part(first: int, last: int) -> tuple[int, float, np.ndarray]:
        loss, c_grad = ctypes.c_double(0.0), np.zeros(shape)
        status = call(first, last, loss, None if c is None else c_grad.ctypes.data)
        return status, loss.value, c_grad

    results = parallel_map(part, ranges)
    if any(status for status, _, _ in results):
        raise MemoryError("the update has no memory for its scratch buffers")
    return sum(loss for _, loss, _ in results), None if c is None else np.asarray(
        sum((c_grad for _, _, c_grad in results), np.zeros(shape)))


def split_ranges(n: int, unit: int, threads: int) -> list[tuple[int, int]]:
    """Split n rows into at most `threads` ranges of whole units and nearly equal length."""
    units, threads = -(-n // unit), max(1, threads)
    edges = [min(n, units * i // threads * unit) for i in range(threads)] + [n]
    return [(a, b) for a, b in pairwise(edges) if b > a]
