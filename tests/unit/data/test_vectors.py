"""Files of vectors: exchange with gensim, bit for bit; a damaged file is one clear error."""

from __future__ import annotations

import codecs
import gzip
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from gensim.models import KeyedVectors
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from embtrain.common.errors import DataError, EmbtrainError, ResourceError, UsageError
from embtrain.data.vectors.folders import read_any, write_huggingface
from embtrain.data.vectors.vectors import FORMATS, Format, Vectors, detect_format, read, write

BLANKS = " \t\n\r\v\f"
CONTROL = "".join(map(chr, [*range(32), 127]))
words = st.text(st.characters(codec="utf-8", exclude_characters=f" {CONTROL}\ufeff"), min_size=1, max_size=8)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn) -> Vectors:
    these = draw(st.lists(words, min_size=1, max_size=6, unique=True))
    dim = draw(st.integers(1, 5))
    return Vectors(these, draw(hnp.arrays(np.float32, (len(these), dim), elements=floats)))


def make_vectors(n: int = 7, dim: int = 4) -> Vectors:
    return Vectors([f"w{i}" for i in range(n)], np.random.default_rng(3).normal(size=(n, dim)).astype(np.float32))


def same(a: Vectors, words: list[str], table: np.ndarray) -> bool:
    return a.words == list(words) and a.table.tobytes() == np.ascontiguousarray(table).tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vectors")


@settings(max_examples=60)
@given(tables(), st.sampled_from(FORMATS))
def test_written_vectors_are_read_back_bitwise(folder: Path, vectors: Vectors, format: str) -> None:
    write(folder / "file", vectors, format)
    assert same(read(folder / "file", format), vectors.words, vectors.table)


@settings(max_examples=60)
@given(tables(), st.booleans())
def test_gensim_reads_our_files_and_we_read_those_of_gensim(folder: Path, vectors: Vectors, binary: bool) -> None:
    format = "word2vec-binary" if binary else "word2vec"
    write(folder / "ours", vectors, format)
    theirs = KeyedVectors.load_word2vec_format(folder / "ours", binary=binary)
    assert same(vectors, theirs.index_to_key, theirs.vectors)
    vectors.keyed().save_word2vec_format(folder / "theirs", binary=binary)
    assert same(read(folder / "theirs", format), vectors.words, vectors.table)
    if binary:
        assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dim", [1, 2, 100])
def test_format_is_recognized_by_the_content(tmp_path: Path, format: str, dim: int) -> None:
    write(tmp_path / "x", make_vectors(dim=dim), format)
    assert detect_format(tmp_path / "x") == format
    assert same(read(tmp_path / "x"), make_vectors(dim=dim).words, make_vectors(dim=dim).table)
    if format != "safetensors":
        (tmp_path / "x.gz").write_bytes(gzip.compress((tmp_path / "x").read_bytes()))
        assert detect_format(tmp_path / "x.gz") == format
        assert same(read(tmp_path / "x.gz"), make_vectors(dim=dim).words, make_vectors(dim=dim).table)


def test_binary_vector_that_starts_with_a_newline_byte_is_not_text(tmp_path: Path) -> None:
    table = np.array([[struct.unpack("<f", b"\n123")[0]], [1.5]], np.float32)
    write(tmp_path / "x", Vectors(["a", "b"], table), "word2vec-binary")
    assert detect_format(tmp_path / "x") == "word2vec-binary"
    assert same(read(tmp_path / "x"), ["a", "b"], table)


def test_newline_after_each_vector_and_space_after_each_value_of_the_c_tool(tmp_path: Path) -> None:
    row = np.array([0.25, -3], "<f4").tobytes()
    (tmp_path / "b").write_bytes(b"2 2\nab " + row + b"\ncd " + row + b"\n")
    (tmp_path / "t").write_bytes(b"2 2\nab 0.25 -3 \ncd 0.25 -3 \n")
    for name in "bt":
        assert same(read(tmp_path / name), ["ab", "cd"], np.array([[0.25, -3]] * 2, np.float32))


