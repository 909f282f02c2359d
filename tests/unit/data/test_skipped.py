"""Records that readers pass over are counted and reported, also from the cache; errors name the cause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embtrain.common.errors import DataError
from embtrain.data.formats import candidate_files
from embtrain.data.formats.candidate_files import QueryNames
from embtrain.data.hierarchy import examples as hierarchies, own_pairs
from embtrain.data.hierarchy.examples import PairsConfig
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.labels import examples as labelled
from embtrain.data.labels.sparse import LabelsConfig
from embtrain.data.storage.skipped import Skipped, counted, name_file, number_file
from embtrain.data.text import corpus, streams
from embtrain.data.text.corpus import TextConfig
from embtrain.data.text.streams import LanguageConfig
from embtrain.data.triples import graph, own_triples
from embtrain.data.triples.graph import Graph, TriplesConfig
from embtrain.data.walks import walks
from embtrain.data.walks.walks import WalksConfig


def put(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_count_is_one_or_several() -> None:
    assert counted(1, "is", "are") == "1 is" and counted(0, "is", "are") == "0 are"
    skipped = Skipped()
    assert skipped.lines("is", "are") == ()
    for place in ("x:1200", "x:3"):
        skipped.add(place)
    assert skipped.lines("is", "are") == ("x:1200: 2 are",)


# --- repeated pairs and edges -----------------------------------------------------------------------------------------

PAIRS = "".join(f"c{i}\tc{i // 2}\n" for i in range(1, 60))


def read_pairs(path: Path, cache: Path | None = None, **keys: Any) -> hierarchies.Hierarchy:
    return hierarchies.load([path], PairsConfig(**keys), "mine", None, cache)


@pytest.mark.parametrize(("more", "line"), [
    ("c9\tc4\n", "mine: 1 pair repeats an earlier one (for example 'c9', 'c4') and counts once"),
    ("c9\tc4\nc3\tc1\nc9\tc4\n", "mine: 3 pairs repeat earlier ones (for example 'c9', 'c4') and count once"),
    ("", None)])
@pytest.mark.parametrize("protocol", ["clean", "legacy"])
def test_repeated_pairs_of_a_hierarchy(tmp_path: Path, caplog: pytest.LogCaptureFixture, more: str, line: str | None,
                                       protocol: str) -> None:
    path = put(tmp_path / "pairs.tsv", PAIRS + more)
    alone = read_pairs(put(tmp_path / "alone.tsv", PAIRS), protocol=protocol)
    for _ in range(2):                                                             # the second time from the cache
        caplog.clear()
        again = read_pairs(path, tmp_path / "cache", protocol=protocol)
        assert caplog.messages == [line] * (line is not None)
        assert again.split.train.tolist() == alone.split.train.tolist()


def test_a_line_of_column_names_is_reported_from_the_cache_too(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                               ) -> None:
    path = put(tmp_path / "pairs.tsv", "child\tparent\n" + PAIRS)
    for _ in range(2):
        caplog.clear()
        read_pairs(path, tmp_path / "cache")
        assert caplog.messages == [f"{path}:1: 'child' and 'parent' are names of columns and are skipped"]


def test_column_names_of_own_pairs_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = put(tmp_path / "own.tsv", "child\tparent\nc3\tc1\n")
    own = own_pairs.read(path, {"c1": 0, "c3": 1}, Senses(["c1", "c3"], {}))
    assert caplog.messages == [f"{path}:1: 'child' and 'parent' are names of columns and are skipped"]
    assert own.note() == "1 of 1 pairs"


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("text", "both_ways", "one_way"), [
    ("a b\nb a\nb c\nb c\n", 2, 1), ("a b\nb c\n", 0, 0), ("a a\na b\na a\n", 1, 1), ("a a\na b 1\nb c\n", 0, 0),
    ("a b\na c\nb a\n", 1, 0)])
def test_repeated_edges_of_a_graph(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, both_ways: int,
                                   one_way: int, directed: bool) -> None:
    path, n = put(tmp_path / "g.txt", text), one_way if directed else both_ways
    explained = "" if directed else " (a b and b a are one edge, unless walks.directed is true)"
    line = f"{path}: 1 edge repeats an earlier one{explained} and counts once" if n == 1 else \
        f"{path}: {n} edges repeat earlier ones{explained} and count once"
    config = WalksConfig(valid=0, test=0, directed=directed, length=2, per_node=1, format="graph")
    for _ in range(2):
        caplog.clear()
        walks.load([path], config, tmp_path / "cache", "t")
        assert caplog.messages == [line] * (n > 0)


# --- documents, pages, triples and candidates ------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "line"), [
    ("3 5 4\n0,3 1:0.5\n 0:1\n2 3:1\n", "mine: 1 document has no label and is skipped"),
    ("4 5 4\n0,3 1:0.5\n 0:1\n2 3:1\n 1:1\n", "mine: 2 documents have no label and are skipped"),
    ("2 5 4\n0,3 1:0.5\n2 3:1\n", None)])
def test_documents_without_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, line: str | None
                                  ) -> None:
    path = put(tmp_path / "data.txt", text)
    for _ in range(2):
        caplog.clear()
        labelled.load([path], "auto", LabelsConfig(), tmp_path / "cache", "mine")
        assert caplog.messages == [line] * (line is not None)


@pytest.mark.parametrize(("text", "line"), [
    ("0,3,0 1:0.5\n2 3:1\n", "2: 1 document repeats"), ("0,3 1:0.5\n2 3:1 3:2\n", "3: 1 document repeats"),
    ("0 1:1\n2,2 3:1 3:2 3:1\n1,1 3:1\n", "3: 2 documents repeat")])
def test_documents_that_repeat_a_label_or_a_feature(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str,
                                                    line: str) -> None:
    path = put(tmp_path / "data.txt", f"{text.count(chr(10))} 5 4\n{text}")
    for _ in range(2):
        caplog.clear()
        labelled.load([path], "auto", LabelsConfig(), tmp_path / "cache", "mine")
        assert caplog.messages == [f"{path}:{line} a label, which counts once, or a feature, whose values are added"]


def page(title: str, text: str) -> str:
    return f"<page><title>{title}</title><ns>0</ns><id>1</id><revision><text>{text}</text></revision></page>"


def test_pages_of_a_dump_that_are_no_articles(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pages = page("a", "word another " * 40) + page("short", "too few words") + page("Category:b", "word other " * 40)
    path = put(tmp_path / "x.xml",
               f"<mediawiki xmlns='http://www.mediawiki.org/xml/export-0.10/'>{pages}</mediawiki>")
    config = TextConfig(min_count=1, valid=0, test=0)
    for _ in range(2):
        caplog.clear()
        corpus.load([path], "auto", config, tmp_path / "cache", "t")
        assert (f"{path}: 2 pages of the dump are skipped: no articles, or shorter than the 50 words that gensim "
                "requires") in caplog.messages


DUMP = (f"<mediawiki xmlns='http://www.mediawiki.org/xml/export-0.10/'>{page('a', 'word another ' * 40)}"
        f"{page('short', 'too few words')}</mediawiki>")
TEXTS = {"min_count": 1, "valid": 0, "test": 0}
PHRASES = {"phrases": 2, "phrase_min_count": 1, "phrase_threshold": 1}
MOVED: dict[str, tuple[str, str, Callable[[Path, Path], object]]] = {   # content, end of a warning, reader
    "text": (DUMP, "x: 1 page of the dump is skipped: no articles", lambda path, cache: corpus.load(
        [path], "auto", TextConfig(**TEXTS), cache, "t")),
    "phrases": (DUMP, "x: 1 page of the dump is skipped: no articles", lambda path, cache: corpus.load(
        [path], "auto", TextConfig(**TEXTS, **PHRASES), cache, "t")),
    "language": (DUMP, "x: 1 page of the dump is skipped: no articles", lambda path, cache: streams.load(
        [path], "auto", LanguageConfig(min_count=1, valid=0, test=0), cache, "t")),
    "tokens": ("a 12345 b\n" * 20, "x: text.tokenizer=words omits", lambda path, cache: corpus.load(
        [path], "auto", TextConfig(**TEXTS), cache, "t")),
    "edges": ("a b\nb c\nb c\n", "x: 1 edge repeats", lambda path, cache: walks.load(
        [path], WalksConfig(valid=0, test=0, length=2, per_node=1, format="graph"), cache, "t")),
    "triples": ("".join(f"<e:{i}> <e:r> <e:{i // 2}> .\n" for i in range(9)) + '<e:1> <e:r> "1" .\n',
                "x:10: 1 triple has a literal",
                lambda path, cache: graph.load([path], "triples", TriplesConfig(format="ntriples"), cache, "t")),
    "pairs": ("child\tparent\n" + PAIRS, "x:1: 'child' and 'parent' are names of columns", read_pairs),
    "labels": ("2 5 4\n0,3,0 1:0.5\n2 3:1\n", "x:2: 1 document repeats", lambda path, cache: labelled.load(
        [path], "auto", LabelsConfig(), cache, "t")),
}


@pytest.mark.parametrize("kind", MOVED)
def test_a_warning_from_the_cache_names_the_current_path(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
                                                         ) -> None:
    content, line, load = MOVED[kind]
    for number in range(3):
        (folder := tmp_path / f"n{number}").mkdir()
        caplog.clear()
        load(put(folder / "x", content), tmp_path / "cache")
        (folder / "x").unlink()
        assert [text.startswith(f"{folder}/{line}") for text in caplog.messages].count(True) == 1, caplog.messages
        assert all(text.count(str(tmp_path)) <= 1 and "<file" not in text for text in caplog.messages)


def test_a_cached_line_begins_with_the_position_of_its_file() -> None:
    files = [Path("a"), Path("a/b"), Path("a/b.txt")]
    assert number_file("a/b.txt:3: x", files) == "<file 2>:3: x" and number_file("a/b: a", files) == "<file 1>: a"
    assert number_file("a/c.zip:m: x", files) == "<file 0>/c.zip:m: x" and number_file("ab: a", files) == "ab: a"
    assert number_file("a", [Path("a"), Path("a")]) == "<file 1>" and number_file("", files) == ""
    moved = [Path("q"), Path("q/b")]
    assert name_file("<file 1>:3: x", moved) == "q/b:3: x" and name_file("<file 2>:3: x", moved) == "q/b:3: x"
    assert name_file("<file 1> x", moved) == "<file 1> x" and name_file("t: <file 1>: x", moved) == "t: <file 1>: x"


def test_the_length_of_an_article_is_that_of_gensim() -> None:
    from gensim.corpora.wikicorpus import ARTICLE_MIN_WORDS

    from embtrain.data.text.findings import remarks

    assert remarks.ARTICLE_WORDS == ARTICLE_MIN_WORDS


def test_comments_among_candidates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = QueryNames((0,), ("QUERY",), lambda fields: [(0,)])
    path = put(tmp_path / "a.tsv", "a\tb\n# a remark\n% and another\nb\ta\n")
    candidate_files.read(path, names, {"a": 0, "b": 1})
    assert caplog.messages == [f"{path}:2: 2 lines begin with a comment mark and a space (`# `, `% `) and are skipped "
                               "as comments"]


TRIPLES = "".join(f"<x:{i}> <x:p> <x:{(i * 7 + 1) % 40}> .\n" for i in range(40))


@pytest.fixture
def trained(tmp_path: Path) -> Graph:
    return graph.load([put(tmp_path / "g.nt", TRIPLES)], "triples", TriplesConfig(), None, "g")


def test_literals_and_comments_of_own_triples(tmp_path: Path, caplog: pytest.LogCaptureFixture, trained: Graph) -> None:
    path = put(tmp_path / "own.nt", '<x:1> <x:p> <x:8> .\n<x:1> <x:p> "b" .\n<x:2> <x:p> "c" .\n')
    assert own_triples.read(path, TriplesConfig(), trained).note() == \
        "1 of 3 triples; skipped: 2 with a literal as object"
    kept = own_triples.read(path, TriplesConfig(literals="keep"), trained).note()
    assert kept == "1 of 3 triples; skipped: 2 with an entity unknown to the run"
    caplog.clear()
    path = put(tmp_path / "own.tsv", "x:1\tx:p\tx:8\n# a remark\n")
    own_triples.read(path, TriplesConfig(), trained)
    assert caplog.messages == [f"{path}:2: 1 line begins with a comment mark and a space (`# `, `% `) and is skipped "
                               "as a comment"]


def test_a_table_of_ids_next_to_ntriples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kg").mkdir()
    put(tmp_path / "kg" / "train.nt", TRIPLES)
    table = put(tmp_path / "kg" / "entity2id.txt", "1\nx:1\t0\n")
    graph.load([tmp_path / "kg"], "triples", TriplesConfig(), None, "g")
    assert [line for line in caplog.messages if line.startswith(f"{table}: is skipped, because files of names need")]


# --- messages that name the cause -------------------------------------------------------------------------------------

def read_triples(text: str, folder: Path, trained: Graph, **keys: Any) -> None:
    graph.load([put(folder / "t.txt", text)], "triples", TriplesConfig(**keys), None, "t")


def read_own_triples(text: str, folder: Path, trained: Graph, **keys: Any) -> None:
    own_triples.read(put(folder / "t.txt", text), TriplesConfig(**keys), trained)


@pytest.mark.parametrize("read", [read_triples, read_own_triples])
@pytest.mark.parametrize(("text", "delimiter"), [
    ("a\tr\tb\nb\tr\0s\tc\n", "tab"), ("a,r,b\nb,\"r\0s\",c\n", "comma"), ("a r b\nb r\0s c\n", "space")])
def test_nul_in_a_triple(tmp_path: Path, trained: Graph, read: Callable[..., None], text: str, delimiter: str) -> None:
    with pytest.raises(DataError) as caught:
        read(text, tmp_path, trained, delimiter=delimiter)
    assert str(caught.value) == (
        f"{tmp_path / 't.txt'}:2: 'r\\x00s': contains the control character U+0000; remove it, or, if the file is "
        "UTF-16, convert it to UTF-8, e.g. with iconv -f UTF-16 -t UTF-8")
    with pytest.raises(DataError, match=r"t\.txt:2: 'r\\x01s': contains the control character U\+0001; remove it$"):
        read(text.replace("\0", "\1"), tmp_path, trained, delimiter=delimiter)


def test_control_character_in_a_table_of_ids(tmp_path: Path) -> None:
    for name, text in (("train2id.txt", "1\n0 1 0\n"), ("entity2id.txt", "2\na\0b\t0\nc\t1\n"),
                       ("relation2id.txt", "1\nr\t0\n")):
        put(tmp_path / name, text)
    with pytest.raises(DataError, match=r"entity2id\.txt:2: .*contains the control character U\+0000"):
        graph.load([tmp_path], "triples", TriplesConfig(), None, "t")


def test_an_empty_folder_of_pairs_is_named(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError) as caught:
        read_pairs(tmp_path / "none")
    assert str(caught.value) == (f"{tmp_path / 'none'}: contains no pairs: neither WordNet's data.noun nor a split's "
                                 ".vocab; give the path of the file of pairs")
    for name in ("a.tsv", "b.tsv"):
        put(tmp_path / "none" / name, "a\tb\n")
    with pytest.raises(DataError, match="none: contains no pairs"):
        read_pairs(tmp_path / "none")


@pytest.mark.parametrize(("content", "line"), [
    (b"one\0two three\n", "1 NUL character is read as a space"),
    (b"one\0two\0three\n", "2 NUL characters are read as spaces"),
    (b"caf\xe9 two\n", "1 character is not UTF-8 and is read as U+FFFD; if all of the text is in another encoding, ")])
def test_one_or_several_characters(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, line: str) -> None:
    path = put(tmp_path / "x.txt", content)
    corpus.load([path], "tokens", TextConfig(min_count=1, valid=0, test=0), None, "t")
    assert caplog.messages[0].startswith(f"{path}: {line}")
