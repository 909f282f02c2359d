"""Charts as inline SVG: drawn by matplotlib, coloured by the page's style sheet, so that they follow light and dark.

matplotlib draws with placeholder colours; `inline` replaces each by a CSS variable, removes the parts that a page does
not need (header, metadata, sizes, unused ids) and prefixes the other ids with the chart's key.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from embtrain.common.types import Score
from embtrain.report.charts.quiet import (
    Axes,
    Figure,
    FigureCanvasSVG,
    FuncFormatter,
    MaxNLocator,
    ScalarFormatter,
    matplotlib,
)
from embtrain.report.format import plain
from embtrain.report.load.run import Curve

INK, FAINT, GRID = "#0a1b01", "#0a1b02", "#0a1b03"
SERIES = ("#0a1b11", "#0a1b12", "#0a1b13", "#0a1b14", "#0a1b15", "#0a1b16")
VARIABLE = {INK: "var(--ink)", FAINT: "var(--faint)", GRID: "var(--rule)",
            **{c: f"var(--series-{i})" for i, c in enumerate(SERIES, 1)}}
DASHES = ("-", (0, (8, 1.5)), (0, (1.4, 1.4)), (0, (6, 1.6, 1.4, 1.6)))  # distinguishable in greyscale
MAX_POINTS = 240     # longer curves are averaged in equal parts
MAX_MARKED = 30         # up to this many points, each has a marker
MAX_LABEL = 26       # characters of a label inside a chart
NAMESPACE = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
SETTINGS = {"svg.hashsalt": "embtrain", "svg.fonttype": "none", "text.parse_math": False, "font.size": 10.0,
            "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GRID, "axes.linewidth": 0.8,
            "axes.labelcolor": FAINT, "xtick.color": GRID, "ytick.color": GRID, "xtick.labelcolor": FAINT,
            "ytick.labelcolor": FAINT, "text.color": INK, "grid.color": GRID, "grid.linewidth": 0.6}


@dataclass(frozen=True)
class ChartLine:
    """A curve, reduced to at most MAX_POINTS points."""
    label: str
    x: np.ndarray     # (n,)
    y: np.ndarray     # (n,)
    low: np.ndarray   # (n,) range of the values of a point
    high: np.ndarray  # (n,)
    parts: int        # logged values per point


def line(label: str, curve: Curve, against: str) -> ChartLine | None:
    """A curve against `step`, `epoch` or `cpu`, averaged to at most MAX_POINTS; None if nothing can be drawn."""
    x, y = np.asarray(getattr(curve, against)), np.asarray(curve.value)
    is_finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[is_finite], y[is_finite]
    if not len(x):
        return None
    parts = -(-len(x) // MAX_POINTS)
    start = np.arange(0, len(x), parts)
    size = np.diff(np.append(start, len(x)))
    return ChartLine(label, np.add.reduceat(x, start) / size, np.add.reduceat(y, start) / size,
                     np.minimum.reduceat(y, start), np.maximum.reduceat(y, start), parts)


def lines(key: str, about: str, drawn: Sequence[ChartLine], x_label: str, width: float = 380,
          height: float = 230) -> str:
    """One panel with every line. key: prefix of its ids; about: text for screen readers."""
    with settings():
        figure, axes = panel(width, height)
        for i, each in enumerate(drawn):
            colour, dash = SERIES[i % len(SERIES)], DASHES[i % len(DASHES)]
            if each.parts > 1:
                axes.fill_between(each.x, each.low, each.high, color=colour, alpha=0.14, linewidth=0)
            axes.plot(each.x, each.y, color=colour, linestyle=dash, linewidth=1.6, label=chart_label(each.label),
                      marker="o" if len(each.x) <= MAX_MARKED else "", markersize=3.2)
        axes.grid(axis="y")
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(short))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        if len(drawn) > 1:
            axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2,
                        ncols=min(3, len(drawn)), handlelength=2.4, columnspacing=1.4, labelcolor=INK)
        return inline(figure, key, about)


def whiskers(key: str, about: str, rows: Sequence[Score], width: float = 320) -> str:
    """One dot per row at its value, with its interval; rows of one metric share the axis."""
    with settings():
        figure, axes = panel(width, 46 + 24 * len(rows))
        for i, row in enumerate(rows):
            assert row.value is not None
            low, high = (row.value if x is None else x for x in (row.low, row.high))
            axes.plot([low, high], [i, i], color=SERIES[0], linewidth=1.8, solid_capstyle="butt")
            axes.plot([row.value], [i], color=SERIES[0], marker="o", markersize=5.5, linestyle="")
        label_rows(axes, [row.benchmark for row in rows])
        if axes.get_xlim()[0] <= 0 <= axes.get_xlim()[1]:
            axes.axvline(0, color=FAINT, linewidth=0.9)
        return inline(figure, key, about)


def label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label rows 0, 1, … from the top, over a linear axis."""
    axes.set_yticks(range(len(labels)), [chart_label(label) for label in labels], color=INK)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))


def settings() -> AbstractContextManager[None]:
    """Context with matplotlib's defaults and ours, independent of the user's matplotlibrc."""
    defaults: Any = {k: v for k, v in matplotlib.rcParamsDefault.items() if k.split(".")[0] in
           ("axes", "figure", "font", "grid", "legend", "lines", "patch", "path", "svg", "text", "xtick", "ytick")}
    return matplotlib.rc_context(defaults | SETTINGS)


def panel(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
    axes = figure.add_subplot()
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    axes.tick_params(length=3)
    return figure, axes


def chart_label(text: str) -> str:
    """A label with printable letters of known width, shortened if necessary."""
    text = "".join(c if c.isprintable() and _measurable(c) else "\ufffd" for c in text)
    return text if len(text) <= MAX_LABEL else f"{text[:MAX_LABEL - 9]}…{text[-8:]}"


def _measurable(character: str) -> bool:
    """Whether it is Latin, Greek or Cyrillic: scripts that matplotlib's bundled font covers."""
    return ord(character) < 0x250 or "\u0370" <= character <= "\u03ff" or "\u0400" <= character <= "\u045f"


def short(x: float, _: int | None = None) -> str:
    """120,000 as 120k: axis labels have room for few digits."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:.4g}{unit}"
    return f"{x:.4g}"


def inline(figure: Figure, key: str, about: str) -> str:
    file = io.BytesIO()
    # Not savefig, which draws twice: a report has dozens of charts.
    FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rsplit("}", 1)[-1] in ("metadata", "style", "title"):
                parent.remove(child)
    used = {m for e in root.iter() for v in e.attrib.values() for m in re.findall(r"^#(.+)$|url\(#(.+?)\)", v)}
    names = {old: f"{key}-{i}" for i, old in enumerate(sorted("".join(m) for m in used))}
    for element in root.iter():
        element.tag = element.tag.removeprefix(NAMESPACE)
        if (target := element.attrib.pop(LINK, None)) is not None:
            element.set("href", target)
        for name, value in list(element.attrib.items()):
            if name == "id":
                if value in names:
                    element.set("id", names[value])
                else:
                    del element.attrib["id"]
            elif "#" in value:
                value = re.sub(r"^#(.+)$|(?<=url\(#)(.+?)(?=\))", lambda m: _renamed(m, names), value)
                element.set(name, re.sub(r"#0a1b[0-9a-f]{2}\b", lambda m: VARIABLE[m[0]], value))
    view = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update({"viewBox": view, "role": "img", "aria-label": plain(about)})
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _renamed(match: re.Match[str], names: dict[str, str]) -> str:
    return f"#{names[match[1]]}" if match[1] is not None else names[match[2]]
