"""embtrain.gensim.Word2Vec against gensim's class (vocabulary, interface) and against a run of embtrain (vectors)."""

from __future__ import annotations

import gc
import importlib
import inspect
import logging
import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
import weakref
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import gensim.models
import numpy as np
import pytest
import torch
from gensim import utils
from gensim.models import KeyedVectors
from gensim.models.callbacks import CallbackAny2Vec
from helpers.looped import looped

from embtrain.common import progress
from embtrain.common.config import Layer, as_sets
from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.experiment import resolve
from embtrain.experiment.run.run import train_in_memory
from embtrain.gensim import saved
from embtrain.gensim.errors import ArgumentError, ArgumentTypeError, SentencesError
from embtrain.gensim.models import word2vec
from embtrain.gensim.models.fasttext import FastText
from embtrain.gensim.models.word2vec import Word2Vec
from embtrain.gensim.training import EpochTrainer

pytestmark = pytest.mark.long

SMALL: dict[str, Any] = {"vector_size": 8, "min_count": 1, "window": 3, "sample": 0, "epochs": 2, "sg": 1, "workers": 1}


def topics(n: int = 300, length: int = 9) -> list[list[str]]:
    """Sentences over one of two topics; word i of a topic occurs more often than word i + 1."""
    draw = np.random.default_rng(3)
    weight = np.arange(12, 0, -1) / 78
    return [[f"{'ab'[i % 2]}{j}" for j in draw.choice(12, length, p=weight)] for i in range(n)]


@pytest.fixture
def corpus_file(tmp_path: Path) -> str:
    path = tmp_path / "topics.cor"
    utils.save_as_line_sentence(topics(), str(path))
    return str(path)


# --- the interface is gensim's --------------------------------------------------------------------------------------

@pytest.mark.parametrize("method", ["__init__", "build_vocab", "train", "scan_vocab", "build_vocab_from_freq"])
def test_arguments_have_the_names_and_the_order_of_gensim(method: str) -> None:
    theirs, ours = (list(inspect.signature(getattr(cls, method)).parameters.values())
                    for cls in (gensim.models.Word2Vec, Word2Vec))
    names = [p.name for p in theirs]
    assert [p.name for p in ours][:len(names)] == names
    assert {p.name for p in ours[len(names):]} <= {"negatives", "sets"}
    other = {p.name: (p.default, q.default) for p, q in zip(theirs, ours, strict=False) if p.default != q.default}
    assert set(other) == ({"negative", "ns_exponent"} if method == "__init__" else set())


def test_the_import_has_the_paths_of_gensim() -> None:
    import embtrain.gensim as module

    assert module.Word2Vec is module.models.Word2Vec is module.models.word2vec.Word2Vec is Word2Vec
    assert module.models.KeyedVectors is KeyedVectors
    assert all(getattr(word2vec, name) is getattr(gensim.models.word2vec, name)
               for name in ("LineSentence", "PathLineSentences", "Text8Corpus"))


@looped("package, name", [("gensim.models", "Doc2Vec"), ("gensim.models", "Phrases"), ("gensim.models", "callbacks"),
                          ("gensim.models", "phrases"), ("gensim.models", "keyedvectors"), ("gensim", "corpora"),
                          ("gensim", "downloader"), ("gensim", "utils")])
def test_a_name_that_gensim_alone_has_is_that_of_gensim(package: str, name: str) -> None:
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    exec(f"from {package} import {name}", theirs)
    exec(f"from embtrain.{package} import {name}", ours)
    assert ours[name] is theirs[name] is getattr(importlib.import_module(f"embtrain.{package}"), name)


def test_modules_that_gensim_alone_has_can_be_imported_from() -> None:
    """In a fresh process: here gensim's modules may have been imported by others."""
    code = ""
    for module, name in (("models.callbacks", "CallbackAny2Vec"), ("models.phrases", "Phrases"), ("utils", "tokenize"),
                         ("models.keyedvectors", "KeyedVectors"), ("corpora", "Dictionary")):
        code += f"from embtrain.gensim.{module} import {name}\nimport gensim.{module} as m\nassert {name} is m.{name}\n"
    subprocess.run([sys.executable, "-c", code], check=True)


@looped("package", ["embtrain.gensim", "embtrain.gensim.models"])
@looped("name", ["nothing", "_private", "__wrapped__", "word3vec"])
def test_a_name_that_gensim_lacks_too_is_missing_as_usual(package: str, name: str) -> None:
    module = importlib.import_module(package)
    assert not hasattr(module, name)
    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute '{name}'$"):
        getattr(module, name)
    with pytest.raises(ImportError, match=r"^cannot import name "):
        exec(f"from {package} import {name}")


@pytest.mark.parametrize("more", [
    {}, {"min_count": 20}, {"max_final_vocab": 5}, {"max_vocab_size": 10}, {"sorted_vocab": 0}, {"null_word": 1},
    {"trim_rule": lambda word, count, least: utils.RULE_DISCARD if word == "a0" else utils.RULE_DEFAULT}])
@pytest.mark.parametrize("from_file", [False, True])
def test_vocabulary_and_first_vectors_are_those_of_gensim(more: dict[str, Any], from_file: bool, corpus_file: str
                                                          ) -> None:
    keys, rule = {**SMALL, **more}, more.get("trim_rule")
    keys.pop("trim_rule", None)
    text = {"corpus_file": corpus_file} if from_file else {"corpus_iterable": topics()}
    theirs, ours = gensim.models.Word2Vec(**keys), Word2Vec(**keys)
    for model in (theirs, ours):
        model.build_vocab(**text, trim_rule=rule)
    assert isinstance(ours, gensim.models.Word2Vec) and type(ours.wv) is KeyedVectors
    assert ours.wv.index_to_key == theirs.wv.index_to_key
    assert [ours.wv.get_vecattr(w, "count") for w in ours.wv.index_to_key] == [
        theirs.wv.get_vecattr(w, "count") for w in theirs.wv.index_to_key]
    assert np.array_equal(ours.wv.vectors, theirs.wv.vectors) and np.array_equal(ours.syn1neg, theirs.syn1neg)
    assert all((model.corpus_count, model.corpus_total_words) == (300, 2700) for model in (theirs, ours))


# --- training is embtrain's -----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("negatives", "more", "sets"), [
    ("sgns", {}, {}),
    ("sgns", {"window": 2, "shrink_windows": False, "alpha": 0.05, "min_alpha": 0.01, "negative": 3, "ns_exponent": 0.5,
              "seed": 7, "epochs": 3, "sample": 0.01, "vector_size": 20},
     {"text.window": 2, "text.dynamic_window": False, "train.lr": 0.05, "train.min_lr": 0.01, "negatives.k": 3,
      "negatives.exponent": 0.5, "train.seed": 7, "train.epochs": 3, "text.sample": 0.01, "model.dim": 20}),
    ("sgns", {"sets": {"negatives.share_draws_by": "window", "train.shuffle": False}},
     {"negatives.share_draws_by": "window", "train.shuffle": False}),
    ("sgns", {"sg": 0}, {}), ("ace", {"sg": 0}, {}),
    ("ace", {}, {}), ("nce", {"negative": 4}, {"negatives.k": 4}), ("softmax", {}, {})])
