"""Files of candidates: both formats, names of queries, unknown names, and errors with file and line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.graphs import some_triples

from embtrain.common.candidate_lists import CandidateLists, ListKey
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.data.formats import candidate_files
from embtrain.data.formats.candidate_files import QueryNames
from embtrain.data.hierarchy import query_names as hierarchy_names
from embtrain.data.hierarchy.examples import make_batch
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.triples import query_names as graph_names
from embtrain.data.triples.examples import TripleExamples
from embtrain.data.triples.graph import Graph, TriplesConfig

INDEX = {name: i for i, name in enumerate(["red", "green", "dark blue", "#", "é"])}
NAMES = QueryNames((0,), ("QUERY",), lambda fields: [(INDEX[fields[0]],)] if fields[0] in INDEX else None)
Lists = dict[tuple[int, ...], dict[int, float]]


def read(path: Path, content: str | bytes, names: QueryNames = NAMES, candidates: Mapping[str, int] = INDEX) -> Lists:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return as_dict(candidate_files.read(path, names, candidates))


def as_dict(lists: CandidateLists) -> Lists:
    parts = [slice(*pair) for pair in zip(lists.offsets[:-1], lists.offsets[1:], strict=True)]
    return {tuple(key): dict(zip(lists.ids[part].tolist(), lists.weights[part].tolist(), strict=True))
            for key, part in zip(lists.keys.tolist(), parts, strict=True)}


# --- formats --------------------------------------------------------------------------------------------------------

def test_tsv_lines_become_lists(tmp_path: Path) -> None:
    text = ("\ufeffred\tgreen\t2\n# a comment\nred\tdark blue\n\n#\tred\t0.5\né\té\t1e-3\r\nred\tgreen\t.5\n"
            "green \t red\t 3 \n")
    assert read(tmp_path / "a.tsv", text) == {(0,): {1: 2.5, 2: 1.0}, (1,): {0: 3.0}, (3,): {0: 0.5}, (4,): {4: 1e-3}}


def test_json_lines_become_the_same_lists(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"query": "red", "candidates": ["green", "dark blue"], "weights": [2, 1]},
                                  {"query": ["#"], "candidates": ["red"], "weights": [0.5]},
                                  {"query": "green", "candidates": ["red", "#"]}, {"query": "é", "candidates": []}]
    text = "\n".join(map(json.dumps, rows))
    expected = {(0,): {1: 2.0, 2: 1.0}, (1,): {0: 1.0, 3: 1.0}, (3,): {0: 0.5}}
    assert read(tmp_path / "a.jsonl", text) == expected
    assert read(tmp_path / "a.jsonl.gz", gzip.compress(text.encode())) == expected


def test_unknown_names_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(tmp_path / "a.tsv", "red\tgreen\nblack\tred\nblack\tgreen\nred\twhite\n") == {(0,): {1: 1.0}}
    (record,), file = caplog.records, tmp_path / "a.tsv"
    assert record.getMessage() == (f"{file}: left out: 2 unknown queries, first 'black' at {file}:2; "
                                   f"1 unknown candidates, first 'white' at {file}:4")
    with pytest.raises(DataError, match=r"a\.tsv: has no line with a known query and a known candidate \(1 unknown q"):
        read(tmp_path / "a.tsv", "black\tred\n")
    with pytest.raises(DataError, match=r"a\.tsv: has no line .* candidate; give lines QUERY, CANDIDATE"):
        read(tmp_path / "a.tsv", "")


@pytest.mark.parametrize(("line", "message"), [
    ("red", "'red': should be QUERY, CANDIDATE and, optionally, WEIGHT, separated by TABs"),
    ("red\tgreen\t1\t2", "should be QUERY"), ("\tgreen", "should be QUERY"), ("red\t", "should be QUERY"),
    ("red\tgreen\t1_0", "'1_0': a weight should"),
    ("red\tgreen\t0", "'0': a weight should be a number above 0"), ("red\tgreen\t-1", "'-1': a weight"),
    ("red\tgreen\tnan", "'nan': a weight"), ("red\tgreen\tinf", "at most 1e[+]200"), ("red\tgreen\t1e201", "at most"),
    ("red\tgreen\tx", "'x': a weight"), ("red\tgreen\t", "'': a weight"), ("a" * 70_000, "longer than 65,536 bytes"),
])
def test_a_bad_line_of_tsv_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"a\.tsv:2: .*{message}"):
        read(tmp_path / "a.tsv", f"red\tgreen\n{line}\n")


@pytest.mark.parametrize(("line", "message"), [
    ("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "should be an object with the keys query"),
    ('{"query": "red"}', "should be an object"), ('{"query": "red", "candidates": [], "x": 1}', "should be an object"),
    ('{"query": 1, "candidates": []}', "query: should be a name or a list of names"),
    ('{"query": ["red", "x"], "candidates": []}', "query: .* should be 1 name"),
    ('{"query": "", "candidates": []}', "query: '': should be 1 name"),
    ('{"query": "red", "candidates": "green"}', "candidates: should be a list of names"),
    ('{"query": "red", "candidates": [1]}', "candidates: should be a list of names"),
    ('{"query": "red", "candidates": ["green"], "weights": []}', "weights: should be a list of 1 numbers"),
    ('{"query": "red", "candidates": ["green"], "weights": ["1"]}', "weights: '1': a weight"),
    ('{"query": "red", "candidates": ["green"], "weights": [true]}', "weights: true: a weight"),
    ('{"query": "red", "candidates": ["green"], "weights": [NaN]}', "weights: nan: a weight"),
    ('{"query": "red", "candidates": ["green"], "weights": [1' + "0" * 400 + "]}", "a weight"),
])
def test_a_bad_line_of_json_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{message}") as caught:
        read(tmp_path / "a.jsonl", '{"query": "red", "candidates": ["green"]}\n' + line)
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 400


def test_too_many_candidates_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_files, "MAX_ENTRIES", 3)
    assert len(read(tmp_path / "a.tsv", "red\tgreen\n" * 3)) == 1
    with pytest.raises(ResourceError, match=r"a\.tsv:4: there are more than 3 candidates"):
        read(tmp_path / "a.tsv", "red\tgreen\n" * 4)


# --- queries of graphs and hierarchies ------------------------------------------------------------------------------

TRIPLES = np.array(some_triples(60, 6, 3))
ENTITIES, RELATIONS = ([f"{letter}{i}" for i in range(n)] for letter, n in (("e", 6), ("r", 3)))
GRAPH = Graph(TRIPLES.astype(np.int32), (50, 55), Vocabulary(ENTITIES, np.ones(6, np.int64), 6),
              Vocabulary(RELATIONS, np.ones(3, np.int64), 3), {})


def contexts(reciprocal: bool) -> list[tuple[tuple[int, int], tuple[int, int, int], int]]:
    """(context, triple, slot) of every training example, as models encode it."""
    examples = TripleExamples(GRAPH.part("train"), 6, 3, TriplesConfig(reciprocal=reciprocal), 0)
    batch = examples.both(GRAPH.part("train"))
    return [(tuple(context), tuple(GRAPH.part("train")[i // 2].tolist()), i % 2)  # type: ignore[misc]
            for i, context in enumerate(batch.context(examples.n_relations).tolist())]


def named(fields: Sequence[str], by: ListKey) -> set[tuple[int, ...]]:
    names = graph_names.query_names(GRAPH, by)
    assert len(fields) == len(names.fields)
    found = names.find(fields)
    assert found is not None
    return set(found)


@pytest.mark.parametrize("reciprocal", [False, True])
def test_names_of_a_graph_give_the_contexts_of_its_examples(reciprocal: bool) -> None:
    for (entity, relation), (head, r, tail), slot in contexts(reciprocal):
        h, t, name = ENTITIES[head], ENTITIES[tail], RELATIONS[r]
        assert named(("_", name, t) if slot else (h, name, "_"), "query") == {(entity, relation)}
        assert named(("_", name) if slot else (name, "_"), "side") == {(relation,)}
        assert (relation,) in named((name,), "relation") and len(named((name,), "relation")) == 2
        assert named((t if slot else h,), "entity") == {(entity,)}


@pytest.mark.parametrize("reciprocal", [False, True])
def test_typed_lists_count_the_entities_on_each_side(reciprocal: bool) -> None:
    expected: Lists = {}
    for (_, relation), (head, _, tail), slot in contexts(reciprocal):
        counts = expected.setdefault((relation,), {})
        target = head if slot else tail
        counts[target] = counts.get(target, 0.0) + 1.0
    assert as_dict(graph_names.observed_by_side(GRAPH)) == expected


def test_queries_of_training_list_their_own_entity_unless_the_relation_is_symmetric() -> None:
    """r0 has no reversed triple, two of three triples of r1 are each other's reverse, and so are all of r2."""
    triples = [(0, 0, 1), (0, 0, 2), (3, 1, 4), (4, 1, 3), (3, 1, 5), (5, 2, 4), (4, 2, 5)]
    graph = Graph(np.array(triples, np.int32), (7, 7), GRAPH.entities, GRAPH.relations, {})
    shares = graph_names.symmetric_share(graph.part("train"), len(ENTITIES), len(RELATIONS))
    assert shares.tolist() == pytest.approx([0, 2 / 3, 1] + [0] * (len(RELATIONS) - 3))
    for limit, kept in ((0.5, 2), (0.7, 5), (1.0, 7)):
        expected: Lists = {}
        for head, relation, tail in triples[:kept]:
            for entity, directed in ((head, relation), (tail, relation + len(RELATIONS))):
                own = expected.setdefault((entity, directed), {entity: 0.0})
                own[entity] += 1.0
        assert as_dict(graph_names.entity_itself(graph, limit)) == expected, limit
    for reciprocal in (False, True):
        examples = TripleExamples(graph.part("train"), 6, 3, TriplesConfig(reciprocal=reciprocal), 0)
        queries = examples.both(graph.part("train")).context(examples.n_relations).tolist()
        lists = as_dict(graph_names.entity_itself(graph, 1.0))
        assert all(set(lists[entity, relation]) == {entity} for entity, relation in queries)


