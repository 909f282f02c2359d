"""Kernel-based sources: their q against kernels summed one by one, what is stale, what is refused, and resuming."""

from __future__ import annotations

import itertools
import logging
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.cores import needs_core
from helpers.source_worlds import TableView, source
from scipy import stats

from embtrain.common.errors import ResourceError, UsageError
from embtrain.common.types import ProblemSpec, Query
from embtrain.losses import base as losses
from embtrain.models.base import Model
from embtrain.negatives import base
from embtrain.negatives.sampling.row_store import RowStore, stored_tensors
from embtrain.negatives.softmax.kernels import inside
from embtrain.negatives.softmax.kernels.base import KernelSource, prior_weights
from embtrain.train.checks.compatibility import incompatibilities
from embtrain.train.state.serialize import encode

pytestmark = pytest.mark.long

DOUBLE = torch.float64
D = 8

#: Ways to set each source up that differ in how a candidate is reached.
WAYS: dict[str, dict[str, Any]] = {
    "rff": {"features": 128}, "rff by 16": {"features": 64, "branching": 16, "leaf_size": 64,
                                            "leaf_order": "frequency"},
    "rff of copies": {"features": 64, "branching": 4, "leaf_size": 9, "leaf_order": "frequency",
                      "within_leaf": "quantized"},
    "rff structured with a prior": {"features": 100, "directions": "structured", "prior_exponent": 0.75, "leaf_size": 3,
                                    "branching": 5},
    "quadratic": {}, "quadratic of products": {"argument": "product", "leaf_size": 1, "branching": 4},
    "maclaurin": {"features": 128, "leaf_size": 5, "within_leaf": "kernel"}, "positive_features": {"features": 64},
    "positive_features bounded": {"features": 64, "kind": "bounded", "leaf_size": 4, "within_leaf": "kernel",
                                  "prior_exponent": 0.5,
                                  "leaf_order": "frequency"},
}


