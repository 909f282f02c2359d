"""Draws charts of quality against cost as standalone SVG: a panel for each task, a point for each strategy."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

from charts.dots import STYLE, WIDTH

PANEL, HEIGHT, TOP, LEFT = WIDTH // 2, 200, 44, 62
RIGHT, BOTTOM, LINE = PANEL - 104, HEIGHT - 30, 13
LETTER = 7            # width of a letter, at most
HOLLOW = 'style="fill:var(--color-background-primary,#fff)" stroke="currentColor"'


class Point(NamedTuple):
    """One strategy of a panel."""

    label: str
    x: float
    y: float
    low: float | None   # None: no interval
    high: float | None
    is_subject: bool    # drawn as a full circle


class Panel(NamedTuple):
    """One task with its own scales. x is logarithmic, in seconds."""

    heading: str
    y_name: str
    points: Sequence[Point]

    @property
    def y_range(self) -> tuple[float, float]:
        """The least and the largest y, intervals included."""
        ends = [end for p in self.points for end in (p.y, p.low, p.high) if end is not None]
        return min(ends), max(ends)

    @property
    def x_range(self) -> tuple[float, float]:
        """The least and the largest x."""
        return min(p.x for p in self.points), max(p.x for p in self.points)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point in the panel."""
        (left, right), (low, high) = self.x_range, self.y_range
        across = math.log(x / left) / max(math.log(right / left), math.log(2))
        return (LEFT + 10 + across * (RIGHT - LEFT - 20),
                BOTTOM - 8 - (y - low) / ((high - low) or 1.0) * (BOTTOM - TOP - 16))


def scatter(title: str, panels: Sequence[Panel]) -> str:
    """Draw the panels in two columns."""
    name, full = html.escape(title, quote=True), (len(panels) + 1) // 2 * HEIGHT
    drawn = [f'<g transform="translate({i % 2 * PANEL} {i // 2 * HEIGHT})">{_axes(panel)}{_points(panel)}</g>'
             for i, panel in enumerate(panels)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{name}" '
            f'viewBox="0 0 {WIDTH} {full}" style="max-width:{WIDTH}px;width:100%">{STYLE}<title>{name}</title>'
            + "".join(drawn) + "</svg>\n")


def _axes(panel: Panel) -> str:
    (first, last), (low, high) = panel.x_range, panel.y_range
    decimals = max(0, min(4, 1 - math.floor(math.log10((high - low) or 1.0))))
    parts = [f'<text y="16" font-weight="600">{html.escape(panel.heading)}</text>',
             f'<text class="faint" y="33">{html.escape(panel.y_name)}</text>',
             f'<line class="rule" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{BOTTOM}"/>',
             f'<line class="rule" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>']
    parts += [f'<text class="faint" x="{LEFT - 6}" y="{panel.place(first, y)[1] + 4:.1f}" text-anchor="end">'
              f'{f"{y:.{decimals}f}".replace("-", "−")}</text>' for y in (low, high)]
    parts += [f'<text class="faint" x="{panel.place(x, low)[0]:.1f}" y="{BOTTOM + 17}" text-anchor="middle">{x:,.0f} s'
              "</text>" for x in ((first, last) if last > 1.1 * first else (first,))]
    return "".join(parts)


def _points(panel: Panel) -> str:
    """Draw from the top; a label that would cover another one is moved down."""
    parts, taken = list[str](), list[tuple[float, float, float]]()      # begin, end and line of a label
    for point in sorted(panel.points, key=lambda p: -p.y):
        x, y = panel.place(point.x, point.y)
        begin, end, line = x + 9, x + 9 + LETTER * len(point.label), y + 4
        while any(begin < to and at < end and abs(line - other) < LINE for at, to, other in taken):
            line += 1
        taken.append((begin, end, line))
        if point.low is not None and point.high is not None:
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{panel.place(point.x, point.low)[1]:.1f}" '
                         f'y2="{panel.place(point.x, point.high)[1]:.1f}" stroke-width="1.5"/>')
        kind, weight = ("", ' font-weight="600"') if point.is_subject else (HOLLOW, "")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {kind}/>'
                     f'<text x="{begin:.1f}" y="{line:.1f}"{weight}>{html.escape(point.label)}</text>')
    return "".join(parts)
