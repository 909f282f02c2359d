"""Sources with lists of candidates: probabilities against plain Python, shared draws, contexts of triples, errors."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from helpers.looped import looped
from helpers.source_worlds import CONTEXTS, TableView, V, paired, query, source, tiny_problem

from embtrain.common.candidate_lists import CandidateLists, FixedLists
from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import Query
from embtrain.negatives.base import NegativeSource
from embtrain.negatives.listed.candidates import CandidatesConfig, ListedCandidates
from embtrain.negatives.listed.reflexive import Reflexive, ReflexiveConfig
from embtrain.negatives.listed.typed import Typed, TypedConfig
from embtrain.negatives.sampling.alias_lists import AliasLists

ALL = torch.arange(V).unsqueeze(0)
NO_LISTS = CandidateLists.from_entries((0,), np.zeros((0, 1), np.int64), np.zeros(0, np.int64), np.zeros(0))


def some_entries(columns: int, n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys (n, columns) below 5, candidates below 9 and weights; many pairs occur more than once."""
    draw = np.random.default_rng(seed)
    return draw.integers(0, 5, (n, columns)), draw.integers(0, 9, n), draw.integers(1, 6, n).astype(np.float64)


def as_dict(keys: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> dict[tuple[int, ...], dict[int, float]]:
    lists: dict[tuple[int, ...], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for key, candidate, weight in zip(keys.tolist(), ids.tolist(), weights.tolist(), strict=True):
        lists[tuple(key)][candidate] += weight
    return lists


def listed(lists: CandidateLists, columns: int = 1, **settings: object) -> ListedCandidates:
    """The source `candidates` on the tiny problem, with other lists and contexts of one or two columns."""
    sizes = {} if columns == 1 else {"n_contexts": None, "context_sizes": (3, 2)}
    return ListedCandidates(CandidatesConfig(source="candidates", k=4, **settings),  # type: ignore[arg-type]
                      replace(tiny_problem(), lists=FixedLists(lists), **sizes))  # type: ignore[arg-type]


def q_of(sampler: NegativeSource, queries: Query) -> torch.Tensor:
    return sampler.log_prob(queries, ALL).double().exp().expand(len(queries), V)


# --- lists --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("columns", [1, 2])
def test_entries_become_sorted_lists_with_added_weights(columns: int) -> None:
    entries = some_entries(columns)
    lists, expected = CandidateLists.from_entries(tuple(range(columns)), *entries), as_dict(*entries)
    assert [tuple(key) for key in lists.keys.tolist()] == sorted(expected)
    for i, key in enumerate(sorted(expected)):
        part = slice(lists.offsets[i], lists.offsets[i + 1])
        assert dict(zip(lists.ids[part].tolist(), lists.weights[part].tolist(), strict=True)) == expected[key]
        assert (np.diff(lists.ids[part]) > 0).all()


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 3.0])
def test_probabilities_are_powers_of_weights(power: float) -> None:
    entries = some_entries(1)
    tables = AliasLists(CandidateLists.from_entries((0,), *entries), 12, power, "cpu")
    p = tables.probability(torch.arange(-1, 5).unsqueeze(1), torch.arange(12))
    for row, (_, weights) in enumerate(sorted(as_dict(*entries).items())):
        total = sum(w ** power for w in weights.values())
        expected = [weights[b] ** power / total if b in weights else 0.0 for b in range(12)]
        assert p[row + 1].tolist() == pytest.approx(expected, abs=1e-15)
    assert p[0].tolist() == [0.0] * 12                                                # row -1: no list


def test_lists_of_one_candidate_are_drawn_without_random_numbers() -> None:
    ids = np.array([3, 3, 0, 5])
    lists = CandidateLists.from_entries((0,), np.arange(4)[:, None], ids, np.arange(1.0, 5.0))
    tables, random = AliasLists(lists, 6, 2.0, "cpu"), torch.Generator().manual_seed(0)
    before, row = random.get_state(), torch.tensor([[0, 1], [3, 2]])
    assert tables.draw(row, random).tolist() == [[3, 3], [5, 0]] and torch.equal(random.get_state(), before)
    p = tables.probability(torch.arange(-1, 4).unsqueeze(1), torch.arange(6))
    assert p.tolist() == [[0.0] * 6, *[[float(b == own) for b in range(6)] for own in ids.tolist()]]


def test_extreme_weights_and_powers_stay_finite() -> None:
    weights = np.array([1e-300, 1e200, 1e200])
    lists = CandidateLists.from_entries((0,), np.zeros((3, 1), np.int64), np.arange(3), weights)
    tables = AliasLists(lists, 3, 10.0, "cpu")
    assert tables.probability(torch.zeros(3, dtype=torch.int64), torch.arange(3)).tolist() == [0.0, 0.5, 0.5]
    drawn = tables.draw(torch.zeros(2000, dtype=torch.int64), torch.Generator().manual_seed(1))
    assert set(drawn.tolist()) == {1, 2}


