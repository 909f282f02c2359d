"""What the updates of tables share: tables, columns and what is told of them; checks; one pass in parts."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np

MAX_ROWS = 2**31 - 1  # rows of a table
LINE_FLOATS = 16         # floats of a line of the cache
HUGE_PAGE_BYTES = 1 << 21    # bytes of a huge page
LOSSES = {"logistic": 0, "nce": 1, "sampled_softmax": 2, "margin": 3}


class Table(NamedTuple):
    """Rows that are updated in place. Padded to 16 floats and aligned to 64 bytes they are fastest."""

    x: np.ndarray                 # (n, D) float32, a row's elements contiguous, rows any distance apart
    acc: np.ndarray | None = None # (n,) float32: row-Adagrad, acc += mean_d g_d², x -= lr g / (√acc + eps); None: SGD


class NegativeBatch(NamedTuple):
    ids: np.ndarray                         # (G, K) int64; what P and C are, the update says
    share: int                              # 0: G = P; n: n consecutive units share a draw, G = ceil(C / n)
    log_q: np.ndarray | None = None         # (G, K) float32, or
    log_q_table: np.ndarray | None = None      # (V,) float32, looked up here
    log_q_target: np.ndarray | None = None  # (P,) float32; None: looked up in log_q_of
    weight: np.ndarray | None = None        # (K,) or (G, K) float32; 0: a probe, scored and not trained on; None: 1
    total_weight: float = 1.0                       # noise mass per positive
    mask_target: bool = False            # a column that equals a pair's target is left out for that pair
    false_negatives: np.ndarray | None = None         # (2, N) int64 (pair, column), sorted by pair: left out as well

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """n_draws, k, share, weight_stride and n_right, as the structs of the core have them."""
        g, k = self.ids.shape
        per_draw = self.weight is not None and self.weight.ndim == 2
        n_false_negatives = 0 if self.false_negatives is None else self.false_negatives.shape[1]
        return g, k, self.share, k if per_draw else 0, n_false_negatives


class UpdateResult(NamedTuple):
    loss: float                 # summed over the pairs
    scores: np.ndarray | None   # (G, K) float32: each column's s before its unit's update, or their mean over a block
    c_grad: np.ndarray | None   # float64, of the shape of c: ∂L/∂c


class CorrectedLoss(Protocol):
    """The part of a rule that says whether the draw is corrected for."""

    @property
    def loss(self) -> str: ...
    @property
    def ranking(self) -> bool: ...


def zeros(n: int, dim: int) -> np.ndarray:
    """n rows of zeros, (n, dim), where the update is fastest: rows begin at lines of the cache, and large tables lie on
    huge pages, which NumPy asks the system for and torch does not. Rows are read at random, and to look up which small
    page one is on takes about as long as to read it."""
    stride = -(-dim // 16) * 16
    alignment = 1 << 19 if n * stride >= 1 << 22 else 16                              # in floats: 2 MiB, or a line
    buffer = np.zeros(n * stride + alignment, np.float32)
    offset = -buffer.ctypes.data // 4 % alignment
    return buffer[offset:offset + n * stride].reshape(n, stride)[:, :dim]


def zeros_on_huge_pages(n: int, dtype: type[np.generic] = np.float32) -> np.ndarray:
    """n zeros, on huge pages where the system has any and one would be filled. In a mapping of their own: of less than
    32 MB, what malloc hands out has often been used before, and then lies on the small pages of that time."""
    size = n * np.dtype(dtype).itemsize
    if size < HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(n, dtype)
    try:
        buffer = mmap.mmap(-1, size + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes: {error}") from None
    with suppress(OSError):                                                      # a system that was built without
        buffer.madvise(mmap.MADV_HUGEPAGE)
    as_bytes = np.frombuffer(buffer, np.uint8)
    offset = -as_bytes.ctypes.data % HUGE_PAGE_BYTES
    return as_bytes[offset:offset + size].view(dtype)


def address(x: np.ndarray | None) -> int | None:
    return None if x is None or x.size == 0 else x.ctypes.data


def expect(name: str, x: np.ndarray | None, dtype: type | np.dtype, shape: tuple[int, ...]) -> None:
    if x is not None and (x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous):
        raise ValueError(f"{name}: {np.dtype(dtype).name} {shape} is wanted, got {x.dtype} {x.shape}"
                         f"{'' if x.flags.c_contiguous else ', not contiguous'}")


def expect_table(name: str, table: Table, padded: bool) -> None:
    """`padded`: the kernel reads whole lines of a row, and what lies behind its D floats must be zeros."""
    x, acc = table
    unit = LINE_FLOATS if padded else 1
    if x.dtype != np.float32 or x.ndim != 2 or not x.flags.writeable or x.shape[1] < 1 or len(x) > MAX_ROWS \
            or (x.size and x.strides[1] != 4) or x.strides[0] % (4 * unit) or x.strides[0] < 4 * x.shape[1]:
        padding = f", padded with zeros to a multiple of {LINE_FLOATS}," if padded else ""
        raise ValueError(f"{name}: rows of a writeable float32 table{padding} are wanted, got {x.dtype} {x.shape}, "
                         f"{x.strides[0] if x.ndim else 0} bytes a row")
    expect(f"{name}.acc", acc, np.float32, (len(x),))


def expect_negatives(negatives: NegativeBatch, rows: int, units: int, v: int) -> None:
    """Shapes and types for P rows, C units that may share a draw, and V candidates."""
    if negatives.ids.ndim != 2 or negatives.share < 0:
        raise ValueError(f"columns: ids (G, K) and share >= 0 are wanted, got {negatives.ids.shape}, {negatives.share}")
    g, k = negatives.ids.shape
    if g != (rows if negatives.share == 0 else -(-units // negatives.share)):
        raise ValueError(f"columns: {g} draws do not fit {units} units of {rows} rows under share {negatives.share}")
    expect("ids", negatives.ids, np.int64, (g, k))
    expect("log_q", negatives.log_q, np.float32, (g, k))
    expect("log_q_table", negatives.log_q_table, np.float32, (v,))
    expect("log_q_target", negatives.log_q_target, np.float32, (rows,))
    if negatives.weight is not None:
        expect("weight", negatives.weight, np.float32, (k,) if negatives.weight.ndim == 1 else (g, k))
    if negatives.false_negatives is not None:
        expect("false_negatives", negatives.false_negatives, np.int64, (2, negatives.false_negatives.shape[-1]))


def subtracts_log_q(loss_spec: CorrectedLoss) -> bool:
    """Whether log(mass·q) is subtracted."""
    return loss_spec.loss == "nce" or (loss_spec.loss == "sampled_softmax" and not loss_spec.ranking)


def expect_correction(loss_spec: CorrectedLoss, negatives: NegativeBatch) -> None:
    """What a rule wants to know of the draw."""
    if subtracts_log_q(loss_spec) and not negatives.total_weight > 0:
        raise ValueError(f"columns: the mass must be positive, got {negatives.total_weight}")
    if loss_spec.loss in ("nce", "sampled_softmax") and negatives.log_q is None and negatives.log_q_table is None:
        raise ValueError(f"rule: {loss_spec.loss} corrects for the draw, and the columns have no log q")
    if (loss_spec.loss == "nce"
        or loss_spec.ranking) and negatives.log_q_target is None and negatives.log_q_table is None:
        raise ValueError(f"rule: {loss_spec.loss} needs the target's log q")


def describe_out_of_range(ids: Mapping[str, tuple[np.ndarray, int]], negatives: NegativeBatch, rows: int) -> str:
    """Which of the ids, each with its bound, or of the right answers is out of range, in words; empty where none is."""
    for name, (values, n) in ids.items():
        if values.size and not 0 <= values.min() <= values.max() < n:
            return f"{name}: ids from {values.min()} to {values.max()}, and there are {n}"
    false_negatives, k = negatives.false_negatives, negatives.ids.shape[1]
    if false_negatives is not None and false_negatives.size:
        row, column = false_negatives
        if row[0] < 0 or row[-1] >= rows or (np.diff(row) < 0).any() or column.min() < 0 or column.max() >= k:
            return "false_negatives: (row, column) within range and sorted by row are wanted"
    return ""
