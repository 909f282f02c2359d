"""Reads the raw rows of docs/results and formats their numbers.

A comparison is scores.csv (a row for each cell and metric), its grid and, for a reproduction, the paper's file.
Intervals over seeds are Student's t (embtrain/evaluate/statistics/significance.py).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from embtrain.common.config import read_yaml, renamed_keys
from embtrain.evaluate.statistics.significance import MeanInterval, t_interval
from embtrain.experiment.paper import spec as paper

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
BENCH, ROWS = RESULTS / "bench", RESULTS / "rows"
CPU = "training/cpu_seconds"


class Comparison(NamedTuple):
    folder: Path
    grid: Mapping[str, Any]
    labels: list[str]                                        # runs with scores
    failed: list[str]                                        # runs without, for example because they diverged
    values: Mapping[str, Mapping[str, Mapping[int, float]]]  # metric -> label -> seed -> value
    setup: Mapping[str, str]                                 # versions and machine, from the report
    paper: paper.Paper | None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def path(self) -> str:
        """The folder, relative to the root of the repository."""
        return self.folder.relative_to(ROOT).as_posix()


@cache
def comparisons() -> list[Comparison]:
    """Return every comparison of docs/results, by name."""
    folders = sorted((path.parent for path in RESULTS.glob("comparisons/*/*/scores.csv")), key=lambda path: path.name)
    return [comparison(folder) for folder in folders]


def comparison(folder: Path) -> Comparison:
    """Read one comparison from its folder."""
    values: dict[str, dict[str, dict[int, float]]] = {}
    labels: list[str] = []
    with open(folder / "scores.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["strategy"] not in labels:
                labels.append(row["strategy"])
            for metric, value in ((f"{row['benchmark']}/{row['metric']}", row["value"]), (CPU, row["cpu_seconds"])):
                if value:
                    values.setdefault(metric, {}).setdefault(row["strategy"], {})[int(row["seed"])] = float(value)
    scored = {label for metric, of_label in values.items() if metric != CPU for label in of_label}
    report = (folder / "report.md").read_text(encoding="utf-8")
    setup = dict(re.findall(r"^\| (\w+) \| (.*?) \|$", report.rpartition("## ")[2], re.MULTILINE))
    if "engine" in setup:
        setup["engine"] = renamed_keys.new_value("train.engine", setup["engine"]) or setup["engine"]
    file = folder / "paper.yaml"
    return Comparison(folder, read_yaml(folder / "comparison.yaml").tree,
                      [label for label in labels if label in scored],
                      [label for label in labels if label not in scored], values, setup,
                      paper.read(file) if file.exists() else None)


@cache
def about() -> Mapping[str, Any]:
    """Return about.yaml: machine, dates, titles and notes that the rows do not contain."""
    return read_yaml(ROWS / "about.yaml").tree


def sources(found: Comparison) -> set[str]:
    """Return the recipes of a comparison: its corpus, or the recipe that a corpus file comes from; its benchmarks."""
    corpus = about()["runs"][found.name].get("corpus_of", found.grid["corpus"])
    benchmarks = found.grid.get("benchmarks") or []
    return {str(corpus), *(re.sub(r"\.(odd|even)$", "", name) for name in benchmarks)}       # halves of a benchmark


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def figure(value: float | None, spread: float | None, signed: bool = False) -> str:
    """Format a number with two significant digits of its spread; – for None."""
    if value is None:
        return "–"
    decimals = max(0, min(5, 1 - math.floor(math.log10(spread)))) if spread else 3
    return f"{value:{'+' if signed else ''},.{decimals}f}".replace("-", "−")


def over_seeds(
    values: Mapping[str, Mapping[int, float]], labels: Sequence[str]
) -> tuple[dict[str, MeanInterval], float | None]:
    """Return the mean of each label and the smallest spread between seeds, which sets the decimals of a column."""
    means = {label: t_interval(values.get(label, {})) for label in labels}
    return means, min((mean.sd for mean in means.values() if mean.sd), default=None)


def cell(mean: MeanInterval, spread: float | None) -> str:
    """Format a mean with its interval."""
    if mean.low is None:
        return figure(mean.mean, spread)
    return f"{figure(mean.mean, spread)} [{figure(mean.low, spread)}, {figure(mean.high, spread)}]"


def picture(found: Comparison) -> str:
    """Return the directive that includes the chart of a comparison, for a page in docs/results."""
    return f"```{{raw}} html\n:file: {found.folder.relative_to(RESULTS).as_posix()}/chart.svg\n```\n"
