"""The step against the sum that it computes, example by example, in every layout of a draw.

The loop in `naive` has no groups, shared draws or chunks: each example has negatives, densities and weights of its
own, and the gradients of all examples are added up.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.looped import looped
from hypothesis import given, strategies as some
from torch import Tensor

from embtrain.common.types import GENERATOR, NOISE, PROBE, LossInput, ModelView, Negatives, ProblemSpec, Query
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.text.windows import SkipGramBatch
from embtrain.losses import base as losses
from embtrain.losses.base import Loss
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.negatives import base as sources
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits
from embtrain.train.config import TrainConfig
from embtrain.train.engines import autograd as module
from embtrain.train.engines.autograd import ReadOnly, Step, matmul_precision
from embtrain.train.engines.false_negatives import mark_false_negatives
from embtrain.train.hardness import hardness
from embtrain.train.optimizers import make_optimizers

V, D = 9, 4
CENTRE = [7, 7, 2, 2, 2, 5, 0, 0, 7, 7, 1, 2, 2]  # groups recur, and not in the order of their ids
WINDOW = [0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 5, 6, 6]
TARGET = [1, 3, 0, 0, 8, 2, 4, 4, 1, 7, 6, 5, 3]
B = len(TARGET)


def problem() -> ProblemSpec:
    counts = torch.arange(V, 0, -1).double()
    return ProblemSpec(V, counts, n_contexts=V, raw_counts=counts, dim=D, seed=4)


def batch(rows: list[int] | None = None) -> SkipGramBatch:
    examples = SkipGramBatch(torch.tensor(TARGET), torch.zeros(B, dtype=torch.int64), torch.tensor(CENTRE),
                        torch.tensor(WINDOW))
    return examples if rows is None else examples.rows(torch.tensor(rows))


def model(similarity: str = "dot") -> SkipGram:
    """Build tables in double precision, large enough that scores differ."""
    built = SkipGram(SkipGramConfig(dim=D, similarity=similarity), problem()).double()
    draw = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for p in built.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64))
    return built


class FixedDraws(NegativeSource):
    """Draws fixed negatives, and records the costs."""

    traits = Traits(learns=True)

    def __init__(self, drawn: Callable[[Query], Negatives], mask: str):
        super().__init__(NegativesConfig(filter=mask, k=1), problem())
        self.drawn, self.received = drawn, list[tuple[Query, Negatives, Tensor]]()

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        return self.drawn(query)

    def learn(self, query: Query, drawn: Negatives, cost: Tensor) -> dict[str, float]:
        self.received.append((query, drawn, cost))
        return {"n_learned": len(self.received)}


LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "logistic": ("target", {}), "nce": ("none", {}), "nce, one z": ("none", {"partition": "global"}),
    "nce, a z per context": ("none", {"partition": "context"}), "margin": ("target", {}),
    "sampled_softmax": ("target", {}), "sampled_softmax, ranking": ("none", {"form": "ranking"}),
    "logistic, penalty": ("target", {"penalty": 0.3}), "logistic, all masked": ("observed", {}),
}


def loss_of(name: str) -> Loss:
    loss_class = losses.find(name.split(",")[0])
    built = loss_class(loss_class.Config(name=loss_class.name, **LOSSES[name][1]), problem()).double()
    with torch.no_grad():
        for p in built.parameters():
            p.copy_(torch.linspace(0.2, 1.2, p.numel()).reshape(p.shape))
    return built


def draw_of(layout: str, k: int = 5) -> Callable[[Query], Negatives]:
    """Build a draw of random ids in the layouts that sources use, with fields that differ wherever they may."""
    draw = torch.Generator().manual_seed(6)

    def built(query: Query) -> Negatives:
        n, group = len(query), None
        if layout in ("window", "plain window", "block"):
            shared = torch.arange(n) // 4 if layout == "block" else query.window
            group = torch.unique_consecutive(shared, return_inverse=True)[1]
        g = int(group.max()) + 1 if group is not None else 1 if layout == "batch" else n
        ids = torch.randint(V, (g, k), generator=draw)
        q = (torch.rand(V, generator=draw, dtype=torch.float64) + 0.2).log_softmax(0)
        plain = layout.startswith("plain")  # fields that all draws share
        weight = None if plain else torch.rand(g, k, generator=draw, dtype=torch.float64) + 0.1
        mass = torch.full((1, 1), float(k)) if layout != "row" else \
            torch.rand(n, 1, generator=draw, dtype=torch.float64) + k
        log_q = torch.full((1, 1), -math.log(V), dtype=torch.float64) if plain else q[ids]
        origin = None if plain else torch.randint(2, (g, k), generator=draw).to(torch.int8)
        return Negatives(
            ids,
            draw_id=group,
            log_q=log_q,
            log_q_target=q[query.target],
            weight=weight,
            total_weight=mass,
            origin=origin,
        )
    return built


def known_pairs() -> KnownPairs:
    """Return the known positives: the examples' own pairs and some more."""
    return KnownPairs(torch.tensor([*CENTRE, 7, 2, 0, 5]), torch.tensor([*TARGET, 5, 6, 2, 8]), V)


