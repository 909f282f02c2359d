"""Rows of a table of words: fields, comments and the header."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embtrain.data.catalogue.benchmark import Delimiter, GoldFormat
from embtrain.data.storage.lines import Comments, is_comment

SEPARATORS: dict[Delimiter, str | None] = {"tab": "\t", "comma": ",", "semicolon": ";", "space": None}
LABELS = ("True", "False")
SECTION_MARK = ":"             # begins the title of a section of analogies
MAX_COMMENTS = 50              # comments in front of the rows among which the header is searched
GOLD_NAMES = frozenset((       # names of the column of scores or labels, without case, blanks and punctuation
    "score", "scores", "similarity", "sim", "relatedness", "rating", "ratings", "grade", "grades", "gold", "goldscore",
    "label", "labels", "mean", "average", "human", "humanmean", "humanscore", "meanscore", "avgscore", "averagescore",
    "meanrating", "humanrating", "simlex999"))
WORD_NAMES = (                 # names of the columns of word1 and word2, spelled in the same way
    ("word1", "word2"), ("w1", "w2"), ("worda", "wordb"), ("term1", "term2"), ("hyponym", "hypernym"),
    ("child", "parent"), ("narrower", "broader"), ("source", "target"), ("concept", "kind"))


def to_number(text: str) -> float | None:
    """Return the number, None if the text is none; Python's 1_000 is not accepted."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def is_number(text: str) -> bool:
    """Return whether `to_number` accepts the text."""
    return to_number(text) is not None


def number_remedy(text: str) -> str:
    """Return the remedy for a number with decimal comma or separators of thousands; "" for other texts."""
    if re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", text):
        return "write a decimal point, or remove a thousands separator"
    if re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3}){2,6}(\.\d{0,20})?", text):
        return "remove the thousands separators"
    is_decimal = re.fullmatch(r"[+-]?\d{1,20},\d{1,20}([eE][+-]?\d{1,3})?", text)
    return f"write a decimal point: {text.replace(',', '.')}" if is_decimal else ""


def is_faulty_number(text: str) -> bool:
    """Return whether a text is likely a number in a wrong notation: digits, without letters and not a range (1-10)."""
    return bool(number_remedy(text)) or (re.search(r"\d", text) is not None and re.search(
        r"[^\W\d_]|\d\s*(?:[-\u2013\u2014]|\.{2,})\s*\d", text) is None)


def is_skipped(text: str, form: GoldFormat) -> bool:
    """Return whether a line is blank, or begins with the recipe's prefix of comments."""
    return not text.strip() or (form.comment is not None and text.lstrip().startswith(form.comment))


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
    """Split a line of n columns into fields, without the empty ones at its end that exceed the n."""
    fields = split_fields(text, delimiter)
    return fields if any(fields[n:]) else fields[:n]


def column_counts(text: str, delimiter: Delimiter) -> range:
    """Return the numbers of columns that a line can have: with all empty fields at its end, or without some of them.

    It has two or more if it contains the delimiter.
    """
    fields = split_fields(text, delimiter)
    filled = max((i for i, field in enumerate(fields, 1) if field), default=0)
    return range(max(filled, min(len(fields), 2)), len(fields) + 1)


def plain_name(title: str) -> str:
    """Return the name of a column without case, blanks and punctuation."""
    return re.sub(r"[\W_]", "", title.lower())


def named_words(titles: Sequence[str]) -> list[tuple[int, int]]:
    """List the columns of word1 and word2 that a header names, each of them once."""
    plain = [plain_name(title) for title in titles]
    return [(plain.index(a), plain.index(b)) for a, b in WORD_NAMES if plain.count(a) == plain.count(b) == 1]


