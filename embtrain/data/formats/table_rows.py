"""Rows of a table of words: fields, comments and the header."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence

from embtrain.data.catalogue.benchmark import Delimiter, GoldFormat
from embtrain.data.storage.lines import Comments, is_comment

SEPARATORS: dict[Delimiter, str | None] = {"tab": "\t", "comma": ",", "semicolon": ";", "space": None}
LABELS = ("True", "False")
GOLD_NAMES = frozenset((       # names of the column of scores or labels, without case, blanks and punctuation
    "score", "scores", "similarity", "sim", "relatedness", "rating", "ratings", "grade", "grades", "gold", "goldscore",
    "label", "labels", "mean", "average", "human", "humanmean", "humanscore", "meanscore", "avgscore", "averagescore",
    "meanrating", "humanrating", "simlex999"))
WORD_NAMES = (                 # names of the columns of word1 and word2, spelled in the same way
    ("word1", "word2"), ("w1", "w2"), ("worda", "wordb"), ("term1", "term2"), ("hyponym", "hypernym"),
    ("child", "parent"), ("narrower", "broader"), ("source", "target"), ("concept", "kind"))


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


def plain_name(title: str) -> str:
    """Return the name of a column without case, blanks and punctuation."""
    return re.sub(r"[\W_]", "", title.lower())


def named_words(titles: Sequence[str]) -> list[tuple[int, int]]:
    """List the columns of word1 and word2 that a header names, each of them once."""
    plain = [plain_name(title) for title in titles]
    return [(plain.index(a), plain.index(b)) for a, b in WORD_NAMES if plain.count(a) == plain.count(b) == 1]


class RowFilter:
    """Separates the rows of a table from its header and comments, line after line.

    A line with a comment mark is a comment in front of the header. After it, or without a header, it is a row if it has
    all columns, and a number or label where it should have one; without this column, words between blanks are never a
    row. The header is one line: the first other line, or, if this line is a row, the last comment in front of it that
    has all columns. A first line without a number or label is a row if that comment names columns and the line does
    not; without a column of them, if the line does not.
    """

    def __init__(self, form: GoldFormat, is_label: Callable[[str], bool] = LABELS.__contains__) -> None:
        self.form, self.comments = form, Comments()
        self._is_gold = lambda text: is_number(text) or is_label(text)
        self._gold = [i for i, name in enumerate(form.columns) if name in ("score", "label")]
        self._needs_header, self._title = form.header, ""   # title: place of a comment that can be the header
        self._is_named = False                              # whether that comment names columns

    def read(self, text: str, place: str) -> list[str] | None:
        """Return the fields of a row; None for a comment or the header. place: FILE:LINE, for the comments."""
        fields = split_columns(text, self.form.delimiter, len(self.form.columns))
        if is_comment(text) and (self._needs_header or not self._is_row(fields)):
            if self._needs_header and self._is_title(text):
                place, self._title = self._title, place
                self._is_named = not self._gold or self._names_columns(self._title_fields(text))
            if place:
                self.comments.add(place)
            return None
        if not self._needs_header:
            return fields
        self._needs_header = False
        if self._title and (self._is_row(fields) or (self._is_named and not self._names_columns(fields))):
            return fields
        if self._title:
            self.comments.add(self._title)
        return None

    def _is_row(self, fields: Sequence[str]) -> bool:
        return len(fields) == len(self.form.columns) and all(self._is_gold(fields[i]) for i in self._gold) and (
            bool(self._gold) or self.form.delimiter != "space")

    def _is_title(self, text: str) -> bool:
        fields = self._title_fields(text)
        return bool(fields) and not any(self._is_gold(fields[i]) for i in self._gold)

    def _title_fields(self, text: str) -> list[str]:
        return split_title(text, self.form.delimiter, len(self.form.columns))

    def _names_columns(self, fields: Sequence[str]) -> bool:
        """Return whether a line has names of columns: those of the recipe, of two words, of scores or of labels."""
        plain = list(map(plain_name, fields))
        return plain == list(map(plain_name, self.form.columns)) or bool(named_words(fields)) or any(
            i < len(plain) and plain[i] in GOLD_NAMES for i in self._gold)
