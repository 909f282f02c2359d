"""Reads a user's file of triples in the names of a trained graph, to evaluate the model on it.

A line has three names in the column order of the run. The delimiter is the run's, or, if that does not split the first
line into three names, the first one that does. N-Triples are detected. Triples with unknown names and duplicates are
dropped and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embtrain.common.errors import DataError, UnknownNames
from embtrain.data.formats.delimited import SEPARATORS, Delimiter, ParseNotes, read_records, split_fields
from embtrain.data.storage.containers import Source, sources
from embtrain.data.triples import ntriples
from embtrain.data.triples.files import COLUMNS
from embtrain.data.triples.graph import Graph, TriplesConfig

_WHAT = "check that it is a file of triples"
_log = logging.getLogger("embtrain")


@dataclass(frozen=True)
class OwnTriples:
    """Distinct triples with known names, and counts of the dropped ones."""

    triples: np.ndarray    # (n, 3) int64
    lines: int             # triples in the file
    entity: int            # triples with an unknown entity
    relation: int          # further triples with an unknown relation
    repeated: int
    literals: int = 0      # triples of N-Triples with a literal as object

    def note(self) -> str:
        """Return the number of triples used and of those dropped, as text."""
        passed = [f"{n:,} {reason}" for n, reason in ((self.entity, "with an entity unknown to the run"),
                                                  (self.relation, "with a relation unknown to the run"),
                                                  (self.repeated, "repeated"),
                                                  (self.literals, "with a literal as object")) if n]
        return f"{len(self.triples):,} of {self.lines:,} triples" + (f"; skipped: {', '.join(passed)}" if passed
                                                                     else "")


def read(path: Path, config: TriplesConfig, graph: Graph) -> OwnTriples:
    """Read the triples of a file. DataError names a malformed line, or the file if no triple is usable."""
    entities, relations = graph.entities.index, graph.relations.index
    rows: list[tuple[int, int, int]] = []
    lines = entity = relation = literals = 0
    notes = ParseNotes()
    for source in sources([path], lambda name: True):
        for head, name, tail, is_literal in _triples(source, config, notes):
            lines += 1
            if is_literal and config.literals == "drop":
                literals += 1
            elif head not in entities or tail not in entities:
                entity += 1
            elif name not in relations:
                relation += 1
            else:
                rows.append((entities[head], relations[name], entities[tail]))
    triples = np.array(list(dict.fromkeys(rows)), np.int64).reshape(-1, 3)
    own = OwnTriples(triples, lines, entity, relation, len(rows) - len(triples), literals)
    for line in notes.warnings():
        _log.warning("%s", line)
    if not len(triples):
        raise UnknownNames(f"{path}: no triple contains only names of the run ({own.note()}); give a file with the "
                           "names used in training")
    return own


def _triples(source: Source, config: TriplesConfig, notes: ParseNotes) -> Iterator[tuple[str, str, str, bool]]:
    """Yield head, relation, tail, and whether the tail is a literal. notes: updated."""
    if ntriples.is_ntriples(source):
        for statement in ntriples.statements(source):
            yield statement.subject, statement.predicate, statement.object, statement.is_literal
        return
    first = source.stream.peek(1 << 12)[:1 << 12].decode("utf-8-sig", "replace").partition("\n")[0]
    delimiter: Delimiter = config.delimiter
    if len(split_fields(first, delimiter)) != 3:
        delimiter = next((separator for separator in SEPARATORS if len(split_fields(first, separator)) == 3), delimiter)
    order = [config.columns.index(column) for column in COLUMNS]
    for row, (number, line, fields) in enumerate(read_records(source, delimiter, 3, _WHAT, notes)):
        if row == 0 and config.header:
            continue
        if len(fields) != 3 or not all(fields):
            raise DataError(f"{source.name}:{number}: {line[:80]!r}: should be {', '.join(config.columns)} separated "
                            f"by {delimiter}s")
        head, name, tail = (fields[i] for i in order)
        yield head, name, tail, False
