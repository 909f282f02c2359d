"""Files of fastText against gensim's reader and writer, and against a loop in float32; damage ends in one line.

tests/slow/parity/test_fasttext.py compares them with fastText itself.
"""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
from gensim.models.fasttext import FastText, load_facebook_model, save_facebook_model
from hypothesis import given, settings, strategies as st

from embtrain.common.errors import DataError, EmbtrainError, ResourceError, UsageError
from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.fasttext_file import read_fasttext, write_fasttext
from embtrain.data.vectors.fasttext_model import FastTextModel, FastTextSettings, ModelDetails
from embtrain.data.vectors.open import ReadOptions
from embtrain.data.vectors.subword_table import SubwordTable
from embtrain.data.vectors.vectors import Vectors

UNSEEN = ["Käsekuchen", "kings", "北京", "👍", "k"]
SIZES_AT, WORDS_AT = 64, 92  # bytes of the header and settings; of the sizes too
FLOAT = struct.Struct("<f")


def make_model(buckets: int = 50, dim: int = 5, minn: int = 2, maxn: int = 4) -> FastTextModel:
    words = ["</s>", "king", "Käse", "北京大学", "a b", "x"]
    draw = np.random.default_rng(2)
    u, g, v = (draw.normal(size=(n, dim)).astype(np.float32) for n in (len(words), buckets, len(words)))
    return FastTextModel(FastTextSettings(dim, bucket=buckets, minn=minn, maxn=maxn), words,
                         np.array([9, 7, 7, 3, 2, 1]), u, g, v)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_fasttext(tmp_path / "m.bin", make_model())
    return tmp_path / "m.bin"


def by_a_loop(model: FastTextModel, word: str) -> np.ndarray:
    """Return the mean of the rows of a word as fastText computes it: float32 sums, times a float32 reciprocal."""
    rows = [model.word_rows[model.words.index(word)]] if word in model.words else []
    assert model.subwords is not None
    rows += [model.ngram_rows[i] for i in model.subwords.ngrams.rows([word])[1]]
    total = np.zeros(model.settings.dim, np.float32)
    for row in rows:
        total = total + row
    return total * np.float32(1 / max(len(rows), 1))


def test_vectors_are_means_in_the_order_of_fasttext() -> None:
    model = make_model()
    words = [*model.words, *UNSEEN, ""] * 3
    assert model.subwords.compose(words).tobytes() == np.stack([by_a_loop(model, word) for word in words]).tobytes()
    assert (model.subwords.compose(["</s>"])[0] == model.word_rows[0]).all()
    assert model.table().tobytes() == model.subwords.compose(model.words).tobytes()


def test_a_word_without_ngrams_and_row_is_zero() -> None:
    model = make_model(minn=4)
    assert not model.subwords.compose(["k"]).any() and model.subwords.compose([]).shape == (0, 5)