def test_vectors_are_those_of_a_run_with_the_keys_of_the_page(negatives: str, more: dict[str, Any],
                                                              sets: dict[str, Any], corpus_file: str,
                                                              tmp_path: Path) -> None:
    """From the same first tables, bit for bit."""
    # the test's own reading of the table in docs/how-to/gensim.md
    run_keys = {"model.dim": 8, "text.window": 3, "text.sample": 0, "text.min_count": 1, "train.epochs": 2,
                "text.valid": 0, "text.test": 0, "evaluate.heldout_pairs": 0, "evaluate.benchmarks": [],
                "evaluate.neighbours": [], "text.tokenizer": "whitespace", "text.lower": False, **sets}
    os.link(corpus_file, tmp_path / "text.txt")
    first = dict[str, Any]()
    progress.quiet = True
    with pytest.MonkeyPatch.context() as patch:
        from embtrain.models.words.skipgram import SkipGram

        build = SkipGram.__init__

        def keep_first(self: Any, *args: Any) -> None:
            build(self, *args)
            first["u"], first["words"] = self.u.detach().numpy().copy(), args[1].words
        patch.setattr(SkipGram, "__init__", keep_first)
        run = train_in_memory(resolve(negatives, model="skipgram" if more.get("sg", 1) else "cbow",
                                      corpus=str(tmp_path / "text.txt"), sets=as_sets(run_keys),
                                      seed=run_keys.get("train.seed", 1), threads=1), tmp_path / "run")
    model = Word2Vec(**{**SMALL, **more}, negatives=negatives)
    model.build_vocab(topics())
    assert model.wv.index_to_key == list(first["words"])  # counts differ, so both orders agree
    model.wv.vectors[...] = first["u"]
    model.train(topics(), total_examples=model.corpus_count, epochs=model.epochs)
    assert np.array_equal(model.wv.vectors, run.model.u.detach().numpy())
    assert np.array_equal(model.syn1neg, run.model.v.detach().numpy())
    assert not np.array_equal(model.wv.vectors, first["u"])


def test_a_file_and_an_iterable_give_the_same_vectors_and_one_worker_the_same_again(corpus_file: str) -> None:
    models = [Word2Vec(topics(), **SMALL), Word2Vec(topics(), **SMALL), Word2Vec(corpus_file=corpus_file, **SMALL)]
    assert all(np.array_equal(model.wv.vectors, models[0].wv.vectors) for model in models[1:])
    other = Word2Vec(topics(), **{**SMALL, "seed": 2})
    assert not np.array_equal(other.wv.vectors, models[0].wv.vectors)
    assert Word2Vec(topics(), **{**SMALL, "seed": None}) is not None


def test_topics_are_neighbours() -> None:
    model = Word2Vec(topics(), **{**SMALL, "epochs": 30, "alpha": 0.1})
    for word in ("a0", "b3", "a7"):
        assert {near[0] for near, _ in model.wv.most_similar(word, topn=5)} == {word[0]}


def test_words_may_be_any_hashable(caplog: pytest.LogCaptureFixture) -> None:
    numbers = [[int(word[1:]) + 100 * (word[0] == "b") for word in line] for line in topics()]
    assert np.array_equal(Word2Vec(numbers, **SMALL).wv.vectors, Word2Vec(topics(), **SMALL).wv.vectors)


# --- streaming --------------------------------------------------------------------------------------------------------

class Line(list):
    """A list that can be counted while it is alive."""


class Stream:
    """Sentences that are made when they are read; counts passes and living sentences."""

    def __init__(self, n: int):
        self.n, self.passes, self.most = n, 0, 0
        self.alive: weakref.WeakSet[Line] = weakref.WeakSet()

    def __iter__(self) -> Iterator[Line]:
        self.passes += 1
        for i in range(self.n):
            line = Line([f"w{i % 7}", f"w{(i + 1) % 7}"])
            self.alive.add(HashById(line))
            self.most = max(self.most, len(self.alive))
            yield line


class HashById(Line):
    __hash__ = object.__hash__  # type: ignore[assignment]


def test_an_iterable_is_read_twice_and_never_held() -> None:
    gc.disable()
    try:
        stream = Stream(3000)
        model = Word2Vec(stream, **{**SMALL, "epochs": 4})
    finally:
        gc.enable()
    assert (stream.passes, model.corpus_count, len(model.wv)) == (2, 3000, 7)
    assert stream.most <= 3


def test_an_array_of_token_lists_is_read_like_the_list() -> None:
    lists = [[f"w{(i * 7 + j) % 9}" for j in range(6)] for i in range(40)]
    array = np.empty(len(lists), object)
    array[:] = lists
    models = [Word2Vec(texts, vector_size=4, min_count=1, epochs=1, workers=1) for texts in (lists, array)]
    assert (models[0].wv.vectors == models[1].wv.vectors).all()
    models[1].train(array, total_examples=len(lists), epochs=1)


def test_no_file_of_ids_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBTRAIN_CACHE", str(tmp_path))
    Word2Vec(topics(), **SMALL)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# --- calls of train, callbacks ----------------------------------------------------------------------------------------

class Recorder(CallbackAny2Vec):
    def __init__(self) -> None:
        self.calls, self.vectors, self.losses = list[str](), list[np.ndarray](), list[float]()

    def on_train_begin(self, model: Any) -> None:
        self.calls.append("train begin")

    def on_train_end(self, model: Any) -> None:
        self.calls.append("train end")

    def on_epoch_begin(self, model: Any) -> None:
        self.calls.append("begin")

    def on_epoch_end(self, model: Any) -> None:
        self.calls.append("end")
        self.vectors.append(model.wv.vectors.copy())
        self.losses.append(model.get_latest_training_loss())
        model.wv.most_similar("a0")  # fills the norms


def test_callbacks_are_called_as_gensim_calls_them() -> None:
    theirs, ours = Recorder(), Recorder()
    gensim.models.Word2Vec(topics(), **{**SMALL, "epochs": 3}, callbacks=[theirs])
    model = Word2Vec(topics(), **{**SMALL, "epochs": 3}, callbacks=[ours], compute_loss=True)
    assert ours.calls == theirs.calls == ["train begin", *["begin", "end"] * 3, "train end"]
    assert not np.array_equal(ours.vectors[0], ours.vectors[1])
    assert np.array_equal(ours.vectors[2], model.wv.vectors)
    model.wv.fill_norms()
    assert model.wv.norms == pytest.approx(np.linalg.norm(model.wv.vectors, axis=1))  # not those of an earlier epoch
    assert 0 < ours.losses[0] < ours.losses[1] < ours.losses[2] == model.get_latest_training_loss()
    # without callbacks the same vectors; without compute_loss no loss
    plain = Word2Vec(topics(), **{**SMALL, "epochs": 3})
    assert np.array_equal(plain.wv.vectors, model.wv.vectors) and plain.get_latest_training_loss() == 0


def test_the_loss_is_the_sum_over_pairs() -> None:
    """At the first tables every score is 0, and a rate near 0 keeps them so: log 2 for each that is not masked."""
    model = Word2Vec(topics(), **{**SMALL, "shrink_windows": False, "window": 1, "epochs": 1, "alpha": 1e-9,
                                  "min_alpha": 0, "negative": 4}, compute_loss=True)
    counts = np.array([model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key])
    masked = float((counts / counts.sum()) @ (counts**.75 / (counts**.75).sum()))  # negatives that are the target
    pairs = 300 * 2 * 8  # 9 words in a line
    assert model.get_latest_training_loss() == pytest.approx(pairs * (1 + 4 * (1 - masked)) * np.log(2), rel=0.01)


def test_an_exception_of_a_callback_ends_training() -> None:
    class Enough(Exception):
        pass

    class Breaks(Recorder):
        def on_epoch_end(self, model: Any) -> None:
            super().on_epoch_end(model)
            raise Enough

    threads, callback = torch.get_num_threads(), Breaks()
    with pytest.raises(Enough):
        Word2Vec(topics(), **SMALL, callbacks=[callback])
    assert callback.calls == ["train begin", "begin", "end"] and torch.get_num_threads() == threads


def test_an_interrupt_is_a_keyboard_interrupt() -> None:
    before = signal.getsignal(signal.SIGINT)

    class Interrupts(CallbackAny2Vec):
        def on_epoch_end(self, model: Any) -> None:
            assert signal.getsignal(signal.SIGINT) is before
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Word2Vec(topics(), **SMALL, callbacks=[Interrupts()])


