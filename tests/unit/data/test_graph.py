"""Files of triples become ids; errors name file and line."""

from __future__ import annotations

import bz2
import gzip
import io
import logging
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.graphs import a_folder, some_triples, write_triples
from hypothesis import given, strategies as st
from pydantic import ValidationError

from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.triples import files as triple_files, graph
from embtrain.data.triples.files import MAX_LINE
from embtrain.data.triples.graph import Graph, TriplesConfig


def load(where: Path | list[Path], cache: Path | None = None, reader: str = "triples", **settings: object) -> Graph:
    return graph.load(where if isinstance(where, list) else [where], reader, TriplesConfig(**settings), cache, "mine")


def names(graph: Graph, part: str) -> list[tuple[str, str, str]]:
    e, r = graph.entities.words, graph.relations.words
    return [(e[h], r[x], e[t]) for h, x, t in graph.part(part).tolist()]


def put(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


# --- layouts -------------------------------------------------------------------------------------------------------

TRAIN, VALID, TEST = "a\tr\tb\na\tr\tc\nb\ts\tc\n", "b\tr\ta\n", "c\ts\ta\n"
ROWS = [("a", "r", "b"), ("a", "r", "c"), ("b", "s", "c")]


def test_ids_are_ordered_by_frequency_and_then_by_name(tmp_path: Path) -> None:
    result = load(put(tmp_path, train=TRAIN + "a\ts\ta\n", valid=VALID, test=TEST))
    assert result.entities.words == ["a", "b", "c"] and result.entities.counts.tolist() == [4, 2, 2]
    assert result.relations.words == ["r", "s"] and result.relations.counts.tolist() == [2, 2]
    assert names(result, "train") == [*ROWS, ("a", "s", "a")] and names(result, "valid") == [("b", "r", "a")]
    assert names(result, "test") == [("c", "s", "a")] and result.first == (4, 5)
    other = load(put(tmp_path, train="b\ts\tc\na\ts\ta\na\tr\tc\na\tr\tb\n"))
    assert other.entities.words == result.entities.words and other.relations.words == result.relations.words


@pytest.mark.parametrize(("text", "settings"), [
    ("a,r,b\na, r ,c\nb,s,c\n", {"delimiter": "comma"}),
    ("a r   b\n\n a\tr c \nb s c", {"delimiter": "space"}),
    ("r\ta\tb\r\nr\ta\tc\r\ns\tb\tc\r\n", {"columns": ["relation", "head", "tail"]}),
    ("b\ta\tr\nc\ta\tr\nc\tb\ts\n", {"columns": ["tail", "head", "relation"]}),
    ("head\trelation\ttail\na\tr\tb\na\tr\tc\nb\ts\tc\n", {"header": True}),
    ("\nhead\trelation\ttail\na\tr\tb\na\tr\tc\nb\ts\tc\n", {"header": True}),
    ("﻿a\tr\tb\na\tr\tc\n   \nb\ts\tc\n", {}),
])
def test_line_layouts(tmp_path: Path, text: str, settings: dict[str, object]) -> None:
    path = tmp_path / "any name at all.tsv"
    path.write_text(text, encoding="utf-8")
    assert names(load(path, valid=0, test=0, **settings), "train") == ROWS


def test_names_may_contain_spaces(tmp_path: Path) -> None:
    assert "New York" in load(put(tmp_path, train="New York\tin\tUS\nUS\tof\tNew York\n"), valid=0, test=0
                              ).entities.words


def archive(folder: Path, kind: str) -> Path:
    """Return the same three files, packed; and one that is not a part."""
    texts = {"kg/readme.md": "no triples", "kg/train.txt": TRAIN, "kg/valid.txt": VALID, "kg/._train.txt": "junk",
             "kg/test.txt": TEST}
    path = folder / f"kg.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as out:
            for name, text in texts.items():
                out.writestr(name, text)
    elif kind == "tar.gz":
        with tarfile.open(path, "w:gz") as out:
            for name, text in texts.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                out.addfile(member, io.BytesIO(text.encode()))
    else:
        path.mkdir()
        for name, text in texts.items():
            (path / f"{Path(name).name}.gz").write_bytes(gzip.compress(text.encode()))
    return path


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "folder"])
def test_archives_and_folders_have_equal_content(tmp_path: Path, kind: str) -> None:
    result = load(archive(tmp_path, kind))
    assert [names(result, part) for part in PARTS] == [ROWS, [("b", "r", "a")], [("c", "s", "a")]]


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_file_within_an_archive_is_read(tmp_path: Path, kind: str, pack: Any) -> None:
    path, data = tmp_path / f"kg.{kind}", pack(b"a\tr\tb\n" * 50)
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr("train.tsv.gz", data)
    else:
        with tarfile.open(path, "w") as tarred:
            member = tarfile.TarInfo("train.tsv.gz")
            member.size = len(data)
            tarred.addfile(member, io.BytesIO(data))
    assert load(path, valid=0, test=0).identity["counts"]["train"] == 1


