"""Lines of fields separated by a tab, a comma or blanks, and CSV with quotes.

tab     fields verbatim; quotes have no meaning
comma   CSV: a field that begins with a quote ends with one, and a quote inside it is doubled. It may contain commas
        and line breaks
space   any run of blanks separates fields

A comment is a line that begins with `#` or `%` and a blank and, with a tab or a comma, does not have the expected
number of fields. Comments are skipped and counted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from embtrain.common.errors import DataError
from embtrain.data.storage.containers import Source
from embtrain.data.storage.encoding import encoding_hint
from embtrain.data.storage.lines import Comments, is_comment, read_lines
from embtrain.data.storage.skipped import Skipped, counted

MAX_LINE = 1 << 16  # bytes of a line, and characters of a CSV record
Delimiter = Literal["tab", "comma", "space"]
SEPARATORS: dict[Delimiter, str | None] = {"tab": "\t", "comma": ",", "space": None}
_BREAK = re.compile(r"\s*[\t\n\r]\s*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass
class ParseNotes:
    """Skipped comments and changed fields of a reader, over all files."""

    comments: Comments = field(default_factory=Comments)
    breaks: Skipped = field(default_factory=Skipped)  # fields with a line break or a tab, which is read as a blank

    def warnings(self) -> tuple[str, ...]:
        """Return a warning for each kind of note."""
        if not self.breaks.n:
            return self.comments.warnings()
        names = counted(self.breaks.n, "quoted name", "quoted names")
        return (*self.comments.warnings(), f"{self.breaks.first}: line breaks and tabs inside {names} are read as one "
                                           "space each")


def read_records(source: Source, delimiter: Delimiter, n: int, hint: str, notes: ParseNotes
                 ) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (number of the first line, that line, stripped fields) of each record that is not blank.

    n: expected number of fields. hint: end of the error for a line that is too long. Raises DataError for a line or a
    quoted field that is too long, for unmatched quotes, and for a control character in a field. notes: updated.
    """
    separator = SEPARATORS[delimiter]

    def lines() -> Iterator[tuple[int, str]]:
        return read_lines(source, MAX_LINE, hint)

    def is_left_out(number: int, line: str) -> bool:
        if is_comment(line) and (separator is None or len(line.split(separator)) != n):
            notes.comments.add(f"{source.name}:{number}")
            return True
        return not line.strip()

    if delimiter != "comma":
        for number, line in lines():
            if not is_left_out(number, line):
                names = [name.strip() for name in line.split(separator)]
                refuse_control(f"{source.name}:{number}", names)
                yield number, line, names
        return
    record_lines: list[tuple[int, str]] = []                 # lines of the current record

    def read_record_lines() -> Iterator[str]:
        n_chars = 0
        for number, line in lines():
            if not record_lines:
                if is_left_out(number, line):
                    continue
                n_chars = 0
            record_lines.append((number, line))
            n_chars += len(line)  # a running sum: a record can have as many lines as characters
            if n_chars > MAX_LINE:
                raise DataError(f"{source.name}:{record_lines[0][0]}: a quoted name is longer than {MAX_LINE:,} "
                                "characters; close its quote")
            yield line + "\n"

    reader = csv.reader(read_record_lines(), strict=True, skipinitialspace=True)
    while True:
        record_lines.clear()
        try:
            fields = next(reader, None)
        except csv.Error as error:
            number, line = record_lines[0] if record_lines else (1, "")
            raise DataError(f"{source.name}:{number}: {line[:80]!r} is not CSV ({error}); close quoted names, and "
                            "double each quote inside them") from error
        if fields is None:
            return
        names = [name.strip() for name in fields]
        for i, name in enumerate(names):
            if _BREAK.search(name):
                names[i] = _BREAK.sub(" ", name)
                notes.breaks.add(f"{source.name}:{record_lines[0][0]}")
        refuse_control(f"{source.name}:{record_lines[0][0]}", names)
        yield record_lines[0][0], record_lines[0][1], names


def refuse_control(where: str, names: Sequence[str]) -> None:
    """Raise DataError if a name contains a control character. where: FILE:LINE."""
    if match := _CONTROL.search("".join(names)):
        hint = f", or, if the file is UTF-16, {encoding_hint(match[0].encode())}" if match[0] == "\0" else ""
        name = next(name for name in names if match[0] in name)
        raise DataError(f"{where}: {name[:80]!r}: contains the control character U+{ord(match[0]):04X}; remove "
                        f"it{hint}")


def split_fields(line: str, delimiter: Delimiter) -> list[str]:
    """Split one line into fields; an incomplete CSV line is split at its commas."""
    if delimiter == "comma":
        try:
            return next(csv.reader([line], strict=True, skipinitialspace=True), [])
        except csv.Error:
            pass
    return line.split(SEPARATORS[delimiter])
