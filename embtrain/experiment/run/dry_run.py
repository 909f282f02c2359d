"""What a run would do, before it does it: its configuration, the memory it takes and about how long it lasts.

    memory = max(most in reading, building and a few blocks,  what is alive then + what judging adds)  − the program's

The first the kernel has counted for this process, and nothing that anybody says of his arrays could be as near:
gradients, columns and what the allocator cannot give back are among it. What judging adds, a task finds out by judging
a little. The program's own is what the process has when all is loaded and no corpus is.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from embtrain.common import machine
from embtrain.common.config import dump
from embtrain.experiment.run import components
from embtrain.experiment.run.components import Parts
from embtrain.experiment.run.run import check
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.train.loop import Trainer

BLOCKS = 8       # trained, after one that is not timed
FEWEST = 6       # trained, however long they take: what the allocator keeps grows over the first ones
SECONDS = 4.0    # that these take, about


class Memory(NamedTuple):
    """Bytes; those of a run beside those of the program."""

    program: int
    training: int    # at the most while the run is built and trained
    judging: int     # at the most when it is judged

    @property
    def most(self) -> int:
        return max(self.training, self.judging)

    def __str__(self) -> str:
        program, training, judging, most = (f"{n / 2**20:,.0f}" for n in (*self, self.most))
        return (f"about {most} MiB at the most beside the {program} MiB of the program itself: {training} in training, "
                f"{judging} when it is judged")


class Plan(NamedTuple):
    settings: Settings
    corpus: str
    files: str                 # which file is which part; '' for one file or a recipe
    engine: str
    slow: list[str]            # why it is not the faster one
    memory: Memory | None      # None: this system does not say
    threads: int
    blocks: int
    block_seconds: float

    def __str__(self) -> str:
        return (f"{dump(self.settings)}\n"
                f"corpus: {self.corpus}\n{self.files and self.files + chr(10)}"
                f"engine: {self.engine}{''.join(f'; {reason}' for reason in self.slow)}\n"
                f"memory: {self.memory or 'not known: this system does not say what a process takes'}\n"
                f"time: about {self.blocks * self.block_seconds:,.0f} s of training on {self.threads} threads "
                f"({self.blocks:,} blocks of {self.block_seconds * 1e3:.0f} ms), evaluation not counted")

    def tree(self) -> dict[str, Any]:
        return self._asdict() | {"settings": self.settings.model_dump(mode="json"),
                                 "memory": None if self.memory is None else self.memory._asdict(),
                                 "seconds": self.blocks * self.block_seconds}


def plan(config: Settings) -> Plan:
    """The resolved configuration, and memory and time estimated by building the run and training a few blocks of it."""
    check(config)
    threads = components.use_threads(config.train.threads)
    made, taken, per_block = tried(config)
    n = made.task.examples.n_blocks(0, made.train.block or 1) * config.train.epochs
    return Plan(
        config,
        made.task.summary(),
        made.task.describe_files(),
        str(made.train.engine),
        list(made.slow),
        taken,
        threads,
        n,
        per_block,
    )


def _loaded() -> None:
    """An update of next to nothing: with the first one torch loads 90 MiB of itself, which are the program's."""
    table = nn.Parameter(torch.zeros(2, 2))
    rows = nn.functional.embedding(torch.tensor([0, 1]), table, sparse=True)                 # (2, 2)
    (rows @ rows.T).logsumexp(1).sum().backward()
    torch.optim.SGD([table], lr=0.0).step()


def tried(config: Settings) -> tuple[Parts, Memory | None, float]:
    """A few blocks of a run: what it is made of, the memory it takes (None: nobody says), the seconds of a block."""
    _loaded()
    machine.reset_peak()
    program = machine.process_memory("VmRSS")
    made = components.to_train(config, tasks.read(config))
    with tempfile.TemporaryDirectory() as folder:
        training = Trainer(made.model, made.source, made.loss, made.task.examples, made.train, Path(folder), dict,
                       made.answers)
        made.source.on_epoch_start(training.step.view)
        seconds = list[float]()
        for block in training.read_blocks(0, training.block_size, 0, config.train.shuffle):
            begun = time.perf_counter()
            told = training.run_step(block, keep_costs=not seconds)
            if not seconds:
                training.log(told)                           # which looks at every candidate
            del told
            seconds.append(time.perf_counter() - begun)
            if len(seconds) > BLOCKS or (len(seconds) > FEWEST and sum(seconds[1:]) > SECONDS):
                break
        most = machine.process_memory("VmHWM")
        machine.release_free_memory()                                  # as before a run is judged
        now = machine.process_memory("VmRSS")
        timed = seconds[1:] or seconds
        known = None
        if program is not None and most is not None and now is not None:
            known = Memory(program, most - program, now - program + made.task.evaluation_bytes(made))
    return made, known, sum(timed) / max(1, len(timed))
