"""Tables that a group puts together: equal bits on all, and the Adasum of their moves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embtrain.kernels.reference.training import adasum as reference
from embtrain.train.group.exchange import TableSync
from embtrain.train.group.processes import SOLO, ProcessGroup
from embtrain.train.group.turns import in_turns


def tables(rank: int, moved: bool) -> list[torch.Tensor]:
    """Two tables (30, 5) and (20, 3), equal for all ranks, or with moves that differ between them."""
    start, draw = np.random.default_rng(7), np.random.default_rng([9, rank])
    out = []
    for n, dim in ((30, 5), (20, 3)):
        padded = torch.from_numpy(start.normal(size=(n, 16)).astype(np.float32))
        x = padded[:, :dim]
        if moved:
            rows = torch.from_numpy(draw.choice(n, n // 2, replace=False))
            x[rows] += torch.from_numpy(draw.normal(size=(n // 2, dim)).astype(np.float32))
        out.append(x)
    return out


def synchronized(n: int, wire: str, threads: int = 1) -> list[tuple[list[torch.Tensor], TableSync]]:
    def body(group: ProcessGroup) -> tuple[list[torch.Tensor], TableSync]:
        own = tables(group.rank, False)
        sync = TableSync(group, own, wire, threads=threads)
        for x, target in zip(own, tables(group.rank, True), strict=True):
            x.copy_(target)
        sync.put_together()
        return own, sync
    return in_turns(n, body)


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_ranks_get_the_same_bits_which_are_the_adasum_in_the_order_of_ranks(n: int, wire: str) -> None:
    results = synchronized(n, wire)
    before, close = tables(0, False), {"atol": 1e-5} if wire == "float32" else {"atol": 0.05}
    for i in range(2):
        for own, _ in results[1:]:
            assert torch.equal(own[i], results[0][0][i])
        for row in range(len(before[i])):
            moves = [(tables(rank, True)[i] - before[i])[row].numpy() for rank in range(n)]
            moves = [move for move in moves if move.any()]
            expected = before[i][row].numpy() + (reference.adasum(moves) if moves else 0)
            assert np.allclose(results[0][0][i][row], expected, **close)


def test_a_second_synchronization_without_moves_changes_and_sends_no_row() -> None:
    def body(group: ProcessGroup) -> tuple[bool, int, int, int]:
        own = tables(group.rank, True)
        own[0].copy_(tables(0, False)[0])
        own[1].copy_(tables(0, False)[1])
        sync = TableSync(group, own, "bfloat16")
        own[0][3] += 1 + group.rank
        first = [len(ids) for ids in sync.put_together()]
        after, sent, rows = own[0].clone(), sync.traffic.sent, sync.traffic.rows
        changed = sync.put_together()
        assert first == [1, 0]
        return torch.equal(after, own[0]), sum(map(len, changed)), sync.traffic.rows - rows, sync.traffic.sent - sent
    for unchanged, n_changed, n_rows, sent in in_turns(2, body):
        assert unchanged and n_changed == n_rows == 0 and sent == 2 * 16     # the numbers of rows alone


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_threads_change_no_bit_and_no_byte(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.kernels.training.adasum.GRAIN", 1)
    one, *others = ([(torch.cat([x.reshape(-1) for x in own]).numpy().tobytes(), sync.traffic.sent, sync.traffic.rows)
                     for own, sync in synchronized(3, wire, threads)] for threads in (1, 2, 3))
    assert others == [one, one] and len({bits for bits, _, _ in one}) == 1


def test_bfloat16_halves_the_bytes() -> None:
    full, half = (synchronized(3, wire)[0][1].traffic.sent for wire in ("float32", "bfloat16"))
    assert 0.5 < half / full < 0.8      # ids and padding stay, and rows have 3 and 5 numbers


def test_a_group_of_one_keeps_its_tables() -> None:
    own = tables(0, True)
    sync = TableSync(SOLO, own, "float32")
    own[0][2] += 1
    before = own[0].clone()
    sync.put_together()
    assert torch.allclose(own[0], before) and sync.traffic.sent == 0
