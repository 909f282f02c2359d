"""gensim's FastText with the training of embtrain: CBOW or skip-gram with character n-grams [bojanowski2017].

Queries, the vocabulary and `wv`, a FastTextKeyedVectors, are gensim's own code, as in word2vec.py.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gensim.models import _fasttext_bin
from gensim.models.fasttext import FastText as GensimFastText, FastTextKeyedVectors

from embtrain.common.errors import DataError
from embtrain.common.files import write_atomically
from embtrain.common.output_paths import resolve_output_link
from embtrain.data.text.corpus import MAX_WINDOW
from embtrain.data.vectors.fasttext_file import read_fasttext
from embtrain.data.vectors.fasttext_model import LOSSES, MODELS, FastTextModel, FastTextSettings
from embtrain.data.vectors.files import MAX_WORD, is_word
from embtrain.data.vectors.open import ReadOptions, default_max_bytes
from embtrain.experiment.api import Sets
from embtrain.gensim.arguments import sample_threshold
from embtrain.gensim.errors import ArgumentError, ArgumentTypeError, SentencesError, settings_of_file
from embtrain.gensim.models.word2vec import Sentences, Word2Vec
from embtrain.gensim.rollback import unchanged_on_error
from embtrain.gensim.theirs import get_name, names_for_star
from embtrain.gensim.values import as_whole, check_integer, checked_output, checked_path
from embtrain.gensim.vectors import add_words, check_shapes, word_counts
from embtrain.train.config import MAX_EPOCHS

__all__ = ["FastText", "FastTextKeyedVectors", "load_facebook_model", "load_facebook_vectors",  # noqa: PLE0604
           "save_facebook_model", *names_for_star("gensim.models.fasttext")]

_log = logging.getLogger("embtrain")


def __getattr__(name: str) -> Any:
    return get_name("gensim.models.fasttext", name)


class FastText(Word2Vec, GensimFastText):
    """gensim's FastText, trained by embtrain: CBOW or skip-gram with character n-grams and any strategy.

    The arguments are gensim's, and `negatives`, `sets`, sg, negative and ns_exponent those of Word2Vec here. min_n,
    max_n: characters of an n-gram, < and > around the word included; without n-grams if max_n < min_n. bucket: rows
    that n-grams are hashed to, as in fastText. word_ngrams: 1.

    `wv.vectors_vocab` and `wv.vectors_ngrams` are the trained tables, `wv.vectors` the means of their rows. Same seed,
    one worker: bitwise the same vectors. Raises the errors of Word2Vec.
    """

    kind = "FastText"

    def __init__(self, sentences: Sentences | None = None, corpus_file: str | None = None, sg: int = 0,
                 hs: int = 0, vector_size: int = 100, alpha: float = 0.025, window: int = 5, min_count: int = 5,
                 max_vocab_size: int | None = None, word_ngrams: int = 1, sample: float | None = 1e-3,
                 seed: int | None = 1, workers: int = 3, min_alpha: float = 0.0001, negative: int | None = None,
                 ns_exponent: float | None = None, cbow_mean: int = 1, hashfxn: Callable[..., int] = hash,
                 epochs: int = 5, null_word: int = 0, min_n: int = 3, max_n: int = 6, sorted_vocab: int = 1,
                 bucket: int = 2_000_000, trim_rule: Callable[..., int] | None = None, batch_words: int = 10_000,
                 callbacks: Sequence[Any] = (), max_final_vocab: int | None = None, shrink_windows: bool = True, *,
                 negatives: str | os.PathLike = "sgns", sets: Sets | None = None):
        given = locals()
        for name in ("word_ngrams", "min_n", "max_n", "bucket"):
            check_integer(name, given[name])
        if min_n < 0:
            raise ArgumentError(f"min_n={min_n}: should be 0 or more")
        if word_ngrams != 1:
            raise ArgumentError(f"word_ngrams={word_ngrams}: n-grams of words are not implemented; set word_ngrams=1")
        has_ngrams = bucket > 0 and max_n >= max(min_n, 1)
        subwords = {"min_n": max(min_n, 1), "max_n": max_n, "bucket": bucket} if has_ngrams else None
        keys = self._prepare(given, subwords)
        GensimFastText.__init__(self, min_n=min_n, max_n=max_n, bucket=bucket if has_ngrams else 0, **keys)

    @unchanged_on_error
    def prepare_vocab(self, *args: Any, **keys: Any) -> dict[str, int]:
        """Choose the words of the vocabulary. SentencesError for words without n-grams: tuples and lone surrogates."""
        report = super().prepare_vocab(*args, **keys)
        words: list[Hashable] = self.wv.index_to_key if self.wv.bucket else []
        for word in words:
            _check_ngrams(word)
        return report

    def reset_from(self, other_model: Word2Vec) -> None:
        """Raise ArgumentError: gensim's code replaces `wv` with KeyedVectors, which have no n-grams."""
        raise ArgumentError("reset_from: is not implemented for FastText; call build_vocab, or build_vocab_from_freq "
                            "with the counts of the other model")

    def _tables(self) -> dict[str, int]:
        return {"vectors_vocab": len(self.wv), "vectors_ngrams": self.wv.bucket}

    def _vectors_changed(self) -> None:
        super()._vectors_changed()
        self.wv.adjust_vectors()


