"""A report as blocks of text, numbers and drawings, so that HTML, Markdown and LaTeX have the same content.

Text is never markup: each format escapes it as it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RowNote:
    """A note on the rows above it, across all columns."""

    text: str


TableRow = Sequence[str] | str | RowNote   # a single text is a heading across all columns


@dataclass(frozen=True)
class Words:
    text: str
    kind: str = ""          # "", "note" (small), "missing" (absent data), "drawn" (a note on drawings)


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    texts: Sequence[str]


@dataclass(frozen=True)
class ReportTable:
    head: Sequence[tuple[str, str]]   # (name, kind); kind: "" a name, "number", or "text" that may wrap
    rows: Sequence[TableRow]


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    drawings: Sequence[str]                     # SVG, in one row
    data: ReportTable | None                          # the data, for formats without drawings
    legend: Sequence[tuple[str, int]] = ()      # (label, index of the colour)
    small: bool = False


@dataclass(frozen=True)
class Nearest:
    """The neighbours of one word, one column per strategy; a single column may have no name."""

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


@dataclass(frozen=True)
class Code:
    text: str
    wrap: bool = False


@dataclass(frozen=True)
class Folded:
    """Blocks shown on demand in HTML, and under their heading in other formats."""

    heading: str
    blocks: Sequence[Words | ReportTable]


Block = Words | Items | ReportTable | Figure | Nearest | Code | Folded


@dataclass(frozen=True)
class ReportSection:
    key: str
    name: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class ReportDocument:
    heading: str
    name: str
    verdict: Sequence[str]
    sections: Sequence[ReportSection] = field(default_factory=list)
    footer: str = ""
    warnings: Sequence[str] = ()   # shown before all sections


def missing_file(file: str, what: str) -> Words:
    """The paragraph in place of content whose file a run folder lacks."""
    return Words(f"{what}: the run folder has no {file}.", "missing")
