"""The trainer of a run folder: built from its components, and set to a checkpoint of the folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from embtrain.common import files
from embtrain.common.errors import DataError
from embtrain.common.progress import print_line
from embtrain.experiment.run import provenance, stored
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.settings import Settings
from embtrain.models.skipgram import SkipGram
from embtrain.models.start import start_from
from embtrain.train.loop import Trainer
from embtrain.train.state.checkpoint import StateMismatch

_log = logging.getLogger("embtrain")


def build(folder: Path, parts: Components, on_checkpoint: Callable[[int], None] = lambda _: None) -> Trainer:
    """Build the trainer of a run. on_checkpoint: called with the step of each checkpoint."""
    task = parts.task

    def evaluate() -> dict[str, float]:
        return {f"{row.benchmark}/{row.metric}": row.value for row in task.validate(parts) if row.value is not None}

    return Trainer(parts.model, parts.source, parts.loss, task.examples, parts.train, folder, evaluate,
                   parts.known_positives,
                   task.stopping_metric, on_checkpoint)


def load_newest(folder: Path, trainer: Trainer) -> None:
    """Load the newest checkpoint; warn, or raise DataError, if other code wrote it."""
    code_change = provenance.code_difference(folder)
    try:
        trainer.load()
    except StateMismatch as error:
        if not code_change:
            raise
        raise DataError(f"{folder}: its checkpoint does not fit this version: {code_change}; resume with that version, "
                        "or train again with another --out") from error
    if code_change:
        _log.warning("warning: %s: %s; results may differ from those of a run under one version", folder, code_change)


def load_best(folder: Path, settings: Settings, trainer: Trainer) -> None:
    """Load the best state of a run that was trained with patience."""
    if settings.train.patience and (folder / "best").is_dir():
        trainer.load("best")


def start_from_vectors(folder: Path, settings: Settings, parts: Components) -> None:
    """Set the tables of a new run to the vectors of `train.start`, and record which words matched in start.json."""
    if settings.train.start is None:
        return
    assert isinstance(parts.model, SkipGram) and parts.problem.words is not None  # check
    given = stored.given_vectors(Path(settings.train.start))
    matches = start_from(parts.model, given, parts.problem.words, parts.problem.counts, settings.train.start_new_rows)
    files.write_json(folder / "start.json", {"from": given.name, "output_table": given.v is not None,
                                             **matches._asdict()})
    print_line(f"start: {given.name}: {matches}")