def grads(net: SkipGram, loss: Loss) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.to_dense()
            for p in [*net.parameters(), *loss.parameters()]]


def is_positive(mask: str, centre: int, target: int, id: int) -> bool:
    if mask == "observed":
        pairs = set(zip([*CENTRE, 7, 2, 0, 5], [*TARGET, 5, 6, 2, 8], strict=True))
        return (centre, id) in pairs or id == target
    return mask == "target" and id == target


def naive(net: SkipGram, loss: Loss, examples: SkipGramBatch, drawn: Negatives, mask: str
          ) -> tuple[list[Tensor], Tensor, list[float]]:
    """Return gradients, costs of negatives (B, K) and losses, one example at a time, from the tables and the draw
    alone."""
    net.zero_grad()
    loss.zero_grad()
    costs, values, n = [], [], len(examples)
    for i in range(n):
        g = 0 if drawn.ids.shape[0] == 1 else i if drawn.draw_id is None else int(drawn.draw_id[i])

        def own(x: Tensor | None, g: int = g) -> Tensor | None:
            return x if x is None or x.shape[0] == 1 else x[g:g + 1]

        centre, target, ids = int(examples.centre[i]), int(examples.target[i]), drawn.ids[g]
        h = net.u[centre]
        table = net.v
        if net.config.similarity == "cosine":
            h, table = h / h.norm(), table / table.norm(dim=1, keepdim=True)
        scores = table @ h
        hits = [j for j, id in enumerate(ids.tolist()) if is_positive(mask, centre, target, id)]
        positive = None if mask == "none" else torch.tensor([[0] * len(hits), hits], dtype=torch.int64)
        mass = (
            drawn.total_weight
            if drawn.total_weight is None or drawn.total_weight.shape[0] == 1
            else drawn.total_weight[i : i + 1]
        )
        actual = Negatives(
            ids.unsqueeze(0),
            log_q=own(drawn.log_q),
            weight=own(drawn.weight),
            total_weight=mass,
            false_negatives=positive,
            log_q_target=drawn.log_q_target[i : i + 1],
        )
        query = Query(h.unsqueeze(0), examples.centre[i:i + 1], examples.target[i:i + 1], examples.slot[i:i + 1])
        table = SimpleNamespace(
            log_partition=lambda _, s=scores, query=query: loss.logit(s.unsqueeze(0), query).logsumexp(1))
        scored = LossInput(scores[target].unsqueeze(0), scores[ids].unsqueeze(0), actual, query,
                           log_q=actual.log_q, weight=actual.weight, whole_table=table)
        weight = loss.negative_weights(scored)
        cost = loss(scored if weight is None else replace(scored, weight=weight))
        cost.per_example.sum().backward()
        costs.append(cost.per_negative)
        values.append(float(cost.per_example.detach()))
    return grads(net, loss), torch.cat(costs), values


def by_draw(costs: Tensor, drawn: Negatives) -> Tensor:
    """Return the costs that a source receives: for each negative of a draw the mean over the rows that share it and
    count it, by hand."""
    n, (g, k) = len(costs), drawn.ids.shape
    rows = drawn.draw_id.tolist() if drawn.draw_id is not None else [0] * n if g == 1 else list(range(n))
    positive = set() if drawn.false_negatives is None else set(zip(*drawn.false_negatives.tolist(), strict=True))
    result = torch.empty(g, k, dtype=costs.dtype)
    for draw in range(g):
        for j in range(k):
            actual = [i for i in range(n) if rows[i] == draw]
            counted = [i for i in actual if (i, j) not in positive] or actual
            result[draw, j] = sum(costs[i, j] for i in counted) / len(counted)
    return result


def step_of(net: SkipGram, loss: Loss, source: NegativeSource, **train: Any) -> Step:
    config = TrainConfig(**{"lr": 1e-9, "min_lr": 0.0, **train})
    return Step(net, source, loss, make_optimizers(net, loss, config), config,
                known_pairs() if source.config.filter == "observed" else None)


LAYOUTS = ("row", "window", "block", "batch", "plain", "plain window")


# -- the layouts --------------------------------------------------------------------------------------------------


