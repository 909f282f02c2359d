"""Standard streams that are closed, full or gone.

A failed write to standard output raises an OSError that names the stream; the command then ends with code 4. A failed
write to standard error raises nothing: progress and warnings must not end a training. The last line of a command goes
to standard output if standard error cannot take it (entry_point.py).
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any

OUTPUT, ERRORS = "standard output", "standard error"


class _Stream(io.TextIOWrapper):
    """Standard output or error. After its first failure it drops text, so that Python's last flush succeeds.

    Wraps the text layer: in the raw one, an exception from a signal handler would write a buffer twice.
    """

    label = ""
    lost_reason = ""                                         # why text was lost; "" if none was

    def write(self, text: str) -> int:
        return len(text) if self.lost_reason else self._try(super().write, text, len(text))

    def flush(self) -> None:
        if not self.lost_reason:
            self._try(super().flush, None, None)

    def _try(self, call: Callable[..., Any], text: str | None, fallback: Any) -> Any:
        try:
            return call() if text is None else call(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            if self.label == OUTPUT or not isinstance(error, BlockingIOError):  # a terminal that is slow, not full
                self.lost_reason = error.strerror or str(error)
            if self.label == OUTPUT:
                error.filename = OUTPUT
                raise
            return fallback


def open_all() -> None:
    """Give each standard stream that the caller closed /dev/null, so that no file gets its number, and replace
    sys.stdout and sys.stderr by streams that survive a failure."""
    closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            closed.append(os.open(os.devnull, os.O_RDWR))    # the lowest free number, which is this one
    sys.stdout = _surviving(sys.stdout, 1, 1 in closed)
    sys.stderr = _surviving(sys.stderr, 2, 2 in closed)


def _surviving(original: Any, number: int, closed: bool) -> Any:
    """A stream to the same file descriptor that survives a failed write."""
    if original is None:
        original = open(number, "w", closefd=False)          # for its encoding
    if not isinstance(original, io.TextIOWrapper):
        return original                                      # replaced by the program that called `main`
    original.flush()
    raw = io.FileIO(number, "wb", closefd=False)
    stream = _Stream(io.BufferedWriter(raw), encoding=original.encoding, newline="\n",
                     errors="backslashreplace",              # an unprintable character must not end a run
                     line_buffering=number == 2 or raw.isatty(), write_through=original.write_through)
    stream.label, stream.lost_reason = (OUTPUT if number == 1 else ERRORS), ("is closed" if closed else "")
    return stream


def lost_reason(stream: Any) -> str:
    """The reason why text written to sys.stdout or sys.stderr was lost; "" if none was."""
    return stream.lost_reason if isinstance(stream, _Stream) else ""
