"""What a run would do, before it does it: its configuration, the memory it takes and about how long it lasts."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from embtrain.config import dump
from embtrain.experiment import parts
from embtrain.experiment.memory import step_bytes, tables_bytes
from embtrain.experiment.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.train.fit import Fit

BLOCKS = 3      # timed, after one that is not


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
            training.take(block)
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
