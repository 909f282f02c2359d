"""Rows of a table of words: fields, comments and the header."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence

from embtrain.data.catalogue.benchmark import Delimiter, GoldFormat
from embtrain.data.storage.lines import Comments, is_comment

SEPARATORS: dict[Delimiter, str | None] = {"tab": "\t", "comma": ",", "semicolon": ";", "space": None}
LABELS = ("True", "False")


def is_number(text: str) -> bool:
    """Return whether `float` accepts the text."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def split_fields(text: str, delimiter: Delimiter) -> list[str]:
    """Split a line into stripped fields; between commas or semicolons a field may be quoted."""
    separator = SEPARATORS[delimiter]
    if separator in (",", ";"):
        try:
            return [field.strip() for field in next(csv.reader([text], delimiter=separator, strict=True,
                                                               skipinitialspace=True))]
        except csv.Error:
            return []
    return [field.strip() for field in text.rstrip("\r\n").split(separator)]


def split_columns(text: str, delimiter: Delimiter, n: int) -> list[str]:
    """Split a line of n columns into fields, without the empty ones that TABs at its end add to the n."""
    fields = split_fields(text, delimiter)
    return fields[:n] if delimiter == "tab" and not any(fields[n:]) else fields


def split_title(text: str, delimiter: Delimiter, n: int) -> list[str]:
    """Split a comment into n fields, without its mark or with it as the first; empty if neither has n."""
    for line in (*text.split(maxsplit=1)[1:], text):
        if len(fields := split_columns(line, delimiter, n)) == n:
            return fields
    return []


class RowFilter:
    """Separates the rows of a table from its header and comments, line after line.

    A line with a comment mark is a comment in front of the header. After it, or without a header, it is a row if it has
    all columns, and a number or label where it should have one; without this column, words between blanks are never a
    row. The header is the first other line, or a comment that has all columns if this line is a row.
    """

    def __init__(self, form: GoldFormat, is_label: Callable[[str], bool] = LABELS.__contains__) -> None:
        self.form, self.comments = form, Comments()
        self._is_gold = lambda text: is_number(text) or is_label(text)
        self._gold = [i for i, name in enumerate(form.columns) if name in ("score", "label")]
        self._needs_header, self._title = form.header, ""   # title: place of a comment that can be the header

    def read(self, text: str, place: str) -> list[str] | None:
        """Return the fields of a row; None for a comment or the header. place: FILE:LINE, for the comments."""
        fields = split_columns(text, self.form.delimiter, len(self.form.columns))
        if is_comment(text) and (self._needs_header or not self._is_row(fields)):
            if self._needs_header and self._is_title(text):
                place, self._title = self._title, place
            if place:
                self.comments.add(place)
            return None
        if not self._needs_header:
            return fields
        self._needs_header = False
        if self._title and self._is_row(fields):
            return fields
        if self._title:
            self.comments.add(self._title)
        return None

    def _is_row(self, fields: Sequence[str]) -> bool:
        return len(fields) == len(self.form.columns) and all(self._is_gold(fields[i]) for i in self._gold) and (
            bool(self._gold) or self.form.delimiter != "space")

    def _is_title(self, text: str) -> bool:
        fields = split_title(text, self.form.delimiter, len(self.form.columns))
        return bool(fields) and not any(self._is_gold(fields[i]) for i in self._gold)
