"""Lines of a stream with their numbers, none of them without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from embtrain.common.errors import DataError
from embtrain.data.storage import encoding
from embtrain.data.storage.containers import Source

MAX_LINE = 1 << 20  # bytes


def read_raw_lines(source: Source, max_bytes: int = MAX_LINE, hint: str = "") -> Iterator[tuple[int, bytes]]:
    """(number, line) of what was opened. DataError where a line is longer than `most` bytes: no more of it is held.
    what: what the reader then asks or says."""
    read: Callable[[int], bytes] = source.stream.readline
    number = 0
    while line := read(max_bytes + 1):
        number += 1
        if len(line) > max_bytes:
            raise DataError(f"{source.name}:{number}: is longer than {max_bytes:,} bytes{hint and f': {hint}'}")
        yield number, line


def read_lines(source: Source, max_bytes: int = MAX_LINE, hint: str = "is it text?") -> Iterator[tuple[int, str]]:
    """(number, line without its end); DataError where it is not UTF-8 as well."""
    for number, line in read_raw_lines(source, max_bytes, hint):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            where = f"{source.name}:{number}: byte {error.start + 1}"
            raise DataError(f"{where} is not UTF-8; {encoding.encoding_hint(line)}") from error


def read_nonblank_lines(source: Source, max_bytes: int = MAX_LINE, hint: str = "is it text?"
                        ) -> Iterator[tuple[int, str]]:
    """As `texts`, without blank lines."""
    return ((number, text) for number, text in read_lines(source, max_bytes, hint) if text.strip())


def is_comment(line: str) -> bool:
    """Whether a line is a comment: `#` or `%`, once or more, and then a blank or the end. `#name` is data."""
    mark = line.split(maxsplit=1)[:1]
    return bool(mark) and (not mark[0].strip("#") or not mark[0].strip("%"))


@dataclass
class Comments:
    """Count of the comment lines that a reader leaves out, and the place of the first."""

    n: int = 0
    first: str = ""

    def add(self, source: Source, number: int) -> None:
        self.n, self.first = self.n + 1, self.first or f"{source.name}:{number}"

    def warnings(self) -> tuple[str, ...]:
        """The warning, or nothing where no line was left out."""
        if not self.n:
            return ()
        lines = "1 line begins" if self.n == 1 else f"{self.n:,} lines begin"
        return (f"{self.first}: {lines} with a comment mark and a blank (`# `, `% `) and "
                f"{'is' if self.n == 1 else 'are'} left out as {'a comment' if self.n == 1 else 'comments'}",)
