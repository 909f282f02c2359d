"""Checks of settings and of a run folder: whether a run can start there, has trained, and fits its checkpoint."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from embtrain.common import files
from embtrain.common.config import flatten, read_yaml
from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.files import as_argument, check_exists, read_json, resume_command
from embtrain.common.output_paths import RUN_FILES, RUN_FOLDERS, check_kinds, check_output_folder, is_run_folder
from embtrain.data.storage.known_files import expected_content
from embtrain.experiment.run import settings as run_settings
from embtrain.experiment.run.settings import Settings, contradiction
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import ChangedCorpus, Task
from embtrain.models import base as models
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.output_table import FILE_KINDS
from embtrain.models.words.cbow import Cbow
from embtrain.models.words.skipgram import SkipGram
from embtrain.negatives import base as negatives
from embtrain.train.checks.target_metric import parse_threshold
from embtrain.train.engines import choose
from embtrain.train.sinks import base as sinks
from embtrain.train.state import checkpoint, signals

GROWING = (SkipGram.name, Cbow.name)  # models whose vocabulary can grow
# Keys of `train` that the trained state depends on. The others may change before a run is resumed.
FIXED_TRAIN_KEYS = ("seed", "optimizer", "chunk", "shuffle")


def new_folder(settings: Settings, out: Path | None) -> Path:
    """Return the folder of a new run, which need not exist. UsageError or ResourceError if it cannot be there."""
    folder = out or files.dated_folder(f"{settings.model.name}-{strategy_stem(settings.strategy)}")
    if out is not None:
        check_new(out)
    if os.path.isabs(settings.corpus) and os.path.realpath(folder) == os.path.realpath(settings.corpus):
        raise UsageError(f"--out: {folder} is the corpus, and the files of a run would be read as text; choose another")
    check_output_folder(folder)
    return folder


def strategy_stem(strategy: str) -> str:
    return Path(strategy).stem if strategy.endswith((".yaml", ".yml")) else strategy


def check_new(folder: Path) -> None:
    """Raise UsageError if the folder of a new run contains a run, or files that a run would replace."""
    if (folder / "config.yaml").exists():
        raise UsageError(f"--out: {folder} already contains a run; choose another, or: {resume_command(folder)}")
    if foreign := next((name for name in RUN_FILES if (folder / name).exists()), None):
        raise UsageError(f"--out: {folder} contains {foreign}, which belongs to no run; choose another folder")


def locked(folder: Path) -> AbstractContextManager[None]:
    return files.lock_folder(folder, f"{folder}: another process is training there; wait until it ends, or stop it")


def resumable(folder: Path) -> AbstractContextManager[None]:
    """Let a command that is stopped in the block name the command that resumes the run, if there is one by then."""
    return signals.resumable(lambda: resume_command(folder) if (folder / "config.yaml").is_file() else "")


def has_trained(folder: Path) -> bool:
    """Whether a run has trained: its first checkpoint is written before its first line of metrics."""
    metrics, checkpoints = folder / "metrics.jsonl", folder / "checkpoints"
    return any(checkpoints.glob("*.json")) or (metrics.exists() and metrics.stat().st_size > 0)


def require_trained(folder: Path) -> None:
    """Raise DataError for a run without a trained state, or without identity.json."""
    if not has_trained(folder):
        raise DataError(f"{folder}: has not been trained yet; to train it: {resume_command(folder)}")
    if not (path := folder / "identity.json").is_file():
        raise DataError(f"{path}: is missing, and it describes the corpus of the run; restore the file that training "
                        "wrote")


def check_settings(folder: Path, settings: Settings) -> None:
    """Raise UsageError if the settings of a run contradict those that its newest checkpoint was trained with.

    Paths of files may change, because their content is compared elsewhere. Checkpoints of earlier versions have no
    settings and are not compared.
    """
    trained = checkpoint.peek(folder / "checkpoints", "settings")
    if isinstance(trained, dict):
        for key, new in fixed_settings(settings).items():
            old = str(trained.get(key, new))
            if old != new and not (os.path.isabs(old) and os.path.isabs(new)):
                raise contradiction(_place(folder, key), key, new, old, _command_for(folder, settings, key, new))
    position = checkpoint.peek(folder / "checkpoints", "position")
    if isinstance(position, Mapping) and (n := _epochs_begun(position)) > settings.train.epochs:
        key = "train.epochs"
        raise UsageError(f"{_place(folder, key)}: {key}: {settings.train.epochs}: the checkpoint has trained in {n} "
                         f"epochs; set {n} or more")


def fixed_settings(settings: Settings) -> dict[str, str]:
    """The settings that the trained state depends on, by dotted key; checkpoints record them."""
    def is_fixed(section: str, _: str, name: str) -> bool:
        return section not in ("corpus", "evaluate") and (section != "train" or name in FIXED_TRAIN_KEYS)

    return {key: value for key, value in flatten(settings).items() if is_fixed(*key.partition("."))}


def _epochs_begun(position: Mapping[str, Any]) -> int:
    try:
        return int(position["epoch"]) + (int(position["block"]) > 0)
    except (KeyError, TypeError, ValueError):        # `Position.from_state` reports it
        return 0


def _place(folder: Path, key: str) -> str:
    """config.yaml:line:column of a key of a run."""
    layer = read_yaml(folder / "config.yaml")
    mark = layer.marks.get(tuple(key.split(".")))
    return f"{layer.name}:{mark[0]}:{mark[1]}" if mark else layer.name


def _command_for(folder: Path, settings: Settings, key: str, value: str) -> str:
    """The command that trains another run with this value of a key."""
    can_continue = settings.model.name in GROWING and (folder / "scores.json").is_file() and key != "strategy" \
        and not key.startswith("model.")
    if not can_continue:
        return "embtrain fit"
    return f"embtrain continue {shlex.quote(as_argument(folder))} --corpus ... --set {shlex.quote(f'{key}={value}')}"


def restore_engine(folder: Path, settings: Settings) -> Settings:
    """Return the settings with the engine that has trained so far, whatever `auto` would choose today.

    UsageError if they name the other engine, DataError if identity.json names none. Raises what `require_trained` and
    `check_settings` raise.
    """
    require_trained(folder)
    check_settings(folder, settings)
    path, key, chosen = folder / "identity.json", "train.engine", settings.train.engine
    try:
        engine = read_json(path).get("engine", "autograd")
    except (OSError, ValueError, AttributeError) as error:
        raise read_error(path, error, f"does not contain the engine: {error}; restore the file that training wrote"
                         ) from error
    if engine not in ("autograd", "fused"):
        raise DataError(f"{path}: engine: {str(engine)[:20]!r} is neither autograd nor fused")
    if chosen not in ("auto", engine):
        raise contradiction(_place(folder, key), key, chosen, engine, _command_for(folder, settings, key, chosen))
    return settings.with_train(engine=engine)


def settings_to_resume(folder: Path) -> Settings:
    """Read the settings of a run that will be resumed, with the engine of its checkpoint.

    Raises what `from_run` and `restore_engine` raise; UsageError for a folder in the place of a file that the run
    writes; and UsageError, with its place in config.yaml, for a setting that cannot work any more, for example a
    benchmark whose file is gone.
    """
    settings = run_settings.from_run(folder)
    check_kinds("file", (folder / name for name in RUN_FILES if name not in RUN_FOLDERS), "a run")
    check_kinds("folder", (folder / name for name in RUN_FOLDERS), "a run")
    if has_trained(folder):
        settings = restore_engine(folder, settings)
    try:
        tasks.find(settings).check(settings)
    except UsageError as error:
        raise UsageError(*(f"{_place(folder, line.partition(':')[0])}: {line}" for line in error.args)) from error
    require_corpus(settings)
    return settings


def read_corpus(folder: Path, settings: Settings) -> Task:
    """Read the corpus of a run that has trained. DataError if it is missing, or if `check_corpus` raises it.

    ChangedCorpus comes first: what else is wrong with another text says nothing about the settings of the run.
    """
    require_corpus(settings)
    require_trained(folder)
    hashes, read_by = {tasks.corpus_hash(folder)}, tasks.read_identity(folder).get("settings")
    if isinstance(read_by, dict):                # of a run that continues another, its sha256 covers more than the text
        hashes.add(str(read_by.get("content")))
    with expected_content(hashes, _changed(folder, settings)):
        task = tasks.read(settings)
    check_corpus(folder, task)
    return task


def require_corpus(settings: Settings) -> None:
    """Raise DataError if the files of a run's own corpus are missing."""
    if os.path.isabs(settings.corpus) and not os.path.lexists(settings.corpus):
        raise DataError(f"corpus: {settings.corpus}: is missing; restore it at this path")


