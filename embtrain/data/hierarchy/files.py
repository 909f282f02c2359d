"""Reads files of pairs (hyponym, TAB, hypernym), and hierarchies with their own split as published by Ganea et al.
(2018).

    NAME.vocab                            id, TAB, concept; ids 0, 1, ...
    NAME.train_Npercent                   hypernym, TAB, hyponym (ids): the direct pairs, and N % of the implied ones
    NAME.valid, NAME.test                 held-out pairs, all of them implied by the direct ones
    NAME.valid_neg, NAME.test_neg         the same number of negatives for each of them, in the same order

Files may be packed (.gz, .bz2, .xz). A malformed line raises an error with its number; blank lines are ignored.
Repeated pairs are kept: the protocol decides how to treat them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.storage.containers import PACKED, sources
from embtrain.data.storage.lines import read_nonblank_lines

ConceptsByWord = Mapping[str, Sequence[int]]  # word -> ids of the concepts that list it
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


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of a text file, packed or not. DataError if it is not text or a line is too long."""
    for source in sources([path], lambda name: True):
        yield from read_nonblank_lines(source)


def read_table(path: Path) -> RawHierarchy:
    """Read pairs of names, one a line. Concepts are numbered by first appearance."""
    ids, pairs = dict[str, int](), list[tuple[int, int]]()
    for number, line in lines(path):
        fields = [name.strip() for name in line.split("\t")]
        if len(fields) != 2 or not all(fields):
            hint = next((f"; replace each by a TAB: tr {mark!r} '\\t'" for mark in ",;" if line.count(mark) == 1), "")
            raise DataError(f"{path}:{number}: should be a hyponym, a TAB and its hypernym, got {_short(line)}{hint}")
        if fields[0] == fields[1]:
            raise DataError(f"{path}:{number}: {_short(fields[0])} is its own hypernym; remove the line")
        u, v = (ids.setdefault(name, len(ids)) for name in fields)
        pairs.append((u, v))
    if not pairs:
        raise DataError(f"{path}: contains no pairs")
    return RawHierarchy(list(ids), np.array(pairs, np.int64), direct=False)


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
