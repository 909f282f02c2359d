"""Compares layouts of draws on several texts, and the vectors of their runs: docs/results/comparisons/order.

A comparison cannot mix both orders of the windows, so a text has two. The mean is over BENCHMARKS. Differences are
paired by seed, with 95 % t intervals. rows/order-vectors.jsonl has ρ of the input table u and of u + v, as they are and
centred, of every run.
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from raw import CPU, ROWS, Comparison, comparisons, table

from embtrain.evaluate.statistics.significance import difference, t_interval

FOLDER = "order"
VECTORS = "order-vectors.jsonl"
BENCHMARKS = {"wordsim353": "WordSim353", "simlex999": "SimLex-999", "men": "MEN", "rareword": "Rare Word"}
KINDS = {("input", False): "u", ("input", True): "u, centred", ("sum", False): "u + v", ("sum", True): "u + v, centred"}

# Pairs of layouts that are compared with each other; every layout is also compared with the first.
PAIRS = (("private-order", "private"), ("block64-order", "block64"), ("block64-order", "private-order"),
         ("block64", "private-r0.05"), ("block64-order", "private-r0.05"), ("block64-order", "private-order-r0.05"),
         ("block64-r0.05", "private-r0.05"), ("block64-order-r0.05", "private-order-r0.05"),
         ("block64-order-r0.05", "block64-r0.05"), ("block64-order-r0.05", "private-r0.05"))
# Comparisons of windows within and across lines: their windows and epochs.
SEQUENCES = {"lines": ("within lines", "3"), "documents": ("across lines", "3"),
             "lines-four-epochs": ("within lines", "4")}
# Runs on the even pairs: comparison, run, settings and epochs. The first is compared with each of the others.
BLOCKS = (("blocks-seven-epochs", "r0.025", "16 draws for 64 windows in order, rate .025", "7"),
          ("blocks-seven-epochs", "r0.035", "the same, rate .035", "7"),
          ("shuffled-three-epochs", "private", "a draw for each pair, rate .05", "3"),
          ("shuffled-three-epochs", "ranking-nce", "ranking NCE, k = 20, shared by windows, rate .05", "3"))
Values = Mapping[int, float]   # by seed


class Text(NamedTuple):
    """The comparisons of the layouts on one text."""

    corpus: str
    found: list[Comparison]

    @property
    def labels(self) -> list[str]:
        return [label for comparison in self.found for label in comparison.labels]

    def values(self, metric: str, label: str) -> Values:
        """Return a metric of a layout."""
        return next(comparison.values[metric][label] for comparison in self.found if label in comparison.labels)

    def means(self, label: str, half: str = "") -> Values:
        """Return the mean over the benchmarks of a layout. half: .odd or .even pairs alone."""
        values = [self.values(f"{name}{half}/spearman", label) for name in BENCHMARKS]
        return {seed: statistics.fmean(of_seed[seed] for of_seed in values) for seed in values[0]}


def texts() -> list[Text]:
    """Return the texts of the comparisons in FOLDER."""
    by_corpus: dict[str, list[Comparison]] = {}
    for found in comparisons():
        if found.folder.parent.name == FOLDER:
            by_corpus.setdefault(str(found.grid["corpus"]), []).append(found)
    return [Text(corpus, found) for corpus, found in by_corpus.items()]


def layout_table() -> str:
    """Return the means of each layout on each text, and the difference of its mean from the first layout's."""
    rows = []
    for text in texts():
        for label in text.labels:
            values = [_mean(text.values(f"{name}/spearman", label)) for name in BENCHMARKS]
            by = "" if label == text.labels[0] else _interval(text.means(label), text.means(text.labels[0]))
            seconds = statistics.median(text.values(CPU, label).values())
            rows.append([f"`{text.corpus}`", f"`{label}`", *values, _mean(text.means(label)), by, f"{seconds:.0f}"])
    head = ["text", "layout", *BENCHMARKS.values(), "mean", "less that of the text's first row", "CPU seconds"]
    return table(head, rows)


def pair_table() -> str:
    """Return the differences of the means of PAIRS on each text."""
    found = texts()
    return table(["layout", "less", *(f"`{text.corpus}`" for text in found)], [
        [f"`{a}`", f"`{b}`", *(_interval(text.means(a), text.means(b)) if {a, b} <= {*text.labels} else "–"
                               for text in found)] for a, b in PAIRS])


