"""Vectors of words without a row: in gensim's KeyedVectors, in folders, and from gensim's FastText."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gensim.models.fasttext import FastText

from embtrain.common.errors import DataError
from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors import folders, subword_table
from embtrain.data.vectors.open import ReadOptions
from embtrain.data.vectors.subword_table import SubwordTable
from embtrain.data.vectors.vectors import Vectors, write

WORDS = ["king", "queen", "kind", "apple"]
UNSEEN = ["kings", "apples", "queens"]


def make_vectors(ngrams: Ngrams | None = None, dim: int = 6) -> Vectors:
    ngrams = ngrams or Ngrams.exact(2, 4, WORDS)
    draw = np.random.default_rng(5)
    subwords = SubwordTable(ngrams, draw.normal(size=(ngrams.n_rows, dim)).astype(np.float32), WORDS,
                            draw.normal(size=(len(WORDS), dim)).astype(np.float32), "mean")
    return Vectors(list(WORDS), subwords.compose(WORDS), subwords)


@pytest.mark.parametrize("ngrams", [None, Ngrams(2, 4, 9)])
def test_gensim_queries_take_words_without_a_row(ngrams: Ngrams | None) -> None:
    vectors = make_vectors(ngrams)
    keyed, composed = vectors.keyed(), vectors.compose(UNSEEN)
    assert keyed.index_to_key == WORDS and (keyed.vectors == vectors.table).all()
    assert all((keyed[word] == vector).all() for word, vector in zip(UNSEEN, composed, strict=True))
    assert "kings" in keyed and "king" in keyed and keyed.has_index_for("king") and not keyed.has_index_for("kings")
    unit = composed[0] / np.linalg.norm(composed[0])
    np.testing.assert_allclose(keyed.get_vector("kings", norm=True), unit, rtol=1e-6)
    near, cosine = keyed.most_similar("kings", topn=1)[0]
    best = int(np.argmax(vectors.unit @ unit))
    assert near == WORDS[best] and cosine == pytest.approx(float(vectors.unit[best] @ unit), abs=1e-6)
    assert keyed.similarity("kings", "king") == pytest.approx(float(vectors.unit[0] @ unit), abs=1e-6)


def test_a_word_whose_ngrams_have_no_rows_is_missing() -> None:
    keyed = make_vectors().keyed()
    assert "¶¶¶" not in keyed and 7 not in keyed
    with pytest.raises(KeyError, match="has no row and no n-gram with a row"):
        keyed["¶¶¶"]


def test_vectors_of_gensims_fasttext_keep_their_ngrams() -> None:
    model = FastText([WORDS] * 9, vector_size=8, min_count=1, bucket=30, workers=1)
    vectors = Vectors.of(model.wv)
    np.testing.assert_allclose(vectors.compose(UNSEEN), [model.wv[word] for word in UNSEEN], rtol=0, atol=1e-7)
    np.testing.assert_allclose(vectors.subwords.compose(WORDS), [model.wv[word] for word in WORDS], rtol=0, atol=1e-7)
    assert Vectors.of(make_vectors().keyed()).subword_source is None


def test_folder_of_a_run_has_its_subwords(tmp_path: Path) -> None:
    vectors = make_vectors()
    write(tmp_path / folders.RUN_FILE, vectors, "safetensors")
    assert folders.read_any(tmp_path).subword_source is None
    vectors.subwords.save(tmp_path / subword_table.FILE)
    for read in (folders.read_any(tmp_path), folders.read_run(tmp_path).first(2)):
        assert (read.compose(UNSEEN) == vectors.compose(UNSEEN)).all()


@pytest.mark.parametrize("kind", ["run", "run, centred", "huggingface", "fasttext", "memory"])
def test_words_beyond_a_limit_are_composed_as_in_an_export_of_the_first(tmp_path: Path, kind: str) -> None:
    vectors, reading = make_vectors(Ngrams(2, 4, 9)), ReadOptions(limit=2)
    folders.write_huggingface(tmp_path / "first", vectors.first(2), None, {}, {}, "card")
    if kind.startswith("run"):
        write(tmp_path / folders.RUN_FILE, vectors, "safetensors")
        vectors.subwords.save(tmp_path / subword_table.FILE)
    elif kind == "huggingface":
        folders.write_huggingface(tmp_path / kind, vectors, None, {}, {}, "card")
    elif kind == "fasttext":
        write(tmp_path / kind, vectors, "fasttext")
    read = vectors.first(2) if kind == "memory" else \
        folders.read_any(tmp_path if kind.startswith("run") else tmp_path / kind, reading)
    expected = folders.read_any(tmp_path / "first")
    if kind.endswith("centred"):
        read, expected = read.centred, expected.centred
    composed = read.compose([*WORDS[2:], *UNSEEN])
    assert composed.any(1).all() and (composed == expected.compose([*WORDS[2:], *UNSEEN])).all()
    assert not (composed[:2] == vectors.table[2:]).any()


def test_subwords_of_other_vectors_are_an_error(tmp_path: Path) -> None:
    write(tmp_path / folders.RUN_FILE, Vectors(["other"], np.ones((1, 6))), "safetensors")
    make_vectors().subwords.save(tmp_path / subword_table.FILE)
    with pytest.raises(DataError, match=r"subwords\.safetensors: belongs to other vectors: 4 words of 6 dimensions"):
        folders.read_any(tmp_path).compose(["kings"])


def test_hugging_face_folder_has_the_subwords_and_drops_those_of_an_earlier_export(tmp_path: Path) -> None:
    vectors = make_vectors(Ngrams(2, 4, 9))
    folders.write_huggingface(tmp_path, vectors, None, {}, {}, "card")
    again = folders.read_any(tmp_path)
    assert (again.table == vectors.table).all() and (again.compose(UNSEEN) == vectors.compose(UNSEEN)).all()
    folders.write_huggingface(tmp_path, Vectors(vectors.words, vectors.table), None, {}, {}, "card")
    assert folders.read_any(tmp_path).subword_source is None


@pytest.mark.parametrize("ngrams", [Ngrams.exact(2, 4, WORDS), Ngrams(2, 4, 9)])
def test_hugging_face_folder_of_the_first_words_composes_the_others_from_ngrams(tmp_path: Path, ngrams: Ngrams) -> None:
    vectors = make_vectors(ngrams)
    folders.write_huggingface(tmp_path, vectors.first(2), None, {}, {}, "card")
    again = folders.read_any(tmp_path)
    assert again.subwords.words == WORDS[:2] and (again.subwords.compose(WORDS[:2]) == vectors.table[:2]).all()
    assert (again.compose(UNSEEN) == vectors.compose(UNSEEN)).all()
    whole = vectors.subwords
    without_rows = SubwordTable(ngrams, whole.table, [], whole.word_rows[:0], "mean")
    assert (again.compose(WORDS[2:]) == without_rows.compose(WORDS[2:])).all()


def test_vectors_without_subwords_compose_nothing() -> None:
    vectors = Vectors(["a"], np.ones((1, 3)))
    assert not vectors.compose(["b", "c"]).any() and vectors.compose([]).shape == (0, 3)
