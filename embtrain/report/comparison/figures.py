"""The figures of a comparison, each with a table of its data for formats without drawings."""

from __future__ import annotations

import numpy as np

from embtrain.common.shipped import benchmark_label
from embtrain.report.charts import strategies
from embtrain.report.charts.curves import COMPONENT, MAIN
from embtrain.report.charts.seed_bands import SeedBand, band, pareto_front
from embtrain.report.charts.strategies import Mark
from embtrain.report.comparison.decimals import Decimals, heading, metric_label
from embtrain.report.format import number
from embtrain.report.load.comparison import BARE_SUFFIX, Results
from embtrain.report.render.document import Block, Collapsible, Figure, Paragraph, ReportTable

MAX_CURVES = 12
MAX_FIGURES = 6   # metrics drawn as dots, or against cost
SHOWN_FIGURES = 3  # one row of small figures
N_POINTS = 6         # points of a curve in its table
AXES = (("epoch", "epoch"), ("cpu", "CPU seconds"))
NOISE, GENERATOR = "loss/noise", "loss/generator"
CURVE_NOTE = ("Line: mean over seeds; band: from the lowest to the highest seed. A long curve is averaged over equal "
              "parts.")


def scores(results: Results) -> list[Block]:
    out: list[Block] = []
    for i, metric in enumerate(drawn_metrics(results)):
        marks = _marks(results, metric)
        if marks:
            about = f"{metric_label(metric)}: " + "; ".join(f"{m.label} {number(m.mean)}" for m in marks)
            out.append(Figure(heading(metric), "", [strategies.spread(f"spread{i}", about, marks)], None, small=True))
    return [Paragraph("Large: mean over seeds with its t interval; small: each seed.", "drawn"), *_shown(out)] \
        if out else []


def curves(results: Results, decimals: Decimals) -> list[Block]:
    out: list[Block] = []
    keys = _curve_keys(results)
    for i, key in enumerate(keys[:MAX_CURVES]):
        by_axis = {axis: _bands(results, key, axis) for axis, _ in AXES}
        drawings = [strategies.banded(f"curve{i}-{axis}", f"{metric_label(key)} against {label}", by_axis[axis], label)
                    for axis, label in AXES if by_axis[axis]]
        if not drawings:
            continue
        bands = by_axis["epoch"] or by_axis["cpu"]
        note = "" if all(b.joined for b in bands) else \
            "Seeds evaluated at different steps or epochs are interpolated over their common range."
        legend = [(b.label, b.place) for b in bands]
        out.append(Figure(heading(key), note, drawings, _points(key, by_axis, decimals), legend))
    if len(keys) > MAX_CURVES:
        out.append(Paragraph(f"{len(keys) - MAX_CURVES} further metrics are not shown.", "note"))
    if not out:
        return []
    return [Paragraph(CURVE_NOTE, "drawn"), *out]


def costs(results: Results, decimals: Decimals) -> list[Block]:
    out: list[Block] = []
    for i, metric in enumerate(drawn_metrics(results)):
        marks = [m for m in _marks(results, metric) if m.costs]
        if len(marks) < 2:
            continue
        best = pareto_front([(m.cost, m.mean) for m in marks], results.higher_better(metric))
        names = ", ".join(marks[i].label for i in best)
        rows = [[m.label, number(m.cost), decimals.format(metric, m.mean), "yes" if j in best else "no"]
                for j, m in enumerate(marks)]
        table = ReportTable([("strategy", ""), ("CPU seconds per run", "number"), (metric_label(metric), "number"),
                             ("on the front", "")], rows)
        about = f"{metric_label(metric)} against CPU seconds. " + "; ".join(f"{r[0]}: {r[1]} s, {r[2]}" for r in rows)
        out.append(Figure(heading(metric), f"On the Pareto front: {names}.",
                          [strategies.cost(f"cost{i}", about, marks, best)], table,
                          [(m.label, m.place) for m in marks], small=True))
    if not out:
        return []
    return [Paragraph("For strategies on the Pareto front, no other strategy scores as well for less CPU time. Runs in "
                      "parallel share caches and memory, so seconds depend on this machine and its load.", "note"),
            Paragraph("Large: mean over seeds; small: each seed; ringed: on the front.", "drawn"), *_shown(out)]


def _shown(drawn: list[Block]) -> list[Block]:
    """The first figures, and the others on demand."""
    rest = drawn[SHOWN_FIGURES:]
    return [*drawn[:SHOWN_FIGURES], *([Collapsible(f"{len(rest)} further metrics", rest)] if rest else [])]


