"""Filtered link prediction: where does the right entity rank among all, when other known right answers are no rivals?

    optimistic    1 + #{c: s_c > s_t}                 pessimistic   1 + #{c: s_c > s_t} + #{c ≠ t: s_c = s_t}
    realistic     the mean of both: scoring all alike gains nothing
    mrr, mr       mean of 1 / rank, of rank           hits@k        mean of [rank ≤ k]
    amri          1 − (mr − 1) / (E mr − 1): 1 is best, 0 what random scores get. E mr = mean of (n + 1) / 2 over the
                  questions, which have n candidates each, the filtered ones left out (Berrendorf et al. 2020)

Both sides of every triple are asked for, and all means are over both (micro). `known` says what is filtered: for
validation the triples of train and valid alone, for test all; selecting on ranks that are filtered by the test triples
would look at them. A right answer whose own score is NaN ranks last. `/head` and `/tail`: of the questions that leave
that side open; `/1-N/head` and so on: of these, those of relations with one head for a tail and many tails for a head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from embtrain.common.types import Score, first_occurrence
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.triples.examples import HEAD, TAIL, TripleBatch
from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.heldout import bounds
from embtrain.evaluate.statistics.intervals import NO_INTERVAL, compare_means
from embtrain.kernels.scoring import ranking as kernel
from embtrain.models.base import Model

SIDES = {"tail": TAIL, "head": HEAD}
CATEGORIES = ("1-1", "1-N", "N-1", "N-N")  # heads for a tail - tails for a head
PROJECTED = "projected"  # the geometry of a model whose questions share a table with those of their relation alone
CELLS = 1 << 22     # scores held at once
_VECTORS = 1 << 24  # numbers of encoded questions held at once
Floats = NDArray[np.float64]


class RankingConfig(EvaluateConfig):
    hits: list[Annotated[int, Field(ge=1)]] = Field([1, 3, 10], min_length=1, description="the k of hits@k")
    during: int = Field(0, ge=0, description="validation triples ranked at each evaluation in training; 0: all")
    valid_filter: Literal["own", "all"] = Field(
        "own", description="right answers left out where validation is ranked: train's and its own, or all")
    threshold: float = Field(1.5, gt=0, description="of tph and hpt in training, from which on a side counts as many")


@dataclass(frozen=True)
class Ranks:
    """What each question's right answer got."""

    better: NDArray[np.int64]      # (n,)  rivals with a higher score
    equal: NDArray[np.int64]       # (n,)  rivals with the same
    candidates: NDArray[np.int64]  # (n,)  rivals and itself

    @property
    def optimistic(self) -> Floats:
        return self.better.astype(np.float64) + 1

    @property
    def pessimistic(self) -> Floats:
        return self.optimistic + self.equal

    @property
    def realistic(self) -> Floats:
        return self.optimistic + self.equal / 2

    def rows(self, chosen: NDArray[np.bool_]) -> Ranks:
        return Ranks(*(getattr(self, f.name)[chosen] for f in fields(self)))


