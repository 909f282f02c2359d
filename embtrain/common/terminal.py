"""Escapes control characters in text from files, so that it is safe on a terminal, in a log and on a page.

A word, a path or the name of a tensor can contain any character. An escape sequence can recolour or rewrite a
terminal, a line feed can forge a line of output, and a bidirectional override can reverse the reading order. `plain`
writes these characters as escapes (`\\x1b`, `\\n`, `\\u202e`) and keeps all others. No other module escapes.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

WIDTH = 80        # columns of output that is not wrapped at the width of a terminal
MIN_WIDTH, MAX_WIDTH = 60, 120  # columns of the narrowest and the widest text
MAX_LINE = 4_000  # characters of one line of an error or a warning

# C0 and C1 controls, DEL, line and paragraph separators, bidirectional embeddings, overrides and isolates, and lone
# surrogates, which UTF-8 cannot encode.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Return `text` on one line, with control characters as Python escapes. Escaping twice changes nothing more."""
    return _UNSAFE.sub(lambda match: repr(match[0])[1:-1], text)


def plain_lines(text: str) -> str:
    """Return `text` with every line escaped; only a line feed ends a line, so words inside need `plain` first."""
    return "\n".join(map(plain, text.split("\n")))


def shortened(line: str) -> str:
    """Cut the middle of a line longer than MAX_LINE characters; its ends contain the place and the remedy."""
    cut = len(line) - MAX_LINE
    return line if cut <= 0 else f"{line[:MAX_LINE // 2]} [{cut:,} characters left out] {line[-MAX_LINE // 2:]}"


def format_count(n: float, noun: str, plural: str = "") -> str:
    """Return a number of things: `1 epoch`, `2,000 epochs`, `0.5 epochs`. plural: of the noun; default: with s."""
    number = format_whole(n)
    return f"{number} {noun if number == '1' else plural or noun + 's'}"


def format_part(n: int, total: int, nouns: str, one: str, several: str) -> str:
    """Return a part of a total with its verb: `1 of 4 runs is`, `2 of 4 runs are`. `several` is also that of 0."""
    return f"{n:,} of {total:,} {nouns} {one if n == 1 else several}"


def format_whole(n: float) -> str:
    """Return a number rounded to a whole one; between 0 and 1 with two digits, because 0 would mean none."""
    return f"{n:.2g}" if 0 < n < 1 else f"{n:,.0f}"


def json_escaped(text: str) -> str:
    """Return JSON text with unsafe characters as \\uXXXX; json.dumps escapes only those below 32."""
    return _UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def width() -> int:
    """Columns of the terminal, within MIN_WIDTH and MAX_WIDTH; WIDTH if standard output is not a terminal."""
    if not sys.stdout.isatty():
        return WIDTH
    return max(MIN_WIDTH, min(shutil.get_terminal_size((WIDTH, 0)).columns, MAX_WIDTH))


def show(text: str, file: IO[str] | None = None, flush: bool = False) -> None:
    """Print lines of text, escaped, to `file` (default: standard output)."""
    print(plain_lines(text), file=sys.stdout if file is None else file, flush=flush)


def data_line(line: str, flush: bool = False) -> None:
    """Print one line of data (a translation): escaped on a terminal, unchanged if a program reads it."""
    print(plain(line) if sys.stdout.isatty() else line, flush=flush)


@contextlib.contextmanager
def dropped_if_lost() -> Iterator[None]:
    """Drop progress that a terminal cannot take any more, for example after a lost connection.

    The command's own streams do so (cli/streams.py); a program of the user has those of Python.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


def note(line: str) -> None:
    """Print one line of progress to standard error."""
    with dropped_if_lost():
        print(plain(line), file=sys.stderr, flush=True)


class RepeatedWarnings(logging.Filter):
    """Drops a warning or error of embtrain whose message has passed before."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.name.partition(".")[0] != "embtrain":
            return True
        n_passed, message = len(self.passed), record.getMessage()
        self.passed.add(message)
        return len(self.passed) > n_passed


@contextlib.contextmanager
def without_repeated_warnings() -> Iterator[None]:
    """Log each warning of embtrain only once, by the handlers of its logger and of the root.

    Filters of a logger do not apply to its children, e.g. `embtrain.negatives`. Each handler has its own filter, since
    all of them receive a record.
    """
    handlers: list[logging.Handler | None] = [*logging.getLogger("embtrain").handlers, *logging.getLogger().handlers]
    filters = [(handler, RepeatedWarnings()) for handler in handlers or [logging.lastResort] if handler is not None]
    for handler, repeated in filters:
        handler.addFilter(repeated)
    try:
        yield
    finally:
        for handler, repeated in filters:
            handler.removeFilter(repeated)


class OneLine(logging.Formatter):
    """`embtrain: MESSAGE` on one line, escaped; records of another library begin with its name."""

    def format(self, record: logging.LogRecord) -> str:
        library = package_of(record.pathname) if record.name == "root" else record.name.partition(".")[0]
        return f"{plain(library)}: {shortened(plain(record.getMessage()))}"


def package_of(file: str) -> str:
    """Return the name of the outermost package of a Python file, or of a file without one: a plugin."""
    path = Path(file)
    while path.name and (path.parent / "__init__.py").is_file():
        path = path.parent
    return path.stem
