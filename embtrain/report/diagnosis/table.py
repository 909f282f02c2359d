"""A diagnosis for a terminal, in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from embtrain.common.terminal import plain
from embtrain.evaluate.words.hubness import Hubness
from embtrain.report.diagnosis.page import BOUNDS, GRADIENT, NEAR, THEOREMS, Diagnosis, format_value, lines_of

SHORT = {"ms a query": "ms", "negative masses": "negative", "Σ p |1−p_t−p/q̄|": "away", "ratio, least": "least",
         "ratio, greatest": "greatest", "factor left out": "factor", "greatest where g ≥ 0": "most, g ≥ 0"}
SIZES = 4   # largest numbers of candidates that are shown


def table(diagnosis: Diagnosis) -> str:
    """The geometry of the table, each part with a value for some source, and the notes."""
    parts = [] if diagnosis.table is None else [_table_lines(diagnosis.table)]
    for title, columns in (("gradient", GRADIENT), ("closeness", NEAR), ("theorems 1 and 2", THEOREMS),
                           ("bounds of theorem 1", BOUNDS)):
        every_size = columns in (GRADIENT, BOUNDS)
        lines = [(f"{line.strategy} m={line.m:,}" if every_size else line.strategy,
                  [getattr(line, key) for _, key in columns])
                 for line in lines_of(diagnosis, every_size) if columns is not BOUNDS or line.lower is not None]
        if any(value is not None for _, values in lines for value in values):
            parts.append(_part(title, [SHORT.get(name, name) for name, _ in columns], lines))
    counts = sorted({size.n for size in diagnosis.growth})[-SIZES:]
    if len(counts) > 1:
        for title, key in ((f"bias of n, m={diagnosis.growth[0].m:,}", "bias"), ("milliseconds of n", "ms")):
            value_by_size = {(size.strategy, size.n): getattr(size, key) for size in diagnosis.growth}
            parts.append(_part(title, [f"{n:,}" for n in counts],
                               [(name, [value_by_size.get((name, n)) for n in counts])
                                for name in diagnosis.strategies]))
    notes = [plain(f"{line.strategy}: {line.note}") for line in lines_of(diagnosis, False) if line.note]
    return "\n\n".join("\n".join(lines) for lines in (*parts, notes) if lines)


def _part(title: str, head: Sequence[str], lines: Sequence[tuple[str, Sequence[float | None]]]) -> list[str]:
    name_width = 30 if len(head) < 6 else 24
    width = max(8, (80 - name_width) // len(head) - 1)
    def row(name: str, cells: Sequence[str]) -> str:
        name = plain(name)
        name = name if len(name) <= name_width else f"{name[:name_width - 9]}…{name[-8:]}"
        return f"{name:<{name_width}}" + "".join(f" {cell:>{width}}" for cell in cells)
    return [row(title, head), *(row(name, [format_value(value) for value in values]) for name, values in lines)]


def _table_lines(table: Hubness) -> list[str]:
    def line(text: str, value: float) -> str:
        return f"{text:<60}{format_value(value):>9}"
    out = [f"table of {table.rows:,} rows", line("  mean cosine of two rows", table.mean_cosine),
           "  nearest to the mean candidate (times)"]
    out += [line(f"    {textwrap.shorten(plain(hub.name), 40, placeholder='…')} ({hub.count:,.0f})", hub.cosine)
            for hub in table.hubs]
    out.append("  mean cosine to the nearest other row")
    return out + [line(f"    {band.name}, {band.rows:,} rows", band.crowding) for band in table.bands]
