"""Draws charts of means with intervals as standalone SVG, readable on light and on dark pages.

Written without a plotting library, so that the same rows give the same bytes everywhere.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

WIDTH, LEFT, RIGHT, ROW, HEAD = 680, 190, 110, 22, 34
STYLE = ("<style>.chart{color:var(--color-foreground-primary,#1a1c1e);font:13px system-ui,sans-serif}"
         "@media(prefers-color-scheme:dark){.chart{color:var(--color-foreground-primary,#dfe2e5)}}"
         ".chart text{fill:currentColor}.chart line{stroke:currentColor}.chart circle{fill:currentColor}"
         ".chart .faint{opacity:.6}.chart .rule{opacity:.25}</style>")


class Point(NamedTuple):
    """One row of a panel."""

    label: str
    value: float
    low: float | None   # None: no interval
    high: float | None
    shown: str          # the formatted value


class Panel(NamedTuple):
    """One scale with its points."""

    heading: str
    points: Sequence[Point]


def dots(title: str, panels: Sequence[Panel]) -> str:
    """Draw the panels below each other, one line per point; each panel has its own scale."""
    parts, y = [], 6
    for panel in panels:
        parts.append(f'<text x="0" y="{y + 18}" font-weight="600">{html.escape(panel.heading)}</text>')
        y += HEAD
        ends = [end for p in panel.points for end in (p.value, p.low, p.high) if end is not None]
        least, span = min(ends), (max(ends) - min(ends)) or 1.0

        def x_of(x: float, least: float = least, span: float = span) -> str:
            return f"{LEFT + (x - least) / span * (WIDTH - LEFT - RIGHT):.1f}"

        for point in panel.points:
            parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
            parts.append(f'<text x="{LEFT - 14}" y="{y + 4}" text-anchor="end">{html.escape(point.label)}</text>')
            if point.low is not None and point.high is not None:
                parts.append(f'<line x1="{x_of(point.low)}" x2="{x_of(point.high)}" y1="{y}" y2="{y}" '
                             'stroke-width="2"/>')
            parts.append(f'<circle cx="{x_of(point.value)}" cy="{y}" r="4"/>')
            parts.append(f'<text class="faint" x="{WIDTH - RIGHT + 14}" y="{y + 4}">{html.escape(point.shown)}</text>')
            y += ROW
    name = html.escape(title, quote=True)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{name}" '
            f'viewBox="0 0 {WIDTH} {y}" style="max-width:{WIDTH}px;width:100%">{STYLE}<title>{name}</title>'
            + "".join(parts) + "</svg>\n")


def plane(title: str, cosine: float, names: Sequence[str]) -> str:
    """Draw the plane of a target e and a prediction ê, unit vectors with this cosine, and the negative that projection
    or difference synthesizes from them. All four vectors are in that plane. names: labels of e, ê and the negative.
    """
    R, base = 150, 210
    e, h, tips = (1.0, 0.0), (cosine, math.sqrt(1 - cosine * cosine)), []
    far = math.hypot(h[0] - e[0], h[1])
    negatives = ((0.0, 1.0), ((h[0] - e[0]) / far, h[1] / far))
    kinds = zip((120, 480), ("projection", "difference"), negatives, ((cosine, 0.0), e), strict=True)
    for origin, heading, u, part in kinds:
        def place(x: Sequence[float], origin: int = origin) -> str:
            return f"{origin + R * x[0]:.1f} {base - R * x[1]:.1f}"

        def arrow(x: Sequence[float], name: str, kind: str, origin: int = origin) -> str:
            turn, end = math.degrees(math.atan2(-x[1], x[0])), (origin + R * x[0], base - R * x[1])
            anchor, offset = ("end", -12) if x[0] < -.2 else ("start", 10)
            return (f'<path d="M{origin} {base}L{end[0]:.1f} {end[1]:.1f}" {kind}/>'
                    '<path d="M0 0l-11 -5v10z" style="fill:currentColor" '
                    f'transform="translate({end[0]:.1f} {end[1]:.1f}) rotate({turn:.1f})"/>'
                    f'<text x="{end[0] + offset:.1f}" y="{end[1] - 8:.1f}" text-anchor="{anchor}">'
                    f'{html.escape(name)}</text>')

        tips += [f'<text x="{origin}" y="22" text-anchor="middle" font-weight="600">{heading}</text>',
                 f'<path class="rule" '
                 f'd="M{origin + R} {base}A{R} {R} 0 0 0 {origin - R * .7:.1f} {base - R * .714:.1f}"/>',
                 f'<path class="faint" stroke-dasharray="2 4" d="M{place(part)}L{place(h)}"/>',
                 arrow(e, names[0], ""), arrow(h, names[1], 'class="faint"'),
                 arrow(u, names[2] if u == negatives[0] else "", 'style="stroke-width:3"')]
    name = html.escape(title, quote=True)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{name}" '
            f'viewBox="0 0 {WIDTH + 40} {base + 20}" style="max-width:{WIDTH + 40}px;width:100%">{STYLE}'
            "<style>.chart path{stroke:currentColor;stroke-width:1.5;fill:none}</style>"
            f"<title>{name}</title>" + "".join(tips) + "</svg>\n")
