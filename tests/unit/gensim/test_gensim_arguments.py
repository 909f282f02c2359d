"""Arguments of embtrain.gensim's classes: NumPy values and paths, keys of `sets`, and the types of errors."""

from __future__ import annotations

import os
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.looped import looped

from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.gensim import FastText, Word2Vec, arguments
from embtrain.gensim.errors import ArgumentError, ArgumentTypeError
from embtrain.gensim.models.fasttext import load_facebook_model, load_facebook_vectors, save_facebook_model

pytestmark = pytest.mark.long

SENTENCES = [["king", "queen", "crown"], ["apple", "pear", "plum"]] * 20
SMALL: dict[str, Any] = {"vector_size": 4, "min_count": 1, "window": 2, "sample": 0, "epochs": 1, "sg": 1, "workers": 1}


# --- NumPy values and paths -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", [Word2Vec, FastText])
def test_a_model_with_numpy_arguments_and_a_path_is_saved(kind: type[Word2Vec], tmp_path: Path) -> None:
    strategy = tmp_path / "mine.yaml"
    strategy.write_text("negatives:\n  source: unigram\n  k: 3\n", encoding="utf-8")
    more: dict[str, Any] = {"bucket": np.int64(50)} if kind is FastText else {}
    calls: dict[str, Any] = {"epochs": np.int64(2), "start_alpha": np.float32(0.25)}
    numpy: dict[str, Any] = {name: np.int64(value) for name, value in SMALL.items()} | {
        "alpha": np.float32(0.5), "shrink_windows": np.bool_(False), "seed": np.int64(2)}
    model = kind(SENTENCES, **numpy, **more, negatives=strategy, sets={"negatives.exponent": np.float32(0.5)})
    model.train(SENTENCES, total_examples=40, **calls)
    model.save(tmp_path / "model")
    loaded = kind.load(tmp_path / "model")
    assert np.array_equal(loaded.wv.vectors, model.wv.vectors) and loaded.negative == 3
    assert (loaded.vector_size, loaded.epochs, loaded.alpha, loaded.seed) == (4, 2, 0.25, 2)


def nested(depth: int | None) -> list[Any]:
    """Return lists in lists; None: a list that contains itself."""
    value: list[Any] = []
    if depth is None:
        value.append(value)
    for _ in range(depth or 0):
        value = [value]
    return value


@looped("value", [nested(None), nested(100_000), {"a": nested(None)}, np.longdouble(1.5), np.datetime64("2020-01-01"),
                  {(1, 2): 3}, {np.int64(1): 3}, 10**5000, [10**5000], {1, 2}, object(), b"x", np.array([[1], [2]])])
def test_a_value_that_json_lacks_is_left_out_as_an_attribute_and_refused_as_an_argument(
        value: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Word2Vec(**SMALL)
    model.tag, model.number = value, np.float32(0.5)
    model.save(tmp_path / "model")
    assert f"save: tag: a {type(value).__name__} is not saved" in caplog.text
    loaded = Word2Vec.load(tmp_path / "model")
    assert not hasattr(loaded, "tag") and loaded.number == 0.5
    with pytest.raises(UsageError, match=r"^save: comment: JSON cannot store it: .+; set a number or text$"):
        Word2Vec(**SMALL | {"comment": value}).save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_attributes_that_were_changed_after_construction_are_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture
                                                                   ) -> None:
    (tmp_path / "own.yaml").write_text("negatives: {source: ace, k: 2}\nloss: {name: logistic}\n", encoding="utf-8")
    settings: dict[str, Any] = {"window": 1, "negative": 15, "ns_exponent": np.float32(0.5), "seed": 9, "sample": 0.1,
                                "shrink_windows": False, "sg": 0, "batch_words": 7, "sets": ["loss.name=nce"]}
    for cls in (Word2Vec, FastText):
        for changes in (settings, {"negatives": tmp_path / "own.yaml"}):
            model = cls(SENTENCES, **SMALL, **{"bucket": 20} if cls is FastText else {})
            for name, value in (changes | {"tag": {"mine": [1, None, "x"]}, "lock": {1}, "pair": (1, 2)}).items():
                setattr(model, name, value)
            caplog.clear()
            model.save(tmp_path / "model")
            loaded = cls.load(tmp_path / "model")
            assert {name: getattr(loaded, name) for name in changes} == {name: getattr(model, name) for name in changes}
            for each in (model, loaded):
                each.train(SENTENCES, total_examples=40, epochs=1)
            assert np.array_equal(loaded.wv.vectors, model.wv.vectors)
            assert loaded.tag == model.tag and not hasattr(loaded, "pair")
            for message in ("save: lock: a set is not saved; ", "save: pair: a tuple is not saved; "):
                assert message in caplog.text
            assert caplog.text.count("is not saved") == 2