def test_renamed_file_is_another_part(tmp_path: Path) -> None:
    """Also if the content is in the cache."""
    put(tmp_path, train=TRAIN * 20)
    load(tmp_path / "train.txt", tmp_path / "cache", valid=0, test=0)
    (tmp_path / "train.txt").rename(tmp_path / "test.txt")
    with pytest.raises(DataError, match="is the test split by its name"):
        load(tmp_path / "test.txt", tmp_path / "cache", valid=0, test=0)


# --- openke --------------------------------------------------------------------------------------------------------

OPENKE = {"entity2id": "3\na\t0\nnew york\t2\nb 1\n", "relation2id": "2\nr\t0\ns\t1\n",
          "train2id": "3\n0 1 0\n0 2 0\n1 2 1\n", "valid2id": "1\n1 0 0\n", "test2id": "1\n2 0 1\n"}


def test_ids_and_their_names(tmp_path: Path) -> None:
    result = load(put(tmp_path, **OPENKE), format="openke")
    assert names(result, "train") == [("a", "r", "b"), ("a", "r", "new york"), ("b", "s", "new york")]
    assert names(result, "test") == [("new york", "s", "a")]
    assert names(load(tmp_path, reader="openke"), "train") == names(result, "train")


@pytest.mark.parametrize(("change", "says"), [
    ({"train2id": "3\n0 1 0\n0 2 0\n"}, "train2id.txt:1: declares 3 lines, but 2 follow"),
    ({"train2id": "0 1 0\n0 2 0\n"}, "train2id.txt:1: expected the number of lines that follow, found '0 1 0'"),
    ({"train2id": ""}, "train2id.txt:1: expected the number of lines"),
    ({"train2id": "1\n0 1\n"}, "train2id.txt:2: expected the ids of head, tail and relation, found '0 1'"),
    ({"train2id": "1\n0 -1 0\n"}, ":2: expected the ids"),
    ({"train2id": "1\n0 ١ 0\n"}, ":2: expected the ids"),
    ({"train2id": "2\n0 1 0\n0 3 0\n"}, "train2id.txt:3: id 3 is not one of the 3 entities in entity2id"),
    ({"test2id": "1\n0 1 2\n"}, "test2id.txt:2: id 2 is not one of the 2 relations"),
    ({"entity2id": "2\na\t0\nb\t0\n"}, "entity2id.txt:3: expected a name and a unique id"),
    ({"entity2id": "2\na\t0\nb\t5\n"}, "entity2id.txt: the ids of 2 names should be 0 to 1, but include 5"),
    ({"entity2id": "2\na\t0\na\t1\n"}, "entity2id.txt: contains a name twice"),
    ({"entity2id": "1\na\n"}, "entity2id.txt:2: expected a name and a unique id"),
    ({"relation2id": None}, "there is no file relation2id, which lists the relations"),
    ({"train2id": None}, "and there is none to train on"),
])
def test_invalid_ids_are_reported(tmp_path: Path, change: dict[str, str | None], says: str) -> None:
    put(tmp_path, **{name: text for name, text in (OPENKE | change).items() if text is not None})
    with pytest.raises(DataError) as caught:
        load(tmp_path, format="openke")
    assert says in str(caught.value) and len(str(caught.value).splitlines()) == 1


