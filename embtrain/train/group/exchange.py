"""Puts the tables of all processes together: rows that moved go to their owners, and their Adasum to all.

kernels/training/adasum.py has the equation. Each process keeps a copy of every row as of its last exchange, when it was
equal on all. Afterwards all processes have the same bits in the rows that were exchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from embtrain.kernels.training import adasum
from embtrain.kernels.training.adasum import SharedTable, SharedTables
from embtrain.train.group.processes import ProcessGroup
from embtrain.train.group.traffic import Traffic


class TableSync:
    """The tables of one process, and what it takes to put them together with those of the others."""

    def __init__(self, group: ProcessGroup, tables: Sequence[Tensor], wire: str, accumulators: Sequence[Tensor] = (),
                 traffic: Traffic | None = None, threads: int = 1):
        """tables: (n, D) each. accumulators: of row-Adagrad, (n,) of each table; a row gets their mean where it moved.

        traffic: that of earlier synchronizations of the run, which continues. threads: for the work on the rows.
        """
        self.group, self.traffic, self.threads = group, traffic or Traffic(), threads
        self._n_tables = len(tables)
        shared = [SharedTable(x, np.ascontiguousarray(x).copy(), adasum.WIRES[wire])
                  for x in (table.detach().numpy() for table in tables)]
        shared += [SharedTable(h, h.copy(), np.float32, mean=True)
                   for h in (values.numpy().reshape(-1, 1) for values in accumulators)]
        self.tables = SharedTables(shared)

    def put_together(self, rows: Sequence[np.ndarray | None] | None = None) -> list[np.ndarray]:
        """Make rows of the tables equal on all processes. Returns the ids of the rows of each table that changed.

        rows: ids (r,) int32 of each table, ascending, the same on all processes; None: all.
        """
        group, traffic = self.group, self.traffic
        limits = None if rows is None else [x for x, _ in zip(itertools.cycle(rows), self.tables, strict=False)]
        with traffic.timed("synchronization"):
            with traffic.working("pack"):
                parts, n_moved = adasum.pack(self.tables, group.size, limits, self.threads)
            incoming = group.exchange(parts)
            with traffic.working("fold"):
                own = adasum.fold(self.tables, incoming, self.threads)
            folded = group.gather(own)
            with traffic.working("apply"):
                changed = adasum.apply(self.tables, folded, self.threads)
        traffic.count(n_moved, sum(len(table.x) for table in self.tables))
        traffic.sent += sum(map(len, parts)) - len(parts[group.rank]) + (group.size - 1) * len(own)
        return changed
