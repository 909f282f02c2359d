"""The processes of one launch agree on a name that no earlier launch used, in a store that outlives restarts.

torchrun keeps its key-value store when it restarts processes. With names that are always the same, a process can find
the address of one that was killed, and wait for it. Here every process writes a fresh word; process 0 offers a name to
the words it has read; a process takes the name of an offer that contains its word. Words and offers of earlier
processes are ignored, because the fresh word of a process is in none of them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable

import torch.distributed as dist

POLL_SECONDS = 0.02


def agree_on_name(store: dist.Store, rank: int, size: int, seconds: float) -> str:
    """A name that all processes of this launch return, and those of no other. TimeoutError after `seconds`."""
    word, deadline = uuid.uuid4().hex, time.monotonic() + seconds
    if rank:
        store.set(f"word/{rank}", word)
        name = _poll(lambda: _offer_to(store, rank, word), deadline)
        store.set(f"taken/{rank}", f"{name}/{word}")
        return name
    offered: list[str] = []

    def is_taken() -> str:
        words = [_get(store, f"word/{other}") for other in range(1, size)]
        if words != offered:
            offered[:] = words
            store.set("offer", json.dumps({"name": word, "words": words}))
        taken = [_get(store, f"taken/{other}") for other in range(1, size)]
        return word if taken == [f"{word}/{other}" for other in words] else ""

    return _poll(is_taken, deadline)


def _offer_to(store: dist.Store, rank: int, word: str) -> str:
    """The name of an offer that contains the word of this process; '' if there is none."""
    offer = json.loads(_get(store, "offer") or '{"words": []}')
    return str(offer["name"]) if offer["words"][rank - 1:rank] == [word] else ""


def _get(store: dist.Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""


def _poll(result: Callable[[], str], deadline: float) -> str:
    while not (value := result()):
        if time.monotonic() > deadline:
            raise TimeoutError("not all processes have joined")
        time.sleep(POLL_SECONDS)
    return value