@pytest.mark.parametrize(("by", "fields", "message"), [
    ("query", ("e1", "r1", "e2"), "either the head or the tail should be _"), ("query", ("_", "r1", "_"), "either the"),
    ("side", ("r1", "r2"), "either side of the relation should be _"), ("side", ("_", "_"), "either side"),
])
def test_queries_without_one_open_side_are_refused(by: ListKey, fields: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph_names.query_names(GRAPH, by).find(fields)


@pytest.mark.parametrize(("by", "fields"), [
    ("query", ("e9", "r1", "_")), ("query", ("e1", "r9", "_")), ("query", ("_", "r1", "e9")), ("side", ("r9", "_")),
    ("relation", ("r9",)), ("entity", ("e9",))])
def test_unknown_names_of_a_graph_name_no_query(by: ListKey, fields: tuple[str, ...]) -> None:
    assert graph_names.query_names(GRAPH, by).find(fields) is None


def test_a_query_of_several_fields_takes_several_columns(tmp_path: Path) -> None:
    names = graph_names.query_names(GRAPH, "query")
    index = GRAPH.entities.index
    expected = {(1, 2): {0: 2.0}, (4, 3): {5: 1.0}}
    assert read(tmp_path / "a.tsv", "e1\tr2\t_\te0\t2\n_\tr0\te4\te5\n", names, index) == expected
    lines = ('{"query": ["e1", "r2", "_"], "candidates": ["e0"], "weights": [2]}\n'
             '{"query": ["_", "r0", "e4"], "candidates": ["e5"]}\n')
    assert read(tmp_path / "a.jsonl", lines, names, index) == expected
    with pytest.raises(DataError, match=r"a\.tsv:1: 'e1 r2 e0': either the head or the tail should be _"):
        read(tmp_path / "a.tsv", "e1\tr2\te0\te3\n", names, index)


def test_names_of_a_hierarchy_give_the_contexts_of_its_examples() -> None:
    concepts, pairs = ["dog", "animal", "cat"], torch.tensor([[0, 1], [2, 1]])
    names: dict[str, QueryNames] = {by: hierarchy_names.query_names(concepts, by)  # type: ignore[arg-type, misc]
                                    for by in ("query", "side", "entity")}
    for slot, side, fields in ((0, "hypernym", ("dog", "_")), (1, "hyponym", ("_", "animal"))):
        batch = make_batch(pairs, torch.full((2,), slot))
        key = (int(batch.concept[0]), slot)
        assert names["query"].find(fields) == [key] and names["side"].find([side]) == [(slot,)]
        assert names["entity"].find([concepts[key[0]]]) == [key[:1]]
    assert as_dict(hierarchy_names.observed_by_side(pairs.numpy())) == {(0,): {1: 2.0}, (1,): {0: 1.0, 2: 1.0}}
    assert names["query"].find(("cow", "_")) is None and names["entity"].find(["cow"]) is None
    for by, wrong in (("query", ("dog", "animal")), ("side", ("up",))):
        with pytest.raises(ValueError, match="open end"):
            names[by].find(wrong)
    with pytest.raises(UsageError, match=r"^negatives\.by: relation: a hierarchy has one relation; set"):
        hierarchy_names.query_names(concepts, "relation")