def test_a_second_call_continues_with_other_draws(tmp_path: Path) -> None:
    model = Word2Vec(**SMALL)
    model.build_vocab(topics())
    assert model.train(topics(), total_examples=300, epochs=2) == (5400, 5400) and model.train_count == 1
    model.save(tmp_path / "once")
    once, again, as_first = (Word2Vec.load(tmp_path / "once") for _ in range(3))
    as_first.train_count = 0
    for other in (once, again, as_first):
        other.train(topics(), total_words=2700, epochs=1, start_alpha=0.02, end_alpha=0.01)
    assert once.train_count == 2 and once.min_alpha_yet_reached == 0.01
    assert not np.array_equal(once.wv.vectors, model.wv.vectors)
    assert np.array_equal(once.wv.vectors, again.wv.vectors)
    assert not np.array_equal(once.wv.vectors, as_first.wv.vectors)  # the same windows and draws as in the first call


def test_one_of_the_totals_is_required_and_its_value_has_no_effect() -> None:
    models = [Word2Vec(**SMALL) for _ in range(3)]
    for model, totals in zip(models, ({"total_examples": 1}, {"total_words": 10**9}, {}), strict=True):
        model.build_vocab(topics())
        with nullcontext() if totals else pytest.raises(ValueError, match="You must specify either total_examples or"):
            model.train(topics(), epochs=1, **totals)
    assert np.array_equal(models[0].wv.vectors, models[1].wv.vectors)


def test_a_learning_source_keeps_what_it_learned_until_the_vocabulary_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from embtrain.negatives.adversarial.ace import Ace

    loads = []
    load = Ace.load_state_dict
    monkeypatch.setattr(Ace, "load_state_dict", lambda self, state: (loads.append(state), load(self, state))[1])
    model = Word2Vec(topics(), **SMALL, negatives="ace")
    assert loads == []
    model.train(topics(), total_examples=300, epochs=1)
    assert len(loads) == 1
    model.build_vocab([["a0", "new"]], update=True)
    model.train(topics(), total_examples=300, epochs=1)
    assert len(loads) == 1


@looped("sets", [{"negatives.shortlist": 6, "negatives.groups": 2}, {"negatives.shortlist": 4, "negatives.groups": 3}])
def test_a_learning_source_starts_again_under_another_shortlist(sets: dict[str, Any], caplog: pytest.LogCaptureFixture
                                                                ) -> None:
    model = Word2Vec(topics(), **SMALL, negatives="ace", sets={"negatives.shortlist": 4, "negatives.groups": 2})
    model.train(topics(), total_examples=300, epochs=1)
    assert "the state of" not in caplog.text
    model.sets = sets
    model.train(topics(), total_examples=300, epochs=1)
    assert "the state of ace starts again" in caplog.text
    caplog.clear()


@looped("source, before, after", [("memory", {"negatives.size": 64}, {"negatives.size": 8}),
                                    ("nscaching", {"negatives.cache_size": 8}, {"negatives.cache_size": 4}),
                                    ("rff", {"negatives.nu": 1.0}, {"negatives.nu": 2.0})])
def test_a_learning_source_starts_again_under_other_settings(source: str, before: dict[str, Any], after: dict[str, Any],
                                                             caplog: pytest.LogCaptureFixture) -> None:
    model = Word2Vec(topics(), **SMALL, negatives=source, sets=before)
    model.train(topics(), total_examples=300, epochs=1)
    assert "the state of" not in caplog.text
    model.sets = {**after, "negatives.share_draws_by": "row"}
    model.train(topics(), total_examples=300, epochs=1)
    assert f"the state of {source} starts again" in caplog.text and "the settings of the source differ" in caplog.text
    caplog.clear()


def test_random_numbers_go_on_under_other_settings(caplog: pytest.LogCaptureFixture) -> None:
    model = Word2Vec(topics(), **SMALL, negatives="sgns", sets={"negatives.exponent": 1.0})
    model.sets = {"negatives.exponent": 0.5}
    model.train(topics(), total_examples=300, epochs=1)
    assert "starts again" not in caplog.text


def test_a_model_that_was_reset_trains_on_the_vocabulary_of_the_other(caplog: pytest.LogCaptureFixture) -> None:
    texts = [[f"c{word}" for word in line] for line in topics()]
    model, other = Word2Vec(texts, **SMALL, negatives="ace"), Word2Vec(topics(), **SMALL, negatives="ace")
    fresh = Word2Vec(**SMALL, negatives="ace")
    fresh.build_vocab(topics())
    model.reset_from(other)
    model.train_count = 0  # the same draws as those of the first call
    for each in (model, fresh):
        each.train(topics(), total_examples=300, epochs=1)
    assert model.wv.index_to_key == other.wv.index_to_key and "the state of" not in caplog.text
    assert np.array_equal(model.wv.vectors, fresh.wv.vectors) and np.array_equal(model.syn1neg, fresh.syn1neg)


@looped("attributes, other, message", [
    ({"seed": "4"}, None, "seed='4': should be an integer or None, got a str"),
    ({"vector_size": "4"}, None, "vector_size='4': should be an integer, got a str"),
    ({}, Word2Vec(**SMALL), "other_model: has no vocabulary; call its build_vocab first"),
    ({}, 5, "other_model: should be a Word2Vec, got a int")])
def test_a_reset_that_cannot_work_leaves_the_model_as_it_was(attributes: dict[str, Any], other: Any, message: str
                                                             ) -> None:
    model = Word2Vec(topics(), **SMALL)
    vars(model).update(attributes)
    wv, vectors = model.wv, model.wv.vectors.copy()
    with pytest.raises(UsageError, match=f"^{message}$"):
        model.reset_from(other or Word2Vec(topics(), **SMALL))
    assert model.wv is wv and len(wv) == 24 and np.array_equal(wv.vectors, vectors)


@looped("counts, expected", [
    ([5] * 24, [5] * 24), ((5,) * 24, [5] * 24), (deque([5] * 24), [5] * 24), (array("i", [5] * 24), [5] * 24),
    (np.full(24, 5.0), [5] * 24), (np.full(24, 5, object), [5] * 24), (range(24), [*range(24)]),
    ([5] * 30, [5] * 24), ([5, 6], [5, 6] + [1] * 22), (np.array([5, 6]), [5, 6] + [1] * 22), ([], [1] * 24)])
def test_counts_that_a_user_set_are_read_by_reset_from_and_updates(counts: Any, expected: list[int]) -> None:
    """gensim's code raises AttributeError for others than arrays. Words without a count count once, as in `train`."""
    model, other = Word2Vec(**SMALL), Word2Vec(topics(), **SMALL)
    other.wv.expandos["count"] = counts
    model.reset_from(other)
    assert model.wv.expandos["count"].tolist() == expected and other.wv.expandos["count"] is counts
    word = other.wv.index_to_key[0]
    for update in (lambda: other.build_vocab([[word]], update=True),
                   lambda: other.build_vocab_from_freq({word: 1}, update=True)):
        other.wv.expandos["count"] = counts
        update()
        assert other.wv.expandos["count"].tolist() == [expected[0] + 1, *expected[1:]]
    other.wv.expandos["count"] = counts
    other.build_vocab(topics())                                           # counts again
    assert other.wv.expandos["count"].tolist() == Word2Vec(topics(), **SMALL).wv.expandos["count"].tolist()


@looped("name, value, message", [
    ("count", [[1], [1, 2], *[3] * 22], r": items of different lengths: should be \(24,\), a count for each word$"),
    ("count", "abc", r": shape \(\): should be \(24,\), "), ("count", None, r": shape \(\): should be \(24,\), "),
    ("count", ["x"] * 24, "='x': should be a number, got a str$"), ("count", [1.5] * 24, "=1.5: should be a whole "),
    ("count", np.int64(5), r": shape \(\): should be \(24,\), "), ("count", [-1] * 24, "=-1: should be a whole "),
    ("tag", ["x"] * 24, r": should be an array with an entry for each word, got a list$"),
    ("tag", None, r": should be an array with an entry for each word, got a NoneType$")])
