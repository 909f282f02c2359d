"""Several seeds' curves as one: the mean over seeds and, as a band, the lowest and the highest of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embtrain.report.charts.svg import Line, line
from embtrain.report.load.run import Curve

MOST = 60  # points of a line; more of them hide each other


@dataclass(frozen=True)
class Band:
    label: str
    place: int         # in the order of strategies: its colour, dash and marker, the same in every figure
    x: np.ndarray      # (n,)
    mean: np.ndarray   # (n,) over seeds
    low: np.ndarray    # (n,) of the lowest seed
    high: np.ndarray   # (n,) of the highest
    seeds: int
    joined: bool       # evaluated at the same steps or epochs; else the seeds are interpolated where all are known


def band(label: str, place: int, curves: Sequence[Curve], against: str) -> Band | None:
    """Against `epoch` or `cpu` seconds; None where nothing can be drawn."""
    drawn = [one for curve in curves if (one := line(label, curve, against))]
    if not drawn:
        return None
    same = any(_alike([one.x for curve in curves if (one := line(label, curve, of))], drawn)
               for of in ("step", "epoch"))
    x, y = _by_place(drawn) if same else _by_interpolation(drawn)
    if not len(x):
        return None
    parts = np.arange(0, len(x), -(-len(x) // MOST))
    size = np.diff(np.append(parts, len(x)))
    x, y = np.add.reduceat(x, parts) / size, np.add.reduceat(y, parts, axis=1) / size
    return Band(label, place, x, y.mean(0), y.min(0), y.max(0), len(drawn), same)


def _alike(places: Sequence[np.ndarray], drawn: Sequence[Line]) -> bool:
    """Whether all curves were evaluated at the same places, of which none is missing in what is drawn."""
    return len(places) == len(drawn) and all(np.array_equal(x, places[0]) for x in places) \
        and all(len(one.x) == len(places[0]) for one in drawn)


def _by_place(drawn: Sequence[Line]) -> tuple[np.ndarray, np.ndarray]:
    """The i-th evaluation of all seeds is one point, at the mean of where they reached it: x (n,), y (seeds, n)."""
    return np.mean([one.x for one in drawn], axis=0), np.array([one.y for one in drawn])


def _by_interpolation(drawn: Sequence[Line]) -> tuple[np.ndarray, np.ndarray]:
    start, end = max(one.x[0] for one in drawn), min(one.x[-1] for one in drawn)
    x = np.unique(np.concatenate([one.x for one in drawn]))
    x = x[(x >= start) & (x <= end)]
    return x, np.array([np.interp(x, one.x, one.y) for one in drawn])


def front(points: Sequence[tuple[float, float]], higher_better: bool) -> list[int]:
    """Of (cost, score): those that no other point beats, being at least as good in both and better in one."""
    sign = 1 if higher_better else -1
    def beaten(i: int) -> bool:
        cost, score = points[i]
        return any(c <= cost and sign * s >= sign * score and (c, s) != (cost, score) for c, s in points)
    return sorted((i for i in range(len(points)) if not beaten(i)), key=lambda i: points[i])
