"""Names that the processes of a launch agree on, in a store with the words of earlier ones."""

from __future__ import annotations

import threading
import time

import pytest
import torch.distributed as dist

from embtrain.train.group.meeting import agree_on_name


def names(store: dist.Store, size: int, ranks: list[int], seconds: float = 20, late: float = 0.0) -> list[str]:
    """Names that processes, as threads, agree on; the last one comes later."""
    results = dict.fromkeys(ranks, "")

    def join(rank: int) -> None:
        time.sleep(late if rank == ranks[-1] else 0)
        try:
            results[rank] = agree_on_name(store, rank, size, seconds)
        except TimeoutError:
            results[rank] = "timeout"

    threads = [threading.Thread(target=join, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in ranks]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_each_launch_gets_a_name_of_its_own_in_a_store_that_stays(last: int) -> None:
    store, earlier = dist.HashStore(), set[str]()
    ranks = [*(rank for rank in range(3) if rank != last), last]
    for _ in range(3):
        (name,) = set(names(store, 3, ranks, late=0.1))
        assert len(name) == 32 and name not in earlier
        earlier.add(name)


def test_a_process_that_is_missing_is_noticed_although_it_was_there_before() -> None:
    store = dist.HashStore()
    names(store, 3, [0, 1, 2])
    assert names(store, 3, [0, 1], seconds=0.3)[0] == "timeout"
    assert names(store, 3, [1, 2], seconds=0.3) == ["timeout"] * 2
    assert len(set(names(store, 3, [0, 1, 2]))) == 1
