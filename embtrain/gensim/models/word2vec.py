"""gensim's Word2Vec with the training of embtrain.

The vocabulary, `wv` and all queries are gensim's own code: this class is a subclass that replaces `train`, `save` and
`load`. What differs is on the page "Use embtrain in a gensim program".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from gensim.models import Word2Vec as GensimWord2Vec
from gensim.models.word2vec import LineSentence, PathLineSentences, Text8Corpus

from embtrain.common.errors import DataError
from embtrain.experiment import Settings
from embtrain.experiment.api import Sets
from embtrain.gensim import arguments, saved, sentences as texts, vectors
from embtrain.gensim.attributes import CheckedSets, StrategyName, StrategyValue, checked_first
from embtrain.gensim.calls import TrainCall
from embtrain.gensim.errors import ArgumentError, settings_of_file
from embtrain.gensim.frequencies import checked_raw_vocab, with_checked_counts
from embtrain.gensim.rollback import restored_unless_trained, unchanged_on_error
from embtrain.gensim.theirs import get_name, names_for_star
from embtrain.gensim.training import Learned
from embtrain.gensim.values import progress_interval

__all__ = ["LineSentence", "PathLineSentences", "Text8Corpus", "Word2Vec",  # noqa: PLE0604
           *names_for_star("gensim.models.word2vec")]

Sentences = Iterable[Sequence[Hashable]]
_NOT_SAVED = ("sentences", "corpus_file", "callbacks", "trim_rule", "hashfxn", "compute_loss")  # of the constructor
_SHARED = ("sentences", "corpus_file", "vector_size", "alpha", "window", "min_count", "max_vocab_size", "sample",
           "seed", "workers", "min_alpha", "sg", "cbow_mean", "hashfxn", "epochs", "null_word", "trim_rule",
           "sorted_vocab", "batch_words", "callbacks", "max_final_vocab", "shrink_windows")
_REBUILT = ("wv", "syn1neg", "random", "hashfxn", "callbacks", "load", "load_fasttext_format", "raw_vocab", "cum_table",
            "lifecycle_events", "_arguments", "_subwords", "_learned", "_resolved")  # not in the state of a file


def __getattr__(name: str) -> Any:
    return get_name("gensim.models.word2vec", name)


class Word2Vec(GensimWord2Vec):
    """gensim's Word2Vec, trained by embtrain: CBOW or skip-gram with any strategy.

    The arguments are gensim's. negatives: a strategy by name, or the path of its YAML. sets: further configuration
    keys, a mapping like {"negatives.share_draws_by": "window"} or KEY=VALUE texts; a key that an argument sets, or
    without effect, is refused. sg: 0 for CBOW, gensim's default, 1 for skip-gram. negative, ns_exponent: None: the
    strategy's own, 5 and .75 for `sgns`. workers: threads, at most one per core and per batch_words words, as in
    gensim: a small text is trained by one, reproducibly. sample: None: 0. seed: None: a random one. cbow_mean: 1 for
    CBOW, no effect on skip-gram. hashfxn has no effect.

    `wv` is gensim's KeyedVectors, `syn1neg` the output table (V, D). Same seed, one worker: bitwise the same vectors.

    Raises UsageError, DataError or ResourceError with one line; also ValueError, TypeError, RuntimeError or
    FileNotFoundError where gensim raises them.
    """

    kind = "Word2Vec"
    alpha: float
    min_alpha: float
    train_count: int
    negatives, sets = StrategyName(), CheckedSets()
    negative, ns_exponent = StrategyValue(), StrategyValue()

    def __init__(self, sentences: Sentences | None = None, corpus_file: str | None = None, vector_size: int = 100,
                 alpha: float = 0.025, window: int = 5, min_count: int = 5, max_vocab_size: int | None = None,
                 sample: float | None = 1e-3, seed: int | None = 1, workers: int = 3, min_alpha: float = 0.0001,
                 sg: int = 0, hs: int = 0, negative: int | None = None, ns_exponent: float | None = None,
                 cbow_mean: int = 1, hashfxn: Callable[..., int] = hash, epochs: int = 5, null_word: int = 0,
                 trim_rule: Callable[..., int] | None = None, sorted_vocab: int = 1, batch_words: int = 10_000,
                 compute_loss: bool = False, callbacks: Sequence[Any] = (), comment: str | None = None,
                 max_final_vocab: int | None = None, shrink_windows: bool = True, *,
                 negatives: str | os.PathLike = "sgns", sets: Sets | None = None):
        keys = self._prepare(locals())
        super().__init__(compute_loss=compute_loss, comment=comment, **keys)

    def _prepare(self, given: Mapping[str, Any], subwords: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Check and store the arguments of a constructor. Returns those that gensim's constructors share.

        subwords: values by the names of arguments.SUBWORD_KEYS. Raises ArgumentError or ArgumentTypeError.
        """
        arguments.check_values(given)
        arguments.n_threads(given["workers"], given["batch_words"], 0)
        self._arguments = {name: value for name, value in given.items()
                           if name not in (*_NOT_SAVED, "self", "__class__", "sets")}
        self._arguments["sets"] = self.sets = arguments.checked_sets(given["sets"], given)
        self._strategy, self._subwords = arguments.read_strategy(given["negatives"]), dict(subwords or {})
        self._arguments["negatives"] = self._strategy
        self._learned: Learned | None = None
        texts.check_rereadable(given["sentences"], given["epochs"] + 1)
        chosen = {name: given[name] for name in ("vector_size", "window", "alpha", "min_alpha", "epochs")}
        arguments.resolve(self._strategy, given["sg"], {
            **chosen, **self._subwords, "shrink_windows": bool(given["shrink_windows"]),
            "sample": arguments.sample_threshold(given["sample"], 1),
            **arguments.set_by_user(given)}, self.sets, 1, 1)
        return {**{name: given[name] for name in _SHARED}, "hs": 0, "ns_exponent": given["ns_exponent"],
                "negative": given["negative"] or 0}

    # -- vocabulary -----------------------------------------------------------------------------------------------

    build_vocab = checked_first(unchanged_on_error(GensimWord2Vec.build_vocab))
    build_vocab_from_freq = checked_first(unchanged_on_error(with_checked_counts(GensimWord2Vec.build_vocab_from_freq)))

    @checked_first
    @unchanged_on_error
    def reset_from(self, other_model: GensimWord2Vec) -> None:
        """Copy the vocabulary of a model, and initialize the tables. ArgumentTypeError, ArgumentError."""
        super().reset_from(vectors.with_copied_words(other_model))

    def scan_vocab(self, corpus_iterable: Sentences | None = None, corpus_file: str | None = None,
                   progress_per: int = 10_000, workers: int | None = None,
                   trim_rule: Callable[..., int] | None = None) -> tuple[int, int]:
        """Count the words of a text. Returns the number of words and of sentences."""
        progress_per = progress_interval(progress_per)
        if corpus_file is None or self.max_vocab_size:  # the reader of files keeps all words
            with texts.counting(trim_rule, self.max_vocab_size) as rule:
                words, count = super().scan_vocab(corpus_iterable, corpus_file, progress_per, workers, rule)
                return int(words), int(count)
        text = texts.read_file(Path(corpus_file))
        self.raw_vocab = dict(zip(text.words, text.counts.tolist(), strict=True))
        return len(text.ids), len(text.sequence) - 1

    @checked_first
    @unchanged_on_error
    def prepare_vocab(self, update: bool = False, keep_raw_vocab: bool = False, trim_rule: Any = None,
                      min_count: Any = None, sample: Any = None, dry_run: bool = False) -> dict[str, int]:
        """Choose the words; a vocabulary that is not an update starts with new tables. Returns gensim's report."""
        if update and not dry_run:
            self.wv.expandos = vectors.word_attributes(self.wv)
        elif not dry_run:
            vectors.remove_words(self.wv, self._tables())
        with checked_raw_vocab(self, trim_rule, update, dry_run or keep_raw_vocab) as rule:
            return dict(super().prepare_vocab(update, keep_raw_vocab, rule, min_count, sample, dry_run))

    def make_cum_table(self, domain: int = 2**31 - 1) -> None:
        """Do nothing: the strategy's source draws the negatives."""

    # -- training -------------------------------------------------------------------------------------------------

    def train(self, corpus_iterable: Sentences | None = None, corpus_file: str | None = None,
              total_examples: int | None = None, total_words: int | None = None, epochs: int | None = None,
              start_alpha: float | None = None, end_alpha: float | None = None, word_count: int = 0,
              queue_factor: int = 2, report_delay: float = 1.0, compute_loss: bool = False,
              callbacks: Sequence[Any] = (), **kwargs: Any) -> tuple[int, int]:
        """Train on a text: `epochs` epochs, while the rate falls from start_alpha to end_alpha.

        The text is read once, whatever the number of epochs, and its words are counted. One of total_examples and
        total_words is required, as in gensim, but its value has no effect. Another call continues from the current
        vectors, with other draws. Returns the trained words and the words of the text, over all epochs.
        """
        arguments.check_values(vars(self) | ({} if epochs is None else {"epochs": epochs}))
        with restored_unless_trained(self):
            first, self.alpha = arguments.call_rate("start_alpha", start_alpha, "alpha", self.alpha)
            last, self.min_alpha = arguments.call_rate("end_alpha", end_alpha, "min_alpha", self.min_alpha)
            self._check_training_sanity(epochs=epochs, total_examples=total_examples, total_words=total_words)
            assert epochs is not None  # checked above
            texts.check_rereadable(corpus_iterable, epochs)
            self._check_corpus_sanity(corpus_iterable=corpus_iterable, corpus_file=corpus_file, passes=epochs)
            self._check_tables()
            self.epochs, self.compute_loss, self.running_training_loss = epochs, compute_loss, 0.0
            return TrainCall(self, callbacks, (first, last)).run(corpus_iterable, corpus_file)

    def _settings(self, total: int, n_words: int, rates: Mapping[str, float]) -> Settings:
        """Return the settings of the next call of `train`.

        total: tokens of the words in the vocabulary. n_words: of the text. rates: first and last rate by argument.
        """
        values = {
            "vector_size": self.vector_size, "window": self.window, "shrink_windows": bool(self.shrink_windows),
            "sample": arguments.sample_threshold(self.sample, total), **rates, "epochs": self.epochs,
            **self._subwords, **arguments.set_by_user(vars(self))}
        exponent = values.pop("ns_exponent", None)
        run = (arguments.checked_sets(self.sets, vars(self)), arguments.call_seed(self.seed, self.train_count),
               arguments.n_threads(self.workers, self.batch_words, n_words))
        settings = arguments.resolve(self._strategy, self.sg, values, *run)
        if exponent is None or getattr(settings.negatives, "exponent", exponent) == exponent:
            return settings
        return arguments.resolve(self._strategy, self.sg, {**values, "ns_exponent": exponent}, *run)

    def _tables(self) -> dict[str, int]:
        """Return the trained tables of `wv` with their numbers of rows, in the order of the rows of the model."""
        return {"vectors": len(self.wv)}

    def _inputs(self) -> list[np.ndarray]:
        return [getattr(self.wv, name) for name in self._tables()]

    def _vectors_changed(self) -> None:
        """Update what depends on the trained tables."""
        self.wv.norms = None

    def _check_shapes(self) -> None:
        """Raise ArgumentError for a table that is missing or does not fit the vocabulary."""
        if not hasattr(self, "syn1neg"):
            raise ArgumentError("syn1neg: is missing, as after build_vocab with negative=0; set negative=5, then call "
                                "build_vocab")
        tables = {f"wv.{name}": (getattr(self.wv, name), n) for name, n in self._tables().items()}
        vectors.check_shapes(tables | {"syn1neg": (self.syn1neg, len(self.wv))}, len(self.wv), self.vector_size)

    def _check_tables(self) -> None:
        """Make the tables float32 arrays that can be written. ArgumentError for locked vectors and wrong shapes."""
        for name in self._tables():
            if (np.asarray(getattr(self.wv, f"{name}_lockf", 1)) != 1).any():  # missing after reset_from
                raise ArgumentError(f"wv.{name}_lockf: locked vectors are not implemented; set every entry to 1")
        self._check_shapes()
        for owner, name in [*((self.wv, name) for name in self._tables()), (self, "syn1neg")]:
            setattr(owner, name, np.require(getattr(owner, name), np.float32, ["C", "W"]))

    def init_weights(self) -> None:
        """Initialize the tables, in build_vocab and reset_from; the state of the source is of the old vocabulary."""
        self.__dict__.pop("syn1neg", None)  # with negative=0, gensim's code keeps that of the old vocabulary
        super().init_weights()
        self._learned = None

    def update_weights(self) -> None:
        """Initialize the rows that words lack in tables and attributes. The source starts again."""
        vectors.resize_attributes(self.wv)
        if not hasattr(self, "syn1neg"):  # after build_vocab with negative=0
            self.syn1neg: Any = np.zeros((0, self.vector_size), np.float32)
        n_rows = len(self.syn1neg)
        super().update_weights()  # adds as many rows as to `wv.vectors`, which wv.add_vectors can have changed
        self.syn1neg = vectors.with_rows(self.syn1neg, max(n_rows, len(self.wv)))
        self._learned = None

    # -- files ----------------------------------------------------------------------------------------------------

    def save(self, fname: str | os.PathLike, separately: Any = None, sep_limit: int = 0, ignore: Any = (),
             pickle_protocol: int = 0) -> None:
        """Save the model to one safetensors file, and create its folder if it is missing. Only `fname` has an effect.

        Raises UsageError if a word is neither text nor an integer, if JSON has no form for another value, or if a table
        has other rows than the vocabulary.
        """
        tables: list[Any] = [None, None, None]
        if len(self.wv):
            self._check_shapes()
            tables = [self.syn1neg, *self._inputs(), None]
        saved.write(fname, saved.SavedModel(
            self.kind, self._arguments, saved.plain_attributes(self, _REBUILT), self.wv.index_to_key,
            vectors.word_counts(self.wv), tables[1], tables[0], tables[2], self._learned))

    @classmethod
    def load(cls, fname: str | os.PathLike, mmap: str | None = None, rethrow: bool = False) -> Self:
        """Load a model that `save` wrote; only `fname` has an effect.

        Raises MissingFileError, or DataError for any other file, e.g. gensim's.
        """
        content = saved.read(fname, cls.kind)
        with settings_of_file(fname, "restore what is missing, or train and save the model again"):
            model = cls(**content.arguments)
        model.__dict__.update(content.state)
        if content.vectors is not None:
            bucket = getattr(model.wv, "bucket", None)
            if getattr(content.ngrams, "shape", None) != (None if bucket is None else (bucket, model.wv.vector_size)):
                raise DataError(f"{fname}: its table of n-grams does not have `bucket` rows; save the model again")
            vectors.add_words(model.wv, content.words, content.counts, content.vectors, content.ngrams)
            model.syn1neg = content.contexts
        model._learned = content.learned
        return model
