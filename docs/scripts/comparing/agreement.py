"""Compares the rankings of strategies between tasks: the comparisons in docs/results/comparisons/like-for-like.

The agreement of two tasks is Kendall's τ (b) between the means of the strategies that both contain. Its interval is the
percentile interval over resamples of the seeds of each task.
"""

from __future__ import annotations

import itertools

import numpy as np
from comparing.choosing import choose
from numpy.typing import NDArray
from raw import Comparison, cell, comparisons, over_seeds, table
from scipy.stats import kendalltau

from embtrain.evaluate.heldout import higher_better
from embtrain.report.comparison.decimals import metric_label

FOLDER = "like-for-like"
RESAMPLES, SEED, LEVEL = 2_000, 0, .95
MIN_STRATEGIES = 5   # fewer have no ranking to speak of


def task_comparisons() -> list[Comparison]:
    """Return the comparisons of the same strategies on several tasks, by name."""
    return [found for found in comparisons() if found.folder.parent.name == FOLDER]


def score_tables() -> str:
    """Return a table for each task: the deciding metric of each strategy, best first."""
    parts = []
    for found in task_comparisons():
        metric = str(found.grid["metric"])
        means, spread = over_seeds(found.values[metric], found.labels)
        choice = choose(found, metric)
        by_rank = sorted((mean, label) for label in found.labels if (mean := means[label].mean) is not None)
        ranked = [label for _, label in (by_rank[::-1] if higher_better(metric) else by_rank)]
        less = {**dict.fromkeys(choice.good, "not separable"), **dict(choice.worse), choice.best: ""}
        rows = [[f"`{label}`", cell(means[label], spread), less[label]] for label in ranked]
        parts.append(f"### {_task(found).capitalize()}\n\n" + table(
            ["strategy", metric_label(metric), f"less `{ranked[0]}`"], rows))
    return "\n".join(parts)


def agreement_table() -> str:
    """Return Kendall's τ of each pair of tasks, and the mean if there are several pairs."""
    found = [entry for entry in task_comparisons() if len(entry.labels) >= MIN_STRATEGIES]
    rows, taus = list[list[str]](), list[float]()
    for a, b in itertools.combinations(found, 2):
        shared = [label for label in a.labels if label in b.labels]
        if len(shared) < MIN_STRATEGIES:
            continue
        x, y = _scores(a, shared), _scores(b, shared)
        taus.append(float(kendalltau(x.mean(1), y.mean(1)).statistic))
        low, high = _interval(x, y)
        value = f"{taus[-1]:.2f} [{low:.2f}, {high:.2f}]".replace("-", "−")
        rows.append([f"{_task(a)}, {_task(b)}", str(len(shared)), value])
    if len(taus) > 1:
        rows.append(["mean", "", f"{np.mean(taus):.2f}".replace("-", "−")])
    return table(["tasks", "strategies", "Kendall's τ"], rows)


def _task(found: Comparison) -> str:
    return found.name.removeprefix("like-")


def _scores(found: Comparison, labels: list[str]) -> NDArray[np.float64]:
    """Return the deciding metric of each strategy and seed, (strategies, seeds)."""
    values = found.values[str(found.grid["metric"])]
    return np.array([[values[label][seed] for seed in found.grid["seeds"]] for label in labels])


def _interval(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return the percentile interval of τ over resamples of the seeds of both tasks."""
    random = np.random.default_rng(SEED)
    def resampled(scores: NDArray[np.float64]) -> NDArray[np.float64]:
        chosen = random.integers(scores.shape[1], size=scores.shape[1])
        return np.asarray(scores[:, chosen].mean(1))
    taus = [kendalltau(resampled(x), resampled(y)).statistic for _ in range(RESAMPLES)]
    low, high = np.quantile(taus, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
