"""Bytes that a process sends to the others: counted at synchronizations, and estimated from the rows that move.

    to the owners of its rows: m (N − 1) / N     the folded rows that it owns, to all: at most N m (N − 1) / N

m: rows that a process moves between two exchanges of them, at most p times those that move in one interval, if they are
exchanged at every p-th synchronization (tiers.py). A row takes 4 bytes for its id and those of its numbers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import Score
from embtrain.train.group.config import SyncConfig

BYTES = {"float32": 4, "bfloat16": 2}
WORK = ("pack", "fold", "apply")  # the parts of a synchronization that a process does without the others


@dataclass
class Traffic:
    """What the synchronizations of one process have taken so far."""

    n: int = 0                # synchronizations
    rows: int = 0             # rows that it sent
    share: float = 0.0        # of the rows of all tables, summed over the synchronizations
    sent: int = 0             # bytes to other processes
    words: float = 0.0        # of the corpus, that this process trained on
    #: Seconds of the work, and of the whole synchronizations, the wait for other processes included.
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys((*WORK, "synchronization"), 0.0))
    cpu_seconds: float = 0.0     # of the work, all threads
    serial_seconds: float = 0.0  # those of the calling thread, which waits while several others work

    @contextlib.contextmanager
    def working(self, part: str) -> Iterator[None]:
        """Count the seconds of a block, which is a part of WORK."""
        cpu, serial = time.process_time(), time.thread_time()
        with self.timed(part):
            yield
        self.cpu_seconds += time.process_time() - cpu
        self.serial_seconds += time.thread_time() - serial

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds of a block to `seconds`."""
        started = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - started

    def count(self, moved: int, n_rows: int) -> None:
        """Count a synchronization that sent `moved` of the n_rows rows of all tables."""
        self.n, self.rows, self.share = self.n + 1, self.rows + moved, self.share + moved / n_rows

    @property
    def per_million_words(self) -> float | None:
        """Megabytes sent per million words that this process trained on; None for examples that are not words."""
        return self.sent / self.words if self.words else None

    def fields(self) -> dict[str, float]:
        """Values for the log: means over the synchronizations so far. Empty before the first."""
        if not self.n:
            return {}
        fields = {"sync/rows": round(self.rows / self.n), "sync/share": round(self.share / self.n, 6),
                  "sync/megabytes": round(self.sent / self.n / 1e6, 6),
                  "sync/seconds": round(self.seconds["synchronization"] / self.n, 6),
                  "sync/cpu_seconds": round(self.cpu_seconds / self.n, 6)}
        fields |= {f"sync/{name}_seconds": round(self.seconds[name] / self.n, 6) for name in WORK}
        if self.per_million_words is not None:
            fields["sync/megabytes_per_million_words"] = round(self.per_million_words, 6)
        return fields

    def scores(self) -> list[Score]:
        """Rows of scores.json. Empty for a run that was never synchronized."""
        if not self.n:
            return []
        rows = [Score("training", "seconds of synchronization", round(self.seconds["synchronization"], 3), n=self.n,
                      note=f"{self.cpu_seconds:.1f} CPU-s of process 0, {self.n:,} synchronizations"),
                Score("training", "share of rows per synchronization", self.share / self.n, n=self.n)]
        if self.per_million_words is not None:
            rows.append(Score("training", "megabytes per million words", self.per_million_words, n=self.n,
                              note="sent by process 0, per million words that it trained on"))
        return rows

    def __str__(self) -> str:
        if not self.n:
            return ""
        of_words = "" if self.per_million_words is None else f", {self.per_million_words:,.1f} MB per million words"
        return (f"{self.n:,} synchronizations in {self.seconds['synchronization']:,.1f} s: each sent "
                f"{self.share / self.n:.1%} of the rows, {self.sent / self.n / 1e6:,.2f} MB{of_words}")


class Moved(NamedTuple):
    """Rows of one tier of a table."""

    period: int  # synchronizations between two exchanges
    moved: int   # rows that moved in one interval
    of: int      # rows of the tier
    dim: int


class MovedRows:
    """Counts the rows of tables (n, D) that differ from those at the start, by tier."""

    def __init__(self, tables: Sequence[Tensor], tiers: Sequence[tuple[int, Sequence[np.ndarray | None]]]):
        """tiers: period, and rows of each table, or None for all."""
        self._tables, self._start = list(tables), [table.detach().clone() for table in tables]
        self._tiers = tiers

    def count(self) -> list[Moved]:
        """The rows that moved, by table and tier."""
        out = []
        for i, (table, start) in enumerate(zip(self._tables, self._start, strict=True)):
            differs = (table.detach() != start).any(1).numpy()
            for period, rows in self._tiers:
                of_tier = differs if (of_table := rows[i]) is None else differs[of_table]
                out.append(Moved(period, int(of_tier.sum()), len(of_tier), start.shape[1]))
        return out


def sent_bytes(moved: Sequence[Moved], config: SyncConfig, processes: int) -> int:
    """Bytes that one of N processes sends at a synchronization on average, at most."""
    total = 0.0
    for period, in_interval, n, dim in moved:
        row, others, m = 4 + BYTES[config.wire] * dim, processes - 1, min(n, period * in_interval)
        total += row * others * (m / processes + min(n, processes * m) / processes) / period
    return round(total)


def dense_bytes(moved: Sequence[Moved], processes: int) -> int:
    """Bytes of a ring all-reduce of all tables in float32."""
    return round(sum(2 * (processes - 1) / processes * 4 * n * dim for _, _, n, dim in moved))


def describe(moved: Sequence[Moved], config: SyncConfig, processes: int, words: float) -> str:
    """One line for a dry run. words: of the corpus, that a process trains on between two synchronizations, or 0."""
    sent, dense = sent_bytes(moved, config, processes) / 1e6, dense_bytes(moved, processes) / 1e6
    of_words = f", {1e6 * sent / words:,.1f} MB per million words" if words else ""
    dense, unit = (1e6 * dense / words, "") if words else (dense, " MB")
    return (f"{sum(tier.moved for tier in moved):,} rows move in {f'{words:,.0f} words' if words else 'an interval'}; "
            f"each of {processes} processes sends at most {sent:,.1f} MB per synchronization{of_words} (an all-reduce "
            f"of the tables: {dense:,.1f}{unit})")


def tables_of(model: torch.nn.Module) -> list[Tensor]:
    """The tables that processes put together."""
    return [p for p in model.parameters() if p.requires_grad]
