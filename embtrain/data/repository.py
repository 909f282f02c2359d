"""The format of the Extreme Classification repository: `documents features labels`, then a line for each document.

    l1,l2,... f:x f:x ...        ids from 0; a document without labels begins with a blank
Split files hold numbers of documents from 1 on, one document of each of several splits on a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from embtrain.data.containers import Source
from embtrain.data.lines import raw
from embtrain.data.sparse import LIMIT, LINE, NUMBER, Reading, shown
from embtrain.errors import DataError

_HEADER = re.compile(rb"\s*(\d{1,12})[ \t]+(\d{1,12})[ \t]+(\d{1,12})\s*")
_PAIR = rb"\d{1,10}:" + NUMBER
# Possessive (*+, ++): a line that does not fit is refused in one pass, however it was made.
_DOCUMENT = re.compile(rb"((?:\d{1,10}(?:,\d{1,10})*+)?+)((?:[ \t]++" + _PAIR + rb")*+)\s*+")


def lines(source: Source) -> Iterator[tuple[str, bytes]]:
    """(place, line) of a stream; DataError for a line that is too long."""
    return ((f"{source.name}:{number}", line) for number, line in raw(source, LINE))


def is_header(head: bytes) -> bool:
    return _HEADER.fullmatch(head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]) is not None


def read(source: Source, into: Reading) -> None:
    """Append a file's documents."""
    rows = lines(source)
    where, line = next(rows, (f"{source.name}:1", b""))
    found = _HEADER.fullmatch(line.removeprefix(b"\xef\xbb\xbf"))
    if found is None:
        raise DataError(f"{where}: expected `documents features labels` as three numbers, found {shown(line)}")
    n, n_features, n_labels = map(int, found.groups())
    into.shaped(where, n_features, n_labels)
    read = 0
    for where, line in rows:
        if read == n:
            if line.strip():
                raise DataError(f"{where}: one document more than the {n:,} that the first line promises")
            continue
        match = _DOCUMENT.fullmatch(line)
        if match is None:
            raise DataError(f"{where}: {_wrong(line)}")
        labels = np.fromstring(match[1], np.int64, sep=",") if match[1] else np.zeros(0, np.int64)
        numbers = np.fromstring(match[2].replace(b":", b" "), np.float64, sep=" ") if match[2] else np.zeros(0)
        index, value = numbers[::2].astype(np.int64), numbers[1::2]
        for what, ids, most in (("label", labels, n_labels), ("feature", index, n_features)):
            if len(ids) and ids.max() >= most:
                raise DataError(f"{where}: {what} {ids.max()}, but line 1 promises {most:,} {what}s, 0 to {most - 1}")
        into.append(where, labels, index, value)
        read += 1
    if read < n:
        raise DataError(f"{source.name}:1: promises {n:,} documents, and there are {read:,}: it is cut short")


def _wrong(line: bytes) -> str:
    """The first word of a line that is not what it should be."""
    first, *others = line.split(b" ")
    if first.strip() and not re.fullmatch(rb"\d{1,10}(,\d{1,10})*", first.strip()):
        return f"expected labels such as 3,14 before the first blank, found {shown(first)}"
    for word in b" ".join(others).split():
        if not re.fullmatch(_PAIR, word):
            return f"expected feature:value such as 7:0.5, found {shown(word)}"
    return f"expected labels, a blank and feature:value words, found {shown(line)}"


def read_split(source: Source, column: int) -> np.ndarray:
    """(n,) int64  the documents of one split, from 0 on."""
    found = []
    for where, line in lines(source):
        words = line.split()
        if not words:
            continue
        if column >= len(words):
            raise DataError(f"{where}: has {len(words)} columns, and labels.split asks for number {column} from 0 on")
        word = words[column]
        if not re.fullmatch(rb"\d{1,10}", word) or not 1 <= int(word) <= LIMIT:
            raise DataError(f"{where}: expected the number of a document from 1 on, found {shown(word)}")
        found.append(int(word) - 1)
    return np.array(found, np.int64)
