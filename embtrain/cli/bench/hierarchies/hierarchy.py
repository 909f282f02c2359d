"""Poincaré embeddings: the same pairs by the fused engine, by gensim's PoincareModel and by torch.

mammals   forty epochs, ten of them burn-in, of the mammals of WordNet; `mean rank` and `map` of the pairs afterwards
nouns     one epoch of the nouns; after one epoch there is no quality to compare

Pairs, dimensions, negatives, rates and epochs are equal, and the negatives of u are never known hypernyms of u. gensim
and torch update after batches of 10 pairs, gensim's default. The losses differ in one point: ours corrects negatives
for their probability, so they weigh V / k together; torch's has the same correction.

gensim             PoincareModel, after its constructor has read the pairs
torch-sparse-sgd   nn.Embedding(sparse=True) in float64 with Riemannian gradients; torch also draws the negatives and
                   masks known pairs
Our time includes whole epochs: the rows, the draws, the mask, the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from embtrain.cli.bench.harness.base import Group, Timed, choose, run, timed
from embtrain.data.hierarchy.examples import HYPERNYM
from embtrain.experiment.run import components
from embtrain.experiment.run.settings import Settings, resolve
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.pairs import PairsTask
from embtrain.models.hierarchies.bounds import MAX_NORM
from embtrain.models.hierarchies.poincare import distance
from embtrain.train.engines.compiled_pairs import CompiledPairs
from embtrain.train.optimizers import make_optimizers

DIM, K, RATE, BATCH, PERCENT, START = 5, 10, 0.1, 10, 10, 0.001
MAX_BYTES = 1 << 30  # of the set of known pairs
#: Corpus, epochs, how many of them are burn-in at a tenth of the rate, and whether quality is computed.
CASES = {"mammals": ("wordnet-mammals", 40, 10, True), "nouns": ("wordnet-nouns", 1, 0, False)}


def bench(rounds: int, only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of both cases on one thread, which is all that gensim uses; `only` names some.

    corpus: a published split for both cases, instead of the mammals and the nouns.
    """
    chosen = choose([f"{name}-t1" for name in CASES], only)
    cases = {case: CASES[case.removesuffix("-t1")] for case in chosen}
    work = {case: Work(corpus or own, epochs, burn_in, has_quality)
            for case, (own, epochs, burn_in, has_quality) in cases.items()}
    groups = [Group(1, {case: partial(ours, work[case])}, {"gensim": partial(gensims, work[case]),
                                                          "torch-sparse-sgd": partial(torchs, work[case])})
              for case in chosen]
    about = {"corpus": corpus or ", ".join(case[0] for case in cases.values()), "percent": PERCENT, "dim": DIM,
             "k": K, "rate": RATE, "batch": BATCH, "pairs": {case: len(w.pairs) for case, w in work.items()},
             "epochs": {case: w.epochs for case, w in work.items()}, "measured": "all epochs"}
    return run("hierarchy", "s", groups, rounds, about)


class Work:
    """The pairs of one case and the length of its training."""

    def __init__(self, corpus: str, epochs: int, burn_in: int, has_quality: bool):
        self.settings: Settings = resolve("poincare", "poincare", corpus, threads=1, sets=[
            "pairs.protocol=given", f"pairs.percent={PERCENT}", "pairs.slot=hypernym", f"model.dim={DIM}",
            f"negatives.k={K}", f"train.lr={RATE}", f"model.start={START}", "train.engine=fused"])
        self.task = cast(PairsTask, tasks.read(self.settings))
        self.pairs, self.epochs, self.burn_in, self.has_quality = self.task.train, epochs, burn_in, has_quality

    def rate(self, epoch: int) -> float:
        return RATE / 10 if epoch < self.burn_in else RATE

    def quality(self, x: np.ndarray, pairs: np.ndarray) -> dict[str, float]:
        if not self.has_quality:
            return {}
        mean_rank, precision = reconstruction(x, pairs)
        return {"mean rank": mean_rank, "map": precision}


