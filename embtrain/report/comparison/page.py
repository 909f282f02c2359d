"""The report of a comparison: report.html, report.md, report.tex and scores.csv, from its folder alone.

One document of plain words, numbers and drawings (document.py) is made here and in figures.py; hypertext.py and
exports.py write it down. The same results give the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from embtrain.common.files import write_text
from embtrain.evaluate.statistics.difference import A_BEATS_B, B_BEATS_A, MAX_NEEDED, Difference
from embtrain.report.comparison import figures, reproduction, rerun
from embtrain.report.comparison.decimals import Decimals, measure, p_value, true_minus
from embtrain.report.format import number
from embtrain.report.load import comparison
from embtrain.report.load.comparison import Results
from embtrain.report.render import html, markdown_latex
from embtrain.report.render.document import Block, Document, Folded, Items, Nearest, Score, Section, Table, Words

COLUMNS = 5        # metrics side by side in the table of all seeds
MOST_WORDS = 50    # whose neighbours are shown
MOST_NAMED = 6     # metrics that are named where they are folded away
OVER_SEEDS = ("Over seeds: differences of pairs that share a seed, Student's t. For Holm, the metric that decides is "
              "one family and all others are another.")
OVER_ITEMS = ("Over items, whose values are means over seeds: what other word pairs or other text might have given. It "
              "says nothing of other seeds. For Holm, each metric is a family.")
BOTH = "g: Hedges' effect size of the paired differences. What so many would separate is meant with 80 % power."


def write(folder: Path) -> list[Path]:
    """Read results.json and the cells' folders, and write the report's four files, each whole. Returns their paths."""
    folder = Path(folder)
    found = comparison.read(folder)
    told = document(found)
    files = {"report.html": html.render(told), "report.md": markdown_latex.markdown(told),
             "report.tex": markdown_latex.latex(told), "scores.csv": markdown_latex.csv_of(found)}
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def document(found: Results) -> Document:
    decimals = Decimals(found)
    sections = [*([Section("search", "Settings that were chosen", _searched(found))] if found.searched else []),
                Section("scores", "Scores", [*figures.scores(found), *_summary(found, decimals)]),
                Section("differences", "Differences to the baseline", _differences(found, decimals)),
                Section("equal", "At equal epochs and CPU time", _equal(found, decimals)),
                Section("curves", "Curves", figures.curves(found, decimals)),
                Section("cost", "Score against cost", figures.costs(found, decimals)),
                Section("components", "NCE against adversarial samples", figures.components(found)),
                *([Section("neighbours", "Neighbours", _neighbours(found))] if _asked_for_neighbours(found) else []),
                Section("seeds", "Every seed", _seeds(found, decimals)),
                Section("failed", "Cells that failed", _failed(found)),
                Section("again", "Run it again", rerun.blocks(found))]
    title = ", ".join(found.strategies) or found.name
    if found.claim is not None:
        title = found.claim.title
        beside = reproduction.blocks(found, found.claim, decimals)
        sections.insert(0, Section("reproduction", "Theirs and ours", beside))
    return Document(title, _about(found), found.verdict, sections,
                    "Written by embtrain from this comparison's folder alone.")


def _about(found: Results) -> str:
    plan, seeds = found.plan, sorted({c.seed for c in found.cells})
    said = [", ".join(_models(plan)),
            f"on {plan['corpus']}" if plan.get("corpus") else "",
            f"{len(seeds)} seed{'s' * (len(seeds) != 1)}", f"baseline {found.baseline}" if found.baseline else "",
            f"decided by {measure(str(plan['metric']))}" if plan.get("metric") else "", found.name]
    return " · ".join(text for text in said if text)


def _models(plan: Mapping[str, Any]) -> list[str]:
    """The models of all runs; those that are named one by one have each their own."""
    models, runs = plan.get("models"), plan.get("runs")
    kinds = runs.values() if isinstance(runs, dict) else []
    of_runs = [str(kind.get("model")) for kind in kinds if isinstance(kind, dict)]
    of_grid = [str(model) for model in models] if isinstance(models, list) else []
    return list(dict.fromkeys([*(of_grid if plan.get("strategies") or not of_runs else []), *of_runs]))


# -- tables -----------------------------------------------------------------------------------------------------------

def _summary(found: Results, decimals: Decimals) -> list[Block]:
    if not found.summary:
        return [Words("No cell finished, so there are no scores.", "missing")]
    level = _level(found.differences)
    def rows(metric: str) -> list[Score]:
        return [measure(metric), *([m.strategy, decimals.of(metric, m.mean), decimals.of(metric, m.sd),
                                    decimals.pair(metric, m.low, m.high), str(m.n)]
                                   for m in found.means(metric))]
    head = [("strategy", ""), ("mean", "number"), ("sd", "number"), (f"{level} % t interval", "number"),
            ("seeds", "number")]
    return [Words("Mean over seeds at the end of training, standard deviation (sd) between seeds, and Student's t "
                  "interval of the mean. Intervals that overlap do not show that two strategies are alike: seeds are "
                  "paired, and the differences below use that.", "note"),
            *_parted(head, found.metrics, rows, figures.drawn_metrics(found))]


def _parted(head: Sequence[tuple[str, str]], metrics: Sequence[str], rows: Callable[[str], list[Score]],
            first: Sequence[str]) -> list[Table | Folded]:
    """A table of the metrics that lead, and one of all others, on demand."""
    def table(some: Sequence[str]) -> Table:
        return Table(head, [row for metric in some for row in rows(metric)])
    led, rest = [m for m in metrics if m in first], [m for m in metrics if m not in first]
    if not led:
        return [table(rest)]
    return [table(led), *([Folded(_count(rest), [table(rest)])] if rest else [])]


def _count(metrics: Sequence[str]) -> str:
    named = f": {', '.join(map(measure, metrics))}" if len(metrics) <= MOST_NAMED else ""
    return f"{len(metrics)} further measure{'s' * (len(metrics) != 1)}{named}"


def _searched(found: Results) -> list[Block]:
    said = (f"Chosen for each strategy by {measure(found.searched[0].metric)}, by as many trials for each and with a "
            "seed of their own; test was not looked at.")
    rows: list[Score] = [[one.strategy, ", ".join(f"{key} = {value}" for key, value in one.settings.items()),
                        number(one.value), f"{one.trials}", f"{one.failed}", number(one.cpu_seconds)]
                       for one in found.searched]
    head = [("strategy", ""), ("chosen", "text"), (measure(found.searched[0].metric), "number"), ("trials", "number"),
            ("failed", "number"), ("CPU seconds", "number")]
    return [Words(said, "note"), Table(head, rows)]


def _differences(found: Results, decimals: Decimals) -> list[Block]:
    out: list[Block] = []
    seeds = [d for d in found.differences if d.kind == "seeds"]
    if not seeds:
        out.append(Words("No differences over seeds: that takes a baseline and another strategy.", "missing"))
    decisive = [d for d in seeds if d.metric == found.plan.get("metric")]
    if decisive:
        out.append(Items([d.sentence().replace(d.metric, measure(d.metric)) for d in decisive]))
    for kind, chosen, said in (("seeds", seeds, OVER_SEEDS),
                               ("items", [d for d in found.differences if d.kind == "items"], OVER_ITEMS)):
        if chosen:
            out += [Words(f"{said} {BOTH}", "note"), *_difference_tables(kind, chosen, found, decimals),
                    *_notes(chosen)]
    return out


def _difference_tables(kind: str, chosen: list[Difference], found: Results, decimals: Decimals
                       ) -> list[Table | Folded]:
    of_metric: dict[str, list[Difference]] = {}
    for difference in chosen:
        of_metric.setdefault(difference.metric, []).append(difference)

    def rows(metric: str) -> list[Score]:
        out: list[Score] = [measure(metric)]
        for d in of_metric[metric]:
            mean, low, high = (decimals.difference(d, x) for x in (d.mean, d.low, d.high))
            out.append([d.a, _verdict(d), mean, "–" if "–" in (low, high) else f"[{low}, {high}]", p_value(d.p),
                        p_value(d.p_holm), _effect(d.effect), f"{d.n:,}"])
        return out
    metrics = [m for m in dict.fromkeys([*found.metrics, *of_metric]) if m in of_metric]
    against = " or ".join(dict.fromkeys(d.b for d in chosen))
    head = [(f"against {against}", ""), ("verdict", "text"), ("difference", "number"),
            (f"{_level(chosen)} % interval", "number"), ("p", "number"), ("p\u00a0Holm", "number"),
            ("g", "number"), (kind, "number")]
    return _parted(head, metrics, rows, [str(found.plan.get("metric"))])


def _verdict(d: Difference) -> str:
    if d.verdict in (A_BEATS_B, B_BEATS_A):
        better, worse = (d.a, d.b) if d.verdict == A_BEATS_B else (d.b, d.a)
        return f"{better} beats {worse}"
    said = d.verdict                 # not separable, or why it was not tested
    if d.detectable is not None:
        said += f": {d.n:,} {d.kind} would separate {number(d.detectable)}"
        said += f"; the difference seen takes {d.needed:,}" if d.needed is not None \
            else f"; the difference seen takes more than {MAX_NEEDED[d.kind]:,}"
    return said


def _notes(chosen: list[Difference]) -> list[Block]:
    """What is to be known of some differences, each once."""
    said: dict[tuple[str, str], list[str]] = {}
    for d in chosen:
        if d.note:
            said.setdefault((d.a, d.note), []).append(measure(d.metric))
    of = Counter(d.a for d in chosen)
    return [Words(f"{a}{'' if len(where) == of[a] else ' on ' + ', '.join(where)}: {note}.", "note")
            for (a, note), where in said.items()]


def _effect(g: float | None) -> str:
    return "–" if g is None else "0" if g == 0 else true_minus(f"{g:+.2f}")


def _equal(found: Results, decimals: Decimals) -> list[Block]:
    epochs, cpu = found.equal_epochs, found.equal_cpu
    if not epochs.values and not cpu.values:
        return [Words("No run was evaluated during training.", "missing")]
    within = [] if epochs.spent is None else [f"{epochs.spent:g} epochs, the most that all runs did"]
    within += [] if cpu.spent is None else [f"{number(cpu.spent)} CPU seconds, what a run of the cheapest takes"]
    said = "Measures during training, means over seeds: the last evaluation"
    said += f" within {', and within '.join(within)}" if within else " that all runs had"
    def rows(metric: str) -> list[Score]:
        out: list[Score] = [measure(metric)]
        for strategy in found.strategies:
            cells = [_mean_at(of.values.get(metric, {}).get(strategy, []), metric, decimals) for of in (epochs, cpu)]
            out.append([strategy, *(text for cell in cells for text in cell)])
        return out
    known = dict.fromkeys([*epochs.values, *cpu.values])
    metrics = list(dict.fromkeys([*(m for m in found.metrics if m in known), *known]))
    decisive = str(found.plan.get("metric")).partition("/")[2]
    head = [("strategy", ""), ("at equal epochs", "number"), ("seeds", "number"), ("at equal CPU time", "number"),
            ("seeds", "number")]
    notes = [Words(_sentence(note), "note") for note in (epochs.note, cpu.note) if note]
    return [Words(said + "."), *_parted(head, metrics, rows, [f"valid/{decisive}", f"test/{decisive}"]), *notes]


def _mean_at(values: list[float | None], metric: str, decimals: Decimals) -> tuple[str, str]:
    """A mean over some of the seeds alone would compare them with others: it is said, and not given."""
    there = [value for value in values if value is not None]
    if not values or len(there) < len(values):
        return "–", f"{len(there)} of {len(values)}" if values else "0"
    return decimals.of(metric, sum(there) / len(there)), str(len(there))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def _seeds(found: Results, decimals: Decimals) -> list[Block]:
    done = [c for s in found.strategies for c in found.of(s) if c.finished]
    if not done:
        return [Words("No cell finished.", "missing")]
    keys = list(dict.fromkeys([*found.metrics, *(f"{r.benchmark}/{r.metric}" for c in done for r in c.scores)]))
    values = {c.name: {f"{r.benchmark}/{r.metric}": r.value for r in c.scores} for c in done}
    scored = set[str]().union(*values.values())
    keys = [key for key in keys if key in scored]
    out: list[Words | Table] = [Words("One row a run; scores.csv has every figure of them, with each run's own "
                                      "interval over items.", "note")]
    width = -(-len(keys) // -(-len(keys) // COLUMNS)) if keys else 1  # tables alike in width
    for start in range(0, max(1, len(keys)), width):
        part = keys[start:start + width]
        rows: list[Score] = []
        for cell in done:
            cpu = [] if start else [number(cell.cpu_seconds).replace("-", "–")]
            scores = values[cell.name]
            rows.append([cell.strategy, str(cell.seed), *cpu, *(decimals.of(key, scores.get(key), 1) for key in part)])
        out.append(Table([("strategy", ""), ("seed", "number"), *([] if start else [("CPU seconds", "number")]),
                          *((measure(key), "number") for key in part)], rows))
    return [Folded(f"{len(done)} runs, {len(keys)} measures", out)]


def _failed(found: Results) -> list[Block]:
    lost = [c for c in found.cells if not c.finished]
    notes: list[Block] = [Words(_sentence(note), "note") for note in found.notes
                          if not any(note.startswith(f"{c.name}:") for c in lost)]
    if not lost:
        return [Words(f"None: all {len(found.cells)} cells finished."), *notes]
    rows = [[c.name, str(c.seed), c.status if c.code is None else f"{c.status}, code {c.code}",
             c.error or "no error was written; the same command goes on with it"] for c in lost]
    return [Words(f"{len(lost)} of {len(found.cells)} cells without scores: they are in no table above.", "note"),
            Table([("cell", ""), ("seed", "number"), ("status", ""), ("what it said", "text")], rows), *notes]


# -- neighbours -------------------------------------------------------------------------------------------------------

def _asked_for_neighbours(found: Results) -> bool:
    runs = [cell.run for cell in found.cells if cell.run]
    return not runs or any(run.asks_for_neighbours for run in runs)


def _neighbours(found: Results) -> list[Block]:
    left = [(s, [c.run.neighbours for c in found.of(s) if c.run and c.run.neighbours]) for s in found.strategies]
    known = [(strategy, runs[0]) for strategy, runs in left if runs]
    if not known:
        return [Words("No run left neighbours.", "missing")]
    words = list(dict.fromkeys(w for _, n in known for w in [*n.near, *n.far]))[:MOST_WORDS]
    out: list[Block] = [Words("Nearest words 1–5 and 45–50 by cosine, of each strategy's first seed.", "note")]
    if any(n.far_rank is not None or n.far_pmi is not None for _, n in known):
        rows = [[s, number(n.far_rank), "–" if n.far_pmi is None else true_minus(f"{n.far_pmi:.2f}")] for s, n in known]
        out.append(Table([("neighbours 45–50", ""), ("mean frequency rank", "number"), ("mean PMI", "number")], rows))
    return out + [Nearest(w, [(s, n.near.get(w, []), n.far.get(w, [])) for s, n in known]) for w in words]


def _level(differences: list[Difference]) -> str:
    return f"{100 * (differences[0].level if differences else 0.95):g}"

