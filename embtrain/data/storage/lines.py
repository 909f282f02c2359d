"""Numbered lines of a stream, each of bounded length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from embtrain.common.errors import DataError
from embtrain.common.progress import tracked
from embtrain.data.storage import encoding
from embtrain.data.storage.containers import Source
from embtrain.data.storage.skipped import Skipped

MAX_LINE = 1 << 20  # bytes


def read_raw_lines(source: Source, max_bytes: int = MAX_LINE, hint: str = "") -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) of a stream, numbered from 1.

    Raises DataError for a line of more than `max_bytes` bytes, without reading the rest of it. hint: the end of that
    error.
    """
    lines: Iterator[bytes] = iter(partial(source.stream.readline, max_bytes + 1), b"")
    for number, line in enumerate(tracked(lines, f"reading {os.path.basename(source.name)}", unit="lines"), 1):
        if len(line) > max_bytes:
            raise DataError(f"{source.name}:{number}: is longer than {max_bytes:,} bytes{hint and f': {hint}'}")
        yield number, line


def read_lines(source: Source, max_bytes: int = MAX_LINE, hint: str = "is it text?") -> Iterator[tuple[int, str]]:
    """Yield (number, line without its end), decoded; DataError also if a line is not UTF-8."""
    for number, line in read_raw_lines(source, max_bytes, hint):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            where = f"{source.name}:{number}: byte {error.start + 1}"
            raise DataError(f"{where} is not UTF-8; {encoding.encoding_hint(line)}") from error


def read_nonblank_lines(source: Source, max_bytes: int = MAX_LINE, hint: str = "is it text?"
                        ) -> Iterator[tuple[int, str]]:
    """Yield the lines of `read_lines` that are not blank."""
    return ((number, text) for number, text in read_lines(source, max_bytes, hint) if text.strip())


def is_comment(line: str) -> bool:
    """Return whether a line is a comment: one or more `#` or `%`, then a blank or the end. `#name` is data."""
    mark = line.split(maxsplit=1)[:1]
    return bool(mark) and (not mark[0].strip("#") or not mark[0].strip("%"))


class Comments(Skipped):
    """Number of comment lines that a reader skipped, and the place of the first."""

    def warnings(self) -> tuple[str, ...]:
        """Return the warning; empty if no line was skipped."""
        with_mark = "with a comment mark and a space (`# `, `% `) and"
        return self.lines(f"line begins {with_mark} is skipped as a comment",
                          f"lines begin {with_mark} are skipped as comments")
