"""Refuse a run that needs more memory or disk than is free, before it is allocated.

    tables   at least 4·V·D bytes, plus the optimizer state: known before anything is built
    disk     of tables in files (train.tables: mapped): their rows, padded to 16 numbers; checkpoints and vectors.
             A comparison adds up what all its runs write (comparison/checks/disk.py)
    a step   negatives, gathered rows and gradients: first a lower bound, then by trial (train/checks/memory_trial.py)
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import NamedTuple

from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.common.files import existing_part
from embtrain.common.types import Batch, ProblemSpec
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.kernels.core.table_files import row_floats
from embtrain.train.checks import memory_trial
from embtrain.train.engines.autograd import MAX_SCORES_HELD
from embtrain.train.engines.base import Examples

OPTIMIZER_STATES = {"sgd": 0, "row-adagrad": 0, "adagrad": 1, "adam": 2, "lazy-adam": 2}  # state values per weight


def require_tables(settings: Settings, n_candidates: int, can_map: bool = False) -> None:
    """Raise ResourceError if the embedding table alone does not fit. can_map: whether it could be in files."""
    adam = settings.train.optimizer == "adam"   # its gradient is as large as the table
    n = settings.model.n_rows(n_candidates)
    numbers = n * settings.model.dim * (1 + OPTIMIZER_STATES[settings.train.optimizer] + adam)
    keys = "model.dim" if n == n_candidates else "model.dim, model.subword.buckets"
    _require(4 * numbers, f"{keys}: a table of {n:,} by {settings.model.dim:,} numbers takes",
             "set train.tables: mapped, or make it smaller" if can_map else "make it smaller")


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


def disk_need(settings: Settings, problem: ProblemSpec, folder: Path, state_bytes: int | None = None) -> DiskNeed:
    """Return the disk space that a run in `folder` needs, as far as it is known before training.

    state_bytes: of model, loss and source in a checkpoint, once they are built; None: those of the model's tables.
    """
    model, train = settings.model, settings.train
    rows, per_row = model.n_rows_of_all(problem), 4 * (train.optimizer == "row-adagrad")
    tables, vectors = rows * 4 * model.dim, 4 * model.dim * problem.n_candidates
    state = tables if state_bytes is None else state_bytes
    checkpoint, n_best = state + OPTIMIZER_STATES[train.optimizer] * tables + rows * per_row, int(train.patience > 0)
    subwords = state - vectors if getattr(model, "subword", None) is not None else 0      # rows of words and n-grams
    stored = (train.keep + 1 + n_best) * checkpoint + vectors + max(0, subwords)
    present = sum(path.stat().st_size for name in ("checkpoints", "best") for path in (folder / name).glob("step-*"))
    in_files = 0 if train.tables == "memory" else rows * (4 * row_floats(model.dim) + per_row)
    return DiskNeed(in_files, stored, min(present, stored - checkpoint), checkpoint)


def require_disk(settings: Settings, problem: ProblemSpec, folder: Path) -> None:
    """Raise ResourceError if the disk of a run's folder is too small for its tables, checkpoints and vectors."""
    need, place = disk_need(settings, problem, folder), existing_part(folder)
    if need.missing > (free := machine.free_disk(place)):
        tables, stored, missing, free_text = map(mebibytes, (need.tables, need.stored, need.missing, free))
        raise ResourceError(f"train.tables: mapped: tables of {tables}, and {stored} of checkpoints and vectors, need "
                            f"{missing} on the disk of {place}, and {free_text} are free; choose another disk with "
                            "--out, or lower train.keep or model.dim")


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
    states = OPTIMIZER_STATES[settings.train.optimizer] * sum(p.numel() * p.element_size()
                                                              for p in parts.model.parameters())
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
    return 2 * 4 * rows * k * (parts.problem.dim if config.share_draws_by == "row" and not traits.exhaustive else 1)


def _block(examples: Examples, places: int) -> Batch:
    """A block of about `places` positions: the last but one of the ordered corpus.

    If a task orders its examples by length, no block is larger.
    """
    last = max(0, examples.n_blocks(0, places) - 2)
    return next(islice(examples.blocks(0, places, last, False), 1))
