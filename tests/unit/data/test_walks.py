"""Walks from files and drawn walks: files are read exactly, and steps have node2vec's distribution."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from helpers.looped import looped

import embtrain
from embtrain import experiment
from embtrain.common.errors import DataError, EmbtrainError, ResourceError
from embtrain.data.inventory import inventory
from embtrain.data.inventory.inventory import FilesConfig
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.text import corpus as text
from embtrain.data.text.corpus import Corpus
from embtrain.data.walks import edge_lists, walks
from embtrain.data.walks.walks import FILE_RULES, Edges, WalksConfig

WHOLE = {"valid": 0.0, "test": 0.0}
LINES = [["1", "2", "3", "2"], ["40", "1"], ["2", "3", "40", "1", "2"]]


def graph_of(where: list[Path], directed: bool) -> Edges:
    return edge_lists.read_graph(where, inventory.build_inventory(where, FILE_RULES, FilesConfig()), directed)


def load(path: Path, store: Path | None = None, **config: object) -> Corpus:
    return walks.load([path], WalksConfig(**{**WHOLE, **config}), store, "t")


def lines_of(corpus: Corpus) -> list[list[str]]:
    names = corpus.vocabulary.words
    return [[names[i] for i in corpus.ids[a:b]] for a, b in itertools.pairwise(corpus.sequence.tolist())]


def put(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


# --- walks from files ------------------------------------------------------------------------------------------------

def test_walks_of_ids_are_read_completely_from_text_and_from_an_array(tmp_path: Path) -> None:
    """Nodes that occur once have a vector too, and 40 is not a word of fewer letters."""
    of_text = load(put(tmp_path / "walks.txt", "\n".join(map(" ".join, LINES)) + "\n"))
    table = np.full((3, 5), -1, dtype=np.int32)
    for row, line in zip(table, LINES, strict=True):
        row[:len(line)] = list(map(int, line))
    np.save(tmp_path / "walks.npy", table)
    of_array = load(tmp_path / "walks.npy", tmp_path / "cache")
    assert lines_of(of_text) == lines_of(of_array) == LINES
    assert of_text.vocabulary.words == of_array.vocabulary.words == ["2", "1", "3", "40"]
    assert of_array.vocabulary.counts.tolist() == [4, 3, 2, 2]
    assert lines_of(load(tmp_path / "walks.npy", tmp_path / "cache")) == LINES      # from the cache
    cut = lines_of(load(tmp_path / "walks.npy", max_sequence=2))
    assert cut == [["1", "2"], ["3", "2"], ["40", "1"], ["2", "3"], ["40", "1"], ["2"]]


@pytest.mark.parametrize(("table", "says"), [
    (np.array([[1, -1, 2]]), "row 0: .* after the last node"), (np.array([[1, 2], [3, -2]]), "row 1"),
    (np.array([1, 2]), r"two axes, walks and nodes, got int64 \(2,\)"), (np.array([[1.0, 2.0]]), "float64"),
    (np.array([[-1, -1]]), "contains no nodes"), (np.zeros((0, 3), dtype=np.int64), "two axes"),
])
def test_array_that_contains_no_walks_is_rejected(tmp_path: Path, table: np.ndarray, says: str) -> None:
    np.save(tmp_path / "walks.npy", table)
    with pytest.raises(DataError, match=says):
        load(tmp_path / "walks.npy")


def test_array_of_objects_or_torn_array_is_rejected(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "torn.npy", np.ones((50, 50), dtype=np.int64))
    (tmp_path / "torn.npy").write_bytes((tmp_path / "torn.npy").read_bytes()[:1000])
    for name in ("objects.npy", "torn.npy"):
        with pytest.raises(DataError, match=f"{name}: is not a complete .npy file"):
            load(tmp_path / name)


@pytest.mark.parametrize("reads", ["auto", "walks"])
def test_folder_of_arrays_reports_what_is_read(tmp_path: Path, reads: str) -> None:
    np.save(tmp_path / "walks.npy", np.ones((5, 5), dtype=np.int64))
    with pytest.raises(DataError, match=r"contains no walks or edges .* give an \.npy of walks by its own"):
        load(tmp_path, format=reads)


# --- a graph ---------------------------------------------------------------------------------------------------------

def test_graph_equals_what_networkx_wrote(tmp_path: Path) -> None:
    graph = nx.karate_club_graph()
    nx.write_edgelist(graph, tmp_path / "plain.edgelist", data=False)
    nx.write_weighted_edgelist(graph, tmp_path / "weighted.edgelist")
    for name, weighted in (("plain", False), ("weighted", True)):
        result = graph_of([tmp_path / f"{name}.edgelist"], directed=False)
        assert sorted(map(int, result.names)) == list(range(34)) and len(result.to) == 2 * graph.number_of_edges()
        for v, node in enumerate(result.names):
            near = result.to[result.start[v]:result.start[v + 1]].tolist()
            assert {result.names[x] for x in near} == {str(x) for x in graph[int(node)]}
            if weighted:
                assert result.share is not None
                sums = np.cumsum([graph[int(node)][int(result.names[x])]["weight"] for x in near])
                assert result.share[result.start[v]:result.start[v + 1]] == pytest.approx(sums / sums[-1])
        assert (result.share is None) is not weighted


def test_repeated_edges_count_once_and_directed_ones_are_one_way(tmp_path: Path) -> None:
    path = put(tmp_path / "g.txt", "# a remark\na b\nb a\n\nb c\nb c\n")
    both = graph_of([path], directed=False)
    assert both.names == ["a", "b", "c"] and both.start.tolist() == [0, 1, 3, 4] and both.to.tolist() == [1, 0, 2, 1]
    one = graph_of([path], directed=True)
    assert one.start.tolist() == [0, 1, 3, 3] and one.to.tolist() == [1, 0, 2]
    result = list(walks.draw_walks(one, WalksConfig(directed=True, length=50, per_node=2)))
    assert {piece.shape for piece in result} == {(3, 50)}
    for piece in result:                                     # c is the end of every walk that reaches it
        for row in piece.tolist():
            ended = row.index(2) if 2 in row else 49
            assert set(row[ended + 1:]) <= {-1} and -1 not in row[:ended]


@pytest.mark.parametrize(("text", "says"), [
    ("a b 1_0\n", "g.txt:1: expected two nodes"),
    ("a b {}\n", "g.txt:1: expected two nodes.*data=False"), ("a b\na b c d\n", "walks.format: walks"),
    ("a b\na\n", ":2: "), ("a b -1\n", ":1: "), ("a b inf\n", ":1: "), ("a b nan\n", ":1: "),
    ("# a\n", "contains no edges; all of its lines are comments"), ("", "contains no edges$"),
    ("#nodes: 2 edges: 1\na b\n", "g.txt:1: .*if it is a comment, begin it with `#` and a space"),
    ("// made by hand\na b\n", "g.txt:1: .*begin it with `#` and a space"), ("; a comment\n", "g.txt:1: .*begin it"),
    ("a,b\n", "g.txt:1: .*replace commas by spaces or tabs"),
    ("%%MatrixMarket matrix coordinate real\n3 3 2\n1 2 1\n", "g.txt:1: is a Matrix Market file"),
    ("a b 1\nb a 2\n", "the edge b a has two weights, 2 and 1; .*walks.directed"),
])
def test_lines_that_are_not_edges_are_rejected(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        load(put(tmp_path / "g.txt", text), format="graph")


def test_comment_needs_a_space_and_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SNAP, KONECT and networkx begin comments with `# ` or `% `; tags and users often have a name with a mark."""
    tags = [f"user{i} #tag{i % 6}" if i % 2 else f"#tag{i % 6} user{i}" for i in range(120)]
    more = ["%50 a", "#a %b", "#1 #2", "@a //b", "; x", "// y"]
    text = "\n".join(["# Directed graph", "#", "## more", "\t# FromNodeId\tToNodeId", "% sym", "%%", *tags, *more])
    path = put(tmp_path / "g.txt", text + "\n")
    graph = graph_of([path], directed=True)
    assert len(graph.to) == 126 and {"#tag1", "%50", "%b", "#1", "//b", ";", "//"} <= set(graph.names)
    message = f"{path}:1: 6 lines begin with a comment mark and a space (`# `, `% `) and are skipped as comments"
    for _ in range(2):                                                              # also from the cache
        caplog.clear()
        corpus = load(path, tmp_path / "cache", directed=True, length=2, per_node=1)
        assert caplog.messages == [message] and "#tag1" in corpus.vocabulary.words
    caplog.clear()
    load(put(tmp_path / "one.txt", "a b\n# one\nb c\n"))
    assert caplog.messages == [f"{tmp_path / 'one.txt'}:2: 1 line begins with a comment mark and a space (`# `, `% `) "
                               "and is skipped as a comment"]


