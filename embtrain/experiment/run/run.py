"""A run: a folder that holds everything about one training, from its configuration to its report."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from embtrain import report
from embtrain.common import files, machine
from embtrain.common.config import dump, flatten
from embtrain.common.errors import DataError, Stopped, UsageError
from embtrain.common.progress import print_line
from embtrain.common.types import Score
from embtrain.data.catalogue.recipes import EvalRecipe
from embtrain.data.hierarchy import senses
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.experiment.run import components, divergence, downstream, provenance, scoring, settings, stored
from embtrain.experiment.run.components import Parts
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import as_begun, check_corpus, has_trained
from embtrain.experiment.tasks import base as tasks
from embtrain.models import base as models
from embtrain.report.format import told
from embtrain.train.loop import Trainer
from embtrain.train.sinks import base as sinks
from embtrain.train.state.checkpoint import StateMismatch
from embtrain.train.state.sink_relay import Relay

OTHERS = ("comparison.yaml", "report.html", "metrics.jsonl", "scores.json", "checkpoints")  # of no run that can go on
BELOW = "vectors.sha256"  # in the folder of a run on top of another: of the other's vectors

_log = logging.getLogger("embtrain")

if TYPE_CHECKING:
    from gensim.models import KeyedVectors

    from embtrain.experiment.prediction.base import Prediction


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))  # from Python it is often a text

    @cached_property
    def settings(self) -> Settings:
        return settings.of_run(self.folder)

    @cached_property
    def table_of_vectors(self) -> Vectors:
        path = self.folder / "vectors.safetensors"
        if not path.exists():
            _ = self.settings  # says so where it is no run at all
            raise DataError(f"{self.folder}: has no vectors yet; to train on: {files.resume_command(self.folder)}")
        return files_of_vectors.read(path)

    @cached_property
    def scorer(self) -> Scorer:
        """What says how surely a word is another, as the run's model tells it."""
        table = self.table_of_vectors
        return Scorer(table, models.find(self.settings.model.name),
                      senses.read(self.folder / senses.FILE, table.index))

    @property
    def vectors(self) -> KeyedVectors:
        """The vectors as gensim knows them."""
        return self.table_of_vectors.keyed()

    @cached_property
    def scores(self) -> list[Score]:
        path = self.folder / "scores.json"
        try:
            return [Score(**row) for row in files.read_json(path)]
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"{path}: holds no scores: {error}") from error

    def table(self) -> str:
        """The scores as a terminal shows them: those that lead, and where the others stand."""
        return told(self.scores, self.folder / "report.html")

    def predict(self, *queries: str | Sequence[str], file: str | Path | None = None, top: int = 5,
                hide_known: bool = False, corpus: str | Path | None = None) -> list[Prediction]:
        """Predictions of the trained model; the corpus is not needed. See
        embtrain.experiment.prediction.predict.predict_queries.

            run.predict("paris", "located_in", "_")             one query in words
            run.predict(("a", "r", "_"), ("_", "r", "b"))       several
            run.predict(file="queries.tsv", top=10)             a line each; of a model of labels a file of documents
        """
        from embtrain.experiment.prediction.predict import predict_queries  # lazily: training does not need it

        return of_run(self.folder, queries, file, top, hide_known, corpus)

    def resume(self) -> Run:
        """Go on from the last whole checkpoint; a finished run is evaluated again and nothing more."""
        return resume(self.folder)


def fit(config: Settings, out: Path | None = None) -> Run:
    """Train, evaluate and report in the folder `out`, or in runs/STAMP-MODEL-STRATEGY, with a number if it exists."""
    folder = out or files.dated_folder(f"{config.model.name}-{_stem(config.strategy)}")
    if out is not None:
        _check_new(out)
    if os.path.isabs(config.corpus) and folder.resolve() == Path(config.corpus).resolve():  # else a recipe's name
        raise UsageError(f"--out: {folder} is the corpus, and what a run writes would be read as text; choose another")
    files.check_output_folder(folder)
    check(config)
    threads = components.use_threads(config.train.threads)
    made = components.to_train(config, tasks.read(config))
    print_line(made.task.describe_files())
    folder = out or files.claim_folder(folder)
    with _alone_in(folder):
        _check_new(folder)               # while the corpus was read another may have begun one
        files.write_text(folder / "config.yaml", dump(config))
        _describe(folder, made, threads)
        return _go(folder, config, made, fresh=True)


def _check_new(folder: Path) -> None:
    if (folder / "config.yaml").exists():
        raise UsageError(
            f"--out: {folder} holds a run already; choose another folder, or: {files.resume_command(folder)}"
        )
    if found := next((name for name in OTHERS if (folder / name).exists()), None):
        raise UsageError(f"--out: {folder} holds {found}, which is of no run; choose another folder")


def _alone_in(folder: Path) -> AbstractContextManager[None]:
    return files.lock_folder(folder, f"{folder}: another process trains there; wait for its end, or stop it")


def check(config: Settings) -> None:
    """UsageError for settings that are wrong whatever the corpus holds."""
    tasks.find(config).check(config)
    for name in config.train.sinks:
        sinks.find(name)


def trained(config: Settings, folder: Path) -> Parts:
    """What training leaves in memory; `folder` gets checkpoints and curves, and nothing is judged or reported."""
    check(config)
    components.use_threads(config.train.threads)
    made = components.to_train(config, tasks.read(config))
    training = _training(folder, made)
    training.save()
    training.run()
    return made


def resume(folder: Path) -> Run:
    """Go on with a run that was stopped; from the beginning where it was killed before its first checkpoint."""
    config = settings.of_run(folder)     # which may be no run's folder, and then nobody need hold it
    with _alone_in(folder):
        config, made, begun, threads = _again(folder, config)
        if not begun:
            _describe(folder, made, threads)
        return _go(folder, config, made, fresh=not begun)


