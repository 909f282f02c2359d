"""SIGINT and SIGTERM ask training to stop: it finishes its step, saves a checkpoint and raises Stopped.

A second signal ends the process at once, with nothing saved. Launchers such as `timeout` send one request twice, to the
process and to its group, so a signal counts as the second only `GRACE` seconds after the first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from embtrain.common.errors import Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 0.25  # seconds


class Stop:
    """While the block runs, a signal is noted in `requested`. Outside the main thread nothing is installed."""

    def __init__(self) -> None:
        self.requested: int | None = None
        self._since = 0.0
        self._raise_at_once = False
        self._previous: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Raise Stopped if a signal has arrived; to be called when everything worth keeping is written."""
        if self.requested is not None:
            raise Stopped(self.requested)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """While this inner block runs, a signal raises Stopped there and then: for long work that changes nothing."""
        self._raise_at_once = True
        try:
            self.check()
            yield
        finally:
            self._raise_at_once = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            # None: installed by something other than Python, which cannot be given back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested is None:
            self.requested, self._since = number, now
            with contextlib.suppress(OSError):  # not print: a handler may run in the middle of one
                os.write(2, b"\nstopping after a checkpoint; a second signal stops at once\n")
            if self._raise_at_once:
                raise Stopped(number)
        elif now - self._since >= GRACE:
            os._exit(128 + number)
