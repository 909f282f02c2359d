"""Compare strategies × losses × models × seeds, trained and scored under the same conditions.

The design is paired. All cells read the same text with the same split. The cells of one seed start from the same tables
and see the same positives in the same order, so that the effect of the seed cancels in their differences. Anything that
would break the pairs, like a strategy that changes the window, is refused before training.

    DIR/comparison.yaml   the grid, every default written out
    DIR/cells/NAME/       one run each; NAME.error.json for one that failed
    DIR/start/            the run whose vectors the others start from, if the grid has one
    DIR/search.json       trials of each strategy's settings, if a search was requested (tuning.py)
    DIR/results.json      the statistics (results.py), next to the report
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from embtrain import report
from embtrain.common import progress, terminal
from embtrain.common.config import as_sets
from embtrain.common.errors import DataError, ResourceError, Stopped, UsageError, is_lack_of_resources, read_error
from embtrain.common.files import claim_folder, dated_folder, read_json
from embtrain.common.shipped import benchmark_label
from embtrain.common.types import Score
from embtrain.evaluate.comparison.results import MAX_RESULTS_BYTES, ComparisonResults
from embtrain.experiment.comparison import engine, outcome, results, search_space, tuning
from embtrain.experiment.comparison.checks import first_run, folder as folders, metrics, parts
from embtrain.experiment.comparison.checks.pairing import check_equal_settings, check_saved_settings, pairing_errors
from embtrain.experiment.comparison.grid import Grid, GridFile, Kind, StartRun, read_grid, run_options, stored_files
from embtrain.experiment.comparison.outcome import CellOutcome
from embtrain.experiment.comparison.shared.sharing import ALONE, Alone, Sharing
from embtrain.experiment.comparison.verdict import CPU
from embtrain.experiment.comparison.workers import Cell, spent
from embtrain.experiment.paper import claims, spec as papers
from embtrain.experiment.run import downstream, scoring, settings as run_settings
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.models import base as models
from embtrain.report.comparison import page


@dataclass(frozen=True)
class Comparison:
    """A finished comparison."""

    folder: Path

    @cached_property
    def results(self) -> dict[str, Any]:
        path = self.folder / "results.json"
        try:
            return read_json(path, MAX_RESULTS_BYTES)
        except (OSError, ValueError) as error:
            raise read_error(path, error, f"contains no results: {error}") from error

    @cached_property
    def record(self) -> ComparisonResults:
        """The checked results."""
        try:
            return ComparisonResults.from_json(self.results)
        except ValueError as error:
            raise DataError(f"{self.folder / 'results.json'}: {error}") from error

    @property
    def verdict(self) -> list[str]:
        return self.record.verdict

    def table(self) -> str:
        """Format the scores of each strategy over its seeds, and the verdict, for a terminal."""
        record = self.record
        metrics = [record.plan["metric"], CPU]
        first = {line.metric.partition("/")[0]: line.metric for line in reversed(record.summary)}
        metrics[1:1] = [first[name] for name in map(benchmark_label, record.plan["benchmarks"]) if name in first]
        rows = [Score(line.strategy, line.metric, line.mean, line.low, line.high, line.n)
                for metric in dict.fromkeys(metrics) for line in record.summary if line.metric == metric]
        return "\n".join([report.table(rows), "", *tuning.format_choices(record.search or []),
                          *map(terminal.plain, [*self.verdict, *results.warnings(record)])])


@run_settings.strategies_read_once()
def compare(grid: Grid, out: Path | None = None, parallel: int | None = None, threads: int = 0,
            budget: float | None = None, sharing: Alone | Sharing = ALONE) -> Comparison:
    """Run the cells that are not finished, then score them and report. Called again on its folder, it continues.

    threads: cores for the whole comparison (0: all). parallel: cells at a time, which share the cores (None: one core
    per cell, because single-threaded runs are reproducible bit for bit). budget: CPU seconds after which no cell
    starts. sharing: how other machines work in the same folder.
    """
    folder = sharing.folder(out) or dated_folder("compare")
    folders.check_folder(folder)
    requested, (grid, cells) = grid, plan(grid, folder)
    folders.check_corpus(folder, grid.corpus)
    if out is None and folder != (folder := claim_folder(folder)):
        grid, cells = plan(requested, folder)       # another process has taken the name
    starts = [] if grid.start is None else [_start_cell(grid.start, folder)]
    folders.check_places(folder, grid, [*cells, *starts])
    with sharing.working_in(folder, grid, cells, parallel, threads, budget) as crew:
        first_trials = tuning.first_trial_sets(folder, grid, tasks.find(cells[0].settings))
        trials = [_trial(grid, folder, label, 0, sets) for label, sets in first_trials.items()]
        check_saved_settings([*starts, *trials])
        searched = not grid.search or bool(tuning.best_sets(folder, grid))
        if searched:
            check_saved_settings(cells)
        if not progress.is_quiet():
            bounds = _extreme_trials(grid, folder, cells[0].settings).values()
            terminal.note(engine.describe([*cells, *bounds], _plan(requested, folder)[1]))
        folders.note_left_out(folder, grid, [cell.name for cell in cells])
        parts.check_settings(probes := _probes(grid, folder, cells, searched), has_start_file=grid.start is None)
        file = GridFile(folder, grid, [*run_options(parallel, threads, budget), *sharing.options])

        def require(cell: Cell) -> None:
            metrics.require_metrics(grid, _read_outcome(folder, cell), folder, file.resume())

        try:
            for cell in filter(Cell.is_finished, cells):     # before the corpus is read
                require(cell)
            if not (searched and all(cell.is_finished() for cell in cells)):
                n_trials = 0 if searched else grid.trials or 0
                check_metrics = partial(metrics.require_available, grid, cells, not searched, folder, file.resume())
                run = partial(_run, file, partial(crew.run, blocks=first_run.prepare(
                    folder, [*cells, *trials], probes, n_trials, crew.parallel, check_metrics)))
                for start in starts:
                    _train_start(start, run)
                while not searched:
                    _search(grid, folder, cells[0].settings, file.resume, run)
                    searched = bool(tuning.best_sets(folder, grid))
                    grid, cells = plan(grid, folder)
                run(cells, on_finished=require)
            crew.report(cells, lambda: _report(folder, grid, cells, file.write))
            return Comparison(folder)
        except Stopped as stopped:
            raise Stopped(stopped.signal, file.resume()) from stopped


def _run(file: GridFile, run: Callable[..., None], cells: Sequence[Cell], on_finished: Callable[[Cell], None]) -> None:
    """Check the settings of cells, store the grid and run them: the first ones begin the comparison."""
    check_saved_settings(cells)
    file.write()
    run(cells, on_finished=on_finished)


def _probes(grid: Grid, folder: Path, cells: Sequence[Cell], searched: bool) -> dict[str, Cell]:
    """A cell of each label that is not finished, and the trials at the bounds of a search, by their names in errors."""
    probes = {cell.label: cell for cell in cells[::-1] if not cell.is_finished()}    # the first seed
    probes = dict(reversed(probes.items()))
    return probes if searched else probes | _extreme_trials(grid, folder, cells[0].settings)


def _train_start(cell: Cell, run: Callable[..., None]) -> None:
    """Train the run whose vectors the others start from. ResourceError or DataError if it failed."""
    if not cell.is_finished():
        run([cell], on_finished=lambda _: None)
    if not cell.is_finished():
        failure = read_json(cell.failure) if cell.failure.is_file() else {"error": "it did not finish"}
        kind = ResourceError if is_lack_of_resources(failure.get("code")) else DataError
        raise kind(f"start: {cell.folder}: {failure.get('error')}; the other runs need its vectors")


def _start_cell(start: StartRun, folder: Path) -> Cell:
    sets = ["evaluate.benchmarks=[]", *start.sets]
    return replace(_cell("start", start, start.seed, Grid(corpus=start.corpus), sets, folder), folder=folder / "start")


def _search(grid: Grid, folder: Path, first: Settings, resume: Callable[[], str], run: Callable[..., None]) -> None:
    """Choose settings for each strategy on validation."""
    task = tasks.find(first)
    metric, _ = tuning.objective(str(grid.metric), task)
    tuning.search(folder, grid, first, task, partial(_trial, grid, folder),
                  partial(run, on_finished=lambda trial: metrics.require_objective(
                      grid, _read_outcome(folder, trial), metric, resume())))


def _trial(grid: Grid, folder: Path, label: str, trial: int, sets: list[str]) -> Cell:
    """The cell of one trial of a strategy, numbered from 0; it is scored by what does not decide the comparison."""
    kind, path = dict(grid.kinds())[label], tuning.trial_folder(folder, label, trial)
    scored = grid.model_copy(update={"benchmarks": tuning.trial_benchmarks(str(grid.metric))})
    cell = _cell(label, kind, tuning.SEED, grid, [*_shared_sets(scored, kind, folder), *sets], folder)
    return replace(cell, name=path.name, folder=path)


def plan(grid: Grid, folder: Path) -> tuple[Grid, list[Cell]]:
    """Fill in the defaults, choose an engine for all runs and build the cells. UsageError: why none can be compared."""
    for name in grid.benchmarks or []:            # once, under the flag that named it: for a cell it is a setting
        scoring.check_names([name], flag=grid.flag_of("benchmarks", name))
    grid, cells = _plan(grid, folder)
    bounds = _extreme_trials(grid, folder, cells[0].settings).values()
    grid, cells = _paired(*_plan(engine.choose_for_all(grid, [*cells, *bounds]), folder))
    tasks.find(cells[0].settings).check(cells[0].settings)
    return grid, cells


def _plan(grid: Grid, folder: Path) -> tuple[Grid, list[Cell]]:
    """Fill in the grid's defaults and build its cells."""
    if not grid.strategies and not grid.runs:
        raise UsageError("--negatives: is missing; give strategies, e.g. sgns,nce,ace (`embtrain list` lists them)")
    tuned_sets = tuning.best_sets(folder, grid)
    cells = [_cell(label, kind, seed, grid, [*_shared_sets(grid, kind, folder), *tuned_sets.get(label, [])], folder,
                   is_tuned=not grid.search or label in tuned_sets)
             for seed in grid.seeds for label, kind in grid.kinds()]
    first, task = cells[0].settings, tasks.find(cells[0].settings)
    if other_cell := next((cell for cell in cells if tasks.find(cell.settings) is not task), None):
        place = grid.flag_names(other_cell.label, dict(grid.kinds())[other_cell.label]).get("--model", "--model")
        raise UsageError(f"{place}: {cells[0].model} learns from {task.name} and {other_cell.model} does not, so they "
                         "have no metric in common; compare models of one kind")
    benchmarks = task.benchmarks(first)
    if (flag := grid.flag_of("benchmarks")) == "--benchmarks" and grid.benchmarks not in (None, benchmarks):
        raise UsageError(f"{flag}: {','.join(grid.benchmarks)}: the settings have evaluate.benchmarks: {benchmarks}; "
                         "remove one of the two")
    grid = grid.model_copy(update={"corpus": first.corpus, "benchmarks": benchmarks,
                                   "baseline": grid.baseline or cells[0].label, "metric": grid.metric or task.metric})
    limits = {recipe.name: downstream.translator_settings(recipe, folder, first.model.dim).train.cpu_seconds
              for recipe in downstream.training_recipes(grid.benchmarks or [])}
    return grid, [replace(c, downstream_limits={c.folder / name: s for name, s in limits.items()}) for c in cells]


