"""The section of a report that compares a paper's numbers with ours."""

from __future__ import annotations

from embtrain.common.terminal import format_count, format_whole
from embtrain.evaluate.comparison.reproduction import SOURCES, ReportedNumber, Reproduction
from embtrain.evaluate.comparison.results import MetricMean
from embtrain.report.charts import strategies
from embtrain.report.comparison.decimals import Decimals, heading, metric_label, true_minus
from embtrain.report.format import number
from embtrain.report.load.comparison import Results
from embtrain.report.render.document import Block, Figure, Items, Paragraph, ReportTable


def blocks(results: Results, reproduction: Reproduction, decimals: Decimals) -> list[Block]:
    rows = [[n.what, f"{number_of(n.theirs)} ({SOURCES[n.source]})", number_of(n.ours), interval(n), str(n.n or "–"),
             n.where, n.protocol] for n in reproduction.expected]
    head = [("what", "text"), ("theirs", "text"), ("ours", "number"), ("95 % interval", "number"), ("seeds", "number"),
            ("source of the reported value", "text"), ("their protocol", "text")]
    spent = "" if reproduction.spent is None else f" These runs took {format_count(reproduction.spent, 'CPU second')}."
    budget = "" if reproduction.budget is None else \
        f" The budget on {reproduction.corpus} is {format_whole(reproduction.budget)}."
    return [Paragraph(reproduction.citation), Paragraph("Conditions of the claim; intervals over seeds:"),
            Items([check.text for check in reproduction.checks]), *([ReportTable(head, rows)] if rows else []),
            Paragraph("Differences from the paper:"),
            ReportTable([("what", "text"), ("theirs", "text"), ("ours", "text")],
                        [[row.what, row.theirs, row.ours] for row in reproduction.protocol]),
            *[Paragraph(f"{note[:1].upper()}{note[1:]}.", "note") for note in reproduction.notes],
            Paragraph(f"{spent}{budget}".strip(), "note"), *_figures(results, reproduction, decimals)]


def number_of(value: float | None) -> str:
    return number(value).replace("-", "−") if value is not None else "–"


def interval(n: ReportedNumber) -> str:
    return "–" if n.low is None or n.high is None else f"[{number_of(n.low)}, {number_of(n.high)}]"


def lines(reproduction: Reproduction) -> list[str]:
    """The same for a terminal."""
    out = [reproduction.title, reproduction.citation, ""]
    for n in reproduction.expected:
        ours = f"{number_of(n.ours)} {interval(n) if n.low is not None else ''}".rstrip()
        out += [f"{n.what}: paper {number_of(n.theirs)} ({SOURCES[n.source]}; {n.where}), ours {ours}"
                + (f" ({n.note})" if n.note else "")]
    out += ["", *(f"- {check.text}" for check in reproduction.checks), "", "Differences from the paper:"]
    out += [f"- {row.what}: paper {row.theirs}; ours {row.ours}" for row in reproduction.protocol]
    return [true_minus(line) for line in [*out, *(f"- {note}" for note in reproduction.notes)]]


def _figures(results: Results, reproduction: Reproduction, decimals: Decimals) -> list[Block]:
    """Each measure of the axis against x; runs without x are horizontal lines."""
    if reproduction.axis is None:
        return []
    x_label, x_by_run = reproduction.axis.name, {label: x for label, x in reproduction.axis.x.items() if x is not None}
    out: list[Block] = []
    for i, metric in enumerate(reproduction.axis.metrics):
        means = {m.strategy: m for m in results.summary if m.metric == metric and m.mean is not None}
        along = [(x_by_run[label], means[label]) for label in sorted(x_by_run, key=x_by_run.__getitem__)
                 if label in means]
        across = [m for label, m in means.items() if label not in x_by_run]
        if not along:
            continue
        places = {label: place for place, label in enumerate(results.strategies)}
        first = places[along[0][1].strategy]
        points, levels = [(x, _ends(m)) for x, m in along], [(places[m.strategy], _ends(m)) for m in across]
        about = f"{metric_label(metric)} against {x_label}"
        drawing = strategies.against(f"axis{i}", about, points, levels, first, x_label)
        rows = [[m.strategy, "–" if x is None else f"{x:g}", decimals.format(metric, m.mean),
                 decimals.format_interval(metric, m.low, m.high)] for x, m in [*along, *((None, m) for m in across)]]
        table = ReportTable([("run", ""), (x_label, "number"), (metric_label(metric), "number"),
                             ("95 % interval", "number")],
                            rows)
        legend = [(f"by {x_label}", first), *((m.strategy, places[m.strategy]) for m in across)]
        out.append(Figure(f"{heading(metric)} against {x_label}", "Mean over seeds with its t interval.", [drawing],
                          table, legend))
    return out


def _ends(m: MetricMean) -> tuple[float, float, float]:
    assert m.mean is not None
    return m.mean, m.mean if m.low is None else m.low, m.mean if m.high is None else m.high
