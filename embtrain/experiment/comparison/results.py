"""results.json: the scores of the cells, differences between strategies and their uncertainty.

Over seeds there are two families of tests, each controlled at 5 % by Holm: the declared metric against the baseline,
and all other metrics together. Over items, each metric is a family. Equal epochs means equal positives: the blocks are
the same. For equal CPU time, the curves of the evaluations during training are interpolated at the largest time that
all runs reached. That treats the runs of all strategies in one way: equal strategies are separated in 5 % of cases,
for any noise of their CPU time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.files import write_json
from embtrain.evaluate import label_precision
from embtrain.evaluate.comparison.reproduction import Reproduction
from embtrain.evaluate.comparison.results import (
    MAX_SCORES,
    AtEqual,
    CellResult,
    ChosenSettings,
    ComparisonResults,
    EqualCpu,
    EqualEpochs,
    Evaluation,
    MetricMean,
)
from embtrain.evaluate.heldout import DESCRIPTIONS, NO_SCORES, higher_better, metric_bounds
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
from embtrain.experiment.comparison.outcome import CellOutcome, Point, interpolate
from embtrain.experiment.comparison.verdict import (
    tested_curve,
    unlike_machines,
    untested_reason,
    verdict,
    why_not_at_equal_cpu,
)
from embtrain.experiment.run import scoring

DESCRIBED = (*DESCRIPTIONS, "valid")  # reported, not tested: valid was used during training
ITEM_METRICS: tuple[tuple[str, str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("log_likelihood", "log_p", lambda x: x), ("mrr", "rank", lambda x: 1 / x),
    ("accuracy", "correct", lambda x: x))
# metrics whose items are documents, which are independent
DOCUMENT_METRICS = (*label_precision.PRECISION, *label_precision.NDCG, *label_precision.PSP)


def write(folder: Path, plan: dict[str, Any], outcomes: Sequence[CellOutcome],
          reproduction: Reproduction | None = None, searched: Sequence[ChosenSettings] = (),
          notes: Sequence[str] = (), check: Callable[[], None] = lambda: None) -> None:
    """Compare the cells and write results.json. reproduction: from claims.py; searched: choices of tuning.py.

    notes: further lines of the report. check: called before results.json is written, after all that it needs is read.

    If no run has scores, raises the error of the first: ResourceError if all that were started lacked memory, disk or
    a device, or were killed, else DataError.
    """
    finished = [outcome for outcome in outcomes if outcome.error is None]
    if not finished:
        starved = {outcome.starved for outcome in outcomes if outcome.was_started}
        error_class = ResourceError if starved == {True} else DataError
        raise error_class(f"{folder}: no run has scores; {outcomes[0].name}: {outcomes[0].error}")
    if (n := sum(len(outcome.scores) for outcome in finished)) > MAX_SCORES:
        raise DataError(f"{folder}: {n:,} scores in {len(finished):,} runs; at most {MAX_SCORES:,} are compared; give "
                        "fewer runs")
    if len({outcome.corpus for outcome in finished}) > 1:
        other_outcome = next(outcome for outcome in finished if outcome.corpus != finished[0].corpus)
        raise DataError(f"{other_outcome.folder}: was trained on another corpus than {finished[0].folder}: the sha256 "
                        "in identity.json differs; compare runs on one corpus")
    _check_benchmarks(finished)
    labels = list(dict.fromkeys(outcome.label for outcome in outcomes))
    metrics = list(dict.fromkeys(key for outcome in finished for key in outcome.values()))
    primary, baseline = plan["metric"], plan["baseline"]
    if primary not in metrics:
        raise DataError(f"{folder}: no run has the metric {primary!r}; there are: {', '.join(metrics)}")
    if not is_score(primary):
        raise UsageError(f"--metric: {primary}: is not a score, because neither higher nor lower is better; there are: "
                         + ", ".join(metric for metric in metrics if is_score(metric)))
    values = {metric: {label: {outcome.seed: outcome.values().get(metric) for outcome in finished
                               if outcome.label == label} for label in labels}
              for metric in metrics}
    tested = [metric for metric in metrics if metric.partition("/")[0] not in DESCRIBED and metric != primary
              and metric.count("/") == 1 and metric.partition("/")[2] not in NO_SCORES]
    seeds = compare_to_baseline(values[primary], baseline, primary, higher_better(primary))
    seeds += holm_family([paired_t(values[metric][label], values[metric][baseline], (label, baseline), metric,
                                   higher_better=higher_better(metric))
                          for metric in tested for label in labels if label != baseline])
    summary = [MetricMean(strategy=label, metric=metric, **mean._asdict()) for label in labels for metric in metrics
               if (mean := t_interval(values[metric][label], bounds=metric_bounds(metric))).n]
    epochs, cpu = at_equal_epochs(finished), at_equal_cpu(finished, labels, plan)
    sentences = verdict(plan, labels, values, seeds, cpu, *_unfinished(outcomes), _processors(finished))
    if reproduction is not None:
        sentences.insert(0, reproduction.sentence)
    file = ComparisonResults(
        plan={**plan, "labels": labels, "corpus_sha256": finished[0].corpus}, cells=list(map(_cell, outcomes)),
        summary=summary, differences=seeds + item_differences(finished, labels, baseline),
        at_equal=AtEqual(epochs, cpu), notes=[*notes, *_notes(outcomes)], verdict=sentences,
        search=list(searched) or None, reproduction=reproduction)
    check()
    write_json(folder / "results.json", finite(file.to_json()))


def is_score(metric: str) -> bool:
    """Whether a metric is a score, that is, higher or lower is better."""
    part, name, *_ = metric.split("/")
    return part not in DESCRIPTIONS and name not in NO_SCORES


def _cell(outcome: CellOutcome) -> CellResult:
    return CellResult(cell=outcome.name, strategy=outcome.label, loss=outcome.loss, model=outcome.model,
                      seed=outcome.seed, folder=outcome.relative_folder,
                      status="finished" if outcome.error is None else "failed" if outcome.was_started else "not run",
                      scores=outcome.scores, cpu_seconds=outcome.cpu_seconds, error=outcome.error)


def _unfinished(outcomes: Sequence[CellOutcome]) -> tuple[list[str], list[str]]:
    """The runs that failed, and those that were not run."""
    missing = [outcome for outcome in outcomes if outcome.error is not None]
    return [outcome.name for outcome in missing if outcome.was_started], [
        outcome.name for outcome in missing if not outcome.was_started]


def warnings(results: ComparisonResults) -> list[str]:
    """One line for each warning among the scores of the cells."""
    return [f"Warning: {cell.cell}: {row.note}" for cell in results.cells for row in cell.scores
            if (row.benchmark, row.metric) == ("training", "warning")]


def _notes(outcomes: Sequence[CellOutcome]) -> list[str]:
    notes = [f"{outcome.name}: {outcome.error}" for outcome in outcomes if outcome.error is not None]
    notes += [f"{outcome.name}: {row.note}" for outcome in outcomes for row in outcome.scores
              if (row.benchmark, row.metric) == ("training", "warning")]
    finished = [outcome for outcome in outcomes if outcome.error is None]
    if len({outcome.code for outcome in finished}) > 1:
        notes.append("the runs were not all trained by the same code: the hashes in their identity.json differ")
    versions = {(name, str(sha256)) for outcome in finished for name, sha256 in outcome.plugins.items()}
    notes += [f"the runs were not all trained by the same {name}: the hashes in their identity.json differ"
              for name, count in sorted(Counter(name for name, _ in versions).items()) if count > 1]
    return notes


def finite(value: Any) -> Any:
    """Convert to JSON values: non-finite numbers become null, numpy's become Python's."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- over items ----------------------------------------------------------------------------------------------------