def test_each_row_draws_from_its_own_list() -> None:
    entries = some_entries(1)
    tables, expected = AliasLists(CandidateLists.from_entries((0,), *entries), 12, 1.0, "cpu"), as_dict(*entries)
    row = torch.randint(5, (40, 50), generator=torch.Generator().manual_seed(2))
    drawn = tables.draw(row, torch.Generator().manual_seed(1))
    seen = as_dict(row.reshape(-1, 1).numpy(), drawn.flatten().numpy(), np.ones(2000))
    assert {key: set(found) for key, found in seen.items()} == {key: set(found) for key, found in expected.items()}


# --- q --------------------------------------------------------------------------------------------------------------

def test_a_query_without_a_list_draws_from_the_fallback() -> None:
    sampler, queries = source("candidates", mix=0.2), query(60)
    unigram = source("unigram").log_prob(queries, ALL).exp()[0]
    q = q_of(sampler, queries)
    has_list = queries.context < CONTEXTS - 1
    torch.testing.assert_close(q[~has_list][0].float(), unigram)
    assert bool(has_list.any()) and float(q[has_list].max()) > 0.1
    assert float((q[has_list] - 0.2 * unigram).min()) > -1e-7                          # the fallback's share


@pytest.mark.parametrize("share", ["row", "window"])
def test_reflexive_without_lists_draws_from_the_fallback(share: Literal["row", "window"]) -> None:
    """All relations of a graph can be symmetric."""
    sampler = Reflexive(ReflexiveConfig(source="reflexive", k=4, share_draws_by=share),
                        replace(tiny_problem(), lists=FixedLists(NO_LISTS)))
    queries = query(60)
    drawn = sampler.draw(queries, 4, TableView())
    assert drawn.log_q is not None and sampler.metrics() == {"listed": 0.0}
    torch.testing.assert_close(drawn.log_q.exp(), torch.full_like(drawn.log_q, 1 / V))
    torch.testing.assert_close(q_of(sampler, queries), torch.full((60, V), 1 / V, dtype=torch.float64))


@pytest.mark.parametrize("share", ["block", "batch"])
def test_rows_that_share_a_draw_have_the_mean_of_their_q(share: str) -> None:
    shared, own = (source("candidates", share_draws_by=mode, share_size=3) for mode in (share, "row"))
    queries = query(50)
    group = shared.draw_layout(queries)[1]
    group = torch.zeros(50, dtype=torch.int64) if group is None else group
    q = q_of(own, queries)
    mean = torch.stack([q[group == g].mean(0) for g in group.unique()])[group]
    assert torch.equal(q_of(shared, queries), q)                                      # log_prob is of one query
    drawn = shared.draw(queries, 4, TableView())
    assert drawn.log_q is not None and drawn.ids is not None and drawn.log_q_target is not None
    assert len(drawn.ids) == len(group.unique()) > (1 if share == "block" else 0)
    torch.testing.assert_close(drawn.log_q_target.double().exp(), mean[torch.arange(50), queries.target], atol=1e-7,
                               rtol=0)
    per_row = drawn.per_row(drawn.ids, 50)
    torch.testing.assert_close(drawn.per_row(drawn.log_q, 50).double().exp(), mean.gather(1, per_row),  # type: ignore
                               atol=1e-7, rtol=0)


def test_chunks_do_not_change_shared_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = source("candidates", share_draws_by="batch").draw(query(50), 30, TableView())
    monkeypatch.setattr("embtrain.negatives.listed.base.MAX_DENSITIES", 13)
    parts = source("candidates", share_draws_by="batch").draw(query(50), 30, TableView())
    for a, b in ((whole.ids, parts.ids), (whole.log_q, parts.log_q), (whole.log_q_target, parts.log_q_target)):
        assert a is not None and b is not None and torch.equal(a, b)


def test_without_a_mix_only_listed_candidates_are_drawn_and_no_density_is_reported() -> None:
    sampler, queries = source("candidates alone"), query(200)
    drawn = sampler.draw(queries, 4, TableView())
    assert drawn.ids is not None and drawn.log_q is None and drawn.log_q_target is None
    assert sampler.traits.density == "none"
    has_list = queries.context < CONTEXTS - 1
    p = q_of(source("candidates", mix=1e-9), queries)
    assert float(p.gather(1, drawn.ids)[has_list].min()) > 1e-3
    with pytest.raises(TypeError, match="has no density"):
        sampler.log_prob(queries, ALL)


def test_counts_are_weights_of_typed_only_if_power_is_above_0() -> None:
    queries = query(60)
    uniform, frequency = (q_of(source("typed", power=power, mix=1e-9), queries) for power in (0.0, 1.0))
    row = int((queries.context == 4).nonzero()[0])                       # nine candidates with weights from 1 to 4
    assert uniform[row].unique().numel() <= 3 and frequency[row].topk(9).values.unique().numel() > 2