# --- sets -------------------------------------------------------------------------------------------------------------

@looped("sets, message", [
    *(({key: 1}, f"sets: {key}: is the key of an argument; set {name} instead") for key, name in {
        "model.dim": "vector_size", "text.window": "window", "text.dynamic_window": "shrink_windows",
        "text.sample": "sample", "train.lr": "alpha", "train.min_lr": "min_alpha", "train.epochs": "epochs",
        "text.min_count": "min_count", "text.max_size": "max_final_vocab", "train.seed": "seed",
        "train.threads": "workers", "model.name": "sg", "strategy": "negatives",
        "corpus": "sentences or corpus_file"}.items()),
    *(({key: 1}, f"sets: {key}: has no effect, because sentences are lists of words, all of which are trained on; "
                 "remove it")
      for key in ("text.lower", "text.tokenizer", "text.valid", "text.max_sequence", "text.files.train")),
    *(({key: 1}, f"sets: {key}: works only in a run; remove it, or train with embtrain.fit")
      for key in ("evaluate.benchmarks", "train.patience", "train.cpu_seconds", "train.evaluate_every", "train.start")),
    ({"text": {"lower": True}}, "sets: text.lower: has no effect"),
    ({"model": "{dim: 5}"}, "sets: model.dim: is the key of an argument"),
    ({"text.windo": 2}, "sets: text.windo=2: text.windo: unknown key"),
    ({"loss.name": "[nce"}, "sets: loss.name=[nce: "),
])
def test_a_key_that_an_argument_sets_or_without_effect_is_one_line(sets: dict[str, Any], message: str) -> None:
    def assign() -> None:
        model = Word2Vec(**SMALL)
        model.sets = sets
        _ = model.negative

    for call in (assign, *(lambda kind=kind: kind(SENTENCES, **SMALL, sets=sets) for kind in (Word2Vec, FastText))):
        with pytest.raises(ValueError) as caught:
            call()
        assert isinstance(caught.value, UsageError)
        assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@looped("section, key", [("train", "cpu_seconds"), ("train", "patience"), ("train", "track_until"),
                         ("train", "log_every"), ("evaluate", "benchmarks")])
def test_a_key_of_a_run_in_the_yaml_of_a_strategy_is_one_line(section: str, key: str, tmp_path: Path) -> None:
    """train.cpu_seconds would end the training in the middle of an epoch."""
    (path := tmp_path / "own.yaml").write_text(f"negatives: {{k: 3}}\n{section}:\n  {key}: 1\n", encoding="utf-8")
    model = Word2Vec(**SMALL)
    for call in (lambda: Word2Vec(**SMALL, negatives=path), lambda: setattr(model, "negatives", path)):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert str(caught.value) == (f"{path}:3:3: {section}.{key}: works only in a run; remove it, or train with "
                                     "embtrain.fit")


def test_sets_are_a_mapping_or_texts(tmp_path: Path) -> None:
    for kind in (Word2Vec, FastText):
        model = kind(SENTENCES, **SMALL, sets={"negatives.share_draws_by": "window"})
        same = kind(SENTENCES, **SMALL, sets=["negatives.share_draws_by=window"])
        same.save(tmp_path / "model")
        for other in (same, kind.load(tmp_path / "model")):
            assert np.array_equal(other.wv.vectors, model.wv.vectors) and other.sets == model.sets
        for sets in ("negatives.share_draws_by=window", 5, [("loss.name", "nce")]):
            for call in (partial(kind, **SMALL, sets=sets), partial(setattr, model, "sets", sets)):
                with pytest.raises(ArgumentError, match=r"^sets: .*: should be a mapping like \{.*, or a list of text"):
                    call()
        for sets in ({"negatives.k": 9}, ["negatives.k=9"], None):
            model.sets = sets
            assert (model.sets, model.negative) == ((["negatives.k=9"], 9) if sets else ([], 5))
        with pytest.raises(ArgumentError, match=r"^loss\.name: \{1\}: should be a number, a word, "):
            kind(SENTENCES, **SMALL, sets={"loss.name": {1}})


