"""A run: a folder that contains everything about one training, from its configuration to its report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from embtrain import report
from embtrain.common import files, machine
from embtrain.common.config import dump, flatten
from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.progress import print_line
from embtrain.common.types import Score
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.hierarchy import senses
from embtrain.data.vectors import folders, vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.experiment.run import (
    components,
    downstream,
    provenance,
    scoring,
    settings as run_settings,
    stored,
    trainer as trainers,
)
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.results import answers, benchmark_hashes, divergence
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import (
    check,
    check_evaluations,
    check_new,
    has_trained,
    locked,
    new_folder,
    read_corpus,
    restore_engine,
    resumable,
    settings_to_resume,
)
from embtrain.experiment.tasks import base as tasks
from embtrain.models import base as models
from embtrain.report.format import format_text
from embtrain.train.group.processes import SOLO, ProcessGroup
from embtrain.train.group.trainer import GroupTrainer
from embtrain.train.state.signals import protect_caller
from embtrain.train.state.sink_relay import Relay

PARENT_HASH = "vectors.sha256"  # file of a downstream run: sha256 of the vectors it was trained on

if TYPE_CHECKING:
    from gensim.models import KeyedVectors

    from embtrain.experiment.prediction.base import Prediction


@dataclass(frozen=True)
class Run:
    """A finished run. Functions that take a path of a run take a Run too."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))  # callers often pass a str

    def __fspath__(self) -> str:
        return str(self.folder)

    @cached_property
    def settings(self) -> Settings:
        """The settings of config.yaml: `run.settings.model.dim`. DataError if the folder is not a run."""
        return run_settings.from_run(self.folder)

    @cached_property
    def word_vectors(self) -> Vectors:
        """The vectors of words, nodes, entities, concepts or labels: `words`, V names, and `table` (V, D) float32.

        DataError if the run has not finished.
        """
        stored.result_file(self.folder, "vectors.safetensors", "vectors")
        return folders.read_run(self.folder)

    @cached_property
    def relation_vectors(self) -> Vectors:
        """The vectors of a graph's relations: `words`, R names, and `table` (R, ·) float32, whose rows a model defines.

        With `triples.reciprocal` those of `inverse of NAME` follow. UsageError if the run is not of a graph, DataError
        if its model has no vector for each relation, or the run has not finished.
        """
        if not (path := self.folder / folders.RUN_RELATIONS).exists():
            if (task := tasks.find(self.settings)).name != "triples":
                raise UsageError(f"{self.folder}: model.name: {self.settings.model.name}: learns from "
                                 f"{task.corpus_kind}, which has no relations; give a run of triples")
            raise DataError(f"{path}: is missing: {self.settings.model.name} may have no vector for each relation; "
                            f"otherwise write it again: {files.resume_command(self.folder)}")
        return vector_files.read(path)

    @cached_property
    def scorer(self) -> Scorer:
        """Function that scores pairs of words by the similarity or entailment measure of the run's model.

        `run.scorer([("dog", "animal"), ("run", "move", "v")])` returns (n,) float64, NaN if a word is unknown. A part
        of speech (n, v, a, r) limits the meanings of the words of a hierarchy; by default the best two represent them.
        """
        table = self.word_vectors
        return Scorer(table, models.find(self.settings.model.name),
                      senses.read(self.folder / senses.FILE, table.index), self.settings.model)

    @property
    def vectors(self) -> KeyedVectors:
        """The vectors as gensim KeyedVectors with the counts of the words, if the run has any.

        Those of a run with subwords have vectors of other words too.
        """
        return self.word_vectors.keyed(stored.name_counts(self.folder))

    @cached_property
    def scores(self) -> list[Score]:
        """The lines of scores.json: benchmark, metric, value, low, high, n and note.

        DataError if it has none, or if the run has not finished.
        """
        path = stored.result_file(self.folder, "scores.json", "scores")
        try:
            return [Score(**row) for row in files.read_json(path)]
        except (OSError, ValueError, TypeError) as error:
            raise read_error(path, error, f"contains no scores: {error}; restore the file that training wrote"
                             ) from error

    def table(self) -> str:
        """Format the leading scores for a terminal, with the path of the report for the others."""
        return format_text(self.scores, self.folder / "report.html", self.settings.evaluate.interval)

    @protect_caller()
    def predict(self, *queries: str | Sequence[str], file: str | Path | None = None, top: int | None = None,
                hide_known: bool = False, corpus: str | Path | None = None) -> list[Prediction]:
        """Predict without the corpus; see embtrain.experiment.prediction.predict.predict_queries.

            run.predict("paris", "located_in", "_")             one query in words
            run.predict(("a", "r", "_"), ("_", "r", "b"))       several
            run.predict(file="queries.tsv", top=10)             one query a line; for labels, a file of documents
        """
        from embtrain.experiment.prediction.predict import predict_queries  # lazily: training does not need it

        return predict_queries(self.folder, queries, file, top, hide_known, corpus)

    @protect_caller()
    def translate(self, sentences: Iterable[str]) -> list[str]:
        """Translate sentences by a translator; see embtrain.experiment.prediction.translator.translate_sentences."""
        from embtrain.experiment.prediction.translator import translate_sentences  # lazily, as above

        return translate_sentences(self.folder, sentences)

    @protect_caller()
    def resume(self) -> Run:
        """Continue from the last complete checkpoint; a finished run is only evaluated again."""
        return resume(self.folder)


