"""Order embeddings: a hypernym is at most its hyponyms in every coordinate.

    E(u, v) = ‖max(0, v − u)‖²        u the hyponym, v the hypernym; 0 if v ≤ u in every coordinate
    s = −E                            slot 0: predict the hypernym v of u      slot 1: predict the hyponym u of v

One table x of concepts in the positive orthant. With σ = 1 in slot 0 and −1 in slot 1, the known concept g and a
candidate c score −‖max(0, σ(x_c − x_g))‖². `orthant` selects how x ≥ 0 is kept: clamp sets negative coordinates to 0
after an update (as Vendrov et al.), abs reads |x|.

Vendrov, Kiros, Fidler and Urtasun, Order-Embeddings of Images and Language, ICLR 2016.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.models.base import Model, ModelConfig
from embtrain.models.distances import evaluate_in_pieces

# elements of an array of differences (B, K, D): it fits the cache, which is seven times as fast as memory
MAX_DIFFERENCES = 1 << 18


class OrderConfig(ModelConfig):
    """Configuration keys of order embeddings."""

    name: str = "order"
    dim: int = Field(50, ge=1, le=65_536, description="D, embedding dimension")
    orthant: Literal["clamp", "abs"] = Field(
        "clamp", description="constraint of the coordinates to values of at least 0")
    start: float = Field(0.1, gt=0, le=1e6, description="upper bound of the initial coordinates")


class Order(Model):
    """Order embeddings: one table x (V, D), x ~ U(0, start)."""

    name: ClassVar[str] = "order"
    Config = OrderConfig
    task: ClassVar[str] = "pairs"
    geometry = "order"
    entailment: ClassVar[str] = "−E(u, v)"
    config: OrderConfig

    def __init__(self, config: OrderConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if problem.context_sizes is None or len(problem.context_sizes) != 2:
            raise UsageError("model.name: order needs pairs of concepts, but this corpus has none; choose another "
                             "model or corpus")
        generator = torch.Generator().manual_seed(problem.seed)
        self.x = nn.Parameter(torch.rand(problem.n_candidates, config.dim, generator=generator) * config.start)
        self.to(problem.device)

    def encode(self, batch: Batch) -> Query:
        return Query(self._rows(batch.concept), *self.query_fields(batch))             # type: ignore[attr-defined]

    def query_fields(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the fields of a query after its vector: context (B, 2), target, slot, query_id."""
        concept, slot = batch.concept, batch.slot                                  # type: ignore[attr-defined]
        group = torch.unique(2 * concept + slot, return_inverse=True)[1]
        return torch.stack([concept, slot], 1), batch.target, slot, group

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        h = query.vector * (sign := 1.0 - 2.0 * query.slot.to(query.vector.dtype).unsqueeze(1))          # σ x_g, (B, D)
        if candidates.is_floating_point():
            return _score(h, sign, candidates)
        step = max(1, MAX_DIFFERENCES // max(1, h.numel()))
        if candidates.shape[1] <= step:
            return self._score_ids(h, sign, candidates)
        # The differences to all candidates are too many to keep at once.
        return evaluate_in_pieces(self._score_ids, ((h, sign, piece) for piece in candidates.split(step, 1)), 1,
                         candidates.shape[1])

    def table(self) -> Tensor:
        return self.x.abs() if self.config.orthant == "abs" else self.x

    @staticmethod
    def entailment_score(u: Tensor, v: Tensor) -> Tensor:
        return _score(u, u.new_ones(len(u), 1), v.unsqueeze(1)).squeeze(1)

    def after_update(self, batch: Batch) -> None:
        if self.config.orthant == "clamp":
            with torch.no_grad():
                self.x.clamp_(min=0)

    def _score_ids(self, h: Tensor, sign: Tensor, ids: Tensor) -> Tensor:
        return _score(h, sign, self._rows(ids))

    def _rows(self, ids: Tensor) -> Tensor:
        rows = nn.functional.embedding(ids, self.x, sparse=self.sparse)
        return rows.abs() if self.config.orthant == "abs" else rows


def _score(h: Tensor, sign: Tensor, c: Tensor) -> Tensor:
    """Return −‖max(0, σc − h)‖² for h (B, D), σ (B, 1) and c (1|B, K, D): (B, K)."""
    return -(sign.unsqueeze(1) * c - h.unsqueeze(1)).relu().square().sum(2)