def test_the_number_and_the_exponent_of_negatives_are_keys_while_their_arguments_are_unset() -> None:
    sets = {"negatives.k": 3, "negatives.exponent": 0.5}
    model = Word2Vec(SENTENCES, **SMALL, sets=sets)
    same = Word2Vec(SENTENCES, **SMALL, negative=3, ns_exponent=0.5)
    assert (model.negative, model.ns_exponent) == (3, 0.5) and np.array_equal(model.wv.vectors, same.wv.vectors)
    for argument in ("negative", "ns_exponent"):
        with pytest.raises(UsageError, match=f"is the key of {argument}, which is set; remove the key, or set "):
            Word2Vec(**{**SMALL, argument: 1}, sets=sets)


@looped("name, key", [("negative", "negatives.k"), ("ns_exponent", "negatives.exponent")])
def test_an_assigned_number_and_a_key_of_sets_for_the_same_are_refused_until_one_is_removed(name: str, key: str
                                                                                            ) -> None:
    for is_sets_first in (False, True):
        model = Word2Vec(SENTENCES, **SMALL)
        for attribute in ("sets", name) if is_sets_first else (name, "sets"):
            setattr(model, attribute, {key: 2} if attribute == "sets" else 3)
        with pytest.raises(ArgumentError, match=rf"^sets: {key}: is the key of {name}, which is set; remove the key, "):
            model.train(SENTENCES, total_examples=40, epochs=1)
        setattr(model, *(("sets", None) if is_sets_first else (name, None)))
        model.train(SENTENCES, total_examples=40, epochs=1)
        assert getattr(model, name) == (3 if is_sets_first else 2)


def test_ns_exponent_is_an_argument_of_the_current_strategy() -> None:
    for first, second in (("sgns", "uniform"), ("uniform", "sgns")):
        model, changed = (Word2Vec(SENTENCES + SENTENCES[1:2], **SMALL, negatives=name) for name in (second, first))
        changed.wv.vectors, changed.syn1neg = model.wv.vectors.copy(), model.syn1neg.copy()
        changed.negatives = second
        for each in (model, changed):
            each.ns_exponent = -1.0
            each.train(SENTENCES, total_examples=40, epochs=1)
        assert np.array_equal(changed.wv.vectors, model.wv.vectors)


def test_another_strategy_brings_its_own_number_and_exponent_unless_the_user_set_them(tmp_path: Path) -> None:
    names = ("sgns", "uniform", "sampled-softmax", "igan")
    constructed = {name: Word2Vec(**SMALL, negatives=name) for name in names}
    for first in names:
        for second in names:
            model = Word2Vec(SENTENCES, **SMALL, negatives=first)
            model.save(tmp_path / "model")
            for each in (model, Word2Vec.load(tmp_path / "model")):
                each.negatives = second
                assert (each.negative, each.ns_exponent) == (constructed[second].negative,
                                                             constructed[second].ns_exponent)
    model, changed = (Word2Vec(SENTENCES, **SMALL, negative=3), Word2Vec(SENTENCES, **SMALL))
    changed.negative = 3
    for each in (model, changed):
        each.negatives = "sampled-softmax"
        assert (each.negative, each.ns_exponent) == (3, 1.0)
        each.ns_exponent = 0.75
        each.negatives = "igan"
        assert (each.negative, each.ns_exponent) == (3, 0.75)
        with pytest.raises(ArgumentError, match="sgsn"):
            each.negatives = "sgsn"
        assert (each.negatives, each.negative, each.ns_exponent) == ("igan", 3, 0.75)


def test_an_assigned_number_stays_even_if_it_is_that_of_the_strategy_until_it_is_none(tmp_path: Path) -> None:
    model = Word2Vec(SENTENCES, **SMALL)
    model.negative, model.ns_exponent = model.negative, model.ns_exponent
    model.save(tmp_path / "model")
    for each in (model, Word2Vec.load(tmp_path / "model")):
        each.negatives = "sampled-softmax"
        assert (each.negative, each.ns_exponent) == (5, 0.75)
        each.negative = each.ns_exponent = None
        assert (each.negative, each.ns_exponent) == (20, 1.0)