def test_the_share_of_rows_with_a_list_is_logged() -> None:
    sampler, queries = source("candidates"), query(60)
    assert sampler.metrics() == {}
    sampler.draw(queries, 4, TableView())
    assert sampler.metrics()["listed"] == pytest.approx(float((queries.context < CONTEXTS - 1).float().mean()))


# --- contexts of two columns ----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("columns", "keys"), [((0, 1), [(2, 1), (0, 0)]), ((0,), [(2,), (1,)]), ((1,), [(1,)])])
def test_keys_select_columns_of_the_context(columns: tuple[int, ...], keys: list[tuple[int, ...]]) -> None:
    lists = CandidateLists.from_entries(columns, np.array(keys), np.arange(len(keys)) + 7, np.ones(len(keys)))
    sampler, queries = listed(lists, 2, mix=0.25), query(200)
    queries = replace(queries, context=paired(queries.context))
    q, noise = q_of(sampler, queries), source("unigram").log_prob(queries, ALL).double().exp()[0]
    of_key = {key: 7 + i for i, key in enumerate(keys)}
    for line, context in zip(q, queries.context.tolist(), strict=True):
        candidate = of_key.get(tuple(context[c] for c in columns))
        expected = noise if candidate is None else 0.25 * noise + 0.75 * torch.nn.functional.one_hot(
            torch.tensor(candidate), V)
        torch.testing.assert_close(line, expected, atol=1e-6, rtol=0)


# --- other sources around it, state, errors -------------------------------------------------------------------------

@pytest.mark.parametrize("outer", ["mixture", "hardest", "resampled"])
def test_other_sources_draw_from_it(outer: str) -> None:
    sampler = source(outer, inner={"source": "candidates", "k": 4 if outer == "mixture" else 12})
    drawn = sampler.draw(query(), 4, TableView())
    assert drawn.ids is not None and drawn.ids.shape == (30, 4)


def test_a_file_inside_nested_settings_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    sampler = source("mixture", inner={"source": "mixture", "inner": {"source": "candidates", "file": "mine.tsv"}})
    assert sampler.config.inner["inner"]["file"] == str(tmp_path / "mine.tsv")  # type: ignore[attr-defined]
    assert CandidatesConfig(file="mine.tsv").file == str(tmp_path / "mine.tsv")


def test_a_state_of_other_lists_is_refused() -> None:
    first, second = (listed(CandidateLists.from_entries((0,), *some_entries(1, seed=seed)), file="/x")
                     for seed in (0, 1))
    first.load_state_dict(first.state_dict())
    with pytest.raises(DataError, match=r"^negatives\.file: /x: gives other lists than when the run was started; rest"):
        second.load_state_dict(first.state_dict())
    outer = source("hardest", inner={"source": "candidates", "k": 12, "file": "/x"})
    state = outer.state_dict()
    with pytest.raises(DataError, match=r"^negatives\.inner\.file: /x: gives other lists"):
        outer.load_state_dict({**state, "inner": {**state["inner"], "lists": "0"}})


GOOD = CandidateLists.from_entries((0,), np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.ones(1))


@looped("lists, settings, message", [
    (GOOD, {"fallback": {"source": "cluster"}}, r"^negatives\.fallback\.source: cluster .*; use unigram"),
    (GOOD, {"fallback": {"source": "uniform", "replacement": False}}, r"^negatives\.fallback\.source: uniform with"),
    (GOOD, {"fallback": {"source": "uniform", "k": 3}}, r"^negatives\.fallback\.k: it always equals"),
    (GOOD, {"replacement": False}, r"^negatives\.replacement: candidates cannot"),
    (replace(GOOD, columns=np.array([1])), {}, r"^negatives\.source: candidates: its lists belong to relations"),
    (replace(GOOD, ids=np.array([V])), {}, r"^negatives\.source: candidates: the lists do not fit .* below 40"),
    (replace(GOOD, keys=np.array([[CONTEXTS]])), {}, r"keys below \[6\]"),
    (replace(GOOD, weights=np.array([math.nan])), {}, r"weights above 0"),
    (NO_LISTS, {}, "one list"),
])
def test_settings_that_cannot_work_are_refused(lists: CandidateLists, settings: dict[str, object], message: str
                                               ) -> None:
    with pytest.raises(UsageError, match=message):
        listed(lists, **settings)


def test_a_problem_without_lists_or_context_ids_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^negatives\.source: typed: there are no lists"):
        Typed(TypedConfig(), replace(tiny_problem(), lists=None))
    with pytest.raises(UsageError, match=r"^negatives\.source: candidates conditions on context ids"):
        ListedCandidates(CandidatesConfig(), replace(tiny_problem(), n_contexts=None))
