"""The functions of `embtrain` in a program: Ctrl-C, torch's threads, runs and settings as arguments, refusals."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.in_process import small_text
from helpers.runs import cache, no_page, stop_at  # noqa: F401

import embtrain
from embtrain.common import machine, progress
from embtrain.common.errors import DataError, Stopped, UsageError
from embtrain.experiment import api, comparing, continuation, resolve
from embtrain.experiment.run import run as runs

KEYS: dict[str, Any] = {"model.dim": 4, "train.epochs": 1, "text.min_count": 1, "text.sample": 0, "text.valid": 0,
                        "text.test": 0, "evaluate.benchmarks": [], "evaluate.neighbours": [],
                        "evaluate.heldout_pairs": 0}
TEXTS = [f"{key}={value}" for key, value in KEYS.items()]


@pytest.fixture(autouse=True)
def _three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program with three threads of torch, which each test leaves as they are."""
    no_page(monkeypatch)
    monkeypatch.setattr(progress, "quiet", True)
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_text(tmp_path_factory.mktemp("calls"), 3) / "text"


@pytest.fixture(scope="module")
def run(text: Path) -> embtrain.Run:
    with pytest.MonkeyPatch.context() as patch:
        no_page(patch)
        return embtrain.fit("sgns", corpus=text, sets=KEYS, threads=1, out=text.parent / "run")


def documents() -> Iterator[str]:
    yield from ["a b c a b", "b c d a"] * 4


# --- Ctrl-C and threads ----------------------------------------------------------------------------------------------

def test_ctrl_c_in_a_training_is_a_keyboard_interrupt(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt, match="to resume: embtrain resume"):
        kill = os.kill
        stop_at(1, patch)
        patch.setattr(os, "kill", lambda pid, _: kill(pid, signal.SIGINT))
        embtrain.fit("sgns", corpus=text, sets=KEYS, threads=1, out=out)
    assert embtrain.Run(out).resume().vectors.vector_size == 4


def stopping(*_: Any, **__: Any) -> Any:
    torch.set_num_threads(1)
    raise Stopped(signal.SIGINT, "embtrain resume a")


@pytest.mark.parametrize("call", [
    lambda run, text: embtrain.compare("sgns,nce", corpus=text),
    embtrain.continue_run,
    lambda run, text: embtrain.SkipGramEmbedder().fit(documents()),
    lambda run, text: run.resume(),
], ids=["compare", "continue_run", "embedder", "resume"])
def test_each_function_that_trains_protects_its_caller(
        call: Callable[[embtrain.Run, Path], Any], run: embtrain.Run, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing.comparing, "compare", stopping)
    monkeypatch.setattr(continuation, "fit", stopping)
    monkeypatch.setattr("embtrain.experiment.estimators.train_in_memory", stopping)
    monkeypatch.setattr(runs, "resume", stopping)
    with pytest.raises(KeyboardInterrupt, match="to resume: embtrain resume a"):
        call(run, text)


