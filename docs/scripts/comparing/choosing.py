"""Compares strategies for the page `choose`: the highest mean, those not separable from it, and those that are worse.

Differences are paired by seed. p values are adjusted by Holm over all pairs of strategies within one metric of one
comparison.
"""

from __future__ import annotations

import itertools
import statistics as plain
from collections.abc import Iterator
from typing import NamedTuple

from raw import CPU, Comparison, about, comparisons, figure, table

from embtrain.common import shipped
from embtrain.evaluate.heldout import higher_better
from embtrain.evaluate.statistics.difference import B_BEATS_A
from embtrain.evaluate.statistics.significance import holm_family, paired_t, t_interval

METRIC_LABELS = {
    "test/log_likelihood": "likelihood of unseen pairs", "test/mrr": "rank of the positive",
    "wordsim353/spearman": "word relatedness (WordSim353)", "simlex999/spearman": "word similarity (SimLex-999)",
    "men/spearman": "word relatedness (MEN)", "rareword/spearman": "rare words (Rare Word)"}


class Choice(NamedTuple):
    metric: str
    best: str
    good: list[str]               # not separable from the best, which is included
    worse: list[tuple[str, str]]  # strategy, its difference


def choose(found: Comparison, metric: str) -> Choice:
    """Compare the strategies of a comparison that have values of a metric."""
    values, higher = found.values[metric], higher_better(metric)
    means = {label: mean for label in found.labels if (mean := t_interval(values.get(label, {})).mean) is not None}
    best = (max if higher else min)(means, key=lambda label: means[label])
    # The highest is selected from the same rows, so the family contains all pairs, not only those with it.
    pairs = [(a, b) if b == best else (b, a) for a, b in itertools.combinations(means, 2)]
    judged = holm_family([paired_t(values[a], values[b], (a, b), metric, higher_better=higher) for a, b in pairs])
    worse = [(d.a, f"{figure(d.mean, d.sd, signed=True)} [{figure(d.low, d.sd, signed=True)}, "
                   f"{figure(d.high, d.sd, signed=True)}]")
             for d in judged if d.b == best and d.verdict == B_BEATS_A]
    return Choice(metric, best, [label for label in means if label not in dict(worse)], worse)


def choices() -> Iterator[tuple[Comparison, Choice]]:
    """Yield the choices of comparisons of shipped strategies over several seeds.

    Variants (a reproduction's own runs) and single runs are left out: they are not advice.
    """
    for found in comparisons():
        if set(found.labels) <= set(shipped.names("configs", "strategies")) and len(found.grid["seeds"]) > 1:
            yield from ((found, choose(found, metric)) for metric in METRIC_LABELS if metric in found.values)


def choice_table() -> str:
    """Return a row for each metric of each comparison."""
    lines = []
    for found, choice in choices():
        cpu = {label: plain.mean(found.values[CPU][label].values()) for label in found.labels}
        busy = about()["runs"][found.name].get("busy", False)
        cheapest = min(choice.good, key=lambda label: cpu[label])
        take = "not decided: the machine was busy" if busy else \
            f"`{cheapest}`" + (f", {cpu[choice.best] / cpu[cheapest]:.1f} times faster"
                               if cheapest != choice.best else "")
        mean = t_interval(found.values[choice.metric][choice.best])
        seeds = len(found.grid["seeds"])
        engine = found.setup.get("engine", "autograd")
        lines.append([METRIC_LABELS[choice.metric], f"`{found.grid['corpus']}`, engine {engine}, {seeds} seeds "
                      f"([rows](#{found.name}))",
                      f"`{choice.best}` {figure(mean.mean, mean.sd)}",
                      ", ".join(f"`{label}`" for label in choice.good if label != choice.best) or "none",
                      take, "; ".join(f"`{label}` {by}" for label, by in choice.worse) or "none"])
    lines.sort(key=lambda line: list(METRIC_LABELS.values()).index(line[0]))
    return table(["you want", "measured on", "highest mean", "not separable from it", "cheapest of these",
                  "worse, by"], lines)
