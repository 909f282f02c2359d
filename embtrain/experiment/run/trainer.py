"""The trainer of a run folder: built from its components, and set to a checkpoint of the folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from embtrain.common import files
from embtrain.common.errors import DataError, read_error
from embtrain.common.progress import print_line
from embtrain.common.terminal import format_count
from embtrain.common.types import Score
from embtrain.experiment.run import provenance, settings as run_settings, stored
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import fixed_settings
from embtrain.experiment.tasks.base import Task, read_identity
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.words.skipgram import SkipGram
from embtrain.models.words.start import start_from, start_table_from
from embtrain.report.run.summary import STOPPED_EARLY
from embtrain.train import growth
from embtrain.train.checks.target_metric import first_passing
from embtrain.train.group.processes import SOLO, ProcessGroup
from embtrain.train.group.trainer import GroupTrainer
from embtrain.train.loop import Trainer
from embtrain.train.state.checkpoint import StateMismatch
from embtrain.train.state.metrics_log import read
from embtrain.train.state.position import Position

_log = logging.getLogger("embtrain")

# Files that a run writes at its end. scores.json is the first: without it the run is not finished.
RESULTS = ("scores.json", "report.html", "report.md", "report.tex", "items.safetensors", "answers.json",
           "examples.json", "neighbours.json", "drift.json", "vectors.safetensors", "relations.safetensors",
           "subwords.safetensors", "valid.translations.txt", "test.translations.txt")


def build(folder: Path, parts: Components, on_checkpoint: Callable[[int], None] = lambda _: None,
          group: ProcessGroup = SOLO) -> Trainer:
    """Build the trainer of a run. on_checkpoint: called with the step of each checkpoint."""
    task = parts.task

    def evaluate() -> dict[str, float]:
        return {f"{row.benchmark}/{row.metric}": row.value for row in task.validate(parts) if row.value is not None}

    kind = GroupTrainer
    if parts.train.tables == "sharded":
        from embtrain.train.group.sharded.trainer import ShardedTrainer  # lazy: it imports the readers of graphs

        kind = ShardedTrainer
    trainer = Trainer if group.size == 1 else partial(kind, group, n_words=task.n_words)
    built = trainer(parts.model, parts.source, parts.loss, task.examples, parts.train, folder, evaluate,
                    parts.known_positives, task.stopping_metric, on_checkpoint)
    built.settings = fixed_settings(task.settings)
    return built


def train(trainer: Trainer, task: Task) -> Position:
    """Train to the end. DataError if no example was left, which subsampling of a short text can cause."""
    position = trainer.run()
    if not position.examples and not isinstance(trainer, GroupTrainer):
        raise DataError(f"corpus: {task.settings.corpus}: gave no example in training, because subsampling removed the "
                        f"words; set {task.section}.sample: 0, or give more text")
    return position


def time_row(trainer: Trainer) -> Score:
    """The seconds of training; the note has the CPU seconds, the blocks, and what early stopping did."""
    position = trainer.position
    cpu = f"{position.cpu_seconds:.0f}" if position.cpu_seconds >= 1 else f"{position.cpu_seconds:.2g}"
    note = f"{cpu} CPU-s, {position.step:,} block{'s' * (position.step != 1)}"
    if _is_stopped_early(trainer):
        note += f", {STOPPED_EARLY}"
    if trainer.config.patience and 0 < position.best_step < position.step:
        note += f"; scores of block {position.best_step:,}"
    return Score("training", "seconds", round(position.seconds, 3), n=position.examples, note=note)


def _is_stopped_early(trainer: Trainer) -> bool:
    """Whether early stopping left blocks of the run untrained."""
    position, last = trainer.position, trainer.config.epochs - 1
    if position.epoch > last or not 0 < trainer.config.patience <= position.evaluations_since_best:
        return False
    return position.epoch < last or position.block < trainer.examples.n_blocks(last, trainer.block_size)


def target_rows(trainer: Trainer) -> list[Score]:
    """The step and the seconds at which `train.track_until` was reached; a row without a value if it was not.

    They are read from the log, because the target can be changed before the run is resumed.
    """
    if (target := trainer.config.track_until) is None:
        return []
    if (line := first_passing(target, read(trainer.metrics.path))) is None:
        return [Score("training", f"step to {target}", None, n=trainer.position.examples, note="not reached")]
    return [Score("training", f"{key} to {target}", line[key]) for key in ("step", "seconds", "cpu_seconds")]


def remove_results(folder: Path, trainer: Trainer) -> None:
    """Remove the results of an earlier end if the run is trained further: they are those of fewer steps."""
    if not trainer.has_ended():
        for name in RESULTS:
            (folder / name).unlink(missing_ok=True)


def load_newest(folder: Path, trainer: Trainer) -> None:
    """Load the newest checkpoint; warn, or raise DataError, if other code wrote it."""
    code_change = provenance.code_difference(folder)
    try:
        trainer.load()
    except StateMismatch as error:
        if not code_change:
            raise
        raise DataError(f"{folder}: its checkpoint does not fit this version: {code_change}; resume with that version, "
                        "or train again in another folder") from error
    provenance.warn_of_other_code(folder)


def load_best(folder: Path, settings: Settings, trainer: Trainer) -> None:
    """Load the best state of a run that was trained with patience."""
    if settings.train.patience and (folder / "best").is_dir():
        trainer.load("best")


def start_from_vectors(folder: Path, settings: Settings, parts: Components) -> None:
    """Set the tables of a new run to the vectors of `train.start`, and record which words matched in start.json."""
    if settings.train.start is None:
        return
    given, model = stored.given_vectors(Path(settings.train.start)), parts.model
    counts, new_rows = parts.problem.counts, settings.train.start_new_rows
    if isinstance(model, HierarchyModel):
        matches = start_table_from(model.x, given, parts.task.candidate_names(), counts, new_rows, model.start_scale)
        model.keep_bounds()
    else:
        assert isinstance(model, SkipGram) and parts.problem.words is not None  # check
        matches = start_from(model, given, parts.problem.words, counts, new_rows)
    files.write_json(folder / "start.json", {"from": given.name, "output_table": given.v is not None,
                                             **matches._asdict()})
    print_line(f"start: {given.name}: {matches}")


def continue_parent(folder: Path, settings: Settings, parts: Components, trainer: Trainer) -> None:
    """Set a new trainer to the state of `train.parent`, whose words the vocabulary extends, and write parent.json."""
    if settings.train.parent is None:
        return
    parent = Path(settings.train.parent)
    parent_settings, earlier = run_settings.from_run(parent), stored.open_run(parent)
    words, earlier_words = parts.problem.words, earlier.problem.words
    assert words is not None and earlier_words is not None  # check_parent
    index = {word: i for i, word in enumerate(earlier_words)}
    row = torch.tensor([index.get(word, -1) for word in words])                                   # (V,)
    optimizers = stored.load_state(parent, parent_settings)["optimizers"]
    notes = growth.grow(trainer, earlier.model, earlier.loss, earlier.source, optimizers, row,
                        settings.train.start_new_rows)
    n_new, train = int((row < 0).sum()), settings.train
    texts, text = texts_of(parent), _text(parts.task.identity)
    if text["sha256"] in (earlier_text["sha256"] for earlier_text in texts):
        _log.warning("corpus: %s: %s was trained on this text before; its counts are added again", settings.corpus,
                     parent)
    files.write_json(folder / "parent.json", {
        "parent": str(parent), "vectors_sha256": files.sha256(parent / "vectors.safetensors"),
        "texts": [*texts, text], "words": len(row), "new_words": n_new,
        "lr": train.lr, "min_lr": train.min_lr, "epochs": train.epochs, "starts_again": notes})
    print_line(f"continue: {parent}: {len(row):,} words, of which {n_new:,} are new; counts are those of both texts")
    print_line(f"continue: learning rate {train.lr:g}, falling to {min(train.lr, train.min_lr):g} in "
               f"{format_count(train.epochs, 'epoch')}")
    for note in notes:
        print_line(f"continue: {note}")


def _text(identity: Mapping[str, Any]) -> dict[str, str]:
    """Name and sha256 of a text alone, without the vocabulary that it extends."""
    return {"name": identity["name"], "sha256": identity["settings"]["content"]}


def texts_of(run: Path) -> list[dict[str, str]]:
    """`name` and `sha256` of the texts that a run and its parents were trained on, the first one first."""
    path = run / "parent.json"
    if not path.is_file():
        return [_text(read_identity(run))]
    try:
        return [{"name": str(text["name"]), "sha256": str(text["sha256"])} for text in files.read_json(path)["texts"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise read_error(path, error, "does not contain the texts of the run; restore the file that training wrote"
                         ) from error
