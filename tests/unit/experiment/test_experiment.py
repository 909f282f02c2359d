"""The experiment API: overlays, refusals, the files of a run, and the evaluation of likelihood."""

from __future__ import annotations

import json
import math
import platform
import re
from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors

import embtrain
from embtrain import experiment
from embtrain.common import machine, shipped
from embtrain.common.config import read_yaml
from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.evaluate.config import WordsConfig
from embtrain.experiment import resolve
from embtrain.experiment.catalogue import listing
from embtrain.experiment.inspect import neighbours
from embtrain.experiment.run import components, scoring
from embtrain.experiment.run.settings import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.kernels.core.loader import core, level

pytestmark = pytest.mark.long

WORDS = "the cat sat on mat and dog ran to red house by sea while a bird sang in old tree king queen man".split()
SETS = {"text.min_count": 1, "text.sample": 0, "model.dim": 12, "train.epochs": 1, "train.chunk": 256,
        "train.batch": 64, "evaluate.benchmarks": ["simlex999"], "evaluate.resamples": 40,
        "evaluate.neighbours": ["cat", "nosuchword"]}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw, often = np.random.default_rng(0), 1 / np.arange(1, len(WORDS) + 1)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(" ".join(draw.choice(WORDS, 30, p=often / often.sum())) for _ in range(900)))
    return path


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> experiment.Run:
    return embtrain.fit("sgns", corpus=text, sets=SETS, seed=3, threads=1, out=tmp_path_factory.mktemp("runs") / "run")


def settings(text: Path, strategy: str, *more: str) -> Settings:
    sets = [f"{key}={json.dumps(value)}" for key, value in SETS.items()]
    return resolve(strategy, corpus=str(text), sets=[*sets, *more], threads=1)


def test_later_layers_override_and_keys_belong_to_the_source(tmp_path: Path) -> None:
    overlay = tmp_path / "own.yaml"
    overlay.write_text("negatives: {k: 9, exponent: 1.0}\ntrain: {epochs: 4}\n")
    source_settings = resolve("sgns", config=overlay, sets=["negatives.k=11"], seed=8)
    # type: ignore[attr-defined]
    assert (source_settings.negatives.k, source_settings.negatives.exponent, source_settings.train.epochs) == (11, 1.0,
                                                                                                               4)
    assert (source_settings.train.seed, source_settings.strategy, source_settings.loss.name,
            source_settings.model.name) == (8, "sgns", "logistic", "skipgram")
    with pytest.raises(UsageError, match=r"negatives\.baseline.*unknown key"):
        resolve("sgns", sets=["negatives.baseline=none"])


def test_every_strategy_resolves_and_is_allowed(text: Path, tmp_path: Path) -> None:
    from embtrain.common import shipped

    task = tasks.read(settings(text, "sgns"))
    first, second = task.candidate_names()[:2]
    (tmp_path / "lists.tsv").write_text(f"{first}\t{second}\n")
    needed = {"ace": ["negatives.min_perplexity=5"], "candidates": [f"negatives.file={tmp_path / 'lists.tsv'}"]}
    for name in shipped.names("configs", "strategies"):
        tree = read_yaml(shipped.path("configs", name, "strategies")).tree
        if not set(tree) <= {"group", "negatives", "loss", "train"}:  # settings of another kind of data
            continue
        resolved = components.build(settings(text, name, *needed.get(tree["negatives"]["source"], [])), task)
        assert resolved.source.name and resolved.loss.name


def test_a_finished_run_with_model_dependent_noise_is_evaluated_again(text: Path, tmp_path: Path) -> None:
    """The source returns log q although it has drawn nothing in this process."""
    for name, more in (("cluster", {"negatives.exclude_target": False}), ("exp", {"negatives.exclude_target": False})):
        first = embtrain.fit(name, corpus=text, sets={**SETS, **more}, loss="logistic", threads=1, out=tmp_path / name)
        before = {(r.benchmark, r.metric): r.value for r in first.scores if r.benchmark == "test"}
        again = {(r.benchmark, r.metric): r.value for r in first.resume().scores if r.benchmark == "test"}
        assert before == again and ("test", "log_likelihood/scores") in before


