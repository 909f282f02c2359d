"""One training step by autograd, for any model, source, loss and device.

    query = encode(block);  drawn = mark_false_negatives(source.draw(query, k, view), known_positives)
    for each batch of the block:  cost = loss(score(query, target), score(query, drawn));  ∂cost;  update
    source.learn(query, drawn, cost per negative, or its mean over the rows of each draw)

Negatives are drawn for a block at once, so that a generator runs once per distinct query; its batches are updated in
turn. Sources that build negatives from query vectors (`redraws_each_update`) draw once per batch. Rows of an update are
scored in chunks, so that the source `every` fits in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from embtrain.common.types import Batch, LossInput, Negatives, Query, first_occurrence
from embtrain.losses.base import Loss
from embtrain.models.base import Model
from embtrain.models.products import all_candidates
from embtrain.negatives.base import NegativeSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.base import Engine, StepResult
from embtrain.train.engines.draws import costs_for_source, costs_per_example, slices, split_draws
from embtrain.train.engines.false_negatives import KnownPositives, mark_false_negatives

MAX_SCORES_HELD = 32_000_000  # scores in memory at once
MIN_NEGATIVES_SHARED = 1_024  # a separate model call must save this many copied negatives
MAX_LOGGED_COSTS = 2_000_000  # costs kept for the log alone


class ReadOnly:
    """The view of a model that a source receives: no gradient, no parameters to change."""

    def __init__(self, model: Model):
        self._model = model

    @property
    def n_candidates(self) -> int:
        return self._model.problem.n_candidates

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


class Step(Engine):
    """A training step by autograd: encode, draw, mask, score, update, and report costs to the source."""

    name = "autograd"

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        super().__init__(model, source, loss, optimizers, config, known_positives)
        self.view = ReadOnly(model)

    def __call__(self, block: Batch, keep_costs: bool = False) -> StepResult:
        """Train on a block of B examples, in batches of `config.batch`.

        `keep_costs` also returns the costs of the negatives if the source does not learn, for as many rows as
        MAX_LOGGED_COSTS allows: for the source `every`, all rows would take gigabytes.
        """
        if len(block) == 0:                                  # centres without a neighbour: no pairs to draw for
            return StepResult(torch.zeros(()), None, None, None, {})
        block = block.to(self.model.problem.device)
        with matmul_precision(self.config.matmul if block.target.is_cuda else "float32"):
            return self._train(block, keep_costs)

    def _train(self, block: Batch, keep_costs: bool) -> StepResult:
        """Train on a block that is on the device."""
        if self.source.traits.redraws_each_update and len(block) > self.config.batch:
            return self._run_batches_separately(block, keep_costs)
        is_single_batch = len(block) <= self.config.batch              # the query of the draw is also trained on
        with torch.set_grad_enabled(is_single_batch):
            query = self.model.encode(block)
        detached = query.detach()
        drawn = self.draw(detached)
        costs, loss_sum, learns = list[Tensor](), detached.vector.new_zeros(()), self.source.traits.learns
        n_cost_rows = len(block) if learns else max(1, MAX_LOGGED_COSTS // max(1, drawn.k)) if keep_costs else 0
        share = self.source.config.share_size if self.source.config.share_draws_by == "block" and \
            query.window is None and self.source.traits.standard_layout else None
        for rows, batch_drawn in split_draws(drawn, len(block), self.config.batch, share):
            batch = block if is_single_batch else block.rows(rows)
            batch_query = query if is_single_batch else self.model.encode(batch)
            loss, batch_costs = self.update(batch, batch_query, batch_drawn, n_cost_rows - rows.start)
            costs += batch_costs
            loss_sum += loss
        cost = torch.cat(costs) if costs else None
        source_metrics = {}
        if learns and cost is not None:
            source_metrics = self.source.learn(detached, drawn, costs_for_source(self.source, cost, drawn))
        return StepResult(loss_sum / len(block), detached, drawn, cost, source_metrics)

    def draw(self, query: Query) -> Negatives:
        """Draw the negatives of a block, and mark the false ones. query: detached."""
        config = self.source.config
        drawn = self.source.draw(query, config.k, self.view)
        return mark_false_negatives(drawn, query, config.filter, self.known_positives)

    def _run_batches_separately(self, block: Batch, keep_costs: bool) -> StepResult:
        """Run each batch of the block as a block of its own; query, draws and costs are those of the last batch."""
        loss_sum = torch.zeros((), device=block.target.device)
        for rows in slices(len(block), self.config.batch):
            result = self(block.rows(rows), keep_costs and rows.stop == len(block))
            loss_sum = loss_sum + result.loss * (rows.stop - rows.start)
        return replace(result, loss=loss_sum / len(block))

    def update(self, batch: Batch, query: Query, drawn: Negatives, keep: int) -> tuple[Tensor, list[Tensor]]:
        """Run one update on one batch and its encoded query.

        Returns the summed loss () and the costs of the negatives of the first `keep` rows, as a list of chunks.
        """
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
        """Compute the gradients of one update without changing any parameter; returns are those of `update`."""
        leaf = query.vector.detach().requires_grad_()        # the encoder's backward runs once, not per chunk
        total, costs = leaf.new_zeros(()), list[Tensor]()
        scale = 1.0 if self.config.reduction == "sum" else 1.0 / len(batch)
        whole, step = query.with_vector(leaf), max(1, MAX_SCORES_HELD // max(1, drawn.k))
        is_whole = len(batch) <= step                        # then a slice would only make the host wait
        for rows in slices(len(batch), step):
            scored = self.score(whole, drawn) if is_whole else self.score(whole.rows(rows), drawn.rows(rows))
            cost = self.loss(scored)
            weight = None if batch.weight is None else batch.weight[rows]
            loss = (cost.per_example if weight is None else cost.per_example * weight).sum()
            (loss * scale).backward()
            total = total + loss.detach()
            if keep > rows.start:
                costs.append(costs_per_example(cost, scored, keep - rows.start))
        if (penalty := self.model.penalty(batch)) is not None:
            (penalty.sum() * scale).backward()
            total = total + penalty.detach().sum()
        query.vector.backward(leaf.grad)
        return total, costs

    def score(self, query: Query, drawn: Negatives) -> LossInput:
        """Score targets (B,) and negatives (R, K). Rows with the same query and the same draw are scored once."""
        model, n = self.model, len(query)
        target = query.target.unsqueeze(1)                                       # (B, 1)
        draw = drawn.draw_index(n, query.target.device)
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
            neg = self._score_by_draw(query if first is None else query.rows(first), drawn.ids, pair_draw)
            pos = model.score(query, target).squeeze(1)      # last: autograd adds in place to a sparse gradient
            draw = pair_draw
        def gather_rows(x: Tensor | None) -> Tensor | None:
            return x if x is None or draw is None or x.shape[0] == 1 else x.index_select(0, draw)

        scored = LossInput(
            pos,
            neg,
            drawn,
            query,
            row,
            gather_rows(drawn.log_q),
            gather_rows(drawn.weight),
            ExactTable(self.model, self.loss, query),
        )
        differs_by_row = drawn.false_negatives is not None or (
            drawn.total_weight is not None and drawn.total_weight.shape[0] > 1
        )
        scored = scored.expanded() if differs_by_row else scored
        weight = self.loss.negative_weights(scored)
        return scored if weight is None else replace(scored, weight=weight)

    def _score_by_draw(self, query: Query, ids: Tensor, draw: Tensor) -> Tensor:
        """Scores (R, K) of ids (G, K), where row r reads the draw `draw[r]`, (R,).

        A draw shared by many consecutive rows is scored once for them: copies of its negatives would dominate.
        """
        (n, k), rows = ids.shape, len(draw)
        if n == 1:
            return self.model.score(query, ids)
        if not draw.is_cuda or (rows - n) * k >= MIN_NEGATIVES_SHARED * n:    # a GPU would wait for the exact number
            distinct, counts = torch.unique_consecutive(draw, return_counts=True)
            n = len(distinct)
        if (rows - n) * k < MIN_NEGATIVES_SHARED * n:
            return self.model.score(query, ids.index_select(0, draw))
        ends = counts.cumsum(0).tolist()
        return torch.cat([self.model.score(query.rows(slice(start, end)), ids[g:g + 1])
                          for g, start, end in zip(distinct.tolist(), [0, *ends], ends, strict=False)])


class ExactTable:
    """Values of the queries of a LossInput that need the whole table: computed only for the losses that use them."""

    def __init__(self, model: Model, loss: Loss, query: Query):
        self.model, self.loss, self.query = model, loss, query

    def target_vectors(self) -> Tensor:
        """The unit vectors of the targets, (B, D), without gradient."""
        return nn.functional.normalize(self.model.table().detach()[self.query.target], dim=1)

    def log_partition(self, rows: Tensor | slice) -> Tensor:
        """The exact log Σ_b e^{s(a,b)} of rows, (n,), with gradient, per distinct query, in chunks."""
        query, v = self.query, self.model.problem.n_candidates
        query = replace(query, query_id=None) if is_scored_by_row(query) else query
        (part, query_id), all_ids = query.rows(rows).unique(), all_candidates(v, query.target.device)
        chunks = [torch.logsumexp(self.loss.logit(self.model.score(p := part.rows(r), all_ids), p), 1)
                  for r in slices(len(part), max(1, MAX_SCORES_HELD // v))]
        return torch.cat(chunks).index_select(0, query_id) if chunks else self.query.vector.new_zeros(0)


@contextlib.contextmanager
def matmul_precision(kind: str) -> Iterator[None]:
    """Multiply float32 matrices with TF32's 11 bits of mantissa inside the block if `kind` is tf32."""
    if kind != "tf32":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def is_scored_by_row(query: Query) -> bool:
    """Return whether rows with equal queries are scored one by one: on a GPU, where few are equal outside windows.

    Their number would make the host wait.
    """
    return query.target.is_cuda and query.window is None


def _distinct_pairs(query: Query, draw: Tensor | None, n: int) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Return the first rows (R,) of the distinct (query, draw) pairs of n rows, the pair of each row (B,), and the draw
    of each pair (R,). Pairs of one draw are consecutive. None, None and the draws: each row is a pair of its own.
    """
    assert draw is not None
    if query.query_id is None or is_scored_by_row(query):
        return None, None, draw
    distinct, row = torch.unique(draw * n + query.query_id, return_inverse=True)   # ids are below n
    first = first_occurrence(row, len(distinct))
    return first, row, draw[first]


def clip_gradients(parameters: list[Tensor], max_norm: float) -> None:
    """Scale all gradients, sparse ones included, so that their joint norm is at most `max_norm`."""
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
