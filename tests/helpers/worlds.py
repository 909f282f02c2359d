"""Tiny worlds with known optima, for losses.

A world has C contexts, V candidates, P(a), P(b|a) and a noise q(b|a), all known. An `Exam` contains every example of a
world with every possible draw and its probability. A sum over it is an exact expectation, and its optimum is exact. The
layouts express the same expectation in the different shapes that sources use.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch
from torch import Tensor

from embtrain.common.types import LossInput, Negatives, ProblemSpec, Query
from embtrain.losses.base import Loss, find

DOUBLE = torch.float64


@dataclass(frozen=True)
class LossWorld:
    """The true P(a) (C,), P(b|a) (C, V) and noise q(b|a) (C, V)."""

    p_context: Tensor
    p: Tensor
    q: Tensor

    @property
    def v(self) -> int:
        return self.p.shape[1]

    @property
    def known(self) -> ProblemSpec:
        return ProblemSpec(n_candidates=self.v, counts=torch.ones(self.v, dtype=DOUBLE), n_contexts=self.p.shape[0])


def loss_world(contexts: int = 3, candidates: int = 5, seed: int = 0, noise: str = "by context") -> LossWorld:
    """A random world without probabilities near 0. noise: `by context`, `common` or `marginal` (of P)."""
    draw = torch.Generator().manual_seed(seed)

    def dist(rows: int, n: int) -> Tensor:
        x = torch.rand(rows, n, generator=draw, dtype=DOUBLE) + 0.15
        return x / x.sum(1, keepdim=True)

    p_context, p, q = dist(1, contexts)[0], dist(contexts, candidates), dist(contexts, candidates)
    if noise == "common":
        q = q[:1].expand_as(q).contiguous()
    elif noise == "marginal":
        q = (p_context @ p).expand_as(q).contiguous()
    return LossWorld(p_context, p, q)


@dataclass(frozen=True)
class Exam:
    """Every example with every draw and its probability; `ids` and `context_of_row` belong to the scored rows.

    Every draw is scored at most once, so the fields of draws equal those of scored rows.
    """

    context: Tensor         # (B,)
    target: Tensor          # (B,)
    chance: Tensor          # (B,)
    drawn: Negatives
    ids: Tensor             # (R, K)
    context_of_row: Tensor  # (R,)
    row: Tensor | None = None

    def scored(self, table: Tensor, loss: Loss | None = None) -> LossInput:
        """The scores of a free table (C, V), and log Z as the loss reads them."""
        neg = table[self.context_of_row].gather(1, self.ids)
        query = Query(table.new_zeros(len(self.target), 1), self.context, self.target, torch.zeros_like(self.target))

        def log_z(rows: Tensor | slice) -> Tensor:
            score, part = table[self.context[rows]], query.rows(rows)
            return (score if loss is None else loss.logit(score, part)).logsumexp(1)

        return LossInput(table[self.context, self.target], neg, self.drawn, query, self.row, self.drawn.log_q,
                         self.drawn.weight, SimpleNamespace(log_partition=log_z))


def _examples(world: LossWorld) -> tuple[Tensor, Tensor, Tensor]:
    """All (context, target) pairs and P(a) P(b|a)."""
    c, v = world.p.shape
    context, target = torch.arange(c).repeat_interleave(v), torch.arange(v).repeat(c)
    return context, target, (world.p_context[:, None] * world.p).reshape(-1)


def _hits(ids: Tensor, target: Tensor) -> Tensor:
    """False negatives: positions of ids (B, K) that equal the target of the example."""
    return torch.stack((ids == target[:, None]).nonzero(as_tuple=True))


def every_column(world: LossWorld, mass: float, layout: str, masked: bool = False) -> Exam:
    """All V candidates as negatives with weight mass·q: the expectation over draws, for losses additive over negatives.

    private: one draw per example · shared: one draw for all (needs a common q) · rows: examples of a context share
    the draw and the scored row · split: as rows, but half the examples have half the mass, half one and a half.
    """
    context, target, chance = _examples(world)
    candidates = torch.arange(world.v)
    if layout == "split":
        n = len(context)
        context, target, chance = context.repeat(2), target.repeat(2), chance.repeat(2) / 2
        part = torch.arange(2).repeat_interleave(n)
        group, factor = context * 2 + part, torch.tensor([0.5, 1.5], dtype=DOUBLE)
        q = world.q.repeat_interleave(2, 0)
        weight = mass * q * factor.repeat(world.p.shape[0])[:, None]
        mass_of, context_of_row = (mass * factor[part])[:, None], torch.arange(len(world.p)).repeat_interleave(2)
    else:
        q = {"private": world.q[context], "shared": world.q[:1], "rows": world.q}[layout]
        weight, mass_of = mass * q, torch.full((1, 1), mass, dtype=DOUBLE)
        group = context if layout == "rows" else None
        context_of_row = torch.arange(len(world.p)) if layout == "rows" else context
    ids = candidates.expand(q.shape[0], -1)
    hits = _hits(candidates.expand(len(target), -1), target) if masked else None
    drawn = Negatives(ids, draw_id=group, log_q=q.log(), weight=weight, total_weight=mass_of, false_negatives=hits,
                      log_q_target=world.q[context, target].log())
    return Exam(context, target, chance, drawn, candidates.expand(len(context_of_row), -1), context_of_row, group)


def every_once(world: LossWorld, masked: bool) -> Exam:
    """Every candidate drawn once, one draw for all: log q = −log V and mass V, so that log(mass·q) = 0."""
    context, target, chance = _examples(world)
    ids = torch.arange(world.v)[None]
    drawn = Negatives(ids, log_q=torch.full((1, 1), -math.log(world.v), dtype=DOUBLE),
                      total_weight=torch.full((1, 1), float(world.v), dtype=DOUBLE),
                      log_q_target=torch.full((len(target),), -math.log(world.v), dtype=DOUBLE),
                      false_negatives=_hits(ids.expand(len(target), -1), target) if masked else None)
    return Exam(context, target, chance, drawn, ids.expand(len(context), -1), context)


def every_draw(world: LossWorld, m: int, masked: bool) -> Exam:
    """All V^m sequences of m iid draws, m negatives each."""
    draws = torch.tensor(list(itertools.product(range(world.v), repeat=m)))  # (V^m, m)
    return _crossed(world, draws, None, torch.ones(len(draws), dtype=DOUBLE), m, masked)


def every_count(world: LossWorld, m: int, masked: bool) -> Exam:
    """All counts of m iid draws over V candidates: V negatives, each weighted by its count."""
    counts = torch.tensor([[b - a - 1 for a, b in itertools.pairwise((-1, *bars, m + world.v - 1))]
                           for bars in itertools.combinations(range(m + world.v - 1), world.v - 1)], dtype=DOUBLE)
    ways = (math.lgamma(m + 1) - torch.lgamma(counts + 1).sum(1)).exp()
    return _crossed(world, torch.arange(world.v).expand(len(counts), -1), counts, ways, m, masked)


def _crossed(world: LossWorld, draws: Tensor, weight: Tensor | None, ways: Tensor, m: int, masked: bool) -> Exam:
    """Cross each example with each draw (n, K)."""
    context, target, chance = (x.repeat_interleave(len(draws)) for x in _examples(world))
    times = len(context) // len(draws)
    ids = draws.repeat(times, 1)
    weight = None if weight is None else weight.repeat(times, 1)
    log_q = world.q.log()[context].gather(1, ids)
    chance = chance * ways.repeat(times) * (log_q if weight is None else weight * log_q).sum(1).exp()
    drawn = Negatives(
        ids,
        log_q=log_q,
        weight=weight,
        total_weight=torch.full((1, 1), float(m), dtype=DOUBLE),
        log_q_target=world.q[context, target].log(),
        false_negatives=_hits(ids, target) if masked else None,
    )
    return Exam(context, target, chance, drawn, ids, context)


def two_components(world: LossWorld, mass: float, generator: Tensor, density: str) -> Exam:
    """Half of the noise from q, half from a generator g (C, V). density: of the `mixture` or the `component`."""
    context, target, chance = _examples(world)
    q, g = world.q[context], generator[context]
    mixture = ((world.q + generator) / 2).log()
    log_q = torch.cat([mixture[context]] * 2 if density == "mixture" else [q.log(), g.log()], 1)
    of_target = (mixture if density == "mixture" else world.q.log())[context, target]
    ids = torch.arange(world.v).repeat(2).expand(len(context), -1)
    drawn = Negatives(ids, log_q=log_q, weight=torch.cat([q, g], 1) * mass / 2, log_q_target=of_target,
                      total_weight=torch.full((1, 1), mass, dtype=DOUBLE))
    return Exam(context, target, chance, drawn, ids, context)


def with_probe(exam: Exam, candidate: int) -> Exam:
    """Add a negative of weight 0, like the greedy candidate of an adversary."""
    drawn = exam.drawn
    assert drawn.ids is not None and drawn.log_q is not None

    def widen(x: Tensor, value: float) -> Tensor:
        return torch.cat([x, x.new_full((x.shape[0], 1), value)], 1)

    weight = torch.ones_like(drawn.ids, dtype=DOUBLE) if drawn.weight is None else drawn.weight
    log_q = drawn.log_q.expand(drawn.log_q.shape[0], drawn.k)
    return replace(exam, ids=widen(exam.ids, candidate), drawn=replace(
        drawn, ids=widen(drawn.ids, candidate), log_q=widen(log_q, -3.0), weight=widen(weight, 0.0)))


def optimum(name: str, exam: Exam, world: LossWorld, **settings: object) -> tuple[Tensor, Loss]:
    """The table (C, V) that minimises the expected loss, as `logit` of the loss reads it, and the loss."""
    loss = make_loss(name, world.known, **settings)
    table = torch.zeros(world.p.shape, dtype=DOUBLE, requires_grad=True)
    lbfgs = torch.optim.LBFGS([table, *loss.parameters()], max_iter=400, tolerance_grad=1e-11, tolerance_change=1e-15,
                              history_size=20, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        lbfgs.zero_grad()
        value = (exam.chance * loss(exam.scored(table, loss)).per_example).sum()
        value.backward()
        return value

    lbfgs.step(closure)
    every = torch.arange(len(world.p))
    return loss.logit(table, Query(torch.zeros(len(every), 1), every, every, every)).detach(), loss


def make_loss(name: str, problem: ProblemSpec, **settings: object) -> Loss:
    """Create a loss in float64."""
    cls = find(name)
    return cls(cls.Config(name=name, **settings), problem).double()