def test_another_loss_drops_the_loss_settings_of_the_strategy() -> None:
    resolved = resolve("nce-learned-z", loss="margin")
    assert resolved.loss.name == "margin" and not hasattr(resolved.loss, "partition")


def test_incompatible_settings_are_refused_with_one_line_per_reason(text: Path) -> None:
    resolved = settings(text, "uniform", "loss.name=sampled_softmax", "negatives.filter=none")
    with pytest.raises(UsageError, match=r"loss\.name: sampled_softmax .* negatives\.filter: target") as caught:
        components.build(resolved, tasks.read(resolved))
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(UsageError, match="no benchmark"):
        embtrain.fit("sgns", corpus=text, sets={**SETS, "evaluate.benchmarks": ["nosuch"]})
    with pytest.raises(UsageError, match=r"train\.device"):
        components.choose_device("potato")
    with pytest.raises(DataError, match="neither a file or folder nor a recipe"):
        tasks.read(resolve("sgns", corpus="/no/such/text"))
    with pytest.raises(DataError) as caught:
        tasks.read(resolve("sgns", corpus=str(text) + "s"))
    assert f"(did you mean {str(text)!r}?); `embtrain data list`" in str(caught.value)
    (text.parent / "elsewhere.txt").touch()                                # shares most of a path with the moved file
    with pytest.raises(DataError, match="nor a recipe; `embtrain data list`"):
        tasks.read(resolve("sgns", corpus=str(text.parent / "moved-away.csv")))


def test_an_unknown_name_is_reported_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overlay = tmp_path / "own.yaml"
    overlay.write_text("train: {lr: 1}\nnegatives:\n  source: clustre\n")
    for wrong, message in (({"config": overlay}, "own.yaml:3:3: negatives.source: there is no 'clustre'"),
                        ({"strategy": "own.yaml"}, "own.yaml:3:3: negatives.source: there is no 'clustre'"),
                        ({"loss": "nec"}, "--loss: loss.name: there is no 'nec'"),
                        ({"strategy": "sgnss"}, "--negatives: strategy: no strategy named 'sgnss'"),
                        ({"model": "tranze"}, "--model: model.name: no model named 'tranze'"),
                        ({"model": "TransE"}, "--model: model.name: no model named 'TransE' (did you mean 'transe'?)"),
                        ({"sets": ["model=3"]}, "--set model=3: model.name: should be a name, got 3"),
                        ({"sets": ["strategy=3"]}, "--set strategy=3: strategy: should be a name, got 3")):
        with pytest.raises(UsageError, match="^" + re.escape(message)):
            resolve(**wrong)


def test_a_strategy_key_that_the_model_lacks_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve("vmf", "transe")
    assert str(caught.value) == ("--negatives: vmf is not for model.name: transe (it sets model.similarity, "
                                 "model.output_table)")
    (tmp_path / "own.yaml").write_text("model: {similarty: dot}\n")  # a key of the model itself, misspelt
    with pytest.raises(UsageError, match=r"own\.yaml:1:9: model\.similarty: unknown key \(did you mean 'similarity'"):
        resolve(str(tmp_path / "own.yaml"), "skipgram")


def test_a_model_trains_with_its_default_strategy(tmp_path: Path) -> None:
    chosen = {model: resolve(model=model).strategy for model in shipped.names("configs", "models")}
    assert chosen == {"skipgram": "sgns", "cbow": "sgns", "node2vec": "sgns", "cone": "cone", "poincare": "poincare",
                      "shadow_cone": "shadow-cone", "box": "uniform", "lm": "softmax", "xc": "softmax",
                      "order": "order",
                      "nmt": "sampled-softmax-cosine",
                      **dict.fromkeys(("transe", "transd", "rotate"), "self-adversarial"),
                      **dict.fromkeys(("distmult", "complex"), "softmax")}
    for model, strategy in chosen.items():  # the whole strategy, not only its name
        assert resolve(model=model).model_dump() == resolve(strategy, model).model_dump()
    (tmp_path / "own.yaml").write_text("strategy: bernoulli\n")
    assert resolve(model="transe", config=tmp_path / "own.yaml").strategy == "bernoulli"
    assert resolve("kbgan", "transe", config=tmp_path / "own.yaml").strategy == "kbgan"
    resolved = resolve(model="transe", sets=["strategy=uniform"])
    assert (resolved.strategy, resolved.negatives.source, resolved.loss.name) == ("uniform", "uniform", "logistic")


