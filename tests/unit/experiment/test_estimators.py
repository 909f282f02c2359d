"""embtrain under scikit-learn's rules: its own checks for the numeric estimator, its tools for the text estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.looped import looped
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from embtrain.common.errors import DataError, UsageError
from embtrain.experiment.estimators import RandomFourierSoftmaxFeatures, SkipGramEmbedder

pytestmark = pytest.mark.long

SMALL = {"dim": 8, "epochs": 6, "min_count": 1, "sets": {"text.sample": 0, "train.lr": 0.1}}


@parametrize_with_checks([RandomFourierSoftmaxFeatures(n_components=6)])
def test_estimator_passes_all_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("directions", ["plain", "orthogonal", "structured"])
def test_inner_products_are_the_weights_of_a_softmax(directions: str) -> None:
    draw, tau = np.random.default_rng(0), 3.0
    x = draw.normal(size=(40, 64))  # structured directions have one length, which is correct for large d
    embedder = RandomFourierSoftmaxFeatures(tau=tau, n_components=20_000, directions=directions, random_state=0)
    phi = embedder.fit_transform(x)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert phi.shape == (40, 40_000) and len(embedder.get_feature_names_out()) == 40_000
    assert np.abs(phi @ phi.T - np.exp(tau * (unit @ unit.T - 1))).max() < 0.03
    bare = RandomFourierSoftmaxFeatures(tau=tau, n_components=20_000, directions=directions, unit=False, random_state=0)
    far = np.square(x[:, None] / 8 - x / 8).sum(2)
    phi = bare.fit_transform(x / 8)
    assert np.abs(phi @ phi.T - np.exp(-tau * far / 2)).max() < 0.03


@pytest.mark.parametrize(("keys", "says"), [
    ({"tau": 0.0}, "tau"), ({"directions": "round"}, "directions"), *[
        ({"n_components": n}, f"n_components: {n!r}: should be a whole number of at least 1")
        for n in (0, -1, "x", 1.5)]])
def test_invalid_settings_are_rejected(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RandomFourierSoftmaxFeatures(**keys).fit(np.ones((3, 2)))


def documents() -> tuple[list[str], np.ndarray]:
    """Return texts of two kinds of words, and their kind."""
    draw = np.random.default_rng(1)
    kinds = [[f"{letter}{i}" for i in range(12)] for letter in "ab"]
    label = np.arange(60) % 2
    return [" ".join(draw.choice(kinds[kind], 30)) for kind in label], label


def test_pipeline_is_searched_over_negatives() -> None:
    x, y = documents()
    pipeline = make_pipeline(SkipGramEmbedder(**SMALL), LogisticRegression())
    search = GridSearchCV(pipeline, {"skipgramembedder__negatives": ["sgns", "uniform"]}, cv=2,
                          error_score="raise").fit(x, y)
    assert search.best_score_ > 0.9 and len(search.cv_results_["params"]) == 2
    assert search.predict(["a0 a1 a2", "b3 b4"]).tolist() == [0, 1]


def test_vectors_are_those_of_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    x, _ = documents()
    one, two = (clone(SkipGramEmbedder(**SMALL, negatives="nce", random_state=s)).fit(x) for s in (1, 1))
    assert one.vectors_.shape == (24, 8) and one.vectors_.dtype == np.float32
    assert np.array_equal(one.vectors_, two.vectors_) and one.vocabulary_ == two.vocabulary_
    rows = [one.vocabulary_[word] for word in ("a1", "a2")]
    got = one.transform(["a1 a2 unheard", ["a1", "a2"], "unheard"])
    assert np.allclose(got[0], one.vectors_[rows].mean(0)) and np.array_equal(got[0], got[1]) and not got[2].any()
    assert one.get_feature_names_out().tolist() == [f"skipgramembedder{i}" for i in range(8)]
    assert capfd.readouterr() == ("", "")


def test_errors_are_those_of_embtrain() -> None:
    with pytest.raises(UsageError, match="negatives"):
        SkipGramEmbedder(negatives="unknown").fit(["a b"])
    with pytest.raises(DataError):
        SkipGramEmbedder(**SMALL).fit([])
    with pytest.raises(UsageError, match=r"sets: \['text.sample=0'\]: should be a mapping"):
        SkipGramEmbedder(sets=["text.sample=0"]).fit(["a b"])


@looped("words", [["a", "new york"], ["a", ""], ["a\0"], ["a\nb"], ["\ufeffa"], ["\ud800"], ["a", 3],
                  ["a", None], [float("nan")], "a \ud800", "a b\0", None, float("nan")])
def test_words_that_a_line_cannot_return_are_rejected(words: Any) -> None:
    embedder = SkipGramEmbedder(**SMALL).fit(["a b c"] * 9)
    for ask in (embedder.transform, SkipGramEmbedder(**SMALL).fit):
        with pytest.raises(DataError, match="document 2: "):
            ask([["a", "b"], words])
        with pytest.raises(DataError, match="a sequence of documents, got a string"):
            ask("a b")


def test_vocabulary_is_what_can_be_looked_up() -> None:
    embedder = SkipGramEmbedder(**SMALL).fit(["\ufeffKing queen", "\ufeffKing a"] * 5)
    assert set(embedder.vocabulary_) == {"King", "queen", "a"}
    assert np.array_equal(*embedder.transform(["\ufeffKing", "King"]))
    for sets in ({"text.lower": True}, {"text.tokenizer": "words"}):
        with pytest.raises(UsageError, match=f"sets: {next(iter(sets))}: .*: words are used unchanged"):
            SkipGramEmbedder(sets=sets).fit(["a b"])
    embedder = SkipGramEmbedder(**{**SMALL, "sets": {"text": {"lower": True, "sample": 0}}}).fit(["King a"] * 9)
    assert set(embedder.vocabulary_) == {"King", "a"}


def test_numpy_numbers_are_accepted() -> None:
    sets = {"text.sample": np.float32(0), "train.lr": np.float64(0.1)}
    keys = {"dim": np.int64(8), "epochs": np.int32(6), "min_count": np.int64(1)}
    one = SkipGramEmbedder(**{**SMALL, **keys, "sets": sets}, random_state=np.int64(1),
                           threads=np.int64(1))  # type: ignore[arg-type]
    x, _ = documents()
    assert np.array_equal(one.fit(x).vectors_, SkipGramEmbedder(**SMALL).fit(x).vectors_)
    with pytest.raises(UsageError, match=r"^train\.lr: \{1\}: should be a number, a word, a path, or a list of"):
        SkipGramEmbedder(sets={"train.lr": {1}}).fit(x)
