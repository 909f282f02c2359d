"""Which rows processes exchange at a synchronization: frequent rows at each, rarer ones less often ([ji2016]).

    synchronization s = 1, 2, … of S of an epoch exchanges the R p most frequent rows of each table,
    p: the largest power of 2 that divides s;  all rows if p ≥ P, and at the last of an epoch
    P: the largest power of 2 up to S / 8 and 64, at least 1

R: train.sync.frequent_rows. A short epoch has a small P, because rows whose moves are put together a few times in a run
learn little from the other processes. Between two exchanges of a row each process keeps its own moves of it. Processes
have the same bits only after all rows were exchanged. Only there is a run evaluated, saved or stopped, so that neither
a signal nor the time of a checkpoint changes its result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from embtrain.models.base import Model
from embtrain.models.triples.base import TripleModel
from embtrain.models.words.skipgram import SkipGram
from embtrain.models.xc import XC
from embtrain.train.group.traffic import tables_of

LONGEST = 64   # synchronizations between two that exchange all rows, at most: a signal waits no longer
OF_AN_EPOCH = 8  # synchronizations of all rows in an epoch, at least, if it has as many


def longest_period(n_syncs: int) -> int:
    """P: synchronizations between two that exchange all rows, in an epoch of n_syncs."""
    return 1 << max(0, min(LONGEST, n_syncs // OF_AN_EPOCH).bit_length() - 1)


class RowSchedule:
    """The rows of each table that each synchronization exchanges."""

    def __init__(self, counts: Sequence[np.ndarray], frequent_rows: int | None, n_syncs: int):
        """counts (n,): how often the rows of each table occur in training. frequent_rows: R, or None for all rows.
        n_syncs: synchronizations of an epoch.
        """
        self._longest = longest_period(n_syncs)
        self._frequent_rows, self._sizes = frequent_rows, [len(count) for count in counts]
        self._order = [] if frequent_rows is None else [np.argsort(-count, kind="stable").astype(np.int32)
                                                        for count in counts]
        self._rows: dict[int, list[np.ndarray | None]] = {}

    def rows(self, s: int, is_last: bool) -> list[np.ndarray | None]:
        """Ids (r,) int32 of each table, ascending, that synchronization s exchanges; None: all.

        is_last: whether s is the last one of its epoch.
        """
        period = self._longest if is_last or self._frequent_rows is None else min(s & -s, self._longest)
        if period not in self._rows:
            self._rows[period] = [np.sort(self._order[i][:n_rows]) if n_rows < size else None
                                  for i, (n_rows, size) in enumerate(zip(self._sizes_at(period), self._sizes,
                                                                         strict=True))]
        return self._rows[period]

    def exchanges_all(self, s: int, is_last: bool) -> bool:
        """Whether all processes have the same bits after synchronization s."""
        return all(rows is None for rows in self.rows(s, is_last))

    def tiers(self) -> list[tuple[int, list[np.ndarray | None]]]:
        """The period of each tier, and its rows: those of `rows` that are in no tier of a shorter period."""
        if self._frequent_rows is None:
            return [(1, [None] * len(self._sizes))]
        out, begins, period = list[tuple[int, list[np.ndarray | None]]](), [0] * len(self._sizes), 1
        while begins != self._sizes:
            ends = self._sizes_at(period)
            out.append((period, [np.sort(order[begin:end]) for order, begin, end
                                 in zip(self._order, begins, ends, strict=True)]))
            begins, period = ends, 2 * period
        return out

    def _sizes_at(self, period: int) -> list[int]:
        """Rows of each table that are exchanged at multiples of a period."""
        if self._frequent_rows is None or period == self._longest:
            return self._sizes
        return [min(size, self._frequent_rows * period) for size in self._sizes]


def counts_of(model: Model) -> list[np.ndarray]:
    """How often the rows of each table that processes put together occur in training, (n,) float64 each.

    A row of an n-gram occurs with each word that contains it. Relations, which are few, count as equally frequent.
    """
    problem = model.problem
    candidates = (problem.counts if problem.raw_counts is None else problem.raw_counts).double().cpu()
    if isinstance(model, TripleModel):
        return [candidates.numpy(), np.zeros(model.n_relations)]
    if isinstance(model, XC):
        assert problem.feature_counts is not None, "the task counts the features of its training documents"
        return [problem.feature_counts.numpy(), candidates.numpy()]
    of_size = {len(candidates): candidates}
    if isinstance(model, SkipGram) and (pool := model.pool) is not None:
        n_rows = len(pool) + pool.n_ngrams
        of_size[n_rows] = torch.zeros(n_rows, dtype=torch.float64).index_add_(
            0, pool.row, candidates.repeat_interleave(pool.start.diff()))
    return [of_size[len(table)].numpy() for table in tables_of(model)]
