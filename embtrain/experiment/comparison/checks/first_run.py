"""Preparation of the first run of a comparison: reads the corpus, builds a run of each strategy, checks the disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from embtrain.common.terminal import without_repeated_warnings
from embtrain.experiment.comparison import engine, tuning
from embtrain.experiment.comparison.checks import disk, parts
from embtrain.experiment.comparison.workers import Cell
from embtrain.experiment.run.results import benchmark_hashes
from embtrain.experiment.run.started import check_corpus, read_corpus
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task


@without_repeated_warnings()     # runs of several models read one corpus several times
def prepare(folder: Path, cells: Sequence[Cell], probes: Mapping[str, Cell], trials: int, parallel: int,
            check: Callable[[Task], None]) -> int:
    """Run the checks that need the corpus, check the disk, and return the approximate number of blocks of each run.

    Reading here fills the cache before many processes read it. probes: a cell of each label that is not finished, and
    trials at the bounds of a search, by their names in errors. trials: number of trials of each label that may still
    train. parallel: runs at a time. check: a further check of the corpus as the first cell reads it. DataError if
    finished cells were trained on another corpus; UsageError or DataError if a run cannot be built; ResourceError if
    the disk is too small.
    """
    settings = cells[0].settings
    finished = [cell for cell in cells if cell.is_finished()]
    task = read_corpus(finished[0].folder, settings) if finished else tasks.read(settings)
    for cell in finished[1:]:
        check_corpus(cell.folder, task)
    benchmark_hashes.require_unchanged([cell.folder for cell in finished], settings)
    planned = parts.build_each(probes, task)
    check(task)
    searching = [replace(cell, name=path.name, folder=path)
                 for label, cell in probes.items() if label == cell.label
                 for path in (tuning.trial_folder(folder, label, i) for i in range(trials))]
    disk.require_disk(folder, [*cells, *searching], planned, parallel)
    return task.examples.n_blocks(0, engine.block_size(cells[0], settings.train.engine)) * settings.train.epochs
