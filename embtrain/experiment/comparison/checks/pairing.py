"""Checks, before training, that the runs of a comparison can be paired."""

from __future__ import annotations

import filecmp
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from embtrain.common.errors import DataError, UsageError
from embtrain.common.shipped import benchmark_label
from embtrain.experiment.comparison import outcome, results, tuning
from embtrain.experiment.comparison.grid import Grid, stored_files
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.run import settings as run_settings
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import has_trained
from embtrain.experiment.tasks import base as tasks
from embtrain.negatives import base as negatives
from embtrain.train.engines import choose

PAIRED = ("model", "evaluate", "train.epochs", "train.chunk", "train.shuffle", "train.cpu_seconds",
          "train.engine")
# Keys that affect neither the scores nor the CPU seconds.
FREE = tuple(f"train.{name}" for name in ("checkpoint_every", "keep", "log_every", "sinks", "threads", "track_until"))
# Keys with paths whose content is compared by the other settings, or by the hashes in identity.json.
HASHED = ("strategy", "corpus", "evaluate.benchmarks", "evaluate.during_training")


def pairing_errors(grid: Grid, cells: Sequence[Cell]) -> list[str]:
    """Return the reasons why these cells cannot be compared."""
    labels, first, errors = dict.fromkeys(cell.label for cell in cells), cells[0], list[str]()
    if repeated := [name for name, n in Counter(cell.name for cell in cells).items() if n > 1]:
        keys = [key for key in ("losses", "models", "seeds") if len(set(getattr(grid, key))) < len(getattr(grid, key))]
        return [f"{grid.flag_of(keys[0] if keys else 'strategies')}: two runs would have the name {repeated[0]}; give "
                "each strategy, loss, model and seed once"]
    if len(labels) < 2 and not grid.search:
        errors.append(f"--negatives: {first.label} is the only strategy; add another, or tune it with --search")
    if grid.baseline not in labels:
        errors.append(f"{grid.flag_of('baseline')}: {grid.baseline!r} is not one of {', '.join(labels)}")
    task = tasks.find(first.settings)
    metric, benchmarks = grid.metric or task.metric, task.benchmarks(first.settings)
    errors += tuning.search_errors(grid, metric, task, first.settings)
    benchmark, flag = metric.partition("/")[0], f"{grid.flag_of('metric')}: {metric}"
    if benchmark in ("valid", "test") and (reason := task.missing_split_reason(first.settings, benchmark)):
        errors.append(f"{flag}: {reason}, or name another metric")
    elif not results.is_score(metric):
        errors.append(f"{flag}: is not a score, because neither higher nor lower is better; choose another")
    elif benchmark not in ("valid", "test", *map(benchmark_label, benchmarks)):
        errors.append(f"{flag}: {benchmark!r} is neither valid, test nor one of evaluate.benchmarks: "
                      f"{', '.join(map(benchmark_label, benchmarks))}")
    fused = [cell for cell in cells if cell.settings.train.engine == "fused"]
    errors += [f"--set train.engine=fused: {line}" for line in fused_blockers(fused, compiled=True)]
    for cell in cells:
        errors += _overridden_options(grid, cell)
        same_model = next(reference for reference in cells if reference.model == cell.model)
        for key in (task.section, *PAIRED):
            reference = same_model if key == "model" else first
            for differing_key, a, b in outcome.differing_keys(outcome.value_at(reference.settings, key),
                                                              outcome.value_at(cell.settings, key), key):
                # KeyPath that belong to a strategy, like its loss, or that do not affect held-out scores.
                if differing_key in task.strategy_keys or (key == "model"
                                                    and any(run_settings.strategy_sets(cell_of_pair.strategy,
                                                                                       differing_key)
                                                            for cell_of_pair in (cell, reference))):
                    continue
                errors.append(f"{differing_key}: is {a!r} in {reference.label} and {b!r} in {cell.label}: so the runs "
                              f"cannot be paired; give all runs one value with --set {differing_key}=...")
    return list(dict.fromkeys(errors))


def _overridden_options(grid: Grid, cell: Cell) -> list[str]:
    """Return the reasons why settings do not override the options that a run is named after, or its limit."""
    settings = cell.settings
    named = (("train.seed", "--seeds", cell.seed, settings.train.seed),
             ("strategy", "--negatives", cell.strategy, settings.strategy),
             ("model.name", "--model", cell.model, settings.model.name),
             ("loss.name", "--losses", cell.loss, settings.loss.name))
    errors = [f"--set {key}: each run has its own; use {flag}" for key, flag, requested, actual in named
              if requested not in (None, actual)]
    if grid.cpu_seconds not in (None, settings.train.cpu_seconds):
        errors.append(f"--set train.cpu_seconds: {settings.train.cpu_seconds}: {grid.flag_of('cpu_seconds')} is "
                      f"{grid.cpu_seconds}; remove one of the two")
    return errors


def different_blocks(own_blocks: Mapping[str, int], block: int | None) -> list[str]:
    """One line about the common block size if strategies have different ones alone. own_blocks: label -> block."""
    if len(set(own_blocks.values())) < 2:
        return []
    by_block = [f"{size:,} ({', '.join(label for label in own_blocks if own_blocks[label] == size)})"
                for size in sorted(set(own_blocks.values()))]
    return [f"train.chunk={block} for all runs, whose strategies have {', '.join(by_block)}"]


