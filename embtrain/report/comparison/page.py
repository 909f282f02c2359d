"""The report of a comparison: report.html, report.md, report.tex and scores.csv, from its folder alone.

A comparison trains every strategy with every seed. Its folder has the plan (comparison.yaml) and the results
(results.json). A strategy is a negative sampler (source), a loss and their settings; one of them is the baseline that
the others are compared with. A run is one training with one seed. The verdict is three sentences at the top: the
differences from the baseline that are separable from chance, the cost, and the undecided differences. If the plan tunes
settings, each strategy first gets the best of several trials with a separate seed; the section "Tuned settings" lists
them.

One document (render/document.py) is built here, from the sections of differences.py, figures.py, reproduction.py and
rerun.py, with the tables of tables.py and the numbers and metric labels of decimals.py; load/comparison.py reads the
folder. html.py and markdown_latex.py render the document. The same results give the same bytes.

The second argument of `Paragraph` is its kind: "" is plain text, "note" a small explanation, "missing" replaces
absent data. A table's heading is (text, kind): "number" is a column of numbers, "text" one that may wrap, and "" one of
names. A string among the rows of a table is a subheading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embtrain.common.files import write_text
from embtrain.report.comparison import differences, figures, reproduction, rerun
from embtrain.report.comparison.decimals import Decimals, metric_label, true_minus
from embtrain.report.comparison.tables import collapsible_table, level, score_grid, seed_range
from embtrain.report.format import number
from embtrain.report.load import comparison
from embtrain.report.load.comparison import Results
from embtrain.report.load.run import flatten
from embtrain.report.render import html, markdown_latex
from embtrain.report.render.document import (
    Block,
    Collapsible,
    Paragraph,
    ReportDocument,
    ReportSection,
    ReportTable,
    TableRow,
    WordNeighbours,
)

FILES = ("report.html", "report.md", "report.tex", "scores.csv")
SHOWN_CURVES = 2  # blocks of the curves that are not folded: the note, and the primary metric
MAX_COLUMNS = 5  # metrics per table of all seeds
MAX_WORDS = 50   # words whose neighbours are shown


def write(folder: Path) -> list[Path]:
    """Read the comparison and write the four files of its report atomically; returns their paths."""
    folder = Path(folder)
    results = comparison.read(folder)
    report = document(results)
    texts = (html.render(report), markdown_latex.markdown(report), markdown_latex.latex(report),
             markdown_latex.to_csv(results))
    for name, text in zip(FILES, texts, strict=True):
        write_text(folder / name, text)
    return [folder / name for name in FILES]


def document(results: Results) -> ReportDocument:
    """Return the whole report of a comparison; HTML, Markdown and LaTeX are made from it."""
    decimals = Decimals(results)
    curves = figures.curves(results, decimals)
    sections = [ReportSection("scores", "Scores", [*figures.scores(results), *_summary(results, decimals)]),
                ReportSection("differences", "Differences from the baseline", differences.blocks(results, decimals)),
                ReportSection("curves", "Curves", curves[:SHOWN_CURVES]),
                ReportSection("cost", "Score against cost", figures.costs(results, decimals)),
                ReportSection("failed", "Failed or unfinished runs", _failed(results),
                              is_folded=all(cell.finished for cell in results.cells)),
                ReportSection("search", "Tuned settings", _searched(results), is_folded=True),
                ReportSection("equal", "At equal epochs and CPU time", _equal(results, decimals), is_folded=True),
                ReportSection("more", "Further curves", curves[SHOWN_CURVES:], is_folded=True),
                # negatives drawn by the noise distribution and by a learned generator, for sources that have both
                ReportSection("components", "Loss on noise samples and on adversarial samples",
                              figures.components(results), is_folded=True),
                ReportSection("neighbours", "Neighbours", _neighbours(results), is_folded=True),
                ReportSection("seeds", "Results by seed", _seeds(results, decimals), is_folded=True),
                ReportSection("again", "How to reproduce", rerun.blocks(results), is_folded=True)]
    title = ", ".join(results.strategies) or results.name
    if results.reproduction is not None:
        title, blocks = results.reproduction.title, reproduction.blocks(results, results.reproduction, decimals)
        sections.insert(0, ReportSection("reproduction", "Reported and measured", blocks))
    return ReportDocument(title, _about(results), results.verdict, [s for s in sections if s.blocks],
                          "Written by embtrain from the folder of this comparison.",
                          grid=score_grid(results, decimals, figures.drawn_metrics(results)))


def _about(results: Results) -> str:
    """The line under the title: models, corpus, seeds, baseline, metric and name."""
    plan, baseline = results.plan, results.baseline if len(results.strategies) > 1 else None
    seeds = [len({c.seed for c in results.cells_of(name)}) for name in results.strategies]
    facts = [", ".join(_models(plan)),
             f"on {plan['corpus']}" if plan.get("corpus") else "",
             seed_range(seeds), f"baseline {baseline}" if baseline else "",
             f"primary metric {metric_label(str(plan['metric']))}" if plan.get("metric") else "", results.name]
    return " · ".join(text for text in facts if text)


def _models(plan: Mapping[str, Any]) -> list[str]:
    """The models of all runs; runs that are named individually have a model each."""
    models, runs = plan.get("models"), plan.get("runs")
    named_runs = runs.values() if isinstance(runs, dict) else []
    run_models = [str(run.get("model")) for run in named_runs if isinstance(run, dict)]
    grid_models = [str(model) for model in models] if isinstance(models, list) else []
    return list(dict.fromkeys([*(grid_models if plan.get("strategies") or not run_models else []), *run_models]))


# -- tables -----------------------------------------------------------------------------------------------------------

def _summary(results: Results, decimals: Decimals) -> list[Block]:
    if not results.summary:
        return [Paragraph("No run finished, so there are no scores.", "missing")]
    def rows(metric: str) -> list[TableRow]:
        return [metric_label(metric), *([m.strategy, decimals.format(metric, m.mean), decimals.format(metric, m.sd),
                                    decimals.format_interval(metric, m.low, m.high), str(m.n)]
                                   for m in results.means(metric))]
    head = [("strategy", ""), ("mean", "number"), ("sd", "number"),
            (f"{level(results.differences)} % t interval", "number"), ("seeds", "number")]
    note = Paragraph("Mean over seeds at the end of training, standard deviation (sd) between seeds, and Student's t "
                     "interval of the mean. Overlapping intervals do not show that two strategies are equal: seeds are "
                     "paired, and the differences below use the pairs.", "note")
    tables = collapsible_table(head, results.metrics, rows, figures.drawn_metrics(results))
    return [Collapsible("Mean, standard deviation and interval of every metric", [note, *tables])]


def _searched(results: Results) -> list[Block]:
    """The settings that the search chose for each strategy."""
    if not results.searched:
        return []
    metric = metric_label(results.searched[0].metric)
    intro = (f"Chosen for each strategy by {metric}, with the same number of trials for each and a separate seed; the "
             "test split was not used.")
    rows: list[TableRow] = []
    for choice in results.searched:
        chosen = ", ".join(f"{key} = {value}" for key, value in flatten(choice.settings, 1).items())
        rows.append([choice.strategy, chosen, number(choice.value), f"{choice.trials}", f"{choice.failed}",
                     number(choice.cpu_seconds)])
    head = [("strategy", ""), ("chosen", "text"), (metric, "number"), ("trials", "number"),
            ("failed", "number"), ("CPU seconds", "number")]
    return [Paragraph(intro, "note"), ReportTable(head, rows)]


def _equal(results: Results, decimals: Decimals) -> list[Block]:
    """Metrics during training, at equal epochs and at equal CPU time."""
    epochs, cpu = results.equal_epochs, results.equal_cpu
    if not epochs.values and not cpu.values:
        return []
    intro = "Metrics during training, means over seeds: the last evaluation "
    intro += "that all runs reached" if epochs.limit is None else \
        f"within {epochs.limit:g} epoch{'' if epochs.limit == 1 else 's'}, the largest number that all runs completed"
    halves = [("at equal epochs", epochs), *([("at equal CPU time", cpu)] if cpu.values else [])]
    # each half of the table has its own limit, so both are named if both are known
    intro += "" if cpu.limit is None else f", and the values at {number(cpu.limit)} CPU seconds"
    def rows(metric: str) -> list[TableRow]:
        out: list[TableRow] = [metric_label(metric)]
        for strategy in results.strategies:
            cells = [_mean_at(budget.values.get(metric, {}).get(strategy, []), metric, decimals)
                     for _, budget in halves]
            out.append([strategy, *(text for cell in cells for text in cell)])
        return out
    measured_metrics = dict.fromkeys([*epochs.values, *cpu.values])
    metrics = list(dict.fromkeys([*(m for m in results.metrics if m in measured_metrics), *measured_metrics]))
    primary_metric = str(results.plan.get("metric")).partition("/")[2]
    head = [("strategy", ""), *(column for title, _ in halves for column in ((title, "number"), ("seeds", "number")))]
    notes = [Paragraph(_sentence(note), "note") for note in (epochs.note, cpu.note) if note]
    leading = [f"valid/{primary_metric}", f"test/{primary_metric}"]
    return [Paragraph(intro + "."), *collapsible_table(head, metrics, rows, leading), *notes]


def _mean_at(values: list[float | None], metric: str, decimals: Decimals) -> tuple[str, str]:
    """The mean, unless some seeds have no value: then it would not be comparable, and only their count is given."""
    known = [value for value in values if value is not None]
    if not values or len(known) < len(values):
        return "–", f"{len(known)} of {len(values)}" if values else "0"
    return decimals.format(metric, sum(known) / len(known)), str(len(known))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def _seeds(results: Results, decimals: Decimals) -> list[Block]:
    finished = [c for s in results.strategies for c in results.cells_of(s) if c.finished]
    if not finished:
        return []
    keys = list(dict.fromkeys([*results.metrics, *(f"{r.benchmark}/{r.metric}" for c in finished for r in c.scores)]))
    values = {c.name: {f"{r.benchmark}/{r.metric}": r.value for r in c.scores} for c in finished}
    scored = set[str]().union(*values.values())
    keys = [key for key in keys if key in scored]
    out: list[Block] = [Paragraph(
        "One row per run; scores.csv contains all values, with the interval of each run over items.", "note")]
    n_tables = max(1, math.ceil(len(keys) / MAX_COLUMNS))
    width = max(1, math.ceil(len(keys) / n_tables))         # columns are spread evenly over the tables
    for start in range(0, max(1, len(keys)), width):
        part = keys[start:start + width]
        rows: list[TableRow] = []
        for cell in finished:
            cpu = [] if start else [number(cell.cpu_seconds).replace("-", "–")]
            row = values[cell.name]
            rows.append([cell.strategy, str(cell.seed), *cpu,
                         *(decimals.format(key, row.get(key), extra=1) for key in part)])
        out.append(ReportTable([("strategy", ""), ("seed", "number"), *([] if start else [("CPU seconds", "number")]),
                                *((metric_label(key), "number") for key in part)], rows))
    return out


def _failed(results: Results) -> list[Block]:
    """The runs without scores, and the notes of the comparison, except those on a failed run: the table has its error.
    """
    failed = [c for c in results.cells if not c.finished]
    notes: list[Block] = [Paragraph(_sentence(note), "note") for note in results.notes
                          if not any(note.startswith(f"{c.name}:") for c in failed)]
    n = len(results.cells)
    if not failed:
        return [Paragraph(f"None: {'the only run' if n == 1 else f'all {n} runs'} finished."), *notes] if notes else []
    rows = [[c.name, str(c.seed), c.status if c.code is None else f"{c.status}, code {c.code}",
             c.error or "no error was recorded; repeat the command to resume"] for c in failed]
    subject = "The only run" if n == 1 else f"{len(failed)} of {n} runs"
    verbs = "has no scores and is" if len(failed) == 1 else "have no scores and are"
    return [Paragraph(f"{subject} {verbs} not in the tables above.", "note"),
            ReportTable([("run", ""), ("seed", "number"), ("status", ""), ("error", "text")], rows), *notes]


# -- neighbours -------------------------------------------------------------------------------------------------------

def _neighbours(results: Results) -> list[Block]:
    runs_by_strategy = [(s, [c.run.neighbours for c in results.cells_of(s) if c.run and c.run.neighbours])
                        for s in results.strategies]
    known = [(strategy, runs[0]) for strategy, runs in runs_by_strategy if runs]
    if not known:
        return []
    words = list(dict.fromkeys(w for _, n in known for w in [*n.near, *n.far]))[:MAX_WORDS]
    intro = ("Nearest words 1–5 (near) and 45–50 (far) by cosine, of each strategy's first seed. Far neighbours should "
             "still be related to the word. If so, their mean frequency rank is low, since unrelated ones are often "
             "rare, and their mean PMI with the word is high. PMI is the log, in nats, of how many times more often "
             "two words occur together than by chance.")
    out: list[Block] = [Paragraph(intro, "note")]
    if any(n.far_rank is not None or n.far_pmi is not None for _, n in known):
        rows = [[s, number(n.far_rank), "–" if n.far_pmi is None else true_minus(f"{n.far_pmi:.2f}")] for s, n in known]
        out.append(ReportTable([("neighbours 45–50", ""), ("mean frequency rank", "number"), ("mean PMI", "number")],
                               rows))
    return out + [WordNeighbours(w, [(s, n.near.get(w, []), n.far.get(w, [])) for s, n in known]) for w in words]
