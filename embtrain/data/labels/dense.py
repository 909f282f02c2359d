"""Dense format: a class from 0 on and all features on each line, separated by blanks or commas (USPS digits)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.labels.sparse import NUMBER, DocumentRow, DocumentsBuilder, quoted_start
from embtrain.data.labels.xc_repository import lines
from embtrain.data.storage.containers import Source

MAX_CLASS = 1_000_000    # so that one number in a file cannot request gigabytes
_LINE = re.compile(rb"\s*+" + NUMBER + rb"(?:[ \t,]++" + NUMBER + rb")++\s*+")


def read(source: Source, into: DocumentsBuilder) -> None:
    """Append the documents of a file to `into`, each with one label."""
    for row in documents(source, into):
        into.append(*row)


def documents(source: Source, into: DocumentsBuilder) -> Iterator[DocumentRow]:
    """Yield the documents of a file. At the end `into` receives the shape of the file, but no document."""
    top, columns = max(into.n_labels, 2), into.n_features
    for where, line in lines(source):
        if not line.strip():
            continue
        if _LINE.fullmatch(line) is None:
            # The first line: another format. `auto` reads what it does not recognize as this one.
            others, remedy = ("", "") if columns else (
                ", LABEL,LABEL FEATURE:VALUE ..., or ARFF", "; number words and labels from 0 on")
            raise DataError(f"{where}: expected a class and numbers{others}, found {quoted_start(line)}{remedy}")
        numbers = np.fromstring(line.replace(b",", b" "), np.float64, sep=" ")
        class_id, x = numbers[0], numbers[1:]
        if not 0 <= class_id < MAX_CLASS or class_id != int(class_id):  # inf, from 1e999, is also rejected
            raise DataError(f"{where}: expected a class from 0 to {MAX_CLASS - 1:,} first, found {class_id:g}")
        if columns not in (0, len(x)):
            raise DataError(f"{where}: has {len(x)} features, but earlier lines have {columns}")
        columns, top = len(x), max(top, int(class_id) + 1)
        nonzero = np.flatnonzero(x)
        yield where, np.array([int(class_id)]), nonzero, x[nonzero]
    if columns == 0:
        raise DataError(f"{source.name}: contains no lines")
    into.n_features, into.n_labels = columns, top
