"""Predictions of every model: equal to a plain formula, from the run folder only, with names and from files."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import math
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import embtrain
from embtrain import cli
from embtrain.common import progress
from embtrain.common.errors import DataError, UsageError
from embtrain.data.labels import documents as document_files
from embtrain.data.storage import stored_corpus
from embtrain.data.storage.containers import sources
from embtrain.data.vectors import vectors
from embtrain.experiment import Run
from embtrain.experiment.prediction import base, predict
from embtrain.experiment.prediction.base import Answer, Prediction
from embtrain.experiment.run import scoring, stored
from embtrain.experiment.run.results import answers
from embtrain.train.state import checkpoint

pytestmark = pytest.mark.long

TINY = {"model.dim": 6, "train.epochs": 3, "evaluate.resamples": 0}
PLACES = [f"p{i:02}" for i in range(14)]
TRIPLES = [(a, "next", b) for a, b in itertools.pairwise(PLACES)] + [(PLACES[0], "far", place) for place in PLACES[7:]]
TRIPLES += [(place, "like", place) for place in PLACES[:9]]  # an entity related to itself
PAIRS = [("beagle", "hound"), ("hound", "dog"), ("poodle", "dog"), ("dog", "mammal"), ("cat", "mammal"),
         ("siamese", "cat"), ("mammal", "animal"), ("bird", "animal"), ("robin", "bird"), ("eagle", "bird"),
         ("persian", "cat"), ("greyhound", "hound"), ("bat", "mammal"), ("owl", "bird")]
LINE = "the cat sat on the mat while the dog ran after the red ball near a blue lake and the cat ran and sat near red\n"
ARFF = "@relation x\n" + "".join(f"@attribute f{i} numeric\n" for i in range(6))


def documents(n: int) -> str:
    """Labels 0 to 2, each with separate features; feature 5 is in no document."""
    rows = [f"{i % 3} {i % 3}:1 {3 + i % 2}:{1 + i % 4}" for i in range(n)]
    return "\n".join([f"{n} 6 3", *rows]) + "\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of every task except translation; corpora and cache are deleted, graph.tsv is saved in another folder."""
    place = tmp_path_factory.mktemp("predicted")
    (place / "map.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    (place / "kinds.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS))
    (place / "text").mkdir()
    for i in range(4):
        (place / "text" / f"{i}.txt").write_text(LINE * 40)
    (place / "docs_train.txt").write_text(documents(60))
    text = {"text.sample": 0, "text.min_count": 1, "text.valid": .25, "text.test": .25, "evaluate.benchmarks": []}
    lm = {"language.valid": .25, "language.test": .25, "language.streams": 4, "train.chunk": 40, "train.batch": 40}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setattr("embtrain.report.write", lambda folder: folder)
        for name, strategy, model, corpus, sets in (
                ("graph", None, "transe", "map.tsv", {"triples.valid": .07, "triples.test": .07}),
                ("kinds", None, "order", "kinds.tsv", {}), ("words", "sgns", None, "text", text),
                ("lm", "softmax", "lm", "text", lm), ("docs", "softmax", "xc", "docs_train.txt", {})):
            embtrain.fit(strategy, model=model, corpus=place / corpus, sets={**TINY, **sets}, threads=1,
                         out=place / name)
    (place / "elsewhere").mkdir()
    (place / "map.tsv").rename(place / "elsewhere" / "map.tsv")
    (place / "kinds.tsv").unlink()
    (place / "docs_train.txt").unlink()
    shutil.rmtree(place / "text")
    shutil.rmtree(place / "cache")
    return place


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(progress, "quiet", True)


def table(path: Path) -> dict[str, np.ndarray]:
    result = vectors.read(path)
    return dict(zip(result.words, result.table.astype(float), strict=True))


def parts_of(folder: Path) -> dict[str, set[tuple[str, ...]]]:
    """Return the triples of each part from corpus.safetensors."""
    arrays, names = stored_corpus.read(folder), [[line.split("\t")[0] for line in (folder / f"{kind}.txt").read_text()
                                                .splitlines()] for kind in ("entities", "relations")]
    assert arrays is not None
    return {part: {(names[0][h], names[1][r], names[0][t]) for h, r, t in arrays[part].tolist()}
            for part in ("train", "valid", "test")}


def distances(folder: Path, head: str, relation: str, tail: str) -> dict[str, float]:
    """Return −‖h + r − t‖₁ with each name in place of `_`."""
    e, r = table(folder / "vectors.safetensors"), table(folder / "relations.safetensors")
    names = r if relation == "_" else e
    return {name: -np.abs(e[name if head == "_" else head] + r[name if relation == "_" else relation]
                          - e[name if tail == "_" else tail]).sum() for name in names}


def pairs(answers: list[Answer]) -> list[tuple[str, bool]]:
    return [(answer.name, bool(answer.known)) for answer in answers]


# --- graphs ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("query", [("p00", "next", "_"), ("_", "next", "p05"), ("p00", "far", "_"),
                                   ("_", "far", "p09"), ("p03", "like", "_"), ("p12", "like", "_"),
                                   ("p01", "_", "p02"), ("p00", "_", "p00")])
