"""What a run would do, before it does it: its configuration, the memory it takes and about how long it lasts."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from embtrain.config import dump
from embtrain.experiment import parts
from embtrain.experiment.parts import Parts
from embtrain.experiment.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.train.fit import Fit
from embtrain.train.step import CELLS

BLOCKS = 3      # timed, after one that is not
STATES = {"sgd": 0, "row-adagrad": 0, "adagrad": 1, "adam": 2}  # numbers an optimiser keeps beside each weight


def plan(config: Settings) -> str:
    """The resolved configuration, and memory and time estimated by building the run and timing a few blocks of it."""
    tasks.find(config).check(config)
    threads = parts.use_threads(config.train.threads)
    made = parts.build(config, tasks.read(config))
    with tempfile.TemporaryDirectory() as folder:
        training = Fit(made.model, made.source, made.loss, made.task.examples, made.train, Path(folder), dict,
                       made.answers)
        blocks = training.read(0, training.block, 0, config.train.shuffle)
        seconds: list[float] = []
        for block, _ in zip(blocks, range(BLOCKS + 1), strict=False):
            begun = time.perf_counter()
            training.step(block)
            seconds.append(time.perf_counter() - begun)
    n = made.task.examples.n_blocks(0, training.block) * config.train.epochs
    per_block = sum(seconds[1:] or seconds) / max(1, len(seconds[1:] or seconds))
    tables, draws = tables_bytes(made, config), step_bytes(made, config)
    return (f"{dump(config)}\n"
            f"corpus: {made.task.summary()}\n"
            f"engine: {made.train.engine}{''.join(f'; {reason}' for reason in made.slow)}\n"
            f"memory: {tables / 2**20:,.0f} MiB of tables and states, about {draws / 2**20:,.0f} MiB during a step\n"
            f"time: about {n * per_block:,.0f} s of training on {threads} threads "
            f"({n:,} blocks of {per_block * 1e3:.0f} ms), evaluation not counted")


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
    gathered = 0 if made.source.complete else 3 * 4 * rows * (k + 1) * config.model.dim
    questions = min(made.train.block or 0, made.world.n_candidates)
    generator = 3 * 4 * questions * made.world.n_candidates if made.source.learns else 0
    return scores + gathered + generator


def tensors(source: object) -> list:
    """Every tensor that a source holds, its modules' parameters and their Adam states included."""
    import torch

    found = []
    for value in vars(source).values():
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, torch.nn.Module):
            found += [p for p in value.parameters() for _ in range(3)]
    return found
