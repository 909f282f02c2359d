"""Pictures of means with their intervals, as SVG that needs nothing else and is read on light and on dark pages.

Written by hand and not by a plotting library, so that the same rows give the same bytes everywhere.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

WIDTH, LEFT, RIGHT, ROW, HEAD = 680, 190, 110, 22, 34
STYLE = ("<style>.chart{color:var(--color-foreground-primary,#1a1c1e);font:13px system-ui,sans-serif}"
         "@media(prefers-color-scheme:dark){.chart{color:var(--color-foreground-primary,#dfe2e5)}}"
         ".chart text{fill:currentColor}.chart line{stroke:currentColor}.chart circle{fill:currentColor}"
         ".chart .faint{opacity:.6}.chart .rule{opacity:.25}</style>")


class Point(NamedTuple):
    label: str
    value: float
    low: float | None   # None: no interval
    high: float | None
    shown: str          # the value in figures


class Panel(NamedTuple):
    heading: str
    points: Sequence[Point]


def dots(title: str, panels: Sequence[Panel]) -> str:
    """One panel below the other, a line for each point; each panel has a scale of its own."""
    parts, y = [], 6
    for panel in panels:
        parts.append(f'<text x="0" y="{y + 18}" font-weight="600">{html.escape(panel.heading)}</text>')
        y += HEAD
        ends = [end for p in panel.points for end in (p.value, p.low, p.high) if end is not None]
        least, span = min(ends), (max(ends) - min(ends)) or 1.0

        def at(x: float, least: float = least, span: float = span) -> str:
            return f"{LEFT + (x - least) / span * (WIDTH - LEFT - RIGHT):.1f}"

        for point in panel.points:
            parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
            parts.append(f'<text x="{LEFT - 14}" y="{y + 4}" text-anchor="end">{html.escape(point.label)}</text>')
            if point.low is not None and point.high is not None:
                parts.append(f'<line x1="{at(point.low)}" x2="{at(point.high)}" y1="{y}" y2="{y}" stroke-width="2"/>')
            parts.append(f'<circle cx="{at(point.value)}" cy="{y}" r="4"/>')
            parts.append(f'<text class="faint" x="{WIDTH - RIGHT + 14}" y="{y + 4}">{html.escape(point.shown)}</text>')
            y += ROW
    name = html.escape(title, quote=True)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{name}" '
            f'viewBox="0 0 {WIDTH} {y}" style="max-width:{WIDTH}px;width:100%">{STYLE}<title>{name}</title>'
            + "".join(parts) + "</svg>\n")
