"""Translators from the command line to the report: negatives, refusals, interrupted runs, translated lines, and
vectors that a translator evaluates."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import yaml
from gensim.models import FastText
from helpers.in_process import in_process
from helpers.runs import assert_same_run, cache, command, fit, gain, interrupted, no_page, state, trained, value  # noqa: F401
from sacrebleu.metrics import BLEU

from embtrain import experiment
from embtrain.common import shipped
from embtrain.common.errors import DataError, ResourceError, Stopped, UsageError
from embtrain.common.types import LossInput, Negatives, Query
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.benchmark import EvalRecipe
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.parallel.batches import make_batch
from embtrain.data.parallel.corpus import RARE
from embtrain.data.parallel.tokenize import tokenize_source
from embtrain.data.vectors import folders, vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.translation.bf16_search import Bf16Search
from embtrain.experiment import Settings
from embtrain.experiment.comparison import compare
from embtrain.experiment.inspect.sentences import sentences
from embtrain.experiment.prediction import translator as trained_translator
from embtrain.experiment.run import components, scoring, started, stored
from embtrain.experiment.tasks import base as tasks, translate_words
from embtrain.train.loop import Trainer

pytestmark = pytest.mark.long

SETS = ["model.dim=12", "model.hidden=16", "model.embed=8", "train.chunk=60", "train.batch=60", "train.epochs=2",
        "translation.max_length=20", "train.lr=0.01", "translation.min_count=1", "evaluate.resamples=40",
        "train.log_every=2", "train.checkpoint_every=1e9", "train.warmup=0", "evaluate.sentences=12",
        "evaluate.examples=2", "translation.source=de", "translation.target=en"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Counting in two languages, forwards and backwards."""
    folder, draw = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    ones, theirs = "one two three four five six seven".split(), "eins zwei drei vier fuenf sechs sieben".split()
    for part, n in (("train", 60), ("dev", 14), ("test", 14)):
        chosen = [draw.integers(0, 7, draw.integers(2, 6)) for _ in range(n)]
        (folder / f"{part}.en").write_text("".join(" ".join(ones[i] for i in line) + ".\n" for line in chosen))
        (folder / f"{part}.de").write_text("".join(" ".join(theirs[i] for i in line[::-1]) + ".\n" for line in chosen))
    return folder


def settings(corpus: Path, strategy: str, *more: str) -> Settings:
    return experiment.resolve(strategy, "nmt", str(corpus), sets=[*SETS, *more], threads=1)


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> experiment.Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return fit(settings(corpus, "syn-margin-projection"), tmp_path_factory.mktemp("runs") / "run")


# --- combinations -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("strategy", "more"), [
    ("syn-margin-projection", []), ("syn-margin-difference", []), ("vmf", []), ("cosine", []), ("margin-random", []),
    ("margin-most-informative", []), ("cross-entropy", []), ("cross-entropy-tied", []), ("sgns", []), ("nce", []),
    ("sampled-softmax", []), ("rff", ["model.similarity=cosine", "model.tau=8"]), ("in-batch", []),
    ("ace-full", ["negatives.min_perplexity=5"]), ("softmax", ["model.net=transformer"])])
def test_it_learns_from_every_kind_of_negatives(corpus: Path, tmp_path: Path, strategy: str, more: list[str]) -> None:
    config = settings(corpus, strategy, "train.lr=0.02", *more)
    assert gain(config, 60, tmp_path) > 0.06


@pytest.mark.parametrize("more", [["model.tied=true"], [], ["model.tied=true", "model.similarity=cosine"],
                                  ["model.tied=true", "negatives.share_draws_by=row"]])
def test_row_gradients_equal_the_gradient_of_the_table(corpus: Path, tmp_path: Path, more: list[str]) -> None:
    """One update moves the rows it reads as Adam over the whole table does, and no others."""
    result, begun = [], []
    for optimizer in ("adam", "lazy-adam"):
        config = settings(corpus, "sampled-softmax", f"train.optimizer={optimizer}", "negatives.share_draws_by=batch",
                          "negatives.k=2", "train.chunk=12", "train.batch=12", *more)
        built = components.build(config, tasks.read(config))
        begun.append(built.model.table().detach().clone())
        trained(built, 1, tmp_path)
        tables = [p for name, p in built.model.named_parameters() if name in ("u", "v", "w")]
        in_rows = [p.grad is not None and p.grad.is_sparse for p in tables]
        assert in_rows == [optimizer == "lazy-adam"] * 2 + [optimizer == "lazy-adam" and not more]
        result.append({name: p.detach().clone() for name, p in built.model.named_parameters()})
    torch.testing.assert_close(result[0], result[1], rtol=1e-5, atol=2e-6)
    stayed = (result[1]["v"] == begun[1]).all(1)
    assert torch.equal(begun[0], begun[1]) and bool(stayed.any()) and not bool(stayed.all())