def check_corpus(folder: Path, task: Task) -> None:
    """Raise DataError if the corpus, or the meaning of its ids, differs from the start of the run."""
    require_trained(folder)
    if tasks.corpus_hash(folder) != task.identity["sha256"]:
        raise _changed(folder, task.settings)
    task.check_ids(folder)


def _changed(folder: Path, settings: Settings) -> ChangedCorpus:
    return ChangedCorpus(f"{folder}: the corpus {settings.corpus!r} is not the one this run was trained on: its sha256 "
                         "differs from the one in identity.json; restore the same files")


def check(settings: Settings, has_start_file: bool = True) -> None:
    """Raise UsageError for settings that are wrong whatever the corpus contains.

    has_start_file: False if the vectors of `train.start` are written before this run starts.
    """
    tasks.find(settings).check(settings)
    choose.require_tables_in_files(settings.model, negatives.find(settings.negatives.source), settings.negatives,
                                   settings.loss, settings.train)
    check_parent(settings)
    check_start(settings, has_start_file)
    check_files(settings)
    check_evaluations(settings)
    for name in settings.train.sinks:
        sinks.find(name)


def check_evaluations(settings: Settings) -> None:
    """Raise UsageError if no evaluation during training can give the metrics that it needs."""
    if settings.train.patience and (reason := tasks.find(settings).missing_split_reason(settings, "valid")):
        raise UsageError(f"train.patience: {reason}, or train.patience: 0")
    if settings.train.track_until:
        parse_threshold(settings.train.track_until)