def _shared_sets(grid: Grid, kind: Kind, folder: Path) -> list[str]:
    """Settings that the grid makes for every run of a kind."""
    sets = [] if grid.cpu_seconds is None else [f"train.cpu_seconds={grid.cpu_seconds!r}"]
    if grid.start is not None:
        sets.append(f"train.start={json.dumps(os.path.abspath(folder / 'start' / 'vectors.safetensors'))}")
    return [*sets, *_benchmark_sets(grid, kind.model), *grid.sets, *kind.sets]


def _benchmark_sets(grid: Grid, model: str) -> list[str]:
    """The benchmarks as a setting; empty if none are requested and the model's task has none."""
    if grid.benchmarks is None or model not in models.names():  # resolve() reports it with its place
        return []
    task = tasks.find_for_model(model)
    if "benchmarks" in task.Evaluate.model_fields:
        return as_sets({"evaluate.benchmarks": grid.benchmarks})
    if grid.benchmarks:
        raise UsageError(f"{grid.flag_of('benchmarks')}: {model} learns from {task.name}, which has no benchmarks; "
                         "remove it")
    return []


def _paired(grid: Grid, cells: list[Cell]) -> tuple[Grid, list[Cell]]:
    """Return grid and cells; UsageError with every reason why the cells cannot be compared."""
    if errors := pairing_errors(grid, cells):
        raise UsageError(*errors)
    return grid, cells