def test_any_part_of_a_triple_can_be_open(place: Path, query: tuple[str, str, str], hide: bool) -> None:
    folder = place / "graph"
    train = parts_of(folder)["train"]
    scores = distances(folder, *query)
    known = {name: tuple(name if part == "_" else part for part in query) in train for name in scores}
    query_name = {"_": ""}.get(query[1], query[2] if query[0] == "_" else query[0])
    want = sorted((name for name in scores if not (known[name] and hide) and (name != query_name or known[name])),
                  key=lambda name: -scores[name])
    [result] = Run(folder).predict(*query, top=20, hide_known=hide)
    assert result.query == " ".join(query).replace("_", "?")
    assert pairs(result.answers) == [(name, known[name]) for name in want]
    assert [answer.score for answer in result.answers] == pytest.approx([scores[name] for name in want], abs=1e-5)
    assert len(Run(folder).predict(*query, top=1, hide_known=hide)[0].answers) == min(1, len(want))


def test_a_list_reports_the_entity_that_it_leaves_out_and_a_rank_counts(place: Path) -> None:
    run, seen = Run(place / "graph"), set()
    train = parts_of(place / "graph")["train"]
    for name, top in itertools.product(PLACES, (1, 2, 20)):
        scores = distances(run.folder, name, "next", "_")
        [listed] = run.predict(name, "next", "_", top=top)
        left_out = (name, "next", name) not in train and (
            len(listed.answers) < top or scores[name] >= scores[listed.answers[-1].name])
        seen.add(left_out)
        assert listed.note.startswith(f"{name!r} itself, score -") == left_out and bool(listed.note) == left_out
        assert listed.to_json().get("note", "") == listed.note and not listed.unseen
    assert seen == {True, False}


def test_a_complete_triple_gets_its_score_and_filtered_ranks(place: Path) -> None:
    folder, parts = place / "graph", parts_of(place / "graph")
    positives = set().union(*parts.values())
    # candidates ranked with a test triple
    siblings = [(*triple[:2], tail) for triple in sorted(parts["test"]) for tail in PLACES]
    for triple in [("p03", "next", "p04"), ("p05", "far", "p01"), *siblings]:
        [result] = Run(folder).predict(*triple)
        ranks = {}
        for side, at in (("tail", 2), ("head", 0)):
            scores = distances(folder, *("_" if i == at else name for i, name in enumerate(triple)))
            rivals = [name for name in scores if name != triple[at]
                      and tuple(name if i == at else other for i, other in enumerate(triple)) not in positives]
            ranks[f"{side}_rank"] = 1 + sum(scores[name] > scores[triple[at]] for name in rivals)
            ranks[f"{side}_candidates"] = 1 + len(rivals)
        facts = {name: result.facts[name] for name in ranks}
        assert facts == ranks and result.facts["known"] == (triple in parts["train"])
        assert result.facts["score"] == pytest.approx(distances(folder, *triple[:2], "_")[triple[2]], abs=1e-5)


def test_an_inverse_relation_is_not_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.report.write", lambda folder: folder)
    (tmp_path / "map.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    run = embtrain.fit(model="distmult", corpus=tmp_path / "map.tsv", out=tmp_path / "run", threads=1,
                       sets={**TINY, "triples.reciprocal": True, "triples.valid": 0, "triples.test": 0})
    e, r = table(run.folder / "vectors.safetensors"), table(run.folder / "relations.safetensors")
    [result] = run.predict("p01", "_", "p02")
    want = {name: float((e["p01"] * r[name] * e["p02"]).sum()) for name in ("next", "far", "like")}
    assert {answer.name: answer.score for answer in result.answers} == pytest.approx(want, abs=1e-5)
    [heads] = run.predict("_", "next", "p02", top=3)
    scores = {name: float((e["p02"] * r["inverse of next"] * e[name]).sum()) for name in e if name != "p02"}
    assert [answer.name for answer in heads.answers] == sorted(scores, key=lambda name: -scores[name])[:3]


def test_an_entity_only_in_held_out_triples_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.report.write", lambda folder: folder)
    (tmp_path / "data").mkdir()
    for part, triples in (("train", TRIPLES), ("valid", TRIPLES[:1]), ("test", [("new", "next", "p01")])):
        (tmp_path / "data" / f"{part}.txt").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    run = embtrain.fit(model="transe", corpus=tmp_path / "data", sets=TINY, threads=1, out=tmp_path / "run")
    [result] = run.predict("new", "next", "_")
    assert result.unseen and result.note.startswith("no training triple has 'new'") and result.answers
    (tmp_path / "q.tsv").write_text("new\tnext\t_\nunknown\tnext\t_\np01\tnext\t_\n")
    queries = predict.Predictions(run.folder, file=str(tmp_path / "q.tsv"))
    assert [bool(one.answers) for one in queries] == [True, False, True]
    assert queries.counts() == {"queries": 3, "passed_over": {"entity": 1}, "unseen": 1}
    assert queries.summary() == ("1 of 3 queries was skipped: 1 that names an unknown entity; 1 of 3 "
                                 "queries contains names, words or features of no training example")


