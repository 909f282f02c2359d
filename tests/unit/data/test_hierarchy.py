"""Hierarchies against networkx, and their files: every error is one line with its place, nothing is skipped."""

from __future__ import annotations

import gzip
import itertools
import os
import tarfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from embtrain.common.errors import DataError, EmbtrainError, ResourceError
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.hierarchy import closure, files as pair_files, wordnet, wordnet_yaml
from embtrain.data.hierarchy.closure import PairSet
from embtrain.data.hierarchy.examples import Hierarchy, PairExamples, PairsConfig, load
from embtrain.data.hierarchy.files import RawHierarchy

NAMES = [f"c{i}" for i in range(40)]
DAGS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda p: p[0] != p[1]), min_size=1,
                max_size=30).map(lambda pairs: np.array(sorted({(max(p), min(p)) for p in pairs}), np.int64))


def graph(pairs: np.ndarray) -> networkx.DiGraph:
    return networkx.DiGraph(list(map(tuple, pairs.tolist())))


def pairs_of(edges: object) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in edges}  # type: ignore[attr-defined]


@given(DAGS)
def test_closure_paths_and_reduction_match_networkx(pairs: np.ndarray) -> None:
    want, above = graph(pairs), closure.closure_with_paths(pairs, 12, NAMES, "x")
    assert pairs_of(above.pairs) == pairs_of(networkx.transitive_closure_dag(want).edges)
    for (u, v), paths in zip(above.pairs.tolist(), above.paths.tolist(), strict=True):
        assert paths == sum(1 for _ in networkx.all_simple_paths(want, u, v))
    assert pairs_of(closure.reduction(pairs, above.pairs, 12)) == pairs_of(networkx.transitive_reduction(want).edges)
    cases = np.stack(np.meshgrid(np.arange(12), np.arange(12)), -1).reshape(-1, 2)
    held = PairSet(above.pairs, 12).contains(cases)
    assert held.tolist() == closure.is_implied(pairs, cases, 12).tolist()
    assert pairs_of(cases[held]) == pairs_of(above.pairs)


def test_cycle_is_shown_from_hyponym_to_hypernym() -> None:
    pairs = np.array([[0, 1], [1, 2], [2, 0], [3, 0]])
    with pytest.raises(DataError) as caught:
        closure.closure(pairs, 4, NAMES, "animals.tsv")
    shown = str(caught.value).partition("cycle: ")[2].partition(";")[0].split(" < ")
    assert str(caught.value).startswith("animals.tsv: ") and len(shown) == 4 and shown[0] == shown[-1]
    assert all([NAMES.index(a), NAMES.index(b)] in pairs.tolist() for a, b in itertools.pairwise(shown))


def test_long_cycle_is_abbreviated() -> None:
    n = np.arange(40)
    with pytest.raises(DataError) as caught:
        closure.topological_order(np.stack([n, (n + 1) % 40], 1), 40, NAMES, "x")
    assert str(caught.value).count("<") == 9 and " < ... < " in str(caught.value)


def test_too_large_closure_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closure, "MAX_PAIRS", 700)
    chain = np.stack([np.arange(1, 40), np.arange(39)], 1)
    with pytest.raises(ResourceError, match="more than 700 pairs"):
        closure.closure(chain, 40, NAMES, "x")


def test_root_is_above_all_concepts_without_a_hypernym() -> None:
    rooted = closure.add_root(np.array([[0, 1], [2, 3]]), 5, 4)
    assert pairs_of(rooted) == {(0, 1), (2, 3), (1, 4), (3, 4)}


# --- files of pairs ------------------------------------------------------------------------------------------------

def table(folder: Path, text: str | bytes) -> Path:
    path = folder / "pairs.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_pairs_of_names_packed_or_not(tmp_path: Path) -> None:
    text = "dog\tcanine\r\n\ncanine\tanimal\ndog\tanimal\n"
    path = table(tmp_path, text)
    packed = tmp_path / "pairs.tsv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    for source in (path, packed):
        read = pair_files.read_table(source)
        assert read.concepts == ["dog", "canine", "animal"] and read.pairs.tolist() == [[0, 1], [1, 2], [0, 2]]
        assert not read.direct