#: Files that OpenKE puts next to the parts: its triples by kind of relation, and the triples of its filter.
MORE = {"test2id_all": "1\n0\t2 0 1\n", "1-1": "1\n2 0 1\n", "n-n": "0\n", "type_constrain": "2\n0\t1\t2\n0\t1\t3\n"}


@pytest.mark.parametrize("kind", ["folder", "zip"])
@pytest.mark.parametrize("settings", [{}, {"format": "openke"}])
def test_folder_of_openke_is_recognized(tmp_path: Path, kind: str, settings: dict[str, object]) -> None:
    texts = OPENKE | MORE
    path = tmp_path / ("kg.zip" if kind == "zip" else "kg")
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as out:
            for name, text in texts.items():
                out.writestr(f"kg/{name}.txt", text)
    else:
        path.mkdir()
        put(path, **texts)
    result = load(path, **settings)
    assert [len(result.part(part)) for part in PARTS] == [3, 1, 1] and names(result, "test") == [("new york", "s", "a")]
    assert result.identity["settings"]["format"] == "openke"


def test_names_next_to_tables_of_ids_are_read_as_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, train=TRAIN, valid=VALID, test=TEST, entity2id="a\t0\nb\t1\nc\t2\n", relation2id="r\t0\ns\t1\n")
    assert names(load(tmp_path), "train") == ROWS
    assert sum("is skipped, because files of names need no table of ids" in line for line in caplog.messages) == 2


def test_single_file_of_openke_is_rejected_with_the_remedy(tmp_path: Path) -> None:
    put(tmp_path, train2id=OPENKE["train2id"])
    with pytest.raises(DataError, match=r"train2id.txt:1: .*OpenKE's files, give the folder that also contains"):
        load(tmp_path / "train2id.txt")


# --- csv and comments --------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "rows"), [
    ('"Foo, Bar",x,y z\n', [("Foo, Bar", "x", "y z")]),
    ('"a ""b"" c", "r" ,d\n', None),                         # a space after a quote is not CSV
    ('"a ""b"" c", "r",d\r\n', [('a "b" c', "r", "d")]),
    ('5" disk,r,O\'Neil\n\n"","r",b\n', None), ('5" disk,r,O\'Neil\n', [('5" disk', "r", "O'Neil")]),
    ('"two\nlines\n\nand a blank",r,"b\tc"\nd,r,e\n', [("two lines and a blank", "r", "b c"), ("d", "r", "e")]),
    ('\ufeff"a",r,"b"\n', [("a", "r", "b")]), ('a,r,"b', None), ('"a" b,r,c\n', None), ("a,r,b,c\n", None),
    ('"a,r,b",c\n', None), ('"a","r","b"\n', [("a", "r", "b")]), ("a\x07,r,b\n", None),
])
def test_csv_has_quotes(tmp_path: Path, text: str, rows: list[tuple[str, str, str]] | None) -> None:
    path = tmp_path / "kg.csv"
    path.write_text(text, encoding="utf-8", newline="")
    settings: dict[str, object] = {"delimiter": "comma", "valid": 0, "test": 0}
    if rows is None:
        with pytest.raises(DataError, match=r"kg\.csv:\d: "):
            load(path, **settings)
    else:
        assert names(load(path, **settings), "train") == rows


