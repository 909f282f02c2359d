"""The section on differences from the baseline, over seeds and over items."""

from __future__ import annotations

from collections import Counter

from embtrain.evaluate.statistics.difference import A_BEATS_B, B_BEATS_A, Difference
from embtrain.report.comparison.decimals import Decimals, metric_label, p_value, true_minus
from embtrain.report.comparison.tables import collapsible_table, level
from embtrain.report.format import number
from embtrain.report.load.comparison import Results
from embtrain.report.render.document import Block, Collapsible, Items, Paragraph, ReportTable, TableRow

OVER_SEEDS = ("Over seeds: differences of pairs with equal seeds, Student's t. For Holm, the primary metric is one "
              "family and all others are another.")
OVER_ITEMS = ("Over items, whose values are means over seeds: the variation over other word pairs or other text, not "
              "over other seeds. For Holm, each metric is a family.")
BOTH = "g: Hedges' effect size of the paired differences. Smallest separable differences have 80 % power."


def blocks(results: Results, decimals: Decimals) -> list[Block]:
    out: list[Block] = []
    seeds = [d for d in results.differences if d.kind == "seeds"]
    primary = [d for d in seeds if d.metric == results.plan.get("metric")]
    if primary:
        out.append(Items([d.sentence().replace(d.metric, metric_label(d.metric)) for d in primary]))
    if seeds:
        out += [Paragraph(f"{OVER_SEEDS} {BOTH}", "note"), *_difference_tables("seeds", seeds, results, decimals),
                *_notes(seeds)]
    items = [d for d in results.differences if d.kind == "items"]
    if items:
        out.append(Collapsible("Differences over items", [
            Paragraph(f"{OVER_ITEMS} {BOTH}", "note"), *_difference_tables("items", items, results, decimals),
            *_notes(items)]))
    return out


def _difference_tables(kind: str, differences: list[Difference], results: Results, decimals: Decimals
                       ) -> list[ReportTable | Collapsible]:
    by_metric: dict[str, list[Difference]] = {}
    for difference in differences:
        by_metric.setdefault(difference.metric, []).append(difference)

    def rows(metric: str) -> list[TableRow]:
        out: list[TableRow] = [metric_label(metric)]
        for d in by_metric[metric]:
            mean, low, high = (decimals.format_difference(d, x) for x in (d.mean, d.low, d.high))
            out.append([d.a, _verdict(d), mean, "–" if "–" in (low, high) else f"[{low}, {high}]", p_value(d.p),
                        p_value(d.p_holm), _effect(d.effect), f"{d.n:,}"])
        return out
    metrics = [m for m in dict.fromkeys([*results.metrics, *by_metric]) if m in by_metric]
    against = " or ".join(dict.fromkeys(d.b for d in differences))
    head = [(f"against {against}", ""), ("verdict", "text"), ("difference", "number"),
            (f"{level(differences)} % interval", "number"), ("p", "number"), ("p\u00a0Holm", "number"),
            ("g", "number"), (kind, "number")]
    return collapsible_table(head, metrics, rows, [str(results.plan.get("metric"))])


def _verdict(d: Difference) -> str:
    if d.verdict in (A_BEATS_B, B_BEATS_A):
        better, worse = (d.a, d.b) if d.verdict == A_BEATS_B else (d.b, d.a)
        return f"{better} beats {worse}"
    text = d.verdict                 # not separable, or the reason it was not tested
    if d.shortage:
        text += f": {d.shortage}"
    elif d.detectable is not None:
        text += f": {d.n:,} {d.kind} would separate {number(d.detectable)}"
        text += f"; the observed difference takes {d.needed:,}" if d.needed is not None \
            else f"; the observed difference takes more than {d.max_needed:,}"
    return text


def _notes(differences: list[Difference]) -> list[Block]:
    """Notes on differences, each once."""
    metrics_by_note: dict[tuple[str, str], list[str]] = {}
    for d in differences:
        if d.note:
            metrics_by_note.setdefault((d.a, d.note), []).append(metric_label(d.metric))
    n_differences = Counter(d.a for d in differences)
    return [Paragraph(f"{a}{'' if len(metrics) == n_differences[a] else ' on ' + ', '.join(metrics)}: {note}.", "note")
            for (a, note), metrics in metrics_by_note.items()]


def _effect(g: float | None) -> str:
    return "–" if g is None else "0" if g == 0 else true_minus(f"{g:+.2f}")