def _extreme_trials(grid: Grid, folder: Path, first: Settings) -> dict[str, Cell]:
    """Trials of each strategy at the bounds of the search, by their names in errors. UsageError for a wrong value."""
    trials: dict[str, Cell] = {}
    for values in tuning.extreme_sets(grid, first):
        flag_names = {f"--set {text}": place for text, place in values.items()}
        for label, kind in grid.kinds():
            with search_space.errors_without_key(values):
                trials[f"{label} with {', '.join(values)}"] = _cell(
                    label, kind, tuning.SEED, grid, [*_shared_sets(grid, kind, folder), *values], folder, flag_names)
    return trials


def _cell(label: str, kind: Kind, seed: int, grid: Grid, sets: list[str], folder: Path,
          flag_names: Mapping[str, str] | None = None, is_tuned: bool = True) -> Cell:
    """Build one cell. flag_names: names of settings in error messages. is_tuned: False before a requested search."""
    settings = run_settings.resolve(kind.strategy, kind.model, grid.corpus, kind.loss, None, sets, seed,
                                    flag_names={**grid.flag_names(label, kind), **(flag_names or {})},
                                    check_rates=is_tuned)
    name = f"{label}-seed{seed}"
    return Cell(name, label, kind.strategy, kind.loss, kind.model, seed, folder / "cells" / name, settings,
                start=folder / "start" if grid.start else None)