def item_differences(finished: Sequence[CellOutcome], labels: Sequence[str], baseline: str) -> list[Difference]:
    """Each strategy against the baseline on the same items; item values are means over the common seeds."""
    items = {(outcome.label, outcome.seed): scoring.read_items(outcome.folder / "items.safetensors")
             for outcome in finished}
    families: dict[str, list[Difference]] = {}
    for label in labels:
        seeds = [seed for item_label, seed in items if item_label == label and (baseline, seed) in items]
        if label == baseline or not seeds:
            continue
        a, b = (_mean_items([items[label_of_pair, seed] for seed in seeds]) for label_of_pair in (label, baseline))
        for name in a.keys() & b.keys():
            if len(a[name]) != len(b[name]):
                raise DataError(f"{label} and {baseline} have {len(a[name])} and {len(b[name])} items of {name}: they "
                                "were evaluated on different data; evaluate both on the same")
        for benchmark in dict.fromkeys(name.partition("/")[0] for name in a if name in b):
            if benchmark == "valid":
                continue
            if f"{benchmark}/score" in a:
                metric = f"{benchmark}/spearman"
                families.setdefault(metric, []).append(compare_correlations(
                    a[f"{benchmark}/gold"], a[f"{benchmark}/score"], b[f"{benchmark}/score"], (label, baseline),
                    metric))
            for metric, column, _ in ITEM_METRICS:
                if f"{benchmark}/{column}" in a:
                    families.setdefault(f"{benchmark}/{metric}", []).append(compare_items(
                        a[f"{benchmark}/{metric}"], b[f"{benchmark}/{metric}"], (label, baseline),
                        f"{benchmark}/{metric}", a[f"{benchmark}/cluster"].astype(np.int64)))
            bleu_names = [f"{benchmark}/bleu_{number}" for number in BLEU_STATISTICS]
            if bleu_names[0] in a:
                a_numbers, b_numbers = (np.stack([items[name] for name in bleu_names], axis=1) for items in (a, b))
                families.setdefault(f"{benchmark}/bleu", []).append(
                    translation.difference(a_numbers, b_numbers, (label, baseline), f"{benchmark}/bleu"))
            for name in (f"{benchmark}/{metric}" for metric in DOCUMENT_METRICS):
                if name in a:
                    families.setdefault(name, []).append(
                        compare_items(a[name], b[name], (label, baseline), name))
    return [d for family in families.values() for d in holm_family(family)]