def test_a_run_of_a_graph_has_vectors_of_relations(place: Path, tmp_path: Path) -> None:
    run = Run(place / "graph")
    e, r = run.word_vectors, run.relation_vectors
    assert r.words == (run.folder / "relations.txt").read_text().split()[::2] and r.table.shape == (len(r), e.dim)
    step = e.table[e.index["p03"]] + r.table[r.index["next"]] - e.table[e.index["p04"]]
    [result] = run.predict("p03", "next", "p04")
    assert -np.abs(step).sum() == pytest.approx(result.facts["score"], abs=1e-5)
    with pytest.raises(UsageError, match=r"words: model\.name: skipgram: learns from .*, which has no relations"):
        _ = Run(place / "words").relation_vectors
    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run" / "relations.safetensors").unlink()
    with pytest.raises(DataError, match=r"relations\.safetensors: is missing: transe may .*: embtrain resume"):
        _ = Run(tmp_path / "run").relation_vectors
    with pytest.raises(DataError, match="not found"):
        _ = Run(tmp_path / "none").relation_vectors


# --- hierarchies -----------------------------------------------------------------------------------------------------

def energy(x: dict[str, np.ndarray], u: str, v: str) -> float:
    return float(-(np.maximum(0, x[v] - x[u]) ** 2).sum())


@pytest.mark.parametrize("query", [("beagle", "_"), ("_", "mammal")])
def test_hypernyms_and_hyponyms_are_ranked_by_the_energy(place: Path, query: tuple[str, str]) -> None:
    x = table(place / "kinds" / "vectors.safetensors")
    query_name = query[query[0] == "_"]
    ends = {name: (query_name, name) if query[1] == "_" else (name, query_name) for name in x if name != query_name}
    scores = {name: energy(x, *pair) for name, pair in ends.items()}
    [result] = Run(place / "kinds").predict(*query, top=20)
    assert result.query == ("beagle is a ?" if query[1] == "_" else "? is a mammal")
    assert [answer.score for answer in result.answers] == pytest.approx(sorted(scores.values(), reverse=True), abs=1e-6)
    seen = {answer.name for answer in result.answers if answer.known}
    assert seen and (query[1] != "_" or seen <= {"hound", "dog", "mammal", "animal"})
    [hidden] = Run(place / "kinds").predict(*query, top=20, hide_known=True)
    assert {answer.name for answer in hidden.answers} == scores.keys() - seen


def test_a_pair_is_compared_with_the_validation_threshold(place: Path) -> None:
    folder = place / "kinds"
    x, arrays = table(folder / "vectors.safetensors"), stored_corpus.read(folder)
    assert arrays is not None
    names = (folder / "concepts.txt").read_text().splitlines()
    valid = arrays["valid.pairs"].tolist()
    negatives = [arrays["valid.wrong"][i, i % arrays["valid.wrong"].shape[1]].tolist() for i in range(len(valid))]
    held = [(energy(x, names[u], names[v]), kind) for kind, part in ((True, valid), (False, negatives))
            for u, v in part]
    [result] = Run(folder).predict("beagle", "dog")
    t = result.facts["threshold"]

    def accuracy(at: float) -> float:
        return sum((s >= at) == kind for s, kind in held) / len(held)
    assert accuracy(t) == result.facts["valid_accuracy"] == max(accuracy(s) for s, _ in held)
    for u, v in itertools.permutations(("beagle", "dog", "owl"), 2):
        [one] = Run(folder).predict(u, v)
        assert one.facts["score"] == pytest.approx(energy(x, u, v), abs=1e-6) and not one.answers
        assert one.facts["holds"] == (energy(x, u, v) >= t) and one.query == f"{u} is {'an' if v == 'owl' else 'a'} {v}"


# --- words, contexts, documents --------------------------------------------------------------------------------------

def test_contexts_of_a_word_have_the_score_and_probability_of_the_model(place: Path) -> None:
    opened: Any = stored.open_run(place / "words")
    names = opened.task.candidate_names()
    [cat, dog] = Run(place / "words").predict("cat", "Dog", top=len(names))
    assert dog.query == "dog" and "lowercased" in dog.note and not dog.unseen
    i = names.index("cat")
    u, v = opened.model.u.detach().double().numpy()[i], opened.model.v.detach().double().numpy()
    s = v @ u
    assert [answer.name for answer in cat.answers] == [names[j] for j in np.argsort(-s, kind="stable")]
    assert [answer.score for answer in cat.answers] == pytest.approx(sorted(s, reverse=True), abs=1e-6)
    q = opened.problem.raw_counts.numpy() ** .75                 # sgns learns log P − log q
    p = np.exp(s) * q / (np.exp(s) * q).sum()
    assert {answer.name: answer.probability for answer in cat.answers} == pytest.approx(
        dict(zip(names, p, strict=True)), rel=1e-4)
    assert [names[j] for j in np.argsort(-p)] != [answer.name for answer in cat.answers]  # the two orders differ