class VectorView:
    """A model whose scores are τ cos(h, c), or h·c."""

    def __init__(self, v: int, tau: float | None = 6.0, seed: int = 0, scale: float = 1.0):
        self.geometry, self.tau = ("dot", 1.0) if tau is None else ("cosine", tau)
        self.c = torch.randn(v, D, generator=torch.Generator().manual_seed(seed)) * scale
        self.n_candidates = v

    def table(self) -> torch.Tensor:
        return self.c

    def score(self, query: Query, candidates: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a kernel source asks for the table alone")


def made(way: str, v: int = 500, seed: int = 3, **more: Any) -> KernelSource:
    found = base.find(way.split()[0])
    counts = 1000 / torch.arange(1, v + 1, dtype=DOUBLE)[torch.randperm(v, generator=torch.Generator().manual_seed(1))]
    of = found(found.Config(source=found.name, **{**WAYS[way], **more}), ProblemSpec(v, counts, dim=D, seed=seed))
    assert isinstance(of, KernelSource)
    return of


def ask(rows: int, seed: int = 5, v: int = 500, scale: float = 1.0) -> Query:
    draw = torch.Generator().manual_seed(seed)
    h = torch.randn(rows, D, generator=draw) * scale
    return Query(h, torch.arange(rows), torch.randint(0, v, (rows,), generator=draw),
                 torch.zeros(rows, dtype=torch.int64), torch.arange(rows))


def by_hand(of: KernelSource, view: VectorView, h: torch.Tensor, without: int | None) -> torch.Tensor:
    """q of every candidate for one question (D,), each mass a sum over candidates, one node at a time: (V,)."""
    unit, fan, leaf, v = view.geometry == "cosine", of.config.branching, of.config.leaf_size, view.n_candidates
    s = of.feature_map.scale(view.tau)
    x, y = h.double(), view.c.double()
    if unit:
        x, y = x / x.norm(), y / y.norm(dim=1, keepdim=True)
    phi = of.feature_map.encode_queries(s * x.unsqueeze(0))[0]
    k = of.feature_map.encode_classes(s * y).double() @ phi                                             # (V,) K(h, c)
    least = of.config.floor * float(of.feature_map.log_neutral(s * x.unsqueeze(0)).exp())
    o = view.tau * (y @ x)
    if of.config.within_leaf == "quantized":
        own = torch.nn.functional.normalize(view.c, dim=1) if unit else view.c
        kept = RowStore(v, D, "int8", "cpu")
        kept.write(torch.arange(v), own)
        o = kept.read(slice(None)) @ kept.round_query(view.tau * x.unsqueeze(0))[0]
    pi, order = prior_weights(of.world.counts, of.config.prior), of.blocks.order.tolist()
    q = torch.zeros(v, dtype=DOUBLE)

    def mass(places: range) -> float:
        ids = [i for p in places if p < v and (i := order[p]) != without]
        return max(float((pi[ids] * k[ids]).sum()), least * float(pi[ids].sum())) if ids else 0.0

    def walk(first: int, span: int, share: float) -> None:
        if span == leaf:
            ids = [i for p in range(first, min(v, first + leaf)) if (i := order[p]) != without]
            inside = torch.softmax(o[ids], 0)
            if leaf == 1 or of.config.within_leaf == "kernel":
                inside = pi[ids] * k[ids].clamp(min=least)
            q[ids] = share * inside / inside.sum()
            return
        step = span // fan
        children = list(range(first, min(v, first + span), step))
        masses = [mass(range(f, f + step)) for f in children]
        for f, m in zip(children, masses, strict=True):
            if m > 0:
                walk(f, step, share * m / sum(masses))

    span = leaf
    while span < v or span == leaf:
        span *= fan
    walk(0, span, 1.0)
    return q


@pytest.mark.parametrize("tau", [6.0, None])
@pytest.mark.parametrize("excluded", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_q_is_that_of_the_kernel_summed_one_by_one(way: str, excluded: bool, tau: float | None) -> None:
    view = VectorView(90, tau, scale=0.5)
    of = made(way, 90, exclude_target=excluded, sum_dtype="float32")
    of.on_epoch_start(view)
    asked = ask(2, v=90)
    log_q = of.log_prob(asked, torch.arange(90).unsqueeze(0)).double()
    for row in range(2):
        target = int(asked.target[row]) if excluded else None
        expected = by_hand(of, view, asked.vector[row], target)
        assert float(expected.sum()) == pytest.approx(1)
        torch.testing.assert_close(log_q[row].exp(), expected, rtol=1e-3, atol=1e-6)
        assert (log_q[row].argmin() == target and log_q[row].min() == -torch.inf) == excluded
        if not excluded:
            torch.testing.assert_close(of.draw(asked, 1, view).log_q_target[row], log_q[row, asked.target[row]].float())


@pytest.mark.parametrize("excluded", [False, True])
@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("rff")])
def test_sums_in_eight_bits_leave_q_as_it_is(way: str, excluded: bool) -> None:
    """Beside the noise of the features themselves."""
    view, asked, everyone = VectorView(500, 6.0), ask(20), torch.arange(500).unsqueeze(0)
    log_q = {}
    for kind in ("int8", "float32"):
        of = made(way, exclude_target=excluded, sum_dtype=kind)
        of.on_epoch_start(view)
        log_q[kind] = of.log_prob(asked, everyone).double()
        assert (of.tree.sums[0].stored.dtype == torch.uint8) == (kind == made(way).config.sums)
    mine, exact = log_q["int8"], log_q["float32"]
    kl = (exact.exp() * torch.where(exact.isfinite(), exact - mine, 0.0)).sum(1)
    assert (mine.isfinite() == exact.isfinite()).all() and 1e-9 < float(kl.mean()) < 2e-3