@pytest.mark.parametrize("content, message", [
    ("model: {name: transe}", "1:9: model.name: is 'transe'; a strategy applies to any model"),
    ("negatives: {source: 3}", "1:13: negatives.source: should be a name, got 3"),
    ("negatives: {source: null}", "1:13: negatives.source: should be a name, got null"),
    ("loss: {name: [nce]}", "1:8: loss.name: should be a name, got "),
    ("a: 1\n--- \nb: 2", "2:1: expected a single document in the stream, but found another document"),
])
def test_errors_in_a_user_strategy_name_its_file(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(content)
    with pytest.raises(UsageError) as caught:
        resolve(str(tmp_path / "s.yaml"))
    assert f"s.yaml:{message}" in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_an_empty_configuration_of_a_run_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(DataError, match=r"config\.yaml: is empty; restore the run's own config\.yaml"):
        experiment.resume(tmp_path)


def test_the_name_of_a_source_suggests_strategies_and_the_reverse() -> None:
    for name, strategies in (("unigram", "alpha-nce, degree, .*, sgns"), ("hardest", "dns, positive-aware, .*, warp"),
                             ("in_batch", "in-batch, in-batch-streaming"), ("Unigram", "alpha-nce, degree, .*, sgns")):
        with pytest.raises(UsageError, match=f"strategy: no strategy named '{name}': it is a source; strategies with "
                                             f"it: {strategies}; embtrain list names all"):
            resolve(name)
    for name, source in (("sgns", "unigram"), ("in-batch", "in_batch"), ("warp", "hardest")):
        with pytest.raises(UsageError, match=rf"negatives\.source: there is no '{name}': it is a strategy; its source "
                                             f"is {source}; there are: "):
            resolve(sets=[f"negatives.source={name}"])


@pytest.mark.parametrize("name", ["ACE", "Uniform", "Order"])
def test_another_case_of_a_strategy_suggests_it_and_not_all_with_its_source(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(name)
    assert f"no strategy named {name!r} (did you mean {name.lower()!r}?); " in str(caught.value)
    assert len(str(caught.value)) < 120


def test_names_of_other_tools_suggest_a_strategy() -> None:
    for name, meant in (("word2vec", "sgns"), ("nec", "nce"), ("hierarchical", None)):
        with pytest.raises(UsageError) as caught:
            resolve(name)
        message = str(caught.value)
        assert message.startswith(f"--negatives: strategy: no strategy named {name!r}")
        assert "embtrain list names all" in message
        assert (f"(did you mean {meant!r}?)" in message) is (meant is not None), message


@pytest.mark.parametrize(("name", "meant"), [
    ("word2vec", "'skipgram' or 'cbow'"), ("Word2Vec", "'skipgram' or 'cbow'"), ("fastText", "'skipgram' or 'cbow'"),
    ("DeepWalk", "'node2vec'"), ("node2vek", "'node2vec'"), ("CBOW", "'cbow'")])
def test_names_of_other_tools_suggest_a_model(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=rf"no model named '{name}' \(did you mean {meant}\?\); there are: box, cbow"):
        resolve(model=name)


def test_a_run_writes_the_files_of_the_format_page(run: experiment.Run) -> None:
    names = {path.name for path in run.folder.iterdir()}
    assert {"config.yaml", "identity.json", "metrics.jsonl", "checkpoints", "vectors.safetensors", "vocabulary.txt",
            "scores.json", "neighbours.json", "report.html"} <= names
    rows = json.loads((run.folder / "scores.json").read_text())
    assert all(set(row) == {"benchmark", "metric", "value", "low", "high", "n", "note"} for row in rows)
    values = {(row.benchmark, row.metric): row for row in run.scores}
    assert values["test", "log_likelihood"].value is not None and values["test", "log_likelihood"].n > 0
    assert ("test", "log_likelihood/scores") in values and ("training", "seconds") in values
    assert "nosuchword" in values["neighbours 45-50", "mean PMI"].note
    assert "simlex999" in run.table() and max(map(len, run.table().splitlines())) <= 80


def test_gensim_reads_the_vectors_and_exports_are_exact(run: experiment.Run, tmp_path: Path) -> None:
    assert isinstance(run.vectors, KeyedVectors) and run.vectors.vector_size == 12
    for name, binary in (("word2vec", False), ("word2vec-binary", True)):
        experiment.export(run.folder, name, tmp_path / name)
        loaded = KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=binary)
        assert loaded.index_to_key == run.vectors.index_to_key
        assert np.array_equal(loaded.vectors, run.word_vectors.table)
        again = experiment.evaluate(tmp_path / name, ["simlex999"])
        assert again[0].value == experiment.evaluate(run.folder, ["simlex999"])[0].value
    with pytest.raises(UsageError, match="--format"):
        experiment.export(run.folder, "pickle", tmp_path / "x")


def test_vectors_of_gensim_have_the_counts_of_the_vocabulary(run: experiment.Run, tmp_path: Path) -> None:
    keyed = run.vectors
    lines = (run.folder / "vocabulary.txt").read_text().splitlines()
    assert [f"{word}\t{keyed.get_vecattr(word, 'count')}" for word in keyed.index_to_key] == lines
    keyed.save_word2vec_format(tmp_path / "vectors", fvocab=tmp_path / "counts")
    assert (tmp_path / "counts").read_text().splitlines() == [line.replace("\t", " ") for line in lines]
    first = keyed.index_to_key[0]
    keyed.sort_by_descending_frequency()
    assert keyed.index_to_key[0] == first
    (run.folder / "vocabulary.txt").rename(tmp_path / "moved")
    try:
        assert "count" not in run.vectors.expandos
    finally:
        (tmp_path / "moved").rename(run.folder / "vocabulary.txt")


def test_a_repeated_benchmark_is_scored_once(run: experiment.Run) -> None:
    once = experiment.evaluate(run.folder, ["simlex999"])
    assert experiment.evaluate(run.folder, ["simlex999", "simlex999"]) == once


def test_neighbours_are_returned_and_unknown_words_are_an_error(run: experiment.Run) -> None:
    """The error has code 2, like that of an unknown word of a query; unknown words of a file have code 3."""
    printed = neighbours.format_text(experiment.neighbours(run.folder, ["cat", "nosuchword"], 3))
    assert printed.splitlines()[0].startswith("cat: ") and printed.count(",") == 2
    assert "not in the vocabulary" in printed
    with pytest.raises(UsageError, match=r"none of these words has .*: nosuchword, catt \(did you mean 'cat'\?\)"):
        experiment.neighbours(run.folder, ["nosuchword", "catt"], 3)
    with pytest.raises(UsageError, match=r"there is no word 'nosuchword'"):
        run.predict("nosuchword")


def test_a_file_of_one_word_has_no_neighbours(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("1 2\na 1 1\n")
    with pytest.raises(DataError, match="contains the vector of one word, so it has no neighbours"):
        experiment.neighbours(tmp_path / "one.txt", ["a"])


@pytest.mark.parametrize(("words", "message"), [
    ("\n".join(["cat", "dog", "cow"] * 500), "no line has two words; set text.sequence: document"),
    ("cat dog cow\n", "subsampling removed all words; set text.sample: 0")])
def test_a_text_without_a_pair_is_refused_before_training(tmp_path: Path, words: str, message: str) -> None:
    (tmp_path / "t.txt").write_text(words)
    config = resolve("sgns", corpus=str(tmp_path / "t.txt"), sets=["text.min_count=1", "evaluate.benchmarks=[]"],
                    threads=1)
    with pytest.raises(DataError, match=f"gives no training pairs: {message}"):
        experiment.fit(config, tmp_path / "run")


def test_a_second_run_in_the_same_folder_is_refused(run: experiment.Run, text: Path) -> None:
    with pytest.raises(UsageError, match="embtrain resume"):
        embtrain.fit("sgns", corpus=text, sets=SETS, out=run.folder)


def test_runs_started_in_one_second_get_separate_folders(text: Path, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process creates its folder after this one has chosen the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("embtrain.experiment.run.run.files.dated_folder", lambda name: Path("runs") / f"1-{name}")
    monkeypatch.setattr("embtrain.experiment.run.run.report.write", lambda _: None)
    with pytest.raises(UsageError, match="model"):
        embtrain.fit("sgns", corpus=text, sets=SETS | {"model.dim": -1})
    assert not (tmp_path / "runs").exists()                  # a refused run leaves no folder
    runs = [embtrain.fit("sgns", corpus=text, sets=SETS, seed=seed, threads=1) for seed in (3, 4)]
    assert [run.folder for run in runs] == [Path("runs/1-skipgram-sgns"), Path("runs/1-skipgram-sgns-2")]
    assert [run.settings.train.seed for run in runs] == [3, 4]


@pytest.mark.parametrize(("free", "message"), [
    (1 << 10, r"^model\.dim: a table of 23 by 12 numbers takes"), (1 << 12, r"^negatives\.k, train\.(batch|chunk): ")])
def test_more_memory_than_is_free_is_refused_before_allocation(text: Path, tmp_path: Path, free: int, message: str,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free", lambda: free)
    with pytest.raises(ResourceError, match=message):
        experiment.fit(settings(text, "sgns"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_plan_contains_configuration_memory_and_time(text: Path) -> None:
    plan = str(experiment.plan(settings(text, "ace", "negatives.min_perplexity=5")))
    assert "source: ace" in plan and "memory:" in plan and "s of training on 1 thread (" in plan


def test_the_plan_and_the_run_name_the_engine(run: experiment.Run, text: Path) -> None:
    identity = json.loads((run.folder / "identity.json").read_text())
    assert (identity["engine"], identity["block"]) == ("fused" if core() else "autograd", 256)
    assert (identity["host"], identity["processor"]) == (platform.node(), machine.processor())
    assert identity["core"] == level() and "/" not in identity["core"]  # the path of the file depends on the machine
    assert f"\nengine: {identity['engine']}" in str(experiment.plan(settings(text, "sgns")))
    plan = str(experiment.plan(settings(text, "sgns", "train.clip=1.0")))
    assert "\nengine: autograd; train.clip: " in plan


@pytest.mark.parametrize("engine", ["autograd", "fused", None, "other"])
def test_a_resumed_run_keeps_its_engine(
        text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str | None) -> None:
    """The current choice of `auto` is ignored; runs from before the compiled engine name none and used autograd."""
    run = embtrain.fit("sgns", corpus=text, sets=SETS, seed=3, threads=1, out=tmp_path / "run")
    identity = json.loads((run.folder / "identity.json").read_text())
    identity = identity | {"engine": engine} if engine else {key: value for key, value in identity.items()
                                                             if key != "engine"}
    (run.folder / "identity.json").write_text(json.dumps(identity))
    engines = []
    monkeypatch.setattr(components, "build", lambda config, _, folder: (engines.append(config.train.engine), 1 / 0))
    with pytest.raises(DataError if engine == "other" else ZeroDivisionError):
        experiment.resume(run.folder)
    assert engines == ([] if engine == "other" else [engine or "autograd"])


def mean(z: torch.Tensor, target: torch.Tensor) -> float:
    return float(z.log_softmax(1).gather(1, target.unsqueeze(1)).double().mean())


def test_likelihood_adds_log_q_for_negative_sampling(text: Path) -> None:
    """P(b|a) ∝ q(b) e^s for sgns, e^s for nce; for sgns the uncorrected scores are evaluated too."""
    for strategy in ("sgns", "nce"):
        config = settings(text, strategy)
        resolved = components.build(config, tasks.read(config))
        with torch.no_grad():
            resolved.model.v.copy_(torch.randn(resolved.model.v.shape, generator=torch.Generator().manual_seed(0)))
            resolved.model.u.mul_(30)
        batch = resolved.task.heldout("valid")
        rows = {row.metric: row.value for row in scoring.likelihood(resolved, batch, "valid", WordsConfig(resamples=0))}
        s = (resolved.model.u[batch.centre] @ resolved.model.v.T).detach()
        log_q = resolved.source.log_q  # type: ignore[attr-defined]
        bare, expected = mean(s, batch.target), mean(s + log_q if strategy == "sgns" else s, batch.target)
        assert rows["log_likelihood"] == pytest.approx(expected, abs=1e-4)
        assert ("log_likelihood/scores" in rows) == (strategy == "sgns")
        if strategy == "sgns":
            assert rows["log_likelihood/scores"] == pytest.approx(bare, abs=1e-4)
            assert not math.isclose(bare, expected, abs_tol=0.01)


def test_listing_names_every_component() -> None:
    printed = listing.format_text(listing.listing())
    for name in ("sgns", "ace-no-entropy", "skipgram", "log_uniform", "sampled_softmax", "gensim-wiki", "rareword"):
        assert name in printed


@pytest.mark.parametrize(("model", "corpus", "learns"), [
    ("skipgram", "fb15k-237", "text"), ("lm", "umls", "text"), ("skipgram", "wordnet-nouns", "text"),
    ("node2vec", "umls", "walks"), ("xc", "umls", "documents with labels"), ("transe", "gensim-wiki", "triples")])
def test_a_corpus_of_another_kind_is_refused_by_its_name(model: str, corpus: str, learns: str) -> None:
    """The refusal comes before any download."""
    with pytest.raises(UsageError, match=rf"^corpus: {corpus}: .* reader is .*: {model} learns from {learns}"):
        tasks.read(experiment.resolve("sgns", model=model, corpus=corpus))


@pytest.mark.parametrize(("corpus", "message"), [
    ({"a": 1}, "takes no dict"), (5, "takes no int"), (b"my.txt", "takes no bytes"),
    ("a b\nc d", r"'a b\\nc d' and so on is neither"), ("word " * 1000, "'word word .* and so on is neither"),
    ("a\0b", "'a.x00b' and so on is neither"),
])
def test_a_corpus_that_is_neither_a_name_nor_a_path_is_one_error(tmp_path: Path, corpus: object, message: str) -> None:
    with pytest.raises(UsageError, match=f"^corpus: {message}.*; give the name of a recipe or the path of a file or "
                                         "folder, and write texts to a file first$"):
        embtrain.fit("sgns", corpus=corpus, out=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("strategy", ["sgns", "softmax"])
def test_a_text_whose_blocks_are_mostly_empty_is_trained(strategy: str, tmp_path: Path) -> None:
    """Subsampling removes `the`; of a line with another word alone no pair is left."""
    text = tmp_path / "titles.txt"
    names = islice(product("abcdefghijklmnopqrstuvwxyz", repeat=3), 3_000)
    text.write_text("".join(f"the x{''.join(name)}\n" for name in names))
    sets = {**SETS, "text.sample": 1e-3, "train.chunk": None, "model.dim": 1500, "evaluate.benchmarks": []}
    run = embtrain.fit(strategy, corpus=text, sets=sets, seed=1, out=tmp_path / "run")
    [trained] = [row for row in run.scores if (row.benchmark, row.metric) == ("training", "seconds")]
    assert 0 < trained.n < 400 and trained.value > 0


@pytest.mark.parametrize("engine", ["fused", "autograd"])
def test_a_text_without_a_pair_after_subsampling_is_refused(engine: str, tmp_path: Path) -> None:
    text = tmp_path / "two.txt"
    text.write_text("dog cat dog cat\n" * 50)
    sets = {**SETS, "text.sample": 1e-3, "evaluate.benchmarks": [], "train.engine": engine}
    with pytest.raises(DataError, match=r"gave no example in training, .*; set text\.sample: 0, or give more text"):
        embtrain.fit("sgns", corpus=text, sets=sets, seed=1, out=tmp_path / "run")


def test_the_time_of_a_short_run_is_that_of_its_log(run: experiment.Run) -> None:
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    [row] = [row for row in run.scores if (row.benchmark, row.metric) == ("training", "seconds")]
    assert row.value == pytest.approx(last["seconds"], abs=1e-3) and not row.note.startswith("0 ")
