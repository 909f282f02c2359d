"""Arguments of the kernels of skip-gram and triples: their rows and loss specs. See also core/tables.py."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np


class Windows(NamedTuple):
    """C windows of P pairs in total: a centre word, and a target for each pair."""

    centre: np.ndarray  # (C,) int64  a row of u, or a word of RowPool
    start: np.ndarray   # (C+1,) int64  window w has the pairs start[w] .. start[w+1], at least one
    target: np.ndarray  # (P,) int64  the context word of the pair, a row of v


class RowPool(NamedTuple):
    """The rows of u that the vector of each of N words is pooled from, at least one; a row may occur twice.

    The vector is their sum, or their mean. Under the mean each row receives the gradient of the mean undivided.
    """

    start: np.ndarray  # (N+1,) int64  word i has the rows row[start[i]] .. row[start[i + 1] - 1]
    row: np.ndarray    # (R,) int64
    mean: bool


class SkipGramLossSpec(NamedTuple):
    loss: Literal["logistic", "nce", "sampled_softmax", "margin", "gbce", "alpha_nce"]
    margin: float = 1.0            # η of the margin loss
    c: np.ndarray | None = None    # () or (n_contexts,) float32: NCE's log Z; None: 0
    ranking: bool = False          # the other form of sampled softmax, which corrects the target too
    positive_weight: float = 1.0   # β of gBCE
    alpha: float = 0.5             # α of α-NCE
    centered: bool = True          # its centred form


class TripleQueries(NamedTuple):
    """B rows of triples. Each predicts one entity of a triple from its relation and its other entity."""

    entity: np.ndarray    # (B,) int64  the known entity, a row of e
    relation: np.ndarray  # (B,) int64  a row of r
    slot: np.ndarray      # (B,) int64  0: the target is the tail; 1: it is the head, and the relation is read backwards
    target: np.ndarray    # (B,) int64  the entity to predict, a row of e
    weight: np.ndarray | None = None  # (B,) float32  factor of the row's loss; None: 1


class TripleLossSpec(NamedTuple):
    score: Literal["l1", "l2", "dot"]
    loss: Literal["logistic", "self_adversarial", "nce", "sampled_softmax", "margin", "gbce"]
    margin: float = 1.0            # η of the margin loss, γ of the self-adversarial one
    temperature: float = 1.0       # α of the self-adversarial loss
    c: np.ndarray | None = None    # () float32: NCE's log Z; None: 0
    ranking: bool = False          # the other form of sampled softmax, which corrects the target too
    # the set that updated entities are projected onto after a unit
    constraint: Literal["free", "sphere", "ball"] = "free"
    positive_weight: float = 1.0   # β of gBCE
