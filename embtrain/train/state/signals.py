"""Stops training on SIGINT and SIGTERM: it finishes its step, saves a checkpoint and raises Stopped.

A second signal ends the process at once, without saving. Launchers like `timeout` send one request twice, to the
process and to its group, so a signal within `DUPLICATE_SECONDS` of the first is a duplicate and ignored.
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

from embtrain.common.errors import Interrupted, Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM)
DUPLICATE_SECONDS = 0.25  # window after the first signal in which another one is its duplicate


@contextlib.contextmanager
def protect_caller() -> Iterator[None]:
    """Restore torch's thread count at the end, and raise Interrupted, a KeyboardInterrupt, for SIGINT.

    Decorates the functions of the Python interface. The command line does without: it ends after one function.
    """
    import torch  # lazily: the command line imports this module when it starts

    n_threads = torch.get_num_threads()
    try:
        yield
    except Stopped as stopped:
        if stopped.signal != signal.SIGINT or isinstance(stopped, Interrupted):
            raise
        raise Interrupted(stopped.signal, stopped.resume_command) from stopped
    finally:
        torch.set_num_threads(n_threads)


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
            for signum in SIGNALS:
                self._previous[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._previous.items():
            # None: the previous handler was not installed by Python and cannot be restored.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _on_signal(self, signum: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested is None:
            self.requested, self._since = signum, now
            with contextlib.suppress(OSError):  # not print: a handler may interrupt one
                os.write(2, b"\nstopping after a checkpoint; a second signal stops at once\n")
            if self._raise_at_once:
                raise Stopped(signum)
        elif now - self._since >= DUPLICATE_SECONDS:
            os._exit(128 + signum)
