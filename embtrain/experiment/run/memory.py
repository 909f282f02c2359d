"""How much memory a run takes, and the refusal of one that takes more than is free, before it is taken.

    tables   V D numbers of 4 bytes at the least, with what the optimiser keeps beside each: known before any is made
    a step   columns, gathered rows and gradients: first the least that they can be, then by trial
    (train/checks/memory_trial.py)
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from embtrain.common import machine
from embtrain.common.errors import ResourceError
from embtrain.common.types import Batch
from embtrain.experiment.run.settings import Settings
from embtrain.train.checks import memory_trial
from embtrain.train.engines.autograd import MAX_SCORES_HELD

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Parts

STATES = {"sgd": 0, "row-adagrad": 0, "adagrad": 1, "adam": 2, "lazy-adam": 2}  # numbers kept for each weight


def require_tables(settings: Settings, n_candidates: int) -> None:
    """ResourceError where not even the candidates' own table fits."""
    adam = settings.train.optimizer == "adam"   # its gradient is as large as the table
    numbers = n_candidates * settings.model.dim * (1 + STATES[settings.train.optimizer] + adam)
    _require(4 * numbers, f"model.dim: a table of {n_candidates:,} by {settings.model.dim:,} numbers takes")


def require_step(made: Parts, settings: Settings) -> None:
    """ResourceError where one update, or what the optimiser will keep, does not fit beside what is there."""
    states = STATES[settings.train.optimizer] * sum(p.numel() * p.element_size() for p in made.model.parameters())
    key, size = ("block", made.train.block or 1) if made.train.engine == "fused" else ("batch", settings.train.batch)
    what = f"negatives.k, train.{key}: {settings.negatives.k:,} negatives for each of {size:,} examples take"
    _require(states + _least(made), what)
    if made.train.engine == "step" and made.task.examples.n_blocks(0, made.train.block or 1):
        _require(states + memory_trial.update_bytes(made.model, made.source, made.loss, made.train, made.answers,
                                     lambda places: _block(made, places)), what)


def _require(need: int, what: str) -> None:
    if need > (there := machine.free()):
        raise ResourceError(f"{what} {need / 2**20:,.0f} MiB of memory, and {there / 2**20:,.0f} MiB are free: make it "
                            "smaller")


def _least(made: Parts) -> int:
    """Scores and gathered rows of an update, forward and backward, whatever else it makes; of the fused engine the
    columns of a block's centres, or questions."""
    config = made.source.config
    k = made.world.n_candidates if made.source.exhaustive else config.k if made.source.components else 0
    if made.train.engine == "fused":
        return 8 * k * (made.train.block or 1) // (config.block if config.share == "block" else 1)
    rows = min(made.train.batch, max(1, MAX_SCORES_HELD // max(1, k)))
    return 2 * 4 * rows * k * (made.world.dim if config.share == "row" and not made.source.exhaustive else 1)


def _block(made: Parts, places: int) -> Batch:
    """A block of about so many places. The last but one of a corpus that is in order: where a task orders its examples
    by their length, none takes more."""
    examples = made.task.examples
    last = max(0, examples.n_blocks(0, places) - 2)
    return next(islice(examples.blocks(0, places, last, False), 1))
