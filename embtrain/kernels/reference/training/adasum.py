"""Puts moves of table rows by several processes together, in NumPy.

kernels/training/adasum.py defines the functions, and runs this file if the compiled core is missing; the tests compare
the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Part = tuple[np.ndarray, np.ndarray]  # ids (n,) int32, ascending, and moves (n, D) of the wire


def to_wire(move: np.ndarray, wire: type[np.generic]) -> np.ndarray:
    """Moves as float32, or rounded to bfloat16 and stored as uint16."""
    if wire is np.float32:
        return move.astype(np.float32)
    bits = move.astype(np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(move), (bits >> 16 | 0x40).astype(np.uint16), rounded)


def from_wire(wire: np.ndarray) -> np.ndarray:
    return wire if wire.dtype == np.float32 else (wire.astype(np.uint32) << 16).view(np.float32)


def find_moved(x: np.ndarray, base: np.ndarray, rows: np.ndarray | None, n_owners: int
               ) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(len(x), dtype=np.int32) if rows is None else rows
    bits = np.ascontiguousarray(x[rows]).view(np.uint32) != base[rows].view(np.uint32)
    moved = rows[bits.any(1)]
    owner = moved % n_owners
    return moved[np.argsort(owner, kind="stable")], np.bincount(owner, minlength=n_owners).astype(np.int64)


def pack(x: np.ndarray, base: np.ndarray, ids: np.ndarray, wire: type[np.generic]) -> np.ndarray:
    return to_wire(x[ids] - base[ids], wire)


def fold(parts: Sequence[Part], mean: bool) -> Part:
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


def apply(x: np.ndarray, base: np.ndarray, ids: np.ndarray, wire: np.ndarray) -> None:
    base[ids] += from_wire(wire)
    x[ids] = base[ids]
