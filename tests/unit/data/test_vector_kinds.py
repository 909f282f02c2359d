"""Files of vectors as other tools write them: the supported ones, and errors with the row and the remedy."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from embtrain import experiment
from embtrain.cli import run as command
from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.data.vectors import open as vector_open, vectors
from embtrain.data.vectors.folders import read_any
from embtrain.data.vectors.open import ReadOptions
from embtrain.data.vectors.vectors import Vectors, read

KINGS = np.array([[.5, .1, .2], [.4, .1, .3], [.1, .9, .1]], np.float32)
PLAIN = b"king 0.5 0.1 0.2\nqueen 0.4 0.1 0.3\nman 0.1 0.9 0.1\n"


def file(tmp_path: Path, content: bytes, name: str = "x") -> Path:
    (tmp_path / name).write_bytes(content)
    return tmp_path / name


def refused(path: Path, reading: ReadOptions = vector_open.BY_OPTIONS) -> str:
    with pytest.raises(DataError) as caught:
        read(path, reading=reading)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    return str(caught.value).removeprefix(str(path))


# --- separators and words --------------------------------------------------------------------------------------------

@pytest.mark.parametrize("first", [b"", b"3 3\n", b"3\t3\r\n"])
@pytest.mark.parametrize("line", [
    b"%s\t%s %s %s\n", b"%s\t%s\t%s\t%s\n", b"%s %s\t%s %s\n", b"%s  %s   %s %s \t\n", b"%s \t%s %s\t %s\r\n",
    b" %s %s %s %s\n"])
def test_spaces_and_tabs_separate_in_any_mixture(tmp_path: Path, first: bytes, line: bytes) -> None:
    rows = [b"king", b"0.5", b"0.1", b"0.2"], [b"queen", b"0.4", b"0.1", b"0.3"], [b"man", b"0.1", b"0.9", b"0.1"]
    result = read(file(tmp_path, first + b"".join(line % tuple(row) for row in rows)))
    assert result.words == ["king", "queen", "man"] and np.array_equal(result.table, KINGS)


@pytest.mark.parametrize("first", [b"", b"3 2\n"])
def test_words_may_contain_spaces_with_and_without_a_header(tmp_path: Path, first: bytes) -> None:
    result = read(file(tmp_path, first + b"New York 1 2\n. . . 3 4\nat name@domain.com 5 6\n"))
    assert result.words == ["New York", ". . .", "at name@domain.com"]
    assert result.table.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert read(file(tmp_path, first + b"route 66\t1 2\na 2 3\nb 3 4\n")).words == ["route 66", "a", "b"]
    assert ":3: should be a word and 2 numbers" in refused(file(tmp_path, b"3 2\na 1 2\nroute 66 1 2\nb 1 2\n"))
    assert ":1: its word contains a control character" in refused(file(tmp_path, b"a\tb c 3 4\n"))


@pytest.mark.parametrize("control", [b"\0", b"\x01", b"\x1b", b"\x1f", b"\x7f", b"\t"])
def test_word_with_a_control_character_is_rejected_in_every_format(tmp_path: Path, control: bytes) -> None:
    word = b"a" + control + b"b"
    numbers = struct.pack("<2f", 1, 2)
    for content in (b"c 1 2\n" + word + b" 1 2\n", b"2 2\nc 1 2\n" + word + b" 1 2\n",
                    b"2 2\nc " + numbers + word + b" " + numbers, b"2 2\nc " + numbers + b"\n" + word + b" " + numbers):
        assert "contains a control character" in refused(file(tmp_path, content))
    words = torch.from_numpy(np.frombuffer(b"c\n" + word, np.uint8).copy())
    safetensors.torch.save_file({"vectors": torch.ones(2, 2), "words": words}, tmp_path / "x")
    assert ": row 2: its word contains a control character" in refused(tmp_path / "x")
    for format in ("word2vec", "word2vec-binary", "glove"):
        with pytest.raises(DataError, match=r"word 1, .*control character"):
            vectors.write(tmp_path / "y", Vectors([word.decode()], np.ones((1, 2))), format)  # type: ignore[arg-type]


def test_lines_of_numbers_without_words_are_rejected(tmp_path: Path) -> None:
    assert "only numbers" in refused(file(tmp_path, b"0.1\t0.2\t0.3\n0.4\t0.5\t0.6\n"))
    assert read(file(tmp_path, b"0 0.2 0.3\n1 0.5 0.6\n")).words == ["0", "1"]               # nodes of a graph


# --- binary files whose words contain a space ------------------------------------------------------------------------

def binary(rows: list[tuple[bytes, np.ndarray]], newline: bool) -> bytes:
    D = len(rows[0][1])
    lines = (word + b" " + x.astype("<f4").tobytes() + b"\n" * newline for word, x in rows)
    return b"%d %d\n" % (len(rows), D) + b"".join(lines)


@pytest.mark.parametrize("newline", [True, False])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("word", [b"my name", b"New York City", b"a b", b"caf\xc3\xa9 au"])
def test_space_inside_a_binary_word_is_rejected_with_its_row(tmp_path: Path, newline: bool, at: int, word: bytes
                                                             ) -> None:
    for seed in range(20):
        table = np.random.default_rng(seed).normal(size=(3, 8)).astype(np.float32)
        rows = [(word if i == at else (b"the", b"of", b"and")[i], x) for i, x in enumerate(table)]
        message = refused(file(tmp_path, binary(rows, newline)))
        assert message.startswith(f": row {at + 1} of 3: ") and "a space inside the word" in message
    plain = [(w, x) for w, x in zip((b"the", b"of", b"and"), table, strict=True)]
    assert np.array_equal(read(file(tmp_path, binary(plain, newline))).table, table)


def test_binary_files_of_many_random_rows_are_read(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(20_000, 10)).astype(np.float32)
    for newline in (True, False):
        rows = [(f"w{i}".encode(), x) for i, x in enumerate(table)]
        assert np.array_equal(read(file(tmp_path, binary(rows, newline))).table, table)


# --- files that are cut, and headers that are wrong ------------------------------------------------------------------

@pytest.mark.parametrize("first", [b"", b"3 2\n"])
def test_file_without_its_last_line_end_gives_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, first: bytes
                                                        ) -> None:
    whole = first + b"the 0.1 0.25\nof 0.3 0.45\nking 0.5 0.55\n"
    path, last = file(tmp_path, whole), 3 + bool(first)
    assert len(read(path)) == 3 and caplog.records == []
    assert len(read(file(tmp_path, whole[:-1] + b" "))) == 3 and caplog.records == []        # a space ends it, too
    assert len(read(file(tmp_path, whole[:-4]))) == 3
    [record] = caplog.records
    message = f"{path}:{last}: the file ends without a line end, so its last number, 0, may be truncated; fetch"
    assert record.getMessage().startswith(message)
    for cut in (whole[:-6], whole[:-9], whole[:-12], whole[:-6] + b"-", whole[:-6] + b"1e"):
        message = refused(file(tmp_path, cut))
        assert message.startswith(f":{last}: ")
        assert "the file ends inside this line; fetch it again, or add --limit 2" in message
    assert len(read(path, reading=ReadOptions(2))) == 2


def test_header_that_is_off_by_one_is_rejected_with_a_valid_remedy(tmp_path: Path) -> None:
    body, table = b"a 1 2\nb 3 4\n", np.array([[1, 2], [3, 4]], np.float32)
    rows = binary([(b"a", table[0]), (b"b", table[1])], newline=False)[4:]
    for content in (body, rows):
        few, many = file(tmp_path, b"1 2\n" + content, "few"), file(tmp_path, b"3 2\n" + content, "many")
        assert "; fetch it again, or add --limit 1 to read the first 1" in refused(few)
        assert "; fetch it again, or add --limit 2 to read the first 2" in refused(many)
        for path, limit, n in ((few, 1, 1), (few, 2, 2), (many, 1, 1), (many, 2, 2)):
            result = read(path, reading=ReadOptions(limit))
            assert result.words == ["a", "b"][:n] and np.array_equal(result.table, table[:n])
        for path in (few, many):                             # a limit that no row count explains
            assert "ends after 2 rows" in refused(path, ReadOptions(5))
        exact = file(tmp_path, b"2 2\n" + content, "exact")
        assert [len(read(exact, reading=ReadOptions(n))) for n in (1, 2, 9)] == [1, 2, 2]
    assert [len(read(file(tmp_path, PLAIN), reading=ReadOptions(n))) for n in (1, 3, 9)] == [1, 3, 3]
    vectors.write(tmp_path / "s", Vectors(["a", "b"], table), "safetensors")
    assert read(tmp_path / "s", reading=ReadOptions(1)).words == ["a"]


@pytest.mark.parametrize(("content", "message"), [
    (b"", "it is empty"), (b"\n \n", "it is empty"), (b"3 2\n", "ends after 0 rows; line 1 declares 3"),
    (b"3 2", "ends after 0 rows"), (b"a 1 2\rb 3 4\r", "lines end in CR only"),
    (b"2 3\na 1 2\nb 1 2\n", ":2: should be a word and 3 numbers, got 2"),
    (b"2 2\na 1 2\nb 1 nan\n", ":3: contains NaN"), (b"a 1 2\nb 1 2 3\n", ":2: should be a word and 2 numbers"),
])
def test_files_with_too_little_or_wrong_lines(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in refused(file(tmp_path, content))


@pytest.mark.parametrize(("field", "content"), [
    (b"1,5", b"a 1,5 2\nb 2,5 3\n"), (b"0.5,", b"a, 0.5, 0.6\nb, 0.1, 0.2\n"), (b"0.5;", b"a 1 0.5; 2\nb 3 4 5\n"),
    (b"0x1", b"a 0x1 2\nb 0x2 3\n"), (b"1_0", b"a 1_0 2\n"), (b"0,1", b"\na 0,1 0,2\nb 0,3 0,4\n"),
    (b"1.000,5", b"a 1.000,5 2\n"), (b"0,1", b"1 2\na 0,1 0,2\n"), (b"0,2", b"1 2\na 0.1 0,2"),
])
def test_numbers_in_another_notation_are_not_a_part_of_the_word(tmp_path: Path, field: bytes, content: bytes) -> None:
    line = 1 + content.startswith((b"1 2\n", b"\n"))
    assert refused(file(tmp_path, content)) == (f":{line}: should be numbers after the word, got {field!r}; write each "
                                                "in digits with a decimal point, and only blanks between two")


def test_words_that_resemble_numbers_are_words(tmp_path: Path) -> None:
    content = b"1,000 1 2\n0x1f 3 4\n3, 5 6\nversion 1.2.3 7 8\nroute 66,\t9 10\nthe 2nd 1 2\n"
    assert read(file(tmp_path, content)).words == ["1,000", "0x1f", "3,", "version 1.2.3", "route 66,", "the 2nd"]
    assert read(file(tmp_path, b"2 2\nover 1,000 1 2\na 0x1f 3 4\n")).words == ["over 1,000", "a 0x1f"]


@pytest.mark.parametrize("more", [b"", b"747\t1\t2\n", b"a b\t1\t2\n", b"Boeing 707\t1 2\n"])
def test_names_in_front_of_the_first_tab_may_all_end_in_a_number(tmp_path: Path, more: bytes) -> None:
    content = b"Boeing 747\t0.1\t0.2\nBoeing 737\t0.3 0.1\n" + more
    words = ["Boeing 747", "Boeing 737", *[line.decode().partition("\t")[0] for line in more.splitlines()]]
    assert read(file(tmp_path, content)).words == words
    assert read(file(tmp_path, more + content)).words == words[2:] + words[:2]


def test_whole_numbers_in_front_of_and_after_the_first_tab_are_values(tmp_path: Path) -> None:
    found = read(file(tmp_path, b"wa 212\t7\t9\nwb 19\t3\t4\nwc 5\t250\t0\n"))
    assert found.words == ["wa", "wb", "wc"] and found.table[:, 0].tolist() == [212, 19, 5]


def test_a_number_with_a_point_in_front_of_the_first_tab_is_a_value(tmp_path: Path) -> None:
    for content in (b"a 1\t0.1\t0.2\nb 2\t0.3\t0.1\nc 0.5\t1\t2\n", b"c 0.5\t0.1\t0.2\na 1\t0.3\t0.1\nb 1\t2\t3\n"):
        assert read(file(tmp_path, content)).table.shape == (3, 3)


@pytest.mark.parametrize(("names", "more"), [
    (["web 2.0", "python 3.12"], ["foo"]), (["windows 10", "windows 8.1"], ["windows"]), (["year -1"], ["foo"]),
    (["to infinity"], ["foo"]), (["a nan", "b 7"], ["c d"])])
def test_names_may_end_in_any_number_if_another_line_has_one_reading(tmp_path: Path, names: list[str], more: list[str]
                                                                     ) -> None:
    for words in (names + more, more + names):
        path = file(tmp_path, "".join(f"{word}\t0.1\t0.2\t0.4\n" for word in words).encode())
        for limit in (None, 1, 2, 3):
            found = read(path, reading=ReadOptions(limit))
            assert found.words == words[:limit] and found.table.shape[1] == 3


@pytest.mark.parametrize("first", [b"a 0.5\t0.1\t0.2\n", b"a 5\t0.1\t0.2\n", b"a 5\t1\t2\n"])
def test_a_line_that_lacks_a_value_does_not_change_the_word_of_another(tmp_path: Path, first: bytes) -> None:
    for lacking in (b"b 0.1\t0.2\n", b"b 1\t2\n"):
        assert ":2: should be a word and 3 numbers as in line 1, got 2" in refused(file(tmp_path, first + lacking))


@pytest.mark.parametrize("first", [b"-3 2", b"words 3", b"3" * 21 + b" 2"])
def test_a_line_with_two_numbers_is_no_count(tmp_path: Path, first: bytes) -> None:
    assert ":2: should be a word and 1 number as in line 1, got 2" in refused(file(tmp_path, first + b"\na 1 2\n"))


def test_a_whole_last_line_without_its_end_has_the_remedy_of_its_fault(tmp_path: Path) -> None:
    message = refused(file(tmp_path, b"a 1 2\nb nan 3"))
    assert "contains NaN" in message and message.endswith("; fetch the file again, or write it without this vector")
    assert refused(file(tmp_path, b"a 1 2\nb x 3\nc - 3", "y")).endswith("fetch the file again, or correct the line")
    assert "not UTF-8" in (message := refused(file(tmp_path, b"a 1 2\n\xff 1 3"))) and "inside" not in message


def test_blank_lines_in_front_are_skipped(tmp_path: Path) -> None:
    for blank in (b"", b"\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf \r\n\n"):
        for content in (PLAIN, b"3 3\n" + PLAIN, b"3 3\n\n" + PLAIN):
            assert np.array_equal(read(file(tmp_path, blank + content)).table, KINGS)
        binary = b"".join(word + b" " + row.tobytes() for word, row in zip((b"a", b"b", b"c"), KINGS, strict=True))
        assert np.array_equal(read(file(tmp_path, blank + b"3 3\n" + binary)).table, KINGS)
    for content in (b"4 3\n" + PLAIN, b"4 3\n" + binary, b"2 3\n" + PLAIN, b"2 3\n" + binary, b"3 3\n"):
        assert " line 3 declares" in refused(file(tmp_path, b"\n \n" + content))
    assert refused(file(tmp_path, b"\n\n0 3\n" + PLAIN)).startswith(":3: declares 0 words")
    assert refused(file(tmp_path, b"\n3 3\na 1 2\n")).startswith(":3: should be a word and 3 numbers, got 2")


def test_a_missing_value_after_a_leading_blank_is_not_an_empty_word(tmp_path: Path) -> None:
    assert ":2: should be a word and 3 numbers, got 2 after" in refused(file(tmp_path, b"1 3\n cat 1 2\n"))
    assert ":2: its word is empty" in refused(file(tmp_path, b"1 3\n 1 2 3\n"))


def test_a_list_of_counts_is_not_a_file_of_vectors(tmp_path: Path) -> None:
    message = (": has one whole number for each word, as lists of counts have, for example a run's vocabulary.txt; "
               "give a file of vectors, or the run folder")
    for content in (b"the 40\nof 7\nking 7\n", b"the\t40\nof\t7", b"the 40\n", b"route 66\t500\na\t300\nb\t200\n"):
        assert refused(file(tmp_path, content)) == message
    path = file(tmp_path, b"a 0\nb 0.5\n")
    for limit in (1, 2, 3):                                  # 1: the next line may have a point
        assert read(path, reading=ReadOptions(limit)).table.tolist() == [[0], [0.5]][:limit]
    for limit in (1, 2, 3):
        assert refused(file(tmp_path, b"the 40\n1,000 7\n"), ReadOptions(limit)) == message
    assert read(file(tmp_path, b"3 1\nthe 40\nof 7\nking 7\n")).table.tolist() == [[40], [7], [7]]
    for content in (b"the 40\nof 7.5\n", b"the -40\nof 7\n", b"the 4e1\nof 7\n"):
        assert read(file(tmp_path, content)).table.shape == (2, 1)
    assert read(file(tmp_path, b"the 40 2\nof 7 2\n")).table.shape == (2, 2)
    for value in (0, 1, 123_456_789, 2.0 ** 31, -1, 0.5):    # written by this package
        table = np.full((2, 1), value, np.float32)
        vectors.write(tmp_path / "g", Vectors(["a", "b"], table), "glove")
        assert np.array_equal(read(tmp_path / "g").table, table)


# --- packings and other kinds of files -------------------------------------------------------------------------------

def zipped(**members: bytes) -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred() -> bytes:
    with tarfile.open(fileobj=(buffer := io.BytesIO()), mode="w") as archive:
        (member := tarfile.TarInfo("v.txt")).size = len(PLAIN)
        archive.addfile(member, io.BytesIO(PLAIN))
    return buffer.getvalue()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress,
    "zip": lambda data: zipped(**{"glove.txt": data, "__MACOSX/._glove.txt": b"x"})}


@pytest.mark.parametrize("kind", PACK)
def test_packed_files_are_read(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = binary([(b"a", KINGS[0]), (b"b", KINGS[1])], newline=True)
    assert np.array_equal(read(file(tmp_path, PACK[kind](PLAIN))).table, KINGS)
    assert np.array_equal(read(file(tmp_path, PACK[kind](b"3 3\n" + PLAIN))).table, KINGS)
    assert np.array_equal(read(file(tmp_path, PACK[kind](numbers))).table, KINGS[:2])
    packed = PACK[kind](PLAIN * 200)
    message = refused(file(tmp_path, packed[:len(packed) // 2]))
    assert f"damaged {kind} file" in message and "fetch it again" in message
    assert "is compressed twice" in refused(file(tmp_path, gzip.compress(PACK[kind](PLAIN))))
    vectors.write(tmp_path / "s", Vectors(["a"], np.ones((1, 2))), "safetensors")
    assert f"this one is with {kind}" in refused(file(tmp_path, PACK[kind]((tmp_path / "s").read_bytes())))
    monkeypatch.setattr(vector_open, "FREE_BYTES", 1 << 16)
    assert "a decompression bomb" in refused(file(tmp_path, PACK[kind](PLAIN + b"\n" * (1 << 22))))


@pytest.mark.parametrize("kind", PACK)
def test_any_changed_byte_of_a_packed_file_is_a_data_error_or_harmless(tmp_path: Path, kind: str) -> None:
    """A zip with a changed version or name ended as a bug of embtrain."""
    packed = PACK[kind](PLAIN)
    messages = set()
    for i in range(len(packed)):
        for bits in (0xFF, 0x80, 0x08):
            path = file(tmp_path, packed[:i] + bytes([packed[i] ^ bits]) + packed[i + 1:])
            try:
                read(path)
            except DataError as error:
                messages.add(str(error).removeprefix(str(path)).partition("file")[0])
    assert f": damaged {kind} " in messages


def npy(table: np.ndarray) -> bytes:
    np.save(buffer := io.BytesIO(), table)
    return buffer.getvalue()


def saved() -> bytes:
    torch.save({"a": torch.ones(2)}, buffer := io.BytesIO())
    return buffer.getvalue()


OTHERS = {
    "fastText": (struct.pack("<2i", 793712314, 12) + bytes(40), r"ends inside the settings: truncated"),
    "pickle": (pickle.dumps({"a": 1}), r"is probably a pickle.*save_word2vec_format"),
    "pickle, protocol 0": (pickle.dumps({"a": 1}, 0), r"is probably a pickle"),
    "torch": (saved(), r"is probably a pickle, as written by torch\.save"),
    "npy": (npy(KINGS), r"a NumPy array, which contains no words"),
    "npz": (zipped(**{"a.npy": npy(KINGS)}), r"a NumPy array"),
    "two in a zip": (zipped(a=PLAIN, b=PLAIN), r"a zip archive of 2 files: a, b; only one can be read: unpack"),
    "nothing in a zip": (zipped(), r"a zip archive of 0 files"),
    "tar": (tarred(), r"a tar archive; unpack it"), "tar.gz": (gzip.compress(tarred()), r"a tar archive; unpack it"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(20), r"compressed with zstd; unpack it first: zstd -d"),
    "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(20), r"compressed with 7z"),
    "lz4": (b"\x04\x22\x4d\x18" + bytes(9), r"compressed with lz4"),
    "HDF5": (b"\x89HDF\r\n\x1a\n", r"an HDF5 file"), "JSON": (b'{"king": [0.5, 0.1]}', r"is probably JSON"),
    "HTML": (b"<!DOCTYPE html>\n<html>", r"a page of HTML.*fetch it again"),
    "LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", r"git lfs pull"),
    **{name: (PLAIN.decode().encode(name), rf"encoded in {name[:6].upper()}.*--encoding utf-.*iconv -f UTF")
       for name in ("utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_file_of_another_kind_is_rejected_with_the_remedy(tmp_path: Path, kind: str) -> None:
    content, message = OTHERS[kind]
    with pytest.raises(DataError, match=message):
        read(file(tmp_path, content), reading=vector_open.BY_OPTIONS)


@pytest.mark.parametrize("word", [b"cc", b"BZh", b"{", b"(d", b"7z", b"PK", b"[", b"c1", b"Rar!", b"PAR1"])
def test_words_that_resemble_the_start_of_another_kind_are_words(tmp_path: Path, word: bytes) -> None:
    assert read(file(tmp_path, word + b" 1 2\n")).words == [word.decode()]


# --- encodings -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-32", "utf-16-le", "utf-8-sig"])
def test_encoding_can_be_set(tmp_path: Path, encoding: str) -> None:
    for first in ("", "2 2\n"):
        path = file(tmp_path, f"{first}caf\u00e9 1 2\nna\u00efve 3 4\n".encode(encoding))
        result = read(path, reading=ReadOptions(encoding=encoding))
        assert result.words == ["café", "naïve"] and result.table.tolist() == [[1, 2], [3, 4]]


def test_words_that_are_not_utf8_report_how_to_set_their_encoding(tmp_path: Path) -> None:
    message = refused(file(tmp_path, "a 1 2\ncaf\u00e9 3 4\n".encode("latin-1")))
    assert message.startswith(":2: its word is not UTF-8: b'caf\\xe9'") and "e.g. --encoding latin-1" in message
    content = binary([(b"a", KINGS[0]), ("\u00fcber".encode("latin-1"), KINGS[1])], newline=True)
    assert "row 2 of 2: its word is not UTF-8" in refused(file(tmp_path, content))
    assert read(tmp_path / "x", reading=ReadOptions(encoding="latin-1")).words == ["a", "über"]
    assert "is not encoded in utf-16" in refused(
        file(tmp_path, b"a 1 2\n" + b"\xd8" * 9), ReadOptions(encoding="utf-16")
    )
    for name in ("klingon", "zip", "hex", "rot13", "a\0b", ""):
        with pytest.raises(UsageError, match="--encoding"):
            ReadOptions(encoding=name)
    with pytest.raises(UsageError, match="--limit: 0"):
        ReadOptions(0)


# --- half-precision tables -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_tables_are_read(tmp_path: Path, kind: torch.dtype) -> None:
    table = torch.tensor([[.5, -1.25], [3, 1e-3]]).to(kind)
    words = torch.from_numpy(np.frombuffer("été\nb".encode(), np.uint8).copy())
    safetensors.torch.save_file({"vectors": table, "words": words}, tmp_path / "v")
    result = read(tmp_path / "v")
    assert result.words == ["été", "b"] and result.table.dtype == np.float32
    assert np.array_equal(result.table, table.float().numpy())
    assert np.array_equal(read(tmp_path / "v", reading=ReadOptions(1)).table, table[:1].float().numpy())
    (tmp_path / "hub").mkdir()
    safetensors.torch.save_file({"embedding.weight": table}, tmp_path / "hub/model.safetensors")
    (tmp_path / "hub/vocab.txt").write_text("a\nb\n")
    assert np.array_equal(read_any(tmp_path / "hub").table, table.float().numpy())
    assert read_any(tmp_path / "hub", ReadOptions(1)).words == ["a"]
    table[1, 1] = torch.inf
    safetensors.torch.save_file({"vectors": table, "words": words}, tmp_path / "v")
    assert "row 2: 'b': contains NaN or infinity" in refused(tmp_path / "v")


# --- the commands ----------------------------------------------------------------------------------------------------

def test_options_exist_in_every_command_that_reads_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, "4 2\ncaf\u00e9 1 0\nb 1 1\nc 0 1\n".encode("latin-1"), "v")

    def run_command(*argv: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["embtrain", *argv])
        code = command()
        return code, "".join(capsys.readouterr())

    options = ("--limit", "3", "--encoding", "latin-1")
    assert run_command("neighbours", "v", "café", "--count", "1", *options) == (0, "café: b 0.707\n")
    assert run_command("export", "v", "--out", "w", "--format", "glove", *options) == (0, "w\n")
    assert (tmp_path / "w").read_text(encoding="utf-8") == "café 1 0\nb 1 1\nc 0 1\n"
    monkeypatch.setattr("embtrain.data.catalogue.fetch.gold_path",
                        lambda recipe: file(tmp_path, b"b c 1\nb b 2\n", "gold"))
    with pytest.raises(EmbtrainError):
        experiment.evaluate(tmp_path / "v", ["rg65"])
    code, text = run_command("neighbours", "v", "b", "--encoding", "latin-1")
    assert code == 3 and "ends after 3 rows; line 1 declares 4; fetch it again, or add --limit 3" in text
    code, text = run_command("neighbours", "v", "b", "--encoding", "klingon")
    assert code == 2 and "--encoding: 'klingon': is not a text encoding" in text
