"""Lines of a stream with their numbers, none of them without end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from embtrain.data import encoding
from embtrain.data.containers import Source
from embtrain.errors import DataError

MAX_LINE = 1 << 20  # bytes


def raw(source: Source, most: int = MAX_LINE, what: str = "") -> Iterator[tuple[int, bytes]]:
    """(number, line) of what was opened. DataError where a line is longer than `most` bytes: no more of it is held.
    what: what the reader then asks or says."""
    read: Callable[[int], bytes] = source.stream.readline
    number = 0
    while line := read(most + 1):
        number += 1
        if len(line) > most:
            raise DataError(f"{source.name}:{number}: is longer than {most:,} bytes{what and f': {what}'}")
        yield number, line


def texts(source: Source, most: int = MAX_LINE, what: str = "is it text?") -> Iterator[tuple[int, str]]:
    """(number, line without its end); DataError where it is not UTF-8 as well."""
    for number, line in raw(source, most, what):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            where = f"{source.name}:{number}: byte {error.start + 1}"
            raise DataError(f"{where} is not UTF-8; {encoding.mend(line)}") from error


def numbered(source: Source, most: int = MAX_LINE, what: str = "is it text?") -> Iterator[tuple[int, str]]:
    """As `texts`, without blank lines."""
    return ((number, text) for number, text in texts(source, most, what) if text.strip())
