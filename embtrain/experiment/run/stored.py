"""A trained model, rebuilt from its run's folder alone: the corpus is not needed.

Names come from entities.txt, vocabulary.txt and so on, counts and known positives from corpus.safetensors, and the
parameters from the last checkpoint, or from the best one if the run was trained with patience.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embtrain.common import shipped
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import resume_command
from embtrain.common.terminal import format_count
from embtrain.common.types import ProblemSpec
from embtrain.data.storage import stored_corpus
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import folders
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment.run import components, provenance, settings as run_settings
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import check_settings, read_corpus, require_trained
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import ChangedCorpus, Task
from embtrain.experiment.tasks.task_lists import TaskLists
from embtrain.experiment.tasks.translation import TranslationTask
from embtrain.experiment.tasks.windows import subwords_of
from embtrain.models.nmt.model import Nmt
from embtrain.models.words.skipgram import SkipGram
from embtrain.models.words.start import GivenVectors
from embtrain.train.state import checkpoint

Arrays = Mapping[str, np.ndarray]
_log = logging.getLogger("embtrain")


def write(folder: Path, parts: Components) -> None:
    """Write corpus.safetensors into a run folder."""
    problem = parts.problem
    arrays = {"counts": _float(problem.counts), "sizes": np.array([
        *(-1 if n is None else n for n in (problem.n_contexts, problem.n_features)), int(problem.words is not None)])}
    if problem.raw_counts is not None:
        arrays["raw_counts"] = _float(problem.raw_counts)
    if problem.context_sizes is not None:
        arrays["context_sizes"] = np.array(problem.context_sizes, np.int64)
    lists = problem.lists.arrays() if isinstance(problem.lists, TaskLists) else {}
    stored_corpus.write(folder, arrays, {**parts.task.stored_arrays(), **lists})


def name_counts(folder: Path) -> dict[str, int] | None:
    """Return how often each word, entity or label occurs in the training data; None for a run without these counts."""
    for name in ("vocabulary.txt", "entities.txt", "labels.txt"):
        if (folder / name).is_file():
            vocabulary = Vocabulary.read(folder / name)
            return dict(zip(vocabulary.words, vocabulary.counts.tolist(), strict=True))
    return None


def open_run(folder: Path, sets: Sequence[str] = ()) -> Components:
    """Rebuild the trained components of a run, on the CPU and in evaluation mode. sets: overrides, like corpus=PATH.

    The corpus is read only if the folder lacks part of what is needed. DataError if neither has it, or if the folder is
    not a run or has trained nothing; ResourceError if the model does not fit into memory.
    """
    settings = run_settings.from_run(folder, sets)
    if has_new_corpus := any(text.partition("=")[0].strip() == "corpus" for text in sets):
        shipped.check_corpus(settings.corpus)
    if settings.model.name == Nmt.name:
        return open_translator(folder, sets)[0]
    require_trained(folder)
    check_settings(folder, settings)
    components.use_threads(settings.train.threads)
    train = settings.train.model_copy(update={"engine": "autograd", "device": "cpu"})
    settings = settings.model_copy(update={"train": train})
    arrays = stored_corpus.read(folder)
    if has_new_corpus or arrays is None or not stored_corpus.has_task_arrays(arrays):
        task = _from_corpus(folder, settings)
        parts = components.build(_without_file(settings), task, observed=False, folder=folder)
    else:
        task = tasks.find(settings).from_run_folder(settings, folder)
        problem = _problem(folder, settings, task, arrays)
        parts = components.build(_without_file(settings), task, problem, observed=False, folder=folder)
    restore(folder, settings, parts)
    parts.model.eval()
    return parts


def given_vectors(path: Path) -> GivenVectors:
    """Read vectors to start from: both tables of a skip-gram run, or one table of any other run, folder or file.

    Raises DataError or ResourceError if they cannot be read.
    """
    if (path / "config.yaml").is_file() and (path / "checkpoints").is_dir():
        parts = open_run(path)
        if isinstance(parts.model, SkipGram) and parts.problem.words is not None:
            words = list(parts.problem.words)
            u, v = (Vectors(words, table.detach().numpy()) for table in (parts.model.vectors(), parts.model.v))
            return GivenVectors(str(path), u, v, partial(subwords_of, parts.model, words))
    vectors = folders.read_any(path)
    return GivenVectors(str(path), vectors, None, lambda: vectors.subwords)


def open_translator(folder: Path, sets: Sequence[str] = (), flag_names: Mapping[str, str] | None = None
                    ) -> tuple[Components, TranslationTask]:
    """Load the translator of a run; its corpus is not needed.

    sets: evaluation keys to override; flag_names: their names in error messages. UsageError if the run is not a
    translator, DataError if its checkpoint does not match.
    """
    settings = run_settings.from_run(folder, sets, flag_names)
    if settings.model.name != Nmt.name:
        raise UsageError(f"{folder}: model.name: {settings.model.name} does not translate; give a run of "
                         "model.name: nmt")
    TranslationTask.check(settings)
    require_trained(folder)
    check_settings(folder, settings)
    settings = _without_file(settings)
    components.use_threads(settings.train.threads)
    task = TranslationTask.from_run_folder(settings, folder)
    parts = components.build(settings, task)
    restore(folder, settings, parts)
    return parts, task


def load_state(folder: Path, settings: Settings) -> dict[str, Any]:
    """Load the last checkpoint of a run, or its best one if it was trained with patience."""
    best = settings.train.patience and (folder / "best").is_dir()
    return checkpoint.load(folder / ("best" if best else "checkpoints"), settings.train.tables == "memory")


def restore(folder: Path, settings: Settings, parts: Components) -> str:
    """Load the parameters of a run from its last checkpoint, or from its best one.

    Warns if other code trained the run, or if it is not finished. Returns the progress of an unfinished run; else an
    empty string. DataError if the state does not match, or if it is that before the first step.
    """
    provenance.warn_of_other_code(folder)
    state = load_state(folder, settings)
    try:
        parts.model.load_state_dict(state["model"])
        parts.loss.load_state_dict(state["loss"])
        parts.source.load_state_dict(state["source"])
        epoch, step = (int(state["position"][key]) for key in ("epoch", "step"))
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise DataError(f"{folder}: its checkpoint belongs to another model, source or loss than config.yaml "
                        "describes; restore the run's own config.yaml") from error
    if (folder / "scores.json").exists():
        return ""
    if step == 0:
        raise _no_results(folder, "vectors")
    unfinished = f"not finished: {epoch} of {format_count(settings.train.epochs, 'epoch')}, step {step:,}"
    _log.warning("%s: %s", folder, unfinished)
    return unfinished


def result_file(folder: Path, name: str, kind: str) -> Path:
    """Return the path of a file that a finished run has. kind: of its content, in the plural.

    DataError if the folder is not a run or lacks the file, ResourceError without permission.
    """
    if not os.path.exists(path := folder / name):
        run_settings.from_run(folder)  # raises if the folder is not a run
        raise _no_results(folder, kind)
    return path


def _no_results(folder: Path, kind: str) -> DataError:
    return DataError(f"{folder}: has no {kind} yet; to train on: {resume_command(folder)}")


def _from_corpus(folder: Path, settings: Settings) -> Task:
    """Read the task of a run from its corpus, because the folder lacks part of what is needed."""
    try:
        return read_corpus(folder, settings)
    except ChangedCorpus:
        raise
    except DataError as error:
        raise DataError(f"{folder}: its folder lacks data needed for predictions, and its corpus cannot be read "
                        f"({error}); give the corpus: --set corpus=PATH") from error


def _without_file(settings: Settings) -> Settings:
    """Drop the file of model.output_table: the checkpoint contains that table, and the file may be gone."""
    table: Any = getattr(settings.model, "output_table", None)
    if table is None or table.file is None:
        return settings
    table = table.model_copy(update={"kind": "sphere", "file": None})
    return settings.model_copy(update={"model": settings.model.model_copy(update={"output_table": table})})


def _problem(folder: Path, settings: Settings, task: Task, arrays: Arrays) -> ProblemSpec:
    """Rebuild the ProblemSpec of training. DataError if its arrays do not match the names in the folder."""
    names = task.candidate_names()
    counts, sizes = arrays.get("counts", np.zeros(0)), arrays["sizes"].tolist()
    if counts.shape != (len(names),):
        raise DataError(f"{folder / stored_corpus.FILE}: has {len(counts):,} counts, but the folder has {len(names):,} "
                        "candidates; restore the files that training wrote")
    n_contexts, n_features = (None if n < 0 else n for n in sizes[:2])
    context = arrays.get("context_sizes")
    problem = ProblemSpec(n_candidates=len(names), counts=torch.from_numpy(counts), n_contexts=n_contexts,
                  context_sizes=None if context is None else tuple(context.tolist()), n_features=n_features,
                  dim=settings.model.dim, seed=settings.train.seed, device="cpu", words=names if sizes[2] else None,
                  lists=TaskLists(task, arrays))
    raw = arrays.get("raw_counts")
    return problem if raw is None else replace(problem, raw_counts=torch.from_numpy(raw))


def _float(counts: torch.Tensor) -> np.ndarray:
    return counts.detach().cpu().double().numpy()
