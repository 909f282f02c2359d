"""Kernel scan: core against reference, and whole texts against the reader in Python."""

import itertools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cores import needs_core
from hypothesis import given, settings, strategies as st

from embtrain.common.errors import DataError
from embtrain.data.inventory import inventory
from embtrain.data.storage.cache import AppendableArray
from embtrain.data.text import readers, scan as scanning, tokenize
from embtrain.data.text.corpus import TextConfig
from embtrain.data.text.shards import rules
from embtrain.kernels.reference.text import scan as reference
from embtrain.kernels.text import scan as kernel

# Difficult input for str.lower(), str.split() and a decoder.
NASTY = ["a", "B", "Zz", "don't", "I'M", "x" * 15, "y" * 16, "Z" * 17, "w" * 70, " ", "  ", "\t", "\n", "\r", "\r\n",
         "\v", "\f", "\x1c", "\x1d", "\x1e", "\x1f", "\0", "\x7f", "\x85", "\xa0", "\u3000", "\u2028", "\u2029",
         "\u1680", "\u200b", "\u2014", "\u2019", "\u201c", "\u203f", "\u2040", "\ufeff", "\ufffd", "İ", "ı", "ß",
         "\u1e9e", "É", "e\u0301", "Σ", "ΑΣ", "ΣΑ", "ΟΔΟΣ", "Α\u0345Σ", "'", ".", ":", "-", "_", "/nn", "_NN", "3", "½",
         "²", "\u0663", "漢字", "\ufb01", "\u01c4", "\U0001d538", "😀", "\u212a"]
BROKEN = [b"\xff", b"\xfe", b"\xc3", b"\xe2", b"\xe2\x80", b"\xe2\x80\x41", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\x80",
          b"\xc0\xaf", b"\xce", b"\xce\xa3", b"\xa3", b"\xef\xbb\xbf"]
nasty = st.lists(st.sampled_from([*(x.encode() for x in NASTY), *BROKEN]), max_size=60).map(b"".join)
plain = st.text(st.sampled_from("abAB zZ\n.-'"), max_size=300).map(str.encode)
any_bytes = st.one_of(nasty, plain, st.binary(max_size=200))


# --- the wrapper ------------------------------------------------------------------------------------------------------

modes = st.sampled_from([kernel.WHITESPACE, kernel.WORDS, kernel.VERBATIM])


@needs_core
@given(st.lists(st.tuples(any_bytes, modes), max_size=4), st.booleans(), st.integers(1, 3), st.integers(3, 20))
@settings(max_examples=400)
def test_core_scans_like_the_reference(pieces: list[tuple[bytes, int]], lower: bool, shortest: int,
                                       longest: int) -> None:
    result, reference_result, known = kernel.Types(), reference.ReferenceTypes(), 0
    for data, mode in pieces:
        a = result.scan(data, mode, lower, shortest, longest)
        b = reference_result.scan(data, mode, lower, shortest, longest)
        assert a.types.tolist() == b[0].tolist() and a.ends.tolist() == b[1].tolist() and a.nul == b[2]
        assert a.types.dtype == np.int32 and a.ends.dtype == np.int64
        (words, foreign), (expected, expected_foreign) = result.since(known), reference_result.since(known)
        assert words == expected and foreign.tolist() == expected_foreign.tolist()
        known = len(result)
        assert known == len(reference_result)


@needs_core
@pytest.mark.parametrize("mode", [kernel.WHITESPACE, kernel.WORDS, kernel.VERBATIM])
def test_words_and_lines_that_cross_groups_of_the_core(mode: int) -> None:
    """The core finds words in groups of a few hundred bytes; some of these are longer."""
    pieces = [*(x.encode() for x in NASTY), *BROKEN, b"q" * 300, b"q" * 999, b" " * 300, b"\n" * 300, b" a" * 99]
    chosen = np.random.default_rng(mode).integers(0, len(pieces), 4000)
    data = b"".join(pieces[i] for i in chosen)
    for length in (len(data), len(data) - len(data) % 64, 1 << 12):
        core, known = kernel.Types(), reference.ReferenceTypes()
        a, b = (x.scan(data[:length], mode, True, 2, 400) for x in (core, known))
        assert a.types.tolist() == b[0].tolist() and a.ends.tolist() == b[1].tolist() and a[2:] == b[2:]
        assert [x.tolist() if isinstance(x, np.ndarray) else x for x in core.since(0)] == [
            x.tolist() if isinstance(x, np.ndarray) else x for x in known.since(0)]