@pytest.mark.parametrize(("more", "least"), [
    (["model.hidden=48", "train.lr=0.02"], 90),
    pytest.param(["model.net=transformer", "model.hidden=32", "train.lr=0.005"], 60, marks=pytest.mark.slow)])
def test_it_translates_what_it_has_learned(corpus: Path, tmp_path: Path, more: list[str], least: float) -> None:
    config = settings(corpus, "cross-entropy-tied", *more, "model.dropout=0", "evaluate.valid_sentences=9")
    built = components.build(config, tasks.read(config))
    trained(built, 400, tmp_path)
    result = {row.metric: row for row in built.task.validate(built)}
    assert result["bleu"].value > least and result["bleu"].n == 9  # type: ignore[operator]
    assert "greedy" in result["bleu"].note
    # type: ignore
    lines = [b"Drei zwei EINS.\n", b" \n", b"sieben vier."]
    text = list(trained_translator.translate_lines(built, built.task, lines, 2))
    assert text[1] == "" and (text == ["One two three.", "", "Four seven."] or least < 90)


@pytest.mark.parametrize(("strategy", "sets", "message"), [
    ("sgns", ["negatives.filter=observed"], r"^negatives\.filter: observed: .* set negatives\.filter: none or target$"),
    ("sgns", ["train.chunk=null"], r"^train\.chunk: null: a block consists of complete sentences; .* e\.g\. 600$"),
    ("sgns", ["train.batch=30"], r"^train\.batch: 30: sentences are not split, .* set train\.batch: 60$"),
    ("sgns", ["translation.max_length=60"], r"^train\.chunk: 60: a sentence of translation\.max_length: 60 words"),
    ("sgns", ["train.engine=fused"], r"train\.engine: fused: model\.name: nmt: the kernels support"),
    ("sgns", ["model.net=transformer", "model.heads=3"], r"hidden 16 is not a multiple of heads 3"),
    ("sgns", ["train.patience=1", "evaluate.sentences=0"], r"train\.patience: nothing is held out; set evaluate\.sen"),
    ("sgns", ["language.streams=2"], r"language: unknown key"),
    ("vmf", ["evaluate.table=bfloat16", "evaluate.beam=2"], r"^evaluate\.table: bfloat16: finds .* evaluate\.beam: 1$"),
    ("sgns", ["evaluate.table=bfloat16"], r"^evaluate\.table: bfloat16: loss\.name: logistic ranks words by score"),
])
def test_impossible_combinations_are_refused_before_training(corpus: Path, tmp_path: Path, strategy: str,
                                                             sets: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit(settings(corpus, strategy, *sets), tmp_path / "run")
    assert not (tmp_path / "run" / "scores.json").exists()


def test_a_corpus_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match=r"corpus: planted-13k: .* is planted, .* learns from pairs of sentences"):
        tasks.read(experiment.resolve("sgns", "nmt", "planted-13k", threads=1))


def test_a_table_of_another_width_or_not_finite_is_refused(corpus: Path, tmp_path: Path) -> None:
    words = "one two three four five six seven".split()
    table = np.ones((7, 5), np.float32)
    files_of_vectors.write(tmp_path / "v.txt", Vectors(words, table), "word2vec")
    sets = ["model.output_table.kind=pretrained", f"model.output_table.file={tmp_path / 'v.txt'}"]
    with pytest.raises(UsageError, match=r"vectors of 5 numbers, but model\.dim is 12"):
        fit(settings(corpus, "cosine", *sets), tmp_path / "run")
    (tmp_path / "v.txt").write_text("1 2\none nan 1\n")
    with pytest.raises(DataError, match=r"v\.txt:2: contains NaN or infinity"):
        fit(settings(corpus, "cosine", *sets, "model.dim=2"), tmp_path / "run")


