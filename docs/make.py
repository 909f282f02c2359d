"""What the pages show of docs/results: tables and pictures, made from the raw rows and from nothing else.

    python docs/make.py        writes docs/made/

A comparison is scores.csv (a row for each cell and measure), its grid and, of a reproduction, the paper's file; a bench
is its line of JSON. Intervals over seeds are Student's t, differences are paired by seed, p values are Holm's over all
pairs of strategies within one measure of one comparison (embtrain/evaluate/statistics.py).
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import statistics as plain
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chart import Panel, Point, dots, plane

from embtrain import shipped
from embtrain.config import read_yaml
from embtrain.data.recipes import KINDS, load_recipe
from embtrain.evaluate.heldout import LOWER_BETTER
from embtrain.evaluate.statistics import Mean, in_family, paired_t, t_interval
from embtrain.experiment import claims, paper
from embtrain.report.decimals import measure, true_minus

HERE = Path(__file__).resolve().parent
RESULTS, MADE = HERE / "results", HERE / "made"
WANTED = {"test/log_likelihood": "likelihood of unseen pairs", "test/mrr": "rank of the right word",
          "wordsim353/spearman": "word relatedness (WordSim353)", "simlex999/spearman": "word similarity (SimLex-999)",
          "men/spearman": "word relatedness (MEN)", "rareword/spearman": "rare words (Rare Word)"}
CPU = "training/cpu_seconds"
SETUP = ("corpus", "embtrain", "engine", "threads", "core", "python", "torch", "gensim")
LEVEL = .05


class Comparison(NamedTuple):
    name: str
    grid: Mapping[str, Any]
    labels: list[str]
    values: Mapping[str, Mapping[str, Mapping[int, float]]]  # metric -> label -> seed -> value
    setup: Mapping[str, str]                                 # of the report: versions and machine
    paper: paper.Paper | None


def comparisons() -> list[Comparison]:
    return [comparison(path.parent) for path in sorted(RESULTS.glob("*/scores.csv"))]


def comparison(folder: Path) -> Comparison:
    values: dict[str, dict[str, dict[int, float]]] = {}
    labels: list[str] = []
    with open(folder / "scores.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["strategy"] not in labels:
                labels.append(row["strategy"])
            for metric, value in ((f"{row['benchmark']}/{row['metric']}", row["value"]), (CPU, row["cpu_seconds"])):
                if value:
                    values.setdefault(metric, {}).setdefault(row["strategy"], {})[int(row["seed"])] = float(value)
    told = (folder / "report.md").read_text(encoding="utf-8")
    setup = dict(re.findall(r"^\| (\w+) \| (.*?) \|$", told.rpartition("## ")[2], re.MULTILINE))
    file = folder / "paper.yaml"
    return Comparison(folder.name, read_yaml(folder / "comparison.yaml").tree, labels, values, setup,
                      paper.read(file) if file.exists() else None)


def about() -> Mapping[str, Any]:
    return read_yaml(RESULTS / "about.yaml").tree


# --- words and figures ---------------------------------------------------------------------------------------------

def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def figure(value: float | None, spread: float | None, signed: bool = False) -> str:
    """With two figures of the spread."""
    if value is None:
        return "–"
    decimals = max(0, min(5, 1 - math.floor(math.log10(spread)))) if spread else 3
    return f"{value:{'+' if signed else ''},.{decimals}f}".replace("-", "−")


def over_seeds(of: Mapping[str, Mapping[int, float]], labels: Sequence[str]) -> tuple[dict[str, Mean], float | None]:
    """The mean of each, and the smallest spread between seeds: a column has the decimals of its surest value."""
    means = {label: t_interval(of.get(label, {})) for label in labels}
    return means, min((mean.sd for mean in means.values() if mean.sd), default=None)


def cell(mean: Mean, spread: float | None) -> str:
    if mean.low is None:
        return figure(mean.mean, spread)
    return f"{figure(mean.mean, spread)} [{figure(mean.low, spread)}, {figure(mean.high, spread)}]"


def picture(name: str) -> str:
    return f"```{{raw}} html\n:file: made/{name}.svg\n```\n"


# --- choosing ------------------------------------------------------------------------------------------------------

class Choice(NamedTuple):
    metric: str
    best: str
    good: list[str]             # not separable from the best, itself among them
    worse: list[tuple[str, str]]  # strategy, how much worse


def choose(found: Comparison, metric: str) -> Choice:
    of = found.values[metric]
    higher = metric.partition("/")[2] not in LOWER_BETTER
    means = {label: t_interval(of[label]).mean or 0.0 for label in found.labels}
    best = (max if higher else min)(means, key=lambda label: means[label])
    # Which one is highest is itself seen in these rows: the family is all pairs, not those with the highest.
    pairs = [(a, b) if b == best else (b, a) for a, b in itertools.combinations(found.labels, 2)]
    judged = in_family([paired_t(of[a], of[b], (a, b), metric, higher_better=higher) for a, b in pairs])
    worse = [(d.a, f"{figure(d.mean, d.sd, signed=True)} [{figure(d.low, d.sd, signed=True)}, "
                   f"{figure(d.high, d.sd, signed=True)}]")
             for d in judged if d.b == best and d.p_holm is not None and d.p_holm < LEVEL]
    return Choice(metric, best, [label for label in found.labels if label not in dict(worse)], worse)


def choices() -> Iterator[tuple[Comparison, Choice]]:
    """Of comparisons of shipped strategies over seeds: variants (a reproduction's own runs) and single runs are no
    advice."""
    for found in comparisons():
        if set(found.labels) <= set(shipped.names("configs", "negatives")) and len(found.grid["seeds"]) > 1:
            yield from ((found, choose(found, metric)) for metric in WANTED if metric in found.values)


def made_choose() -> str:
    lines = []
    for found, choice in choices():
        cpu = {label: plain.mean(found.values[CPU][label].values()) for label in found.labels}
        busy = about()["runs"][found.name].get("busy", False)
        cheapest = min(choice.good, key=lambda label: cpu[label])
        take = "CPU seconds tell nothing here" if busy else \
            f"`{cheapest}`" + (f", {cpu[choice.best] / cpu[cheapest]:.1f} times faster"
                               if cheapest != choice.best else "")
        mean = t_interval(found.values[choice.metric][choice.best])
        seeds = len(found.grid["seeds"])
        lines.append([WANTED[choice.metric], f"`{found.grid['corpus']}`, engine {found.setup.get('engine', 'step')}, "
                      f"{seeds} seeds ([rows](#{found.name}))",
                      f"`{choice.best}` {figure(mean.mean, mean.sd)}",
                      ", ".join(f"`{label}`" for label in choice.good if label != choice.best) or "none",
                      take, "; ".join(f"`{label}` {by}" for label, by in choice.worse) or "none"])
    lines.sort(key=lambda line: list(WANTED.values()).index(line[0]))
    return table(["you want", "measured on", "highest mean", "cannot be told from it", "take, as the cheapest of these",
                  "worse, by"], lines)


# --- results -------------------------------------------------------------------------------------------------------

def shown(found: Comparison) -> list[str]:
    """The measures that are tabled: what is asked for above, what decided, what the paper's checks name."""
    own = [found.grid["metric"]]
    own += [row.metric for row in [*found.paper.checks, *found.paper.expected] if row.metric] if found.paper else []
    return [m for m in dict.fromkeys([*own, *WANTED, CPU]) if m in found.values]


def section(found: Comparison) -> str:
    told = about()
    run = told["runs"][found.name]
    title = found.paper.title if found.paper else run["title"]
    command = f"embtrain reproduce {found.name}" if found.paper else \
        f"embtrain compare --config docs/results/{found.name}/comparison.yaml"
    setup = ", ".join(f"{key} {found.setup[key].replace(chr(92), '')}" for key in SETUP if key in found.setup)
    sets = " ".join(f"`{text}`" for text in found.grid["sets"])
    parts = [f"({found.name})=\n## {title}\n\n", f"{run['note']} " if "note" in run else "",
             "Taken beside other work, so that its CPU seconds tell nothing. " if run.get("busy") else "",
             f"{run['date']}; {told['machine']}; {setup}; seeds {', '.join(map(str, found.grid['seeds']))}; {sets}. "
             f"Raw rows: `docs/results/{found.name}/scores.csv`. Again: `{command}`.\n\n",
             f"**Claim.** {found.paper.claim} ({found.paper.citation})\n\n" if found.paper else "",
             picture(found.name), "\nMeans over seeds and their 95 % t intervals:\n\n"]
    columns = [over_seeds(found.values[m], found.labels) for m in shown(found)]
    rows = [[label, *(cell(means[label], spread) for means, spread in columns)] for label in found.labels]
    parts.append(table(["run", *(measure(m) for m in shown(found))], rows))
    if found.paper:
        parts += ["\n", *(f"- {text}\n" for text in verdicts(found.paper, found)), "\n", theirs(found.paper, found),
                  "\nWhat is done otherwise:\n\n",
                  table(["what", "theirs", "ours"], [[p.what, p.theirs, p.ours] for p in found.paper.protocol])]
    else:
        differing = {metric: choose(found, metric) for metric in shown(found) if metric in WANTED}
        parts += ["\n", *(f"- {measure(m)}: highest is {c.best}; worse: "
                          f"{', '.join(f'{label} {by}' for label, by in c.worse) or 'none'}; the others cannot be told "
                          "from it.\n" for m, c in differing.items())]
    return "".join(parts)


def by_loss(found: Comparison, metric: str) -> str:
    """Runs that are called SOURCE+LOSS: a row for each source, a column for each loss that their grid names."""
    means, spread = over_seeds(found.values[metric], found.labels)
    runs = {label: (label.partition("+")[0], found.grid["runs"][label]["loss"] or label.replace("-", "_"))
            for label in found.labels}
    losses = list(dict.fromkeys(loss for _, loss in runs.values()))
    rows = []
    for source in dict.fromkeys(source for source, _ in runs.values()):
        of = {loss: cell(means[label], spread) for label, (name, loss) in runs.items() if name == source}
        rows.append([source, *(of.get(loss, "") for loss in losses)])
    return table([measure(metric), *(f"`{loss}`" for loss in losses)], rows)


def verdicts(of: paper.Paper, found: Comparison) -> list[str]:
    return [true_minus(claims.judge(check, found.values, len(of.checks))["text"]) for check in of.checks]


def theirs(of: paper.Paper, found: Comparison) -> str:
    rows = []
    for expected in of.expected:
        ours = claims.beside(expected, of, found.values)
        spread = None if ours["low"] is None else (ours["high"] - ours["low"]) / 2
        rows.append([expected.what, f"{expected.value:g} ({expected.source})", figure(ours["ours"], spread),
                     "–" if spread is None else f"[{figure(ours['low'], spread)}, {figure(ours['high'], spread)}]",
                     f"{expected.where}; {expected.protocol}"])
    return table(["what", "theirs", "ours", "95 % interval", "where theirs stands, and how it was measured"], rows)


def chart(found: Comparison) -> str:
    panels = []
    for metric in shown(found):
        if metric == CPU and about()["runs"][found.name].get("busy"):
            continue
        means, spread = over_seeds(found.values[metric], found.labels)
        panels.append(Panel(measure(metric), [Point(label, m.mean, m.low, m.high, figure(m.mean, spread))
                                              for label, m in means.items() if m.mean is not None]))
    return dots(f"{found.name}: means over seeds with 95 % t intervals", panels)


# --- beside gensim, and benches ------------------------------------------------------------------------------------

HEADS = {"wordsim353": "WordSim353", "simlex999": "SimLex-999", "men": "MEN", "cpu": "CPU seconds"}


def layouts() -> tuple[list[str], dict[str, tuple[dict[str, Mean], float | None]]]:
    """skipgram-and-gensim.jsonl: the layouts, and of each measure their means over seeds."""
    rows = [json.loads(line) for line in (RESULTS / "skipgram-and-gensim.jsonl").read_text().splitlines()]
    labels = list(dict.fromkeys(row["what"] for row in rows))
    return labels, {key: over_seeds({label: {row["seed"]: row[key] for row in rows if row["what"] == label}
                                     for label in labels}, labels) for key in HEADS}


def made_gensim() -> str:
    labels, of = layouts()
    return table(["layout", *HEADS.values(), "seeds"],
                 [[label, *(cell(means[label], spread) for means, spread in of.values()), str(of["cpu"][0][label].n)]
                  for label in labels])


def gensim_chart() -> str:
    labels, of = layouts()
    return dots("Skip-gram layouts beside gensim: means over seeds with 95 % t intervals", [
        Panel(HEADS[key], [Point(label, m.mean, m.low, m.high, figure(m.mean, spread))
                           for label in labels if (m := means[label]).mean is not None])
        for key, (means, spread) in of.items()])


def made_bench() -> str:
    told, parts = about(), []
    for path in sorted(RESULTS.glob("bench-*.json")):
        of = json.loads(path.read_text(encoding="utf-8"))
        rival = next(iter(of["rivals_cpu"]))
        where = ", ".join(f"{key} {of['about'][key]}" for key in ("processor", "cores", "load", "python", "embtrain")
                          if key in of["about"])
        rows = [[case, f"{plain.median(ours):.3g}", f"{plain.median(of['rivals_cpu'][rival][case]):.3g}",
                 f"{of['ratio_cpu'][case]:.2g}"] for case, ours in of["ours_cpu"].items()]
        parts.append(f"### `{path.stem}`\n\n{told['runs'][path.stem]['date']}; {where}; {of['rounds']} "
                     f"round{'s' * (of['rounds'] > 1)} in turns, medians of CPU seconds ({of['unit']}); "
                     f"`embtrain bench {of['bench']}`.\n\n"
                     + table(["case (t: threads)", "ours", rival, "times faster"], rows))
    return "\n".join(parts)


def speed_of_losses() -> str:
    """bench-nmt.json: pairs of sentences trained on in a second, a panel for each size of the table."""
    of = json.loads((RESULTS / "bench-nmt.json").read_text(encoding="utf-8"))["quality"]
    panels: dict[str, list[Point]] = {}
    for case, both in of.items():
        loss, v, _ = case.rsplit("-", 2)
        points = panels.setdefault(f"{int(v[1:]):,} words: pairs trained on in a CPU second", [])
        for name, speed in ((next(other for other in both if other != "ours"), *list(both.values())[1:]),
                            (loss, both["ours"])):
            if name not in [point.label for point in points]:
                pairs = speed["pairs_per_cpu_second"]
                points.append(Point(name, pairs, None, None, figure(pairs, 10)))
    return dots("Pairs of sentences trained on in a second under each loss", [
        Panel(heading, points) for heading, points in panels.items()])


def word() -> str:
    """translation-word.json: one wrong word of a run's examples.json, in the plane of its vectors."""
    of = json.loads((RESULTS / "translation-word.json").read_text(encoding="utf-8"))
    return plane(f"How negatives are made of the answer to {of['right']}", of["cosine"], (
        f"e: {of['right']}", f"ê, nearest: {of['nearest'][0]}", f"nearest: {of['negative'][0]}"))


def made_absent() -> str:
    there = {found.name for found in comparisons()}
    files = {name: paper.read(paper.path(name)) for name in paper.names() if name not in there}
    rows = [[of.title, f"`embtrain reproduce {name}`", f"at most {of.cpu_seconds / 3600:.1f}"]
            for name, of in files.items()]
    rows += [[row["what"], f"`{row['command'].strip()}`", f"about {row['hours']:g}"] for row in about()["not_run"]]
    return table(["not run", "command", "CPU-hours"], rows)


def made_licences() -> str:
    """Every corpus and benchmark with its licence, and which of the results rest on it."""
    uses: dict[str, list[str]] = {}
    for found in comparisons():
        for source in {str(found.grid["corpus"]), *(metric.partition("/")[0] for metric in found.values)}:
            uses.setdefault(source, []).append(found.name)
    uses.setdefault("english-18m", []).append("skipgram-and-gensim")
    recipes = [load_recipe(kind, name) for kind in KINDS for name in shipped.names(kind)]
    return table(["data", "licence", "from", "results that rest on it"],
                 [[f"`{of.name}`", of.licence, of.homepage or "–", ", ".join(uses.get(of.name, ["–"]))]
                  for of in recipes])


def made() -> dict[str, str]:
    """Name of a file of docs/made -> what it holds."""
    found = comparisons()
    return {"choose.md": made_choose(), "comparisons.md": "\n".join(map(section, found)), "gensim.md": made_gensim(),
            "fb15k-237-losses.md": by_loss(next(one for one in found if one.name == "fb15k-237"), "test/mrr"),
            "bench.md": made_bench(), "absent.md": made_absent(),
            "licences.md": made_licences(), "gensim.svg": gensim_chart(),
            "bench-nmt.svg": speed_of_losses(), "translation-word.svg": word(),
            **{f"{one.name}.svg": chart(one) for one in found}}


if __name__ == "__main__":
    MADE.mkdir(exist_ok=True)
    for old in set(MADE.iterdir()) - {MADE / name for name in made()}:
        old.unlink()
    for name, text in made().items():
        (MADE / name).write_text(text, encoding="utf-8")
