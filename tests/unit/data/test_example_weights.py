"""Weights of the examples of triples: the formula by hand, the mean over an epoch, and their way into batches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from helpers.graphs import some_triples
from helpers.looped import looped

from embtrain.data.triples.example_weights import example_weights
from embtrain.data.triples.examples import HEAD, TripleExamples
from embtrain.data.triples.graph import TriplesConfig

E, R = 9, 4
TRIPLES = some_triples(150, E, R)


def by_hand(head: int, relation: int, tail: int, weighting: str, slot: int) -> float:
    """The weight before it is scaled."""
    of_head = 3 + Counter((h, r) for h, r, _ in TRIPLES.tolist())[head, relation]
    of_tail = 3 + Counter((r, t) for _, r, t in TRIPLES.tolist())[relation, tail]
    count = of_head + of_tail if weighting == "triple" else of_tail if slot == HEAD else of_head
    return float(count ** -0.5)


@looped("reciprocal", [False, True])
@looped("slot", ["both", "random", "bernoulli"])
@looped("weighting", ["triple", "query"])
def test_an_example_has_the_weight_of_its_counts(weighting: str, slot: str, reciprocal: bool) -> None:
    settings: dict[str, Any] = {"weights": weighting, "slot": slot, "reciprocal": reciprocal}
    built = TripleExamples(TRIPLES, E, R, TriplesConfig(**settings), 1)
    actual, expected = list[float](), list[float]()
    for batch in built.blocks(0, 7):
        assert batch.weight is not None and batch.weight.dtype == torch.float32 and len(batch.weight) == len(batch)
        assert torch.equal(batch.rows(slice(1, 3)).weight, batch.weight[1:3])
        actual += batch.weight.tolist()
        for target, side, entity, relation in zip(batch.target.tolist(), batch.slot.tolist(), batch.entity.tolist(),
                                                  batch.relation.tolist(), strict=True):
            is_head = side == HEAD or relation >= R
            ends = (target, entity) if is_head else (entity, target)
            expected.append(by_hand(ends[0], relation % R, ends[1], weighting, HEAD if is_head else 0))
    scale = np.array(actual) / expected
    np.testing.assert_allclose(scale, scale[0], rtol=1e-5)
    assert len(set(np.round(actual, 5))) > 3


def test_the_mean_over_an_epoch_is_1() -> None:
    for weighting in ("triple", "query"):
        both = TripleExamples(TRIPLES, E, R, TriplesConfig(weights=weighting), 1)
        assert np.mean([w for b in both.blocks(0, 7) for w in b.weight.tolist()]) == pytest.approx(1, abs=1e-6)
        p_head = np.array([0.1, 0.9, 0.5, 0.3])
        weight, share = example_weights(TRIPLES, R, weighting, p_head), p_head[TRIPLES[:, 1]]
        assert np.mean((1 - share) * weight[:, 0] + share * weight[:, 1]) == pytest.approx(1, abs=1e-6)


def test_without_weights_a_batch_has_none() -> None:
    built = TripleExamples(TRIPLES, E, R, TriplesConfig(), 1)
    assert all(batch.weight is None and batch.rows(slice(2)).weight is None for batch in built.blocks(0, 40))
    assert example_weights(TRIPLES[:0], R, "triple", np.full(R, 0.5)).shape == (0, 2)
