"""Weights of training examples that let frequent queries count less: subsampling for graphs.

    triple   w = 1 / √(n_hr + n_rt)      of both examples of a triple (h, r, t)   [sun2019], [kamigaito2022] "Base"
    query    w = 1 / √n_hr  if the tail is predicted, 1 / √n_rt  if the head is   [kamigaito2022] "Uniq"

n_hr is 3 plus the number of training triples with head h and relation r, n_rt the same for relation r and tail t; the
3 is that of RotatE's released code. Weights are scaled to a mean of 1 over an epoch, so that the learning rate keeps
its meaning. The released code divides by their sum in each batch instead, which makes them depend on the batch.

The whole loss of an example is multiplied by its weight, with any source and any loss, and q is not used. So the
optimum of a loss is the one for the data P_w(t|x) ∝ w(x, t) P(t|x). `query` leaves it as it is: queries only count
less against other queries.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Weighting = Literal["triple", "query"]
ADDED_COUNT = 3


def example_weights(triples: np.ndarray, n_relations: int, weighting: Weighting, p_head: np.ndarray) -> np.ndarray:
    """Return the weights (n, 2) float32 of the two examples of each triple (n, 3): tail open, head open.

    p_head (R,): probability that the head of a triple is open; 1/2 if both sides are.
    """
    counts = np.stack([_group_sizes(triples[:, side].astype(np.int64) * n_relations + triples[:, 1])
                       for side in (0, 2)], 1) + ADDED_COUNT                                       # (n, 2) n_hr, n_rt
    if weighting == "triple":
        counts = np.repeat(counts.sum(1, keepdims=True), 2, axis=1)
    weight = 1 / np.sqrt(counts)
    share = p_head[triples[:, 1]]                                                                  # (n,)
    mean = np.mean((1 - share) * weight[:, 0] + share * weight[:, 1]) if len(weight) else 1.0
    return (weight / mean).astype(np.float32)


def _group_sizes(key: np.ndarray) -> np.ndarray:
    """How often each value of a key (n,) occurs, (n,) int64."""
    _, group, sizes = np.unique(key, return_inverse=True, return_counts=True)
    return sizes[group]
