"""A model of fastText wherever vectors can be given: neighbours, benchmarks, exports and training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from embtrain import experiment
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.fasttext_file import write_fasttext
from embtrain.data.vectors.fasttext_model import FastTextModel, FastTextSettings
from embtrain.experiment.inspect import evaluate
from embtrain.experiment.run.stored import given_vectors

WORDS = ["king", "kind", "queen", "apple", "pear", "car"]


@pytest.fixture
def model(tmp_path: Path) -> FastTextModel:
    draw = np.random.default_rng(6)
    u, g, v = (draw.normal(size=(n, 7)).astype(np.float32) for n in (6, 400, 6))
    model = FastTextModel(FastTextSettings(7, bucket=400, minn=3, maxn=5), WORDS, np.arange(9, 3, -1), u, g, v)
    write_fasttext(tmp_path / "m.bin", model)
    return model


def test_neighbours_of_a_missing_word(model: FastTextModel, tmp_path: Path) -> None:
    found = experiment.neighbours(tmp_path / "m.bin", ["kings", "queen"], 2)
    vector = model.subwords.compose(["kings"])[0]
    cosine = model.table() @ vector / np.linalg.norm(model.table(), axis=1) / np.linalg.norm(vector)
    assert [word for word, _ in found["kings"]] == [WORDS[i] for i in np.argsort(-cosine)[:2]]
    text = evaluate.format_text(found).splitlines()
    assert text[0].startswith("kings (composed from its n-grams): ") and text[1].startswith("queen: ")
    assert [tree["composed"] for tree in evaluate.as_tree(found)] == [True, False]


def test_benchmark_with_and_without_composed_words(model: FastTextModel, tmp_path: Path) -> None:
    (tmp_path / "gold.csv").write_text("word1,word2,score\nking,queen,5\nkings,kind,4\npears,apples,3\ncar,king,2\n"
                                       "pear,apple,4.5\n", encoding="utf-8")
    plain, composed = evaluate.evaluate_vectors(tmp_path / "m.bin", [str(tmp_path / "gold.csv")])
    assert (plain.metric, plain.n, composed.metric, composed.n) == ("spearman", 3, "spearman/composed", 5)
    assert "3 words composed from n-grams" in composed.note


def test_export_and_start_of_training(model: FastTextModel, tmp_path: Path) -> None:
    experiment.export(tmp_path / "m.bin", "word2vec", tmp_path / "v.txt")
    assert vector_files.read(tmp_path / "v.txt").table.tobytes() == model.table().tobytes()
    assert np.array_equal(given_vectors(tmp_path / "m.bin").u.table, model.table())