def _mean_items(runs: Sequence[scoring.Items]) -> scoring.Items:
    """Means of item values over runs: cosines, log p, 1/rank."""
    names = [name for name in runs[0] if all(name in run and len(run[name]) == len(runs[0][name]) for run in runs)]
    mean = {name: np.mean([run[name] for run in runs], axis=0) for name in names}
    for name in names:
        part, _, column = name.partition("/")
        for metric, item_column, value in ITEM_METRICS:
            if column == item_column:
                mean[f"{part}/{metric}"] = np.mean([value(run[name]) for run in runs], axis=0)
    return mean


def _check_benchmarks(finished: Sequence[CellOutcome]) -> None:
    """Raise DataError if runs were scored on other versions of an own benchmark."""
    for name in dict.fromkeys(name for outcome in finished for name in outcome.benchmarks):
        scored = [outcome for outcome in finished if name in outcome.benchmarks]
        for outcome in scored:
            if outcome.benchmarks[name] != scored[0].benchmarks[name]:
                raise DataError(f"{outcome.folder}: was scored on another version of {name} than {scored[0].folder}: "
                                "the hash in identity.json differs; remove the older of the two folders, and run it "
                                "again")


# --- at equal cost -------------------------------------------------------------------------------------------------

def at_equal_epochs(finished: Sequence[CellOutcome]) -> EqualEpochs:
    """The evaluations during training, read at equal epochs."""
    least = min((outcome.reached for outcome in finished), key=lambda reached: reached.get("examples", 0))
    # else the size of an epoch is unknown, and examples are used
    has_whole_epoch = least.get("epoch", 0) >= 1
    position: Callable[[Point], float] = attrgetter("epoch" if has_whole_epoch else "examples")
    max_position = min((max(position(point) for points in outcome.curves.values() for point in points)
                        for outcome in finished if outcome.curves),
                       default=0.0)
    return EqualEpochs(
        epochs=round(max_position, 4) if has_whole_epoch else None, steps=least.get("step"),
        examples=least.get("examples"),
        rows=_read_at(finished, lambda points: next((x for x in points[::-1] if position(x) <= max_position), None)),
        note="runs with the same seed process the same positives, in the same order if their block sizes are equal: "
        "equal epochs mean equal positives")


def at_equal_cpu(finished: Sequence[CellOutcome], labels: Sequence[str], plan: dict[str, Any]) -> EqualCpu:
    """The evaluations during training, read at equal CPU time, and the differences from the baseline there.

    Without budget and rows, but with the reason, if no strategy can be compared with the baseline there.
    """
    ends = [max(times) for outcome in finished
            if (times := [x.cpu_seconds for points in outcome.curves.values() for x in points
                          if math.isfinite(x.cpu_seconds)])]
    budget = min(ends, default=0.0)
    rows = _read_at(finished, lambda points: interpolate(points, budget))
    timed = _read_at(finished, lambda points: next((x for x in points if math.isfinite(x.cpu_seconds)), None))
    curve, warning = tested_curve(plan), unlike_machines(_processors(finished))
    reason = "" if ends else "no evaluation during training has a CPU time"
    if reason := why_not_at_equal_cpu(plan["baseline"], curve, timed, rows) if len(labels) > 1 else reason:
        return EqualCpu(note=warning or reason)
    if warning:
        return EqualCpu(budget=budget, rows=rows, note=warning)
    note = ("values at equal CPU time are interpolated between the evaluations of a run, null before its first; "
            "the learning rate schedule of each run covers all its epochs, so at an early time it had not decayed yet")
    differences = _cost_differences(rows, labels, plan["baseline"], curve)
    return EqualCpu(budget=budget, rows=rows, differences=differences,
                    note=f"{untested_reason(curve)}; {note}" if len(labels) > 1 and not differences else note)


def _processors(finished: Sequence[CellOutcome]) -> list[str]:
    """The models of the processors, each once, of the runs that recorded it."""
    return list(dict.fromkeys(outcome.processor for outcome in finished if outcome.processor))


def _cost_differences(rows: Sequence[Evaluation], labels: Sequence[str], baseline: str, curve: str
                      ) -> list[Difference]:
    """The values of a curve at equal CPU time against the baseline."""
    curve_rows = [row for row in rows if row.metric == curve]
    values = {label: {row.seed: row.value for row in curve_rows if row.strategy == label and row.seed is not None}
              for label in labels}
    return compare_to_baseline(values, baseline, curve, higher_better(curve)) if curve_rows else []


def _read_at(finished: Sequence[CellOutcome], read: Callable[[Sequence[Point]], Point | None]) -> list[Evaluation]:
    rows = []
    for outcome in finished:
        for metric, points in outcome.curves.items():
            point = read(points)
            value, step, cpu = (None, None, None) if point is None else (point.value, point.step, point.cpu_seconds)
            rows.append(Evaluation(strategy=outcome.label, seed=outcome.seed, metric=metric, value=value, step=step,
                                   cpu_seconds=cpu))
    return rows