def coverage_table() -> str:
    """Return the pairs of each benchmark that the vocabulary of each text contains."""
    rows = []
    for text in texts():
        with open(text.found[0].folder / "scores.csv", encoding="utf-8", newline="") as file:
            notes = {row["benchmark"]: row["note"] for row in csv.DictReader(file) if row["metric"] == "spearman"}
        rows.append([f"`{text.corpus}`", *(notes[name].partition(" pairs")[0] for name in BENCHMARKS)])
    return table(["text", *BENCHMARKS.values()], rows)


def vector_table() -> str:
    """Return the difference of each kind of vectors from u, for each text and layout."""
    runs: dict[tuple[str, str], dict[tuple[str, bool], dict[int, Mapping[str, Any]]]] = {}
    for line in (ROWS / VECTORS).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        kinds = runs.setdefault((row["text"], row["run"]), {})
        kinds.setdefault((row["vectors"], row["centred"]), {})[row["seed"]] = row
    rows = []
    for (text, run), kinds in runs.items():
        base = {name: _values(kinds["input", False], name) for name in (*BENCHMARKS, "mean")}
        for kind, label in KINDS.items():
            values = {name: _values(kinds[kind], name) for name in base}
            by = {name: "" if label == "u" else _interval(values[name], base[name]) for name in base}
            rows.append([f"`{text}`" if label == "u" else "", f"`{run}`" if label == "u" else "", label,
                         *(by[name] or _mean(base[name]) for name in base)])
    return table(["text", "run", "vectors", *BENCHMARKS.values(), "mean"], rows)


def sequence_table() -> str:
    """Return the means of windows within and across lines, and what they gain on three and four epochs of lines."""
    found = {comparison.name: Text(str(comparison.grid["corpus"]), [comparison]) for comparison in comparisons()
             if comparison.name in SEQUENCES}
    rows = []
    for rate in found["lines"].labels:
        first, last = (found[name].means(rate) for name in ("lines", "lines-four-epochs"))
        for name, (windows, epochs) in SEQUENCES.items():
            text = found[name]
            rows.append([f"`{rate}`", windows, epochs,
                         *(_mean(text.values(f"{benchmark}/spearman", rate)) for benchmark in BENCHMARKS),
                         "" if name == "lines" else _interval(text.means(rate), first),
                         _interval(text.means(rate), last) if name == "documents" else "",
                         f"{statistics.fmean(text.values(CPU, rate).values()):.0f}"])
    return table(["rate", "windows", "epochs", *BENCHMARKS.values(), "mean, less three epochs within lines",
                  "less four", "CPU seconds"], rows)


def blocks_table() -> str:
    """Return the means of BLOCKS on the even pairs, and the difference of the first run's mean from each."""
    found = {comparison.name: Text(str(comparison.grid["corpus"]), [comparison]) for comparison in comparisons()}
    first = found[BLOCKS[0][0]].means(BLOCKS[0][1], ".even")
    rows = []
    for folder, label, settings, epochs in BLOCKS:
        text = found[folder]
        means = text.means(label, ".even")
        rows.append([settings, epochs, *(_mean(text.values(f"{name}.even/spearman", label)) for name in BENCHMARKS),
                     _mean(means), "" if means == first else _interval(first, means),
                     f"{statistics.fmean(text.values(CPU, label).values()):.0f}"])
    return table(["draws", "epochs", *BENCHMARKS.values(), "mean", "first row less it", "CPU seconds"], rows)


def _values(rows: Mapping[int, Mapping[str, Any]], name: str) -> Values:
    return {seed: statistics.fmean(row[key] for key in BENCHMARKS) if name == "mean" else row[name]
            for seed, row in rows.items()}


def _mean(values: Mapping[int, float]) -> str:
    return f"{statistics.fmean(values.values()):.3f}"


def _interval(a: Values, b: Values) -> str:
    """Format the mean of a − b with its t interval, and state if it contains 0."""
    m = t_interval(difference(a, b))
    if m.mean is None or m.low is None or m.high is None:
        return "–" if m.mean is None else f"{m.mean:+.3f}".replace("-", "−")
    text = f"{m.mean:+.3f} [{m.low:.3f}, {m.high:.3f}]".replace("-", "−")
    return text + (", not separable" if m.low <= 0 <= m.high else "")