def check_start(settings: Settings, has_start_file: bool = True) -> None:
    """Raise UsageError or DataError if the model cannot start from the vectors of `train.start`.

    has_start_file: whether the file is expected now.
    """
    freeze, start = getattr(settings.model, "freeze", "none"), settings.train.start
    if start is None and settings.train.parent is None and freeze != "none":
        raise UsageError(f"model.freeze: {freeze}: needs given vectors; set train.start, or model.freeze: none")
    if start is not None:
        if not issubclass(models.find(settings.model.name), (SkipGram, HierarchyModel)):
            raise UsageError(f"train.start: model.name: {settings.model.name} does not start from vectors; use "
                             "skipgram, cbow, node2vec or a model of hierarchies, or train.start: null")
        if has_start_file:
            with named_key("train.start"):
                check_exists(Path(start), "a run folder or a vector file")


def check_files(settings: Settings) -> None:
    """Raise UsageError for a corpus that is a run, DataError for a missing file, before the corpus is read."""
    if is_run_folder(Path(settings.corpus)):
        raise UsageError(f"corpus: {settings.corpus}: is a run, whose files would be read as data; give its corpus")
    table, file = getattr(settings.model, "output_table", None), getattr(settings.negatives, "file", None)
    if file is not None and not os.path.lexists(file):
        raise DataError(f"negatives.file: {file}: file or folder not found; give a file of candidates")
    if table is not None and table.kind in FILE_KINDS and table.file is not None:
        with named_key("model.output_table.file"):
            check_exists(Path(table.file), "a run folder or a vector file")


@contextlib.contextmanager
def named_key(key: str) -> Iterator[None]:
    """Let a DataError of the block begin with a key."""
    try:
        yield
    except DataError as error:
        raise DataError(*(f"{key}: {line}" for line in error.args)) from error


def check_parent(settings: Settings) -> None:
    """Raise UsageError or DataError if the run of `train.parent` cannot be continued with these settings."""
    if settings.train.parent is None:
        return
    folder, cwd = Path(settings.train.parent), Path.cwd()
    folder = folder.relative_to(cwd) if folder.is_relative_to(cwd) else folder      # as errors should name it
    earlier = run_settings.from_run(folder)
    if earlier.model.name not in GROWING:
        raise UsageError(f"{folder}: model.name: {earlier.model.name} cannot be continued on another text: only the "
                         f"vocabulary of {' and '.join(GROWING)} grows; give a run of {' or '.join(GROWING)}")
    if not all((folder / name).is_file() for name in ("vectors.safetensors", "scores.json")):
        raise DataError(f"{folder}: has not finished; finish it with: {resume_command(folder)}")
    check_settings(folder, earlier)
    if settings.train.start is not None:
        raise UsageError(f"train.start: {settings.train.start}: a run that continues another starts from that one; set "
                         "train.start: null")
    if settings.train.start_new_rows == "subword" and getattr(earlier.model, "subword", None) is None:
        raise UsageError(f"train.start_new_rows: subword: {folder}, which train.parent continues, has no subwords; set "
                         "random or mean")
    here, there = ({f"model.{key}": value for key, value in x.model.model_dump(mode="json").items()} |
                   {"evaluate.vectors": getattr(x.evaluate, "vectors", None)} for x in (settings, earlier))
    if key := next((key for key in here if here[key] != there.get(key)), None):
        raise UsageError(f"{key}: is {here[key]}, but {there.get(key)} in {folder}, which train.parent continues; set "
                         f"the value of that run")
