"""Skip-gram: predicts the words b in the window of the centre word a.

    s(a, b) = u_a · v_b                    ([nce_note] eq. 4; `similarity: dot`)
    s(a, b) = τ cos(u_a, v_b)              (`similarity: cosine`)

u: input table, one row per centre word; v: output table, one row per context word, trained or frozen
(models/output_table.py). Both can start from given vectors (models/words/start.py). With `subword`, u_a is pooled from
a row of the word and the rows of its character n-grams (models/words/subword.py).
Mikolov et al., Distributed Representations of Words and Phrases and their Compositionality, NIPS 2013.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from embtrain.common.errors import UsageError
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.models import tables
from embtrain.models.base import Model, ModelConfig
from embtrain.models.output_table import OutputTableConfig, initial_table, register_table
from embtrain.models.products import cosine_scores, dot_scores
from embtrain.models.words.subword import SubwordConfig, SubwordPool


class SkipGramConfig(ModelConfig):
    """Configuration keys of skip-gram."""

    similarity: Literal["dot", "cosine"] = Field("dot", description="inner product, or cosine scaled by tau")
    tau: float = Field(1.0, gt=0, le=10_000, description="inverse temperature of cosine")
    output_table: OutputTableConfig = Field(OutputTableConfig(), description="initialization of the output table v")
    freeze: Literal["none", "known", "all"] = Field(
        "none", description=(
            "rows of u that are not trained, with train.start: those of words that its vectors contain, or all"))
    subword: SubwordConfig | None = Field(
        None, description="rows of character n-grams that the vectors of words are pooled from; null: none")

    @model_validator(mode="after")
    def _can_freeze(self) -> Self:
        if self.subword is not None and self.freeze == "known":
            raise ValueError("freeze: known: other words train the n-grams of a frozen word; use none or all, or "
                             "subword: null")
        return self

    def n_rows(self, n_candidates: int) -> int:
        buckets = 0 if self.subword is None or isinstance(self.subword.buckets, str) else self.subword.buckets
        return n_candidates + buckets

    def n_rows_of_all(self, problem: ProblemSpec) -> int:
        return self.n_rows(problem.n_contexts or 0) + problem.n_candidates


class SkipGram(Model):
    """Skip-gram with two tables u, v (V, D), initialized as in word2vec: u ~ U(-1/2D, 1/2D), v = 0 (cosine: v like u).

    With subwords u has V + B rows: those of the words, then those of the n-grams, all ~ U(-1/D, 1/D).
    """

    name: ClassVar[str] = "skipgram"
    Config = SkipGramConfig
    config: SkipGramConfig
    v: Tensor
    frozen: Tensor | None  # (V,) bool  words without gradient; None: none

    def __init__(self, config: SkipGramConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if problem.n_contexts is None:
            raise UsageError(f"model.name: {self.name} needs contexts that are word ids, but this corpus has none; "
                             "choose another model or corpus")
        self.geometry = config.similarity
        self.tau = config.tau if config.similarity == "cosine" else 1.0
        generator = torch.Generator().manual_seed(problem.seed)
        def uniform(n: int) -> Tensor:
            return tables.symmetric(problem, n, config.dim, 0.5 / config.dim, generator)
        self.pool = None if config.subword is None else SubwordPool(config.subword, problem)
        self.unpadded_tables = frozenset() if self.pool is None else frozenset({"u"})
        self.u = nn.Parameter(uniform(problem.n_contexts) if self.pool is None
                              else self.pool.initial_table(config.dim, generator, problem))
        self.register_buffer("frozen", None if config.freeze == "none"  # models/words/start.py marks the rows
                             else torch.zeros(problem.n_contexts, dtype=torch.bool, device="cpu"))
        table = initial_table(config.output_table, problem, config.dim)
        if table is None:
            table = uniform(problem.n_candidates) if config.similarity == "cosine" \
                else tables.zeros(problem, problem.n_candidates, config.dim)
        else:
            table = tables.moved(problem, table)
        self.has_frozen_table = config.output_table.frozen
        register_table(self, "v", table, self.has_frozen_table)
        self.to(problem.device)

    def encode(self, batch: Batch) -> Query:
        centre, window = batch.centre, batch.window                    # type: ignore[attr-defined]
        words, group = torch.unique(centre, return_inverse=True)
        if self.pool is None:
            vector = nn.functional.embedding(centre, self.u, sparse=self.sparse)  # (B, D)
        else:
            vector = self.pool(self.u, words, self.sparse).index_select(0, group)
        if self.frozen is not None:
            vector = torch.where(self.frozen[centre].unsqueeze(1), vector.detach(), vector)
        return Query(vector, centre, batch.target, batch.slot, group, window)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        if self.config.similarity == "dot":
            return dot_scores(query.vector, self.v, candidates, self.sparse)
        return cosine_scores(query.vector, self.v, candidates, self.sparse, self.tau)

    def table(self) -> Tensor:
        return self.v

    def earlier_rows(self, earlier: Model, row: Tensor) -> dict[str, Tensor]:
        rows = super().earlier_rows(earlier, row)
        if self.pool is not None and isinstance(earlier, SkipGram) and earlier.pool is not None:
            rows["u"] = self.pool.earlier_rows(earlier.pool, row)
        return rows

    def vectors(self, which: str = "input") -> Tensor:
        u = self.u if self.pool is None else self.pool.vectors(self.u)
        return u + self.v if which == "sum" else u