def test_strategy_and_sets_of_a_model_may_change_in_any_order() -> None:
    for names in (["negatives", "sets"], ["sets", "negatives"]):
        model = Word2Vec(SENTENCES, **SMALL, negatives="cluster", sets={"negatives.clusters": 3})
        for name in names:
            setattr(model, name, {"negatives": "sampled-softmax", "sets": ["negatives.k=7"]}[name])
        assert (model.negatives, model.negative, model.ns_exponent) == ("sampled-softmax", 7, 1.0)
        model.train(SENTENCES, total_examples=40, epochs=1)
    model.sets = ["negatives.clusters=3"]
    with pytest.raises(ArgumentError, match=r"^sets: negatives\.clusters=3: negatives\.clusters: unknown key"):
        model.train(SENTENCES, total_examples=40, epochs=1)


def test_the_settings_of_a_call_are_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls, resolve = Word2Vec(SENTENCES, **SMALL), list[Any](), arguments.resolve
    monkeypatch.setattr(arguments, "resolve", lambda *args: calls.append(args) or resolve(*args))
    model.train(SENTENCES, total_examples=40, epochs=1)
    assert len(calls) == 1


def test_other_keys_change_the_training() -> None:
    plain = Word2Vec(SENTENCES, **{**SMALL, "sample": 0.1})
    for sets in ({"train.optimizer": "adagrad"}, {"loss.name": "nce"}, {"negatives.share_draws_by": "window"},
                 {"text.sample_rule": "eq23"}):
        assert not np.array_equal(Word2Vec(SENTENCES, **{**SMALL, "sample": 0.1}, sets=sets).wv.vectors,
                                  plain.wv.vectors), sets


# --- the types of errors are gensim's ---------------------------------------------------------------------------------

@looped("keys, kind", [
    ({"vector_size": -1}, ValueError), ({"epochs": 0}, ValueError), ({"window": "a"}, ValueError),
    *(({"sample": value}, ValueError) for value in (-1.0, float("nan"), float("inf"))), ({"sample": "x"}, TypeError),
    *(({name: [5]}, TypeError) for name in ("sample", "alpha", "min_alpha", "window", "negative", "ns_exponent")),
    ({"alpha": None}, TypeError), ({"batch_words": "x"}, TypeError), ({"alpha": "x"}, ValueError),
    ({"ns_exponent": "x"}, ValueError), ({"negatives": "sgsn"}, ValueError),
    ({"vector_size": 1.5}, TypeError), ({"epochs": 1.5}, TypeError), ({"vector_size": "a"}, TypeError)])
