"""Counts and estimates of the bytes that synchronizations send."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embtrain.train.group import traffic
from embtrain.train.group.config import SyncConfig
from embtrain.train.group.exchange import TableSync
from embtrain.train.group.processes import SOLO, ProcessGroup
from embtrain.train.group.tiers import RowSchedule
from embtrain.train.group.traffic import Moved, Traffic
from embtrain.train.group.turns import in_turns


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
@pytest.mark.parametrize("n", [2, 4])
def test_the_estimate_is_an_upper_bound_that_disjoint_moves_reach(n: int, wire: str) -> None:
    def body(group: ProcessGroup) -> tuple[int, int]:
        tables = [torch.zeros(4000, 32)]
        sync, moved = TableSync(group, tables, wire), traffic.MovedRows(tables, [(1, [None])])
        tables[0][group.rank * 1000:group.rank * 1000 + 400] += 1
        tables[0][3500:3600] += 1 + group.rank                                    # rows that all move
        count = moved.count()
        sync.put_together()
        assert count == [(1, 500, 4000, 32)]
        return sync.traffic.sent, traffic.sent_bytes(count, SyncConfig(wire=wire), n)  # type: ignore[arg-type]
    for sent, estimate in in_turns(n, body):
        assert 0.8 * estimate < sent < 1.02 * estimate


@pytest.mark.parametrize("n", [2, 4])
def test_the_estimate_with_tiers_is_an_upper_bound_of_the_mean_over_a_cycle(n: int) -> None:
    def body(group: ProcessGroup) -> tuple[float, int]:
        tables, draw = [torch.zeros(600, 32)], np.random.default_rng(group.rank)
        schedule = RowSchedule([np.arange(600.0, 0, -1)], 20, 1000)
        sync, moved = TableSync(group, tables, "bfloat16"), traffic.MovedRows(tables, schedule.tiers())
        count = list[Moved]()
        for s in range(1, 65):
            rows = torch.from_numpy(draw.choice(600, 60, replace=False))
            tables[0][rows] += torch.from_numpy(draw.normal(size=(60, 32)).astype(np.float32))
            count = count or moved.count()
            sync.put_together(schedule.rows(s, False))
        assert sum(tier.of for tier in count) == 600 and sum(tier.moved for tier in count) == 60
        return sync.traffic.sent / 64, traffic.sent_bytes(count, SyncConfig(), n)
    for sent, estimate in in_turns(n, body):
        assert 0.5 * estimate < sent < 1.02 * estimate


def test_what_was_counted() -> None:
    table = torch.zeros(100, 8)
    sync = TableSync(SOLO, [table], "float32")
    for rows in (10, 30):
        table[:rows] += 1
        sync.put_together()
    counted = sync.traffic
    assert counted.n == 2 and counted.rows == 40 and counted.share == pytest.approx(0.4)
    assert counted.serial_seconds > 0 and counted.cpu_seconds > 0
    assert 0 < sum(counted.seconds[part] for part in traffic.WORK) < counted.seconds["synchronization"]
    counted.sent, counted.words, counted.seconds["synchronization"] = 3_000_000, 500_000.0, 4.0
    counted.seconds |= {"pack": 0.2, "fold": 0.4, "apply": 0.6}
    assert counted.fields().items() >= {"sync/rows": 20, "sync/share": 0.2, "sync/megabytes": 1.5, "sync/seconds": 2,
                                        "sync/pack_seconds": 0.1, "sync/fold_seconds": 0.2, "sync/apply_seconds": 0.3,
                                        "sync/megabytes_per_million_words": 6.0}.items()
    assert [(row.metric, row.value) for row in counted.scores()] == [
        ("seconds of synchronization", 4.0), ("share of rows per synchronization", 0.2),
        ("megabytes per million words", 6.0)]
    assert str(counted) == ("2 synchronizations in 4.0 s: each sent 20.0% of the rows, 1.50 MB, 6.0 MB per million "
                            "words")
    counted.words = 0.0                                                                  # nodes of a graph
    assert "sync/megabytes_per_million_words" not in counted.fields() and "million" not in str(counted)
    assert Traffic().fields() == {} and Traffic().scores() == [] and str(Traffic()) == ""


def test_the_line_of_a_dry_run() -> None:
    line = traffic.describe([Moved(1, 1000, 5000, 100), Moved(1, 2000, 5000, 100)], SyncConfig(), 4, 50_000)
    assert line == ("3,000 rows move in 50,000 words; each of 4 processes sends at most 1.8 MB per synchronization, "
                    "36.7 MB per million words (an all-reduce of the tables: 120.0)")
    line = traffic.describe([Moved(1, 1000, 5000, 100)], SyncConfig(), 4, 0)                # triples
    assert line == ("1,000 rows move in an interval; each of 4 processes sends at most 0.8 MB per synchronization (an "
                    "all-reduce of the tables: 3.0 MB)")
    assert traffic.dense_bytes([Moved(4, 1000, 5000, 100)], 4) == 3_000_000
    every, fourth = (traffic.sent_bytes([Moved(period, 100, 100, 10)], SyncConfig(), 2) for period in (1, 4))
    assert every == 4 * fourth
