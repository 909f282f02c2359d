"""Triples through the compiled core (train/engines/compiled.py): a row is a question about entities.

An update is one row, or the rows that share a draw, in place of train.batch examples; each is made on the values that
the one before left; a learnt log Z takes a step every train.batch examples. Tests hold it to train/engines/autograd.py
where no row repeats.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import LossInput, Negatives, Query
from embtrain.kernels.core.tables import NegativeBatch, Table
from embtrain.kernels.training.triples import TripleLossSpec, TripleQueries, update
from embtrain.losses.margin import Margin
from embtrain.losses.sampled_softmax import SampledSoftmax
from embtrain.losses.self_adversarial import SelfAdversarial
from embtrain.models.triples.distmult import DistMult
from embtrain.models.triples.transe import TransE
from embtrain.train.engines.compiled import Compiled


class FusedTriples(Compiled):
    model: TransE | DistMult
    WIDTHS: ClassVar[dict[str, int]] = {"row": 0, "window": 0}

    def _query(self, block: Any, vectors: bool) -> Query:
        if vectors:
            return self.model.encode(block).detach()
        context = self.model.context(block)                                                # (B, 2)
        nothing = torch.empty((len(context), 0))
        return Query(nothing, context, block.target, block.slot, self.model.query_ids(context))

    def _n_draws(self, block: Any) -> int:
        return -(-len(block) // self.width) if self.width else len(block)

    def _group(self, block: Any) -> Tensor | None:
        return torch.arange(len(block)) // self.width if self.width else None

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[float, Tensor | None]:
        e, r = (Table(p.detach().numpy(), self._accumulator(p)) for p in (self.model.e, self.model.r))
        asked = TripleQueries(*(x.contiguous().numpy()
                                for x in (block.entity, block.relation, block.slot, block.target)))
        columns, rule, lr = self._columns(drawn), self._rule(), self.optimizers[0].param_groups[0]["lr"]
        total, costs = 0.0, list[Tensor]()
        for rows in self._pieces(len(block)):
            part, of = _cut(asked, columns, rows)
            told = update(e, r, part, of, rule, lr, self.threads, keep)
            total += told.loss
            if told.scores is not None:
                costs.append(self._negative(torch.from_numpy(told.scores), of))
            if self.c is not None and told.c_grad is not None:
                self.c.grad = torch.from_numpy(np.asarray(told.c_grad, dtype=np.float32))
                self.optimizers[1].step()
        return total, torch.cat(costs) if costs else None

    def _rule(self) -> TripleLossSpec:
        loss, model = self.loss, self.model
        margin = loss.config.margin if isinstance(loss, Margin | SelfAdversarial) else 1.0
        return TripleLossSpec(model.geometry, loss.name, margin,  # type: ignore[arg-type]
                    loss.config.temperature if isinstance(loss, SelfAdversarial) else 1.0,
                    None if self.c is None else self.c.detach().numpy(),
                    isinstance(loss, SampledSoftmax) and loss.config.form == "ranking",
                    model.config.entities if isinstance(model, TransE) else "free")

    def _pieces(self, n: int) -> list[slice]:
        """Rows that are passed to the core at once: all, or, where log Z is learnt, about train.batch; draws stay
        whole."""
        unit = max(1, self.width)
        step = n if self.c is None else max(unit, self.config.batch // unit * unit)
        return [slice(first, min(n, first + step)) for first in range(0, n, step)]

    def _negative(self, scores: Tensor, columns: NegativeBatch) -> Tensor:
        """The columns' costs, from the scores (G, K) of draws of one row each."""
        none = scores.new_zeros(len(scores))
        query = Query(none.unsqueeze(1), none.long(), none.long(), none.long())
        return self.loss.negative(LossInput(none, scores, Negatives(torch.from_numpy(columns.ids)), query))


def _cut(asked: TripleQueries, columns: NegativeBatch, rows: slice) -> tuple[TripleQueries, NegativeBatch]:
    """Some of the rows, with their draws."""
    if rows.start == 0 and rows.stop == len(asked.target):
        return asked, columns
    share, right = columns.share, columns.false_negatives
    draws = slice(rows.start // share, -(-rows.stop // share)) if share else rows
    if right is not None:
        a, b = np.searchsorted(right[0], [rows.start, rows.stop])
        right = np.ascontiguousarray(right[:, a:b]) - np.array([[rows.start], [0]])
    def of(x: np.ndarray | None) -> np.ndarray | None:
        return x if x is None or x.ndim == 1 else x[draws]
    return TripleQueries(*(x[rows] for x in asked)), columns._replace(
        ids=columns.ids[draws], log_q=of(columns.log_q), weight=of(columns.weight), false_negatives=right,
        log_q_target=None if columns.log_q_target is None else columns.log_q_target[rows])
