"""Signal handlers of the embtrain command for SIGINT, SIGTERM and SIGHUP, from the first import to its end.

`install_exit_handler` is used when there is nothing to save: while the command imports its modules at the start, and
after its output is printed. In between, the handler of `install_stop_handler` raises `Stopped`, so that temporary files
are removed and the command ends with the line "embtrain: stopped by signal N" on stderr, which also names the command
that resumes a run. Some modules are imported only when a command needs them; during an import the handler prints that
line and ends the process. Training has its own handler, embtrain/train/state/signals.py.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_IMPORT_FRAME_FILE = "<frozen importlib._bootstrap>"  # co_filename of the frames in which Python imports a module


def install_exit_handler() -> None:
    """Install a handler that ends the process on a signal, with code 128 + signal and without output."""
    _install(lambda signum, _: os._exit(128 + signum))


def install_stop_handler() -> None:
    """Install a handler that raises `Stopped` on the first signal and ends the process on a second one.

    A duplicate of the first signal (`is_second` in embtrain/train/state/signals.py) is ignored: launchers like
    `timeout` send one signal twice, to the process and to its process group.
    """
    _install(_StopHandler())
    default_hook = sys.unraisablehook

    def exit_if_stopped(args: Any) -> None:
        from embtrain.common.errors import Stopped
        from embtrain.train.state.signals import end_at_once

        if isinstance(args.exc_value, Stopped):  # raised in a destructor or a callback, where Python drops it
            end_at_once(args.exc_value.signal)
        default_hook(args)

    sys.unraisablehook = exit_if_stopped


def _install(handler: Any) -> None:
    for signum in SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:  # ignored by the parent: SIGINT of a job
            # that a shell script started with &, SIGHUP of one that nohup started
            signal.signal(signum, handler)


class _StopHandler:
    """A signal handler that raises `Stopped` once. While a module is imported it ends the process instead."""

    def __init__(self) -> None:
        self.stopped_at: float | None = None   # time.monotonic() of the signal that raised; None: none so far

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        from embtrain.train.state.signals import end_at_once, is_second, raise_stopped

        if self.stopped_at is not None:
            if is_second(signum, time.monotonic() - self.stopped_at):
                end_at_once(signum)
        elif _is_importing(frame):
            end_at_once(signum)
        else:
            self.stopped_at = time.monotonic()
            raise_stopped(signum)


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported in this frame or its callers.

    Modules with C++ parts, like torch, run Python code while they are imported. An exception that the handler raises
    there, `Stopped`, would pass through their C++ code, which reports it as an error of its own.
    """
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FRAME_FILE:
            return True
        frame = frame.f_back
    return False
