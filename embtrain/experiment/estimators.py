"""scikit-learn estimators.

SkipGramEmbedder               documents to means of word vectors; `negatives` is an ordinary parameter
RandomFourierSoftmaxFeatures   vectors to features whose inner products are the softmax's weights

Both can be cloned and used in a Pipeline or GridSearchCV. The second is numeric and follows all of
scikit-learn's conventions; the first takes texts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from embtrain.common import progress
from embtrain.common.config import as_sets
from embtrain.common.config.arguments import argument_sets, whole_number
from embtrain.common.errors import DataError, UsageError
from embtrain.data.storage.token_lists import is_token
from embtrain.experiment import resolve
from embtrain.experiment.run.run import train_in_memory
from embtrain.negatives.softmax.kernels.rff import FourierMap, RffConfig
from embtrain.train.state.signals import protect_caller

Documents = Iterable[str | Sequence[str]]
_BOM = "\ufeff"  # byte order mark: encoding information, not part of a text
_KEYS = {"dim": "model.dim", "epochs": "train.epochs", "window": "text.window", "min_count": "text.min_count",
         "k": "negatives.k"}  # settings of the parameters of SkipGramEmbedder
_TOKENIZATION = {"text.tokenizer": "whitespace", "text.lower": False}  # `transform` treats words in the same way


class SkipGramEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Mean of the word vectors of a document, from skip-gram trained on the documents passed to `fit`.

    negatives: a strategy by name, or the path of its YAML. k: negatives per positive; None: the strategy's value.
    sets: further configuration keys, e.g. {"text.sample": 0}. random_state: the seed of the run, an integer.
    A document is a string, split at blanks, or a sequence of words; it is one line of the training text. Words are used
    unchanged, so sets may change neither text.tokenizer nor text.lower.
    After `fit`: vocabulary_ (word to row), vectors_ (V, dim) float32, n_features_out_.

    Raises the errors of `embtrain.fit`: UsageError, DataError, ResourceError, and Interrupted for Ctrl-C.
    """

    def __init__(self, negatives: str = "sgns", dim: int = 100, epochs: int = 10, window: int = 5, min_count: int = 5,
                 k: int | None = None, sets: dict[str, Any] | None = None, threads: int = 1, verbose: bool = False,
                 random_state: int = 1):
        self.negatives, self.dim, self.epochs, self.window, self.min_count = negatives, dim, epochs, window, min_count
        self.k, self.sets, self.threads, self.verbose, self.random_state = k, sets, threads, verbose, random_state

    @protect_caller()
    def fit(self, X: Documents, y: Any = None) -> Self:
        """Train on documents; y is ignored."""
        given: Any = self.sets
        if not isinstance(given, Mapping | None):
            raise UsageError(f'sets: {given!r}: should be a mapping of keys to values, e.g. {{"text.sample": 0}}')
        for key, value in _TOKENIZATION.items():
            if (entry := (self.sets or {}).get(key, value)) != value:
                raise UsageError(f"sets: {key}: {entry!r}: words are used unchanged; lowercase and split the documents "
                                 "first")
        own, names = argument_sets(_KEYS, {name: value for name in _KEYS
                                          if (value := getattr(self, name)) is not None or name != "k"})
        sets = {"text.valid": 0, "text.test": 0, "evaluate.benchmarks": [], "evaluate.neighbours": [],
                "evaluate.heldout_pairs": 0, **(self.sets or {}), **_TOKENIZATION}
        with progress.silence(not self.verbose), tempfile.TemporaryDirectory(prefix="embtrain-") as folder:
            text = Path(folder) / "documents.txt"
            text.write_text("".join(f"{' '.join(words)}\n" for words in _words(X)), encoding="utf-8")
            run = train_in_memory(
                resolve(
                    self.negatives,
                    corpus=str(text),
                    sets=[*own, *as_sets(sets)],
                    seed=self.random_state,
                    threads=self.threads,
                    flag_names=names | {"--seed": "random_state"},
                ),
                Path(folder) / "run",
            )
        self.vectors_ = run.model.vectors().detach().numpy().astype(np.float32)
        self.vocabulary_ = {word: i for i, word in enumerate(run.task.candidate_names())}
        self.n_features_out_ = self._n_features_out = self.vectors_.shape[1]
        return self

    def fit_transform(self, X: Documents, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Train on documents and return their means of vectors as `transform`; an iterator is read once."""
        return super().fit_transform(X if isinstance(X, Sized) else list(X), y, **fit_params)

    def transform(self, X: Documents) -> np.ndarray:
        """Return (n, dim) float32; zeros for a document without a word in the vocabulary."""
        check_is_fitted(self, "vectors_")
        means = []
        for words in _words(X):
            rows = [self.vocabulary_[word] for word in words if word in self.vocabulary_]
            means.append(self.vectors_[rows].mean(0) if rows else np.zeros(self.vectors_.shape[1], np.float32))
        return np.stack(means) if means else np.zeros((0, self.vectors_.shape[1]), np.float32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class RandomFourierSoftmaxFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features φ with E φ(x)·φ(y) = e^{-τ ‖x-y‖²/2}: for unit vectors e^{τ x·y - τ}, the weight in a softmax.

    φ(x) = D^{-1/2} [cos √τ w_j·x, sin √τ w_j·x],  w_j ~ N(0, I)        (Rawat et al. 2019, eq. 16-18)

    tau: the inverse temperature. n_components: D; there are 2 D features. directions: plain, orthogonal (lower
    variance) or structured (Hadamard matrices: faster, and accurate for large d: at d = 16 the error is up to .05).
    unit: normalize rows to length 1 first; a zero row stays zero. The features are those of the source `rff`.
    """

    def __init__(self, tau: float = 1.0, n_components: int = 200, directions: str = "orthogonal", unit: bool = True,
                 random_state: int | np.random.RandomState | None = None):
        self.tau, self.n_components, self.directions, self.unit = tau, n_components, directions, unit
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw directions for the d columns of X (n, d); y is ignored."""
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        if not self.tau > 0:
            raise ValueError(f"tau: should be a number above 0, got {self.tau!r}")
        try:
            features = whole_number("n_components", self.n_components, 1)
        except UsageError as error:  # scikit-learn's checks of estimators expect ValueError
            raise ValueError(str(error)) from None
        if self.directions not in ("plain", "orthogonal", "structured"):
            raise ValueError(f"directions: should be plain, orthogonal or structured, got {self.directions!r}")
        config = RffConfig(source="rff", features=features, directions=self.directions)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        map_ = FourierMap(config, X.shape[1], torch.Generator().manual_seed(seed), "cpu")
        self.directions_ = map_.w.w.numpy()
        self._n_features_out = map_.width
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return (n, 2 D) in the precision of X."""
        check_is_fitted(self, "directions_")
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        config = RffConfig(source="rff", features=self.n_components, directions=self.directions)
        map_ = FourierMap(config, X.shape[1], torch.Generator(), "cpu")
        map_.w.w = torch.from_numpy(self.directions_)
        x = torch.from_numpy(np.sqrt(self.tau).astype(X.dtype) * (normalize(X) if self.unit else X))
        return map_.encode_queries(x).numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _words(X: Documents) -> Iterator[list[str]]:
    """Yield the words of each document. Raises DataError if a file with one document a line would change them."""
    if isinstance(X, str):
        raise DataError("X: should be a sequence of documents, got a string; pass one document as [X]")
    for number, document in enumerate(X, 1):
        if not isinstance(document, Iterable):
            raise DataError(f"X: document {number:,}: should be a string or a sequence of words, got {document!r}")
        words = document.removeprefix(_BOM).split() if isinstance(document, str) else list(document)
        for word in words:
            if not isinstance(word, str) or not is_token(word):
                raise DataError(f"X: document {number:,}: {word!r:.60}: a word should be a string without spaces, NUL, "
                                "lone surrogates or a leading byte order mark")
        yield words
