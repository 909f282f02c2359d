"""Tables cut by rows over the processes of a group: process r holds the rows r, r + N, r + 2N, … of each.

    pull          the rows that a process trains next come from their owners
    put_together  their moves go to the owners, who add the fold of a row's moves (exchange.py) to the row

A row, its moves and their fold are those of processes with whole tables, so the bits of a run are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from embtrain.kernels.core.tables import zeros
from embtrain.kernels.training import adasum
from embtrain.kernels.training.adasum import SharedTable, SharedTables
from embtrain.train.group.exchange import TableSync
from embtrain.train.group.processes import ProcessGroup
from embtrain.train.group.traffic import Traffic

CHUNK = 1 << 24  # bytes of a table that one exchange moves to or from process 0
NOTHING = np.zeros(0, np.uint8)


class TableShards(TableSync):
    """The rows that one process owns, and copies of the rows that it trains on."""

    def __init__(self, group: ProcessGroup, shapes: Sequence[tuple[int, int]], wire: str, n_accumulators: int = 0,
                 traffic: Traffic | None = None, threads: int = 1, is_padded: bool = True):
        """shapes: (n, D) of each table. The last `n_accumulators` of them are of row-Adagrad, (n, 1).

        traffic and threads: as of TableSync. is_padded: whether pulled rows have the layout of the kernels.
        """
        super().__init__(group, [], wire, traffic=traffic, threads=threads)
        self.shapes, self.is_padded, n_tables = list(shapes), is_padded, len(shapes) - n_accumulators
        own = []
        for i, (n, dim) in enumerate(shapes):
            rows, is_mean = np.zeros((len(range(group.rank, n, group.size)), dim), np.float32), i >= n_tables
            own.append(SharedTable(rows, rows, np.float32 if is_mean else adasum.WIRES[wire], is_mean,
                                   step=group.size))
        self.tables, self._pulled = SharedTables(own), SharedTables([])

    def scatter(self, whole: Sequence[np.ndarray]) -> None:
        """Send the rows of whole tables (n, D) from process 0 to their owners. Other processes pass none."""
        size = self.group.size
        for table, first, end in self._chunks():
            parts = [_as_bytes(whole[table][first + r:end:size]) if whole else NOTHING for r in range(size)]
            rows = self._as_rows(table, self.group.exchange(parts)[0])
            self._own(table)[first // size:first // size + len(rows)] = rows

    def collect(self, whole: Sequence[np.ndarray]) -> None:
        """Write the rows of all processes into whole tables (n, D) of process 0. Other processes pass none."""
        size = self.group.size
        for table, first, end in self._chunks():
            own = _as_bytes(self._own(table)[first // size:-(-end // size)])
            parts = self.group.exchange([own, *[NOTHING] * (size - 1)])
            for r, part in enumerate(parts if whole else []):
                n = len(range(first + r, end, size))
                whole[table][first + r:end:size] = self._as_rows(table, part)[:n]

    def pull(self, ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Copy rows from their owners: ids (m,) of each table, ascending, to rows (m, D)."""
        size = self.group.size
        with self.traffic.timed("synchronization"):
            owned = [[part[part % size == r] for part in ids] for r in range(size)]
            requests = [_as_bytes(np.concatenate([[len(part) for part in parts], *parts])) for parts in owned]
            replies = [self._reply(self._requested(request)) for request in self.group.exchange(requests)]
            pulled = [zeros(len(part), table.x.shape[1]) if self.is_padded and not table.mean else
                      np.zeros((len(part), table.x.shape[1]), np.float32)
                      for part, table in zip(ids, self.tables, strict=True)]
            for r, reply in enumerate(self.group.exchange(replies)):
                at = 0
                for table, (part, rows) in enumerate(zip(ids, pulled, strict=True)):
                    end = at + 4 * len(owned[r][table]) * rows.shape[1]
                    rows[part % size == r] = self._as_rows(table, reply[at:end])
                    at = end
        self._pulled = SharedTables([SharedTable(rows, np.ascontiguousarray(rows).copy(), table.wire, table.mean,
                                    part.astype(np.int32))
                        for part, rows, table in zip(ids, pulled, self.tables, strict=True)])
        self._count_sent(requests + replies)
        return pulled

    def put_together(self, rows: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        """Add the moves of the pulled rows to the rows of their owners. Returns the own ids that changed, per table.

        rows: all; there is no choice among pulled rows.
        """
        assert rows is None or all(part is None for part in rows)
        traffic = self.traffic
        with traffic.timed("synchronization"):
            with traffic.working("pack"):
                parts, n_moved = adasum.pack(self._pulled, self.group.size, threads=self.threads)
            incoming = self.group.exchange(parts)
            with traffic.working("fold"):
                own = adasum.fold(self.tables, incoming, self.threads)
            with traffic.working("apply"):
                changed = adasum.apply(self.tables, [own], self.threads)
        traffic.count(n_moved, sum(n for n, _ in self.shapes))
        self._count_sent(parts)
        return changed

    def _count_sent(self, parts: Sequence[np.ndarray]) -> None:
        """Count the bytes to other processes. parts: one or more for each process, in order."""
        size = self.group.size
        self.traffic.sent += sum(len(part) for i, part in enumerate(parts) if i % size != self.group.rank)

    def _own(self, table: int) -> np.ndarray:
        """The rows of a table that this process owns."""
        return list(self.tables)[table].x

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