@pytest.mark.parametrize(("text", "concepts"), [
    ("dog,pet\n", ["dog", "pet"]), ("dog;pet\n", ["dog", "pet"]), ('"dog, big", pet\n', ["dog, big", "pet"]),
    ("dog, big\tpet; tame\n", ["dog, big", "pet; tame"]), ("a,b;c\nd,e;f\n", ["a", "b;c", "d", "e;f"]),
    ("a\tb\t\t\nc\td\n", ["a", "b", "c", "d"]), ("a,b,\nc,d,\n", ["a", "b", "c", "d"]), ("a;b\t\n", ["a", "b"])])
def test_csv_and_tab_files_of_pairs(tmp_path: Path, text: str, concepts: list[str]) -> None:
    read = pair_files.read_table(table(tmp_path, text))
    assert read.concepts == concepts and read.pairs.tolist() == [[i, i + 1] for i in range(0, len(concepts), 2)]


@pytest.mark.parametrize(("first", "rest", "skipped"), [
    ("Hyponym,Hypernym", "dog,pet\ncat,pet\n", True), ("child\tparent", "dog\tpet\ncat\tpet\n", True),
    ("# child\tparent", "dog\tpet\ncat\tpet\n", True),
    ("child,parent", "parent,relative\n", False), ("dog,pet", "oak,tree\n", False), ("child,parent", "", False)])
def test_line_of_column_names_is_skipped_with_a_warning(
    tmp_path: Path, first: str, rest: str, skipped: bool
) -> None:
    read = pair_files.read_table(table(tmp_path, f"\n{first}\n{rest}"))
    names = {name for line in (rest if skipped else f"{first}\n{rest}").splitlines()
             for name in line.replace("\t", ",").split(",")}
    assert set(read.concepts) == names and read.pairs.max() == len(names) - 1 and read.pairs.min() == 0
    assert ("pairs.tsv:2: " in "".join(read.warnings) and "are names of columns and are skipped" in read.warnings[0]
            ) == skipped
    is_alone = first == "dog,pet"  # its names are in no other line, and name no columns
    assert ("pairs.tsv:2: 'dog' and 'pet' occur in no other pair; remove" in "".join(read.warnings)) == is_alone


@pytest.mark.parametrize(("text", "line", "says"), [
    ("a\tb\na b\n", 2, "a TAB and its hypernym, got 'a b'"),
    ("a\tb\tc\n", 1, "got 'a\\tb\\tc'; keep two of its 3 columns"),
    ("a\t\n", 1, "a TAB and its hypernym"), ("a\tb\nb\tb\n", 2, "its own hypernym"),
    (b"a\tb\n\xff\tc\n", 2, "byte 1 is not UTF-8; convert it to UTF-8, e.g. with iconv -f WINDOWS-1252 -t UTF-8"),
    ("a\tb\n".encode("utf-16"), 1, "iconv -f UTF-16 -t UTF-8"), ("", None, "contains no pairs"),
    ("a;b\na,b,c\n", 2, "a semicolon and its hypernym, got 'a,b,c'"),
    ("a,b,c\n", 1, "a comma and its hypernym, got 'a,b,c'; keep two of its 3 columns"),
    ("a,b\n\"c,d\n", 2, "a comma and its hypernym"),
    *((f"{mark}parent,child\na,b\n", 1, "the columns are parent and child; put the child into the first one")
      for mark in ("", "# ")),
    ("a\tb\tc\t\n", 1, "keep two of its 3 columns"),
])
def test_line_that_is_not_a_pair_is_named(tmp_path: Path, text: str | bytes, line: int | None, says: str) -> None:
    with pytest.raises(DataError) as caught:
        pair_files.read_table(table(tmp_path, text))
    assert (f"pairs.tsv:{line}: " if line else "pairs.tsv: ") in str(caught.value) and says in str(caught.value)


PARTS = {"vocab": "0\troot\n1\ta\n2\tb\n3\tc\n4\td\n", "train_0percent": "0\t1\n0\t4\n1\t2\n2\t3\n",
         "train_10percent": "0\t1\n0\t4\n1\t2\n2\t3\n0\t3\n", "valid": "0\t2\n", "test": "1\t3\n",
         "valid_neg": "4\t2\n0\t0\n3\t2\n", "test_neg": "1\t4\n4\t3\n"}


