"""A model says what is asked and how well a candidate answers; it never sees a negative's origin.

`encode(batch) -> Query`, `score(query, candidates) -> (B, K)`, `table() -> (V, D)`. A higher score is always better.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common import registry
from embtrain.common.config import Section
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.kernels.core.tables import zeros


class ModelConfig(Section):
    """Keys that every embedding model has."""

    name: str = Field("skipgram", description="the model: a file of embtrain/models")
    dim: int = Field(100, ge=1, le=65_536, description="D, the number of dimensions")


class Model(nn.Module):
    """Base of every model. Sub-classes set `name` and `Config` and implement the three methods."""

    name: ClassVar[str]
    Config: ClassVar[type[ModelConfig]] = ModelConfig
    #: What it learns from: a file of embtrain/experiment/tasks.
    task: ClassVar[str] = "windows"
    #: How score depends on the vectors: samplers that need an inner product look here.
    geometry: Literal["dot", "cosine", "l1", "l2", "modulus", "projected", "order"] = "dot"
    #: What multiplies the cosine; 1 for every other geometry.
    tau: float = 1.0
    #: What `entails` is, in words.
    entailment: ClassVar[str] = "cosine"
    #: The table's rows have length 1 and stay as they are: what a source makes of them holds.
    has_frozen_table: bool = False

    def __init__(self, config: ModelConfig, world: ProblemSpec):
        super().__init__()
        self.config, self.world = config, world
        self.sparse = True  # gradients of looked-up rows; off for optimisers that need dense ones

    def encode(self, batch: Batch) -> Query:
        raise AbstractMethod(self, "encode")

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        """Scores (B, K) of ids (1, K) shared by all rows, ids (B, K), or vectors (B, K, D)."""
        raise AbstractMethod(self, "score")

    def table(self) -> Tensor:
        """The candidates' vectors, (V, D)."""
        raise AbstractMethod(self, "table")

    def relation_table(self, relation: int) -> tuple[str, Tensor]:
        """A geometry and a table (V, D) that score the questions of a relation, by the first D numbers of their
        vectors: those of every question, unless candidates depend on the relation."""
        return self.geometry, self.table()

    def penalty(self, batch: Batch) -> Tensor | None:
        """What the vectors of each example cost by themselves, (B,), with gradient; None: nothing."""
        return None

    def after_update(self, batch: Batch) -> None:
        """Called after the update on a batch: what the next one begins with, where examples follow one another."""

    def vectors(self, which: str = "input") -> Tensor:
        """What a user takes home, one row per entry of the vocabulary."""
        return self.table()

    def relations(self) -> Tensor | None:
        """The same of relations, (R, ·), where questions name one."""
        return None

    @staticmethod
    def entailment_score(u: Tensor, v: Tensor) -> Tensor:
        """How surely each u is a v, (n,), of vectors (n, D) as users take them home. The cosine, which says the same of
        both ways round, unless the model tells which of two stands above."""
        return nn.functional.cosine_similarity(u, v, dim=1)


class AbstractMethod(TypeError):
    """A sub-class lacks a method that its base promises."""

    def __init__(self, owner: object, method: str):
        super().__init__(f"{type(owner).__name__} does not implement {method}")


def pad_rows(model: Model) -> None:
    """Lay the tables out as the kernels are fastest on: rows of a multiple of 16 floats, aligned, 0 behind the D of a
    view.

    The parameters stay the same objects of shape (V, D), with the same values; whoever reads them notices nothing.
    """
    for p in model.parameters():
        if p.ndim == 2 and p.device.type == "cpu":
            n, d = p.shape
            padded = torch.from_numpy(zeros(n, -(-d // 16) * 16))
            padded[:, :d] = p.data
            p.data = padded[:, :d]


def names() -> list[str]:
    return list(registry.classes("embtrain.models", Model))


def find(name: str) -> type[Model]:
    """The model class of a name; UsageError that lists the names where there is none."""
    return registry.find("embtrain.models", Model, name, "model.name")