def _check_ngrams(word: Hashable) -> None:
    """Raise SentencesError for a word whose text fastText cannot cut into n-grams, which are of UTF-8."""
    if isinstance(word, tuple):
        raise SentencesError(f"sentences: the word {word!r:.60}: a tuple has no n-grams; train on strings, or set "
                             "bucket=0")
    try:
        str(word).encode()
    except UnicodeEncodeError as error:
        raise SentencesError(f"sentences: the word {word!r:.60}: UTF-8 cannot encode it, so it has no n-grams; remove "
                             "lone surrogates, or set bucket=0") from error


def load_facebook_model(path: str | os.PathLike[str], encoding: str = "utf-8") -> FastText:
    """Read a model of fastText (.bin) with all its tables, skip-gram or CBOW, to train it further.

    DataError for a model that was not trained with negative sampling, for settings in the file that FastText refuses,
    and for the faults that embtrain/data/vectors/fasttext_file.py finds.
    """
    given = _read(path, encoding, with_output=True)
    s = given.settings
    remedy = "read its vectors with load_facebook_vectors"
    if s.loss != LOSSES["ns"] or s.neg < 1:
        raise DataError(f"{path}: was not trained with negative sampling, so its output matrix cannot be trained "
                        f"further; {remedy}")
    with settings_of_file(path, remedy):
        model = _untrained(s)
    add_words(model.wv, given.words, given.counts, given.word_rows, given.ngram_rows[:model.wv.bucket])
    model.syn1neg, model.corpus_total_words = given.output, int(given.counts.sum())
    return model


def _untrained(s: FastTextSettings) -> FastText:
    """Return a model without a vocabulary. ArgumentError for settings that FastText refuses."""
    return FastText(vector_size=s.dim, window=s.ws, epochs=s.epoch, negative=s.neg, sg=int(s.model == MODELS["sg"]),
                    bucket=s.bucket, min_count=s.min_count, sample=s.t, min_n=s.minn, max_n=s.maxn)


def save_facebook_model(model: GensimFastText, path: str | os.PathLike[str] | BinaryIO, encoding: str = "utf-8",
                        lr_update_rate: int = 100, word_ngrams: int = 1) -> None:
    """Write a model for fastText (.bin) with gensim's code; `path` is a path, or a stream.

    A path is written atomically. Nothing is written for a model that is refused: ArgumentTypeError for a model of
    another class and for settings and counts that are not numbers, ArgumentError without a vocabulary or an output
    table, for a table of another shape or with numbers that are not real or not finite, for settings and counts that
    the file cannot store or load_facebook_model refuses, and for words that readers leave out or refuse.
    A window or a number of epochs that load_facebook_model refuses is written as the nearest that it accepts.
    """
    if not hasattr(path, "write"):  # not a stream
        path = checked_output("path", path)
    _check_facebook_model(model, encoding)
    fields = asdict(_facebook_settings(model, lr_update_rate, word_ngrams))
    model = _as_stored(model)
    if isinstance(path, Path):
        with write_atomically(resolve_output_link(path, "path")) as file:
            _fasttext_bin.save(model, file, fields, encoding)
    else:
        _fasttext_bin.save(model, path, fields, encoding)


def _check_facebook_model(model: GensimFastText, encoding: str) -> None:
    """Raise an error for a model that gensim's code cannot write, or whose file could not be read."""
    if not isinstance(model, GensimFastText):
        raise ArgumentTypeError(f"model: a {type(model).__name__} cannot be written for fastText; give a FastText")
    if not len(model.wv):
        raise ArgumentError("model: has no vocabulary; call build_vocab first")
    for name in ("negative", "hs"):
        as_whole(name, getattr(model, name, None), np.int32)
    as_whole("corpus_total_words", getattr(model, "corpus_total_words", None), np.int64)
    if model.hs and not hasattr(model, "syn1"):
        raise ArgumentError(f"model: hs={model.hs}, but it has no output table of the hierarchical softmax; set hs=0")
    if not (model.negative or model.hs) or not hasattr(model, _output_name(model)):
        raise ArgumentError(f"model: has no output table of negative sampling (negative={model.negative}); set "
                            "negative=5 before build_vocab")
    for word in model.wv.index_to_key:
        if not isinstance(word, str):
            raise ArgumentError(f"model: the word {word!r:.60}: a file of fastText contains only strings; train on "
                                "strings")
        try:
            is_read = 0 < len(text := word.encode(encoding)) <= MAX_WORD and is_word(text, encoding)
        except UnicodeEncodeError as error:
            raise ArgumentError(f"encoding={encoding!r}: cannot encode the word {word!r:.60}; set encoding=\"utf-8\""
                                ) from error
        except LookupError as error:
            raise ArgumentError(f"encoding={encoding!r}: is not an encoding; set encoding=\"utf-8\"") from error
        if not is_read:
            raise ArgumentError(f"model: the word {word!r:.60}: should be 1 to {MAX_WORD:,} bytes of {encoding} "
                                "without tab, NUL and other control characters; use UTF-8, and other words")


