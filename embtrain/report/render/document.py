"""A report as blocks of plain words, numbers and drawings, so that HTML, Markdown and LaTeX say the same.

Words here are never markup: each format escapes them as it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

TableRow = Sequence[str] | str   # a lone text is a heading across all columns


@dataclass(frozen=True)
class Words:
    text: str
    kind: str = ""          # "", "note" (small), "missing" (what is not there), "drawn" (a note on drawings)


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
    drawings: Sequence[str]                     # SVG, side by side
    data: ReportTable | None                          # the same for formats without drawings
    legend: Sequence[tuple[str, int]] = ()      # (label, place in the order of colours)
    small: bool = False


@dataclass(frozen=True)
class Nearest:
    """The neighbours of one word, strategy beside strategy."""

    word: str
    columns: Sequence[tuple[str, list[tuple[str, float]], list[tuple[str, float]]]]   # (strategy, 1–5, 45–50)

    def table(self) -> ReportTable:
        def format_words(neighbours: list[tuple[str, float]]) -> str:
            return ", ".join(f"{word} " + f"{cosine:.2f}".replace("-", "−") for word, cosine in neighbours) or "none"
        return ReportTable([("strategy", ""), ("1–5", "text"), ("45–50", "text")],
                           [[name, format_words(near), format_words(far)] for name, near, far in self.columns])


@dataclass(frozen=True)
class Code:
    text: str
    wrap: bool = False


@dataclass(frozen=True)
class Folded:
    """What is told on demand where a format can: under its heading everywhere else."""

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