def test_vector_longer_than_a_chunk(tmp_path: Path) -> None:
    vectors = make_vectors(600, 1000)  # 2.4 MB: rows cross the chunks that are read
    write(tmp_path / "x", vectors, "word2vec-binary")
    assert same(read(tmp_path / "x"), vectors.words, vectors.table)


def test_glove_words_may_contain_spaces_but_numbers_are_not_words(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(", 1 2\n. . . 3 4\nname@domain.com 5 6\nat name 7 8\nx\u00a0y 9 10\n", encoding="utf-8")
    assert read(tmp_path / "x").words == [",", ". . .", "name@domain.com", "at name", "x\u00a0y"]
    (tmp_path / "x").write_text("a 1 2\nb 3 4 5\n")
    with pytest.raises(DataError, match=r"x:2: should be a word and 2 numbers as in line 1, got 3"):
        read(tmp_path / "x")


def unsealed(content: bytes) -> bytes:
    """Write a safetensors file as another program does, without a hash."""
    return safetensors.numpy.save(safetensors.numpy.load(content))


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "fasttext"])
def test_repeated_word_keeps_its_first_vector_with_a_warning(tmp_path: Path, format: str,
                                                          caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "x", Vectors(["a", "b", "c"], np.arange(6).reshape(3, 2)), format)
    content = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(unsealed(content).replace(b"\nc", b"\na") if format == "safetensors" else
                                 content.replace(b"c 4", b"a 4").replace(b"c " + struct.pack("<f", 4),
                                                                         b"a " + struct.pack("<f", 4)))
    vectors = read(tmp_path / "x")
    assert same(vectors, ["a", "b"], np.arange(4, dtype=np.float32).reshape(2, 2))
    expected = f"{tmp_path / 'x'}: 1 row repeats a word (for example 'a'); the first of each is kept"
    assert [record.getMessage() for record in caplog.records] == [expected]