def published(folder: Path, **changed: str | None) -> Path:
    for part, text in (PARTS | changed).items():
        if text is not None:
            (folder / f"x.tsv.{part}").write_text(text)
    return folder


def test_published_split_is_read_hyponym_first(tmp_path: Path) -> None:
    read = pair_files.read_split(
        pair_files.find_split_files(sorted(published(tmp_path, valid_neg="4\t2\n3\t2\n").iterdir()))
    )
    assert read.concepts == ["root", "a", "b", "c", "d"] and read.pairs.tolist() == [[1, 0], [4, 0], [2, 1], [3, 2]]
    assert read.published is not None and sorted(read.published.train) == [0, 10]
    assert read.published.held["valid"].tolist() == [[2, 0]]
    assert read.published.negatives["valid"].tolist() == [[[2, 4], [2, 3]]]
    assert read.published.negatives["test"].tolist() == [[[4, 1], [3, 4]]]


@pytest.mark.parametrize(("changed", "says"), [
    ({"valid": None}, "no file .valid"), ({"vocab": "0\troot\n2\ta\n"}, "x.tsv.vocab:2: should be 1"),
    ({"vocab": "0\ta\n1\ta\n"}, "contains a concept twice; remove "
                                "one"), ({"test": "1\t9\n"}, "x.tsv.test:1: should be two ids"),
    ({"test": "1\t-1\n"}, "x.tsv.test:1"), ({"test": "1 3\n"}, "x.tsv.test:1"),
    ({"test": "2\t2\n"}, "its own hypernym"),
    ({"test_neg": "1\t2\n"}, ""), ({"test_neg": "0\t2\n"}, "share neither end"), ({"valid_neg": ""}, "contains no "
                                                                                                     "pairs"),
    ({"test": "1\t3\n0\t3\n", "test_neg": "1\t4\n4\t3\n0\t4\n"}, "cannot be divided among the 2"),
])
def test_incomplete_split_is_rejected(tmp_path: Path, changed: dict[str, str | None], says: str) -> None:
    folder = published(tmp_path, **({"valid_neg": "4\t2\n"} | changed))
    if not says:
        pair_files.read_split(pair_files.find_split_files(sorted(folder.iterdir())))
        return
    with pytest.raises(DataError) as caught:
        pair_files.read_split(pair_files.find_split_files(sorted(folder.iterdir())))
    assert says in str(caught.value) and "\n" not in str(caught.value)


# --- WordNet -------------------------------------------------------------------------------------------------------

HEAD = "  1 This software and database is being provided to you\n"
DATA = HEAD + """00000100 03 n 01 entity 0 001 ~ 00000200 n 0000 | what is
00000200 03 n 02 Animal 0 beast 1 002 @ 00000100 n 0000 ~ 00000300 n 0000 | a living thing
00000300 05 n 01 dog 0 002 @ 00000200 n 0000 + 00000900 v 0101 | barks | loudly
00000400 05 n 01 dog 1 001 @ 00000100 n 0000 | a fellow
00000500 18 n 01 laika 0 002 @i 00000300 n 0000 @ 00000200 n 0000 | flew
"""
INDEX = HEAD + """animal n 1 2 @ ~ 1 0 00000200
beast n 1 1 @ 1 0 00000200
dog n 2 1 @ 2 1 00000400 00000300
entity n 1 1 ~ 1 0 00000100
laika n 1 2 @ @i 1 0 00000500
"""


def database(folder: Path, data: str = DATA, index: str = INDEX) -> Path:
    (folder / "data.noun").write_text(data)
    (folder / "index.noun").write_text(index)
    return folder


def test_synsets_have_the_names_of_nltk(tmp_path: Path) -> None:
    read = wordnet.read(database(tmp_path))
    assert read.concepts == ["entity.n.01", "animal.n.01", "dog.n.02", "dog.n.01", "laika.n.01"] and read.direct
    assert read.pairs.tolist() == [[1, 0], [2, 1], [3, 0], [4, 2], [4, 1]]
    assert read.words == {"animal": [1], "beast": [1], "dog": [3, 2], "entity": [0], "laika": [4]}


