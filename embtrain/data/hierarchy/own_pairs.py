"""Reads a user's file of pairs in the concepts of a trained hierarchy, to evaluate the model on it.

    hyponym hypernym           positives
    hyponym hypernym label     1, True or yes; 0, False or no
    hyponym hypernym score     a grade: higher means more certain

The delimiter, a header and comments are detected (own_benchmarks.py). A word that does not name a concept means all
concepts that list it. Pairs with an unknown word are dropped and counted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from embtrain.common.errors import DataError, UnknownNames
from embtrain.data import own_benchmarks
from embtrain.data.formats.table_rows import RowFilter, is_number, plain_name
from embtrain.data.hierarchy.files import LOWER_COLUMNS, UPPER_COLUMNS
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.storage.containers import sources
from embtrain.data.storage.lines import read_nonblank_lines

LABEL = {"true": 1.0, "yes": 1.0, "1": 1.0, "1.0": 1.0, "false": 0.0, "no": 0.0, "0": 0.0, "0.0": 0.0}  # in lower case
_log = logging.getLogger("embtrain")
GoldKind = Literal["positives", "labels", "scores"]


@dataclass(frozen=True)
class OwnPairs:
    """Pairs with known words, and counts of the dropped ones."""

    kind: GoldKind
    pairs: list[tuple[list[int], list[int]]]  # concepts that hyponym and hypernym can mean
    gold: np.ndarray                          # (n,) float64  label or score; 1 for positives
    lines: int                                # pairs in the file
    unknown: int                              # pairs with an unknown word
    repeated: int                             # repetitions among the other pairs

    def note(self) -> str:
        """Return the number of pairs used and of those dropped, as text."""
        passed = [f"{n:,} {reason}" for n, reason in ((self.unknown, "with a concept unknown to the run"),
                                                  (self.repeated, "repeated")) if n]
        more = f"; skipped: {', '.join(passed)}" if passed else ""
        return f"{len(self.pairs):,} of {self.lines:,} pairs{more}"


def read(path: Path, index: dict[str, int], senses: Senses) -> OwnPairs:
    """Read the pairs of a file. DataError names a malformed line, or the file if no pair is usable."""
    form = own_benchmarks.detect_layout(own_benchmarks.read_sample(path), path, _is_label,
                                         "numbers, True and False, or yes and no")
    lower, upper = form.positions("word1", "word2")
    gold_column = next((form.columns.index(name) for name in ("score", "label") if name in form.columns), None)
    rows, filtered = list[tuple[str, str, str, str]](), RowFilter(form, _is_label)
    for source in sources([path], lambda name: True):
        for number, line in read_nonblank_lines(source):
            place = f"{source.name}:{number}"
            if (fields := filtered.read(line, place)) is None:
                continue
            if len(fields) != len(form.columns) or not (fields[lower] and fields[upper]):
                raise DataError(f"{place}: {line[:60]!r}: should have {len(form.columns)} fields "
                                f"separated by {form.delimiter}s, with concepts in columns {lower + 1} and {upper + 1}")
            u, v = fields[lower], fields[upper]
            if gold_column is None and not rows and _is_header(u, v, place, index, senses):
                _log.warning("%s: %r and %r are names of columns and are skipped", place, u, v)
                continue
            rows.append((place, u, v, "1" if gold_column is None else fields[gold_column]))
    for message in filtered.comments.warnings():
        _log.warning(message)
    kind, gold = _gold(rows, gold_column is None)
    first: dict[tuple[str, str], tuple[tuple[list[int], list[int]], float]] = {}
    unknown = repeated = 0
    for (_, u, v, _), value in zip(rows, gold, strict=True):
        ids = [[index[name]] if name in index else senses.concepts_of(name) for name in (u, v)]
        if not all(ids):
            unknown += 1
        elif (u, v) in first:
            repeated += 1
        else:
            first[u, v] = (ids[0], ids[1]), value
    own = OwnPairs(kind, [pair for pair, _ in first.values()], np.array([value for _, value in first.values()]),
                  len(rows), unknown, repeated)
    if not own.pairs:
        raise UnknownNames(f"{path}: no pair contains only concepts of the run ({own.note()}); give a file with the "
                           "names used in training")
    return own


def _is_label(text: str) -> bool:
    return text.lower() in LABEL


def _is_header(u: str, v: str, place: str, index: dict[str, int], senses: Senses) -> bool:
    """Return whether u and v, of the first line of positives, are names of columns and not of concepts.

    DataError if the column of hypernyms is the first.
    """
    left, right = plain_name(u), plain_name(v)
    are_concepts = any(name in index or senses.concepts_of(name) for name in (u, v))
    if are_concepts or not {left, right} <= LOWER_COLUMNS | UPPER_COLUMNS:
        return False
    if left in UPPER_COLUMNS and right in LOWER_COLUMNS:
        raise DataError(f"{place}: the columns are {left} and {right}; put the {right} into the first one")
    return True


def _gold(rows: list[tuple[str, str, str, str]], positives: bool) -> tuple[GoldKind, list[float]]:
    if positives:
        return "positives", [1.0] * len(rows)
    if all(_is_label(text) for *_, text in rows):
        return "labels", [LABEL[text.lower()] for *_, text in rows]
    out = []
    for place, *_, text in rows:
        if not is_number(text) or not np.isfinite(float(text)):
            raise DataError(f"{place}: {text[:40]!r}: should be a number, or 1 or 0 in all lines")
        out.append(float(text))
    return "scores", out
