"""Losses and sources that need a frozen output table: found in the package, rejected with a trained table, learning.

The world: each context has one positive with a fixed vector; one vector per context is trained.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from embtrain.common.types import SYNTHETIC, ProblemSpec, Query
from embtrain.data.text.windows import SkipGramBatch
from embtrain.losses import base as losses
from embtrain.models.output_table import OutputTableConfig
from embtrain.models.words.skipgram import SkipGram, SkipGramConfig
from embtrain.negatives import base as negatives
from embtrain.negatives.base import NegativeSource
from embtrain.train.checks.compatibility import incompatibilities
from embtrain.train.config import TrainConfig
from embtrain.train.engines.autograd import ReadOnly, Step

pytestmark = pytest.mark.long

V, D = 24, 8
WORLD = ProblemSpec(V, torch.ones(V, dtype=torch.float64), V, dim=D, seed=2)
LOSSES = [name for name in losses.names() if losses.find(name).traits.needs_frozen_table]
SOURCES = [name for name in negatives.names() if negatives.find(name).traits.needs_frozen_table]


def model(loss: str = "margin", kind: str = "sphere", frozen: bool = True) -> SkipGram:
    geometries = losses.find(loss).traits.geometry
    similarity = "dot" if geometries == {"dot"} else "cosine"
    tau = 1.0 if loss in ("margin", *LOSSES) else 10.0
    return SkipGram(SkipGramConfig(dim=D, similarity=similarity, tau=tau,
                                   output_table=OutputTableConfig(kind=kind, frozen=frozen)), WORLD)


def source(name: str, problem: ProblemSpec = WORLD, **keys: Any) -> NegativeSource:
    source_class = negatives.find(name)
    return source_class(source_class.Config(**{"source": name, "k": 1, "filter": "none", **keys}), problem)


def loss(name: str, **keys: Any) -> losses.Loss:
    loss_class = losses.find(name)
    return loss_class(loss_class.Config(name=name, **keys), WORLD)


#: Losses that correct for negatives that are random draws, which these are not.
FOR_RANDOM_DRAWS = {"contrastive", "gbce"}
#: Losses that pull a positive no further than to a score of 0, which a cosine reaches far from the target.
SATISFIED_AT_ZERO = {"hinged_softmax"}
#: Losses that compare with negatives of unknown probability.
COMPARING = [name for name in losses.names() if name not in FOR_RANDOM_DRAWS | SATISFIED_AT_ZERO
             and (traits := loss(name).traits).candidate_scope == "drawn" and traits.needs_q == "no"]
PAIRS = [*(("none", loss) for loss in LOSSES),
         *((source, loss) for source in [*SOURCES, "most_informative"] for loss in COMPARING)]


def batch() -> SkipGramBatch:
    context = torch.arange(V)
    return SkipGramBatch((context * 5 + 3) % V, torch.zeros(V, dtype=torch.int64), context, context)


def make_query(vector: Tensor, target: Tensor | None = None) -> Query:
    targets = torch.arange(len(vector)) if target is None else target
    return Query(vector, targets, targets, torch.zeros_like(targets))


def test_some_losses_and_sources_need_a_frozen_table() -> None:
    assert {"vmf", "power_spherical", "cosine"} <= set(LOSSES)
    assert {"synthetic_projection", "synthetic_difference"} <= set(SOURCES)


@pytest.mark.parametrize(("kind", "name"), [*(("loss", x) for x in LOSSES), *(("source", x) for x in SOURCES)])
def test_a_trained_table_is_rejected_in_one_line(kind: str, name: str) -> None:
    of_loss = loss(name if kind == "loss" else "margin")
    of_source = source(name if kind == "source" else "none")
    for skipgram in (model(of_loss.name, "learned", False), model(of_loss.name, "sphere", False)):
        reasons = incompatibilities(of_source, of_loss, skipgram)
        assert len(reasons) == 1 and len(reasons[0].splitlines()) == 1
        assert name in reasons[0] and "model.output_table.frozen: true" in reasons[0]
    assert incompatibilities(of_source, of_loss, model(of_loss.name)) == []


@pytest.mark.parametrize("name", LOSSES)
def test_unused_negatives_are_not_drawn(name: str) -> None:
    reasons = incompatibilities(source("uniform"), loss(name), model(name))
    assert len(reasons) == 1 and "negatives.source: none" in reasons[0]


@pytest.mark.parametrize("name", [*SOURCES, "vmf"])
def test_another_geometry_is_rejected(name: str) -> None:
    mismatched = model("margin" if name == "vmf" else "vmf")
    reasons = incompatibilities(
        source("none" if name == "vmf" else name), loss("vmf" if name == "vmf" else "margin"), mismatched
    )
    assert len(reasons) == 1 and f"scores by {mismatched.geometry}" in reasons[0]


@pytest.mark.parametrize(("source_name", "name"), PAIRS)
def test_predictions_converge_to_their_targets(source_name: str, name: str) -> None:
    skipgram = model(name)
    skipgram.sparse = False
    before, cost = skipgram.v.clone(), loss(name)
    step = Step(skipgram, source(source_name), cost, [torch.optim.Adam(skipgram.parameters(), lr=0.05)],
                TrainConfig(batch=64, reduction="mean"))
    for _ in range(200):
        results = step(batch())
    near = (torch.nn.functional.normalize(skipgram.u.detach(), dim=1) @ skipgram.v.T).argmax(1)
    assert torch.isfinite(results.loss) and torch.equal(skipgram.v, before)
    assert (near == batch().target).float().mean() > 0.95


@pytest.mark.parametrize("name", SOURCES)
def test_generated_negatives_are_detached_unit_vectors_marked_as_generated(name: str) -> None:
    skipgram = model()
    query = skipgram.encode(batch())
    assert query.vector.requires_grad
    drawn = source(name).draw(query.detach(), 1, ReadOnly(skipgram))
    assert drawn.ids is None and drawn.log_q is None and drawn.vectors is not None and drawn.origin is not None
    assert drawn.vectors.shape == (V, 1, D) and not drawn.vectors.requires_grad
    torch.testing.assert_close(drawn.vectors.norm(dim=2), torch.ones(V, 1))
    assert drawn.origin.unique().tolist() == [SYNTHETIC]
    assert "=" in (inspect.getmodule(type(source(name))).__doc__ or "")  # type: ignore[union-attr]


@pytest.mark.parametrize("name", SOURCES)
def test_rows_do_not_mix_and_pieces_score_like_the_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of weight 0 keeps its weight in any piece."""
    skipgram, sampler = model(), source(name)
    with torch.no_grad():
        skipgram.u[2] = skipgram.v[batch().target[2]]
    query = skipgram.encode(batch()).detach()
    drawn, order = sampler.draw(query, 1, ReadOnly(skipgram)), torch.arange(V).flip(0)
    assert drawn.weight is not None and drawn.vectors is not None
    assert drawn.weight[:, 0].tolist() == [0.0 if i == 2 else 1.0 for i in range(V)]
    assert torch.equal(sampler.draw(query.rows(order), 1, ReadOnly(skipgram)).vectors,
                       drawn.vectors[order])  # type: ignore[arg-type]
    results = []
    for cells in (32_000_000, 5):
        monkeypatch.setattr("embtrain.train.engines.autograd.MAX_SCORES_HELD", cells)
        skipgram.zero_grad()
        step = Step(skipgram, sampler, loss("margin", margin=1.5), [torch.optim.SGD(skipgram.parameters(), lr=0.0)],
                    TrainConfig(batch=64))
        results.append((step(batch()).loss, skipgram.u.grad.to_dense()))          # type: ignore[union-attr]
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("name", [*SOURCES, "most_informative"])
def test_each_update_draws_again(name: str) -> None:
    """A negative generated for an earlier prediction does not fit the current one."""
    tables, mean_losses = [], []
    for parts in ([slice(0, V)], [slice(0, 10), slice(10, 20), slice(20, V)]):
        skipgram = model()
        step = Step(skipgram, source(name), loss("margin", margin=1.5),
                    [torch.optim.SGD(skipgram.parameters(), lr=0.3)],
                    TrainConfig(batch=10))
        both = SkipGramBatch(batch().target, batch().slot, batch().centre * 0, batch().window)  # one vector for all
        results = [(step(both.rows(rows), keep_costs=True), rows) for rows in parts]
        mean_losses.append(sum(float(update.loss) * (rows.stop - rows.start) for update, rows in results) / V)
        tables.append(skipgram.u.detach().clone())
        assert results[-1][0].cost is not None and len(results[-1][0].cost) == 4 == len(results[-1][0].query)  # type: ignore[arg-type]
    assert torch.equal(*tables) and mean_losses[0] == pytest.approx(mean_losses[1], rel=1e-6)


