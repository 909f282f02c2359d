"""Reads files of triples into names and rows of ids; every skipped line is reported.

    names      three names a line, in the configured order and with the configured delimiter (formats/delimited.py)
    openke     a count, then lines `head tail relation` of ids; entity2id and relation2id: a count, then `name id`
    ntriples   N-Triples (data/triples/ntriples.py)

`inventory.py` decides the part (train, valid, test) of a file; entity2id and relation2id are recognized by name. Blank
lines are ignored.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from embtrain.common.errors import DataError
from embtrain.data.formats.delimited import (
    MAX_LINE,
    SEPARATORS,
    Delimiter,
    ParseNotes,
    read_records,
    refuse_control,
    split_fields,
)
from embtrain.data.formats.running_text import data_verdict
from embtrain.data.inventory.inventory import FileRules, Inventory
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.storage.containers import Source, without_packing
from embtrain.data.storage.lines import read_nonblank_lines
from embtrain.data.storage.skipped import Skipped
from embtrain.data.triples import ntriples

EXPECTED_FILES = "file named train, valid or test (train.txt, wn18.train.tsv.gz, ...), nor an archive of these"
_TABLES = re.compile(r"(?:^|[._-])(entity|relation)2id(?=[._-]|$)", re.IGNORECASE)
_NOT_TRIPLES = "this is not a file of triples"

_log = logging.getLogger("embtrain")

Format = Literal["names", "openke", "ntriples"]
Column = Literal["head", "relation", "tail"]
COLUMNS: tuple[Column, ...] = ("head", "relation", "tail")


@dataclass(frozen=True)
class TripleLayout:
    """Layout of a file of names."""

    delimiter: Delimiter = "tab"
    columns: tuple[Column, ...] = COLUMNS
    header: bool = False
    literals: Literal["keep", "drop"] = "drop"  # N-Triples only


@dataclass
class RawTriples:
    """Content of the files. Ids are positions in the two lists of names, in order of first appearance."""

    entities: list[str] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    parts: dict[str, array[int]] = field(default_factory=dict)  # part -> head, relation, tail, head, ...
    warnings: tuple[str, ...] = ()                              # of dropped or changed triples

    def rows(self, part: str) -> np.ndarray:
        """Return the triples of a part, (n, 3) int64: head, relation, tail."""
        return np.array(self.parts.get(part, ()), dtype=np.int64).reshape(-1, 3)


def _role(name: str) -> str:
    match = _TABLES.search(without_packing(name))
    return "" if match is None else {"entity": "entities", "relation": "relations"}[match[1].lower()]


FILE_RULES = FileRules("triples", EXPECTED_FILES, lambda name: data_verdict(name, ("csv", "tsv", "tab")), role=_role,
              only_parts=True, single_data_set=True)


def detect_format(files: Inventory) -> Format:
    """Detect the format of the files by their content.

    `openke` if a training file begins with a number and both id tables exist, `ntriples` if the first file of a part is
    N-Triples, else `names`.
    """
    present: set[str] = set()
    for source, part in files.sources():
        present.add(part)
        if part in PARTS and ntriples.is_ntriples(source):
            return "ntriples"
        head = source.stream.peek(64)[:64].decode("utf-8-sig", "replace")
        if part == "train" and _is_id(head.partition("\n")[0].strip()):
            present.add("counted")
    return "openke" if {"entities", "relations", "counted"} <= present else "names"


def read(where: list[Path], files: Inventory, format: Format, layout: TripleLayout) -> RawTriples:
    """Read every triple of the files. DataError names the file and line of a fault."""
    raw = (_read_openke(where, files) if format == "openke" else _read_ntriples(files, layout) if format == "ntriples"
             else _read_names(files, layout))
    if not raw.parts.get("train"):
        more = "".join(f"; {line}" for line in raw.warnings)
        raise DataError(f"{where[0]}: contains no training triples: there is no {EXPECTED_FILES}"
                        if "train" not in raw.parts else f"{where[0]}: the training split contains no triples{more}")
    return raw


def _read_names(files: Inventory, layout: TripleLayout) -> RawTriples:
    raw = RawTriples()
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    head, relation, tail = (layout.columns.index(column) for column in COLUMNS)
    first: dict[str, tuple[int, int, int]] = {}              # file:line -> ids of the first triple of a file
    passed, tables = ParseNotes(), list[str]()
    for source, part in files.sources():
        if part not in PARTS:
            tables.append(source.name)
            continue
        rows = raw.parts.setdefault(part, array("q"))
        for row, (number, line, fields) in enumerate(
            read_records(source, layout.delimiter, len(COLUMNS), _NOT_TRIPLES, passed)
        ):
            if row == 0 and layout.header:
                continue
            if len(fields) != 3 or not all(fields):
                hint = _surplus_hint(layout, fields) or ("" if rows else _format_hint(line))
                raise DataError(f"{source.name}:{number}: expected {', '.join(layout.columns)}, three names separated "
                                f"by {layout.delimiter}s, found {line[:80]!r}{hint}")
            rows.append(entities.setdefault(fields[head], len(entities)))
            rows.append(relations.setdefault(fields[relation], len(relations)))
            rows.append(entities.setdefault(fields[tail], len(entities)))
            if row == 0:
                first[f"{source.name}:{number}"] = rows[-3], rows[-2], rows[-1]
    _warn_of_headers(raw, first)
    raw.entities, raw.relations = list(entities), list(relations)
    raw.warnings = passed.warnings() + _table_lines(tables)
    return raw


def _table_lines(tables: list[str]) -> tuple[str, ...]:
    """Return a warning of each table of ids that a reader of names does not need."""
    return tuple(f"{name}: is skipped, because files of names need no table of ids; if the triples are ids, set "
                 "triples.format=openke" for name in tables)


def _read_ntriples(files: Inventory, layout: TripleLayout) -> RawTriples:
    raw = RawTriples()
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    literals, tables = Skipped(), list[str]()
    for source, part in files.sources():
        if part not in PARTS:
            tables.append(source.name)
            continue
        rows = raw.parts.setdefault(part, array("q"))
        for statement in ntriples.statements(source):
            if statement.is_literal:
                literals.add(f"{source.name}:{statement.number}")
                if layout.literals == "drop":
                    continue
            rows.append(entities.setdefault(statement.subject, len(entities)))
            rows.append(relations.setdefault(statement.predicate, len(relations)))
            rows.append(entities.setdefault(statement.object, len(entities)))
    raw.entities, raw.relations = list(entities), list(relations)
    kept = "kept, each literal as an entity" if layout.literals == "keep" else "removed"
    raw.warnings = literals.lines(f"triple has a literal as its object and is {kept} (triples.literals)",
                                  f"triples have a literal as their object and are {kept} (triples.literals)"
                                  ) + _table_lines(tables)
    return raw


def _warn_of_headers(raw: RawTriples, first_rows: dict[str, tuple[int, int, int]]) -> None:
    """Warn of each first line of a file whose names occur only in first lines."""
    rows, begins = np.concatenate([raw.rows(part) for part in PARTS]), np.array(list(first_rows.values()), np.int64)
    begins = begins.reshape(-1, 3)
    for columns in ([0, 2], [1]):
        times = np.bincount(rows[:, columns].ravel(), minlength=rows.max(initial=0) + 1)
        is_unique = times == np.bincount(begins[:, columns].ravel(), minlength=len(times))
        first_rows = {where: ids for where, ids in first_rows.items() if is_unique[np.array(ids)[columns]].all()}
    for where in first_rows if len(rows) > len(begins) else ():
        _log.warning("%s: its names occur nowhere else; if they are column names, set triples.header=true", where)


def _surplus_hint(layout: TripleLayout, fields: Sequence[str]) -> str:
    """Return a hint if columns like a weight or a date follow the three names."""
    if len(fields) <= len(COLUMNS) or not all(fields[:len(COLUMNS)]):
        return ""
    surplus = "fourth column" if len(fields) == len(COLUMNS) + 1 else "columns after the third"
    command = {"tab": ", e.g. with cut -f1-3", "space": ", e.g. with cut -d ' ' -f1-3"}.get(layout.delimiter, "")
    return f"; remove the {surplus}{command}"


def _format_hint(line: str) -> str:
    """Return a hint if the line has another delimiter or is an OpenKE line."""
    if _is_id(line.strip()):
        return "; if these are OpenKE's files, give the folder that also contains entity2id and relation2id"
    found = [name for name in SEPARATORS if len(split_fields(line, name)) == len(COLUMNS)]
    return "".join(f"; set triples.delimiter={name} to split it into three" for name in found)


def _read_openke(where: list[Path], files: Inventory) -> RawTriples:
    raw, tables = RawTriples(), dict[str, list[str]]()
    largest: dict[str, tuple[int, str]] = {"entities": (-1, ""), "relations": (-1, "")}  # largest id and its file:line
    for source, part in files.sources():
        rows = array("q")
        lines = _lines_after_count(source)
        if part in ("entities", "relations"):
            tables[part] = _table(source, lines)
            continue
        for number, line in lines:
            fields = line.split()
            if len(fields) != 3 or not all(map(_is_id, fields)):
                raise DataError(f"{source.name}:{number}: expected the ids of head, tail and relation, found "
                                f"{line[:80]!r}")
            head, tail, relation = map(int, fields)
            rows.extend((head, relation, tail))
            for kind, id in (("entities", max(head, tail)), ("relations", relation)):
                if id > largest[kind][0]:
                    largest[kind] = id, f"{source.name}:{number}"
        raw.parts.setdefault(part, array("q")).extend(rows)
    for kind, file in (("entities", "entity2id"), ("relations", "relation2id")):
        if kind not in tables:
            raise DataError(f"{where[0]}: there is no file {file}, which lists the {kind}")
        id, place = largest[kind]
        if id >= len(tables[kind]):
            raise DataError(f"{place}: id {id} is not one of the {len(tables[kind]):,} {kind} in {file}")
    raw.entities, raw.relations = tables["entities"], tables["relations"]
    return raw


def _table(source: Source, lines: Iterator[tuple[int, str]]) -> list[str]:
    """Return names by id; the ids must be 0 to n - 1."""
    names: dict[int, str] = {}
    for number, line in lines:
        name, _, id = line.replace("\t", " ").strip().rpartition(" ")
        name = name.strip()
        refuse_control(f"{source.name}:{number}", [name])
        if not name or not _is_id(id) or int(id) in names:
            raise DataError(f"{source.name}:{number}: expected a name and a unique id, found {line[:80]!r}")
        names[int(id)] = name
    if names and max(names) != len(names) - 1:
        raise DataError(f"{source.name}: the ids of {len(names):,} names should be 0 to {len(names) - 1:,}, but "
                        f"include {max(names):,}")
    if len(set(names.values())) != len(names):
        raise DataError(f"{source.name}: contains a name twice")
    return [names[id] for id in range(len(names))]


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _lines_after_count(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the lines after the first, which must state their number."""
    lines = _lines(source)
    number, head = next(lines, (1, ""))
    if not _is_id(head.strip()):
        raise DataError(f"{source.name}:{number}: expected the number of lines that follow, found {head[:80]!r}")
    n = 0
    for line in lines:
        n += 1
        yield line
    if n != int(head):
        raise DataError(f"{source.name}:{number}: declares {int(head):,} lines, but {n:,} follow")


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    return read_nonblank_lines(source, MAX_LINE, _NOT_TRIPLES)
