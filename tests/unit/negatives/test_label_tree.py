"""The adversarial tree: its probabilities, the fit of its nodes and splits, and when it is fitted."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.source_worlds import TableView, query, source
from torch import Tensor

from embtrain.negatives.adversarial.label_tree import LabelTree


class Softmax:
    """P(b|x) ∝ e^{x·c_b} / (rank of b), and pairs drawn from it; ids are in random order."""

    def __init__(self, v: int = 100, f: int = 4, n: int = 20_000):
        self.random = torch.Generator().manual_seed(0)
        self.c = torch.randn(v, f, generator=self.random)
        self.bias = -torch.log(torch.arange(1, v + 1.0))[torch.randperm(v, generator=self.random)]
        self.x = torch.randn(n, f, generator=self.random)
        self.y = torch.multinomial(self.p(self.x), 1, generator=self.random)[:, 0]
        self.counts = torch.bincount(self.y, minlength=v)
        self.new = torch.randn(300, f, generator=self.random)

    def p(self, x: Tensor) -> Tensor:
        return (x @ self.c.T + self.bias).softmax(1)

    def divergence(self, tree: LabelTree) -> float:
        """Mean KL(P ‖ q) at new x."""
        p, log_q = self.p(self.new), tree.log_q(self.new, torch.arange(len(self.c)).expand(len(self.new), -1))
        return float((p * (p.log() - log_q)).sum(1).mean())


@pytest.mark.parametrize("v", [2, 3, 37, 64])
def test_it_is_the_unigram_before_the_fit(v):
    counts = torch.randint(1, 50, (v,), generator=torch.Generator().manual_seed(1))
    log_q = LabelTree(counts, 3).log_q(torch.randn(2, 3), torch.arange(v).expand(2, -1))
    torch.testing.assert_close(log_q.exp(), (counts / counts.sum()).expand(2, -1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rare", [0, 1])
def test_a_branch_of_any_probability_can_be_drawn(rare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the smallest positive number of a generator, or the largest below 1. Those of float32 select no branch that is
    less likely than 6e-8, or select it too often."""
    counts = torch.tensor([1e12, 1.0] if rare else [1.0, 1e12])

    def extreme(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, **_: object) -> Tensor:
        step = torch.finfo(dtype).eps / 2
        return torch.full(shape, step if rare else 1 - step, dtype=dtype)

    monkeypatch.setattr(torch, "rand", extreme)
    ids, log_q = LabelTree(counts, 3).draw(torch.zeros(1, 3), 2, torch.Generator())
    assert ids.tolist() == [[rare, rare]] and log_q.exp()[0].tolist() == pytest.approx([1e-12] * 2, rel=1e-3)


def test_a_probability_is_the_product_along_the_path():
    """A walk in plain Python from the root, by the ranges of leaves below a node."""
    world = Softmax(v=11, n=500)
    tree = LabelTree(world.counts, 4)
    tree.fit(world.x, world.y, 0.1)
    assert sorted(tree.order.tolist()) == list(range(11)) and tree.order.tolist() != list(range(11))
    leaf_of = {candidate: rank * 16 // 11 for rank, candidate in enumerate(tree.order.tolist())}
    for candidate in range(11):
        node, low, high, p = 1, 0, 16, 1.0
        while high - low > 1:
            w, middle = tree.weight[node].tolist(), (low + high) // 2
            z = math.fsum(a * b for a, b in zip(w, [*world.new[0].tolist(), 1.0], strict=True))
            right = leaf_of[candidate] >= middle
            p *= 1 / (1 + math.exp(-z if right else z)) if math.isfinite(z) else float((z > 0) == right)
            node, low, high = 2 * node + right, middle if right else low, high if right else middle
        assert math.exp(tree.log_q(world.new[:1], torch.tensor([[candidate]]))) == pytest.approx(p, rel=1e-4)


def test_a_node_is_a_ridge_regression():
    """Two candidates, one node: the gradient of its penalized log-likelihood is 0."""
    world = Softmax(v=2, f=3, n=4000)
    tree = LabelTree(world.counts, 3)
    tree.fit(world.x, world.y, 5.0)
    x, w = torch.cat([world.x, torch.ones(4000, 1)], 1).double(), tree.weight[1].double()
    is_right = (world.y == tree.order[1]).double()
    log_odds = math.log(float(is_right.sum()) / float((1 - is_right).sum()))
    slope = ((is_right - (x @ w).sigmoid()).unsqueeze(1) * x).sum(0) - 5.0 * (w - w.new_tensor([0, 0, 0, log_odds]))
    assert slope.abs().max() < 0.01 and w[:3].abs().max() > 0.3


def test_the_fit_approaches_the_conditional_distribution():
    world = Softmax()
    tree = LabelTree(world.counts, 4)
    before = world.divergence(tree)
    tree.fit(world.x, world.y, 0.1)
    assert world.divergence(tree) < 0.3 * before


def test_a_candidate_without_pairs_keeps_a_probability():
    world = Softmax(n=50)
    tree = LabelTree(world.counts, 4)
    tree.fit(world.x, world.y, 0.1)
    log_q = tree.log_q(world.new, torch.arange(100).expand(300, -1))
    assert torch.isfinite(tree.weight).all()
    assert (world.counts == 0).any() and torch.isfinite(log_q).all()


def test_it_is_fitted_after_1_2_and_4_times_the_pairs():
    sampler, fits = source("adversarial_tree", pairs=60, fits=3, features=4), []
    for _ in range(12):
        sampler.draw(query(30), 4, TableView())
        fits.append((sampler.n_fits, len(sampler.sample[1])))
    #   examples: 30       60       90      120      150      180      210      240      270: none is recorded any more
    assert fits[:9] == [(0, 30), (0, 60), (1, 30), (1, 60), (2, 0), (2, 0), (2, 30), (2, 60), (3, 0)]
    assert fits[9:] == [(3, 0)] * 3


def test_draws_after_a_fit_prefer_the_targets_of_their_query():
    """Contexts with one target each: the tree learns them from query vectors alone."""
    sampler = source("adversarial_tree", pairs=300, features=8)
    for _ in range(12):
        batch = query(30)
        batch.target.copy_(batch.context * 5 + 2)
        drawn = sampler.draw(batch, 4, TableView())
    assert (drawn.ids == batch.target.unsqueeze(1)).double().mean() > 0.8
