"""Reads a user's documents for a trained model, in the training formats, with or without labels.

    xc       with or without the header `documents features labels`; lines `l1,l2 f:x f:x`, a leading blank: no label
    arff     attributes named like a label of the run are labels; the others are its features, in order
    dense    a class and the features on each line

Features and labels that the model does not have are dropped and counted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError, UnknownNames
from embtrain.data.labels import arff, dense, xc_repository
from embtrain.data.labels.sparse import AppendableRows as Rows, Csr, DocumentRow, DocumentsBuilder, merge_features
from embtrain.data.storage.containers import Source, sources

_ARFF, _FEATURE = re.compile(rb"(?:\xef\xbb\xbf)?\s*[@%]"), re.compile(rb"(?:\xef\xbb\xbf)?\d+:")


@dataclass(frozen=True)
class DocumentChunk:
    """Consecutive documents of a file."""

    locations: list[str]          # FILE:LINE of each document
    features: Csr                 # (n, ·) with values
    labels: Csr                   # (n, ·)
    unknown_features: np.ndarray  # (n,) int64  features that the model does not have
    unknown_labels: np.ndarray    # (n,) int64  labels that the model does not have

    def __len__(self) -> int:
        return len(self.locations)


def read_chunks(
    source: Source, reader: str, n_features: int, labels: Sequence[str], at_once: int
) -> Iterator[DocumentChunk]:
    """Yield the documents of a file in chunks of `at_once`, for a model with n_features features and `labels`.

    reader: `auto` or a format. DataError names the line if the file is malformed or has other features.
    """
    rows = _rows(source, reader, n_features, labels)
    while first := list(itertools.islice(rows, at_once)):
        yield _chunk(first, n_features, labels)


def parse_document(text: str, n_features: int, labels: Sequence[str]) -> DocumentChunk:
    """Parse one document `f:x f:x`, with or without labels before it. DataError if it is malformed."""
    row = ("the document", *xc_repository.document("the document", _with_blank(text.encode())))
    if len(row[2]) == 0:
        raise DataError("the document has no feature; write features as 3:0.5 17:1")
    return replace(_chunk([row], n_features, labels), locations=[""])


def _chunk(rows: Sequence[DocumentRow], n_features: int, labels: Sequence[str]) -> DocumentChunk:
    features, known, unknown_features, unknown_labels = Rows(True), Rows(False), list[int](), list[int]()
    for where, label_ids, index, value in rows:
        has_feature, has_label = index < n_features, label_ids < len(labels)
        features.append(*merge_features(where, index[has_feature], value[has_feature]))
        known.append(np.unique(label_ids[has_label]))
        unknown_features.append(len(np.unique(index[~has_feature])))
        unknown_labels.append(len(np.unique(label_ids[~has_label])))
    return DocumentChunk(
        [row[0] for row in rows], features.csr(), known.csr(), np.array(unknown_features), np.array(unknown_labels)
    )


def _rows(source: Source, reader: str, n_features: int, labels: Sequence[str]) -> Iterator[DocumentRow]:
    head = source.stream.peek(4096)[:4096]
    if reader == "arff" or (reader == "auto" and _ARFF.match(head)):
        return arff.documents(source, labels, n_features)
    if xc_repository.is_header(head):
        return xc_repository.documents(source, DocumentsBuilder())
    if reader == "xc" or xc_repository.is_bare(head) or _FEATURE.match(head):
        return _without_header(source)
    return dense.documents(source, DocumentsBuilder(n_features=n_features))


def _without_header(source: Source) -> Iterator[DocumentRow]:
    for where, line in xc_repository.lines(source):
        if (line := line.removeprefix(b"\xef\xbb\xbf").partition(b"#")[0]).strip():
            yield where, *xc_repository.document(where, _with_blank(line))


def _with_blank(line: bytes) -> bytes:
    """Prepend the blank that the format requires if a line has no labels."""
    return b" " + line if re.match(rb"\d+:", line) else line


@dataclass(frozen=True)
class OwnDocuments:
    """The documents of a file that have a label of the run, and counts of the dropped ones."""

    features: Csr                 # (n, ·)
    labels: Csr                   # (n, ·)
    unknown_features: np.ndarray  # (n,) int64  features that the model does not have
    documents: int                # documents in the file
    unlabelled: int               # documents without a label of the run
    unknown_labels: int           # labels that the run does not have, over all documents
    above_limit: int              # labelled documents after the first `max_documents`

    def note(self) -> str:
        """Return the number of documents used and of those dropped, as text."""
        passed = [
            f"{n:,} {reason}"
            for n, reason in (
                (self.unlabelled, "documents without a label known to the run"),
                (self.unknown_labels, "labels unknown to the run"),
                (self.above_limit, "documents above evaluate.heldout_documents"),
            )
            if n
        ]
        return f"{len(self.labels):,} of {self.documents:,} documents" + (f"; skipped: {', '.join(passed)}"
                                                                         if passed else "")


def read(path: Path, reader: str, n_features: int, labels: Sequence[str], max_documents: int) -> OwnDocuments:
    """Read at most `max_documents` labelled documents to evaluate a model on. DataError if none has a label of the run.
    """
    features, known, unknown_features = Rows(True), Rows(False), list[int]()
    documents = unlabelled = unknown_labels = above_limit = 0
    for source in sources([path], lambda name: True):
        for part in read_chunks(source, reader, n_features, labels, 1024):
            documents, unknown_labels = documents + len(part), unknown_labels + int(part.unknown_labels.sum())
            for i in range(len(part)):
                y = part.labels.rows(np.array([i])).index
                if len(y) == 0:
                    unlabelled += 1
                elif len(unknown_features) == max_documents:
                    above_limit += 1
                else:
                    x = part.features.rows(np.array([i]))
                    features.append(x.index, np.asarray(x.value))
                    known.append(y)
                    unknown_features.append(int(part.unknown_features[i]))
    if not unknown_features:
        raise UnknownNames(f"{path}: none of its {documents:,} documents has a label known to the run; give a file "
                           "with the labels used in training")
    return OwnDocuments(
        features.csr(), known.csr(), np.array(unknown_features), documents, unlabelled, unknown_labels, above_limit
    )


def has_unseen_feature(features: Csr, seen: np.ndarray) -> np.ndarray:
    """Return whether each document has a feature f with seen[f] = 0, (n,) bool. seen: (v,)."""
    row = np.repeat(np.arange(len(features)), features.size())
    return np.bincount(row, seen[features.index] == 0, minlength=len(features)) > 0
