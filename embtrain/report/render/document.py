"""A report as blocks of text, numbers and drawings, so that HTML, Markdown and LaTeX have the same content.

Text is never markup: each format escapes it as it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RowNote:
    """A note on the rows above it, across all columns."""

    text: str


TableRow = Sequence[str] | str | RowNote   # a single text is a heading across all columns


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text; its kind sets how it is shown."""

    text: str
    kind: str = ""          # "", "note" (small), "missing" (in place of absent data), "drawn" (a note on drawings)


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    texts: Sequence[str]


@dataclass(frozen=True)
class ReportTable:
    """A table with a head and one row per line."""

    head: Sequence[tuple[str, str]]   # (name, kind) per column; kind: "" names, "number", or "text" that may wrap
    rows: Sequence[TableRow]


@dataclass(frozen=True)
class GridCell:
    """A mean with its interval; both are text, and `interval` is empty if there is none."""

    value: str
    interval: str
    is_best: bool
    order: float | None = None    # the number that rows are sorted by; None: last


@dataclass(frozen=True)
class ScoreGrid:
    """The scores of a paper: a row per strategy, a column per measure, the best of each column marked."""

    caption: str
    measures: Sequence[str]
    rows: Sequence[tuple[str, Sequence[GridCell]]]   # (strategy, a cell for each measure)
    less_is_better: Sequence[bool] = ()              # for each measure


@dataclass(frozen=True)
class Figure:
    """Drawings under one name and caption, with the table that replaces them in formats without drawings."""

    name: str
    caption: str
    drawings: Sequence[str]                     # SVG, in one row
    data: ReportTable | None                    # None: left out in formats without drawings
    legend: Sequence[tuple[str, int]] = ()      # (label, index of the colour)
    small: bool = False                         # several share a line


@dataclass(frozen=True)
class WordNeighbours:
    """The nearest neighbours of one word, ranks 1–5 and 45–50, in one column per strategy.

    A neighbour is (word, cosine). The only column of a run's report has no name.
    """

    word: str
    columns: Sequence[tuple[str, list[tuple[str, float]], list[tuple[str, float]]]]   # (strategy, 1–5, 45–50)

    @property
    def is_unnamed(self) -> bool:
        return [name for name, _, _ in self.columns] == [""]

    def table(self) -> ReportTable:
        def format_words(neighbours: list[tuple[str, float]]) -> str:
            return ", ".join(f"{word} " + f"{cosine:.2f}".replace("-", "−") for word, cosine in neighbours) or "none"
        head, first = [("strategy", ""), ("1–5", "text"), ("45–50", "text")], 1 if self.is_unnamed else 0
        return ReportTable(head[first:], [[name, format_words(near), format_words(far)][first:]
                                          for name, near, far in self.columns])


@dataclass(frozen=True, eq=False)
class VectorMap:
    """Entries in two dimensions, with the neighbours of each; in HTML only.

    The n entries are the most frequent ones of a table, most frequent first.
    """

    kind: str                          # plural noun: "words", "entities"
    names: Sequence[str]               # (n,)
    positions: NDArray[np.float64]     # (m, 2) of the first m entries, within 0 and 1
    near: NDArray[np.int64]            # (n, k) entries, nearest first; −1: none
    cosines: NDArray[np.float64]       # (n, k)
    start: int                         # the entry whose neighbours are shown first
    caption: str


@dataclass(frozen=True)
class Code:
    """Text in a fixed-width font, line by line."""

    text: str
    wrap: bool = False      # long lines wrap


@dataclass(frozen=True)
class Collapsible:
    """Blocks that are collapsed in HTML until the reader opens them, and follow their heading in other formats."""

    heading: str
    blocks: Sequence[Block]


Block = Paragraph | Items | ReportTable | Figure | WordNeighbours | VectorMap | Code | Collapsible


@dataclass(frozen=True)
class ReportSection:
    """A section with its heading."""

    key: str                # its anchor in HTML
    name: str               # its heading
    blocks: Sequence[Block]
    is_folded: bool = False  # in HTML, until the reader opens it


@dataclass(frozen=True)
class ReportDocument:
    """A whole report."""

    heading: str
    name: str                      # one line below the heading
    verdict: Sequence[str]         # the results in sentences
    sections: Sequence[ReportSection] = field(default_factory=list)
    footer: str = ""
    warnings: Sequence[str] = ()   # shown before all sections
    grid: ScoreGrid | None = None  # before all sections


def missing_file(file: str, what: str) -> Paragraph:
    """The paragraph in place of content whose file a run folder lacks."""
    return Paragraph(f"{what}: the run folder has no {file}.", "missing")
