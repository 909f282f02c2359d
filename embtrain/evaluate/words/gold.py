"""Gold files: lines of columns, as a recipe in evals/ describes them, compressed or not, read within limits.

Blank lines, the header and comments are skipped: lines with the recipe's prefix, and those with a comment mark that are
not a row (RowFilter in embtrain/data/formats/table_rows.py). Every other line must have exactly the columns that the
recipe names; empty fields after them are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embtrain.common.errors import DataError
from embtrain.data.catalogue.benchmark import GoldFormat
from embtrain.data.formats.table_rows import RowFilter, is_skipped
from embtrain.data.storage.containers import sources
from embtrain.data.storage.lines import read_lines

MAX_CHARACTERS = 256 << 20
MAX_LINE = 1 << 16


class GoldLine(NamedTuple):
    """One line of a gold file."""

    number: int
    fields: list[str]   # one per column, some of them empty; or the text of a marked line
    marked: bool        # starts with `mark`: the title of a section


def lines(path: str | Path, format: GoldFormat, mark: str | None = None) -> Iterator[GoldLine]:
    """The rows of a gold file, and the lines that start with `mark`. DataError names file and line."""
    rows = RowFilter(format)
    for number, text in _texts(Path(path)):
        if is_skipped(text, format):
            continue
        if mark is not None and text.startswith(mark):
            yield GoldLine(number, [text[len(mark):].strip()], True)
            continue
        if (fields := rows.read(text, f"{path}:{number}")) is None:
            continue
        if not fields:
            raise DataError(f"{path}:{number}: is not a line of {format.delimiter}-separated values: {_short(text)}; "
                            "quote whole fields, and double a quote inside them")
        if len(fields) != len(format.columns):
            raise DataError(f"{path}:{number}: should have {len(format.columns)} columns "
                            f"({', '.join(format.columns)}), got {len(fields)}: {_short(text)}")
        yield GoldLine(number, fields, False)


def zeros_note(n: int, items: str) -> str:
    """Return the part of a note that counts items with a word whose vector is zeros; empty if there are none."""
    return f"; {n:,} {items} with a vector of zeros, whose cosine counts as 0" if n else ""


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a file. DataError beyond MAX_CHARACTERS."""
    for source in sources([path], lambda name: True):
        read = 0
        for number, text in read_lines(source, MAX_LINE, "this is not a gold file"):
            read += len(text)
            if read > MAX_CHARACTERS:
                raise DataError(f"{source.name}:{number}: is not a gold file: more than {MAX_CHARACTERS:,} characters "
                                "in total")
            yield number, text


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
