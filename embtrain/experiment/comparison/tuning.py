"""Choose settings for each strategy of a comparison, with equal effort for each.

All strategies get the same number of trials, each as long as a cell of the comparison, with the same seed and data,
scored on the validation part and never on test. If the comparison is decided by half of a benchmark (`men.even`), its
trials are scored by the other half.

    DIR/search/LABEL-trialN/   an ordinary run
    DIR/search.json            the settings and the value of each trial

Suggestions come from optuna's TPE. It receives the trials in their order and the same seed for all strategies, so it
repeats its suggestions when a search continues: no state of optuna is stored, and the first, random trials are the same
for strategies that are searched over the same keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embtrain.common import progress, shipped, terminal
from embtrain.common.config import as_sets
from embtrain.common.errors import DataError, ResourceError, UsageError, read_error
from embtrain.common.files import lock_folder, read_json, write_json
from embtrain.evaluate.comparison.results import ChosenSettings
from embtrain.evaluate.heldout import higher_better
from embtrain.experiment.comparison import outcome
from embtrain.experiment.comparison.grid import Grid
from embtrain.experiment.comparison.search_space import Range, parse_ranges, places
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks.base import Task
from embtrain.report.format import number

SEED = 0            # of the trials' runs and of the suggestions; seeds of a comparison start at 1
RANDOM_TRIALS = 5          # trials before TPE starts to model the results
FILE = "search.json"
MAX_WAIT = 60.0     # seconds for a joined process that stores a trial


def objective(metric: str, task: type[Task]) -> tuple[str, bool]:
    """The metric that trials are scored by, and whether higher is better.

    The validation part of a metric of the test, the other half of half a benchmark, else the task's stopping metric.
    """
    part, _, name = metric.partition("/")
    if halves := trial_benchmarks(metric):
        return f"{halves[0]}/{name}", True
    return (f"valid/{name}", higher_better(metric)) if part in ("valid", "test") else (task.stopping_metric, True)


def trial_benchmarks(metric: str) -> list[str]:
    """The benchmarks of a trial: the half that does not decide the comparison, if half of one does; else none."""
    name = metric.partition("/")[0]
    benchmark, _, half = name.rpartition(".")
    return [f"{benchmark}.{shipped.HALVES[1 - shipped.HALVES.index(half)]}"] \
        if half in shipped.HALVES and shipped.is_benchmark(name) else []


def search_errors(grid: Grid, metric: str, task: type[Task], settings: Settings) -> list[str]:
    """Return the reasons why a grid's search is impossible; empty if it is possible or not requested."""
    if bool(grid.search) != (grid.trials is not None):
        return ["--search and --trials must be set together; give the keys, and the number of trials for each strategy"]
    if not grid.search:
        return []
    if SEED in grid.seeds:
        return [f"{grid.flag_of('seeds')}: {SEED} is the seed of the trials that choose the settings; give other seeds"]
    if metric.startswith("valid/"):
        return [f"{grid.flag_of('metric')}: {metric}: it scores the trials of the search, so it cannot decide the "
                f"comparison as well; choose another, for example {task.metric}"]
    if find_spec("optuna") is None:
        return ["--search: optuna is not installed; pip install 'embtrain[search]'"]
    sets = [*grid.sets, *(text for kind in grid.runs.values() for text in kind.sets)]
    parse_ranges(grid.search, sets, settings, grid.flag_of)
    reason = task.missing_split_reason(settings, "valid")
    if reason and not trial_benchmarks(metric):
        return [f"--search: trials are scored by {objective(metric, task)[0]}, and {reason}"]
    return []


def extreme_sets(grid: Grid, settings: Settings) -> list[dict[str, str]]:
    """Settings KEY=VALUE at the bounds, each with the name of its range in errors: if these hold, all do."""
    ends = {parsed.key: parsed.ends() for parsed in parse_ranges(grid.search, grid.sets, settings, grid.flag_of)}
    bounds = [{key: values[min(i, len(values) - 1)] for key, values in ends.items()}
              for i in range(max(map(len, ends.values()), default=0))]
    return [dict(zip(as_sets(used_settings(x)), places(grid.search, grid.flag_of), strict=True)) for x in bounds]


# -- results ----------------------------------------------------------------------------------------------------------

Trials = dict[str, list[dict[str, Any]]]  # label -> settings, value, cpu_seconds and error of each trial


