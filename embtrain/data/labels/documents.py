"""Documents for a trained model of labels, one by one: the formats of training, with or without labels.

    xc       with the first line `documents features labels`, or without it: `l1,l2 f:x f:x`, a blank first for no label
    arff     attributes that are called like a label of the run are labels; the others are its features, in order
    dense    a class and the features of each line

Features and labels that the model lacks are left out and counted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.labels import arff, dense, xc_repository
from embtrain.data.labels.sparse import AppendableRows as Rows, Csr, DocumentRow, DocumentsBuilder, merge_features
from embtrain.data.storage.containers import Source, sources

_ARFF, _FEATURE = re.compile(rb"(?:\xef\xbb\xbf)?\s*[@%]"), re.compile(rb"(?:\xef\xbb\xbf)?\d+:")


@dataclass(frozen=True)
class DocumentChunk:
    """Some documents that follow each other in a file."""

    locations: list[str]      # FILE:LINE of each
    features: Csr          # (n, ·) with values
    labels: Csr            # (n, ·)
    unknown_features: np.ndarray     # (n,) int64  features of each that the model lacks
    unknown_labels: np.ndarray    # (n,) int64  labels of each that the model lacks

    def __len__(self) -> int:
        return len(self.locations)


def read_chunks(
    source: Source, reader: str, n_features: int, labels: Sequence[str], at_once: int
) -> Iterator[DocumentChunk]:
    """The documents of a file, `at_once` at a time, for a model of n_features features and `labels`. reader: `auto` or
    a format. DataError names the line if the file is malformed or belongs to other features."""
    rows = _rows(source, reader, n_features, labels)
    while first := list(itertools.islice(rows, at_once)):
        yield _chunk(first, n_features, labels)


def parse_document(text: str, n_features: int, labels: Sequence[str]) -> DocumentChunk:
    """One document as `f:x f:x`, with or without labels before it; DataError if the text is malformed."""
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
    """A line that begins with a feature has no labels, and the format wants a blank there."""
    return b" " + line if re.match(rb"\d+:", line) else line


@dataclass(frozen=True)
class OwnDocuments:
    """The documents of a file that have a label of the run, and how many were passed over."""

    features: Csr         # (n, ·)
    labels: Csr           # (n, ·)
    unknown_features: np.ndarray    # (n,) int64  features of each that the model lacks
    documents: int        # of the file
    unlabelled: int       # without a label of the run
    unknown_labels: int          # labels that the run lacks, over all documents
    above_limit: int             # labelled documents behind the first `most`

    def note(self) -> str:
        """What was judged and what was passed over."""
        passed = [
            f"{n:,} {reason}"
            for n, reason in (
                (self.unlabelled, "documents without a label of the run"),
                (self.unknown_labels, "labels that the run lacks"),
                (self.above_limit, "documents above evaluate.heldout_documents"),
            )
            if n
        ]
        return f"{len(self.labels):,} of {self.documents:,} documents" + (f"; passed over: {', '.join(passed)}"
                                                                         if passed else "")


def read(path: Path, reader: str, n_features: int, labels: Sequence[str], max_documents: int) -> OwnDocuments:
    """The documents of a file to judge a model on, at most `most`. DataError if none has a label of the run."""
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
        raise DataError(f"{path}: none of its {documents:,} documents has a label of the run; give a file with the "
                        "labels of the training file")
    return OwnDocuments(
        features.csr(), known.csr(), np.array(unknown_features), documents, unlabelled, unknown_labels, above_limit
    )


def has_unseen_feature(features: Csr, seen: np.ndarray) -> np.ndarray:
    """(n,) bool  whether a document has a feature that is 0 in `seen` (v,)."""
    row = np.repeat(np.arange(len(features)), features.size())
    return np.bincount(row, seen[features.index] == 0, minlength=len(features)) > 0
