"""The main curves of a run, those shown on demand, and the measures of its source of negatives.

Each figure has a table of a few of its points for formats without drawings.
"""

from __future__ import annotations

import numpy as np

from embtrain.report.charts import svg as charts
from embtrain.report.charts.curves import CurveGroup, grouped
from embtrain.report.format import minus, number
from embtrain.report.load.run import Curve, MetricCurves
from embtrain.report.render.document import Block, Figure, Paragraph, ReportTable

MAX_FIGURES = 48     # small ones of a section; keys come from a file and could be many
N_POINTS = 6         # rows of a figure's table


def curves(metrics: MetricCurves | None) -> list[Block]:
    """The training loss and the main held-out measures against steps."""
    if metrics is None:
        return []
    groups = grouped(metrics.curves)
    main = [*([groups.loss] if groups.loss else []), *groups.heldout]
    return [*_small_figures("main", main),
            *([] if main else [Paragraph("Neither a loss nor a held-out measure was logged.", "missing")])]


def further(metrics: MetricCurves | None) -> list[Block]:
    """The main curves against CPU seconds, the losses by the origin of the negatives, and all other curves."""
    if metrics is None:
        return []
    groups = grouped(metrics.curves)
    main = [*([groups.loss] if groups.loss else []), *groups.heldout]
    out = _small_figures("cpu", main, "cpu")
    if groups.components:
        labels = [label for label, _ in groups.components.curves]
        titled = CurveGroup(groups.components.key, f"Loss on {' and '.join(labels)}", groups.components.curves)
        out += _small_figures("components", [titled])
        out.append(Paragraph("The loss on negatives is the model's cost before the hinge and without the correction "
                             "for q: not the training loss. Higher is harder.", "note"))
    return [*out, *_small_figures("other", groups.other)]


def source(metrics: MetricCurves | None) -> list[Block]:
    """The measures of the source; none of a source that does not learn."""
    return [] if metrics is None else _small_figures("source", grouped(metrics.curves).source)


def _small_figures(key: str, groups: list[CurveGroup], against: str = "step") -> list[Block]:
    """One figure per measure. Formats without drawings get the points once, from the figures against steps."""
    x_label = {"step": "step", "cpu": "CPU seconds"}[against]
    out: list[Block] = []
    for i, group in enumerate(groups[:MAX_FIGURES]):
        drawn = [line for label, curve in group.curves if (line := charts.line(label, curve, against))]
        if drawn:
            about = f"{group.title} against {x_label}. {_ends(group)}"
            svg = charts.lines(f"{key}{i}", about, drawn, x_label, 310, 190)
            parts = max(line.parts for line in drawn)
            band = f". Each point is the mean of {parts} logged values, the band their range" if parts > 1 else ""
            out.append(Figure(group.title, _ends(group) + band, [svg], _points(group) if against == "step" else None,
                              small=True))
        elif against == "step":
            out.append(Paragraph(f"{group.title}: logged, but never as a finite number.", "missing"))
    n_left = len(groups) - MAX_FIGURES
    return [*out, Paragraph(f"{n_left} further metrics are not shown.", "note")] if n_left > 0 else out


def _points(group: CurveGroup) -> ReportTable:
    """A few logged lines of the curves: step, CPU seconds and the value of each curve, from the first to the last."""
    values = [{step: value for step, value in zip(curve.step, curve.value, strict=True) if value == value}
              for _, curve in group.curves]
    cpu = {step: seconds for _, curve in group.curves for step, seconds in zip(curve.step, curve.cpu, strict=True)}
    steps = sorted(set[float]().union(*values))
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(N_POINTS, len(steps))).round().astype(int))
    rows = [[f"{step:,.0f}", minus(number(cpu[step])), *(minus(number(curve.get(step))) for curve in values)]
            for step in (steps[i] for i in chosen)]
    return ReportTable([("step", "number"), ("CPU seconds", "number"),
                        *((label, "number") for label, _ in group.curves)], rows)


def _ends(group: CurveGroup) -> str:
    last_values = [(label, _last(curve)) for label, curve in group.curves]
    if len(last_values) == 1:
        return f"Last: {minus(number(last_values[0][1]))}"
    return "Last: " + ", ".join(f"{label} {minus(number(value))}" for label, value in last_values)


def _last(curve: Curve) -> float | None:
    return next((v for v in reversed(curve.value) if v == v), None)
