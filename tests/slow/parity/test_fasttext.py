"""fastText itself: its buckets of n-grams, its files, and its vectors of seen and unseen words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embtrain
from embtrain import experiment
from embtrain.common.errors import DataError
from embtrain.data.text.ngrams import Ngrams
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.fasttext_file import read_fasttext, write_fasttext
from embtrain.data.vectors.fasttext_model import ModelDetails
from embtrain.data.vectors.vectors import Vectors

pytestmark = pytest.mark.slow

WORDS = ["cat", "of", "a", "</s>", "Straße", "naïve", "e\u0301te", "北京大学", "ひらがな", "👍🏽", "👩\u200d🚀ok",
         "x<y>z", "ß", "\u0800\uffff", "\U0010ffff", "Донаудампфшиффарт" * 3]
TEXT = "the cat sat on the mat\nder Käse läuft zur Straße\n北京大学 在 北京 👍🏽\nsing singing king ring\n" * 30


def train(folder: Path, **given: Any) -> Any:
    """Train fastText. Each of 12 threads initializes a tenth of its table; fewer leave a part of it uninitialized."""
    import fasttext

    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return fasttext.train_unsupervised(str(folder / "text.txt"), minCount=1, thread=12, verbose=0, t=1, epoch=1,
                                       **given)


@pytest.mark.parametrize("min_n, max_n, buckets", [(3, 6, 2_000_000), (1, 1, 7), (1, 3, 1000), (2, 20, 2**20)])
def test_buckets(tmp_path: Path, min_n: int, max_n: int, buckets: int) -> None:
    model = train(tmp_path, minn=min_n, maxn=max_n, bucket=buckets, dim=1, lr=1e-4)
    n_words, words = len(model.words), WORDS + model.words
    start, row = Ngrams(min_n, max_n, buckets).rows(words)
    for i, word in enumerate(words):
        expected = [int(place) - n_words for place in model.get_subwords(word)[1] if place >= n_words]
        assert row[start[i]:start[i + 1]].tolist() == expected, word


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
@pytest.mark.parametrize("min_n, max_n, buckets", [(3, 6, 5000), (1, 3, 300), (0, 0, 100)])
def test_vectors_are_bitwise_those_of_fasttext_and_files_are_equal(tmp_path: Path, model: str, min_n: int, max_n: int,
                                                                 buckets: int) -> None:
    import fasttext

    theirs = train(tmp_path, model=model, minn=min_n, maxn=max_n, bucket=buckets, dim=13)
    theirs.save_model(str(tmp_path / "theirs.bin"))
    ours = read_fasttext(tmp_path / "theirs.bin", 1 << 30, with_output=True)
    words = theirs.words + WORDS
    expected = np.stack([theirs.get_word_vector(word) for word in words])
    assert ours.words == theirs.words and (ours.subwords is None) == (max_n == 0)
    if ours.subwords is not None:
        assert ours.subwords.compose(words).tobytes() == expected.tobytes()
    assert (ours.output == theirs.get_output_matrix()).all()
    write_fasttext(tmp_path / "ours.bin", ours)
    assert (tmp_path / "ours.bin").read_bytes() == (tmp_path / "theirs.bin").read_bytes()
    vectors = vector_files.read(tmp_path / "theirs.bin")
    assert vectors.table.tobytes() == expected[:len(theirs.words)].tobytes()
    vector_files.write(tmp_path / "again.bin", vectors, "fasttext")
    again = fasttext.load_model(str(tmp_path / "again.bin"))
    assert np.stack([again.get_word_vector(word) for word in words]).tobytes() == expected.tobytes()


def test_a_supervised_model_is_refused(tmp_path: Path) -> None:
    import fasttext

    (tmp_path / "labelled.txt").write_text("__label__a the cat sat\n__label__b der Käse\n" * 300, encoding="utf-8")
    model = fasttext.train_supervised(str(tmp_path / "labelled.txt"), dim=8, thread=12, verbose=0)
    model.save_model(str(tmp_path / "supervised.bin"))
    with pytest.raises(DataError, match="supervised"):
        vector_files.read(tmp_path / "supervised.bin")


def test_fasttext_reads_any_vectors(tmp_path: Path) -> None:
    import fasttext

    vectors = Vectors(["king", "New York", "Käse"], np.random.default_rng(0).normal(size=(3, 7)))
    for counts in (None, np.array([1, 5, 0])):
        vector_files.write(tmp_path / "m.bin", vectors, "fasttext", ModelDetails(counts))
        theirs = fasttext.load_model(str(tmp_path / "m.bin"))
        assert theirs.words == vectors.words
        assert np.stack([theirs.get_word_vector(word) for word in vectors.words]).tobytes() == vectors.table.tobytes()


@pytest.mark.parametrize("subword", ["{buckets: 500}", "null"])
def test_fasttext_gives_the_vectors_of_an_exported_run(tmp_path: Path, subword: str) -> None:
    import fasttext

    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    run = embtrain.fit("sgns", corpus=str(tmp_path / "text.txt"), out=tmp_path / "run", sets={
        "model.dim": 20, "text.min_count": 1, "text.sample": 0, "train.epochs": 2, "evaluate.benchmarks": [],
        "model.subword": subword})
    experiment.export(run.folder, "fasttext", tmp_path / "m.bin")
    theirs, words = fasttext.load_model(str(tmp_path / "m.bin")), run.word_vectors.words
    assert theirs.words == words
    assert np.array_equal(np.stack([theirs.get_word_vector(word) for word in words]), run.word_vectors.table)
    unseen = [word for word in WORDS if word not in words]
    assert np.array_equal(np.stack([theirs.get_word_vector(word) for word in unseen]), run.word_vectors.compose(unseen))
