"""Order embeddings: the score in plain Python, all paths to it, its gradient, and the orthant."""

from __future__ import annotations

import itertools

import pytest
import torch

from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec
from embtrain.data.hierarchy.examples import PairBatch
from embtrain.models.hierarchies import base as module
from embtrain.models.hierarchies.order import Order, OrderConfig

V, D, B = 7, 4, 5
DOUBLE = torch.float64


def problem(**keys: object) -> ProblemSpec:
    return ProblemSpec(V, torch.ones(V, dtype=DOUBLE),
                       **({"context_sizes": (V, 2), "dim": D, "seed": 3} | keys))  # type: ignore[arg-type]


def build(orthant: str = "clamp") -> Order:
    model = Order(OrderConfig(dim=D, orthant=orthant), problem()).double()
    if orthant == "abs":
        with torch.no_grad():
            model.x.mul_(torch.tensor([1.0, -1.0]).repeat(D // 2))
    return model


def batch() -> PairBatch:
    draw = torch.Generator().manual_seed(1)
    concept, target = torch.randint(V, (2, B), generator=draw)
    return PairBatch(target, torch.tensor([0, 1, 1, 0, 1]), concept)


def plain(model: Order, concept: int, slot: int, candidate: int) -> float:
    """Return −E of the pair that the candidate makes, by its definition."""
    rows = [[abs(x) if model.config.orthant == "abs" else x for x in row] for row in model.x.tolist()]
    u, v = (concept, candidate) if slot == 0 else (candidate, concept)
    return -sum(max(0.0, rows[v][d] - rows[u][d]) ** 2 for d in range(D))


@pytest.mark.parametrize("orthant", ["clamp", "abs"])
def test_score_matches_its_formula_by_every_path(orthant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, pairs = build(orthant), batch()
    query, everyone = model.encode(pairs), torch.arange(V)[None]
    expected = torch.tensor([[plain(model, g, s, c) for c in range(V)]
                             for g, s in zip(pairs.concept.tolist(), pairs.slot.tolist(), strict=True)], dtype=DOUBLE)
    ids = torch.randint(V, (B, 9), generator=torch.Generator().manual_seed(2))
    for cells in (1 << 24, 50):                                # at once, and in chunks that are computed again
        monkeypatch.setattr(module, "MAX_DIFFERENCES", cells)
        torch.testing.assert_close(model.score(query, everyone), expected)
        with torch.no_grad():                                  # chunks are then put into their place
            torch.testing.assert_close(model.score(query, everyone), expected)
        torch.testing.assert_close(model.score(query, ids), expected.gather(1, ids))
        torch.testing.assert_close(model.score(query, model.table()[ids]), expected.gather(1, ids))
    assert (expected <= 0).all() and (expected.gather(1, pairs.concept[:, None]) == 0).all()


@pytest.mark.parametrize("orthant", ["clamp", "abs"])
@pytest.mark.parametrize("cells", [1 << 24, 50])
def test_gradient_equals_finite_differences(orthant: str, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DIFFERENCES", cells)
    model, pairs = build(orthant), batch()
    model.sparse = False
    ids = torch.arange(V).repeat(B, 1)

    def scores(x: torch.Tensor) -> torch.Tensor:
        del model.x
        model.x = x  # type: ignore[assignment]
        query = model.encode(pairs)
        return torch.cat([model.score(query, ids), model.score(query, ids[:1])], 1)

    x = model.x.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(scores, (x,))


def test_equal_queries_are_one_group() -> None:
    pairs = PairBatch(torch.tensor([1, 2, 3, 4]), torch.tensor([0, 0, 1, 0]), torch.tensor([5, 5, 5, 6]))
    query = build().encode(pairs)
    assert query.context.tolist() == [[5, 0], [5, 0], [5, 1], [6, 0]] and query.query_id is not None
    same = query.query_id[:, None] == query.query_id
    assert same.tolist() == [[a == b for b in query.context.tolist()] for a in query.context.tolist()]


def test_clamp_keeps_the_orthant_after_an_update_and_abs_reads_it() -> None:
    for orthant in ("clamp", "abs"):
        model = build(orthant)
        with torch.no_grad():
            model.x -= 0.05
        model.after_update(batch())
        assert (model.table() >= 0).all() and (model.x >= 0).all() == (orthant == "clamp")


def test_initial_table_is_in_the_orthant_and_follows_its_seed() -> None:
    first, again, other = (Order(OrderConfig(dim=D, start=0.5), problem(seed=seed)).x.detach() for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert 0 <= float(first.min()) < 0.2 and 0.3 < float(first.max()) <= 0.5


@pytest.mark.parametrize("sizes", [None, (V,), (V, 2, 3)])
def test_contexts_that_are_not_pairs_are_rejected(sizes: tuple[int, ...] | None) -> None:
    with pytest.raises(UsageError, match="needs pairs of concepts"):
        Order(OrderConfig(dim=D), problem(context_sizes=sizes))


def test_chain_in_order_costs_nothing_upwards_and_something_downwards() -> None:
    model = build()
    with torch.no_grad():
        model.x.copy_(torch.arange(V)[:, None].expand(V, D))
    for u, v in itertools.product(range(V), repeat=2):
        query = model.encode(PairBatch(torch.tensor([v]), torch.tensor([0]), torch.tensor([u])))
        assert float(model.score(query, torch.tensor([[v]])).detach()) == -D * max(0, v - u) ** 2
