"""Curves of several seeds as one: the mean over seeds and, as a band, their range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embtrain.report.charts.svg import ChartLine, line
from embtrain.report.load.run import Curve

MAX_POINTS = 60  # points of a line; more would overlap


@dataclass(frozen=True)
class SeedBand:
    """Mean and range over seeds of one curve."""
    label: str
    place: int         # index of the strategy: sets colour, dash and marker in every figure
    x: np.ndarray      # (n,)
    mean: np.ndarray   # (n,) over seeds
    low: np.ndarray    # (n,) lowest seed
    high: np.ndarray   # (n,) highest seed
    seeds: int
    joined: bool       # same steps or epochs; else seeds are interpolated where all are known


def band(label: str, place: int, curves: Sequence[Curve], against: str) -> SeedBand | None:
    """Combine curves against `epoch` or `cpu` seconds; None if nothing can be drawn."""
    drawn = [chart_line for curve in curves if (chart_line := line(label, curve, against))]
    if not drawn:
        return None
    is_same = any(_have_same_positions([chart_line.x for curve in curves if (chart_line := line(label, curve, key))],
                                       drawn)
                  for key in ("step", "epoch"))
    x, y = _by_place(drawn) if is_same else _by_interpolation(drawn)
    if not len(x):
        return None
    parts = np.arange(0, len(x), -(-len(x) // MAX_POINTS))
    size = np.diff(np.append(parts, len(x)))
    x, y = np.add.reduceat(x, parts) / size, np.add.reduceat(y, parts, axis=1) / size
    return SeedBand(label, place, x, y.mean(0), y.min(0), y.max(0), len(drawn), is_same)


def _have_same_positions(places: Sequence[np.ndarray], drawn: Sequence[ChartLine]) -> bool:
    """Whether all curves were evaluated at the same positions, none missing in the drawn lines."""
    return len(places) == len(drawn) and all(np.array_equal(x, places[0]) for x in places) \
        and all(len(chart_line.x) == len(places[0]) for chart_line in drawn)


def _by_place(drawn: Sequence[ChartLine]) -> tuple[np.ndarray, np.ndarray]:
    """Point i is the i-th evaluation of all seeds, at their mean position: x (n,), y (seeds, n)."""
    return np.mean([chart_line.x for chart_line in drawn], axis=0), np.array([chart_line.y for chart_line in drawn])


def _by_interpolation(drawn: Sequence[ChartLine]) -> tuple[np.ndarray, np.ndarray]:
    start, end = max(chart_line.x[0] for chart_line in drawn), min(chart_line.x[-1] for chart_line in drawn)
    x = np.unique(np.concatenate([chart_line.x for chart_line in drawn]))
    x = x[(x >= start) & (x <= end)]
    return x, np.array([np.interp(x, chart_line.x, chart_line.y) for chart_line in drawn])


def pareto_front(points: Sequence[tuple[float, float]], higher_better: bool) -> list[int]:
    """Indices of the (cost, score) points that no other point beats: as good in both and better in one."""
    sign = 1 if higher_better else -1
    def is_beaten(i: int) -> bool:
        cost, score = points[i]
        return any(c <= cost and sign * s >= sign * score and (c, s) != (cost, score) for c, s in points)
    return sorted((i for i in range(len(points)) if not is_beaten(i)), key=lambda i: points[i])
