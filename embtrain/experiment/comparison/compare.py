"""Which negatives should I use? Strategies × losses × models × seeds, trained alike and judged together.

The design is paired. All cells read one text, split alike. The cells of one seed begin from the same tables and see
the same positives in the same order, so that what the seed does to all of them cancels in their differences. What would
break the pairs, such as a strategy that changes the window, is refused before anything is trained.

    DIR/comparison.yaml   the grid, every default written out
    DIR/cells/NAME/       one run each; NAME.error.json of one that failed
    DIR/search.json       settings that were chosen for each strategy before, where that was asked for (search.py)
    DIR/results.json      what the statistics made of them (results.py), the report beside it
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from embtrain import report
from embtrain.common import progress, terminal
from embtrain.common.config import dump
from embtrain.common.errors import DataError, Stopped, UsageError
from embtrain.common.files import as_argument, check_out, claim, read_json, stamped, write_text
from embtrain.common.types import Score
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.experiment.comparison import outcome, results, tuning, workers as processes
from embtrain.experiment.comparison.checks import check_begun, different_blocks, slow, wrong
from embtrain.experiment.comparison.grid import Grid, Kind, grid
from embtrain.experiment.comparison.outcome import Found
from embtrain.experiment.comparison.verdict import CPU
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.paper import claims, spec as papers
from embtrain.experiment.run import downstream, scoring, settings as runs
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import check_corpus
from embtrain.experiment.tasks import base as tasks
from embtrain.kernels.core.library import core
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.report.comparison import page
from embtrain.report.load.comparison import LARGEST
from embtrain.train.engines import choose

PAPER = "paper.yaml"  # the claim, in the folder of a comparison that reproduces one


@dataclass(frozen=True)
class Comparison:
    """A comparison that has come to its end."""

    folder: Path

    @cached_property
    def results(self) -> dict[str, Any]:
        path = self.folder / "results.json"
        try:
            return read_json(path, LARGEST)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: holds no results: {error}") from error

    @property
    def verdict(self) -> list[str]:
        return self.results["verdict"]

    def table(self) -> str:
        """What each strategy scored over its seeds, and the verdict, as a terminal shows them."""
        told = [self.results["plan"]["metric"], CPU]
        told[1:1] = [f"{name}/{load_recipe('evals', name).metric}" for name in self.results["plan"]["benchmarks"]]
        rows = [Score(line["strategy"], line["metric"], line["mean"], line["low"], line["high"], line["n"])
                for metric in dict.fromkeys(told) for line in self.results["summary"] if line["metric"] == metric]
        return "\n".join([report.table(rows), "", *tuning.told(self.results.get("search", [])),
                          *map(terminal.plain, [*self.verdict, *results.warnings(self.results)])])


def compare(of: Grid, out: Path | None = None, parallel: int | None = None, threads: int = 0,
            budget: float | None = None) -> Comparison:
    """Run the cells that are not finished, then judge them and report. The same folder again goes on with the rest.

    threads: cores for all of it (0: every core); parallel: cells at a time, which share them (None: one to a core, for
    on one thread a run repeats itself bit for bit); budget: CPU seconds after which no further cell begins.
    """
    folder = out or stamped("compare")
    check_folder(folder)
    asked, (of, planned) = of, plan(of, folder)
    if out is None and folder != (folder := claim(folder)):  # another process has taken the name since
        of, planned = plan(asked, folder)
    again = _again(of, folder, parallel, threads, budget)
    cores = threads or len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    at_once, each = min(parallel or cores, len(planned)), max(1, cores // parallel) if parallel else 1
    with processes.working_in(folder) as lock:
        trials = [_trial(of, folder, label, 0, sets) for label, sets in tuning.begun(folder, of).items()]
        check_begun(trials)
        searched = not of.search or bool(tuning.sets(folder, of))
        if searched:
            check_begun(planned)
        if not progress.quiet:
            terminal.note(_engine_line(planned, _plan(asked, folder)[1]))
        write_text(folder / "comparison.yaml", dump(of))
        try:
            for cell in planned:
                if cell.is_finished():                       # before the corpus is read
                    _expect(of, _left(folder, cell), folder, again)
            if not (searched and all(cell.is_finished() for cell in planned)):
                run = partial(processes.run, parallel=at_once, threads=each, blocks=_ready([*planned, *trials]),
                              lock=lock, budget=budget)
                if not searched:
                    _search(of, folder, planned[0].settings, again, run)
                    of, planned = plan(of, folder)
                    check_begun(planned)
                run(planned, look=lambda cell: _expect(of, _left(folder, cell), folder, again))
            return _report(folder, of, planned)
        except Stopped as stopped:
            raise Stopped(stopped.signal, again) from stopped


def check_folder(folder: Path) -> None:
    """UsageError or ResourceError where no comparison can be, before anything is written."""
    if (folder / "config.yaml").exists():
        raise UsageError(f"--out: {folder} holds a run; choose another folder")
    check_out(folder)


def _again(of: Grid, folder: Path, parallel: int | None, threads: int, budget: float | None) -> str:
    """The command that goes on in a folder; what is not said again, the folder knows."""
    words = ["embtrain", *(["compare"] if of.paper is None else ["reproduce", as_argument(of.paper)]), "--out",
             as_argument(folder)]
    words += [] if parallel is None else ["--parallel", str(parallel)]
    words += ["--threads", str(threads)] if threads else []
    return shlex.join(words if budget is None else [*words, "--cpu-seconds", f"{budget:g}"])


def _expect(of: Grid, cell: Found, folder: Path, again: str) -> None:
    """UsageError where a finished cell lacks a metric that is asked for."""
    if of.paper is None:
        _has(of, cell, str(of.metric), again)
    else:
        papers.expect(folder / PAPER, cell, of.benchmarks or [], again)


def _has(of: Grid, cell: Found, metric: str, again: str) -> None:
    outcome.expect(metric, cell, of.said("metric"),
                 f"What is trained stays; to go on with one of them: {again} --metric ...")


def _ready(cells: Sequence[Cell]) -> int:
    """About how many blocks each run has. The corpus is read for it once, before many read it from the cache; DataError
    where those that are finished were trained on another."""
    config = cells[0].settings
    task = tasks.read(config)
    for cell in cells:
        if cell.is_finished():
            check_corpus(cell.folder, task)
    return task.examples.n_blocks(0, _block(cells[0], config.train.engine)) * config.train.epochs


def _search(of: Grid, folder: Path, first: Settings, again: str, run: Callable[..., None]) -> None:
    """Choose settings for each strategy, on validation."""
    task = tasks.find(first)
    metric, _ = tuning.objective(str(of.metric), task)
    tuning.search(folder, of, first, task, partial(_trial, of, folder),
                  partial(run, look=lambda trial: _has(of, _left(folder, trial), metric, again)))


def _trial(of: Grid, folder: Path, label: str, trial: int, sets: list[str]) -> Cell:
    """The cell of one trial of a strategy, from 0 on; validation alone will judge it."""
    kind, name = dict(of.kinds())[label], f"{label}-trial{trial + 1}"
    fixed = _for_all(of.model_copy(update={"benchmarks": []}), kind)
    made = _cell(label, kind, tuning.SEED, of, [*fixed, *sets], folder)
    return replace(made, name=name, folder=folder / "search" / name)


def plan(of: Grid, folder: Path) -> tuple[Grid, list[Cell]]:
    """The grid with its defaults filled in, one engine for all among them, and its cells; UsageError with every reason
    why they cannot be compared."""
    return _checked(*_plan(_one_engine(*_plan(of, folder)), folder), folder)


def _plan(of: Grid, folder: Path) -> tuple[Grid, list[Cell]]:
    """The grid with its defaults filled in, and its cells."""
    if not of.strategies and not of.runs:
        raise UsageError("--negatives: names what is compared, such as sgns,nce,ace (`embtrain list` has them all)")
    for name in of.benchmarks or []:            # once, and by what named it: to a cell it is a setting of its own
        scoring.check_names([name], flag=of.said("benchmarks", name))
    found_sets = tuning.sets(folder, of)
    cells = [_cell(label, kind, seed, of, [*_for_all(of, kind), *found_sets.get(label, [])], folder)
             for seed in of.seeds for label, kind in of.kinds()]
    first, task = cells[0].settings, tasks.find(cells[0].settings)
    if other := next((cell for cell in cells if tasks.find(cell.settings) is not task), None):
        place = of.flags(other.label, dict(of.kinds())[other.label]).get("--model", "--model")
        raise UsageError(f"{place}: {cells[0].model} learns from {task.name} and {other.model} does not: there is "
                         "nothing that both could be judged on")
    of = of.model_copy(update={"corpus": first.corpus, "benchmarks": task.benchmarks(first),
                               "baseline": of.baseline or cells[0].label, "metric": of.metric or task.metric})
    limits = {recipe.name: downstream.translator_settings(recipe, folder, first.model.dim).train.cpu_seconds
              for recipe in downstream.training_recipes(of.benchmarks or [])}
    return of, [replace(cell, within={cell.folder / name: limit for name, limit in limits.items()}) for cell in cells]


def _for_all(of: Grid, kind: Kind) -> list[str]:
    """What the grid sets for every run of a kind."""
    limit = [] if of.cpu_seconds is None else [f"train.cpu_seconds={of.cpu_seconds!r}"]
    return [*limit, *_judged_on(of, kind.model), *of.sets, *kind.sets]


def _judged_on(of: Grid, model: str) -> list[str]:
    """The benchmarks as a setting; none where none are asked for and the model's task knows of none."""
    if of.benchmarks is None or model not in models.names():  # which is told with its place where it is read
        return []
    task = tasks.of_model(model)
    if "on" in task.Evaluate.model_fields:
        return [f"evaluate.on=[{', '.join(of.benchmarks)}]"]
    if of.benchmarks:
        raise UsageError(f"{of.said('benchmarks')}: {model} learns from {task.name}, and no benchmark is for that; "
                         "leave it out")
    return []


