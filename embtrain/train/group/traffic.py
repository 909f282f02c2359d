"""Estimates the bytes that a process sends to the others, from the rows that move in one interval.

    to the owners of its rows: m (N − 1) / N     the folded rows that it owns, to all: at most N m (N − 1) / N

m: rows that a process moves between two synchronizations. A row takes 4 bytes for its id and those of its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from embtrain.train.group.config import SyncConfig

BYTES = {"float32": 4, "bfloat16": 2}


class MovedRows:
    """Counts the rows of tables (n, D) that differ from those at the start."""

    def __init__(self, tables: Sequence[Tensor]):
        self._tables, self._start = list(tables), [table.detach().clone() for table in tables]

    def count(self) -> list[tuple[int, int, int]]:
        """Rows that moved, rows and dimensions of each table."""
        return [(int((table.detach() != start).any(1).sum()), *start.shape)
                for table, start in zip(self._tables, self._start, strict=True)]


def sent_bytes(moved: Sequence[tuple[int, int, int]], config: SyncConfig, processes: int) -> int:
    """Bytes that one of N processes sends at a synchronization, at most."""
    total = 0.0
    for m, n, dim in moved:
        row, others = 4 + BYTES[config.wire] * dim, processes - 1
        total += row * others * (m / processes + min(n, processes * m) / processes)
    return round(total)


def dense_bytes(moved: Sequence[tuple[int, int, int]], processes: int) -> int:
    """Bytes of a ring all-reduce of all tables in float32."""
    return round(sum(2 * (processes - 1) / processes * 4 * n * dim for _, n, dim in moved))


def describe(moved: Sequence[tuple[int, int, int]], config: SyncConfig, processes: int, words: float) -> str:
    """One line for a dry run. words: of the corpus, that a process trains on between two synchronizations."""
    sent = sent_bytes(moved, config, processes)
    return (f"{sum(m for m, _, _ in moved):,} rows move in {words:,.0f} words; each of {processes} processes sends at "
            f"most {sent / 1e6:,.1f} MB per synchronization, {sent / words:,.1f} MB per million words (an all-reduce "
            f"of the tables: {dense_bytes(moved, processes) / words:,.1f})")


def tables_of(model: torch.nn.Module) -> list[Tensor]:
    """The tables that processes put together."""
    return [p for p in model.parameters() if p.requires_grad]
