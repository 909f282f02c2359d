"""What a run answers is what its vectors say, and what training has seen is told."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import embtrain
from embtrain.data import vectors
from embtrain.errors import UsageError
from embtrain.experiment.ask import Answer, ask, told

TINY = {"model.dim": 6, "train.epochs": 3, "evaluate.resamples": 0}
PLACES = [f"p{i:02}" for i in range(14)]
TRIPLES = [(a, "next", b) for a, b in itertools.pairwise(PLACES)] + [(PLACES[0], "far", place) for place in PLACES[7:]]
TRIPLES += [(place, "like", place) for place in PLACES[:9]]  # what stands in a relation to itself
PAIRS = [("beagle", "hound"), ("hound", "dog"), ("poodle", "dog"), ("dog", "mammal"), ("cat", "mammal"),
         ("siamese", "cat"), ("mammal", "animal"), ("bird", "animal"), ("robin", "bird"), ("eagle", "bird"),
         ("persian", "cat"), ("greyhound", "hound"), ("bat", "mammal"), ("owl", "bird")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("asked")


@pytest.fixture(scope="module")
def runs(place: Path) -> tuple[Path, Path]:
    """A graph's and a hierarchy's, trained with what suits the model, since nobody names a strategy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setattr("embtrain.report.write", lambda folder: folder)
        (place / "map.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
        (place / "kinds.tsv").write_text("".join("\t".join(pair) + "\n" for pair in PAIRS))
        graph = embtrain.fit(model="transe", corpus=place / "map.tsv", sets={**TINY, "triples.valid": 0,
                                                                              "triples.test": 0},
                             threads=1, out=place / "graph")
        kinds = embtrain.fit(model="order", corpus=place / "kinds.tsv", sets=TINY, threads=1, out=place / "kinds")
    assert (graph.settings.strategy, kinds.settings.strategy) == ("self-adversarial", "order")
    return graph.folder, kinds.folder


@pytest.fixture(autouse=True)
def _cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(place / "cache"))


def table(path: Path) -> dict[str, np.ndarray]:
    found = vectors.read(path)
    return dict(zip(found.words, found.table.astype(float), strict=True))


def best(scores: dict[str, float], known: set[str]) -> list[tuple[str, bool]]:
    return [(name, name in known) for name in sorted(scores, key=lambda name: -scores[name])]


@pytest.mark.parametrize("asked", [("p00", "next", "_"), ("_", "next", "p05"), ("p00", "far", "_"),
                                   ("_", "far", "p09"), ("p03", "like", "_"), ("_", "like", "p03"),
                                   ("p12", "like", "_")])
def test_a_graph_is_asked_for_either_side(runs: tuple[Path, Path], asked: tuple[str, str, str]) -> None:
    head, relation, tail = asked
    e, r = table(runs[0] / "vectors.safetensors"), table(runs[0] / "relations.safetensors")[relation]
    given = tail if head == "_" else head
    scores = {name: -np.abs((e[name] if head == "_" else e[head]) + r - (e[tail] if head == "_" else e[name])).sum()
              for name in PLACES if name != given or (given, relation, given) in TRIPLES}
    known = {h if head == "_" else t for h, of, t in TRIPLES if of == relation and given == (t if head == "_" else h)}
    question, answers = ask(runs[0], asked, 20)
    assert question == " ".join(asked).replace("_", "?")
    assert [(answer.name, answer.known) for answer in answers] == best(scores, known)
    assert known or given == "p12"
    assert [answer.score for answer in answers] == pytest.approx(sorted(scores.values(), reverse=True), abs=1e-5)


@pytest.mark.parametrize("asked", [("beagle", "_"), ("_", "mammal")])
def test_a_hierarchy_is_asked_what_stands_above_and_below(runs: tuple[Path, Path], asked: tuple[str, str]) -> None:
    x = table(runs[1] / "vectors.safetensors")
    given = asked[asked[0] == "_"]
    scores = {name: -(np.maximum(0, x[name] - x[given] if asked[1] == "_" else x[given] - x[name]) ** 2).sum()
              for name in x if name != given}
    question, answers = ask(runs[1], asked, 20)
    assert question == ("beagle is a ?" if asked[1] == "_" else "? is a mammal")
    assert [answer.score for answer in answers] == pytest.approx(sorted(scores.values(), reverse=True), abs=1e-6)
    assert len(ask(runs[1], asked, 3)[1]) == 3
    above = {"hound", "dog", "mammal", "animal"}
    seen = {answer.name for answer in answers if answer.known}
    assert seen and (asked[1] != "_" or seen <= above)


@pytest.mark.parametrize(("of", "asked", "says"), [
    (0, ("p1", "next", "_"), "no entity is called 'p1' (did you mean 'p1"),
    (0, ("p01", "nxt", "_"), "no relation is called 'nxt' (did you mean 'next'?)"),
    (0, ("p01", "_", "p02"), "HEAD RELATION _, or _ RELATION TAIL"), (0, ("_", "next", "_"), "HEAD RELATION _"),
    (0, ("p01", "_"), "HEAD RELATION _"),
    (1, ("beagel", "_"), "no concept is called 'beagel' (did you mean 'beagle'?)"),
    (1, ("beagle", "dog"), "CONCEPT _ for what stands above it"), (1, ("_", "_"), "CONCEPT _"),
])
def test_a_question_that_is_none_is_refused(runs: tuple[Path, Path], of: int, asked: tuple[str, ...], says: str
                                            ) -> None:
    with pytest.raises(UsageError) as caught:
        ask(runs[of], asked)
    assert says in str(caught.value)


def test_answers_stand_in_columns() -> None:
    assert told("a b ?", [Answer("日本", -0.5, True), Answer("x", -12.25, False)]).splitlines() == [
        "a b ?", "  1  日本     -0.500  in training", "  2  x        -12.25"]
