"""Reads files of pairs of a hyponym and its hypernym, and hierarchies with their own split as published by Ganea et al.
(2018).

A pair is a line with a TAB, a comma or a semicolon between the names; with the last two a name may be quoted. Empty
fields at its end are ignored. A first line of column names, with a comment mark or without, is skipped with a warning.

    NAME.vocab                            id, TAB, concept; ids 0, 1, ...
    NAME.train_Npercent                   hypernym, TAB, hyponym (ids): the direct pairs, and N % of the implied ones
    NAME.valid, NAME.test                 held-out pairs, all of them implied by the direct ones
    NAME.valid_neg, NAME.test_neg         the same number of negatives for each of them, in the same order

Files may be packed (.gz, .bz2, .xz). A malformed line raises an error with its number; blank lines are ignored.
Repeated pairs are kept: the protocol decides how to treat them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.catalogue.benchmark import Delimiter
from embtrain.data.formats.table_rows import WORD_NAMES, column_counts, plain_name, split_columns
from embtrain.data.own_benchmarks import MAX_SAMPLE_LINES
from embtrain.data.storage.containers import PACKED, sources
from embtrain.data.storage.lines import read_nonblank_lines

ConceptsByWord = Mapping[str, Sequence[int]]  # word -> ids of the concepts that list it
MARKS: tuple[Delimiter, ...] = ("comma", "semicolon")     # between two names, if no line has a TAB
LOWER_COLUMNS, UPPER_COLUMNS = map(frozenset, zip(*WORD_NAMES, strict=True))
_PART = re.compile(r"\.(vocab|valid|valid_neg|test|test_neg|train_(\d+)percent)$")


@dataclass(frozen=True)
class PublishedSplit:
    """A split that is part of the data. Pairs are (n, 2), hyponym first."""

    train: dict[int, np.ndarray]      # percentage of implied pairs -> (n, 2)
    held: dict[str, np.ndarray]       # valid, test: (n, 2)
    negatives: dict[str, np.ndarray]  # valid, test: (n, m, 2)


@dataclass(frozen=True)
class RawHierarchy:
    """Content of the files; ids are positions in `concepts`."""

    concepts: list[str]
    pairs: np.ndarray    # (n, 2) int64: hyponym, hypernym, in file order
    direct: bool = True  # the pairs are the direct ones, chosen by the hierarchy's authors
    published: PublishedSplit | None = None
    words: ConceptsByWord = field(default_factory=dict)  # words listed in a concept, also if it is not named after them
    warnings: tuple[str, ...] = ()                       # of skipped and doubtful lines


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of a text file, packed or not. DataError if it is not text or a line is too long."""
    for source in sources([path], lambda name: True):
        yield from read_nonblank_lines(source)


def read_table(path: Path) -> RawHierarchy:
    """Read pairs of names, one a line. Concepts are numbered by first appearance.

    A first line of column names is skipped with a warning, unless one of them occurs in another line. Other names of
    the first line that occur in no other are only warned of. Raises DataError for a malformed line, and if the columns
    are named in the other order.
    """
    ids, pairs, warnings = dict[str, int](), list[tuple[int, int]](), list[str]()
    delimiter = _delimiter([line for _, line in itertools.islice(lines(path), MAX_SAMPLE_LINES)])
    first = 0                                                     # number of the line of the first pair
    for number, line in lines(path):
        fields = split_columns(line, delimiter, 2)
        if len(fields) != 2 or not all(fields):
            raise DataError(f"{path}:{number}: {_not_a_pair(line, delimiter)}")
        if fields[0] == fields[1]:
            raise DataError(f"{path}:{number}: {_short(fields[0])} is its own hypernym; remove the line")
        u, v = (ids.setdefault(name, len(ids)) for name in fields)
        first = first or number
        pairs.append((u, v))
    if len(pairs) > 1 and not any({0, 1} & set(pair) for pair in pairs[1:]):
        names = tuple(itertools.islice(ids, 2))
        left, right = map(plain_name, names)
        if left in UPPER_COLUMNS and right in LOWER_COLUMNS:
            raise DataError(f"{path}:{first}: the columns are {left} and {right}; put the {right} into the first one")
        if left in LOWER_COLUMNS and right in UPPER_COLUMNS:
            warnings.append(f"{path}:{first}: {names[0]!r} and {names[1]!r} are names of columns and are skipped")
            ids = {name: id - 2 for name, id in ids.items() if id > 1}
            pairs = [(u - 2, v - 2) for u, v in pairs[1:]]
        else:
            warnings.append(f"{path}:{first}: {names[0]!r} and {names[1]!r} occur in no other pair; remove the line if "
                            "they are names of columns")
    if not pairs:
        raise DataError(f"{path}: contains no pairs")
    return RawHierarchy(list(ids), np.array(pairs, np.int64), direct=False, warnings=tuple(warnings))


