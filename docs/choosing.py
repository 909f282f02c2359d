"""`Choose your negatives`: which strategy is highest, which cannot be told from it, which is worse.

Differences are paired by seed, p values are Holm's over all pairs of strategies within one measure of one comparison.
"""

from __future__ import annotations

import itertools
import statistics as plain
from collections.abc import Iterator
from typing import NamedTuple

from raw import CPU, Comparison, about, comparisons, figure, table

from embtrain.common import shipped
from embtrain.evaluate.heldout import LOWER_BETTER
from embtrain.evaluate.statistics.significance import holm_family, paired_t, t_interval

WANTED = {"test/log_likelihood": "likelihood of unseen pairs", "test/mrr": "rank of the right word",
          "wordsim353/spearman": "word relatedness (WordSim353)", "simlex999/spearman": "word similarity (SimLex-999)",
          "men/spearman": "word relatedness (MEN)", "rareword/spearman": "rare words (Rare Word)"}
LEVEL = .05


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
    judged = holm_family([paired_t(of[a], of[b], (a, b), metric, higher_better=higher) for a, b in pairs])
    worse = [(d.a, f"{figure(d.mean, d.sd, signed=True)} [{figure(d.low, d.sd, signed=True)}, "
                   f"{figure(d.high, d.sd, signed=True)}]")
             for d in judged if d.b == best and d.p_holm is not None and d.p_holm < LEVEL]
    return Choice(metric, best, [label for label in found.labels if label not in dict(worse)], worse)


def choices() -> Iterator[tuple[Comparison, Choice]]:
    """Of comparisons of shipped strategies over seeds: variants (a reproduction's own runs) and single runs are no
    advice."""
    for found in comparisons():
        if set(found.labels) <= set(shipped.names("configs", "strategies")) and len(found.grid["seeds"]) > 1:
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
