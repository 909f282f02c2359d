"""Lines of a stream with their numbers, none of them without end."""

from __future__ import annotations

from collections.abc import Iterator

from embtrain.data import encoding
from embtrain.data.containers import Source
from embtrain.errors import DataError

MAX_LINE = 1 << 20  # bytes


def numbered(source: Source) -> Iterator[tuple[int, str]]:
    """(number, line) of what was opened, without blank ones. DataError where it is no text or a line is endless."""
    number = 0
    while raw := source.stream.readline(MAX_LINE + 1):
        number += 1
        if len(raw) > MAX_LINE:
            raise DataError(f"{source.name}:{number}: a line of more than {MAX_LINE:,} bytes: is it text?")
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{source.name}:{number}: is not UTF-8 text; {encoding.mend(raw)}") from error
        if text.strip():
            yield number, text