@pytest.mark.parametrize(("text", "expected_lines"), [
    ("#From To\na b\nb c\n", [1]), ("#a b\n#b c\nc #a\n", []), ("a b\n#c #d\n", []), ("%x y\n//a c\na c\n", [1]),
])
def test_first_line_that_may_be_a_comment_is_read_and_reported(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, expected_lines: list[int]) -> None:
    load(put(tmp_path / "g.txt", text), length=2, per_node=1)
    lines = [int(m.split(":")[1]) for m in caplog.messages if "is read as an edge, but its nodes" in m]
    assert lines == expected_lines and len(caplog.messages) == len(expected_lines)


def test_comment_in_a_file_of_walks_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = put(tmp_path / "w.txt", "# made by hand\na b c d\n#a b c d\n")
    for reads in ("auto", "walks"):
        caplog.clear()
        assert lines_of(load(path, format=reads))[0] == ["#", "made", "by", "hand"]
        assert [m for m in caplog.messages if m.startswith(f"{path}:1: 1 line begins") and "read as nodes" in m]


# --- drawing ---------------------------------------------------------------------------------------------------------

def law(graph: nx.Graph, t: int, v: int, p: float, q: float) -> dict[int, float]:
    """Return π(x | t, v) from the equation."""
    mass = {x: graph[v][x].get("weight", 1.0) * (1 / p if x == t else 1 if graph.has_edge(t, x) else 1 / q)
            for x in graph[v]}
    return {x: m / sum(mass.values()) for x, m in mass.items()}


