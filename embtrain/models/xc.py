"""Extreme classification: predicts the labels, of n, of a document.

    h = W x                       x: the document's v features, mostly 0; W (v, D)
    s(x, i) = τ cos(h, c_i)       (`similarity: cosine`: h and the c_i are unit vectors; Rawat et al. 2019, § 4.1)
    s(x, i) = h · c_i             (`similarity: dot`: both unconstrained)

Under cosine the length of x does not matter. A document without features has h = 0 and equal scores for all labels.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.models import tables
from embtrain.models.base import Model, ModelConfig
from embtrain.models.products import cosine_scores, dot_scores


class XCConfig(ModelConfig):
    """Configuration keys of the extreme classification model."""

    name: str = "xc"
    dim: int = Field(128, ge=1, le=65_536, description="D, embedding dimension")
    similarity: Literal["cosine", "dot"] = Field("cosine", description="inner product, or cosine scaled by tau")
    tau: float = Field(11.1, gt=0, le=10_000, description="inverse temperature of cosine; 1/0.3² in the paper")
    updates_rows: ClassVar[bool] = True

    def n_rows_of_all(self, problem: ProblemSpec) -> int:
        return problem.n_candidates + (problem.n_features or 0)


class XC(Model):
    """Linear model of extreme classification: W ~ N(0, 1/D); c the same under cosine, 0 under dot."""

    name: ClassVar[str] = "xc"
    Config = XCConfig
    task: ClassVar[str] = "labels"
    config: XCConfig

    def __init__(self, config: XCConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if problem.n_features is None:
            raise UsageError("model.name: xc needs documents with features, but this corpus has none; choose another "
                             "model or corpus")
        self.geometry = config.similarity
        self.tau = config.tau if config.similarity == "cosine" else 1.0
        generator = torch.Generator().manual_seed(problem.seed)
        def normal(n: int) -> Tensor:
            return tables.normal(problem, n, config.dim, config.dim**-0.5, generator)
        self.w = nn.Parameter(normal(problem.n_features))
        self.c = nn.Parameter(normal(problem.n_candidates) if config.similarity == "cosine"
                              else tables.zeros(problem, problem.n_candidates, config.dim))
        self.to(problem.device)

    def encode(self, batch: Batch) -> Query:
        document, features = batch.document, batch.features            # type: ignore[attr-defined]
        documents, query_id = torch.unique(document, return_inverse=True)        # (Q,), (B,)
        x, device = features.rows(documents.cpu().numpy()), self.w.device
        h = nn.functional.embedding_bag(                               # (Q, D)  Σ_f x_f W_f
            torch.from_numpy(x.index).long().to(device), self.w, torch.from_numpy(x.start[:-1]).to(device), mode="sum",
            per_sample_weights=torch.from_numpy(x.value).to(device), sparse=self.sparse)  # Csr.value: never None here
        if self.config.similarity == "cosine":
            h = nn.functional.normalize(h, dim=1)
        return Query(h[query_id], document, batch.target, batch.slot, query_id, batch.window)  # type: ignore[attr-defined]

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        if self.config.similarity == "dot":
            return dot_scores(query.vector, self.c, candidates, self.sparse)
        return cosine_scores(query.vector, self.c, candidates, self.sparse, self.config.tau)

    def table(self) -> Tensor:
        return self.c
