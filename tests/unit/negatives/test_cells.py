"""Sources that draw by cells: densities against formulas in plain loops, stale summaries, and gradient bias."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.cores import CORES, NATIVE, needs_core, using
from helpers.looped import looped
from helpers.source_worlds import TableView, V, gradient_error, query, source, tiny_problem
from helpers.tiny_runs import OF_TEXT, made, write
from scipy import stats
from torch.nn.functional import normalize

from embtrain import experiment
from embtrain.common.errors import UsageError
from embtrain.common.types import ProblemSpec, Query
from embtrain.evaluate.gradient_bias import closeness
from embtrain.negatives.sampling.inverse_cdf import CounterRng
from embtrain.negatives.sampling.kmeans import kmeans
from embtrain.negatives.sampling.row_store import RowStore, stored_tensors
from embtrain.negatives.softmax.cells import cluster as clusters, inside, sampler

pytestmark = pytest.mark.long

N, D, B, TAU = 400, 8, 6, 6.0


class Moving:
    """A model of two tables whose candidates can be moved."""

    def __init__(self, c: torch.Tensor, geometry: str = "cosine", tau: float = TAU):
        self.c, self.geometry, self.tau, self.n_candidates = c, geometry, tau, len(c)

    def table(self) -> torch.Tensor:
        return self.c

    def score(self, one_query: Query, candidates: torch.Tensor) -> torch.Tensor:
        rows = self.c[candidates.expand(len(one_query), -1)]
        if self.geometry == "dot":
            return torch.einsum("bd,bkd->bk", one_query.vector, rows)
        return self.tau * torch.einsum("bd,bkd->bk", normalize(one_query.vector, dim=1), normalize(rows, dim=2))


def clustered(seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    centre = torch.randn(20, D, generator=draw)
    return centre[torch.arange(N) % 20] + 0.3 * torch.randn(N, D, generator=draw)


def make_query(seed: int = 1) -> Query:
    draw = torch.Generator().manual_seed(seed)
    target = torch.randint(N, (B,), generator=draw)
    vector = clustered()[target] + 0.5 * torch.randn(B, D, generator=draw)
    return Query(vector, torch.arange(B), target, torch.zeros_like(target))


def large(seed: int = 0) -> ProblemSpec:
    counts = torch.arange(1, N + 1).double()
    return ProblemSpec(N, counts, B, counts, dim=D, seed=seed)


def built_source(case: str, view: Moving, **more: object):
    still = {"clusters": 20, "update_every": 0, "recluster_every": 0} if "cluster" in case else {}
    cell_source = source(case, of=large(), **still | more)
    cell_source.on_epoch_start(view)
    return cell_source


EVERYONE = torch.arange(N).unsqueeze(0)


@looped("geometry", ["dot", "cosine"])
@looped("inside", ["exact", "unigram", "uniform"])
@looped("estimate", ["centroid", "diagonal", "full"])
def test_cluster_matches_its_formula(estimate, inside, geometry):
    view = Moving(clustered(), geometry, TAU if geometry == "cosine" else 1.0)
    cell_source, queries = built_source("cluster", view, estimate=estimate, within_cell=inside), make_query()
    log_q = cell_source.log_prob(queries, EVERYONE)
    c = (normalize(view.c, dim=1) if geometry == "cosine" else view.c).double()
    h = (TAU * normalize(queries.vector, dim=1) if geometry == "cosine" else queries.vector).double()
    for b in range(2):
        cells = []
        for cell in range(int(cell_source.index.cell.max()) + 1):
            x = c[cell_source.index.cell == cell]
            away = x - x.mean(0)
            spread = {"centroid": 0.0, "diagonal": float((h[b] ** 2) @ away.square().mean(0)),
                      "full": float(((away @ h[b]) ** 2).mean())}[estimate]
            cells.append(len(x) * math.exp(float(h[b] @ x.mean(0)) + spread / 2))
        for i in range(0, N, 37):
            own = cell_source.index.cell == cell_source.index.cell[i]
            weight = {"exact": (c @ h[b]).exp(), "unigram": torch.arange(1, N + 1).double(),
                      "uniform": torch.ones(N).double()}[inside]
            q = cells[int(cell_source.index.cell[i])] / sum(cells) * float(weight[i] / weight[own].sum())
            assert float(log_q[b, i]) == pytest.approx(math.log(q), abs=1e-4)


def one_sided(rows: int, seed: int) -> Query:
    """Return queries with a mean, as trained models have: 3 along every axis, and 1 orthogonal to it."""
    draw = torch.Generator().manual_seed(seed)
    none = torch.zeros(rows, dtype=torch.int64)
    return Query(3 + torch.randn(rows, D, generator=draw), none, torch.randint(N, (rows,), generator=draw), none)


@pytest.mark.parametrize("geometry", ["dot", "cosine"])
@pytest.mark.parametrize("rows", [3, 100])
def test_fitted_mass_is_the_line_of_mean_height_and_slope_at_received_queries(rows, geometry, monkeypatch):
    monkeypatch.setattr(clusters, "ROWS_PER_CHUNK", 64)                    # seven parts, the last one short
    view = Moving(clustered(), geometry, TAU if geometry == "cosine" else 1.0)
    cell_source, received, queries = built_source("cluster", view), one_sided(rows, 3), make_query()
    cell_source.draw(received, 2, view)
    cell_source.draw(one_sided(50, 4), 2, view)                  # summaries are kept: these queries are not used
    c = (normalize(view.c, dim=1) if geometry == "cosine" else view.c).double()

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return (TAU * normalize(x, dim=1) if geometry == "cosine" else x).double()

    h = scaled(received.vector)[[0, 1, 2] if rows == 3 else [round(n * 99 / 31) for n in range(32)]].requires_grad_()
    masses = []
    for cell in range(int(cell_source.index.cell.max()) + 1):
        L = (h @ c[cell_source.index.cell == cell].T).logsumexp(1)
        g = torch.autograd.grad(L.sum(), h)[0].mean(0)
        masses.append((L.mean() + (scaled(queries.vector) - h.mean(0)) @ g).detach())
    expected = torch.stack(masses, 1).log_softmax(1)
    result = cell_source.log_prob(queries, EVERYONE).double()
    for cell in range(len(masses)):
        torch.testing.assert_close(result[:, cell_source.index.cell == cell].logsumexp(1), expected[:, cell], atol=2e-4,
                                   rtol=0)


def prominent(rows: int, seed: int) -> Query:
    """Return queries near the candidates 5, 17 and 40, and each near one more."""
    draw, c = torch.Generator().manual_seed(seed), clustered()
    near = c[[5, 17, 40]].mean(0) + 0.7 * c[torch.randint(N, (rows,), generator=draw)]
    none = torch.zeros(rows, dtype=torch.int64)
    return Query(near, none, torch.randint(N, (rows,), generator=draw), none)


@pytest.mark.parametrize("geometry", ["dot", "cosine"])
def test_candidate_prominent_at_several_queries_has_its_own_cell(geometry):
    view = Moving(clustered(), geometry, TAU if geometry == "cosine" else 1.0)
    received, v = prominent(7, 3), torch.arange(N)
    p = view.score(received, EVERYONE).double().softmax(1)
    rest = torch.stack([sum(p[n, i] for n in range(7) if n != int(p[:, i].argmax())) / 6 for i in range(N)])
    for alone, least in ((None, 2.0), (0.2, 0.2), (8.0, 8.0)):
        cell_source = built_source("cluster", view, **{} if alone is None else {"singleton_threshold": alone})
        assert cell_source.singleton_mask is None                         # no query was received
        before = cell_source.labels.clone()                               # of groups; large ones are several cells
        cell_source.draw(received, 2, view)
        expected = v[rest > least / N]
        if len(expected) > 20:                                   # no more than clusters
            expected = v[rest >= rest.sort(descending=True)[0][19]]
        assert (alone == 8.0 or len(expected) > 0) and v[cell_source.singleton_mask].tolist() == expected.tolist()
        size = torch.bincount(cell_source.index.cell)
        assert (size[cell_source.index.cell[expected]] == 1).all() and int(size.sum()) == N
        others = ~cell_source.singleton_mask                              # stay in cells of their own group
        cell = cell_source.index.cell[others]
        assert ((cell[:, None] == cell) <= (before[others][:, None] == before[others])).all()


@pytest.mark.parametrize("settings", [{"singleton_threshold": 0.0}, {"estimate": "centroid"}, {"estimate": "full"}])
def test_no_single_cells_if_disabled_or_after_one_query(settings):
    view = Moving(clustered(), "dot", 1.0)
    cell_source = built_source("cluster", view, **settings)
    cell_source.draw(prominent(7, 3), 2, view)
    assert cell_source.singleton_mask is None
    cell_source = built_source("cluster", view)
    cell_source.draw(prominent(1, 3), 2, view)
    assert cell_source.singleton_mask is None


def test_single_cells_bring_q_closer_if_few_candidates_have_most_of_the_mass():
    c, kl = clustered() / 2, {}
    c[:, 0] = -1.2 * torch.arange(1, N + 1).log()                # as counts by Zipf's law, regardless of meaning

    def queries(seed: int) -> Query:
        one_query = one_sided(200, seed)
        return one_query.with_vector((one_query.vector - 3).index_fill(1, torch.tensor([0]), 1.0))

    view = Moving(c[torch.randperm(N, generator=torch.Generator().manual_seed(5))], "dot", 1.0)
    for alone in (0.0, 2.0):
        cell_source = built_source("cluster", view, singleton_threshold=alone)
        cell_source.draw(queries(2), 1, view)
        kl[alone] = float(closeness(view.score(queries(1), EVERYONE),
                                    cell_source.log_prob(queries(1), EVERYONE)).kl.mean())
    assert kl[2.0] < 0.7 * kl[0.0]


def test_queries_with_a_mean_need_fitted_masses():
    view, queries = Moving(clustered(), "dot", 1.0), one_sided(200, 1)
    o, kl = view.score(queries, EVERYONE), {}
    for estimate in ("fitted", "centroid", "full"):
        cell_source = built_source("cluster", view, estimate=estimate)
        cell_source.draw(one_sided(200, 2), 1, view)             # other queries of the same kind
        kl[estimate] = float(closeness(o, cell_source.log_prob(queries, EVERYONE)).kl.mean())
    assert kl["fitted"] < 0.3 * kl["centroid"] and kl["full"] < kl["centroid"]


def test_fitted_mass_without_queries_equals_centroid_and_scores_beyond_float32_are_finite():
    view = Moving(clustered(), "dot", 1.0)
    torch.testing.assert_close(built_source("cluster", view).log_prob(make_query(), EVERYONE),
                               built_source("cluster", view, estimate="centroid").log_prob(make_query(), EVERYONE))
    far = Moving(clustered() * 300, "dot", 1.0)                  # scores of thousands: most masses are 0
    cell_source = built_source("cluster", far)
    drawn = cell_source.draw(one_sided(40, 1), 5, far)
    log_q = cell_source.log_prob(one_sided(40, 1), EVERYONE)
    assert bool(drawn.log_q.isfinite().all()) and bool((log_q.logsumexp(1).abs() < 1e-4).all())


@pytest.mark.parametrize("quantisation", ["product", "residual"])
@pytest.mark.parametrize("inside", ["uniform", "unigram", "exact"])
def test_midx_matches_its_formula(inside, quantisation):
    view, queries = Moving(clustered(), "dot", 1.0), make_query()
    cell_source = built_source("midx", view, codewords=5, quantisation=quantisation, within_cell=inside)
    log_q, c, h = cell_source.log_prob(queries, EVERYONE), view.c.double(), queries.vector.double()
    a, b = cell_source.labels // 5, cell_source.labels % 5
    half = slice(0, D // 2) if quantisation == "product" else slice(0, D)
    other = slice(D // 2, D) if quantisation == "product" else slice(0, D)
    first = torch.stack([c[a == k][:, half].mean(0) for k in range(5)])
    left = c[:, other] - (first[a] if quantisation == "residual" else 0)
    second = torch.stack([left[b == k].mean(0) for k in range(5)])
    code = (h[:, half] @ first.T)[:, a] + (h[:, other] @ second.T)[:, b]  # (B, N) e^. is M / ω of the candidate's cell
    pop = torch.arange(1, N + 1).double() if inside == "unigram" else torch.ones(N).double()
    z = (code.exp() * pop).sum(1, keepdim=True)                                     # Σ over cells of ω e^. , by members
    weight = (h @ c.T).exp() if inside == "exact" else pop.expand(B, N)
    own = cell_source.index.cell.unsqueeze(0) == cell_source.index.cell.unsqueeze(1)
    omega = (own * pop).sum(1)
    q = code.exp() * omega / z * weight / (weight @ own.double())
    torch.testing.assert_close(log_q.double(), q.log(), atol=1e-4, rtol=0)


def test_cluster_gradient_is_nearly_as_good_as_softmax_gradient():
    """Clustered vectors, m = 20: the remaining bias is chance, and uniform draws have many times that."""
    view, queries = Moving(clustered()), make_query()
    o = view.score(queries, EVERYONE)
    c = TAU * normalize(view.c, dim=1)
    result = {}
    for case, more in (("exp", {}), ("centroid", {"estimate": "centroid"}), ("full", {"estimate": "full"}),
                       ("uniform", {}), ("uniform inside", {"estimate": "centroid", "within_cell": "uniform"})):
        log_q = {"exp": o.log_softmax(1), "uniform": torch.full((B, N), -math.log(N))}.get(case)
        log_q = built_source("cluster", view, **more).log_prob(queries, EVERYONE) if log_q is None else log_q
        error = gradient_error(o, c, queries.target, log_q, 20, 1000, torch.Generator().manual_seed(3))
        result[case] = (float(closeness(o, log_q).kl.mean()), float(error.bias.mean()), float(error.rmse.mean()))
    for which, less in ((0, 0.5), (1, 0.9), (2, 0.95)):           # KL, bias, rmse
        assert result["full"][which] < 1.02 * result["centroid"][which]
        assert result["centroid"][which] < less * result["uniform inside"][which]
        assert result["uniform inside"][which] < result["uniform"][which]
    assert result["full"][1] < 1.1 * result["exp"][1] and result["centroid"][1] < 1.3 * result["exp"][1]
    assert result["uniform"][1] > 5 * result["exp"][1] and result["full"][0] < 0.01


def test_stale_masses_define_draw_and_current_scores_define_inside():
    view, queries = Moving(clustered()), make_query()
    cell_source = built_source("cluster", view)
    cell_source.draw(queries, 1, view)                           # uses the first queries only
    shares = {cell: cell_source.log_prob(queries, EVERYONE)[:, cell_source.index.cell == cell].logsumexp(1)
              for cell in range(3)}
    view.c = view.c + torch.randn(N, D, generator=torch.Generator().manual_seed(2))
    drawn = cell_source.draw(queries, 50, view)
    torch.testing.assert_close(cell_source.log_prob(queries, drawn.ids), drawn.log_q, atol=1e-5, rtol=0)
    log_q, o = cell_source.log_prob(queries, EVERYONE), view.score(queries, EVERYONE)
    for cell, share in shares.items():
        own = cell_source.index.cell == cell
        torch.testing.assert_close(log_q[:, own].logsumexp(1), share, atol=1e-5, rtol=0)
        torch.testing.assert_close(log_q[:, own] - share.unsqueeze(1), o[:, own].log_softmax(1), atol=1e-4, rtol=0)
    cell_source.on_epoch_start(view)
    assert (cell_source.log_prob(queries, EVERYONE) - log_q).abs().max() > 0.1


@looped("name", CORES)
@looped("geometry", ["dot", "cosine"])
def test_copies_are_of_last_summary_and_draw_and_report_agree(geometry, name):
    view, queries = Moving(clustered(), geometry, TAU if geometry == "cosine" else 1.0), make_query()
    with using(name):
        cell_source = built_source("cluster", view, within_cell="quantized")
        cell_source.draw(queries, 1, view)
        log_q, before = cell_source.log_prob(queries, EVERYONE), view.c.clone()
        view.c.add_(torch.randn(N, D, generator=torch.Generator().manual_seed(2)))
        drawn = cell_source.draw(queries, 50, view)
        torch.testing.assert_close(log_q.gather(1, drawn.ids), drawn.log_q, atol=1e-5, rtol=0)
        torch.testing.assert_close(log_q[range(B), queries.target], drawn.log_q_target, atol=1e-5, rtol=0)
        assert torch.equal(cell_source.log_prob(queries, EVERYONE), log_q)
        c, h = before.double(), queries.vector.double()
        if geometry == "cosine":
            c, h = normalize(before, dim=1).double(), TAU * normalize(h, dim=1)
        kept = RowStore(N, D, "int8", "cpu")
        kept.write(torch.arange(N), c.float())
        o = kept.round_query(h) @ kept.read(slice(None)).T
        assert 1e-3 < float((o - h @ c.T).abs().max()) < 0.2        # rounding is measurable, and small
        for cell in range(cell_source.index.n_cells):
            own = cell_source.index.cell == cell
            inside = log_q[:, own].log_softmax(1).double()
            torch.testing.assert_close(inside, o[:, own].log_softmax(1), atol=1e-4, rtol=0)
        cell_source.on_epoch_start(view)
        assert (cell_source.log_prob(queries, EVERYONE) - log_q).abs().max() > 0.1


@looped("inside", ["exact", "quantized"])
@looped("name", CORES)
def test_reported_q_follows_each_summary_and_each_grouping(name, inside):
    view = Moving(clustered())
    with using(name):
        cell_source = source("cluster", of=large(), clusters=20, update_every=2, recluster_every=5, within_cell=inside)
        for step in range(8):
            view.c = view.c + 0.3 * torch.randn(N, D, generator=torch.Generator().manual_seed(step))
            drawn = cell_source.draw(make_query(), 20, view)
            torch.testing.assert_close(cell_source.log_prob(make_query(), drawn.ids), drawn.log_q, atol=1e-4, rtol=0)
            if inside == "quantized" and step % 2 == 0:             # a summary was due
                fresh = RowStore(N, D, "int8", "cpu")
                fresh.write(torch.arange(N), normalize(view.c, dim=1)[cell_source.index.order])
                for actual, theirs in zip(stored_tensors(cell_source.copy), stored_tensors(fresh), strict=True):
                    assert torch.equal(actual, theirs)


def test_summaries_and_groups_are_refreshed_when_due():
    view = Moving(clustered())
    cell_source = source("cluster", of=large(), clusters=20, update_every=3, recluster_every=40)
    summed, grouped = [], []
    keep_sum, keep_group = cell_source.summarise, cell_source._recluster

    def count_sum(c):
        summed.append(cell_source.n_draws)
        return keep_sum(c)

    def count_group(v):
        grouped.append(cell_source.n_draws)
        keep_group(v)

    cell_source.summarise, cell_source._recluster = count_sum, count_group
    for _ in range(120):
        cell_source.draw(make_query(), 2, view)
    assert grouped == [0, 10, 30, 70, 110]                       # 10 draws, doubling up to 40
    assert set(summed) == {*range(0, 120, 3), *grouped}


def test_first_query_builds_a_summary_if_none_is_due():
    view = Moving(clustered())
    cell_source = built_source("cluster", view)
    blind = cell_source.summary
    cell_source.draw(make_query(), 2, view)
    fitted = cell_source.summary
    cell_source.draw(make_query(2), 2, view)
    assert cell_source.summary is fitted is not blind and cell_source.recent_queries.shape == (B, D)
    still = built_source("cluster", view, estimate="centroid")
    blind = still.summary
    still.draw(make_query(), 2, view)
    assert still.summary is blind and still.recent_queries is None


@pytest.mark.parametrize("case", ["cluster", "midx"])
def test_untrained_table_does_not_collapse_into_one_cell(case):
    view = Moving(torch.zeros(N, D), "dot", 1.0)
    cell_source = built_source(case, view)
    assert int(torch.bincount(cell_source.index.cell).max()) <= 4 * N / cell_source.n_cells_requested + 1
    log_q = cell_source.log_prob(make_query(), EVERYONE)
    torch.testing.assert_close(log_q.exp().sum(1), torch.ones(B))
    if case == "cluster":
        torch.testing.assert_close(log_q, torch.full((B, N), -math.log(N)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", ["cluster", "cluster quantized", "cluster with covariances", "midx"])
def test_resumed_source_draws_bitwise_while_model_moves(case):
    def steps(cell_source, view, first, last):
        out = []
        for step in range(first, last):
            view.c = view.c + 0.1 * torch.randn(N, D, generator=torch.Generator().manual_seed(step))
            drawn = cell_source.draw(make_query(step), 4, view)
            out += [drawn.ids, drawn.log_q, drawn.log_q_target]
        return out

    settings = {"update_every": 2, "recluster_every": 4}
    view, whole = Moving(clustered()), source(case, of=large(), **settings)
    steps(whole, view, 0, 7)
    state, there = whole.state_dict(), Moving(view.c.clone())
    resumed = source(case, of=large(5), **settings)
    resumed.load_state_dict(state)
    resumed.problem = large()                                       # the problem of the run that continues
    for a, b in zip(steps(whole, view, 7, 20), steps(resumed, there, 7, 20), strict=True):
        assert torch.equal(a, b)
    assert source(case).state_dict().keys() == whole.state_dict().keys()


@looped("exclude", [False, True])
@looped("case, exponent", [("cluster", 4.0), ("cluster", -4.0), ("midx", 4.0), ("cluster", 10.0)])
def test_steep_unigram_inside_keeps_small_weights(case, exponent, exclude):
    """Counts of 1 to 5e5 to the fourth power span more than the digits of a float64."""
    counts = torch.cat([torch.arange(1, N - 7), 5 * 10 ** torch.linspace(4, 5, 8)]).double()
    cell_source = source(case, of=ProblemSpec(N, counts, B, counts, dim=D, seed=0), within_cell="unigram",
                         exponent=exponent,
                         exclude_target=exclude, **{"clusters": 20} if case == "cluster" else {})
    view = Moving(clustered())
    cell_source.on_epoch_start(view)
    drawn = cell_source.draw(make_query(), 400, view)
    log_q = cell_source.log_prob(make_query(), EVERYONE)
    torch.testing.assert_close(log_q.double().exp().sum(1), torch.ones(B).double(), rtol=1e-5, atol=0)
    rows = drawn.per_row(drawn.ids, B)
    torch.testing.assert_close(drawn.per_row(drawn.log_q, B), log_q.gather(1, rows), rtol=1e-4, atol=1e-4)
    assert drawn.log_q.isfinite().all() and not (exclude and (rows == make_query().target.unsqueeze(1)).any())
    index = cell_source.index
    inside = torch.stack([log_q[:, index.cell == c].logsumexp(1) for c in range(index.n_cells)], 1)[:, index.cell]
    w = counts ** exponent
    for row, target in enumerate(make_query().target.tolist()):
        kept = w.clone()
        kept[target] = 0 if exclude else kept[target]
        total = torch.zeros(cell_source.index.n_cells).double().index_add_(0, cell_source.index.cell,
                                                                           kept)[cell_source.index.cell]
        there = kept > 0
        r = (log_q[row].double() - inside[row].double()).exp()
        torch.testing.assert_close(r[there], (kept / total)[there], rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("case", ["cluster", "midx"])
def test_q_of_cell_members_is_exact_with_dominant_target(case):
    """200 above the rest of its cell, the target has all of e^o; the draw and the report are of the rest."""
    c = torch.zeros(6, D)
    c[:, 0] = torch.tensor([300.0, 100.0, 99.0, 98.0, 0.0, 0.0])
    counts = torch.ones(6).double()
    cell_source = source(case, of=ProblemSpec(6, counts, B, counts, dim=D, seed=0), exclude_target=True,
                         within_cell="exact", **{"clusters": 1} if case == "cluster" else {"codewords": 1})
    view = Moving(c, "dot")
    cell_source.on_epoch_start(view)
    one = replace(make_query(), target=torch.zeros(B, dtype=torch.int64)).with_vector(torch.eye(D)[0].expand(B, D))
    log_q = cell_source.log_prob(one, torch.arange(6).unsqueeze(0))
    expected = torch.tensor([100.0, 99, 98, 0, 0]).log_softmax(0)
    torch.testing.assert_close(log_q[:, 1:4], expected[:3].expand(B, 3), rtol=1e-5, atol=1e-5)
    assert (log_q[:, 0] == -torch.inf).all()
    drawn = cell_source.draw(one, 50, view)
    torch.testing.assert_close(drawn.per_row(drawn.log_q, B), log_q.gather(1, drawn.per_row(drawn.ids, B)))


@pytest.mark.parametrize("case", ["cluster", "midx"])
def test_log_prob_before_first_draw_does_not_change_draws(case):
    """An evaluation before training groups by vectors that the later refresh of an epoch must not start from."""
    alone, met = source(case, of=large()), source(case, of=large())
    met.prepare_log_prob(Moving(clustered(5)))
    for cell_source in (alone, met):
        cell_source.on_epoch_start(Moving(clustered()))
    assert torch.equal(alone.labels, met.labels) and alone.n_groupings == met.n_groupings
    for _ in range(3):
        drawn = [cell_source.draw(make_query(), 4, Moving(clustered())) for cell_source in (alone, met)]
        assert torch.equal(drawn[0].ids, drawn[1].ids) and torch.equal(drawn[0].log_q, drawn[1].log_q)


@needs_core
@pytest.mark.parametrize("case", ["cluster", "rff"])
def test_draws_keep_their_values_and_differ(case):
    """Small draws share one buffer allocated for many, and one random stream."""
    cell_source, one_query, view = source(case), query(6), TableView()
    drawn = [cell_source.draw(one_query, k, view) for _ in range(90) for k in (8, 5)]
    before = [(d.ids.clone(), d.log_q.clone(), d.log_q_target.clone()) for d in drawn]
    for _ in range(300):
        cell_source.draw(one_query, 8, view)
    for d, (ids, log_q, log_q_target) in zip(drawn, before, strict=True):
        assert torch.equal(d.ids, ids) and torch.equal(d.log_q, log_q) and torch.equal(d.log_q_target, log_q_target)
        assert torch.isfinite(d.log_q).all() and (d.ids >= 0).all() and (d.ids < V).all()
    assert len({tuple(d.ids.flatten().tolist()) for d in drawn}) == len(drawn)


@pytest.mark.parametrize("case", ["cluster", "cluster uniform inside by windows", "cluster without the target",
                                  "cluster quantized without the target", "midx"])
@looped("core", CORES)
def test_q_of_the_target_can_be_left_out_without_changing_a_draw(core: str, case: str) -> None:
    drawn = []
    with using(core):
        for is_read in (True, False):
            cell_source = source(case)
            cell_source.is_target_q_read = is_read
            drawn.append([cell_source.draw(query(30), 4, TableView()) for _ in range(2)])
    for full, short in zip(*drawn, strict=True):
        assert torch.equal(full.ids, short.ids) and torch.equal(full.log_q, short.log_q)
        assert full.draw_id is short.draw_id or torch.equal(full.draw_id, short.draw_id)
        assert short.log_q_target is None and (full.log_q_target is None) == ("without" in case)


def test_a_loss_that_reads_q_of_the_target_gets_it(tmp_path: Path) -> None:
    place = write(tmp_path)
    for loss, is_read in (("logistic", False), ("nce", True), ("sampled_softmax", False)):
        settings = experiment.resolve("cluster", loss=loss, corpus=str(place / "text"),
                                      sets=[*OF_TEXT, "negatives.exclude_target=false"])
        assert made(settings).source.is_target_q_read == is_read


def test_no_random_number_is_used_twice_for_any_k():
    numbers, used = CounterRng(torch.Generator().manual_seed(3)), []
    for n, k in ((4, 10), (3, 7), (1, 100), (5, 1), (2, 10)):
        first = numbers.reserve(n, k)
        used += range(first * k, (first + n) * k)
    assert len(used) == len(set(used))
    again = CounterRng(torch.Generator().manual_seed(4))
    again.load(numbers.state() | {"seeds": list(numbers.seeds)})
    assert again.seeds == numbers.seeds and again.reserve(2, 3) == numbers.reserve(2, 3) and len(set(again.seeds)) == 2


@pytest.mark.parametrize("state", [
    {"seeds": [1], "given": 0}, {"seeds": [1, 2 ** 64], "given": 0}, {"seeds": [1, 2], "given": -1},
    {"seeds": [1, 2], "given": 2 ** 63}, {"seeds": [1, 0.5], "given": 0}, {"seeds": 3, "given": 0}])
def test_numbers_not_generated_are_rejected(state: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        CounterRng(torch.Generator()).load(state)


def test_kmeans_is_deterministic_and_finds_the_groups():
    c = clustered()
    a, b = kmeans(c, 20, 3), kmeans(c, 20, 3)
    assert torch.equal(a, b) and a.dtype == torch.int64 and int(a.max()) < 20
    together = (a.unsqueeze(0) == a.unsqueeze(1)) == (torch.arange(N) % 20 == (torch.arange(N) % 20).unsqueeze(1))
    assert float(together.double().mean()) > 0.95


def test_rows_of_a_window_share_a_draw_if_their_query_is_equal():
    drawn = source("cluster uniform inside by windows").draw(query(30), 4, TableView())
    queries = query(30)
    for i in range(29):
        same = bool(queries.window[i] == queries.window[i + 1]) and bool(queries.context[i] == queries.context[i + 1])
        assert (drawn.draw_id[i] == drawn.draw_id[i + 1]) == same


def test_rows_drawn_by_slices_equal_rows_drawn_at_once(monkeypatch):
    for case in ("cluster", "cluster uniform inside by windows", "cluster without the target"):
        whole = source(case).draw(query(30), 4, TableView())
        with monkeypatch.context() as patch:
            for module in (inside, sampler):
                patch.setattr(module, "MAX_SCORES", 48)
            parts = source(case).draw(query(30), 4, TableView())
        assert torch.equal(whole.ids, parts.ids)
        torch.testing.assert_close(whole.log_q, parts.log_q)
        assert whole.draw_id is parts.draw_id or torch.equal(whole.draw_id, parts.draw_id)


@looped("max_scores", [48, 1 << 20])
def test_known_offsets_of_windows_do_not_change_draws(max_scores, monkeypatch):
    monkeypatch.setattr(sampler, "MAX_SCORES", max_scores)
    words, offsets = query(9), torch.tensor([0, 3, 4, 9, 11, 16, 17, 21, 25, 30])
    window = torch.arange(9).repeat_interleave(offsets.diff())
    slow = Query(words.vectors, words.context[window], query(30).target, query(30).slot, window, window, by_id=True)
    for core in CORES:
        with using(core):
            one, two = (source("cluster uniform inside by windows").draw(x, 4, TableView())
                        for x in (slow, replace(slow, window_offsets=offsets)))
        assert torch.equal(one.ids, two.ids) and torch.equal(one.log_q, two.log_q)
        assert torch.equal(one.draw_id, two.draw_id)


@looped("step, cuts", [(1, [2, 3, 7]), (2, [3, 7]), (3, [7]), (4, [7])])
def test_slice_has_whole_draws(step, cuts):
    draw_id = torch.tensor([4, 4, 5, 9, 9, 9, 9])
    assert list(sampler._draw_slices(draw_id, step)) == [slice(*ends) for ends in itertools.pairwise([0, *cuts])]


@pytest.mark.parametrize(("case", "settings", "says"), [
    ("cluster", {"clusters": 41}, "negatives.clusters: 41 is more than the 40 candidates"),
    ("midx", {"codewords": 41}, "negatives.codewords: 41 is more than the 40 candidates"),
    ("cluster", {"estimate": "full", "singleton_threshold": 2.0},
     "negatives.singleton_threshold: full masses are not fitted to queries"),
    ("cluster", {"share_draws_by": "batch"}, "negatives.share_draws_by: cluster draws for each query"),
    ("cluster", {"replacement": False}, "negatives.replacement"),
    ("cluster", {"exclude_target": True, "share_draws_by": "window"}, "negatives.exclude_target"),
])
def test_unsupported_use_is_rejected_in_one_line(case, settings, says):
    with pytest.raises(UsageError, match=says) as raised:
        source(case, **settings)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("case", ["cluster", "midx"])
def test_one_candidate_and_nan_vectors_are_rejected_in_one_line(case):
    with pytest.raises(UsageError, match="two or more candidates, but there is 1"):
        source(case, of=ProblemSpec(1, torch.ones(1).double(), 1, dim=4))
    view = Moving(torch.full((V, 8), math.nan))
    with pytest.raises(UsageError, match=r"not finite.*lower train.lr"):
        source(case, of=tiny_problem()).draw(query(), 2, view)
    with pytest.raises(UsageError, match="has not been fitted to the model yet"):
        source(case).log_prob(query(), torch.arange(V).unsqueeze(0))


def test_covariances_that_do_not_fit_are_rejected():
    counts = torch.ones(200_000, dtype=torch.float64)
    with pytest.raises(UsageError, match="use diagonal"):
        source("cluster", of=ProblemSpec(200_000, counts, 5, dim=2000), estimate="full", clusters=400)


@needs_core
@pytest.mark.parametrize("case", ["cluster", "cluster without the target", "cluster quantized without the target",
                                  "midx exact inside"])
def test_torch_without_core_draws_from_the_same_q(case):
    view, queries = Moving(clustered()), make_query()
    settings = {"codewords": 5} if "midx" in case else {}
    cell_source = built_source(case, view, **settings)
    result = {}
    for name in CORES:
        with using(name):
            drawn = cell_source.draw(queries, 4000, view)
            torch.testing.assert_close(cell_source.log_prob(queries, drawn.ids), drawn.log_q, atol=1e-5, rtol=0)
            result[name] = cell_source.log_prob(queries, EVERYONE), torch.bincount(drawn.ids.flatten(), minlength=N)
    q, off = result["off"]
    for name in NATIVE:
        torch.testing.assert_close(result[name][0], q, atol=1e-5, rtol=0)
        assert float((result[name][1] - off).abs().sum()) / (4000 * B) < 0.2


@looped("core", CORES)
@looped("gap", [15.0, 30.0, 60.0])
@looped("settings", [{"case": "cluster"}, {"case": "cluster", "within_cell": "unigram"},
                     {"case": "midx"},
                     {"case": "midx", "within_cell": "exact"}])
def test_remaining_candidates_keep_their_shares_with_dominant_target(settings, gap, core):
    """Candidate 3 has all of q except e^-60, and is the target: 1 - q_t has no digits left."""
    n, k = 30, 3000
    c = 0.1 * torch.randn(n, D, generator=torch.Generator().manual_seed(3))
    c[3] = torch.eye(D)[0] * gap
    none = torch.zeros(2, dtype=torch.int64)
    queries, view = Query(torch.eye(D)[:1].repeat(2, 1), none, none + 3, none), Moving(c, "dot")
    counts = torch.arange(1, n + 1).double()
    with using(core):
        cell_source = source(**settings, of=ProblemSpec(n, counts, 1, counts, dim=D, seed=1), exclude_target=True,
                             **({"codewords": 6} if settings["case"] == "midx" else {"clusters": 6}))
        drawn = cell_source.draw(queries, k, view)
        q = cell_source.log_prob(queries, torch.arange(n).unsqueeze(0)).double().exp()
    assert q.sum(1).tolist() == pytest.approx([1, 1], abs=1e-5) and q[:, 3].tolist() == [0, 0]
    torch.testing.assert_close(drawn.log_q.double(), q.gather(1, drawn.ids).log(), atol=1e-4, rtol=0)
    seen = torch.bincount(drawn.ids.flatten(), minlength=n)[q[0] > 0]
    assert stats.chisquare(seen, q[0][q[0] > 0] / q[0].sum() * 2 * k).pvalue > 1e-4
