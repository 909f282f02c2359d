"""The training loop of one process of a group with tables cut by rows (shards.py).

Negatives of a static source do not depend on the tables. All blocks up to the next synchronization are therefore drawn
first, their rows are pulled, and the compiled engine trains on small tables with ids renumbered in ascending order.

Process 0 also has the whole tables, in files: it collects the rows for evaluations and checkpoints, which are those of
any number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from embtrain.common.types import Negatives, Query
from embtrain.data.text.windows import WindowBatch
from embtrain.models.words.skipgram import SkipGram
from embtrain.train.engines.base import StepResult
from embtrain.train.engines.compiled import DrawTerms
from embtrain.train.engines.compiled_windows import CompiledWindows
from embtrain.train.group.shards import TableShards
from embtrain.train.group.tiers import RowSchedule
from embtrain.train.group.trainer import GroupTrainer
from embtrain.train.optimizers import RowAdagrad
from embtrain.train.state import checkpoint
from embtrain.train.state.signals import Stop


class ShardedWindows(CompiledWindows):
    """Compiled step of skip-gram on small tables, with negatives that were drawn before."""

    candidates: Tensor      # (m,) ids of the rows of the small output table
    drawn: Negatives        # of the next block, ids renumbered

    def draw_ahead(self, block: WindowBatch) -> Negatives:
        return super()._draw(block, None)

    def _draw(self, block: Any, query: Query | None) -> Negatives:
        return self.drawn

    def _draw_terms(self, drawn: Negatives) -> DrawTerms:
        terms = super()._draw_terms(drawn)
        table = terms.log_q_table
        return terms if table is None else terms._replace(log_q_table=table[self.candidates])


class ShardedTrainer(GroupTrainer):
    """Trainer of one process that holds every N-th row of the tables of skip-gram."""

    model: SkipGram
    step: ShardedWindows

    def __init__(self, *args: Any, **keywords: Any):
        super().__init__(*args, **keywords)
        self.step = ShardedWindows(self.model, self.source, self.loss, self.optimizers, self.config,
                                   self.step.known_positives)
        self._shapes = [(len(p), p.shape[1]) for p in self._parameters()]
        if not self.group.is_first:
            self._install([p.new_empty(0, p.shape[1]) for p in self._parameters()],
                          [torch.empty(0) for p in self._parameters() if self._accumulates()])
        self._whole = self._tables()

    def _parameters(self) -> list[nn.Parameter]:
        return [self.model.u, cast(nn.Parameter, self.model.v)]

    def _accumulates(self) -> bool:
        return isinstance(self.optimizers[0], RowAdagrad)

    def _tables(self) -> tuple[list[Tensor], list[Tensor]]:
        """The tables of the model and the accumulators of row-Adagrad, none for SGD."""
        optimizer = self.optimizers[0]
        return [p.data for p in self._parameters()], \
            [optimizer.accumulator(p) for p in self._parameters()] if isinstance(optimizer, RowAdagrad) else []

    def _install(self, tables: Sequence[Tensor], accumulators: Sequence[Tensor]) -> None:
        """Make the model and the optimizer use these tables."""
        for p, table in zip(self._parameters(), tables, strict=True):
            p.data = table
        for p, values in zip(self._parameters(), accumulators, strict=bool(accumulators)):
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
                             self.traffic, self.sync_threads)
        shards.scatter(self._whole_arrays())
        return shards

    def _new_schedule(self) -> RowSchedule:
        """All rows at each synchronization: what an owner does not receive, no process can pull."""
        return RowSchedule([np.zeros(n) for n, _ in self._shapes], None)

    def _train_blocks(self, first: int, end: int, n: int, log: bool) -> tuple[StepResult | None, int, float]:
        position, config, started = self.position, self.config, time.process_time()
        share = range(first + self.group.rank, end, self.group.size)
        blocks = [next(iter(self.read_blocks(position.epoch, self.block_size, at, config.shuffle))) for at in share]
        draws = [self.step.draw_ahead(block) for block in blocks]
        words = _unique([block.centre for block in blocks])
        candidates = _unique([x for block, drawn in zip(blocks, draws, strict=True)
                              for x in (block.target, cast(Tensor, drawn.ids))])
        self._pull(words, candidates)
        result, n_examples = None, 0
        for at, block, drawn in zip(share, blocks, draws, strict=True):
            self._set_rate((position.epoch + at / n) / config.epochs)
            self.step.drawn = replace(drawn, ids=_places(candidates, cast(Tensor, drawn.ids)))
            result = self.run_step(WindowBatch(_places(words, block.centre), block.start,
                                               _places(candidates, block.target)))
            n_examples += len(block.target)
            if position.first_loss is None and self.group.is_first:
                position.first_loss = float(result.loss)
        return result, n_examples, time.process_time() - started

    def _pull(self, words: Tensor, candidates: Tensor) -> None:
        """Make the model one of these words and candidates alone, with the rows of their owners."""
        ids, shards = [words.numpy(), candidates.numpy()], cast(TableShards, self._sync)
        rows = [torch.from_numpy(x) for x in shards.pull([*ids, *(ids if self._accumulates() else [])])]
        self._install(rows[:2], [h[:, 0] for h in rows[2:]])
        self.step.candidates = candidates

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
    """The different ids of tensors, ascending, (m,)."""
    return torch.unique(torch.cat([x.reshape(-1) for x in ids])) if ids else torch.zeros(0, dtype=torch.int64)


def _places(ids: Tensor, x: Tensor) -> Tensor:
    """The places of the entries of x among ascending ids, in the shape of x."""
    return torch.searchsorted(ids, x.contiguous())
