"""Sparse documents with several labels each: features x of dimension v, mostly 0, and labels among n classes.

Rows are stored as compressed sparse rows: row r is index[start[r]:start[r + 1]], with the values at the same positions.
The result of reading is cached in a folder named after the sha256 of the content and relevant settings.

reader   file format xc       Extreme Classification repository: `documents features labels`, then lines `l1,l2 f:x
f:x`; or only these
         lines (multi-label svmlight)
arff     ARFF, rows sparse or dense; labels are named by Mulan's XML file, or counted by labels.label_attributes or by
         MEKA's `@relation 'NAME: -C n'`
dense    a class and all features on each line (USPS digits) auto     detected for each file by its first bytes

`inventory.py` decides the part of a file. trSplit and tstSplit files list the documents of each part.
"""

from __future__ import annotations

import logging
import re
from array import array
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
from pydantic import Field

from embtrain.common.config import Section
from embtrain.common.errors import DataError
from embtrain.common.terminal import plain
from embtrain.data.inventory.inventory import FilesConfig
from embtrain.data.storage.cache import pack_lines, unpack_lines
from embtrain.data.storage.skipped import Skipped

MAX_ID = 2**31 - 1           # ids are int32
MAX_UNSUPPORTED = 3_000_000  # labels, or features, that a header may always claim
PER_ENTRY = 1_000            # labels, or features, that a header may claim per entry in the documents
MAX_LINE = 64 << 20          # maximal bytes of a line
NUMBER = rb"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d{1,3})?"
_log = logging.getLogger("embtrain")


class LabelsConfig(Section):
    reader: Literal["auto", "xc", "arff", "dense"] = Field("auto", description="format of the files of --corpus")
    label_attributes: int | None = Field(
        None, ge=-MAX_ID, le=MAX_ID, description=(
            "ARFF without an XML file: number of the last attributes that are labels; below 0: of the "
            "first; null: MEKA's -C"))
    split: int = Field(0, ge=0, le=10_000, description="column of trSplit and tstSplit files that defines the split")
    valid: float = Field(0.05, ge=0, le=0.45, description="share of the training documents held out for validation")
    test: float = Field(0.1, ge=0, le=0.45, description="share held out for the test, if the data have no test part")
    split_seed: int = Field(0, ge=0, description="seed of the held-out documents, independent of the run's seed")
    files: FilesConfig = Field(FilesConfig(), description="patterns of the files of each part")
    reduction: Literal["all", "one"] = Field("all", description="one example per label, or one per document and epoch")
    unit: bool = Field(True, description="scale the features of each document to length 1")


@dataclass(frozen=True)
class Csr:
    """R compressed sparse rows."""

    start: np.ndarray                # (R+1,) int64
    index: np.ndarray                # (nnz,) int32
    value: np.ndarray | None = None  # (nnz,) float32; None: all 1

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def nbytes(self) -> int:
        return self.start.nbytes + self.index.nbytes + (0 if self.value is None else self.value.nbytes)

    def size(self) -> np.ndarray:
        """Return the number of entries of each row, (R,) int64."""
        return np.diff(self.start)

    def rows(self, rows: np.ndarray) -> Csr:
        """Return the rows `rows` (n,) in the order given, repetitions allowed."""
        size = self.start[rows + 1] - self.start[rows]                           # (n,)
        start = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
        entries = np.arange(start[-1]) + np.repeat(self.start[rows] - start[:-1], size)
        return Csr(start, self.index[entries], None if self.value is None else self.value[entries])

    def unit(self) -> Csr:
        """Return the rows scaled to length 1; a row of zeros is unchanged."""
        assert self.value is not None
        row = np.repeat(np.arange(len(self)), self.size())
        norm = np.sqrt(np.bincount(row, self.value.astype(np.float64) ** 2, minlength=len(self)))   # (R,)
        return Csr(self.start, self.index, (self.value / np.where(norm > 0, norm, 1)[row]).astype(np.float32))


