"""Builds a run of each strategy before the first run of a comparison, so that refused settings end it at once.

Only a source that is built over the data shows that it refuses `negatives.k` or `negatives.share_draws_by`. The
comparison therefore builds model, source and loss as the runs will, on the CPU, and trains nothing. Missing memory is
not an error here, because runs may start later, or on other machines: they report it themselves. A run whose state
takes more than half of the free memory is not built, so that the system does not kill the comparison.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from embtrain.common import machine
from embtrain.common.errors import DataError, EmbtrainError, ResourceError, UsageError
from embtrain.common.progress import Progress
from embtrain.common.types import ProblemSpec
from embtrain.experiment.comparison.checks.pairing import group_by_line
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.run import components, run
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.memory import StateBytes, built_state, disk_need
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task

Result = TypeVar("Result")


class PlannedRun(NamedTuple):
    """The data of the runs of a strategy, and the size of their state, before they train."""

    problem: ProblemSpec
    state: StateBytes | None     # None: too little memory to build the run


def check_settings(cells: Mapping[str, Cell], has_start_file: bool) -> None:
    """Raise UsageError or DataError for settings that are wrong whatever the corpus contains.

    cells: by the name that errors give them. has_start_file: False if a run that writes `train.start` comes first.
    """
    _collect(cells, lambda cell: run.check(cell.settings, has_start_file))


def build_each(cells: Mapping[str, Cell], task: Task) -> dict[str, PlannedRun]:
    """Build model, source and loss of each cell if there is memory for them.

    cells: by the name that errors give them. task: of one of the cells, already read. UsageError or DataError with the
    reasons of all cells that cannot be built.
    """
    read = {_data_key(task.settings): task}

    def build(cell: Cell) -> PlannedRun:
        key = _data_key(cell.settings)
        if key not in read:
            read[key] = tasks.read(cell.settings)
        components.check_validation(cell.settings, read[key])
        problem = read[key].problem_spec("cpu")
        try:
            built = build_within_memory(cell.settings, read[key], problem, cell.folder)
            if built is None:
                return PlannedRun(problem, None)
            components.check_stopping(built)
            return PlannedRun(problem, built_state(built))
        except ResourceError:
            return PlannedRun(problem, None)

    planned = _collect(cells, build)
    machine.release_free_memory()
    return planned


def build_within_memory(settings: Settings, task: Task, problem: ProblemSpec, folder: Path) -> Components | None:
    """Build a run on the CPU; None if its state would take half of the free memory."""
    settings = settings.with_train(device="cpu")
    if 2 * disk_need(settings, problem, folder).checkpoint > machine.free():
        return None
    return components.build(settings, task, problem, observed=False, folder=folder)


def _data_key(settings: Settings) -> str:
    """The settings that decide which data a run reads, apart from its seed."""
    tree = settings.model_dump(mode="json", exclude={"negatives", "loss", "strategy", "train"})
    return json.dumps({**tree, "parent": settings.train.parent}, sort_keys=True)


def _collect(cells: Mapping[str, Cell], action: Callable[[Cell], Result]) -> dict[str, Result]:
    """Apply an action to each cell; UsageError or DataError with the lines of all cells in which it failed."""
    results, errors = dict[str, Result](), dict[str, EmbtrainError]()
    with Progress("checking settings", len(cells), "runs") as progress:
        for name, cell in cells.items():
            try:
                results[name] = action(cell)
            except (UsageError, DataError) as error:
                errors[name] = error
            progress.add()
    if errors:
        kind = type(next(iter(errors.values())))
        raise kind(*group_by_line((name, line) for name, reasons in errors.items() for line in reasons.args))
    return results