def fit(settings: Settings, out: Path | None = None) -> Run:
    """Train, evaluate and report in the folder `out`, or in runs/STAMP-MODEL-STRATEGY, numbered if it exists."""
    folder = new_folder(settings, out)
    parts, threads = _build(settings, folder)
    print_line(parts.task.describe_files())
    folder = out or files.claim_folder(folder)
    with locked(folder), resumable(folder):
        check_new(folder)               # another process may have started one while the corpus was read
        trainers.start_from_vectors(folder, settings, parts)    # an error leaves no run that fails to resume
        files.write_text(folder / "config.yaml", dump(settings))
        write_identity(folder, parts, threads)
        return train_and_report(folder, settings, parts, fresh=True)


def _build(settings: Settings, folder: Path) -> tuple[Components, int]:
    """Check the settings of a run that begins; return its components and its thread count."""
    check(settings)
    components.choose_device(settings.train.device)
    threads = components.use_threads(settings.train.threads)
    return components.build_for_training(settings, tasks.read(settings), folder), threads


def train_in_memory(settings: Settings, folder: Path) -> Components:
    """Train and return the components; `folder` gets checkpoints and curves, but no scores or report."""
    parts, _ = _build(settings, folder)
    trainers.start_from_vectors(folder, settings, parts)
    trainer = trainers.build(folder, parts)
    trainers.continue_parent(folder, settings, parts, trainer)
    trainer.save()
    trainers.train(trainer, parts.task)
    return parts


def resume(folder: Path) -> Run:
    """Continue an interrupted run; begin one that has only settings, or was killed before its first checkpoint."""
    settings = settings_to_resume(folder)        # raises before the lock if it is not a run folder
    with locked(folder), resumable(folder):
        if has_trained(folder):
            return train_and_report(folder, *reopen(folder, settings), fresh=False)
        parts, threads = _build(settings, folder)
        trainers.start_from_vectors(folder, settings, parts)
        write_identity(folder, parts, threads)
        return train_and_report(folder, settings, parts, fresh=True)


def rescore(folder: Path, sets: Sequence[str] = ()) -> list[Score]:
    """Re-evaluate a run at its last state, or its best state if it was trained with patience.

    The run folder is left unchanged, because another process may be training the run. DataError if nothing was trained
    yet. sets: overrides of evaluation keys.
    """
    settings = run_settings.from_run(folder, sets)
    if not has_trained(folder):
        raise DataError(f"{folder}: has not been trained yet; to train it: {files.resume_command(folder)}")
    settings, parts = reopen(folder, settings)
    stored.restore(folder, settings, parts)
    with tempfile.TemporaryDirectory() as scratch:
        return parts.task.score_run(parts, Path(scratch), {})