@pytest.fixture(params=[-1, 1 << 40], ids=["each draw by itself", "each row its copy"])
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_NEGATIVES_SHARED", request.param)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", LOSSES)
@looped("layout", LAYOUTS)
@looped("rows", [None, [12, 10, 5, 6, 8], [3]])                  # all, descending centres, one
def test_layout_changes_neither_gradient_nor_costs(layout: str, name: str, rows: list[int] | None) -> None:
    mask, net, loss, examples = LOSSES[name][0], model(), loss_of(name), batch(rows)
    if rows is not None:  # windows ascend, whatever the examples
        examples = replace(examples, window=torch.arange(len(rows)) // 2)
    source = FixedDraws(draw_of(layout), mask)
    result = step_of(net, loss, source)(examples)
    results = grads(net, loss)
    (query, drawn, cost), = source.received
    expected, costs, values = naive(model(), loss_of(name), examples, drawn, mask)
    torch.testing.assert_close(results, expected, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(result.cost, costs, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(cost, by_draw(costs, drawn), rtol=1e-7, atol=1e-9)
    assert cost.shape == drawn.ids.shape and result.query is query and result.drawn is drawn
    assert float(result.loss) == pytest.approx(sum(values) / len(values)) and result.source == {"n_learned": 1}
    assert not query.vector.requires_grad and not cost.requires_grad


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("layout", ["window", "any order"])
@pytest.mark.parametrize("size", [B, 5], ids=["one update", "three"])
def test_queries_without_groups_and_draws_in_any_order(layout: str, size: int) -> None:
    """Models whose queries are all different group nothing, and a source may assign draws freely."""
    order = torch.Generator().manual_seed(3)
    def drawn(query: Query) -> Negatives:
        built = draw_of("window")(query)
        return built if layout == "window" else replace(built,
                                                        draw_id=built.draw_id[torch.randperm(B, generator=order)])

    net, loss, source = model(), loss_of("logistic"), FixedDraws(drawn, "target")
    net.encode = lambda examples, encode=net.encode: replace(encode(examples),
                                                             query_id=None)  # type: ignore[method-assign]
    result = step_of(net, loss, source, batch=size)(batch())
    expected, costs, _ = naive(model(), loss_of("logistic"), batch(), source.received[0][1], "target")
    torch.testing.assert_close(result.cost, costs, rtol=1e-7, atol=1e-9)
    if size == B:
        torch.testing.assert_close(grads(net, loss), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scores_held", [None, 15], ids=["at once", "in chunks"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_an_example_of_weight_2_counts_as_two(reduction: str, scores_held: int | None,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    if scores_held is not None:
        monkeypatch.setattr(module, "MAX_SCORES_HELD", scores_held)
    plain, results = batch(), []
    twice = torch.arange(B).repeat_interleave(torch.arange(B) % 3)               # rows 1, 2, 2, 4, 5, 5, ...
    for examples, kept in ((replace(plain, weight=(torch.arange(B) % 3).float()), torch.arange(B)),
                           (plain.rows(twice), twice)):
        whole = draw_of("row")(plain)  # type: ignore[arg-type]
        drawn = replace(whole, ids=whole.ids[kept], log_q=whole.log_q[kept], weight=whole.weight[kept],
                        log_q_target=whole.log_q_target[kept], total_weight=whole.total_weight[kept],
                        origin=whole.origin[kept])
        net, loss = model(), loss_of("nce")
        result = step_of(net, loss, FixedDraws(lambda query, drawn=drawn: drawn, "none"), reduction=reduction)(examples)
        scale = len(kept) if reduction == "mean" else 1
        results.append([*(scale * g for g in grads(net, loss)), result.loss.double() * len(kept)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_with_cosine(layout: str, similarity: str) -> None:
    net, loss, source = model(similarity), loss_of("nce"), FixedDraws(draw_of(layout), "none")
    step_of(net, loss, source)(batch())
    result = grads(net, loss)
    expected = naive(model(similarity), loss_of("nce"), batch(), source.received[0][1], "none")[0]
    torch.testing.assert_close(result, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("case", [
    {"source": "unigram", "share_draws_by": "window"}, {"source": "unigram", "share_draws_by": "batch",
                                                        "replacement": False},
    {"source": "uniform", "share_draws_by": "block", "share_size": 3}, {"source": "log_uniform"},
    {"source": "ace", "min_perplexity": 3, "hidden": 2}, {"source": "ace", "min_perplexity": 3, "hidden": 2,
                                                          "sampling": "stratified"},
], ids=str)
def test_draws_of_shipped_sources(case: dict[str, Any]) -> None:
    """log q is used for each draw as the source reports it, including the probe of weight 0."""
    results = sources.find(case["source"])
    source = results(results.Config(k=4, filter="target", **case), problem())
    net, loss = model(), loss_of("logistic")
    result = step_of(net, loss, source)(batch(), keep_costs=True)
    after = grads(net, loss)
    drawn = result.drawn
    if drawn.log_q_target is None:
        drawn = replace(drawn, log_q_target=torch.zeros(B))
    expected, costs, _ = naive(model(), loss_of("logistic"), batch(), drawn, "target")
    torch.testing.assert_close(after, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(result.cost, costs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("rows", "k", "calls"), [(65, 16, 3), (64, 16, 1), (17, 64, 3), (1, 2000, 1)])
def test_scores_of_a_shared_draw_are_computed_at_once(rows: int, k: int, calls: int) -> None:
    """(1, K) ids that all rows share, and no (B, K, D) copies: 1,024 copies saved justify a call."""
    net, seen, queries = model(), [], torch.arange(3 * rows) % rows
    query = Query(torch.randn(rows, D, dtype=torch.float64)[queries], queries, torch.zeros(3 * rows).long(),
                  torch.zeros(3 * rows).long(), query_id=queries)             # each query in each draw
    ids = torch.randint(V, (3, k))
    group = torch.arange(3 * rows) // rows
    score = net.score
    net.score = lambda q, c: (seen.append(tuple(c.shape)), score(q, c))[1]  # type: ignore[method-assign]
    step = step_of(net, loss_of("logistic"), FixedDraws(draw_of("row"), "none"))
    scored = step.score(query, Negatives(ids, draw_id=group)).expanded()
    assert seen == ([(1, k)] * 3 if calls == 3 else [(3 * rows, k)]) + [(3 * rows, 1)]   # negatives, then targets
    torch.testing.assert_close(scored.neg, score(query, ids[group]))


def vectors_of(query: Query) -> Negatives:
    draw = torch.Generator().manual_seed(2)
    return Negatives(vectors=torch.randn(len(query), 3, D, generator=draw, dtype=torch.float64))


def test_negatives_that_are_vectors() -> None:
    net, loss, source = model(), loss_of("logistic"), FixedDraws(vectors_of, "target")
    step_of(net, loss, source, batch=5)(batch())
    (query, drawn, cost), = source.received
    torch.testing.assert_close(cost, torch.einsum("bd,bkd->bk", query.vector, drawn.vectors).exp().log1p())


def test_costs_are_kept_for_learning_sources_and_on_request() -> None:
    source_class = sources.find("unigram")
    step = step_of(model(), loss_of("logistic"), source_class(source_class.Config(k=3), problem()))
    assert step(batch()).cost is None
    assert step(batch(), keep_costs=True).cost.shape == (B, 3)


@pytest.mark.parametrize(("cells", "rows"), [(3, 1), (9, 3), (21, 7)])
def test_number_of_costs_kept_for_the_log_is_limited(cells: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The costs of all rows over every candidate took 23 GB at V = 8,651."""
    source_class = sources.find("unigram")
    built = source_class(source_class.Config(k=3, share_draws_by="window"), problem())
    whole = step_of(model(), loss_of("logistic"), built, batch=5)(batch(), keep_costs=True)
    monkeypatch.setattr(module, "MAX_LOGGED_COSTS", cells)
    built = source_class(source_class.Config(k=3, share_draws_by="window"), problem())
    some = step_of(model(), loss_of("logistic"), built, batch=5)(batch(), keep_costs=True)
    torch.testing.assert_close(some.cost, whole.cost[:rows], rtol=0, atol=0)
    view = ReadOnly(model())
    assert hardness(some.query, some.drawn, some.cost, view) == hardness(
        whole.query.rows(slice(0, rows)), whole.drawn.rows(slice(0, rows)), whole.cost[:rows], view)


# -- every candidate --------------------------------------------------------------------------------------------------


def every() -> NegativeSource:
    source_class = sources.find("every")
    return source_class(source_class.Config(source="every", filter="none"), problem())


def softmax() -> Loss:
    loss_class = losses.find("softmax")
    return loss_class(loss_class.Config(), problem()).double()


@pytest.fixture
def scored_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count how many rows were scored against all candidates at once."""
    rows: list[int] = []
    plain = SkipGram.score

    def score(self: SkipGram, query: Query, candidates: Tensor) -> Tensor:
        if candidates.shape == (1, V):
            rows.append(len(query))
        return plain(self, query, candidates)

    monkeypatch.setattr(SkipGram, "score", score)
    return rows


@pytest.mark.parametrize("cells", [10**9, 4 * V, 1])
@pytest.mark.parametrize("mask", ["none", "target"])
def test_full_source_is_the_full_softmax_with_and_without_groups(monkeypatch: pytest.MonkeyPatch, mask: str, cells: int,
                                                                 scored_rows: list[int]) -> None:
    monkeypatch.setattr(module, "MAX_SCORES_HELD", cells)
    results = {}
    for grouped in (True, False):
        net, loss, source = model(), softmax(), every()
        source = type(source)(source.config.model_copy(update={"filter": mask}), problem())
        if not grouped:
            plain = net.encode
            net.encode = lambda x, plain=plain: replace(plain(x), query_id=None)  # type: ignore[method-assign]
        scored_rows.clear()
        result = step_of(net, loss, source)(batch(), keep_costs=True)
        results[grouped] = (grads(net, loss), result.cost, result.loss)
        if cells > V * B:
            assert scored_rows == ([len(set(CENTRE))] if grouped else [B])
    torch.testing.assert_close(results[True], results[False], rtol=1e-9, atol=1e-12)

    net = model()
    z = net.u[CENTRE] @ net.v.T
    loss = torch.nn.functional.cross_entropy(z, torch.tensor(TARGET), reduction="sum")
    loss.backward()
    torch.testing.assert_close(results[True][0], grads(net, softmax()), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(results[True][1:], (z.detach(), loss.detach() / B))


def test_no_negatives_and_exact_log_z_is_the_full_softmax() -> None:
    results = sources.find("none")
    gradients = []
    for source in (results(results.Config(source="none", filter="none"), problem()), every()):
        net, loss = model(), softmax()
        result = step_of(net, loss, source)(batch(), keep_costs=True)
        gradients.append([*grads(net, loss), result.loss])
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("cells", [10**9, 4 * V, 1])
def test_log_z_is_computed_once_per_query(monkeypatch: pytest.MonkeyPatch, cells: int,
                                          scored_rows: list[int]) -> None:
    """(log Z)² of every example, against autograd over the whole table; for a few rows alone as well."""
    monkeypatch.setattr(module, "MAX_SCORES_HELD", cells)
    net = model()
    query = net.encode(batch())
    log_z = module.ExactTable(net, softmax(), query).log_partition
    scored_rows.clear()
    log_z(slice(0, B)).square().sum().backward()
    assert sum(scored_rows) == len(set(CENTRE))
    result, plain = grads(net, softmax()), model()
    exact = (plain.u[CENTRE] @ plain.v.T).logsumexp(1)
    exact.square().sum().backward()
    torch.testing.assert_close(result, grads(plain, softmax()), rtol=1e-9, atol=1e-12)
    for rows in (torch.tensor([12, 3, 2, 0]), slice(4, 9)):
        torch.testing.assert_close(log_z(rows), exact[rows], rtol=1e-9, atol=1e-12)


# -- chunks and batches ---------------------------------------------------------------------------------------------


@looped("cells", [1, 12, 5 * 4])
@looped("layout", LAYOUTS)
@pytest.mark.parametrize("name", LOSSES)
def test_chunks_change_nothing_and_respect_their_limit(monkeypatch: pytest.MonkeyPatch, name: str, layout: str,
                                                       cells: int) -> None:
    results = []
    for limit in (10**9, cells):
        monkeypatch.setattr(module, "MAX_SCORES_HELD", limit)
        net, loss, source = model(), loss_of(name), FixedDraws(draw_of(layout), LOSSES[name][0])
        rows: list[int] = []
        loss.register_forward_pre_hook(lambda _, inputs, rows=rows: rows.append(len(inputs[0].pos)))
        result = step_of(net, loss, source)(batch())
        results.append([*grads(net, loss), result.cost, result.loss])
        assert sum(rows) == B and all(n == 1 or n * 5 <= limit for n in rows)
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-12)


def test_encoder_is_differentiated_once_for_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCORES_HELD", 5)
    net, passed = model(), list[tuple[int, ...]]()
    plain, rows = net.encode, list[int]()

    def encode(x: SkipGramBatch) -> Query:
        query = plain(x)
        rows.append(len(query))
        if query.vector.requires_grad:
            query.vector.register_hook(lambda g: passed.append(tuple(g.shape)))
        return query

    net.encode = encode  # type: ignore[method-assign]
    step_of(net, loss_of("logistic"), FixedDraws(draw_of("row"), "target"), batch=8)(batch())
    # all encoded once, then each batch again, since its tables changed
    assert passed == [(8, D), (5, D)] and rows == [B, 8, 5]


@looped("layout", LAYOUTS)
@looped("reduction", ["sum", "mean"])
def test_block_equals_its_batches_in_turn(layout: str, reduction: str) -> None:
    """Drawn at once, updated batch by batch, each on the tables left by the one before."""
    one, other, loss = model(), model(), loss_of("nce, one z")
    source = FixedDraws(draw_of(layout), "none")
    result = step_of(one, loss, source, batch=4, lr=0.1, reduction=reduction)(batch())
    drawn = source.received[0][1]
    apart, costs, total = loss_of("nce, one z"), [], 0.0
    parameters = [*other.parameters(), *apart.parameters()]
    adam = torch.optim.Adam(list(apart.parameters()), lr=0.01)
    for start in range(0, B, 4):
        rows = slice(start, min(B, start + 4))
        gradients, cost, values = naive(other, apart, batch().rows(rows), drawn.rows(rows), "none")
        costs.append(cost)
        total += sum(values)
        scale = 1.0 if reduction == "sum" else 1 / (rows.stop - rows.start)
        with torch.no_grad():
            for p, g in zip(parameters[:2], gradients[:2], strict=True):
                p -= 0.1 * scale * g
        apart.c.grad = scale * gradients[2]
        adam.step()
    torch.testing.assert_close(list(one.parameters()), list(other.parameters()), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(loss.c, apart.c, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(result.cost, torch.cat(costs), rtol=1e-7, atol=1e-9)
    assert float(result.loss) == pytest.approx(total / B)


def test_block_without_examples() -> None:
    net, source = model(), FixedDraws(draw_of("plain"), "none")
    source.drawn = None  # type: ignore[assignment]  # no query, so no draw
    before = [p.detach().clone() for p in net.parameters()]
    result = step_of(net, loss_of("logistic"), source)(batch([0]).rows(slice(0, 0)))
    assert float(result.loss) == 0 and result.cost is None and not source.received
    assert all(torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True))


# -- false negatives ------------------------------------------------------------------------------------------------


def pairs(positive: Tensor | None) -> list[tuple[int, int]]:
    assert positive is not None and positive.shape[0] == 2 and positive.dtype == torch.int64
    return sorted(zip(*positive.tolist(), strict=True))


@some.composite
def draws(draw: some.DrawFn, wide: bool) -> tuple[Negatives, Query]:
    """Return any layout: ids drawn more than once, groups with gaps and in any order."""
    n, v = draw(some.integers(1, 12)), draw(some.integers(1, 30))
    k = draw(some.integers(65, 90) if wide else some.integers(1, 8))
    layout = draw(some.sampled_from(["row", "shared", "batch"]))
    g = {"row": n, "shared": draw(some.integers(1, 4)), "batch": 1}[layout]
    seed = torch.Generator().manual_seed(draw(some.integers(0, 10**6)))
    group = torch.randint(g, (n,), generator=seed) if layout == "shared" else None
    ids = torch.randint(v, (g, k), generator=seed)
    target = torch.randint(v + 3, (n,), generator=seed)  # some beyond all drawn ids
    context = torch.randint(4, (n,), generator=seed)
    return Negatives(ids, draw_id=group), Query(torch.zeros(n, 1), context, target, torch.zeros_like(target))


def brute(drawn: Negatives, query: Query, is_right: Callable[[int, int, int], bool]) -> list[tuple[int, int]]:
    result = []
    for i in range(len(query)):
        g = int(drawn.draw_id[i]) if drawn.draw_id is not None else 0 if drawn.ids.shape[0] == 1 else i
        result += [(i, j) for j, id in enumerate(drawn.ids[g].tolist())
                   if is_right(int(query.context[i]), int(query.target[i]), id)]
    return result


@given(draws(wide=False))
def test_own_targets_are_masked(case: tuple[Negatives, Query]) -> None:
    assert pairs(mark_false_negatives(*case, "target", None).false_negatives) == brute(
        *case, lambda _, target, id: id == target
    )


@given(draws(wide=True))
def test_own_targets_are_masked_in_wide_draws(case: tuple[Negatives, Query]) -> None:
    assert pairs(mark_false_negatives(*case, "target", None).false_negatives) == brute(
        *case, lambda _, target, id: id == target
    )


@given(case=some.one_of(draws(wide=False), draws(wide=True)), cells=some.sampled_from([1, 100, 4_000_000]),
       seen=some.sets(some.tuples(some.integers(0, 3), some.integers(0, 29)), max_size=40))
def test_all_known_positives_are_masked(case: tuple[Negatives, Query], cells: int, seen: set[tuple[int, int]]) -> None:
    known = KnownPairs(torch.tensor([a for a, _ in seen], dtype=torch.int64),
                  torch.tensor([b for _, b in seen], dtype=torch.int64), 33)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embtrain.train.engines.false_negatives.MAX_PAIRS_HELD", cells)
        result = mark_false_negatives(*case, "observed", known)
    assert pairs(result.false_negatives) == brute(
        *case, lambda context, target, id: id == target or (context, id) in seen
    )
    assert replace(result, false_negatives=None) is not result and result.ids is case[0].ids


def test_nothing_is_masked_without_filter() -> None:
    query = Query(torch.zeros(2, 1), *(torch.zeros(2, dtype=torch.int64) for _ in range(3)))
    for drawn, mask in ((Negatives(torch.zeros(2, 3, dtype=torch.int64)), "none"), (Negatives(), "target"),
                        (Negatives(vectors=torch.zeros(2, 3, 1)), "target"),
                        (Negatives(torch.zeros(2, 0, dtype=torch.int64)), "target")):
        assert mark_false_negatives(drawn, query, mask, None).false_negatives is None


def test_masked_negatives_keep_their_share_and_their_weight() -> None:
    drawn = draw_of("row")(model().encode(batch()).detach())
    result = mark_false_negatives(drawn, model().encode(batch()).detach(), "target", None)
    assert result.false_negatives.shape[1] > 0 and replace(result, false_negatives=None) == drawn


# -- hardness -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [64, 5])
@pytest.mark.parametrize("candidates", [64, V, 4])
def test_hardness_against_counting(monkeypatch: pytest.MonkeyPatch, layout: str, rows: int, candidates: int) -> None:
    monkeypatch.setattr("embtrain.train.hardness.MAX_ROWS", rows)
    monkeypatch.setattr("embtrain.train.hardness.MAX_CANDIDATES", candidates)
    scored = range(0, V, -(-V // candidates))
    net = model()
    with torch.no_grad():
        net.v[3] = net.v[5] = net.v[6]  # ties
    query = net.encode(batch()).detach()
    drawn = draw_of(layout)(query)
    if layout == "row":
        drawn.origin[:, -1] = PROBE
    cost = torch.randn(B, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    result = hardness(query, drawn, cost, ReadOnly(net))

    expected: dict[str, list[float]] = {}
    n_others: dict[str, int] = {}
    u, v = net.u.detach(), net.v.detach()
    for i in range(B):
        g = int(drawn.draw_id[i]) if drawn.draw_id is not None else 0 if drawn.ids.shape[0] == 1 else i
        z = (v @ u[CENTRE[i]]).tolist()
        for j, id in enumerate(drawn.ids[g].tolist()):
            origin = NOISE if drawn.origin is None else int(drawn.origin[g, j])
            name = {NOISE: "noise", GENERATOR: "generator"}.get(origin)
            if name is None:
                continue
            expected.setdefault(f"loss/{name}", []).append(float(cost[i, j]))
            if i < rows:
                others = [z[y] for y in scored if y != id]
                ties = sum(math.isclose(x, z[id], rel_tol=1e-12) for x in others)
                better = sum(x > z[id] and not math.isclose(x, z[id], rel_tol=1e-12) for x in others)
                expected.setdefault(f"hardness/{name}/rank", []).append(better + ties / 2)
                n_others[name] = n_others.get(name, 0) + len(others)
                for key, value in in_the_plane(u[CENTRE[i]], v[TARGET[i]], v[id]).items():
                    expected.setdefault(f"hardness/{name}/{key}", []).append(value)
    above = {f"hardness/{name}/rank": 1 + sum(expected.pop(f"hardness/{name}/rank")) / n * (V - 1)
             for name, n in n_others.items()}
    assert result == pytest.approx(summed(expected) | above)


def in_the_plane(h: torch.Tensor, e: torch.Tensor, x: torch.Tensor) -> dict[str, float]:
    """Return λ₃, λ₄ and ‖y‖ of a negative x, by Gram and Schmidt."""
    h, e, x = h / h.norm(), e / e.norm(), x / x.norm()
    o = h - (h @ e) * e
    o = o / o.norm()
    return {"cosine": float(x @ e), "lambda4": float(x @ o), "rest": float((x - (x @ e) * e - (x @ o) * o).norm())}


def summed(lists: dict[str, list[float]]) -> dict[str, float]:
    """Return means, and the standard deviations of λ₃ and λ₄."""
    result = {key: sum(x) / len(x) for key, x in lists.items()}
    return result | {f"{key}_sd": float(torch.tensor(x, dtype=torch.float64).std(correction=0))
                     for key, x in lists.items() if key.endswith(("cosine", "lambda4"))}


def test_hardness_of_generated_vectors() -> None:
    """They have a cost, a rank among the candidates' scores, and a part in the plane: all equal, no remainder."""
    net = model()
    query = net.encode(batch()).detach()
    e = torch.nn.functional.normalize(net.v.detach()[query.target], dim=1)
    h = torch.nn.functional.normalize(query.vector, dim=1)
    o = torch.nn.functional.normalize(h - (h * e).sum(1, keepdim=True) * e, dim=1)
    built = (0.6 * e + 0.8 * o).unsqueeze(1)
    drawn = Negatives(vectors=3 * built, weight=torch.ones(B, 1), origin=torch.full((1, 1), 3, dtype=torch.int8))
    cost = torch.arange(B, dtype=torch.float64).unsqueeze(1)
    result = hardness(query, drawn, cost, ReadOnly(net))
    scores, own = query.vector @ net.v.detach().T, (query.vector * 3 * built[:, 0]).sum(1)
    rank = 1 + (scores > own[:, None]).sum(1).double().mean()
    assert result == pytest.approx({
        "loss/synthetic": (B - 1) / 2, "hardness/synthetic/rank": float(rank),
        "hardness/synthetic/cosine": 0.6, "hardness/synthetic/cosine_sd": 0.0, "hardness/synthetic/lambda4": 0.8,
        "hardness/synthetic/lambda4_sd": 0.0, "hardness/synthetic/rest": 0.0}, abs=1e-6)


class Rounding(ReadOnly):
    """A view whose scores have errors of two units in the last place of ‖h‖ ‖x‖, other ones in each column."""

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        s = super().score(query, candidates)
        scale = self.tau if self.geometry == "cosine" else query.vector.norm(dim=1) * self.table().norm(dim=1).median()
        unit = torch.finfo(s.dtype).eps * (scale if isinstance(scale, float) else scale.unsqueeze(1))
        return s + unit * torch.linspace(-2, 2, s.shape[1], dtype=s.dtype)


@looped("similarity", ["dot", "cosine"])
@looped("candidates", [64, V, 4])
@looped("orthogonal", [False, True])
def test_equal_vectors_are_tied_whatever_their_products_round_to(
        monkeypatch: pytest.MonkeyPatch, similarity: str, candidates: int, orthogonal: bool) -> None:
    """Also where all scores are far smaller than ‖h‖ ‖x‖, and so than their rounding errors."""
    monkeypatch.setattr("embtrain.train.hardness.MAX_CANDIDATES", candidates)
    net = model(similarity)
    with torch.no_grad():
        net.v.copy_(net.v[:1].expand_as(net.v).clone())
        if orthogonal:
            net.u -= (net.u @ net.v[0] / net.v[0].square().sum()).unsqueeze(1) * net.v[0]
    query = net.encode(batch()).detach()
    for k in range(V):
        ids, origin = torch.full((B, 1), k), torch.zeros(1, 1, dtype=torch.int8)
        for drawn in (Negatives(ids), Negatives(vectors=net.v.detach()[ids], origin=origin)):
            rank = hardness(query, drawn, torch.zeros(B, 1), Rounding(net))["hardness/noise/rank"]
            # a vector that was built is compared with all V candidates, an id with the V - 1 others
            assert rank == 1 + (V - (drawn.ids is not None)) / 2


@looped("candidates", [V, 4])
def test_a_long_candidate_does_not_tie_the_others(monkeypatch: pytest.MonkeyPatch, candidates: int) -> None:
    monkeypatch.setattr("embtrain.train.hardness.MAX_CANDIDATES", candidates)
    net = model()
    with torch.no_grad():
        net.v[0] *= 1e30
    query, scored = net.encode(batch()).detach(), range(0, V, -(-V // candidates))
    s = query.vector @ net.v.detach().T
    for k in range(1, V):
        others = [c for c in scored if c != k]
        above = float((s[:, others] > s[:, k:k + 1]).double().mean())
        result = hardness(query, Negatives(torch.full((B, 1), k)), torch.zeros(B, 1), ReadOnly(net))
        assert result["hardness/noise/rank"] == pytest.approx(1 + above * (V - 1))


def test_false_negatives_and_fillers_are_not_negatives() -> None:
    net = model()
    query = net.encode(batch()).detach()
    ids, weight = torch.arange(B * 3).view(B, 3) % V, torch.ones(B, 3)
    weight[1, 2] = 0
    positive = torch.stack([torch.arange(B), torch.zeros(B, dtype=torch.int64)])
    cost = torch.arange(B * 3).view(B, 3).double()
    result = hardness(query, Negatives(ids, weight=weight, false_negatives=positive), cost, ReadOnly(net))
    kept = [float(cost[i, j]) for i in range(B) for j in (1, 2) if (i, j) != (1, 2)]
    assert result["loss/noise"] == pytest.approx(sum(kept) / len(kept))
    bare = hardness(query, Negatives(ids), cost, ReadOnly(net))
    assert bare["loss/noise"] == float(cost.mean()) and bare["hardness/noise/rank"] != result["hardness/noise/rank"]


def test_hardness_of_an_empty_draw() -> None:
    net = model()
    query = net.encode(batch()).detach()
    for drawn in (Negatives(), Negatives(torch.zeros(B, 0, dtype=torch.int64))):
        assert hardness(query, drawn, torch.zeros(B, drawn.k), ReadOnly(net)) == {}


def test_hardness_limits_the_negatives_it_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranking each of V negatives in each row among V scores would take V² numbers a row."""
    net, query = model(), model().encode(batch()).detach()
    drawn, view = every().draw(query, 1, ReadOnly(net)), ReadOnly(net)
    monkeypatch.setattr("embtrain.train.hardness.MAX_RANKED", 7)
    result = hardness(query, drawn, torch.zeros(B, V), view)
    stride = -(-B * V // 7)
    s = view.score(query, torch.arange(V).unsqueeze(0))
    ranks = [float(1 + (s[i // V] > s[i // V, i % V]).sum() + ((s[i // V] == s[i // V, i % V]).sum() - 1) / 2)
             for i in range(0, B * V, stride)]
    assert result["hardness/noise/rank"] == pytest.approx(sum(ranks) / len(ranks))


def test_the_precision_of_products_is_restored() -> None:
    before = torch.get_float32_matmul_precision()
    for kind, inside in (("float32", before), ("tf32", "high")):
        with contextlib.suppress(ZeroDivisionError), matmul_precision(kind):
            assert torch.get_float32_matmul_precision() == inside
            raise ZeroDivisionError
        assert torch.get_float32_matmul_precision() == before
