"""Lists of candidates by query, from TSV or JSON lines (a name that ends in .jsonl, packed or not).

    QUERY    TAB CANDIDATE [TAB WEIGHT]                        one line per candidate; the weight is 1 if absent
    {"query": NAME, "candidates": [NAMES], "weights": [NUMBERS]}      one line per query; "weights" is optional

A query of several fields, as `QueryNames.fields` lists them, takes several columns, and a list of names in JSON. The
candidates of a query need not follow each other, and the weights of equal lines are added. Lines with an unknown query,
unknown candidates and comments are left out and counted in a warning.
"""

from __future__ import annotations

import array
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embtrain.common.candidate_lists import CandidateLists
from embtrain.common.config.shown import describe_value
from embtrain.common.errors import DataError, ResourceError
from embtrain.data.formats.table_rows import to_number
from embtrain.data.storage.containers import Source, sources, without_packing
from embtrain.data.storage.lines import Comments, is_comment, read_nonblank_lines

_log = logging.getLogger("embtrain")

MAX_LINE = 1 << 16         # bytes of a line of TSV
MAX_OBJECT = 1 << 24       # bytes of a line of JSON
MAX_ENTRIES = 1 << 27      # candidates of all lists: about 5 GB while they are sorted
JSON_SUFFIXES = (".jsonl", ".ndjson")
KEYS = ("query", "candidates", "weights")
MAX_WEIGHT = 1e200         # so that the sum of a list is finite
WEIGHT_RANGE = f"a weight should be a number above 0, at most {MAX_WEIGHT:g}"
Entry = tuple[str, Sequence[str], Sequence[str], Sequence[float]]   # place, fields of the query, candidates, weights


@dataclass(frozen=True)
class QueryNames:
    """The names by which a file identifies the queries that share a list."""

    columns: tuple[int, ...]    # columns of Query.context in a key
    fields: tuple[str, ...]     # of the query in a line, as errors show them
    # Keys (each with a number per column) that fields name; None: a name is unknown. ValueError: they are malformed.
    find: Callable[[Sequence[str]], Sequence[tuple[int, ...]] | None]


def read(path: Path, names: QueryNames, candidates: Mapping[str, int]) -> CandidateLists:
    """Read lists of candidates, in the ids of `candidates`. DataError names the file and line, ResourceError its size.

    Warns of unknown names. DataError also if no line has a known query with a known candidate.
    """
    keys, ids, weights = array.array("q"), array.array("q"), array.array("d")
    unknown_queries, unknown_candidates, comments = _Unknown(), _Unknown(), Comments()
    fields: Sequence[str] | None = None
    found: Sequence[tuple[int, ...]] | None = None
    for source in sources([path], lambda name: True):
        for place, query, listed, query_weights in _entries(source, names.fields, comments):
            if query != fields:                                       # lines of one query usually follow each other
                fields = query
                try:
                    found = names.find(query)
                except ValueError as error:
                    raise DataError(f"{place}: {error}") from error
            if found is None:
                unknown_queries.add(place, " ".join(query))
                continue
            for name, weight in zip(listed, query_weights, strict=True):
                if (candidate := candidates.get(name)) is None:
                    unknown_candidates.add(place, name)
                    continue
                for key in found:
                    keys.extend(key)
                    ids.append(candidate)
                    weights.append(weight)
            if len(ids) > MAX_ENTRIES:
                raise ResourceError(f"{place}: there are more than {MAX_ENTRIES:,} candidates in all lists; keep fewer "
                                    "for each query")
    problems = "; ".join(filter(None, (unknown_queries.text("queries"), unknown_candidates.text("candidates"))))
    if not ids:
        raise DataError(f"{path}: has no line with a known query and a known candidate"
                        f"{problems and f' ({problems})'}; give lines {_example(names.fields)}, in the names of the "
                        "corpus")
    for line in comments.warnings():
        _log.warning("%s", line)
    if problems:
        _log.warning("%s: left out: %s", path, problems)
    return CandidateLists.from_entries(names.columns, np.frombuffer(keys, np.int64).reshape(-1, len(names.columns)),
                                       np.frombuffer(ids, np.int64), np.frombuffer(weights, np.float64))