def test_neighbours_on_walks_are_contexts_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embtrain.report.write", lambda folder: folder)
    (tmp_path / "edges.txt").write_text("".join(f"n{i} n{(i + 1) % 9}\n" for i in range(9)))
    run = embtrain.fit("sgns", model="node2vec", corpus=tmp_path / "edges.txt", threads=1, out=tmp_path / "run",
                       sets={**TINY, "walks.min_count": 1, "walks.valid": 0, "walks.test": 0,
                             "evaluate.benchmarks": []})
    (tmp_path / "edges.txt").unlink()
    opened: Any = stored.open_run(run.folder)
    [one] = run.predict("n3", top=9)
    s = (opened.model.v @ opened.model.u[opened.task.candidate_names().index("n3")]).tolist()
    assert [answer.score for answer in one.answers] == pytest.approx(sorted(s, reverse=True), abs=1e-6)
    with pytest.raises(UsageError, match=r"there is no node 'n33' .did you mean 'n3'"):
        run.predict("n33")


def test_next_words_are_those_of_an_lstm_over_the_context(place: Path) -> None:
    opened: Any = stored.open_run(place / "lm")
    model, index, names = opened.model, opened.task.corpus.vocabulary.index, opened.task.candidate_names()
    answers = Run(place / "lm").predict(("the", "red"), ("the", "cat", "sat", "_"), ("the dog",), top=len(names))
    for one, context in zip(answers, ("the red", "the cat sat", "the dog"), strict=True):
        assert one.query == f"{context} ?"
        with torch.no_grad():
            x = model.u[torch.tensor([index[word] for word in ["<eos>", *context.split()]])].unsqueeze(1)
            for layer in model.lstm:
                x = layer(x)[0]
            h = x[-1, 0] if model.w is None else model.w @ x[-1, 0]
            s = 11.1 * torch.nn.functional.cosine_similarity(h.unsqueeze(0), model.table(), dim=1)
        want = dict(zip(names, s.double().softmax(0).tolist(), strict=True))
        assert {answer.name: answer.probability for answer in one.answers} == pytest.approx(want, rel=1e-4)
        assert [answer.probability for answer in one.answers] == sorted(
            (answer.probability or 0 for answer in one.answers), reverse=True)
    plain, lost = Run(place / "lm").predict(("the red",), ("the 7 red , ,",))
    assert (lost.answers, lost.query, lost.unseen) == (plain.answers, plain.query, plain.unseen)
    assert (plain.note, lost.note) == ("", "left out by the tokenizer, wholly or in part: 7")


def test_a_query_has_the_tokens_and_phrases_of_the_training_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                 caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("embtrain.report.write", lambda folder: folder)
    (tmp_path / "a.txt").write_text("".join(f"the u.s. {i} he said\n<unk>\n" for i in range(60)))
    run = embtrain.fit("softmax", model="lm", corpus=tmp_path / "a.txt", threads=1, out=tmp_path / "run", sets={
        **TINY, "language.phrases": 1, "language.phrase_threshold": .1, "language.streams": 4, "train.chunk": 40,
        "train.batch": 40, "evaluate.words": 0})
    (tmp_path / "a.txt").unlink()
    caplog.clear()
    [one] = run.predict("the u.s. <unk> he said")
    assert (one.query, one.note) == ("the_u.s. <unk> he_said ?", "") and not caplog.messages
    arrays = stored_corpus.read(run.folder)
    assert arrays is not None
    stored_corpus.write(run.folder, {name: array for name, array in arrays.items() if "phrases" not in name}, {})
    assert run.predict("he_said he said")[0].query == "he_said he said ?"
    assert caplog.messages == ["predict: corpus.safetensors of the run does not contain its phrases; write the phrases "
                               "of a query as in vocabulary.txt, or train again"]