@pytest.mark.parametrize("way", WAYS)
def test_among_ten_thousand_it_draws_with_the_probability_that_it_reports(way: str) -> None:
    v, view = 10_000, VectorView(10_000)
    of = made(way, v, exclude_target=True)
    asked = ask(1, v=v)
    drawn = of.draw(asked, 100_000, view)
    assert drawn.ids is not None and drawn.log_q is not None
    log_q = of.log_prob(asked, torch.arange(v).unsqueeze(0))[0].double()
    q = log_q.exp()
    assert float(q.sum()) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(drawn.log_q[0].double(), log_q[drawn.ids[0]], atol=1e-5, rtol=0)
    seen = torch.bincount(drawn.ids[0], minlength=v).double()
    assert seen[asked.target[0]] == 0
    for order in (q.argsort(descending=True), torch.arange(v)):                           # by q-rank, and by id block
        cell = ((q[order] * 100_000).cumsum(0) / 60).long().clamp(max=1600)
        expected, counted = (torch.zeros(1601, dtype=DOUBLE).index_add_(0, cell, x[order]) for x in (q * 1e5, seen))
        some = expected >= 40
        assert int(some.sum()) > 50
        chi2 = float(((counted - expected).square() / expected)[some].sum())
        assert stats.chi2.sf(chi2, int(some.sum())) > 0.001 / (2 * len(WAYS))


def test_with_many_features_and_nu_at_tau_it_nears_the_softmax() -> None:
    view, asked = VectorView(300, 2.0), ask(20, v=300)
    h, c = (torch.nn.functional.normalize(x.double(), dim=1) for x in (asked.vector, view.c))
    log_p = (2.0 * h @ c.T).log_softmax(1)
    kl = {}
    for features in (64, 4096):
        for way in ("rff", "positive_features"):
            of = made(way, 300, features=features, nu=2.0)
            of.on_epoch_start(view)
            log_q = of.log_prob(asked, torch.arange(300).unsqueeze(0))
            kl[way, features] = float((log_p.exp() * (log_p - log_q)).sum(1).mean())
    uniform = float((log_p.exp() * (log_p + torch.tensor(300.0).log())).sum(1).mean())
    for way in ("rff", "positive_features"):
        assert kl[way, 4096] < 0.2 * kl[way, 64] and kl[way, 4096] < 0.05 * uniform


# --- keeping up ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("way", ["rff", "rff of copies"])
def test_between_refreshes_the_stale_masses_are_those_that_draw_and_are_reported(way: str) -> None:
    view, asked, everyone = VectorView(200), ask(1, v=200), torch.arange(200).unsqueeze(0)
    of = made(way, 200, update_every=0)
    of.on_epoch_start(view)
    before = of.log_prob(asked, everyone)
    view.c.copy_(VectorView(200, seed=9).c)                                               # in place, as training does
    assert torch.equal(of.log_prob(asked, everyone), before)
    drawn = of.draw(asked, 50_000, view)
    assert drawn.ids is not None
    assert torch.equal(of.log_prob(asked, everyone), before)
    expected = before[0].double().exp() * 50_000
    seen, some = torch.bincount(drawn.ids[0], minlength=200).double(), expected >= 50
    assert stats.chi2.sf(float(((seen - expected).square() / expected)[some].sum()), int(some.sum())) > 1e-4
    of.on_epoch_start(view)
    assert float((of.log_prob(asked, everyone) - before).abs().max()) > 0.5


@pytest.mark.parametrize("way", WAYS)
def test_what_was_drawn_is_summed_anew_before_the_next_draw(way: str) -> None:
    view, asked = VectorView(200), ask(4, v=200)
    of = made(way, 200)
    for step in range(5):
        drawn = of.draw(asked, 6, view)
        moved = torch.unique(torch.cat([drawn.ids.flatten(), asked.target]))              # type: ignore[union-attr]
        view.c = view.c.clone()
        view.c[moved] += torch.randn(len(moved), D, generator=torch.Generator().manual_seed(step))
    of.draw(asked, 1, view)
    fresh = made(way, 200)
    fresh.feature_map.load(of.feature_map.state())
    fresh.feature_map.fit = lambda some, largest: None                                            # type: ignore[method-assign]
    fresh.on_epoch_start(view)                                                                   # with the same offsets
    for mine, theirs in zip(of.tree.sums, fresh.tree.sums, strict=True):
        far = theirs.read(slice(None)).abs().max() * (1e-6 if theirs.scale is None else 1 / 127)  # one step at the most
        torch.testing.assert_close(mine.read(slice(None)), theirs.read(slice(None)), rtol=0, atol=float(far))
    assert (of.copy is None) == (fresh.copy is None) == (of.config.within_leaf != "quantized")
    copies = stored_tensors(of.copy), stored_tensors(fresh.copy)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*copies, strict=True))


