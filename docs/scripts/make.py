"""Makes the tables and charts of the pages from the raw rows in docs/results.

    python docs/scripts/make.py        writes docs/results/generated, a chart.svg for each comparison, and
                                     docs/pictures/report.svg

raw.py reads rows and formats numbers; in comparing/ choosing.py compares strategies, adversary.py ACE with fixed noise,
layouts.py layouts of draws and agreement.py the rankings of tasks; benches.py and gensim_quality.py show speed and
quality next to other libraries, licences.py lists data sets, leaderboard.py ranks runs, charts/ draws.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benches import bench_tables, loss_speed_chart
from charts.dots import Panel, Point, dots, plane
from comparing.adversary import adversary_chart, adversary_table
from comparing.agreement import agreement_table, score_tables
from comparing.choosing import METRIC_LABELS, choice_table, choose
from comparing.layouts import blocks_table, coverage_table, layout_table, pair_table, sequence_table, vector_table
from gensim_quality import difference_table, quality_chart, quality_table
from leaderboard import leaderboard
from licences import licence_table
from raw import CPU, RESULTS, ROWS, Comparison, about, cell, comparison, comparisons, figure, over_seeds, picture, table

from embtrain.experiment.paper import claims, spec
from embtrain.report.comparison.decimals import metric_label, true_minus

GENERATED = RESULTS / "generated"
REPORT = RESULTS.parent / "pictures" / "report.svg"  # the chart of the README
REPORT_METRICS = ("test/log_likelihood", "wordsim353/spearman", "men/spearman")
BY_LOSS = ("fb15k-237", "wn18rr")  # comparisons of sources under two losses
SETUP = ("corpus", "embtrain", "engine", "threads", "core", "python", "torch", "gensim")


def shown_metrics(found: Comparison) -> list[str]:
    """Return the metrics that are tabled: the deciding one, those of the paper's checks, METRIC_LABELS and CPU time."""
    own = [found.grid["metric"]]
    own += [row.metric for row in [*found.paper.checks, *found.paper.expected] if row.metric] if found.paper else []
    return [m for m in dict.fromkeys([*own, *METRIC_LABELS, CPU]) if m in found.values]


def section(found: Comparison) -> str:
    """Return the section of one comparison on the page of results."""
    facts = about()
    run = facts["runs"][found.name]
    machine = run.get("machine", facts["machine"])
    title = found.paper.title if found.paper else run["title"]
    command = reproduce_command(found.paper, found) if found.paper else \
        f"embtrain compare --config {found.path}/comparison.yaml"
    setup = ", ".join(f"{key} {found.setup[key].replace(chr(92), '')}" for key in SETUP if key in found.setup)
    sets = " ".join(f"`{text}`" for text in found.grid["sets"])
    parts = [f"({found.name})=\n## {title}\n\n", f"{run['note']} " if "note" in run else "",
             "The machine was busy, so its CPU seconds are not comparable. " if run.get("busy") else "",
             f"{run['date']}; {machine}; {setup}; seeds {', '.join(map(str, found.grid['seeds']))}; {sets}. "
             f"Raw rows: `{found.path}/scores.csv`. To repeat it: `{command}`.\n\n",
             f"Runs without a result: {', '.join(found.failed)}.\n\n" if found.failed else "",
             f"**Claim.** {found.paper.claim} ({found.paper.citation})\n\n" if found.paper else "",
             picture(found), "\nMeans over seeds and their 95 % t intervals:\n\n"]
    columns = [over_seeds(found.values[m], found.labels) for m in shown_metrics(found)]
    rows = [[label, *(cell(means[label], spread) for means, spread in columns)] for label in found.labels]
    parts.append(table(["run", *(metric_label(m) for m in shown_metrics(found))], rows))
    if found.paper:
        parts += ["\n", *(f"- {text}\n" for text in verdicts(found.paper, found)), "\n",
                  reported_table(found.paper, found), "\nDifferences from the paper's protocol:\n\n",
                  table(["setting", "theirs", "ours"], [[p.what, p.theirs, p.ours] for p in found.paper.protocol])]
    else:
        choices = {metric: choose(found, metric) for metric in shown_metrics(found) if metric in METRIC_LABELS}
        parts += ["\n", *(f"- {metric_label(m)}: highest is {c.best}; worse: "
                          f"{', '.join(f'{label} {by}' for label, by in c.worse) or 'none'}; the others are not "
                          "separable from it.\n" for m, c in choices.items())]
    return "".join(parts)


def reproduce_command(paper: spec.Paper, found: Comparison) -> str:
    """Return the command: by the paper's name if the shipped file has the same runs, else by the stored file."""
    shipped = spec.read(spec.path(found.grid["paper"]))
    same = shipped.grid("") == paper.grid("")
    return claims.command(paper, found.grid if same else
                          found.grid | {"paper": f"{found.path}/paper.yaml"})


def by_loss(found: Comparison, metric: str) -> str:
    """Return a table of runs called SOURCE+LOSS: a row for each source, a column for each loss of their grid."""
    means, spread = over_seeds(found.values[metric], found.labels)
    runs = {label: (label.partition("+")[0], found.grid["runs"][label]["loss"] or label.replace("-", "_"))
            for label in found.labels}
    losses = list(dict.fromkeys(loss for _, loss in runs.values()))
    rows = []
    for source in dict.fromkeys(source for source, _ in runs.values()):
        cells = {loss: cell(means[label], spread) for label, (name, loss) in runs.items() if name == source}
        rows.append([source, *(cells.get(loss, "") for loss in losses)])
    return table([metric_label(metric), *(f"`{loss}`" for loss in losses)], rows)