def read(folder: Path) -> dict[str, Any]:
    """search.json of a comparison; empty if there is none."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        tree = read_json(path)
        "; ".join(tree["search"]), tree["metric"], tree["higher"]
        for trials in tree["trials"].values():
            for trial in trials:
                trial["settings"].items(), trial["value"]
        return tree
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise read_error(path, error, f"was not written by a search: {error}") from error


def first_trial_sets(folder: Path, grid: Grid, task: type[Task]) -> dict[str, list[str]]:
    """KEY=VALUE of the first trial of each strategy; all other trials differ from it in these keys alone.

    UsageError if the stored search used other ranges, or if its trials were scored by another metric.
    """
    tree = read(folder) if grid.search else {}
    if tree and tree["search"] != grid.search:
        raise UsageError(f"{folder / FILE}: was searched over {'; '.join(tree['search'])}, but "
                         f"{'; '.join(grid.search)} is requested now; give the comparison another folder")
    if tree and tree["metric"] != (metric := objective(str(grid.metric), task)[0]):
        raise UsageError(f"{grid.flag_of('metric')}: {grid.metric}: the trials of {folder / FILE} were scored by "
                         f"{tree['metric']}, but {metric} is requested now; give the comparison another folder")
    return {label: as_sets(used_settings(tree["trials"][label][0]["settings"])) for label, _ in grid.kinds()
            if tree.get("trials", {}).get(label)}


def best_sets(folder: Path, grid: Grid) -> dict[str, list[str]]:
    """KEY=VALUE of the best trial of each strategy; empty unless the requested search is complete."""
    tree = read(folder) if grid.search else {}
    labels = [label for label, _ in grid.kinds()]
    if not tree or any(len(tree["trials"].get(label, [])) < (grid.trials or 0) for label in labels):
        return {}
    return {label: as_sets(used_settings(best_trial(_requested_trials(tree, grid, label), tree["higher"],
                                                    label)["settings"])) for label in labels}


def _requested_trials(tree: Mapping[str, Any], grid: Grid, label: str) -> list[dict[str, Any]]:
    """The requested number of trials of each strategy, if some have more."""
    return tree["trials"][label][:grid.trials]


def summary(folder: Path, grid: Grid) -> list[ChosenSettings]:
    """For results.json: the settings chosen for each strategy, with the number and cost of its trials."""
    tree, out = read(folder) if grid.search else {}, list[ChosenSettings]()
    for label in [label for label, _ in grid.kinds() if tree.get("trials", {}).get(label)]:
        trials = _requested_trials(tree, grid, label)
        chosen = best_trial(trials, tree["higher"], label)
        out.append(ChosenSettings(label, tree["metric"], chosen["value"], len(trials),
                                  sum(trial["value"] is None for trial in trials), used_settings(chosen["settings"]),
                                  sum(trial["cpu_seconds"] or 0.0 for trial in trials)))
    return out


def trial_folder(folder: Path, label: str, trial: int) -> Path:
    """The folder of the run of one trial, numbered from 0."""
    return folder / "search" / f"{label}-trial{trial + 1}"


def best_trial(trials: Sequence[Mapping[str, Any]], higher: bool, label: str) -> Mapping[str, Any]:
    """The first of the best trials; DataError if none has a value."""
    done = [trial for trial in trials if trial["value"] is not None]
    if not done:
        failed = f"the only trial of {label} failed" if len(trials) == 1 else \
            f"all {len(trials)} trials of {label} failed; the first"
        raise DataError(f"--search: {failed}: {trials[0]['error']}")
    return max(done, key=lambda trial: trial["value"] if higher else -trial["value"])


def format_choices(searched: Sequence[ChosenSettings]) -> list[str]:
    """The chosen settings, one line per strategy, for a terminal."""
    return [terminal.plain(f"{choice.strategy}: {', '.join(_short(choice.settings))} ({choice.metric} "
                           f"{number(choice.value)}, the best of {(n := choice.trials - choice.failed)} "
                           f"trial{'' if n == 1 else 's'}"
                           f"{f'; {choice.failed} failed' if choice.failed else ''})") for choice in searched]


def used_settings(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a trial. The rate stays constant where a final rate above the first one was drawn."""
    rates: list[Any] = [drawn.get(key) for key in ("train.lr", "train.min_lr")]
    rises = all(type(rate) in (int, float) for rate in rates) and rates[0] < rates[1]      # others are refused later
    return {**drawn, "train.min_lr": rates[0]} if rises else dict(drawn)


def _short(settings: Mapping[str, Any]) -> list[str]:
    """Rounded for reading; the settings themselves keep all their digits."""
    return as_sets({key: float(f"{value:.4g}") if isinstance(value, float) else value
                    for key, value in settings.items()})


# -- the search -------------------------------------------------------------------------------------------------------

