"""Self-adversarial weights: for any source, detached, over the negatives that count."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.graphs import write_triples

from embtrain import experiment
from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.experiment.run import run
from embtrain.losses.self_adversarial import SelfAdversarial, SelfAdversarialConfig

WORLD = ProblemSpec(9, torch.ones(9, dtype=torch.float64))


def scored(neg: list[list[float]], weight: list[float] | None = None,
           positive: list[tuple[int, int]] | None = None) -> LossInput:
    x = torch.tensor(neg, dtype=torch.float64, requires_grad=True)
    none = torch.zeros(len(x), dtype=torch.int64)
    of_weight = None if weight is None else torch.tensor([weight], dtype=torch.float64)
    drawn = Negatives(torch.arange(x.shape[1]).expand(len(x), -1), weight=of_weight,
                      false_negatives=None if positive is None else torch.tensor(positive).T.reshape(2, -1))
    return LossInput(torch.zeros(len(x), dtype=torch.float64), x, drawn, Query(x[:, :1], none, none, none),
                  weight=of_weight)


def loss(temperature: float = 0.5, margin: float = 2.0) -> SelfAdversarial:
    return SelfAdversarial(SelfAdversarialConfig(temperature=temperature, margin=margin), WORLD)


def test_weights_are_a_softmax_of_scores_without_gradient() -> None:
    w = loss().negative_weights(scored([[0.0, 2.0, -1.0]]))
    e = [math.exp(0.5 * x) for x in (0, 2, -1)]
    assert w.tolist()[0] == pytest.approx([x / sum(e) for x in e]) and not w.requires_grad


def test_source_weights_multiply_and_masked_negatives_weigh_zero() -> None:
    w = (
        loss()
        .negative_weights(scored([[0.0, 2.0, -1.0, 5.0]] * 2, weight=[1.0, 3.0, 2.0, 0.0], positive=[(1, 1)]))
        .tolist()
    )
    e = [1.0, 3 * math.exp(1.0), 2 * math.exp(-0.5)]
    assert w[0] == pytest.approx([*(x / sum(e) for x in e), 0])
    assert w[1] == pytest.approx([e[0] / (e[0] + e[2]), 0, e[2] / (e[0] + e[2]), 0])


def test_row_of_false_negatives_only_weighs_zero() -> None:
    assert loss().negative_weights(scored([[0.0, 2.0]], positive=[(0, 0), (0, 1)])).tolist() == [[0.0, 0.0]]


def test_temperature_zero_gives_equal_weights() -> None:
    assert loss(temperature=0).negative_weights(scored([[0.0, 200.0, -1.0, 5.0]])).tolist() == [[0.25] * 4]


def test_extreme_scores_stay_finite() -> None:
    w = loss(temperature=10.0).negative_weights(scored([[-4000.0, -1000.0]]))
    assert w.tolist() == [[0.0, 1.0]]
    assert loss(temperature=1e18).negative_weights(scored([[20.0, 30.0]])).tolist() == [[0.0, 1.0]]
    far = scored([[20.0, 30.0, 90.0]], positive=[(0, 2)])                    # the highest does not count
    assert loss(temperature=1e18).negative_weights(far).tolist() == [[0.0, 1.0, 0.0]]
    x = scored([[-4000.0, 1000.0]])
    assert torch.isfinite(loss()(x).per_example).all()


@pytest.mark.parametrize(("margin", "low", "high"), [(1.0, 0.9, 1.0), (9.0, 0.0, 0.2)])
def test_small_graph_needs_a_small_margin(tmp_path: Path, margin: float, low: float, high: float) -> None:
    """A grid of 8 by 8 whose relations are steps, as in the comment of configs/strategies/self-adversarial.yaml."""
    steps = [(1, 0), (0, 1), (2, 1), (1, 2), (3, 0)]
    triples = np.array([(x * 8 + y, r, (x + a) * 8 + y + b) for x in range(8) for y in range(8)
                        for r, (a, b) in enumerate(steps) if x + a < 8 and y + b < 8])
    triples = np.random.default_rng(0).permutation(triples)
    for name, part in (("train", triples[:-40]), ("valid", triples[-40:-20]), ("test", triples[-20:])):
        write_triples(tmp_path / "grid" / f"{name}.txt", part)
    sets = [f"loss.margin={margin}", "train.lr=0.1", "train.min_lr=0.001", "model.dim=16", "model.norm=l1",
            "train.epochs=60", "train.threads=1", "evaluate.resamples=0", "negatives.k=16", "train.batch=64"]
    settings = experiment.resolve("self-adversarial", model="transe", corpus=str(tmp_path / "grid"), sets=sets)
    built = run.train_in_memory(settings, tmp_path / "run")
    result = {row.metric: row.value for row in built.task.validate(built)}
    assert low <= (result["mrr"] or 0.0) <= high
