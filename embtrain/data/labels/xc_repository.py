"""Extreme Classification repository format: `documents features labels`, then a line for each document.

    l1,l2,... f:x f:x ...        ids from 0; a document without labels begins with a blank

A file without the first line is multi-label svmlight: the numbers of features and labels are the largest ids + 1 over
all these files, and `#` begins a comment. Split files contain document numbers from 1 on: each line has one document
for each of several splits.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.labels.sparse import MAX_ID, MAX_LINE, NUMBER, DocumentRow, DocumentsBuilder, quoted_start
from embtrain.data.storage.containers import Source
from embtrain.data.storage.lines import read_raw_lines

_HEADER = re.compile(rb"\s*(\d{1,12})[ \t]+(\d{1,12})[ \t]+(\d{1,12})\s*")
_PAIR = rb"\d{1,10}:" + NUMBER
# Possessive quantifiers (*+, ++): a malformed line is rejected in one pass, however adversarial.
_DOCUMENT = re.compile(rb"((?:\d{1,10}(?:,\d{1,10})*+)?+)((?:[ \t]++" + _PAIR + rb")*+)\s*+")
_BARE = re.compile(rb"(?:[ \t]*+(?:#[^\n]*+)?+\r?+\n)*+(?:\d{1,10}(?:,\d{1,10})*+)?+[ \t]++" + _PAIR)
_log = logging.getLogger("embtrain")


def lines(source: Source) -> Iterator[tuple[str, bytes]]:
    """Yield (FILE:LINE, line) of a stream. DataError for a line that is too long."""
    return ((f"{source.name}:{number}", line) for number, line in read_raw_lines(source, MAX_LINE))


def is_header(head: bytes) -> bool:
    """Return whether the first line is a header `documents features labels`."""
    return _HEADER.fullmatch(head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]) is not None


def is_bare(head: bytes) -> bool:
    """Return whether a file begins with a document, without a header line."""
    return _BARE.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def read(source: Source, into: DocumentsBuilder) -> None:
    """Append the documents of a file to `into`."""
    if is_bare(source.stream.peek(4096)[:4096]):
        _read_bare(source, into)
        return
    for row in documents(source, into):
        into.append(*row)


def documents(source: Source, into: DocumentsBuilder) -> Iterator[DocumentRow]:
    """Yield the documents of a file with a header. `into` receives the shape of the file, but no document."""
    rows = lines(source)
    where, line = next(rows, (f"{source.name}:1", b""))
    match = _HEADER.fullmatch(line.removeprefix(b"\xef\xbb\xbf"))
    if match is None:
        raise DataError(f"{where}: expected `documents features labels` as three numbers, found {quoted_start(line)}")
    n, n_features, n_labels = map(int, match.groups())
    into.set_shape(where, n_features, n_labels)
    n_read = 0
    for where, line in rows:
        if n_read == n:
            if line.strip():
                raise DataError(f"{where}: one document more than the {n:,} that the first line declares")
            continue
        labels, index, value = document(where, line)
        for kind, ids, n_ids in (("label", labels, n_labels), ("feature", index, n_features)):
            if len(ids) and ids.max() >= n_ids:
                raise DataError(f"{where}: {kind} {ids.max()}, but line 1 declares {n_ids:,} {kind}s, 0 to {n_ids - 1}")
        yield where, labels, index, value
        n_read += 1
    if n_read < n:
        raise DataError(f"{source.name}:1: declares {n:,} documents, but contains {n_read:,}: it is truncated; fetch "
                        "it again")


def _read_bare(source: Source, into: DocumentsBuilder) -> None:
    """Append the documents of a file without a header; the shape grows with the ids."""
    if len(into) and not into.has_no_header:
        raise DataError(f"{source.name}:1: expected `documents features labels` as three numbers, as in the previous "
                        "file")
    begin = len(into)
    n_features, n_labels = into.n_features, max(2, into.n_labels)
    for where, line in lines(source):
        if not (line := line.removeprefix(b"\xef\xbb\xbf").partition(b"#")[0]).strip():
            continue
        labels, index, value = document(where, line)
        n_features, n_labels = (max(n, int(ids.max(initial=-1)) + 1) for n, ids in ((n_features, index),
                                                                                    (n_labels, labels)))
        if max(n_features, n_labels) > MAX_ID:
            raise DataError(f"{where}: an id above {MAX_ID - 1:,}; use smaller ids")
        into.append(where, labels, index, value)
    into.grow(n_features, n_labels)
    _log.warning("%s: has no line `documents features labels`; the numbers are taken from the largest ids: %d %d %d",
                 source.name, len(into) - begin, n_features, n_labels)


def document(where: str, line: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, features and values of a line. DataError if it is malformed."""
    match = _DOCUMENT.fullmatch(line)
    if match is None:
        raise DataError(f"{where}: {_syntax_error(line)}")
    labels = np.fromstring(match[1], np.int64, sep=",") if match[1] else np.zeros(0, np.int64)
    numbers = np.fromstring(match[2].replace(b":", b" "), np.float64, sep=" ") if match[2] else np.zeros(0)
    return labels, numbers[::2].astype(np.int64), numbers[1::2]


def _syntax_error(line: bytes) -> str:
    """Describe the first malformed word of a line."""
    first, *rest = line.split(b" ")
    if first.strip() and not re.fullmatch(rb"\d{1,10}(,\d{1,10})*", first.strip()):
        return f"expected labels like 3,14 before the first space, found {quoted_start(first)}"
    for word in b" ".join(rest).split():
        if not re.fullmatch(_PAIR, word):
            return f"expected feature:value like 7:0.5, found {quoted_start(word)}"
    return f"expected labels, a space and feature:value words, found {quoted_start(line)}"


def read_split(source: Source, column: int) -> np.ndarray:
    """Return the documents of split number `column`, (n,) int64 from 0 on."""
    ids = []
    for where, line in lines(source):
        words = line.split()
        if not words:
            continue
        if column >= len(words):
            raise DataError(f"{where}: has {len(words)} columns, but labels.split requests number {column}, counted "
                            "from 0")
        word = words[column]
        if not re.fullmatch(rb"\d{1,10}", word) or not 1 <= int(word) <= MAX_ID:
            raise DataError(f"{where}: expected a document number, counted from 1, found {quoted_start(word)}")
        ids.append(int(word) - 1)
    return np.array(ids, np.int64)