def test_a_table_may_be_a_file_a_run_folder_or_from_hugging_face(corpus: Path, tmp_path: Path) -> None:
    words = tasks.read(settings(corpus, "cosine")).target.words  # type: ignore[attr-defined]
    table = np.random.default_rng(0).normal(size=(len(words), 12)).astype(np.float32)
    (tmp_path / "run").mkdir()
    files_of_vectors.write(tmp_path / "run" / "vectors.safetensors", Vectors(words, table), "safetensors")
    folders.write_huggingface(tmp_path / "hub", Vectors(words, table), None, {}, {}, "")
    tables = [components.build(one, tasks.read(one)).model.vectors() for one in (
        settings(corpus, "cosine", "model.output_table.kind=pretrained", f"model.output_table.file={tmp_path / name}")
        for name in ("run/vectors.safetensors", "run", "hub"))]
    assert all(np.array_equal(one, tables[0]) for one in tables[1:])
    np.testing.assert_allclose(tables[0], table / np.linalg.norm(table, axis=1, keepdims=True), atol=1e-6)
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"none: contains no vectors: neither vectors\.safetensors, as a run folder"):
        fit(settings(corpus, "cosine", "model.output_table.kind=pretrained",
                     f"model.output_table.file={tmp_path / 'none'}"),
            tmp_path / "run2")


# --- evaluation -----------------------------------------------------------------------------------------------

def test_bleu_is_that_of_the_written_translations(corpus: Path, run: experiment.Run) -> None:
    ours = (run.folder / "test.translations.txt").read_text().splitlines()
    theirs = (corpus / "test.en").read_text().splitlines()[:12]
    assert len(ours) == 12 and all(line == "" or line[0] == line[0].upper() for line in ours)
    assert value(run, "bleu_cased") == pytest.approx(BLEU().corpus_score(ours, [theirs]).score)
    assert value(run, "bleu") == pytest.approx(BLEU(lowercase=True).corpus_score(ours, [theirs]).score)
    assert 0 <= value(run, "accuracy@1") <= value(run, "accuracy@2") <= value(run, "accuracy@10") <= 1
    items = scoring.read_items(run.folder / "items.safetensors")
    assert items["test/correct"].mean() == pytest.approx(value(run, "accuracy@1"))
    assert items["test/bleu_length"].tolist() == [len(line.replace(".", " .").split()) for line in ours]


def test_examples_show_the_words_nearest_to_an_output_and_to_its_negative(run: experiment.Run) -> None:
    shown = json.loads((run.folder / "examples.json").read_text())
    assert [set(one) for one in shown] == [{"source", "reference", "translation", "wrong"}] * 2
    built, task = stored.open_translator(run.folder)
    read = tasks.read(run.settings)
    batch = make_batch(read.text, np.array(read.text.part("test")[:2]))
    e = torch.nn.functional.normalize(scoring.encode_heldout(built, batch).vector)
    v, words, expected, cosines = built.model.table(), task.target.words, [], []
    positives = [b for i in read.text.part("test")[:2] for b in (*read.text.target.sentence(i).tolist(), 0)]
    for answer, b in zip(e, positives, strict=True):
        negative = answer - (answer @ v[b]) * v[b]
        near, against = ((v @ x).argsort(descending=True)[:5].tolist() for x in (answer, negative))
        if near[0] != b:
            expected.append({"right": words[b], "nearest": [words[i] for i in near],
                         "negative": [words[i] for i in against]})
            cosines.append(float(answer @ v[b]))
    wrong = [wrong for one in shown for wrong in one["wrong"]]
    assert [one.pop("cosine") for one in wrong] == pytest.approx(cosines, abs=1e-4)
    assert wrong == expected and expected