def test_quoted_name_is_bounded_and_errors_report_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text("a,r,b\n" + 'c,r,"' + "d\n" * MAX_LINE)
    with pytest.raises(DataError, match=rf"kg\.csv:2: a quoted name is longer than {MAX_LINE:,} characters; close"):
        load(tmp_path / "kg.csv", delimiter="comma")
    (tmp_path / "kg.csv").write_text('"a\nb",r,c\n"d\ne" f,r,g\n')
    with pytest.raises(DataError, match=r"kg\.csv:3: '\"d' is not CSV .*; close quoted names"):
        load(tmp_path / "kg.csv", delimiter="comma")


def test_line_breaks_in_names_are_counted_and_tabs_have_no_quotes(tmp_path: Path,
                                                                 caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kg.csv").write_text('"a\nb",r,"c\nd"\n')
    load(tmp_path / "kg.csv", delimiter="comma", valid=0, test=0)
    assert f"{tmp_path / 'kg.csv'}:1: line breaks and tabs inside 2 quoted names are read as one space each" \
        in caplog.messages
    assert names(load(put(tmp_path, train='"a"\tr\t"b\n') / "train.txt", valid=0, test=0), "train") == [
        ('"a"', "r", '"b')]


def test_quoted_commas_lead_to_the_correct_delimiter(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"set triples\.delimiter=comma to split it into three"):
        load(put(tmp_path, train='"Foo, Bar",x,y z\n'))


@pytest.mark.parametrize(("delimiter", "between"), [("tab", "\t"), ("comma", ","), ("space", " ")])
def test_comment_needs_a_space_and_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture, delimiter: str,
                                              between: str) -> None:
    rows = [("#nmt", "#r", "%b"), ("//c", "r", ";d"), ("u", "r", "#nmt")]
    text = "# made, by \"hand\n#\n% more\n## yet another one\n" + "".join(between.join(row) + "\n" for row in rows)
    result = load(put(tmp_path, train=text), delimiter=delimiter, valid=0, test=0)
    assert names(result, "train") == rows
    assert [line for line in caplog.messages if "comment" in line] == [
        f"{tmp_path / 'train.txt'}:1: 4 lines begin with a comment mark and a space (`# `, `% `) and are skipped as "
        "comments"]


def test_three_names_are_a_triple_for_any_first_character(tmp_path: Path) -> None:
    assert names(load(put(tmp_path, train="# 1\tr\tb\n"), valid=0, test=0), "train") == [("# 1", "r", "b")]
    for text in ("//no comment\n", "; no comment\n", "#no comment\n"):
        with pytest.raises(DataError, match=r"train.txt:1: expected head"):
            load(put(tmp_path, train=text))