EDGES = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)]
#: An edge from x to t without its reverse, edges both ways, and a loop.
DIRECTED = [(0, 1), (1, 2), (0, 2), (1, 3), (2, 0), (3, 0), (3, 1), (2, 3), (1, 1), (3, 4), (4, 0)]


@looped("directed", [False, True])
@looped("weighted", [False, True])
@looped("p, q", [(1.0, 1.0), (0.25, 4.0), (4.0, 0.5), (1e7, 1e7), (200.0, 200.0)])
def test_steps_follow_the_distribution_of_node2vec(directed: bool, weighted: bool, p: float, q: float) -> None:
    """The frequencies of sampled steps in 300 copies of a graph against the exact π(x | t, v)."""
    graph = nx.DiGraph() if directed else nx.Graph()
    for i, (a, b) in enumerate(DIRECTED if directed else EDGES):
        graph.add_edge(a, b, weight=1.0 + i % 3 if weighted else 1.0)
    ends = np.array(list(graph.edges))
    weights = np.array([graph[a][b]["weight"] for a, b in graph.edges])
    n, copies = len(graph), 300
    ends = np.concatenate([ends + n * copy for copy in range(copies)])
    edges = walks.edges_from_pairs([str(v) for v in range(n * copies)], ends, np.tile(weights, copies), directed, "g")
    config = WalksConfig(per_node=2, length=12, p=p, q=q, directed=directed)
    table = np.concatenate(list(walks.draw_walks(edges, config)))
    assert (table // n == table[:, :1] // n).all()
    table %= n
    steps = np.zeros((n, n, n), np.int64)
    np.add.at(steps, (table[:, :-2], table[:, 1:-1], table[:, 2:]), 1)
    seen = {(int(t), int(v)) for t, v in np.argwhere(steps.sum(2))}
    assert seen == {(a, b) for a, b in graph.to_directed().edges}
    for t, v in seen:
        total = steps[t, v].sum()
        for x, share in law(graph, t, v, p, q).items():
            off = steps[t, v, x] / total - share
            assert abs(off) < 5 * (share * (1 - share) / total) ** .5 + 1e-9, (t, v, x)
    firsts = np.bincount(table[:, 0], minlength=n)
    assert firsts.tolist() == [600] * n


def test_distance_in_a_directed_graph_is_from_t_to_x(tmp_path: Path) -> None:
    """t = 1, v = 2: an edge leads from 1 to 3, none from 1 to 4, so that π(3) = 1 / (1 + 1/4) = .8."""
    graph = graph_of([put(tmp_path / "g.txt", "1 2\n2 3\n1 3\n2 4\n")], directed=True)
    table = np.concatenate(list(walks.draw_walks(graph, WalksConfig(per_node=10_000, length=3, q=4.0, directed=True))))
    one, two, three = (graph.names.index(name) for name in "123")
    after = table[(table[:, 0] == one) & (table[:, 1] == two), 2]
    assert len(after) > 4_500 and (after == three).mean() == pytest.approx(0.8, abs=0.025)


@pytest.mark.parametrize("elsewhere", ["x y 1e17\n", "x y 1e308\ny z 1e308\nz w 1e308\n", "x y 1e-300\n", ""])
@pytest.mark.parametrize("scale", [1.0, 1e-200, 4e307])
def test_weights_of_a_node_do_not_depend_on_other_nodes(tmp_path: Path, elsewhere: str, scale: float) -> None:
    """Edges of 1, 1 and 2 at a node have its steps as 1 : 1 : 2, and sums never overflow."""
    lines = "".join(f"a {to} {weight * scale!r}\n" for to, weight in (("b", 1), ("c", 1), ("d", 2)))
    graph = graph_of([put(tmp_path / "g.txt", elsewhere + lines)], directed=True)
    assert graph.share is not None and np.isfinite(graph.share).all()
    steps = graph.propose(np.full(40_000, graph.names.index("a")), np.random.default_rng(0))
    shares = np.bincount(steps, minlength=len(graph.names))[[graph.names.index(name) for name in "bcd"]] / len(steps)
    assert shares == pytest.approx([.25, .25, .5], abs=.012)


def test_weights_of_any_size_keep_their_share(tmp_path: Path) -> None:
    weights = [1e17, 3.0, 1e17, 1e-30, 5e16]
    text = "".join(f"a n{i} {w!r}\n" for i, w in enumerate(weights))
    graph = graph_of([put(tmp_path / "g.txt", text)], directed=True)
    steps = graph.propose(np.zeros(50_000, dtype=np.int64), np.random.default_rng(1))
    assert np.bincount(steps, minlength=6)[1:] / 50_000 == pytest.approx(np.array(weights) / sum(weights), abs=.012)


def test_walks_follow_from_the_seed(tmp_path: Path) -> None:
    nx.write_edgelist(nx.karate_club_graph(), tmp_path / "g.edgelist", data=False)
    settings = {"format": "graph", "length": 20, "per_node": 2, "p": 0.5, "q": 2.0}
    first, again = (lines_of(load(tmp_path / "g.edgelist", **settings)) for _ in range(2))
    assert first == again and len(first) == 68 and {len(line) for line in first} == {20}
    assert lines_of(load(tmp_path / "g.edgelist", **settings, seed=1)) != first


def test_auto_distinguishes_walks_from_edges(tmp_path: Path) -> None:
    assert len(lines_of(load(put(tmp_path / "g.txt", "a b\nb c\n"), length=4, per_node=1))) == 3      # a walk each
    assert lines_of(load(put(tmp_path / "w.txt", "a b\nb c a c\n"))) == [["a", "b"], ["b", "c", "a", "c"]]
    assert lines_of(load(put(tmp_path / "s.txt", "a b\nb c a\n"), format="walks")) == [["a", "b"], ["b", "c", "a"]]


def test_edges_with_data_are_not_walks(tmp_path: Path) -> None:
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=3)
    nx.write_edgelist(graph, tmp_path / "g.edgelist")
    with pytest.raises(DataError, match=r"g\.edgelist:1: expected two nodes.*networkx.*data=False"):
        load(tmp_path / "g.edgelist")