def test_attributes_of_words_that_cannot_be_resized_leave_the_model_as_it_was(name: str, value: Any, message: str
                                                                              ) -> None:
    for call in (lambda model, other: model.reset_from(other),
                 lambda model, other: other.build_vocab([["new"]], update=True),
                 lambda model, other: other.build_vocab_from_freq({"new": 1}, update=True)):
        model, other = Word2Vec(topics(), **SMALL), Word2Vec(topics(), **SMALL)
        other.wv.expandos[name] = value
        before = model.wv.expandos["count"].tolist()
        with pytest.raises(UsageError, match=rf"^wv\.expandos\[['\"]{name}['\"]\]{message}") as caught:
            call(model, other)
        assert "\n" not in str(caught.value)
        assert len(other.wv) == len(model.wv) == 24 and model.wv.expandos["count"].tolist() == before
        assert type(other.wv.expandos[name]) is type(value)
        model.wv.expandos[name] = value
        model.reset_from(Word2Vec(topics(), **SMALL))                    # replaces it
        assert model.wv.expandos["count"].tolist() == before


@looped("make", [lambda: dict.fromkeys(range(24), 5).values(), lambda: (5 for _ in range(24)), lambda: pytest])
def test_counts_that_cannot_be_copied_are_one_error_in_all_methods(make: Callable[[], Any]) -> None:
    for call in (lambda model: model.build_vocab([["new"]], update=True),
                 lambda model: model.build_vocab_from_freq({"new": 1}, update=True),
                 lambda model: Word2Vec(**SMALL).reset_from(model), lambda model: model.reset_from(model),
                 lambda model: model.train(topics(), total_examples=1, epochs=1)):
        model = Word2Vec(topics(), **SMALL)
        model.wv.expandos["count"] = counts = make()
        with pytest.raises(ArgumentError, match=r'^wv\.expandos\["count"\]: shape \(\): should be \(24,\), '):
            call(model)
        assert len(model.wv) == 24 and model.wv.expandos["count"] is counts
        with pytest.raises(SentencesError):                               # restores the model too
            model.build_vocab([["a"], 3])
        assert len(model.wv) == 24 and model.wv.expandos["count"] is counts
        model.build_vocab(topics())                                       # counts again
        assert model.wv.expandos["count"].tolist() == Word2Vec(topics(), **SMALL).wv.expandos["count"].tolist()


@looped("kind", [Word2Vec, FastText])
@looped("row", [(), (3,), (3, 2)])
@looped("n_rows", [20, 24, 30])
def test_attributes_of_words_of_any_number_of_axes_are_resized(kind: Any, row: tuple[int, ...], n_rows: int) -> None:
    """gensim's code raises ValueError for several axes, unless the number of rows is that of the words."""
    (model := kind(**SMALL, **({"bucket": 20} if kind is FastText else {}))).build_vocab(topics())
    given = np.arange(1, n_rows * np.prod(row, dtype=int) + 1).reshape(n_rows, *row)

    def drop_new(word: str, *_: int) -> int:
        return utils.RULE_DISCARD if word == "new" else utils.RULE_DEFAULT

    for n_words, update in (
            (24, lambda: model.build_vocab([["a0", "b0"]], update=True)),
            (24, lambda: model.build_vocab_from_freq({"a0": 3}, update=True)),
            (24, lambda: model.build_vocab([["a0", "new"]], update=True, trim_rule=drop_new)),
            (25, lambda: model.build_vocab([["a0", "new"]], update=True)),
            (26, lambda: model.build_vocab_from_freq({"newer": 3}, update=True))):
        model.wv.expandos["tag"] = tag = given.copy()
        with pytest.raises(SentencesError):
            model.build_vocab([["newest"], 3], update=True)
        assert np.array_equal(model.wv.expandos["tag"], given)
        update()
        (other := Word2Vec(**SMALL)).reset_from(model)
        for expandos in (model.wv.expandos, other.wv.expandos):
            assert len(model.wv) == n_words and np.array_equal(expandos["tag"], resized(given, n_words))
            assert expandos["tag"].dtype == given.dtype and np.array_equal(tag, given)
        model.wv.expandos["tag"] = tag
        other.reset_from(model)
        assert np.array_equal(other.wv.expandos["tag"], resized(given, n_words)) and np.array_equal(tag, given)


def resized(array: np.ndarray, n_rows: int) -> np.ndarray:
    """The first rows of an array, and zeros for those that it lacks."""
    return np.concatenate([array, np.zeros((max(0, n_rows - len(array)), *array.shape[1:]), array.dtype)])[:n_rows]


def test_a_model_and_the_one_it_was_reset_from_share_no_words(tmp_path: Path) -> None:
    """gensim's share them, so that an update of one model leaves the other with more words than rows."""
    for kind in (Word2Vec, gensim.models.Word2Vec, gensim.models.FastText):
        other, model = kind(topics(), **SMALL), Word2Vec(**SMALL)
        words, counts = list(other.wv.index_to_key), other.wv.expandos["count"].tolist()
        model.reset_from(other)
        model.build_vocab([["new", "newer", words[0]]] * 5, update=True)
        model.wv.set_vecattr(words[1], "count", 1)
        assert len(model.wv) == 26 and model.wv.vectors.shape == model.syn1neg.shape == (26, 8)
        assert other.wv.index_to_key == words and other.wv.key_to_index == {word: i for i, word in enumerate(words)}
        assert other.wv.expandos["count"].tolist() == counts
        other.train(topics(), total_examples=300, epochs=1)
        for each in (model, other):
            each.save(str(tmp_path / "model"))


def test_a_model_that_is_reset_from_itself_keeps_its_words() -> None:
    model, new = Word2Vec(topics(), **SMALL), Word2Vec(**SMALL)
    new.build_vocab(topics())
    model.reset_from(model)
    model.train_count = 0  # the same draws as those of the first call
    for each in (model, new):
        each.train(topics(), total_examples=300, epochs=1)
    assert model.wv.key_to_index == new.wv.key_to_index and np.array_equal(model.wv.vectors, new.wv.vectors)
    assert model.wv.expandos["count"].tolist() == new.wv.expandos["count"].tolist()


def test_new_words_are_added() -> None:
    model = Word2Vec(topics(), **SMALL)
    before, words = model.wv.vectors.copy(), list(model.wv.index_to_key)
    new = [["a0", "new", "newer"], ["new", "a1", "b0"]] * 20
    model.build_vocab(new, update=True)
    assert model.wv.index_to_key[:24] == words and set(model.wv.index_to_key[24:]) == {"new", "newer"}
    assert np.array_equal(model.wv.vectors[:24], before) and model.wv.get_vecattr("new", "count") == 40
    assert model.syn1neg.shape == (26, 8) and not model.syn1neg[24:].any()
    model.train(new, total_examples=len(new), epochs=3)
    rows = {word: model.wv.key_to_index[word] for word in ("a0", "a9", "b5")}
    assert not np.array_equal(model.wv.vectors[rows["a0"]], before[rows["a0"]])
    assert all(np.array_equal(model.wv.vectors[rows[w]], before[rows[w]]) for w in ("a9", "b5"))  # not in the new text


def test_a_frequency_table_is_a_vocabulary() -> None:
    model = Word2Vec(**SMALL)
    model.build_vocab_from_freq({"a0": 50, "b0": 20, "never": 3})
    model.train(topics(), total_examples=300, epochs=1)
    assert model.wv.index_to_key == ["a0", "b0", "never"] and np.isfinite(model.wv.vectors).all()


@looped("frequencies, more, message", [
    ({"a": 0, "b": 5}, {"min_count": 0}, r"word_freq\['a'\]=0: should be 1 or more for a word that is kept; set "),
    ({"b": 5, "a": 0}, {"trim_rule": lambda *_: utils.RULE_KEEP}, r"word_freq\['a'\]=0: should be 1 or more for a "),
    *(({"b": 5, "a": count}, {}, r"word_freq\['a'\]=.*: should be a (whole )?number")
      for count in (2**63, 2**70, 10**5000, -5, 1.5, float("nan"), float("inf"), np.uint64(2**63), "x", None, [5])),
    *((other, {}, "word_freq=.*: should be a mapping from words to counts, got a ")
      for other in (5, None, [("a", 5)], "ab"))])
