"""Scores of a PyKEEN model for a source, in evaluation mode and without gradient."""

from __future__ import annotations

from typing import Any

import torch
from pykeen.nn.message_passing import RGCNRepresentation
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import Query
from embtrain.nn.pykeen.queries import PykeenQueries

MAX_TRIPLES_SCORED = 1 << 16  # triples in one call of the model, so that large pools fit in memory


class Connection:
    """A training loop, and the sampler that drew its current batch."""

    def __init__(self, training_loop: Any):
        self.training_loop = training_loop
        self.sampler: Any = None


class PykeenView:
    """View of the model that a training loop trains.

    All models of PyKEEN score triples, but they have no vectors of queries and candidates in common. A source that
    reads these vectors gets a UsageError.
    """

    tau, has_frozen_table = 1.0, False

    def __init__(self, name: str, n_candidates: int, queries: PykeenQueries, connection: Connection | None):
        self._name, self.n_candidates, self._queries, self._connection = name, n_candidates, queries, connection

    @property
    def geometry(self) -> str:
        raise self._no_vectors()

    def table(self) -> Tensor:
        raise self._no_vectors()

    def _no_vectors(self) -> UsageError:
        return UsageError(f"negative_sampler: {self._name}: reads vectors of candidates, but PyKEEN's models have in "
                          "common only the scores of triples; choose another sampler")

    @torch.no_grad()
    def score(self, query: Query, candidates: Tensor) -> Tensor:
        """Score candidates (1, K) or (B, K) of B queries: (B, K) float32 on the CPU."""
        assert self._connection is not None
        loop = self._connection.training_loop
        model, was_training = loop.model, loop.model.training
        ids = candidates.expand(len(query), -1)
        triples = self._queries.triples(query, ids).view(-1, 3)
        model.eval()
        scores = [model.score_hrt(part.to(model.device), mode=loop.mode) for part in triples.split(MAX_TRIPLES_SCORED)]
        for module in model.modules():
            if isinstance(module, RGCNRepresentation):
                module.enriched_embeddings = None  # a cache without gradient, which training would use
        model.train(was_training)
        return torch.cat(scores).view(ids.shape).float().cpu()