# --- errors --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "says"), [
    ("a\tr\tb\na\tr\n", "train.txt:2: expected head, relation, tail, three names separated by tabs, found "
                        "'a\\tr'"),
    ("a\tr\tb\tc\n", "separated by tabs, found 'a\\tr\\tb\\tc'; remove the fourth column, e.g. with cut -f1-3"),
    ("a\tr\tb\nd\tr\tb\t1\t2\n", ":2: expected head, relation, tail, three names separated by tabs, found "
                                  "'d\\tr\\tb\\t1\\t2'; remove the columns after the third, e.g. with cut"),
    ("a r b\n", ":1: expected head, relation, tail, three names separated by tabs, found 'a r b'; "
                "set triples.delimiter=space to split it into three"),
    ("a,r,b c\n", "found 'a,r,b c'; set triples.delimiter=comma to split it into three"), ("\n\na\t\tb\n", ":3: "),
    ("a\tr\tb\x07\n", ":1: 'b\\x07': contains the control character U+0007; remove it"),
    ("a\tr\t" + "b" * MAX_LINE + "\n", f"longer than {MAX_LINE:,} bytes"),
    ("", "the training split contains no triples"), ("\n \n", "the training split contains no triples"),
    ("a\tr\ta\n", "name 1 entity, so there are no negatives; give a graph with more"),
])
def test_line_that_is_not_a_triple_is_reported(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError) as caught:
        load(put(tmp_path, train=text), valid=0, test=0)
    assert says in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(b"a\tr\tb\nc\tr\t\xff\n")
    with pytest.raises(DataError, match=r"train.txt:2: byte 5 is not UTF-8"):
        load(tmp_path)
    with pytest.raises(DataError, match="file or folder not found"):
        load(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.tsv").write_text(TRAIN)
    assert load(tmp_path / "other", valid=0, test=0).identity["files"] == {"train": ["data.tsv"]}
    (tmp_path / "other" / "more.tsv").write_text(TRAIN)
    with pytest.raises(DataError, match=r"other: contains no file named train, valid or test .*; skipped: data\.tsv, "
                                        r"more\.tsv: its name contains no split.* --set triples\.files\.train="):
        load(tmp_path / "other")
    (tmp_path / "other" / "test.tsv").write_text(TEST)
    with pytest.raises(DataError, match="other: is the test split by its name"):
        load(tmp_path / "other")
    for reader in ("wiki", "auto"):
        with pytest.raises(UsageError, match=f"its recipe's reader is {reader}, which gives no triples"):
            load(tmp_path, reader=reader)


@pytest.mark.parametrize("columns", [["head", "tail"], ["head", "head", "tail"], ["head", "relation", "tail", "tail"]])
def test_missing_column_is_rejected(columns: list[str]) -> None:
    with pytest.raises(ValidationError, match="should contain head, relation and tail once each"):
        TriplesConfig(columns=columns)


@given(st.binary(max_size=80))
def test_any_bytes_end_in_a_data_error_at_worst(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "train.txt"
    path.write_bytes(content)
    for format in ("names", "openke"):
        try:
            load(path, format=format, valid=0, test=0)
        except EmbtrainError as error:
            assert len(str(error).splitlines()) == 1


# --- parts ---------------------------------------------------------------------------------------------------------

def test_single_file_is_split_by_share_and_seed(tmp_path: Path) -> None:
    path = write_triples(tmp_path / "kg.tsv", triples := some_triples(100, 9, 3))
    result = load(path, valid=0.1, test=0.2)
    assert [len(result.part(part)) for part in PARTS] == [70, 10, 20]
    every = [x for part in PARTS for x in names(result, part)]
    assert sorted(every) == sorted((f"e{h}", f"r{r}", f"e{t}") for h, r, t in triples.tolist())
    assert names(load(path, valid=0.1, test=0.2), "test") == names(result, "test")
    assert names(load(path, valid=0.1, test=0.2, split_seed=1), "test") != names(result, "test")
    assert [len(load(path, valid=0, test=0.001).part(part)) for part in PARTS] == [99, 0, 1]


def sparse(n: int, seed: int) -> np.ndarray:
    """Return triples (n, 3) in which many entities, and some relations, occur once."""
    draw = np.random.default_rng(seed)
    rows = np.stack([draw.zipf(1.4, n) % 300, draw.zipf(1.6, n) % 12, draw.zipf(1.4, n) % 300], 1)
    return np.unique(rows, axis=0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("existing_part", [None, "valid", "test"])
def test_transductive_split_keeps_every_entity_and_relation_in_train(tmp_path: Path, seed: int,
                                                                     existing_part: str | None,
                                                                     caplog: pytest.LogCaptureFixture) -> None:
    triples = sparse(600, seed)
    if existing_part:
        write_triples(tmp_path / f"{existing_part}.txt", triples[:3])
    write_triples(tmp_path / "train.txt", triples)
    settings: dict[str, object] = {"valid": 0.1, "test": 0.2, "split_seed": seed}
    result = load(tmp_path, split="transductive", **settings)
    train = result.part("train")
    for part in {"valid", "test"} - {existing_part}:
        rows = result.part(part)
        assert len(rows) == round(float(str(settings[part])) * len(triples))
        assert set(rows[:, [0, 2]].ravel()) <= set(train[:, [0, 2]].ravel()) and set(rows[:, 1]) <= set(train[:, 1])
    assert result.identity["counts"]["unseen"] == 0 and result.identity["settings"]["split"] == "transductive"
    assert sorted(x for part in PARTS if part != existing_part for x in names(result, part)) == sorted(
        (f"e{h}", f"r{r}", f"e{t}") for h, r, t in triples.tolist())
    caplog.clear()
    random = load(tmp_path, **settings)
    assert random.identity["counts"]["unseen"] > 0 and "split" not in random.identity["settings"]
    assert "(triples.unseen); triples.split: transductive avoids them" in caplog.text


def test_both_splits_are_equal_without_rare_names(tmp_path: Path) -> None:
    path = write_triples(tmp_path / "kg.tsv", some_triples(70, 6, 2))
    one, other = (load(path, valid=0.05, test=0.05, split=split) for split in ("random", "transductive"))
    assert [names(one, part) for part in PARTS] == [names(other, part) for part in PARTS]


def test_transductive_split_of_too_few_triples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    star = "".join(f"e0\tr\te{i}\n" for i in range(1, 21))
    result = load(put(tmp_path, train=star + "e1\tr\te2\ne2\tr\te3\n"), split="transductive", valid=0, test=0.4)
    train = result.part("train")
    assert 0 < len(result.part("test")) < 9 and set(train[:, [0, 2]].ravel()) == set(range(21))
    assert f"triples.test: {len(result.part('test'))} triples are held out instead of 9, because the others are" \
        in caplog.text
    with pytest.raises(DataError, match=r"triples\.valid: no triple can be held out .*set triples\.split: random"):
        load(put(tmp_path, train=star), split="transductive")


def test_one_triple_that_is_held_out_is_reported_in_the_singular(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                 ) -> None:
    star = "".join(f"e0\tr\te{i}\n" for i in range(1, 21))
    load(put(tmp_path, train=f"{star}e1\tr\te1\n"), split="transductive", valid=0, test=0.4)
    assert "triples.test: 1 triple is held out instead of 8, because the others are" in caplog.text


def test_single_file_named_as_another_part_is_reported(tmp_path: Path) -> None:
    put(tmp_path, test="a\tr\tb\n", dev="a\tr\tb\n")
    for name, part in (("test.txt", "test"), ("dev.txt", "valid")):
        with pytest.raises(DataError, match=rf"{name}: is the {part} split by its name.* without that word"):
            load(tmp_path / name)


def test_only_the_missing_part_is_split_off(tmp_path: Path) -> None:
    a_folder(tmp_path).joinpath("valid.txt").unlink()
    result = load(tmp_path, valid=0.1, test=0.1)
    assert [len(result.part(part)) for part in PARTS] == [90, 10, 10]


def test_too_few_triples_to_split(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"triples\.test: 2 triples are too few"):
        load(put(tmp_path, train="a\tr\tb\nb\tr\tc\n"))
    with pytest.raises(DataError, match=r"triples\.valid: 1 triple is too few to hold out a share of"):
        load(put(tmp_path, train="a\tr\tb\n"))


def test_names_missing_in_training_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, train=TRAIN, valid=VALID + "d\tr\ta\na\tq\tb\n", test=TEST)
    result = load(tmp_path)
    assert result.identity["counts"]["unseen"] == 2 and len(result.part("valid")) == 3
    assert result.entities.words == ["a", "b", "c", "d"] and result.relations.words == ["r", "s", "q"]
    assert result.entities.counts[-1] == result.relations.counts[-1] == 0
    dropped = load(tmp_path, unseen="drop")
    assert dropped.identity["counts"]["unseen"] == 2 and names(dropped, "valid") == [("b", "r", "a")]
    assert dropped.entities.words == ["a", "b", "c"] and dropped.relations.words == ["r", "s"]
    assert "mine: 2 held-out triples have an entity or a relation that does not occur in training and are kept" \
        in caplog.text
    assert "in training and are removed (triples.unseen)" in caplog.text


def test_repeated_and_leaked_triples_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = load(put(tmp_path, train=TRAIN + "a\tr\tb\n", valid=VALID + VALID, test=TEST + "a\tr\tc\n"))
    assert [len(result.part(part)) for part in PARTS] == [3, 1, 2] and names(result, "train") == ROWS
    assert result.identity["counts"] == {"entities": 3, "relations": 2, "train": 3, "valid": 1, "test": 2,
                                         "repeated": 2, "unseen": 0, "seen": 1}
    assert "2 triples occur twice" in caplog.text and "1 held-out triple is also a training triple" in caplog.text


def test_empty_part_is_reported_with_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(put(tmp_path, train=TRAIN, valid=VALID), test=0)
    assert not caplog.text
    load(put(tmp_path, test="\n"))
    assert [record.getMessage() for record in caplog.records] == [
        "mine: the test split contains no triples, so it is not evaluated"]


@pytest.mark.parametrize(("train", "valid", "expected"), [
    ("subject\tpredicate\tobject\n" + TRAIN, VALID, ["train.txt:1"]),
    ("subject\tpredicate\tobject\n" + TRAIN, "subject\tpredicate\tobject\n" + VALID, ["train.txt:1", "valid.txt:1"]),
    ("subject\tr\tobject\n" + TRAIN, VALID, []),
    ("subject\tpredicate\ta\n" + TRAIN, VALID, []),
    ("subject\tpredicate\tobject\n" + TRAIN, VALID + "a\tpredicate\tb\n", []),
    ("subject\tpredicate\tobject\n" + TRAIN, VALID + "a\tr\tobject\n", []),
    ("d\tt\te\n", "a\tr\tb\n", []),
    ("\nsubject\tpredicate\tobject\n" + TRAIN, VALID, ["train.txt:2"]),
])
def test_line_of_unique_names_may_be_a_header(
        tmp_path: Path, caplog: pytest.LogCaptureFixture, train: str, valid: str, expected: list[str]) -> None:
    load(put(tmp_path, train=train, valid=valid), test=0)
    messages = [record.getMessage() for record in caplog.records if "triples.header=true" in record.getMessage()]
    assert [Path(line.split(": its names occur nowhere else")[0]).name for line in messages] == expected


# --- the cache -----------------------------------------------------------------------------------------------------

def test_second_start_reads_no_triples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, train=TRAIN, valid=VALID + "d\tr\ta\n", test=TEST)
    first = load(tmp_path, tmp_path / "cache")
    caplog.clear()
    monkeypatch.setattr(triple_files, "read", lambda *a: pytest.fail("read again"))
    again = load(tmp_path, tmp_path / "cache", slot="bernoulli", reciprocal=True)
    assert np.array_equal(again.triples, first.triples) and again.first == first.first
    assert again.entities.words == first.entities.words and again.relations.words == first.relations.words
    assert again.entities.counts.tolist() == first.entities.counts.tolist()
    assert {**again.identity, "files": {}} == {**first.identity, "files": {}}        # the cache is in the same folder
    assert "1 held-out triple has an entity" in caplog.text and logging.getLogger("embtrain").name in caplog.text


@pytest.mark.parametrize("settings", [{"unseen": "drop"}, {"header": True}, {"split_seed": 1}, {"valid": 0.2}])
def test_other_settings_read_the_files_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                             settings: dict[str, object]) -> None:
    load(a_folder(tmp_path), tmp_path / "cache")
    monkeypatch.setattr(triple_files, "read", lambda *a: pytest.fail("as it should"))
    with pytest.raises(pytest.fail.Exception, match="as it should"):
        load(tmp_path, tmp_path / "cache", **settings)


def test_file_without_a_part_in_its_name_is_skipped_and_named(tmp_path: Path) -> None:
    files = load(put(tmp_path, train=TRAIN, validate=VALID, eval=TEST, other=TEST)).identity["files"]
    assert files == {"train": ["train.txt"], "valid": ["validate.txt"], "test": ["eval.txt"],
                     "passed over": {"its name contains no split: train, valid or test": ["other.txt"]}}