def test_frequencies_that_cannot_be_counts_leave_the_model_as_it_was(frequencies: Any, more: dict[str, Any],
                                                                     message: str) -> None:
    model = Word2Vec(topics(), **SMALL)
    words, counts, vectors = [*model.wv.index_to_key], model.wv.expandos["count"].tolist(), model.wv.vectors.copy()
    model.min_count = more.get("min_count", 1)
    for is_update in (False, True):
        with pytest.raises(UsageError, match=f"^{message}") as caught:
            model.build_vocab_from_freq(frequencies, trim_rule=more.get("trim_rule"), update=is_update)
        assert "\n" not in str(caught.value)
        assert model.wv.index_to_key == words and model.wv.expandos["count"].tolist() == counts
        assert np.array_equal(model.wv.vectors, vectors)


@looped("raw_vocab, more, message", [
    ({"b": 5, "a": 0}, {"min_count": 0}, r"raw_vocab\['a'\]=0: should be 1 or more for a word that is kept; set "),
    ({"a": 0, "a0": 0}, {"trim_rule": lambda *_: utils.RULE_KEEP}, r"raw_vocab\['a'\]=0: should be 1 or more for a "),
    *(({"b": 5, "a": count}, {"min_count": -9}, r"raw_vocab\['a'\]=.*: should be a (whole )?number")
      for count in (2**63, -5, 1.5, float("nan"), "x", None, [5])),
    *((other, {}, "raw_vocab=.*: should be a mapping from words to counts, got a ")
      for other in (None, [("a", 5)], "ab"))])
def test_raw_counts_that_cannot_be_used_leave_the_model_as_it_was(raw_vocab: Any, more: dict[str, Any], message: str
                                                                  ) -> None:
    """A program can set the counts and call prepare_vocab itself."""
    for kind in (Word2Vec, FastText):
        model = kind(topics(), **SMALL)
        words, counts = [*model.wv.index_to_key], model.wv.expandos["count"].tolist()
        model.min_count, model.raw_vocab = more.get("min_count", 1), raw_vocab
        for is_update, is_dry in product((False, True), repeat=2):
            model.effective_min_count = model.min_count
            with pytest.raises(UsageError, match=f"^{message}") as caught:
                model.prepare_vocab(is_update, trim_rule=more.get("trim_rule"), dry_run=is_dry)
            assert "\n" not in str(caught.value) and model.raw_vocab is raw_vocab
            assert model.wv.index_to_key == words and model.wv.expandos["count"].tolist() == counts


@looped("given", [
    {"a": np.int32(10**9), "b": np.int32(10**9), "c": np.int32(10**9)}, {"a": np.uint8(200), "b": np.uint8(200)},
    {"a": 5.0, "b": 6}, {"a": 6, "b": 5.0}, {"a": np.float32(5), "b": np.float64(7)}, {"a": True, "b": np.True_},
    Counter("aab"), {"a": np.int64(2**61), "b": np.float64(2**61)}])
def test_raw_counts_of_any_type_are_those_of_whole_numbers(given: Any) -> None:
    """A program can set the counts and call prepare_vocab itself."""
    whole = {word: int(count) for word, count in given.items()}
    for is_update, is_dry, is_kept in product((False, True), repeat=3):
        model, plain = Word2Vec(**SMALL), FastText(**SMALL, bucket=50)
        for each in (model, plain):
            each.build_vocab([["a", "c"]])
        model.raw_vocab, plain.raw_vocab = given, whole
        reports = [each.prepare_vocab(is_update, is_kept, dry_run=is_dry) for each in (model, plain)]
        assert reports[0] == reports[1] and reports[0]["retain_total"] == sum(whole.values())
        assert model.wv.index_to_key == plain.wv.index_to_key
        for name, values in plain.wv.expandos.items():
            assert model.wv.expandos[name].dtype == values.dtype and np.array_equal(model.wv.expandos[name], values)
        assert model.raw_vocab is given if is_dry or is_kept else not model.raw_vocab


def test_counts_whose_sum_is_too_large_leave_the_model_as_it_was() -> None:
    model = Word2Vec(vector_size=8, min_count=1, sg=1)
    with pytest.raises(ArgumentError, match=r"^word_freq: the counts of the vocabulary add up to more than 9,223"):
        model.build_vocab_from_freq({"a": 2**62, "b": 2**62, "c": 2})
    assert not len(model.wv)
    model.build_vocab_from_freq({"a": 2**62, "b": 3})
    with pytest.raises(ArgumentError, match=r"^word_freq: the counts of the vocabulary add up to more than"):
        model.build_vocab_from_freq({"a": 2**62}, update=True)
    for is_update, counts in ((False, {"a": 2**62, "b": 2**62}), (False, {"a": 2.0**62, "b": 2.0**62}),
                              (True, {"a": 2**62}), (True, {"c": np.float64(2**62)})):
        model.raw_vocab = counts
        for is_dry in (False, True):
            with pytest.raises(ArgumentError, match=r"^raw_vocab: the counts of the vocabulary add up to more"):
                model.prepare_vocab(is_update, dry_run=is_dry)
            assert model.raw_vocab is counts and model.wv.expandos["count"].tolist() == [2**62, 3]
    model.wv.expandos["count"][:] = 2**62
    with pytest.raises(ArgumentError, match=r'^wv\.expandos\["count"\]: the counts add up to more than'):
        model.train([["a", "b"]] * 9, total_examples=9, epochs=1)


@looped("is_update", [False, True])
@looped("is_dry", [False, True])
def test_counts_of_words_that_are_dropped_are_not_in_the_sum(is_update: bool, is_dry: bool) -> None:
    """As in gensim. An update counts a word of the vocabulary even if `trim_rule` or min_count drops it."""
    def drop_b(word: str, *_: int) -> int:
        return utils.RULE_DISCARD if word == "b" else utils.RULE_KEEP

    for kind in (gensim.models.Word2Vec, Word2Vec):
        (model := kind(vector_size=8, min_count=1)).build_vocab_from_freq({"a": 2**61, "d": 3})
        model.raw_vocab = {"a": 2**62, "b": 2**62, "c": 5}
        report = model.prepare_vocab(is_update, trim_rule=drop_b, dry_run=is_dry)
        assert report["retain_total"] == 2**62 + 5 and report["drop_unique"] == 1
        counts = [2**61, 3] if is_dry else [2**61 + 2**62, 3, 5] if is_update else [2**62, 5]
        assert model.wv.expandos["count"].tolist() == counts
        model.build_vocab_from_freq({"x": 2**62, "b": 2**62, "y": 1}, trim_rule=drop_b)
        assert model.wv.expandos["count"].tolist() == [2**62, 1]
    model.build_vocab_from_freq({"b": 2**62})
    model.raw_vocab = {"b": 2**62}
    with pytest.raises(ArgumentError, match=r"^raw_vocab: the counts of the vocabulary add up to more than"):
        model.prepare_vocab(True, trim_rule=drop_b, dry_run=is_dry)
    assert model.wv.expandos["count"].tolist() == [2**62]


@looped("frequencies, more", [
    ({"a": 0, "b": 5, "c": 7}, {}), ({"a": 3, "b": 2**61}, {}), ({"a": 1, "b": 2, "c": 9, "z": 4}, {"min_count": 2}),
    ({"a": 9, "b": 0, "c": 2}, {"max_final_vocab": 1}), ({}, {}),
    ({"a": 9, "b": 1}, {"trim_rule": lambda word, count, least: [utils.RULE_DEFAULT, utils.RULE_KEEP][count < least],
                        "min_count": 5})])
