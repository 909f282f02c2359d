"""Exports of a run, read as other programs read them, and imports of vectors from other programs."""

from __future__ import annotations

import csv
import gc
import importlib.util
import json
import os
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import yaml
from gensim.models import KeyedVectors
from helpers.graphs import a_folder
from helpers.in_process import small_text
from safetensors.numpy import load_file, save_file

import embtrain
from embtrain import cli, experiment
from embtrain.common.config import dump
from embtrain.common.errors import DataError, UsageError
from embtrain.data.vectors import folders, vectors
from embtrain.data.vectors.open import ReadOptions
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment import Run
from embtrain.experiment.inspect import export
from embtrain.experiment.inspect.file_names import public_settings, without_folders

pytestmark = pytest.mark.long

SETS = {"model.dim": 6, "train.epochs": 1, "train.chunk": 512, "evaluate.resamples": 0}
WORDS = {**SETS, "evaluate.heldout_pairs": 200, "evaluate.neighbours": [], "evaluate.benchmarks": [], "text.valid": 0.1,
         "text.test": 0.1}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("handover")


def fitted(place: Path, name: str, *args: Any, **more: Any) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(place / "cache"))
        patch.setattr("embtrain.experiment.run.run.report.write", lambda folder: None)
        return embtrain.fit(*args, seed=1, threads=1, out=place / name, **more)


@pytest.fixture(scope="module")
def run(place: Path) -> Run:
    return fitted(place, "words", "sgns", corpus=small_text(place) / "text", sets=WORDS)


@pytest.fixture(scope="module")
def graph(place: Path) -> Run:
    return fitted(place, "graph", "uniform", model="transe", corpus=a_folder(place / "kg"), sets=SETS)


@pytest.fixture(autouse=True)
def _cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(place / "cache"))


