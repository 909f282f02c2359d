"""The errors a user can cause. Each ends the command in one line and one exit code.

0 success · 2 usage or configuration · 3 data · 4 resources · 70 a fault of ours (a report is saved) ·
130 and 143 stopped by SIGINT and SIGTERM.
"""

from __future__ import annotations

from collections.abc import Iterable

from embtrain.common.terminal import plain, shortened


class EmbtrainError(Exception):
    """Base of every error that a user can cause.

    Each argument is one line of the message: a line feed or an escape sequence inside it, from a file or a library, is
    escaped, so that no content can add a line. `str(error)` is what is printed, `error.args` its lines.
    """

    code = 70

    def __init__(self, *lines: str):
        super().__init__(*(shortened(plain(line)) for line in lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class UsageError(EmbtrainError):
    """A command line, configuration key or combination that cannot work."""

    code = 2


class DataError(EmbtrainError):
    """A file that is missing, damaged or not what it should be; the message names file and line."""

    code = 3


class ResourceError(EmbtrainError):
    """Too little memory or disk, no network, no permission, no such device."""

    code = 4


class Stopped(BaseException):
    """SIGINT or SIGTERM arrived; everything worth keeping has been written.

    No Exception, as KeyboardInterrupt is none: a library that catches what goes wrong in it must not catch this.
    """

    def __init__(self, signal: int, resume_command: str = ""):
        super().__init__(f"stopped by signal {signal}{resume_command and f'; to go on: {resume_command}'}")
        self.signal = signal
        self.code = 128 + signal


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` with the nearest of the known names; nothing where none is near."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
