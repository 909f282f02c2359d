"""Arguments of the kernels that update pairs of concepts: rows, loss specs, and the C struct of both kernels."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from embtrain.kernels.core.binding import address, check_array, fields
from embtrain.kernels.core.tables import NegativeBatch, Table, describe_out_of_range, expect_negatives


class PairRows(NamedTuple):
    """B rows of a hierarchy. Each predicts one end of a pair (hyponym, hypernym) from the other end."""

    concept: np.ndarray  # (B,) int64  g, the end that is known: a row of the table
    target: np.ndarray   # (B,) int64  t, the end to predict: a row of the same table
    slot: np.ndarray     # (B,) int64  0: the target is a hypernym of the concept; 1: it is a hyponym


class OrderLossSpec(NamedTuple):
    """A loss of order embeddings, over energies E of the target t and of the negatives j with weights w_j.

    order (absolute hinge): E_t + Σ_j w_j max(0, α − E_j); margin (pairwise hinge): Σ_j w_j max(0, η + E_t − E_j).
    """

    loss: Literal["order", "margin"]
    margin: float                     # α of `order`, η of `margin`
    abs: bool = False                 # constraint of the coordinates to x ≥ 0: True: read |x|; False: clip at 0


class HyperbolicSpace(NamedTuple):
    """A score of pairs of points, and the bounds of the points: of ‖x‖ in the ball, of log h in the half-space."""

    score: Literal["poincare", "cone", "umbral", "penumbral"]
    size: float          # cone: K; umbral: the radius r; penumbral: the height H of the light; poincare: not read
    low: float
    high: float


class HyperbolicLossSpec(NamedTuple):
    """A loss of points, over scores s of the target t and of the negatives j with weights w_j.

    hinged_softmax   log(1 + Σ_j w_j exp(max(0, α + s_j) + max(0, −s_t)))
    order            max(0, −s_t) + Σ_j w_j max(0, α + s_j)
    sampled_softmax  log(1 + Σ_j w_j exp(s_j − log(M q_j) − s_t)),  M: total weight
    """

    loss: Literal["hinged_softmax", "order", "sampled_softmax"]
    margin: float = 0.0      # α
    ranking: bool = False    # sampled softmax with a corrected target; not supported


#: Fields of struct PairTask (source/training/pairs.h), with which the structs of both kernels begin.
PAIR_FIELDS = fields("x acc concept target slot ids weight false_negatives scores",
                     "n stride dim n_rows n_draws k share weight_stride n_false_negatives mask_target")


def pair_values(table: Table, rows: PairRows, negatives: NegativeBatch, scores: np.ndarray | None) -> list[Any]:
    """Return the values of PAIR_FIELDS. They are valid as long as the arrays."""
    arrays = (table.x, table.acc, *rows, negatives.ids, negatives.weight, negatives.false_negatives, scores)
    return [*map(address, arrays), len(table.x), table.x.strides[0] // table.x.itemsize, table.x.shape[1],
            len(rows.concept), *negatives.numbers, negatives.mask_target]


def expect_pairs(rows: PairRows, negatives: NegativeBatch, n: int) -> None:
    """Raise ValueError unless shapes and types of rows and negatives fit a table of n rows."""
    for name, ids in zip(PairRows._fields, rows, strict=True):
        check_array(name, ids, np.int64, (len(rows.concept),))
    if negatives.share < 1:
        raise ValueError(f"negatives: share >= 1 expected, got {negatives.share}")
    expect_negatives(negatives, len(rows.concept), len(rows.concept), n)


def describe_pairs_out_of_range(n: int, rows: PairRows, negatives: NegativeBatch) -> str:
    """Describe the first id that is out of range; empty if there is none."""
    false_negatives, k = negatives.false_negatives, negatives.ids.shape[1]
    problem = describe_out_of_range({"concept": (rows.concept, n), "target": (rows.target, n), "slot": (rows.slot, 2),
                                     "ids": (negatives.ids, n)}, negatives, len(rows.concept))
    if not problem and false_negatives is not None and (np.diff(false_negatives[0] * k + false_negatives[1]) < 1).any():
        return "false_negatives: each (row, column) must occur once, in ascending order"
    return problem
