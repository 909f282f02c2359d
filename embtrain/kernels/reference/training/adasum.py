"""Puts moves of table rows by several processes together, in NumPy.

kernels/training/adasum.py defines the functions, and runs this file if the compiled core is missing; the tests compare
the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

Part = tuple[np.ndarray, np.ndarray]  # ids (n,) int32, ascending, and moves (n, D) of the wire


@dataclass(frozen=True)
class SharedTable:
    """One table x (n, D) float32, and the contiguous copy of its rows when they were equal on all processes.

    mean: rows get the mean of their moves over the processes that moved them, not the Adasum. names (n,) int32,
    ascending: the ids of the rows in messages; None: their numbers. step: `apply` changes the row id / step.
    """

    x: np.ndarray
    base: np.ndarray
    wire: type[np.generic]
    mean: bool = False
    names: np.ndarray | None = None
    step: int = 1


def to_wire(move: np.ndarray, wire: type[np.generic]) -> np.ndarray:
    """Moves as float32, or rounded to bfloat16 and stored as uint16."""
    if wire is np.float32:
        return move.astype(np.float32)
    bits = move.astype(np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(move), (bits >> 16 | 0x40).astype(np.uint16), rounded)


def from_wire(wire: np.ndarray) -> np.ndarray:
    return wire if wire.dtype == np.float32 else (wire.astype(np.uint32) << 16).view(np.float32)


def pack(tables: Iterable[SharedTable], n_owners: int, rows: Sequence[np.ndarray | None] | None
         ) -> tuple[list[np.ndarray], int]:
    parts: list[list[Part]] = [[] for _ in range(n_owners)]
    for table, limit in zip(tables, rows or itertools.repeat(None), strict=False):
        limit = np.arange(len(table.x), dtype=np.int32) if limit is None else limit
        bits = np.ascontiguousarray(table.x[limit]).view(np.uint32) != table.base[limit].view(np.uint32)
        moved = limit[bits.any(1)]
        ids = moved if table.names is None else table.names[moved]
        moves = to_wire(table.x[moved] - table.base[moved], table.wire)
        for owner in range(n_owners):
            parts[owner].append((ids[ids % n_owners == owner], moves[ids % n_owners == owner]))
    return [to_message(part) for part in parts], sum(len(ids) for part in parts for ids, _ in part)


def fold(tables: Iterable[SharedTable], messages: Sequence[np.ndarray]) -> np.ndarray:
    return to_message([_fold(parts, table.mean)
                       for table, parts in zip(tables, _of_tables(tables, messages), strict=True)])


def ids(tables: Iterable[SharedTable], messages: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The ids of each table in all messages, (n,)."""
    return [np.concatenate([ids for ids, _ in parts]) for parts in _of_tables(tables, messages)]


def apply(tables: Iterable[SharedTable], messages: Sequence[np.ndarray]) -> None:
    for table, parts in zip(tables, _of_tables(tables, messages), strict=True):
        for ids, moves in parts:
            table.base[ids // table.step] += from_wire(moves)
            table.x[ids // table.step] = table.base[ids // table.step]


def to_message(parts: Sequence[Part]) -> np.ndarray:
    """Ids and moves of each table as a message, uint8."""
    pieces = [np.array([len(ids) for ids, _ in parts], np.int64).view(np.uint8)]
    for part in parts:
        for array in part:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            pieces += [flat, np.zeros(-len(flat) % 8, np.uint8)]
    return np.concatenate(pieces)


def from_message(message: np.ndarray, tables: Iterable[SharedTable]) -> list[Part]:
    """Ids and moves of each table from the bytes of `to_message`. ValueError for a length that is not that of its rows.
    """
    widths = [(table.wire, table.x.shape[1]) for table in tables]
    head, sizes = 8 * len(widths), list[int]()
    count = message[:head].view(np.int64).tolist() if len(message) >= head else [-1]
    for n, (wire, dim) in zip(count, widths, strict=False):
        sizes += [size + -size % 8 for size in (4 * n, n * dim * np.dtype(wire).itemsize)]
    if min(count) < 0 or head + sum(sizes) != len(message):
        raise ValueError("adasum: the length of a message must be that of its rows")
    pieces = np.split(message, head + np.cumsum([0, *sizes]))[1:]
    return [(ids[:4 * n].view(np.int32), moves.view(wire)[:n * dim].reshape(n, dim))
            for n, (wire, dim), ids, moves in zip(count, widths, pieces[::2], pieces[1::2], strict=False)]


def _of_tables(tables: Iterable[SharedTable], messages: Sequence[np.ndarray]) -> list[tuple[Part, ...]]:
    """Ids and moves of each table in each message."""
    return list(zip(*(from_message(message, tables) for message in messages), strict=True))


def _fold(parts: Sequence[Part], mean: bool) -> Part:
    ids = np.unique(np.concatenate([ids for ids, _ in parts]))
    folded = np.zeros((len(ids), parts[0][1].shape[1]), np.float32)
    for i, row in enumerate(ids):
        moves = [from_wire(wire)[of == row][0] for of, wire in parts if row in of]
        folded[i] = np.mean(moves, 0, dtype=np.float64) if mean else adasum(moves)
    return ids, to_wire(folded, parts[0][1].dtype.type)


def adasum(moves: list[np.ndarray]) -> np.ndarray:
    """Fold moves (D,) by pairs."""
    while len(moves) > 1:
        pairs = [combine(a, b) for a, b in zip(moves[::2], moves[1::2], strict=False)]
        moves = [*pairs, *(moves[-1:] if len(moves) % 2 else [])]
    return moves[0]


def combine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(1 − a·b / 2‖a‖²) a + (1 − a·b / 2‖b‖²) b; a move of zeros adds nothing."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    of_a, of_b = (1 - x @ y / (2 * (z @ z)) if z @ z > 0 else 1.0 for z in (x, y))
    return (of_a * x + of_b * y).astype(np.float32)