@pytest.mark.parametrize("key", ["k=2", "share_draws_by=batch"])
@pytest.mark.parametrize("name", SOURCES)
def test_unsupported_settings_are_rejected(name: str, key: str) -> None:
    from embtrain.common.errors import UsageError

    word, value = key.split("=")
    with pytest.raises(UsageError, match=rf"negatives\.{word}"):
        source(name, **{word: int(value) if value.isdigit() else value})


# --- syn-margin by angles ---------------------------------------------------------------------------------------------

ANGLES = torch.tensor([0.001, 1, 20, 41, 60, 90, 120, 134, 136, 150, 179], dtype=torch.float64).deg2rad()


class FixedView:
    """A view of a fixed table."""

    geometry, tau, has_frozen_table, n_candidates = "cosine", 1.0, True, len(ANGLES)

    def __init__(self, table: Tensor):
        self.vectors = table

    def table(self) -> Tensor:
        return self.vectors

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        raise AssertionError("score must not be called")


def at_angles() -> tuple[Tensor, Tensor]:
    """h and e, (n, D) each: h of several lengths, each at its angle to its target e."""
    draw, n = torch.Generator().manual_seed(4), len(ANGLES)
    basis = torch.linalg.qr(torch.randn(n, D, 2, generator=draw, dtype=torch.float64))[0]
    e, o = basis[..., 0], basis[..., 1]
    h = ANGLES.cos()[:, None] * e + ANGLES.sin()[:, None] * o
    return h * torch.linspace(0.1, 30, n, dtype=torch.float64)[:, None], e


