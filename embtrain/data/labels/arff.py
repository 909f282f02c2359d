"""Multi-label ARFF as written by Mulan and MEKA: `@attribute NAME TYPE` lines, `@data`, then rows.

    {3 1,17 0.5}      sparse: attribute number from 0 on, value; missing attributes are 0
    1,0,0.5           dense

Values are numbers. Labels are attributes with the values 0 and 1. They are named by an XML file, or counted by the
setting (the last attributes; below 0: the first), or by MEKA's options in the relation:

    @relation 'NAME: -C n -split-number m'

makes the first n attributes labels (below 0: the last), and the documents after the first m the test part. SciPy's
reader does not support sparse rows, and liac-arff creates an object for each number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from embtrain.common.errors import DataError, UsageError
from embtrain.data.formats import xml
from embtrain.data.labels.sparse import NUMBER, DocumentRow, DocumentsBuilder, label_as_word, quoted_start
from embtrain.data.labels.xc_repository import lines
from embtrain.data.storage.containers import Source

_NAME = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s{'"][^\s{]*+"""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_NAME})\s*(\{{.*\}}|\S+)\s*", re.IGNORECASE)
_PAIR = rb"\s*+\d{1,10}\s++" + NUMBER + rb"\s*+"
_SPARSE = re.compile(rb"\s*+\{((?:" + _PAIR + rb"(?:," + _PAIR + rb")*+)?+)\s*+\}\s*+")
_DENSE = re.compile(rb"\s*+" + NUMBER + rb"\s*+(?:,\s*+" + NUMBER + rb"\s*+)*+")
# MEKA's options, which follow a colon in the name of the relation. Matched in time linear in the line.
_LABELS_OPTION = re.compile(r"(?<=\s)-c\s++(-?\d{1,9})(?!\d)", re.IGNORECASE)
_SPLIT_OPTION = re.compile(r"(?<=\s)-split-number\s++(\d{1,12})(?!\d)", re.IGNORECASE)
_NUMERIC = ("numeric", "real", "integer")


@dataclass(frozen=True)
class _Attributes:
    """For each attribute: whether it is a label, its id among labels or features, whether a sparse row may omit it as
    0."""

    is_label: np.ndarray  # (A,) bool
    id: np.ndarray        # (A,) int64
    zero: np.ndarray      # (A,) bool


def read(source: Source, into: DocumentsBuilder, named: list[str] | None, last: int | None) -> int | None:
    """Append the documents of a file to `into`.

    named: label names from an XML file; without them the `last` attributes are labels. Returns the index in `into` of
    the first document of the file's own test part, None if it has none. DataError names a malformed line.
    """
    rows, begin = lines(source), len(into)
    names, zero, relation = _header(source, rows)
    options = relation.partition(":")[2]
    meka = _LABELS_OPTION.search(options)
    is_label = _label_flags(source.name, names, named, -int(meka[1]) if last is None and meka else last)
    ids = np.where(is_label, is_label.cumsum(), (~is_label).cumsum()) - 1
    known = _words_of_labels(source, [name for name, flag in zip(names, is_label, strict=True) if flag])
    into.set_shape(source.name, len(names) - len(known), len(known))
    if into.names not in (None, known):
        raise DataError(f"{source.name}: its labels differ from those of the previous file; give files of one data set")
    into.names = known
    for row in _documents(rows, _Attributes(is_label, ids, zero)):
        into.append(*row)
    split = _SPLIT_OPTION.search(options)
    return begin + int(split[1]) if split and 0 < int(split[1]) < len(into) - begin else None


def documents(source: Source, known: Sequence[str], n_features: int) -> Iterator[DocumentRow]:
    """Yield the documents of a file for a trained model.

    known: its labels, as `label_as_word` spells them. Attributes with these names are labels, and none is required. The
    number of other attributes must be n_features, otherwise DataError.
    """
    rows, label_ids = lines(source), {name: i for i, name in enumerate(known)}
    names, zero, _ = _header(source, rows)
    is_label = np.array([label_as_word(name) in label_ids for name in names], bool)
    if (n := int((~is_label).sum())) != n_features:
        raise DataError(f"{source.name}: has {n:,} attributes that are not labels of the run, but the run was trained "
                        f"on {n_features:,}; give a file with the attributes of the training file")
    ids = np.array([label_ids.get(label_as_word(name), -1) for name in names])
    ids[~is_label] = np.arange(n)
    return _documents(rows, _Attributes(is_label, ids, zero))


def _documents(rows: Iterator[tuple[str, bytes]], attributes: _Attributes) -> Iterator[DocumentRow]:
    for where, line in rows:
        if line.strip() and not line.lstrip().startswith(b"%"):
            columns, value = _parse_row(where, line, attributes)
            marked = attributes.is_label[columns]
            if not np.isin(value[marked], (0, 1)).all():
                odd = value[marked][~np.isin(value[marked], (0, 1))][0]
                raise DataError(f"{where}: a label has the value {odd:g}; labels are 0 or 1")
            has = marked & (value == 1)
            full = ~marked & (value != 0)
            yield where, attributes.id[columns[has]], attributes.id[columns[full]], value[full]


