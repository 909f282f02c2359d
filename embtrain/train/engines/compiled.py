"""Training steps without autograd: draw for a block, then update the tables in one pass of the compiled core.

    drawn = source.draw(query, k, view);  update the tables;  source.learn(query, drawn, cost)

Equivalent to train/engines/autograd.py, except for how many examples one update covers. A full Query is built only if
the source uses it; static sources return ids alone. Subclasses define what a block is: windows of text
(compiled_windows.py, compiled_contexts.py), triples (compiled_triples.py) or pairs of concepts (compiled_pairs.py); on
a GPU those of device/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common.config.foreign_classes import AbstractMethod, described
from embtrain.common.errors import UsageError
from embtrain.common.types import Negatives, Query
from embtrain.kernels.core.tables import NegativeBatch, Table
from embtrain.losses.base import Loss
from embtrain.losses.gbce import Gbce
from embtrain.losses.nce import Nce
from embtrain.models.base import Model, pad_rows
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.static.base import StaticSource
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import Step
from embtrain.train.engines.base import Engine, StepResult
from embtrain.train.engines.draws import costs_for_source
from embtrain.train.engines.false_negatives import KnownPositives, mark_false_negatives
from embtrain.train.optimizers import RowAdagrad

MAX_LOGGED_ROWS = 1024  # rows at the start of a block that are sampled for the log


class DrawTerms(NamedTuple):
    """What the update reads of G draws of K negatives, besides their ids. Absent fields are None."""

    log_q: Tensor | None         # (G, K) float32, or
    log_q_table: Tensor | None   # (V,) float32
    log_q_target: Tensor | None  # (B,) float32
    weight: Tensor | None        # (K,) or (G, K) float32
    total_weight: float
    mask_target: bool            # the update masks negatives that equal the target


class CompiledStep(Engine):
    """Base of the compiled steps, one subclass for each kind of examples. train/engines/choose.py lists its limits."""

    name = "fused"
    default_block_size = 32_768
    #: Tasks whose models the subclass trains, and the kind of device that it runs on.
    tasks: ClassVar[tuple[str, ...]] = ()
    device: ClassVar[str] = "cpu"
    #: Losses that read the weights of the negatives, but not their sum M. Rows may then have different M.
    losses_of_weights: ClassVar[tuple[str, ...]] = ()
    #: Units that share a draw, per value of negatives.share_draws_by; 0: one draw per row. Others:
    #: negatives.share_size.
    UNITS_PER_DRAW: ClassVar[dict[str, int]]

    def __init__(self, model: Model, source: NegativeSource, loss: Loss, optimizers: list[torch.optim.Optimizer],
                 config: TrainConfig, known_positives: KnownPositives | None = None):
        super().__init__(model, source, loss, optimizers, config, known_positives)
        self.step = Step(
            model, source, loss, optimizers, config, known_positives
        )  # scores for the log and for learning sources
        self.view = self.step.view
        self.units_per_draw = self.UNITS_PER_DRAW.get(source.config.share_draws_by, source.config.share_size)
        self.static_source = draws_alone(source)
        self.threads = torch.get_num_threads()
        self.c = loss.c if isinstance(loss, Nce) else None
        if model.problem.new_table is None:  # tables in files have padded rows from the start
            pad_rows(model)

    @torch.no_grad()
    def __call__(self, block: Any, keep_costs: bool = False) -> StepResult:
        """Train on a block. `keep_costs` also returns query, draws and costs of its first MAX_LOGGED_ROWS rows."""
        n = len(block.target)
        if n == 0:
            return StepResult(torch.zeros(()), None, None, None, {})
        block = self._placed(block)
        negatives, learns = self.source.config, self.source.traits.learns
        query = (
            None
            if self.static_source and negatives.filter != "observed"
            else self._query(block, self.source.traits.uses_model)
        )
        drawn = self._draw(block, query)
        if negatives.filter == "observed" or (learns and negatives.filter == "target"):
            assert query is not None
            drawn = self._mark(drawn, query)
        sample = self._log_sample(block, drawn) if keep_costs else None           # before the update, as in Step
        # each draw has one row of costs
        costs_from_update = self.units_per_draw <= (0 if self.source.traits.learns_per_row else 1)
        costs_before = self._costs(self._query(block, True), drawn) if learns and not costs_from_update else None
        loss, cost = self._update(block, drawn, keep=learns and costs_from_update)
        source_metrics = {}
        if learns:
            assert query is not None
            cost = costs_for_source(self.source, costs_before, drawn) if costs_before is not None else cost
            source_metrics = self.source.learn(query, drawn, cast(Tensor, cost))
        sample_query, sample_drawn, sample_costs = sample or (None, None, None)
        mean = torch.as_tensor(loss / n, dtype=torch.float32)
        return StepResult(mean, sample_query, sample_drawn, sample_costs, source_metrics)

    @classmethod
    def for_task(cls, task: str, device: str) -> type[Engine]:
        return next(engine for engine in _with_subclasses(cls) if task in engine.tasks and engine.device == device)

    # -- for subclasses to define ----------------------------------------------------------------------------------

    def _query(self, block: Any, vectors: bool) -> Query:
        """Same as `model.encode(block)`, detached; the vectors are filled in only if `vectors` is set."""
        raise AbstractMethod(self, "_query")

    def _n_draws(self, block: Any) -> int:
        """Number of draws G that the block needs."""
        raise AbstractMethod(self, "_n_draws")

    def _group(self, block: Any) -> Tensor | None:
        """The draw of each row, (B,); None if each row has its own."""
        raise AbstractMethod(self, "_group")

    def _update(self, block: Any, drawn: Negatives, keep: bool) -> tuple[float | Tensor, Tensor | None]:
        """Update in order. Returns the summed loss and, if `keep`, the costs of the negatives (G, K)."""
        raise AbstractMethod(self, "_update")

    def _placed(self, block: Any) -> Any:
        """The block on the device of the tables."""
        return block

    def _leading_rows(self, block: Any) -> Any:
        """The beginning of a block, about MAX_LOGGED_ROWS rows."""
        return block.rows(slice(0, min(MAX_LOGGED_ROWS, len(block))))

    # -- shared by the subclasses ---------------------------------------------------------------------------------

    def _log_sample(self, block: Any, drawn: Negatives) -> tuple[Query, Negatives, Tensor]:
        """Query, draws and costs of the first rows, in the form that `Step` returns them."""
        leading = self._leading_rows(block)
        query = self._query(leading, True)
        group = drawn.draw_id if drawn.draw_id is not None else self._group(leading)
        drawn = replace(drawn, draw_id=group, false_negatives=None).rows(slice(0, len(query)))
        drawn = self._mark(drawn, query)
        return query, drawn, self._costs(query, drawn)

    def _draw(self, block: Any, query: Query | None) -> Negatives:
        """Draw for a block. UsageError if the source did not draw ids in the layout of negatives.share_draws_by."""
        k, n = self.source.config.k, self._n_draws(block)
        if self.static_source:
            source = cast(StaticSource, self.source)
            weight, total = source.weight_and_total(k)
            return Negatives(source.draw_ids(n, k), draw_id=self._group(block) if query is not None else None,
                             weight=weight, total_weight=total)
        assert query is not None
        drawn = self.source.draw(query, k, self.view)
        if drawn.ids is None or len(drawn.ids) != n:
            raise UsageError(f"train.engine: fused needs ids of {n} draws under negatives.share_draws_by: "
                             f"{self.source.config.share_draws_by}, but {described(self.source)} drew differently; "
                             "set train.engine: autograd")
        return drawn

    def _mark(self, drawn: Negatives, query: Query) -> Negatives:
        """The draw with its false negatives under negatives.filter."""
        return mark_false_negatives(drawn, query, self.source.config.filter, self.known_positives)

    def _draw_terms(self, drawn: Negatives) -> DrawTerms:
        """What the update reads of a draw. UsageError if the total weight differs between pairs, or q is missing."""
        ids = cast(Tensor, drawn.ids)
        corrects = self.loss.traits.needs_q != "no"
        total = None if self.loss.name in self.losses_of_weights else drawn.total_weight
        if total is not None and total.numel() != 1:
            raise UsageError("train.engine: fused needs one total weight for all pairs, but "
                             f"{described(self.source)} has one for each; set train.engine: autograd")
        if not self.static_source:
            self.loss.require_q(drawn.log_q, drawn.log_q_target)
        if self.static_source:       # without reading the tensor, which may be on a GPU
            total_weight = float(np.float32(self.source.config.total_weight or drawn.k))
        else:
            total_weight = float(drawn.k if total is None else total)
        log_q = None if drawn.log_q is None or not corrects else drawn.log_q.float().expand(ids.shape).contiguous()
        weight = drawn.weight
        if weight is not None:
            is_shared = weight.ndim < 2 or len(weight) == 1
            weight = weight.float().reshape(-1, weight.shape[-1]).expand(1 if is_shared else len(ids), ids.shape[1])
            weight = weight[0].contiguous() if is_shared else weight.contiguous()
        log_q_target = None if drawn.log_q_target is None or not corrects else drawn.log_q_target.float().contiguous()
        # false negatives include the targets if they were computed
        return DrawTerms(log_q, cast(StaticSource, self.source).log_q if self.static_source and corrects else None,
                         log_q_target, weight, total_weight,
                         self.source.config.filter == "target" and drawn.false_negatives is None)

    def _columns(self, drawn: Negatives) -> NegativeBatch:
        """The negatives in the form of the compiled core."""
        log_q, log_q_table, log_q_target, weight, total_weight, mask_target = self._draw_terms(drawn)
        false_negatives = drawn.false_negatives
        return NegativeBatch(
            cast(Tensor, drawn.ids).contiguous().numpy(),
            self.units_per_draw,
            _array(log_q),
            _array(log_q_table),
            _array(log_q_target),
            _array(weight),
            total_weight,
            mask_target,
            None if false_negatives is None else false_negatives.contiguous().numpy(),
        )

    def _positive_weight(self, total_weight: float) -> float:
        """β of gBCE for the total weight of a draw; 1 for other losses."""
        return self.loss.positive_weight(total_weight) if isinstance(self.loss, Gbce) else 1.0

    def _accumulator(self, table: Tensor) -> Tensor | None:
        """The accumulator (n,) of row-Adagrad for a table; None for SGD."""
        optimizer = self.optimizers[0]
        return optimizer.accumulator(table) if isinstance(optimizer, RowAdagrad) else None

    def _table(self, p: Tensor) -> Table:
        """A table in the form of the compiled core."""
        return Table(p.detach().numpy(), _array(self._accumulator(p)))

    def _costs(self, query: Query, drawn: Negatives) -> Tensor:
        """Costs of the negatives of each row, (B, K), with the current tables."""
        scored = self.step.score(query, replace(drawn, false_negatives=None))
        cost = self.loss.negative(scored)
        return cost if scored.row is None else cost[scored.row]


def draws_alone(source: NegativeSource) -> bool:
    """Whether a source draws ids without a query or the model."""
    return isinstance(source, StaticSource) and source.config.replacement and type(source).draw is StaticSource.draw


def _with_subclasses(engine: type[CompiledStep]) -> Iterator[type[CompiledStep]]:
    yield engine
    for subclass in engine.__subclasses__():
        yield from _with_subclasses(subclass)


def _array(x: Tensor | None) -> np.ndarray | None:
    return None if x is None else x.numpy()