def _report(folder: Path, grid: Grid, cells: Sequence[Cell], store_grid: Callable[[], None] = lambda: None,
            check: Callable[[], None] = lambda: None) -> Comparison:
    """Score the cells and write results.json and the report, which contains the stored grid. check: `results.write`."""
    notes = check_equal_settings(cells)
    outcomes = [_read_outcome(folder, cell) for cell in cells]
    plan_tree = grid.model_dump(mode="json")
    claim = None
    if grid.paper is not None:
        with stored_files():
            paper = papers.read(folder / papers.FILE)
        claim = claims.reproduction(paper, plan_tree, outcomes, spent(cells))
    lines = [line for line in (folders.left_out(folder, grid, [cell.name for cell in cells]), *notes) if line]
    results.write(folder, plan_tree, outcomes, claim, tuning.summary(folder, grid), lines, check)
    store_grid()
    page.write(folder)
    return Comparison(folder)


def _read_outcome(folder: Path, c: Cell) -> CellOutcome:
    return outcome.read_outcome(folder, c.name, c.label, c.loss, c.model, c.seed, c.folder, c.failure)


def rejudge(folder: Path, check: Callable[[], None] = lambda: None) -> Comparison:
    """Repeat the statistics and the report of a comparison; nothing is trained. check: as for `results.write`."""
    folders.check_report_of_comparison(folder)
    grid, cells = _paired(*_plan(read_grid({}, None, folder), folder))
    folders.note_left_out(folder, grid, [cell.name for cell in cells])
    return _report(folder, grid, cells, check=check)
