"""Tables and a chart of rows/skipgram-and-gensim.jsonl: quality of skip-gram layouts compared with gensim."""

from __future__ import annotations

import json
import statistics
from typing import Any

from charts.dots import Panel, Point, dots
from raw import ROWS, cell, figure, over_seeds, table

from embtrain.evaluate.statistics.significance import MeanInterval, difference, t_interval

HEADINGS = {"wordsim353": "WordSim353", "simlex999": "SimLex-999", "men": "MEN", "cpu": "CPU seconds"}
BENCHMARKS = tuple(HEADINGS)[:3]
# Pairs of layouts that are compared with each other; every layout is also compared with gensim.
LAYOUT_PAIRS = (("CENTRE", "PAIR"), ("CENTRE-order", "PAIR-order"), ("BLOCK16-order", "BLOCK16"),
                ("BLOCK64-order", "BLOCK16"))


def read_rows() -> list[dict[str, Any]]:
    """Return one mapping per layout and seed."""
    return [json.loads(line) for line in (ROWS / "skipgram-and-gensim.jsonl").read_text().splitlines()]


def layouts() -> tuple[list[str], dict[str, tuple[dict[str, MeanInterval], float | None]]]:
    """Return the layouts, and for each measure their means over seeds with the smallest spread."""
    rows = read_rows()
    labels = list(dict.fromkeys(row["what"] for row in rows))
    return labels, {key: over_seeds({label: {row["seed"]: row[key] for row in rows if row["what"] == label}
                                     for label in labels}, labels) for key in HEADINGS}


def quality_table() -> str:
    """Return the means over seeds of every layout."""
    labels, means_of = layouts()
    return table(["layout", *HEADINGS.values(), "seeds"],
                 [[label, *(cell(means[label], spread) for means, spread in means_of.values()),
                   str(means_of["cpu"][0][label].n)] for label in labels])


def difference_table() -> str:
    """Return differences of layouts for each benchmark and their mean, paired by seed, with 95 % t intervals."""
    rows = read_rows()
    values: dict[str, dict[str, dict[int, float]]] = {key: {} for key in (*BENCHMARKS, "mean")}
    for row in rows:
        row["mean"] = statistics.fmean(row[key] for key in BENCHMARKS)
        for key, by_layout in values.items():
            by_layout.setdefault(row["what"], {})[row["seed"]] = row[key]
    pairs = [*((layout, "gensim") for layout in values["mean"] if layout != "gensim"), *LAYOUT_PAIRS]
    return table(["layout", "less", *(HEADINGS[key] for key in BENCHMARKS), "mean"], [
        [a, b, *(f"{m.mean:+.4f} [{m.low:+.4f}, {m.high:+.4f}]".replace("-", "−") for by_layout in values.values()
                 for m in [t_interval(difference(by_layout[a], by_layout[b]))])] for a, b in pairs])


def quality_chart() -> str:
    """Draw the means over seeds of every layout, one panel for each measure."""
    labels, means_of = layouts()
    return dots("Skip-gram layouts and gensim: means over seeds with 95 % t intervals", [
        Panel(HEADINGS[key], [Point(label, m.mean, m.low, m.high, figure(m.mean, spread))
                              for label in labels if (m := means[label]).mean is not None])
        for key, (means, spread) in means_of.items()])
