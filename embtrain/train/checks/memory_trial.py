"""Estimates the peak memory of an update by running two small ones.

    live_i(n)        = a_i + b_i n        bytes alive after operation i of an update on n examples
    update_bytes(N)  = max_i a_i + b_i N  from two trials: a larger update runs the same operations on larger arrays

If the two trials have different numbers of operations (a loop over words), the line goes through their peaks. A trial
changes no state: its negatives are not drawn by the source, and its gradients are discarded.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch

from embtrain.common.types import Batch, Negatives, Query
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.checks.allocation_counter import AllocationCounter
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import MAX_SCORES_HELD, Step
from embtrain.train.engines.false_negatives import KnownPositives, mark_false_negatives

MAX_ELEMENTS = 1 << 22  # elements in the vectors of a trial's negatives
MAX_PLACES = 32        # centres in the block of the smaller trial, at most


class TrialBlocks(Protocol):
    """Returns a block of examples from about `places` centres."""

    def __call__(self, places: int) -> Batch: ...


def update_bytes(
    model: Model,
    source: NegativeSource,
    loss: Loss,
    config: TrainConfig,
    known_positives: KnownPositives | None,
    blocks: TrialBlocks,
) -> int:
    """Peak bytes of an update of config.batch examples, or of a whole block if that is smaller; 0 without examples."""
    traits = source.traits
    k = model.problem.n_candidates if traits.exhaustive else source.config.k if traits.components else 0
    step = Step(model, source, loss, [], config, known_positives)
    places_small = max(1, min(MAX_PLACES, MAX_ELEMENTS // max(1, k * model.config.dim)))
    while 2 * places_small < (config.chunk or 1) and len(blocks(2 * places_small)) < 1.5 * len(blocks(places_small)):
        places_small *= 2                                             # sentences and streams are not split
    if not len(blocks(places_small)):
        return 0
    loss_state = loss.get_extra_state()                          # the loss draws which examples pay its penalty
    (n, small), (m, large) = (_run_trial(step, blocks(places), k) for places in (places_small, 2 * places_small))
    loss.set_extra_state(loss_state)
    n_examples = config.batch
    if config.chunk is not None:
        n_examples = min(n_examples, math.ceil(m * config.chunk / (2 * places_small)))
    # the other examples exist only as encoded queries
    n_scored = min(n_examples, max(1, MAX_SCORES_HELD // max(1, k)))
    if m == n:
        return max(large)
    if len(small) != len(large):
        small, large = [max(small)], [max(large)]
    return max(int(b + (b - a) / (m - n) * (n_scored - m)) for a, b in zip(small, large, strict=True)) \
        + 3 * model.config.table_dtype.itemsize * model.config.dim * (n_examples - n_scored)


def _run_trial(step: Step, batch: Batch, k: int) -> tuple[int, list[int]]:
    """The number of examples, and the bytes alive after each operation of an update on them."""
    batch = batch.to(step.model.problem.device)
    with torch.no_grad():
        query = step.model.encode(batch).detach()
    drawn = mark_false_negatives(
        _fake_negatives(step.source, query, k), query, step.source.config.filter, step.known_positives
    )
    with AllocationCounter() as counter:
        step.gradients(batch, step.model.encode(batch), drawn, 0)
    for p in (*step.model.parameters(), *step.loss.parameters()):
        p.grad = None
    return len(batch), counter.live


def _fake_negatives(source: NegativeSource, query: Query, k: int) -> Negatives:
    """Negatives of the shape that the source would draw, without drawing."""
    v, n, device = source.problem.n_candidates, len(query), query.target.device
    if k == 0:
        return Negatives()
    if "synthetic" in source.traits.components:
        return Negatives(vectors=query.vector.unsqueeze(1).expand(n, k, -1).clone())
    mass = torch.full((1, 1), float(k), device=device)
    if source.traits.exhaustive:
        ids = torch.arange(v, device=device).unsqueeze(0)
        return Negatives(
            ids, log_q=torch.zeros(1, v, device=device), log_q_target=query.vector.new_zeros(n), total_weight=mass
        )
    n_draws, group = source.draw_layout(query)
    ids = torch.arange(n_draws * k, device=device).mul_(7_919).remainder_(v).view(n_draws, k)
    return Negatives(ids, draw_id=group, log_q=torch.zeros(n_draws, k, device=device),
                     log_q_target=torch.zeros(n, device=device), total_weight=mass)
