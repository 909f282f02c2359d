"""Stops training on SIGINT, SIGTERM and SIGHUP: it finishes its step, saves a checkpoint and raises Stopped.

A second signal ends the process at once, without saving. Launchers like `timeout` send one request twice, to the
process and to its group, so a signal within `DUPLICATE_SECONDS` of the first is a duplicate and ignored. A closed
terminal and its shell each send SIGHUP, so SIGHUP is never a second signal. However the process is stopped, its last
line names the command of `resumable`, if there is one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, Self

from embtrain.common.errors import Interrupted, Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DUPLICATE_SECONDS = 0.25  # window after the first signal in which another one is its duplicate
_commands: list[Callable[[], str]] = []  # of the `resumable` blocks that are executed, the outermost first
_raised: list[int] = []  # signals that a handler has raised as Stopped in this command or call
# What compiled libraries make of an exception that a handler raises in their callbacks.
_HIDING = (ValueError, TypeError, RuntimeError, SystemError)


@contextlib.contextmanager
def resumable(command: Callable[[], str]) -> Iterator[None]:
    """Let each Stopped of the block, and `end_at_once`, name the command that continues the work.

    command: returns the command; '' while there is nothing to continue. The outermost of nested blocks decides. Ctrl-C
    in a program that has no handler of embtrain raises Interrupted.
    """
    _commands.append(command)
    try:
        yield
    except Stopped as stopped:
        raise type(stopped)(stopped.signal, command()) from stopped
    except KeyboardInterrupt as error:
        raise Interrupted(signal.SIGINT, command()) from error
    except Exception as error:
        if (hidden := hidden_stop(error)) is not None:
            raise Stopped(hidden.signal, command()) from error
        raise
    finally:
        _commands.remove(command)


def to_resume() -> str:
    """The end of a message: `; to resume: COMMAND`, or '' while there is nothing to continue."""
    command = _commands[0]() if _commands else ""
    return command and f"; to resume: {command}"


def forget_signals() -> None:
    """Begin a command or a call of the Python interface: signals of earlier ones explain none of its errors."""
    _raised.clear()


def raise_stopped(signum: int) -> NoReturn:
    """Raise Stopped from a signal handler."""
    _raised.append(signum)
    raise Stopped(signum)


def hidden_stop(error: Exception) -> Stopped | None:
    """The Stopped that a compiled library has turned into an error of its own: pydantic-core keeps it as the cause or
    in the message, matplotlib drops it."""
    if isinstance(error.__cause__, Stopped):
        return error.__cause__
    named = next((stopped for stopped in map(Stopped, SIGNALS) if re.search(rf"{stopped}\b", str(error))), None)
    return named or (Stopped(_raised[-1]) if _raised and type(error) in _HIDING else None)


def is_second(signum: int, seconds: float) -> bool:
    """Whether a signal, these seconds after the first one, ends the process at once, and is not a duplicate."""
    return signum != signal.SIGHUP and seconds >= DUPLICATE_SECONDS


def end_at_once(signum: int) -> NoReturn:
    """End the process, with the last line of a stopped command and code 128 + signal."""
    with contextlib.suppress(OSError):  # not print: a handler may interrupt one
        os.write(2, f"embtrain: {Stopped(signum, _commands[0]() if _commands else '')}\n".encode())
    os._exit(128 + signum)


@contextlib.contextmanager
def protect_caller() -> Iterator[None]:
    """Restore torch's thread count at the end, and raise Interrupted, a KeyboardInterrupt, for SIGINT.

    Errors begin with the name of an argument, where those of the command line begin with its flag. Decorates the
    functions of the Python interface. The command line does without: it ends after one function.
    """
    import torch  # lazily, as the other: the command line imports this module when it starts

    from embtrain.common.config.arguments import named_arguments

    n_threads = torch.get_num_threads()
    forget_signals()
    try:
        with named_arguments():
            yield
    except Stopped as stopped:
        if stopped.signal != signal.SIGINT or isinstance(stopped, Interrupted):
            raise
        raise Interrupted(stopped.signal, stopped.resume_command) from stopped
    finally:
        torch.set_num_threads(n_threads)


class Stop:
    """Context manager that records a signal in `requested`.

    It installs no handler outside the main thread, and none for a signal that the process ignores.
    """

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
                if signal.getsignal(signum) is not signal.SIG_IGN:  # ignored by the parent: see cli/interrupt.py
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
                raise_stopped(signum)
        elif is_second(signum, now - self._since):
            end_at_once(signum)
