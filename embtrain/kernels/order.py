"""The update of order embeddings: energies, loss, gradients and moved rows in one pass over rows of pairs.

    E(g, c) = ‖max(0, σ (x_c − x_g))‖²      σ = 1 in slot 0, −1 in slot 1
    x_c −= lr (∂L/∂E) 2 σ z                 x_g += lr Σ_c (∂L/∂E) 2 σ z,   z = max(0, σ (x_c − x_g))

for the losses `order`, E_t + Σ_j w_j max(0, α − E_j), and `margin`, Σ_j w_j max(0, η + E_t − E_j). A unit is one row: a
given concept, its target and K columns. Energies are those before the unit; where a concept occurs in it more than
once, its gradients are summed. So a unit means what a batch of this one row means to the torch step, with the orthant
kept after it. One thread gives the same result every time; with more, each takes a range of rows (Hogwild).
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

import numpy as np

from embtrain.kernels.core import core
from embtrain.kernels.reference import order as reference
from embtrain.kernels.update import Table

PAD = 16  # floats: rows begin and end at multiples of it, with zeros behind the D of a row


class Rows(NamedTuple):
    given: np.ndarray   # (B,) int64
    target: np.ndarray  # (B,) int64
    slot: np.ndarray    # (B,) int64: 0 or 1


class Columns(NamedTuple):
    ids: np.ndarray                   # (G, K) int64: row r reads draw r // share
    share: int = 1                    # G = ceil(B / share)
    weight: np.ndarray | None = None  # (K,) or (G, K) float32; 0: a probe, scored and not trained on; None: 1
    forgive_target: bool = False      # a column that equals a row's target is left out for that row
    right: np.ndarray | None = None   # (2, N) int64 (row, column), sorted by both, none twice: left out as well


class Rule(NamedTuple):
    loss: Literal["order", "margin"]
    margin: float                     # α, or η
    abs: bool = False                 # the orthant is kept by reading |x|; else by setting to 0 what fell below


class Told(NamedTuple):
    loss: float                       # summed over the rows
    scores: np.ndarray | None         # (B, K) float32: each column's −E before its unit's update


class _Task(ctypes.Structure):
    """struct OrderTask of source/order.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "acc", "given", "target", "slot", "ids", "weight", "right",
                                               "scores")),
        *((name, ctypes.c_int64) for name in ("n", "stride", "dim", "n_rows", "n_draws", "k", "share", "weight_stride",
                                              "n_right", "forgive_target", "ranking", "abs")),
        *((name, ctypes.c_double) for name in ("margin", "lr", "eps")))


def update(table: Table, rows: Rows, columns: Columns, rule: Rule, lr: float, threads: int = 1,
           keep_scores: bool = False) -> Told:
    """One pass over the rows. IndexError and ValueError before anything is written."""
    _check(table, rows, columns, rule)
    if (lib := core()) is None:
        if bad := _outside(table, rows, columns):
            raise IndexError(bad)
        loss, every_score = reference.update(table, rows, columns, rule, lr)
        return Told(loss, every_score.astype(np.float32) if keep_scores else None)
    n, k = len(rows.given), columns.ids.shape[1]
    scores = np.zeros((n, k), np.float32) if keep_scores else None
    task = _task(table, rows, columns, rule, lr, scores)
    if lib.embtrain_order_check(ctypes.byref(task)) != 0:
        raise IndexError(_outside(table, rows, columns))
    cuts = [n * i // max(1, threads) for i in range(max(1, threads) + 1)]
    losses = [ctypes.c_double(0.0) for _ in cuts[1:]]

    def part(i: int) -> int:
        return int(lib.embtrain_order(ctypes.byref(task), ctypes.c_int64(cuts[i]), ctypes.c_int64(cuts[i + 1]),
                                      ctypes.byref(losses[i])))

    if len(losses) == 1:
        ends = [part(0)]
    else:
        with ThreadPoolExecutor(len(losses)) as pool:
            ends = list(pool.map(part, range(len(losses))))
    if any(ends):
        raise MemoryError("the update has no memory for its scratch")
    return Told(sum(x.value for x in losses), scores)


def _task(table: Table, rows: Rows, columns: Columns, rule: Rule, lr: float, scores: np.ndarray | None) -> _Task:
    def at(x: np.ndarray | None) -> int | None:
        return None if x is None or x.size == 0 else x.ctypes.data

    g, k = columns.ids.shape
    weight = columns.weight
    return _Task(
        at(table.x), at(table.acc), at(rows.given), at(rows.target), at(rows.slot), at(columns.ids), at(weight),
        at(columns.right), at(scores),
        len(table.x), table.x.strides[0] // 4, table.x.shape[1], len(rows.given), g, k, columns.share,
        k if weight is not None and weight.ndim == 2 else 0, 0 if columns.right is None else columns.right.shape[1],
        columns.forgive_target, rule.loss == "margin", rule.abs, rule.margin, lr, reference.EPS)


def _check(table: Table, rows: Rows, columns: Columns, rule: Rule) -> None:
    """Shapes, types and layouts; ValueError."""
    x, acc = table
    if x.dtype != np.float32 or x.ndim != 2 or not x.flags.writeable or x.shape[1] < 1 \
            or (x.size and x.strides[1] != 4) or x.strides[0] % (4 * PAD) or x.strides[0] < 4 * x.shape[1]:
        raise ValueError(f"x: rows of a writeable float32 table, padded to {PAD} floats, are wanted, got {x.dtype} "
                         f"{x.shape}")
    _of("acc", acc, np.float32, (len(x),))
    if columns.ids.ndim != 2 or columns.share < 1:
        raise ValueError(f"columns: ids (G, K) and share >= 1 are wanted, got {columns.ids.shape}, {columns.share}")
    n, (g, k) = len(rows.given), columns.ids.shape
    if g != -(-n // columns.share):
        raise ValueError(f"columns: {g} draws do not fit {n} rows under share {columns.share}")
    for name, ids in zip(Rows._fields, rows, strict=True):
        _of(name, ids, np.int64, (n,))
    _of("ids", columns.ids, np.int64, (g, k))
    if columns.weight is not None:
        _of("weight", columns.weight, np.float32, (k,) if columns.weight.ndim == 1 else (g, k))
    if columns.right is not None:
        _of("right", columns.right, np.int64, (2, columns.right.shape[-1]))
    if rule.loss not in ("order", "margin"):
        raise ValueError(f"rule: unknown loss {rule.loss!r}")


def _of(name: str, x: np.ndarray | None, dtype: type, shape: tuple[int, ...]) -> None:
    if x is not None and (x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous):
        raise ValueError(f"{name}: contiguous {np.dtype(dtype).name} {shape} is wanted, got {x.dtype} {x.shape}")


def _outside(table: Table, rows: Rows, columns: Columns) -> str:
    """Which id is out of range, in words; empty where none is."""
    for name, ids, n in (("given", rows.given, len(table.x)), ("target", rows.target, len(table.x)),
                         ("slot", rows.slot, 2), ("ids", columns.ids, len(table.x))):
        if ids.size and not 0 <= ids.min() <= ids.max() < n:
            return f"{name}: from {ids.min()} to {ids.max()}, and there are {n}"
    right = columns.right
    if right is not None and right.size:
        k = columns.ids.shape[1]
        if right.min() < 0 or right[0].max() >= len(rows.given) or right[1].max() >= k \
                or (np.diff(right[0] * k + right[1]) < 1).any():
            return "right: (row, column) within range and ascending are wanted"
    return ""
