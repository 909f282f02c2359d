"""How much memory a run takes, and the refusal of one that takes more than is free, before it is taken.

    tables   V D numbers of 4 bytes at the least, with what the optimiser keeps beside each: known before any is made
    a step   gathered rows and scores, forward and backward: known when the parts are there and no block is trained
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from embtrain.errors import ResourceError
from embtrain.experiment.settings import Settings
from embtrain.train.step import CELLS

if TYPE_CHECKING:
    from embtrain.experiment.parts import Parts

STATES = {"sgd": 0, "row-adagrad": 0, "adagrad": 1, "adam": 2}  # numbers an optimiser keeps beside each weight


def free() -> int:
    """Bytes that this machine can still give without swapping; a GiB where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 30


def require_tables(settings: Settings, n_candidates: int) -> None:
    """ResourceError where not even the candidates' own table fits."""
    numbers = n_candidates * settings.model.dim * (1 + STATES[settings.train.optimizer])
    _require(4 * numbers, f"model.dim: a table of {n_candidates:,} by {settings.model.dim:,} numbers takes")


def require_step(made: Parts, settings: Settings) -> None:
    """ResourceError where one update, or what the optimiser will keep, does not fit beside what is there."""
    weights = sum(p.numel() * p.element_size() for p in made.model.parameters())
    need = step_bytes(made, settings) + weights * STATES[settings.train.optimizer]
    _require(need, f"negatives.k, train.batch: {settings.negatives.k:,} negatives for each of {settings.train.batch:,} "
                   "examples take")


def _require(need: int, what: str) -> None:
    if need > (there := free()):
        raise ResourceError(f"{what} {need / 2**20:,.0f} MiB of memory, and {there / 2**20:,.0f} MiB are free: make it "
                            "smaller")


def tables_bytes(made: Parts, config: Settings) -> int:
    """What stays in memory: tables, the optimiser's states, the source's and loss's own, the text, known answers."""
    weights = sum(p.numel() * p.element_size() for p in made.model.parameters())
    own = sum(t.numel() * t.element_size() for t in tensors(made.source))
    return (weights * (1 + STATES[config.train.optimizer]) + own + made.task.nbytes
            + (made.answers.nbytes if made.answers is not None else 0))


def step_bytes(made: Parts, config: Settings) -> int:
    """What a step adds for a while: gathered rows and scores, forward and backward."""
    k = made.world.n_candidates if made.source.complete else config.negatives.k
    rows = min(config.train.batch, max(1, CELLS // max(1, k)))
    scores = 3 * 4 * rows * k
    shared = made.source.complete or config.negatives.share == "batch" or made.train.engine == "fused"
    gathered = 3 * 4 * (rows + k if shared else rows * (k + 1)) * config.model.dim
    contexts = made.world.n_contexts or math.prod(made.world.context_sizes or (made.world.n_candidates,))
    generator = 3 * 4 * min(made.train.block or 0, contexts) * made.source.choices
    return scores + gathered + generator


def tensors(source: object) -> list:
    """Every tensor that a source holds, its modules' parameters and their Adam states included."""
    found = []
    for value in vars(source).values():
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, torch.nn.Module):
            found += [p for p in value.parameters() for _ in range(3)]
    return found
