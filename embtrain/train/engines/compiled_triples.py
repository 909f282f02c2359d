"""Triples through the compiled core (train/engines/compiled.py). A row is a query for one entity of a triple.

An update covers one row, or the rows that share a draw, instead of train.batch examples, and sees the values that the
previous update wrote. A learned log Z takes a step every train.batch examples. The tests compare it with
train/engines/autograd.py on blocks in which no row repeats.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import LossInput, Negatives, Query
from embtrain.kernels.core.tables import NegativeBatch
from embtrain.kernels.training.triples import TripleLossSpec, TripleQueries, update
from embtrain.losses.hinges.margin import Margin
from embtrain.losses.sampled_softmax import SampledSoftmaxLoss
from embtrain.losses.self_adversarial import SelfAdversarial
from embtrain.models.triples.distmult import DistMult
from embtrain.models.triples.transe import TransE
from embtrain.train.engines.compiled import CompiledStep


class CompiledTriples(CompiledStep):
    """Compiled step of TransE and DistMult."""

    tasks = ("triples",)
    model: TransE | DistMult
    UNITS_PER_DRAW: ClassVar[dict[str, int]] = {"row": 0, "window": 0}

    def _query(self, block: Any, vectors: bool) -> Query:
        if vectors:
            return self.model.encode(block).detach()
        context = self.model.context(block)                                                # (B, 2)
        no_vectors = torch.empty((len(context), 0), device=context.device)
        return Query(no_vectors, context, block.target, block.slot, self.model.query_ids(context))

    def _n_draws(self, block: Any) -> int:
        return -(-len(block) // self.units_per_draw) if self.units_per_draw else len(block)

    def _group(self, block: Any) -> Tensor | None:
        rows = torch.arange(len(block), device=block.target.device)
        return rows // self.units_per_draw if self.units_per_draw else None

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[float | Tensor, Tensor | None]:
        e, r = self._table(self.model.e), self._table(self.model.r)
        entity, relation, slot, target = (
            x.contiguous().numpy() for x in (block.entity, block.relation, block.slot, block.target)
        )
        weight = None if block.weight is None else block.weight.contiguous().numpy()
        queries = TripleQueries(entity, relation, slot, target, weight)
        columns, lr = self._columns(drawn), self.optimizers[0].param_groups[0]["lr"]
        rule = self._loss_spec(columns.total_weight)._replace(c=None if self.c is None else self.c.detach().numpy())
        loss, costs = 0.0, list[Tensor]()
        for rows in self._chunks(len(block)):
            part_queries, part_columns = _slice(queries, columns, rows)
            result = update(e, r, part_queries, part_columns, rule, lr, self.threads, keep)
            loss += result.loss
            if result.scores is not None:
                costs.append(self._costs_from_scores(torch.from_numpy(result.scores),
                                                     torch.from_numpy(part_columns.ids)))
            if self.c is not None and result.c_grad is not None:
                self.c.grad = torch.from_numpy(np.asarray(result.c_grad, dtype=np.float32))
                self.optimizers[1].step()
        return loss, torch.cat(costs) if costs else None

    def _loss_spec(self, total_weight: float) -> TripleLossSpec:
        """The loss in the form of the kernels, without log Z."""
        loss, model = self.loss, self.model
        margin = loss.config.margin if isinstance(loss, Margin | SelfAdversarial) else 1.0
        return TripleLossSpec(model.geometry, loss.name, margin,  # type: ignore[arg-type]
                    loss.config.temperature if isinstance(loss, SelfAdversarial) else 1.0, None,
                    isinstance(loss, SampledSoftmaxLoss) and loss.config.form == "ranking",
                    model.config.entities if isinstance(model, TransE) else "free",
                    self._positive_weight(total_weight))

    def _chunks(self, n: int) -> list[slice]:
        """Slices of rows per call of the core: all, or about train.batch if log Z is learned. Draws are not split."""
        unit = max(1, self.units_per_draw)
        step = n if self.c is None else max(unit, self.config.batch // unit * unit)
        return [slice(first, min(n, first + step)) for first in range(0, n, step)]

    def _costs_from_scores(self, scores: Tensor, draws: Tensor) -> Tensor:
        """Costs of the negatives from the scores (G, K) of draws of one row each, with their ids."""
        zeros = scores.new_zeros(len(scores))
        query = Query(zeros.unsqueeze(1), zeros.long(), zeros.long(), zeros.long())
        return self.loss.negative(LossInput(zeros, scores, Negatives(draws), query))


def _slice(queries: TripleQueries, columns: NegativeBatch, rows: slice) -> tuple[TripleQueries, NegativeBatch]:
    """A slice of the rows, with their draws."""
    if rows.start == 0 and rows.stop == len(queries.target):
        return queries, columns
    share, false_negatives = columns.share, columns.false_negatives
    draws = slice(rows.start // share, -(-rows.stop // share)) if share else rows
    if false_negatives is not None:
        a, b = np.searchsorted(false_negatives[0], [rows.start, rows.stop])
        false_negatives = np.ascontiguousarray(false_negatives[:, a:b]) - np.array([[rows.start], [0]])
    def slice_draws(x: np.ndarray | None) -> np.ndarray | None:
        return x if x is None or x.ndim == 1 else x[draws]
    weight = None if queries.weight is None else queries.weight[rows]
    entity, relation, slot, target = (x[rows] for x in queries[:4])
    return TripleQueries(entity, relation, slot, target, weight), columns._replace(
        ids=columns.ids[draws],
        log_q=slice_draws(columns.log_q),
        weight=slice_draws(columns.weight),
        false_negatives=false_negatives,
        log_q_target=None if columns.log_q_target is None else columns.log_q_target[rows],
    )
