"""Puts the tables of all processes together: rows that moved go to their owners, and their Adasum to all.

kernels/training/adasum.py has the equation. Each process keeps a copy of every row as of its last exchange, when it was
equal on all. Afterwards all processes have the same bits in the rows that were exchanged.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from embtrain.kernels.training import adasum
from embtrain.kernels.training.adasum import Part
from embtrain.train.group.processes import ProcessGroup
from embtrain.train.group.traffic import Traffic


@dataclass(frozen=True)
class SharedTable:
    """One table (n, D) and its copy. mean: rows get the mean of their moves, not the Adasum."""

    x: np.ndarray
    base: np.ndarray
    wire: type[np.generic]
    mean: bool = False


class TableSync:
    """The tables of one process, and what it takes to put them together with those of the others."""

    def __init__(self, group: ProcessGroup, tables: Sequence[Tensor], wire: str, accumulators: Sequence[Tensor] = (),
                 traffic: Traffic | None = None):
        """tables: (n, D) each. accumulators: of row-Adagrad, (n,) of each table; a row gets their mean where it moved.

        traffic: that of earlier synchronizations of the run, which continues.
        """
        self.group, self.traffic, self._n_tables = group, traffic or Traffic(), len(tables)
        self.tables = [SharedTable(x, np.ascontiguousarray(x).copy(), adasum.WIRES[wire])
                       for x in (table.detach().numpy() for table in tables)]
        self.tables += [SharedTable(h, h.copy(), np.float32, mean=True)
                        for h in (values.numpy().reshape(-1, 1) for values in accumulators)]

    def put_together(self, rows: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        """Make rows of the tables equal on all processes. Returns the ids of the rows of each table that changed.

        rows: ids (r,) int32 of each table, ascending, the same on all processes; None: all.
        """
        started, cpu_started, size, rank = time.perf_counter(), time.thread_time(), self.group.size, self.group.rank
        outgoing: list[list[Part]] = [[] for _ in range(size)]
        n_moved = 0
        for table, limit in zip(self.tables, itertools.cycle(rows or [None] * self._n_tables), strict=False):
            ids, count = adasum.find_moved(table.x, table.base, size, limit)
            moves = adasum.pack(table.x, table.base, ids, table.wire)
            ends = np.cumsum(count)
            for owner, (end, n) in enumerate(zip(ends, count, strict=True)):
                outgoing[owner].append((ids[end - n:end], moves[end - n:end]))
            n_moved += len(ids)
        parts = [to_bytes(part) for part in outgoing]
        incoming = [self._from_bytes(part) for part in self.group.exchange(parts)]
        folded = [adasum.fold([of_rank[i] for of_rank in incoming], table.mean)
                  for i, table in enumerate(self.tables)]
        own = to_bytes(folded)
        changed: list[list[np.ndarray]] = [[] for _ in self.tables]
        for part in self.group.gather(own):
            for table, (ids, moves), changes in zip(self.tables, self._from_bytes(part), changed, strict=True):
                adasum.apply(table.x, table.base, ids, moves)
                changes.append(ids)
        self.traffic.n += 1
        self.traffic.rows += n_moved
        self.traffic.share += n_moved / sum(len(table.x) for table in self.tables)
        self.traffic.sent += sum(map(len, parts)) - len(parts[rank]) + (size - 1) * len(own)
        self.traffic.seconds += time.perf_counter() - started
        self.traffic.cpu_seconds += time.thread_time() - cpu_started
        return [np.concatenate(changes) for changes in changed]

    def _from_bytes(self, content: np.ndarray) -> list[Part]:
        return list(parts_of(content, self.tables))


def to_bytes(parts: Sequence[Part]) -> np.ndarray:
    """Ids and moves of each table as bytes (n,): the numbers of rows, then both of each table, at multiples of 8."""
    pieces = [np.array([len(ids) for ids, _ in parts], np.int64).view(np.uint8)]
    for part in parts:
        for array in part:
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            pieces += [flat, np.zeros(-len(flat) % 8, np.uint8)]
    return np.concatenate(pieces)


def parts_of(content: np.ndarray, tables: Sequence[SharedTable]) -> Iterator[Part]:
    """Ids and moves of each table from the bytes of `to_bytes`."""
    content = content if content.ctypes.data % 8 == 0 else content.copy()
    at = 8 * len(tables)
    for n, table in zip(content[:at].view(np.int64).tolist(), tables, strict=True):
        arrays = []
        for dtype, width in ((np.int32, 1), (table.wire, table.x.shape[1])):
            size = n * width * np.dtype(dtype).itemsize
            arrays.append(content[at:at + size].view(dtype))
            at += size + -size % 8
        yield arrays[0], arrays[1].reshape(n, table.x.shape[1])
