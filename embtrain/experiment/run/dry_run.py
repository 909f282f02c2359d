"""Dry run: the configuration, peak memory and approximate duration of a run, before it is trained.

    memory = max(peak of reading, building and a few blocks,  memory then in use + that of scoring)  − the program's

The first term is the peak RSS that the operating system reports: it includes gradients, gathered negatives and memory
that the allocator cannot return, which no sum over array sizes would. It is at least the memory then in use + that of
all blocks that an engine reads ahead, which the few blocks may not reach. The task estimates the memory of scoring by
scoring a little. The program's own memory is the RSS with all modules loaded and no corpus. Tables in files are not
counted, because the system can write their pages back.
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
from embtrain.common.optimizers.eager import EagerSGD
from embtrain.experiment.run import components, memory, trainer as trainers
from embtrain.experiment.run.components import Components
from embtrain.experiment.run.run import check
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.run.started import new_folder
from embtrain.experiment.tasks import base as tasks
from embtrain.train.checks.warmup import warn_if_too_long
from embtrain.train.group import requirements, traffic
from embtrain.train.group.processes import SOLO, ProcessGroup
from embtrain.train.group.tiers import RowSchedule, counts_of
from embtrain.train.group.traffic import MovedRows, tables_of
from embtrain.train.loop import Trainer

MAX_BLOCKS = 8       # timed, after a first one that is not
MIN_BLOCKS = 6       # trained even if slow: the memory that the allocator retains grows over the first ones
MAX_SECONDS = 4.0    # approximate limit for all of them
MAX_SECONDS_SLOW = 20.0    # no block after these, the first one included: a block of a large model can take minutes


class MemoryEstimate(NamedTuple):
    """Bytes that a run needs in addition to those of the program."""

    program: int
    training: int    # peak while building and training
    judging: int     # peak while scoring
    device: int | None = None   # peak of tensors on the GPU while building and training; None: there is none

    @property
    def peak(self) -> int:
        return max(self.training, self.judging)

    def __str__(self) -> str:
        program, training, judging, peak = (f"{n / 2**20:,.0f}" for n in (*self[:3], self.peak))
        on_gpu = "" if self.device is None else f"; about {self.device / 2**20:,.0f} MiB of the GPU in training"
        return (f"about {peak} MiB in addition to {program} MiB of the program: {training} in training, {judging} in "
                f"evaluation{on_gpu}")


class Plan(NamedTuple):
    """Resolved settings of a run with estimates of its memory and time."""
    settings: Settings
    corpus: str
    files: str                 # file of each part; '' for a single file or a recipe
    engine: str
    slow: list[str]            # why it is not the fused one
    memory: MemoryEstimate | None      # None: the system does not report it
    threads: int
    blocks: int
    block_seconds: float
    sync: str                  # exchange of several processes; '' for one
    tables: str                # disk of tables in files; '' for those in memory

    def __str__(self) -> str:
        threads, blocks = (f"{n:,} {noun}{'s' * (n != 1)}" for n, noun in ((self.threads, "thread"),
                                                                            (self.blocks, "block")))
        return (f"{dump(self.settings)}\ncorpus: {self.corpus}\n{self.files and self.files + chr(10)}engine: "
                f"{self.engine}{''.join(f'; {reason}' for reason in self.slow)}\nmemory: "
                f"{self.memory or 'unknown: this system does not report the memory of a process'}"
                f"{self.tables and chr(10) + 'tables: ' + self.tables}\ntime: about "
                f"{self.blocks * self.block_seconds:,.0f} s of training on {threads} ({blocks} of "
                f"{self.block_seconds * 1e3:.0f} ms), evaluation not counted"
                f"{self.sync and chr(10) + 'exchange: ' + self.sync}")

    def tree(self) -> dict[str, Any]:
        return self._asdict() | {"settings": self.settings.model_dump(mode="json"),
                                 "memory": None if self.memory is None else self.memory._asdict(),
                                 "seconds": self.blocks * self.block_seconds}


def plan(settings: Settings, group: ProcessGroup = SOLO, out: Path | None = None) -> Plan:
    """Resolve a configuration and estimate memory and time by building the run and training a few blocks.

    With several processes, this one trains as one of them. out: folder of the run. Raises the errors of the run itself.
    """
    folder = new_folder(settings, out)
    if group.size > 1:
        requirements.check_settings(settings.model, settings.train, group.size)
    check(settings)
    components.choose_device(settings.train.device)
    threads = components.use_threads(settings.train.threads)
    parts, estimate, per_block, exchange = profile(settings, group, folder)
    n = parts.task.examples.n_blocks(0, parts.train.chunk or 1) * settings.train.epochs
    if group.is_first:
        warn_if_too_long(settings.train, n)
    return Plan(
        settings,
        parts.task.summary(),
        parts.task.describe_files(),
        str(parts.train.engine),
        list(parts.fused_blockers),
        estimate,
        threads,
        n // group.size,
        per_block,
        exchange,
        memory.describe_disk(settings, parts.problem, folder) if settings.train.tables != "memory" else "",
    )


def _warm_up_torch() -> None:
    """Run a tiny update: memory that torch takes with the first one belongs to the program."""
    table = nn.Parameter(torch.zeros(2, 2))
    rows = nn.functional.embedding(torch.tensor([0, 1]), table, sparse=True)                 # (2, 2)
    (rows @ rows.T).logsumexp(1).sum().backward()
    EagerSGD([table], lr=0.0).step()


def _file_pages() -> int:
    """Bytes of files that are mapped into this process and in memory now."""
    return sum(machine.process_memory(field) or 0 for field in ("RssFile", "RssShmem"))


def _bytes_ahead(trainer: Trainer, block: Any) -> tuple[int, int]:
    """Bytes of all blocks that the engine reads ahead, if they are as large as this one: on the host, on a GPU."""
    n = min(trainer.step.blocks_ahead(), trainer.examples.n_blocks(0, trainer.block_size))
    on_host, on_device = trainer.step.block_bytes(block)
    return n * on_host, n * on_device


def _device_bytes(device: str, ahead: int) -> int | None:
    """Peak bytes of tensors on a GPU, with `ahead` bytes of blocks read ahead; None for the CPU."""
    if torch.device(device).type == "cpu":
        return None
    return max(torch.cuda.max_memory_allocated(device), torch.cuda.memory_allocated(device) + ahead)


def profile(settings: Settings, group: ProcessGroup = SOLO, place: Path = Path()
            ) -> tuple[Components, MemoryEstimate | None, float, str]:
    """Build a run and train a few blocks. place: folder of the run.

    Returns its components, the memory it needs (None if the system does not report it), the seconds of a block, and the
    exchange of several processes.
    """
    _warm_up_torch()
    machine.reset_peak()
    program = machine.process_memory("VmRSS")
    task = tasks.read(settings)
    reading, files = machine.process_memory("VmHWM"), _file_pages()
    parts = components.build_for_training(settings, task, place)
    chunk, exchange = parts.train.chunk or 1, ""
    if group.size > 1:
        requirements.check_parts(parts.fused_blockers, parts.model, parts.source, parts.train, SOLO)
        requirements.check_blocks(parts.task.examples, chunk, group.size)
    with tempfile.TemporaryDirectory() as folder:
        trainers.start_from_vectors(Path(folder), settings, parts)
        trainer = Trainer(parts.model, parts.source, parts.loss, parts.task.examples, parts.train, Path(folder), dict,
                          parts.known_positives)
        trainers.continue_parent(Path(folder), settings, parts, trainer)
        parts.source.on_epoch_start(trainer.step.view)
        sync = parts.train.sync
        moved = None
        if group.size > 1 and settings.train.tables == "memory":
            n_syncs = sync.per_epoch(parts.task.examples.n_blocks(0, chunk), chunk, group.size, trainer.step.name)
            schedule = RowSchedule(counts_of(parts.model), sync.frequent_rows, n_syncs)
            moved = MovedRows(tables_of(parts.model), schedule.tiers())
        seconds, ahead = list[float](), (0, 0)
        for block in trainer.read_blocks(0, trainer.block_size, 0, settings.train.shuffle):
            start = time.perf_counter()
            result = trainer.run_step(block, keep_costs=not seconds)
            if not seconds:
                trainer.log(result)                           # reads every candidate
                ahead = _bytes_ahead(trainer, block)
            del result
            seconds.append(time.perf_counter() - start)
            if moved is not None and len(seconds) <= sync.interval(chunk, trainer.step.name):
                words = len(seconds) * parts.task.n_words / parts.task.examples.n_blocks(0, chunk)
                exchange = traffic.describe(moved.count(), sync, group.size, words)
            if (len(seconds) > MAX_BLOCKS or sum(seconds) > MAX_SECONDS_SLOW
                    or (len(seconds) > MIN_BLOCKS and sum(seconds[1:]) > MAX_SECONDS)):
                break
        peak, mapped = machine.process_memory("VmHWM"), 0
        if settings.train.tables != "memory":
            mapped = max(0, _file_pages() - files)
        machine.release_free_memory()                                  # as before scoring
        current = machine.process_memory("VmRSS")
        block_seconds = seconds[1:] or seconds
        estimate = None
        if program is not None and reading is not None and peak is not None and current is not None:
            training = max(program, reading, peak - mapped, current - mapped + ahead[0]) - program
            judging = max(0, current - mapped - program + parts.task.evaluation_bytes(parts))  # a tiny run frees more
            estimate = MemoryEstimate(program, training, judging, _device_bytes(settings.train.device, ahead[1]))
    return parts, estimate, sum(block_seconds) / max(1, len(block_seconds)), exchange
