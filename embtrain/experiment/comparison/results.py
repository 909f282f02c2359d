"""results.json: what the cells scored, what that says of the strategies, and how sure it is.

Over seeds, two families are judged, each held to its own 5 % by Holm: the declared metric against the baseline, and all
other metrics together. Over items, each metric is a family. At equal epochs means at equal positives: the blocks are
the same. At equal CPU time, the curves of the evaluations during training are read at the cost of the cheapest
strategy: the last evaluation that had been reached by then.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.files import write_json
from embtrain.evaluate import label_precision
from embtrain.evaluate.heldout import NO_SCORES, higher_better
from embtrain.evaluate.statistics.difference import Difference
from embtrain.evaluate.statistics.significance import (
    compare_correlations,
    compare_items,
    compare_to_baseline,
    holm_family,
    paired_t,
    t_interval,
)
from embtrain.evaluate.translation import scores as translation
from embtrain.evaluate.translation.scores import BLEU_STATISTICS
from embtrain.experiment.comparison.outcome import Found, Point
from embtrain.experiment.comparison.verdict import verdict
from embtrain.experiment.run import scoring

NO_BENCHMARKS = ("training", "neighbours 45-50")  # what is told of runs, and no score
DESCRIBED = (*NO_BENCHMARKS, "valid")              # told, but not tested: the last was looked at
MOST_SCORES = 200_000                              # of all cells; results.json takes 500 bytes for each
ITEM_METRICS: tuple[tuple[str, str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("log_likelihood", "log_p", lambda x: x), ("mrr", "rank", lambda x: 1 / x),
    ("accuracy", "correct", lambda x: x))
# metrics whose items are documents, which are independent
DOCUMENT_METRICS = (*label_precision.PRECISION, *label_precision.NDCG, *label_precision.PSP)


def write(folder: Path, plan: dict[str, Any], found: Sequence[Found], reproduction: dict[str, Any] | None = None,
          searched: Sequence[dict[str, Any]] = ()) -> None:
    """Judge the cells and write results.json; `reproduction`: what claims.py made of them; `searched`: what search.py
    chose for them.

    DataError with the error of the first where none has scores; ResourceError where the machine gave it too little.
    """
    done = [one for one in found if one.error is None]
    if not done:
        wrong = ResourceError if found[0].starved else DataError
        raise wrong(f"{folder}: no cell has scores; {found[0].name}: {found[0].error}")
    if (n := sum(len(one.scores) for one in done)) > MOST_SCORES:
        raise DataError(f"{folder}: {n:,} scores in {len(done):,} cells; at most {MOST_SCORES:,} are compared: name "
                        "fewer runs")
    if len({one.corpus for one in done}) > 1:
        other = next(one for one in done if one.corpus != done[0].corpus)
        raise DataError(f"{other.folder}: was trained on another text than {done[0].folder}: identity.json names "
                        "another sha256")
    labels = list(dict.fromkeys(one.label for one in found))
    metrics = list(dict.fromkeys(key for one in done for key in one.values()))
    primary, baseline = plan["metric"], plan["baseline"]
    if primary not in metrics:
        raise DataError(f"{folder}: no cell has the metric {primary!r}; there are: {', '.join(metrics)}")
    if not decides(primary):
        raise UsageError(f"--metric: {primary}: is no score: neither higher nor lower is better; there are: "
                         + ", ".join(metric for metric in metrics if decides(metric)))
    values = {metric: {of: {one.seed: one.values().get(metric) for one in done if one.label == of} for of in labels}
              for metric in metrics}
    tested = [metric for metric in metrics if metric.partition("/")[0] not in DESCRIBED and metric != primary
              and metric.count("/") == 1 and metric.partition("/")[2] not in NO_SCORES]
    seeds = compare_to_baseline(values[primary], baseline, primary, higher_better(primary))
    seeds += holm_family([paired_t(values[metric][of], values[metric][baseline], (of, baseline), metric,
                                 higher_better=higher_better(metric))
                        for metric in tested for of in labels if of != baseline])
    differences = seeds + over_items(done, labels, baseline)
    summary = []
    for of in labels:
        for metric in metrics:
            mean = t_interval(values[metric][of])
            if mean.n:
                summary.append({"strategy": of, "metric": metric, **mean._asdict()})
    equal = at_equal(done)
    cheap = at_equal_cost(equal, labels, plan)
    equal["cpu_seconds"]["differences"] = [asdict(d) for d in cheap]
    tree: dict[str, Any] = {"plan": {**plan, "labels": labels, "corpus_sha256": done[0].corpus},
            "cells": [_cell(one) for one in found], "summary": summary,
            "differences": [asdict(d) for d in differences], "at_equal": equal, "notes": _notes(found),
            "verdict": verdict(plan, labels, values, seeds, cheap, equal["cpu_seconds"]["budget"],
                               [one.name for one in found if one.error])}
    if searched:
        tree["search"] = list(searched)
    if reproduction is not None:
        tree["reproduction"] = reproduction
        tree["verdict"].insert(0, reproduction["sentence"])
    write_json(folder / "results.json", finite(tree))


def decides(metric: str) -> bool:
    """Whether it is a score: higher, or lower, is better."""
    part, name, *_ = metric.split("/")
    return part not in NO_BENCHMARKS and name not in NO_SCORES


def _cell(one: Found) -> dict[str, Any]:
    told = {"cell": one.name, "strategy": one.label, "loss": one.loss, "model": one.model, "seed": one.seed,
            "folder": one.shown, "status": "finished" if one.error is None else "failed",
            "scores": [row._asdict() for row in one.scores], "cpu_seconds": one.cpu_seconds}
    return told if one.error is None else {**told, "error": one.error}


def warnings(told: Mapping[str, Any]) -> list[str]:
    """One line for each warning among the scores of the cells."""
    return [f"Warning: {cell['cell']}: {row['note']}" for cell in told.get("cells", ()) for row in cell["scores"]
            if (row["benchmark"], row["metric"]) == ("training", "warning")]


def _notes(found: Sequence[Found]) -> list[str]:
    notes = [f"{one.name}: {one.error}" for one in found if one.error is not None]
    notes += [f"{one.name}: {row.note}" for one in found for row in one.scores
              if (row.benchmark, row.metric) == ("training", "warning")]
    if len({one.code for one in found if one.error is None}) > 1:
        notes.append("the cells were not all trained by the same code: the hashes in their identity.json differ")
    return notes


def finite(value: Any) -> Any:
    """What JSON can hold: numbers that are not finite become null, numpy's become Python's."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- over items ----------------------------------------------------------------------------------------------------

