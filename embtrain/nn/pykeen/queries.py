"""Positives of PyKEEN as queries (h, r, ?) or (?, r, t), and candidates as triples."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec, Query
from embtrain.data.triples.examples import HEAD, TripleExamples
from embtrain.data.triples.graph import TriplesConfig
from embtrain.nn.arguments import dense_tensor
from embtrain.nn.rows import check_ids

Side = Literal["bernoulli", "random"]  # values of `triples.slot` that open one side


def check_triples(name: str, triples: Tensor, n_entities: int | None = None, n_relations: int | None = None) -> None:
    """Raise UsageError unless triples are (..., 3) integers with ids below the limits. None: not checked."""
    dense_tensor(name, triples, "a tensor of int64")
    if triples.shape[-1:] != (3,) or triples.dtype not in (torch.int64, torch.int32):
        raise UsageError(f"{name}: has the shape {tuple(triples.shape)} and dtype {triples.dtype}; it should be (n, 3) "
                         "of int64")
    ids = triples.cpu()                                                    # the draws are made there
    for column, n, size_name in ((ids[..., ::2], n_entities, "num_entities"),
                                 (ids[..., 1], n_relations, "num_relations")):
        if n is not None:
            check_ids(name, column, n, size_name)


class PykeenQueries:
    """Chooses the open side of positives.

    triples: training triples (n, 3) int64. side: as `triples.slot`; the coins have a stream of their own for each seed.
    """

    def __init__(self, triples: np.ndarray, n_entities: int, n_relations: int, side: Side, seed: int):
        self.n_relations, self._seed = n_relations, seed
        self._examples = TripleExamples(triples, n_entities, n_relations, TriplesConfig(slot=side), seed)
        self.p_head = torch.from_numpy(self._examples.p_head)                                             # (R,)
        stream = np.random.SeedSequence([seed, *b"side"])  # independent of the draws of the source
        self.random = torch.Generator().manual_seed(int(stream.generate_state(1)[0]))

    def problem_spec(self) -> ProblemSpec:
        """Return the facts that a source receives: entities, their expected counts as targets, contexts and seed."""
        n = self._examples.n_entities
        return ProblemSpec(n, torch.from_numpy(self._examples.target_counts), seed=self._seed,
                           context_sizes=(n, 2 * self.n_relations))

    def queries(self, positives: Tensor) -> Query:
        """Choose the open side of each positive (B, 3) and return the queries. Their vectors have no columns."""
        coin = torch.rand(len(positives), generator=self.random, dtype=torch.float64, device="cpu")
        slot = (coin < self.p_head[positives[:, 1]]).long()
        batch = self._examples.batch(positives.numpy(), slot.numpy())
        context = batch.context(self.n_relations)
        query_id = torch.unique(context, dim=0, return_inverse=True)[1]
        no_vectors = torch.zeros(len(batch), 0, dtype=torch.float32, device="cpu")
        return Query(no_vectors, context, batch.target, batch.slot, query_id)

    def triples(self, query: Query, ids: Tensor) -> Tensor:
        """Return B queries with candidates (B, K) on their open sides: (B, K, 3)."""
        known, relation = (column.unsqueeze(1).expand_as(ids) for column in query.context.T)
        is_head = (query.slot == HEAD).unsqueeze(1)
        return torch.stack([torch.where(is_head, ids, known), relation % self.n_relations,
                            torch.where(is_head, known, ids)], 2)
