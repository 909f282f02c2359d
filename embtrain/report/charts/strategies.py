"""Charts of a comparison: one colour, dash and marker per strategy, the same in every figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from embtrain.report.charts.quiet import Axes, FuncFormatter, LogLocator, MaxNLocator, NullLocator, ScalarFormatter
from embtrain.report.charts.seed_bands import SeedBand
from embtrain.report.charts.svg import (
    DASHES,
    FAINT,
    INK,
    MAX_MARKED,
    SERIES,
    chart_label,
    inline,
    label_rows,
    panel,
    settings,
    short,
)

CANDIDATES = "candidates"
LOG_RATIO = 5      # largest over smallest x from which the axis is logarithmic
LOG_SCORES = 10    # largest over smallest mean of the strategies from which the axis of scores is
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Mark:
    """One strategy: the value of each seed, their mean with its interval, and the cost of a run."""

    label: str
    place: int
    values: Sequence[float]
    mean: float
    low: float | None = None
    high: float | None = None
    costs: Sequence[float] = ()   # CPU seconds of each seed
    cost: float = 0.0             # their mean


def colour(place: int) -> str:
    return SERIES[place % len(SERIES)]


def banded(key: str, about: str, bands: Sequence[SeedBand], x_label: str, width: float = 380,
           height: float = 230) -> str:
    """Mean lines over bands from the lowest to the highest seed."""
    with settings():
        figure, axes = panel(width, height)
        for band in bands:
            if band.seeds > 1:
                axes.fill_between(band.x, band.low, band.high, color=colour(band.place), alpha=0.16, linewidth=0)
        for band in bands:
            axes.plot(band.x, band.mean, color=colour(band.place), linestyle=DASHES[band.place % len(DASHES)],
                      linewidth=1.6, marker=_marker(band.place) if len(band.x) <= MAX_MARKED else "", markersize=3.6)
        axes.grid(axis="y")
        _scale(axes, x_label, [float(band.x[-1]) for band in bands], min(float(band.x[0]) for band in bands))
        if differ_by_orders([float(band.mean[-1]) for band in bands], min(float(band.low.min()) for band in bands)):
            _log_scores(axes, "y")
        return inline(figure, key, about)


def spread(key: str, about: str, marks: Sequence[Mark], width: float = 320) -> str:
    """A row for each strategy: its seeds as small dots, the mean as a large one, the interval as a line."""
    with settings():
        figure, axes = panel(width, 46 + 24 * len(marks))
        for i, mark in enumerate(marks):
            low, high = (mark.mean if x is None else x for x in (mark.low, mark.high))
            axes.plot([low, high], [i, i], color=colour(mark.place), linewidth=1.8, solid_capstyle="butt")
            axes.plot(mark.values, [i + 0.24] * len(mark.values), color=FAINT, marker="o", markersize=2.6, linestyle="")
            axes.plot([mark.mean], [i], color=colour(mark.place), marker=_marker(mark.place), markersize=5.8,
                      linestyle="")
        label_rows(axes, [mark.label for mark in marks])
        if differ_by_orders([mark.mean for mark in marks], _smallest(marks)):
            _log_scores(axes, "x")
        return inline(figure, key, about)


def against(key: str, about: str, along: Sequence[tuple[float, tuple[float, float, float]]],
            across: Sequence[tuple[int, tuple[float, float, float]]], place: int, x_label: str, width: float = 460,
            height: float = 260) -> str:
    """(mean, low, high) at each x, joined; runs without x are horizontal lines with their intervals as bands."""
    with settings():
        figure, axes = panel(width, height)
        for place_across, (mean, low, high) in across:
            axes.axhspan(low, high, color=colour(place_across), alpha=0.14, linewidth=0)
            axes.axhline(mean, color=colour(place_across), linestyle=DASHES[place_across % len(DASHES)], linewidth=1.6)
        x, means = [x_value for x_value, _ in along], [mean for _, (mean, _, _) in along]
        for x_value, (_, low, high) in along:
            axes.plot([x_value, x_value], [low, high], color=colour(place), linewidth=1.6)
        axes.plot(x, means, color=colour(place), marker=_marker(place), markersize=4.6, linewidth=1.4,
                  linestyle=DASHES[place % len(DASHES)])
        axes.grid(axis="y")
        is_log = min(x) > 0 and max(x) > LOG_RATIO * min(x)
        if is_log:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(x)
        axes.xaxis.set_major_formatter(FuncFormatter(short))
        axes.set_xlabel(f"{chart_label(x_label)}, log scale" if is_log else chart_label(x_label))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        return inline(figure, key, about)


def cost(key: str, about: str, marks: Sequence[Mark], front: Sequence[int], x_label: str = "CPU seconds per run",
         width: float = 310, height: float = 230) -> str:
    """Score against cost: small dots are seeds, large ones means; the front is joined and ringed."""
    with settings():
        figure, axes = panel(width, height)
        axes.plot([marks[i].cost for i in front], [marks[i].mean for i in front], color=FAINT, linewidth=1.1,
                  linestyle=(0, (4, 2)))
        for mark in marks:
            axes.plot(mark.costs, mark.values, color=colour(mark.place), marker=_marker(mark.place), markersize=2.8,
                      linestyle="", alpha=0.55)
        for i in front:
            axes.plot([marks[i].cost], [marks[i].mean], color=INK, marker="o", markersize=12, markerfacecolor="none",
                      markeredgewidth=1.0, linestyle="")
        for mark in marks:
            axes.plot([mark.cost], [mark.mean], color=colour(mark.place), marker=_marker(mark.place), markersize=6.5,
                      linestyle="")
        axes.grid()
        axes.margins(0.12)
        spent = [x for mark in marks for x in mark.costs]
        _scale(axes, x_label, [mark.cost for mark in marks], min(spent))
        if differ_by_orders([mark.mean for mark in marks], _smallest(marks)):
            _log_scores(axes, "y")
        return inline(figure, key, about)


def swatch(place: int) -> str:
    """The line and marker of a strategy, for a legend."""
    dash = DASHES[place % len(DASHES)]
    pattern = "" if isinstance(dash, str) else f' stroke-dasharray="{" ".join(f"{1.6 * x:g}" for x in dash[1])}"'
    paint = f"var(--series-{place % len(SERIES) + 1})"
    line = f'<path d="M0 6H34" stroke="{paint}" stroke-width="1.8"{pattern}></path>'
    shape = {"o": '<circle cx="17" cy="6" r="3.4"></circle>', "s": '<path d="M14 3h6v6h-6z"></path>',
             "^": '<path d="M17 2l4 7h-8z"></path>', "D": '<path d="M17 2l4 4-4 4-4-4z"></path>',
             "v": '<path d="M17 10l4-7h-8z"></path>',
             "P": '<path d="M15.5 2h3v2.5h2.5v3h-2.5v2.5h-3v-2.5h-2.5v-3h2.5z"></path>',
             "X": '<path d="M13 4l2-2 2 2 2-2 2 2-2 2 2 2-2 2-2-2-2 2-2-2 2-2z"></path>'}[_marker(place)]
    return (f'<svg class="swatch" viewBox="0 0 34 12" aria-hidden="true">{line}'
            f'<g fill="{paint}">{shape}</g></svg>')


def differ_by_orders(means: Sequence[float], smallest: float) -> bool:
    """Whether the axis of scores is logarithmic. means: one per strategy; smallest: of all values that are drawn."""
    return smallest > 0 and max(means) >= LOG_SCORES * min(means)


def _smallest(marks: Sequence[Mark]) -> float:
    return min(value for mark in marks for value in (*mark.values, mark.mean, mark.low, mark.high)
               if value is not None)


def _log_scores(axes: Axes, name: Literal["x", "y"]) -> None:
    axis = axes.xaxis if name == "x" else axes.yaxis
    axes.set(**{f"{name}scale": "log", f"{name}label": "log scale"})
    low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
    axis.set_major_locator(LogLocator(numticks=6) if high > 200 * low else LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(short))


def _marker(place: int) -> str:
    return MARKERS[place % len(MARKERS)]


def _scale(axes: Axes, x_label: str, ends: Sequence[float], smallest: float) -> None:
    shortest = smallest if x_label == CANDIDATES else min(ends)
    is_log = ("seconds" in x_label or x_label == CANDIDATES) and smallest > 0 and max(ends) > LOG_RATIO * shortest
    if is_log:
        axes.set_xscale("log")
        is_wide = max(ends) > 200 * smallest  # too many decades for three labels each
        axes.xaxis.set_major_locator(LogLocator(numticks=7) if is_wide else LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(f"{x_label}, log scale" if is_log else x_label)
    axes.xaxis.set_major_formatter(FuncFormatter(short))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
