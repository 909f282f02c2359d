"""Refuse a run that needs more memory or disk than is free, before it is allocated.

    tables   at least V·D numbers of the model's type, plus the optimizer state: known before anything is built
    disk     of tables in files (train.tables: mapped): their rows, padded to 16 numbers; checkpoints and vectors.
             A comparison adds up what all its runs write (comparison/checks/disk.py)
    a step   negatives, gathered rows and gradients: first a lower bound, then by trial (train/checks/memory_trial.py)
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.common.output_paths import existing_part
from embtrain.common.types import Batch, ProblemSpec
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.kernels.core.table_files import row_floats
from embtrain.train.checks import memory_trial
from embtrain.train.engines.autograd import MAX_SCORES_HELD
from embtrain.train.engines.base import Examples
from embtrain.train.state import serialize

OPTIMIZER_STATES = {"sgd": 0, "row-adagrad": 0, "adagrad": 1, "adam": 2, "lazy-adam": 2}  # state values per weight


def require_tables(settings: Settings, n_candidates: int, can_map: bool = False) -> None:
    """Raise ResourceError if the embedding table alone does not fit. can_map: whether it could be in files."""
    adam = settings.train.optimizer == "adam"   # its gradient is as large as the table
    n, number = settings.model.n_rows(n_candidates), settings.model.table_dtype.itemsize
    numbers = n * settings.model.dim * (1 + OPTIMIZER_STATES[settings.train.optimizer] + adam)
    keys = "model.dim" if n == n_candidates else "model.dim, model.subword.buckets"
    _require(number * numbers, f"{keys}: a table of {n:,} by {settings.model.dim:,} numbers takes",
             "set train.tables: mapped, or make it smaller" if can_map else "make it smaller")


class StateBytes(NamedTuple):
    """Bytes of the tensors in a checkpoint."""

    learned: int     # of model, loss and source
    optimizer: int


def tables_state(settings: Settings, problem: ProblemSpec) -> StateBytes:
    """Return the state of the tables, as far as it is known before the model is built."""
    rows, number = settings.model.n_rows_of_all(problem), settings.model.table_dtype.itemsize
    tables, optimizer = rows * number * settings.model.dim, settings.train.optimizer
    return StateBytes(tables, OPTIMIZER_STATES[optimizer] * tables + rows * number * (optimizer == "row-adagrad"))


def built_state(parts: ModelParts) -> StateBytes:
    """Return the state of built parts."""
    tensors = serialize.encode({"model": parts.model.state_dict(), "loss": parts.loss.state_dict(),
                                "source": parts.source.state_dict()})[1]
    return StateBytes(sum(map(_bytes, tensors)), _optimizer_bytes(parts))


def _optimizer_bytes(parts: ModelParts) -> int:
    """Bytes of the state of the optimizers (train/optimizers.py)."""
    name, tables = parts.train.optimizer, list(parts.model.parameters())
    of_rows = sum(_bytes(p) // p[0].numel() for p in tables if p.numel()) if name == "row-adagrad" else 0
    return OPTIMIZER_STATES[name] * sum(map(_bytes, tables)) + of_rows \
        + OPTIMIZER_STATES["adam"] * sum(map(_bytes, parts.loss.parameters()))


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class DiskNeed(NamedTuple):
    """Bytes on disk of a run."""

    tables: int      # files that exist while the process works; 0 for tables in memory
    stored: int      # checkpoints, one of them being written, and vectors
    present: int     # of `stored` that the folder has already
    checkpoint: int  # of `stored`, one checkpoint

    @property
    def missing(self) -> int:
        """Bytes that must be free, which include a further checkpoint."""
        return self.tables + self.stored - self.present


def disk_need(settings: Settings, problem: ProblemSpec, folder: Path, state: StateBytes | None = None) -> DiskNeed:
    """Return the disk space that a run in `folder` needs, as far as it is known before training.

    state: that of the parts, once they are built; None: that of the model's tables.
    """
    model, train = settings.model, settings.train
    state = state or tables_state(settings, problem)
    checkpoint, n_best = sum(state), int(train.patience > 0)
    vectors = torch.float32.itemsize * model.dim * problem.n_candidates             # of any model (vectors/folders.py)
    # rows of words and n-grams
    subwords = state.learned - vectors if getattr(model, "subword", None) is not None else 0
    stored = (train.keep + 1 + n_best) * checkpoint + vectors + max(0, subwords)
    present = sum(path.stat().st_size for name in ("checkpoints", "best") for path in (folder / name).glob("step-*"))
    in_files = 0 if train.tables == "memory" else _bytes_of_files(settings, problem)
    return DiskNeed(in_files, stored, min(present, stored - checkpoint), checkpoint)


def _bytes_of_files(settings: Settings, problem: ProblemSpec) -> int:
    """Bytes of the tables and the accumulators in files (kernels/core/table_files.py)."""
    n_columns = row_floats(settings.model.dim) + (settings.train.optimizer == "row-adagrad")
    return torch.float32.itemsize * settings.model.n_rows_of_all(problem) * n_columns


def require_disk(settings: Settings, problem: ProblemSpec, folder: Path) -> None:
    """Raise ResourceError if the disk of a run's folder is too small for its tables, checkpoints and vectors."""
    need, place = disk_need(settings, problem, folder), existing_part(folder)
    if need.missing > (free := machine.free_disk(place)):
        tables, stored, missing, free_text = map(mebibytes, (need.tables, need.stored, need.missing, free))
        raise ResourceError(f"train.tables: mapped: tables of {tables}, and {stored} of checkpoints and vectors, need "
                            f"{missing} on the disk of {place}, and {free_text} are free; choose a folder on "
                            "another disk, or lower train.keep or model.dim")