def over_items(done: Sequence[Found], labels: Sequence[str], baseline: str) -> list[Difference]:
    """Each strategy against the baseline on the same items, whose values are means over the seeds that both have."""
    items = {(one.label, one.seed): scoring.read_items(one.folder / "items.safetensors") for one in done}
    families: dict[str, list[Difference]] = {}
    for of in labels:
        seeds = [seed for other, seed in items if other == of and (baseline, seed) in items]
        if of == baseline or not seeds:
            continue
        a, b = (_mean_items([items[which, seed] for seed in seeds]) for which in (of, baseline))
        for name in a.keys() & b.keys():
            if len(a[name]) != len(b[name]):
                raise DataError(f"{of} and {baseline} have {len(a[name])} and {len(b[name])} items of {name}: "
                                "they were judged on other text or other benchmarks")
        for benchmark in dict.fromkeys(name.partition("/")[0] for name in a if name in b):
            if benchmark == "valid":
                continue
            if f"{benchmark}/score" in a:
                metric = f"{benchmark}/spearman"
                families.setdefault(metric, []).append(compare_correlations(
                    a[f"{benchmark}/gold"], a[f"{benchmark}/score"], b[f"{benchmark}/score"], (of, baseline), metric))
            for metric, column, _ in ITEM_METRICS:
                if f"{benchmark}/{column}" in a:
                    families.setdefault(f"{benchmark}/{metric}", []).append(compare_items(
                        a[f"{benchmark}/{metric}"], b[f"{benchmark}/{metric}"], (of, baseline),
                        f"{benchmark}/{metric}", a[f"{benchmark}/cluster"].astype(np.int64)))
            of_bleu = [f"{benchmark}/bleu_{number}" for number in BLEU_STATISTICS]
            if of_bleu[0] in a:
                ours, theirs = (np.stack([items[name] for name in of_bleu], axis=1) for items in (a, b))
                families.setdefault(f"{benchmark}/bleu", []).append(
                    translation.difference(ours, theirs, (of, baseline), f"{benchmark}/bleu"))
            for name in (f"{benchmark}/{metric}" for metric in DOCUMENT_METRICS):
                if name in a:
                    families.setdefault(name, []).append(
                        compare_items(a[name], b[name], (of, baseline), name))
    return [d for family in families.values() for d in holm_family(family)]