@torch.no_grad()
def ranks(model: Model, batch: TripleBatch, known: KnownPairs, threads: int = 1, chunk_cells: int = CELLS) -> Ranks:
    """The ranks of a batch's targets; each distinct question is asked once.

    Scores that are a dot product, or a distance, of query and table are counted by the compiled core on the CPU, of a
    table that one relation's questions share too (Model.table_of); all others are asked of the model, at most about
    `chunk_cells` at once.
    """
    assert known.sizes is not None
    context = batch.context(known.sizes[1] // 2)                                             # (n, 2)
    group = torch.unique(context[:, 1] * known.sizes[0] + context[:, 0], return_inverse=True)[1]  # by relations
    first, order = first_occurrence(group), torch.argsort(group, stable=True)
    questions, target = batch.rows(first), batch.target[order]                               # (Q,), (n,)
    upto = _offsets(group, len(first))                                                       # (Q + 1,)
    row, right = known.targets_of(context[first])                                                    # (N,)
    upto_right = _offsets(row, len(first))
    better, equal = torch.empty_like(target), torch.empty_like(target)
    n_candidates, native = model.world.n_candidates, _native(model)
    step = max(1, _VECTORS // model.config.dim if native else chunk_cells // n_candidates)
    cuts = torch.arange(0, len(first), step)
    if native and model.geometry == PROJECTED:
        relation = context[first, 1]
        cuts = torch.cat([cuts, 1 + (relation[1:] != relation[:-1]).nonzero()[:, 0]]).unique()
    for a, b in pairwise([*cuts.tolist(), len(first)]):
        of, of_right = slice(int(upto[a]), int(upto[b])), slice(int(upto_right[a]), int(upto_right[b]))
        count = _counted if native else _asked
        better[of], equal[of] = count(model, questions.rows(slice(a, b)), upto[a:b + 1] - upto[a], target[of],
                                      upto_right[a:b + 1] - upto_right[a], right[of_right], threads)
    own_right = known.contains(context[order], target.unsqueeze(1))[:, 0]
    candidates = n_candidates - upto_right.diff()[group[order]] + own_right.long()           # (n,)
    better = torch.where(better < 0, candidates - 1, better)
    back = torch.argsort(order)
    return Ranks(*(x[back].numpy() for x in (better, equal, candidates)))


def asking(model: Model, n: int) -> int:
    """Bytes that n questions take at once: vectors and what they are made of, or scores and what is compared."""
    if _native(model):
        table = 3 * 4 * model.table().numel() if model.geometry == PROJECTED else 0
        return 3 * 4 * min(n * model.config.dim, max(_VECTORS, model.config.dim)) + table
    return 3 * 4 * max(min(n * model.world.n_candidates, CELLS), model.world.n_candidates)


def _offsets(group: torch.Tensor, n: int) -> torch.Tensor:
    """Where each of n groups begins in an ascending list of members, and its end: (n + 1,)."""
    return torch.cat([group.new_zeros(1), torch.bincount(group, minlength=n).cumsum(0)])


def _native(model: Model) -> bool:
    table = model.table()
    here = table.device.type == "cpu" and table.dtype == torch.float32
    return here and model.geometry in (*kernel.GEOMETRIES, PROJECTED)


def _counted(model: Model, questions: TripleBatch, upto: torch.Tensor, target: torch.Tensor, upto_right: torch.Tensor,
             right: torch.Tensor, threads: int) -> tuple[torch.Tensor, torch.Tensor]:
    geometry, table = model.table_of(int(questions.relation[0]))
    better, equal = kernel.counts(model.encode(questions).vector[:, :table.shape[1]].numpy(), table.detach().numpy(),
                                  geometry, upto.numpy(), target.numpy(), upto_right.numpy(), right.numpy(), threads)
    return torch.from_numpy(better), torch.from_numpy(equal)


def _asked(model: Model, questions: TripleBatch, upto: torch.Tensor, target: torch.Tensor, upto_right: torch.Tensor,
           right: torch.Tensor, threads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by the model's own scores, on any device; they are counted with torch's threads."""
    device = model.world.device
    everyone = torch.arange(model.world.n_candidates, device=device).unsqueeze(0)            # (1, V)
    query = model.encode(questions.to(device))
    z = model.score(query, everyone)                                                         # (q, V)
    row, of_right = (torch.repeat_interleave(torch.arange(len(query)), x.diff()).to(device) for x in (upto, upto_right))
    target, right = target.to(device), right.to(device)
    own = z[row, target]                                                                     # (p,)
    rival = z.index_put((of_right, right), z.new_full((), math.nan))
    better, equal = torch.empty_like(target), torch.empty_like(target)
    for some in torch.arange(len(row), device=device).split(max(1, len(query))):             # (p, V) as small as (q, V)
        of, mine = rival[row[some]], own[some].unsqueeze(1)
        better[some] = torch.where(mine[:, 0].isnan(), -1, (of > mine).sum(1))
        itself = of.gather(1, target[some].unsqueeze(1)) == mine
        equal[some] = (of == mine).sum(1) - itself[:, 0].long()
    return better.cpu(), equal.cpu()


# -- what they come to ------------------------------------------------------------------------------------------------

def categories(tph: Floats, hpt: Floats, threshold: float) -> NDArray[np.int64]:
    """(R,) places in CATEGORIES, of tails for a head and heads for a tail."""
    return 2 * (hpt >= threshold).astype(np.int64) + (tph >= threshold)


def rows(part: str, found: Ranks, clusters: NDArray[np.int64], side: NDArray[np.int64], category: NDArray[np.int64],
         config: RankingConfig, note: str) -> list[Score]:
    """All measures of a part; side and category (n,) of each question. The means over both sides alone have intervals,
    over clusters (n,): they are what is claimed, and the rest says where it comes from."""
    out = means(part, found, config, note, clusters=clusters)
    for name, ranks in (("optimistic", found.optimistic), ("pessimistic", found.pessimistic)):
        out += [Score(part, f"{metric}/{name}", float(x.mean()), None, None, len(x), f"ties: {name}")
                for metric, x in _columns(ranks, config.hits).items() if len(x)]
    for name, slot in SIDES.items():
        of_side = side == slot
        out += means(part, found.rows(of_side), config, f"{name} open", f"/{name}")
        for i, kind in enumerate(CATEGORIES):
            chosen = of_side & (category == i)
            if chosen.any():
                out += means(part, found.rows(chosen), config, f"{name} open, relations {kind}", f"/{kind}/{name}")
    return out


def means(part: str, found: Ranks, config: RankingConfig, note: str, end: str = "",
          clusters: NDArray[np.int64] | None = None) -> list[Score]:
    """The measures of some questions, their names ending in `end`; without intervals where there are no clusters."""
    columns, n = _columns(found.realistic, config.hits), len(found.better)
    if n == 0:
        return [Score(part, f"{metric}{end}", None, note="no triples") for metric in (*columns, "amri")]
    intervals = ([NO_INTERVAL] * len(columns) if clusters is None else
                 compare_means(np.stack(list(columns.values()), axis=1), clusters, config.resamples, config.interval,
                          [bounds(name) for name in columns]))
    out = [Score(part, f"{metric}{end}", float(x.mean()), low, high, n, note)
           for (metric, x), (low, high) in zip(columns.items(), intervals, strict=True)]
    mr, expected = out[1], float((found.candidates.mean() + 1) / 2)
    if expected > 1:
        def amri(mean_rank: float | None) -> float | None:
            return None if mean_rank is None else 1 - (mean_rank - 1) / (expected - 1)
        out.insert(2, Score(part, f"amri{end}", amri(mr.value), amri(mr.high), amri(mr.low), n, note))
    return out


def _columns(ranks: Floats, hits: list[int]) -> Mapping[str, Floats]:
    return {"mrr": 1 / ranks, "mr": ranks, **{f"hits@{k}": (ranks <= k).astype(np.float64) for k in hits}}