def test_a_vocabulary_of_frequencies_is_that_of_gensim(frequencies: dict[str, int], more: dict[str, Any]) -> None:
    keys = SMALL | {name: value for name, value in more.items() if name != "trim_rule"}
    theirs, ours = gensim.models.Word2Vec(**keys), Word2Vec(**keys)
    converted = Word2Vec(**keys)
    for is_update in (False, True) if frequencies else (False,):
        for model in (theirs, ours, converted):
            given = ({word: [np.float32, np.int8, float][i % 3](count) if count < 99 else count
                      for i, (word, count) in enumerate(frequencies.items())} if model is converted else frequencies)
            model.build_vocab_from_freq(given, True, 8, more.get("trim_rule"), is_update)
    for model in (ours, converted):
        assert model.wv.index_to_key == theirs.wv.index_to_key and model.corpus_count == 8
        assert {name: values.tolist() for name, values in model.wv.expandos.items()
                } == {name: values.tolist() for name, values in theirs.wv.expandos.items()}
        assert model.raw_vocab == theirs.raw_vocab == frequencies
    assert ours.raw_vocab is theirs.raw_vocab is frequencies


@looped("kind", [gensim.models.Word2Vec, Word2Vec])
def test_kept_frequencies_are_the_object_of_the_user_and_never_change(kind: Any) -> None:
    frequencies = {"a": 9, "b": 1, "c": 2}
    model = kind(vector_size=8, min_count=2)
    for is_update in (False, True):
        model.build_vocab_from_freq(frequencies, keep_raw_vocab=True, update=is_update)
        assert model.raw_vocab is frequencies
    for is_kept in (True, False):
        model.prepare_vocab(keep_raw_vocab=is_kept)
        assert model.raw_vocab is frequencies or not is_kept
        assert not model.raw_vocab or is_kept
    model.build_vocab_from_freq(frequencies, keep_raw_vocab=True)
    model.build_vocab([["a", "d"] * 2], update=True)
    model.build_vocab_from_freq(frequencies)
    assert not model.raw_vocab and frequencies == {"a": 9, "b": 1, "c": 2}


@looped("kind", [Word2Vec, FastText])
@looped("words", [["x", "y"], [f"w{i}" for i in range(30)], [f"{t}{i}" for t in "ab" for i in range(12)]])
def test_a_second_vocabulary_starts_with_the_tables_of_a_new_model(kind: Any, words: list[str]) -> None:
    """gensim raises IndexError for more words, and for fewer or as many keeps rows of earlier words."""
    keys = SMALL | ({"bucket": 20} if kind is FastText else {})
    new = kind(**keys)
    new.build_vocab([words] * 5)
    for is_text in (True, False):
        model = kind(topics(), **keys)
        model.scan_vocab([words])
        model.prepare_vocab(False, True, None, None, None, True)  # a dry run
        assert model.wv.vectors.shape == (24, 8)
        if is_text:
            model.build_vocab([words] * 5)
        else:
            model.build_vocab_from_freq(dict.fromkeys(words, 5))
        assert model.wv.index_to_key == new.wv.index_to_key and np.array_equal(model.wv.vectors, new.wv.vectors)
        assert {name: values.tolist() for name, values in model.wv.expandos.items()
                } == {name: values.tolist() for name, values in new.wv.expandos.items()}
        model.train([words] * 5, total_examples=5, epochs=1)


def test_a_text_without_pairs_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    model = Word2Vec(topics(), **SMALL)
    before = model.wv.vectors.copy()
    with caplog.at_level(logging.WARNING, "embtrain"):
        assert model.train([["a0"], ["unknown", "b0"]], total_examples=2, epochs=2, callbacks=[recorder]) == (0, 6)
    assert np.array_equal(before, model.wv.vectors) and recorder.calls.count("end") == 2
    assert "nothing is trained; give more text" in caplog.text


def test_an_epoch_that_subsampling_empties_ends_like_the_others() -> None:
    """A word is kept with p = 0.42, so that an epoch has none of its 6 words with p = 0.04; here the last one."""
    recorder, models = Recorder(), [Word2Vec(**SMALL | {"sample": 0.05, "seed": 3}) for _ in range(2)]
    for model, callbacks in zip(models, ([recorder], []), strict=True):
        model.build_vocab([["a0", "b0"]] * 100)
        before = model.wv.vectors.copy()
        model.train([["a0", "b0"]] * 3, total_examples=3, epochs=12, callbacks=callbacks)
        assert model.train_count == 1 and not np.array_equal(model.wv.vectors, before)
    assert recorder.calls == ["train begin", *["begin", "end"] * 12, "train end"]
    assert np.array_equal(*recorder.vectors[-2:]) and np.array_equal(models[0].wv.vectors, models[1].wv.vectors)


def test_workers_are_threads_and_the_program_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from embtrain.gensim import arguments

    cores = len(os.sched_getaffinity(0))
    assert [arguments.n_threads(n, 1, 10**6) for n in (1, cores, 10_000)] == [1, cores, cores]
    assert [arguments.n_threads(10_000, 10, n_words) for n_words in (0, 1, 10, 10**6)] == [1, 1, 1, cores]
    was_quiet = progress.quiet
    Word2Vec(topics(), **{**SMALL, "workers": 1000})
    assert torch.get_num_threads() == 1 and progress.quiet == was_quiet