def _pairs(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def same(a: Vectors, b: Vectors) -> bool:
    return a.words == b.words and np.array_equal(a.table, b.table)


# --- files -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("format", vectors.FORMATS)
def test_every_file_format_round_trips_bit_for_bit(run: Run, tmp_path: Path, format: str) -> None:
    experiment.export(run.folder, format, tmp_path / "v")
    assert vectors.detect_format(tmp_path / "v") == format
    assert same(vectors.read(tmp_path / "v"), run.word_vectors)


def test_gensim_reads_glove_and_its_keyed_vectors_are_imported(run: Run, tmp_path: Path) -> None:
    experiment.export(run.folder, "glove", tmp_path / "v.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)     # gensim counts the lines of a file that it leaves open
        keyed = KeyedVectors.load_word2vec_format(tmp_path / "v.txt", no_header=True)
        gc.collect()
    assert same(Vectors.of(keyed), run.word_vectors) and same(Vectors.of(run.vectors), run.word_vectors)


def test_a_gensim_pickle_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "v.kv").write_bytes(pickle.dumps({"a": 1}, protocol=4))
    with pytest.raises(DataError, match=r"is probably a pickle.*save_word2vec_format"):
        experiment.neighbours(tmp_path / "v.kv", ["a"])


def test_foreign_vectors_are_converted_between_file_formats(run: Run, tmp_path: Path) -> None:
    experiment.export(run.folder, "word2vec", tmp_path / "a.txt")
    experiment.export(tmp_path / "a.txt", "safetensors", tmp_path / "a.safetensors")
    assert same(vectors.read(tmp_path / "a.safetensors"), run.word_vectors)
    with pytest.raises(UsageError, match="a vector file can be exported to word2vec"):
        experiment.export(tmp_path / "a.txt", "huggingface", tmp_path / "hub")


# --- Hugging Face ----------------------------------------------------------------------------------------------------

def test_a_folder_for_the_hub_holds_a_card_a_config_and_the_vectors(run: Run, tmp_path: Path) -> None:
    experiment.export(run.folder, "huggingface", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "config.json", "model.safetensors", "vocab.txt"}
    table = run.word_vectors
    assert np.array_equal(load_file(tmp_path / "model.safetensors")["embedding.weight"], table.table)
    assert (tmp_path / "vocab.txt").read_text().splitlines() == table.words
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["vocab_size"], config["hidden_size"]) == table.table.shape
    assert config["embtrain"]["negatives"]["source"] == "unigram" and config["embtrain"]["corpus"] == "text"
    card = (tmp_path / "README.md").read_text()
    _, front, body = card.split("---\n", 2)
    head = yaml.safe_load(front)
    assert head["library_name"] == "embtrain" and "license" not in head
    (result,) = head["model-index"][0]["results"]
    metrics = {row["name"]: row["value"] for row in result["metrics"]}
    (truth,) = [row for row in run.scores if (row.benchmark, row.metric) == ("test", "log_likelihood")]
    assert metrics["test log_likelihood"] == truth.value
    assert "## Settings" in body and str(run.folder.parent) not in card  # the path of the run is not published
    names: dict[str, Any] = {}
    example = body.split("```python\n")[1].split("```")[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        exec(example, names)
    assert names["words"] == table.words and np.array_equal(names["table"], table.table)


def test_a_strategy_of_a_file_is_named_without_its_folder(place: Path, tmp_path: Path) -> None:
    own = place / "own.yaml"
    own.write_text("negatives: {source: uniform, k: 2}\nloss: {name: logistic}\n")
    run = fitted(place, "own", str(own), corpus=small_text(tmp_path) / "text", sets=WORDS)
    experiment.export(run.folder, "huggingface", tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "own.yaml" in card and str(place) not in card + (tmp_path / "hub" / "config.json").read_text()


def test_exported_settings_name_files_without_their_folders(place: Path) -> None:
    lists, parent = place / "lists.tsv", place / "words"
    settings = experiment.resolve("candidates", corpus=str(place / "text"), sets=[
        f"negatives.file={lists}", f"train.start={parent}", f"evaluate.benchmarks=[{place / 'own.csv'}]",
        "evaluate.neighbours=[/c/en/dog]"])
    settings = settings.model_copy(update={"strategy": str(place / "mine.yaml")})
    shown = public_settings(cast(Run, SimpleNamespace(settings=settings)))
    assert settings.negatives.file == str(lists)
    assert (shown.negatives.file, shown.train.start, shown.evaluate.benchmarks, shown.corpus, shown.strategy) == (
        "lists.tsv", "words", ["own.csv"], "text", "mine.yaml")
    assert shown.evaluate.neighbours == ["/c/en/dog"] and str(place) not in dump(shown)


PLUGIN = """from pathlib import Path

from pydantic import model_validator

from embtrain.negatives.static.uniform import Uniform
from embtrain.common.config import AbsolutePath, Section
from embtrain.negatives.base import NegativesConfig


class Part(Section):
    file: AbsolutePath = ""


class MineConfig(NegativesConfig):
    words: str = ""
    lists: list[Path] = []
    tables: dict[str, str] = {}
    distinct: set[str] = set()
    stop: AbsolutePath | None = None
    part: Part = Part()
    parts: list[Part] = []

    @model_validator(mode="after")
    def _has_many(self):
        if self.stop and self.k < 7:
            raise ValueError("k must be 7 or more")
        return self


class Mine(Uniform):
    name = "mine"
    Config = MineConfig
"""


def test_exported_settings_of_a_plugin_name_files_without_their_folders(place: Path, monkeypatch: pytest.MonkeyPatch
                                                                        ) -> None:
    (place / "mine.py").write_text(PLUGIN)
    monkeypatch.setenv("EMBTRAIN_PLUGINS", str(place / "mine.py"))
    own = {"source": "mine", "words": str(place / "words.txt"), "lists": [str(place / "a"), "b"],
           "tables": {str(place / "key"): str(place / "value"), str(place / "b" / "key"): "second"},
           "distinct": [str(place / "c"), str(place / "b" / "c")], "stop": "stop.txt",
           "part": {"file": "in part"}, "parts": [{"file": "in parts"}]}
    monkeypatch.chdir(place)
    for keys in ({"k": 8, **own}, {"source": "mixture", "k": 8, "inner": own},
                 {"source": "hardest", "k": 2, "inner": {"k": 8, **own}},
                 {"source": "mixture", "k": 8, "inner": {"source": "candidates", "fallback": own}}):
        settings = experiment.resolve("sgns", corpus=str(place / "text"), sets=[f"negatives={json.dumps(keys)}"])
        shown = public_settings(cast(Run, SimpleNamespace(settings=settings)))
        for path in ("stop.txt", "in part", "in parts"):
            assert f": {place / path}" in dump(settings)
        assert str(place) not in dump(shown)
        for text in ("words: words.txt", "key: value", "key-2: second", "stop: stop.txt"):
            assert text in dump(shown)
        if keys["source"] == "mine":
            assert vars(shown.negatives)["distinct"] == {"c", "c-2"}


NAN = float("nan")


@pytest.mark.parametrize(("value", "expected"), [
    ({"/home/alice/x.txt": 1, "/data/x.txt": 2}, {"x.txt": 1, "x-2.txt": 2}),
    ({"/p/a/x": 1, "/p/x": 2, "x": 3}, {"x-2": 1, "x-3": 2, "x": 3}),
    ({"/p/x-2": 0, "/p/x": 1, "/q/x": 2}, {"x-2": 0, "x": 1, "x-3": 2}),
    ({"/p/x": 1, "/p/x/": 2, "/": 3}, {"x": 1, "x-2": 2, "/": 3}),
    ({"/p/x": 1, Path("/q/x"): 2}, {"x": 1, Path("x-2"): 2}),
    ({"/p/x": "/p/x", "/q/x": "/r/s/x", "/p/y": "/q/x"}, {"x": "x", "x-2": "x", "y": "x"}),
    ({("/p/x", 1): 1, ("/q/x", 1): 2, ("/q/x", 2): 3}, {("x", 1): 1, ("x-2", 1): 2, ("x", 2): 3}),
    ({("/p/x", 1), ("/q/x", 1)}, {("x", 1), ("x-2", 1)}),
    ({frozenset({"/p/x", "/q/x"}), frozenset({"/r/x", "/s/x"})},
     {frozenset({"x", "x-2"}), frozenset({"x-2", "x-3"})}),
    ({1: "/p/x", "1": 2, "/p/1": 3}, {1: "x", "1": 2, "1-2": 3}),
    ({"nan": 1, NAN: 2}, {"nan": 1, NAN: 2}),
    (["/p/x", "/q/x"], ["x", "x"])])
def test_files_of_one_name_keep_their_keys_without_folders(value: Any, expected: Any) -> None:
    assert without_folders(value, False) == expected


def test_exported_settings_keep_values_that_are_not_paths(place: Path) -> None:
    sets = {"files.skip": ["/drafts/*"], "files.train": ["/a/b.txt"]}
    words = experiment.resolve("sgns", corpus=str(place / "text"), sets=[
        f"text.{key}={json.dumps(value)}" for key, value in sets.items()])
    pairs = experiment.resolve("order", "order", str(place / "text"), sets=["pairs.root=/c/en/entity"])
    for settings in (words, pairs):
        shown = public_settings(cast(Run, SimpleNamespace(settings=settings)))
        assert shown.data == settings.data


def test_paths_in_settings_of_an_inner_source_are_exported_as_names(place: Path) -> None:
    settings = experiment.resolve("resampled", corpus=str(place / "text"), sets=[
        f"negatives.inner={{source: candidates, file: {place / 'lists.tsv'}}}"])
    shown = public_settings(cast(Run, SimpleNamespace(settings=settings)))
    assert cast(Any, shown.negatives).inner["file"] == "lists.tsv"


def test_it_is_read_back_and_the_commands_accept_it(run: Run, graph: Run, tmp_path: Path) -> None:
    for stored, name in ((run, "a"), (graph, "b")):
        experiment.export(stored.folder, "huggingface", tmp_path / name)
        assert same(folders.read_huggingface(tmp_path / name), stored.word_vectors)
    word = run.word_vectors.words[0]
    assert experiment.neighbours(tmp_path / "a", [word]) == experiment.neighbours(run.folder, [word])
    relations = vectors.read(graph.folder / "relations.safetensors")
    assert np.array_equal(load_file(tmp_path / "b/model.safetensors")["relation.weight"], relations.table)
    assert (tmp_path / "b/relations.txt").read_text().splitlines() == relations.words


@pytest.mark.parametrize("mark, end", [("", "\r\n"), ("\ufeff", "\n"), ("\ufeff", "\r\n")])
def test_a_byte_order_mark_and_crlf_are_not_part_of_its_names(run: Run, tmp_path: Path, mark: str, end: str) -> None:
    experiment.export(run.folder, "huggingface", tmp_path)
    names = tmp_path / "vocab.txt"
    names.write_bytes((mark + names.read_text().replace("\n", end)).encode())
    assert same(folders.read_huggingface(tmp_path), run.word_vectors)
    with pytest.raises(DataError, match=r"begins with a byte order mark"):
        folders.write_lines(names, ["\ufeffa", "b"])


def test_an_inconsistent_folder_is_refused(run: Run, tmp_path: Path) -> None:
    experiment.export(run.folder, "huggingface", tmp_path)
    text = (tmp_path / "vocab.txt").read_text()
    first, second, *others = text.splitlines()
    for names in ([first, second, *others, "more"], [second, *others], [first, first, *others]):
        (tmp_path / "vocab.txt").write_text("\n".join(names) + "\n")
        with pytest.raises(DataError, match="one name for each of the"):
            experiment.neighbours(tmp_path, [first])
    (tmp_path / "vocab.txt").write_text(text)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-8] + b"\x01" * 8)
    with pytest.raises(DataError, match="damaged"):
        folders.read_huggingface(tmp_path)
    save_file({"wte": np.ones((2, 2), dtype=np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(DataError, match=r"no tensor embedding\.weight; there are: wte"):
        folders.read_huggingface(tmp_path)


# --- the projector ---------------------------------------------------------------------------------------------------

def test_the_projector_files_have_one_line_per_vector_and_name(run: Run, tmp_path: Path) -> None:
    experiment.export(run.folder, "projector", tmp_path)
    table = run.word_vectors
    assert np.array_equal(np.loadtxt(tmp_path / "vectors.tsv", delimiter="\t", dtype=np.float32), table.table)
    with open(tmp_path / "metadata.tsv", newline="") as file:
        lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert lines[0] == ["name", "count"] and [line[0] for line in lines[1:]] == table.words
    assert dict(lines[1:]) == dict(_pairs(run.folder / "vocabulary.txt"))


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\u2028b", ""])
def test_a_name_that_would_break_a_line_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="contains a field or line separator"):
        folders.write_projector(tmp_path, Vectors(["x", name], np.ones((2, 2))), None)


# --- PyKEEN ----------------------------------------------------------------------------------------------------------

def test_the_pykeen_export_has_consistent_triples_ids_and_vectors(graph: Run, place: Path, tmp_path: Path) -> None:
    experiment.export(graph.folder, "pykeen", tmp_path)
    for part in ("train", "valid", "test"):
        assert sorted((tmp_path / f"{part}.tsv").read_text().splitlines()) == sorted(
            (place / "kg" / f"{part}.txt").read_text().splitlines())
    for kind, file in (("entity", "vectors"), ("relation", "relations")):
        stored = vectors.read(graph.folder / f"{file}.safetensors")
        assert dict(_pairs(tmp_path / f"{kind}_to_id.tsv")) == {name: str(i) for i, name in enumerate(stored.words)}
        assert np.array_equal(np.load(tmp_path / f"{kind}.npy", allow_pickle=False), stored.table)


def test_pykeen_reads_the_export(graph: Run, tmp_path: Path) -> None:
    if importlib.util.find_spec("pykeen") is None:
        pytest.skip("peers: pykeen is not installed; pip install -e '.[peers]' brings it")
    import torch
    from pykeen.nn import Embedding
    from pykeen.nn.init import PretrainedInitializer
    from pykeen.triples import TriplesFactory

    experiment.export(graph.folder, "pykeen", tmp_path)
    entities, relations = ({name: int(i) for name, i in _pairs(tmp_path / f"{kind}_to_id.tsv")}
                           for kind in ("entity", "relation"))
    factory = TriplesFactory.from_path(tmp_path / "train.tsv", entity_to_id=entities, relation_to_id=relations)
    assert factory.num_triples == 100 and factory.entity_to_id == entities
    table = torch.from_numpy(np.load(tmp_path / "entity.npy"))
    embedding = Embedding(max_id=len(table), shape=table.shape[1:], initializer=PretrainedInitializer(table))
    embedding.reset_parameters()
    assert torch.equal(embedding(), table)


def test_a_name_that_pykeen_would_unquote_is_refused(tmp_path: Path) -> None:
    a, b = Vectors(['in"ner', "x"], np.eye(2)), Vectors(["r"], np.eye(1))
    folders.write_pykeen(tmp_path, {"train": np.array([[0, 0, 1]])}, a, b, 1)
    assert (tmp_path / "train.tsv").read_text() == 'in"ner\tr\tx\n'
    for entities, relations in ((Vectors(["x", '"y'], np.eye(2)), b), (a, Vectors(['"r"'], np.eye(1)))):
        with pytest.raises(DataError, match="begins with a quotation mark, which PyKEEN"):
            folders.write_pykeen(tmp_path / "more", {}, entities, relations, 1)
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize("format", export.FOLDERS)
def test_a_folder_of_another_program_is_not_overwritten(graph: Run, tmp_path: Path, format: str) -> None:
    experiment.export(graph.folder, format, tmp_path / "out")
    held = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert set(export.FILES[format]) <= set(held)
    experiment.export(graph.folder, format, tmp_path / "out")    # an earlier export may be overwritten
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == held
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in export.FILES[format][:None if format == "huggingface" else -1]:
        (theirs / name).write_text("{}")
        with pytest.raises(UsageError, match=r"writes a folder; choose one .* an earlier export") as caught:
            experiment.export(graph.folder, format, theirs)
        assert len(str(caught.value).splitlines()) == 1
    assert all((theirs / name).read_text() == "{}" for name in os.listdir(theirs))


def test_a_folder_of_the_first_vectors(run: Run, graph: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    first = run.word_vectors.first(3)
    for format in ("huggingface", "projector", "pykeen"):
        monkeypatch.setattr("sys.argv", ["embtrain", "export", str((graph if format == "pykeen" else run).folder),
                                         "--format", format, "--limit", "3", "--out", str(tmp_path / format)])
        assert cli.run() == (2 if format == "pykeen" else 0)
    assert capsys.readouterr().err == ("embtrain: error: --limit: 3: pykeen has the triples of all entities; remove "
                                       "--limit, or set another --format\n")
    with pytest.raises(UsageError, match="pykeen: requires a model of triples"):   # with or without the limit
        experiment.export(run.folder, "pykeen", tmp_path / "of-words", ReadOptions(limit=3))
    assert same(folders.read_huggingface(tmp_path / "huggingface"), first)
    n = len(run.word_vectors)
    _, front, body = (tmp_path / "huggingface" / "README.md").read_text().split("---\n", 2)
    assert f"\nThe first 3 of {n} vectors of 6 dimensions, " in body
    assert "model-index" not in yaml.safe_load(front)          # the Hub would attribute the scores to these 3
    assert f"\n## Scores of all {n} vectors of the run\n" in body and "\n| test | " in body
    assert np.loadtxt(tmp_path / "projector" / "vectors.tsv", dtype=np.float32).shape == first.table.shape
    counts = dict(_pairs(run.folder / "vocabulary.txt"))
    assert _pairs(tmp_path / "projector" / "metadata.tsv")[1:] == [[word, counts[word]] for word in first.words]
    assert not (tmp_path / "pykeen").exists()


def test_an_export_follows_a_link_to_a_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v.txt").write_text("before")
    (tmp_path / "link").symlink_to("v.txt")
    monkeypatch.setattr("sys.argv", ["embtrain", "export", str(run.folder), "--out", str(tmp_path / "link")])
    assert cli.run() == 0
    assert (tmp_path / "link").is_symlink() and same(vectors.read(tmp_path / "v.txt"), run.word_vectors)


def test_an_impossible_export_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    for format, out, says in [("pykeen", tmp_path, "a model of triples"),
                              ("onnx", tmp_path, "'onnx' is not one of word2vec"),
                              ("projector", run.folder, "writes a folder")]:
        with pytest.raises(UsageError, match=says):
            experiment.export(run.folder, format, out)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="writes a folder"):
        experiment.export(run.folder, "huggingface", tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for format, name, says in (("glove", "pipe", "a device, a pipe"), ("huggingface", "pipe", "a device, a pipe"),
                               ("glove", ".", "is a folder; give a file"),
                               ("glove", "v.txt.gz", "v.txt.gz: would not be packed, and readers unpack a file of")):
        monkeypatch.setattr("sys.argv", ["embtrain", "export", str(run.folder), "--format", format, "--out",
                                         str(tmp_path / name)])
        assert cli.run() == 2
        assert says in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()
    assert export.FORMATS == ("word2vec", "word2vec-binary", "glove", "safetensors", "fasttext", "faiss", "usearch",
                              "huggingface", "projector", "pykeen")
