"""Processes of one run that take turns in one process, so that many can be measured on few cores.

Each is a thread. It runs until it needs the others, and then the next one runs: one thread runs at any time, and CPU
seconds between two exchanges are its own. The code that they run is that of real processes, and so are the bits.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

import numpy as np
import torch

from embtrain.common.errors import Stopped
from embtrain.train.group.processes import GroupFailed, ProcessGroup
from embtrain.train.state.signals import Stop

T = TypeVar("T")


class _Turns:
    """Whose turn it is, and the bytes on their way."""

    def __init__(self, size: int):
        self.mail: list[list[deque[np.ndarray]]] = [[deque() for _ in range(size)] for _ in range(size)]
        self.errors: list[BaseException] = []
        self._running, self._current, self._changed = list(range(size)), 0, threading.Condition()

    def wait(self, rank: int) -> None:
        """Wait for the turn of a process. GroupFailed if another one has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self.errors or self._current == rank)
            if self.errors:
                raise GroupFailed("another process has failed")

    def pass_on(self, rank: int, is_done: bool = False) -> None:
        """Give the turn to the next process that has not ended."""
        with self._changed:
            following = [other for other in self._running if other > rank]
            self._current = (following or self._running)[0]
            if is_done:
                self._running.remove(rank)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.errors.append(error)
            self._changed.notify_all()


class TurnGroup(ProcessGroup):
    """One of several processes that take turns."""

    def __init__(self, rank: int, size: int, turns: _Turns):
        super().__init__(rank, size)
        self._turns = turns

    def exchange(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        for boxes, part in zip(self._turns.mail, parts, strict=True):
            boxes[self.rank].append(part)
        self._turns.pass_on(self.rank)
        self._turns.wait(self.rank)
        own = self._turns.mail[self.rank]
        if not all(own):
            raise GroupFailed("another process has ended before an exchange")
        return [box.popleft() for box in own]

    def gather(self, part: np.ndarray) -> list[np.ndarray]:
        return self.exchange([part] * self.size)

    def from_first(self, work: Callable[[], T], stop: Stop | None = None) -> T:
        outcome: dict[str, Any] = {}
        if self.is_first:
            try:
                outcome = {"result": work()}
            except Stopped as stopped:
                outcome = {"signal": stopped.signal}
        outcome = json.loads(self.gather(np.frombuffer(json.dumps(outcome).encode(), np.uint8))[0].tobytes())
        if "signal" in outcome:
            raise Stopped(outcome["signal"])
        return outcome["result"]

    def meet(self) -> None:
        self.gather(np.zeros(0, np.uint8))


def in_turns(size: int, body: Callable[[ProcessGroup], T]) -> list[T]:
    """Run `body` in each of `size` processes; returns their results. Raises the first error of any.

    Process 0 runs in the calling thread, which receives signals.
    """
    turns, results, threads = _Turns(size), dict[int, T](), torch.get_num_threads()

    def run(rank: int) -> None:
        try:
            turns.wait(rank)
            if rank:
                torch.set_num_threads(threads)  # PyTorch has a number for each thread
            results[rank] = body(TurnGroup(rank, size, turns))
            turns.pass_on(rank, is_done=True)
        except BaseException as error:  # noqa: BLE001 (raised below, in the calling thread)
            turns.fail(error)

    others = [threading.Thread(target=copy_context().run, args=(run, rank), daemon=True) for rank in range(1, size)]
    for thread in others:
        thread.start()
    run(0)
    for thread in others:
        thread.join()
    if turns.errors:
        raise turns.errors[0]
    return [results[rank] for rank in range(size)]