@dataclass(frozen=True)
class RowShape:
    """The shape of a row: n fields, with a number or label in the columns `gold`."""

    delimiter: Delimiter
    n: int
    gold: Sequence[int]
    is_gold: Callable[[str], bool]      # whether a field is a number or label
    columns: Sequence[str] = ()         # names of the columns in a recipe

    @property
    def differs_from_text(self) -> bool:
        """Whether rows have what a sentence lacks: a number, a label, or another delimiter than blanks."""
        return bool(self.gold) or self.delimiter != "space"

    def split(self, text: str) -> list[str]:
        """Split a line into fields, without the empty ones at its end that exceed the n.

        Between blanks, commas and semicolons after a number or label in the last column are surplus too; those after a
        word can be a part of it.
        """
        fields = split_columns(text, self.delimiter, self.n)
        if self.delimiter == "space" and len(fields) == self.n and self.n - 1 in self.gold:
            value = fields[-1].rstrip(",;")
            fields[-1] = value if self.is_gold(value) else fields[-1]
        return fields

    def is_row(self, fields: Sequence[str]) -> bool:
        """Return whether a line has this shape; without columns of numbers it must not name columns."""
        return len(fields) == self.n and (all(self.is_gold(fields[i]) for i in self.gold) if self.gold
                                          else not self.names_columns(fields))

    def names_columns(self, fields: Sequence[str]) -> bool:
        """Return whether a line names columns.

        These are one of `gold` if no other field is a name of scores, both columns of the words outside of `gold`, or
        two of a recipe, in their places. In a table of two columns, words can also be numbers, as ids are.
        """
        names = [plain_name(field) for field in fields]
        scores = {i for i, name in enumerate(names) if name in GOLD_NAMES}
        has_words = any(self.n == 2 or words.isdisjoint(self.gold) for words in map(set, named_words(fields)))
        n_of_recipe = sum(name == plain_name(column) for name, column in zip(names, self.columns, strict=False))
        return (bool(scores) and scores.issubset(self.gold)) or has_words or n_of_recipe > 1

    def find_header(self, comments: Sequence[str], first: Sequence[str]) -> tuple[int, list[str]] | None:
        """Find the comment that is the header: its index and fields; None if it is the first other line.

        It must have all columns, and no number or label where a row has one. Comments that name columns have
        precedence, then later ones. If rows have the shape of text, the comment must name columns. first: fields of the
        first other line. If it is not a row, a comment is the header only if the comment names columns and this line
        does not.
        """
        titles = [(i, title) for i, text in enumerate(comments) if (title := self._split_title(text, first))]
        named = [(i, title) for i, title in titles if self.names_columns(title)]
        if self.is_row(first) or (named and not self.names_columns(first)):
            return next(reversed(named or titles * self.differs_from_text), None)
        return None

    def _split_title(self, text: str, first: Sequence[str]) -> list[str]:
        """Split a comment into n fields, without its mark or with it as the first; empty if it cannot be a header.

        Between blanks, the mark names a column only if this contains numbers, as `#` is the sign of a number.
        """
        is_field = self.delimiter != "space" or is_number(first[0])
        for line in (*text.split(maxsplit=1)[1:], *[text] * is_field):
            if len(fields := self.split(line)) == self.n:
                return [] if any(self.is_gold(fields[i]) for i in self.gold) else fields
        return []


class RowFilter:
    """Separates the rows of a table from its header and comments, line after line.

    A line with a comment mark is a comment in front of the header. After it, or without a header, it is a row if it has
    the shape of one; without a column of numbers or labels, words between blanks are never a row. The header is the
    first other line, or one of the MAX_COMMENTS comments in front of it (`RowShape.find_header`). A first other line
    that is the header, but has the shape of a row, is a `doubtful_header`.
    """

    def __init__(self, form: GoldFormat, is_label: Callable[[str], bool] = LABELS.__contains__) -> None:
        gold = [i for i, name in enumerate(form.columns) if name in ("score", "label")]
        self.comments = Comments()
        self.doubtful_header = ""                       # its place and text, if there is one
        self._shape = RowShape(form.delimiter, len(form.columns), gold, lambda text: is_number(text) or is_label(text),
                               form.columns)
        self._needs_header = form.header
        self._above = deque[tuple[str, str]]()          # place and text of comments that can be the header

    def read(self, text: str, place: str) -> list[str] | None:
        """Return the fields of a row; None for a comment or the header. place: FILE:LINE, for the comments."""
        fields = self._shape.split(text)
        if is_comment(text):
            if self._needs_header:
                self._above.append((place, text))
                if len(self._above) > MAX_COMMENTS:
                    self.comments.add(self._above.popleft()[0])
                return None
            if not (self._shape.differs_from_text and self._shape.is_row(fields)):
                self.comments.add(place)
                return None
        if not self._needs_header:
            return fields
        self._needs_header = False
        header = self._shape.find_header([text for _, text in self._above], fields)
        for i, (comment, _) in enumerate(self._above):
            if header is None or i != header[0]:
                self.comments.add(comment)
        if header is None and self._shape.is_row(fields):
            self.doubtful_header = f"{place}: {text.strip()[:60]!r}"
        return fields if header else None
