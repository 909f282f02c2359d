"""The training loop of one process of a group: local SGD on its blocks, and tables that are put together.

    process r trains blocks b + r, b + r + N, … of the one order of blocks;  synchronize;  b ← b + N · train.sync.blocks

(seed, epoch, block) determine a block, so no example is sent. Position.block and Position.step count the blocks of all
processes, so that a checkpoint can be continued by any number of processes. Everything that processes must agree on is
exchanged at synchronizations: signals, checkpoints, numbers of examples. Process 0 writes the log and the checkpoints
and evaluates. A checkpoint holds the states of the sources of all processes, which have random numbers of their own.
A run is evaluated, saved and stopped only where all processes have the same bits (tiers.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embtrain.common.errors import Stopped
from embtrain.common.progress import Progress, print_line
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Examples, StepResult
from embtrain.train.engines.false_negatives import KnownPositives
from embtrain.train.group import states
from embtrain.train.group.exchange import TableSync
from embtrain.train.group.processes import ProcessGroup
from embtrain.train.group.tiers import RowSchedule, counts_of
from embtrain.train.group.traffic import Traffic, tables_of
from embtrain.train.loop import Evaluate, Trainer
from embtrain.train.optimizers import RowAdagrad
from embtrain.train.state.metrics_log import MetricsLog
from embtrain.train.state.position import Position
from embtrain.train.state.signals import Stop


class NoLog(MetricsLog):
    """The log of a process that writes none."""

    def __init__(self) -> None:
        pass

    def append(self, values: Mapping[str, Any]) -> None:
        pass

    def sync(self) -> int:
        return 0

    def truncate(self, offset: int) -> None:
        pass


class GroupTrainer(Trainer):
    """Trainer of one process of a group. `folder`: that of the run in process 0, an empty one in the others.

    n_words: of the training text; 0 if the examples are not words.
    """

    def __init__(self, group: ProcessGroup, model: Model, source: NegativeSource, loss: Loss, examples: Examples,
                 config: TrainConfig, folder: Path, evaluate: Evaluate,
                 known_positives: KnownPositives | None = None, watched_metric: str = "valid/log_likelihood",
                 on_checkpoint: Callable[[int], None] = lambda _: None, n_words: int = 0):
        super().__init__(model, source, loss, examples, config, folder, evaluate, known_positives, watched_metric,
                         on_checkpoint)
        self.group, self.is_first, self.traffic, self.n_words = group, group.is_first, Traffic(), n_words
        self._source_states: list[dict[str, Any]] | None = None  # of processes 1, 2, …, while only process 0 works
        self._sync: TableSync | None = None
        self.sync_threads = torch.get_num_threads()   # of a synchronization; the result does not depend on them
        if not group.is_first:
            self.metrics = NoLog()
            source.reseed(_stream(config.seed, group.rank, 0))

    def run(self) -> Position:
        position = super().run()
        if self.group.is_first:
            print_line(str(self.traffic))
        return position

    def _check_stop(self, stop: Stop) -> None:
        if signal := int(self._agree(stop, 0)[0]):                # a signal of one process stops all
            raise Stopped(signal)

    def _train(self, stop: Stop, progress: Progress) -> None:
        config, position, group = self.config, self.position, self.group
        self._sync = self._new_sync()
        schedule = self._new_schedule()
        interval = config.sync.interval(self.block_size, self.step.name) * group.size
        last_save, seconds_before = time.monotonic(), position.seconds
        self.stopwatch.start()
        if self.threshold is not None and position.step == 0:
            group.from_first(lambda: self._check_threshold(stop), stop)
        while True:
            self._evaluate_if_due(stop)
            if self.has_ended():
                return
            self.n_blocks = n = self.examples.n_blocks(position.epoch, self.block_size)
            if position.block == 0:
                self.source.on_epoch_start(self.step.view)
            while position.block < n:
                first, step_before = position.block, position.step
                end = min(n, first + interval)
                log = end == n or (step_before + end - first) // config.log_every > step_before // config.log_every
                result, n_examples, cpu_seconds = self._train_blocks(first, end, n, log)
                self.traffic.words += self.n_words * (end - first) / n / group.size
                which = -(-end // interval), end == n
                self._put_together(schedule.rows(*which))
                wants_save = time.monotonic() - last_save >= config.checkpoint_every
                signal, must_save, *sums = self._agree(stop, wants_save, n_examples, cpu_seconds)
                position.block, position.step = end, step_before + end - first
                position.examples += int(sums[0])
                position.cpu_seconds += float(sums[1])
                position.seconds = seconds_before + self.stopwatch.read()[0]
                if log and group.is_first and result is not None:
                    self.log(result)
                progress.add(end - first, f"loss {float(result.loss):.4f}" if log and result is not None else "")
                if not schedule.exchanges_all(*which):
                    continue
                self._evaluate_if_due(stop)
                if signal:
                    raise Stopped(int(signal))
                if must_save:
                    self.save()
                    last_save = time.monotonic()
                if self._should_stop():
                    return
            position.epoch, position.block = position.epoch + 1, 0

    def _new_sync(self) -> TableSync:
        tables, optimizer = tables_of(self.model), self.optimizers[0]
        accumulators = [optimizer.accumulator(table) for table in tables] if isinstance(optimizer, RowAdagrad) else []
        return TableSync(self.group, tables, self.config.sync.wire, accumulators, self.traffic, self.sync_threads)

    def _new_schedule(self) -> RowSchedule:
        sync, n_blocks = self.config.sync, self.examples.n_blocks(0, self.block_size)
        n_syncs = sync.per_epoch(n_blocks, self.block_size, self.group.size, self.step.name)
        return RowSchedule(counts_of(self.model), sync.frequent_rows, n_syncs)

    def _train_blocks(self, first: int, end: int, n: int, log: bool) -> tuple[StepResult | None, int, float]:
        """Train this process's share of blocks first .. end of n; its last result, examples and CPU seconds."""
        position, config, started = self.position, self.config, time.process_time()
        result, n_examples, share = None, 0, range(first + self.group.rank, end, self.group.size)
        for at in share:
            block = next(iter(self.read_blocks(position.epoch, self.block_size, at, config.shuffle)))
            self._set_rate((position.epoch + at / n) / config.epochs)
            result = self.run_step(block, log and at == share[-1] and self.group.is_first)
            n_examples += len(block.target)
            if position.first_loss is None and self.group.is_first:
                position.first_loss = float(result.loss)
        return result, n_examples, time.process_time() - started

    def _put_together(self, rows: list[np.ndarray | None]) -> None:
        """Make rows of the tables, the learned log Z and sources equal in all processes. rows: as RowSchedule.rows."""
        assert self._sync is not None
        changed = self._sync.put_together(rows)
        for optimizer in self.optimizers[1:]:
            self.group.average([tensor for group in optimizer.param_groups for p in group["params"]
                                for tensor in (p, *_adam_state(optimizer, p))])
        candidates = [ids for table, ids in zip(self._sync.tables, changed, strict=True)
                      if table.x.ctypes.data == self.model.table().data_ptr()]
        for ids in candidates:
            self.source.on_moved(torch.from_numpy(ids).long())
        self.source.synchronize()

    def _agree(self, stop: Stop, wants_save: bool | int, *numbers: float) -> np.ndarray:
        """Make a signal to one process one to all.

        Returns the signal or 0, whether process 0 wants to save, and sums of `numbers`. A signal that arrives during
        the exchange waits for the next one, because the others do not know it.
        """
        values = self.group.gather_numbers([stop.requested or 0, wants_save, *numbers])
        if signal := int(values[:, 0].max()):
            stop.requested = stop.requested or signal
        return np.concatenate([[signal], values[0, 1:2], values[:, 2:].sum(0)])

    # -- periodic work ------------------------------------------------------------------------------------------

    def _check_threshold(self, stop: Stop) -> None:
        assert self.threshold is not None
        self._require_key(self.threshold[0], self._scores(stop))

    def _is_evaluation_due(self) -> bool:
        position, every = self.position, self.config.evaluate_every
        passed = position.step // every > position.evaluated // every if every else position.block == 0
        return (passed or self._needs_last_scores()) and position.step != position.evaluated

    def _evaluate_if_due(self, stop: Stop) -> None:
        """Evaluate in process 0, and take over what it has counted."""
        if not self._is_evaluation_due():
            return
        if self.config.patience:
            self._gather_source_states()

        def work() -> dict[str, Any]:
            super(GroupTrainer, self)._evaluate_if_due(stop)
            return self.position.state_dict()

        with self._alone():
            counted = self.group.from_first(work, stop)
        if not self.group.is_first:
            vars(self.position).update(vars(Position.from_state(counted)))

    def _progress_fields(self) -> dict[str, Any]:
        """The fields of Trainer, and what a synchronization took on average so far in this process."""
        return super()._progress_fields() | self.traffic.fields()

    # -- state --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """During this block process 0 may save with the states that were gathered before."""
        try:
            yield
        finally:
            self._source_states = None

    def _gather_source_states(self) -> None:
        parts = self.group.gather(np.frombuffer(states.to_bytes(self.source.state_dict()), np.uint8))
        self._source_states = [states.from_bytes(part.tobytes()) for part in parts[1:]] if self.group.is_first else []

    def _other_states(self) -> dict[str, Any]:
        return {"sources": self._source_states, "traffic": asdict(self.traffic)}

    def save(self, subfolder: str = "checkpoints") -> None:
        """Write a checkpoint in process 0. All processes must call it, unless they have gathered their states before.
        """
        if self._source_states is not None:
            super().save(subfolder)
            return
        self._gather_source_states()
        with self._alone():
            if self.group.is_first:
                super().save(subfolder)

    def _read_state(self, subfolder: str) -> dict[str, Any]:
        """Read a checkpoint in process 0. All processes get the tables, and each the state of its own source."""
        if subfolder != "checkpoints":               # the best state, which process 0 alone scores
            return super()._read_state(subfolder)
        state = self._share_state(super()._read_state(subfolder) if self.group.is_first else {})
        sources, rank = [state["source"], *(state.get("sources") or [])], self.group.rank
        if isinstance(saved := state.get("traffic"), dict) and saved.keys() == vars(self.traffic).keys():
            self.traffic = Traffic(**saved)
        if rank < len(sources):
            return state | {"source": sources[rank]}
        self.source.load_state_dict(sources[0])
        self.source.reseed(_stream(self.config.seed, rank, state["position"]["step"]))
        return state | {"source": self.source.state_dict()}

    def _share_state(self, own: dict[str, Any]) -> dict[str, Any]:
        """The state that process 0 has read, in all processes."""
        content = states.to_bytes(own) if self.group.is_first else b""
        return states.from_bytes(self.group.gather(np.frombuffer(content, np.uint8))[0].tobytes())


def _adam_state(optimizer: torch.optim.Optimizer, p: torch.Tensor) -> list[torch.Tensor]:
    """The state that Adam keeps for a parameter; zeros before its first step."""
    state = optimizer.state[p]
    if not state:
        state |= {"step": torch.zeros(()), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
    return [state[name] for name in ("step", "exp_avg", "exp_avg_sq")]


def _stream(seed: int, rank: int, step: int) -> int:
    """The seed of the random numbers of a process that joins at a step."""
    return int(np.random.SeedSequence([seed, rank, step, *b"group"]).generate_state(1)[0])
