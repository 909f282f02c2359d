"""Adasum of the moves that several processes made on the rows of their tables ([maleki2021]).

    a ⊕ b = (1 − a·b / 2‖a‖²) a + (1 − a·b / 2‖b‖²) b

a, b: moves of one row, x − base, where base is the row when all processes were equal. Parallel moves give their mean,
orthogonal moves their sum. The moves of N processes are folded by pairs, in the order of the processes. The process
id mod N, the owner, folds the moves of row id and hands the result to all, so that all end with the same bits:

    pack  →  to the owners  →  fold  →  to all  →  apply

On the wire a move is float32, or uint16 that holds a bfloat16. A message contains the number of rows of each table,
int64, then of each table its ids, int32, and its moves, both padded to a multiple of 8 bytes. All results are the same
for any number of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from embtrain.kernels.core.binding import (
    address,
    array_arg,
    call,
    check_range,
    check_rows,
    fields,
    parallel_map,
    pointer,
)
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.training import adasum as reference
from embtrain.kernels.reference.training.adasum import SharedTable

WIRES: dict[str, type[np.generic]] = {"float32": np.float32, "bfloat16": np.uint16}
GRAIN = 1 << 15  # numbers of rows that are worth a thread


class SharedTables:
    """Tables whose moves are in one message."""

    def __init__(self, tables: Sequence[SharedTable]):
        """TypeError and ValueError for arrays of another type or shape."""
        self._tables, structs = list(tables), []
        for table in tables:
            check_rows("adasum: x", table.x)
            n, dim = table.x.shape
            structs.append(_Table(
                table.x.ctypes.data, array_arg("adasum: base", table.base, np.float32, (n, dim)), None,
                array_arg("adasum: names", table.names, np.int32, (n,)), table.x.strides[0] // 4, n, dim, 0,
                table.wire is np.uint16, table.mean, table.step))
        self.structs = (_Table * len(structs))(*structs)
        self._width = max((table.x.shape[1] for table in tables), default=1)

    def __len__(self) -> int:
        return len(self._tables)

    def __iter__(self) -> Iterator[SharedTable]:
        return iter(self._tables)

    def limit(self, rows: Sequence[np.ndarray | None] | None) -> int:
        """Limit the search of the compiled functions to rows. Returns the number of rows to search."""
        total = 0
        for struct, limit in zip(self.structs, rows or [None] * len(self), strict=True):
            struct.n_rows = 0 if limit is None else len(limit)
            struct.rows = array_arg("adasum: rows", limit, np.int32, (struct.n_rows,))
            total += struct.n if limit is None else struct.n_rows
        return total

    def parts(self, rows: int, threads: int) -> int:
        """The number of threads that `rows` rows are worth."""
        return max(1, min(threads, rows * self._width // GRAIN))


def pack(tables: SharedTables, n_owners: int, rows: Sequence[np.ndarray | None] | None = None, threads: int = 1
         ) -> tuple[list[np.ndarray], int]:
    """Messages (n_r,) uint8 to each owner: the rows whose x differs from base, and their moves x − base.

    rows: ids (r,) int32 of each table, ascending, to which the search is limited; None: all. Returns the number of rows
    too.
    """
    n_searched, n_tables = tables.limit(rows), len(tables)
    if (library := core()) is None:
        for table, limit in zip(tables, rows or [None] * n_tables, strict=True):
            check_range("adasum", limit, 0, len(table.x))
        return reference.pack(tables, n_owners, rows)
    threads = tables.parts(n_searched, threads)
    moved, counts = np.empty(n_searched, np.int32), np.empty((threads, n_tables, n_owners), np.int64)
    of_part = counts.ctypes.data
    _parallel(threads, lambda part: call(
        "adasum", library.embtrain_adasum_moved, tables.structs, n_tables, n_owners, part, threads, pointer(moved),
        ctypes.c_void_p(of_part + 8 * n_tables * n_owners * part)))
    grouped, start = np.empty(n_searched, np.int32), np.empty((n_tables, n_owners + 1), np.int64)
    count, ids_at, moves_at = np.empty((3, n_owners, n_tables), np.int64)
    ends = np.empty(n_owners, np.int64)
    layout = [pointer(x) for x in (grouped, start, count, ids_at, moves_at)]
    call("adasum", library.embtrain_adasum_group, tables.structs, n_tables, n_owners, threads, pointer(moved),
         pointer(counts), *layout, pointer(ends))
    out, n_rows = np.empty(ends[-1], np.uint8), int(start[-1, -1])
    threads = tables.parts(n_rows, threads)
    _parallel(threads, lambda part: call("adasum", library.embtrain_adasum_pack, tables.structs, n_tables, n_owners,
                                         part, threads, *layout, pointer(out)))
    return [out[begin:end] for begin, end in pairwise([0, *ends.tolist()])], n_rows


def fold(tables: SharedTables, messages: Sequence[np.ndarray], threads: int = 1) -> np.ndarray:
    """Fold the messages of N processes to one owner. Returns a message with the ids that any has, and their moves.

    OutOfRange for a message whose ids are not ascending.
    """
    if (library := core()) is None:
        for message in messages:
            for ids, _ in reference.from_message(message, tables):
                check_range("adasum", np.diff(ids), 1, 1 << 32)
        return reference.fold(tables, messages)
    arguments, count = _read(library, tables, messages)
    total = int(count.sum())
    ids, end, sizes = np.empty(total, np.int32), ctypes.c_int64(), np.empty((3, len(tables)), np.int64)
    layout = [pointer(x) for x in (ids, *sizes)]
    call("adasum", library.embtrain_adasum_unite, *arguments, *layout, ctypes.byref(end))
    out, threads = np.empty(end.value, np.uint8), tables.parts(total, threads)
    _parallel(threads, lambda part: call("adasum", library.embtrain_adasum_fold, *arguments, part, threads, *layout,
                                         pointer(out)))
    return out


def apply(tables: SharedTables, messages: Sequence[np.ndarray], threads: int = 1) -> list[np.ndarray]:
    """Add the moves of folded messages to base, and copy these rows to x. Returns their ids (n,) int32 of each table.

    An id may occur once in all messages. OutOfRange, before any change, for an id of no row.
    """
    if (library := core()) is None:
        changed = reference.ids(tables, messages)
        for table, ids in zip(tables, changed, strict=True):
            check_range("adasum", ids, 0, len(table.x) * table.step)
        reference.apply(tables, messages)
        return changed
    arguments, count = _read(library, tables, messages)
    total = int(count.sum())
    out = np.empty(total, np.int32)
    call("adasum", library.embtrain_adasum_ids, *arguments, pointer(out))
    threads = tables.parts(total, threads)
    _parallel(threads, lambda part: call("adasum", library.embtrain_adasum_apply, *arguments, part, threads))
    return [out[begin:end] for begin, end in pairwise([0, *np.cumsum(count.sum(0)).tolist()])]


class _Table(ctypes.Structure):
    _fields_ = fields("x base rows names", "stride n dim n_rows half mean step")


def _read(library: Any, tables: SharedTables, messages: Sequence[np.ndarray]) -> tuple[list[Any], np.ndarray]:
    """Messages as arguments of the compiled functions, and their numbers of rows of each table (m, T).

    OutOfRange for a message whose length is not that of its rows.
    """
    addresses = [address(message) for message in messages]
    n, n_tables, count = len(messages), len(tables), np.empty((len(messages), len(tables)), np.int64)
    pointers, lengths = (ctypes.c_void_p * n)(*addresses), np.array([len(message) for message in messages])
    call("adasum", library.embtrain_adasum_read, tables.structs, n_tables, pointers, pointer(lengths), n,
         pointer(count))
    return [tables.structs, n_tables, pointers, pointer(count), n], count


def _parallel(parts: int, work: Callable[[int], None]) -> None:
    """Call work(part) for each part, each on its own thread."""
    parallel_map(lambda part, _: work(part), [(part, part + 1) for part in range(parts)])
