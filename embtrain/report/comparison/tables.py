"""Tables of many metrics: the leading ones are shown, the others collapsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embtrain.evaluate.statistics.difference import Difference
from embtrain.report.comparison.decimals import metric_label
from embtrain.report.render.document import Collapsible, ReportTable, TableRow

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


def _count(metrics: Sequence[str]) -> str:
    named = f": {', '.join(map(metric_label, metrics))}" if len(metrics) <= MAX_NAMED else ""
    return f"{len(metrics)} further metric{'s' * (len(metrics) != 1)}{named}"


def level(differences: Sequence[Difference]) -> str:
    """The level of the intervals, in per cent."""
    return f"{100 * (differences[0].level if differences else 0.95):g}"
