"""Filtered ranks against a loop in plain Python, the kernel against the model's own scores, the measures by hand."""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.cores import CORES, using
from helpers.graphs import PYKEEN, Toy, digest, some_triples, toy
from helpers.looped import looped

from embtrain.common.types import ProblemSpec, Query
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.triples import graph
from embtrain.data.triples.examples import HEAD, TAIL, KnownTriples, TripleBatch, TripleExamples
from embtrain.data.triples.graph import TriplesConfig
from embtrain.evaluate import link_prediction
from embtrain.evaluate.link_prediction import RankingConfig, Ranks, ranks
from embtrain.kernels.scoring import ranking as kernel
from embtrain.models import base as models
from embtrain.models.base import ModelConfig
from embtrain.models.products import cosine_scores

E, R = 23, 4
TRIPLES = some_triples(300, E, R)


def world(triples: np.ndarray, n_entities: int, n_relations: int,
          reciprocal: bool = False) -> tuple[TripleExamples, KnownTriples]:
    examples = TripleExamples(triples, n_entities, n_relations, TriplesConfig(reciprocal=reciprocal), 0)
    return examples, KnownTriples.from_triples(examples, [triples])


def one_by_one(model: Toy, batch: TripleBatch, true: set[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (better, equal, candidates) of each row by the definition, from the scores of a single query."""
    result, n = [], model.problem.n_candidates
    for i in range(len(batch)):
        row = batch.rows(slice(i, i + 1))
        (z,) = model.score(model.encode(row), torch.arange(n).unsqueeze(0)).tolist()
        query, relation, target = int(row.entity), int(row.relation), int(row.target)
        def known(c: int, query: int = query, relation: int = relation, side: int = int(row.slot)) -> bool:
            return ((c, relation, query) if side == HEAD else (query, relation, c)) in true
        rivals = [z[c] for c in range(n) if c != target and not known(c)]
        better = len(rivals) if math.isnan(z[target]) else sum(x > z[target] for x in rivals)
        result.append((better, sum(x == z[target] for x in rivals), len(rivals) + 1))
    return result


def as_rows(result: Ranks) -> list[tuple[int, int, int]]:
    return list(zip(result.better.tolist(), result.equal.tolist(), result.candidates.tolist(), strict=True))


@looped("geometry", ["l1", "l2", "dot", "cosine"])
@looped("levels", [0, 2])
def test_ranks_equal_the_definition(geometry: str, levels: int) -> None:
    """levels: tables of few integers, with many ties and no rounded sums."""
    model, (examples, known) = toy(E, R, geometry, levels=levels), world(TRIPLES, E, R)  # type: ignore[arg-type]
    batch = examples.both(TRIPLES[-40:])
    with torch.no_grad():
        expected = one_by_one(model, batch, set(map(tuple, TRIPLES.tolist())))
    for name in CORES:
        for chunk in (1, 50, 1 << 20):
            with using(name):
                assert as_rows(ranks(model, batch, known, chunk_cells=chunk)) == expected, (name, chunk)
    assert (levels == 0) == all(equal == 0 for _, equal, _ in expected)


@pytest.mark.parametrize(("name", "keys"), [("transd", {"norm": "l1"}), ("transd", {"norm": "l2"}), ("rotate", {})])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("levels", [0, 3])
def test_candidates_that_depend_on_the_relation_and_complex_ones_are_counted_by_the_kernel_too(
        monkeypatch: pytest.MonkeyPatch, name: str, keys: dict[str, str], reciprocal: bool, levels: int) -> None:
    examples, known = world(TRIPLES, E, R, reciprocal)
    n_relations = R * (2 if reciprocal else 1)
    kind = models.find(name)
    model = kind(kind.Config(name=name, dim=4, **keys), ProblemSpec(
        E, torch.ones(E, dtype=torch.float64), context_sizes=(E, 2 * n_relations), dim=4, seed=3))
    draw = torch.Generator().manual_seed(1)
    if levels:
        model.e.data = torch.randint(levels, model.e.shape, generator=draw).float()
        model.r.data = torch.randint(levels, model.r.shape, generator=draw).float() if name == "transd" else \
            torch.zeros_like(model.r)                                    # otherwise no sum of roots is exact
    batch = examples.both(TRIPLES[-60:])
    true = {tuple(t) for t in TRIPLES.tolist()} | {(t, r + R, h) for h, r, t in TRIPLES.tolist() if reciprocal}
    with torch.no_grad():
        expected = one_by_one(model, batch, true)                        # type: ignore[arg-type]
    calls: list[str] = []
    count = kernel.counts
    monkeypatch.setattr(kernel, "counts", lambda *a: calls.append(a[2]) or count(*a))
    for vectors in (1, 20, 1 << 24):                                     # one query at a time, and more
        monkeypatch.setattr(link_prediction, "_MAX_ELEMENTS", vectors)
        assert as_rows(ranks(model, batch, known)) == expected
    assert set(calls) == {keys.get("norm", "modulus")}
    assert (levels == 0) == all(equal == 0 for _, equal, _ in expected)
    monkeypatch.setattr(kernel, "counts", lambda *a: pytest.fail("the kernel counts in float32"))
    assert as_rows(ranks(model.double(), batch, known)) == expected


def test_exactly_the_known_triples_are_filtered() -> None:
    model, (examples, _) = toy(E, R, "l1", levels=3), world(TRIPLES, E, R)
    _, some = world(TRIPLES[:150], E, R)
    batch = examples.both(TRIPLES[-30:])                                 # that the filter does not contain
    with torch.no_grad():
        assert as_rows(ranks(model, batch, some)) == one_by_one(model, batch, set(map(tuple, TRIPLES[:150].tolist())))


@pytest.mark.parametrize("geometry", ["l1", "cosine"])
def test_inverse_relations_rank_as_separate_relations(geometry: str) -> None:
    examples, known = world(TRIPLES, E, R, reciprocal=True)
    model = toy(E, 2 * R, geometry, levels=3)                            # type: ignore[arg-type]
    batch = examples.both(TRIPLES[-30:])
    both = {tuple(t) for t in TRIPLES.tolist()} | {(t, r + R, h) for h, r, t in TRIPLES.tolist()}
    with torch.no_grad():
        assert as_rows(ranks(model, batch, known)) == one_by_one(model, batch, both)


@pytest.mark.parametrize("geometry", ["l1", "l2", "dot", "cosine"])
def test_a_nan_score_ranks_last(geometry: str) -> None:
    model, (examples, known) = toy(E, R, geometry), world(TRIPLES, E, R)  # type: ignore[arg-type]
    with torch.no_grad():
        model.e[3] = math.nan
        batch = examples.both(TRIPLES)
        result = ranks(model, batch, known)
        assert as_rows(result) == one_by_one(model, batch, set(map(tuple, TRIPLES.tolist())))
    last = (batch.target == 3).numpy()
    assert last.any() and (result.better[last] == result.candidates[last] - 1).all() and (result.equal[last] == 0).all()


@pytest.mark.parametrize("geometry", ["l1", "dot", "cosine"])
def test_a_model_with_equal_scores_gains_nothing(geometry: str) -> None:
    model, (examples, known) = toy(E, R, geometry), world(TRIPLES, E, R)  # type: ignore[arg-type]
    with torch.no_grad():
        model.e.zero_()
    result = ranks(model, examples.both(TRIPLES), known)
    assert (result.better == 0).all() and (result.equal == result.candidates - 1).all()
    means = {row.metric: row.value for row in link_prediction.mean_scores("test", result, RankingConfig(), "")}
    assert means["amri"] == pytest.approx(0) and means["mr"] == pytest.approx((result.candidates.mean() + 1) / 2)


class Rounded(Toy):
    """A model of another package: its scores of equal vectors differ by rounding, lower at the last candidates."""

    def score(self, query: Query, candidates: torch.Tensor) -> torch.Tensor:
        assert not candidates.is_floating_point()
        z, h, rows = super().score(query, candidates), query.vector, self.e[candidates[0]]
        size = h.norm(dim=1, keepdim=True) * rows.norm(dim=1) if self.geometry == "dot" else z.abs()
        if self.geometry == "cosine":
            z, size = cosine_scores(h, self.e, candidates, self.sparse, self.tau), torch.tensor(self.tau)
        return torch.where(candidates < E - 5, z, z - 2 * torch.finfo(z.dtype).eps * size)


@pytest.mark.parametrize(("geometry", "dtype"), [
    ("own", torch.float32), ("own", torch.float64), ("cosine", torch.float32), ("dot", torch.float64),
    ("l1", torch.float64)])
def test_scores_that_differ_by_rounding_tie_where_the_kernel_cannot_count(geometry: str, dtype: torch.dtype) -> None:
    examples, known = world(TRIPLES, E, R)
    problem = ProblemSpec(E, torch.ones(E, dtype=torch.float64), context_sizes=(E, 2 * R))
    model, batch = Rounded(ModelConfig(dim=6), problem, geometry).to(dtype), examples.both(TRIPLES)  # type: ignore[arg-type]
    different = ranks(model, batch, known)
    assert (different.equal == 0).all() and len(set(different.better.tolist())) > 5
    with torch.no_grad():
        model.e.copy_(model.e[:1].clone())
        if geometry == "dot":                                            # terms that cancel: a sum near 0
            model.e[:, 3:], model.r[:, :3], model.r[:, 3:] = model.e[:, :3].clone(), 1, -1
        for chunk in (1, 1 << 20):                                       # one query at a time, and all
            result = ranks(model, batch, known, chunk_cells=chunk)
            assert (result.better == 0).all() and (result.equal == result.candidates - 1).all()


@pytest.mark.parametrize("geometry", ["cosine", "l1", "l2"])
def test_a_score_of_minus_infinity_ranks_below_all_others(geometry: str) -> None:
    model, (examples, known) = toy(E, R, geometry).double(), world(TRIPLES, E, R)  # in double without the core
    with torch.no_grad():
        model.e.abs_(), model.r.abs_()
        model.e[3] = -math.inf
        batch = examples.both(TRIPLES).rows(examples.both(TRIPLES).entity != 3)
        result, expected = ranks(model, batch, known), one_by_one(model, batch, set(map(tuple, TRIPLES.tolist())))
    assert as_rows(result) == expected
    last = (batch.target == 3).numpy()
    assert last.any() and (result.better[last] == result.candidates[last] - 1).all()


def test_the_kernel_is_used_only_where_it_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    count = kernel.counts
    monkeypatch.setattr(kernel, "counts", lambda *a: calls.append(a[2]) or count(*a))
    examples, known = world(TRIPLES, E, R)
    for geometry in ("l1", "l2", "dot", "cosine"):
        ranks(toy(E, R, geometry), examples.both(TRIPLES[:3]), known)   # type: ignore[arg-type]
    ranks(toy(E, R, "dot").double(), examples.both(TRIPLES[:3]), known)  # the kernel counts in float32
    assert calls == ["l1", "l2", "dot"]


def test_no_triples_no_ranks() -> None:
    examples, known = world(TRIPLES, E, R)
    result = ranks(toy(E, R), examples.both(TRIPLES[:0]), known)
    rows = link_prediction.scores("valid", result, *[np.zeros(0, np.int64)] * 3, RankingConfig(), "none")
    assert {row.value for row in rows} == {None} and {"mrr", "mr", "amri", "hits@10"} <= {row.metric for row in rows}


# --- measures ------------------------------------------------------------------------------------------------------

RESULT = Ranks(np.array([0, 2, 1, 9]), np.array([0, 1, 4, 0]), np.array([10, 10, 12, 20]))
SIDE, KIND = np.array([TAIL, HEAD, TAIL, HEAD]), np.array([1, 1, 3, 3])


def test_measures_by_hand() -> None:
    config = RankingConfig(resamples=200)
    rows = link_prediction.scores("test", RESULT, np.array([0, 0, 1, 1]), SIDE, KIND, config, "note")
    calls = {row.metric: row for row in rows}
    rank = [Fraction(1), Fraction(7, 2), Fraction(4), Fraction(10)]
    expected = {
        "mrr": sum(1 / r for r in rank) / 4, "mr": sum(rank) / 4, "hits@1": Fraction(1, 4), "hits@3": Fraction(1, 4),
        "hits@10": 1, "amri": 1 - (sum(rank) / 4 - 1) / (Fraction(10 + 10 + 12 + 20 + 4, 8) - 1),
        "mrr/optimistic": (1 + Fraction(1, 3) + Fraction(1, 2) + Fraction(1, 10)) / 4,
        "mr/pessimistic": Fraction(1 + 4 + 6 + 10, 4), "hits@3/optimistic": Fraction(3, 4),
        "mrr/tail": (1 + Fraction(1, 4)) / 2, "mr/head": Fraction(27, 4), "hits@3/tail": Fraction(1, 2),
        "amri/head": 1 - (Fraction(27, 4) - 1) / (Fraction(11 + 21, 4) - 1),
        "mrr/1-N/tail": 1, "mrr/1-N/head": Fraction(2, 7), "hits@10/N-N/tail": 1, "mrr/N-N/head": Fraction(1, 10),
        "mr/1-N/tail": 1, "mr/1-N/head": Fraction(7, 2), "hits@1/1-N/tail": 1, "hits@3/1-N/head": 0, "mr/N-N/head": 10,
        "amri/1-N/head": 1 - (Fraction(7, 2) - 1) / (Fraction(11, 2) - 1),
        "amri/N-N/tail": 1 - Fraction(4 - 1) / (Fraction(13, 2) - 1)}
    assert {key: calls[key].value for key in expected} == pytest.approx({k: float(v) for k, v in expected.items()})
    assert not any("1-1" in key or "N-1" in key for key in calls)
    assert calls["mrr"].n == 4 and calls["mrr/head"].n == 2 and calls["mrr"].note == "note"
    for key in ("mrr", "mr", "amri", "hits@1"):
        row = calls[key]
        assert row.low is not None and row.low <= row.value <= row.high and row.low < row.high, key
    assert calls["mrr/optimistic"].low is None


def test_intervals_of_few_triples_end_at_the_worst_and_the_best_rank() -> None:
    found = Ranks(np.array([0, 40, 0, 63]), np.zeros(4, int), np.array([64, 60, 64, 64]))
    mr, amri = link_prediction.mean_scores("test", found, RankingConfig(), "", clusters=np.array([0, 0, 1, 1]))[1:3]
    assert (mr.low, mr.high) == (1, 63) and (amri.low, amri.high) == pytest.approx((-1, 1))


def test_during_training_there_are_no_intervals() -> None:
    result = link_prediction.mean_scores("valid", RESULT, RankingConfig(hits=[2]), "")
    assert [row.metric for row in result] == ["mrr", "mr", "amri", "hits@2"]
    assert all(row.low is None and row.benchmark == "valid" for row in result)


def test_categories_are_heads_for_a_tail_and_tails_for_a_head() -> None:
    tph, hpt = np.array([1.49, 1.5, 1.0, 7.0]), np.array([1.0, 1.0, 1.5, 9.0])
    names = link_prediction.CATEGORIES
    assert [names[i] for i in link_prediction.categories(tph, hpt, 1.5)] == ["1-1", "1-N", "N-1", "N-N"]
    assert [names[i] for i in link_prediction.categories(tph, hpt, 1.4)] == ["1-N", "1-N", "N-1", "N-N"]


# --- graphs ranked by other programs ----------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["umls", "nations", "kinship"])
@pytest.mark.parametrize("geometry", ["l1", "l2"])
def test_ranks_of_every_triple_equal_pykeens(name: str, geometry: str) -> None:
    """Three ways to count ties, for tables of integers, where no sum is rounded. `make test-slow AREA=graphs`
    computes these digests with PyKEEN's evaluator."""
    place = Path(os.environ.get("EMBTRAIN_DATA_MIRROR", ""), "kg", f"{name}.tar.gz")
    if not os.environ.get("EMBTRAIN_DATA_MIRROR") or not place.is_file():
        pytest.skip("data: EMBTRAIN_DATA_MIRROR does not contain this graph")
    result = graph.load([place], "triples", TriplesConfig(), None, name)
    n, m = len(result.entities), len(result.relations)
    examples = TripleExamples(result.part("train"), n, m, TriplesConfig(), 0)
    known = KnownTriples.from_triples(examples, [np.concatenate([result.part(part) for part in PARTS])])
    model, expected = toy(n, m, geometry, dim=20, levels=3), json.loads(PYKEEN.read_text())  # type: ignore[arg-type]
    for part in PARTS:
        counted = ranks(model, examples.both(result.part(part)), known)
        assert {ties: digest(getattr(counted, ties)) for ties in ("optimistic", "pessimistic", "realistic")} \
            == expected[f"{name} {geometry}"][part], part


@pytest.mark.parametrize("name", ["umls", "nations", "kinship"])
@pytest.mark.parametrize("levels", [0, 2])
def test_every_test_triple_of_small_graphs(name: str, levels: int) -> None:
    """Compute all scores at once in NumPy with a mask of all true triples, for the same ranks. levels: few values,
    so there are many ties and the three ways to count them differ."""
    place = Path(os.environ.get("EMBTRAIN_DATA_MIRROR", ""), "kg", f"{name}.tar.gz")
    if not os.environ.get("EMBTRAIN_DATA_MIRROR") or not place.is_file():
        pytest.skip("data: EMBTRAIN_DATA_MIRROR does not contain this graph")
    result = graph.load([place], "triples", TriplesConfig(), None, name)
    n, m = len(result.entities), len(result.relations)
    examples, known = world(np.concatenate([result.part(part) for part in PARTS]), n, m)
    model, test = toy(n, m, "l1", levels=levels), result.part("test")
    true = np.zeros((n, m, n), dtype=bool)
    for part in PARTS:
        true[tuple(result.part(part).T)] = True
    e, r = model.e.detach().numpy(), model.r.detach().numpy()
    expected = []
    for h, x, t in test.tolist():
        for vector, positive, target in ((e[h] + r[x], true[h, x], t), (e[t] - r[x], true[:, x, t], h)):
            cost = np.zeros(n, dtype=np.float32)
            for k in range(e.shape[1]):
                cost += np.abs(vector[k] - e[:, k])
            rival = ~positive
            expected.append((int((cost[rival] < cost[target]).sum()), int((cost[rival] == cost[target]).sum()),
                             int(rival.sum()) + 1))
    counted = ranks(model, examples.both(test), known)
    assert as_rows(counted) == expected
    best, worst = np.array([b + 1 for b, _, _ in expected]), np.array([b + 1 + q for b, q, _ in expected])
    assert np.array_equal(counted.optimistic, best) and np.array_equal(counted.pessimistic, worst)
    assert np.array_equal(counted.realistic, (best + worst) / 2) and (best < worst).any() == (levels > 0)
