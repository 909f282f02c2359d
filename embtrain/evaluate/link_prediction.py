"""Filtered link prediction: the rank of the true entity among all entities, other known true triples excluded.

    optimistic    1 + #{c: s_c > s_t}                 pessimistic   1 + #{c: s_c > s_t} + #{c ≠ t: s_c = s_t}
    realistic     the mean of both: constant scores gain nothing
    mrr, mr       mean of 1 / rank, of rank           hits@k        mean of [rank ≤ k]
    amri          1 − (mr − 1) / (E mr − 1): 1 is best, 0 is the level of random scores. E mr = mean of (n + 1) / 2
                  over the queries, which have n candidates each after filtering (Berrendorf et al. 2020)

Candidates with equal vectors tie. The compiled core sums each score in the same order and compares exactly. Where it
cannot count, on a GPU or for another geometry, scores that differ by rounding count as equal (models/rounding.py).

Each triple is queried for its head and for its tail, and all means are over both (micro). `known` defines the filter:
for validation the triples of train and valid only, for test all. Selection on ranks filtered by the test triples would
use the test set. A target whose own score is NaN ranks last. `/head` and `/tail`: means over the queries for that side;
`/1-N/head` and so on: of these, the relations with one head per tail and many tails per head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from embtrain.common.progress import Progress
from embtrain.common.types import Score, first_occurrence
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.triples.examples import HEAD, TAIL, TripleBatch
from embtrain.evaluate.config import EvaluateConfig
from embtrain.evaluate.heldout import value_bounds
from embtrain.evaluate.statistics.intervals import NO_INTERVAL, mean_intervals, missing_note
from embtrain.kernels.scoring import ranking as kernel
from embtrain.models.base import Model
from embtrain.models.rounding import tie_bounds

SIDES = {"tail": TAIL, "head": HEAD}
CATEGORIES = ("1-1", "1-N", "N-1", "N-N")  # heads per tail - tails per head
PROJECTED = "projected"  # geometry of models with one candidate table per relation
MAX_SCORES_HELD = 1 << 22     # scores in memory at once
ON_GPU = 8                     # times as many on a GPU, where the host waits for each chunk
_MAX_ELEMENTS = 1 << 24  # elements of encoded queries in memory at once
MAX_QUERIES = 1 << 13     # encoded at once, so that progress is seen
Floats = NDArray[np.float64]


class RankingConfig(EvaluateConfig):
    """Evaluation of triples."""

    hits: list[Annotated[int, Field(ge=1)]] = Field([1, 3, 10], min_length=1, description="the k of hits@k")
    valid_triples: int = Field(
        0, ge=0, description="validation triples ranked at each evaluation during training; 0: all")
    valid_filter: Literal["own", "all"] = Field(
        "own", description="known positives filtered in validation ranks: those of train and valid, or all")
    threshold: float = Field(1.5, gt=0, description="value of tph and hpt in training from which a side counts as many")


@dataclass(frozen=True)
class Ranks:
    """Counts of n queries, from which all ranks follow."""

    better: NDArray[np.int64]      # (n,)  other candidates with a higher score
    equal: NDArray[np.int64]       # (n,)  other candidates with the same score
    candidates: NDArray[np.int64]  # (n,)  candidates after filtering, including the target

    @property
    def optimistic(self) -> Floats:
        return self.better.astype(np.float64) + 1

    @property
    def pessimistic(self) -> Floats:
        return self.optimistic + self.equal

    @property
    def realistic(self) -> Floats:
        return self.optimistic + self.equal / 2

    def rows(self, selected: NDArray[np.bool_]) -> Ranks:
        """The counts of the selected queries (n,)."""
        return Ranks(*(getattr(self, f.name)[selected] for f in fields(self)))


class _QueryBlock(NamedTuple):
    """q distinct queries with their p targets, and the known positives that are excluded from the ranks."""

    queries: TripleBatch         # (q,)
    pair_offsets: torch.Tensor   # (q+1,) int64  query i has the targets pair_offsets[i] .. pair_offsets[i+1]
    target: torch.Tensor         # (p,) int64
    known_offsets: torch.Tensor  # (q+1,) int64  of the known positives of each query
    known_ids: torch.Tensor      # int64


@torch.no_grad()
def ranks(
    model: Model, batch: TripleBatch, known: KnownPairs, threads: int = 1, chunk_cells: int | None = None
) -> Ranks:
    """Ranks of a batch's n targets; each distinct query is encoded once.

    If scores are a dot product or a distance of query and table, the compiled core counts them on the CPU, also for
    models with one table per relation (Model.relation_table). Other models score at most about `chunk_cells`
    candidates at once, by default MAX_SCORES_HELD, on a GPU more.
    """
    assert known.sizes is not None
    context = batch.context(known.sizes[1] // 2)                                             # (n, 2)
    group = torch.unique(context[:, 1] * known.sizes[0] + context[:, 0], return_inverse=True)[1]  # sorted by relation
    first, order = first_occurrence(group), torch.argsort(group, stable=True)
    queries, target = batch.rows(first), batch.target[order]                               # (Q,), (n,)
    pair_offsets = _offsets(group, len(first))                                                       # (Q + 1,)
    row, known_ids = known.targets_of(context[first])                                                    # (N,)
    known_offsets = _offsets(row, len(first))
    better, equal = torch.empty_like(target), torch.empty_like(target)
    n_candidates, uses_core = model.problem.n_candidates, _uses_core(model)
    chunk_cells = chunk_cells or MAX_SCORES_HELD * (ON_GPU if model.table().is_cuda else 1)
    step = max(1, min(MAX_QUERIES, _MAX_ELEMENTS // model.config.dim) if uses_core else chunk_cells // n_candidates)
    progress = Progress("ranking", len(first), "queries")
    cuts = torch.arange(0, len(first), step)
    if uses_core and model.geometry == PROJECTED:
        relation = context[first, 1]
        cuts = torch.cat([cuts, 1 + (relation[1:] != relation[:-1]).nonzero()[:, 0]]).unique()
    for a, b in pairwise([*cuts.tolist(), len(first)]):
        pairs, known_pairs = (
            slice(int(pair_offsets[a]), int(pair_offsets[b])),
            slice(int(known_offsets[a]), int(known_offsets[b])),
        )
        count = _count_in_core if uses_core else _count_by_scores
        block = _QueryBlock(queries.rows(slice(a, b)), pair_offsets[a:b + 1] - pair_offsets[a], target[pairs],
                            known_offsets[a:b + 1] - known_offsets[a], known_ids[known_pairs])
        better[pairs], equal[pairs] = count(model, block, threads)
        progress.add(b - a)
    progress.close()
    target_is_known = known.contains(context[order], target.unsqueeze(1))[:, 0]
    candidates = n_candidates - known_offsets.diff()[group[order]] + target_is_known.long()           # (n,)
    better = torch.where(better < 0, candidates - 1, better)
    back = torch.argsort(order)
    return Ranks(*(x[back].numpy() for x in (better, equal, candidates)))


def query_bytes(model: Model, n: int) -> int:
    """Peak bytes of ranking n queries at once: vectors and their inputs, or scores and their comparisons."""
    if _uses_core(model):
        table = 3 * 4 * model.table().numel() if model.geometry == PROJECTED else 0
        return 3 * 4 * min(n * model.config.dim, max(_MAX_ELEMENTS, model.config.dim)) + table
    return 3 * 4 * max(min(n * model.problem.n_candidates, MAX_SCORES_HELD), model.problem.n_candidates)


def _offsets(group: torch.Tensor, n: int) -> torch.Tensor:
    """Start of each of n groups in an ascending list of members, and the end: (n + 1,)."""
    return torch.cat([group.new_zeros(1), torch.bincount(group, minlength=n).cumsum(0)])


def _uses_core(model: Model) -> bool:
    """Whether the compiled core can count for this model."""
    table = model.table()
    on_cpu = table.device.type == "cpu" and table.dtype == torch.float32
    return on_cpu and model.geometry in (*kernel.GEOMETRIES, PROJECTED)


def _count_in_core(model: Model, block: _QueryBlock, threads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Better and equal candidates of each target, (p,) each, counted by the compiled core."""
    geometry, table = model.relation_table(int(block.queries.relation[0]))
    better, equal = kernel.counts(
        model.encode(block.queries).vector[:, : table.shape[1]].numpy(), table.detach().numpy(), geometry,
        block.pair_offsets.numpy(), block.target.numpy(), block.known_offsets.numpy(), block.known_ids.numpy(), threads)
    return torch.from_numpy(better), torch.from_numpy(equal)