def packed(folder: Path, name: str, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return folder / name


def test_database_is_read_from_an_archive(tmp_path: Path) -> None:
    """As in NLTK's archive, with any other files and in any order."""
    folder = wide_database(tmp_path)
    members = {f"wordnet/{name}": (folder / name).read_text() for name in ("data.noun", "index.noun")}
    packed_path = packed(tmp_path, "wordnet.zip", {"wordnet/data.verb": "not read", **members})
    in_archive, in_folder = (load([where], PairsConfig(valid=3, test=3), "x") for where in (packed_path, folder))
    in_archive.identity["sha256"] = in_folder.identity["sha256"]  # that of the archive, and that of the files
    assert content(in_archive) == content(in_folder)
    with tarfile.open(tmp_path / "wordnet.tar.gz", "w:gz") as archive:
        archive.add(folder / "index.noun", "dict/index.noun")
        archive.add(folder / "data.noun", "dict/data.noun")
    assert wordnet.read(tmp_path / "wordnet.tar.gz").pairs.tolist() == wordnet.read(folder).pairs.tolist()


@pytest.mark.parametrize(("members", "says"), [
    ({"data.noun": DATA}, "contains no index.noun, but data.noun and index.noun are needed together"),
    ({"a/data.noun": DATA, "b/data.noun": DATA, "a/index.noun": INDEX}, "a/data.noun and .*x.zip:b/data.noun; unpack"),
    ({"data.noun": DATA.replace("n 02 Animal", "n 03 Animal"), "index.noun": INDEX}, "x.zip:data.noun:3: is not a"),
])
def test_archive_without_a_complete_database_reports_what_is_missing(tmp_path: Path, members: dict[str, str], says: str
                                                                   ) -> None:
    archive = packed(tmp_path, "x.zip", members)
    with pytest.raises(DataError, match=says) as caught:
        load([archive], PairsConfig(protocol="legacy"), "x")
    assert str(caught.value).startswith(str(archive)) and "\n" not in str(caught.value)


def test_file_of_nouns_only_requests_its_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.noun: contains no index\.noun.*give the folder"):
        load([database(tmp_path) / "data.noun"], PairsConfig(protocol="legacy"), "x")


def wide_database(folder: Path) -> Path:
    """Return forty synsets, of which every third is a second sense of `dog`."""
    at = [f"{100 * (i + 1):08d}" for i in range(40)]
    words = ["dog" if i % 3 == 2 else f"w{i}" for i in range(40)]
    up = [f"001 @ {at[(i - 1) // 2]} n 0000" if i else "000" for i in range(40)]
    data = "".join(f"{at[i]} 03 n 01 {words[i]} 0 {up[i]} | x\n" for i in range(40))
    senses = {word: [a for a, w in zip(at, words, strict=True) if w == word] for word in words}
    return database(folder, data, "".join(f"{word} n {len(ids)} 1 @ {len(ids)} 0 {' '.join(ids)}\n"
                                          for word, ids in sorted(senses.items())))


def test_hierarchy_is_read_and_split_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          caplog: pytest.LogCaptureFixture) -> None:
    """The cached result equals the uncached one for all settings; other bytes or settings are read again, and damaged
    files are rebuilt."""
    path, cache = wide_database(tmp_path), tmp_path / "cache"
    split_folder = tmp_path / "given"
    split_folder.mkdir()
    cases = [([path], PairsConfig(valid=3, test=3), None), ([path], PairsConfig(valid=3, test=3, split_seed=1), None),
             ([path], PairsConfig(valid=3, test=3, split="node"), "top"),
             ([path], PairsConfig(protocol="legacy"), None),
             ([published(split_folder, valid_neg="4\t2\n0\t2\n")], PairsConfig(protocol="given", percent=10), None)]
    plain = [load(*one[:2], "x", one[2]) for one in cases]
    assert {len(one.words) for one in plain} == {28, 0} and plain[0].words["dog"] == list(range(2, 40, 3))
    for _ in range(2):
        assert [content(load(*one[:2], "x", one[2], cache)) for one in cases] == list(map(content, plain))
        monkeypatch.setattr(wordnet, "read", None)                       # None cannot be called
        monkeypatch.setattr(pair_files, "_ids", None)
    assert len(list(cache.iterdir())) == len({str(content(one)) for one in plain}) == 5
    monkeypatch.undo()
    for folder in cache.iterdir():
        file = folder / "arrays.safetensors"
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert [content(load(*one[:2], "x", one[2], cache)) for one in cases] == list(map(content, plain))
    assert caplog.text.count("damaged; they are rebuilt") == 5
    (path / "data.noun").write_text((path / "data.noun").read_text().replace("| x", "| y"))
    assert load(*cases[0][:2], "x", None, cache).identity["sha256"] != plain[0].identity["sha256"]
    assert len(list(cache.iterdir())) == 6