class AppendableRows:
    """Sparse rows that grow by appending, at 4 bytes for each index and each value."""

    def __init__(self, valued: bool):
        self.index, self.value, self.start = array("i"), array("f") if valued else None, array("q", [0])

    def append(self, index: np.ndarray, value: np.ndarray | None = None) -> None:
        self.index.frombytes(index.astype(np.int32).tobytes())
        if self.value is not None and value is not None:
            self.value.frombytes(value.astype(np.float32).tobytes())
        self.start.append(len(self.index))

    def csr(self) -> Csr:
        # frombuffer rejects empty buffers
        def as_array(x: array, dtype: type) -> np.ndarray:
            return np.frombuffer(x, dtype) if len(x) else np.zeros(0, dtype)
        return Csr(as_array(self.start, np.int64), as_array(self.index, np.int32),
                   None if self.value is None else as_array(self.value, np.float32))


@dataclass
class DocumentsBuilder:
    """Documents collected from the files of a corpus; each file appends its rows."""

    features: AppendableRows = field(default_factory=lambda: AppendableRows(True))
    labels: AppendableRows = field(default_factory=lambda: AppendableRows(False))
    valid: list[tuple[int, int]] = field(default_factory=list)  # row ranges of validation files: begin, end
    test: list[tuple[int, int]] = field(default_factory=list)   # row ranges of test files
    n_features: int = 0
    n_labels: int = 0
    names: list[str] | None = None  # names of the labels
    has_no_header: bool = False     # the shape follows the largest ids, and may grow
    repeated: Skipped = field(default_factory=Skipped)  # documents that repeat a label or a feature

    def __len__(self) -> int:
        return len(self.features.start) - 1

    def set_shape(self, where: str, n_features: int, n_labels: int) -> None:
        """Set the numbers of features and labels. DataError if files disagree or if ids would not fit in int32."""
        if not (1 <= n_features <= MAX_ID and 2 <= n_labels <= MAX_ID):
            raise DataError(f"{where}: {n_features:,} features and {n_labels:,} labels; at least 1 and 2, and at most "
                            f"{MAX_ID:,} of each, can be read")
        if self.has_no_header:
            raise DataError(f"{where}: states {n_features:,} features and {n_labels:,} labels, but the previous file "
                            "has no line `documents features labels`; give all files that line, or none")
        if len(self) and (n_features, n_labels) != (self.n_features, self.n_labels):
            raise DataError(f"{where}: {n_features:,} features and {n_labels:,} labels, but the previous file has "
                            f"{self.n_features:,} and {self.n_labels:,}; give files of one data set")
        self.n_features, self.n_labels = n_features, n_labels

    def grow(self, n_features: int, n_labels: int) -> None:
        """Set the shape of files that do not state one."""
        self.n_features, self.n_labels, self.has_no_header = n_features, n_labels, True

    def append(self, where: str, labels: np.ndarray, index: np.ndarray, value: np.ndarray) -> None:
        """Append one document; see `merge_features`. A repeated label counts once."""
        distinct, merged = np.unique(labels), merge_features(where, index, value)
        if len(distinct) < len(labels) or len(merged[0]) < len(index):
            self.repeated.add(where)
        self.labels.append(distinct)
        self.features.append(*merged)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning of the documents that repeat a label or a feature; empty without any."""
        once = "a label, which counts once, or a feature, whose values are added"
        return self.repeated.lines(f"document repeats {once}", f"documents repeat {once}")


def merge_features(where: str, index: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the features (n,) of a document and their float32 values (n,), adding the values of repeated features.
    DataError if a value overflows float32."""
    if len(np.unique(index)) < len(index):
        index, inverse = np.unique(index, return_inverse=True)
        value = np.bincount(inverse, value)
    with np.errstate(over="ignore"):
        small = value.astype(np.float32)
    if not np.isfinite(small).all():
        raise DataError(f"{where}: a value of {value[~np.isfinite(small)][0]:g} is too large for float32")
    return index, small


