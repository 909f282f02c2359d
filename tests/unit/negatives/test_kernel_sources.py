"""Kernel-based sources: q against kernels summed one by one, stale sums, errors, and resuming."""

from __future__ import annotations

import itertools
import logging
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.cores import needs_core
from helpers.looped import looped
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

#: Configurations of each source that reach a candidate by different paths.
WAYS: dict[str, dict[str, Any]] = {
    "rff": {"features": 128}, "rff by 16": {"features": 64, "branching": 16, "leaf_size": 64,
                                            "leaf_order": "frequency"},
    "rff of copies": {"features": 64, "branching": 4, "leaf_size": 9, "leaf_order": "frequency",
                      "within_leaf": "quantized"},
    "rff with features": {"features": 64, "branching": 4, "leaf_size": 9, "leaf_order": "frequency",
                          "keep_features": True, "prior_exponent": 0.5},
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
        raise AssertionError("a kernel source needs only the table")


def build(way: str, v: int = 500, seed: int = 3, **more: Any) -> KernelSource:
    result = base.find(way.split()[0])
    counts = 1000 / torch.arange(1, v + 1, dtype=DOUBLE)[torch.randperm(v, generator=torch.Generator().manual_seed(1))]
    sampler = result(result.Config(source=result.name, **{**WAYS[way], **more}),
                     ProblemSpec(v, counts, dim=D, seed=seed))
    assert isinstance(sampler, KernelSource)
    return sampler


def make_query(rows: int, seed: int = 5, v: int = 500, scale: float = 1.0) -> Query:
    draw = torch.Generator().manual_seed(seed)
    h = torch.randn(rows, D, generator=draw) * scale
    return Query(h, torch.arange(rows), torch.randint(0, v, (rows,), generator=draw),
                 torch.zeros(rows, dtype=torch.int64), torch.arange(rows))


def by_hand(sampler: KernelSource, view: VectorView, h: torch.Tensor, without: int | None) -> torch.Tensor:
    """Return q of every candidate for one query (D,), each mass a sum over candidates, one node at a time: (V,)."""
    unit = view.geometry == "cosine"
    fan, leaf, v = sampler.config.branching, sampler.config.leaf_size, view.n_candidates
    s = sampler.feature_map.scale(view.tau)
    x, y = h.double(), view.c.double()
    if unit:
        x, y = x / x.norm(), y / y.norm(dim=1, keepdim=True)
    phi = sampler.feature_map.encode_queries(s * x.unsqueeze(0))[0]
    k = sampler.feature_map.encode_classes(s * y).double() @ phi                                        # (V,) K(h, c)
    least = sampler.config.floor * float(sampler.feature_map.log_neutral(s * x.unsqueeze(0)).exp())
    o = view.tau * (y @ x)
    if sampler.config.within_leaf == "quantized":
        own = torch.nn.functional.normalize(view.c, dim=1) if unit else view.c
        kept = RowStore(v, D, "int8", "cpu")
        kept.write(torch.arange(v), own)
        o = kept.read(slice(None)) @ kept.round_query(view.tau * x.unsqueeze(0))[0]
    pi, order = prior_weights(sampler.problem.counts, sampler.config.prior_exponent), sampler.blocks.order.tolist()
    q = torch.zeros(v, dtype=DOUBLE)

    def mass(places: range) -> float:
        ids = [i for p in places if p < v and (i := order[p]) != without]
        return max(float((pi[ids] * k[ids]).sum()), least * float(pi[ids].sum())) if ids else 0.0

    def walk(first: int, span: int, share: float) -> None:
        if span == leaf:
            ids = [i for p in range(first, min(v, first + leaf)) if (i := order[p]) != without]
            inside = torch.softmax(o[ids], 0)
            if leaf == 1 or sampler.config.within_leaf == "kernel":
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


@looped("tau", [6.0, None])
@looped("excluded", [False, True])
@looped("way", WAYS)
def test_q_is_that_of_the_kernel_summed_one_by_one(way: str, excluded: bool, tau: float | None) -> None:
    view = VectorView(90, tau, scale=0.5)
    sampler = build(way, 90, exclude_target=excluded, sum_dtype="float32")
    sampler.on_epoch_start(view)
    query = make_query(2, v=90)
    log_q = sampler.log_prob(query, torch.arange(90).unsqueeze(0)).double()
    for row in range(2):
        target = int(query.target[row]) if excluded else None
        expected = by_hand(sampler, view, query.vector[row], target)
        assert float(expected.sum()) == pytest.approx(1)
        torch.testing.assert_close(log_q[row].exp(), expected, rtol=1e-3, atol=1e-6)
        assert (log_q[row].argmin() == target and log_q[row].min() == -torch.inf) == excluded
        if not excluded:
            torch.testing.assert_close(sampler.draw(query, 1, view).log_q_target[row],
                                       log_q[row, query.target[row]].float())


@looped("excluded", [False, True])
@looped("way", [way for way in WAYS if way.startswith("rff")])
def test_int8_sums_keep_q(way: str, excluded: bool) -> None:
    """Compared with the noise of the features."""
    view, query, everyone = VectorView(500, 6.0), make_query(20), torch.arange(500).unsqueeze(0)
    log_q = {}
    for kind in ("int8", "float32"):
        sampler = build(way, exclude_target=excluded, sum_dtype=kind)
        sampler.on_epoch_start(view)
        log_q[kind] = sampler.log_prob(query, everyone).double()
        assert (sampler.tree.sums[0].stored.dtype == torch.uint8) == (kind == build(way).config.sum_dtype)
    actual, exact = log_q["int8"], log_q["float32"]
    kl = (exact.exp() * torch.where(exact.isfinite(), exact - actual, 0.0)).sum(1)
    assert (actual.isfinite() == exact.isfinite()).all() and 1e-9 < float(kl.mean()) < 2e-3


@looped("way", WAYS)
def test_draws_among_ten_thousand_follow_reported_probability(way: str) -> None:
    v, view = 10_000, VectorView(10_000)
    sampler = build(way, v, exclude_target=True)
    query = make_query(1, v=v)
    drawn = sampler.draw(query, 100_000, view)
    assert drawn.ids is not None and drawn.log_q is not None
    log_q = sampler.log_prob(query, torch.arange(v).unsqueeze(0))[0].double()
    q = log_q.exp()
    assert float(q.sum()) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(drawn.log_q[0].double(), log_q[drawn.ids[0]], atol=1e-5, rtol=0)
    seen = torch.bincount(drawn.ids[0], minlength=v).double()
    assert seen[query.target[0]] == 0
    for order in (q.argsort(descending=True), torch.arange(v)):                           # by q-rank, and by id block
        cell = ((q[order] * 100_000).cumsum(0) / 60).long().clamp(max=1600)
        expected, counted = (torch.zeros(1601, dtype=DOUBLE).index_add_(0, cell, x[order]) for x in (q * 1e5, seen))
        some = expected >= 40
        assert int(some.sum()) > 50
        chi2 = float(((counted - expected).square() / expected)[some].sum())
        assert stats.chi2.sf(chi2, int(some.sum())) > 0.001 / (2 * len(WAYS))


def test_with_many_features_and_nu_equal_tau_q_approaches_softmax() -> None:
    view, query = VectorView(300, 2.0), make_query(20, v=300)
    h, c = (torch.nn.functional.normalize(x.double(), dim=1) for x in (query.vector, view.c))
    log_p = (2.0 * h @ c.T).log_softmax(1)
    kl = {}
    for features in (64, 4096):
        for way in ("rff", "positive_features"):
            sampler = build(way, 300, features=features, nu=2.0)
            sampler.on_epoch_start(view)
            log_q = sampler.log_prob(query, torch.arange(300).unsqueeze(0))
            kl[way, features] = float((log_p.exp() * (log_p - log_q)).sum(1).mean())
    uniform = float((log_p.exp() * (log_p + torch.tensor(300.0).log())).sum(1).mean())
    for way in ("rff", "positive_features"):
        assert kl[way, 4096] < 0.2 * kl[way, 64] and kl[way, 4096] < 0.05 * uniform


# --- updates -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("way", ["rff", "rff of copies"])
def test_stale_masses_define_draw_and_report_between_refreshes(way: str) -> None:
    view, query, everyone = VectorView(200), make_query(1, v=200), torch.arange(200).unsqueeze(0)
    sampler = build(way, 200, update_every=0)
    sampler.on_epoch_start(view)
    before = sampler.log_prob(query, everyone)
    view.c.copy_(VectorView(200, seed=9).c)                                               # in place, as training does
    assert torch.equal(sampler.log_prob(query, everyone), before)
    drawn = sampler.draw(query, 50_000, view)
    assert drawn.ids is not None
    assert torch.equal(sampler.log_prob(query, everyone), before)
    expected = before[0].double().exp() * 50_000
    seen, some = torch.bincount(drawn.ids[0], minlength=200).double(), expected >= 50
    assert stats.chi2.sf(float(((seen - expected).square() / expected)[some].sum()), int(some.sum())) > 1e-4
    sampler.on_epoch_start(view)
    assert float((sampler.log_prob(query, everyone) - before).abs().max()) > 0.5


@looped("way", WAYS)
def test_drawn_candidates_are_summed_again_before_the_next_draw(way: str) -> None:
    view, query = VectorView(200), make_query(4, v=200)
    sampler = build(way, 200)
    for step in range(5):
        drawn = sampler.draw(query, 6, view)
        moved = torch.unique(torch.cat([drawn.ids.flatten(), query.target]))              # type: ignore[union-attr]
        view.c = view.c.clone()
        view.c[moved] += torch.randn(len(moved), D, generator=torch.Generator().manual_seed(step))
    sampler.draw(query, 1, view)
    fresh = build(way, 200)
    fresh.feature_map.load(sampler.feature_map.state())
    fresh.feature_map.fit = lambda some, largest: None                                            # type: ignore[method-assign]
    fresh.on_epoch_start(view)                                                                   # with the same offsets
    for actual, theirs in zip(sampler.tree.sums, fresh.tree.sums, strict=True):
        far = theirs.read(slice(None)).abs().max() * (1e-6 if theirs.scale is None else 1 / 127)  # at most one step
        torch.testing.assert_close(actual.read(slice(None)), theirs.read(slice(None)), rtol=0, atol=float(far))
    assert (sampler.copy is None) == (fresh.copy is None) == (sampler.config.within_leaf != "quantized")
    copies = stored_tensors(sampler.copy), stored_tensors(fresh.copy)
    assert all(torch.equal(actual, theirs) for actual, theirs in zip(*copies, strict=True))


@pytest.mark.parametrize(("update", "rebuild", "same"), [(0, 0, [1, 1, 1, 1, 1]), (2, 0, [1, 0, 1, 0, 1]),
                                                        (0, 3, [1, 1, 0, 1, 1]), (1, 0, [0, 0, 0, 0, 0])])
def test_updates_are_as_frequent_as_configured(update: int, rebuild: int, same: list[int]) -> None:
    view, query = VectorView(50), make_query(10, v=50)
    sampler, seen = build("rff", 50, update_every=update, rebuild_every=rebuild), []
    for _ in range(6):
        sampler.draw(query, 20, view)
        seen.append([s.clone() for s in sampler.tree.stored_tensors()])
        view.c += 0.1
    assert [int(all(map(torch.equal, a, b))) for a, b in itertools.pairwise(seen)] == same


def test_older_checkpoint_marks_blocks() -> None:
    saved, other = (build("rff with features", 200, leaf_order="id") for _ in range(2))
    saved.prepare_log_prob(VectorView(200))
    marks = torch.zeros(saved.tree.blocks, dtype=torch.bool)
    marks[[1, saved.tree.blocks - 1]] = True
    other.load_state_dict({**saved.state_dict(), "touched": marks})
    assert other.touched.nonzero()[:, 0].tolist() == [*range(9, 18), 198, 199]


@looped("way", WAYS)
def test_stopped_run_resumes_bitwise(way: str) -> None:
    views = VectorView(200), VectorView(200)
    sources = build(way, 200, update_every=2, exclude_target=True), build(way, 200, update_every=2, exclude_target=True,
                                                                          seed=77)

    def step(sampler: KernelSource, view: VectorView, number: int) -> tuple[torch.Tensor, ...]:
        drawn = sampler.draw(make_query(5, seed=number, v=200), 4, view)
        assert drawn.ids is not None and drawn.log_q is not None
        view.c = view.c.clone()
        view.c[drawn.ids.flatten()] *= 1.1
        view.c[3] += 0.1                                                                  # not marked for an update
        return drawn.ids, drawn.log_q

    for number in range(5):
        step(sources[0], views[0], number)
    state = sources[0].state_dict()
    encode(state)                                                                         # a checkpoint can contain it
    copy = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
    copy["sums"] = [s.clone() for s in state["sums"]]
    copy["map"] = {k: v.clone() for k, v in state["map"].items()}
    sources[1].load_state_dict(copy)
    views[1].c = views[0].c.clone()
    for number in range(5, 10):
        for actual, theirs in zip(*(step(sampler, view, number) for sampler, view in zip(sources, views, strict=True)),
                                  strict=True):
            assert torch.equal(actual, theirs)


def test_window_shares_a_draw_per_query() -> None:
    query = replace(make_query(6), query_id=torch.tensor([0, 0, 1, 1, 1, 0]), window=torch.tensor([0, 0, 1, 1, 2, 2]))
    query = query.with_vector(query.vector[torch.tensor([0, 0, 1, 1, 1, 0])])
    sampler = build("rff", share_draws_by="window")
    drawn = sampler.draw(query, 8, VectorView(500))
    assert drawn.ids is not None and drawn.ids.shape == (4, 8) and drawn.draw_id is not None
    assert drawn.draw_id.tolist() == [0, 0, 1, 1, 3, 2]
    log_q = sampler.log_prob(query, drawn.per_row(drawn.ids, 6))
    torch.testing.assert_close(drawn.per_row(drawn.log_q, 6), log_q)


# --- errors and warnings -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("way", "settings", "says"), [
    ("rff", {"replacement": False, "k": 600}, "negatives.replacement: rff cannot draw without replacement"),
    ("rff", {"share_draws_by": "block"}, "negatives.share_draws_by: rff draws for each query"),
    ("quadratic", {"share_draws_by": "window", "exclude_target": True},
     "negatives.exclude_target: the rows of a window"),
    ("maclaurin", {"nu": 1.0, "temperature": 1.0}, "negatives.nu: nu and temperature"),
    ("positive_features", {"features": 63}, "negatives.features: hyperbolic features come in pairs")])
