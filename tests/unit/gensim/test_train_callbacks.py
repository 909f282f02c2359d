"""Callbacks that change a model between two epochs, against gensim's classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gensim.models
import numpy as np
import pytest
from gensim.models.callbacks import CallbackAny2Vec
from helpers.looped import looped

from embtrain.gensim.errors import ArgumentError, ArgumentTypeError
from embtrain.gensim.models.fasttext import FastText
from embtrain.gensim.models.word2vec import Word2Vec
from embtrain.gensim.training import EpochTrainer
from embtrain.train.checks.divergence_remedies import DivergedError

pytestmark = pytest.mark.long

SMALL: dict[str, Any] = {"vector_size": 8, "min_count": 1, "window": 3, "sample": 0, "epochs": 4, "sg": 1, "workers": 1}
CLASSES: list[tuple[Any, Any, dict[str, Any]]] = [
    (Word2Vec, gensim.models.Word2Vec, {}), (FastText, gensim.models.FastText, {"bucket": 20})]
Change = Callable[[Any, int], None]  # receives the model and the number of the epoch, from 0


def texts() -> list[list[str]]:
    draw = np.random.default_rng(3)
    return [[f"{'ab'[i % 2]}{j}" for j in draw.integers(12, size=9)] for i in range(300)]


class Changes(CallbackAny2Vec):
    """Calls a function at the end of each epoch, or at its start; records what gensim shows of the rate."""

    def __init__(self, change: Change, at_end: bool = True):
        self.change, self.at_end, self.epoch, self.reached = change, at_end, 0, list[float]()

    def on_epoch_begin(self, model: Any) -> None:
        if not self.at_end:
            self.change(model, self.epoch)

    def on_epoch_end(self, model: Any) -> None:
        self.reached.append(model.min_alpha_yet_reached)
        if self.at_end:
            self.change(model, self.epoch)
        self.epoch += 1


def set_both_in_the_third(model: Any, epoch: int) -> None:
    if epoch == 2:
        model.alpha = model.min_alpha = 1e-6


def set_below_the_minimum(model: Any, epoch: int) -> None:
    model.alpha = 1e-5


def halve(model: Any, epoch: int) -> None:
    model.alpha /= 2


def raise_the_minimum(model: Any, epoch: int) -> None:
    model.min_alpha = 0.01


def step_down(model: Any, epoch: int) -> None:
    model.alpha -= 0.002
    model.min_alpha = model.alpha


def change_nothing(model: Any, epoch: int) -> None:
    model.wv.most_similar("a0")


def set_equal_values(model: Any, epoch: int) -> None:
    model.alpha, model.min_alpha = float(model.alpha), float(model.min_alpha)
    for owner, name in ((model.wv, "vectors"), (model, "syn1neg")):
        setattr(owner, name, getattr(owner, name).copy())


@pytest.mark.parametrize("change", [set_both_in_the_third, set_below_the_minimum, halve, raise_the_minimum, step_down,
                                    change_nothing])
@pytest.mark.parametrize("at_end", [False, True])
def test_the_rate_of_each_epoch_is_that_of_gensim(change: Change, at_end: bool, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    """The text is one batch here and there, so that an epoch has one rate."""
    rates: dict[str, list[float]] = {"gensim": [], "embtrain": []}
    train_job, run_step = gensim.models.Word2Vec._do_train_job, EpochTrainer.run_step

    def keep_theirs(self: Any, sentences: Any, alpha: float, inits: Any) -> Any:
        rates["gensim"].append(alpha)
        return train_job(self, sentences, alpha, inits)

    def keep_ours(self: Any, *args: Any, **keys: Any) -> Any:
        rates["embtrain"].append(self.optimizers[0].param_groups[0]["lr"])
        return run_step(self, *args, **keys)

    monkeypatch.setattr(gensim.models.Word2Vec, "_do_train_job", keep_theirs)
    monkeypatch.setattr(EpochTrainer, "run_step", keep_ours)
    for kind in (gensim.models.Word2Vec, Word2Vec):
        kind(texts(), **SMALL, callbacks=[Changes(change, at_end)])
    assert rates["embtrain"] == pytest.approx(rates["gensim"], rel=1e-12) and len(rates["gensim"]) == 4


@pytest.mark.parametrize("kind, more", [(kind, more) for kind, _, more in CLASSES])
@pytest.mark.parametrize("strategy", [{"sg": 0}, {"negatives": "ace"}, {"sets": {"train.engine": "autograd"}}])
def test_callbacks_that_change_nothing_give_the_same_vectors(kind: Any, more: dict[str, Any], strategy: dict[str, Any]
                                                             ) -> None:
    keys = {**SMALL, **more, **strategy, "epochs": 3}
    plain = kind(texts(), **keys)
    for change in (change_nothing, set_equal_values):
        model = kind(texts(), **keys, callbacks=[Changes(change)])
        assert np.array_equal(model.wv.vectors, plain.wv.vectors) and np.array_equal(model.syn1neg, plain.syn1neg)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("is_in_place", [False, True])
@pytest.mark.parametrize("kind, name", [(Word2Vec, "vectors"), (Word2Vec, "syn1neg"), (FastText, "vectors_vocab"),
                                        (FastText, "vectors_ngrams"), (FastText, "syn1neg")])
def test_the_next_epoch_starts_from_tables_that_a_callback_has_changed(kind: Any, name: str, is_in_place: bool,
                                                                       at_end: bool) -> None:
    """At a rate near 0, the changes are all that happens to a table."""
    def owner(model: Any) -> Any:
        return model if name == "syn1neg" else model.wv

    def halve_table(model: Any, epoch: int) -> None:
        if is_in_place:
            getattr(owner(model), name)[...] *= 0.5
        else:
            setattr(owner(model), name, getattr(owner(model), name).astype(np.float64) / 2)

    model = kind(**SMALL, **({"bucket": 20} if kind is FastText else {}), alpha=1e-18, min_alpha=0)
    model.build_vocab(texts())
    getattr(owner(model), name)[...] = first = np.random.default_rng(1).normal(size=getattr(owner(model), name).shape)
    model.train(texts(), total_examples=300, epochs=4, callbacks=[Changes(halve_table, at_end)])
    assert np.array_equal(getattr(owner(model), name), first.astype(np.float32) / 16)
    if kind is FastText:
        vectors = model.wv.vectors.copy()
        model.wv.adjust_vectors()
        assert np.array_equal(model.wv.vectors, vectors)


def test_training_continues_from_a_changed_table() -> None:
    """As from the same table in a second call, of which only the draws differ."""
    def zero(model: Any, epoch: int) -> None:
        if epoch == 1:
            model.wv.vectors[:] = model.syn1neg[:] = 0

    model = Word2Vec(texts(), **SMALL, callbacks=[Changes(zero)])
    assert not model.wv.vectors.any() and not model.syn1neg.any()  # a gradient at zeros is zero


@pytest.mark.parametrize("ours, theirs, more", CLASSES)
def test_the_rate_that_is_reached_falls_with_the_epochs(ours: Any, theirs: Any, more: dict[str, Any]) -> None:
    callbacks = [Changes(change_nothing), Changes(change_nothing)]
    theirs(texts(), **SMALL, **more, batch_words=20, callbacks=callbacks[:1])  # many jobs, so the last is near the end
    model = ours(texts(), **SMALL, **more, callbacks=callbacks[1:])
    assert callbacks[1].reached == pytest.approx(callbacks[0].reached, abs=1e-4)
    assert callbacks[1].reached == pytest.approx([0.018775, 0.01255, 0.006325, 0.0001])
    assert model.min_alpha_yet_reached == pytest.approx(0.0001)


def test_all_callbacks_see_the_end_of_an_epoch_before_the_next_begins() -> None:
    def order(kind: Any) -> list[str]:
        calls = list[str]()

        class Named(CallbackAny2Vec):
            def __init__(self, name: str):
                self.name = name

            def on_epoch_begin(self, model: Any) -> None:
                calls.append(f"{self.name} begins")

            def on_epoch_end(self, model: Any) -> None:
                calls.append(f"{self.name} ends")

        kind(texts(), **SMALL, callbacks=[Named("a"), Named("b")])
        return calls

    assert order(Word2Vec) == order(gensim.models.Word2Vec)


def add_a_word(model: Any, epoch: int) -> None:
    model.build_vocab([["new"]] * 5, update=True)


def swap_words(model: Any, epoch: int) -> None:
    words = model.wv.index_to_key
    words[3], words[4] = words[4], words[3]


def setting(name: str, value: Any) -> Change:
    return lambda model, epoch: setattr(model, name, value)


@looped("change, message", [
    (setting("window", 5), r"window: a callback changed 3 to 5; callbacks may change alpha, min_alpha and the tables; "
                           r"change other settings before `train`"),
    (setting("negative", 2), "negative: a callback changed 5 to 2; .*"),
    (setting("shrink_windows", False), "shrink_windows: a callback changed True to False; .*"),
    (setting("sg", 0), "sg: a callback changed 1 to 0; .*"), (setting("epochs", 9), "epochs: a callback changed 4 .*"),
    (setting("negatives", "ace"), "negative: .*|negatives: a callback changed 'sgns' to 'ace'; .*"),
    (lambda model, epoch: model.sets.append("train.clip=1"),
     r"sets: a callback changed \[\] to \['train.clip=1'\]; .*"),
    (add_a_word, r"len\(wv\): a callback changed 24 to 25; .*"),
    (setting("alpha", float("nan")), r"alpha=nan: should be a number from 0 to 1e\+18"),
    (setting("min_alpha", -0.1), r"min_alpha=-0.1: should be a number from 0 to 1e\+18"),
    (setting("hs", 1), "hs: a callback changed 0 to 1; .*"),
    (setting("cbow_mean", 0), "cbow_mean: a callback changed 1 to 0; .*"),
    (swap_words, "wv.index_to_key: a callback changed the words or their order; change them before `train`"),
    (lambda model, epoch: setattr(model.wv, "vectors_lockf", np.zeros(1)), "wv.vectors_lockf: locked vectors are .*"),
    (lambda model, epoch: setattr(model.wv, "vectors", model.wv.vectors[:, :3]), r"wv.vectors: shape \(24, 3\): .*")])
def test_other_changes_are_one_line(change: Change, message: str) -> None:
    for at_end in (False, True):
        model = Word2Vec(**SMALL)
        model.build_vocab(texts())
        callback = Changes(lambda model, epoch: change(model, epoch) if epoch == 1 else None, at_end)
        with pytest.raises(ArgumentError, match=f"^(?:{message})$") as caught:
            model.train(texts(), total_examples=300, epochs=4, callbacks=[callback])
        assert "\n" not in str(caught.value) and callback.epoch == 1 + at_end


@looped("value", ["0.01", None, [0.01, 0.02]])
def test_a_rate_that_is_not_a_number_is_one_line(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"^alpha=.*: should be a number, got a "):
        Word2Vec(texts(), **SMALL, callbacks=[Changes(setting("alpha", value))])


def test_a_rate_of_0_keeps_the_tables() -> None:
    def stop(model: Any, epoch: int) -> None:
        if epoch == 1:
            model.alpha = model.min_alpha = 0
            tables.append((model.wv.vectors.copy(), model.syn1neg.copy()))

    tables = list[tuple[np.ndarray, np.ndarray]]()
    model = Word2Vec(texts(), **SMALL, callbacks=[Changes(stop, at_end=True)])
    assert model.train_count == 1 and model.min_alpha_yet_reached == 0
    for earlier, table in zip(tables[0], (model.wv.vectors, model.syn1neg), strict=True):
        np.testing.assert_array_equal(table, earlier)


def test_a_change_after_the_last_epoch_is_kept() -> None:
    def change(model: Any, epoch: int) -> None:
        model.window, model.alpha = 5, 0

    model = Word2Vec(texts(), **{**SMALL, "epochs": 1}, callbacks=[Changes(change)])
    assert (model.window, model.alpha) == (5, 0)


class First(CallbackAny2Vec):
    """Calls a function once before the first epoch: in on_train_begin, or in on_epoch_begin."""

    def __init__(self, change: Change, is_in_epoch: bool):
        self.change, self.is_in_epoch, self.n_calls = change, is_in_epoch, 0

    def on_train_begin(self, model: Any) -> None:
        if not self.is_in_epoch:
            self.change(model, 0)

    def on_epoch_begin(self, model: Any) -> None:
        if self.is_in_epoch and self.n_calls == 0:
            self.change(model, 0)
        self.n_calls += 1


@looped("is_in_epoch", [False, True])
@looped("words", [["a1", "b1"], [f"z{i}" for i in range(30)]])
def test_the_text_is_read_with_the_vocabulary_that_a_callback_has_built(words: list[str], is_in_epoch: bool
                                                                        ) -> None:
    model = Word2Vec(**{**SMALL, "epochs": 1})
    model.build_vocab(texts())
    n_expected = sum(word in words for line in texts() for word in line)
    callback = First(lambda model, epoch: model.build_vocab([words] * 9), is_in_epoch)
    assert model.train(texts(), total_examples=300, epochs=1, callbacks=[callback]) == (n_expected, 2700)
    assert sorted(model.wv.index_to_key) == sorted(words)


@looped("is_in_epoch", [False, True])
@looped("name, value", [("hs", 1), ("hs", 2), ("cbow_mean", 5), ("cbow_mean", 0), ("sg", 7), ("negative", 0),
                        ("seed", -1), ("shrink_windows", "x"), ("epochs", None), ("sample", "x"), ("window", 0)])
def test_a_change_before_the_first_epoch_is_refused_as_one_before_train(name: str, value: Any, is_in_epoch: bool
                                                                        ) -> None:
    """cbow_mean=0 has no effect on skip-gram, so CBOW is trained."""
    lines = []
    for callbacks in ([], [First(setting(name, value), is_in_epoch)]):
        model = Word2Vec(**{**SMALL, "sg": 0})
        model.build_vocab(texts())
        if not callbacks:
            setattr(model, name, value)
        before = model.wv.vectors.copy()
        with pytest.raises((ValueError, TypeError)) as caught:
            model.train(texts(), total_examples=300, epochs=model.epochs, callbacks=callbacks)
        assert np.array_equal(model.wv.vectors, before)
        lines.append((caught.type, str(caught.value)))
    assert lines[0] == lines[1] and "\n" not in lines[0][1] and name in lines[0][1]


@looped("is_in_epoch", [False, True])
@looped("name, value", [("window", 5), ("negative", 2), ("sg", 0), ("epochs", 3), ("shrink_windows", False)])
def test_a_change_before_the_first_epoch_applies_to_all(name: str, value: Any, is_in_epoch: bool) -> None:
    tables = []
    for callbacks in ([], [First(setting(name, value), is_in_epoch)]):
        model = Word2Vec(**SMALL)
        model.build_vocab(texts())
        if not callbacks:
            setattr(model, name, value)
        model.train(texts(), total_examples=300, epochs=model.epochs, callbacks=callbacks)
        tables.append(model.wv.vectors)
    assert np.array_equal(*tables)


def set_both_to_0(model: Any, epoch: int) -> None:
    model.alpha = model.min_alpha = 0


@pytest.mark.parametrize("more", [{}, {"sg": 0}, {"sets": {"train.engine": "autograd", "train.optimizer": "adam"}}])
@pytest.mark.parametrize("is_in_epoch", [False, True])
def test_a_rate_of_0_from_the_first_epoch_keeps_the_tables(more: dict[str, Any], is_in_epoch: bool) -> None:
    model = Word2Vec(**SMALL | more)
    model.build_vocab(texts())
    before = model.wv.vectors.copy(), model.syn1neg.copy()
    model.train(texts(), total_examples=300, epochs=2, callbacks=[First(set_both_to_0, is_in_epoch)])
    assert np.array_equal(model.wv.vectors, before[0]) and np.array_equal(model.syn1neg, before[1])
    assert model.train_count == 1 and model.min_alpha_yet_reached == 0


def all_events(change: Change) -> list[CallbackAny2Vec]:
    return [First(change, False), First(change, True), Changes(change)]


@looped("name, value", [("alpha", 1e30), ("min_alpha", 1e30), ("alpha", -1e-9), ("min_alpha", float("inf"))])
def test_a_rate_that_cannot_work_is_refused_at_each_event(name: str, value: float) -> None:
    for callback in all_events(setting(name, value)):
        with pytest.raises(ArgumentError) as caught:
            Word2Vec(texts(), **SMALL, callbacks=[callback])
        assert str(caught.value) == f"{name}={value}: should be a number from 0 to 1e+18"


def test_a_rate_of_a_call_is_named_as_the_argument() -> None:
    model = Word2Vec(**SMALL)
    model.build_vocab(texts())
    for name in ("start_alpha", "end_alpha"):
        with pytest.raises(ArgumentError, match=rf"^{name}=-1: should be a number from 0 to 1e\+18$"):
            model.train(texts(), total_examples=300, epochs=1, **{name: -1})


@looped("name, value", [("alpha", 1e17), ("min_alpha", 1e17), ("alpha", 900.0)])
def test_a_run_that_diverges_names_the_rate_that_was_set(name: str, value: float) -> None:
    """900 is not extreme: the hint names the rate too."""
    def error(keys: dict[str, Any], **call: Any) -> str:
        model = Word2Vec(**SMALL | keys)
        model.build_vocab(texts())
        model.wv.vectors[:] = 1e5
        with pytest.raises(DivergedError) as caught:
            model.train(texts(), total_examples=300, epochs=4, **call)
        assert "train.lr" not in str(caught.value) and "\n" not in str(caught.value)
        return str(caught.value)

    lines = [error({}, callbacks=[callback]) for callback in all_events(setting(name, value))]
    if name == "alpha":
        lines.append(error({name: value}))
        assert error({}, start_alpha=value).startswith("start_alpha: ")
    problem = f"{name}: the " if value < 1000 else f"{name}: {value:g}: the "
    assert not [line for line in lines if not line.startswith(problem)]
    assert value > 1000 or not [line for line in lines if f"; lower {name}, or set " not in line]
