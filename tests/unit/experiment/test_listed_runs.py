"""Runs with lists of candidates: typed corruption on a graph and a hierarchy, candidates from a file on text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_runs
from helpers.graphs import write_triples
from helpers.runs import assert_same_run, cache, interrupted, metric_rows, no_page  # noqa: F401  a fixture

from embtrain import experiment
from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import Query
from embtrain.data.known_pairs import KnownPairs
from embtrain.experiment import Run, Settings
from embtrain.experiment.run import stored

pytestmark = pytest.mark.long

GRAPH = [*tiny_runs.TRAIN, *tiny_runs.OF_GRAPHS]
TEXT = [*tiny_runs.TRAIN, *tiny_runs.OF_TEXT]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tiny_runs.write(tmp_path_factory.mktemp("listed"))
    words = sorted({word for path in (place / "text").iterdir() for word in path.read_text().split()})
    lists = {word: [other for other in words if other[0] == word[0] and other != word] for word in words[:-5]}
    (place / "lists.jsonl").write_text("".join(json.dumps({"query": word, "candidates": others,
                                                           "weights": list(range(1, len(others) + 1))}) + "\n"
                                               for word, others in lists.items()))
    return place


def of_graph(place: Path, *sets: str, strategy: str = "typed") -> Settings:
    return experiment.resolve(strategy, model="transe", corpus=str(place / "graph"), sets=[*GRAPH, *sets])


def of_text(place: Path, *sets: str) -> Settings:
    return experiment.resolve("candidates", model="skipgram", corpus=str(place / "text"),
                              sets=[*TEXT, f"negatives.file={place / 'lists.jsonl'}", *sets])


def test_typed_negatives_were_seen_on_their_side_of_the_relation(place: Path, tmp_path: Path) -> None:
    """A share `mix` of them is uniform, and a hierarchy has two sides too."""
    people = np.array([(i, r, 20 + i * step % 7) for i in range(20) for r, step in enumerate((1, 3))])  # to cities
    write_triples(tmp_path / "people.txt", people)
    graph = experiment.resolve("typed", model="transe", corpus=str(tmp_path / "people.txt"), sets=[
        *GRAPH, "triples.slot=both", "negatives.k=50"])
    pairs = experiment.resolve("order", model="order", corpus=str(place / "pairs.tsv"), sets=[
        *tiny_runs.TRAIN, *tiny_runs.RUNS["order"][3], "negatives.source=typed", "negatives.k=50",
        "pairs.slot=both"])
    for config in (graph, pairs):
        parts = tiny_runs.made(config)
        batch = next(iter(parts.task.examples.blocks(0, 500)))
        query = parts.model.encode(batch).detach()
        known = KnownPairs(query.context[:, 1], query.target, parts.problem.n_candidates)
        drawn = parts.source.draw(query, config.negatives.k, None)  # type: ignore[arg-type]
        assert drawn.ids is not None
        seen = known.contains(query.context[:, 1], drawn.ids).double()
        share = len(known) / parts.problem.n_candidates / len(query.context[:, 1].unique())  # mean over sides
        assert 0.9 < float(seen.mean()) < 0.99 and share < 0.8
        assert torch.isfinite(drawn.log_q).all() and torch.isfinite(drawn.log_q_target).all()  # type: ignore[arg-type]


@pytest.mark.parametrize(("sharing", "adds_log_q"), [("row", True), ("window", True), ("block", False),
                                                     ("batch", False)])
def test_log_odds_against_a_mean_over_queries_are_evaluated_as_they_are(place: Path, tmp_path: Path, sharing: str,
                                                                        adds_log_q: bool) -> None:
    run = experiment.fit(of_text(place, "loss.name=logistic", "train.lr=0.001", f"negatives.share_draws_by={sharing}"),
                         tmp_path / "run")
    assert any(row.metric == "log_likelihood/scores" for row in run.scores) == adds_log_q
    [prediction] = run.predict("bal")
    assert (prediction.answers[0].probability is not None) == adds_log_q


@pytest.mark.parametrize(("data", "engine"), [("graph", "autograd"), ("text", "fused")])
def test_a_resumed_run_equals_an_uninterrupted_one(data: str, engine: str, place: Path, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    no_page(monkeypatch)
    config = (of_graph if data == "graph" else of_text)(place, f"train.engine={engine}")
    whole = experiment.fit(config, tmp_path / "whole")
    again = interrupted(config, tmp_path / "again", 3)
    assert_same_run(whole.folder, again.folder, ("entities.txt" if data == "graph" else "vocabulary.txt",))
    listed = [row["source/listed"] for row in metric_rows(whole.folder) if "source/listed" in row]
    assert listed and all(share == 1.0 if data == "graph" else 0.9 < share < 1.0 for share in listed)


@pytest.mark.parametrize("share", ["row", "block"])
def test_the_compiled_engine_trains_triples_with_typed_negatives(share: str, place: Path, tmp_path: Path) -> None:
    config = of_graph(place, "train.engine=fused", f"negatives.share_draws_by={share}", "negatives.share_size=4")
    parts = tiny_runs.made(config)
    before = [table.clone() for table in parts.model.parameters()]
    tiny_runs.learning(parts, tmp_path).run()
    assert all(torch.isfinite(table).all() and not torch.equal(table, old)
               for table, old in zip(parts.model.parameters(), before, strict=True))


def test_a_run_predicts_without_its_file_and_is_not_resumed_with_another(place: Path, tmp_path: Path,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    no_page(monkeypatch)
    file = tmp_path / "mine.jsonl"
    shutil.copy(place / "lists.jsonl", file)
    run = experiment.fit(of_text(place, f"negatives.file={file}", "loss.name=logistic"), tmp_path / "run")
    (answer,) = run.predict("bal")
    file.rename(tmp_path / "away")
    assert run.predict("bal") == [answer]                            # log q comes from the run's own arrays
    log_q = stored.open_run(run.folder).source.log_prob(first_query(), torch.arange(20).unsqueeze(0))
    assert float(log_q.max() - log_q.min()) > 1
    with pytest.raises(DataError, match=r"^negatives\.file: .*mine\.jsonl: file or folder not found"):
        run.resume()
    file.write_text((tmp_path / "away").read_text().replace("1", "2"))
    with pytest.raises(DataError, match=r"^negatives\.file: .*mine\.jsonl: gives other lists than when the run was"):
        run.resume()
    (tmp_path / "away").replace(file)
    assert {(row.benchmark, row.metric, row.value) for row in run.resume().scores if row.benchmark == "test"} == {
        (row.benchmark, row.metric, row.value) for row in Run(run.folder).scores if row.benchmark == "test"}


def first_query() -> Query:
    zero = torch.zeros(1, dtype=torch.int64)
    return Query(torch.zeros(1, 6), zero, zero, zero)


def test_settings_without_lists_are_refused_in_one_line(place: Path) -> None:
    labels = experiment.resolve("candidates", model="xc", corpus=str(place / "labels.txt"), sets=["negatives.file=x"])
    on_text = experiment.resolve("uniform", model="skipgram", corpus=str(place / "text"),
                                 sets=[*TEXT, "negatives.source=typed"])
    typed, reflexive, by_relation = (
        experiment.resolve("uniform", model="skipgram", corpus=str(place / "text"), sets=[
            *TEXT, f"negatives={{source: mixture, inner: {{{inner}}}}}"])
        for inner in ("source: typed", "source: reflexive", f"source: candidates, by: relation, file: {place / 'x'}"))
    for config, message in (
            (of_text(place, "negatives.file=null"), r"negatives\.file: null: candidates needs lists; set it to a file"),
            (of_text(place, "negatives.by=side"), r"negatives\.by: side: the queries of model\.name: skipgram have no"),
            (labels, r"negatives\.source: candidates: documents have no names"),
            (on_text, r"negatives\.source: typed needs relations with two sides, but model\.name: skipgram has none"),
            (typed, r"negatives\.inner\.source: typed needs relations"),
            (reflexive, r"negatives\.inner\.source: reflexive needs a graph"),
            (by_relation, r"negatives\.inner\.by: relation: .*; set negatives\.inner\.by: query")):
        with pytest.raises(UsageError, match=f"^{message}") as caught:
            tiny_runs.made(config)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(UsageError, match=r"states no probabilities, .*; use negatives\.mix above 0, or loss\.name"):
        tiny_runs.made(of_text(place, "negatives.mix=0"))


def test_candidates_are_given_for_queries_of_a_graph(place: Path, tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text("r1\t_\te2\n_\tr1\te3\n")
    parts = tiny_runs.made(of_graph(place, f"negatives.file={tmp_path / 'q.tsv'}", "negatives.by=side",
                                    "negatives.k=200", strategy="candidates"))
    names = list(parts.task.candidate_names())
    for context, name in (((0, 1), "e2"), ((0, 4), "e3")):        # three relations; e0 is known
        relation = parts.task.graph.relations.index["r1"] + (3 if context[1] == 4 else 0)  # type: ignore[attr-defined]
        zero = torch.zeros(1, dtype=torch.int64)
        query = Query(torch.zeros(1, 6), torch.tensor([[0, relation]]), zero, zero)
        drawn = parts.source.draw(query, 200, None)  # type: ignore[arg-type]
        assert drawn.ids is not None
        assert float((drawn.ids == names.index(name)).double().mean()) > 0.8
