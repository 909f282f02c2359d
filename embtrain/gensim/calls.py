"""One call of `train`: its epochs, its callbacks, and the changes that callbacks make to the model.

Callbacks read the model after each epoch. Changes of `alpha`, `min_alpha` and the tables apply from the next epoch on,
as in gensim, whose rate is

    max(min_alpha, alpha − (alpha − min_alpha) · progress)          progress: share of all epochs that is trained

with the values of that epoch. Changes of other settings are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from timeit import default_timer
from typing import Any

from embtrain.common.config.tree import LARGEST
from embtrain.common.files import temporary_folder
from embtrain.data.storage.folders import cache_folder
from embtrain.experiment import Settings
from embtrain.gensim import arguments, sentences as texts, training, vectors
from embtrain.gensim.errors import ArgumentError
from embtrain.gensim.sentences import Ids
from embtrain.gensim.training import Epoch
from embtrain.gensim.values import check_number
from embtrain.train.checks.divergence_remedies import DivergedError

_log = logging.getLogger("embtrain")
# gensim's own `train` reads them in each epoch.
_SETTINGS = "window", "shrink_windows", "negative", "sg", "hs", "cbow_mean", "epochs"


class TrainCall:
    """A call of `train` of a model, whose settings and tables were checked."""

    def __init__(self, model: Any, callbacks: Sequence[Any], rate_names: tuple[str, str]):
        """rate_names: of the first and the last rate in errors, until a callback changes one of them."""
        self.model, self.callbacks = model, callbacks
        self.rate_names, self.rates = rate_names, (model.alpha, model.min_alpha)
        self.started, self.n_trained, self.n_calls = default_timer(), 0, model.train_count + 1

    def run(self, corpus_iterable: Iterable[Sequence[Hashable]] | None, corpus_file: str | None) -> tuple[int, int]:
        """Train. Returns the trained words and the words of the text, over all epochs."""
        model = self.model
        self._call_back("on_train_begin")
        self._call_back("on_epoch_begin")
        if self.callbacks:
            self._check_model()
        (place := cache_folder() / "text").mkdir(parents=True, exist_ok=True)
        with temporary_folder("word2vec-", place) as folder:
            sentences = [] if corpus_iterable is None else corpus_iterable
            self.text: Ids = (
                texts.encode_file(Path(corpus_file), model.wv.key_to_index, folder) if corpus_file is not None
                else texts.encode_sentences(sentences, model.wv.key_to_index, folder))
            counts = vectors.word_counts(model.wv)
            self.n_counted = int(counts.sum())
            settings, self.fixed, self.words = self._resolve(), self._fixed_values(), [*model.wv.index_to_key]
            with self._named_rate():
                training.train(settings, self.text, model.wv.index_to_key, counts, (model._inputs(), model.syn1neg),
                               model._learned, folder, self._end_epoch)
        model.total_train_time += default_timer() - self.started
        self._call_back("on_train_end")
        return self.n_trained, self.text.n_words * settings.train.epochs

    def _end_epoch(self, epoch: Epoch) -> None:
        """Update the model, call the callbacks, and continue with what they have changed."""
        model = self.model
        self.n_trained += epoch.n_words
        if model.compute_loss:
            model.running_training_loss = epoch.loss
        model._get_next_alpha(1.0, epoch.number)  # gensim's: sets min_alpha_yet_reached
        if self.callbacks or epoch.is_last:
            epoch.copy_tables(model._inputs(), model.syn1neg)
            model._vectors_changed()
            model._learned, model.train_count = epoch.learned() or model._learned, self.n_calls
        _log.info("EPOCH %d: %d words trained, %.1f s", epoch.number, self.n_trained, default_timer() - self.started)
        if not self.callbacks:
            return
        self._call_back("on_epoch_end")
        if epoch.is_last:
            model._vectors_changed()
            return
        self._call_back("on_epoch_begin")
        for name, value in self._fixed_values().items():
            if value != (before := self.fixed[name]):
                raise ArgumentError(f"{name}: a callback changed {before!r:.60} to {value!r:.60}; callbacks may change "
                                    "alpha, min_alpha and the tables; change other settings before `train`")
        if [*model.wv.index_to_key] != self.words:
            raise ArgumentError("wv.index_to_key: a callback changed the words or their order; change them before "
                                "`train`")
        model._check_tables()
        if (rates := self._checked_rates()) != self.rates:
            self._set_rates(rates)
            epoch.set_rates(max(rates), rates[1])
        epoch.set_tables(model._inputs(), model.syn1neg)

    def _check_model(self) -> None:
        """Check the model again, as `train` did: callbacks may have changed it. Raises the errors of `train`."""
        arguments.check_values(vars(self.model))
        if not self.model.negative:
            self.model._check_training_sanity()  # gensim's, which raises the error
        self.model._check_tables()

    def _call_back(self, event: str) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self.model)

    def _checked_rates(self) -> tuple[float, float]:
        """Return alpha and min_alpha of the model. ArgumentError if one is out of range; see check_number."""
        for name, label, before in zip(("alpha", "min_alpha"), self.rate_names, self.rates, strict=True):
            check_number(name, value := getattr(self.model, name))
            if not 0 <= value <= LARGEST:
                raise ArgumentError(f"{label if value == before else name}={value!r}: should be a number from 0 to "
                                    f"{LARGEST:g}")
        return float(self.model.alpha), float(self.model.min_alpha)

    def _resolve(self) -> Settings:
        """Return the settings with the current rates of the model."""
        n_words, rates = (self.n_counted, self.text.n_words), self._checked_rates()
        if rates == self.rates:
            settings: Settings = self.model._settings(*n_words, dict(zip(self.rate_names, rates, strict=True)))
            return settings
        self._set_rates(rates)
        settings = self.model._settings(*n_words, {"alpha": 1.0, "min_alpha": 0.0})
        return settings.with_train(lr=max(rates), min_lr=rates[1])  # 0 too, which is not a value of the key train.lr

    def _set_rates(self, rates: tuple[float, float]) -> None:
        self.rates, self.rate_names = rates, ("alpha", "min_alpha")

    @contextmanager
    def _named_rate(self) -> Iterator[None]:
        """Let errors of a training that diverges name the current rate instead of its key."""
        try:
            yield
        except DivergedError as error:
            name = self.rate_names[self.rates[0] < self.rates[1]]
            error.args = tuple(line.replace("train.lr", name) for line in error.args)
            raise

    def _fixed_values(self) -> dict[str, Any]:
        """Return what callbacks must not change between two epochs, by name."""
        model = self.model
        return {"len(wv)": len(model.wv), **{name: getattr(model, name) for name in _SETTINGS},
                "negatives": model._strategy, "sets": list(model.sets)}