def reopen(folder: Path, settings: Settings) -> tuple[Settings, Components]:
    """Return the settings and components of a run that has trained."""
    settings = restore_engine(folder, settings)
    components.choose_device(settings.train.device, f"{folder / 'config.yaml'}: ")
    components.use_threads(settings.train.threads)
    return settings, components.build(settings, read_corpus(folder, settings), folder=folder)


def write_identity(folder: Path, parts: Components, threads: int) -> None:
    files.write_json(folder / "identity.json", provenance.describe_run(parts, threads))
    parts.task.describe(folder)
    stored.write(folder, parts)


def train_and_report(folder: Path, settings: Settings, parts: Components, fresh: bool,
                     group: ProcessGroup = SOLO) -> Run:
    """Train the remaining steps, then score and report. Processes of a group other than the first only train."""
    check_evaluations(settings)
    sinks_here = settings.train.sinks if group.is_first else []
    with resumable(folder), Relay(folder, sinks_here, flatten(settings), time.time(), fresh) as relay:
        trainer = trainers.build(folder, parts, relay.on_checkpoint, group)
        if group.is_first:
            benchmark_hashes.record(folder, settings)
        if fresh:
            trainers.continue_parent(folder, settings, parts, trainer)
            trainer.save()
        else:
            trainers.load_newest(folder, trainer)
            trainers.remove_results(folder, trainer)
        items: scoring.Items = {}
        position = trainers.train(trainer, parts.task)
        if not group.is_first:
            return Run(folder)
        trainers.load_best(folder, settings, trainer)
        machine.release_free_memory()  # freed blocks of training are too fragmented for scoring
        benchmark_hashes.record(folder, settings)
        rows = parts.task.score_run(parts, folder, items)
        answers.write(folder, parts)
        rows += _score_downstream(folder, settings)
        scoring.write_items(folder / "items.safetensors", items)
        rows += [trainers.time_row(trainer), *(trainer.traffic.scores() if isinstance(trainer, GroupTrainer) else [])]
        rows += divergence.rows(parts, folder, rows, position)
        rows += trainers.target_rows(trainer)
        files.write_json(folder / "scores.json", [row._asdict() for row in rows])
        relay.write_scores(rows)
        report.write(folder)
    return Run(folder)


def _score_downstream(folder: Path, settings: Settings) -> list[Score]:
    """Score benchmarks that train on the run's vectors: each is a run in a subfolder, with the same seed."""
    rows: list[Score] = []
    for recipe in downstream.training_recipes(tasks.find(settings).benchmarks(settings)):
        train, dim, subfolder = settings.train, settings.model.dim, folder / recipe.name
        if (run := downstream_run(folder, recipe)) is None and (subfolder / "config.yaml").is_file():
            run = resume(subfolder)
        elif run is None:
            files.write_text(subfolder / PARENT_HASH, files.sha256(folder / "vectors.safetensors"))
            sets = [f"train.seed={train.seed}", f"train.threads={train.threads}", f"train.device={train.device}"]
            run = fit(downstream.translator_settings(recipe, folder / "vectors.safetensors", dim, sets), subfolder)
        rows += downstream.rows(run.scores, recipe, folder.name, dim)
    return rows


def downstream_run(folder: Path, recipe: EvalRecipe) -> Run | None:
    """Return the finished run that a benchmark trained on the run's vectors, or None; DataError if these changed."""
    subfolder = folder / recipe.name
    if not (subfolder / PARENT_HASH).is_file():
        return None
    if (subfolder / PARENT_HASH).read_text(encoding="utf-8") != files.sha256(folder / "vectors.safetensors"):
        raise DataError(f"{subfolder}: was trained on other vectors than {folder} contains now; remove that folder")
    return Run(subfolder) if (subfolder / "report.html").is_file() else None  # written last
