"""One step: ask, draw, forgive, score, cost, update, tell the source what its answers cost. Any device, any model.

    query = encode(block);  drawn = forgive(source.draw(query, k, view), answers)
    for each batch of the block:  cost = loss(score(query, target), score(query, drawn));  ∂cost;  update
    source.learn(query, drawn, cost.negative of each row, or its mean over the rows of each draw)

A block is drawn for at once, so that a generator is evaluated once per distinct question; its batches are updated one
after the other. What a source makes of the query itself (`fresh`) is drawn for each batch. Within an update rows are
scored in chunks, so that `every` at a large V fits in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from embtrain.common.types import Batch, LossInput, LossOutput, Negatives, Query, first_occurrence
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.false_negatives import KnownPositives, mark_false_negatives

MAX_SCORES_HELD = 32_000_000      # scores held at once
MIN_COLUMNS_SHARED = 1_024          # copied columns that a call of the model must spare
MAX_LOGGED_COSTS = 2_000_000  # costs of columns kept for the log, where the source has no use for them


class ReadOnly:
    """The view of a model that a source gets: no gradient, no parameters to change."""

    def __init__(self, model: Model):
        self._model = model

    @property
    def n_candidates(self) -> int:
        return self._model.world.n_candidates

    @property
    def geometry(self) -> str:
        return self._model.geometry

    @property
    def tau(self) -> float:
        return self._model.tau

    @property
    def has_frozen_table(self) -> bool:
        return self._model.has_frozen_table

    def table(self) -> Tensor:
        return self._model.table().detach()

    @torch.no_grad()
    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return self._model.score(query, candidates)


@dataclass(frozen=True)
class StepResult:
    """What a step tells the loop. Tensors stay on the device until a log line is due."""

    loss: Tensor                # ()  mean loss of the block's examples
    query: Query | None         # detached; it and what was drawn may be those of the first n rows alone
    drawn: Negatives | None
    cost: Tensor | None         # (n, K) the columns' costs in the first n rows, where they were kept
    source: dict[str, float]    # what the source learnt


class Step:
    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        self.model, self.source, self.loss, self.optimizers = model, source, loss, optimizers
        self.config, self.known_positives = config, known_positives
        self.view = ReadOnly(model)

    def __call__(self, block: Batch, keep_costs: bool = False) -> StepResult:
        """Train on a block. `keep_costs` hands columns' costs back where the source does not learn too: of as many
        rows as MAX_LOGGED_COSTS allows, for of `every` candidate all rows would be gigabytes."""
        if len(block) == 0:                                  # centres without a neighbour: there is nothing to draw for
            return StepResult(torch.zeros(()), None, None, None, {})
        block = block.to(self.model.world.device)
        if self.source.redraws_each_update and len(block) > self.config.batch:
            return self._run_batches_separately(block, keep_costs)
        is_single_batch = len(block) <= self.config.batch              # one update: what is asked is what is trained on
        with torch.set_grad_enabled(is_single_batch):
            query = self.model.encode(block)
        detached = query.detach()
        negatives = self.source.config
        drawn = mark_false_negatives(
            self.source.draw(detached, negatives.k, self.view), detached, negatives.mask, self.known_positives
        )
        costs, loss_sum = list[Tensor](), detached.vector.new_zeros(())
        n_cost_rows = (
            len(block) if self.source.learns else max(1, MAX_LOGGED_COSTS // max(1, drawn.k)) if keep_costs else 0
        )
        for rows in slices(len(block), self.config.batch):
            batch = block if is_single_batch else block.rows(rows)
            batch_query = query if is_single_batch else self.model.encode(batch)
            loss, batch_costs = self.update(batch, batch_query, drawn.rows(rows), n_cost_rows - rows.start)
            costs += batch_costs
            loss_sum += loss
        cost = torch.cat(costs) if costs else None
        source_metrics = {}
        if self.source.learns and cost is not None:
            source_metrics = self.source.learn(detached, drawn, costs_for_source(self.source, cost, drawn))
        return StepResult(loss_sum / len(block), detached, drawn, cost, source_metrics)

    def _run_batches_separately(self, block: Batch, keep_costs: bool) -> StepResult:
        """The block's batches as blocks of their own; what is told of columns is of the last."""
        loss_sum = torch.zeros((), device=block.target.device)
        for rows in slices(len(block), self.config.batch):
            result = self(block.rows(rows), keep_costs and rows.stop == len(block))
            loss_sum = loss_sum + result.loss * (rows.stop - rows.start)
        return replace(result, loss=loss_sum / len(block))

    def update(self, batch: Batch, query: Query, drawn: Negatives, keep: int) -> tuple[Tensor, list[Tensor]]:
        """One update on one batch, whose question has just been encoded; the summed loss, and the columns' costs in the
        first `keep` rows, in pieces."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        total, costs = self.gradients(batch, query, drawn, keep)
        if self.config.clip is not None:
            clip_gradients([p for o in self.optimizers for g in o.param_groups for p in g["params"]], self.config.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.model.after_update(batch)
        return total, costs

    def gradients(self, batch: Batch, query: Query, drawn: Negatives, keep: int) -> tuple[Tensor, list[Tensor]]:
        """What an update does before anything is changed, and what it hands back."""
        leaf = query.vector.detach().requires_grad_()        # the encoder's backward runs once, whatever the chunks
        total, costs = leaf.new_zeros(()), list[Tensor]()
        scale = 1.0 if self.config.reduction == "sum" else 1.0 / len(batch)
        for rows in slices(len(batch), max(1, MAX_SCORES_HELD // max(1, drawn.k))):
            scored = self.score(replace(query, vector=leaf).rows(rows), drawn.rows(rows))
            cost = self.loss(scored)
            loss = cost.per_example.sum()
            (loss * scale).backward()
            total = total + loss.detach()
            if keep > rows.start:
                costs.append(_costs_per_example(cost, scored, keep - rows.start))
        if (penalty := self.model.penalty(batch)) is not None:
            (penalty.sum() * scale).backward()
            total = total + penalty.detach().sum()
        query.vector.backward(leaf.grad)
        return total, costs

    def score(self, query: Query, drawn: Negatives) -> LossInput:
        """Score the targets and the drawn columns; rows that ask the same question of the same draw once."""
        model, n = self.model, len(query)
        target = query.target.unsqueeze(1)                                       # (B, 1)
        draw = drawn.draw_of(n, query.target.device)
        row: Tensor | None = None
        if drawn.vectors is not None:
            pos, neg = model.score(query, target).squeeze(1), model.score(query, drawn.vectors)
        elif drawn.k == 0 or drawn.ids is None:
            pos = model.score(query, target).squeeze(1)
            neg = pos.new_zeros(n, 0)
        elif draw is None and drawn.ids.shape[0] == n:
            scores = model.score(query, torch.cat([target, drawn.ids], 1))         # one gather for both
            pos, neg = scores[:, 0], scores[:, 1:]
        else:
            first, row, pair_draw = _distinct_pairs(query, draw, n)
            neg = self._score_by_draw(query.rows(first), drawn.ids, pair_draw)
            pos = model.score(query, target).squeeze(1)      # last: a sparse gradient that is there is added in place
            draw = pair_draw
        def gather_rows(x: Tensor | None) -> Tensor | None:
            return x if x is None or draw is None or x.shape[0] == 1 else x.index_select(0, draw)

        scored = LossInput(
            pos,
            neg,
            drawn,
            query,
            row,
            self._log_partition_fn(query),
            gather_rows(drawn.log_q),
            gather_rows(drawn.weight),
            self._target_vectors_fn(query),
        )
        differs_by_row = drawn.false_negatives is not None or (drawn.mass is not None and drawn.mass.shape[0] > 1)
        scored = scored.expanded() if differs_by_row else scored
        weight = self.loss.negative_weights(scored)
        return scored if weight is None else replace(scored, weight=weight)

    def _score_by_draw(self, query: Query, ids: Tensor, draw: Tensor) -> Tensor:
        """Scores (R, K) of the draws (G, K) that rows read, `of` (R,). A draw that many rows in succession share is
        scored for all of them at once: to give each a copy of its columns would take most of an update's time."""
        if ids.shape[0] == 1:
            return self.model.score(query, ids)
        distinct, counts = torch.unique_consecutive(draw, return_counts=True)
        if (len(draw) - len(distinct)) * ids.shape[1] < MIN_COLUMNS_SHARED * len(distinct):
            return self.model.score(query, ids.index_select(0, draw))
        ends = counts.cumsum(0).tolist()
        return torch.cat([self.model.score(query.rows(slice(start, end)), ids[g:g + 1])
                          for g, start, end in zip(distinct.tolist(), [0, *ends], ends, strict=False)])

    def _target_vectors_fn(self, query: Query) -> Callable[[], Tensor]:
        def target_vectors() -> Tensor:
            return nn.functional.normalize(self.model.table().detach()[query.target], dim=1)
        return target_vectors

    def _log_partition_fn(self, query: Query) -> Callable[[Tensor | slice], Tensor]:
        """rows -> the exact log Σ_b e^{s(a,b)} of those rows, with gradient, each question once, in chunks."""
        def log_partition(rows: Tensor | slice) -> Tensor:
            (part, query_id), v = query.rows(rows).unique(), self.model.world.n_candidates
            all_ids = torch.arange(v, device=query.target.device).unsqueeze(0)  # (1, V)
            chunks = [torch.logsumexp(self.loss.logit(self.model.score(p := part.rows(r), all_ids), p), 1)
                      for r in slices(len(part), max(1, MAX_SCORES_HELD // v))]
            return torch.cat(chunks).index_select(0, query_id) if chunks else query.vector.new_zeros(0)
        return log_partition


def slices(n: int, step: int) -> Iterator[slice]:
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def _distinct_pairs(query: Query, draw: Tensor | None, n: int) -> tuple[Tensor, Tensor | None, Tensor]:
    """First rows (R,) of the distinct (question, draw) pairs, the pair of each row (B,), the draw of each pair (R,).
    Pairs of one draw lie side by side."""
    assert draw is not None
    if query.group is None:
        return torch.arange(n, device=draw.device), None, draw
    key = draw * (int(query.group.max()) + 1) + query.group
    row = torch.unique(key, return_inverse=True)[1]
    first = first_occurrence(row)
    return first, row, draw[first]


def _costs_per_example(cost: LossOutput, scored: LossInput, n: int) -> Tensor:
    """Cost.negative with one line per example, of the first n: (n, K)."""
    return cost.per_negative[:n] if scored.row is None else cost.per_negative[scored.row[:n]]


def costs_for_source(source: NegativeSource, cost: Tensor, drawn: Negatives) -> Tensor:
    """What a source that learns hears of the columns' costs (B, K)."""
    return cost if source.learns_per_row else per_draw(cost, drawn)


def per_draw(cost: Tensor, drawn: Negatives) -> Tensor:
    """The columns' costs (B, K) as one line per draw, (G, K): the mean over the rows that share it. Rows whose right
    answer a column is are left out, unless all are: who asks what those cost is answered as in a draw of one's own."""
    draw = drawn.draw_of(len(cost), cost.device)
    if draw is None:
        return cost
    assert drawn.ids is not None
    shape, all_rows = drawn.ids.shape, torch.bincount(draw, minlength=len(drawn.ids)).unsqueeze(1).to(cost.dtype)
    total = cost.new_zeros(shape).index_add_(0, draw, cost)
    if drawn.false_negatives is None or drawn.false_negatives.shape[1] == 0:
        return total / all_rows
    row, column = drawn.false_negatives
    entries = (draw[row], column)
    n_false = cost.new_zeros(shape).index_put_(entries, cost.new_ones(()), accumulate=True)
    n_counted = torch.where(n_false < all_rows, all_rows - n_false, all_rows)
    sums = torch.where(n_false < all_rows, total.index_put(entries, -cost[row, column], accumulate=True), total)
    return sums / n_counted


def clip_gradients(parameters: list[Tensor], max_norm: float) -> None:
    """Scale all gradients, sparse ones included, so that their joint norm is at most `largest`."""
    grads = []
    for p in parameters:
        if p.grad is not None:
            p.grad = p.grad.coalesce() if p.grad.is_sparse else p.grad
            grads.append(p.grad)
    if not grads:
        return
    norm = torch.stack([(g._values() if g.is_sparse else g).norm() for g in grads]).norm()
    factor = (max_norm / (norm + 1e-12)).clamp(max=1.0)
    for g in grads:
        g.mul_(factor)
