"""Stops training on SIGINT and SIGTERM: it finishes its step, saves a checkpoint and raises Stopped.

A second signal ends the process at once, without saving. Launchers like `timeout` send one request twice, to the
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
    """Context manager that records a signal in `requested`. Outside the main thread it installs no handler."""

    def __init__(self) -> None:
        self.requested: int | None = None
        self._since = 0.0
        self._raise_at_once = False
        self._previous: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Raise Stopped if a signal has arrived; call it when everything worth keeping is saved."""
        if self.requested is not None:
            raise Stopped(self.requested)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside this context a signal raises Stopped immediately: for long work that changes no state."""
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
            # None: the previous handler was not installed by Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested is None:
            self.requested, self._since = number, now
            with contextlib.suppress(OSError):  # not print: a handler may interrupt one
                os.write(2, b"\nstopping after a checkpoint; a second signal stops at once\n")
            if self._raise_at_once:
                raise Stopped(number)
        elif now - self._since >= GRACE:
            os._exit(128 + number)
