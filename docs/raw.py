"""The raw rows of docs/results, and how their figures are written.

A comparison is scores.csv (a row for each cell and measure), its grid and, of a reproduction, the paper's file.
Intervals over seeds are Student's t (embtrain/evaluate/statistics/significance.py).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from embtrain.common.config import read_yaml
from embtrain.evaluate.statistics.significance import MeanInterval, t_interval
from embtrain.experiment.paper import spec as paper

RESULTS = Path(__file__).resolve().parent / "results"
CPU = "training/cpu_seconds"


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


def sources(found: Comparison) -> set[str]:
    """The recipes that it rests on: its corpus, or where that is a file, the one it was made of; and what judges it."""
    corpus = about()["runs"][found.name].get("corpus_of", found.grid["corpus"])
    return {str(corpus), *(found.grid.get("benchmarks") or [])}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def figure(value: float | None, spread: float | None, signed: bool = False) -> str:
    """With two figures of the spread."""
    if value is None:
        return "–"
    decimals = max(0, min(5, 1 - math.floor(math.log10(spread)))) if spread else 3
    return f"{value:{'+' if signed else ''},.{decimals}f}".replace("-", "−")


def over_seeds(
    of: Mapping[str, Mapping[int, float]], labels: Sequence[str]
) -> tuple[dict[str, MeanInterval], float | None]:
    """The mean of each, and the smallest spread between seeds: a column has the decimals of its surest value."""
    means = {label: t_interval(of.get(label, {})) for label in labels}
    return means, min((mean.sd for mean in means.values() if mean.sd), default=None)


def cell(mean: MeanInterval, spread: float | None) -> str:
    if mean.low is None:
        return figure(mean.mean, spread)
    return f"{figure(mean.mean, spread)} [{figure(mean.low, spread)}, {figure(mean.high, spread)}]"


def picture(name: str) -> str:
    return f"```{{raw}} html\n:file: generated/{name}.svg\n```\n"
