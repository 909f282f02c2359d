"""The training loop of one process of a group with tables cut by rows (shards.py).

Negatives of a static source do not depend on the tables. All blocks up to the next synchronization are therefore drawn
first, their rows are pulled, and the engine trains on small tables (steps.py).

Process 0 also has the whole tables, in files: it collects the rows for evaluations and checkpoints, which are those of
any number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.train.engines.base import StepResult
from embtrain.train.engines.compiled import CompiledStep
from embtrain.train.group.sharded.shards import TableShards
from embtrain.train.group.sharded.steps import ShardedStep, sharded_step
from embtrain.train.group.tiers import RowSchedule
from embtrain.train.group.trainer import GroupTrainer
from embtrain.train.optimizers import RowAdagrad
from embtrain.train.state import checkpoint
from embtrain.train.state.signals import Stop


class ShardedTrainer(GroupTrainer):
    """Trainer of one process that holds every N-th row of each table."""

    step: ShardedStep

    def __init__(self, *args: Any, **keywords: Any):
        super().__init__(*args, **keywords)
        self.step = sharded_step(self.model)(self.model, self.source, self.loss, self.optimizers, self.config,
                                             self.step.known_positives)
        self._shapes = [(len(p), p.shape[1]) for p in self.step.parameters()]
        if not self.group.is_first:
            self._install([p.new_empty(0, p.shape[1]) for p in self.step.parameters()],
                          [torch.empty(0) for p in self.step.parameters() if self._accumulates()])
        self._whole = self._tables()

    def _accumulates(self) -> bool:
        return isinstance(self.optimizers[0], RowAdagrad)

    def _tables(self) -> tuple[list[Tensor], list[Tensor]]:
        """The tables of the model and the accumulators of row-Adagrad, none for SGD."""
        optimizer = self.optimizers[0]
        return [p.data for p in self.step.parameters()], \
            [optimizer.accumulator(p) for p in self.step.parameters()] if isinstance(optimizer, RowAdagrad) else []

    def _install(self, tables: Sequence[Tensor], accumulators: Sequence[Tensor]) -> None:
        """Make the model and the optimizer use these tables."""
        for p, table in zip(self.step.parameters(), tables, strict=True):
            p.data = table
        for p, values in zip(self.step.parameters(), accumulators, strict=bool(accumulators)):
            self.optimizers[0].state[p]["acc"] = values

    def _whole_arrays(self) -> list[np.ndarray]:
        """The whole tables of process 0, accumulators (n, 1) last; none in other processes."""
        tables, accumulators = self._whole
        return [*(x.numpy() for x in tables), *(h.numpy().reshape(-1, 1) for h in accumulators)] \
            if self.group.is_first else []

    # -- training -----------------------------------------------------------------------------------------------

    def _new_sync(self) -> TableShards:
        accumulators = [(n, 1) for n, _ in self._shapes] if self._accumulates() else []
        shards = TableShards(self.group, [*self._shapes, *accumulators], self.config.sync.wire, len(accumulators),
                             self.traffic, self.sync_threads, isinstance(self.step, CompiledStep))
        shards.scatter(self._whole_arrays())
        return shards

    def _new_schedule(self) -> RowSchedule:
        """All rows at each synchronization: what an owner does not receive, no process can pull."""
        return RowSchedule([np.zeros(n) for n, _ in self._shapes], None, 1)

    def _train_blocks(self, first: int, end: int, n: int, log: bool) -> tuple[StepResult | None, int, float]:
        position, config, started = self.position, self.config, time.process_time()
        share = range(first + self.group.rank, end, self.group.size)
        blocks = [next(iter(self.read_blocks(position.epoch, self.block_size, at, config.shuffle))) for at in share]
        draws = [self.step.draw_ahead(block) for block in blocks]
        rows = [_unique(ids) for ids in zip(*map(self.step.ids, blocks, draws), strict=True)]
        self._pull(rows or [torch.zeros(0, dtype=torch.int64) for _ in self._shapes])
        result, n_examples = None, 0
        for at, block, drawn in zip(share, blocks, draws, strict=True):
            self._set_rate((position.epoch + at / n) / config.epochs)
            result = self.run_step(self.step.place(block, drawn, rows))
            n_examples += len(block.target)
            if position.first_loss is None and self.group.is_first:
                position.first_loss = float(result.loss)
        return result, n_examples, time.process_time() - started

    def _pull(self, ids: Sequence[Tensor]) -> None:
        """Make the model one of these rows of each table alone, with the values of their owners."""
        numbers, shards = [part.numpy() for part in ids], cast(TableShards, self._sync)
        rows = [torch.from_numpy(x) for x in shards.pull(numbers * (2 if self._accumulates() else 1))]
        n = len(ids)
        self._install(rows[:n], [h[:, 0] for h in rows[n:]])

    # -- state --------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Give the model of process 0 the whole tables, with the rows of all processes."""
        if self._sync is not None:
            cast(TableShards, self._sync).collect(self._whole_arrays())
            self._install(*self._whole)

    def _evaluate_if_due(self, stop: Stop) -> None:
        if self._is_evaluation_due():
            self._collect()
        super()._evaluate_if_due(stop)

    def save(self, subfolder: str = "checkpoints") -> None:
        if self._source_states is None:     # else process 0 works alone, on the tables of an evaluation
            self._collect()
        super().save(subfolder)

    def _share_state(self, own: dict[str, Any]) -> dict[str, Any]:
        """Share a state without the tables: process 0 loads them from its file, and `_new_sync` sends the rows."""
        shared = super()._share_state({name: part for name, part in own.items() if name not in checkpoint.LARGE})
        present = {"model": self.model.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers]}
        return shared | {name: (own or present)[name] for name in checkpoint.LARGE}


def _unique(ids: Sequence[Tensor]) -> Tensor:
    """The different ids of tensors (n,), ascending, (m,)."""
    return torch.unique(torch.cat(list(ids)))
