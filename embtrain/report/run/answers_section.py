"""Examples of answers: a few held-out queries with the model's best candidates and the ranks of the positives."""

from __future__ import annotations

from embtrain.report.format import minus, number
from embtrain.report.load.answers import AnsweredQuery
from embtrain.report.load.run import RunRecord
from embtrain.report.render.document import Block, Paragraph, ReportTable

MARK = "✓"
EXCLUDING = ("triples", "pairs")  # tasks whose ranks leave other known positives out


def blocks(run: RunRecord) -> list[Block]:
    if run.answers is None or not run.answers.queries:
        return []
    found, task = run.answers, str((run.identity or {}).get("task", ""))
    is_probability = found.scores == "probability"
    part = {"test": "test", "valid": "validation"}.get(found.part, found.part)
    note = (f"Queries of the {part} data, evenly spaced, with the candidates of the highest score and their "
            f"{'probabilities' if is_probability else 'scores'}. {MARK} marks a correct one. ")
    note += ("Answers known from other data are left out, and so is the name in the query." if task in EXCLUDING else
             "The other correct candidates of a query do not count in a rank.")
    head = [("query", ""), ("best answers", "text"), ("correct, and its rank", "text")]
    return [Paragraph(note, "note"), ReportTable(head, [_row(query, is_probability) for query in found.queries])]


def _row(query: AnsweredQuery, is_probability: bool) -> list[str]:
    def score(value: float | None) -> str:
        return "" if value is None else f"\u00a0{value:.2f}" if is_probability else f"\u00a0{minus(number(value))}"
    answers = [f"{f'{MARK} ' * is_positive}{name}{score(value)}" for name, value, is_positive in query.answers]
    positives = [f"{name}: {rank:,g}" for name, rank in query.positives]
    more = query.n_positives - len(positives)
    return [query.query, "; ".join(answers) or "none",
            "; ".join(positives) + (f"; {more:,} more" if more > 0 else "")]
