"""Link prediction examples from triples (h, r, t): predict the entity in the open slot.

    slot 0   (h, r, ?)   predict the tail from the head        context (h, r)
    slot 1   (?, r, t)   predict the head from the tail        context (t, r + R)

R relations give 2R directed relations. `triples.slot` chooses the open side of an example:

    both        each triple is two examples of an epoch
    random      one side, by a fair coin
    bernoulli   one side: the head with probability tph / (tph + hpt), where tph is the mean number of tails per head
                of the relation, hpt the mean number of heads per tail. The side with fewer positives is open more
                often, so a drawn candidate is more often a true negative
                (Wang et al., Knowledge Graph Embedding by Translating on Hyperplanes, AAAI 2014)

With `triples.reciprocal` half of the R relations are inverses: (?, r, t) becomes (t, r + R/2, ?) with slot 0.

Order and coins depend only on (seed, epoch) and the position, so training resumes at any (epoch, block).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from embtrain.common.types import Batch
from embtrain.data.known_pairs import KnownPairs, distinct
from embtrain.data.triples.example_weights import example_weights
from embtrain.data.triples.graph import TriplesConfig
from embtrain.kernels.reference import splitmix64

TAIL, HEAD = 0, 1       # Batch.slot: the open side
CHUNK = 1 << 16         # triples whose keys are computed at once
_ORDER, _SLOT = range(2)


@dataclass(frozen=True)
class TripleBatch(Batch):
    """A batch of link prediction examples: target is the entity on the open side (`slot`)."""

    entity: Tensor    # (B,) int64  the known entity
    relation: Tensor  # (B,) int64

    def context(self, n_relations: int) -> Tensor:
        """Return contexts (B, 2) int64: the known entity and the directed relation."""
        return torch.stack([self.entity, self.relation + n_relations * self.slot], 1)


class TripleExamples:
    """Training examples from triples (n, 3) int64."""

    def __init__(self, triples: np.ndarray, n_entities: int, n_relations: int, config: TriplesConfig, seed: int):
        self._triples, self._config, self._seed = triples, config, seed
        self._order: tuple[int, np.ndarray] | None = None
        self._lock = threading.Lock()
        self.n_entities, self.n_relations = n_entities, n_relations * (2 if config.reciprocal else 1)
        self.p_head = np.full(n_relations, 0.5)                                              # (R,)
        if config.slot == "bernoulli":
            tph, hpt = tails_and_heads_per_entity(triples, n_relations)
            self.p_head = tph / (tph + hpt)
        self._weights = None if config.weights == "none" else example_weights(triples, n_relations, config.weights,
                                                                              self.p_head)

    @property
    def examples_per_epoch(self) -> int:
        return len(self._triples) * (2 if self._config.slot == "both" else 1)

    @property
    def target_counts(self) -> np.ndarray:
        """Expected number of times each entity is a target in an epoch, (E,) float64."""
        head, relation, tail = self._triples.T
        p = np.ones(len(relation)) if self._config.slot == "both" else self.p_head[relation]
        q = p if self._config.slot == "both" else 1 - p
        return (np.bincount(head, weights=p, minlength=self.n_entities)
                + np.bincount(tail, weights=q, minlength=self.n_entities))

    def n_blocks(self, epoch: int, block: int) -> int:
        return -(-self.examples_per_epoch // block)

    def blocks(self, epoch: int, block: int, start: int = 0, shuffle: bool = True) -> Iterator[TripleBatch]:
        """Yield blocks of `block` examples, from block number `start` on."""
        n = self.examples_per_epoch
        for begin in range(start * block, n, block):
            rows = self._epoch(epoch)[begin:begin + block] if shuffle else np.arange(begin, min(begin + block, n))
            if self._config.slot == "both":
                rows, slot = rows >> 1, rows & 1
            else:
                toss = splitmix64(self._seed_of(epoch, _SLOT), rows) >> np.uint64(11)
                slot = (toss * 2.0 ** -53 < self.p_head[self._triples[rows, 1]]).astype(np.int64)
            batch = self.batch(self._triples[rows], slot)
            yield batch if self._weights is None else replace(batch, weight=torch.from_numpy(self._weights[rows, slot]))

    def batch(self, triples: np.ndarray, slot: np.ndarray) -> TripleBatch:
        """Make a batch from triples (n, 3) and the open side of each, slot (n,)."""
        head, relation, tail = triples.T
        if self._config.reciprocal:
            relation, open_slot = relation + self.n_relations // 2 * slot, np.zeros_like(slot)
        else:
            open_slot = slot
        columns = (np.where(slot == HEAD, head, tail), open_slot, np.where(slot == HEAD, tail, head), relation)
        return TripleBatch(*(torch.from_numpy(np.ascontiguousarray(x)) for x in columns))

    def both(self, triples: np.ndarray) -> TripleBatch:
        """Make two examples of each triple (n, 3), in turn: tail open, then head open."""
        return self.batch(np.repeat(triples, 2, axis=0), np.tile([TAIL, HEAD], len(triples)))

    def _epoch(self, epoch: int) -> np.ndarray:
        """Return the order of the examples in an epoch. Threads that read blocks do not compute it twice."""
        with self._lock:
            if self._order is None or self._order[0] != epoch:
                order = np.random.default_rng(self._seed_of(epoch, _ORDER)).permutation(self.examples_per_epoch)
                self._order = epoch, order
            return self._order[1]

    def _seed_of(self, epoch: int, use: int) -> int:
        return int(np.random.SeedSequence([self._seed, epoch, use]).generate_state(1, np.uint64)[0])


class KnownTriples(KnownPairs):
    """Known positives of both sides of triples; a context is (entity, directed relation)."""

    @classmethod
    def from_triples(cls, examples: TripleExamples, parts: Iterable[np.ndarray]) -> Self:
        """Collect the known positives of triples (n, 3), with the contexts that `examples` uses.

        Keys are computed in chunks and sorted in place: the intermediate arrays of all triples at once would take ten
        times the memory of the keys.
        """
        chunks = [part[begin:begin + CHUNK] for part in parts for begin in range(0, len(part), CHUNK)]
        empty = torch.zeros(0, 2, dtype=torch.int64)
        known = cls(empty, empty[:, 0], examples.n_entities, (examples.n_entities, 2 * examples.n_relations))
        keys, end = np.empty(2 * sum(map(len, chunks)), np.int64), 0
        for triples in chunks:
            batch, begin, end = examples.both(triples), end, end + 2 * len(triples)
            keys[begin:end] = (
                known.context_key(batch.context(examples.n_relations)) * examples.n_entities + batch.target
            )
        return cls.from_keys(torch.from_numpy(distinct(keys)), examples.n_entities, known.sizes)


def tails_and_heads_per_entity(triples: np.ndarray, n_relations: int) -> tuple[np.ndarray, np.ndarray]:
    """Return tph and hpt, (R,) each: triples of a relation / its distinct heads, and / its distinct tails. 1 for a
    relation without triples."""
    n = np.bincount(triples[:, 1], minlength=n_relations)
    heads, tails = (np.bincount(np.unique(triples[:, [1, side]], axis=0)[:, 0], minlength=n_relations)
                    for side in (0, 2))
    return tuple(np.where(n > 0, n / np.maximum(n_distinct, 1), 1.0) for n_distinct in (heads, tails))  # type: ignore[return-value]
