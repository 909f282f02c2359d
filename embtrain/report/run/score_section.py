"""The scores of a run: a table, the meaning of each measure, and dots with intervals."""

from __future__ import annotations

from embtrain.common.types import Score
from embtrain.evaluate.heldout import DESCRIPTIONS
from embtrain.report.charts import svg as charts
from embtrain.report.charts.curves import metric, title
from embtrain.report.format import interval, lead, minus, number
from embtrain.report.load.run import RunRecord
from embtrain.report.render.document import (
    Block,
    Collapsible,
    Figure,
    Paragraph,
    ReportTable,
    RowNote,
    TableRow,
)
from embtrain.report.run.definitions import definitions
from embtrain.report.run.summary import get

SUPPORTING = ("valid", *DESCRIPTIONS)  # not results: used in training, or a diagnosis
MAX_FIGURES = 48     # metrics come from a file and could be many
MAX_DOTS = 40        # benchmarks of a figure


def blocks(run: RunRecord) -> list[Block]:
    if run.scores is None:
        return []
    if not run.scores:
        return [Paragraph("No scores: scores.json is empty.", "missing")]
    share = get(run.config, "evaluate", "interval")
    share = f"{share * 100:g}" if isinstance(share, float) and 0 < share < 1 else "95"
    head = [("measure", ""), ("value", "number"), (f"{share} % interval", "number"), ("n", "number")]
    first, rest, summary = lead(sorted(run.scores, key=_row_order))
    results = [row for row in first if row.benchmark not in SUPPORTING]
    if not results:
        first, results = [], first
    supporting = [row for row in first if row.benchmark in SUPPORTING]
    names = ", ".join(dict.fromkeys(row.benchmark for row in supporting))
    figures = [_dots(i, name, rows, share) for i, (name, rows) in enumerate(_by_metric([*results, *supporting]))]
    return [ReportTable(head, _rows(results)),
            *([Collapsible(f"Also measured: {names}", [ReportTable(head, _rows(supporting))])] if supporting else []),
            *([Collapsible(summary, [ReportTable(head, _rows(rest))])] if rest else []),
            *_definitions([*results, *supporting, *rest]),
            *([Collapsible("Intervals as figures", figures)] if figures else [])]


def _row_order(row: Score) -> int:
    """Test scores first, duration last."""
    return {"test": 0, "training": 2}.get(row.benchmark, 1)


def _rows(scores: list[Score]) -> list[TableRow]:
    """Rows under the name of each benchmark; a note shared by consecutive rows is shown once, below them."""
    out: list[TableRow] = []
    for previous, row, following in zip([None, *scores[:-1]], scores, [*scores[1:], None], strict=True):
        if previous is None or previous.benchmark != row.benchmark:
            out.append(row.benchmark)
        out.append([metric(row.metric), minus(number(row.value)), minus(interval(row)), f"{row.n:,}"])
        if row.note and (following is None or (following.benchmark, following.note) != (row.benchmark, row.note)):
            out.append(RowNote(row.note))
    return out


def _definitions(scores: list[Score]) -> list[Block]:
    terms = definitions(scores)
    table = ReportTable([("term", ""), ("meaning", "text")], [[term, about] for term, about in terms.items()])
    return [Collapsible("Definition of the metrics", [table])] if terms else []


def _by_metric(scores: list[Score]) -> list[tuple[str, list[Score]]]:
    """Group rows by metric, because only these can share an axis. Values without interval are left to the table."""
    out: dict[str, list[Score]] = {}
    for row in scores:
        if row.value is not None and (row.low is not None or row.high is not None):
            out.setdefault(row.metric, []).append(row)
    return list(out.items())[:MAX_FIGURES]


def _dots(i: int, name: str, rows: list[Score], share: str) -> Figure:
    about = f"{title(name)}: " + "; ".join(f"{r.benchmark} {number(r.value)} {interval(r)}" for r in rows)
    return Figure(title(name), f"Dot: value; line: {share} % interval",
                  [charts.whiskers(f"dots{i}", about, rows[:MAX_DOTS])], None, small=True)
