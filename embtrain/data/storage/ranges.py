"""Ranges of bytes of a large file: cut at line ends, and read as streams of their own."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from embtrain.data.storage.containers import BUFFER, Source, damage_as_data_error, is_plain


class _Span(io.RawIOBase):
    """A stream of the next n bytes of a file."""

    def __init__(self, file: IO[bytes], n: int, path: Path):
        self._file, self._left, self._path = file, n, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with damage_as_data_error(self._path):
            data = self._file.read(min(len(buffer), self._left))
        self._left -= len(data)
        buffer[:len(data)] = data
        return len(data)


@contextlib.contextmanager
def open_range(path: Path, begin: int, end: int) -> Iterator[Source]:
    """Open the bytes `begin` to `end` of a file on disk. DataError or ResourceError if it cannot be read."""
    with contextlib.ExitStack() as stack:
        with damage_as_data_error(path):
            file = stack.enter_context(path.open("rb", buffering=0))
            size = os.fstat(file.fileno()).st_size
            file.seek(begin)
        yield Source(str(path), io.BufferedReader(_Span(file, end - begin, path), BUFFER), size, begin)


def line_ranges(path: Path, step: int) -> list[tuple[int, int]]:
    """Cut a file into ranges of about `step` bytes, each but the last ending after a line feed.

    A file that is packed or an archive is one range. Errors as in `open_range`.
    """
    with damage_as_data_error(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        cuts = [0]
        if size > step and is_plain(file.read(512), path):
            while (target := cuts[-1] + step) < size and (cut := _line_end(file, target)) < size:
                cuts.append(cut)
    return list(zip(cuts, [*cuts[1:], size], strict=True))


def count_lines(path: Path, end: int) -> int:
    """Return the number of line feeds in the first `end` bytes of a file."""
    with open_range(path, 0, end) as source:
        return sum(piece.count(b"\n") for piece in iter(lambda: source.stream.read(1 << 20), b""))


def line_end(path: Path, position: int) -> int:
    """Return the offset after the first line feed from `position` on; the size of the file if there is none."""
    with damage_as_data_error(path), path.open("rb") as file:
        return _line_end(file, position)


def _line_end(file: IO[bytes], position: int) -> int:
    file.seek(position)
    while piece := file.read(BUFFER):
        if (found := piece.find(b"\n")) >= 0:
            return position + found + 1
        position += len(piece)
    return position
