"""State of a run folder in which training has begun: checkpoints, engine and corpus."""

from __future__ import annotations

from pathlib import Path

from embtrain.common.errors import DataError
from embtrain.common.files import read_json
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task


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