def fused_blockers(cells: Sequence[Cell], compiled: bool | None = None) -> list[str]:
    """Return the reasons why the fused engine cannot train cells, each after the labels that it applies to.

    compiled: whether its kernels are assumed to be there; None: look.
    """
    found = list[tuple[str, str]]()
    for cell in cells:
        s = cell.settings
        has_kernels = choose.has_kernels(s.train) if compiled is None else compiled
        reasons = choose.why_not_fused(s.model, negatives.find(s.negatives.source), s.negatives, s.loss, s.train,
                                       has_kernels)
        found += [(cell.label, reason) for reason in reasons]
    return group_by_line(found)


def group_by_line(found: Iterable[tuple[str, str]]) -> list[str]:
    """Return each line once, after the names that it applies to: `a, b: line`. found: (name, line)."""
    names_by_line: dict[str, dict[str, None]] = {}
    for name, line in found:
        names_by_line.setdefault(line, {})[name] = None
    return [f"{', '.join(names)}: {line}" for line, names in names_by_line.items()]


def check_equal_settings(cells: Sequence[Cell]) -> list[str]:
    """Raise DataError if finished runs of one label have different settings: their mean would belong to neither.

    Processes that join a comparison may have read different versions of a strategy file. Returns a line for each run
    whose settings cannot be read, because its scores do not depend on them any more.
    """
    first: dict[str, tuple[Cell, Settings]] = {}
    unread: list[str] = []
    for cell in cells:
        if not (cell.folder / "scores.json").is_file():
            continue
        try:
            with stored_files():
                saved = run_settings.from_run(cell.folder)
        except (UsageError, DataError):
            unread.append(f"{cell.name}: its config.yaml is missing, or this version of embtrain cannot read it, so "
                          f"its settings were not compared with those of the other runs of {cell.label}")
            continue
        other, expected = first.setdefault(cell.label, (cell, saved))
        for key, old, new in _differences(expected, saved, cell):
            if key not in (*FREE, "train.seed"):
                raise DataError(f"{cell.folder}: was trained with {key}: {new!r}, but {other.folder} with {old!r}, so "
                                "they have no common mean; remove one of them and repeat the comparison, or compare "
                                "them with `embtrain report` and --baseline")
    return unread


def check_saved_settings(cells: Sequence[Cell]) -> None:
    """Raise UsageError if a cell's folder contains a run with other settings than requested; DataError: with none.

    A run that has not trained gets the requested settings when it starts. A finished run may differ in keys that affect
    neither scores nor CPU seconds; an unfinished one continues with its own, so it may not, except for the threads of
    this machine. A finished run whose settings cannot be read is accepted; `check_equal_settings` reports it.
    """
    for cell in cells:
        if not has_trained(cell.folder):
            continue
        try:
            with stored_files():
                saved = run_settings.from_run(cell.folder)
        except DataError:
            if cell.is_finished():
                continue
            raise
        for key, old, new in _differences(saved, cell.settings, cell):
            if key != "train.threads" and (key not in FREE or not cell.is_finished()):
                raise UsageError(f"{cell.folder}: was trained with {key}: {old!r}, but {new!r} is requested now; give "
                                 "the comparison another folder, or remove that folder")


def _differences(a: Settings, b: Settings, cell: Cell) -> list[tuple[str, Any, Any]]:
    """The keys in which the settings of two runs of a comparison differ, with both values. cell: of one of them.

    Machines that join a comparison may reach its files by different paths, and its folder may be moved or copied.
    """
    start = None if cell.start is None else cell.start / "vectors.safetensors"
    return [(key, x, y) for key, x, y in outcome.differing_keys(a, b, "") if not _are_equal_files(key, x, y, start)]


def _are_equal_files(key: str, a: Any, b: Any, start: Path | None) -> bool:
    """Whether two values, or the items of two lists, are absolute paths of files with the same content.

    start: the vectors that the comparison trains first. Copies of them are equal, and a missing path with the same end
    is theirs; DataError if they are needed and missing. The content of `HASHED` is compared elsewhere, so one of two
    paths may be missing on this machine.
    """
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return all(x == y or _are_equal_files(key, x, y, start) for x, y in zip(a, b, strict=True))
    if not all(isinstance(path, str) and os.path.isabs(path) for path in (a, b)):
        return False
    vectors = start if start is not None and key == "train.start" and all(
        PurePath(path).match(f"{start.parent.name}/{start.name}") for path in (a, b)) else None
    if vectors is not None:
        a, b = (path if os.path.exists(path) else vectors for path in (a, b))
        if vectors in (a, b) and not vectors.exists():
            raise DataError(f"{vectors}: file not found, so the vectors that the runs started from cannot be compared; "
                            "restore it, or give the comparison another folder")
    try:
        return os.path.samefile(a, b) or (vectors is not None and filecmp.cmp(a, b, shallow=False))
    except OSError:         # at least one of them names no file of this machine
        return key in HASHED