def test_an_argument_that_cannot_work_has_the_type_of_gensim(keys: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        Word2Vec(**{**SMALL, **keys})
    (name,) = keys
    assert isinstance(caught.value, UsageError) and str(caught.value).startswith(name)


@looped("name", ["sample", "alpha", "min_alpha", "window", "negative", "ns_exponent"])
@looped("value", [[], [1], {}, 1 + 0j, b"1", np.array(0.5), np.array([1, 2]), Fraction(1, 2), object(), 10**400,
                  -10**400, 10**5000, float("inf"), float("nan")])
def test_a_value_that_is_not_a_number_is_one_line_with_its_argument(name: str, value: Any) -> None:
    is_number = isinstance(value, (int, float))
    with pytest.raises(ArgumentError if is_number else ArgumentTypeError) as caught:
        Word2Vec(**{**SMALL, name: value})
    assert str(caught.value).startswith(f"{name}=") and "\n" not in str(caught.value)


@looped("name", ["workers", "bucket", "min_n", "max_n", "word_ngrams"])
@looped("value", [None, "8", 8.0, float("nan"), [8], np.array(8), {}, True])
def test_an_argument_that_is_not_an_integer_is_one_line_with_its_name(name: str, value: Any) -> None:
    kind = Word2Vec if name == "workers" else FastText
    with pytest.raises(ArgumentTypeError) as caught:
        kind(SENTENCES, **SMALL | {name: value})
    assert str(caught.value).startswith(f"{name}=") and "\n" not in str(caught.value)


NO_NUMBERS: list[Any] = ["1", [1], {}, np.array([1, 2]), object()]


@looped("name, values", [
    *((name, [*NO_NUMBERS, 1.5, float("nan"), True]) for name in ("vector_size", "epochs", "max_final_vocab")),
    *((name, NO_NUMBERS) for name in ("max_vocab_size", "null_word", "sorted_vocab", "shrink_windows")),
    *((name, [*NO_NUMBERS, None, 2, 0.5, float("nan"), 10**400]) for name in ("sg", "hs", "cbow_mean")),
    ("vector_size", [-1, 0, 2**70, -10**5000, np.int8(-1), arguments.MAX_DIM + 1]),
    ("min_count", [*NO_NUMBERS, None, float("nan"), np.float32("nan")]), ("hs", [1, True]), ("cbow_mean", [0, False]),
    ("seed", [*NO_NUMBERS, 1.5, float("nan"), True, -1, 2**32, 10**400])])
def test_a_value_that_cannot_be_used_is_refused_as_argument_and_attribute(name: str, values: list[Any]) -> None:
    for kind in (Word2Vec, FastText):
        model = kind(**SMALL | {"sg": 0})
        model.build_vocab(SENTENCES)
        for value in values:
            setattr(model, name, value)
            train = partial(model.train, SENTENCES, total_examples=40, epochs=value if name == "epochs" else 1)
            for call in (partial(kind, SENTENCES, **SMALL | {"sg": 0, name: value}), train,
                         partial(model.build_vocab, SENTENCES), partial(model.build_vocab_from_freq, {"pear": 5})):
                with pytest.raises(UsageError, match=rf"^{name}[=:].*( should be | is not implemented; )") as caught:
                    call()
                assert "\n" not in str(caught.value)
    with pytest.raises(ArgumentTypeError, match=r"^min_count='1': should be a number, got a str$"):
        Word2Vec(**SMALL).build_vocab(SENTENCES, min_count="1")
    with pytest.raises(ArgumentTypeError, match=r"^sg='1': should be a number, got a str$"):
        Word2Vec(**SMALL | {"sg": "1"})


@looped("rule", [1, 0, "keep", [], object()])
def test_a_trim_rule_that_is_not_a_function_is_one_line(rule: Any) -> None:
    for kind in (Word2Vec, FastText):
        (model := kind(**SMALL)).scan_vocab(SENTENCES)
        for call in (lambda kind=kind: kind(SENTENCES, **SMALL, trim_rule=rule),
                     lambda model=model: model.build_vocab(SENTENCES, trim_rule=rule),
                     lambda model=model: model.build_vocab_from_freq({"pear": 5}, trim_rule=rule),
                     lambda model=model: model.prepare_vocab(False, False, rule)):
            with pytest.raises(ArgumentTypeError, match=r"^trim_rule=.*: should be a function or None, got an? "):
                call()


def test_the_largest_vector_size_is_that_of_a_run() -> None:
    """build_vocab and reset_from check it as an attribute."""
    for size, is_accepted in ((arguments.MAX_DIM, True), (arguments.MAX_DIM + 1, False)):
        with nullcontext() if is_accepted else pytest.raises(ArgumentError):
            arguments.resolve("sgns", 1, {"vector_size": size}, [], 1, 1)
    other, model = Word2Vec(SENTENCES, **SMALL), Word2Vec(**SMALL)
    model.vector_size = -1
    with pytest.raises(ArgumentError, match=r"^vector_size=-1: should be 1 to 65,536$"):
        model.reset_from(other)


def test_an_argument_of_a_call_replaces_an_attribute_that_cannot_be_used() -> None:
    model = Word2Vec(**SMALL | {"min_count": 2})
    model.min_count = model.alpha = model.min_alpha = "x"
    model.build_vocab(SENTENCES, min_count=1)
    model.epochs = None
    model.train(SENTENCES, None, 40, None, 2, start_alpha=0.05, end_alpha=0.01)
    assert (model.min_count, model.epochs, model.alpha, model.min_alpha) == (1, 2, 0.05, 0.01)


class BytesPath(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"own.yaml"


class NumberPath(os.PathLike[str]):
    def __fspath__(self) -> Any:
        return 5


@looped("value", [5, None, b"ace", BytesPath(), NumberPath()])
def test_a_strategy_that_is_neither_a_name_nor_a_path_is_one_line(value: Any) -> None:
    model = Word2Vec(**SMALL)
    for call in (lambda: Word2Vec(**SMALL, negatives=value), lambda: setattr(model, "negatives", value)):
        with pytest.raises(ArgumentTypeError, match=r"^negatives=.*: should be the name of a strategy, or the path"):
            call()


@looped("path, message", [
    *((value, r"=.*: should be a path, got an? ") for value in (5, None, b"model", BytesPath(), NumberPath(), ["m"])),
    ("a\0b", r"='a\\x00b': should be a path without NUL$"), ("", "='': should be a path of a file$")])
def test_a_file_that_is_not_a_path_is_one_line(path: Any, message: str) -> None:
    model = FastText(SENTENCES, **SMALL, bucket=20)
    for name, calls in {
            "fname": (lambda: model.save(path), lambda: FastText.load(path), lambda: Word2Vec.load(path)),
            "path": (lambda: save_facebook_model(model, path), lambda: load_facebook_model(path),
                     lambda: load_facebook_vectors(path))}.items():
        for call in calls:
            with pytest.raises(UsageError, match=f"^{name}{message}") as caught:
                call()
            assert isinstance(caught.value, ValueError if isinstance(path, str) else TypeError)
            assert "\n" not in str(caught.value)


def test_a_folder_is_not_written_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    model = FastText(SENTENCES, **SMALL, bucket=20)
    for path in (".", "..", "folder", "folder/", Path(), tmp_path):
        for name, save in (("fname", model.save), ("path", partial(save_facebook_model, model))):
            with pytest.raises(ArgumentError, match=f"^{name}=.*: is a folder; give the path of a file$"):
                save(path)
    with pytest.raises(EmbtrainError, match=r"^x{9}.*: cannot be written: File name too long$"):
        model.save("x" * 300)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"] and not any((tmp_path / "folder").iterdir())


class TextPath(os.PathLike[str]):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


def test_a_file_may_be_any_object_with_the_path_of_it(tmp_path: Path) -> None:
    model = FastText(SENTENCES, **SMALL, bucket=20)
    for kind in (str, Path, TextPath):
        model.save(kind(tmp_path / "model"))
        assert np.array_equal(FastText.load(kind(tmp_path / "model")).wv.vectors, model.wv.vectors)
        save_facebook_model(model, kind(tmp_path / "m.bin"))
        assert np.array_equal(load_facebook_model(kind(tmp_path / "m.bin")).syn1neg, model.syn1neg)
        for path in tmp_path.iterdir():
            path.unlink()


@looped("value", ["1", [], [1], np.array([1, 2]), np.array([[1], [2]])])
def test_a_value_of_train_that_is_not_a_number_is_one_line_with_its_name(value: Any) -> None:
    def train(attributes: dict[str, Any], **more: Any) -> None:
        model = Word2Vec(SENTENCES, **SMALL)
        model.__dict__.update(attributes)
        model.train(**{"corpus_iterable": SENTENCES, "total_examples": 40, "epochs": 1} | more)

    calls = {name: lambda name=name: train({}, **{name: value}) for name in ("start_alpha", "end_alpha", "epochs")} | {
        name: lambda name=name: train({name: value}) for name in ("alpha", "min_alpha", "workers", "batch_words")}
    for name, call in calls.items():
        with pytest.raises(UsageError, match=rf"^{name}=.*: should be an? (number|integer), got ") as caught:
            call()
        assert "\n" not in str(caught.value)
    for batch_words in (value, None):
        with pytest.raises(ArgumentTypeError, match=r"^batch_words="):
            Word2Vec(**SMALL | {"batch_words": batch_words})


@looped("sample", ["1e-3", "", [1], 1e308, np.float64(1e308), -1e308, -1, float("nan"), np.float32("inf")])
def test_a_sample_that_gensim_cannot_use_is_refused(sample: Any) -> None:
    model, new = Word2Vec(SENTENCES, **SMALL), Word2Vec(**SMALL)
    model.sample = sample
    for call in (lambda: model.train(SENTENCES, total_examples=40, epochs=1), lambda: model.build_vocab(SENTENCES),
                 lambda: new.build_vocab(SENTENCES, sample=sample), lambda: Word2Vec(**{**SMALL, "sample": sample})):
        kind = ArgumentTypeError if isinstance(sample, (str, list)) else ArgumentError
        with pytest.raises(kind, match=r"^sample=.*: should be a number"):
            call()


@looped("value, kind", [("x", TypeError), ([5], TypeError), (None, TypeError), (np.array([5]), TypeError),
                        (0, ValueError), (-0.0, ValueError), (False, ValueError), (np.int8(0), ValueError)])
def test_a_progress_that_gensim_cannot_use_is_one_line(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^progress_per=.*: should be a number(, got a | other than 0$)") as caught:
        Word2Vec(**SMALL).build_vocab(SENTENCES, progress_per=value)
    assert isinstance(caught.value, UsageError) and "\n" not in str(caught.value)


@looped("value", [0.5, -1, float("nan"), float("inf"), 10**400, True, np.int8(5), np.float32(2), np.bool_(True)])
def test_a_progress_that_gensim_accepts_is_accepted(value: Any) -> None:
    model = Word2Vec(**SMALL)
    model.build_vocab(SENTENCES * 4, progress_per=value)  # more than the 127 sentences that int8 can count
    assert model.corpus_count == 160


def test_arguments_of_a_call_are_checked_by_position_too() -> None:
    for cls in (Word2Vec, FastText):
        (model := cls(**SMALL)).scan_vocab(SENTENCES)
        with pytest.raises(ArgumentTypeError, match=r"^min_count='1': should be a number, got a str$"):
            model.prepare_vocab(False, False, None, "1", 0.5)
        with pytest.raises(ArgumentTypeError, match=r"^sample='x': should be a number, got a str$"):
            model.prepare_vocab(False, False, None, 1, "x")
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'mincount'$"):
            model.build_vocab(SENTENCES, mincount=1)
        assert model.prepare_vocab(False, False, None, np.int64(1), None)["num_retained_words"] == 6
        for name, value in (("min_count", "x"), ("sample", "x"), ("max_vocab_size", "x")):
            setattr(other := cls(**SMALL), name, value)
            with pytest.raises(ArgumentTypeError, match=rf"^{name}='x': should be a number"):
                other.build_vocab(SENTENCES, **{} if name == "max_vocab_size" else {name: 0})  # gensim: not given


@looped("keys, kind, message", [
    ({"end_alpha": 0.5}, ArgumentError, "end_alpha=0.5: train.min_lr: 0.5: is above train.lr: 0.025, "),
    ({"start_alpha": 1e-6}, ArgumentError, "min_alpha=0.0001: train.min_lr: 0.0001: is above train.lr: 1e-06, "),
    ({"epochs": 1.5, "compute_loss": True}, ArgumentTypeError, "epochs=1.5: "),
    ({"start_alpha": 0.5, "epochs": 0}, ValueError, "You must specify an explicit epochs count"),
    ({"end_alpha": 0.01, "corpus_iterable": [3]}, DataError, "sentences: every item should be a list of words")])
def test_a_refused_call_of_train_leaves_the_model_as_it_was(keys: dict[str, Any], kind: type[Exception], message: str
                                                            ) -> None:
    for cls in (Word2Vec, FastText):
        model, same = (cls(SENTENCES, **SMALL, **{"bucket": 20} if cls is FastText else {}) for _ in range(2))
        with pytest.raises(kind) as caught:
            model.train(**{"corpus_iterable": SENTENCES, "total_examples": 40, "epochs": 1} | keys)
        assert str(caught.value).startswith(message)
        assert (model.alpha, model.min_alpha, model.epochs, model.compute_loss) == (0.025, 0.0001, 1, False)
        for each in (model, same):
            each.train(SENTENCES, total_examples=40, epochs=1)
        assert np.array_equal(model.wv.vectors, same.wv.vectors)


def test_a_missing_model_is_a_file_that_is_not_found(tmp_path: Path) -> None:
    for kind in (Word2Vec, FastText):
        with pytest.raises(FileNotFoundError) as caught:
            kind.load(tmp_path / "missing")
        assert isinstance(caught.value, DataError) and str(caught.value).startswith(f"{tmp_path / 'missing'}: cannot ")
        assert "\n" not in str(caught.value)
    with pytest.raises(EmbtrainError) as caught_folder:
        Word2Vec.load(tmp_path)
    assert not isinstance(caught_folder.value, FileNotFoundError)


def test_a_sample_of_none_is_no_subsampling(tmp_path: Path) -> None:
    model, *zeros = (Word2Vec(SENTENCES, **{**SMALL, "sample": sample}) for sample in (None, 0, False, np.float32(0)))
    assert all(np.array_equal(model.wv.vectors, zero.wv.vectors) for zero in zeros)
    model.save(tmp_path / "model")
    assert Word2Vec.load(tmp_path / "model").sample is None
