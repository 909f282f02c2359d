"""State of a run folder in which training has begun: checkpoints, engine, corpus, and whether a run can continue it."""

from __future__ import annotations

from pathlib import Path

from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import check_exists, read_json, resume_command
from embtrain.experiment.run import settings as run_settings
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task
from embtrain.models import base as models
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.words.cbow import Cbow
from embtrain.models.words.skipgram import SkipGram

GROWING = (SkipGram.name, Cbow.name)  # models whose vocabulary can grow


def has_trained(folder: Path) -> bool:
    """Whether a run has trained: its first checkpoint is written before its first line of metrics."""
    metrics, checkpoints = folder / "metrics.jsonl", folder / "checkpoints"
    return any(checkpoints.glob("*.json")) or (metrics.exists() and metrics.stat().st_size > 0)


def restore_engine(folder: Path, settings: Settings) -> Settings:
    """Return the settings with the engine that has trained so far, whatever `auto` would choose today.

    DataError if identity.json does not name it.
    """
    if settings.train.engine != "auto":
        return settings
    path = folder / "identity.json"
    try:
        engine = read_json(path).get("engine", "autograd")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: does not contain the engine: {error}; restore the file that training "
                        "wrote") from error
    if engine not in ("autograd", "fused"):
        raise DataError(f"{path}: engine: {str(engine)[:20]!r} is neither autograd nor fused")
    return settings.model_copy(update={"train": settings.train.model_copy(update={"engine": engine})})


def check_corpus(folder: Path, task: Task) -> None:
    """Raise DataError if the corpus, or the meaning of its ids, differs from the start of the run."""
    if tasks.corpus_hash(folder) != task.identity["sha256"]:
        raise task.corpus_changed(
            folder, "its sha256 differs from the one in identity.json; restore the same files"
        )
    task.check_ids(folder)


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
            check_exists(Path(start), "a run folder or a vector file")


def check_parent(settings: Settings) -> None:
    """Raise UsageError or DataError if the run of `train.parent` cannot be continued with these settings."""
    if settings.train.parent is None:
        return
    folder = Path(settings.train.parent)
    earlier = run_settings.from_run(folder)
    if earlier.model.name not in GROWING:
        raise UsageError(f"{folder}: model.name: {earlier.model.name} cannot be continued on another text: only the "
                         f"vocabulary of {' and '.join(GROWING)} grows; give a run of {' or '.join(GROWING)}")
    if missing := [name for name in ("vectors.safetensors", "scores.json") if not (folder / name).is_file()]:
        raise DataError(f"{folder}: has not finished: it has no {missing[0]}; {resume_command(folder)}")
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
