"""One run that several processes train together, as torchrun starts them.

Process 0 alone reads and writes the folder of the run, so only its machine needs it. Every process reads the corpus.
Processes that the launcher restarts continue the run from its last checkpoint, with the same command. `simulate` trains
as they do in one process.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from embtrain.common import files, progress
from embtrain.common.config import dump, flatten, saved_tree
from embtrain.common.errors import UsageError
from embtrain.common.progress import print_line
from embtrain.experiment.run import components, settings as run_settings, trainer as trainers
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.run import Run, check, train_and_report, write_identity
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import (
    check_new,
    has_trained,
    locked,
    new_folder,
    read_corpus,
    resumable,
    settings_to_resume,
)
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.base import Task
from embtrain.train.group import launch, requirements
from embtrain.train.group.processes import ProcessGroup
from embtrain.train.group.turns import in_turns
from embtrain.train.loop import Trainer

FILE = "processes.json"
LOCK_SECONDS = 30.0  # processes of a launcher that was killed end within this time


def fit(settings: Settings, out: Path | None, group: ProcessGroup) -> Run:
    """Train one run in all processes of a group. Raises what `run.fit` raises, and UsageError for settings that a group
    cannot train or that differ between processes."""
    group.require_equal("configuration", flatten(settings) | {"--out": str(out)})
    requirements.check_settings(settings.model, settings.train, group.size)
    if out is None and launch.may_restart():
        raise UsageError("--out: torchrun --max-restarts starts the processes again, and they must find the run of the "
                         "first start; give --out DIR")
    check(settings)
    begin = group.from_first(lambda: _begin(settings, out))
    if begin["continues"]:
        return resume(Path(begin["folder"]), group)
    parts, threads = _build(settings, _read(settings, group), group, Path(begin["folder"]))
    with _place(Path(begin["folder"]), group, is_new=out is None) as folder:
        if group.is_first:
            check_new(folder)
        trainers.start_from_vectors(folder, settings, parts)    # an error leaves no run that fails to resume
        if group.is_first:
            files.write_text(folder / "config.yaml", dump(settings))
            _write_identity(folder, parts, threads, group)
        return _train(folder, settings, parts, True, group)


def resume(folder: Path, group: ProcessGroup) -> Run:
    """Continue an interrupted run in all processes of a group, whatever number of processes has trained it so far."""
    settings = run_settings.from_tree(group.from_first(lambda: saved_tree(settings_to_resume(folder))))
    requirements.check_settings(settings.model, settings.train, group.size)
    task = _read(settings, group, lambda: read_corpus(folder, settings) if has_trained(folder) else
                 tasks.read(settings))
    has_started = group.from_first(lambda: has_trained(folder))
    parts, threads = _build(settings, task, group, folder)
    with _place(folder, group) as place:
        if not has_started:
            if group.is_first:
                _write_identity(place, parts, threads, group)
            trainers.start_from_vectors(place, settings, parts)
        return _train(place, settings, parts, not has_started, group)


def simulate(settings: Settings, task: Task, size: int, place: Path,
             prepare: Callable[[Trainer], None] = lambda _: None) -> list[tuple[Components, Trainer]]:
    """Train one run with `size` processes that take turns in this one; the bits are those of real processes.

    place: an empty folder, for the log and the checkpoints of process 0. prepare: called with each trainer before it
    trains. Returns the components and the trainer of each process. Raises what `fit` raises for settings that processes
    cannot train.
    """
    requirements.check_settings(settings.model, settings.train, size)

    def train(group: ProcessGroup) -> tuple[Components, Trainer]:
        parts = components.build(settings, task)
        requirements.check_parts(parts.fused_blockers, parts.model, parts.source, parts.train, group)
        requirements.check_blocks(task.examples, parts.train.chunk or 1, size)
        trainers.start_from_vectors(place, settings, parts)
        trainer = trainers.build(place, parts, group=group)
        trainers.continue_parent(place, settings, parts, trainer)
        prepare(trainer)
        trainer.run()
        return parts, trainer

    with progress.silence():                              # each process would print its own progress
        return in_turns(size, train)


def _train(place: Path, settings: Settings, parts: Components, fresh: bool, group: ProcessGroup) -> Run:
    """Train, and wait until process 0 has scored and reported."""
    run = train_and_report(place, settings, parts, fresh, group)
    group.from_first(lambda: None)
    return run


def _begin(settings: Settings, out: Path | None) -> dict[str, Any]:
    """The folder of the run, and whether this launch has started it before. UsageError for a folder of another run."""
    if out is not None:
        config, record = out / "config.yaml", out / FILE
        if config.is_file() and record.is_file() and launch.restarts(str(files.read_json(record).get("launch", ""))) \
                and config.read_text(encoding="utf-8") == dump(settings):
            return {"folder": str(out), "continues": True}
    return {"folder": str(new_folder(settings, out)), "continues": False}


def _read(settings: Settings, group: ProcessGroup, read_first: Callable[[], Task] | None = None) -> Task:
    """Read the corpus: first in process 0, by `read_first`, then the others on its machine find it in the cache."""
    read = list[Task]()
    group.from_first(lambda: read.append(tasks.read(settings) if read_first is None else read_first()))
    task = read[0] if read else tasks.read(settings)
    group.meet()
    group.require_equal("corpus", {"sha256": task.identity["sha256"]})
    print_line(task.describe_files())
    return task


def _build(settings: Settings, task: Task, group: ProcessGroup, folder: Path) -> tuple[Components, int]:
    """The components of the run, and the threads of this process: its share of the cores, if train.threads is 0."""
    n_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    threads = components.use_threads(settings.train.threads)
    if settings.train.threads == 0:
        threads = components.use_threads(max(1, threads // n_local))
    parts = components.build_for_training(settings, task, folder)
    requirements.check_parts(parts.fused_blockers, parts.model, parts.source, parts.train, group)
    if settings.train.tables == "sharded":
        requirements.check_shards(parts.model, parts.source, parts.loss)
    requirements.check_blocks(task.examples, parts.train.chunk or 1, group.size)
    group.meet()
    return parts, threads


def _write_identity(folder: Path, parts: Components, threads: int, group: ProcessGroup) -> None:
    write_identity(folder, parts, threads)
    files.write_json(folder / FILE, {"launch": launch.launch_id(), "processes": group.size})


@contextlib.contextmanager
def _place(folder: Path, group: ProcessGroup, is_new: bool = False) -> Iterator[Path]:
    """The locked folder of the run in process 0, and an empty one that is deleted in the others."""
    if not group.is_first:
        with tempfile.TemporaryDirectory() as place:
            yield Path(place)
        return
    folder, deadline = files.claim_folder(folder) if is_new else folder, time.monotonic() + LOCK_SECONDS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder))
                break
            except UsageError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        stack.enter_context(resumable(folder))
        yield folder
