"""Gold files: lines of columns, as a recipe in evals/ describes them, packed or not, read within bounds.

Every line that is blank or a comment is passed over; any other must have exactly the columns that the recipe names.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embtrain.common.errors import DataError
from embtrain.data.catalogue.recipes import GoldFormat
from embtrain.data.storage.containers import sources
from embtrain.data.storage.lines import read_lines

MAX_CHARACTERS = 256 << 20
MAX_LINE = 1 << 16


class Line(NamedTuple):
    number: int
    fields: list[str]   # as many as there are columns, none empty; or the whole of a marked line
    marked: bool        # begins with `mark`: a section's title


def lines(path: str | Path, format: GoldFormat, mark: str | None = None) -> Iterator[Line]:
    """The rows of a gold file, and lines that begin with `mark` as they are. DataError names file and line."""
    header = format.header
    for number, text in _texts(Path(path)):
        if not text.strip() or (format.comment and text.lstrip().startswith(format.comment)):
            continue
        if mark is not None and text.startswith(mark):
            yield Line(number, [text[len(mark):].strip()], True)
            continue
        if header:
            header = False
            continue
        fields = _split(text, format.delimiter, f"{path}:{number}")
        if len(fields) != len(format.columns):
            raise DataError(f"{path}:{number}: should have {len(format.columns)} columns "
                            f"({', '.join(format.columns)}), got {len(fields)}: {_short(text)}")
        yield Line(number, fields, False)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    for source in sources([path], lambda name: True):
        read = 0
        for number, text in read_lines(source, MAX_LINE, "this is no gold file"):
            read += len(text)
            if read > MAX_CHARACTERS:
                raise DataError(f"{source.name}:{number}: is no gold file: more than {MAX_CHARACTERS:,} "
                                "characters in all")
            yield number, text


def _split(text: str, delimiter: str, where: str) -> list[str]:
    if delimiter == "space":
        return text.split()
    if delimiter == "tab":
        return [field.strip() for field in text.rstrip().split("\t")]
    try:
        between = ";" if delimiter == "semicolon" else ","
        return [field.strip() for field in next(csv.reader([text], delimiter=between, strict=True,
                                                           skipinitialspace=True))]
    except csv.Error as error:
        raise DataError(f"{where}: is no line of {delimiter}-separated values: {error}") from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