def _count_by_scores(model: Model, block: _QueryBlock, threads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Same as `_count_in_core` from the model's own scores, on any device and with PyTorch's threads."""
    device = model.problem.device
    all_ids = torch.arange(model.problem.n_candidates, device=device).unsqueeze(0)            # (1, V)
    query = model.encode(block.queries.to(device))
    z = model.score(query, all_ids)  # (q, V)
    row, known_row = (torch.repeat_interleave(torch.arange(len(query)), x.diff()).to(device)
                      for x in (block.pair_offsets, block.known_offsets))
    target, known_ids = block.target.to(device), block.known_ids.to(device)
    target_score, table = z[row, target], model.table()                                               # (p,)
    rival_score = z.index_put((known_row, known_ids), z.new_full((), math.nan))
    better, equal = torch.empty_like(target), torch.empty_like(target)
    for part in torch.arange(len(row), device=device).split(max(1, len(query))):             # (p, V) as small as (q, V)
        part_scores, part_target = rival_score[row[part]], target_score[part]
        low, high = tie_bounds(model.geometry, model.tau, part_target, query.vector[row[part], :table.shape[1]],
                               table[target[part]])
        above = (part_scores > high.unsqueeze(1)).sum(1)
        better[part] = torch.where(part_target.isnan(), -1, above)
        counts_itself = part_scores.gather(1, target[part].unsqueeze(1))[:, 0] == part_target
        equal[part] = (part_scores >= low.unsqueeze(1)).sum(1) - above - counts_itself.long()
    return better.cpu(), equal.cpu()


# -- measures ---------------------------------------------------------------------------------------------------------

def categories(tph: Floats, hpt: Floats, threshold: float) -> NDArray[np.int64]:
    """Index (R,) into CATEGORIES, from tails per head and heads per tail."""
    return 2 * (hpt >= threshold).astype(np.int64) + (tph >= threshold)


def scores(part: str, ranks: Ranks, clusters: NDArray[np.int64], side: NDArray[np.int64], category: NDArray[np.int64],
           config: RankingConfig, note: str) -> list[Score]:
    """All measures of a part; side and category (n,) of each query.

    Only the means over both sides have intervals, over clusters (n,): they are the result, and the rest breaks it down.
    """
    out = mean_scores(part, ranks, config, note, clusters=clusters)
    for name, side_ranks in (("optimistic", ranks.optimistic), ("pessimistic", ranks.pessimistic)):
        out += [Score(part, f"{metric}/{name}", float(x.mean()), None, None, len(x), f"ties: {name}")
                for metric, x in _columns(side_ranks, config.hits).items() if len(x)]
    for name, slot in SIDES.items():
        on_side = side == slot
        out += mean_scores(part, ranks.rows(on_side), config, f"{name} open", f"/{name}")
        for i, kind in enumerate(CATEGORIES):
            selected = on_side & (category == i)
            if selected.any():
                out += mean_scores(
                    part, ranks.rows(selected), config, f"{name} open, relations {kind}", f"/{kind}/{name}"
                )
    return out


def mean_scores(part: str, ranks: Ranks, config: RankingConfig, note: str, suffix: str = "",
                clusters: NDArray[np.int64] | None = None) -> list[Score]:
    """The measures of some queries, with names that end in `suffix`; no intervals without clusters."""
    columns, n = _columns(ranks.realistic, config.hits), len(ranks.better)
    if n == 0:
        return [Score(part, f"{metric}{suffix}", None, note="no triples") for metric in (*columns, "amri")]
    bounds = {name: value_bounds(name) for name in columns} | {"mr": (1.0, float(ranks.candidates.mean()))}
    intervals = ([NO_INTERVAL] * len(columns) if clusters is None else
                 mean_intervals(np.stack(list(columns.values()), axis=1), clusters, config.resamples, config.interval,
                                list(bounds.values())))
    n_clusters, resamples = (0, 0) if clusters is None else (len(np.unique(clusters)), config.resamples)
    out = [Score(part, f"{metric}{suffix}", float(x.mean()), low, high, n,
                 note + missing_note(low, n_clusters, resamples, kind="clusters"))
           for (metric, x), (low, high) in zip(columns.items(), intervals, strict=True)]
    mr, expected = out[1], float((ranks.candidates.mean() + 1) / 2)
    if expected > 1:
        def amri(mean_rank: float | None) -> float | None:
            return None if mean_rank is None else 1 - (mean_rank - 1) / (expected - 1)
        out.insert(2, Score(part, f"amri{suffix}", amri(mr.value), amri(mr.high), amri(mr.low), n, mr.note))
    return out


def _columns(ranks: Floats, hits: list[int]) -> Mapping[str, Floats]:
    return {"mrr": 1 / ranks, "mr": ranks, **{f"hits@{k}": (ranks <= k).astype(np.float64) for k in hits}}