def test_examples_of_answers_are_test_sentences_with_translation_and_reference(corpus: Path, run: experiment.Run
                                                                               ) -> None:
    found = json.loads((run.folder / "answers.json").read_text())
    assert (found["part"], found["scores"]) == ("test", "none")
    lines = [path.read_text().splitlines() for path in (
        corpus / "test.de", run.folder / "test.translations.txt", corpus / "test.en")]
    places = [i * 12 // 8 for i in range(8)]                     # evaluate.sentences=12
    assert [query["query"] for query in found["queries"]] == [lines[0][i] for i in places]
    assert [query["answers"] for query in found["queries"]] == [[[lines[1][i], None, lines[1][i] == lines[2][i]]]
                                                                for i in places]
    assert [query["positives"] for query in found["queries"]] == [[[lines[2][i], None]] for i in places]


def test_a_run_is_evaluated_with_a_bfloat16_table(run: experiment.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    plain = Bf16Search.__call__
    monkeypatch.setattr(Bf16Search, "__call__", lambda self, query, unknown: sizes.append(len(query)) or plain(
        self, query, unknown))
    rows = {row.metric: row for row in experiment.evaluate(run.folder, None, ["evaluate.table=bfloat16"])
            if row.benchmark == "test"}
    assert sizes and rows["bleu"].note.endswith("duplicates: keep, table: bfloat16")
    assert rows["bleu"].value == pytest.approx(value(run, "bleu"), abs=3)
    with pytest.raises(UsageError, match=r"evaluate\.table: bfloat16: finds only the best word, but a beam"):
        stored.open_translator(run.folder, ["evaluate.table=bfloat16", "evaluate.beam=2"])


def test_a_run_is_evaluated_with_other_settings_and_unchanged(run: experiment.Run) -> None:
    before = {path: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    other = experiment.evaluate(run.folder, None, ["evaluate.beam=3", "evaluate.duplicates=remove"])
    rows = {(row.benchmark, row.metric): row for row in other}
    assert "beam 3, unknown: ban, duplicates: remove" in rows["test", "bleu"].note
    assert rows["test", "accuracy@1"].value == value(run, "accuracy@1")
    assert before == {path: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    same_rows = {(row.benchmark, row.metric): row.value for row in experiment.evaluate(run.folder)}
    assert same_rows["test", "bleu"] == value(run, "bleu")
    assert before == {path: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    with pytest.raises(UsageError, match=r"^--set train\.lr=1: the command only evaluates"):
        experiment.evaluate(run.folder, None, ["train.lr=1"])
    with pytest.raises(UsageError, match=r"evaluate\.beem: unknown key"):
        experiment.evaluate(run.folder, None, ["evaluate.beem=2"])


# --- interrupted, compared, queried -----------------------------------------------------------------------------------

@pytest.mark.parametrize(("strategy", "more"), [
    ("syn-margin-projection", ["model.dropout=0.3"]), ("nce", ["model.net=transformer", "model.tied=false"]),
    ("sampled-softmax", ["train.optimizer=lazy-adam", "negatives.share_draws_by=batch", "negatives.k=4"])])
def test_a_resumed_run_is_bitwise_equal(corpus: Path, tmp_path: Path, strategy: str, more: list[str],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    no_page(monkeypatch)
    config = settings(corpus, strategy, *more)
    whole = experiment.fit(config, tmp_path / "whole").folder
    assert state(whole)["position"]["step"] > 10
    cut = interrupted(config, tmp_path / "cut", 3, 5).folder  # the second time within the second epoch
    assert_same_run(whole, cut, ("items.safetensors", "test.translations.txt", "target.vocabulary.txt"))


def test_other_words_are_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "check_settings", lambda *_: None)      # earlier versions store no settings to compare
    folder = fit(settings(corpus, "cosine", "train.epochs=1"), tmp_path / "run").folder
    plain = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(plain.replace("min_count: 1", "min_count: 25"))
    with pytest.raises(DataError, match=r"source\.vocabulary\.txt: differs from what the corpus gives with"):
        experiment.resume(folder)
    (folder / "config.yaml").write_text(plain)
    words = (folder / "target.vocabulary.txt").read_text()
    (folder / "target.vocabulary.txt").write_text(words.split("\n", 2)[2])
    with pytest.raises(DataError, match=r"target\.vocabulary\.txt: should begin with the rows <eos> and <unk>; begins"):
        stored.open_translator(folder)


def test_lines_are_translated_one_by_one(run: experiment.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    """The run folder is enough, in any location and without the corpus."""
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in run.folder.rglob("*"):
        if path.is_file():
            (moved / path.relative_to(run.folder)).parent.mkdir(parents=True, exist_ok=True)
            (moved / path.relative_to(run.folder)).write_bytes(path.read_bytes())
    text = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(text.replace(f"corpus: {run.settings.corpus}", "corpus: /is/gone"))

    embtrain = partial(command, monkeypatch, capsys, "translate", str(moved))
    source = b"eins zwei.\n\n  \nDREI nie_gesehen\nvier"
    lines = embtrain(given=source).split("\n")
    assert len(lines) == 6 and lines[1:3] == ["", ""] and lines[-1] == ""
    assert embtrain("--batch", "1", given=source).split("\n") == lines
    assert len(embtrain("--beam", "2", "--unknown", "copy", "--duplicates", "remove", given=source).split("\n")) == 6
    assert embtrain(given=b"") == ""
    for flag, allowed in (("--unknown", "'ban', 'keep' or 'copy'"), ("--table", "'float32' or 'bfloat16'")):
        assert embtrain(flag, "maybe", given=b"", code=2).startswith(
            f"embtrain: error: {flag} maybe: evaluate.{flag[2:]}: should be {allowed}, got 'maybe'")
    assert embtrain(given=b"eins\n\xff\n", code=3).startswith(
        "embtrain: error: standard input:2: not UTF-8; convert it to UTF-8, e.g. with iconv -f WINDOWS-1252 ")
    assert "standard input:1: 1,000,001 bytes; at most 1,000,000" in embtrain(given=b"a" * 1_000_002, code=3)
    long = embtrain(given=b"eins " * 10_000 + b"\n")
    assert len(long.split("\n")) == 2 and len(long.split()) <= 2 * 21 + 10


def test_only_a_translator_translates(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a run: it has no config"):
        stored.open_translator(tmp_path)
    from embtrain.common.config import dump

    (tmp_path / "config.yaml").write_text(dump(experiment.resolve("sgns", "lm", "ptb")))
    with pytest.raises(UsageError, match=r"model\.name: lm does not translate"):
        stored.open_translator(tmp_path)


def test_the_commands(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                      capsys: pytest.CaptureFixture[str]) -> None:
    embtrain, run = partial(command, monkeypatch, capsys), str(tmp_path / "run")
    fitted = partial(embtrain, "fit", "--negatives", "cosine", "--model", "nmt", "--corpus", str(corpus), "--threads",
                     "1", sets=SETS)
    assert "60 training pairs, 14 and 14 held out, 10 source words, 10 target words" in fitted(
        "--dry-run")
    assert "chrf" in fitted("--out", run, "--quiet")
    assert "bleu_cased" in embtrain("resume", run, "--quiet")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "BLEU, with case" in page and 'id="neighbours"' not in page and "neighbours.json" not in page
    assert "accuracy@5" in embtrain("evaluate", run, "--quiet", "--set", "evaluate.resamples=0")
    assert "uniform" in embtrain("diagnose", run, "--negatives", "uniform", "--m", "5", "--queries", "4", "--draws",
                                 "20", "--threads", "1", "--quiet")
    embtrain("export", run, "--format", "word2vec", "--out", str(tmp_path / "v.txt"))
    assert (tmp_path / "v.txt").read_text().startswith("10 12\n<eos> ")
    assert "one: " in embtrain("neighbours", run, "one", "--count", "2")
    assert "nmt-multi30k-de-en" in embtrain("list")


@pytest.mark.slow
def test_a_comparison_is_paired(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                capsys: pytest.CaptureFixture[str]) -> None:
    in_process(monkeypatch, tmp_path)
    compare = partial(command, monkeypatch, capsys, "compare", "--negatives", "cross-entropy,cosine", "--model", "nmt",
                      "--corpus", str(corpus))
    sets = [*SETS, "train.epochs=3"]
    compare("--seeds", "2", "--threads", "1", "--out", str(tmp_path / "cmp"), "--quiet", sets=sets)
    result = json.loads((tmp_path / "cmp" / "results.json").read_text())
    assert result["plan"]["metric"] == "test/bleu"
    over = {(d["kind"], d["metric"]): d for d in result["differences"]}
    seeds, items = over["seeds", "test/bleu"], over["items", "test/bleu"]
    assert seeds["higher_better"] and items["higher_better"] and (seeds["n"], items["n"]) == (2, 12)
    assert items["p"] is not None and items["low"] <= items["mean"] <= items["high"]
    assert over["items", "test/accuracy"]["n"] > 12
    # The two differ in model.similarity, which strategies of continuous outputs set. Keys that none sets must be equal.
    compare("--seeds", "1", "--out", str(tmp_path / "no"), sets=[*sets, "train.seed=4"], code=2)


# --- target tables built from the text ----------------------------------------------------------------------------

def test_a_side_is_split_as_the_translator_reads_it(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    embtrain = partial(command, monkeypatch, capsys, "data", "sentences", str(corpus))
    sets = ["translation.source=de", "translation.target=en", "translation.min_count=1"]
    written = (corpus / "train.en").read_text()
    assert embtrain(sets=sets) == written.replace(".\n", " .\n")
    assert embtrain("--ends", "--part", "valid", sets=sets) == (corpus / "dev.en").read_text().replace(
        ".\n", " . </s>\n")
    assert embtrain("--side", "source", sets=sets) == (corpus / "train.de").read_text().replace(".\n", " .\n")
    rare = embtrain(sets=[*sets[:2], "translation.max_size=4"]).split()  # the two most frequent words have ids
    words = written.replace(".", " .").split()
    two = {word for word, _ in Counter(words).most_common(2)}
    assert rare == [word if word in two else "<unk>" for word in words]
    assert embtrain("--out", str(tmp_path / "side.txt"), sets=sets) == f"{tmp_path / 'side.txt'}\n"
    assert (tmp_path / "side.txt").read_text() == embtrain(sets=sets)
    assert "--side: 'both' is not one of source, target" in embtrain("--side", "both", sets=sets, code=2)
    assert "--set train.lr=1: is not a key of translation; set only those" in embtrain(
        sets=[*sets, "train.lr=1"], code=2)
    os.mkfifo(tmp_path / "pipe")
    for out in (tmp_path / "pipe", tmp_path):
        assert f"--out: {out}: is a " in embtrain("--out", str(out), sets=sets, code=2)
    assert (tmp_path / "pipe").is_fifo()
    assert "--part: 'dev' is not one of train, valid, test" in embtrain("--part", "dev", sets=sets, code=2)
    lone = tmp_path / "lone"
    lone.mkdir()
    for language in ("de", "en"):
        (lone / f"train.{language}").write_bytes((corpus / f"train.{language}").read_bytes())
    printed = command(monkeypatch, capsys, "data", "sentences", str(lone), "--part", "test",
                   sets=[*sets, "translation.test=0"], code=2)
    assert "has no test sentences; set translation.test above 0" in printed


def test_gensim_fasttext_gives_a_target_table(corpus: Path, tmp_path: Path) -> None:
    sets = ["translation.source=de", "translation.target=en", "translation.min_count=1"]
    lines = [line.split() for line in sentences(str(corpus), ends=True, sets=sets)]
    model = FastText(lines, sg=1, vector_size=12, min_count=1, bucket=500, workers=1)
    model.wv.save_word2vec_format(str(tmp_path / "fasttext.txt"))
    table = components.build(chosen := settings(
        corpus, "syn-margin-projection", "model.output_table.kind=pretrained",
        f"model.output_table.file={tmp_path / 'fasttext.txt'}"), task := tasks.read(chosen)).model.vectors()
    for word in ("one", "seven", "."):
        row, v = table[task.target.words.index(word)].numpy(), model.wv[word]  # type: ignore[attr-defined]
        assert np.allclose(row, v / np.linalg.norm(v), atol=1e-5), word
    end = model.wv["</s>"]
    assert np.allclose(table[0].numpy(), end / np.linalg.norm(end), atol=1e-5)


@pytest.mark.parametrize(("strategy", "more"), [("vmf", ["loss.variant=plain"]), ("power-spherical", [])])
def test_a_beam_adds_log_densities_if_the_loss_is_one(corpus: Path, strategy: str, more: list[str]) -> None:
    """−L of a target is its logit and the scale: long outputs are sharp, which alone must not raise their rank."""
    config = settings(corpus, strategy, "model.output_table.kind=sphere", *more)
    built = components.build(config, tasks.read(config))
    e, V = built.model.vectors(), built.problem.n_candidates
    query = Query(3 * torch.randn(5, built.problem.dim), *(torch.arange(5) % V for _ in range(3)))
    score = query.vector @ e.T
    pos = score.gather(1, query.target.unsqueeze(1)).squeeze(1)
    cost = built.loss(LossInput(pos, torch.zeros(5, 0), Negatives(), query,
                               whole_table=SimpleNamespace(target_vectors=lambda: e[query.target])))
    density = built.loss.logit(score, query) + built.loss.log_scale(query)
    of_target = density.gather(1, query.target.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(of_target, -cost.per_example, atol=1e-4, rtol=1e-4)


def test_an_unknown_word_is_copied_verbatim_in_an_evaluation(
        corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(corpus, "cross-entropy", "evaluate.unknown=copy", "translation.min_count=40")
    task = tasks.read(config)
    built = components.build(config, task)
    rare = [i for i in task.text.part("test") if RARE in task.text.source.sentence(i)]
    assert rare and all(len(task.source_tokens(i)) == len(task.text.source.sentence(i)) for i in task.text.part("test"))
    read = Mock(side_effect=translate_words.translate)
    monkeypatch.setattr(translate_words, "translate", read)
    task._translations(built, "test", config.evaluate, None)
    for i, words in zip(task.text.part("test"), read.call_args.args[3], strict=False):
        line = task.text.pair(i)[0]
        assert "<unk>" not in words and words == tokenize_source(line, task.tokenizer, task.config.lower)
    assert {word for i in rare for word in task.source_tokens(i)} - set(task.text.source.vocabulary.words)


def test_cross_entropy_has_a_separate_table_and_cross_entropy_tied_has_not(corpus: Path) -> None:
    def names(strategy: str, *more: str) -> set[str]:
        config = settings(corpus, strategy, *more)
        return {name for name, _ in components.build(config, tasks.read(config)).model.named_parameters()}
    untied, tied = names("cross-entropy"), names("cross-entropy-tied")
    assert tied - untied == {"read_w.weight"} and names("vmf", "model.output_table.kind=sphere") >= {"read_w.weight"}
    assert "read_w.weight" not in names("vmf", "model.output_table.kind=sphere", "model.tied=false")


@pytest.mark.parametrize(("strategy", "bare"), [("cross-entropy", False), ("sampled-softmax-cosine", False),
                                                ("syn-margin-projection", True), ("vmf", True),
                                                ("power-spherical", True)])
def test_a_beam_adds_cosines_if_the_loss_gives_no_probabilities(
        corpus: Path, strategy: str, bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(corpus, strategy, *([] if strategy == "cross-entropy" else ["model.output_table.kind=sphere"]))
    task = tasks.read(config)
    search = Mock(side_effect=translate_words.decoding.translate)
    monkeypatch.setattr(translate_words.decoding, "translate", search)
    built = components.build(config, task)
    # type: ignore[arg-type]
    lines = translate_words.translate(built, task, [np.array([2, 0])], [["eins"]], config.evaluate)
    step, z = search.call_args.kwargs["step"], torch.randn(3, 7)
    assert len(lines) == 1 and (step is not None) is bare
    if bare:
        long = Query(torch.randn(3, built.problem.dim), *(torch.zeros(3, dtype=torch.int64) for _ in range(3)))
        scale = built.loss.log_scale(long)
        assert (scale is not None) == (strategy in ("vmf", "power-spherical"))
        assert torch.equal(step(z, long), z if scale is None else z + scale)
        assert scale is None or (scale.shape == (3, 1) and len(scale.unique()) == 3)


# --- vectors evaluated by a translator --------------------------------------------------------------------------------

QUICK = ("model.hidden=8", "model.embed=8", "train.epochs=1", "evaluate.sentences=5", "evaluate.resamples=0",
         "translation.min_count=1", "train.threads=1", "train.chunk=400")


@pytest.fixture
def translator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EvalRecipe:
    """The benchmark that trains a translator, on a synthetic corpus and within a second."""
    kept = load_recipe("evals", "nmt-multi30k-de-en").model_dump(mode="json")
    recipe = shutil.copytree(shipped.folder("evals"), tmp_path / "evals") / f"{kept['name']}.yaml"
    recipe.write_text(yaml.safe_dump(
        {key: value for key, value in kept.items() if value and key not in ("format", "expected")}
        | {"training": {"corpus": "grammar", "strategy": "syn-margin-projection", "sets": list(QUICK)}}))
    folder = shipped.folder
    monkeypatch.setattr(shipped, "folder", lambda kind: recipe.parent if kind == "evals" else folder(kind))
    return load_recipe("evals", recipe.stem)


@pytest.fixture
def english(tmp_path: Path) -> tuple[Path, list[str]]:
    """The target side of the synthetic corpus as text for skip-gram, and its words."""
    text = tasks.read(experiment.resolve("cosine", "nmt", "grammar", sets=["translation.min_count=1"]))
    words = text.target.words[2:]  # type: ignore[attr-defined]
    path = tmp_path / "target.en"
    path.write_text("\n".join(" ".join(words) for _ in range(3)) + "\n")
    return path, words


def test_vectors_are_evaluated_by_a_translator_that_predicts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                  translator: EvalRecipe,
                                                                  english: tuple[Path, list[str]]) -> None:
    no_page(monkeypatch)
    words, file = english[1], tmp_path / "v.txt"
    table = np.random.default_rng(0).normal(size=(len(words), 10)).astype(np.float32)
    files_of_vectors.write(file, Vectors(words, table), "glove")
    rows = experiment.evaluate(file, [translator.name])
    result = {row.metric: row for row in rows}
    assert {row.benchmark for row in rows} == {translator.name} and {"bleu", "accuracy@1"} <= set(result)
    assert "v.txt, vectors of 10 numbers" in result["bleu"].note and result["bleu"].n == 5
    # Keys of the translator can be set: another seed, or another table in place of the file.
    nearest = "similarity_target"
    other = {row.metric: row for row in experiment.evaluate(file, [translator.name],
                                                            ["model.output_table.kind=sphere"])}
    assert other[nearest].value != result[nearest].value
    again = {row.metric: row for row in experiment.evaluate(file, [translator.name], ["train.seed=1"])}
    assert again[nearest].value == result[nearest].value
    with pytest.raises(UsageError, match=r"--set train\.seed=2: the command only evaluates"):
        experiment.evaluate(file, [translator.name, "wordsim353"], ["train.seed=2"])
    with pytest.raises(UsageError, match=r"--set evaluate\.beam=2: applies to runs evaluated by their own task, or to"):
        experiment.evaluate(file, ["wordsim353"], ["evaluate.beam=2"])
    few = tmp_path / "few.txt"
    files_of_vectors.write(few, Vectors(words[-3:], table[:3]), "glove")
    with pytest.raises(DataError, match=r"^model\.output_table\.file: .*few\.txt: has vectors for 3 of 104 words"):
        experiment.evaluate(few, [translator.name])


def test_a_run_is_evaluated_by_a_translator_with_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                          translator: EvalRecipe,
                                                          english: tuple[Path, list[str]]) -> None:
    """The nested run is resumed if it was stopped, and not trained again if it is finished."""
    sets = ["model.dim=10", "train.epochs=1", "train.threads=1", "text.tokenizer=whitespace", "text.min_count=1",
            "text.valid=0", "text.test=0", f"evaluate.benchmarks=[{translator.name}]", "evaluate.neighbours=[]"]
    config = experiment.resolve("sgns", "skipgram", str(english[0]), sets=sets, seed=3)
    with monkeypatch.context() as broken:
        def stop(self: Trainer) -> Any:
            if self.folder.name == translator.name:
                raise Stopped(2)
            return kept(self)

        kept = Trainer.run
        broken.setattr(Trainer, "run", stop)
        with pytest.raises(Stopped) as stopped:
            experiment.fit(config, tmp_path / "run")
    assert str(stopped.value).endswith(f"to resume: embtrain resume {tmp_path / 'run'}")
    within = tmp_path / "run" / translator.name
    assert (within / "config.yaml").is_file() and not (tmp_path / "run" / "scores.json").exists()

    run = experiment.resume(tmp_path / "run")
    inner = experiment.Run(within)
    assert inner.settings.train.seed == 3 and inner.settings.train.threads == 1
    assert inner.settings.model.output_table.file == str(tmp_path / "run" / "vectors.safetensors")  # type: ignore
    rows = {row.metric: row for row in run.scores if row.benchmark == translator.name}
    own = {row.metric: row for row in inner.scores if row.benchmark == "test"}
    assert rows and {name: row.value for name, row in rows.items()} == {name: row.value for name, row in own.items()}
    assert "run, vectors of 10 numbers" in rows["bleu"].note
    begun = (within / "metrics.jsonl").read_bytes()
    assert experiment.resume(tmp_path / "run").scores == run.scores and (within / "metrics.jsonl").read_bytes() == begun
    with monkeypatch.context() as broken:                    # the existing result is reported, not trained again
        broken.setattr(Trainer, "run", Mock(side_effect=AssertionError))
        assert experiment.evaluate(run.folder) == list(rows.values())
    path = run.folder / "config.yaml"
    path.write_text(path.read_text().replace("epochs: 1", "epochs: 2"))
    with pytest.raises(DataError, match=r"nmt-multi30k-de-en: was trained on other vectors than .* remove that folder"):
        experiment.resume(run.folder)


@pytest.mark.slow
def test_a_comparison_includes_the_translators_that_evaluate_its_cells(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, translator: EvalRecipe, english: tuple[Path, list[str]],
        capsys: pytest.CaptureFixture[str]) -> None:
    no_page(monkeypatch)
    in_process(monkeypatch, tmp_path)
    sets = ["model.dim=10", "train.epochs=1", "text.tokenizer=whitespace", "text.min_count=1", "text.valid=0",
            "text.test=0", "evaluate.neighbours=[]"]
    out = command(monkeypatch, capsys, "compare", "--negatives", "sgns,nce", "--corpus", str(english[0]), "--seeds",
                  "2", "--benchmarks", translator.name, "--metric", f"{translator.name}/bleu", "--threads", "1",
                  "--out", str(tmp_path / "out"), *(word for text in sets for word in ("--set", text)))
    assert (tmp_path / "out/cells/nce-seed2" / translator.name / "scores.json").is_file()
    assert f"{translator.name}/bleu" in out and "(run 3 seeds or more)" in out
    built, cells = compare.plan(compare.read_grid({}, None, tmp_path / "out"), tmp_path / "out")
    assert built.metric == f"{translator.name}/bleu"
    assert {folder.name for cell in cells for folder in cell.downstream_limits} == {translator.name}


def test_the_training_data_of_a_benchmark_is_required_before_a_run_starts(tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch,
                                                                          translator: EvalRecipe) -> None:
    with pytest.raises(UsageError, match=r"evaluate\.during_training: nmt-multi30k-de-en: trains a translator, .* "
                                         r"evaluate\.benchmarks"):
        experiment.fit(experiment.resolve("sgns", sets=[f"evaluate.during_training=[{translator.name}]"]),
                       tmp_path / "run")
    absent = ResourceError("multi30k-de-en: is not on this machine")
    monkeypatch.setattr(fetch, "corpus_paths", Mock(side_effect=absent))
    with pytest.raises(ResourceError, match="is not on this machine"):
        experiment.fit(experiment.resolve("sgns", sets=[f"evaluate.benchmarks=[{translator.name}]"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