def describe_disk(settings: Settings, problem: ProblemSpec, folder: Path) -> str:
    """Return one line for a dry run."""
    need, place = disk_need(settings, problem, folder), existing_part(folder)
    cached = min(1.0, machine.free() / max(1, need.tables))
    tables, stored, free = map(mebibytes, (need.tables, need.stored, machine.free_disk(place)))
    return (f"{tables} in files on the disk of {place}, {stored} of checkpoints and vectors; {free} are free there; "
            f"the free memory of this machine holds {cached:.0%} of the tables")


def mebibytes(n: int) -> str:
    """Format bytes for an error or a dry run."""
    return f"{n / 2**20:,.0f} MiB"


def require_step(parts: ModelParts, settings: Settings, examples: Examples) -> None:
    """Raise ResourceError if one update, or the optimizer state, does not fit into the remaining memory."""
    states = _optimizer_bytes(parts) if settings.train.tables == "memory" else 0
    key, size = ("chunk", parts.train.chunk or 1) if parts.train.engine == "fused" else ("batch", settings.train.batch)
    subject = f"negatives.k, train.{key}: {settings.negatives.k:,} negatives for each of {size:,} examples take"
    _require(states + _min_step_bytes(parts), subject)
    if parts.train.engine == "autograd" and examples.n_blocks(0, parts.train.chunk or 1):
        _require(
            states
            + memory_trial.update_bytes(
                parts.model,
                parts.source,
                parts.loss,
                parts.train,
                parts.known_positives,
                lambda places: _block(examples, places),
            ),
            subject,
        )


def _require(need: int, subject: str, remedy: str = "make it smaller") -> None:
    if need > (available := machine.free()):
        raise ResourceError(f"{subject} {need / 2**20:,.0f} MiB of memory, and {available / 2**20:,.0f} MiB are free; "
                            f"{remedy}")


def _min_step_bytes(parts: ModelParts) -> int:
    """Lower bound on the bytes of an update: scores and gathered rows, forward and backward.

    For the fused engine, the negatives of a block's centres or queries.
    """
    config, traits = parts.source.config, parts.source.traits
    k = parts.problem.n_candidates if traits.exhaustive else config.k if traits.components else 0
    if parts.train.engine == "fused":
        return 8 * k * (parts.train.chunk or 1) // (config.share_size if config.share_draws_by == "block" else 1)
    rows = min(parts.train.batch, max(1, MAX_SCORES_HELD // max(1, k)))
    has_own_rows = config.share_draws_by == "row" and not traits.exhaustive
    return 2 * rows * k * (parts.model.config.table_dtype.itemsize * parts.problem.dim if has_own_rows else 4)


def _block(examples: Examples, places: int) -> Batch:
    """A block of about `places` positions: the last but one of the ordered corpus, or the first with an example.

    If a task orders its examples by length, no block is larger. Subsampling can leave a block empty.
    """
    last = max(0, examples.n_blocks(0, places) - 2)
    block = next(islice(examples.blocks(0, places, last, False), 1))
    return block if len(block) else next((other for other in examples.blocks(0, places, 0, False) if len(other)), block)
