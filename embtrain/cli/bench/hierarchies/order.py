"""Order embeddings: one epoch of a hierarchy's closure by the fused engine and by torch's sparse Adagrad.

Pairs, negatives and dimensions are equal.

torch-sparse-adagrad   nn.Embedding(sparse=True), batches of 1,000, one learning rate per number; torch also draws the
                       negatives, shuffles the pairs and clamps the table
Our time includes the whole epoch: the rows, the draws, the update. `accuracy` is that of held-out pairs afterwards.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from embtrain.cli.bench.harness.base import Group, Timed, choose, digits, run, timed
from embtrain.evaluate.pairs import hypernymy
from embtrain.evaluate.pairs.hypernymy import PairScores
from embtrain.experiment.run import components
from embtrain.experiment.run.settings import Settings, resolve
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.pairs import PairsTask
from embtrain.train.engines.compiled_pairs import CompiledPairs
from embtrain.train.optimizers import make_optimizers

CORPUS, DIM, BATCH, RATE, MARGIN = "wordnet-nouns", 50, 1000, 0.2, 0.5
COLUMNS = (1, 4, 16)


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example k16."""
    known = {f"k{k}-t{n}": (n, k) for n in threads for k in COLUMNS}
    chosen = {name: known[name] for name in choose(known, only)}
    task = cast(PairsTask, tasks.read(_settings(corpus or CORPUS, COLUMNS[0], 1)))
    groups = [Group(n, {name: partial(_ours, task, _settings(corpus or CORPUS, k, n))},
                    {"torch-sparse-adagrad": partial(_torch, task, k, n)}) for name, (n, k) in chosen.items()]
    summary = run("order", "s an epoch", groups, rounds,
                  {"corpus": corpus or CORPUS, "pairs": len(task.train), "concepts": len(task.hierarchy.concepts),
                   "dim": DIM, "batch": BATCH})
    speed = {case: digits(len(task.train) / statistics.median(times)) for case, times in summary["ours"].items()}
    return summary | {"pairs_per_second": speed}


def _settings(corpus: str, k: int, threads: int) -> Settings:
    return resolve("order", "order", corpus, threads=threads, sets=[
        f"model.dim={DIM}", f"negatives.k={k}", f"loss.margin={MARGIN}", f"train.lr={RATE}",
        "train.optimizer=row-adagrad", "train.engine=fused"])


def _ours(task: PairsTask, settings: Settings) -> Timed:
    components.use_threads(settings.train.threads)
    parts = components.build(settings, task)
    step = CompiledPairs(parts.model, parts.source, parts.loss, make_optimizers(parts.model, parts.loss, parts.train),
                         parts.train)

    def epoch() -> None:
        for block in task.examples.blocks(0, parts.train.chunk or 1):
            step(block)
    seconds, cpu, _ = timed(epoch)
    return Timed(seconds, cpu, _quality(task, parts.model.table().detach()))


def _torch(task: PairsTask, k: int, threads: int) -> Timed:
    components.use_threads(threads)
    v, train, draw = len(task.hierarchy.concepts), torch.from_numpy(task.train), torch.Generator().manual_seed(1)
    table = torch.nn.Embedding(v, DIM, sparse=True, _weight=torch.rand(v, DIM, generator=draw) * 0.1)
    torch.sparse.check_sparse_tensor_invariants.disable()
    optimizer = torch.optim.Adagrad(table.parameters(), lr=RATE)

    def epoch() -> None:
        for rows in torch.randperm(len(train), generator=draw).split(BATCH):
            u, w = train[rows].unbind(1)
            other = torch.randint(v, (len(rows), k), generator=draw)
            upward = torch.rand(len(rows), 1, generator=draw) < 0.5
            ids = torch.cat([u[:, None], w[:, None], torch.where(upward, u[:, None], other),
                             torch.where(upward, other, w[:, None])], 1)
            x = table(ids)                                                                       # (B, 2 + 2k, D)
            right = (x[:, 1] - x[:, 0]).relu().square().sum(1)
            wrong = (x[:, 2 + k:] - x[:, 2:2 + k]).relu().square().sum(2)
            optimizer.zero_grad(set_to_none=True)
            (right.sum() + (MARGIN - wrong).relu().sum()).backward()
            optimizer.step()
            table.weight.data.clamp_(min=0)
    seconds, cpu, _ = timed(epoch)
    return Timed(seconds, cpu, _quality(task, table.weight.detach()))


def _quality(task: PairsTask, table: torch.Tensor) -> dict[str, float]:
    x = table.numpy()
    def judged(part: str) -> PairScores:
        held_out = task.held[part]
        def score(pairs: np.ndarray) -> np.ndarray:
            return -np.square(np.maximum(x[pairs[..., 1]] - x[pairs[..., 0]], 0)).sum(-1).astype(np.float64)
        return PairScores(score(held_out.pairs), score(held_out.negatives))
    return {"accuracy": float(hypernymy.correct(judged("test"), judged("valid")).mean())}
