"""Lines of text files of vectors: which of their fields are the word, which are numbers."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from embtrain.common.errors import DataError

MAX_LINE = 64 * 65_536   # bytes
FIX = "; fetch the file again, or correct the line"
IN_DIGITS = "; write each in digits with a decimal point, and only blanks between two"
_HEX = re.compile(rb"[+-]?0[xX][\da-fA-F]+")


class VectorLine(NamedTuple):
    """A line of a file, with its number and the state of its end."""

    number: int
    text: bytes      # without trailing blanks
    is_cut: bool     # the last line, without a line end
    ends_bare: bool  # no byte follows its last character, so its last number may be cut short


class Dims(NamedTuple):
    """How many numbers the lines have after their words: all trailing ones, or those after the first TAB.

    The two differ if a number is in front of the first TAB: a value (`a 0.5`), or the end of a name (`route 66`).
    """

    trailing: int            # 0: no numbers
    by_tab: int              # as `trailing` if no number is in front of the first TAB
    is_value: bool = False   # in one of the lines, the number in front of the first TAB is not whole
    is_name: bool = False    # in one of the lines, two or more numbers follow the first TAB, not all of them whole

    @property
    def is_open(self) -> bool:
        return self.trailing != self.by_tab

    @property
    def likeliest(self) -> int:
        return self.by_tab if self.is_name and not self.is_value else self.trailing

    def agreed(self, line: Dims) -> Dims:
        """Return what is possible for a further line, too.

        A line that agrees in neither is faulty. It must not be read in one way and the lines so far in the other.
        """
        if self[:2] == line[:2]:
            return Dims(*self[:2], self.is_value or line.is_value, self.is_name or line.is_name)
        if self.by_tab == line.by_tab:
            return Dims(self.by_tab, self.by_tab)
        n = self.trailing if line.trailing in self[:2] else self.likeliest
        return Dims(n, n)


def possible_dims(line: bytes) -> Dims:
    """Return how many numbers a line may have after its word."""
    fields = line.split()
    n = next((i for i, field in enumerate(reversed(fields)) if parse_floats([field]) is None), len(fields))
    trailing = min(n, len(fields) - 1)
    word, after = (part.split() for part in line.strip().partition(b"\t")[::2])
    if not 0 < len(after) < trailing:
        return Dims(trailing, trailing)
    is_name = len(after) > 1 and not all(field.lstrip(b"+-").isdigit() for field in after)
    return Dims(trailing, len(after), not word[-1].isdigit() and math.isfinite(float(word[-1])), is_name)


def declared_sizes(line: bytes) -> tuple[int, int] | None:
    """Return the numbers of words and of dimensions in the header of word2vec; None if the line is no header."""
    parts = line.split()
    are_sizes = len(parts) == 2 and all(p.isdigit() and len(p) <= 18 for p in parts)
    return (int(parts[0]), int(parts[1])) if are_sizes else None


def nonblank_lines(path: Path, file: IO[bytes], first: int) -> Iterator[VectorLine]:
    """Yield the lines that are not blank."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), first):
        if len(line) > MAX_LINE:
            raise DataError(f"{path}:{number}: a line of more than {MAX_LINE:,} bytes{FIX}")
        text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b" \t\r\n")
        if text:
            yield VectorLine(number, text, not line.endswith(b"\n"), line.endswith(text))


def parse_floats(values: list[bytes]) -> list[float] | None:
    """Return the values as floats, None if one is not a number; Python's 1_000 is not accepted."""
    try:
        return None if any(b"_" in v for v in values) else [float(v) for v in values]
    except ValueError:
        return None


def is_count(line: bytes) -> bool:
    """Return whether a line can be a word and how often it occurs: one whole number."""
    *word, number = line.split()
    is_number = len(word) > 1 and is_in_other_notation(word[-1])
    return number.isdigit() and possible_dims(line).by_tab == 1 and not is_number


def is_in_other_notation(field: bytes) -> bool:
    """Return whether a field is a number with a comma, a semicolon or an underscore, or a hexadecimal one."""
    plain = field.translate(None, b",;_")
    return (plain != field and parse_floats([plain]) is not None) or _HEX.fullmatch(field) is not None