def _checked(of: Grid, cells: list[Cell], folder: Path) -> tuple[Grid, list[Cell]]:
    """The same; UsageError with every reason why the cells cannot be compared."""
    if reasons := wrong(of, cells):
        raise UsageError(*reasons)
    first = cells[0].settings
    tasks.find(first).check(first)
    for values in tuning.ends(of, first):
        said = {f"--set {text}": of.said("search", asked) for text, asked in values.items()}
        for label, kind in of.kinds():
            _cell(label, kind, tuning.SEED, of, [*_for_all(of, kind), *values], folder, said)
    return of, cells


def _one_engine(of: Grid, cells: Sequence[Cell]) -> Grid:
    """The grid with an engine named for all cells, where `auto` could choose another for each, and with a block.

    The engines differ in what one update is, and that must not pass for a difference of strategies. So all have the one
    that the user named for some, or else fused if it can train each of them. Examples are shuffled within blocks, so
    one order takes one block: the smallest, if strategies or sources have different ones and no run sets its own.
    """
    engines = {cell.settings.train.engine for cell in cells}
    named = engines - {"auto"}
    if len(named) > 1:
        return of
    compiled = core() is not None
    chosen = min(named) if named else "step" if any(slow(cell, compiled) for cell in cells) else "fused"
    blocks = {_block(cell, chosen) for cell in cells}
    more = [f"train.engine={chosen}"] if "auto" in engines else []
    if len(blocks) > 1 and not any(kind.sets_key("train", "block") for _, kind in of.kinds()):
        more.append(f"train.block={min(blocks)}")
    return of.model_copy(update={"sets": [*of.sets, *more]}) if more else of


