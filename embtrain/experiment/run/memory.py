"""Refuse a run that needs more memory than is free, before the memory is allocated.

    tables   at least 4·V·D bytes, plus the optimizer state: known before anything is built
    a step   negatives, gathered rows and gradients: first a lower bound, then by trial (train/checks/memory_trial.py)
"""

from __future__ import annotations

from itertools import islice

from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.common.types import Batch
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.train.checks import memory_trial
from embtrain.train.engines.autograd import MAX_SCORES_HELD
from embtrain.train.engines.base import Examples

OPTIMIZER_STATES = {"sgd": 0, "row-adagrad": 0, "adagrad": 1, "adam": 2, "lazy-adam": 2}  # state values per weight


def require_tables(settings: Settings, n_candidates: int) -> None:
    """Raise ResourceError if the embedding table alone does not fit."""
    adam = settings.train.optimizer == "adam"   # its gradient is as large as the table
    n = settings.model.n_rows(n_candidates)
    numbers = n * settings.model.dim * (1 + OPTIMIZER_STATES[settings.train.optimizer] + adam)
    keys = "model.dim" if n == n_candidates else "model.dim, model.subword.buckets"
    _require(4 * numbers, f"{keys}: a table of {n:,} by {settings.model.dim:,} numbers takes")


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


def _require(need: int, subject: str) -> None:
    if need > (available := machine.free()):
        raise ResourceError(f"{subject} {need / 2**20:,.0f} MiB of memory, and {available / 2**20:,.0f} MiB are free; "
                            "make it smaller")


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