def test_unsupported_settings_are_rejected(way: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as error:
        build(way, **settings)
    assert len(str(error.value).splitlines()) == 1


@looped("settings", [{"features": 0}, {"nu": 0.0}, {"nu": float("nan")}, {"branching": 1},
                     {"branching": 65},
                     {"leaf_size": 0}, {"floor": 0.0}, {"directions": "none"}])
def test_settings_out_of_bounds_are_rejected_by_the_configuration(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        build("rff", **settings)


@pytest.mark.parametrize("way", ["rff", "quadratic", "maclaurin", "positive_features"])
def test_one_candidate_no_vectors_and_too_large_a_tree_are_rejected(way: str) -> None:
    with pytest.raises(UsageError, match="two or more candidates, but there is 1"):
        build(way, 1)
    with pytest.raises(ResourceError, match=r"negatives\.max_gib"):
        build(way, 500, max_gib=1e-7)
    result = base.find(way)
    with pytest.raises(UsageError, match="this model has none"):
        result(result.Config(source=way), ProblemSpec(50, torch.ones(50, dtype=DOUBLE)))


@pytest.mark.parametrize("way", ["rff", "quadratic", "maclaurin", "positive_features"])
def test_vectors_that_are_not_finite_are_named(way: str) -> None:
    view = VectorView(50)
    view.c[17, 3] = torch.nan
    with pytest.raises(UsageError, match=f"{way}: the vector of candidate 17 is not finite"):
        build(way, 50).draw(make_query(2, v=50), 2, view)
    query = make_query(2, v=50)
    query.vector[1] = torch.inf
    with pytest.raises(UsageError, match="queries are not finite"):
        build(way, 50).draw(query, 2, VectorView(50))


@looped("geometry", ["l1", "l2", "order"])
@looped("way", ["rff", "quadratic", "maclaurin", "positive_features"])
def test_score_that_is_not_an_inner_product_is_rejected_in_one_line(way: str, geometry: str) -> None:
    class Distance(Model):
        name = "distance"

    problem = ProblemSpec(500, torch.ones(500, dtype=DOUBLE), 5, dim=D)
    model, result = Distance(Model.Config(dim=D), problem), losses.find("sampled_softmax")
    sampler = build(way, exclude_target=True)
    loss = result(result.Config(), problem)
    assert incompatibilities(sampler, loss, model) == []
    model.geometry = geometry                                                             # type: ignore[assignment]
    reasons = incompatibilities(sampler, loss, model)
    assert len(reasons) == 1 and "cosine, dot" in reasons[0] and len(reasons[0].splitlines()) == 1


def test_noisy_kernel_reports_negative_share(caplog: pytest.LogCaptureFixture) -> None:
    view, query = VectorView(2000, 30.0), make_query(50, v=2000)
    with caplog.at_level(logging.WARNING):
        sampler = build("rff", 2000, features=16, nu=30.0)
        for _ in range(3):
            sampler.on_epoch_start(view)
            sampler.draw(query, 2, view)
    assert sampler.floored_fraction > 0.4
    expected = f"{100 * sampler.floored_fraction:.0f} % of the nodes' masses are negative with negatives.nu = 30 and"
    assert [r.message.count(expected) for r in caplog.records] == [1]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        mixture = base.find("mixture")
        config = mixture.Config(inner={"source": "rff", "features": 16, "nu": 30.0})
        mixture(config, sampler.problem).draw(query, 2, view)
    for text in ("negatives.inner.source: rff: ", "with negatives.inner.nu = 30 and", "; lower negatives.inner.nu,"):
        assert [r.message.count(text) for r in caplog.records] == [1]
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        calm = build("rff", 2000, features=512, nu=1.0)
        calm.draw(query, 2, view)
    assert calm.floored_fraction < 0.05 and not caplog.records


def test_positive_features_report_floor_share(caplog: pytest.LogCaptureFixture) -> None:
    """Long vectors, few features: e^{x·y} is then mostly far below its mean. The densities still match the draws."""
    view, query = VectorView(2000, 30.0), make_query(50, v=2000)
    for nu, least, most in ((1.0, 0.0, 0.1), (200.0, 0.9, 1.0), (1000.0, 1.0, 1.0)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            sampler = build("positive_features", 2000, features=64, nu=nu)
            sampler.draw(query, 2, view)
        assert least <= sampler.floored_fraction <= most
        share = f"{100 * sampler.floored_fraction:.0f}"
        expected = f"{share} % of the nodes' masses are below their floor with negatives.nu ="
        assert [r.message.count(expected) for r in caplog.records] == ([1] if least else [])
        log_q = sampler.log_prob(query, torch.arange(2000).unsqueeze(0)).double()
        torch.testing.assert_close(log_q.logsumexp(1), torch.zeros(50, dtype=DOUBLE), rtol=0, atol=1e-5)
        # Candidates drawn by the floor have equal q: the share counts those with the smallest.
        even = (log_q - log_q.amin(1, keepdim=True) < 1e-5).double().mean()
        assert float(even) == pytest.approx(sampler.floored_fraction, abs=0.02)


def test_half_a_million_candidates_with_a_thousand_features_fit_in_150_megabytes() -> None:
    sampler = build("rff", 500_000, features=1000, branching=16, leaf_size=64)
    held = [*sampler.tree.stored_tensors(), *sampler.tree.prior, *sampler.tree.count, sampler.blocks.order,
            sampler.blocks.place,
            sampler.blocks.prior, sampler.touched]
    assert sum(t.numel() * t.element_size() for t in held) < 150e6


@pytest.mark.parametrize(("way", "more"), [
    ("quadratic", {}), ("quadratic", {"prior_exponent": 0.5, "leaf_order": "frequency", "leaf_size": 7}),
    ("maclaurin", {}),
    ("positive_features bounded", {}), ("rff", {"leaf_size": 6, "within_leaf": "exact"}), ("rff of copies", {}),
    ("rff", {"leaf_size": 6, "prior_exponent": 0.5})])
def test_masses_inside_blocks_are_equal_by_gathered_rows_and_by_stretches(
        way: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    built, view, query = build(way, v=101, **more), VectorView(101), make_query(9, v=101)
    built.prepare_log_prob(view)
    known, draw = built.sampler.encode(query, built._required_view), torch.Generator().manual_seed(2)
    query_id, block = (torch.randint(0, n, (60,), generator=draw) for n in (9, built.tree.blocks))
    monkeypatch.setattr(inside, "MAX_NUMBERS", 4 * 101)             # of four queries, or a few candidates, at once
    result = []
    for together in (0, 1e9):
        monkeypatch.setattr(inside, "MIN_QUERIES_PER_GROUP", together)
        result.append(built.sampler.inside.masses(built._required_view, known.x, known.tree, query_id, block, None))
    torch.testing.assert_close(result[0], result[1], rtol=1e-9, atol=1e-12)
    slot = torch.arange(built.config.leaf_size) + built.config.leaf_size * (built.tree.blocks - 1)
    last = block == built.tree.blocks - 1
    assert last.any() and (result[1][last][:, slot >= 101] == 0).all() and (result[1][last][:, slot < 101] > 0).all()


def test_prior_multiplies_kernel_and_excludes_no_candidate() -> None:
    view, query, everyone = VectorView(100), make_query(3, v=100), torch.arange(100).unsqueeze(0)
    plain, weighted = build("quadratic", 100), build("quadratic", 100, prior_exponent=0.75)
    for sampler in (plain, weighted):
        sampler.on_epoch_start(view)
    counts = weighted.problem.counts
    log = plain.log_prob(query, everyone).double() + 0.75 * counts.log()
    torch.testing.assert_close(weighted.log_prob(query, everyone).double(), log.log_softmax(1), atol=1e-4, rtol=0)
    masses = prior_weights(torch.tensor([4.0, 0.0, 1.0], dtype=DOUBLE), 1.0)
    assert masses.tolist() == [2.0, 0.5, 0.5]
    masses = prior_weights(torch.tensor([1e9, 1.0], dtype=DOUBLE), 2.0)
    assert float(masses[1] / masses[0]) == pytest.approx(1e-12)


def test_target_with_nearly_all_of_the_prior_leaves_the_rest_its_share() -> None:
    """Subtracting its π from that of a node must not leave 0 to the rest."""
    counts = torch.tensor([1e9, 1, 1, 1, 1, 1, 1, 1], dtype=DOUBLE)
    rff = base.find("rff")
    config = rff.Config(source="rff", k=4, prior_exponent=2.0, features=16, exclude_target=True)
    sampler = rff(config, ProblemSpec(8, counts, dim=D, seed=1))
    view = VectorView(8)
    sampler.on_epoch_start(view)
    query = replace(make_query(3, v=8), target=torch.zeros(3, dtype=torch.int64))
    q = sampler.log_prob(query, torch.arange(8).unsqueeze(0)).double().exp()
    assert (q[:, 0] == 0).all() and (q[:, 1:] > 0).all()
    torch.testing.assert_close(q.sum(1), torch.ones(3, dtype=DOUBLE), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("way", "v"), [("rff", 65), ("quadratic of products", 257), ("rff by 16", 65)])
def test_target_alone_in_its_node_has_no_probability(way: str, v: int) -> None:
    """Without it that node has no mass, and the nodes below it have no shares."""
    sampler, view = build(way, v, exclude_target=True, leaf_order="id"), VectorView(v)
    query = replace(make_query(3, v=v), target=torch.full((3,), v - 1))
    sampler.on_epoch_start(view)
    q = sampler.log_prob(query, torch.arange(v).unsqueeze(0)).exp()
    assert (q[:, -1] == 0).all()
    torch.testing.assert_close(q.sum(1), torch.ones(3), atol=1e-5, rtol=0)
    drawn = sampler.draw(query, 500, view).ids
    assert drawn is not None and (drawn < v - 1).all()


def test_error_of_a_loss_that_needs_target_q_names_the_remedy() -> None:
    problem = ProblemSpec(500, torch.ones(500, dtype=DOUBLE), 5, dim=D)
    model, result = Model(Model.Config(dim=D), problem), losses.find("nce")
    loss = result(result.Config(name="nce"), problem)
    assert "use negatives.exclude_target: false" in incompatibilities(build("rff", exclude_target=True), loss, model)[0]
    assert incompatibilities(build("rff"), loss, model) == []


# --- by the compiled core, in one call -----------------------------------------------------------------------------

@needs_core
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("tau", [6.0, None])
@pytest.mark.parametrize("way", ["rff", "rff by 16", "rff of copies", "rff with features",
                                 "rff structured with a prior", "quadratic of products"])
def test_batch_is_one_call_and_reports_log_prob(way: str, tau: float | None, exclude: bool,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    built, view = build(way, exclude_target=exclude), VectorView(500, tau, scale=0.3)
    monkeypatch.setattr(built.sampler, "_draw_with_torch", lambda *a: pytest.fail("step by step"))
    query = make_query(30, scale=0.3)
    drawn = built.draw(query, 7, view)
    torch.testing.assert_close(built.log_prob(query, drawn.ids), drawn.log_q, rtol=0, atol=1e-3)
    marked = torch.zeros_like(built.touched)
    marked[built.blocks.place[torch.cat([drawn.ids.flatten(), query.target])]] = True
    assert torch.equal(built.touched, marked)
    if exclude:
        assert not (drawn.ids == query.target.unsqueeze(1)).any() and drawn.log_q_target is None
    else:
        own = built.log_prob(query, query.target.unsqueeze(1))[:, 0]
        torch.testing.assert_close(drawn.log_q_target, own, rtol=0, atol=1e-3)


@needs_core
@pytest.mark.parametrize("tau", [6.0, None])
def test_torch_also_draws_by_int8_copies(tau: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, view = build("rff of copies", update_every=0), VectorView(500, tau, scale=0.5)
    everyone = torch.arange(500).unsqueeze(0)
    sampler.on_epoch_start(view)
    view.c.copy_(VectorView(500, seed=9, scale=0.5).c)
    log_q = sampler.log_prob(make_query(4), everyone)
    monkeypatch.setattr(sampler.blocks, "core", lambda view: None)
    torch.testing.assert_close(sampler.log_prob(make_query(4), everyone), log_q, rtol=0, atol=1e-4)


@needs_core
@pytest.mark.parametrize("way", ["rff", "rff by 16", "rff of copies"])
def test_query_features_are_computed_by_the_core(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the check of the share of negative masses; after a rebuild and a resumption too."""
    built, view, query = build(way, exclude_target=True), VectorView(500), make_query(4)
    built.draw(query, 3, view)
    monkeypatch.setattr(built.sampler, "encode", lambda *a: pytest.fail("features by torch"))
    built.draw(query, 3, view)
    state = built.state_dict()
    other = build(way, exclude_target=True)
    other.load_state_dict(state)
    monkeypatch.undo()
    view.c = view.c.flip(0)                         # another table, at another address
    assert torch.equal(built.draw(query, 3, view).ids, other.draw(query, 3, view).ids)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_sums_with_one_number_that_is_not_finite_are_rejected(number):
    sampler = source("rff")
    sampler.prepare_log_prob(TableView())
    whole = sampler.feature_map.sums
    sampler.feature_map.sums = lambda y, prior: whole(y, prior).index_fill(1, torch.tensor([3]), number)
    with pytest.raises(UsageError, match="not finite"):
        sampler.on_epoch_start(TableView())