def ours(work: Work) -> Timed:
    components.use_threads(1)
    parts = components.build(work.settings, work.task)
    optimizers = make_optimizers(parts.model, parts.loss, parts.train)
    step = CompiledPairs(parts.model, parts.source, parts.loss, optimizers, parts.train,
                         work.task.known_positives(MAX_BYTES))

    def train() -> None:
        for epoch in range(work.epochs):
            optimizers[0].param_groups[0]["lr"] = work.rate(epoch)
            for block in work.task.examples.blocks(epoch, step.default_block_size):
                step(block)
    seconds, cpu, _ = timed(train)
    return Timed(seconds, cpu, work.quality(parts.model.table().detach().numpy(), work.pairs))


def gensims(work: Work) -> Timed:
    from gensim.models.poincare import PoincareModel

    model = PoincareModel([(str(u), str(v)) for u, v in work.pairs], size=DIM, alpha=RATE, negative=K,
                          burn_in=work.burn_in, burn_in_alpha=RATE / 10, init_range=(-START, START), seed=1)
    # train() runs the epochs of the burn-in first, in addition to `epochs`
    seconds, cpu, _ = timed(lambda: model.train(epochs=work.epochs - work.burn_in, batch_size=BATCH))
    ids = np.array([int(word) for word in model.kv.index_to_key])       # of the concepts that occur in a pair
    row = np.zeros(ids.max() + 1, np.int64)
    row[ids] = np.arange(len(ids))
    return Timed(seconds, cpu, work.quality(model.kv.vectors, row[work.pairs]))


def torchs(work: Work) -> Timed:
    components.use_threads(1)
    draw, v, pairs = torch.Generator().manual_seed(1), len(work.task.hierarchy.concepts), torch.from_numpy(work.pairs)
    start = (2 * torch.rand(v, DIM, generator=draw, dtype=torch.float64) - 1) * START
    table = torch.nn.Embedding(v, DIM, sparse=True, _weight=start)
    known, shift = work.task.known_positives(MAX_BYTES), float(np.log(v / K))

    def update(u: torch.Tensor, positive: torch.Tensor, rate: float) -> None:
        candidates = torch.cat([positive[:, None], torch.randint(v, (len(u), K), generator=draw)], 1)
        context = torch.stack([u, torch.full_like(u, HYPERNYM)], 1)
        is_known = known.contains(context, candidates)
        is_known[:, 0] = False
        table.zero_grad(set_to_none=True)
        score = -distance(table(u)[:, None], table(candidates))                              # (B, 1 + K)
        score = torch.cat([score[:, :1], score[:, 1:] + shift], 1).masked_fill(is_known, -torch.inf)
        (score.logsumexp(1) - score[:, 0]).sum().backward()
        assert table.weight.grad is not None
        grad = table.weight.grad.coalesce()
        rows, x = grad.indices()[0], table.weight.data[grad.indices()[0]]
        x -= rate * ((1 - x.square().sum(1, keepdim=True)) / 2).square() * grad.values()
        table.weight.data[rows] = x * (MAX_NORM / x.norm(dim=1, keepdim=True)).clamp(max=1)

    def train() -> None:
        for epoch in range(work.epochs):
            for rows in torch.randperm(len(pairs), generator=draw).split(BATCH):
                update(pairs[rows, 0], pairs[rows, 1], work.rate(epoch))
    seconds, cpu, _ = timed(train)
    return Timed(seconds, cpu, work.quality(table.weight.detach().numpy(), work.pairs))


def reconstruction(x: np.ndarray, pairs: np.ndarray) -> tuple[float, float]:
    """Mean rank and mean average precision of the pairs (n, 2) by the points x (V, D) of the ball. [nickel2017].

    The rank of v is that among the candidates that u is not paired with, by their distances from u.
    """
    ranks, precisions = list[float](), list[float]()
    square = 1 - (x**2).sum(1)
    for u in np.unique(pairs[:, 0]):
        gap = ((x - x[u]) ** 2).sum(1)
        apart = np.arccosh(1 + 2 * gap / (square * square[u]))
        known = pairs[pairs[:, 0] == u, 1]
        is_other = np.ones(len(x), bool)
        is_other[[u, *known]] = False
        above = np.searchsorted(np.sort(apart[is_other]), np.sort(apart[known]))  # others nearer than each
        ranks += (above + 1).tolist()
        precisions.append(float(np.mean(np.arange(1, len(known) + 1) / (above + np.arange(1, len(known) + 1)))))
    return float(np.mean(ranks)), float(np.mean(precisions))
