"""Judging: log-likelihood and rank of held-out pairs among all words, by embtrain and by matrix products.

text       pairs of windows, of which many have the same centre: embtrain scores a centre once
distinct   as many pairs with a centre each

Coordinates are random multiples of 1/16, whose products are exact in float32 in any order: all programs have the same
ranks, ties included, and the mean rank of the quality shows it. Rivals judge the first 1,024 pairs, 64 at once, and
their times are scaled to all, because their time is proportional to the number of pairs.

torch, numpy   scores by a product, logsumexp, and the better and equal scores of each row counted
sort           the same scores, sorted by torch, and both ends of the target's score by binary search
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from embtrain import experiment
from embtrain.cli.bench.harness.base import Group, Timed, choose, run, timed
from embtrain.common.config import as_sets
from embtrain.common.errors import DataError
from embtrain.common.types import Query
from embtrain.evaluate import heldout
from embtrain.experiment.run import components
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.windows import WindowsTask
from embtrain.models.products import every_product

CORPUS, PAIRS, DIM, SAMPLE, ROWS = "english-18m", 10_000, 100, 1024, 64
Judge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # z (n, V), target (n,) -> log p and rank (n,)


class JudgedPairs(NamedTuple):
    """Held-out pairs and the vectors of all words."""

    context: Tensor  # (P,) int64
    target: Tensor   # (P,) int64
    u: Tensor        # (V, D)  vectors of contexts
    v: Tensor        # (V, D)  vectors of targets


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of both cases; `only` names some, for example text. DataError if no pair is held out."""
    known = {f"{kind}-t{n}": (kind, n) for n in threads for kind in ("text", "distinct")}
    chosen = {name: known[name] for name in choose(known, only)}
    settings = experiment.resolve(model="skipgram", corpus=corpus or CORPUS, sets=as_sets({
        "evaluate.heldout_pairs": PAIRS, "evaluate.benchmarks": []}))
    pairs = _pairs(cast(WindowsTask, tasks.read(settings)))
    if not len(pairs.target):
        raise DataError(f"{corpus or CORPUS}: no pair of words is held out for the test; give more text")
    groups = [Group(n, {name: partial(_ours, pairs, kind == "text", n)},
                    {rival: partial(_theirs, pairs, judge, n) for rival, judge in RIVALS.items()})
              for name, (kind, n) in chosen.items()]
    return run("judging", "s", groups, rounds, {
        "corpus": corpus or CORPUS, "words": len(pairs.v), "pairs": len(pairs.target), "dim": DIM,
        "centres": len(pairs.context.unique()), "sample": min(SAMPLE, len(pairs.target)), "torch": torch.__version__,
        "numpy": np.__version__})


def _pairs(text: WindowsTask) -> JudgedPairs:
    batch, random = text.heldout("test"), torch.Generator().manual_seed(0)
    n = len(text.corpus.vocabulary)
    u, v = (torch.randint(-4, 5, (n, DIM), generator=random).float() / 16 for _ in range(2))
    return JudgedPairs(batch.centre, batch.target, u, v)                     # type: ignore[attr-defined]


def _ours(pairs: JudgedPairs, is_shared: bool, threads: int) -> Timed:
    components.use_threads(threads)
    context, target, u, v = pairs
    group = torch.unique(context, return_inverse=True)[1] if is_shared else None
    query = Query(u[context], context, target, torch.zeros_like(target), group)
    seconds, cpu, found = timed(lambda: heldout.ranks(lambda query: every_product(query.vector, v), query))
    return Timed(seconds, cpu, _quality(found.log_p[:SAMPLE], found.rank[:SAMPLE]))


def _theirs(pairs: JudgedPairs, judge: Judge, threads: int) -> Timed:
    components.use_threads(threads)
    context, target = pairs.context[:SAMPLE], pairs.target[:SAMPLE]

    def work() -> list[tuple[Tensor, Tensor]]:
        return [judge(pairs.u[context[start:start + ROWS]] @ pairs.v.T, target[start:start + ROWS])
                for start in range(0, len(target), ROWS)]

    seconds, cpu, parts = timed(work)
    log_p, rank = (torch.cat(x).double().numpy() for x in zip(*parts, strict=True))
    times = len(pairs.target) / len(target)
    return Timed(seconds * times, cpu * times, _quality(log_p, rank))


def by_torch(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    s = z.gather(1, target.unsqueeze(1))                                                              # (n, 1)
    better, equal = (z > s).sum(1), (z == s).sum(1)
    return s[:, 0] - z.logsumexp(1), 1 + better + (equal - 1) / 2


def by_numpy(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    scores = z.numpy()
    s = np.take_along_axis(scores, target.numpy()[:, None], 1)                                        # (n, 1)
    better, equal = (np.count_nonzero(chosen, axis=1) for chosen in (scores > s, scores == s))
    top = scores.max(1, keepdims=True)
    log_z = np.log(np.exp(scores - top).sum(1)) + top[:, 0]
    return torch.from_numpy(s[:, 0] - log_z), torch.from_numpy(1 + better + (equal - 1) / 2)


def by_sorting(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    s = z.gather(1, target.unsqueeze(1))                                                              # (n, 1)
    ordered = z.sort(1).values
    first, last = (torch.searchsorted(ordered, s, right=right)[:, 0] for right in (False, True))
    return s[:, 0] - z.logsumexp(1), 1 + z.shape[1] - last + (last - first - 1) / 2


RIVALS: dict[str, Judge] = {"torch": by_torch, "numpy": by_numpy, "sort": by_sorting}


def _quality(log_p: np.ndarray, rank: np.ndarray) -> dict[str, float]:
    return {"log_likelihood": float(log_p.mean()), "mean_rank": float(rank.mean())}