BINARY = b"2 2\na " + struct.pack("<2f", 1, 2) + b"b " + struct.pack("<2f", 3, 4)
DAMAGED = {
    "text, more values": (b"2 2\na 1 2\nb 1 2 3\n", r"x:3: should be a word and 2 numbers, got 3"),
    "text, fewer values": (b"2 2\na 1 2\nbc 1  \n", r"x:3: should be a word and 2 numbers, got 1"),
    "text, no number": (b"2 2\na 1 2\nb 1 two\n", r"x:3: should be numbers after the word, got b'two'"),
    "text, Python's number": (b"2 2\na 1 2\nb 1 1_0\n", r"x:3: should be numbers"),
    "text, NaN": (b"2 2\na 1 2\nb nan 1\n", r"x:3: contains NaN"),
    "text, infinities": (b"2 2\na 1 2\nb inf -inf\n", r"x:3: contains NaN or infinity"),
    "text, beyond float32": (b"2 2\na 1 2\nb 1e39 1\n", r"x:3: .*too large for float32"),
    "text, one value": (b"1 1\na 1 2\n", r"x:2: should be a word and 1 number, got 2"),
    "text, one row": (b"2 1\na 1\n", r"x: ends after 1 row; line 1 declares 2"),
    "text, one word": (b"1 99999999\na 1\n", r"x:1: declares 1 word of 99,999,999 dimensions; should"),
    "text, one dimension": (b"999999999 1\na 1\n", r"x:1: declares 999,999,999 words of 1 dimension, more"),
    "glove, one value": (b"a 1.5\nb 1 2\n", r"x:2: should be a word and 1 number as in line 1, got 2"),
    "binary, one row": (b"2 1\na " + struct.pack("<f", 1), r"x: ends after 1 row; line 1 declares 2"),
    "text, cut off": (b"3 2\na 1 2\nb 1 2\n     \n", r"x: ends after 2 rows; line 1 declares 3"),
    "text, goes on": (b"1 2\na 1 2\nb 1 2\n", r"x:3: more rows than the 1"),
    "text, no UTF-8": (b"2 2\na 1 2\n\xff 1 2\n", r"x:3: its word is not UTF-8"),
    "text, empty word": (b"2 2\na 1 2\n 1 2\n", r"x:3: its word is empty"),
    "text, too many": (b"999999999 300\na 1 2\n", r"x:1: declares 999,999,999 words of 300 dimensions, more than"),
    "text, too wide": (b"1 99999999\na 1 2\n", r"x:1: .*should be 1 or more words of 1 to 65,536"),
    "text, none": (b"0 5\n", r"x:1: declares 0 words"),
    "binary, cut off": (BINARY[:-1], r"x: row 2 of 2: the file ends inside it"),
    "binary, no UTF-8": (b"2 1\nabc \x01\xff\xff\x01\xff \x01\xff\xff\x01", r"x: row 2 of 2: its word is not UTF-8"),
    "binary, goes on": (BINARY + b"c", r"x: continues after the 2 rows"),
    "binary, NaN": (BINARY[:-4] + struct.pack("<f", float("nan")), r"x: row 2 of 2: 'b': contains NaN"),
    "binary, infinity": (BINARY[:-4] + struct.pack("<f", float("-inf")), r"x: row 2 of 2: 'b': contains NaN or inf"),
    "binary, too many": (BINARY.replace(b"2 2", b"88888888888 2"), r"x:1: declares .* more than its 34 bytes"),
    "binary, endless word": (b"2 2\n" + b"\x01" * 9000, r"x: row 1 of 2: no word within 4,096 bytes"),
    "glove, NaN": (b"a 1 2\nb nan 2\n", r"x:2: contains NaN"),
    "glove, no number": (b"a 1 2\nb 1 x\n", r"x:2: should be numbers after the word, got b'x'"),
    "glove, fewer values": (b"a 1 2\nb 1\n", r"x:2: should be a word and 2 numbers as in line 1, got 1"),
    "gzip, cut off": (gzip.compress(BINARY)[:-9], r"x: damaged gzip file"),
    "gzip, not at all": (b"\x1f\x8b" + b"a" * 90, r"x: damaged gzip file"),
    "safetensors, cut off": (b"\x10\x05" + b"\0" * 6 + b'{"vectors"', r"x: is not a complete safetensors file"),
    "prose": (b"It was the best of times\nit was\n", r"x: is not a vector file; give word2vec"),
    "nothing": (b"", r"x: is not a vector file"),
    "a pickle": (b"\x80\x04\x95\n...", r"x: is not a vector file"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_file_is_one_clear_line(tmp_path: Path, what: str) -> None:
    content, message = DAMAGED[what]
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / "x")
    assert "\n" not in str(caught.value)


AGAIN = "; fetch the file again, or write it without this vector"
FIRST = "fetch it again, or write the first 1 to a file: embtrain export FILE --limit 1 --out NEW"
CORRECT = "; fetch the file again, or correct the line"


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(("content", "message"), [
    (lambda sealed: b"2 2\na 1 2\nb 1 nan\n",
     f":3: contains NaN or infinity, or a number too large for float32{AGAIN}"),
    (lambda sealed: BINARY[:-4] + struct.pack("<f", float("nan")),
     f": row 2 of 2: 'b': contains NaN or infinity{AGAIN}"),
    (lambda sealed: b"2 2\na 1 2\nb 1 x\n", f":3: should be numbers after the word, got b'x'{CORRECT}"),
    (lambda sealed: b"a 1 2\nb 1\n", f":2: should be a word and 2 numbers as in line 1, got 1 after the word{CORRECT}"),
    (lambda sealed: b"a 1 2\nb 1", ":2: should be a word and 2 numbers as in line 1, got 1 after the word; the file "
     f"ends inside this line; {FIRST}"),
    (lambda sealed: b"2 2\na 1 2\nb 1 x", ":3: should be numbers after the word, got b'x'; the file ends inside this "
     f"line; {FIRST}"),
    (lambda sealed: b"2 2\na 1 2\n 1 2\n", ":3: its word is empty; fetch the file again, or correct the word"),
    (lambda sealed: BINARY.replace(b"b ", b" "),
     ": row 2 of 2: its word is empty; fetch the file again, or correct the word"),
    (lambda sealed: b"1 1\n" + b"a" * 4097 + b" 1\n",
     ":2: its word is longer than 4,096 bytes; fetch the file again, or correct the word"),
    (lambda sealed: unsealed(sealed.replace(struct.pack("<f", 4), struct.pack("<f", float("nan")))),
     f": row 2: 'b': contains NaN or infinity{AGAIN}"),
    (flipped, ": damaged: the sha256 of its data differs from the recorded one; restore the file, or write it again"),
    (lambda sealed: safetensors.numpy.save({"embedding.weight": np.zeros((2, 2), np.float32)}),
     ": should be tensors `vectors` (V, D) float32, float16 or bfloat16 and `words` uint8, as written by `embtrain "
     "export`; got embedding.weight, as in a Hugging Face folder: give the folder")])
def test_a_faulty_file_is_reported_with_a_remedy(tmp_path: Path, content: Callable[[bytes], bytes], message: str
                                                 ) -> None:
    path = tmp_path / "x"
    write(path, Vectors(["a", "b"], np.arange(2, 6).reshape(2, 2)), "safetensors")
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value) == f"{path}{message}"


