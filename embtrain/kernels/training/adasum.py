"""Adasum of the moves that several processes made on the rows of one table ([maleki2021]).

    a ⊕ b = (1 − a·b / 2‖a‖²) a + (1 − a·b / 2‖b‖²) b

a, b: moves of one row, x − base, where base is the row when all processes were equal. Parallel moves give their mean,
orthogonal moves their sum. The moves of N processes are folded by pairs, in the order of the processes. The process
id mod N, the owner, folds the moves of row id and hands the result to all, so that all end with the same bits:

    find_moved, pack  →  to the owners  →  fold  →  to all  →  apply

On the wire a move is float32, or uint16 that holds a bfloat16.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from embtrain.kernels.core.binding import array_arg, call, check_range, check_rows, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.training import adasum as reference
from embtrain.kernels.reference.training.adasum import Part

WIRES: dict[str, type[np.generic]] = {"float32": np.float32, "bfloat16": np.uint16}


def find_moved(x: np.ndarray, base: np.ndarray, n_owners: int, rows: np.ndarray | None = None
               ) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows of x (n, D) float32 that differ from base, grouped by owner: ids int32, and ids per owner (N,).

    rows: ids (R,) int32, ascending, to which the search is limited.
    """
    table, (n, dim) = _table_args(x, base), x.shape
    n_rows = n if rows is None else len(rows)
    rows_arg = array_arg("adasum: rows", rows, np.int32, (n_rows,))
    if (library := core()) is None:
        check_range("adasum", rows, 0, n)
        return reference.find_moved(x, base, rows, n_owners)
    ids, count = np.empty(n_rows, np.int32), np.empty(n_owners, np.int64)
    call("adasum", library.embtrain_adasum_moved, *table, n, dim, rows_arg, n_rows, n_owners, pointer(ids),
         pointer(count))
    return ids[:count.sum()], count


def pack(x: np.ndarray, base: np.ndarray, ids: np.ndarray, wire: type[np.generic]) -> np.ndarray:
    """The moves x − base of rows `ids` (n,) int32, as a value of WIRES: (n, D)."""
    table, ids_arg = _table_args(x, base), array_arg("adasum: ids", ids, np.int32, (len(ids),))
    if (library := core()) is None:
        check_range("adasum", ids, 0, len(x))
        return reference.pack(x, base, ids, wire)
    out = np.empty((len(ids), x.shape[1]), wire)
    call("adasum", library.embtrain_adasum_pack, *table, *x.shape, ids_arg, len(ids), _is_half(out), pointer(out))
    return out


def fold(parts: Sequence[Part], mean: bool = False) -> Part:
    """Fold the moves of N processes on the rows of one owner. Returns the ids that any has, ascending, and their moves.

    mean: the mean over the processes that moved a row, instead of Adasum.
    """
    dim, wire = parts[0][1].shape[1], parts[0][1].dtype
    for ids, moves in parts:
        array_arg("adasum: ids", ids, np.int32, (len(ids),))
        array_arg("adasum: moves", moves, wire, (len(ids), dim))
        if len(ids) > 1 and not (ids[1:] > ids[:-1]).all():
            raise ValueError("adasum: ids must be ascending")
    if (library := core()) is None:
        return reference.fold(parts, mean)
    start = np.cumsum([0, *(len(ids) for ids, _ in parts)], dtype=np.int64)
    all_ids, all_moves = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    out_ids, out, n_out = np.empty_like(all_ids), np.empty_like(all_moves), ctypes.c_int64()
    call("adasum", library.embtrain_adasum_fold, pointer(all_ids), pointer(all_moves), pointer(start), len(parts), dim,
         _is_half(out), ctypes.c_int(mean), pointer(out_ids), pointer(out), ctypes.byref(n_out))
    return out_ids[:n_out.value], out[:n_out.value]


def apply(x: np.ndarray, base: np.ndarray, ids: np.ndarray, moves: np.ndarray) -> None:
    """Add moves (n, D) to rows `ids` (n,) of base, and copy the rows to x. An id may occur once."""
    table, ids_arg = _table_args(x, base), array_arg("adasum: ids", ids, np.int32, (len(ids),))
    moves_arg = array_arg("adasum: moves", moves, moves.dtype, (len(ids), x.shape[1]))
    if (library := core()) is None:
        check_range("adasum", ids, 0, len(x))
        reference.apply(x, base, ids, moves)
    else:
        call("adasum", library.embtrain_adasum_apply, *table, *x.shape, ids_arg, moves_arg, len(ids), _is_half(moves))


def _table_args(x: np.ndarray, base: np.ndarray) -> tuple[ctypes.c_void_p, int, ctypes.c_void_p]:
    """Check a table and its contiguous copy; return their pointers and the distance of rows in floats."""
    check_rows("adasum: x", x)
    return ctypes.c_void_p(x.ctypes.data), x.strides[0] // 4, array_arg("adasum: base", base, np.float32, x.shape)


def _is_half(moves: np.ndarray) -> ctypes.c_int:
    if moves.dtype not in (np.float32, np.uint16):
        raise TypeError(f"adasum: moves must be float32 or uint16, got {moves.dtype}")
    return ctypes.c_int(moves.dtype == np.uint16)