def judged(folder: Path, sets: Sequence[str] = ()) -> list[Score]:
    """The run's last state, or its best where it was trained with patience, judged by its task once more; with some
    keys of evaluate changed, and then what the run's folder holds stays as it is."""
    config, made, begun, _ = _again(folder, settings.of_run(folder, sets))
    if not begun:
        raise DataError(f"{folder}: has trained nothing yet; {files.resume_command(folder)}")
    training = _training(folder, made)
    _load(folder, training)
    if not sets:
        return _judged(folder, config, training, made, {})
    with tempfile.TemporaryDirectory() as apart:
        _best(folder, config, training)
        return made.task.score_run(made, Path(apart), {})


def _again(folder: Path, config: Settings) -> tuple[Settings, Parts, bool, int]:
    """The settings and parts of a run that is there, whether it has trained, and the threads it may use."""
    threads = components.use_threads(config.train.threads)
    task, begun = tasks.read(config), has_trained(folder)
    if begun:
        check_corpus(folder, task)
        config = as_begun(folder, config)
    return config, components.build(config, task), begun, threads


def _describe(folder: Path, made: Parts, threads: int) -> None:
    files.write_json(folder / "identity.json", provenance.of(made, threads))
    made.task.describe(folder)
    stored.write(folder, made)


def _go(folder: Path, config: Settings, made: Parts, fresh: bool) -> Run:
    """Train what is left, then judge and report."""
    task = made.task
    if config.train.patience and (reason := task.missing_split_reason(config, "valid")):
        raise UsageError(f"train.patience: {reason}, or train.patience: 0")

    with Relay(folder, config.train.sinks, flatten(config), time.time()) as relay:
        training = _training(folder, made, relay.on_checkpoint)
        if fresh:
            training.save()
        else:
            _load(folder, training)
        items: scoring.Items = {}
        try:
            position = training.run()
            rows = _judged(folder, config, training, made, items)
            rows += _downstream(folder, config)
        except Stopped as stopped:
            raise Stopped(stopped.signal, files.resume_command(folder)) from stopped
        scoring.write_items(folder / "items.safetensors", items)
        rows.append(Score("training", "seconds", round(position.seconds, 1), n=position.examples,
                        note=f"{position.cpu_seconds:.0f} CPU-s, {position.step:,} blocks"))
        rows += divergence.rows(made, folder, rows, position)
        rows += [Score("training", f"{key} to {config.train.target}", value) for key, value in position.reached.items()]
        files.write_json(folder / "scores.json", [row._asdict() for row in rows])
        relay.write_scores(rows)
        report.write(folder)
    return Run(folder)


def _load(folder: Path, training: Trainer) -> None:
    """Go back to the newest checkpoint; a warning, or a DataError that says so, where other code wrote it."""
    other = provenance.other_code(folder)
    try:
        training.load()
    except StateMismatch as error:
        if not other:
            raise
        raise DataError(f"{folder}: its checkpoint does not fit this version: {other}; go on with that version, or "
                        "train again with another --out") from error
    if other:
        _log.warning("warning: %s: %s; results may differ from those of a run under one version", folder, other)


def _training(folder: Path, made: Parts, kept: Callable[[int], None] = lambda _: None) -> Trainer:
    task = made.task

    def evaluate() -> dict[str, float]:
        return {f"{row.benchmark}/{row.metric}": row.value for row in task.validate(made) if row.value is not None}

    return Trainer(made.model, made.source, made.loss, task.examples, made.train, folder, evaluate, made.answers,
               task.stopping_metric, kept)


def _judged(folder: Path, config: Settings, training: Trainer, made: Parts, items: scoring.Items) -> list[Score]:
    _best(folder, config, training)
    machine.release_free_memory()  # pieces that training left are too small for judging
    return made.task.score_run(made, folder, items)


def _downstream(folder: Path, config: Settings) -> list[Score]:
    """Benchmarks that train on the run's vectors: each is a run of its own inside the run's folder, with its seed."""
    rows: list[Score] = []
    for recipe in downstream.training(tasks.find(config).benchmarks(config)):
        train, dim, within = config.train, config.model.dim, folder / recipe.name
        if (done := on_top(folder, recipe)) is None and (within / "config.yaml").is_file():
            done = resume(within)
        elif done is None:
            files.write_text(within / BELOW, files.sha256(folder / "vectors.safetensors"))
            done = fit(downstream.translator(recipe, folder / "vectors.safetensors", dim, [
                f"train.seed={train.seed}", f"train.threads={train.threads}", f"train.device={train.device}"]), within)
        rows += downstream.rows(done.scores, recipe, folder.name, dim)
    return rows


def on_top(folder: Path, recipe: EvalRecipe) -> Run | None:
    """The run that a benchmark has trained on the vectors of the run in `folder`; None where it is not finished.
    DataError where its vectors are others now."""
    within = folder / recipe.name
    if not (within / BELOW).is_file():
        return None
    if (within / BELOW).read_text(encoding="utf-8") != files.sha256(folder / "vectors.safetensors"):
        raise DataError(f"{within}: was trained on other vectors than {folder} has now; take that folder away")
    return Run(within) if (within / "report.html").is_file() else None  # which is written last


def _best(folder: Path, config: Settings, training: Trainer) -> None:
    if config.train.patience and (folder / "best").is_dir():
        training.load("best")


def _stem(strategy: str) -> str:
    return Path(strategy).stem if strategy.endswith((".yaml", ".yml")) else strategy