@pytest.mark.parametrize("word", ["É", "É" * 20])
def test_a_foreign_word_differs_from_its_verbatim_form(word: str) -> None:
    types = kernel.Types()
    result = [types.scan(word.encode(), mode, True).types.tolist()
              for mode in (kernel.VERBATIM, kernel.WORDS, kernel.WHITESPACE, kernel.VERBATIM)]
    assert result == [[0], [1], [1], [0]] and types.since(0)[1].tolist() == [False, True]


@needs_core
def test_many_types_stay_distinct() -> None:
    """The tables grow, and words that differ only in the last or seventeenth byte stay distinct."""
    words = [f"{'x' * (i % 40)}{i:x}".encode() for i in range(200_000)]
    words += [w + b"\xc3\xa9" for w in words[:50_000]]
    types = kernel.Types()
    data = b" ".join(words)
    first = types.scan(data, kernel.WHITESPACE)
    assert first.types.tolist() == list(range(len(words))) and types.since(0)[0] == words
    assert types.since(0)[1].tolist() == [i >= 200_000 for i in range(len(words))]
    assert np.array_equal(types.scan(data, kernel.WHITESPACE).types, first.types) and len(types) == len(words)


@needs_core
@given(st.lists(st.integers(0, 4), min_size=1, max_size=10), st.data())
def test_core_spreads_types_like_the_reference(sizes: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(len(sizes))
    n_lists = sum(size != 1 for size in sizes)
    start = np.concatenate([[0], np.cumsum([size for size in sizes if size != 1])]).astype(np.int64)
    word = rng.integers(0, 7, start[-1], dtype=np.int32)
    ids = rng.integers(0, 7, len(sizes), dtype=np.int32)
    ids[np.array(sizes) != 1] = -1 - np.arange(n_lists)
    types = np.array(data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=50)), dtype=np.int32)
    ends = np.unique(rng.integers(0, len(types) + 1, 5))
    result, reference_result = np.zeros(7, dtype=np.int64), np.zeros(7, dtype=np.int64)
    a = kernel.expand(kernel.Scanned(types, ends, 0), ids, start, word, result)
    b = reference.expand(types, ends, ids, start, word, reference_result)
    assert a[0].tolist() == b[0].tolist() and a[1].tolist() == b[1].tolist()
    assert result.tolist() == reference_result.tolist()


@needs_core
def test_invalid_types_are_rejected() -> None:
    start, word, counts = np.array([0, 1]), np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    for invalid, ids in ((-1, [0]), (1, [0]), (2 ** 31 - 1, [0]), (1, [0, -2]), (1, [0, -2 ** 31])):
        with pytest.raises(IndexError):
            kernel.expand(kernel.Scanned(np.array([0, invalid], dtype=np.int32), np.zeros(0, dtype=np.int64), 0),
                          np.array(ids, dtype=np.int32), start, word, counts)
    for only_id, end_of_list, of_list in ((70_000_000, 1, 0), (-1, 1, 1), (-1, 1, -1), (-1, 50, 0)):
        with pytest.raises(IndexError):
            kernel.expand(kernel.Scanned(np.zeros(1, dtype=np.int32), np.zeros(0, dtype=np.int64), 0),
                          np.array([only_id], dtype=np.int32), np.array([0, end_of_list]),
                          np.array([of_list], dtype=np.int32), counts)
    assert counts.tolist() == [0]  # rejected before anything was counted
    with pytest.raises(ValueError, match="mode"):
        kernel.Types().scan(b"a", 7)
    with pytest.raises(IndexError):
        kernel.Types().since(1)


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(0, 9), st.integers(0, 9))
def test_ids_are_renumbered(sizes: list[int], skip: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequence = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)[min(skip, len(sizes)):]
    ids = rng.integers(0, 20, sum(sizes), dtype=np.int32)
    to = (rng.permutation(20) - 5).astype(np.int32)
    result, length = kernel.renumber(ids, sequence, to)
    lines = [[to[i] for i in ids[a:b] if to[i] >= 0] for a, b in itertools.pairwise(sequence)]
    assert result.tolist() == [i for line in lines for i in line] and length.tolist() == [len(line) for line in lines]
    assert result.dtype == np.int32 and [x.tolist() for x in reference.renumber(ids, sequence, to)] == [result.tolist(),
                                                                                                 length.tolist()]
    for invalid in (-1, 20):
        if sequence[0] < sequence[-1]:
            with pytest.raises(IndexError):
                kernel.renumber(np.full_like(ids, invalid), sequence, to)


