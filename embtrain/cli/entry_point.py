"""Entry point of the command: turns every error into one line and an exit code.

Exit codes: 0 done · 2 usage · 3 data · 4 resources · 70 a bug in embtrain, saved in a file · 129, 130 and 143 stopped ·
141 the reader of the output closed the pipe.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import itertools
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import typer

from embtrain.cli import interrupt, limits, options, streams
from embtrain.cli.commands import app
from embtrain.common import registry
from embtrain.common.errors import DataError, EmbtrainError, ReportedElsewhere, ResourceError, Stopped, UsageError
from embtrain.common.terminal import plain
from embtrain.train.state.signals import forget_signals, hidden_stop

NO_PATH = {errno.ENAMETOOLONG, errno.ELOOP}
# Commands by names that other programs have for them.
OTHER_NAMES = {"train": "fit", "test": "evaluate", "similar": "neighbours", "download": "data fetch",
               "convert": "export"}
# The class typer raises for an invalid command line: click's in older versions, its own in newer ones.
PARSE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> NoReturn:
    """Run the console command and exit."""
    streams.open_all()
    try:
        interrupt.install_stop_handler()
        code = run()
        interrupt.install_exit_handler()                     # the output is printed
    except Stopped as stopped:                               # between two lines of `run` or of this block
        interrupt.install_exit_handler()
        code = _print_error(stopped.code, str(stopped), kind="")
    if code == 0 and (reason := streams.lost_reason(sys.stdout)):
        code = _print_error(4, _output_lost(reason))
    _silence_exit_callbacks(code)
    sys.exit(code)


def _silence_exit_callbacks(code: int) -> None:
    """Drop errors of libraries' exit callbacks that the machine causes: Python would print a traceback for each.

    After code 4 the callbacks lack the same memory or disk as the command; torch has one that imports a module.
    """
    default_hook = sys.unraisablehook

    def report(args: Any) -> None:
        if code != ResourceError.code and not issubclass(args.exc_type, MemoryError):
            default_hook(args)

    sys.unraisablehook = report


def _output_lost(reason: str) -> str:
    return f"{streams.OUTPUT}: {reason}: the output is lost, but files that were written stay; redirect it elsewhere"


def run() -> int:
    """Run sys.argv and return the exit code. The only place that prints errors."""
    try:
        forget_signals()
        _check_arguments(sys.argv)
        code = _command()
        sys.stdout.flush()
        return code or 0
    except PARSE_ERROR as error:
        return _print_error(UsageError.code, _format_parse_error(error))
    except SystemExit as error:
        if (where := registry.place_in_plugin(error)) is not None:   # exit 0 would be a success
            return _print_error(DataError.code, f"{where}: SystemExit: {error}; correct it there")
        # typer turns a closed pipe into exit 1.
        return _closed_pipe() if isinstance(error.__context__, BrokenPipeError) else _code(error)
    except BrokenPipeError:
        return _closed_pipe()
    except EmbtrainError as error:
        return _print_error(error.code, *error.args)
    except ReportedElsewhere as error:
        return error.code
    except Stopped as stopped:
        return _print_error(stopped.code, str(stopped), kind="")
    except KeyboardInterrupt:
        return _print_error(130, "stopped by signal 2", kind="")
    except Exception as error:  # noqa: BLE001  an error without another cause is a bug in embtrain and is saved
        if (wrapped := hidden_stop(error)) is not None:
            return _print_error(wrapped.code, str(wrapped), kind="")
        if isinstance(error, OSError) and error.filename == streams.OUTPUT:
            return _print_error(4, _output_lost(str(error.strerror)))
        if isinstance(error, OSError) and error.errno in NO_PATH:
            return _print_error(2, f"{str(error.filename)[:200]}: {error.strerror}")
        if (line := limits.reason(error)) is not None:
            return _print_error(4, line)
        if (where := registry.place_in_plugin(error)) is not None:
            return _print_error(DataError.code, f"{where}: {type(error).__name__}: {error}; correct it there")
        return _print_error(70, f"a bug in embtrain ({type(error).__name__}); please report {_save_crash(error)}")


def _command() -> int | None:
    try:
        return _narrowed(sys.argv[1:2])(prog_name="embtrain", standalone_mode=False)
    except typer.Abort as abort:                                 # typer raises it for an EOFError or Ctrl-C
        raise abort.__cause__ or abort from None


def _narrowed(words: list[str]) -> typer.Typer:
    """`app` with only the command that the first word names: typer builds all options of all commands at each start.

    `submit` parses the words of `fit`. All commands for any other word, because the error names similar ones.
    """
    if words == ["submit"]:
        words = ["fit", "submit"]
    commands = [command for command in app.registered_commands
                if (command.name or getattr(command.callback, "__name__", "").replace("_", "-")) in words]
    groups = [group for group in app.registered_groups if group.name in words]
    if not commands and not groups:
        return app
    narrowed = copy.copy(app)
    narrowed.registered_commands, narrowed.registered_groups = commands, groups
    return narrowed


def _check_arguments(words: list[str]) -> None:
    """Raise UsageError for empty arguments and for bytes that are not UTF-8.

    An unset shell variable leaves an empty argument, and an empty path would be the current folder. No file of a run
    can store a name that is not UTF-8.
    """
    for word in words:
        if word != word.encode(errors="ignore").decode():
            raise UsageError(f"{word!r}: is not UTF-8; give the file or folder another name")
    for before, word in itertools.pairwise(words):
        if word == "" and not before.startswith("-"):
            raise UsageError(f"'': an argument after {before!r} is empty; remove it or give a value")
        if word == "" or re.fullmatch("--[a-z-]+=", word):
            raise UsageError(f"{word.rstrip('=') or before}: has an empty value; remove it or give a value")


def _format_parse_error(error: Any) -> str:
    """The several lines of a typer error as one line."""
    command = error.ctx.command_path if error.ctx else _command_path()
    message, hint = " ".join(error.format_message().split()), ""
    if (unknown := re.match(r"No \w+ command '(\w+)'\.", message)) and unknown[1] in OTHER_NAMES:
        message = f"{unknown[0]} Did you mean '{OTHER_NAMES[unknown[1]]}'?"
    parameters = {parameter.name for parameter in error.ctx.command.params} if error.ctx else set()
    if "overrides" in parameters:
        hint = options.key_hint(getattr(error, "option_name", "") or "")
    if "corpus" in parameters and "extra argument" in message:
        hint = "; give your data with --corpus"
    return f"{message}{hint} (see {command} --help)"


def _command_path() -> str:
    """The command in sys.argv, for errors in which typer does not report it."""
    path: list[str] = ["embtrain"]
    command: Any = typer.main.get_command(app)
    for word in sys.argv[1:]:
        if (command := getattr(command, "commands", {}).get(word)) is None:
            break
        path.append(word)
    return " ".join(path)


def _code(error: SystemExit) -> int:
    return error.code if isinstance(error.code, int) else 0 if error.code is None else 1


def _closed_pipe() -> int:
    """Handle a closed pipe (`| head`): print nothing more, not even when Python flushes at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(devnull, stream.fileno())
    return 128 + signal.SIGPIPE


def _print_error(code: int, *lines: str, kind: str = "error: ") -> int:
    red, black = ("\033[31m", "\033[0m") if kind and sys.stderr.isatty() else ("", "")
    text = "\n".join(f"embtrain: {red}{kind}{black}{plain(line)}" for line in lines or [""])
    with contextlib.suppress(BrokenPipeError):  # 2>&1 | head
        print(text, file=sys.stderr, flush=True)
        if streams.lost_reason(sys.stderr):     # closed, or on a full disk
            with contextlib.suppress(OSError):
                print(text, flush=True)
    return code


def _save_crash(error: Exception) -> str:
    """Write a crash report to the current or the temporary folder; return its path, else the error itself."""
    with contextlib.suppress(MemoryError):                   # a library may raise another error when memory runs out
        if (path := _write_crash(error)) is not None:
            return path
    return f"this: {type(error).__name__}: {error}"


def _write_crash(error: Exception) -> str | None:
    import platform
    import shlex
    import tempfile
    import time
    import traceback
    from importlib import metadata

    import embtrain
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
    for place in (Path.cwd, tempfile.gettempdir):            # either may be missing or full
        try:
            path = Path(place()) / name
            write_text(path, text)
        except (OSError, ResourceError):
            continue
        return str(path)
    return None