@dataclass
class _Unknown:
    """Number of unknown names, and the first."""

    n: int = 0
    first: str = ""

    def add(self, place: str, name: str) -> None:
        self.n, self.first = self.n + 1, self.first or f"{describe_value(name)} at {place}"

    def text(self, kind: str) -> str:
        return f"{self.n:,} unknown {kind}, first {self.first}" if self.n else ""


def _entries(source: Source, fields: Sequence[str], comments: Comments) -> Iterator[Entry]:
    is_json = without_packing(source.name).lower().endswith(JSON_SUFFIXES)
    return _objects(source, len(fields)) if is_json else _tsv(source, fields, comments)


def _tsv(source: Source, fields: Sequence[str], comments: Comments) -> Iterator[Entry]:
    n = len(fields)
    for number, line in read_nonblank_lines(source, MAX_LINE, "is it a table of candidates?"):
        names, place = [name.strip() for name in line.split("\t")], f"{source.name}:{number}"
        if len(names) not in (n + 1, n + 2) and is_comment(line):
            comments.add(place)
            continue
        if len(names) not in (n + 1, n + 2) or not all(names[:n + 1]):
            raise DataError(f"{place}: {line[:80]!r}: should be {_example(fields)}")
        weight = names[n + 1] if len(names) == n + 2 else "1"
        value = to_number(weight)
        if value is None or not 0 < value <= MAX_WEIGHT:
            raise DataError(f"{place}: {weight[:40]!r}: {WEIGHT_RANGE}; correct or remove it")
        yield place, names[:n], names[n:n + 1], [value]


def _objects(source: Source, n: int) -> Iterator[Entry]:
    for number, line in read_nonblank_lines(source, MAX_OBJECT, "write one query a line"):
        place = f"{source.name}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            too_deep = isinstance(error, RecursionError)
            reason = "nested too deeply" if too_deep else str(getattr(error, "msg", error))[:60]
            raise DataError(f"{place}: is not JSON ({reason}); write one object a line") from error
        query, listed, weights = _record(record, place)
        if len(query) != n or not all(query):
            raise DataError(f"{place}: query: {describe_value(record['query'])}: should be {n} "
                            f"{'name' if n == 1 else 'names'}{' in a list' if n > 1 else ''}")
        yield place, query, listed, weights


def _record(record: Any, place: str) -> tuple[list[str], list[str], list[float]]:
    """Return query, candidates and weights of a decoded line. DataError if a part has another type or length."""
    if not isinstance(record, dict) or not {"query", "candidates"} <= record.keys() <= set(KEYS):
        raise DataError(f"{place}: should be an object with the keys query, candidates and, optionally, weights")
    query = [record["query"]] if isinstance(record["query"], str) else record["query"]
    listed, weights = record["candidates"], record.get("weights")
    for key, names in (("query", query), ("candidates", listed)):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{place}: {key}: should be {'a name or ' if key == 'query' else ''}a list of names")
    if weights is None:
        return query, listed, [1.0] * len(listed)
    if not isinstance(weights, list) or len(weights) != len(listed):
        raise DataError(f"{place}: weights: should be a list of {len(listed)} numbers, one for each candidate")
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= MAX_WEIGHT:
            raise DataError(f"{place}: weights: {describe_value(weight)}: {WEIGHT_RANGE}; correct or remove it")
    return query, listed, [float(weight) for weight in weights]


def _example(fields: Sequence[str]) -> str:
    """Return the form of a line, for errors."""
    return f"{', '.join(fields)}, CANDIDATE and, optionally, WEIGHT, separated by TABs"
