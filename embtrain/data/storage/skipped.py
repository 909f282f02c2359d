"""Warnings of a reader: a count of the records that it passes over, and lines whose file may move.

A cache is found by the content of a corpus, so the corpus may have another path when its warnings are read again. A
cached line therefore begins with the position of its file among those of the corpus: `<file 0>:3: ...`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_FILE = re.compile(r"<file (\d+)>(?![^:#/])")
_log = logging.getLogger("embtrain")


@dataclass
class Skipped:
    """Number of records that a reader passed over, and the place of the first."""

    n: int = 0
    first: str = ""

    def add(self, place: str) -> None:
        """Count a record at `place`, FILE:LINE."""
        self.n, self.first = self.n + 1, self.first or place

    def lines(self, one: str, several: str) -> tuple[str, ...]:
        """Return the warning, with the noun and verb of `counted`; empty if nothing was passed over."""
        return (f"{self.first}: {counted(self.n, one, several)}",) if self.n else ()


def counted(n: int, one: str, several: str) -> str:
    """Return a number with what follows it: the words for one, or those for several."""
    return f"{n:,} {one if n == 1 else several}"


def number_file(line: str, files: Sequence[Path]) -> str:
    """Return a line for a cache: a file or folder at its beginning becomes its last position in `files`."""
    names = [(len(name), i) for i, name in enumerate(map(str, files))
             if line.startswith(name) and line[len(name):len(name) + 1] in ("", ":", "#", "/")]
    if not names:
        return line
    length, position = max(names)
    return f"<file {position}>{line[length:]}"


def number_files(lines: Iterable[str], files: Sequence[Path]) -> tuple[str, ...]:
    """Return lines for a cache, as `number_file`."""
    return tuple(number_file(line, files) for line in lines)


def name_file(line: str, files: Sequence[Path]) -> str:
    """Return a line of `number_file` with the current path of its file; the last of fewer files than there were."""
    match = _FILE.match(line)
    return line if match is None or not files else f"{files[min(int(match[1]), len(files) - 1)]}{line[match.end():]}"


def log_lines(lines: Iterable[str], files: Sequence[Path] = ()) -> None:
    """Log warnings, read now or from the cache, with the current paths. files: those of `number_file`."""
    for line in lines:
        _log.warning("%s", name_file(line, files))