DocumentRow = tuple[str, np.ndarray, np.ndarray, np.ndarray]  # of a document: FILE:LINE, labels, features, values


@dataclass(frozen=True)
class Documents:
    """Documents of a corpus, with their features, labels and predefined parts."""

    features: Csr                    # of all documents
    labels: Csr                      # each row ascending
    n_features: int                  # number of features v
    n_labels: int                    # number of labels n
    test: np.ndarray                 # (T,) int64  predefined test documents; may be empty
    names: list[str] | None = None   # names of the labels; None: their numbers
    valid: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # (·,) int64  the same for validation
    warnings: tuple[str, ...] = ()   # of the reading

    def check_claims(self, where: str) -> None:
        """Check the counts of a header against the documents. DataError if they claim far more.

        Names and tables take memory for each claimed label and feature, however small the file.
        """
        for kind, n, entries in (("labels", self.n_labels, len(self.labels.index)),
                                 ("features", self.n_features, len(self.features.index))):
            if n > max(MAX_UNSUPPORTED, PER_ENTRY * entries):
                raise DataError(f"{where}: declares {n:,} {kind}, but its documents contain {entries:,} in "
                                f"total; correct the number of {kind} there")

    def label_names(self) -> list[str]:
        """Return the names of the labels, by default their numbers."""
        return self.names if self.names is not None else [str(i) for i in range(self.n_labels)]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the documents as named arrays, for the cache."""
        assert self.features.value is not None
        warnings = {"warnings": pack_lines(map(plain, self.warnings))} if self.warnings else {}
        return {"features.start": self.features.start, "features.index": self.features.index,
                "features.value": self.features.value, "labels.start": self.labels.start,
                "labels.index": self.labels.index, "test": self.test, "valid": self.valid,
                "shape": np.array([self.n_features, self.n_labels], np.int64),
                "names": pack_lines(self.names or ()), **warnings}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """Rebuild documents from `arrays`."""
        return cls(Csr(arrays["features.start"], arrays["features.index"], arrays["features.value"]),
                   Csr(arrays["labels.start"], arrays["labels.index"]), int(arrays["shape"][0]),
                   int(arrays["shape"][1]), arrays["test"], unpack_lines(arrays["names"]) or None, arrays["valid"],
                   tuple(unpack_lines(arrays.get("warnings", np.zeros(0, np.uint8)))))


@dataclass(frozen=True)
class DocumentSplit:
    """Ids of documents with at least one label (ascending, int64). The others cannot be trained or evaluated on."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def split_documents(documents: Documents, config: LabelsConfig) -> DocumentSplit:
    """Split the documents. A positive share holds out at least one document if there are more than two."""
    labelled = np.flatnonzero(documents.labels.size() > 0)
    is_test, is_valid = np.isin(labelled, documents.test), np.isin(labelled, documents.valid)
    test, valid, rest = labelled[is_test], labelled[is_valid & ~is_test], labelled[~is_test & ~is_valid]
    draw = np.random.default_rng(config.split_seed)
    if not len(documents.test):
        rest, test = _hold_out(rest, config.test, draw)
    if not len(documents.valid):
        rest, valid = _hold_out(rest, config.valid, draw)
    return DocumentSplit(rest, valid, test)


def _hold_out(ids: np.ndarray, share: float, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    n = max(1, round(share * len(ids))) if share > 0 and len(ids) > 2 else 0
    order = draw.permutation(len(ids))
    return np.sort(ids[order[n:]]), np.sort(ids[order[:n]])


def quoted_start(text: bytes) -> str:
    """Return the beginning of `text`, quoted for an error message."""
    return repr(text[:40].decode("utf-8", "replace"))


def label_as_word(name: str) -> str:
    """Return a label's name as one word, as files of vectors require."""
    return re.sub(r"\s+", "_", name.strip())
