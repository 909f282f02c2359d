"""The curves of a run against steps and CPU seconds, and the measures of its source of negatives.

Each figure has a table of a few of its points for formats without drawings.
"""

from __future__ import annotations

import numpy as np

from embtrain.report.charts import svg as charts
from embtrain.report.charts.curves import CurveGroup, grouped
from embtrain.report.format import minus, number
from embtrain.report.load.run import Curve, MetricCurves
from embtrain.report.render.document import Block, Figure, Paragraph, ReportTable, missing_file

MAX_FIGURES = 48     # small ones of a section; keys come from a file and could be many
N_POINTS = 6         # rows of a figure's table


def curves(metrics: MetricCurves | None) -> list[Block]:
    if metrics is None:
        return [missing_file("metrics.jsonl", "No curves")]
    groups = grouped(metrics.curves)
    out: list[Block] = []
    if groups.loss:
        out.append(_figure_by_step_and_cpu("loss", groups.loss, "Mean over the examples of a logged block"))
    for i, group in enumerate(groups.heldout):
        out.append(_figure_by_step_and_cpu(f"heldout{i}", group, "On held-out data"))
    if groups.components:
        caption = ("The model's cost of the negatives, before the hinge and without the correction for q: not the "
                   "training loss. Higher is harder")
        labels = [label for label, _ in groups.components.curves]
        titled = CurveGroup(groups.components.key, f"Loss on {' against '.join(labels)}", groups.components.curves)
        out.append(_figure_by_step_and_cpu("components", titled, caption))
    if not groups.loss:
        out.append(Paragraph("No training loss was logged.", "missing"))
    if not groups.heldout:
        out.append(Paragraph("No held-out measure was logged.", "missing"))
    return [*out, *_small_figures("other", groups.other)]


def source(metrics: MetricCurves | None) -> list[Block]:
    if metrics is None:
        return [missing_file("metrics.jsonl", "No sampler metrics")]
    return _small_figures("source", grouped(metrics.curves).source) or \
        [Paragraph("The source logged nothing, because it does not learn.", "missing")]


def _figure_by_step_and_cpu(key: str, group: CurveGroup, caption: str) -> Block:
    """One measure against steps and, if logged, against CPU seconds."""
    panels = []
    for against, x_label in (("step", "step"), ("cpu", "CPU seconds")):
        drawn = [line for label, curve in group.curves if (line := charts.line(label, curve, against))]
        if drawn:
            about = f"{group.title} against {x_label}. {_ends(group)}"
            panels.append(charts.lines(f"{key}-{against}", about, drawn, x_label))
    if not panels:
        return Paragraph(f"{group.title}: logged, but never as a finite number.", "missing")
    parts = max(line.parts for _, c in group.curves if (line := charts.line("", c, "step")))
    band = f"; each point is the mean of {parts} logged values, the band their range" if parts > 1 else ""
    return Figure(group.title, f"{caption}{band}. {_ends(group)}", panels, _points(group))


def _small_figures(key: str, groups: list[CurveGroup]) -> list[Block]:
    out: list[Block] = []
    for i, group in enumerate(groups[:MAX_FIGURES]):
        drawn = [line for label, curve in group.curves if (line := charts.line(label, curve, "step"))]
        if drawn:
            svg = charts.lines(f"{key}{i}", f"{group.title} against step. {_ends(group)}", drawn, "step", 310, 190)
            out.append(Figure(group.title, _ends(group), [svg], _points(group), small=True))
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