def test_labels_of_documents_equal_the_formula(place: Path, tmp_path: Path) -> None:
    opened: Any = stored.open_run(place / "docs")
    w, c = (x.detach().double().numpy() for x in (opened.model.w, opened.model.c))
    x = np.array([[0, 2, 0, 1, 0, 0], [1, 0, 0, 0, 3, 0]], float)
    h = x @ w
    s = 11.1 * (h / np.linalg.norm(h, axis=1, keepdims=True)) @ (c / np.linalg.norm(c, axis=1, keepdims=True)).T
    p = np.exp(s) / np.exp(s).sum(1, keepdims=True)
    files = {"headed.txt": "2 6 3\n1 1:2 3:1\n0 0:1 4:3\n", "unlabelled.txt": "2 6 3\n 1:2 3:1\n 0:1 4:3\n",
             "bare.svm": "1 1:2 3:1\n0 0:1 4:3\n", "features.txt": "1:2 3:1\n\n0:1 4:3\n", "dense.data":
             "1 0 2 0 1 0 0\n0,1,0,0,0,3,0\n", "sparse.arff": ARFF + "@data\n{1 2,3 1}\n{0 1,4 3}\n",
             "labels.arff": ARFF + "@attribute 1 {0,1}\n@attribute 0 {0,1}\n@data\n0,2,0,1,0,0,1,0\n{0 1,4 3,7 1}\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        answers = Run(place / "docs").predict(file=tmp_path / name, top=3)
        assert [one.query for one in answers] == ["document 1", "document 2"], name
        for i, one in enumerate(answers):
            order = np.argsort(-s[i])
            assert [answer.name for answer in one.answers] == [str(j) for j in order], name
            assert [answer.score for answer in one.answers] == pytest.approx(s[i][order], abs=1e-4)
            assert [answer.probability for answer in one.answers] == pytest.approx(p[i][order], rel=1e-3)
    [one] = Run(place / "docs").predict("1:2 3:1")
    assert [answer.score for answer in one.answers] == pytest.approx(sorted(s[0], reverse=True), abs=1e-4)


def test_features_absent_from_training_are_counted(place: Path, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("3 9 3\n1 1:2 3:1\n0 0:1 5:1 7:1 8:2\n2 8:1\n")  # 5: in no training document
    queries = predict.Predictions(place / "docs", file=str(tmp_path / "some.txt"))
    result = list(queries)
    assert [(one.facts["features"], one.facts["unseen_features"]) for one in result] == [(2, 0), (4, 3), (1, 1)]
    assert result[1].note == "3 of 4 features occur in no training document"
    assert result[1].place == f"{tmp_path / 'some.txt'}:3"
    assert queries.counts() == {"queries": 3, "passed_over": {}, "unseen": 2}


def test_labels_of_a_file_that_the_run_lacks_are_counted(tmp_path: Path) -> None:
    (tmp_path / "docs.txt").write_text("2 6 9\n1,7,8 1:2 3:1\n0 0:1\n")
    for source in sources([tmp_path / "docs.txt"], lambda _: True):
        [chunk] = document_files.read_chunks(source, "auto", 6, ["0", "1"], 9)
    assert chunk.unknown_labels.tolist() == [2, 0] and chunk.labels.index.tolist() == [1, 0]


# --- files -----------------------------------------------------------------------------------------------------------

QUERIES = "p00\tnext\t_\n_\tnext\tp05\np01\t_\tp02\nunknown\tnext\t_\np03\tnext\tp04\np00\tfar\t_\n"


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_a_file_is_read_in_chunks_with_the_same_answers(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        at_once: int) -> None:
    monkeypatch.setattr(base, "MAX_CHUNK", at_once)
    run = Run(place / "graph")
    (tmp_path / "q.tsv.gz").write_bytes(gzip.compress(QUERIES.encode()))
    result = run.predict(file=tmp_path / "q.tsv.gz", top=3)
    assert [one.place for one in result] == [f"{tmp_path / 'q.tsv.gz'}:{i}" for i in range(1, 7)]
    assert result[3].missing == "entity" and result[3].note == "there is no entity 'unknown'" and not result[3].answers
    for one, line in zip(result, QUERIES.splitlines(), strict=True):
        if not one.missing:
            [alone] = run.predict(*line.split("\t"), top=3)
            assert (one.query, one.facts) == (alone.query, alone.facts) and pairs(one.answers) == pairs(alone.answers)
            assert [a.score for a in one.answers] == pytest.approx([a.score for a in alone.answers], abs=1e-5)
    (tmp_path / "contexts.txt").write_text("the cat\nthe red ball near\nthe dog\n")
    for one, line in zip(Run(place / "lm").predict(file=tmp_path / "contexts.txt"),
                         (tmp_path / "contexts.txt").read_text().splitlines(), strict=True):
        [alone] = Run(place / "lm").predict(line)
        assert [a.probability for a in one.answers] == pytest.approx([a.probability for a in alone.answers], rel=1e-4)


def test_fields_may_be_separated_by_commas_or_blanks(place: Path, tmp_path: Path) -> None:
    [want] = Run(place / "graph").predict("p00", "far", "_")
    [kind] = Run(place / "kinds").predict("beagle", "_")
    for text in ("p00\tfar\t_\n", '"p00",far,_\n', "p00, far, _\r\n", "p00 far  _\n", "\ufeffp00\tfar\t_"):
        (tmp_path / "q.txt").write_text(text)
        assert [one.answers for one in Run(place / "graph").predict(file=tmp_path / "q.txt")] == [want.answers]
    for text in ("beagle\t_\n", "beagle,_\n", "beagle _\n"):
        (tmp_path / "k.txt").write_text(text)
        assert [one.answers for one in Run(place / "kinds").predict(file=tmp_path / "k.txt")] == [kind.answers]


@pytest.mark.parametrize(("task", "text", "message"), [
    ("graph", "p00\tnext\t_\np00\tnext\n", "q.tsv:2: 'p00\\tnext': 2 names, but a triple has 3"),
    ("graph", "_\tnext\t_\n", "q.tsv:1: '_\\tnext\\t_': only one of the three may be _"),
    ("kinds", "beagle\tdog\tcat\n", "q.tsv:1: 'beagle\\tdog\\tcat': 3 names, but a pair has 2"),
    ("kinds", "beagle dog,\n", "q.tsv:1: 'beagle dog,': a pair of 'beagle dog', '', but no name may be empty; write "),
    ("kinds", "beagle\n", "q.tsv:1: 'beagle': 1 name, but a pair has 2; write CONCEPT _ for hypernyms"),
    ("graph", "p00,next,\n", "q.tsv:1: 'p00,next,': a triple of 'p00', 'next', '', but no name may be empty; write "),
    ("docs", "2 6 3\n1 1:2\n", "q.tsv:1: declares 2 documents, but contains 1"),
    ("docs", "1 2 3.5\n", "has 2 features"),
    ("docs", ARFF.replace("@attribute f5 numeric\n", "@data\n{1 2}\n"), "has 5 attributes that are not labels"),
    ("graph", "\n\n", "q.tsv: contains no query"), ("words", "", "q.tsv: contains no query"),
])
def test_a_malformed_file_is_refused_with_its_line(place: Path, tmp_path: Path, task: str, text: str,
                                                   message: str) -> None:
    (tmp_path / "q.tsv").write_text(text)
    with pytest.raises(DataError) as caught:
        Run(place / task).predict(file=tmp_path / "q.tsv")
    assert message in str(caught.value)


@pytest.mark.parametrize(("task", "query", "message"), [
    ("graph", ("p1", "next", "_"), "predict: there is no entity 'p1' (did you mean 'p1"),
    ("graph", ("p01", "nxt", "_"), "there is no relation 'nxt' (did you mean 'next'?)"),
    ("graph", ("_", "next", "_"), "only one of the three may be _; write HEAD RELATION _"),
    ("graph", ("p01", "_"), "2 names, but a triple has 3"),
    ("kinds", ("beagel", "_"), "there is no concept 'beagel' (did you mean 'beagle'?)"),
    ("kinds", ("_", "_"), "only one of the two may be _; write CONCEPT _ for hypernyms"),
    ("kinds", ("beagle", ""), "predict: beagle : a pair of 'beagle', '', but no name may be empty; write CONCEPT _ "),
    ("graph", ("", "next", "_"), "a triple of '', 'next', '_', but no name may be empty; write HEAD RELATION _"),
    ("words", ("catt",), "there is no word 'catt' (did you mean 'cat'?)"),
    ("docs", ("none",), "predict: 'none': is not a document; write '3:0.5 17:1' or the path of a file"),
    ("docs", ("3",), "predict: '3': the document has no feature"),
    ("docs", ("3:x",), "predict: '3:x': the document: expected feature:value like 7:0.5, found '3:x'"),
])
def test_a_wrong_query_is_refused(place: Path, task: str, query: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Run(place / task).predict(*query)
    assert message in str(caught.value)


def test_a_missing_file_of_documents_is_one_line(place: Path) -> None:
    with pytest.raises(UsageError) as caught:
        predict.predict_words(place / "docs", ["2024/none.txt"])
    assert str(caught.value) == ("predict: '2024/none.txt': no file has this name, and it is not a document; write "
                                 "'3:0.5 17:1' or the path of a file")
    with pytest.raises(UsageError, match=r"^predict: 'a\.txt': is not a document; write"):
        predict.predict_words(place / "docs", ["a.txt", "b.txt"])


@pytest.mark.parametrize(("name", "message"), [
    ("none.tsv", "file or folder not found; give a file of queries"), (".", "is a folder; give a file of queries")])
def test_a_file_of_queries_that_is_missing_or_a_folder_is_refused(place: Path, tmp_path: Path, name: str, message: str
                                                                  ) -> None:
    with pytest.raises(DataError) as caught:
        predict.predict_queries(place / "graph", (), file=tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {message}"


def test_hiding_positives_is_refused_if_none_are_stored(place: Path) -> None:
    for task in ("words", "lm", "docs"):
        with pytest.raises(UsageError, match=r"^hide_known: model.name: \w+ stores no known positives"):
            Run(place / task).predict("cat", hide_known=True)
    with pytest.raises(UsageError, match="either queries or file="):
        Run(place / "words").predict()


# --- deleted corpus ----------------------------------------------------------------------------------------------

def test_a_run_without_its_copy_names_the_key_of_the_corpus(place: Path, tmp_path: Path) -> None:
    run, corpus = Run(shutil.copytree(place / "graph", tmp_path / "graph")), place / "elsewhere" / "map.tsv"
    want = Run(place / "graph").predict("p00", "far", "_", hide_known=True)
    (run.folder / "corpus.safetensors").unlink()
    with pytest.raises(DataError, match=r"graph: .* its corpus cannot be read \(corpus: .*map.tsv.*--set corpus=PATH"):
        run.predict("p00", "far", "_")
    assert run.predict("p00", "far", "_", hide_known=True, corpus=corpus) == want
    (tmp_path / "other.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES[1:]))
    with pytest.raises(DataError, match="is not the one this run was trained on"):
        run.predict("p00", "far", "_", corpus=tmp_path / "other.tsv")


def test_too_large_arrays_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_corpus.write(tmp_path, {"sizes": np.zeros(3, np.int64)}, {"train": np.zeros(9, np.int64)})
    arrays = stored_corpus.read(tmp_path)
    assert arrays is not None and stored_corpus.has_task_arrays(arrays) and "train" in arrays
    with monkeypatch.context() as patch:
        patch.setattr(stored_corpus, "MAX_BYTES", 71)
        stored_corpus.write(tmp_path, {"sizes": np.zeros(3, np.int64)}, {"train": np.zeros(9, np.int64)})
    arrays = stored_corpus.read(tmp_path)
    assert arrays is not None and not stored_corpus.has_task_arrays(arrays) and "train" not in arrays
    assert stored_corpus.read(tmp_path / "none") is None


@pytest.mark.parametrize(("task", "query"), [("graph", ("p00", "next", "_")), ("kinds", ("beagle", "_")),
                                             ("words", ("cat",)), ("lm", ("the", "cat")), ("docs", ("0:1",))])
def test_an_unfinished_run_gives_one_warning_and_an_untrained_one_is_refused(
        place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str, query: tuple[str, ...]) -> None:
    run = Run(shutil.copytree(place / task, tmp_path / task))
    assert run.predict(*query) and not caplog.messages
    (run.folder / "scores.json").unlink()
    state = checkpoint.load(run.folder / "checkpoints")
    assert run.predict(*query)
    assert caplog.messages == [f"{run.folder}: not finished: 3 of 3 epochs, step {state['position']['step']:,}"]
    state["position"] |= {"epoch": 0, "step": 0}
    checkpoint.save(run.folder / "checkpoints", 0, state, 1)
    with pytest.raises(DataError, match=f"^{run.folder}: has no vectors yet; to train on: embtrain resume "):
        run.predict(*query)


@pytest.mark.parametrize("task", ["graph", "kinds", "words", "lm", "docs"])
def test_a_damaged_folder_is_refused(place: Path, tmp_path: Path, task: str) -> None:
    queries = {"graph": ("p00", "far", "_"), "kinds": ("beagle", "_"), "words": ("cat",), "lm": ("the",),
               "docs": ("1:1",)}
    folder = shutil.copytree(place / task, tmp_path / task)
    path = folder / "corpus.safetensors"
    whole = path.read_bytes()
    for bad in (whole[:-1], whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], b"", b"\xff" * 100):
        path.write_bytes(bad)
        with pytest.raises(DataError, match=r"corpus.safetensors: "):
            Run(folder).predict(*queries[task])
    path.write_bytes(whole)
    assert Run(folder).predict(*queries[task])[0].answers
    name = {"graph": "entities", "kinds": "concepts", "docs": "labels"}.get(task, "vocabulary")
    text = (folder / f"{name}.txt").read_text().splitlines(keepends=True)
    (folder / f"{name}.txt").write_text("".join(text[:-1]))
    with pytest.raises(DataError):
        Run(folder).predict(*queries[task])


# --- the command -----------------------------------------------------------------------------------------------------

def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str, stdin: str = ""
            ) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["embtrain", *words])
    # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(stdin.encode()))))
    code = cli.run()
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_reads_arguments_a_file_and_standard_input(place: Path, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)
    code, out, err = command(monkeypatch, capsys, "predict", "graph", "p00", "far", "_", "--top", "2")
    head, note, *listed = out.splitlines()
    assert (code, err) == (0, "") and head == "p00 far ?" and len(listed) == 2
    assert note == "     'p00' itself, score -5.501, is left out here; in a rank it counts"
    (tmp_path / "q.tsv").write_text(QUERIES)
    code, out, err = command(monkeypatch, capsys, "predict", "graph", str(tmp_path / "q.tsv"), "--top", "2", "--json")
    value = json.loads(out)
    assert code == 0 and [len(one["answers"]) for one in value["predictions"]] == [2, 2, 2, 0, 0, 2]
    assert value["queries"] == 6 and value["passed_over"] == {"entity": 1}
    assert "1 of 6 queries was skipped: 1 that names an unknown entity" in err
    code, again, _ = command(monkeypatch, capsys, "predict", "graph", "-", "--top", "2", "--json", stdin=QUERIES)
    places = [one.pop("place") for one in json.loads(again)["predictions"]]
    assert places[0] == "standard input:1"
    assert [one["answers"] for one in json.loads(again)["predictions"]] == [one["answers"] for one in
                                                                             value["predictions"]]
    code, out, err = command(monkeypatch, capsys, "predict", "graph", "-", stdin="x\tnext\t_\n")
    assert code == 3 and "no query has an answer: 1 of 1 queries was skipped" in err
    code, out, err = command(monkeypatch, capsys, "predict", "graph", "none.tsv")
    assert code == 2 and out == "" and "nor is there a file 'none.tsv'" in err
    code, out, err = command(monkeypatch, capsys, "predict", "graph")
    assert code == 2 and "query: is missing; give a query, a file of queries, or - for standard input" in err
    code, out, err = command(monkeypatch, capsys, "predict", "graph", "p00", "far", "_", "--set", "model.dim=3")
    assert code == 2 and "set only corpus=PATH" in err


def test_predictions_are_lines_in_columns() -> None:
    answers = [Answer("日本", -0.5, 0.25, True), Answer("x", -12.25, None, False), Answer("a\x1b[31mb")]
    assert predict.format_text(Prediction("a b ?", answers, place="q:1", note="old")).splitlines() == [
        "a b ?  (q:1)", "     old", "  1  日本           -0.500  p    0.250  in training", "  2  x              -12.25",
        r"  3  a\x1b[31mb"]
    facts = {"holds": True, "score": -0.1, "threshold": -0.2, "valid_accuracy": .75, "known": True}
    assert predict.format_text(Prediction("u is a v", facts=facts)) == (
        "u is a v: yes, score -0.100, threshold -0.200 (right for 75.0% of validation pairs), in training")
    facts = {"score": -2.0, "tail_rank": 1.5, "tail_candidates": 1200, "head_rank": 3.0, "head_candidates": 9}
    assert predict.format_text(Prediction("a r b", facts=facts)) == (
        "a r b: score -2.000, tail ranks 1.5 of 1,200, head 3 of 9")


def test_json_has_null_for_non_finite_numbers() -> None:
    tree = Prediction("q", [Answer("a", math.nan), Answer("b", 1.0, 0.5)], {"score": -math.inf}).to_json()
    assert tree == {"query": "q", "score": None, "answers": [{"name": "a", "score": None},
                                                             {"name": "b", "score": 1.0, "probability": 0.5}]}


# -- answers.json: examples for the report ----------------------------------------------------------------------------

def test_examples_of_a_graph_equal_a_plain_formula(place: Path) -> None:
    """Answers exclude other known positives and the query's own entity; the rank counts no other positive."""
    parts = parts_of(place / "graph")
    found = json.loads((place / "graph" / "answers.json").read_text(encoding="utf-8"))
    assert found["part"] == "test" and found["scores"] == "score" and 0 < len(found["queries"]) <= answers.N_QUERIES
    for query in found["queries"]:
        head, relation, tail = ("_" if name == "?" else name for name in query["query"].split())
        def names(triples: set[tuple[str, ...]], at: tuple[str, str, str] = (head, relation, tail)) -> set[str]:
            return {triple[at.index("_")] for triple in triples
                    if all(a in ("_", b) for a, b in zip(at, triple, strict=True))}
        positives, known = names(parts["test"]), names(parts["train"] | parts["valid"])
        scores = distances(place / "graph", head, relation, tail)
        left = sorted(set(scores) - (known | {head, tail}) | positives, key=lambda name: -scores[name])
        assert [[name, name in positives] for name in left[:5]] == [[name, mark] for name, _, mark in query["answers"]]
        assert [score for _, score, _ in query["answers"]] == pytest.approx([scores[n] for n in left[:5]], abs=1e-5)
        ranks = {name: 1 + sum(scores[other] > scores[name] for other in left if other not in positives)
                 for name in positives}
        assert query["n_positives"] == len(positives) and dict(query["positives"]) == ranks


def test_examples_of_words_are_the_predictions_of_the_command(place: Path) -> None:
    found = json.loads((place / "words" / "answers.json").read_text(encoding="utf-8"))
    assert found["scores"] == "probability" and len(found["queries"]) == answers.N_QUERIES
    assert len({query["query"] for query in found["queries"]}) == answers.N_QUERIES
    for query in found["queries"]:
        order = Run(place / "words").predict(query["query"], top=100)[0].answers
        p = {answer.name: answer.probability for answer in order}
        best = sorted(p.values(), reverse=True)[:5]
        assert [score for _, score, _ in query["answers"]] == pytest.approx(best, abs=1e-6)
        assert all(p[name] == pytest.approx(score, abs=1e-6) for name, score, _ in query["answers"])
        ranks = [rank for _, rank in query["positives"]]
        assert ranks == sorted(ranks) and len(ranks) == min(query["n_positives"], answers.N_POSITIVES)


@pytest.mark.parametrize("name", ["lm", "docs"])
def test_examples_have_the_rank_of_the_evaluation(place: Path, name: str) -> None:
    """A query of these tasks has one positive, so that its rank is the item's."""
    found = json.loads((place / name / "answers.json").read_text(encoding="utf-8"))["queries"]
    items = scoring.read_items(place / name / "items.safetensors")["test/rank"]
    ranks = [rank for query in found for _, rank in query["positives"]]
    n = answers.N_QUERIES
    assert ranks == [items[row] for row in sorted({i * len(items) // n for i in range(n)})]
    if name == "docs":
        assert all(query["query"].startswith("document ") for query in found)
    else:
        assert found[1]["query"].endswith(" _") and 2 <= len(found[1]["query"].split()) <= 7
        assert all(word in {*LINE.split(), "<eos>", "_"} for query in found for word in query["query"].split())


def test_examples_of_a_hierarchy_leave_out_what_training_has(place: Path) -> None:
    found = json.loads((place / "kinds" / "answers.json").read_text(encoding="utf-8"))["queries"]
    for query in found:
        narrow, wide = re.split(" is an? ", query["query"])
        for name, _, is_positive in query["answers"]:
            pair = (name, wide) if narrow == "?" else (narrow, name)
            assert is_positive or (pair not in PAIRS and name not in (narrow, wide))
        assert query["positives"] and all(rank >= 1 for _, rank in query["positives"])