def content(loaded: Hierarchy) -> list[object]:
    """Return all data of a hierarchy, including its types."""
    split = loaded.split
    arrays = [split.train, *(x for held in split.held.values() for x in (held.pairs, held.negatives))]
    return [loaded.concepts, dict(loaded.words), loaded.identity, list(split.held),
            [(x.dtype, x.tolist()) for x in arrays],
            [(held.leak, held.implied, held.false_negatives) for held in split.held.values()]]


@pytest.mark.parametrize(("file", "change", "says"), [
    ("data", ("@ 00000200 n 0000 +", "@ 00000777 n 0000 +"), "data.noun:4: points to 00000777"),
    ("data", ("n 02 Animal", "n 03 Animal"), "data.noun:3: is not a"),
    ("data", ("002 @ 00000100", "xx @ 00000100"), "data.noun:3:"),
    ("data", ("002 @ 00000100", "999999999999 @ 00000100"), "data.noun:3:"),  # and in no time
    ("data", ("05 n 01 dog 1", "05 v 01 dog 1"), "data.noun:5"),
    ("data", ("00000400", "00000300"), "occurs twice"),
    ("data", ("01 laika 0", "01 sputnik 0"), "'sputnik' at 00000500 is not a sense"),
    ("index", ("dog n 2", "dog n 3"), "index.noun:4"), ("index", ("beast n 1", "animal n 1"), "index.noun:3"),
    ("index", ("beast n 1 1", "beast n one 1"), "index.noun:3"),
    ("index", ("1 0 00000200\ndog", "1 0 00000888\ndog"), "index.noun: 'beast' refers to 00000888"),
])
def test_damaged_database_reports_file_and_line(tmp_path: Path, file: str, change: tuple[str, str], says: str) -> None:
    data, index = (text.replace(*change, 1) if name == file else text for name, text in (("data", DATA),
                                                                                          ("index", INDEX)))
    with pytest.raises(DataError) as caught:
        wordnet.read(database(tmp_path, data, index))
    assert says in str(caught.value) and "\n" not in str(caught.value)


# --- Open English WordNet ------------------------------------------------------------------------------------------

NOUNS = """00000100-n:
  definition:
  - that which is, or
    - so it seems - was
  members:
  - entity
  partOfSpeech: n
00000300-n:
  hypernym:
  - 00000200-n
  - 00000100-n
  members:
  - Dog
  - domestic dog
  source: Someone
"""
ANIMALS = """00000200-n:
  ili: i1
  hypernym:
  - 00000100-n
  members:
  - 'o''beast'
00000400-n:
  instance_hypernym:
  - 00000300-n
  members:
  - dog
"""
ENTRIES = """Dog:
  n:
    sense:
    - id: 'dog%1:05:00::'
      synset: 00000400-n
    - synset: 00000300-n
dog:
  n-1:
    sense:
    - derivation:
      - 'dog%2:00:00::'
      id: 'dog%1:05:01::'
      synset: 00000300-n
  v:
    sense:
    - id: 'dog%2:00:00::'
      synset: 00000900-v
domestic dog:
  n:
    sense:
    - synset: 00000300-n
entity:
  n:
    sense:
    - synset: 00000100-n
'o''beast':
  n:
    sense:
    - synset: 00000200-n
"""