def verdicts(paper: spec.Paper, found: Comparison) -> list[str]:
    """Return one sentence for each check of the paper's claim."""
    return [true_minus(claims.judge(check, found.values, len(paper.checks)).text) for check in paper.checks]


def reported_table(paper: spec.Paper, found: Comparison) -> str:
    """Return the paper's numbers next to ours."""
    rows = []
    for expected in paper.expected:
        ours = claims.reported_and_measured(expected, paper, found.values)
        spread = None if ours.low is None else (ours.high - ours.low) / 2
        rows.append([expected.what, f"{expected.value:g} ({expected.source})", figure(ours.ours, spread),
                     "–" if spread is None else f"[{figure(ours.low, spread)}, {figure(ours.high, spread)}]",
                     f"{expected.where}; {expected.protocol}"])
    return table(["number", "theirs", "ours", "95 % interval", "source and protocol of theirs"], rows)


def panels(found: Comparison, metrics: list[str]) -> list[Panel]:
    """Return a panel for each metric: means over seeds with 95 % t intervals."""
    drawn = []
    for metric in metrics:
        means, spread = over_seeds(found.values[metric], found.labels)
        drawn.append(Panel(metric_label(metric), [Point(label, m.mean, m.low, m.high, figure(m.mean, spread))
                                             for label, m in means.items() if m.mean is not None]))
    return drawn


def comparison_chart(found: Comparison) -> str:
    """Draw every shown metric of a comparison; no CPU time if the machine was busy."""
    busy = about()["runs"][found.name].get("busy")
    return dots(f"{found.name}: means over seeds with 95 % t intervals",
                panels(found, [m for m in shown_metrics(found) if m != CPU or not busy]))


def report_chart() -> str:
    """Draw the chart of the README, from the comparison english-18m."""
    return dots("Strategies for skip-gram on 18 million words: means over 5 seeds with 95 % t intervals",
                panels(comparison(RESULTS / "comparisons" / "words" / "english-18m"), list(REPORT_METRICS)))


def translation_example() -> str:
    """Draw translation-word.json: one wrong word of a run's examples.json, in the plane of its vectors."""
    word = json.loads((ROWS / "translation-word.json").read_text(encoding="utf-8"))
    return plane(f"How negatives are synthesized from a prediction of {word['right']}", word["cosine"], (
        f"e: {word['right']}", f"ê, nearest: {word['nearest'][0]}", f"nearest: {word['negative'][0]}"))


def not_run_table() -> str:
    """Return the reproductions and comparisons that have not been run, with their commands and CPU-hours."""
    done = {found.name for found in comparisons()}
    papers = {name: spec.read(spec.path(name)) for name in spec.names() if name not in done}
    rows = [[paper.title, f"`embtrain reproduce {name}`", f"at most {paper.cpu_seconds / 3600:.1f}"]
            for name, paper in papers.items()]
    rows += [[row["what"], f"`{row['command'].strip()}`", f"about {row['hours']:g}"] for row in about()["not_run"]]
    return table(["not run", "command", "CPU-hours"], rows)


def generated() -> dict[str, str]:
    """Return the name of each file of docs/results/generated and its contents."""
    found = comparisons()
    graphs = [entry for entry in found if entry.name in BY_LOSS]
    return {"choose.md": choice_table(), "comparisons.md": "\n".join(map(section, found)),
            "gensim/table.md": quality_table(), "gensim/differences.md": difference_table(),
            "gensim/chart.svg": quality_chart(),
            "gensim/order-layouts.md": layout_table(), "gensim/order-pairs.md": pair_table(),
            "gensim/order-coverage.md": coverage_table(), "gensim/order-vectors.md": vector_table(),
            "gensim/lines.md": sequence_table(), "gensim/blocks.md": blocks_table(),
            **{f"{entry.name}-losses.md": by_loss(entry, "test/mrr") for entry in graphs},
            "ace.md": adversary_table(), "ace.svg": adversary_chart(),
            "like-for-like/scores.md": score_tables(), "like-for-like/agreement.md": agreement_table(),
            "bench.md": bench_tables(),
            "leaderboard.md": leaderboard(), "absent.md": not_run_table(),
            "licences.md": licence_table(),
            "bench-nmt.svg": loss_speed_chart(), "translation-word.svg": translation_example()}


def charts() -> dict[Path, str]:
    """Return the chart of each comparison, by its path."""
    return {found.folder / "chart.svg": comparison_chart(found) for found in comparisons()}


if __name__ == "__main__":
    GENERATED.mkdir(exist_ok=True)
    files = generated()
    for stale in {path for path in GENERATED.rglob("*") if path.is_file()} - {GENERATED / name for name in files}:
        stale.unlink()
    for name, text in files.items():
        (GENERATED / name).parent.mkdir(exist_ok=True)
        (GENERATED / name).write_text(text, encoding="utf-8")
    for path, text in charts().items():
        path.write_text(text, encoding="utf-8")
    REPORT.write_text(report_chart(), encoding="utf-8")