def test_long_line_among_edges_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert len(lines_of(load(put(tmp_path / "w.txt", "a b\nb c a c\n")))) == 2 and not caplog.records
    path = put(tmp_path / "g.txt", "#a remark\na b\nb c 2\nc d e f g\nc a\n")
    load(path)
    (message,) = caplog.messages
    assert message.startswith(f"{path}:4: contains 5 nodes, so this is read as walks, although 4 of the first 5")
    caplog.clear()
    load(path, format="walks")
    assert not caplog.records


def test_messages_name_the_section_of_walks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cases: list[tuple[str, dict[str, object], str]] = [
        ("a b c d\n", {"valid": .1}, r"walks: 1 document or piece .* 2 are needed"),
        ("a b c d e\n" * 4, {"valid": .3}, r"walks: 1 of 1 held-out sequences .* also occurs in training"),
        ("a b c d\n", {"min_count": 2}, r"walks\.min_count: no word occurs 2 times"),
        ("a b c d\n" * 4, {"valid": .45, "test": .45}, r"walks\.valid, walks\.test: shares of 0\.45 and 0\.45 of 4"),
        ("a b c d\n", {"files": FilesConfig(test=["*"])}, r"walks\.files\.train: every file is held out"),
    ]
    for content, config, says in cases:
        caplog.clear()
        try:
            load(put(tmp_path / "w.txt", content), **config)
            messages = caplog.messages
        except DataError as error:
            messages = [str(error)]
        assert any(re.match(says, message) for message in messages), (says, messages)
    corpus = load(put(tmp_path / "w.txt", "a b c d\n"))
    with pytest.raises(ResourceError, match=r"raise walks\.min_count"):
        KnownPairs.from_corpus(corpus, WalksConfig(), max_bytes=8)