def yaml_source(folder: Path, nouns: str = NOUNS, entries: str = ENTRIES, animals: str = ANIMALS) -> Path:
    (folder / "yaml").mkdir()
    for name, text in (("noun.Tops", nouns), ("noun.animal", animals), ("entries-d", entries), ("verb.body", "x")):
        (folder / "yaml" / f"{name}.yaml").write_text(text)
    return folder / "yaml"


def test_open_english_wordnet_is_read_from_a_folder_and_from_an_archive(tmp_path: Path) -> None:
    folder = yaml_source(tmp_path)
    with tarfile.open(tmp_path / "source.tar.gz", "w:gz") as archive:
        archive.add(folder, "src/yaml")
    for where in (folder, tmp_path / "source.tar.gz"):
        assert wordnet_yaml.is_source([where])
        read = wordnet_yaml.read([where])
        assert read.concepts == ["entity.n.01", "dog.n.02", "o'beast.n.01", "dog.n.01"]
        assert read.pairs.tolist() == [[1, 2], [1, 0], [2, 0], [3, 1]] and read.direct
        assert read.words == {"dog": [3, 1], "domestic_dog": [1], "entity": [0], "o'beast": [2]}
    with pytest.raises(DataError, match="too few to hold some out"):          # located, and read
        load([folder], PairsConfig(), "x")
    (tmp_path / "other").mkdir()
    assert not wordnet_yaml.is_source([published(tmp_path / "other")])


@pytest.mark.parametrize(("file", "change", "says"), [
    ("nouns", ("00000300-n:", "00000100-n:"), "noun.Tops.yaml:8: should be a noun's synset"),
    ("nouns", ("00000300-n:", "00000300-v:"), "noun.Tops.yaml:8: should be a noun's synset"),
    ("nouns", ("00000300-n:", "00000300-n"), "noun.Tops.yaml:8: should be a key"),
    ("nouns", ("  - 00000200-n", "  - *loop"), "noun.Tops.yaml:10: should be a word"),
    ("nouns", ("  - 00000200-n", "  - 00000777-n"), "noun.Tops.yaml:10: points to 00000777-n"),
    ("nouns", ("  - 00000200-n", "  - dog"), "noun.Tops.yaml:10: should be the synset"),
    ("nouns", ("  members:\n  - Dog\n  - domestic dog\n", ""), "00000300-n has no members"),
    ("nouns", ("  - Dog", "  - &a Dog"), "should be a word"),
    ("nouns", ("  - Dog", "  - cat"), "'cat' of 00000300-n is not a sense"),
    ("animals", ("  - dog", '  - "dog"'), "should be a word, in single quotes or none"),
    ("entries", ("    - synset: 00000100-n", "    - synset: 00000888-n"), "'entity' of 00000100-n is not a sense"),
    ("entries", ("  v:\n", "  v: {}\n"), "entries-d.yaml:14: should be a key"),
    ("entries", ("Dog:\n", ""), "entries-d.yaml:1: should be a part of speech"),
    ("entries", ("    - synset: 00000200-n", "    - synset: 00000200-n\n    - synset: 00000888-n"),
     "a file is missing"),
])
def test_damaged_source_reports_file_and_line(tmp_path: Path, file: str, change: tuple[str, str], says: str) -> None:
    texts = {name: text.replace(*change, 1) if name == file else text
             for name, text in (("nouns", NOUNS), ("entries", ENTRIES), ("animals", ANIMALS))}
    with pytest.raises(DataError) as caught:
        wordnet_yaml.read([yaml_source(tmp_path, **texts)])
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_source_of_the_recipe_has_the_stated_content() -> None:
    recipe = load_recipe("corpora", "open-english-wordnet")
    place = os.environ.get("EMBTRAIN_DATA_MIRROR", "")
    path = Path(place) / (recipe.files[0].mirror or "")
    if not place or not path.is_file():
        pytest.skip("data: oewn-src-yaml.tar.gz is not in EMBTRAIN_DATA_MIRROR")
    read = wordnet_yaml.read([path])
    assert (len(read.concepts), len(read.pairs)) == (recipe.expected.concepts, recipe.expected.pairs)
    top = set(range(len(read.concepts))) - set(read.pairs[:, 0].tolist())
    assert [read.concepts[i] for i in top] == [recipe.root]


