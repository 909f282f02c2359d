"""Containers, readers, tokenizers, the cache and the split; real counts of the excerpt that gensim ships."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import random
import resource
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from embtrain.common.errors import DataError, EmbtrainError, ResourceError, UsageError
from embtrain.common.output_paths import is_run_folder
from embtrain.data.inventory import inventory
from embtrain.data.storage import cache, containers, known_files
from embtrain.data.text import holdout, readers
from embtrain.data.text.corpus import Corpus, TextConfig, load, split
from embtrain.data.text.shards import reading
from embtrain.data.text.vocabulary import Vocabulary

ALL = TextConfig(min_count=1, valid=0, test=0)
TEXT = "The cat sat.\nThe dog, the cat\n\nÉmile 42 sat_down\n"
LINES = [["the", "cat", "sat"], ["the", "dog", "the", "cat"], ["émile", "sat", "down"]]


def lines_of(corpus: Corpus) -> list[list[str]]:
    words, ids = corpus.vocabulary.words, corpus.ids
    return [[words[i] for i in ids[a:b]] for a, b in zip(corpus.sequence[:-1], corpus.sequence[1:], strict=True)]


def read(path: Path, reader: str = "auto", config: TextConfig = ALL, store: Path | None = None) -> Corpus:
    return load([path], reader, config, store, "t")


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def tar_of(members: dict[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_text_packed_twice_is_reported(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    for other in (gzip.compress, bz2.compress, lzma.compress):
        with pytest.raises(DataError, match=r"a\.txt\.gz: is compressed twice; unpack it once"):
            read(put(tmp_path / "a.txt.gz", pack(other(b"one two\n"))))


# --- containers ------------------------------------------------------------------------------------------------

PLAIN = TEXT.encode()
MEMBERS = {"README": b"not this", "d/a.txt": PLAIN, "d/.hidden.txt": b"nor this", "d/b.csv": b"nor that"}
CONTAINERS = {
    "plain.txt": PLAIN, "no_suffix": PLAIN, "a.gz": gzip.compress(PLAIN), "a.bz2": bz2.compress(PLAIN),
    "a.xz": lzma.compress(PLAIN), "wrong.txt": gzip.compress(PLAIN), "bom.txt": b"\xef\xbb\xbf" + PLAIN,
    "crlf.txt": PLAIN.replace(b"\n", b"\r\n"), "two.gz": gzip.compress(PLAIN[:20]) + gzip.compress(PLAIN[20:]),
    "a.tar": tar_of(MEMBERS), "a.tar.gz": tar_of(MEMBERS, "w:gz"), "a.tbz": tar_of(MEMBERS, "w:bz2"),
    "a.zip": zip_of(MEMBERS), "escape.zip": zip_of({"../../x.txt": PLAIN}), "escape.tar": tar_of({"/etc/x.txt": PLAIN}),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_gives_the_same_text(tmp_path: Path, name: str) -> None:
    corpus = read(put(tmp_path / "in" / name, CONTAINERS[name]))
    assert lines_of(corpus) == LINES
    assert corpus.identity["counts"] == {"documents": 1, "tokens": 10, "types": 6, "words": 6, "kept": 10}
    assert [p.name for p in tmp_path.rglob("*")] == ["in", name]  # nothing was extracted


def test_folder_is_read_in_order(tmp_path: Path) -> None:
    for name, content in {"b/2.txt": "two", "b/10.txt": "ten", "a.txt.gz": gzip.compress(b"one"), ".git/x.txt": "no",
                          "c.zip": zip_of({"z.txt": b"zip"}), "d.csv": "no", ".e.txt": "no"}.items():
        put(tmp_path / name, content)
    assert lines_of(read(tmp_path)) == [["one"], ["ten"], ["two"], ["zip"]]


def test_folder_of_more_files_than_may_be_open(tmp_path: Path) -> None:
    for i in range(1_000):  # every file is opened twice: for its hash and for its words
        (tmp_path / f"{i:05}.txt").write_bytes(b"a b")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, hard))
    try:
        corpus = read(tmp_path, config=TextConfig(min_count=1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert corpus.identity["counts"]["documents"] == 1_000 and corpus.parts == (960, 980)


def test_output_of_a_run_in_the_text_folder_is_not_text(tmp_path: Path) -> None:
    put(tmp_path / "b.txt", "word")
    for name in ("config.yaml", "identity.json", "vocabulary.txt"):
        put(tmp_path / "runs" / "x" / name, "other")
        put(tmp_path / "c" / name.replace("config.yaml", "more.txt"), "some")
    assert lines_of(read(tmp_path)) == [["word"], ["some"], ["some"]]


def test_broken_link_is_reported(tmp_path: Path) -> None:
    put(tmp_path / "a.txt", TEXT)
    (tmp_path / "b.txt").symlink_to(tmp_path / "gone.txt")
    with pytest.raises(DataError, match=r"b\.txt: a broken link"):
        read(tmp_path)


def test_unreadable_folder_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.txt", TEXT)
    (tmp_path / "shut").mkdir()
    look, status = os.scandir, os.stat

    def scandir(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    def stat(path: Any, **options: Any) -> os.stat_result:
        if Path(os.fsdecode(path)).parent.name == "shut":
            raise PermissionError(13, "Permission denied", str(path))
        return status(path, **options)
    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "stat", stat)
    for where in (tmp_path, tmp_path / "shut"):
        with pytest.raises(ResourceError, match="shut: no permission to read it"):
            read(where)
    assert not is_run_folder(tmp_path / "shut")              # the check that comes before the reader


@pytest.mark.parametrize("member", ["mimetype", "[Content_Types].xml"])
def test_word_processor_document_is_rejected(tmp_path: Path, member: str) -> None:
    packed = zip_of({member: b"x", "word/document.xml": b"<w>" + TEXT.encode() + b"</w>"})
    with pytest.raises(DataError, match=r"a\.docx: a word processor document or an e-book; save it as plain text"):
        read(put(tmp_path / "a.docx", packed))


def test_pipe_in_a_folder_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    put(tmp_path / "b.txt", "word")
    os.symlink(tmp_path, tmp_path / "loop")
    assert lines_of(read(tmp_path)) == [["word"]]
    with pytest.raises(DataError, match="neither a file nor a folder"):
        read(tmp_path / "a.txt")


LONG = " ".join(random.Random(0).choices(["alpha", "beta", "gamma"], k=3000)).encode()
TAR = tar_of({"a.txt": LONG, "b.txt": LONG})
UNTIL_END = 2 * (512 + -(-len(LONG) // 512) * 512)  # bytes before the end mark
DAMAGED = {
    "cut.gz": gzip.compress(LONG)[:-20], "cut.bz2": bz2.compress(LONG)[:-20], "cut.xz": lzma.compress(LONG)[:-20],
    "cut.tar": TAR[:len(LONG) // 2], "cut.tar.gz": gzip.compress(TAR)[:-20], "cut.zip": zip_of({"a.txt": LONG})[:-40],
    "member.tar": TAR[:TAR.index(b"b.txt\0")], "end.tar.gz": gzip.compress(TAR.rstrip(b"\0").ljust(UNTIL_END, b"\0")),
    "header.tar": TAR.replace(b"b.txt\0", b"B.txt\0"), "fake.tar": b"x" * 600,
    "crc.zip": zip_of({"a.txt": LONG})[:200] + b"\0" + zip_of({"a.txt": LONG})[201:],
    "name.zip": b"PK\x03\x04" + b"\0" * 300,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, DAMAGED[name])
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_tar_without_its_end_mark_is_refused_and_one_block_of_zeros_is_enough(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no end mark; if no member is missing, unpack it and give the folder"):
        read(put(tmp_path / "a.tar", TAR[:UNTIL_END]))
    assert len(lines_of(read(put(tmp_path / "b.tar", TAR[:UNTIL_END + 512])))) == 2


def test_random_damage_never_ends_in_a_traceback(tmp_path: Path) -> None:
    rng, path = random.Random(0), tmp_path / "f"
    wholes = [*CONTAINERS.values(), TEI.encode(), WIKI.encode()]
    for _ in range(200):
        content = bytearray(rng.choice(wholes))
        for _ in range(rng.choice([1, 3])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content if rng.random() < 0.7 else content[:rng.randrange(len(content))])
        try:
            assert read(path, rng.choice(["auto", "tei", "wiki", "text"])).vocabulary.words
        except EmbtrainError as error:
            assert error.code == 3 and "\n" not in str(error)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lambda x: zip_of({"a.txt": x, "b.txt": x}),
                                  lambda x: gzip.compress(tar_of({"a.bin": x}))])
def test_bomb_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: object) -> None:
    monkeypatch.setattr(containers, "FREE_BYTES", 1 << 20)
    path = put(tmp_path / "bomb", pack(b" " * (24 << 20)))  # type: ignore[operator]
    with pytest.raises(DataError, match="bomb"):
        read(path)


@pytest.mark.parametrize(("content", "message"), [
    (b"", r"x\.txt: is empty; give a text$"), (b" \n\n 12 ,", "no words"), (gzip.compress(b"", mtime=0), "no words"),
    (b"\xff\xfea\0b\0", "UTF-16"),
    (random.Random(0).randbytes(5000), "is probably not UTF-8 text"),
    (zip_of({"a.csv": b"x"}), r"x\.txt: contains no text file"),
])
def test_file_that_is_not_text_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(put(tmp_path / "x.txt", content))


def test_text_without_words_is_named(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text(" \n\n")
    with pytest.raises(DataError, match=r"blank\.txt: contains no words \(1 document was read\)$"):
        load([tmp_path / "blank.txt"], "text", TextConfig(), None, "blank")


def test_missing_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none: file or folder not found"):
        read(tmp_path / "none")
    with pytest.raises(DataError, match="no text file"):
        read(tmp_path)
    with pytest.raises(UsageError, match="no 'prose'; there are: auto"):
        read(put(tmp_path / "a.txt", "a"), "prose")
    with pytest.raises(UsageError, match="is empty; give a file or folder"):
        load([], "auto", ALL, None, "t")


def test_invalid_bytes_are_counted_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = read(put(tmp_path / "x.txt", b"\xef\xbb\xbfone\0two caf\xe9 \xff\xff three"), "tokens")
    assert lines_of(corpus) == [["one", "two", "caf\ufffd", "\ufffd\ufffd", "three"]]
    [record] = caplog.records
    assert record.getMessage().endswith(
        "x.txt: 3 characters are not UTF-8 and are read as U+FFFD and 1 NUL character is read as a space; if all of "
        "the text is in another encoding, convert it to UTF-8, e.g. with iconv -f WINDOWS-1252 -t UTF-8")
    for _ in range(2):                                       # the second time from the cache
        caplog.clear()
        read(put(tmp_path / "y.txt", b"one\0two\n" * 20), "tokens", TextConfig(min_count=1), tmp_path / "cache")
        assert caplog.messages[0] == f"{tmp_path / 'y.txt'}: 20 NUL characters are read as spaces"
        assert "nothing is held out" in caplog.messages[1] and len(caplog.messages) == 2


# --- readers and tokenizers ------------------------------------------------------------------------------------

TEI = """<?xml version="1.0"?><TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><title>Header</title></teiHeader><text>
<front><p>Front</p></front><body><div><head>One</head><p>The
 cat&amp;dog <hi>sat</hi><note>a note</note> down</p></div></body><back><p>Back</p></back></text></TEI>"""
PAGE = "<page><title>{}</title><ns>{}</ns><id>1</id><revision><text>{}</text></revision></page>"
WIKI = ('<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/"><siteinfo><sitename>w</sitename></siteinfo>'
        + PAGE.format("Cats", 0, "'''Cats''' [[cat|sit]] {{box}}\n" + "we purr " * 30)
        + PAGE.format("Stub", 0, "too short") + PAGE.format("Talk:Cats", 0, "we talk " * 30)
        + PAGE.format("Dogs", 1, "another space " * 30) + "</mediawiki>")


def test_tei_bodies(tmp_path: Path) -> None:
    assert lines_of(read(put(tmp_path / "a.xml", TEI))) == [["one"], ["the", "cat", "dog", "sat", "down"]]


def test_entities_are_rejected(tmp_path: Path) -> None:
    laughs = '<!DOCTYPE TEI [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><TEI><text><body><p>&b;</p></body></text></TEI>'
    with pytest.raises(DataError, match=r"a\.xml:1: declares the entity 'a'"):
        read(put(tmp_path / "a.xml", laughs))


@pytest.mark.parametrize("encoding", ["foo", "rot13", "utf-7", "euc-jp", "idna"])
@pytest.mark.parametrize("body", ["<TEI><text><body><p>a b</p></body></text></TEI>", "<mediawiki><page/></mediawiki>"])
def test_unsupported_xml_encoding_is_reported(tmp_path: Path, encoding: str, body: str) -> None:
    with pytest.raises(DataError, match=r"a\.xml: is in an unsupported XML encoding .*; convert it to UTF-8"):
        read(put(tmp_path / "a.xml", f'<?xml version="1.0" encoding="{encoding}"?>{body}'))


def test_tagged_words_lose_their_tags(tmp_path: Path) -> None:
    brown = zip_of({"brown/ca01": b"\n\tThe/at and/or/cc 1/2/cd ./.\n", "brown/README": b"no/no",
                    "brown/cats.txt": b"no/no"})
    assert lines_of(read(put(tmp_path / "b.zip", brown), "tagged")) == [["the", "and/or", "1/2", "."]]
    masc = put(tmp_path / "Bed012.txt", "This_DT ,_, and/or_CC http://a_b_NN PRP$_X untagged\n")
    assert lines_of(read(masc, "tagged")) == [["this", ",", "and/or", "http://a_b", "prp$", "untagged"]]


def test_articles_equal_those_of_wikicorpus(tmp_path: Path) -> None:
    for packed in (WIKI.encode(), bz2.compress(WIKI.encode())):
        corpus = read(put(tmp_path / "dump", packed))
        assert corpus.identity["counts"]["documents"] == 1
        assert lines_of(corpus) == [["cats", "sit", *(["we", "purr"] * 30)]]


@pytest.mark.parametrize("content", ["<mediawiki xmlns='x'><page/></mediawiki>", WIKI[:-30], "no xml", "",
                                     WIKI.replace("<title>Cats</title>", "")])
def test_damaged_dump_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match="dump"):
        read(put(tmp_path / "dump", content), "wiki")


def test_large_dump_is_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "dump", WIKI)
    alone = lines_of(read(path))
    monkeypatch.setattr(readers, "PARALLEL_BYTES", 0)
    assert lines_of(read(path)) == alone


def test_tokenizers(tmp_path: Path) -> None:
    path = put(tmp_path / "x", "Don't stop-me 3rd straßENBAHN x " + "l" * 16)
    def tokens(**keys: object) -> list[str]:
        return lines_of(read(path, config=ALL.model_copy(update=keys)))[0]
    assert tokens() == ["don", "t", "stop", "me", "rd", "straßenbahn", "x", "l" * 16]
    assert tokens(token_min=2, token_max=5) == ["don", "stop", "me", "rd"]
    assert tokens(tokenizer="whitespace") == ["don't", "stop-me", "3rd", "straßenbahn", "x", "l" * 16]
    assert tokens(tokenizer="whitespace", lower=False)[3] == "straßENBAHN"
    assert tokens(tokenizer="wiki") == ["don", "stop", "me", "rd", "straßenbahn"]
    assert lines_of(read(path, "tokens"))[0] == tokens(tokenizer="whitespace")


@pytest.mark.parametrize("piece", [1, 2, 7])
def test_chunks_do_not_change_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(readers, "CHUNK", piece)
    assert lines_of(read(put(tmp_path / "a.txt", TEXT.replace("\n", "\r\n")))) == LINES
    assert lines_of(read(put(tmp_path / "a.xml", TEI), "tei")) == [["one"], ["the", "cat", "dog", "sat", "down"]]


def test_endless_line_is_streamed_and_cut(tmp_path: Path) -> None:
    path = put(tmp_path / "one", b"some words on one line " * 200_000)
    config = TextConfig(min_count=1)
    tracemalloc.start()
    corpus = read(path, "tokens", config, tmp_path / "cache")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 35e6  # the tokens alone would take 56 MB
    assert np.diff(corpus.sequence).max() == 10_000 and len(corpus.ids) == 1_000_000
    assert corpus.parts == (96, 98) and isinstance(corpus.ids, np.memmap)


def test_sequences(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "a b c d e\nf g\n\n\nh")
    def lines(**keys: object) -> list[str]:
        return ["".join(line) for line in lines_of(read(path, config=ALL.model_copy(update=keys)))]
    assert lines() == ["abcde", "fg", "h"]
    assert lines(max_sequence=2) == ["ab", "cd", "e", "fg", "h"]
    assert lines(sequence="document") == ["abcdefgh"]
    assert lines(sequence="document", max_sequence=3) == ["abc", "def", "gh"]


def test_rare_words_are_dropped_before_the_windows(tmp_path: Path) -> None:
    corpus = read(put(tmp_path / "a.txt", "a x b\ny z\nb a"), config=ALL.model_copy(update={"min_count": 2}))
    assert lines_of(corpus) == [["a", "b"], ["b", "a"]] and corpus.vocabulary.total == 7


# --- the split -------------------------------------------------------------------------------------------------

@given(st.lists(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6), max_size=4), min_size=3,
                max_size=20), st.integers(0, 9), st.integers(1, 3))
def test_split_divides_the_documents(texts: list[list[list[str]]], seed: int, min_count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holdout, "SLICE_TOKENS", 5)
        patch.setattr(reading, "documents", lambda *_: (
            readers.TextDocument("", "tokens", iter(["\n".join(" ".join(line) for line in lines)])) for lines in texts))
        patch.setattr(inventory, "build_inventory", lambda *_: inventory.Inventory(()))
        patch.setattr(inventory.Inventory, "content", lambda *_: "")
        config = TextConfig(min_count=min_count, valid=0.2, test=0.3, split_seed=seed)
        try:
            corpus = read(Path("x"), "tokens", config)
        except DataError:
            return  # too few words
    parts = split(corpus, config)
    known = set(corpus.vocabulary.words)
    result: list[list[str]] = []
    for part in parts:
        assert part.sequence[0] == part.document[0] == 0 and part.sequence[-1] == part.document[-1] == len(part.ids)
        assert set(part.document) <= set(part.sequence)
        words = ["".join(corpus.vocabulary.words[i] for i in part.ids[a:b])
                 for a, b in zip(part.document[:-1], part.document[1:], strict=True)]
        result.append(words)
    sizes = [len(part) for part in result]
    assert sizes[1:] == [max(1, round(0.2 * len(texts))), max(1, round(0.3 * len(texts)))]
    expected = ["".join(w for line in lines for w in line if w in known) for lines in texts]
    assert sorted(itertools.chain(*result)) == sorted(expected)
    assert [line for part in parts for line in lines_of(part)] == lines_of(corpus)
    assert np.bincount(parts[0].ids, minlength=len(known)).tolist() == corpus.vocabulary.counts.tolist()


def test_held_out_words_are_not_counted(tmp_path: Path) -> None:
    for i in range(20):
        put(tmp_path / f"{i:02}.txt", f"common only{chr(97 + i)}")
    config = TextConfig(min_count=1, valid=0.1, test=0.1)
    corpus = read(tmp_path, config=config)
    train, valid, test = split(corpus, config)
    assert (len(train.document), len(valid.document), len(test.document)) == (17, 3, 3)
    assert corpus.vocabulary.counts[0] == 16 and len(corpus.vocabulary) == 17 and corpus.vocabulary.total == 32
    assert lines_of(valid) == lines_of(test) == [["common"], ["common"]]
    other = read(tmp_path, config=config.model_copy(update={"split_seed": 1}))
    assert set(other.vocabulary.words) != set(corpus.vocabulary.words)


def test_few_long_documents_are_held_out_in_pieces(tmp_path: Path) -> None:
    put(tmp_path / "a.txt", "word other here\n" * 40_000)
    put(tmp_path / "b.txt", "short text\n")
    config = TextConfig(min_count=1)
    corpus = read(tmp_path, config=config)
    train, valid, test = split(corpus, config)
    assert corpus.identity["counts"]["documents"] == 2
    assert 9_000 < len(valid.ids) < 11_000 and 9_000 < len(test.ids) < 11_000
    assert set(map(len, lines_of(train))) <= {2, 3}  # no line is cut


def test_single_short_document_is_not_held_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = TextConfig(min_count=1)
    corpus = read(put(tmp_path / "a.txt", TEXT), config=config)
    assert [len(part.ids) for part in split(corpus, config)] == [10, 0, 0]
    assert "1 document or piece of about 10,000 tokens up to a line end, and 3 are needed" in caplog.text


def test_shares_that_leave_no_training_text_are_named() -> None:
    with pytest.raises(DataError, match=r"^text\.valid, text\.test: shares of 0\.45 and 0\.45 of 4 documents"):
        holdout.draw_parts(4, TextConfig(valid=0.45, test=0.45))


def test_corpus_built_in_memory_is_split_too() -> None:
    offsets = np.arange(0, 22, 2, dtype=np.int64)
    ids = np.arange(20, dtype=np.int32)
    corpus = Corpus(ids, offsets, offsets, Vocabulary([str(i) for i in ids], np.ones(20, dtype=np.int64), 20), {})
    parts = split(corpus, TextConfig(valid=0.2, test=0.1))
    assert [len(part.ids) for part in parts] == [14, 4, 2]
    assert sorted(np.concatenate([part.ids for part in parts]).tolist()) == list(range(20))


# --- the cache -------------------------------------------------------------------------------------------------

@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Path]:
    return put(tmp_path / "in.txt", TEXT * 3), tmp_path / "cache"


def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the text was read again")
    monkeypatch.setattr(reading, "encode_documents", refuse)


def is_equal(a: Corpus, b: Corpus) -> bool:
    return (lines_of(a) == lines_of(b) and a.document.tolist() == b.document.tolist() and a.parts == b.parts
            and a.identity == b.identity and a.vocabulary.words == b.vocabulary.words
            and a.vocabulary.counts.tolist() == b.vocabulary.counts.tolist()
            and a.vocabulary.total == b.vocabulary.total)


def test_second_load_reads_nothing(stored: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path, store = stored
    first = read(path, config=ALL, store=store)
    no_reading(monkeypatch)
    again = read(path, config=ALL, store=store)
    assert isinstance(again.ids, np.memmap) and is_equal(again, first)
    rarer = read(path, config=ALL.model_copy(update={"min_count": 6}), store=store)  # no new reading for that
    assert rarer.vocabulary.words == ["the", "cat", "sat"]
    monkeypatch.undo()
    assert is_equal(first, read(path))  # in memory or mapped: equal
    assert not list(store.rglob("*.part"))


@pytest.mark.parametrize("change", [{"lower": False}, {"token_min": 4}, {"tokenizer": "whitespace"},
                                    {"sequence": "document"}, {"max_sequence": 2}, {"min_count": 4}, {"max_size": 2}])
def test_relevant_settings_are_part_of_the_key(stored: tuple[Path, Path], change: dict[str, object]) -> None:
    path, store = stored
    first, config = read(path, store=store), ALL.model_copy(update=change)
    other = read(path, config=config, store=store)
    assert lines_of(other) == lines_of(read(path, config=config)) != lines_of(first)


def test_changed_content_is_read(stored: tuple[Path, Path]) -> None:
    path, store = stored
    read(path, store=store)
    path.write_text("new words")
    assert lines_of(read(path, store=store)) == [["new", "words"]]


@pytest.mark.parametrize("name", ["ids.npy", "sequence.npy", "document.npy", "counts.npy", "words.txt", "facts.json",
                                  "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "empty"])
def test_damaged_cache_is_rebuilt(stored: tuple[Path, Path], name: str, damage: str) -> None:
    path, store = stored
    first = read(path)  # not the mapped one: a file is cut under it below
    read(path, store=store)
    for file in store.rglob(name):
        content = bytearray(file.read_bytes())
        content[-4] ^= 1
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes({"flip": content, "cut": content[:-1], "empty": b""}[damage])
    assert is_equal(read(path, store=store), first)


def test_a_file_is_hashed_again_only_if_it_was_written(stored: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    path, store = stored
    monkeypatch.setattr(known_files, "TICK", -1)                   # the files of this test were written a moment ago
    first, hashed, digest = read(path), list[str](), cache._digest
    read(path, store=store)
    monkeypatch.setattr(cache, "_digest", lambda file: (hashed.append(file.name), digest(file))[1])
    assert is_equal(read(path, store=store), first) and hashed == []
    time.sleep(0.02)
    for file in store.rglob("ids.npy"):
        content, status = bytearray(file.read_bytes()), file.stat()
        content[-4] ^= 1
        file.write_bytes(content)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert is_equal(read(path, store=store), first) and "ids.npy" in hashed


def test_a_file_written_within_a_tick_is_always_hashed(stored: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    path, store = stored
    monkeypatch.setattr(known_files, "TICK", 1 << 62)
    read(path, store=store)
    assert all("state" not in entry for file in store.rglob("manifest.json")
               for entry in json.loads(file.read_text())["files"].values())


@pytest.mark.parametrize(("layout", "says"), [
    (cache.LAYOUT - 1, "written by an older version of embtrain; it is built again"),
    (cache.LAYOUT + 1, "written by a newer version of embtrain; it is built again"),
    ("x", "the cached data are damaged; they are rebuilt"),
    (cache.LAYOUT, ""),
])
def test_a_cache_of_another_layout_is_built_again(stored: tuple[Path, Path], caplog: pytest.LogCaptureFixture,
                                                  layout: object, says: str) -> None:
    path, store = stored
    first = read(path, store=store)
    for manifest in store.rglob("manifest.json"):
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"layout": layout}))
    assert is_equal(read(path, store=store), first)
    folders = sorted(folder for folder in store.iterdir() if says)                     # of the words, and of the text
    assert sorted(line for line in caplog.messages if str(store) in line) == [f"{folder}: {says}" for folder in folders]
    caplog.clear()
    assert is_equal(read(path, store=store), first) and not any(str(store) in line for line in caplog.messages)


def test_consistent_manifest_of_invalid_arrays_is_not_trusted(stored: tuple[Path, Path],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    path, store = stored
    first = read(path, store=store)
    monkeypatch.setattr(cache, "_digest", lambda _: "")  # every hash agrees: the arrays must still fit together
    for file in store.rglob("manifest.json"):
        file.unlink()
    again = read(path, store=store)
    for file in store.rglob("sequence.npy"):
        with file.open("r+b") as handle:
            handle.seek(-8, 2)
            handle.write(np.int64(2).tobytes())
    assert is_equal(again, first) and is_equal(read(path, store=store), first)


def test_large_files_are_checked_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_FULL_HASH", 1 << 20)
    path = put(tmp_path / "a", random.Random(0).randbytes(70 << 20))
    before = cache._digest(path)
    for at in (-1, 0):
        with path.open("r+b") as file:
            file.seek(at, 0 if at == 0 else 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        assert cache._digest(path) != before


def test_failed_reading_leaves_nothing_that_is_trusted(stored: tuple[Path, Path]) -> None:
    path, store = stored
    path.write_bytes(gzip.compress(LONG)[:-20])
    with pytest.raises(DataError, match="truncated"):
        read(path, store=store)
    assert not [file for file in store.rglob("*") if file.is_file()]


# --- real text -------------------------------------------------------------------------------------------------

def test_excerpt_has_its_published_counts(tmp_path: Path) -> None:
    from gensim.test.utils import datapath

    path = Path(datapath("enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"))
    config = TextConfig(valid=0, test=0)
    corpus = load([path], "wiki", config, tmp_path, "gensim-wiki")
    assert corpus.identity["counts"] == {"documents": 106, "tokens": 452_944, "types": 34_212, "words": 9_002,
                                         "kept": 412_531}
    train, valid, test = split(load([path], "wiki", TextConfig(), tmp_path, "gensim-wiki"), TextConfig())
    assert [len(part.document) - 1 for part in (train, valid, test)] == [102, 2, 2]
    assert min(len(valid.ids), len(test.ids)) > 1000


@pytest.mark.parametrize(("file", "reader", "documents", "tokens"), [
    ("corpora/nltk-brown.zip", "tagged", 500, 1_161_192),
    ("corpora/nltk-inaugural.zip", "text", None, None),
])
def test_real_archives(file: str, reader: str, documents: int | None, tokens: int | None) -> None:
    mirror = os.environ.get("EMBTRAIN_DATA_MIRROR", "")
    path = Path(mirror, file)
    if not mirror or not path.is_file():
        pytest.skip(f"data: {file} is not in EMBTRAIN_DATA_MIRROR")
    counts = load([path], reader, TextConfig(), None, "t").identity["counts"]
    assert documents in (None, counts["documents"]) and tokens in (None, counts["tokens"])
    assert counts["words"] > 1000