def test_array_is_read_alone_and_packed(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.array([[0, 1, 2]]))
    with pytest.raises(DataError, match=r"contains no walks or edges.*\.npy of walks by its own path, uncompressed"):
        load(tmp_path)
    (tmp_path / "w.npy.gz").write_bytes(gzip.compress((tmp_path / "w.npy").read_bytes()))
    with pytest.raises(DataError, match=r"w\.npy\.gz.*: is an \.npy, .*; unpack it, and give its path"):
        load(tmp_path / "w.npy.gz")


@looped("at_once", [1, 7, 1 << 20])
def test_choice_among_all_neighbours_is_by_weight_times_factor(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Shares of .1 : .2 : .3 : .4 with factors 4 : 0 : 1 : 1, and a node with one neighbour; in batches of edges."""
    monkeypatch.setattr(edge_lists, "EDGES_AT_ONCE", at_once)
    text = "".join(f"a n{i} {i + 1}\n" for i in range(4)) + "b n3 5\n"
    graph = graph_of([put(tmp_path / "g.txt", text)], directed=True)
    n, to = len(graph.names), np.array([graph.names.index(f"n{i}") for i in range(4)])
    a, b = graph.names.index("a"), graph.names.index("b")
    factor = np.zeros((n, n))
    factor[a, to], factor[b, to[3]] = [4, 0, 1, 1], 1e-6
    v = np.where(np.arange(20_000) % 5 == 0, b, a)
    x = graph.choose(v, lambda row, x: factor[v[row], x], np.random.default_rng(0))
    assert (x[v == b] == to[3]).all()
    shares = np.bincount(x[v == a], minlength=n)[to] / (v == a).sum()
    assert shares == pytest.approx(np.array([.4, 0, .3, .4]) / 1.1, abs=.015) and shares[1] == 0


def test_few_proposals_decide_a_step_whose_factors_are_all_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejection with p = q = 1000 needs a thousand proposals for a step on a ring."""
    n, calls = 12, 0
    edges = walks.edges_from_pairs(list(map(str, range(n))), np.array([(i, (i + 1) % n) for i in range(n)]), np.ones(n),
                                   False, "g")
    propose = Edges.propose

    def counted(self: Edges, v: np.ndarray, random: np.random.Generator) -> np.ndarray:
        nonlocal calls
        calls += 1
        return propose(self, v, random)

    monkeypatch.setattr(Edges, "propose", counted)
    (table,) = walks.draw_walks(edges, WalksConfig(p=1000, q=1000, per_node=1, length=5))
    assert (table >= 0).all() and calls <= 4 * (walks.MAX_TRIES_RARE + 1)


def test_steps_of_usual_factors_are_those_of_earlier_versions() -> None:
    """The hash of walks that were drawn by rejection alone."""
    graph = nx.karate_club_graph()
    edges = walks.edges_from_pairs(list(map(str, graph)), np.array(graph.edges), np.ones(len(graph.edges)), False, "g")
    (table,) = walks.draw_walks(edges, WalksConfig(p=0.25, q=4, per_node=1, length=20))
    assert hashlib.sha256(table.tobytes()).hexdigest()[:16] == "91fdacd065e46fe0"


def test_whole_walks_are_held_out_of_few_and_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "PARTS", 10)
    for n in (7, 95):
        lines = [[str(i % 3), str(i % 3 + 1), str(i % 3)] for i in range(n)]
        corpus = load(put(tmp_path / "w.txt", "\n".join(map(" ".join, lines)) + "\n"), format="walks", valid=.2,
                      test=.2)
        train, valid, test = text.split(corpus, WalksConfig(valid=.2, test=.2))
        assert min(len(valid), len(test)) > 0 and len(corpus.document) - 1 <= 10
        assert all(line[0] == line[-1] for line in lines_of(train))             # no walk was cut