def test_a_text_of_one_batch_is_trained_reproducibly_by_any_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[int]()
    monkeypatch.setattr("embtrain.experiment.run.components.use_threads", threads.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    for batch_words, expected in ((10_000, 1), (1e4, 1), (float("inf"), 1), (1, 4), (0, 4)):
        Word2Vec(topics(), **{**SMALL, "workers": 8, "batch_words": batch_words})
        assert threads.pop() == expected


def test_a_sample_of_one_or_more_is_a_count() -> None:
    from embtrain.gensim.arguments import sample_threshold

    assert sample_threshold(1e-3, 1000) == 1e-3 and sample_threshold(0, 10) == 0 and sample_threshold(50, 10) == 1
    theirs = gensim.models.Word2Vec(**{**SMALL, "sample": 20})
    theirs.build_vocab(topics())
    from embtrain.data.text.corpus import WindowsConfig
    from embtrain.data.text.windows import keep_probability

    counts = np.array([theirs.wv.get_vecattr(i, "count") for i in range(24)])
    keep = keep_probability(counts, WindowsConfig(sample=sample_threshold(20, int(counts.sum()))))
    assert keep == pytest.approx([theirs.wv.get_vecattr(i, "sample_int") / (2**32 - 1) for i in range(24)], abs=1e-6)


# --- refusals ---------------------------------------------------------------------------------------------------------

@looped("keys, kind, message", [
    ({"sg": 0, "cbow_mean": 0}, ValueError,
     "cbow_mean=0: the sum of the context is not implemented; set cbow_mean=1, which takes its mean"),
    ({"hs": 1, "negative": 0}, ValueError,
     "hs=1: the hierarchical softmax is not implemented; set hs=0 and negative=5"),
    ({"workers": 0}, ValueError, "workers=0: should be 1 or more"),
    ({"vector_size": 0}, UsageError, "vector_size=0: should be 1 to 65,536"),
    ({"alpha": np.longdouble(0.5)}, ValueError, f"alpha: train.lr: {np.longdouble(0.5)!r}: should be a number, a word, "
     "a path, or a list of these, got a longdouble"),
    ({"negative": [{5}]}, TypeError, "negative=[{5}]: should be a number, got a list"),
    ({"window": 5000}, UsageError, "window=5000: text.window: should be less than or equal to 1000, got 5000"),
    ({"negatives": "sgsn"}, UsageError, "negatives: no strategy named 'sgsn' (did you mean 'sgns'?)"),
    ({"negatives": 5}, TypeError, "negatives=5: should be the name of a strategy, or the path of its YAML, got a int"),
    ({"negatives": "uniform", "ns_exponent": 1.0}, UsageError, "ns_exponent=1.0: negatives.exponent: unknown key"),
    ({"sets": {"text.windo": 2}}, UsageError, "sets: text.windo=2: text.windo: unknown key"),
    ({"sets": {"model.subword.max_n": 5}}, UsageError, "sets: model.subword: is set by arguments alone; use FastText"),
])
def test_an_argument_that_cannot_work_is_one_line(keys: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(EmbtrainError) as caught:
        Word2Vec(topics(), **{**SMALL, **keys})
    assert isinstance(caught.value, kind) and str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("sentences", "message"), [
    ((line for line in topics()), "sentences: a generator can be read only once, and 3 passes are needed; give a list, "
                                  "or an object whose __iter__ starts again"),
    (iter(topics()), "sentences: a list_iterator can be read only once"),
    ([3, 4], "sentences: every item should be a list of words: 'int' object is not iterable"),
    ([["a", ["b"]]], "sentences: every item should be a list of words: unhashable type: 'list'"),
])
def test_sentences_that_cannot_be_read_are_one_line(sentences: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        Word2Vec(sentences, **SMALL)
    assert isinstance(caught.value, DataError) and str(caught.value).startswith(message)


@looped("kind", [Word2Vec, FastText])
@looped("limit", [None, 2])  # with max_vocab_size, the rule is also used while words are counted
def test_an_error_of_the_rule_of_the_user_is_not_one_of_the_sentences(kind: Any, limit: int | None) -> None:
    error = TypeError("of the rule")

    def rule(*_: Any) -> int:
        raise error

    with pytest.raises(TypeError) as caught:
        kind(topics(), **SMALL, max_vocab_size=limit, trim_rule=rule)
    assert caught.value is error
    with pytest.raises(TypeError, match=r"takes 1 positional argument but 3 were given$") as caught:
        kind(topics(), **SMALL, max_vocab_size=limit, trim_rule=lambda word: 1)
    assert not isinstance(caught.value, DataError)
    with pytest.raises(DataError, match=r"^sentences: every item should be a list of words: 'int' object is not "):
        kind([["a", "b", "c"], 3], **SMALL, max_vocab_size=limit, trim_rule=lambda *_: utils.RULE_KEEP)


@looped("kind", [Word2Vec, FastText])
def test_a_rule_whose_truth_value_is_false_is_a_rule(kind: Any) -> None:
    error = TypeError("of the rule")

    class EmptyRule(list[str]):  # e.g. the words for which it was called
        def __call__(self, word: str, count: int, min_count: int) -> int:
            raise error

    with pytest.raises(TypeError) as caught:
        kind(**SMALL, max_vocab_size=2).scan_vocab(topics(), trim_rule=EmptyRule())
    assert caught.value is error


def test_settings_that_cannot_be_used_are_not_reported_as_sentences() -> None:
    model = Word2Vec(**SMALL, max_vocab_size=2)
    with pytest.raises(ArgumentTypeError, match=r"^trim_rule='x': should be a function or None, got a str$"):
        model.scan_vocab(topics(), trim_rule="x")
    model.max_vocab_size = "3"
    with pytest.raises(ArgumentTypeError, match=r"^max_vocab_size='3': should be a number or None, got a str$"):
        model.scan_vocab(topics())


def test_an_unset_sg_is_cbow_as_in_gensim(tmp_path: Path) -> None:
    keys = {name: value for name, value in SMALL.items() if name != "sg"}
    model, skip_gram = Word2Vec(topics(), **keys), Word2Vec(topics(), **SMALL, cbow_mean=0)
    assert model.sg == 0 and skip_gram.sg == 1 and not np.array_equal(model.wv.vectors, skip_gram.wv.vectors)
    assert np.array_equal(model.wv.vectors, Word2Vec(topics(), **keys, sg=0).wv.vectors)
    model.save(tmp_path / "m")
    loaded = Word2Vec.load(tmp_path / "m")
    assert loaded.sg == 0 and np.array_equal(loaded.wv.vectors, model.wv.vectors)


def test_cbow_separates_topics() -> None:
    model = Word2Vec(topics(), **{**SMALL, "sg": 0, "epochs": 30, "alpha": 0.1})
    theirs = gensim.models.Word2Vec(topics(), **{**SMALL, "sg": 0, "epochs": 30, "alpha": 0.1})
    for word in model.wv.index_to_key[:3]:
        near = [{name for name, _ in x.wv.most_similar(word, topn=3)} for x in (model, theirs)]
        assert near[0] & near[1], word


def test_locked_vectors_and_tables_of_another_shape_are_refused() -> None:
    model = Word2Vec(topics(), **SMALL)
    model.wv.vectors_lockf = np.ones(len(model.wv), np.float32)
    model.train(topics(), total_examples=300, epochs=1)
    model.wv.vectors_lockf[3] = 0
    with pytest.raises(ValueError, match="locked vectors are not implemented; set every entry to 1"):
        model.train(topics(), total_examples=300, epochs=1)
    model.wv.vectors_lockf, model.wv.vectors = np.ones(1), np.zeros((24, 5), np.float32)
    with pytest.raises(ValueError, match=r"shape \(24, 5\): should be \(24, 8\), .*; set an array of this shape$"):
        model.train(topics(), total_examples=300, epochs=1)


@pytest.mark.parametrize("is_fasttext", [False, True])
def test_words_without_a_row_in_every_table_are_refused_by_train_and_save(is_fasttext: bool, tmp_path: Path) -> None:
    """Until build_vocab gives them rows, as the error states; rows that other words have stay."""
    model = FastText(topics(), **SMALL, bucket=20) if is_fasttext else Word2Vec(topics(), **SMALL)
    contexts = model.syn1neg.copy()
    model.wv.add_vectors(["new"], np.full((1, 8), 0.5, np.float32))
    for call in (lambda: model.train(topics(), total_examples=300, epochs=1), lambda: model.save(tmp_path / "model")):
        with pytest.raises(ArgumentError, match=r": shape \(24, 8\): should be \(25, 8\), .*; add words with"):
            call()
    assert not (tmp_path / "model").exists()
    model.build_vocab([["new", "newer", model.wv.index_to_key[0]]] * 5, update=True)
    assert np.array_equal(model.syn1neg, np.concatenate([contexts, np.zeros((2, 8))]))
    assert is_fasttext or (model.wv["new"] == 0.5).all()
    model.train(topics() + [["new", "newer"]] * 9, total_examples=300, epochs=1)
    model.save(tmp_path / "model")


@looped("shape", [(27, 8), (18, 5), (24,), (8,), (), (18, 8, 1), (24, 5), (0,)])
def test_an_error_of_a_table_names_build_vocab_only_where_it_adds_the_rows(shape: tuple[int, ...], tmp_path: Path
                                                                           ) -> None:
    for owner, name in (("wv", "vectors"), ("", "syn1neg")):
        model = Word2Vec(topics(), **SMALL)
        setattr(getattr(model, owner, model), name, np.zeros(shape, np.float32))
        with pytest.raises(ArgumentError, match=r"should be \(24, 8\), rows and vector_size; set an array of this"):
            model.save(tmp_path / "model")


@pytest.mark.parametrize("name", ["vectors", "syn1neg"])
def test_build_vocab_gives_words_the_rows_that_they_lack_in_either_table(name: str) -> None:
    model = Word2Vec(topics(), **SMALL)
    owner = model.wv if name == "vectors" else model
    setattr(owner, name, getattr(owner, name)[:18])
    with pytest.raises(ArgumentError, match=r"\(18, 8\): should be \(24, 8\), .*; add words with build_vocab"):
        model.train(topics(), total_examples=300, epochs=1)
    model.build_vocab([["new"]] * 5, update=True)
    model.train(topics(), total_examples=300, epochs=1)
    assert model.wv.vectors.shape == model.syn1neg.shape == (25, 8)


def test_new_words_need_memory_for_one_more_copy_of_both_tables() -> None:
    """The earlier tables are kept until build_vocab has ended, to restore the model after an error."""
    model = Word2Vec(min_count=1, vector_size=500)
    tracemalloc.start()
    try:
        model.build_vocab([list(map(str, range(2000)))])
        start = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        model.build_vocab([["new"]], update=True)
        peak = tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * model.syn1neg.nbytes


@looped("kind", [tuple, np.array, deque])
def test_an_error_of_build_vocab_is_reported_with_words_in_a_sequence_of_the_user(kind: Any) -> None:
    model = Word2Vec(topics(), **SMALL)
    model.wv.index_to_key = words = kind(model.wv.index_to_key)
    index = model.wv.key_to_index.copy()
    with pytest.raises(ZeroDivisionError):
        model.build_vocab([["new", "newer"]], update=kind is deque,  # appends the first word
                          trim_rule=lambda word, *_: utils.RULE_KEEP if word == "new" else 1 // 0)
    assert model.wv.index_to_key is words and model.wv.key_to_index == index


def test_words_of_a_model_without_an_output_table_get_rows_from_an_update() -> None:
    model = Word2Vec(**{**SMALL, "negative": 0})
    model.build_vocab(topics())
    model.negative = 5
    model.build_vocab([["new"]] * 5, update=True)
    assert model.syn1neg.shape == (25, 8) and not model.syn1neg.any()
    model.train(topics(), total_examples=300, epochs=1)


# --- files ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("more", [
    {}, {"sg": 0}, {"negatives": "nce", "sets": {"train.shuffle": False}, "ns_exponent": 0.5}, {"negatives": "ace"},
    {"negatives": "cluster"}])
def test_a_saved_model_continues_as_if_it_had_not_been_saved(more: dict[str, Any], tmp_path: Path) -> None:
    model = Word2Vec(topics(), **{**SMALL, **more})
    model.save(tmp_path / "model")
    loaded = Word2Vec.load(str(tmp_path / "model"), mmap="r")
    for other in (model, loaded):
        other.train(topics(), total_examples=300, epochs=1)
    assert loaded.wv.index_to_key == model.wv.index_to_key and loaded.train_count == 2
    assert np.array_equal(loaded.wv.vectors, model.wv.vectors) and np.array_equal(loaded.syn1neg, model.syn1neg)
    assert loaded.wv.expandos["count"].tolist() == model.wv.expandos["count"].tolist()
    loaded.build_vocab([["new", "a0"]], update=True)
    assert "new" in loaded.wv


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_model_saved_in_a_callback_continues_as_the_model_of_that_epoch(is_interrupted: bool, tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    class Saves(CallbackAny2Vec):
        def on_epoch_end(self, model: Any) -> None:
            model.save(tmp_path / "model")

    run_step = EpochTrainer.run_step

    def interrupt(self: EpochTrainer, *args: Any) -> Any:
        result = run_step(self, *args)
        if is_interrupted and self.position.epoch == 1:
            raise KeyboardInterrupt
        return result

    model = Word2Vec(**SMALL, negatives="ace")
    model.build_vocab(topics())
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) if is_interrupted else nullcontext():
        patch.setattr(EpochTrainer, "run_step", interrupt)
        model.train(topics(), total_examples=300, epochs=2, callbacks=[Saves()])
    loaded = Word2Vec.load(tmp_path / "model")
    assert np.array_equal(loaded.wv.vectors, model.wv.vectors)
    for other in (model, loaded):
        other.train(topics(), total_examples=300, epochs=1)
    assert np.array_equal(loaded.wv.vectors, model.wv.vectors) and loaded.train_count == model.train_count == 2


def test_a_missing_folder_is_created(tmp_path: Path) -> None:
    model = Word2Vec(topics(), **SMALL)
    model.save(tmp_path / "a" / "b" / "model")
    assert np.array_equal(Word2Vec.load(tmp_path / "a" / "b" / "model").wv.vectors, model.wv.vectors)


def test_a_model_without_a_vocabulary_is_saved(tmp_path: Path) -> None:
    Word2Vec(**SMALL).save(tmp_path / "empty")
    loaded = Word2Vec.load(tmp_path / "empty")
    loaded.build_vocab(topics())
    assert len(loaded.wv) == 24 and loaded.window == 3


def test_a_state_of_another_strategy_starts_again_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                 ) -> None:
    strategy = tmp_path / "own.yaml"
    model = Word2Vec(topics(), **SMALL)
    strategy.write_text("negatives: {source: ace, k: 2}\nloss: {name: logistic}\n")
    model.negatives = strategy
    before = model.wv.vectors.copy()
    model.train(topics(), total_examples=300, epochs=1)
    assert "the state of ace starts again" in caplog.text and not np.array_equal(model.wv.vectors, before)
    assert model.negatives == str(strategy)


