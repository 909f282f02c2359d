"""A model of fastText wherever vectors can be given: neighbours, benchmarks, exports and training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_runs

from embtrain import experiment
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import folders, subword_table, vectors as vector_files
from embtrain.data.vectors.fasttext_file import read_fasttext, write_fasttext
from embtrain.data.vectors.fasttext_model import FastTextModel, FastTextSettings
from embtrain.data.vectors.open import PLAIN, ReadOptions
from embtrain.data.vectors.subword_table import SubwordTable
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.evaluate.words.similarity import RatedPair, score
from embtrain.experiment.inspect import evaluate, neighbours
from embtrain.experiment.run.run import Run
from embtrain.experiment.run.stored import given_vectors, open_run

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
    text = neighbours.format_text(found).splitlines()
    assert text[0].startswith("kings (composed from its n-grams): ") and text[1].startswith("queen: ")
    assert [tree["composed"] for tree in neighbours.as_tree(found)] == [True, False]


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


# -- runs -------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tiny_runs.write(tmp_path_factory.mktemp("subwords"))
    return experiment.fit(tiny_runs.config(place, "skipgram", "fused", "model.subword={buckets: 60}", "train.lr=0.05"),
                          place / "run")


@pytest.mark.long
def test_a_run_has_vectors_of_unseen_words(run: Run, tmp_path: Path) -> None:
    words = run.word_vectors.words
    unseen = [words[0] + words[1], words[2] + "s"]
    vectors = SubwordTable.load(run.folder / subword_table.FILE).compose(unseen)
    assert vectors.any(1).all() and np.array_equal([run.vectors[word] for word in unseen], vectors)
    assert np.array_equal(run.vectors[words[0]], run.word_vectors.table[0])
    assert experiment.neighbours(run.folder, unseen, 3)[unseen[0]].is_composed
    (tmp_path / "gold.csv").write_text(f"word1,word2,score\n{words[0]},{words[1]},5\n{unseen[0]},{words[2]},4\n"
                                       f"{unseen[1]},{words[3]},3\n{words[4]},{words[1]},2\n", encoding="utf-8")
    plain, composed = evaluate.evaluate_run(run, [str(tmp_path / "gold.csv")])
    assert (plain.n, composed.metric, composed.n) == (2, "spearman/composed", 4)


@pytest.mark.long
def test_a_run_is_scored_by_another_table_and_by_centred_vectors(run: Run, tmp_path: Path) -> None:
    words = run.word_vectors.words
    pairs = [(words[i], words[j], float((7 * i + 3 * j) % 11)) for i in range(5) for j in range(i)]
    (tmp_path / "gold.tsv").write_text("".join(f"{a}\t{b}\t{gold}\n" for a, b, gold in pairs), encoding="utf-8")
    model, rated = open_run(run.folder).model, [RatedPair(*pair) for pair in pairs]
    tables = {which: Vectors(words, model.vectors(which).detach().numpy()) for which in ("input", "sum")}
    before = (run.folder / "vectors.safetensors").read_bytes()
    for which, table in tables.items():
        sets = [f"evaluate.vectors={which}", "evaluate.resamples=0"]
        expected = score("gold.tsv", table, rated, WordsConfig(resamples=0))
        assert evaluate.evaluate_run(run, [str(tmp_path / "gold.tsv")], sets)[0] == expected
        centred = Vectors(words, table.table - table.table.mean(0))
        rows = evaluate.evaluate_run(run, [str(tmp_path / "gold.tsv")], [*sets, "evaluate.centred=true"])
        assert rows[0] == score("gold.tsv", centred, rated, WordsConfig(resamples=0)) != expected
    assert (run.folder / "vectors.safetensors").read_bytes() == before


@pytest.mark.long
def test_exports_of_a_run_keep_its_ngrams(run: Run, tmp_path: Path) -> None:
    experiment.export(run.folder, "fasttext", tmp_path / "m.bin")
    experiment.export(run.folder, "huggingface", tmp_path / "hub")
    model, parts = read_fasttext(tmp_path / "m.bin", 1 << 30, with_output=True), open_run(run.folder)
    vocabulary, unseen = Vocabulary.read(run.folder / "vocabulary.txt"), [run.word_vectors.words[0] + "s"]
    assert model.words == run.word_vectors.words and model.counts.tolist() == vocabulary.counts.tolist()
    assert np.array_equal(np.concatenate([model.word_rows, model.ngram_rows]), parts.model.u.detach())
    assert np.array_equal(model.output, parts.model.v.detach())
    given = run.settings
    assert model.settings == FastTextSettings(
        given.model.dim, given.data.window, given.train.epochs, given.data.min_count, given.negatives.k, bucket=60,
        minn=3, maxn=6, t=given.data.sample)
    assert "SubwordTable.load" in (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")
    expected = run.word_vectors.compose(unseen)
    for path in (tmp_path / "m.bin", tmp_path / "hub"):
        read = folders.read_any(path)
        assert np.array_equal(read.compose(unseen), expected) and np.array_equal(read.table, run.word_vectors.table)


@pytest.mark.long
def test_an_export_of_the_first_words_keeps_their_counts_and_output(run: Run, tmp_path: Path) -> None:
    for name, reading in (("all", PLAIN), ("first", ReadOptions(3, are_options=True))):
        experiment.export(run.folder, "fasttext", tmp_path / name, reading)
    whole, first = (read_fasttext(tmp_path / name, 1 << 30, with_output=True) for name in ("all", "first"))
    assert first.words == whole.words[:3] and first.counts.tolist() == whole.counts[:3].tolist()
    assert np.array_equal(first.table(), whole.table()[:3]) and np.array_equal(first.output, whole.output[:3])
    assert first.output.any() and first.settings == whole.settings
    assert np.array_equal(first.ngram_rows, whole.ngram_rows)


@pytest.mark.long
def test_sums_of_both_tables_have_no_ngrams(tmp_path: Path) -> None:
    place = tiny_runs.write(tmp_path)
    run = experiment.fit(tiny_runs.config(place, "skipgram", "fused", "model.subword={buckets: 60}",
                                          "evaluate.vectors=sum"), place / "run")
    assert not (run.folder / subword_table.FILE).exists() and run.word_vectors.subwords is None
    experiment.export(run.folder, "fasttext", tmp_path / "m.bin")
    model = read_fasttext(tmp_path / "m.bin", 1 << 30, with_output=True)
    assert np.array_equal(model.table(), run.word_vectors.table) and not model.output.any()
