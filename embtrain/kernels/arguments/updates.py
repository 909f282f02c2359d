"""Arguments of the kernels that update embedding tables: their rows and loss specs. See also core/tables.py."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np


class Windows(NamedTuple):
    centre: np.ndarray  # (C,) int64
    start: np.ndarray   # (C+1,) int64  window w has the pairs start[w] .. start[w+1], at least one
    target: np.ndarray  # (P,) int64


class SkipGramLossSpec(NamedTuple):
    loss: Literal["logistic", "nce", "sampled_softmax", "margin"]
    margin: float = 1.0            # η of the margin loss
    c: np.ndarray | None = None    # () or (n_contexts,) float32: NCE's log Z; None: 0
    ranking: bool = False          # the other form of sampled softmax, which corrects the target too


class TripleQueries(NamedTuple):
    """The rows: the given entity, the relation, the open side, and the target."""

    entity: np.ndarray    # (B,) int64
    relation: np.ndarray  # (B,) int64  a row of r
    slot: np.ndarray      # (B,) int64  0, or 1 if the relation is read backwards
    target: np.ndarray    # (B,) int64


class TripleLossSpec(NamedTuple):
    score: Literal["l1", "l2", "dot"]
    loss: Literal["logistic", "self_adversarial", "nce", "sampled_softmax", "margin"]
    margin: float = 1.0            # η of the margin loss, γ of the self-adversarial one
    temperature: float = 1.0       # α of the self-adversarial loss
    c: np.ndarray | None = None    # () float32: NCE's log Z; None: 0
    ranking: bool = False          # the other form of sampled softmax, which corrects the target too
    # the set that updated entities are projected onto after a unit
    constraint: Literal["free", "sphere", "ball"] = "free"


class OrderRows(NamedTuple):
    given: np.ndarray   # (B,) int64
    target: np.ndarray  # (B,) int64
    slot: np.ndarray    # (B,) int64: 0 or 1


class OrderLossSpec(NamedTuple):
    loss: Literal["order", "margin"]
    margin: float                     # α, or η
    abs: bool = False                 # keep the orthant by reading |x|; else by clipping at 0