def test_the_file_contains_the_strategy_that_was_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text("negatives: {source: ace, k: 2}\nloss: {name: logistic}\n")
    model = Word2Vec(topics(), **SMALL, negatives="own.yaml")
    model.save("model")
    Path("own.yaml").unlink()
    loaded = Word2Vec.load("model")
    loaded.save("again")
    models = [model, loaded, Word2Vec.load("again")]
    for each in models:
        each.train(topics(), total_examples=300, epochs=1)
        assert np.array_equal(each.wv.vectors, model.wv.vectors) and each.negative == 2
        assert each.negatives == "own.yaml"


def test_settings_of_a_file_that_cannot_be_used_are_one_line_with_its_path(tmp_path: Path) -> None:
    Word2Vec(**SMALL).save(tmp_path / "model")
    content = saved.read(tmp_path / "model", "Word2Vec")
    for key, value, message in (("window", 5000, "window=5000: "), ("negatives", "mine.yaml", "mine.yaml: cannot be "),
                                ("negatives", Layer("mine.yaml", {"los": 1}), "mine.yaml: los: unknown key")):
        saved.write(tmp_path / "other", replace(content, arguments=content.arguments | {key: value}))
        with pytest.raises(DataError) as caught:
            Word2Vec.load(tmp_path / "other")
        assert str(caught.value).startswith(f"{tmp_path / 'other'}: its settings cannot be used: {message}")
        assert str(caught.value).endswith("; restore what is missing, or train and save the model again")
        assert "\n" not in str(caught.value)


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model"
    Word2Vec(topics(), **SMALL).save(path)
    whole = path.read_bytes()
    draw = np.random.default_rng(1)
    cases = [b"", whole[:40], whole[:-9], whole + b"x"]
    for place in draw.choice(len(whole), 60, replace=False):
        cases.append(whole[:place] + bytes([whole[place] ^ 1 << int(draw.integers(8))]) + whole[place + 1:])
    for case in cases:
        path.write_bytes(case)
        with pytest.raises(DataError) as caught:
            Word2Vec.load(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(DataError, match="missing"):
        Word2Vec.load(tmp_path / "missing")


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    gensim.models.Word2Vec(topics(), **SMALL).save(str(tmp_path / "theirs"))
    (tmp_path / "canary").write_bytes(pickle.dumps(os.getcwd))
    for name in ("theirs", "canary"):
        with pytest.raises(DataError, match="is a pickle, which can run code when it is read"):
            Word2Vec.load(tmp_path / name)


@looped("words", [[("a", 1), ("b", 2)], [None, None, ("a", 1)], [0.0, 0.0, 1.5], [True, False, "x"], [b"", b"a"],
                  [np.float64(0), np.float64(1)], [np.bool_(False), "x"]])
def test_a_model_on_other_words_than_strings_and_integers_is_not_saved(words: list[Any], tmp_path: Path) -> None:
    model = Word2Vec([words] * 5, **SMALL)
    with pytest.raises(UsageError, match=r"^save: the word .*: only strings and integers can be saved"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("kind", [np.str_, np.int64])
def test_a_model_on_words_of_numpy_is_saved_with_words_of_python(kind: Any, tmp_path: Path) -> None:
    model = Word2Vec([list(map(kind, (5, 6, 7))), list(map(kind, (7, 8)))] * 5, **SMALL)
    model.save(tmp_path / "model")
    loaded = Word2Vec.load(tmp_path / "model")
    assert loaded.wv.key_to_index == model.wv.key_to_index
    assert {type(word) for word in loaded.wv.index_to_key} == {str if kind is np.str_ else int}
