"""Lines of text files of vectors: which of their fields are the word, which are numbers."""

from __future__ import annotations

import codecs
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


def possible_dims(line: bytes) -> list[int]:
    """Return how many numbers a line may have after its word, likeliest first; empty if none.

    All trailing numbers count, unless the first TAB comes later: the word may then end in a whole number (`route 66`).
    It likely does if two or more numbers follow the TAB, not all of them whole.
    """
    fields = line.split()
    n = next((i for i, field in enumerate(reversed(fields)) if parse_floats([field]) is None), len(fields))
    word, after = (part.split() for part in line.strip().partition(b"\t")[::2])
    by_tab = [len(after)] if after and parse_floats(after) is not None else []
    dims = [min(n, len(fields) - 1), *by_tab]
    if len(word) > 1 and n > len(after):
        if not word[-1].isdigit():
            return dims[:1]
        if len(after) > 1 and not all(field.lstrip(b"+-").isdigit() for field in after):
            dims = by_tab + dims
    return [n for n in dict.fromkeys(dims) if n > 0]


def agreed_dims(dims: list[int], line: bytes) -> list[int]:
    """Return those of `dims`, of the lines so far, that a further line may have, likeliest for all lines first."""
    of_line = possible_dims(line)
    agreed = [n for n in of_line if n in dims]
    return (agreed if agreed[:1] == dims[:1] else sorted(agreed)) or dims or of_line


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
    return number.isdigit() and 1 in possible_dims(line) and not is_number


def is_in_other_notation(field: bytes) -> bool:
    """Return whether a field is a number with a comma, a semicolon or an underscore, or a hexadecimal one."""
    plain = field.translate(None, b",;_")
    return (plain != field and parse_floats([plain]) is not None) or _HEX.fullmatch(field) is not None
