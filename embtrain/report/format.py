"""Format numbers and words for people, and the table of scores for a terminal."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from embtrain.common.terminal import WIDTH, plain
from embtrain.common.types import Score

GAP = "  "
# Suffixes of metrics, after a slash: these rows break down or support another row.
ROW_ORIGINS = {"scores": "bare scores", "optimistic": "ties for the model", "pessimistic": "ties against the model",
               "tail": "tail queries", "head": "head queries"}


def number(value: float | None, scale: float | None = None) -> str:
    """Format `value` to about three significant digits, with the decimals that suit `scale` (default: itself)."""
    if value is None or not math.isfinite(value):
        return "-"
    size = abs(value if scale is None else scale)
    if size == 0:
        size = abs(value) or 1.0
    if size < 0.001 or max(size, abs(value)) >= 1e9:
        return f"{value:.2e}"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3 if size >= 0.1 else 4
    return f"{value:z,.{decimals}f}"          # z: no minus before zero


def minus(figures: str) -> str:
    """A formatted number with a true minus sign; a dash if there is no value."""
    return figures.replace("-", "−") if figures != "-" else "–"


def interval(row: Score) -> str:
    if row.low is None and row.high is None:
        return ""
    return f"[{number(row.low, row.value)}, {number(row.high, row.value)}]"


def duration(seconds: float) -> str:
    rounded = round(seconds)
    if rounded < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(rounded, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def table(rows: Sequence[Score], share: float = 0.95) -> str:
    """Format scores in at most 80 columns. share: coverage of the intervals. Text wraps; nothing is cut off."""
    if not rows:
        return "no scores"
    head = ("benchmark", "metric", "value", f"{share * 100:g} % interval", "n")
    lines = [(plain(r.benchmark), plain(r.metric), number(r.value), interval(r), f"{r.n:,}") for r in rows]
    notes = [plain(r.note) for r in rows]
    widths = [max(cells(line[i]) for line in [head, *lines]) for i in range(5)]
    available = WIDTH - sum(widths[2:]) - 4 * len(GAP)
    while widths[0] + widths[1] > available and max(widths[:2]) > 1:
        widths[widths[0] < widths[1]] -= 1
    left = WIDTH - sum(widths) - 5 * len(GAP)
    is_inline = any(notes) and all(cells(n) <= left for n in notes)  # longer notes would spread the rows
    out = []
    if not is_inline:  # a note shared by consecutive rows is printed once, below the last
        is_repeated = [r.benchmark == s.benchmark and r.note == s.note for r, s in pairwise(rows)] + [False]
        notes = ["" if repeated else note for repeated, note in zip(is_repeated, notes, strict=True)]
    for line, note in zip([head, *lines], ["note" if is_inline else "", *notes], strict=True):
        columns = [wrap(c, w) for c, w in zip(line, widths, strict=True)] + [wrap(note, left) if is_inline else []]
        for i in range(max(map(len, columns))):
            pieces = [c[i] if i < len(c) else "" for c in columns]
            text = [_pad(pieces[j], widths[j], right=2 <= j < 5) for j in range(5)]
            out.append(GAP.join([*text, pieces[5]]).rstrip())
        if note and not is_inline:
            out += ["    " + piece for piece in wrap(note, WIDTH - 4)]
    out.insert(_height(head, widths), "-" * max(map(cells, out)))
    return "\n".join(out)


def lead(rows: Sequence[Score]) -> tuple[list[Score], list[Score], str]:
    """Split rows into the leading ones and the supplementary ones; and describe the latter."""
    leading = [row for row in rows if _origin(row) is None]
    rest = [(row, origin) for row in rows if (origin := _origin(row)) is not None]
    kinds = ", ".join(dict.fromkeys(origin for _, origin in rest))
    return leading, [row for row, _ in rest], f"{len(rest)} further rows: {kinds}"


def origin_named(metric: str) -> str:
    """The key of a metric, with its suffix in words: `mrr/scores` -> `mrr, bare scores`."""
    measure, slash, suffix = metric.rpartition("/")
    return f"{measure}, {ROW_ORIGINS[suffix]}" if slash and measure and suffix in ROW_ORIGINS else metric


def _origin(row: Score) -> str | None:
    if row.value is None and row.n == 0:
        return "without a value"
    measure, slash, suffix = row.metric.rpartition("/")
    return ROW_ORIGINS.get(suffix) if slash and measure else None


def format_text(rows: Sequence[Score], page: Path, share: float = 0.95) -> str:
    """The leading rows for a terminal, and the page that has the others. share: coverage of the intervals."""
    leading, rest, summary = lead(rows)
    return "\n".join([table(leading, share), *(wrap(f"{summary}; {plain(str(page))}", WIDTH) if rest else [])])


def cells(text: str) -> int:
    """Columns that `text` takes on a terminal: wide East Asian characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def wrap(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` columns, between words if possible."""
    lines: list[str] = []
    for line in textwrap.wrap(text, width) or [""]:
        while cells(line) > width:  # textwrap counts characters, not columns
            cut = next(i for i in range(len(line), 0, -1) if cells(line[:i]) <= width or i == 1)
            lines.append(line[:cut])
            line = line[cut:]
        lines.append(line)
    return lines


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * max(0, width - cells(text))
    return space + text if right else text + space


def _height(head: Sequence[str], widths: Sequence[int]) -> int:
    return max(len(wrap(h, w)) for h, w in zip(head, widths, strict=True))
