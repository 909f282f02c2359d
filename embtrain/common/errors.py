"""Errors that a user can cause. Each ends the command with one line and one exit code.

0 success · 2 usage or configuration · 3 data · 4 resources · 70 a bug in embtrain (a report is saved) ·
129, 130 and 143 stopped by SIGHUP, SIGINT and SIGTERM.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import signal
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from embtrain.common.terminal import plain, shortened

_FORBIDDEN = {errno.EACCES: "change the permissions, or choose another path",
              errno.EPERM: "change the permissions, or choose another path",
              errno.EROFS: "choose a path on a writable file system"}


class EmbtrainError(Exception):
    """Base of every error that a user can cause.

    Each argument is one line of the message. A line feed or an escape sequence inside it, from a file or a library, is
    escaped, so that no content can add a line. `str(error)` is the printed text, `error.args` its lines, and
    `f"{error}"` one line, for another message.
    """

    code = 70

    def __init__(self, *lines: str):
        super().__init__(*(shortened(plain(line)) for line in lines))

    def __str__(self) -> str:
        return "\n".join(self.args)

    def __format__(self, spec: str) -> str:
        return format("; ".join(self.args), spec)


class UsageError(EmbtrainError):
    """A command line, configuration key or combination that cannot work."""

    code = 2


class DataError(EmbtrainError):
    """A file that is missing, damaged or of another format than expected. The message names file and line."""

    code = 3


class WrongClass(DataError):
    """A Python file of the user whose class declares an impossible value. It concerns no setting, unlike UsageError."""

    code = UsageError.code


class UnknownTrait(TypeError):
    """A class of the user declares a trait that does not exist; with a place it becomes WrongClass or UsageError."""


def class_error(error: BaseException) -> type[DataError]:
    """The kind of error for a file of the user whose import raised `error`: WrongClass if a class has wrong traits."""
    return WrongClass if isinstance(error, UsageError | UnknownTrait) else DataError


def described_error(error: BaseException) -> str:
    """The text of an error in a file of the user, after its class if the text does not state the problem by itself."""
    kind, text = "" if isinstance(error, EmbtrainError | UnknownTrait) else f"{type(error).__name__}: ", ""
    with contextlib.suppress(Exception):                     # of the user's class
        text = f"{error}" or str(vars(error).get("msg", ""))
    if isinstance(error, SyntaxError) and type(error).__module__ == "builtins":
        text = error.msg                                     # its text contains the place too, which begins the line
    return f"{kind}{text}" if text else type(error).__name__


class UnknownNames(DataError):
    """A file to be scored whose words or names are all unknown. rows: scores of the other files."""

    rows: Sequence[Any] = ()


class ResourceError(EmbtrainError):
    """Insufficient memory or disk space, no network, no permission, or a missing device."""

    code = 4


CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS)


def is_crash(code: object) -> bool:
    """Whether a process with this exit code, 128 + signal, ended by a fault of its own: it would end so again."""
    return isinstance(code, int) and code - 128 in CRASHES


def is_lack_of_resources(code: object) -> bool:
    """Whether a process with this exit code lacked machine resources: code 4, or it was killed (128 + signal)."""
    return isinstance(code, int) and (code == ResourceError.code or code > 128) and not is_crash(code)


class ReportedElsewhere(BaseException):
    """Another process of the group prints the error; this one ends with its exit code alone."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


class Stopped(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived, and the state of the run has been saved.

    Not a subclass of Exception, like KeyboardInterrupt: a library that catches its own errors must not catch this.
    """

    def __init__(self, signal: int, resume_command: str = ""):
        super().__init__(f"stopped by signal {signal}{resume_command and f'; to resume: {resume_command}'}")
        self.signal = signal
        self.resume_command = resume_command
        self.code = 128 + signal


class Interrupted(Stopped, KeyboardInterrupt):
    """Stopped by SIGINT (Ctrl-C), raised by the functions of the Python interface.

    The command line gets Stopped itself: its parser handles each KeyboardInterrupt, and drops the message.
    """


def did_you_mean(name: str, known: Iterable[str], before: str = "") -> str:
    """Return ` (did you mean 'x'?)` with the nearest known name, or '' if no name is near. before: begins the name."""
    import difflib

    known = list(known)
    near = [other for other in known if other.lower() == name.lower()] or difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {before + near[0]!r}?)" if near else ""


def place(error: BaseException, module: str) -> str:
    """FILE:LINE of an error: that of a syntax error, else of the innermost call in the module's package."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    top = module.partition(".")[0]
    lines = [f"{frame.f_code.co_filename}:{line}" for frame, line in traceback.walk_tb(error.__traceback__)
             if frame.f_globals.get("__name__", "").partition(".")[0] == top]
    if lines:
        return lines[-1]
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    return module if spec is None or spec.origin is None else spec.origin


def os_reason(error: OSError) -> str:
    """Return the reason of a failed access to a path, with a remedy if a permission is missing."""
    closed = _closed_folder(error.filename) if error.errno in _FORBIDDEN else None
    place = "" if closed is None else f" (no permission to enter {closed})"
    return f"{error.strerror or error}{place}{permission_remedy(error)}"


def read_error(path: str | os.PathLike[str], error: Exception, fault: str) -> EmbtrainError:
    """Return the error of a file that cannot be read: ResourceError without permission, else DataError with `fault`.

    The file itself is checked too, because safetensors reports a missing permission as a missing file.
    """
    if isinstance(error, PermissionError) or (os.path.exists(path) and not os.access(path, os.R_OK)):
        reason = os_reason(PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path)))
        return ResourceError(f"{os.fspath(path)}: cannot be read: {reason}")
    return DataError(f"{os.fspath(path)}: {fault}")


def permission_remedy(error: OSError) -> str:
    """Return the end of a message about a missing permission; '' for another error."""
    return f"; {_FORBIDDEN[error.errno]}" if error.errno in _FORBIDDEN else ""


def _closed_folder(path: Any) -> Path | None:
    """Return the first folder above a path that may not be entered, so that none of its files can be found."""
    if not isinstance(path, str | os.PathLike):              # a number of an open file, or nothing
        return None
    above = reversed(Path(os.path.abspath(os.fsdecode(path))).parents)
    return next((folder for folder in above if os.path.isdir(folder) and not os.access(folder, os.X_OK)), None)
