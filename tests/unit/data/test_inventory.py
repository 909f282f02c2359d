"""Parts of a corpus (train, valid, test) and skipped files: every task, on folders as users have them."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from embtrain.common.errors import DataError, UsageError
from embtrain.data.inventory import inventory
from embtrain.data.inventory.inventory import FileRules, FilesConfig, build_inventory
from embtrain.data.labels import examples as labelled
from embtrain.data.labels.sparse import LabelsConfig, split_documents
from embtrain.data.parallel import corpus as parallel
from embtrain.data.parallel.corpus import ParallelConfig
from embtrain.data.parallel.files import ParallelLayout
from embtrain.data.text import corpus as text, streams
from embtrain.data.text.corpus import TextConfig
from embtrain.data.text.streams import LanguageConfig
from embtrain.data.triples import graph
from embtrain.data.triples.graph import TriplesConfig
from embtrain.data.walks.walks import WalksConfig, load as load_walks

BACKUP = "a backup copy or an unfinished file"
NO_PART = "its name contains no split: train, valid or test"


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def lm(folder: Path, **config: object) -> text.Corpus:
    return streams.load([folder], "auto", LanguageConfig(min_count=1, **config), None, "mine")  # type: ignore[arg-type]


def words(corpus: text.Corpus, part: int) -> list[str]:
    bounds = (0, *(corpus.parts or ()), len(corpus.document) - 1)
    ids = corpus.ids[corpus.document[bounds[part]]:corpus.document[bounds[part + 1]]]
    return [corpus.vocabulary.words[i] for i in ids.tolist() if corpus.vocabulary.words[i] != "<eos>"]


# --- text -----------------------------------------------------------------------------------------------------------

LEAK = {"train.txt": "a b <unk> d e\n" * 300, "valid.txt": "b c d e a\n" * 100,
        "test.txt": "zebra yak xerus a b\n" * 300}


@pytest.mark.parametrize("names", [("train.txt", "valid.txt", "test.txt"),
                                   ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
                                   ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
                                   ("train/1.txt", "dev/1.txt", "test/1.txt"), ("trainset", "devset", "testset"),
                                   ("wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"),
                                   ("train.txt.gz", "tune.txt", "xmltest.txt")])
def test_three_files_of_a_language_model_are_the_three_parts(tmp_path: Path, names: tuple[str, ...]) -> None:
    files = {name: gzip.compress(content.encode()) if name.endswith(".gz") else content
             for name, content in zip(names, LEAK.values(), strict=True)}
    corpus = lm(put(tmp_path, files))
    assert [len(words(corpus, part)) for part in range(3)] == [1500, 500, 1500]
    assert not {"zebra", "yak", "xerus", "c"} & set(corpus.vocabulary.words)
    assert list(corpus.identity["files"].items()) == [
        (part, [name]) for part, name in zip(("train", "valid", "test"), names, strict=True)]


def test_missing_part_is_drawn_from_the_training_text(tmp_path: Path) -> None:
    put(tmp_path, {f"train{i}.txt": f"w{i} x y z v\n" * 20 for i in range(30)} | {"test.txt": "zebra x y z v\n" * 20})
    corpus = text.load([tmp_path], "auto", TextConfig(min_count=1, valid=0.1, test=0.1), None, "mine")
    train, valid, test = text.split(corpus, TextConfig())
    assert [len(part.document) - 1 for part in (train, valid, test)] == [27, 3, 1]
    assert "zebra" not in corpus.vocabulary.words and len(test.ids) == 80


def test_an_empty_file_keeps_its_part(tmp_path: Path) -> None:
    """An empty document ends where it begins, at the begin of the next one, which may be of another part."""
    put(tmp_path, {f"a{i:02}.txt": f"w{i} x y z v\n" * 20 * (i < 29) for i in range(30)} | {"test.txt": "v z y x\n"})
    corpus = text.load([tmp_path], "auto", TextConfig(min_count=1, valid=0.1, test=0), None, "mine")
    assert corpus.parts is not None
    assert np.diff([0, *corpus.parts, len(corpus.document) - 1]).tolist() == [27, 3, 1]


def test_files_without_an_extension_are_read_if_they_are_text(tmp_path: Path) -> None:
    put(tmp_path, {"AA/wiki_00": "one two\n", "AA/wiki_01": "three\n", "part-00000": "four\n", "news.en": "five\n",
                   "blob": bytes(range(256)) * 20, "table.csv": "a,b\n", "x.zst": b"\x28\xb5\x2f\xfd....",
                   "page.html": "<p>x</p>", "data.jsonl": "{}\n", "readme.txt": "notes about the corpus\n",
                   "word.xyz": "six\n", "d.tar": b""})
    (tmp_path / "d.tar").unlink()
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("in/seven.txt.gz", gzip.compress(b"seven\n"))
        archive.writestr("in/more.zip", b"PK")
    corpus = text.load([tmp_path], "auto", TextConfig(min_count=1, valid=0, test=0), None, "mine")
    assert sorted(corpus.vocabulary.words) == ["five", "four", "one", "seven", "three", "two"]
    assert corpus.identity["files"]["passed over"] == {
        "not UTF-8 text": ["blob"], "JSON, not running text": ["data.jsonl"],
        "marked-up text; convert it to plain text": ["page.html"], "documentation": ["readme.txt"],
        "a table, not running text": ["table.csv"], "an unknown suffix, .xyz": ["word.xyz"],
        "compressed in an unsupported form; unpack it first: zstd -d": ["x.zst"],
        "an archive inside an archive": ["in/more.zip"]}


def test_text_in_two_forms_is_rejected_and_a_copy_is_read_once(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": "one two\n", "a.txt.gz": gzip.compress(b"one two\n")})
    config = TextConfig(min_count=1, valid=0, test=0)
    corpus = text.load([tmp_path], "auto", config, None, "mine")
    assert len(corpus) == 2 and corpus.identity["files"]["passed over"] == {"the same content as a.txt": ["a.txt.gz"]}
    put(tmp_path, {"a.txt.gz": gzip.compress(b"other\n")})
    with pytest.raises(DataError, match=r"a\.txt and a\.txt\.gz seem to contain one split in two forms; .* "
                                        r"--set text\.files\.skip='\[\"a\.txt\.gz\"\]'$"):
        text.load([tmp_path], "auto", config, None, "mine")
    skipped = config.model_copy(update={"files": FilesConfig(skip=["a.txt.gz"])})
    assert text.load([tmp_path], "auto", skipped, None, "mine").identity["files"]["passed over"] == {
        "matches text.files.skip": ["a.txt.gz"]}


def test_patterns_have_priority_over_names(tmp_path: Path) -> None:
    put(tmp_path, LEAK | {"old.xyz": "p q r\n"})
    corpus = lm(tmp_path, files=FilesConfig(train=["te*"], valid=["train.txt"], skip=["valid.txt"]), test=0)
    assert set(words(corpus, 0)) == {"zebra", "yak", "xerus", "a", "b"}
    assert len(words(corpus, 1)) == 600                          # only a and b are training words
    assert corpus.identity["files"]["passed over"] == {"an unknown suffix, .xyz": ["old.xyz"],
                                                       "matches language.files.skip": ["valid.txt"]}
    with pytest.raises(UsageError, match=r"^language\.files\.test: 'nothing\*' matches none of the 4 files$"):
        lm(tmp_path, files=FilesConfig(test=["nothing*"]))


def test_file_named_by_the_user_is_for_training(tmp_path: Path) -> None:
    put(tmp_path, LEAK)
    assert "zebra" in text.load([tmp_path / "test.txt"], "auto", TextConfig(), None, "mine").vocabulary.words


def test_held_out_lines_that_are_trained_on_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, {"train.txt": "a b c d e\nf g h i j\na b\n", "test.txt": "f g h i j\na b\nj i h g f\n"})
    for section, load in (
            ("language", lambda: lm(tmp_path, valid=0)),
            ("text", lambda: text.load([tmp_path], "auto", TextConfig(min_count=1, valid=0), None, "mine"))):
        caplog.clear()
        load()
        assert [line for line in caplog.messages if "also occur" in line] == [
            f"{section}: 1 of 2 held-out sequences of 5 words or more also occurs in training (50.0%)"]


# --- triples and walks ----------------------------------------------------------------------------------------------

TRAIN, VALID, TEST = "a\tr\tb\nb\tr\tc\nc\tr\td\nd\tr\ta\n", "a\tr\tc\n", "b\tr\td\n"
PARTS = {"train.txt": TRAIN, "valid.txt": VALID, "test.txt": TEST}


def triples(folder: Path, **config: object) -> graph.Graph:
    return graph.load([folder], "triples", TriplesConfig(**config), None, "mine")  # type: ignore[arg-type]


def sizes(result: graph.Graph) -> list[int]:
    return [len(result.part(part)) for part in ("train", "valid", "test")]


@pytest.mark.parametrize(("more", "reason"), [
    ({"train.txt.bak": "a\tr\tb\nOLD\tr\tc\n", "train.txt~": "OLD2\tr\tc\n"}, BACKUP),
    ({"test_negatives.txt": "a\tr\ta\n", "valid_negatives.txt": "c\tr\tc\n"}, "negatives; training draws its own"),
    ({"test_neg.tsv": "a\tr\ta\n", "valid.false": "c\tr\tc\n", "corrupt_test.txt": "c\tr\tc\n"},
     "negatives; training draws its own"),
    ({"train_sample.txt": "a\tr\tb\n"}, "another form of the train split, by 'sample' in its name"),
    ({"train.del": "0\t0\t1\n"}, "another form of the train split, by 'del' in its name"),
    ({"train2id.txt": "1\n0 1 0\n"}, "another form of the train split, by '2id' in its name"),
    ({"valid_without_unseen.del": "0\t0\t1\n"}, "another form of the valid split, by 'del' in its name"),
    ({"entity_ids.del": "0\ta\n", "notes.txt": "x"}, NO_PART), ({"tmp/train.txt": TRAIN},
                                                             "in a folder of temporary files or backups"),
])
def test_files_that_are_not_parts_of_a_graph_are_skipped(tmp_path: Path, more: dict[str, str], reason: str) -> None:
    result = triples(put(tmp_path, PARTS | more))
    assert sizes(result) == [4, 1, 1] and result.identity["files"]["passed over"] == {reason: sorted(more)}
    assert not any("OLD" in name for name in result.entities.words)


@pytest.mark.parametrize(("files", "says"), [
    ({f"{kg}/{name}": content for kg in ("FB", "WN") for name, content in PARTS.items()},
     r"contains the train split of 2 data sets: FB/train\.txt, WN/train\.txt; give the folder of one of them"),
    ({"FB.train.txt": TRAIN, "WN.train.txt": TRAIN}, "contains the train split of 2 data sets"),
    (PARTS | {"train.tsv": "x\tr\ty\n"}, r"train\.tsv and train\.txt seem to contain one split in two forms"),
])
def test_two_graphs_in_one_folder_are_rejected(tmp_path: Path, files: dict[str, str], says: str) -> None:
    with pytest.raises(DataError, match=says + r".*--set triples\.files\.\w+="):
        triples(put(tmp_path, files))


def test_held_out_edges_are_not_walked_on(tmp_path: Path) -> None:
    put(tmp_path, {"train.edges": "a b\nb c\nc a\n", "test.edges": "a zebra\n"})
    result = load_walks([tmp_path], WalksConfig(valid=0, test=0), None, "mine")
    assert sorted(result.vocabulary.words) == ["a", "b", "c"]
    assert list(result.identity["files"]["passed over"].values()) == [["test.edges"]]
    shutil.rmtree(tmp_path)
    put(tmp_path, {"train.txt": "a b c d e\n" * 50, "test.txt": "a b c d zebra\n" * 7})
    result = load_walks([tmp_path], WalksConfig(valid=0.1), None, "mine")
    train, valid, test = text.split(result, WalksConfig())
    assert [len(part.sequence) - 1 for part in (train, valid, test)] == [45, 5, 7]
    assert "zebra" not in result.vocabulary.words


# --- labels ---------------------------------------------------------------------------------------------------------

def documents(labels: list[int]) -> str:
    return f"{len(labels)} 5 4\n" + "".join(f"{label} {i % 5}:{1 + i}\n" for i, label in enumerate(labels))


@pytest.mark.parametrize(("files", "expected"), [
    ({"train.txt": [0, 1, 2] * 20, "testset.txt": [3] * 40}, (60, 0, 40)),
    ({"train.txt": [0, 1, 2] * 20, "xmltest.txt": [3] * 40, "valid.txt": [3] * 5}, (60, 5, 40)),
    ({"data.svm": [0, 1, 2] * 20, "data.t": [3] * 40, "data.val": [3] * 6}, (60, 6, 40)),
    ({"train.txt": [0, 1, 2] * 20, "test.txt": [3] * 40, "all.txt": [0, 1, 2, 3] * 25}, (60, 0, 40)),
])
def test_no_held_out_document_is_trained_on(tmp_path: Path, files: dict[str, list[int]], expected: tuple[int, ...]
                                            ) -> None:
    put(tmp_path, {name: documents(labels) for name, labels in files.items()})
    config = LabelsConfig(valid=0)
    result, identity = labelled.load([tmp_path], "auto", config, None, "mine")
    split = split_documents(result, config)
    assert (len(split.train), len(split.valid), len(split.test)) == expected
    assert 3 not in result.labels.rows(split.train).index.tolist()
    assert ("passed over" in identity["files"]) == ("all.txt" in files)
    again = labelled.count_repeated(result, split)
    assert again == int(sum(np.isin(range(len(files[name])), range(60)).sum() for name in files
                            if name not in ("train.txt", "data.svm", "all.txt")))


# --- translation ----------------------------------------------------------------------------------------------------

def lines(begin: int, n: int, word: str) -> str:
    return "".join(f"{word} {i} .\n" for i in range(begin, begin + n))


def un(valid: str, test: str) -> dict[str, str | bytes]:
    return {f"UNv1.0.{name}.{end}": lines(begin, n, word) for name, begin, n in
            (("6way", 0, 60), (valid, 100, 8), (test, 200, 8))
            for end, word in (("en", "resolution"), ("fr", "résolution"))}


def translated(folder: Path, **config: object) -> parallel.ParallelCorpus:
    return parallel.load([folder], ParallelLayout("en", "fr", ("source", "target")),
                         ParallelConfig(min_count=1, **config), "signs", None, "mine")  # type: ignore[arg-type]


@pytest.mark.parametrize(("valid", "test"), [("devset", "testset"), ("tune", "testing"), ("development", "heldout"),
                                             ("heldout", "test"), ("dev", "eval"), ("newsdev2016", "newstest2016")])
def test_held_out_sentences_are_those_of_their_files(tmp_path: Path, valid: str, test: str) -> None:
    result = translated(put(tmp_path, un(valid, test)))
    assert [len(result.part(part)) for part in ("train", "valid", "test")] == [60, 8, 8]


def test_text_in_two_forms_and_scratch_folder_are_not_read_twice(tmp_path: Path) -> None:
    files = un("devset", "testset")
    put(tmp_path, files | {f"tmp/{name}": content for name, content in files.items()})
    result = translated(tmp_path)
    assert len(result.part("train")) == 60
    assert list(result.identity["files"]["passed over"]) == ["in a folder of temporary files or backups"]
    put(tmp_path, {"UNv1.0.6way.tok.en": lines(0, 60, "Resolution"), "UNv1.0.6way.tok.fr": lines(0, 60, "Résolution")})
    with pytest.raises(DataError, match=r"6way\.en and UNv1\.0\.6way\.tok\.en seem to contain one split in two forms"):
        translated(tmp_path)
    result = translated(tmp_path, files=FilesConfig(skip=["*.tok.*"]))
    assert len(result.part("train")) == 60


@pytest.mark.parametrize(("first", "message"), [(18, "2 of 5 pairs of test are also training pairs"),
                                                (19, "1 of 5 pairs of test is also a training pair")])
def test_held_out_pairs_that_are_training_pairs_are_counted(first: int, message: str, tmp_path: Path,
                                                            caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, {"train.en": lines(0, 20, "a"), "train.fr": lines(0, 20, "b"),
                   "valid.en": lines(50, 5, "a"), "valid.fr": lines(50, 5, "b"),
                   "test.en": lines(first, 5, "a"), "test.fr": lines(first, 5, "b")})
    translated(tmp_path)
    assert f"mine: {message}" in caplog.messages


# --- messages -------------------------------------------------------------------------------------------------------

def test_one_line_names_parts_and_skipped_files(tmp_path: Path) -> None:
    files = inventory.build_inventory([put(tmp_path, PARTS | {"train.txt~": "", "train.txt.bak": ""})],
                           graph.triple_files.FILE_RULES, FilesConfig())
    assert files.line() == ("files: train: train.txt; valid: valid.txt; test: test.txt; skipped: train.txt.bak, "
                            f"train.txt~ ({BACKUP})")
    many = inventory.build_inventory([put(tmp_path / "many", {f"{i:03}.txt": "a" for i in range(250)})],
                          text.readers.file_rules("auto", "text", True), FilesConfig())
    assert many.line() == "files: train: 250 files (000.txt, ...)" and len(many.tree()["train"]) == 101
    assert (
        inventory.build_inventory([tmp_path / "train.txt"], graph.triple_files.FILE_RULES, FilesConfig()).line() == ""
    )
    assert json.loads(json.dumps(files.tree())) == files.tree()


def test_a_named_file_of_negatives_is_read(tmp_path: Path) -> None:
    """A file that the user names is read whatever its name; next to others it is not."""
    for name in ("kg_neg.tsv", "kg.tsv"):
        (tmp_path / name).write_text("a\tr\tb\n")
    rules = FileRules("triples", "triples", lambda name: "", single_data_set=True)
    named = build_inventory([tmp_path / "kg_neg.tsv"], rules, FilesConfig())
    assert [entry.part for entry in named.entries] == ["train"]
    folder = build_inventory([tmp_path], rules, FilesConfig())
    assert {entry.file.inside: bool(entry.part) for entry in folder.entries} == {"kg.tsv": True, "kg_neg.tsv": False}
