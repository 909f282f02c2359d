"""Checks that the runs of a comparison have the metrics that it, or the file of a paper, requires.

Before the first run, most metrics are known from its settings and data: benchmarks are scored on vectors of two words,
and a run is built and evaluated untrained. Nothing lists the metrics of a task a second time. A measure of a known name
may have parts, like `mrr/head`, that depend on the data, and the metrics of `training/` and of a benchmark that trains
a translator are not known: these are checked in the scores of the first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embtrain.common.errors import ResourceError, UsageError
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import words_config
from embtrain.evaluate.heldout import NO_SCORES
from embtrain.experiment.comparison import outcome, tuning
from embtrain.experiment.comparison.checks import parts
from embtrain.experiment.comparison.grid import FILE, Grid, stored_files
from embtrain.experiment.comparison.outcome import CellOutcome
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.paper import spec as papers
from embtrain.experiment.run import scoring
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks.base import Task

HELD_OUT = ("valid", "test")


def require_metrics(grid: Grid, run: CellOutcome, folder: Path, resume: str) -> None:
    """Raise UsageError if a finished run lacks a required metric. resume: the command that continues; '': none can."""
    for place, metric, labels, remedy in _required(grid, folder, resume):
        if labels is None or run.label in labels:
            outcome.require_metric(metric, run, place, f"finished runs are kept; {remedy}")


def require_objective(grid: Grid, trial: CellOutcome, metric: str, resume: str) -> None:
    """Raise UsageError if a finished trial lacks the metric that rates trials."""
    outcome.require_metric(metric, trial, grid.flag_of("metric"), f"finished runs are kept; {_remedy(resume)}")


def require_available(grid: Grid, cells: Sequence[Cell], is_searching: bool, folder: Path, resume: str, task: Task
                      ) -> None:
    """Raise UsageError if no run can have a required metric; ResourceError if the file of a benchmark is missing.

    cells: of the comparison. is_searching: trials choose settings first. task: of the first cell, already read. Nothing
    is checked if a run is finished, because its scores were.
    """
    if any(cell.is_finished() for cell in cells):
        return
    required = list(_required(grid, folder, resume))
    if is_searching:
        objective, _ = tuning.objective(str(grid.metric), type(task))
        required.append((grid.flag_of("metric"), objective, None, _remedy(resume)))
    known = known_metrics(cells[0].settings, task, [metric for _, metric, _, _ in required], cells[0].folder)
    for place, metric, labels, remedy in required:
        if (part := metric.partition("/")[0]) in known.empty:
            others = f", or name another metric: {', '.join(known.names)}" if known.names else ""
            raise UsageError(f"{place}: {metric}: this corpus has no {part} data; give more data{others}")
        if not known.may_have(metric):
            label = next(iter(labels)) if labels else cells[0].label
            raise outcome.missing_metric(metric, f"a run of {label}", known.names, place, remedy)


def _required(grid: Grid, folder: Path, resume: str) -> Iterator[tuple[str, str, Sequence[str] | None, str]]:
    """Each metric that is required: its place in errors, the metric, labels of runs (None: all) and the remedy."""
    if grid.paper is None:
        yield grid.flag_of("metric"), str(grid.metric), None, _remedy(resume)
        return
    begun = (folder / FILE).is_file()       # else a repeated command reads the file again that the user named
    with stored_files():
        required = list(papers.required_metrics(folder / papers.FILE if begun else papers.path(grid.paper),
                                                grid.benchmarks or []))
    then = f"continue: {resume}" if resume else "repeat the command"
    for place, metric, labels in required:
        yield place, metric, labels, f"correct the file, then {then}"


def _remedy(resume: str) -> str:
    return f"to continue with one of them: {resume} --metric ..." if resume else "name one of them with --metric"


@dataclass
class KnownMetrics:
    """Metrics of an untrained run."""

    names: list[str] = field(default_factory=list)      # BENCHMARK/METRIC
    complete: set[str] = field(default_factory=set)     # benchmarks and parts whose measures are all in `names`
    empty: list[str] = field(default_factory=list)      # parts without data

    def may_have(self, metric: str) -> bool:
        """Whether a trained run may have a metric."""
        part, _, name = metric.partition("/")
        measure = name.partition("/")[0]
        if part not in self.complete or measure in NO_SCORES:       # these depend on the loss
            return True
        return measure in {known.split("/")[1] for known in self.names if known.startswith(f"{part}/")}


def known_metrics(settings: Settings, task: Task, required: Iterable[str], folder: Path) -> KnownMetrics:
    """Return the metrics of a run in `folder`, as far as they are known before it trains.

    Of held-out parts, only those that decide by default are determined unless others are required.
    """
    known = KnownMetrics()
    words = Vectors(["a", "b"], np.ones((2, 1), np.float32))   # only the names of the scores are read
    config = words_config(settings.evaluate).model_copy(update={"resamples": 0})
    for row in scoring.benchmarks(words, task.benchmarks(settings), config):
        known.names.append(f"{row.benchmark}/{row.metric}")
        known.complete.add(row.benchmark)
    default = task.metric.partition("/")[2]
    needed = {name for part, _, name in (metric.partition("/") for metric in required) if part in HELD_OUT}
    measures = [default] if needed <= {default} else _heldout_measures(settings, task, folder)
    for part in HELD_OUT:
        if len(task.heldout(part)) == 0:
            known.empty.append(part)
            continue
        known.names += [f"{part}/{measure}" for measure in measures]
        if default in measures:
            known.complete.add(part)
    return known


def _heldout_measures(settings: Settings, task: Task, folder: Path) -> list[str]:
    """Names of the measures of a held-out part; without the one that decides by default if they are not all known."""
    try:
        run = parts.build_within_memory(settings, task, task.problem_spec("cpu"), folder)
        return [] if run is None else [row.metric for row in task.validate(run) if row.benchmark == "valid"]
    except ResourceError:
        return []
