"""Tables cut by rows over the processes of a group: process r holds the rows r, r + N, r + 2N, … of each.

    pull          the rows that a process trains next come from their owners
    put_together  their moves go to the owners, who add the fold of a row's moves (exchange.py) to the row

A row, its moves and their fold are those of processes with whole tables, so the bits of a run are the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from embtrain.kernels.core.tables import zeros
from embtrain.kernels.training import adasum
from embtrain.kernels.training.adasum import Part
from embtrain.train.group.exchange import SharedTable, TableSync, parts_of, to_bytes
from embtrain.train.group.processes import ProcessGroup
from embtrain.train.group.traffic import Traffic

CHUNK = 1 << 24  # bytes of a table that one exchange moves to or from process 0
NOTHING = np.zeros(0, np.uint8)


class TableShards(TableSync):
    """The rows that one process owns, and copies of the rows that it trains on."""

    def __init__(self, group: ProcessGroup, shapes: Sequence[tuple[int, int]], wire: str, n_accumulators: int = 0,
                 traffic: Traffic | None = None):
        """shapes: (n, D) of each table. The last `n_accumulators` of them are of row-Adagrad, (n, 1).

        traffic: that of earlier synchronizations of the run, which continues.
        """
        super().__init__(group, [], wire, traffic=traffic)
        self.shapes, n_tables = list(shapes), len(shapes) - n_accumulators
        for i, (n, dim) in enumerate(shapes):
            rows, is_mean = np.zeros((len(range(group.rank, n, group.size)), dim), np.float32), i >= n_tables
            self.tables.append(SharedTable(rows, rows, np.float32 if is_mean else adasum.WIRES[wire], is_mean))
        self._pulled: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # of each table: ids, rows, rows before

    def scatter(self, whole: Sequence[np.ndarray]) -> None:
        """Send the rows of whole tables (n, D) from process 0 to their owners. Other processes pass none."""
        size = self.group.size
        for table, first, end in self._chunks():
            parts = [_as_bytes(whole[table][first + r:end:size]) if whole else NOTHING for r in range(size)]
            rows = self._as_rows(table, self.group.exchange(parts)[0])
            self.tables[table].x[first // size:first // size + len(rows)] = rows

    def collect(self, whole: Sequence[np.ndarray]) -> None:
        """Write the rows of all processes into whole tables (n, D) of process 0. Other processes pass none."""
        size = self.group.size
        for table, first, end in self._chunks():
            own = _as_bytes(self.tables[table].x[first // size:-(-end // size)])
            parts = self.group.exchange([own, *[NOTHING] * (size - 1)])
            for r, part in enumerate(parts if whole else []):
                n = len(range(first + r, end, size))
                whole[table][first + r:end:size] = self._as_rows(table, part)[:n]

    def pull(self, ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Copy rows from their owners: ids (m,) of each table, ascending, to rows (m, D) with the kernels' layout."""
        started, cpu_started, size = time.perf_counter(), time.thread_time(), self.group.size
        owned = [[part[part % size == r] for part in ids] for r in range(size)]
        requests = [_as_bytes(np.concatenate([[len(part) for part in parts], *parts])) for parts in owned]
        replies = [self._reply(self._requested(request)) for request in self.group.exchange(requests)]
        pulled = [np.zeros((len(part), 1), np.float32) if table.mean else zeros(len(part), table.x.shape[1])
                  for part, table in zip(ids, self.tables, strict=True)]
        for r, reply in enumerate(self.group.exchange(replies)):
            at = 0
            for table, (part, rows) in enumerate(zip(ids, pulled, strict=True)):
                end = at + 4 * len(owned[r][table]) * rows.shape[1]
                rows[part % size == r] = self._as_rows(table, reply[at:end])
                at = end
        self._pulled = [(part, rows, np.ascontiguousarray(rows).copy()) for part, rows in zip(ids, pulled, strict=True)]
        self._count(requests + replies, started, cpu_started)
        return pulled

    def put_together(self, rows: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        """Add the moves of the pulled rows to the rows of their owners. Returns the own ids that changed, per table.

        rows: all; there is no choice among pulled rows.
        """
        assert rows is None or all(part is None for part in rows)
        started, cpu_started, size = time.perf_counter(), time.thread_time(), self.group.size
        outgoing: list[list[Part]] = [[] for _ in range(size)]
        n_moved = 0
        for table, (ids, x, base) in zip(self.tables, self._pulled, strict=True):
            at = adasum.find_moved(x, base, 1)[0]
            moved, moves = ids[at].astype(np.int32), adasum.pack(x, base, at, table.wire)
            for owner in range(size):
                own = moved % size == owner
                outgoing[owner].append((moved[own], moves[own]))
            n_moved += len(at)
        parts = [to_bytes(part) for part in outgoing]
        incoming = [list(parts_of(part, self.tables)) for part in self.group.exchange(parts)]
        changed = []
        for i, table in enumerate(self.tables):
            ids, moves = adasum.fold([of_rank[i] for of_rank in incoming], table.mean)
            adasum.apply(table.x, table.base, ids // size, moves)
            changed.append(ids)
        self.traffic.n += 1
        self.traffic.rows += n_moved
        self.traffic.share += n_moved / sum(n for n, _ in self.shapes)
        self._count(parts, started, cpu_started)
        return changed

    def _count(self, parts: Sequence[np.ndarray], started: float, cpu_started: float) -> None:
        """Count the bytes to other processes, and the seconds."""
        size = self.group.size
        self.traffic.sent += sum(len(part) for i, part in enumerate(parts) if i % size != self.group.rank)
        self.traffic.seconds += time.perf_counter() - started
        self.traffic.cpu_seconds += time.thread_time() - cpu_started

    def _chunks(self) -> Iterator[tuple[int, int, int]]:
        """Table, first and end row of the chunks of all tables; they begin at rows of process 0."""
        size = self.group.size
        for table, (n, dim) in enumerate(self.shapes):
            step = max(1, CHUNK // (4 * dim * size)) * size
            for first in range(0, n, step):
                yield table, first, min(n, first + step)

    def _reply(self, ids: Sequence[np.ndarray]) -> np.ndarray:
        """Own rows as bytes."""
        return np.concatenate([_as_bytes(table.x[part // self.group.size])
                               for table, part in zip(self.tables, ids, strict=True)])

    def _requested(self, request: np.ndarray) -> list[np.ndarray]:
        """The ids of each table that another process requests."""
        numbers, n = request.view(np.int64), len(self.shapes)
        return np.split(numbers[n:], np.cumsum(numbers[:n])[:-1])

    def _as_rows(self, table: int, content: np.ndarray) -> np.ndarray:
        return content.view(np.float32).reshape(-1, self.shapes[table][1])


def _as_bytes(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)