def test_a_cut_safetensors_file_is_reported_with_a_remedy(tmp_path: Path) -> None:
    write_huggingface(tmp_path, Vectors(["a", "b"], np.ones((2, 2))), None, {}, {}, "card")
    write(tmp_path / "x", Vectors(["a", "b"], np.ones((2, 2))), "safetensors")
    for path, what in ((tmp_path / "x", tmp_path / "x"), (tmp_path / "model.safetensors", tmp_path)):
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(DataError, match=f"{path}: is not a complete safetensors file: .*; restore it, or fetch it "
                                            "again$"):
            read_any(what)


@pytest.mark.parametrize(("word", "format", "message"), [
    ("New York", "word2vec", "contains a space, which this format cannot represent; choose the format safetensors or "
                             "fasttext"),
    ("New York", "glove", "contains a space, which this format cannot represent; choose the format safetensors or "
                          "fasttext"),
    ("a\tb", "fasttext", "contains a control character, which this format cannot represent; choose the format "
                         "safetensors"),
    ("a\nb", "word2vec-binary", "contains a control character, which no format can represent; rename the word"),
    ("", "safetensors", "is empty, which no format can represent; rename the word")])
def test_a_word_that_a_format_cannot_represent_is_refused_with_a_remedy(tmp_path: Path, word: str, format: Format,
                                                                        message: str) -> None:
    table = Vectors(["a", word], np.ones((2, 2)))
    with pytest.raises(DataError) as caught:
        write(tmp_path / "x", table, format)
    assert str(caught.value) == f"{tmp_path / 'x'}: word 2, {word!r}: {message}"
    for other in FORMATS:
        if other in message.partition(";")[2].split():
            write(tmp_path / "y", table, other)
            assert read(tmp_path / "y").words == table.words


def tensors(path: Path, **tensors: np.ndarray) -> None:
    path.write_bytes(safetensors.numpy.save(tensors))


def test_safetensors_file_of_another_kind_is_rejected(tmp_path: Path) -> None:
    x, letters = tmp_path / "x", np.frombuffer(b"a\nb", np.uint8)
    for wrong in ({"u": np.zeros((2, 2), np.float32)},
                  {"vectors": np.zeros((2, 2), np.float64), "words": letters},
                  {"vectors": np.zeros(4, np.float32), "words": letters},
                  {"vectors": np.zeros((2, 2), np.float32), "words": letters.astype(np.int32)}):
        tensors(x, **wrong)
        with pytest.raises(DataError, match="x: should be tensors `vectors`"):
            read(x)
    tensors(x, vectors=np.zeros((3, 2), np.float32), words=letters)
    with pytest.raises(DataError, match="2 words for 3 vectors"):
        read(x)
    tensors(x, vectors=np.full((2, 2), np.inf, np.float32), words=letters)
    with pytest.raises(DataError, match="row 1: 'a': contains NaN or infinity"):
        read(x)
    tensors(x, vectors=np.zeros((2, 2), np.float32), words=np.frombuffer(b"a\n\xff", np.uint8))
    with pytest.raises(DataError, match="not UTF-8"):
        read(x)