def _block(cell: Cell, chosen: str) -> int:
    s = cell.settings
    return choose.block_of(s.train, chosen, negatives.find(s.negatives.source).uses_model)


def _engine_line(cells: Sequence[Cell], alone: Sequence[Cell] = ()) -> str:
    """The engine of all cells and why it is not the fast one; `alone`: the cells before they got one block."""
    chosen, compiled = cells[0].settings.train.engine, core() is not None
    reasons = [] if chosen == "fused" else [reason for cell in cells for reason in slow(cell, compiled)]
    blocks = different_blocks({cell.label: _block(cell, chosen) for cell in alone}, cells[0].settings.train.block)
    return "; ".join([f"engine: {chosen} for all cells", *dict.fromkeys(reasons), *blocks])


def _cell(label: str, kind: Kind, seed: int, of: Grid, sets: list[str], folder: Path,
          said: Mapping[str, str] | None = None) -> Cell:
    """`said`: what errors call some of the settings."""
    options = ["--negatives", kind.strategy, "--model", kind.model, "--seed", str(seed)]
    options += ["--corpus", of.corpus] if of.corpus is not None else []
    options += ["--loss", kind.loss] if kind.loss is not None else []
    options += [word for text in sets for word in ("--set", text)]
    settings = runs.resolve(kind.strategy, kind.model, of.corpus, kind.loss, None, sets, seed,
                            flag_names={**of.flags(label, kind), **(said or {})})
    name = f"{label}-seed{seed}"
    return Cell(name, label, kind.strategy, kind.loss, kind.model, seed, folder / "cells" / name, settings,
                tuple(options))


def _report(folder: Path, of: Grid, planned: Sequence[Cell]) -> Comparison:
    """Judge the cells and write results.json and the report."""
    left = [_left(folder, cell) for cell in planned]
    asked = of.model_dump(mode="json")
    claim = None if of.paper is None else claims.reproduction(papers.read(folder / PAPER), asked, left)
    results.write(folder, asked, left, claim, tuning.summary(folder, of))
    page.write(folder)
    return Comparison(folder)


def _left(folder: Path, cell: Cell) -> Found:
    return outcome.cell(folder, cell.name, cell.label, cell.loss, cell.model, cell.seed, cell.folder, cell.failure)


def again(folder: Path) -> Comparison:
    """Judge and report a comparison anew; nothing is trained."""
    of, planned = _checked(*_plan(grid({}, None, folder), folder), folder)
    return _report(folder, of, planned)
