"""Tables of many metrics: the leading ones are shown, the others collapsed; and the table for a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from embtrain.evaluate.comparison.results import MetricMean
from embtrain.evaluate.statistics.difference import Difference
from embtrain.report.comparison.decimals import Decimals, metric_label
from embtrain.report.load.comparison import Results
from embtrain.report.render.document import Collapsible, GridCell, ReportTable, ScoreGrid, TableRow

MAX_NAMED = 6     # collapsed metrics that are named in their heading


def collapsible_table(head: Sequence[tuple[str, str]], metrics: Sequence[str], rows: Callable[[str], list[TableRow]],
                  leading_metrics: Sequence[str]) -> list[ReportTable | Collapsible]:
    """A table of the leading metrics, and a collapsed one of all others."""
    def table(table_metrics: Sequence[str]) -> ReportTable:
        return ReportTable(head, [row for metric in table_metrics for row in rows(metric)])
    leading, rest = [m for m in metrics if m in leading_metrics], [m for m in metrics if m not in leading_metrics]
    if not leading:
        return [table(rest)]
    return [table(leading), *([Collapsible(_count(rest), [table(rest)])] if rest else [])]


def score_grid(results: Results, decimals: Decimals, metrics: Sequence[str]) -> ScoreGrid | None:
    """Means over seeds with their intervals, strategy × measure; None without scores.

    metrics: the primary one first; those with a mean are columns. The best of a column has the highest mean, or the
    lowest of a metric where less is better; it need not be separable from the others.
    """
    def by_strategy(metric: str) -> dict[str, MetricMean]:
        return {m.strategy: m for m in results.means(metric) if m.mean is not None and math.isfinite(m.mean)}
    columns = [(metric, means) for metric in metrics if (means := by_strategy(metric))]
    if not columns:
        return None
    has_others = len(results.strategies) > 1
    best = {metric: (max if results.higher_better(metric) else min)(float(m.mean or 0) for m in means.values())
            for metric, means in columns}
    def cell(metric: str, mean: MetricMean | None) -> GridCell:
        if mean is None:
            return GridCell("–", "", False)
        has_interval = mean.low is not None and mean.high is not None
        return GridCell(decimals.format(metric, mean.mean),
                        decimals.format_interval(metric, mean.low, mean.high) if has_interval else "",
                        has_others and mean.mean == best[metric], mean.mean)
    measures = [metric_label(metric) + ("" if results.higher_better(metric) else " (less is better)")
                for metric, _ in columns]
    over = seed_range([m.n for _, means in columns for m in means.values()])
    caption = f"Mean over {over} with its {level(results.differences)} % t interval."
    if has_others:
        caption += " Bold: the best mean of a column, which may not be separable from the others."
    return ScoreGrid(caption, measures, [(name, [cell(metric, means.get(name)) for metric, means in columns])
                                         for name in results.strategies],
                     [not results.higher_better(metric) for metric, _ in columns])


def _count(metrics: Sequence[str]) -> str:
    named = f": {', '.join(map(metric_label, metrics))}" if len(metrics) <= MAX_NAMED else ""
    return f"{len(metrics)} further metric{'s' * (len(metrics) != 1)}{named}"


def seed_range(counts: Collection[int]) -> str:
    """The number of seeds of each mean or strategy: "4 seeds" if all are equal, or "2 to 4 seeds"."""
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low} to {high} seeds" if low < high else f"{low} seed{'s' * (low != 1)}"


def level(differences: Sequence[Difference]) -> str:
    """The level of the intervals, in per cent."""
    return f"{100 * (differences[0].level if differences else 0.95):g}"