def _not_a_pair(line: str, delimiter: Delimiter) -> str:
    """Say what a line should be, and which columns to keep if it has more than two."""
    n_fields = {mark: column_counts(line, mark)[0] for mark in dict.fromkeys((delimiter, *MARKS))}
    if delimiter == "tab" and n_fields["tab"] < 2:                # no line has a TAB, and none has two other columns
        delimiter = max(n_fields, key=n_fields.__getitem__)
    mark, n = "TAB" if delimiter == "tab" else delimiter, n_fields[delimiter]
    remedy = f"; keep two of its {n} columns" if n > 2 else ""
    return f"should be a hyponym, a {mark} and its hypernym, got {_short(line)}{remedy}"


def _delimiter(sample: Sequence[str]) -> Delimiter:
    """Return the delimiter of a file of pairs: a TAB if a line has one inside, else what cuts most lines in two."""
    if any("\t" in line.strip() for line in sample):
        return "tab"
    n_pairs = {mark: sum(len(split_columns(line, mark, 2)) == 2 for line in sample) for mark in MARKS}
    best = max(MARKS, key=n_pairs.__getitem__)
    return best if n_pairs[best] else "tab"


def find_split_files(where: list[Path]) -> dict[str, Path]:
    """Return the files of a published split by part (vocab, valid, train_0percent ...); empty if there are none."""
    by_part: dict[str, Path] = {}
    for path in where:
        name = path.name
        for suffix in PACKED:
            name = name.removesuffix(suffix)
        if match := _PART.search(name):
            if match[1] in by_part:
                raise DataError(f"{path}: is a second file of .{match[1]} in addition to {by_part[match[1]].name}")
            by_part[match[1]] = path
    return by_part


def read_split(parts: dict[str, Path]) -> RawHierarchy:
    """Read a published split. DataError if a file is missing or an id is out of range."""
    needed = ["vocab", "train_0percent", "valid", "valid_neg", "test", "test_neg"]
    if lacking := [part for part in needed if part not in parts]:
        example = next(iter(parts.values()))
        raise DataError(f"{example.parent}: {example.name} has no file .{lacking[0]} next to it; a split needs "
                        f"{', '.join(needed)}")
    concepts = _concepts(parts["vocab"])
    train = {int(match[1]): _ids(path, len(concepts)) for part, path in parts.items()
             if (match := re.fullmatch(r"train_(\d{1,3})percent", part))}
    held_out = {part: _ids(parts[part], len(concepts)) for part in ("valid", "test")}
    wrong = {}
    for part, pairs in held_out.items():
        negatives, path = _ids(parts[f"{part}_neg"], len(concepts)), parts[f"{part}_neg"]
        if len(negatives) % len(pairs):
            raise DataError(f"{path}: {len(negatives):,} pairs cannot be divided among the {len(pairs):,} of .{part}")
        wrong[part] = negatives.reshape(len(pairs), -1, 2)
        if len(stray := np.flatnonzero((wrong[part] != pairs[:, None]).all(2).any(1))):
            raise DataError(f"{path}: its pairs are not in the order of .{part}: those of pair {stray[0] + 1} share "
                            "neither end with it")
    return RawHierarchy(concepts, train[0], published=PublishedSplit(train, held_out, wrong))


def _concepts(path: Path) -> list[str]:
    names: list[str] = []
    for number, line in lines(path):
        fields = line.split("\t")
        if len(fields) != 2 or fields[0] != str(len(names)) or not fields[1].strip():
            raise DataError(f"{path}:{number}: should be {len(names)}, a TAB and a concept, got {_short(line)}")
        names.append(fields[1].strip())
    if len(set(names)) < len(names):
        raise DataError(f"{path}: contains a concept twice; remove one")
    return names


def _ids(path: Path, n: int) -> np.ndarray:
    """Read pairs of ids. The file has the hypernym first, the result has it second."""
    pairs: list[tuple[int, int]] = []
    for number, line in lines(path):
        fields = line.split("\t")
        if len(fields) != 2 or not all(f.isascii() and f.isdigit() and len(f) < 11 and int(f) < n for f in fields):
            raise DataError(f"{path}:{number}: should be two ids below {n:,}, separated by a TAB, got {_short(line)}")
        v, u = map(int, fields)
        if u == v:
            raise DataError(f"{path}:{number}: {u} is its own hypernym; remove the line")
        pairs.append((u, v))
    if not pairs:
        raise DataError(f"{path}: contains no pairs")
    return np.array(pairs, np.int64)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