def components(results: Results) -> list[Block]:
    """Loss on noise samples and on adversarial samples: both curves of each strategy that draws both."""
    out: list[Block] = []
    for i, strategy in enumerate(results.strategies):
        by_axis: dict[str, list[SeedBand]] = {}
        for axis, _ in AXES:
            pair = [_band(results, strategy, key, COMPONENT[key.split("/")[1]], place, axis)
                    for place, key in enumerate((NOISE, GENERATOR))]
            if all(pair):
                by_axis[axis] = [b for b in pair if b]
        if not by_axis:
            continue
        title = f"{strategy}: loss on noise samples and on adversarial samples against"
        drawings = [strategies.banded(f"component{i}-{axis}", f"{title} {label}", by_axis[axis], label)
                    for axis, label in AXES if axis in by_axis]
        bands = next(iter(by_axis.values()))
        table = ReportTable([("samples", ""), ("first", "number"), ("last", "number")],
                            [[b.label, _plain(b.mean[0]), _plain(b.mean[-1])] for b in bands])
        last = ", ".join(f"{b.label} {_plain(b.mean[-1])}" for b in bands)
        out.append(Figure(strategy, f"Last: {last}.", drawings, table, [(b.label, b.place) for b in bands]))
    if not out:
        return []
    return [Paragraph("The model's cost of the negatives, before the hinge and without the correction for q: not the "
                  "training loss. Higher is harder.", "note"), Paragraph(CURVE_NOTE, "drawn"), *out]


def drawn_metrics(results: Results) -> list[str]:
    """The tested metrics, the primary one first."""
    tested = {d.metric for d in results.differences if d.kind == "seeds"} | {str(results.plan.get("metric"))}
    return [m for m in results.metrics if m in tested or not results.differences][:MAX_FIGURES]


def _marks(results: Results, metric: str) -> list[Mark]:
    out = []
    for m in results.summary:
        if m.metric != metric or m.mean is None:
            continue
        place, finished = results.strategies.index(m.strategy), [c for c in results.cells_of(m.strategy) if c.finished]
        paired = [(c.cpu_seconds, r.value) for c in finished for r in c.scores if f"{r.benchmark}/{r.metric}" == metric
                  and r.value is not None and c.cpu_seconds is not None]
        values = results.values(m.strategy, metric)
        if len(paired) == len(values) and paired:
            spent = [cpu for cpu, _ in paired]
            out.append(Mark(m.strategy, place, values, m.mean, m.low, m.high, spent, sum(spent) / len(spent)))
        else:
            out.append(Mark(m.strategy, place, values, m.mean, m.low, m.high))
    return out


def _curve_keys(results: Results) -> list[str]:
    """Keys evaluated during training: held-out text first, main measures before others."""
    parts = {"valid", "heldout", "test"} | {m.split("/")[0] for m in results.metrics}
    names = results.plan.get("benchmarks")
    parts |= {benchmark_label(name) for name in names if isinstance(name, str)} if isinstance(names, list) else set()
    keys = {key for c in results.cells if c.finished and c.run and c.run.metrics for key in c.run.metrics.curves
            if "/" in key and key.split("/")[0] in parts}
    primary_metric = str(results.plan.get("metric", "")).partition("/")[2]
    def order(key: str) -> tuple[bool, bool, bool, int, str]:
        rest = key.partition("/")[2]
        is_minor = key.split("/")[0] in ("valid", "heldout", "test") and rest not in MAIN
        return rest != primary_metric, key.endswith(BARE_SUFFIX), is_minor, \
            MAIN.index(rest) if rest in MAIN else len(MAIN), key
    return sorted(keys, key=order)


def _bands(results: Results, key: str, axis: str) -> list[SeedBand]:
    bands = [_band(results, s, key, s, place, axis) for place, s in enumerate(results.strategies)]
    return [b for b in bands if b]


def _band(results: Results, strategy: str, key: str, label: str, place: int, axis: str) -> SeedBand | None:
    curves = [c.run.metrics.curves[key] for c in results.cells_of(strategy)
              if c.finished and c.run and c.run.metrics and key in c.run.metrics.curves]
    return band(label, place, curves, axis)


def _points(key: str, by_axis: dict[str, list[SeedBand]], decimals: Decimals) -> ReportTable | None:
    """A few points of each mean curve: the value, and the CPU seconds to reach it."""
    bands = by_axis["epoch"]
    longest = max(bands, key=lambda b: len(b.x), default=None)
    if longest is None:
        return None
    chosen = np.unique(np.linspace(0, len(longest.x) - 1, min(N_POINTS, len(longest.x))).round().astype(int))
    seconds = {b.label: b for b in by_axis["cpu"]}
    rows = []
    for b in bands:
        row = [b.label]
        for x in longest.x[chosen]:
            i = int(np.argmin(np.abs(b.x - x)))
            cpu = seconds.get(b.label)
            spent = f" ({number(float(cpu.x[i]))} s)" if cpu is not None and len(cpu.x) == len(b.x) and b.joined else ""
            row.append(_value(decimals, key, float(b.mean[i])) + spent if abs(b.x[i] - x) < 1e-9 else "–")
        rows.append(row)
    return ReportTable([("strategy", ""), *((f"epoch {x:.3g}", "number") for x in longest.x[chosen])], rows)


def _value(decimals: Decimals, key: str, value: float) -> str:
    """Format a validation measure like the test measure of the same name."""
    return decimals.format(key.replace("valid/", "test/", 1), value)


def _plain(value: float) -> str:
    return number(float(value)).replace("-", "−")