@pytest.mark.parametrize("eta", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("name", ["synthetic_projection", "synthetic_difference"])
def test_the_loss_and_its_gradient_match_the_angle(name: str, eta: float) -> None:
    h, e = at_angles()
    sampler = source(name)
    drawn = sampler.draw(make_query(h), 1, FixedView(e))
    assert drawn.vectors is not None
    u, theta = drawn.vectors[:, 0], ANGLES
    unit = torch.nn.functional.normalize(h, dim=1).requires_grad_()
    value = (eta + (u * unit).sum(1) - (e * unit).sum(1)).relu()
    beyond = theta > math.radians(135)
    projected = name == "synthetic_projection"
    angle_loss = torch.where(beyond, (theta / 2).sin(), theta.sin()) if projected else (theta / 2).sin()
    torch.testing.assert_close(value.detach(), (eta + angle_loss - theta.cos()).relu(), rtol=0, atol=1e-9)
    slope = torch.autograd.grad(value.sum(), unit)[0]
    o = torch.nn.functional.normalize(h - (h * e).sum(1, keepdim=True) * e, dim=1)
    turn = (slope * (-theta.sin()[:, None] * e + theta.cos()[:, None] * o)).sum(1)      # dL/dθ
    pull = torch.where(beyond, (theta / 2).cos(), theta.cos()) if projected else (theta / 2).cos()
    active = value.detach() > 0
    torch.testing.assert_close(turn[active], (pull + theta.sin())[active], rtol=0, atol=1e-9)
    assert (turn >= 0).all() and active[theta > math.radians(60)].all()
    if projected:
        assert sampler.metrics() == {"reversed": pytest.approx(3 / len(ANGLES))}
        assert ((u * e).sum(1)[~beyond].abs() < 1e-9).all()


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_target_the_loss_is_zero_and_the_gradient_finite(name: str, dtype: torch.dtype) -> None:
    skipgram = SkipGram(SkipGramConfig(dim=D, similarity="cosine", output_table=OutputTableConfig(kind="sphere",
                                                                                                  frozen=True)),
                        WORLD).to(dtype)
    with torch.no_grad():
        skipgram.u.copy_(3 * skipgram.v[batch().target])
        skipgram.u[1] = 0
    step = Step(skipgram, source(name), loss("margin", margin=1.5), [torch.optim.SGD(skipgram.parameters(), lr=0.1)],
                TrainConfig(batch=64))
    query = skipgram.encode(batch())
    scored = step.score(query, step.source.draw(query.detach(), 1, step.view))
    example = step.loss(scored).per_example
    assert (example[2:] == 0).all() and example[0] == 0
    example.sum().backward()
    assert skipgram.u.grad is not None and skipgram.u.grad.to_dense().isfinite().all()


# --- the most informative negative ------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["synthetic_projection", "synthetic_difference", "most_informative"])
def test_the_loss_of_a_query_that_is_not_finite_is_not(name: str) -> None:
    skipgram = model()
    step = Step(skipgram, source(name), loss("margin"), [], TrainConfig(engine="autograd"))
    query = skipgram.encode(batch())
    query = query.with_vector(torch.cat([query.vector[:1] * torch.nan, query.vector[1:]]))
    scored = step.score(query, step.source.draw(query.detach(), 1, step.view))
    found = step.loss(scored).per_example
    assert found[0].isnan() and found[1:].isfinite().all()


def test_the_most_informative_negative_excludes_the_target_and_excluded_words() -> None:
    words = [f"w{i}" for i in range(V)]
    words[7] = "<unk>"
    skipgram = model()
    with torch.no_grad():
        skipgram.u.mul_(100)
    query = skipgram.encode(batch()).detach()
    sampler = source("most_informative", ProblemSpec(V, WORLD.counts, V, dim=D, words=words), k=2)
    ids = sampler.draw(query, 2, ReadOnly(skipgram)).ids
    assert ids is not None
    chosen = set()
    for i in range(V):
        t, h = int(query.target[i]), query.vector[i] / query.vector[i].norm()
        worth = {b: float(skipgram.v[b] @ (h - skipgram.v[t])) for b in range(V) if b not in (t, 7)}
        assert ids[i].tolist() == sorted(worth, key=worth.__getitem__, reverse=True)[:2]
        chosen |= set(ids[i].tolist())
    assert len(chosen) > 5
    free = source("most_informative", k=3).draw(query, 3, ReadOnly(skipgram)).ids
    assert free is not None and (free == 7).any() and torch.equal(free[:, 0][ids[:, 0] == free[:, 0]],
                                                                  ids[:, 0][ids[:, 0] == free[:, 0]])


def test_the_target_is_never_chosen() -> None:
    """A candidate opposite to h scores below the target and is still chosen."""
    h, e = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    table = torch.cat([e, torch.nn.functional.normalize(e - h, dim=1), h])
    sampler = source("most_informative", ProblemSpec(3, torch.ones(3, dtype=torch.float64), dim=2), k=2)
    worth = table @ (h - e)[0]
    assert worth[1] < worth[0] < worth[2]
    ids = sampler.draw(make_query(h), 2, FixedView(table)).ids
    assert ids is not None and ids.tolist() == [[2, 1]]


def test_a_table_of_any_lengths_is_normalized() -> None:
    skipgram = model("margin", "learned", False)
    query = skipgram.encode(batch()).detach()
    before = source("most_informative").draw(query, 1, ReadOnly(skipgram)).ids
    with torch.no_grad():
        skipgram.v.mul_(torch.linspace(0.1, 9, V)[:, None])
    assert torch.equal(source("most_informative").draw(query, 1, ReadOnly(skipgram)).ids, before)
