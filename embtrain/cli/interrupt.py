"""Handles SIGINT and SIGTERM from the first import to the end of the process.

`install_exit_handler` is used when there is nothing to save: while modules are imported, and after the output is
printed. In between, the handler of `install_stop_handler` raises `Stopped`, so that temporary files are removed and the
command prints its last line. Training has its own handler, embtrain/train/state/signals.py.
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


def install_exit_handler() -> None:
    """Install a handler that ends the process on a signal, with code 128 + signal and without output."""
    _install(lambda signum, _: os._exit(128 + signum))


def install_stop_handler() -> None:
    """Install a handler that raises `Stopped` on the first signal and ends the process on a second one.

    A duplicate of the first signal is ignored, see `DUPLICATE_SECONDS` in embtrain/train/state/signals.py.
    """
    _install(_StopHandler())
    default_hook = sys.unraisablehook

    def exit_if_stopped(args: Any) -> None:
        from embtrain.common.errors import Stopped

        if isinstance(args.exc_value, Stopped):  # raised in a destructor or a callback, where Python drops it
            _exit_with_message(args.exc_value.signal)
        default_hook(args)

    sys.unraisablehook = exit_if_stopped


def _install(handler: Any) -> None:
    for signum in SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:  # as `nohup` and a shell's `&` set it
            signal.signal(signum, handler)


class _StopHandler:
    """A signal handler that raises `Stopped` once. While a module is imported it ends the process instead."""

    def __init__(self) -> None:
        self.stopped_at: float | None = None   # time.monotonic() of the signal that raised; None: none so far

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        from embtrain.common.errors import Stopped
        from embtrain.train.state.signals import DUPLICATE_SECONDS

        if self.stopped_at is not None:
            if time.monotonic() - self.stopped_at >= DUPLICATE_SECONDS:
                os._exit(128 + signum)
        elif _is_importing(frame):
            _exit_with_message(signum)
        else:
            self.stopped_at = time.monotonic()
            raise Stopped(signum)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported. C++ code that runs then turns `Stopped` into errors of its own."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False


def _exit_with_message(signum: int) -> NoReturn:
    """End the process at once, with the last line of a stopped command and code 128 + signal."""
    with contextlib.suppress(OSError):
        os.write(2, f"embtrain: stopped by signal {signum}\n".encode())
    os._exit(128 + signum)
