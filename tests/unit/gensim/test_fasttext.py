"""embtrain.gensim.FastText against gensim's class (vocabulary, n-grams, files) and against a run of embtrain."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gensim.models
import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.models.callbacks import CallbackAny2Vec
from gensim.models.fasttext import FastTextKeyedVectors, load_facebook_model as their_model
from gensim.utils import RULE_DEFAULT, RULE_DISCARD
from helpers.looped import looped

from embtrain.common import progress
from embtrain.common.config import as_sets
from embtrain.common.errors import DataError, EmbtrainError, UsageError
from embtrain.data.vectors.vectors import Vectors
from embtrain.experiment import resolve
from embtrain.experiment.run.run import train_in_memory
from embtrain.gensim import saved
from embtrain.gensim.models.fasttext import FastText, load_facebook_model, load_facebook_vectors, save_facebook_model
from embtrain.gensim.models.word2vec import Word2Vec
from embtrain.models.words.skipgram import SkipGram

pytestmark = pytest.mark.long

SMALL: dict[str, Any] = {"vector_size": 8, "min_count": 1, "window": 3, "sample": 0, "epochs": 2, "sg": 1, "workers": 1,
                         "bucket": 70}
TOPICS = [["warm", "warmer", "warmth", "sunny", "heat"], ["apple", "pear", "plum", "peach", "fruit"]]
TABLES = ("vectors_vocab", "vectors_ngrams", "vectors")
UNSEEN = ["warming", "apples", "北京"]


def topics(n: int = 200) -> list[list[str]]:
    """Sentences over one of two topics."""
    draw = np.random.default_rng(3)
    return [draw.choice(TOPICS[i % 2], 7, p=[.4, .3, .15, .1, .05]).tolist() for i in range(n)]


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(getattr(a.wv, name), getattr(b.wv, name)) for name in TABLES) and np.array_equal(
        a.syn1neg, b.syn1neg)


# --- the interface is gensim's --------------------------------------------------------------------------------------

def test_arguments_have_the_names_and_the_order_of_gensim() -> None:
    theirs, ours = (list(inspect.signature(cls.__init__).parameters.values())
                    for cls in (gensim.models.FastText, FastText))
    assert [p.name for p in ours] == [*(p.name for p in theirs), "negatives", "sets"]
    other = {p.name for p, q in zip(theirs, ours, strict=False) if p.default != q.default}
    assert other == {"negative", "ns_exponent"}


def test_the_import_has_the_paths_of_gensim() -> None:
    import embtrain.gensim as module

    assert module.FastText is module.models.FastText is module.models.fasttext.FastText is FastText


@pytest.mark.parametrize("more", [{}, {"min_n": 2, "max_n": 2}, {"max_n": 2}, {"bucket": 0}, {"min_count": 50}])
def test_vocabulary_and_first_tables_are_those_of_gensim(more: dict[str, Any]) -> None:
    theirs, ours = gensim.models.FastText(**{**SMALL, **more}), FastText(**{**SMALL, **more})
    for model in (theirs, ours):
        model.build_vocab(topics())
    assert isinstance(ours, gensim.models.FastText) and type(ours.wv) is FastTextKeyedVectors
    assert ours.wv.index_to_key == theirs.wv.index_to_key and ours.wv.bucket == theirs.wv.bucket
    assert same(ours, theirs)


# --- training is embtrain's -----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("negatives", "more", "sets"), [
    ("sgns", {}, {}), ("ace", {}, {}),
    ("sgns", {"min_n": 2, "max_n": 4, "bucket": 33, "sets": {"negatives.share_draws_by": "window"}},
     {"model.subword.min_n": 2, "model.subword.max_n": 4, "model.subword.buckets": 33,
      "negatives.share_draws_by": "window"})])
def test_tables_are_those_of_a_run_with_the_keys_of_the_page(negatives: str, more: dict[str, Any], sets: dict[str, Any],
                                                             tmp_path: Path) -> None:
    """From the same first tables, bit for bit."""
    run_keys = {"model.dim": 8, "text.window": 3, "text.sample": 0, "text.min_count": 1, "train.epochs": 2,
                "text.valid": 0, "text.test": 0, "evaluate.heldout_pairs": 0, "evaluate.benchmarks": [],
                "evaluate.neighbours": [], "text.tokenizer": "whitespace", "text.lower": False,
                "model.subword.buckets": 70, **sets}
    (tmp_path / "text.txt").write_text("".join(" ".join(line) + "\n" for line in topics()), encoding="utf-8")
    first, build = dict[str, Any](), SkipGram.__init__

    def keep_first(self: Any, *args: Any) -> None:
        build(self, *args)
        first["u"], first["words"] = self.u.detach().numpy().copy(), args[1].words

    progress.quiet = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SkipGram, "__init__", keep_first)
        run = train_in_memory(resolve(negatives, corpus=str(tmp_path / "text.txt"), sets=as_sets(run_keys), seed=1,
                                      threads=1), tmp_path / "run")
    model = FastText(**{**SMALL, **more}, negatives=negatives)
    model.build_vocab(topics())
    V = len(model.wv)
    assert model.wv.index_to_key == list(first["words"])
    model.wv.vectors_vocab[...], model.wv.vectors_ngrams[...] = first["u"][:V], first["u"][V:]
    model.train(topics(), total_examples=model.corpus_count, epochs=model.epochs)
    u = run.model.u.detach().numpy()
    assert np.array_equal(model.wv.vectors_vocab, u[:V]) and np.array_equal(model.wv.vectors_ngrams, u[V:])
    assert np.array_equal(model.syn1neg, run.model.v.detach().numpy()) and not np.array_equal(u, first["u"])


def test_vectors_are_means_of_the_trained_rows_and_unseen_words_have_them_too() -> None:
    model = FastText(topics(), **{**SMALL, "epochs": 20, "alpha": 0.1, "bucket": 2000})
    subwords = Vectors.of(model.wv).subwords
    assert subwords is not None
    words = model.wv.index_to_key + UNSEEN
    np.testing.assert_allclose([model.wv[word] for word in words], subwords.compose(words), rtol=0, atol=1e-6)
    for word, topic in zip(("warming", "apples"), TOPICS, strict=True):
        assert {near for near, _ in model.wv.most_similar(word, topn=3)} <= set(topic)


@looped("words", [[1, 22, 333], [b"a", b"bb", b"ccc"], [1.5, 22.5, None], [np.str_("a"), "bb", True]])
def test_ngrams_of_words_are_those_of_their_text_as_in_gensim(words: list[Any]) -> None:
    keys = {**SMALL, "bucket": 500}
    model, theirs = FastText([words] * 20, **keys), gensim.models.FastText([words] * 20, **keys)
    of_text = FastText([list(map(str, words))] * 20, **keys)
    assert model.wv.index_to_key == theirs.wv.index_to_key
    assert [rows.tolist() for rows in model.wv.buckets_word] == [rows.tolist() for rows in theirs.wv.buckets_word]
    assert all(np.array_equal(getattr(model.wv, name), getattr(of_text.wv, name)) for name in TABLES)


@looped("word, message", [(("a", 1), "a tuple has no n-grams; "), ("\ud800", "UTF-8 cannot encode it, ")])
def test_words_without_ngrams_are_refused_if_they_join_the_vocabulary(word: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"^sentences: the word .*: {message}") as caught:
        FastText([[word, "b"]] * 20, **SMALL)
    assert isinstance(caught.value, DataError)
    assert len(FastText([[word, "b"]] * 20, **{**SMALL, "bucket": 0}).wv) == 2
    rare = [[word], *topics()]
    for more in ({"min_count": 2}, {"max_final_vocab": 10},
                 {"trim_rule": lambda name, *_: RULE_DISCARD if name == word else RULE_DEFAULT}):
        assert set(FastText(rare, **{**SMALL, **more}).wv.index_to_key) == {*TOPICS[0], *TOPICS[1]}


@looped("word", [("a", 1), "\ud800"])
def test_refused_words_leave_the_model_as_it_was(word: Any) -> None:
    model, same_model = (FastText(topics(), **SMALL) for _ in range(2))
    for is_update in (True, False):
        for build, text in ((model.build_vocab, [[word, "new"]] * 5), (model.build_vocab_from_freq, {word: 5, "b": 9})):
            with pytest.raises(DataError, match="the word "):
                build(text, update=is_update)
        for each in (model, same_model):
            each.train(topics(), total_examples=1, epochs=1)
        assert same(model, same_model) and model.wv.key_to_index == same_model.wv.key_to_index
        counts = [(each.corpus_count, each.corpus_total_words, each.raw_vocab, each.wv.expandos["count"].tolist())
                  for each in (model, same_model)]
        assert counts[0] == counts[1]


@pytest.mark.parametrize("more", [{"max_n": 2}, {"bucket": 0}])
def test_without_ngrams_it_is_word2vec(more: dict[str, Any]) -> None:
    model, keys = FastText(topics(), **{**SMALL, **more}), {k: v for k, v in SMALL.items() if k != "bucket"}
    assert np.array_equal(model.wv.vectors, Word2Vec(topics(), **keys).wv.vectors)
    assert "warming" not in model.wv


def test_callbacks_see_the_vectors_of_their_epoch() -> None:
    class Keep(CallbackAny2Vec):
        seen: list[np.ndarray]

        def on_epoch_end(self, model: FastText) -> None:
            self.seen.append(model.wv["warming"].copy())

    keep = Keep()
    keep.seen = []
    model = FastText(topics(), **{**SMALL, "epochs": 3}, callbacks=[keep])
    assert len(keep.seen) == 3 and not np.array_equal(keep.seen[0], keep.seen[2])
    assert np.array_equal(keep.seen[2], model.wv["warming"])


def test_new_words_are_added() -> None:
    model = FastText(topics(), **SMALL)
    before = model.wv["warmly"].copy()
    model.build_vocab([["warmly", "warm"]] * 5, update=True)
    model.train([["warmly", "warm"]] * 5, total_examples=5, epochs=2)
    assert "warmly" in model.wv.key_to_index and not np.array_equal(before, model.wv["warmly"])
    assert model.wv.vectors_vocab.shape == model.syn1neg.shape == (11, 8)


def test_a_model_with_ngrams_is_not_reset() -> None:
    model, other = FastText(topics(), **SMALL), Word2Vec(topics(), min_count=1)
    before = model.wv["warming"].copy()
    with pytest.raises(UsageError, match=r"^reset_from: is not implemented for FastText; call build_vocab, or "):
        model.reset_from(other)
    assert np.array_equal(model.wv["warming"], before)


# --- arguments ------------------------------------------------------------------------------------------------------

@looped("keys, message", [
    ({"word_ngrams": 2}, "word_ngrams=2: n-grams of words are not implemented"),
    ({"sg": 0, "cbow_mean": 0}, "cbow_mean=0: the sum"),
    ({"hs": 1}, "hs=1: the hierarchical"), ({"max_n": 99}, r"max_n=99: .*64"),
    ({"bucket": 2**31}, "bucket=2147483648: "), ({"min_n": -3}, "min_n=-3: should be 0 or more"),
    ({"sets": {"model.subword.pooling": "sum"}}, r"sets: model\.subword: is set by arguments alone"),
    ({"sets": {"model.subword.buckets": "exact"}}, r"sets: model\.subword: is set by arguments alone"),
    ({"max_n": 2, "sets": {"model.subword.max_n": 5}}, r"sets: model\.subword: is set by arguments alone")])
def test_an_argument_that_cannot_work_is_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(EmbtrainError, match=message) as caught:
        FastText(**{**SMALL, **keys})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["vectors_vocab", "vectors_ngrams"])
def test_locked_rows_and_tables_of_another_shape_are_refused(name: str) -> None:
    model = FastText(**SMALL)
    model.build_vocab(topics())
    setattr(model.wv, f"{name}_lockf", np.zeros(1, np.float32))
    with pytest.raises(ValueError, match=rf"wv\.{name}_lockf: locked vectors"):
        model.train(topics(), total_examples=1, epochs=1)
    setattr(model.wv, f"{name}_lockf", np.ones(1, np.float32))
    setattr(model.wv, name, np.ones((3, 8), np.float32))
    with pytest.raises(ValueError, match=rf"wv\.{name}: shape \(3, 8\)"):
        model.train(topics(), total_examples=1, epochs=1)


# --- files ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("more", [{}, {"bucket": 0}, {"min_n": 1, "max_n": 2}])
def test_a_saved_model_continues_as_if_it_had_not_been_saved(more: dict[str, Any], tmp_path: Path) -> None:
    model = FastText(topics(), **{**SMALL, **more})
    model.save(tmp_path / "m")
    again = FastText.load(tmp_path / "m")
    assert same(again, model) and again.wv.index_to_key == model.wv.index_to_key
    for each in (model, again):
        each.train(topics(), total_examples=1, epochs=1)
    assert same(again, model)


def test_a_model_without_a_vocabulary_is_saved(tmp_path: Path) -> None:
    FastText(**SMALL).save(tmp_path / "m")
    model = FastText.load(tmp_path / "m")
    model.build_vocab(topics())
    assert model.wv.vectors_ngrams.shape == (70, 8)


def test_files_of_the_other_class_and_wrong_tables_are_refused(tmp_path: Path) -> None:
    FastText(topics(), **SMALL).save(tmp_path / "f")
    Word2Vec(topics(), sg=1, min_count=1).save(tmp_path / "w")
    with pytest.raises(DataError, match=r"w: is a Word2Vec; read it with"):
        FastText.load(tmp_path / "w")
    with pytest.raises(DataError, match=r"f: is a FastText; read it with"):
        Word2Vec.load(tmp_path / "f")
    content = saved.read(tmp_path / "f", "FastText")
    for ngrams in (None, np.ones((69, 8), np.float32)):
        content.__dict__["ngrams"] = ngrams
        saved.write(tmp_path / "g", content)
        with pytest.raises(DataError, match="g: its table of n-grams does not have `bucket` rows"):
            FastText.load(tmp_path / "g")


@pytest.mark.parametrize("more", [{}, {"max_n": 2}])
def test_a_model_of_fasttext_is_read_and_trained_further(more: dict[str, Any], tmp_path: Path) -> None:
    save_facebook_model(gensim.models.FastText(topics(), **{**SMALL, **more}), str(tmp_path / "m.bin"))
    theirs, ours = their_model(str(tmp_path / "m.bin")), load_facebook_model(tmp_path / "m.bin")
    assert type(ours) is FastText and same(ours, theirs) and ours.wv.index_to_key == theirs.wv.index_to_key
    assert [ours.wv.get_vecattr(w, "count") for w in ours.wv.index_to_key] == [
        theirs.wv.get_vecattr(w, "count") for w in ours.wv.index_to_key]
    vectors = load_facebook_vectors(tmp_path / "m.bin")
    assert type(vectors) is FastTextKeyedVectors and isinstance(vectors, KeyedVectors)
    words = ours.wv.index_to_key + (UNSEEN if not more else [])
    assert all(np.array_equal(vectors[word], theirs.wv[word]) for word in words)
    ours.train(topics(), total_examples=1, epochs=1)
    assert not same(ours, theirs)


def test_our_model_is_written_as_a_model_of_fasttext(tmp_path: Path) -> None:
    model = FastText(topics(), **SMALL)
    save_facebook_model(model, tmp_path / "m.bin")
    with open(tmp_path / "file.bin", "wb") as file:
        save_facebook_model(model, file)
    assert (tmp_path / "file.bin").read_bytes() == (tmp_path / "m.bin").read_bytes()
    assert same(load_facebook_model(tmp_path / "m.bin"), model) and same(their_model(str(tmp_path / "m.bin")), model)


@looped("kind", [FastText, gensim.models.FastText])
@looped("more", [{"bucket": 0}, {"sample": 0.5}, {"max_n": 2}])
def test_a_model_that_is_written_for_fasttext_is_read(kind: type[FastText], more: dict[str, Any], tmp_path: Path
                                                      ) -> None:
    model = kind(topics(), **{**SMALL, **more})
    save_facebook_model(model, tmp_path / "m.bin")
    assert same(load_facebook_model(tmp_path / "m.bin"), model)


@looped("kind, more", [(FastText, {}), (gensim.models.FastText, {}),
                       (gensim.models.FastText, {"hs": 1, "negative": 0})])
def test_settings_and_tables_of_a_model_are_written_as_fasttext_stores_them(kind: type[FastText], more: dict[str, Any],
                                                                            tmp_path: Path) -> None:
    model = kind(topics(), **SMALL, **more)
    save_facebook_model(model, tmp_path / "m.bin")
    model.sample, tables = None, [(model.wv, "vectors_vocab"), (model.wv, "vectors_ngrams"),
                                  (model, "syn1" if more else "syn1neg")]
    for owner, name in tables:
        setattr(owner, name, getattr(owner, name).astype(np.float64))
    save_facebook_model(model, tmp_path / "other.bin")
    assert all(getattr(owner, name).dtype == np.float64 for owner, name in tables)
    assert (tmp_path / "other.bin").read_bytes() == (tmp_path / "m.bin").read_bytes()
    setattr(owner, name, np.ones((3, 8)))
    with pytest.raises(UsageError, match=rf"^{name}: shape \(3, 8\): should be \(10, 8\)"):
        save_facebook_model(model, tmp_path / "other.bin")


@looped("kind, settings, message", [
    (FastText, {"epochs": 0}, "epochs=0: is written as 1, because load_facebook_model reads 1 to 100000"),
    (FastText, {"epochs": 200_000}, "epochs=200000: is written as 100000, "),
    (FastText, {"epochs": 2**40}, "epochs=1099511627776: is written as 100000, "),
    (gensim.models.FastText, {"window": 5000, "epochs": 2}, "window=5000: is written as 1000, "),
    (gensim.models.FastText, {"window": 1000}, "")])
def test_a_window_and_epochs_out_of_range_are_written_as_the_nearest_that_is_read(
        kind: type[FastText], settings: dict[str, int], message: str, tmp_path: Path,
        caplog: pytest.LogCaptureFixture) -> None:
    model = kind(topics(), **SMALL)
    vars(model).update(settings)
    caplog.clear()
    save_facebook_model(model, tmp_path / "m.bin")
    assert caplog.messages == [] if not message else caplog.text.count("save_facebook_model: " + message) == 1
    assert same(load_facebook_model(tmp_path / "m.bin"), model) and {name: getattr(model, name) for name in settings
                                                                     } == settings


def broken(table: str, number: float, kind: type[FastText] = FastText) -> FastText:
    """Return a model with a number in row 4 of a table of float64."""
    model = kind(topics(), **SMALL)
    owner = model if table == "syn1neg" else model.wv
    setattr(owner, table, getattr(owner, table).astype(np.float64))
    getattr(owner, table)[4, 1] = number
    return model


def assigned(name: str, value: Any, kind: type[FastText] = gensim.models.FastText) -> FastText:
    model = kind(topics(), **SMALL)
    setattr(model, name, value)
    return model


def without_output_table(kind: type[Word2Vec]) -> Word2Vec:
    model = kind(**{name: value for name, value in SMALL.items() if name != "bucket"}, negative=0)
    model.build_vocab(topics())
    return model


@looped("model, encoding, message", [
    *((lambda kind=kind: without_output_table(kind), "utf-8",
       r"model: has no output table of negative sampling \(negative=0\); set negative=5 before build_vocab$")
      for kind in (FastText, gensim.models.FastText)),
    *((lambda words=words: FastText([words] * 5, **SMALL), "utf-8",
       "model: the word .*: a file of fastText contains only strings; ")
      for words in ([1, 2], ["a", None], ["a", 2.5], ["a", b"q"])),
    *((lambda word=word: FastText([[word, "b"]] * 5, **SMALL), "utf-8",
       f"model: the word {word!r:.60}: should be 1 to 4,096 bytes of utf-8 without ".replace("\\", r"\\"))
      for word in ("", "a\0", "a\tb", "a\n", "\x7f", "é" * 2049)),
    (lambda: FastText(topics(), **SMALL), "utf-16", "model: the word '.*': should be 1 to 4,096 bytes of utf-16 "),
    (lambda: FastText([["日本"]] * 5, **SMALL), "latin-1", "encoding='latin-1': cannot encode the word '日本'; "),
    (lambda: FastText(topics(), **SMALL), "utf-9", "encoding='utf-9': is not an encoding; "),
    *((lambda case=case: broken(*case), "utf-8", rf"(wv\.)?{case[0]}\[4\]: contains NaN, infinity or a number that ")
      for case in (("vectors_vocab", 1e300), ("vectors_ngrams", np.nan), ("syn1neg", np.inf),
                   ("vectors_ngrams", -1e39, gensim.models.FastText))),
    *((lambda name=name, value=value: assigned(name, value), "utf-8", message) for name, value, message in (
        ("sample", -1.0, r"sample=-1\.0: should be a number from 0 "), ("sample", float("nan"), "sample=nan: "),
        ("negative", -1, "negative=-1: negatives.k: should be "),
        ("window", "x", "window='x': should be a number, got a str"),
        *((name, value, f"{name}=.*: should be a (whole )?number") for name, value in (
            *((name, value) for name in ("min_count", "negative", "hs", "sg", "epochs") for value in (2**70, 1.5, "1")),
            ("min_count", 2**40), ("min_count", np.float32(2**31)), ("negative", np.float32(-2**31 - 257)),
            ("window", np.float32(2**63)), ("corpus_total_words", np.float64(2**63)), ("epochs", np.float32("inf")),
            ("min_count", float("nan")), ("corpus_total_words", np.longdouble(2**62) + np.longdouble(0.5)),
            ("sample", np.array([1, 2])), ("min_count", None), ("corpus_total_words", None))))),
    *((lambda kind=kind: assigned("syn1neg", np.full((10, 8), 1, kind)), "utf-8",
       r"syn1neg: an array of .*: should be real numbers, ") for kind in ("O", "U5", "c16")),
    (lambda: assigned("hs", 1, FastText), "utf-8", "model: hs=1, but it has no output table of the hierarchical "),
    (lambda: FastText(**SMALL), "utf-8", "model: has no vocabulary; call build_vocab first"),
    (lambda: gensim.models.FastText(**SMALL), "utf-8", "model: has no vocabulary; call build_vocab first"),
    (lambda: Word2Vec(topics(), min_count=1), "utf-8", "model: a Word2Vec cannot be written for fastText; ")])
def test_a_model_that_is_refused_is_not_written_for_fasttext(model: Any, encoding: str, message: str, tmp_path: Path
                                                             ) -> None:
    theirs = inspect.signature(gensim.models.fasttext.save_facebook_model).parameters.values()
    ours = inspect.signature(save_facebook_model).parameters.values()
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs]
    (tmp_path / "m.bin").write_text("earlier", encoding="utf-8")
    with pytest.raises(UsageError, match=f"^{message}"):
        save_facebook_model(model(), str(tmp_path / "m.bin"), encoding)
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["earlier"]


@looped("name", ["corpus_total_words", "min_count", "window", "epochs", "sg"])
def test_a_model_without_an_attribute_is_not_written_for_fasttext(name: str, tmp_path: Path) -> None:
    delattr(model := gensim.models.FastText(topics(), **SMALL), name)
    with pytest.raises(UsageError, match=f"^{name}=None: should be a number, got a NoneType$"):
        save_facebook_model(model, tmp_path / "m.bin")


@looped("counts, message", [
    (["x"] * 10, "='x': should be a number, got a str$"), (np.array([2**70] * 10, object), "=11805.*: should be a "),
    (np.full(10, 1.5), "=1.5: should be a whole number from 0 to 9,223,372,036,854,775,807$"),
    (np.full(10, np.nan), "=nan: should be a whole "), (np.array([*range(9), -7]), "=-7: should be a whole "),
    (np.full(10, 2**63, np.uint64), "=9223372036854775808: should be a whole "), ([None] * 10, "=None: should be a "),
    (np.full(10, 1j), "=1j: should be a number, "), (np.ones((10, 2)), r": shape \(10, 2\): should be \(10,\), "),
    (np.int64(3), r": shape \(\): should be \(10,\), ")])
def test_counts_that_cannot_be_stored_are_refused_by_train_and_both_files(counts: Any, message: str, tmp_path: Path
                                                                          ) -> None:
    keys = {name: value for name, value in SMALL.items() if name != "bucket"}
    for kind in (FastText, gensim.models.FastText, Word2Vec):
        model = kind(topics(), **keys)
        model.wv.expandos["count"] = counts
        calls = [lambda model=model: save_facebook_model(model, tmp_path / "m.bin")] * (kind is not Word2Vec)
        if kind is not gensim.models.FastText:
            calls += [lambda model=model: model.save(tmp_path / "m"),
                      lambda model=model: model.train(topics(), total_examples=1, epochs=1)]
        for call in calls:
            with pytest.raises(UsageError, match=rf'^wv\.expandos\["count"\]{message}') as caught:
                call()
            assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


@looped("counts", [{}, {"count": np.ones(3, np.int64)}])
def test_a_word_without_a_count_is_not_written_for_fasttext(counts: dict[str, Any], tmp_path: Path) -> None:
    model = gensim.models.FastText(topics(), **SMALL)
    model.wv.expandos = counts
    message = rf'^wv\.expandos\["count"\]: {3 if counts else 0} counts: should be 10, one for each word; '
    with pytest.raises(UsageError, match=message):
        save_facebook_model(model, tmp_path / "m.bin")
    assert not list(tmp_path.iterdir())


@looped("convert", [list, np.float32, lambda counts: [*counts, 4], lambda counts: counts.astype(object)])
def test_counts_are_written_as_whole_numbers_for_fasttext(convert: Any, tmp_path: Path) -> None:
    model = gensim.models.FastText(topics(), **SMALL)
    expected = model.wv.expandos["count"].copy()
    model.wv.expandos["count"] = counts = convert(expected)
    save_facebook_model(model, tmp_path / "m.bin")
    for vectors in (load_facebook_vectors(tmp_path / "m.bin"), their_model(str(tmp_path / "m.bin")).wv):
        assert np.array_equal(vectors.expandos["count"], expected)
    assert model.wv.expandos["count"] is counts


@looped("name", ["lr_update_rate", "word_ngrams"])
@looped("value", [2**40, 1.5, "x", None])
def test_a_setting_that_the_file_cannot_store_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"^{name}=.*: should be a (whole )?number"):
        save_facebook_model(FastText(topics(), **SMALL), tmp_path / "m.bin", **{name: value})
    assert not list(tmp_path.iterdir())


def test_a_model_without_an_output_table_is_neither_trained_nor_saved(tmp_path: Path) -> None:
    for kind in (FastText, Word2Vec):
        model = without_output_table(kind)
        model.negative = 5
        for call in (lambda model=model: model.train(topics(), total_examples=1, epochs=1),
                     lambda model=model: model.save(tmp_path / "m")):
            with pytest.raises(UsageError, match=r"^syn1neg: is missing, as after build_vocab with negative=0; set "):
                call()
        model.build_vocab(topics())
        model.train(topics(), total_examples=1, epochs=1)


def test_a_vocabulary_that_is_built_with_negative_0_has_no_output_table(tmp_path: Path) -> None:
    """Not that of the earlier vocabulary, whose rows are of other words."""
    keys = {name: value for name, value in SMALL.items() if name != "bucket"}
    for kind in (FastText, Word2Vec):
        for words in (["x", "y", "z"], [*TOPICS[0], *TOPICS[1]]):  # fewer than before, and the same number
            for build in (lambda model, words=words: model.build_vocab([words] * 5),
                          lambda model, words=words: model.build_vocab_from_freq(dict.fromkeys(words, 5)),
                          *([lambda model: model.reset_from(Word2Vec(topics(), **keys))] if kind is Word2Vec else [])):
                model = kind(topics(), **keys)
                model.negative = 0
                build(model)
                model.negative = 5
                for call in (lambda model=model: model.train(topics(), total_examples=1, epochs=1),
                             lambda model=model: model.save(tmp_path / "m")):
                    with pytest.raises(UsageError, match=r"^syn1neg: is missing, as after build_vocab with negative=0"):
                        call()
                model.build_vocab([["new"]] * 5, update=True)
                model.save(tmp_path / "m")
                assert not model.syn1neg.any()
                (tmp_path / "m").unlink()


def test_a_model_that_has_lost_all_words_is_saved_without_tables(tmp_path: Path) -> None:
    for kind in (FastText, Word2Vec):
        model = kind(**{name: value for name, value in SMALL.items() if name != "bucket"})
        model.build_vocab(topics())
        model.scan_vocab([["rare"]])
        model.prepare_vocab(min_count=9)  # prepare_weights has not been called
        model.save(tmp_path / "m")
        assert len(kind.load(tmp_path / "m").wv) == 0


def test_cbow_stays_cbow_and_the_hierarchical_softmax_is_an_error(tmp_path: Path) -> None:
    for kind in (gensim.models.FastText, FastText):
        model = kind(topics(), **{**SMALL, "sg": 0})
        save_facebook_model(model, str(tmp_path / "cbow.bin"))
        found = load_facebook_model(tmp_path / "cbow.bin")
        assert found.sg == 0 and same(found, model)
    before = found.wv.vectors.copy()
    found.train(topics(), total_examples=300, epochs=1)
    assert np.isfinite(found.wv.vectors).all() and not np.array_equal(found.wv.vectors, before)
    save_facebook_model(gensim.models.FastText(topics(), **SMALL, hs=1, negative=0), str(tmp_path / "hs.bin"))
    with pytest.raises(DataError, match=r"hs\.bin: was not trained with negative sampling"):
        load_facebook_model(tmp_path / "hs.bin")
    assert "warmth" in load_facebook_vectors(tmp_path / "hs.bin").key_to_index


@looped("settings, message", [
    ({"epochs": 0}, "its settings cannot be used: epochs=0: train.epochs: should be "),
    ({"window": 1500}, "its settings cannot be used: window=1500: text.window: should be "),
    ({"epochs": 0, "window": 1500}, "its settings cannot be used: window=1500: text.window: should be "),
    ({"sample": -1.0}, "its settings cannot be used: sample=-1.0: should be a number "),
    ({"negative": -1}, "was not trained with negative sampling")])  # gensim cannot write 0
def test_settings_of_a_model_of_fasttext_that_cannot_be_used_are_one_line_with_its_path(settings: dict[str, Any],
                                                                                        message: str, tmp_path: Path
                                                                                        ) -> None:
    model = gensim.models.FastText(topics(), **SMALL)
    for name, value in settings.items():
        setattr(model, name, value)
    gensim.models.fasttext.save_facebook_model(model, str(tmp_path / "m.bin"))
    with pytest.raises(DataError) as caught:
        load_facebook_model(tmp_path / "m.bin")
    assert str(caught.value).startswith(f"{tmp_path / 'm.bin'}: {message}") and "\n" not in str(caught.value)
    assert str(caught.value).endswith("; read its vectors with load_facebook_vectors")
    assert "warmth" in load_facebook_vectors(tmp_path / "m.bin").key_to_index