@pytest.mark.parametrize(("update", "rebuild", "same"), [(0, 0, [1, 1, 1, 1, 1]), (2, 0, [1, 0, 1, 0, 1]),
                                                        (0, 3, [1, 1, 0, 1, 1]), (1, 0, [0, 0, 0, 0, 0])])
def test_the_pace_of_updates_is_that_of_the_settings(update: int, rebuild: int, same: list[int]) -> None:
    view, asked = VectorView(50), ask(10, v=50)
    of, seen = made("rff", 50, update_every=update, rebuild_every=rebuild), []
    for _ in range(6):
        of.draw(asked, 20, view)
        seen.append([s.clone() for s in of.tree.stored_tensors()])
        view.c += 0.1
    assert [int(all(map(torch.equal, a, b))) for a, b in itertools.pairwise(seen)] == same


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(way: str) -> None:
    views = VectorView(200), VectorView(200)
    sources = made(way, 200, update_every=2, exclude_target=True), made(way, 200, update_every=2, exclude_target=True,
                                                                        seed=77)

    def step(of: KernelSource, view: VectorView, number: int) -> tuple[torch.Tensor, ...]:
        drawn = of.draw(ask(5, seed=number, v=200), 4, view)
        assert drawn.ids is not None and drawn.log_q is not None
        view.c = view.c.clone()
        view.c[drawn.ids.flatten()] *= 1.1
        view.c[3] += 0.1                                                                  # nobody marks this one
        return drawn.ids, drawn.log_q

    for number in range(5):
        step(sources[0], views[0], number)
    state = sources[0].state_dict()
    encode(state)                                                                         # a checkpoint can hold it
    copy = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
    copy["sums"] = [s.clone() for s in state["sums"]]
    copy["map"] = {k: v.clone() for k, v in state["map"].items()}
    sources[1].load_state_dict(copy)
    views[1].c = views[0].c.clone()
    for number in range(5, 10):
        for mine, theirs in zip(*(step(of, view, number) for of, view in zip(sources, views, strict=True)),
                                strict=True):
            assert torch.equal(mine, theirs)


def test_a_window_shares_a_draw_for_each_question_in_it() -> None:
    asked = replace(ask(6), query_id=torch.tensor([0, 0, 1, 1, 1, 0]), window=torch.tensor([0, 0, 1, 1, 2, 2]))
    asked = replace(asked, vector=asked.vector[torch.tensor([0, 0, 1, 1, 1, 0])])
    of = made("rff", share_draws_by="window")
    drawn = of.draw(asked, 8, VectorView(500))
    assert drawn.ids is not None and drawn.ids.shape == (4, 8) and drawn.draw_id is not None
    assert drawn.draw_id.tolist() == [0, 0, 1, 1, 3, 2]
    log_q = of.log_prob(asked, drawn.per_row(drawn.ids, 6))
    torch.testing.assert_close(drawn.per_row(drawn.log_q, 6), log_q)


# --- what is refused, and what is said -------------------------------------------------------------------------------

@pytest.mark.parametrize(("way", "settings", "says"), [
    ("rff", {"replacement": False, "k": 600}, "negatives.replacement: rff cannot draw without replacement"),
    ("rff", {"share_draws_by": "block"}, "negatives.share_draws_by: rff draws for each query"),
    ("quadratic", {"share_draws_by": "window", "exclude_target": True},
     "negatives.exclude_target: the rows of a window"),
    ("maclaurin", {"nu": 1.0, "temperature": 1.0}, "negatives.nu: nu and temperature"),
    ("positive_features", {"features": 63}, "negatives.features: hyperbolic features come in pairs")])
