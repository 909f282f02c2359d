"""The seconds and CPU seconds of training, without the evaluations and checkpoints in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Counts from `start` on, except while it is paused."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0   # up to the last pause
        self._since: tuple[float, float] | None = None  # both clocks when it last began to run; None: it does not run

    def start(self) -> None:
        """Begin to count from zero."""
        self.seconds = self.cpu_seconds = 0.0
        self._since = time.monotonic(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Return the seconds and CPU seconds counted so far."""
        if self._since is None:
            return self.seconds, self.cpu_seconds
        begun, cpu_begun = self._since
        return self.seconds + time.monotonic() - begun, self.cpu_seconds + time.process_time() - cpu_begun

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing during the block. A pause within a pause, or before `start`, has no effect of its own."""
        if self._since is None:
            yield
            return
        self.seconds, self.cpu_seconds = self.read()
        self._since = None
        try:
            yield
        finally:
            self._since = time.monotonic(), time.process_time()