def test_gensim_reads_our_file(path: Path) -> None:
    model, theirs = make_model(), load_facebook_model(str(path))
    assert theirs.wv.index_to_key == model.words and theirs.syn1neg.tobytes() == model.output.tobytes()
    assert theirs.wv.vectors_ngrams.tobytes() == model.ngram_rows.tobytes()
    words = [*model.words[1:], *UNSEEN[:-1]]  # gensim gives </s> n-grams, which fastText does not
    np.testing.assert_allclose([theirs.wv[word] for word in words], model.subwords.compose(words), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sg", [0, 1])
def test_we_read_the_file_of_gensim(tmp_path: Path, sg: int) -> None:
    theirs = FastText([["king", "queen", "Käse", "北京大学"]] * 5, vector_size=6, min_count=1, bucket=40, sg=sg,
                      workers=1)
    save_facebook_model(theirs, str(tmp_path / "theirs.bin"))
    model = read_fasttext(tmp_path / "theirs.bin", 1 << 20, with_output=True)
    assert model.words == theirs.wv.index_to_key and model.counts.tolist() == [5] * 4
    np.testing.assert_array_equal(model.word_rows, theirs.wv.vectors_vocab)
    np.testing.assert_array_equal(model.output, theirs.syn1neg)
    words = [*model.words, *UNSEEN[:-1]]
    np.testing.assert_allclose(model.subwords.compose(words), [theirs.wv[word] for word in words], rtol=0, atol=1e-7)
    write_fasttext(tmp_path / "ours.bin", model)
    assert (tmp_path / "ours.bin").read_bytes() == (tmp_path / "theirs.bin").read_bytes()


def test_every_field_is_read_back(path: Path) -> None:
    again, model = read_fasttext(path, 1 << 20, with_output=True), make_model()
    assert again.settings == model.settings and again.words == model.words
    for name in ("counts", "word_rows", "ngram_rows", "output"):
        assert getattr(again, name).tobytes() == getattr(model, name).tobytes()
    assert read_fasttext(path, 1 << 20).output is None


def test_vectors_of_a_model_compose_and_are_written_with_their_ngrams(path: Path) -> None:
    vectors = vector_files.read(path)
    assert vectors.words == make_model().words and vectors.subwords is not None
    assert vectors.table.tobytes() == make_model().table().tobytes()
    first = vectors.first(2).subwords
    assert first is not None and first.words == vectors.words[:2] and first.table is vectors.subwords.table
    vector_files.write(path.with_name("again"), vectors, "fasttext")
    again = vector_files.read(path.with_name("again")).subwords
    assert (again.compose(UNSEEN) == make_model().subwords.compose(UNSEEN)).all()


def test_vectors_without_ngrams_become_a_model_without_ngrams(tmp_path: Path) -> None:
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    vector_files.write(tmp_path / "m", Vectors(["a", "b c", "d"], table), "fasttext",
                       details=ModelDetails(np.array([2, 9, 4])))
    assert vector_files.read(tmp_path / "m").subwords is None
    theirs = load_facebook_model(str(tmp_path / "m"))
    assert theirs.wv.index_to_key == ["a", "b c", "d"] and (theirs.wv.vectors == table).all()
    assert [theirs.wv.get_vecattr(word, "count") for word in ("a", "b c", "d")] == [2, 9, 4]


def test_limit_reads_the_first_words_and_all_ngrams(path: Path) -> None:
    vectors, model = vector_files.read(path, reading=ReadOptions(limit=2)), make_model()
    assert vectors.words == model.words[:2] and (vectors.table == model.table()[:2]).all()
    assert (vectors.subwords.compose(UNSEEN) == model.subwords.compose(UNSEEN)).all()


def test_packed_model_is_read(path: Path) -> None:
    path.with_name("m.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert (vector_files.read(path.with_name("m.gz")).table == make_model().table()).all()


def test_words_that_are_not_utf8_are_left_out_with_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(path.read_bytes().replace("Käse".encode(), b"K\xe4se\xff"))
    model, expected = read_fasttext(path, 1 << 20, with_output=True), make_model()
    kept = [0, 1, 3, 4, 5]
    assert model.words == [expected.words[i] for i in kept] and (model.word_rows == expected.word_rows[kept]).all()
    assert (model.output == expected.output[kept]).all() and model.counts.tolist() == expected.counts[kept].tolist()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 1 of 6 words is not text in UTF-8, e.g. b'K\\xe4se\\xff'; it is left out"]


def test_another_encoding_is_refused(path: Path) -> None:
    assert read_fasttext(path, 1 << 20, ReadOptions(encoding="UTF8")).words
    with pytest.raises(UsageError, match=r"--encoding: latin-1: .* whose words are UTF-8"):
        read_fasttext(path, 1 << 20, ReadOptions(encoding="latin-1"))


def with_settings(content: bytes, **changed: int) -> bytes:
    given = replace(make_model().settings, **changed)
    return content[:8] + struct.pack("<12id", *astuple(given)) + content[SIZES_AT:]


def with_sizes(content: bytes, size: int = 6, words: int = 6, labels: int = 0, pruned: int = -1) -> bytes:
    return content[:SIZES_AT] + struct.pack("<iiiqq", size, words, labels, 29, pruned) + content[WORDS_AT:]


def with_number(content: bytes, last: int, number: float) -> bytes:
    """Replace the `last`-th number from the end."""
    return content[:len(content) - 4 * last] + FLOAT.pack(number) + content[len(content) - 4 * last + 4:]


INPUT_AT = -(6 * 5 * 4 + 17 + 56 * 5 * 4 + 17)  # of the input matrix, from the end
DAMAGED = {
    "supervised": (lambda c: with_settings(c, model=3), "is a supervised fastText model"),
    "unknown model": (lambda c: with_settings(c, model=9), "model 9: damaged"),
    "quantized": (lambda c: c[:INPUT_AT] + b"\x01" + c[INPUT_AT + 1:], r"is a quantized fastText model \(.ftz\)"),
    "pruned": (lambda c: with_sizes(c, pruned=2), r"is a quantized fastText model \(.ftz\)"),
    "version": (lambda c: c[:4] + b"\x0d" + c[5:], "is not a fastText model of version 12"),
    "dimensions": (lambda c: with_settings(c, dim=-1), "-1 dimensions, 50 buckets"),
    "other dimensions": (lambda c: with_settings(c, dim=6),
                         "input matrix of 56 rows and 5 dimensions; should be 56 and 6"),
    "no buckets": (lambda c: with_settings(c, bucket=0), "0 buckets and n-grams of 2 to 4"),
    "long n-grams": (lambda c: with_settings(c, maxn=99), "n-grams of 2 to 99 characters"),
    "labels": (lambda c: with_sizes(c, size=7, labels=1), "6 words and 1 labels"),
    "no words": (lambda c: with_sizes(c, size=0, words=0), "0 entries, 0 words"),
    "negative": (lambda c: with_sizes(c, size=-6, words=-6), "-6 entries, -6 words"),
    "many words": (lambda c: with_sizes(c, size=2**31 - 1, words=2**31 - 1), "declares 2,147,483,647 words, more than"),
    "one word more": (lambda c: with_sizes(c, size=7, words=7), "word 7 of 7: type|word 7 of 7: longer|matrix of"),
    "one word fewer": (lambda c: with_sizes(c, size=5, words=5), "quantized|should be"),
    "many buckets": (lambda c: with_settings(c, bucket=10**6).replace(struct.pack("<q", 56),
                                                                      struct.pack("<q", 10**6 + 6)),
                     "declares 1,000,006 rows of 5 dimensions, more than"),
    "a label": (lambda c: c.replace(b"king\0" + struct.pack("<qb", 7, 0), b"king\0" + struct.pack("<qb", 7, 1)),
                "word 2 of 6: type 1"),
    "a negative count": (lambda c: c.replace(b"king\0" + struct.pack("<q", 7), b"king\0" + struct.pack("<q", -7)),
                         "word 2 of 6: type 0, count -7"),
    "an endless word": (lambda c: c[:WORDS_AT] + b"k" * 5000 + c[WORDS_AT:], "word 1 of 6: longer than 4,096 bytes"),
    "a word twice": (lambda c: c.replace("Käse".encode(), b"king"), "the word 'king' occurs twice"),
    "NaN in the output": (lambda c: with_number(c, 1, float("nan")), "row 6 of the output matrix: contains NaN"),
    "infinity in the input": (lambda c: c[:INPUT_AT + 17] + FLOAT.pack(np.inf) + c[INPUT_AT + 21:],
                              "row 1 of the input matrix: contains NaN or infinity"),
    "more bytes": (lambda c: c + b"x", "continues after the output matrix"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_and_other_models_are_one_line(path: Path, kind: str) -> None:
    change, message = DAMAGED[kind]
    path.write_bytes(change(content := path.read_bytes()))
    assert path.read_bytes() != content
    with pytest.raises(DataError, match=message) as caught:
        read_fasttext(path, 1 << 30)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_a_truncated_file_is_one_line_wherever_it_ends(path: Path) -> None:
    content = path.read_bytes()
    for n in range(4, len(content), 3):
        path.write_bytes(content[:n])
        with pytest.raises(DataError, match=r"truncated|more than its"):
            read_fasttext(path, 1 << 30)


def test_sizes_are_checked_before_memory_is_allocated(path: Path) -> None:
    content = with_settings(path.read_bytes(), bucket=2**31 - 7)
    content = content.replace(struct.pack("<q", 56), struct.pack("<q", 2**31 - 1))
    path.write_bytes(gzip.compress(content + bytes(1 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(ResourceError, match=r"2,147,483,653 vectors of 5 numbers take"):
            read_fasttext(path, 1 << 30)
        with pytest.raises(DataError, match="more than its"):
            read_fasttext(path, 1 << 50)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_sum_beyond_float32_is_an_error(tmp_path: Path) -> None:
    model = make_model()
    write_fasttext(tmp_path / "m", replace(model, ngram_rows=np.full_like(model.ngram_rows, 2e38)))
    with pytest.raises(DataError, match=r"m: word 2, 'king': the sum of its rows is too large for float32; fetch"):
        vector_files.read(tmp_path / "m")


@settings(max_examples=100)
@given(st.data())
def test_any_damage_ends_in_one_line_or_in_finite_vectors(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
                                                          ) -> None:
    path = tmp_path_factory.mktemp("fasttext") / "m.bin"
    write_fasttext(path, make_model())
    content = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(4, 240), max_size=3)):
        content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[:data.draw(st.integers(8, len(content)))]))
    try:
        vectors = vector_files.read(path)
    except EmbtrainError as error:
        assert str(path) in str(error)
    else:
        assert np.isfinite(vectors.table).all() and len(set(vectors.words)) == len(vectors.words)


@pytest.mark.parametrize("changed", [{"word_rows": np.zeros((5, 5), np.float32)}, {"counts": np.ones(5, np.int64)},
                                     {"ngram_rows": np.zeros((49, 5), np.float32)}])
def test_arrays_that_do_not_fit_are_not_written(tmp_path: Path, changed: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        write_fasttext(tmp_path / "m", replace(make_model(), **changed))
    assert not (tmp_path / "m").exists()


def test_ngrams_of_a_model() -> None:
    assert make_model(minn=0).subwords.ngrams.min_n == 1 and make_model(minn=5).subwords is None  # minn above maxn
    assert make_model().subwords.ngrams.n_rows == 50 and make_model(maxn=0).subwords is None


@pytest.mark.parametrize(("ngrams", "pooling", "message"), [
    (Ngrams.exact(2, 3, ["ab"]), "mean", "its n-grams have a row each"), (Ngrams(2, 3, 9), "sum", "are summed")])
def test_other_subwords_than_those_of_fasttext_are_refused(tmp_path: Path, ngrams: Ngrams, pooling: str, message: str
                                                           ) -> None:
    table = np.ones((1, 2), np.float32)
    subwords = SubwordTable(ngrams, np.ones((ngrams.n_rows, 2), np.float32), ["ab"], table, pooling)
    with pytest.raises(DataError, match=rf"m: .*{message}.*cannot represent; train with model\.subword"):
        vector_files.write(tmp_path / "m", Vectors(["ab"], table, subwords), "fasttext")
    assert not (tmp_path / "m").exists()


def test_some_words_of_a_model_are_written(path: Path) -> None:
    vectors = vector_files.read(path)
    some = Vectors(vectors.words[3:1:-1], vectors.table[3:1:-1], vectors.subwords)
    vector_files.write(path.with_name("some"), some, "fasttext", details=ModelDetails(np.array([4, 3])))
    again = read_fasttext(path.with_name("some"), 1 << 20)
    assert again.words == some.words and again.counts.tolist() == [4, 3] and again.table().tobytes() == \
        np.ascontiguousarray(some.table).tobytes()