def test_settings_that_it_cannot_honour_are_refused(way: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        made(way, **settings)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("settings", [{"features": 0}, {"nu": 0.0}, {"nu": float("nan")}, {"branching": 1},
                                      {"branching": 65},
                                      {"leaf_size": 0}, {"floor": 0.0}, {"directions": "none"}])
def test_settings_out_of_bounds_do_not_pass_the_configuration(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        made("rff", **settings)


@pytest.mark.parametrize("way", ["rff", "quadratic", "maclaurin", "positive_features"])
def test_one_candidate_no_vectors_and_too_large_a_tree_are_refused(way: str) -> None:
    with pytest.raises(UsageError, match="two or more candidates, but there is 1"):
        made(way, 1)
    with pytest.raises(ResourceError, match=r"negatives\.max_gib"):
        made(way, 500, max_gib=1e-7)
    found = base.find(way)
    with pytest.raises(UsageError, match="this model has none"):
        found(found.Config(source=way), ProblemSpec(50, torch.ones(50, dtype=DOUBLE)))


@pytest.mark.parametrize("way", ["rff", "quadratic", "maclaurin", "positive_features"])
def test_vectors_that_are_not_finite_are_named(way: str) -> None:
    view = VectorView(50)
    view.c[17, 3] = torch.nan
    with pytest.raises(UsageError, match=f"{way}: the vector of candidate 17 is not finite"):
        made(way, 50).draw(ask(2, v=50), 2, view)
    asked = ask(2, v=50)
    asked.vector[1] = torch.inf
    with pytest.raises(UsageError, match="queries are not finite"):
        made(way, 50).draw(asked, 2, VectorView(50))


@pytest.mark.parametrize("geometry", ["l1", "l2", "order"])
@pytest.mark.parametrize("way", ["rff", "quadratic", "maclaurin", "positive_features"])
def test_a_score_that_is_no_inner_product_is_refused_in_one_line(way: str, geometry: str) -> None:
    class Distance(Model):
        name = "distance"

    world = ProblemSpec(500, torch.ones(500, dtype=DOUBLE), 5, dim=D)
    model, found = Distance(Model.Config(dim=D), world), losses.find("sampled_softmax")
    of = made(way, exclude_target=True)
    loss = found(found.Config(), world)
    assert incompatibilities(of, loss, model) == []
    model.geometry = geometry                                                             # type: ignore[assignment]
    reasons = incompatibilities(of, loss, model)
    assert len(reasons) == 1 and "cosine, dot" in reasons[0] and len(reasons[0].splitlines()) == 1


def test_a_kernel_that_is_mostly_noise_says_what_share_is_negative(caplog: pytest.LogCaptureFixture) -> None:
    view, asked = VectorView(2000, 30.0), ask(50, v=2000)
    with caplog.at_level(logging.WARNING):
        of = made("rff", 2000, features=16, nu=30.0)
        for _ in range(3):
            of.on_epoch_start(view)
            of.draw(asked, 2, view)
    assert of.floored_fraction > 0.4
    wanted = f"{100 * of.floored_fraction:.0f} % of the nodes' masses are negative with negatives.nu = 30 and"
    assert [r.message.count(wanted) for r in caplog.records] == [1]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        calm = made("rff", 2000, features=512, nu=1.0)
        calm.draw(asked, 2, view)
    assert calm.floored_fraction < 0.05 and not caplog.records


def test_positive_features_say_what_share_is_drawn_by_the_floor(caplog: pytest.LogCaptureFixture) -> None:
    """Long vectors, few features: e^{x·y} is then mostly far below its mean. The densities stay what is drawn."""
    view, asked = VectorView(2000, 30.0), ask(50, v=2000)
    for nu, least, most in ((1.0, 0.0, 0.1), (200.0, 0.9, 1.0), (1000.0, 1.0, 1.0)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            of = made("positive_features", 2000, features=64, nu=nu)
            of.draw(asked, 2, view)
        assert least <= of.floored_fraction <= most
        wanted = f"{100 * of.floored_fraction:.0f} % of the nodes' masses are below their floor with negatives.nu ="
        assert [r.message.count(wanted) for r in caplog.records] == ([1] if least else [])
        log_q = of.log_prob(asked, torch.arange(2000).unsqueeze(0)).double()
        torch.testing.assert_close(log_q.logsumexp(1), torch.zeros(50, dtype=DOUBLE), rtol=0, atol=1e-5)
        # What the floor draws has the same q as its like: the share counts those that have the least.
        even = (log_q - log_q.amin(1, keepdim=True) < 1e-5).double().mean()
        assert float(even) == pytest.approx(of.floored_fraction, abs=0.02)


def test_half_a_million_candidates_with_a_thousand_features_fit_in_150_megabytes() -> None:
    of = made("rff", 500_000, features=1000, branching=16, leaf_size=64)
    held = [*of.tree.stored_tensors(), *of.tree.prior, *of.tree.count, of.blocks.order, of.blocks.place,
            of.blocks.prior, of.touched]
    assert sum(t.numel() * t.element_size() for t in held) < 150e6


@pytest.mark.parametrize(("way", "more"), [
    ("quadratic", {}), ("quadratic", {"prior_exponent": 0.5, "leaf_order": "frequency", "leaf_size": 7}),
    ("maclaurin", {}),
    ("positive_features bounded", {}), ("rff", {"leaf_size": 6, "within_leaf": "exact"}), ("rff of copies", {}),
    ("rff", {"leaf_size": 6, "prior_exponent": 0.5})])
def test_inside_blocks_masses_are_the_same_by_gathered_rows_and_by_stretches(
        way: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    of, view, query = made(way, v=101, **more), VectorView(101), ask(9, v=101)
    of.prepare_log_prob(view)
    known, draw = of.sampler.encode(query, of._required_view), torch.Generator().manual_seed(2)
    question, block = (torch.randint(0, n, (60,), generator=draw) for n in (9, of.tree.blocks))
    monkeypatch.setattr(inside, "MAX_NUMBERS", 4 * 101)             # of four questions, or a few candidates, at once
    found = []
    for together in (0, 1e9):
        monkeypatch.setattr(inside, "MIN_QUERIES_PER_GROUP", together)
        found.append(of.sampler.inside.masses(of._required_view, known.x, known.tree, question, block, None))
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)
    slot = torch.arange(of.config.leaf_size) + of.config.leaf_size * (of.tree.blocks - 1)
    last = block == of.tree.blocks - 1
    assert last.any() and (found[1][last][:, slot >= 101] == 0).all() and (found[1][last][:, slot < 101] > 0).all()


def test_the_prior_multiplies_the_kernel_and_counts_no_candidate_out() -> None:
    view, asked, everyone = VectorView(100), ask(3, v=100), torch.arange(100).unsqueeze(0)
    plain, weighted = made("quadratic", 100), made("quadratic", 100, prior_exponent=0.75)
    for of in (plain, weighted):
        of.on_epoch_start(view)
    counts = weighted.world.counts
    log = plain.log_prob(asked, everyone).double() + 0.75 * counts.log()
    torch.testing.assert_close(weighted.log_prob(asked, everyone).double(), log.log_softmax(1), atol=1e-4, rtol=0)
    masses = prior_weights(torch.tensor([4.0, 0.0, 1.0], dtype=DOUBLE), 1.0)
    assert masses.tolist() == [2.0, 0.5, 0.5]
    masses = prior_weights(torch.tensor([1e9, 1.0], dtype=DOUBLE), 2.0)
    assert float(masses[1] / masses[0]) == pytest.approx(1e-12)


def test_a_target_with_nearly_all_of_the_prior_leaves_others_their_share() -> None:
    """Its π taken from that of a node is not to leave 0 to the others there."""
    counts = torch.tensor([1e9, 1, 1, 1, 1, 1, 1, 1], dtype=DOUBLE)
    rff = base.find("rff")
    config = rff.Config(source="rff", k=4, prior_exponent=2.0, features=16, exclude_target=True)
    of = rff(config, ProblemSpec(8, counts, dim=D, seed=1))
    view = VectorView(8)
    of.on_epoch_start(view)
    asked = replace(ask(3, v=8), target=torch.zeros(3, dtype=torch.int64))
    q = of.log_prob(asked, torch.arange(8).unsqueeze(0)).double().exp()
    assert (q[:, 0] == 0).all() and (q[:, 1:] > 0).all()
    torch.testing.assert_close(q.sum(1), torch.ones(3, dtype=DOUBLE), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("way", "v"), [("rff", 65), ("quadratic of products", 257), ("rff by 16", 65)])
def test_a_target_that_is_alone_in_its_node_has_no_probability(way: str, v: int) -> None:
    """Without it that node has no mass, and what lies below it no shares."""
    of, view = made(way, v, exclude_target=True, leaf_order="id"), VectorView(v)
    asked = replace(ask(3, v=v), target=torch.full((3,), v - 1))
    of.on_epoch_start(view)
    q = of.log_prob(asked, torch.arange(v).unsqueeze(0)).exp()
    assert (q[:, -1] == 0).all()
    torch.testing.assert_close(q.sum(1), torch.ones(3), atol=1e-5, rtol=0)
    drawn = of.draw(asked, 500, view).ids
    assert drawn is not None and (drawn < v - 1).all()


def test_a_loss_that_needs_the_targets_q_is_told_how_to_get_it() -> None:
    world = ProblemSpec(500, torch.ones(500, dtype=DOUBLE), 5, dim=D)
    model, found = Model(Model.Config(dim=D), world), losses.find("nce")
    loss = found(found.Config(name="nce"), world)
    assert "use negatives.exclude_target: false" in incompatibilities(made("rff", exclude_target=True), loss, model)[0]
    assert incompatibilities(made("rff"), loss, model) == []


# --- by the compiled core, in one call -----------------------------------------------------------------------------

@needs_core
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("tau", [6.0, None])
@pytest.mark.parametrize("way", ["rff", "rff by 16", "rff of copies", "rff structured with a prior",
                                 "quadratic of products"])
def test_a_batch_is_one_call_and_reports_what_log_prob_says(way: str, tau: float | None, exclude: bool,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    of, view = made(way, exclude_target=exclude), VectorView(500, tau, scale=0.3)
    monkeypatch.setattr(of.sampler, "_draw_with_torch", lambda *a: pytest.fail("step by step"))
    query = ask(30, scale=0.3)
    drawn = of.draw(query, 7, view)
    torch.testing.assert_close(of.log_prob(query, drawn.ids), drawn.log_q, rtol=0, atol=1e-3)
    marked = torch.zeros_like(of.touched)
    marked[of.blocks.place[torch.cat([drawn.ids.flatten(), query.target])] // of.config.leaf_size] = True
    assert torch.equal(of.touched, marked)
    if exclude:
        assert not (drawn.ids == query.target.unsqueeze(1)).any() and drawn.log_q_target is None
    else:
        own = of.log_prob(query, query.target.unsqueeze(1))[:, 0]
        torch.testing.assert_close(drawn.log_q_target, own, rtol=0, atol=1e-3)


@needs_core
@pytest.mark.parametrize("tau", [6.0, None])
def test_torch_draws_by_the_copies_too(tau: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    of, view = made("rff of copies", update_every=0), VectorView(500, tau, scale=0.5)
    everyone = torch.arange(500).unsqueeze(0)
    of.on_epoch_start(view)
    view.c.copy_(VectorView(500, seed=9, scale=0.5).c)
    log_q = of.log_prob(ask(4), everyone)
    monkeypatch.setattr(of.blocks, "core", lambda view: None)
    torch.testing.assert_close(of.log_prob(ask(4), everyone), log_q, rtol=0, atol=1e-4)


@needs_core
@pytest.mark.parametrize("way", ["rff", "rff by 16", "rff of copies"])
def test_features_of_the_questions_are_the_cores_own(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the share of negative masses has been looked at; after a rebuild and a resumption too."""
    of, view, query = made(way, exclude_target=True), VectorView(500), ask(4)
    of.draw(query, 3, view)
    monkeypatch.setattr(of.sampler, "encode", lambda *a: pytest.fail("features by torch"))
    of.draw(query, 3, view)
    state = of.state_dict()
    other = made(way, exclude_target=True)
    other.load_state_dict(state)
    monkeypatch.undo()
    view.c = view.c.flip(0)                         # another table, elsewhere
    assert torch.equal(of.draw(query, 3, view).ids, other.draw(query, 3, view).ids)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_sums_with_one_number_that_is_not_finite_are_refused(number):
    of = source("rff")
    of.prepare_log_prob(TableView())
    whole = of.feature_map.sums
    of.feature_map.sums = lambda y, prior: whole(y, prior).index_fill(1, torch.tensor([3]), number)
    with pytest.raises(UsageError, match="not finite"):
        of.on_epoch_start(TableView())
