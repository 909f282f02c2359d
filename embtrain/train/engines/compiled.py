"""Steps without autograd: draw for a block, then one pass of the compiled core updates the tables.

    drawn = source.draw(query, k, view);  update the tables;  source.learn(query, drawn, cost)

It means what train/engines/autograd.py means, but for how much an update is. A query is built only for who looks at
it: sources whose q is one fixed distribution are asked for bare ids. Sub-classes say what a block is: windows of text
(train/engines/compiled_windows.py), triples (train/engines/compiled_triples.py), pairs of concepts
(train/engines/compiled_pairs.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import Negatives, Query
from embtrain.kernels.core.tables import NegativeBatch
from embtrain.losses.base import Loss
from embtrain.losses.nce import Nce
from embtrain.models.base import AbstractMethod, Model, pad_rows
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.static.base import StaticSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step, Told, heard
from embtrain.train.engines.false_negatives import KnownPositives, mark_false_negatives
from embtrain.train.optimizers import RowAdagrad

TOLD_ROWS = 1024  # rows at the beginning of a block that the log is told of


class Compiled:
    """The face of Step. What it cannot train is written in train/engines/choose.py."""

    #: Units of a draw by negatives.share; 0: each row has its own. Else it is negatives.block.
    WIDTHS: ClassVar[dict[str, int]]

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, answers: KnownPositives | None = None):
        self.model, self.source, self.loss, self.optimizers = model, source, loss, optimizers
        self.config, self.answers = config, answers
        self.step = Step(model, source, loss, optimizers, config, answers)  # scores what the log and a source are told
        self.view = self.step.view
        self.width = self.WIDTHS.get(source.config.share, source.config.block)
        self.has_frozen_table = isinstance(source, StaticSource) and source.config.replacement \
            and type(source).draw is StaticSource.draw
        self.threads = torch.get_num_threads()
        self.c = loss.c if isinstance(loss, Nce) else None
        pad_rows(model)

    @torch.no_grad()
    def __call__(self, block: Any, keep_costs: bool = False) -> Told:
        """Train on a block. `keep_costs`: tell what the log wants to know, of the first TOLD_ROWS rows."""
        n = len(block.target)
        if n == 0:
            return Told(torch.zeros(()), None, None, None, {})
        negatives, learns = self.source.config, self.source.learns
        query = (
            None
            if self.has_frozen_table and negatives.mask != "observed"
            else self._query(block, self.source.uses_model)
        )
        drawn = self._draw(block, query)
        if negatives.mask == "observed" or (learns and negatives.mask == "target"):
            assert query is not None
            drawn = mark_false_negatives(drawn, query, negatives.mask, self.answers)
        said = self._say(block, drawn) if keep_costs else None           # before the update, as a step scores
        alone = self.width <= (0 if self.source.learns_per_row else 1)           # a draw has one line of costs
        before = self._costs(self._query(block, True), drawn) if learns and not alone else None
        loss, cost = self._update(block, drawn, keep=learns and alone)
        told = {}
        if learns:
            assert query is not None
            cost = heard(self.source, before, drawn) if before is not None else cost
            told = self.source.learn(query, drawn, cast(Tensor, cost))
        asked, answered, costs = said or (None, None, None)
        return Told(torch.tensor(loss / n), asked, answered, costs, told)

    # -- what a block is ------------------------------------------------------------------------------------------

    def _query(self, block: Any, vectors: bool) -> Query:
        """What the model's `encode` would make of the block; the vectors only where somebody looks."""
        raise AbstractMethod(self, "_query")

    def _n_draws(self, block: Any) -> int:
        raise AbstractMethod(self, "_n_draws")

    def _group(self, block: Any) -> Tensor | None:
        """The draw of each row, (B,); None where each has its own."""
        raise AbstractMethod(self, "_group")

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[float, Tensor | None]:
        """Update in order; the summed loss, and the columns' costs (G, K) where they are kept."""
        raise AbstractMethod(self, "_update")

    def _first(self, block: Any) -> Any:
        """The beginning of a block, of about TOLD_ROWS rows."""
        return block.rows(slice(0, min(TOLD_ROWS, len(block))))

    # -- for sub-classes ------------------------------------------------------------------------------------------

    def _say(self, block: Any, drawn: Negatives) -> tuple[Query, Negatives, Tensor]:
        """Query, draws and costs of the first rows, as a step tells them."""
        query = self._query(self._first(block), True)
        group = drawn.draw_id if drawn.draw_id is not None else self._group(block)
        drawn = replace(drawn, draw_id=group, false_negatives=None).rows(slice(0, len(query)))
        drawn = mark_false_negatives(drawn, query, self.source.config.mask, self.answers)
        return query, drawn, self._costs(query, drawn)

    def _draw(self, block: Any, query: Query | None) -> Negatives:
        k, n = self.source.config.k, self._n_draws(block)
        if self.has_frozen_table:
            source = cast(StaticSource, self.source)
            weight, mass = source.weight_and_mass(k)
            return Negatives(source.draw_ids(n, k), draw_id=self._group(block) if query is not None else None,
                             weight=weight, total_weight=mass)
        assert query is not None
        drawn = self.source.draw(query, k, self.view)
        if drawn.ids is None or len(drawn.ids) != n:
            raise UsageError(f"train.engine: fused wants ids of {n} draws under negatives.share: "
                             f"{self.source.config.share}, and {self.source.name} drew otherwise; use step")
        return drawn

    def _columns(self, drawn: Negatives) -> NegativeBatch:
        ids = cast(Tensor, drawn.ids)
        mask, corrects = self.source.config.mask, self.loss.needs_q != "no"
        mass = drawn.total_weight
        if mass is not None and mass.numel() != 1:
            raise UsageError(f"train.engine: fused wants one noise mass for all pairs, and {self.source.name} has one "
                             "for each; use step")
        fixed = cast(StaticSource, self.source).log_q.numpy() if self.has_frozen_table and corrects else None
        log_q = None if drawn.log_q is None or not corrects else drawn.log_q.float().expand(ids.shape).contiguous()
        weight = drawn.weight
        if weight is not None:
            one = weight.ndim < 2 or len(weight) == 1
            weight = weight.float().reshape(-1, weight.shape[-1]).expand(1 if one else len(ids), ids.shape[1])
            weight = weight[0].contiguous() if one else weight.contiguous()
        target = None if drawn.log_q_target is None or not corrects else drawn.log_q_target.float().contiguous()
        right = drawn.false_negatives  # already with the targets, where somebody asked
        return NegativeBatch(ids.contiguous().numpy(), self.width, _array(log_q), fixed, _array(target), _array(weight),
                       float(drawn.k if mass is None else mass), mask == "target" and right is None,
                       None if right is None else right.contiguous().numpy())

    def _accumulator(self, table: Tensor) -> np.ndarray | None:
        optimizer = self.optimizers[0]
        return optimizer.accumulator(table).numpy() if isinstance(optimizer, RowAdagrad) else None

    def _costs(self, query: Query, drawn: Negatives) -> Tensor:
        """The columns' costs of each row (B, K) by the tables as they stand."""
        scored = self.step.score(query, replace(drawn, false_negatives=None))
        cost = self.loss.negative(scored)
        return cost if scored.row is None else cost[scored.row]


def _array(x: Tensor | None) -> np.ndarray | None:
    return None if x is None else x.numpy()