def _facebook_settings(model: GensimFastText, lr_update_rate: int, word_ngrams: int) -> FastTextSettings:
    """Return the settings that are written. ArgumentError for those that the file or load_facebook_model refuses."""
    names = ("vector_size", "window", "epochs", "min_count", "negative", "hs", "sg")
    values = {name: getattr(model, name, None) for name in names} | {
        name: getattr(model.wv, name, None) for name in ("bucket", "min_n", "max_n")} | {
        "lr_update_rate": lr_update_rate, "word_ngrams": word_ngrams}
    number = {name: as_whole(name, value, np.int64 if name in ("window", "epochs") else np.int32)
              for name, value in values.items()}  # _nearest reduces these two
    sample_threshold(model.sample, 1)  # refuses other values than numbers
    settings = FastTextSettings(
        dim=number["vector_size"], ws=_nearest(number, "window", MAX_WINDOW), min_count=number["min_count"],
        epoch=_nearest(number, "epochs", MAX_EPOCHS), neg=number["negative"], word_ngrams=number["word_ngrams"],
        loss=LOSSES["hs" if number["hs"] else "ns"], model=MODELS["sg" if number["sg"] else "cbow"],
        bucket=number["bucket"], minn=number["min_n"], lr_update_rate=number["lr_update_rate"],
        t=float(model.sample or 0), maxn=number["max_n"] if number["bucket"] else 0)  # without buckets, readers refuse
    _untrained(replace(settings, neg=settings.neg or 5))  # of a model with hs, the vectors alone are read
    return settings


def _nearest(numbers: Mapping[str, int], name: str, maximum: int) -> int:
    """Return a number, or the nearest value from 1 to `maximum` with a warning."""
    value = numbers[name]
    if value != (nearest := min(max(value, 1), maximum)):
        _log.warning("save_facebook_model: %s=%d: is written as %d, because load_facebook_model reads 1 to %d", name,
                     value, nearest, maximum)
    return nearest


def _output_name(model: GensimFastText) -> str:
    return "syn1neg" if model.negative else "syn1"


def _as_stored(model: GensimFastText) -> GensimFastText:
    """Return a shallow copy with tables and counts as fastText stores them.

    ArgumentError for wrong shapes, for NaN, and for counts that are missing or that word_counts refuses.
    """
    copied = copy.copy(model)
    copied.wv = copy.copy(model.wv)
    output, V = _output_name(model), len(model.wv)
    copied.wv.expandos = {"count": word_counts(model.wv)}
    if (n_counts := len(model.wv.expandos.get("count", ()))) < V:
        raise ArgumentError(f'wv.expandos["count"]: {n_counts:,} counts: should be {V:,}, one for each word; set an '
                            "array of this length")
    tables = {"wv.vectors_vocab": (model.wv.vectors_vocab, V), "wv.vectors_ngrams": (
        model.wv.vectors_ngrams, model.wv.bucket), output: (getattr(model, output), V)}
    check_shapes(tables, V, model.vector_size)
    for label in tables:
        owner, name = (copied.wv if label.startswith("wv.") else copied), label.removeprefix("wv.")
        if (kind := np.asarray(getattr(owner, name)).dtype).kind not in "biuf":
            raise ArgumentError(f"{label}: an array of {kind}: should be real numbers, as the file stores them; set a "
                                "float32 array")
        with np.errstate(over="ignore"):  # reported below
            table = np.ascontiguousarray(getattr(owner, name), "<f4")
        if len(bad := np.flatnonzero(~np.isfinite(table).all(1))):
            raise ArgumentError(f"{label}[{bad[0]}]: contains NaN, infinity or a number that float32 cannot "
                                "hold; set finite numbers")
        setattr(owner, name, table)
    return copied


def load_facebook_vectors(path: str | os.PathLike[str], encoding: str = "utf-8") -> FastTextKeyedVectors:
    """Read the vectors of a fastText model (.bin), skip-gram or CBOW. Raises the errors of load_facebook_model."""
    given = _read(path, encoding, with_output=False)
    s = given.settings
    vectors = FastTextKeyedVectors(s.dim, s.minn, s.maxn, s.bucket if s.has_ngrams else 0)
    add_words(vectors, given.words, given.counts, given.word_rows, given.ngram_rows[:vectors.bucket])
    return vectors


def _read(path: str | os.PathLike[str], encoding: str, with_output: bool) -> FastTextModel:
    return read_fasttext(checked_path("path", path), default_max_bytes(), ReadOptions(encoding=encoding), with_output)