def search(folder: Path, grid: Grid, settings: Settings, task: type[Task], cell: Callable[[str, int, list[str]], Cell],
           run: Callable[[list[Cell]], None]) -> None:
    """Run the trials that search.json lacks, one of each strategy at a time; each is stored as it ends.

    cell(label, trial, sets) builds a trial's cell; run(cells) runs cells, and raises Stopped on a signal. UsageError if
    the stored trials have other settings than optuna suggests now; ResourceError if a trial lacked machine resources or
    was killed, which is no evidence about its settings.
    """
    labels, trials = [label for label, _ in grid.kinds()], grid.trials or 0
    distributions = {x.key: _distribution(x) for x in parse_ranges(grid.search, grid.sets, settings, grid.flag_of)}
    metric, higher = objective(str(grid.metric), task)
    tree = read(folder) or {"search": grid.search, "metric": metric, "higher": higher, "trials": {}}
    trials_by_label: Trials = tree["trials"]
    studies = {label: _study(higher) for label in labels}
    if not progress.is_quiet():
        terminal.note(f"search: {trials} trial{'' if trials == 1 else 's'} for {', '.join(labels)}, scored by {metric}")
        terminal.note(f"search: the first {RANDOM_TRIALS} are random, the same for each strategy")
    for i in range(trials):
        suggestions = {label: study.ask(distributions) for label, study in studies.items()}
        new: dict[str, Cell] = {}
        for label, trial in suggestions.items():
            earlier = trials_by_label.setdefault(label, [])
            if len(earlier) <= i:
                new[label] = cell(label, i, as_sets(used_settings(trial.params)))
            elif earlier[i]["settings"] != trial.params:
                raise UsageError(f"{folder / FILE}: trial {i + 1} of {label} used {earlier[i]['settings']}, but would "
                                 f"use {trial.params} now, perhaps because of another version of optuna; give the "
                                 "comparison another folder")
        if new:
            if not progress.is_quiet():
                terminal.note(f"search: trial {i + 1} of {trials}")
            run(list(new.values()))
            results = {label: _trial_result(folder, trial_cell, metric) for label, trial_cell in new.items()}
            for label, result in results.items():
                trials_by_label[label].append(result | {"settings": suggestions[label].params})
            _store(folder, tree)
            for label in new:
                _print_trial(label, trials_by_label[label][:i + 1], metric, higher)
        for label, trial in suggestions.items():
            _report_value(studies[label], trial, trials_by_label[label][i]["value"])


def _store(folder: Path, tree: Mapping[str, Any]) -> None:
    """Write search.json. The trials of a strategy that a joined process stored first replace those in `tree`."""
    message = f"{folder / FILE}: another process writes it; stop that process, and repeat the command"
    with lock_folder(folder / "search", message, wait=MAX_WAIT):     # else one writes what it read before the other
        stored: Trials = read(folder).get("trials", {})
        for label, trials in tree["trials"].items():
            tree["trials"][label] = max(stored.get(label, []), trials, key=len)
        if (merged := stored | tree["trials"]) != stored:
            write_json(folder / FILE, {**tree, "trials": merged})


def _print_trial(label: str, trials: Sequence[Mapping[str, Any]], metric: str, higher: bool) -> None:
    """Print the settings and the value of the last trial, and the best trial so far."""
    if progress.is_quiet():
        return
    last = trials[-1]
    outcome_text = f"failed: {last['error']}"
    if last["value"] is not None:
        first = best_trial(trials, higher, label)
        best_text = f"trial {trials.index(first) + 1} has {number(first['value'])}"
        outcome_text = f"{metric} {number(last['value'])}; {'the best so far' if first is last else best_text}"
    terminal.note(f"{label}: trial {len(trials)}: {', '.join(_short(used_settings(last['settings'])))}: {outcome_text}")


def _trial_result(folder: Path, trial_cell: Cell, metric: str) -> dict[str, Any]:
    """A trial's value; a diverged trial, whose scores are not finite, counts as failed.

    ResourceError if the machine lacked resources for it, or if it was killed.
    """
    try:
        trial_outcome = outcome.read_outcome(folder, trial_cell.name, trial_cell.label, trial_cell.loss,
                                             trial_cell.model, trial_cell.seed, trial_cell.folder, trial_cell.failure)
    except DataError as error:
        return {"value": None, "cpu_seconds": None, "error": f"{error}"}
    if trial_outcome.starved:
        raise ResourceError(f"{trial_outcome.relative_folder}: {trial_outcome.error}; this trial does not rate "
                            "its settings, because the machine could not finish it, so the search stops; free "
                            "resources and repeat the command, after --join with --retry-failed, or give narrower "
                            "ranges and another folder")
    value = trial_outcome.values().get(metric)
    return {"value": value, "cpu_seconds": trial_outcome.cpu_seconds,
            "error": trial_outcome.error or (f"has no {metric}" if value is None else None)}


def _study(higher: bool) -> Any:
    import optuna

    optuna.logging.set_verbosity(logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=RANDOM_TRIALS)
    return optuna.create_study(direction="maximize" if higher else "minimize", sampler=sampler)


def _distribution(search_range: Range) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if search_range.among:
        return CategoricalDistribution(search_range.among)
    if search_range.is_integer:
        return IntDistribution(int(search_range.low), int(search_range.high), log=search_range.log)
    return FloatDistribution(search_range.low, search_range.high, log=search_range.log)


def _report_value(study: Any, trial: Any, value: float | None) -> None:
    from optuna.trial import TrialState

    study.tell(trial, value, TrialState.FAIL if value is None else None)