# --- whole texts ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("text")


def outcome(patch: pytest.MonkeyPatch, where: list[Path], reader: str, config: TextConfig, native: bool) -> Any:
    """The result of a read: arrays, words, facts and warnings, or the error line."""
    patch.setattr(rules, "core", lambda: native or None)
    try:
        files = inventory.build_inventory(where, readers.file_rules(reader, "text", False),
                                          config.files)  # type: ignore[arg-type]
        reading_rules = config.rules(reader, config.max_sequence)  # type: ignore[arg-type]
        read = rules.encode_documents(lambda tally: readers.documents(files, reading_rules.reader, tally,
                                                                      reading_rules.options),
                                      reading_rules, AppendableArray())
    except DataError as error:
        return str(error), type(error)
    result = read.encoded
    return (result.ids.tolist(), result.sequence.tolist(), result.document.tolist(), result.counts.tolist(),
            result.words,
            result.facts, read.tally)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the reads that use the core."""
    observed: list[int] = []
    plain_scan = rules.scan
    monkeypatch.setattr(rules, "scan", lambda *a: (observed.append(1), plain_scan(*a))[1])
    return observed


@needs_core
@given(documents=st.lists(any_bytes, min_size=1, max_size=4),
       tokenizer=st.sampled_from(["whitespace", "words", "wiki"]), reader=st.sampled_from(["text", "tokens", "tagged",
       "auto"]), lower=st.booleans(), by_line=st.booleans(), sizes=st.tuples(st.integers(1, 3), st.integers(3, 20)),
       cut=st.integers(2, 9), chunk=st.sampled_from([3, 50, 1 << 20]), threads=st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_core_and_python_reader_agree(folder: Path, documents: list[bytes], tokenizer: Any, reader: str,
                                      lower: bool, by_line: bool, sizes: tuple[int, int], cut: int, chunk: int,
                                      threads: int) -> None:
    for old in folder.iterdir():
        old.unlink()
    where = [folder / f"{i}.txt" for i in range(len(documents))]
    for path, data in zip(where, documents, strict=True):
        path.write_bytes(data)
    config = TextConfig(tokenizer=tokenizer, lower=lower, sequence="line" if by_line else "document", max_sequence=cut,
                        token_min=sizes[0], token_max=sizes[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "CHUNK", chunk)
        patch.setattr(scanning, "THREADS", threads)
        patch.setattr(os, "sched_getaffinity", lambda _: range(threads))
        assert outcome(patch, where, reader, config, True) == outcome(patch, where, reader, config, False)


TEI = """<TEI><text><body><head>ΟΔΟΣ I</head><p>One&#13;two \u2014 three&#x85;four\u00a0five</p><p>İstanbul \ufffd</p>
<l>a</l></body></text></TEI>"""


WIKI = ("<mediawiki xmlns='http://www.mediawiki.org/xml/export-0.10/'><page><title>a</title><ns>0</ns><id>1</id>"
        "<revision><text>" + "Émile's ΟΔΟΣ one_two " * 60 + "</text></revision></page></mediawiki>")


@needs_core
@pytest.mark.parametrize("tokenizer", ["whitespace", "words", "wiki", "auto"])
def test_files_of_several_formats(tmp_path: Path, tokenizer: Any, calls: list[int],
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {"a.txt": "Plain text, Émile\n", "b.xml": TEI, "c.txt": WIKI,
                          "d.txt": "Émile \0 plain"}.items():
        (tmp_path / name).write_text(content)
    config = TextConfig(tokenizer=tokenizer, max_sequence=7)
    result = outcome(monkeypatch, [tmp_path], "auto", config, True)
    assert result == outcome(monkeypatch, [tmp_path], "auto", config, False)
    assert calls == [1] and result[5]["documents"] == 4 and result[6].nul == 1


@needs_core
@pytest.mark.parametrize("content", [
    b"\xff\xfea\0b\0", b"\xfe\xff\0a", b"\1" * 400 + b"a" * 600, b"\0" * 299 + b"a " * 350 + b"\xff", b"", b" \n ",
    bytes(range(256)) * 20, b"\xff" * 2000])
def test_errors_are_identical(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    for reader in ("text", "tokens"):
        result = outcome(monkeypatch, [tmp_path / "a.txt"], reader, TextConfig(), True)
        assert result == outcome(monkeypatch, [tmp_path / "a.txt"], reader, TextConfig(), False)


@needs_core
@pytest.mark.parametrize("before", [b"a b\n", b"", b"x " * 3000])
def test_text_without_a_blank_is_read_in_python(tmp_path: Path, before: bytes, calls: list[int],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Python splits a word of more than MAX_WORD characters by its pieces; the core leaves that to Python."""
    for module in (scanning, vars(tokenize)):
        if isinstance(module, dict):
            monkeypatch.setitem(module, "MAX_WORD", 100)
        else:
            monkeypatch.setattr(module, "MAX_WORD", 100)
    monkeypatch.setattr(readers, "CHUNK", 64)
    for n in (90, 99, 100, 101, 102, 130, 250):
        (tmp_path / "a.txt").write_bytes(before + b"Ab1" * (n // 3) + b"c" * (n % 3) + b" d \xff\0")
        for tokenizer in ("whitespace", "words"):
            config = TextConfig(tokenizer=tokenizer)  # type: ignore[arg-type]
            result = outcome(monkeypatch, [tmp_path / "a.txt"], "text", config, True)
            assert result == outcome(monkeypatch, [tmp_path / "a.txt"], "text", config, False)
    assert len(calls) == 14


def test_an_array_file_can_be_restarted(tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    with path.open("wb") as file:
        out = AppendableArray(file)
        out.append(np.arange(9, dtype=np.int32))
        out.clear()
        out.append(np.arange(3, dtype=np.int32))
        out.finish()
    assert np.load(path).tolist() == [0, 1, 2] and out.n == 3
    memory = AppendableArray()
    memory.append(np.arange(9, dtype=np.int32))
    memory.clear()
    assert memory.array().tolist() == [] and memory.n == 0


@needs_core
def test_results_do_not_depend_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{i}" if i % 7 else f"É{i}\u00a0x" for i in rng.zipf(1.3, 40) % 5000) for _ in range(2000)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    monkeypatch.setattr(readers, "CHUNK", 5000)
    monkeypatch.setattr(scanning, "GROUP", 5000)                           # a hundred groups, scanned ahead
    result = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, threads=threads: range(threads))
        result.append(outcome(monkeypatch, [tmp_path / "a.txt"], "tokens", TextConfig(), True))
    assert result[0] == result[1] == result[2]
    assert result[0] == outcome(monkeypatch, [tmp_path / "a.txt"], "tokens", TextConfig(), False)


def test_whitespace_matches_python() -> None:
    """Core and reference use the ASCII sets of str.split() and str.lower()."""
    ascii_blanks = {chr(c) for c in range(128) if chr(c).isspace()}
    types = reference.ReferenceTypes()
    for c in map(chr, range(1, 128)):
        n = len(types.scan(f"a{c}b".encode(), reference.WHITESPACE, False, 1, 9)[0])
        assert (n == 2) == (c in ascii_blanks)
        assert (len(types.scan(f"a{c}b".encode(), reference.WORDS, False, 1, 9)[0]) == 2) == (not c.isalpha())
    letters = [chr(c) for c in range(0x2000, 0x2040) if re.match(r"[^\W\d_]", chr(c))]
    assert letters == []


