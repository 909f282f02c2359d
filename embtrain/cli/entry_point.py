"""How the command ends, whatever happens: one line of words and one exit code.

Exit codes: 0 done · 2 usage · 3 data · 4 resources · 70 a fault of embtrain, saved in a file · 130 and 143 stopped ·
141 the reader of the output went away.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer

from embtrain.cli import interrupt, limits, streams
from embtrain.cli.commands import app
from embtrain.common.errors import EmbtrainError, Stopped, UsageError
from embtrain.common.terminal import plain

NO_PATH = {errno.ENAMETOOLONG, errno.ELOOP}
# What typer raises for a command line that it cannot read; it has had it from click, and has one of its own since.
MISREAD: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> NoReturn:
    """Run the console command and exit."""
    streams.open_all()
    try:
        interrupt.raise_stopped()
        code = run()
        interrupt.end_at_once()                              # the answer is printed
    except Stopped as stopped:                               # between two lines of `run` or of this block
        interrupt.end_at_once()
        code = _complain(stopped.code, str(stopped), kind="")
    if code == 0 and (wrong := streams.lost(sys.stdout)):
        code = _complain(4, _lost(wrong))
    sys.exit(code)


def _lost(wrong: str) -> str:
    return f"{streams.OUTPUT}: {wrong}: the answer is lost, and files that were written stay; redirect it elsewhere"


def run() -> int:
    """Run sys.argv and return the exit code. The one place that turns an error into words."""
    try:
        _refuse_words(sys.argv)
        code = _command()
        sys.stdout.flush()
        return code or 0
    except MISREAD as error:
        return _complain(UsageError.code, _misread(error))
    except SystemExit as end:
        # typer turns a closed pipe into exit 1.
        return _closed_pipe() if isinstance(end.__context__, BrokenPipeError) else _code(end)
    except BrokenPipeError:
        return _closed_pipe()
    except EmbtrainError as error:
        return _complain(error.code, *error.args)
    except Stopped as stopped:
        return _complain(stopped.code, str(stopped), kind="")
    except KeyboardInterrupt:
        return _complain(130, "stopped by signal 2", kind="")
    except Exception as error:  # noqa: BLE001  the last resort: what reaches it is a fault of embtrain, and is saved
        if (asked := _made_of_a_signal(error)) is not None:
            return _complain(asked.code, str(asked), kind="")
        if isinstance(error, OSError) and error.filename == streams.OUTPUT:
            return _complain(4, _lost(str(error.strerror)))
        if isinstance(error, OSError) and error.errno in NO_PATH:
            return _complain(2, f"{str(error.filename)[:200]}: {error.strerror}")
        if (line := limits.reason(error)) is not None:
            return _complain(4, line)
        return _complain(70, f"a fault of embtrain ({type(error).__name__}); please report {_save_crash(error)}")


def _command() -> int | None:
    try:
        return app(prog_name="embtrain", standalone_mode=False)
    except typer.Abort as abort:                                 # what typer makes of an EOFError or of Ctrl-C
        raise abort.__cause__ or abort from None


def _refuse_words(words: list[str]) -> None:
    """UsageError for what a variable that nobody has set leaves: an empty path would be the folder one is in; and
    for bytes that no file of a run could hold."""
    for word in words:
        if word != word.encode(errors="ignore").decode():
            raise UsageError(f"{word!r}: is not UTF-8; give the file or folder another name")
    for before, word in itertools.pairwise(words):
        if word == "" or re.fullmatch("--[a-z-]+=", word):
            raise UsageError(f"{word.rstrip('=') or before}: what comes behind it is empty; leave it out, or say "
                             "what is meant")


def _misread(error: Any) -> str:
    """One line of what typer would tell in several."""
    command = error.ctx.command_path if error.ctx else _asked()
    return f"{' '.join(error.format_message().split())} (see {command} --help)"


def _asked() -> str:
    """The command of sys.argv, where typer does not say which it was reading."""
    path: list[str] = ["embtrain"]
    command: Any = typer.main.get_command(app)
    for word in sys.argv[1:]:
        if (command := getattr(command, "commands", {}).get(word)) is None:
            break
        path.append(word)
    return " ".join(path)


def _made_of_a_signal(error: Exception) -> Stopped | None:
    """What a library in another language has made an error of its own of, as pydantic's core does while it builds."""
    if isinstance(error.__cause__, Stopped):
        return error.__cause__
    return next((stopped for stopped in map(Stopped, interrupt.SIGNALS) if str(stopped) in str(error)), None)


def _code(end: SystemExit) -> int:
    return end.code if isinstance(end.code, int) else 0 if end.code is None else 1


def _closed_pipe() -> int:
    """`| head` went away: say nothing more, not even when Python flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return 128 + signal.SIGPIPE


def _complain(code: int, *lines: str, kind: str = "error: ") -> int:
    red, black = ("\033[31m", "\033[0m") if kind and sys.stderr.isatty() else ("", "")
    text = "\n".join(f"embtrain: {red}{kind}{black}{plain(line)}" for line in lines or [""])
    with contextlib.suppress(BrokenPipeError):  # 2>&1 | head
        print(text, file=sys.stderr, flush=True)
        if streams.lost(sys.stderr):            # closed, or on a full disk
            with contextlib.suppress(OSError):
                print(text, flush=True)
    return code


def _save_crash(error: Exception) -> str:
    """Write what a maintainer needs, here or in the temporary folder; the path, or why there is none."""
    import platform
    import shlex
    import tempfile
    import time
    import traceback
    from importlib import metadata

    import embtrain
    from embtrain.common.errors import ResourceError
    from embtrain.common.files import write_text

    versions = [f"embtrain {embtrain.__version__}", f"python {platform.python_version()} {platform.platform()}"]
    for name in ("torch", "numpy", "gensim", "pydantic", "typer"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{name} missing")
    text = "\n".join([shlex.join(sys.argv), *versions, "", *traceback.format_exception(error)])
    text = text.encode(errors="backslashreplace").decode()
    name = f"embtrain-crash-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    for place in (Path.cwd, tempfile.gettempdir):            # either may be gone, or the disk be full
        try:
            path = Path(place()) / name
            write_text(path, text)
        except (OSError, ResourceError):
            continue
        return str(path)
    return f"this: {type(error).__name__}: {error}"
