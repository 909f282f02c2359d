"""Examples of answers: a few held-out queries with the model's best candidates, or its sentences."""

from __future__ import annotations

from embtrain.report.format import minus, number
from embtrain.report.load.answers import AnsweredQuery, ExampleAnswers
from embtrain.report.load.run import RunRecord
from embtrain.report.render.document import Block, Paragraph, ReportTable

MARK = "✓"
EXCLUDING = ("triples", "pairs")  # tasks whose ranks leave other known positives out


def blocks(run: RunRecord) -> list[Block]:
    if run.answers is None or not run.answers.queries:
        return []
    if run.answers.scores == "none":
        return _sentences(run.answers)
    found, task = run.answers, str((run.identity or {}).get("task", ""))
    is_probability = found.scores == "probability"
    note = (f"Queries of the {_part(found)} data, evenly spaced, with the candidates of the highest score and their "
            f"{'probabilities' if is_probability else 'scores'}. {MARK} marks a correct one. ")
    note += ("Answers known from other data are left out, and so is the name in the query." if task in EXCLUDING else
             "The other correct candidates of a query do not count in a rank.")
    head = [("query", ""), ("best answers", "text"), ("correct, and its rank", "text")]
    return [Paragraph(note, "note"), ReportTable(head, [_row(query, is_probability) for query in found.queries])]


def _sentences(found: ExampleAnswers) -> list[Block]:
    """Sentences with their translation and the reference."""
    note = (f"Sentences of the {_part(found)} data, evenly spaced, with the model's answer. {MARK} marks one that "
            "equals the reference.")
    head = [("sentence", ""), ("answer", "text"), ("reference", "text")]
    return [Paragraph(note, "note"), ReportTable(head, [_row(query, False) for query in found.queries])]


def _part(found: ExampleAnswers) -> str:
    return {"test": "test", "valid": "validation"}.get(found.part, found.part)


def _row(query: AnsweredQuery, is_probability: bool) -> list[str]:
    def score(value: float | None) -> str:
        return "" if value is None else f"\u00a0{value:.2f}" if is_probability else f"\u00a0{minus(number(value))}"
    answers = [f"{f'{MARK} ' * is_positive}{name}{score(value)}" for name, value, is_positive in query.answers]
    positives = [name if rank is None else f"{name}: {rank:,g}" for name, rank in query.positives]
    more = query.n_positives - len(positives)
    return [query.query, "; ".join(answers) or "none",
            "; ".join(positives) + (f"; {more:,} more" if more > 0 else "")]