def test_every_node_keeps_a_training_walk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Some nodes are in one walk only. Walks are held out while that loses no node, a third of them for valid."""
    random = np.random.default_rng(0)
    n_held = []
    for case in range(12):
        lines = [[str(node) for node in row] for row in random.geometric(.08, (40, 4))]
        caplog.clear()
        config = WalksConfig(format="walks", valid=.2, test=.4, split_seed=case)
        corpus = walks.load([put(tmp_path / "w.txt", "\n".join(map(" ".join, lines)) + "\n")], config, None, "t")
        train, valid, test = map(lines_of, text.split(corpus, config))
        assert sorted(train + valid + test) == sorted(lines)
        assert {node for line in train for node in line} == {node for line in lines for node in line}
        n_held.append(len(valid) + len(test))
        short = [m for m in caplog.messages if m.startswith("walks.valid, walks.test: 0.2, 0.4: ")]
        assert len(short) == (n_held[-1] < 24) and all(f": {n_held[-1]} of 40 units are held" in m for m in short)
        assert len(valid) == round(n_held[-1] / 3)
    assert 0 < min(n_held) < max(n_held) == 24


def test_nothing_is_held_out_if_every_walk_has_nodes_of_its_own(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = put(tmp_path / "w.txt", "".join(f"a n{i} b m{i}\n" for i in range(50)))
    for _ in range(2):                                                              # also from the cache
        caplog.clear()
        corpus = load(path, tmp_path / "cache", valid=.02, test=.02)
        assert len(corpus.vocabulary) == 102 and corpus.parts == (50, 50)
        assert caplog.messages == [
            "walks.valid, walks.test: 0.02, 0.02: 0 of 50 units are held out instead of 2, because each of the others "
            "contains a node that would not occur in training; to hold out more, set walks.min_count: 2, which gives "
            "nodes that occur once no vector"]
    rare = load(path, tmp_path / "cache", valid=.02, test=.02, min_count=2)
    assert rare.vocabulary.words == ["a", "b"] and rare.parts == (48, 49)


def test_split_that_loses_no_node_is_the_random_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "w.txt", "".join(f"{i % 7} {i % 5} {i % 3} x\n" for i in range(60)))
    corpus = load(path, valid=.1, test=.1)
    monkeypatch.setattr(WalksConfig, "keeps_words", False)
    assert lines_of(load(path, valid=.1, test=.1)) == lines_of(corpus) and corpus.parts == (48, 54)


def test_nodes_of_held_out_files_alone_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "train.txt", "a b c d\nd c b a\n")
    put(tmp_path / "test.txt", "a b x y\n")
    corpus = load(tmp_path)
    assert sorted(corpus.vocabulary.words) == ["a", "b", "c", "d"]
    assert caplog.messages == ["walks.files: 2 nodes occur only in files of valid or test and get no vector; add them "
                               "to the training files"]
    caplog.clear()
    load(tmp_path, min_count=2)
    assert not caplog.messages


# --- a run -----------------------------------------------------------------------------------------------------------

def test_run_over_a_graph_separates_communities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("embtrain.experiment.run.run.report.write", lambda folder: None)
    graph = nx.connected_caveman_graph(6, 6)
    nx.write_edgelist(graph, tmp_path / "caves.txt", data=False)
    sets = {"model.dim": 8, "train.epochs": 4, "walks.per_node": 20, "walks.length": 30, "walks.window": 3,
            "evaluate.resamples": 0, "evaluate.heldout_pairs": 500, "train.lr": 0.1, "train.chunk": 512}
    run = embtrain.fit("sgns", model="node2vec", corpus=tmp_path / "caves.txt", sets=sets, threads=1,
                       out=tmp_path / "run")
    table = run.word_vectors
    assert sorted(map(int, table.words)) == list(range(36))
    cave = np.array([int(name) // 6 for name in table.words])
    cosine = table.unit @ table.unit.T - 2 * np.eye(36)
    nearest = cave[np.argsort(-cosine, axis=1)[:, :3]]
    assert (nearest == cave[:, None]).mean() > .9
    assert experiment.Run(tmp_path / "run").settings.model.name == "node2vec"


def test_run_reports_errors_of_its_graph(tmp_path: Path) -> None:
    with pytest.raises(EmbtrainError, match=":1: expected two nodes"):
        embtrain.fit("sgns", model="node2vec", corpus=put(tmp_path / "g.txt", "one\n"), out=tmp_path / "run")
