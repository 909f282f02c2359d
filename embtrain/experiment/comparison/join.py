"""Compare runs that were trained separately, as if they had been planned as a comparison.

Runs of one kind share all settings but the seed; settings other than strategy and loss in which the kinds differ are
added to their labels. The evaluated text, its split and the benchmarks must be the same in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from embtrain import report
from embtrain.common import terminal
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import claim_folder, dated_folder, resume_command
from embtrain.experiment.comparison import compare, failures, outcome, results
from embtrain.experiment.comparison.checks.folder import check_folder_of_report, check_report_of_run, first_names
from embtrain.experiment.comparison.compare import Comparison
from embtrain.experiment.comparison.grid import FILE, read_grid, stored_files
from embtrain.experiment.comparison.workers import FAILURE
from embtrain.experiment.run import settings as run_settings
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.report import figure_files
from embtrain.report.comparison import page

IGNORED_KEYS = ("corpus", "train.seed", "train.threads")  # not part of the kind; the text is compared by its hash
PARENT = "train.parent"  # of another seed it is another run: the kind is whether there is one


def write(folders: Sequence[Path], out: Path | None = None, baseline: str | None = None, metric: str | None = None,
          figures: Sequence[str] = ()) -> Path:
    """Write the report of a run, of a comparison, or of several joined; returns its path.

    figures: kinds of figures that the caller will write next to it, which must be possible.
    """
    flags = [flag for flag, value in (("--out", out), ("--baseline", baseline), ("--metric", metric))
             if value is not None]
    if len(folders) == 1 and not (folders[0] / FILE).is_file():
        if flags:
            raise UsageError(f"{flags[0]}: applies to several runs, but {folders[0]} is one; remove it")
        check_report_of_run(folders[0])
        return report.write(folders[0], partial(figure_files.check_places, folders[0], figures))
    if len(folders) == 1 and not flags:
        judged = compare.rejudge(folders[0], partial(figure_files.check_places, folders[0], figures))
        if line := failures.not_run(folders[0], judged.record):
            terminal.note(line)
        return judged.folder / "report.html"
    return join(folders, out, baseline, metric, figures).folder / "report.html"


def join(folders: Sequence[Path], out: Path | None = None, baseline: str | None = None, metric: str | None = None,
         figures: Sequence[str] = ()) -> Comparison:
    """Compare runs, and the cells of comparisons, in a new folder; nothing is trained. figures: as for `write`."""
    folder = out or dated_folder("compare")
    check_folder_of_report(folder)
    grid = read_grid({"metric": metric})
    settings_by_run, notes = _runs(folders)
    for note in notes:
        terminal.note(note)
    labels = _labels(settings_by_run)
    kinds = list(dict.fromkeys(labels.values()))
    first = next(iter(settings_by_run.values()))
    task = tasks.find(first)
    for run, settings in settings_by_run.items():
        if tasks.find(settings) is not task:
            raise DataError(f"{run}: cannot be compared with {next(iter(settings_by_run))}: model.name: "
                            f"{settings.model.name} "
                            f"does not learn from {task.name}")
        for key in (task.section, "evaluate"):
            for key_path, a, b in outcome.differing_keys(outcome.value_at(first, key), outcome.value_at(settings, key),
                                                         key):
                raise DataError(f"{run}: cannot be compared with {next(iter(settings_by_run))}, which has {key_path}: "
                                f"{a!r} instead of {b!r}")
    if len(kinds) < 2:
        raise UsageError(f"{', '.join(map(str, folders))}: all are {kinds[0]}; add a run of another strategy")
    if baseline is not None and baseline not in kinds:
        raise UsageError(f"--baseline: {baseline!r} is not one of {', '.join(kinds)}")
    run_by_label_and_seed: dict[tuple[str, int], Path] = {}
    for run, settings in settings_by_run.items():
        if (first_run := run_by_label_and_seed.setdefault((labels[run], settings.train.seed), run)) != run:
            raise DataError(f"{first_run} and {run}: are both {labels[run]} with seed {settings.train.seed}; remove "
                            "one")
    plan = {**grid.model_dump(mode="json"),
            "strategies": list(dict.fromkeys(x.strategy for x in settings_by_run.values())),
            "models": list(dict.fromkeys(x.model.name for x in settings_by_run.values())), "corpus": first.corpus,
            "seeds": sorted({x.train.seed for x in settings_by_run.values()}), "baseline": baseline or kinds[0],
            "benchmarks": task.benchmarks(first), "metric": metric or task.metric}
    folder = out or claim_folder(folder)
    outcomes = [outcome.read_outcome(folder, f"{labels[run]}-seed{x.train.seed}", labels[run], x.loss.name,
                                     x.model.name, x.train.seed, run, None) for run, x in settings_by_run.items()]
    if metric is not None and not any(f"{row.benchmark}/{row.metric}" == metric for left in outcomes
                                      for row in left.scores):
        outcome.require_metric(metric, outcomes[0], grid.flag_of("metric"), "choose one of them")
    results.write(folder, plan, outcomes, notes=notes, check=partial(figure_files.check_places, folder, figures))
    page.write(folder)
    return Comparison(folder)


def _runs(folders: Sequence[Path]) -> tuple[dict[Path, Settings], list[str]]:
    """The runs of these folders, each once, with their settings; and a line on the unfinished ones of comparisons."""
    settings_by_run: dict[Path, Settings] = {}
    notes: list[str] = []
    for folder in folders:
        runs = [folder]
        if (folder / FILE).is_file():
            runs = sorted(path.parent for path in folder.glob("cells/*/scores.json"))
            begun = {path.name.removesuffix(FAILURE) for path in folder.glob("cells/*")}
            if unfinished := sorted(begun - {run.name for run in runs}):
                part = terminal.format_part(len(unfinished), len(begun), "runs", "is", "are")
                notes.append(f"{folder}: {part} not finished and not compared ({first_names(unfinished)}); to finish "
                             f"{'it' if len(unfinished) == 1 else 'them'}, run `embtrain compare` with this --out")
        for run in runs:
            with stored_files():
                settings = run_settings.from_run(run)
            if not (run / "scores.json").is_file():
                raise DataError(f"{run}: is not finished: it has no scores.json; finish it with: {resume_command(run)}")
            settings_by_run[run.resolve()] = settings
    if not settings_by_run:
        raise DataError(f"{', '.join(map(str, folders))}: no run is finished; resume the comparison")
    return settings_by_run, notes


def _labels(settings_by_run: dict[Path, Settings]) -> dict[Path, str]:
    """Strategy, loss and model of each run, and in brackets the keys that distinguish runs of the same name."""
    models = {settings.model.name for settings in settings_by_run.values()}
    base_labels = {run: outcome.label(x.strategy, _changed_loss(x), x.model.name if len(models) > 1 else None)
                   for run, x in settings_by_run.items()}
    settings_by_label: dict[str, list[Settings]] = {}
    for run, settings in settings_by_run.items():
        settings_by_label.setdefault(base_labels[run], []).append(settings)
    # A key in which any two runs of a name differ is one in which some run differs from the first.
    keys = {label: sorted({place for other_settings in settings_of_label for place, a, b in
                           outcome.differing_keys(settings_of_label[0], other_settings, "")
                           if place != PARENT or (a is None) != (b is None)} - set(IGNORED_KEYS))
            for label, settings_of_label in settings_by_label.items()}
    labels = {}
    for run, settings in settings_by_run.items():
        suffix = ", ".join(f"{key}={_value(settings, key)}" for key in keys[base_labels[run]])
        labels[run] = base_labels[run] + (f" ({suffix})" if suffix else "")
    return labels


def _changed_loss(settings: Settings) -> str | None:
    """The loss of a run if its strategy names another one; a strategy that no longer exists names none."""
    sets = [f"negatives.source={settings.negatives.source}"]  # the file of a strategy may lack it
    try:
        strategy_loss = run_settings.resolve(settings.strategy, settings.model.name, sets=sets).loss.name
    except UsageError:
        return None
    return None if settings.loss.name == strategy_loss else settings.loss.name


def _value(settings: Settings, key: str) -> Any:
    tree: Any = settings.model_dump(mode="json")
    for name in key.split("."):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return "a run" if key == PARENT and tree is not None else tree