def test_the_command_receives_stopped_itself(run: embtrain.Run, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser of the command line would handle a KeyboardInterrupt and drop its message."""
    monkeypatch.setattr(continuation, "fit", stopping)
    with pytest.raises(Stopped) as caught:
        continuation.continue_run(run.folder, text)
    assert not isinstance(caught.value, KeyboardInterrupt)
    torch.set_num_threads(3)


# --- runs and settings as arguments ----------------------------------------------------------------------------------

def test_a_run_is_a_path(run: embtrain.Run, tmp_path: Path) -> None:
    assert os.fspath(run) == str(run.folder) and embtrain.Run(run) == run
    assert embtrain.align(run, run).n_common == len(run.word_vectors.words)
    assert run.predict("bal")[0].answers


def test_scores_of_a_folder_without_them_state_what_is_missing(run: embtrain.Run, tmp_path: Path) -> None:
    (unfinished := tmp_path / "unfinished").mkdir()
    shutil.copy(run.folder / "config.yaml", unfinished)
    (file := tmp_path / "a.txt").write_text("a")
    for folder, problem in ((tmp_path / "none", "none: file or folder not found"), (file, "is not a run"),
                            (unfinished, "has no scores yet; to train on: embtrain resume")):
        with pytest.raises(DataError, match=problem):
            _ = embtrain.Run(folder).scores
        with pytest.raises(DataError, match=problem):
            embtrain.Run(folder).table()


@pytest.mark.parametrize("sets", [{"train.lr": 0.02}, ["train.lr=0.02"], ("train.lr=0.02",)])
def test_settings_are_a_mapping_or_texts(sets: Any, run: embtrain.Run, text: Path, tmp_path: Path) -> None:
    child = embtrain.continue_run(run, text, sets=sets, threads=1, out=tmp_path / "child")
    assert child.settings.train.lr == 0.02 and child.settings.train.parent == str(run.folder.resolve())


def test_a_path_or_a_run_is_a_setting(run: embtrain.Run, text: Path, tmp_path: Path) -> None:
    for i, start in enumerate((run, run.folder)):
        other = embtrain.fit("sgns", corpus=text, sets=KEYS | {"train.start": start}, threads=1, out=tmp_path / str(i))
        assert other.settings.train.start == str(run.folder)


def test_texts_give_the_run_of_the_mapping(run: embtrain.Run, text: Path, tmp_path: Path) -> None:
    other = embtrain.fit("sgns", corpus=text, sets=TEXTS, threads=1, out=tmp_path / "a")
    assert np.array_equal(other.word_vectors.table, run.word_vectors.table)
    lists = embtrain.fit("sgns", corpus=[["A", "b"]] * 40, sets=TEXTS, threads=1, out=tmp_path / "b")
    assert sorted(lists.word_vectors.words) == ["A", "b"]
    lower = embtrain.fit("sgns", corpus=[["A", "b"]] * 40, sets=[*TEXTS, "text.lower=true"], threads=1,
                         out=tmp_path / "c")
    assert sorted(lower.word_vectors.words) == ["a", "b"]  # keys of the user win


@pytest.mark.parametrize("sets", ["train.lr=0.1", b"a", 5, [("train.lr", 0.1)], {"train.lr"}])
def test_other_settings_are_one_line(sets: Any, run: embtrain.Run, text: Path, tmp_path: Path) -> None:
    for call in (lambda: embtrain.fit("sgns", corpus=text, sets=sets, out=tmp_path / "a"),
                 lambda: embtrain.continue_run(run, text, sets=sets, out=tmp_path / "a"),
                 lambda: embtrain.compare("sgns,nce", corpus=text, sets=sets, out=tmp_path / "a")):
        with pytest.raises(UsageError, match=r'^sets: .*: should be a mapping like \{"model.dim": 50\}, or a list'):
            call()
    assert not list(tmp_path.iterdir())


def test_an_iterator_of_documents_is_read_once() -> None:
    keys: dict[str, Any] = {"dim": 4, "epochs": 1, "min_count": 1, "sets": {"text.sample": 0}}
    means = embtrain.SkipGramEmbedder(**keys).fit_transform(documents())
    assert np.array_equal(means, embtrain.SkipGramEmbedder(**keys).fit_transform(list(documents())))
    assert means.shape == (8, 4)


def test_an_empty_folder_name_is_refused(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (embtrain.fit, embtrain.compare):
        with pytest.raises(UsageError, match="out: has an empty value; remove it or give a folder"):
            call("sgns", corpus=text, out="")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("top", [0, -1, 2.5, "3"])
def test_a_wrong_number_of_answers_is_refused(run: embtrain.Run, top: Any) -> None:
    with pytest.raises(UsageError, match=r"^top: .* should be a whole number of at least 1"):
        run.predict("a", top=top)


# --- names of functions and arguments ---------------------------------------------------------------------------------

def test_functions_have_their_public_names() -> None:
    functions = {name: value for name in embtrain.__all__ if inspect.isfunction(value := getattr(embtrain, name))}
    assert {name: value.__qualname__ for name, value in functions.items()} == {name: name for name in functions}
    with pytest.raises(TypeError, match=r"^fit\(\) got an unexpected keyword argument 'lr'"):
        embtrain.fit("sgns", lr=0.1)


def test_errors_name_arguments_instead_of_flags(run: embtrain.Run, text: Path, tmp_path: Path) -> None:
    def embedder(**keys: Any) -> embtrain.SkipGramEmbedder:
        return embtrain.SkipGramEmbedder(min_count=1, **keys).fit(["a b c"] * 9)

    (config := tmp_path / "a.yaml").write_text("negatives: sgn\n")
    for call, line in (
            (lambda: embtrain.fit("sgn", corpus=text), "negatives: strategy: no strategy named 'sgn'"),
            (lambda: embtrain.fit("sgns", corpus=text, model="skipgran"), "model: model.name: no model named"),
            (lambda: embtrain.fit("sgns", corpus=text, loss="nc"), "loss: loss.name: there is no 'nc'"),
            (lambda: embtrain.fit("sgns", corpus=text, seed=-1), "seed: train.seed: "),
            (lambda: embtrain.fit("sgns", corpus=text, sets={"model.dims": 3}), "sets: model.dims=3: model.dims: "),
            (lambda: embtrain.fit("sgns", corpus=text, dim=0), "dim=0: model.dim: "),
            (lambda: embtrain.fit("sgns", corpus=text, epochs="x"), "epochs=x: train.epochs: "),
            (lambda: embtrain.fit("sgns", corpus=[["a"]], dim=0), "dim=0: model.dim: "),
            (lambda: embtrain.fit("sgns", corpus=text, out=run), f"out: {run.folder} already contains a run"),
            (lambda: embtrain.compare("sgns", corpus=text, out=tmp_path / "c"),
             "negatives: sgns is the only strategy; add another, or tune it with search"),
            (lambda: embtrain.compare("sgns,nce", corpus=text, loss="nc", out=tmp_path / "c"), "loss: loss.name: "),
            (lambda: embtrain.compare("sgns,nce", corpus=text, cpu_seconds=-1), "cpu_seconds: "),
            (lambda: embtrain.compare("sgns,nce", corpus=text, dim=0, out=tmp_path / "c"), "dim=0: model.dim: "),
            (lambda: embtrain.compare("sgns,nce", corpus=text, search="train.lr=1:2", out=tmp_path / "c"),
             "search and trials must be set together"),
            (lambda: embtrain.continue_run(run, text, sets={"model.dims": 3}), "sets: model.dims=3: "),
            (lambda: embtrain.continue_run(run, text, seed=-1), "seed: train.seed: "),
            (lambda: embtrain.continue_run(run, text, seed="x\ny"), "seed: train.seed: "),
            (lambda: embtrain.fit("sgns", corpus=text, seed="x\ny"), "seed: train.seed: "),
            (lambda: embtrain.fit("sgns", corpus=text, threads="x\ny"), "threads: train.threads: "),
            (lambda: embtrain.align(run, run, most_frequent=0), "most_frequent: "),
            (lambda: embtrain.align(run, run, words=5), "words: 5: should be a list of words"),
            (lambda: embtrain.align(run, run, top=-1), "top: "),
            (lambda: embtrain.align(run, run, format="x"), "format: 'x' is not one of"),
            (lambda: embedder(negatives="sgn"), "negatives: strategy: no strategy named 'sgn'"),
            (lambda: embedder(dim=0), "dim=0: model.dim: "), (lambda: embedder(dim=None), "dim=null: model.dim: "),
            (lambda: embedder(k=-1), "k=-1: negatives.k: "),
            (lambda: embedder(random_state=-1), "random_state: train.seed: ")):
        with pytest.raises(UsageError) as caught:
            call()
        assert str(caught.value).startswith(line) and not re.search(r"(^|\n)--", str(caught.value))
    with pytest.raises(UsageError, match=r"^--negatives: "):
        resolve("sgn")
    with pytest.raises(UsageError, match=re.escape(f"{config}:1:1: ")):        # a place in a file is no flag
        embtrain.fit(config=config, corpus=text)


def test_epochs_and_dim_are_short_for_settings(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.runs, "fit", lambda settings, out: settings)
    for sets, expected in ((None, (7, 2)), ({"model.dim": 9}, (9, 2))):
        settings: Any = embtrain.fit("sgns", corpus=text, epochs=2, dim=7, sets=sets)
        assert (settings.model.dim, settings.train.epochs) == expected
    monkeypatch.setattr(comparing.comparing, "compare", lambda grid, *_, **__: grid.sets)
    found: Any = embtrain.compare("sgns,nce", corpus=text, epochs=2, sets=["train.lr=0.1"])
    assert found == ["train.epochs=2", "train.lr=0.1"]


# --- refusals of compare ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("keys", "message"), [
    ({"parallel": -1}, "parallel: -1: should be a whole number of at least 1"),
    ({"parallel": 0}, "parallel: 0: should be a whole number of at least 1"),
    ({"parallel": "2"}, "parallel: '2': should be a whole number of at least 1"),
    ({"threads": -1}, "threads: -1: should be a whole number of at least 0"),
    ({"threads": 1.5}, "threads: 1.5: should be a whole number of at least 0"),
    ({"lease_seconds": -1, "join": True}, "lease_seconds: -1: should be a number of at least 1"),
    ({"lease_seconds": float("nan")}, "lease_seconds: nan: should be a number of at least 1"),
    ({"lease_seconds": None}, "lease_seconds: None: should be a number of at least 1"),
    ({"seeds": 1.5}, "seeds: 1.5: should be a whole number of at least 1"),
    ({"seeds": "12"}, "seeds: '12': should be a whole number of at least 1"),
    ({"seeds": 2000}, "seeds: 2000: should be at most 1000"),
    ({"seeds": [1.5]}, "seeds: 1.5: should be a whole number of at least 0"),
    *(({name: value}, f"{name}: {value!r}: should be {expected}")
      for name, expected in (("negatives", "names, in a list or separated by commas"),
                             ("model", "names, in a list or separated by commas"),
                             ("loss", "names, in a list or separated by commas"),
                             ("benchmarks", "names, in a list or separated by commas"),
                             ("search", "texts or paths, in a list"))
      for value in (3, b"a", [3], {"k": 1}, np.array("k"))),
    ({"config": 5}, "config: 5: should be a path"), ({"out": 5}, "out: 5: should be a path"),
    ({"executor": 1}, "executor: 1: should be an object with a method `submit`, for example ProcessPoolExecutor()"),
])
def test_compare_refuses_before_it_writes(keys: dict[str, Any], message: str, text: Path, tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing.comparing, "compare", lambda *_, **__: pytest.fail("is not refused"))
    with pytest.raises(UsageError) as caught:
        embtrain.compare(**{"negatives": "sgns,nce", "corpus": text, "out": tmp_path / "out"} | keys)
    assert str(caught.value) == message and not list(tmp_path.iterdir())


def test_compare_accepts_numbers_of_numpy(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing.comparing, "compare", lambda *values, **_: values[2:4])
    assert embtrain.compare("sgns,nce", corpus=text, parallel=np.int64(2), threads=np.int64(0)) == (2, 0)
    monkeypatch.setattr(comparing.comparing, "compare", lambda grid, *_, **__: grid.seeds)
    for seeds, expected in ((np.int64(2), [1, 2]), (np.arange(2), [0, 1]), (range(2), [0, 1]), ([np.int64(3)], [3])):
        assert embtrain.compare("sgns,nce", corpus=text, seeds=seeds) == expected


def _train_in_child(text: str, out: str) -> str:
    return str(embtrain.fit("softmax", corpus=text, sets=KEYS, threads=2, out=out).folder)


def test_a_process_knows_whether_it_is_forked() -> None:
    with multiprocessing.get_context("fork").Pool(1) as forked, multiprocessing.get_context("spawn").Pool(1) as spawned:
        assert [machine.is_forked(), forked.apply(machine.is_forked), spawned.apply(machine.is_forked)] == [
            False, True, False]


def test_a_forked_process_trains_after_its_parent_used_threads(text: Path, tmp_path: Path) -> None:
    torch.nn.functional.logsigmoid(torch.zeros(400, 2000))           # starts the threads of OpenMP
    with multiprocessing.get_context("fork").Pool(1) as pool:
        result = pool.apply_async(_train_in_child, (str(text), str(tmp_path / "child")))
        assert result.get(timeout=60) == str(tmp_path / "child")     # never, if it waits for threads of its parent
