"""Handles SIGINT and SIGTERM from the first import to the end of the process.

`end_at_once` is used when there is nothing to save: while modules are imported, and after the output is printed. In
between, `raise_stopped` raises `Stopped`, so that temporary files are removed and the command prints its last line.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPORTS = "<frozen importlib._bootstrap>"  # the file name of a frame that imports a module


def end_at_once() -> None:
    """End the process on a signal, with code 128 + signal and without output."""
    _install(lambda number, _: os._exit(128 + number))


def raise_stopped() -> None:
    """Raise `Stopped` on the first signal. A second one, if it is not the echo of the first, ends the process."""
    _install(_Raise())
    default_hook = sys.unraisablehook

    def end_if_stopped(args: Any) -> None:
        from embtrain.common.errors import Stopped

        if isinstance(args.exc_value, Stopped):  # raised in a destructor or a callback, where Python drops it
            _leave(args.exc_value.signal)
        default_hook(args)

    sys.unraisablehook = end_if_stopped


def _install(handler: Any) -> None:
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` and a shell's `&` set it
            signal.signal(number, handler)


class _Raise:
    """A handler that raises `Stopped` once."""

    def __init__(self) -> None:
        self.at: float | None = None                         # time of the signal that raised

    def __call__(self, number: int, frame: FrameType | None) -> None:
        from embtrain.common.errors import Stopped
        from embtrain.train.state.signals import GRACE

        if self.at is not None:
            if time.monotonic() - self.at >= GRACE:
                os._exit(128 + number)
        elif _is_importing(frame):
            _leave(number)
        else:
            self.at = time.monotonic()
            raise Stopped(number)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported. C++ code that runs then turns `Stopped` into errors of its own."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False


def _leave(number: int) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, f"embtrain: stopped by signal {number}\n".encode())
    os._exit(128 + number)
