"""Order embeddings: a hypernym is at most its hyponyms in every coordinate.

    E(u, v) = ‖max(0, v − u)‖²        u the hyponym, v the hypernym; 0 if v ≤ u in every coordinate
    s = −E                            slot 0: predict the hypernym v of u      slot 1: predict the hyponym u of v

One table x of concepts in the positive orthant. With σ = 1 in slot 0 and −1 in slot 1, the known concept g and a
candidate c score −‖max(0, σ(x_c − x_g))‖². `orthant` selects how x ≥ 0 is kept: clamp sets negative coordinates to 0
after an update (as Vendrov et al.), abs reads |x|.

A hypernym at the origin is above every concept: all its energies and their gradients are 0, so negative pairs do not
move it. The first step of a row under row-Adagrad has the length lr √D, whatever its gradient. At a high rate it puts
the most frequent hypernyms at the origin in some runs. A rate that rises slowly (`train.warmup`) avoids that.

Vendrov, Kiros, Fidler and Urtasun, Order-Embeddings of Images and Language, ICLR 2016.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from embtrain.models import tables
from embtrain.models.base import ModelConfig
from embtrain.models.hierarchies.base import HierarchyModel
from embtrain.models.hierarchies.bounds import keep_columns


class OrderConfig(ModelConfig):
    """Configuration keys of order embeddings."""

    name: str = "order"
    dim: int = Field(50, ge=1, le=65_536, description="D, embedding dimension")
    orthant: Literal["clamp", "abs"] = Field(
        "clamp", description="constraint of the coordinates to values of at least 0")
    start: float = Field(0.1, gt=0, le=1e6, description="upper bound of the initial coordinates")


class Order(HierarchyModel):
    """Order embeddings: one table x (V, D), x ~ U(0, start)."""

    name: ClassVar[str] = "order"
    Config = OrderConfig
    geometry = "order"
    entailment: ClassVar[str] = "−E(u, v)"
    config: OrderConfig

    def start(self, generator: torch.Generator) -> Tensor:
        table = tables.zeros(self.problem, self.problem.n_candidates, self.config.dim)
        return tables.fill_uniform(table, generator, lambda x: x * self.config.start)

    def table(self) -> Tensor:
        return self.x.abs() if self.config.orthant == "abs" else self.x

    def rows(self, ids: Tensor) -> Tensor:
        rows = super().rows(ids)
        return rows.abs() if self.config.orthant == "abs" else rows

    def score_rows(self, h: Tensor, slot: Tensor, c: Tensor) -> Tensor:
        # σ instead of a copy of h and c for each pair
        sign = 1.0 - 2.0 * slot.to(h.dtype).unsqueeze(1)
        return _score(h * sign, sign, c)

    @staticmethod
    def entailment_score(u: Tensor, v: Tensor, config: ModelConfig) -> Tensor:
        return -(v - u).relu().square().sum(-1)

    def keep_bounds(self) -> None:
        if self.config.orthant == "clamp":
            keep_columns(self.x, self.x.grad, slice(None), 0.0, None)


def _score(h: Tensor, sign: Tensor, c: Tensor) -> Tensor:
    """Return −‖max(0, σc − h)‖² for h (B, D), σ (B, 1) and c (1|B, K, D): (B, K)."""
    return -(sign.unsqueeze(1) * c - h.unsqueeze(1)).relu().square().sum(2)