@pytest.mark.parametrize("format", FORMATS)
def test_more_memory_than_allowed_is_rejected(tmp_path: Path, format: str) -> None:
    write(tmp_path / "x", make_vectors(100, 50), format)
    with pytest.raises(ResourceError, match=r"x: .* vectors of 50 numbers take .* bytes of memory, more than the 20"):
        read(tmp_path / "x", max_bytes=20_000)
    assert len(read(tmp_path / "x", max_bytes=40_000)) == 100


@pytest.mark.parametrize("header, error", [(b"3000 300", ResourceError), (b"500000 300", DataError),
                                           (b"99999999999999999 60000", DataError)])
@pytest.mark.parametrize("binary", [True, False])
def test_header_is_checked_before_memory_is_allocated(tmp_path: Path, header: bytes, error: type[EmbtrainError],
                                                      binary: bool) -> None:
    noise = np.random.default_rng(0).bytes(5000)
    rest = noise if binary else noise.hex().encode()
    (tmp_path / "x.gz").write_bytes(gzip.compress(header + b"\na " + rest))
    assert detect_format(tmp_path / "x.gz") == ("word2vec-binary" if binary else "word2vec")
    tracemalloc.start()
    try:
        with pytest.raises(error, match=r"x\.gz"):
            read(tmp_path / "x.gz", max_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


@settings(max_examples=100)
@given(st.sampled_from(FORMATS), st.data())
def test_any_damage_ends_in_a_data_error_or_in_finite_vectors(folder: Path, format: str, data: st.DataObject) -> None:
    path = folder / "damaged"
    write(path, make_vectors(), format)
    content = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=3)):
        content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[:data.draw(st.integers(0, len(content)))]))
    try:
        vectors = read(path)
    except EmbtrainError as error:
        assert str(path) in str(error)
    else:
        assert np.isfinite(vectors.table).all() and len(set(vectors.words)) == len(vectors.words)


@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary", "glove"])
@pytest.mark.parametrize("word", ["New York", "", *BLANKS])
def test_writing_a_word_with_a_space_is_rejected_and_leaves_no_file(tmp_path: Path, word: str, format: str) -> None:
    with pytest.raises(DataError, match=r"x: word 2, .*: (is empty|contains a (space|control character)), which"):
        write(tmp_path / "x", Vectors(["a", word], np.zeros((2, 3))), format)
    assert list(tmp_path.iterdir()) == []


def test_safetensors_accepts_spaces_but_no_newline(tmp_path: Path) -> None:
    write(tmp_path / "x", Vectors(["New York", "a\tb"], np.zeros((2, 3))), "safetensors")
    assert read(tmp_path / "x").words == ["New York", "a\tb"]
    with pytest.raises(DataError):
        write(tmp_path / "x", Vectors(["a\nb"], np.zeros((1, 3))), "safetensors")


@pytest.mark.parametrize("format", ["word2vec", "word2vec-binary", "glove", "safetensors", "fasttext"])
def test_integer_words_of_gensim_are_written_as_their_digits(tmp_path: Path, format: str) -> None:
    keyed = KeyedVectors(2)
    keyed.add_vectors([7, np.int64(3)], np.array([[1, 2], [3, 4]], np.float32))
    write(tmp_path / "x", Vectors.of(keyed), format)
    result = read(tmp_path / "x")
    assert same(result, ["7", "3"], keyed.vectors)
    if format == "word2vec":
        keyed.save_word2vec_format(tmp_path / "theirs")
        assert same(result, read(tmp_path / "theirs").words, keyed.vectors)


@pytest.mark.parametrize("word", [None, 2.5, b"q", ("q", 1)])
def test_words_of_gensim_that_are_neither_strings_nor_integers_are_an_error(word: object) -> None:
    keyed = KeyedVectors(2)
    keyed.add_vectors(["a", word], np.ones((2, 2), np.float32))
    with pytest.raises(DataError, match=r"^word 2, .*: is of the type \w+; give str or int$"):
        Vectors.of(keyed)