def _words_of_labels(source: Source, names: list[str]) -> list[str]:
    """Return the label names as single words. DataError if two names become equal."""
    by_word: dict[str, str] = {}
    for name in names:
        if (earlier := by_word.setdefault(label_as_word(name), name)) != name:
            raise DataError(
                f"{source.name}: the labels {earlier!r} and {name!r} are both {label_as_word(name)!r} as one word; "
                "rename one"
            )
    return list(by_word)


def _header(source: Source, rows: Iterator[tuple[str, bytes]]) -> tuple[list[str], np.ndarray, str]:
    """Read up to @data; return attribute names, which of them a sparse row may omit as 0, and the relation."""
    relation = ""
    names: list[str] = []
    zero: list[bool] = []
    for where, line in rows:
        try:
            text = line.decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            text = line.decode("latin-1").strip()            # older Mulan files
        word = text.lower()
        if word.startswith("@relation"):
            relation = text.rstrip("'\"")
        if not text or word.startswith(("%", "@relation")):
            continue
        if word == "@data":
            if len(set(names)) != len(names):
                raise DataError(f"{source.name}: two attributes have one name")
            return names, np.array(zero, bool), relation
        match = _ATTRIBUTE.fullmatch(text)
        if match is None:
            raise DataError(f"{where}: expected @attribute NAME TYPE or @data, found {quoted_start(line)}")
        name, kind = match.groups()
        names.append(re.sub(r"\\(.)", r"\1", name[1:-1]) if name[0] in "'\"" else name)
        zero.append(_leaves_out_zero(where, kind))
    raise DataError(f"{source.name}: has no @data line: it is not an ARFF file, or it is truncated; fetch it again")


def _leaves_out_zero(where: str, kind: str) -> bool:
    """Return whether an omitted value of a sparse row is 0: true of numbers; of a nominal {a, b} it is a."""
    if kind.lower() in _NUMERIC:
        return True
    values = [value.strip().strip("'\"") for value in kind[1:-1].split(",")] if kind.startswith("{") else [""]
    if not all(re.fullmatch(NUMBER.decode(), value) for value in values):
        raise DataError(
            f"{where}: an attribute of type {quoted_start(kind.encode())}; should be numeric or {{numbers}}"
        )
    return float(values[0]) == 0


def _label_flags(where: str, names: list[str], named: list[str] | None, last: int | None) -> np.ndarray:
    """Return which attributes are labels, (A,) bool."""
    if named is not None:
        if missing := set(named) - set(names):
            raise DataError(f"{where}: has no attribute {min(missing)!r}, which the XML file names as a label")
        named_set = set(named)
        return np.array([name in named_set for name in names], bool)
    if last is None:
        raise UsageError(f"labels.label_attributes: {where}: neither an XML file of Mulan nor an option -C of MEKA in "
                         "the relation lists the labels; add the XML file, or set the number of the last attributes "
                         "that are labels (below 0: of the first)")
    if last == 0:
        raise UsageError(f"labels.label_attributes: {where}: no attribute is a label; set the number of labels")
    if abs(last) >= len(names):
        raise UsageError(f"labels.label_attributes: {last} of {len(names)} attributes leave no feature; set fewer")
    is_label = np.zeros(len(names), bool)
    is_label[slice(-last, None) if last > 0 else slice(0, -last)] = True
    return is_label


def _parse_row(where: str, line: bytes, attributes: _Attributes) -> tuple[np.ndarray, np.ndarray]:
    """Return the attributes of a row that have a value, and the values."""
    n = len(attributes.id)
    if (sparse := _SPARSE.fullmatch(line)) is not None:
        inside = sparse[1].replace(b",", b" ")
        numbers = np.fromstring(inside, np.float64, sep=" ") if inside.strip() else np.zeros(0)
        columns, value = numbers[::2].astype(np.int64), numbers[1::2]
        if len(columns) and columns.max() >= n:
            raise DataError(f"{where}: attribute {columns.max()}, and there are {n:,}, 0 to {n - 1}")
        if len(np.unique(columns)) != len(columns):
            raise DataError(f"{where}: contains an attribute twice")
        if not attributes.zero.all():
            raise DataError(f"{where}: a sparse row, but the first value of an attribute in the header is not 0, and "
                            "omitted values mean that one; list 0 first")
        return columns, value
    if _DENSE.fullmatch(line) is None:
        raise DataError(f"{where}: expected a row like {{3 1,17 0.5}} or 1,0,0.5, found {quoted_start(line)}")
    value = np.fromstring(line, np.float64, sep=",")
    if len(value) != n:
        raise DataError(f"{where}: has {len(value)} values for {n:,} attributes")
    return np.arange(n), value


def read_names(source: Source) -> list[str]:
    """Return the label names of Mulan's XML file: <label name="..."/> at any depth."""
    names: list[str] = []
    parser = xml.create_parser(source)

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition("}")[2] == "label":
            if "name" not in attributes:
                raise DataError(f"{source.name}:{parser.CurrentLineNumber}: a label without a name")
            names.append(attributes["name"])

    parser.StartElementHandler = start
    for _ in xml.feed(source, parser, "an XML file of labels"):
        pass
    if not names:
        raise DataError(f"{source.name}: contains no <label name=...>")
    return names