@pytest.mark.long
@pytest.mark.parametrize(("name", "protocol", "concepts", "lines", "leak"), [
    pytest.param("wordnet-nouns", "clean", 82_115, 743_241, 0, marks=pytest.mark.slow),
    ("wordnet-mammals", "clean", 1_180, 6_540, 0)])
def test_hierarchies_of_the_recipes_have_their_counts(name: str, protocol: str, concepts: int, lines: int,
                                                      leak: float) -> None:
    check_hierarchy(name, protocol, concepts, lines, leak)


def check_hierarchy(name: str, protocol: str, concepts: int, lines: int, leak: float) -> None:
    """With a root above all; under `legacy` a line for each path, and the share of test pairs that are in train, too.
    """
    recipe = load_recipe("corpora", name)
    place = os.environ.get("EMBTRAIN_DATA_MIRROR", "")
    where = [Path(place) / (file.mirror or "") for file in recipe.files]
    if not place or not all(path.is_file() for path in where):
        pytest.skip("data: EMBTRAIN_DATA_MIRROR lacks this hierarchy")
    result = load(where, PairsConfig(protocol=protocol), name, recipe.root)  # type: ignore[arg-type]
    counts, held = result.identity["counts"], result.split.held
    assert counts["concepts"] == len(result.concepts) == concepts == (recipe.expected.concepts or 0) + 1
    assert counts["pairs read"] == recipe.expected.pairs
    assert len(result.split.train) + sum(map(len, held.values())) == lines and held["test"].leak == leak


# --- hostile input -------------------------------------------------------------------------------------------------

LINES = st.text(st.sampled_from("ab01234 \t\n@n~|.-é\x00\r"), max_size=60)


@settings(max_examples=150)
@given(st.binary(max_size=60) | LINES.map(str.encode), st.sampled_from(
    ["table", *PARTS, "data", "index", "noun.Tops.yaml", "entries-d.yaml"]))
def test_any_bytes_end_in_one_line_at_worst(tmp_path_factory: pytest.TempPathFactory, content: bytes,
                                            which: str) -> None:
    folder = tmp_path_factory.mktemp("fuzz", numbered=True)
    if which == "table":
        where = table(folder, content)
    elif which in PARTS:
        where = published(folder, valid_neg="4\t2\n")
        (folder / f"x.tsv.{which}").write_bytes(content)
    elif which.endswith(".yaml"):
        where = yaml_source(folder)
        (where / which).write_bytes(content)
    else:
        where = database(folder)
        (folder / f"{which}.noun").write_bytes(content)
    try:
        load([where], PairsConfig(valid=1, test=1), "fuzz")
    except EmbtrainError as error:
        assert error.code in (2, 3, 4) and "\n" not in str(error)


def test_input_that_is_not_a_hierarchy_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("nothing")
    (tmp_path / "more.txt").write_text("nothing")
    with pytest.raises(DataError, match=r"neither WordNet's data\.noun nor a split's"):
        load([tmp_path], PairsConfig(), "x")
    with pytest.raises(DataError, match="file or folder not found"):
        load([tmp_path / "gone.tsv"], PairsConfig(), "x")


def test_reading_does_not_change_its_input() -> None:
    read = RawHierarchy(["a", "b"], np.array([[0, 1]]))
    assert read.direct and read.published is None


def test_threads_that_read_blocks_order_the_epoch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    train = np.arange(400).reshape(200, 2)
    of, new_rows, epochs = PairExamples(train, "random", 1), PairExamples._new_rows, list[int]()

    def slow(self: PairExamples, epoch: int, shuffle: bool) -> np.ndarray:
        epochs.append(epoch)
        time.sleep(0.02)
        return new_rows(self, epoch, shuffle)

    monkeypatch.setattr(PairExamples, "_new_rows", slow)
    with ThreadPoolExecutor(4) as pool:
        blocks = list(pool.map(lambda number: next(of.blocks(1, 50, number)), range(4)))
    assert epochs == [1]
    expected = next(PairExamples(train, "random", 1).blocks(1, 200))
    assert np.concatenate([block.target for block in blocks]).tolist() == expected.target.tolist()
