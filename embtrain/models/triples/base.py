"""Base classes of knowledge graph models: a query is an entity and a relation, and every entity is a candidate.

    slot 0, predict the tail: q(h, r)      slot 1, predict the head: q(t, r⁻¹)      s(q, b), higher is better

One vector of r serves both slots; subclasses define r⁻¹. If the data contain inverses as relations of their own
(`triples.reciprocal`), there are twice as many relations and slot 1 does not occur.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.models import tables
from embtrain.models.base import Model, ModelConfig, rank_keys


class TripleConfig(ModelConfig):
    """Configuration keys of models with a table of entities and one of relations."""

    def n_rows_of_all(self, problem: ProblemSpec) -> int:
        return problem.n_candidates + (problem.context_sizes or (0, 0))[1] // 2


class TripleModel(Model):
    """Base of knowledge graph models: tables e (V, ·) and r (R, ·). Subclasses implement `query_vector` and `score`."""

    task: ClassVar[str] = "triples"
    e: nn.Parameter
    r: nn.Parameter

    def __init__(self, config: ModelConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if problem.context_sizes is None or len(problem.context_sizes) != 2:
            raise UsageError(f"model.name: {config.name} needs entities and relations, but this corpus has none; "
                             "choose another model or corpus")
        self.n_relations = problem.context_sizes[1] // 2                                    # R
        self.random = torch.Generator().manual_seed(problem.seed)

    def encode(self, batch: Batch) -> Query:
        context = self.context(batch)
        sign = (1 - 2 * batch.slot).unsqueeze(1)
        vector = self.query_vector(context[:, 0], batch.relation, sign)    # type: ignore[attr-defined]
        return Query(vector, context, batch.target, batch.slot, self.query_ids(context))

    def context(self, batch: Batch) -> Tensor:
        """Return the context (B, 2): the entity, and r, or R + r if the head is predicted."""
        relation = batch.relation + self.n_relations * batch.slot      # type: ignore[attr-defined]
        return torch.stack([batch.entity, relation], 1)                # type: ignore[attr-defined]

    def query_ids(self, context: Tensor) -> Tensor:
        """Return an id for each row (B,), equal for rows with the same query."""
        return rank_keys(context[:, 0] * (2 * self.n_relations) + context[:, 1])

    def query_vector(self, entity: Tensor, relation: Tensor, sign: Tensor) -> Tensor:
        """Return q (B, D) for ids (B,); sign (B, 1) is 1, or -1 if the relation is inverted."""
        raise AbstractMethod(self, "query_vector")

    def table(self) -> Tensor:
        return self.e

    def relations(self) -> Tensor:
        return self.r

    def uniform(self, rows: int, dim: int, span: float) -> Tensor:
        """Draw a table (rows, dim) from U(−span, span)."""
        return tables.symmetric(self.problem, rows, dim, span, self.random)

    def rows(self, ids: Tensor, table: Tensor) -> Tensor:
        """Look up rows of a table, (B, D).

        On a GPU the gradient of a table of at most B rows is dense, which saves the search for rows that repeat.
        """
        is_small = ids.is_cuda and len(table) <= len(ids)
        return nn.functional.embedding(ids, table, sparse=self.sparse and (self.always_sparse or not is_small))


class FactorConfig(TripleConfig):
    """Configuration keys of models whose scores are products."""

    penalty: float = Field(
        0.0, ge=0, description="λ of the regularizer λ Σ |x|^p over h, r and t of each example, so twice per triple "
                               "with triples.slot: both; 0: none")
    power: Literal[2, 3] = Field(3, description="p: 2 is L2, 3 the nuclear 3-norm N3")


class FactorModel(TripleModel):
    """Base of models with s = q · b, regularized by λ (‖h‖ₚᵖ + ‖r‖ₚᵖ + ‖t‖ₚᵖ) per example.

    With `triples.slot: both` a triple has two examples and is regularized twice. Lacroix, Usunier and Obozinski 2018.
    """

    config: FactorConfig

    def penalty(self, batch: Batch) -> Tensor | None:
        if self.config.penalty == 0:
            return None
        entity, relation = batch.entity, batch.relation                # type: ignore[attr-defined]
        parts = (self.rows(entity, self.e), self.rows(relation, self.r), self.rows(batch.target, self.e))
        powers = self.absolute_values(torch.cat(parts)).pow(self.config.power).sum(1)            # at once: (3 B,)
        return self.config.penalty * powers.view(3, -1).sum(0)

    def absolute_values(self, x: Tensor) -> Tensor:
        """Return the absolute values of the entries of vectors (B, D)."""
        return x.abs()


Entities = Literal["free", "sphere", "ball"]


@torch.no_grad()
def project_rows(table: Tensor, onto: Entities) -> None:
    """Scale rows to length 1 (`sphere`), or only those that are longer (`ball`), in place."""
    if onto == "free":
        return
    norm = torch.linalg.vector_norm(table, dim=1, keepdim=True)
    table.div_(norm.clamp(min=1.0) if onto == "ball" else norm.clamp(min=1e-12))
