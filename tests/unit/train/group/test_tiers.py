"""Rows by frequency: which are exchanged when, and tables that follow the schedule, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.looped import looped

from embtrain.common.types import ProblemSpec
from embtrain.data.vectors.subword_table import ngram_rows
from embtrain.kernels.reference.training import adasum as reference
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.models.words.subword import SubwordConfig
from embtrain.train.group.exchange import TableSync
from embtrain.train.group.processes import ProcessGroup
from embtrain.train.group.tiers import RowSchedule, counts_of
from embtrain.train.group.turns import in_turns

COUNTS = [np.random.default_rng(3).permutation(90).astype(float), np.random.default_rng(4).permutation(40) / 7]


LONG = 1000  # synchronizations of an epoch


def is_exchanged(count: np.ndarray, row: int, s: int, is_last: bool, frequent: int, longest: int = 64) -> bool:
    """The rule, for one row: it is among the frequent ones whose period divides s."""
    more_frequent = int((count > count[row]).sum())
    periods = [p for p in (1, 2, 4, 8, 16, 32) if p < longest and more_frequent < frequent * p]
    return is_last or s % (periods[0] if periods else longest) == 0


@looped("n_syncs, longest", [(1, 1), (15, 1), (16, 2), (31, 2), (32, 4), (127, 8), (128, 16),
                                 (511, 32), (512, 64), (10_000, 64)])
def test_short_epochs_exchange_all_rows_more_often(n_syncs: int, longest: int) -> None:
    schedule = RowSchedule(COUNTS, 1, n_syncs)
    every = [s for s in range(1, 129) if schedule.exchanges_all(s, False)]
    assert every == list(range(longest, 129, longest))
    assert n_syncs // longest >= min(8, n_syncs)
    for s in range(1, 65):
        for count, rows in zip(COUNTS, schedule.rows(s, False), strict=True):
            found = range(len(count)) if rows is None else rows.tolist()
            assert list(found) == [row for row in range(len(count)) if is_exchanged(count, row, s, False, 1, longest)]


@pytest.mark.parametrize("frequent", [1, 5, 16, 64, 200])
def test_the_rows_of_each_synchronization(frequent: int) -> None:
    schedule = RowSchedule(COUNTS, frequent, LONG)
    for s in range(1, 131):
        for is_last in (False, True):
            all_rows = True
            for count, rows in zip(COUNTS, schedule.rows(s, is_last), strict=True):
                expected = [row for row in range(len(count)) if is_exchanged(count, row, s, is_last, frequent)]
                assert (list(range(len(count))) if rows is None else rows.tolist()) == expected, s
                all_rows &= len(expected) == len(count)
            assert schedule.exchanges_all(s, is_last) == all_rows
    assert RowSchedule(COUNTS, frequent, LONG).exchanges_all(64, False)


@pytest.mark.parametrize("frequent", [1, 5, 16, 200])
def test_tiers_divide_the_rows_by_their_period(frequent: int) -> None:
    schedule = RowSchedule(COUNTS, frequent, LONG)
    for i, count in enumerate(COUNTS):
        period_of = {int(row): period for period, rows in schedule.tiers() for row in rows[i]}    # type: ignore[union-attr]
        assert sum(len(rows[i]) for _, rows in schedule.tiers()) == len(count) == len(period_of)  # type: ignore[arg-type]
        for row, period in period_of.items():
            assert [s for s in range(1, 65) if is_exchanged(count, row, s, False, frequent)] \
                == list(range(period, 65, period))
    assert RowSchedule(COUNTS, None, LONG).tiers() == [(1, [None, None])]
    assert RowSchedule(COUNTS, None, LONG).exchanges_all(1, False)


@pytest.mark.parametrize("n", [2, 3])
def test_tables_follow_the_schedule_as_in_numpy(n: int) -> None:
    """Each process keeps its moves of a row until the row is exchanged; at the end all have the same bits."""
    dims, last = (6, 3), 9

    def moves(rank: int, s: int) -> list[np.ndarray]:
        draw = np.random.default_rng([rank, s])
        return [(draw.normal(size=(len(count), dim)) * (draw.random((len(count), 1)) < 0.4)).astype(np.float32)
                for count, dim in zip(COUNTS, dims, strict=True)]

    def body(group: ProcessGroup) -> list[list[np.ndarray]]:
        tables = [torch.zeros(len(count), dim) for count, dim in zip(COUNTS, dims, strict=True)]
        sync, schedule, history = TableSync(group, tables, "float32"), RowSchedule(COUNTS, 4, LONG), []
        for s in range(1, last + 1):
            for table, move in zip(tables, moves(group.rank, s), strict=True):
                table += torch.from_numpy(move)
            sync.put_together(schedule.rows(s, s == last))
            history.append([table.numpy().copy() for table in tables])
        return history

    histories = in_turns(n, body)
    for i, (count, dim) in enumerate(zip(COUNTS, dims, strict=True)):
        base = np.zeros((len(count), dim))
        own = np.zeros((n, len(count), dim))
        for s in range(1, last + 1):
            for rank in range(n):
                own[rank] += moves(rank, s)[i]
            for row in range(len(count)):
                if is_exchanged(count, row, s, s == last, 4):
                    moved = [own[rank, row] - base[row] for rank in range(n) if (own[rank, row] != base[row]).any()]
                    base[row] += reference.adasum(moved) if moved else 0
                    own[:, row] = base[row]
            for rank in range(n):
                assert np.allclose(histories[rank][s - 1][i], own[rank], atol=1e-4), (s, rank)
        assert len({histories[rank][-1][i].tobytes() for rank in range(n)}) == 1
        assert len({histories[rank][-2][i].tobytes() for rank in range(n)}) == n      # they did differ before


def test_accumulators_follow_the_schedule_of_their_table() -> None:
    def body(group: ProcessGroup) -> list[list[float]]:
        table, sums, history = torch.zeros(4, 2), torch.zeros(4), []
        sync, schedule = TableSync(group, [table], "float32", [sums]), RowSchedule([np.array([1., 9, 5, 2])], 1, LONG)
        for s in range(1, 5):
            table += 1
            sums += 1 + group.rank
            sync.put_together(schedule.rows(s, False))
            history.append(sums.tolist())
        return history
    assert in_turns(2, body)[0] == [[1, 1.5, 1, 1], [2, 3, 3, 2], [3, 4.5, 4, 3], [6, 6, 6, 6]]


def test_rows_of_ngrams_count_the_words_that_contain_them() -> None:
    words = ["abab", "bab", "q"]
    config = SkipGramConfig(name="skipgram", dim=4, subword=SubwordConfig(min_n=3, max_n=3, buckets="exact"))
    problem = ProblemSpec(3, torch.tensor([1.0, 1, 1]), 3, raw_counts=torch.tensor([10.0, 3, 2]), dim=4, words=words,
                          ngram_rows=ngram_rows)
    u, v = counts_of(SkipGram(config, problem))
    assert v.tolist() == [10, 3, 2] == u[:3].tolist()
    # abab: <ab aba bab ab>    bab: <ba bab ab>    q: <q>
    assert sorted(u[3:].tolist()) == [2, 3, 10, 10, 13, 13]