def _mean_items(runs: Sequence[scoring.Items]) -> scoring.Items:
    """Means of what each item gave in some runs: cosines, log p, 1/rank."""
    names = [name for name in runs[0] if all(name in run and len(run[name]) == len(runs[0][name]) for run in runs)]
    mean = {name: np.mean([run[name] for run in runs], axis=0) for name in names}
    for name in names:
        part, _, column = name.partition("/")
        for metric, of, value in ITEM_METRICS:
            if column == of:
                mean[f"{part}/{metric}"] = np.mean([value(run[name]) for run in runs], axis=0)
    return mean


# --- at equal cost -------------------------------------------------------------------------------------------------

def at_equal(done: Sequence[Found]) -> dict[str, Any]:
    """The evaluations during training, read at equal epochs and at equal CPU time."""
    least = min((one.reached for one in done), key=lambda reached: reached.get("examples", 0))
    whole = least.get("epoch", 0) >= 1      # else nobody knows what part of an epoch that is, and examples are told
    where: Callable[[Point], float] = attrgetter("epoch" if whole else "examples")
    most = min((max(where(point) for points in one.curves.values() for point in points) for one in done if one.curves),
               default=0.0)
    costs: dict[str, list[float]] = {}
    for one in done:
        if one.cpu_seconds is not None:
            costs.setdefault(one.label, []).append(one.cpu_seconds)
    # The largest of its seeds: with less, some of its own runs would lose their last evaluation.
    budget = max(min(costs.values(), key=statistics.fmean)) if costs else 0.0
    return {
        "epochs": {"epochs": round(most, 4) if whole else None,
                   "steps": least.get("step"), "examples": least.get("examples"),
                   "rows": _read_at(done, lambda point: where(point) <= most),
                   "note": "the runs of a seed see the same positives, in the same order where their blocks are alike: "
                           "equal epochs are equal positives"},
        "cpu_seconds": {"budget": budget, "rows": _read_at(done, lambda point: point.cpu_seconds <= budget),
                        "note": "the last evaluation that was reached by then, null where there was none; the learning "
                                "rate of each run was laid for all its epochs, so one that is read early had not come "
                                "down yet"}}


def at_equal_cost(equal: dict[str, Any], labels: Sequence[str], plan: dict[str, Any]) -> list[Difference]:
    """The declared metric at equal CPU time against the baseline; of test/... the curve is that of valid/..."""
    part, _, name = plan["metric"].partition("/")
    curve = f"valid/{name}" if part == "test" else plan["metric"]
    rows = [row for row in equal["cpu_seconds"]["rows"] if row["metric"] == curve]
    values = {of: {row["seed"]: row["value"] for row in rows if row["strategy"] == of} for of in labels}
    return compare_to_baseline(values, plan["baseline"], curve, higher_better(curve)) if rows else []


def _read_at(done: Sequence[Found], within: Callable[[Point], bool]) -> list[dict[str, Any]]:
    rows = []
    for one in done:
        for metric, points in one.curves.items():
            inside = [point for point in points if within(point)]
            last = inside[-1] if inside else None
            rows.append({"strategy": one.label, "seed": one.seed, "metric": metric,
                         "value": None if last is None else last.value, "step": None if last is None else last.step,
                         "cpu_seconds": None if last is None else last.cpu_seconds})
    return rows
