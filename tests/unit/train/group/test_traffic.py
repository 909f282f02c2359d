"""The estimate of an exchange against what synchronizations send."""

from __future__ import annotations

import pytest
import torch
from helpers.groups import in_threads

from embtrain.train.group import traffic
from embtrain.train.group.config import SyncConfig
from embtrain.train.group.exchange import TableSync
from embtrain.train.group.processes import ProcessGroup


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
@pytest.mark.parametrize("n", [2, 4])
def test_the_estimate_is_an_upper_bound_that_disjoint_moves_reach(n: int, wire: str) -> None:
    def body(group: ProcessGroup) -> tuple[int, int]:
        tables = [torch.zeros(4000, 32)]
        sync, moved = TableSync(group, tables, wire), traffic.MovedRows(tables)
        tables[0][group.rank * 1000:group.rank * 1000 + 400] += 1
        tables[0][3500:3600] += 1 + group.rank                                    # rows that all move
        count = moved.count()
        sync.put_together()
        assert count == [(500, 4000, 32)]
        return sync.traffic.sent, traffic.sent_bytes(count, SyncConfig(wire=wire), n)  # type: ignore[arg-type]
    for sent, estimate in in_threads(n, body):
        assert 0.8 * estimate < sent < 1.02 * estimate


def test_the_line_of_a_dry_run() -> None:
    line = traffic.describe([(1000, 5000, 100), (2000, 5000, 100)], SyncConfig(), 4, 50_000)
    assert line == ("3,000 rows move in 50,000 words; each of 4 processes sends at most 1.8 MB per synchronization, "
                    "36.7 MB per million words (an all-reduce of the tables: 120.0)")
    assert traffic.dense_bytes([(1000, 5000, 100)], 4) == 3_000_000
