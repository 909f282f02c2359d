"""Settings -> objects: task, model, source, loss and known positives, checked against each other."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from embtrain.common import machine
from embtrain.common.errors import ResourceError, UsageError
from embtrain.common.output_paths import existing_part
from embtrain.common.traits import refuse_misplaced_traits
from embtrain.common.types import ProblemSpec
from embtrain.data.vectors import folders
from embtrain.data.vectors.subword_table import ngram_rows
from embtrain.experiment.run import memory, scoring
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks.base import Task
from embtrain.experiment.tasks.task_lists import TaskLists
from embtrain.kernels.core.table_files import TableFiles
from embtrain.losses import base as losses
from embtrain.models import base as models
from embtrain.negatives import base as negatives
from embtrain.train.checks.compatibility import incompatibilities
from embtrain.train.engines import choose
from embtrain.train.optimizers import set_gradients_for

OBSERVED_SHARE = 0.25  # of the free memory, for the set of observed pairs
_log = logging.getLogger("embtrain")


@dataclass(frozen=True)
class Components(ModelParts):
    """Task, model, source, loss and training settings of one run."""

    task: Task


def build(settings: Settings, task: Task, problem: ProblemSpec | None = None, observed: bool = True,
          folder: Path = Path()) -> Components:
    """Build model, source and loss over a task; UsageError if they cannot be combined.

    problem: that of a task that was rebuilt without its corpus. observed: False omits the set of known positives
    that training needs under negatives.filter: observed. folder: that of the run, on whose disk tables in files are.
    """
    device = choose_device(settings.train.device)
    train, fused_blockers = choose.choose(settings.model, negatives.find(settings.negatives.source), settings.negatives,
                                          settings.loss, settings.train)
    problem = problem or task.problem_spec(device)
    # Held-out positives include candidates that are none in training.
    problem = replace(problem, floors_counts=True, vectors=folders.read_any, lists=problem.lists or TaskLists(task),
                      ngram_rows=ngram_rows)
    if settings.train.tables != "memory":
        memory.require_disk(settings, problem, folder)
        problem = replace(problem, new_table=TableFiles(existing_part(folder)).zeros)
    else:
        memory.require_tables(settings, problem.n_candidates, can_map=train.engine == "fused" and device == "cpu")
    model = models.find(settings.model.name)(settings.model, problem)
    set_gradients_for(model, train.optimizer)                 # before memory_trial runs an update
    source = negatives.find(settings.negatives.source)(settings.negatives, problem)
    loss = losses.find(settings.loss.name)(settings.loss, problem).to(device)
    source.is_target_q_read = loss.traits.needs_q == "target"
    refuse_misplaced_traits(f"loss.name: {loss.name}", loss)
    for key, rows in (("batch", train.batch), ("chunk", train.chunk)):
        if rows is not None and rows < source.traits.min_batch_size:
            raise UsageError(f"train.{key}: {rows}: {source.name} uses the other targets in the batch as negatives and "
                             "needs at least two rows; increase it")
    if reasons := incompatibilities(source, loss, model):
        raise UsageError(*reasons)
    known_positives = None
    if observed and settings.negatives.filter == "observed":
        known_positives = task.masked_positives(int(OBSERVED_SHARE * machine.free())).to(device)
    return Components(problem, model, source, loss, known_positives, train, fused_blockers, task)


def build_for_training(settings: Settings, task: Task, folder: Path = Path()) -> Components:
    """Like `build`; ResourceError if an update or the optimizer state does not fit into memory.

    Raises what `check_validation` and `check_stopping` raise.
    """
    check_validation(settings, task)
    parts = build(settings, task, folder=folder)
    check_stopping(parts)
    memory.require_step(parts, settings, task.examples)
    return parts


def check_validation(settings: Settings, task: Task) -> None:
    """Raise UsageError if early stopping needs held-out examples, and the corpus gave none."""
    if settings.train.patience and not len(task.heldout("valid")):
        raise UsageError(f"train.patience: nothing of {settings.corpus} was held out as valid, because it is too "
                         "small; give more data, or train.patience: 0")


def check_stopping(parts: Components) -> None:
    """Raise UsageError if early stopping watches a log-likelihood that the noise distribution makes −∞."""
    task, traits = parts.task, parts.source.traits
    can_change = traits.uses_model or traits.learns                     # with them, q is only known during training
    if not parts.train.patience or can_change or not task.stopping_metric.endswith("/log_likelihood"):
        return
    if targets := scoring.undrawn_targets(parts, task.heldout("valid")):
        raise UsageError(f"train.patience: {targets}, so {task.stopping_metric} is not finite; choose negatives that "
                         "draw every candidate, e.g. negatives.source: uniform, or set train.patience: 0")


def choose_device(name: str, place: str = "") -> str:
    """Return the device name; ResourceError if this machine lacks it, UsageError if it is not supported.

    place: begins the error, for example `runs/a/config.yaml: `.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"{place}train.device: {name!r} is not a device; use cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"{place}train.device: {name!r} is not supported; use cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= (n := torch.cuda.device_count()):
        raise ResourceError(f"{place}train.device: {name}: this machine has {n} CUDA devices; use cpu")
    return name


def use_threads(threads: int) -> int:
    """Set torch's thread count (0: all cores this process may run on) and return it.

    In a forked process PyTorch keeps one thread, with a warning if others were requested; the compiled core has them
    all. Raises ResourceError if the system cannot start so many threads: OpenMP would end the process. It starts them
    once for PyTorch and once for the compiled core.
    """
    cores = machine.usable_cores()
    n = threads or cores
    if n > cores and machine.startable_threads(2 * n) < 2 * n:
        raise ResourceError(f"train.threads: {n:,}: the system cannot start so many threads; more than the {cores} "
                            "cores of this machine gain nothing; give fewer, or raise its limits (ulimit -u, -v)")
    # Threads of GNU OpenMP do not survive a fork: if the parent has used some, a child that uses more than one waits
    # for the others without end.
    if (is_forked := machine.is_forked()) and n > 1:
        _log.warning("this process was forked from another one, so PyTorch uses one thread instead of %d; start it "
                     "with multiprocessing's spawn, or set train.threads=1", n)
    torch.set_num_threads(1 if is_forked else n)
    return n