@pytest.mark.parametrize("vectors, message", [
    (Vectors(["a", "b"], np.array([[1, 2], [np.nan, 1]])), "word 2, 'b': its vector contains NaN or infinity; train "
     r"again with a lower train\.lr, or omit the word"),
    (Vectors(["a", "a"], np.zeros((2, 1))), "the word 'a' occurs twice; rename one, or omit it"),
    (Vectors(["\ud800"], np.zeros((1, 1))), "cannot be written as UTF-8; rename it"),
    (Vectors(["a" * 5000], np.zeros((1, 1))), "longer than 4,096 bytes; shorten it"),
    (Vectors([], np.zeros((0, 3))), "0 vectors of 3 numbers cannot be written; give 1 or more"),
    (Vectors(["a", 2.5], np.zeros((2, 1))), r"word 2, 2\.5: is of the type float; give str"),  # type: ignore[list-item]
])
def test_unreadable_vectors_are_not_written(tmp_path: Path, vectors: Vectors, message: str) -> None:
    with pytest.raises(DataError, match=message):
        write(tmp_path / "x", vectors, "word2vec")


def test_missing_file_and_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none: cannot be read: No such file"):
        read(tmp_path / "none")
    with pytest.raises(DataError, match=r"none: cannot be read"):
        read(tmp_path / "none", "safetensors")
    with pytest.raises(UsageError, match="there are: word2vec, word2vec-binary, glove, safetensors"):
        write(tmp_path / "x", make_vectors(), "csv")  # type: ignore[arg-type]


def test_pipe_is_rejected_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    # A process at the other end, so that an open that does not reject the pipe fails instead of waiting for ever.
    end = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(end, b"1 1\na 1\n")
    for path in (tmp_path / "pipe", tmp_path):
        for format in (None, "glove", "safetensors"):
            with pytest.raises(DataError, match="is a folder, a pipe or a device"):
                read(path, format)  # type: ignore[arg-type]
    os.close(end)


def test_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    for format in ("word2vec", "word2vec-binary", "glove"):
        write(tmp_path / "x", make_vectors(), format)  # type: ignore[arg-type]
        (tmp_path / "x").write_bytes(codecs.BOM_UTF8 + (tmp_path / "x").read_bytes())
        assert detect_format(tmp_path / "x") == format
        assert same(read(tmp_path / "x"), make_vectors().words, make_vectors().table)
    marked = Vectors(["\ufeffa", "b"], np.eye(2))
    write(tmp_path / "y", marked, "word2vec")
    assert read(tmp_path / "y").words == marked.words
    with pytest.raises(DataError, match=r"word 1, .*begins with a byte order mark"):
        write(tmp_path / "y", marked, "glove")


def test_words_are_found_with_and_without_their_case() -> None:
    vectors = Vectors(["the", "Apple", "apple", "Rome"], np.eye(4))
    assert vectors.find(["The", "apple", "APPLE", "rome", "x"]).tolist() == [-1, 2, -1, -1, -1]
    assert vectors.find(["The", "apple", "APPLE", "rome", "x"], lower=True).tolist() == [0, 2, 1, 3, -1]


def test_unit_vectors_have_length_one_also_for_huge_numbers_and_zeros_stay() -> None:
    unit = Vectors(["a", "b", "c"], np.array([[3, 4], [0, 0], [3e37, 4e37]])).unit
    np.testing.assert_allclose(unit, [[0.6, 0.8], [0, 0], [0.6, 0.8]], rtol=1e-6)
    # no float32 can store these
    unit = Vectors(["a", "b", "c"], np.array([[3e38, 3e38], [3e38, 1], [3e-45, 3e-45]])).unit
    np.testing.assert_allclose(unit, [[.5 ** .5, .5 ** .5], [1, 0], [.5 ** .5, .5 ** .5]], rtol=1e-6, atol=1e-30)
    assert unit.dtype == np.float32


def test_rows_of_zeros_are_found_without_a_copy_for_each_use() -> None:
    """The rows of 100,000 questions took 300 MB."""
    vectors = Vectors(["a", "b"], np.array([np.zeros(100), np.ones(100)]))
    rows = np.tile([[0, 1, -1]], (20_000, 1))
    tracemalloc.start()
    are_zeros = vectors.are_zeros(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (are_zeros == [True, False, False]).all() and are_zeros.shape == rows.shape
    assert peak < rows.nbytes * 10
