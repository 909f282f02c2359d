"""Predictions of a trained model, for queries of a command line, a file or standard input.

    task           query, `_` = the missing part          answers
    graph          HEAD RELATION _   _ RELATION TAIL      entities
                   HEAD _ TAIL                            relations
                   HEAD RELATION TAIL                     the score of the triple and the ranks of both entities
    hierarchy      CONCEPT _                              hypernyms
                   _ CONCEPT                              hyponyms
                   CONCEPT CONCEPT                        is the first a kind of the second?
    labels         3:0.5 17:1, a document                 its labels
    text, walks    a word or node                         its contexts
    language       a context; a last `_` is optional      the next words
    translation    a line                                 its translation

The corpus is not needed if the run folder stores the parts that prediction uses; otherwise give corpus=PATH.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.files import check_exists
from embtrain.common.progress import Progress
from embtrain.common.terminal import format_part, plain
from embtrain.data.storage.containers import Source, sources
from embtrain.experiment.prediction import base
from embtrain.experiment.prediction.base import Answer, Prediction, Predictor
from embtrain.experiment.run import stored
from embtrain.report.format import cells, number

STDIN = "-"


class Predictions:
    """The predictions for the queries, computed during iteration; afterwards their counts.

    missing: queries with an unknown name, by its kind; they are skipped. unseen: queries that are answered although
    they have a name, word or feature that is not in training.
    """

    def __init__(self, folder: Path, queries: Sequence[Sequence[str]] = (), file: str | None = None,
                 top: int | None = None, hide_known: bool = False, sets: Sequence[str] = ()):
        """queries: each a sequence of words; file: alternatively a path or `-`, standard input. sets: corpus=PATH, for
        a run folder that does not store the parts of its corpus that prediction uses. Raises UsageError, DataError or
        ResourceError if the run cannot predict, and UsageError if a query in words is malformed."""
        components = stored.open_run(folder, sets)
        self.predictor: Predictor = base.find(components.task.name)(components, top, hide_known)
        self.file = file
        self._predictions = [prediction for words in queries for prediction in self.predictor.predict_words(words)]
        self.n, self.missing, self.unseen = 0, Counter[str](), 0

    def __iter__(self) -> Iterator[Prediction]:
        for prediction in self._predictions if self.file is None else self._read(self.file):
            self.n += 1
            self.missing[prediction.missing] += bool(prediction.missing)
            self.unseen += prediction.unseen
            yield prediction
        if self.n == 0 and self.file is None:
            raise UsageError("predict: query: is missing; give at least one")
        if self.n == 0:
            raise DataError(f"{self.file}: contains no query")

    def check(self) -> None:
        """Raise DataError if no query of a file has an answer."""
        if self.n and self.answered == 0:
            raise DataError(f"{self.file}: no query has an answer: {self.summary()}")

    @property
    def answered(self) -> int:
        return self.n - self.missing.total()

    def summary(self) -> str:
        """Return how many queries of a file were skipped, and why, and how many were answered with names, words or
        features that are not in training. Empty if there are none, and for queries in words."""
        if self.file is None:
            return ""
        skipped = [f"{n:,} that {'names' if n == 1 else 'name'} an unknown {kind}"
                   for kind, n in self.missing.items() if n]
        total = format_part(self.missing.total(), self.n, "queries", "was skipped", "were skipped")
        notes = [f"{total}: {', '.join(skipped)}"] if skipped else []
        if self.unseen:
            part = format_part(self.unseen, self.n, "queries", "contains", "contain")
            notes.append(f"{part} names, words or features of no training example")
        return "; ".join(notes)

    def counts(self) -> dict[str, Any]:
        """Return counts for JSON: queries; skipped ones by kind of the unknown name; those with unseen names, words or
        features, which are answered."""
        return {"queries": self.n, "passed_over": {kind: n for kind, n in self.missing.items() if n},
                "unseen": self.unseen}

    def _read(self, path: str) -> Iterator[Prediction]:
        with Progress("predicting", unit="queries") as progress:
            for source in _open_queries(path):
                for prediction in self.predictor.predict_file(source):
                    yield prediction
                    progress.add(1)


def predict_words(folder: Path, words: Sequence[str], top: int | None = None, hide_known: bool = False,
                  sets: Sequence[str] = ()) -> Predictions:
    """Return predictions for a command line: the words of a query, or a file of queries, or `-` for standard input.

    Raises UsageError if the query is missing or malformed, and what Predictions raises.
    """
    if not words:
        raise UsageError("predict: query: is missing; give a query, a file of queries, or - for standard input")
    if len(words) == 1 and is_query_file(words[0]):
        return Predictions(folder, file=words[0], top=top, hide_known=hide_known, sets=sets)
    try:
        return Predictions(folder, [words], top=top, hide_known=hide_known, sets=sets)
    except base.NotAQuery as error:
        if len(words) > 1:
            raise
        raise UsageError(f"{error}".replace(": is not", ": no file has this name, and it is not", 1)) from error
    except UsageError as error:
        if len(words) == 1 and ("/" in words[0] or Path(words[0]).suffix) and ":" not in words[0]:
            raise UsageError(f"{error}; nor is there a file {words[0]!r}") from error
        raise


def predict_queries(folder: Path, queries: Sequence[str | Sequence[str]], file: str | Path | None = None,
                    top: int | None = None, hide_known: bool = False, corpus: str | Path | None = None
                    ) -> list[Prediction]:
    """Return all predictions for queries from Python.

    queries: the words of one query, or several queries, each a sequence of words. file: alternatively a path or `-`.
    hide_known: leave out training positives. corpus: current path of the corpus, for a run folder that does not store
    the parts that prediction uses. Raises UsageError if a query is malformed, DataError if a file is damaged or
    contains a malformed query.
    """
    if (file is None) == (not queries):
        raise UsageError("predict: give either queries or file=")
    sets = [] if corpus is None else [f"corpus={corpus}"]
    if file is not None:
        return list(Predictions(folder, (), str(file), top, hide_known, sets))
    words_of_queries = [queries] if isinstance(queries[0], str) else queries
    return list(
        Predictions(folder, [[str(word) for word in query] for query in words_of_queries], None, top, hide_known, sets)
    )


def is_query_file(query: str) -> bool:
    """Return whether a query is the name of a file, or standard input."""
    if query == STDIN:
        return True
    try:
        return Path(query).exists() and not Path(query).is_dir()
    except (OSError, ValueError):    # the name is too long or contains NUL
        return False


def _open_queries(path: str) -> Iterator[Source]:
    """Return the streams of a file, compressed or not, or the single stream of a pipe or standard input."""
    if path == STDIN:
        if sys.stdin is None:
            raise UsageError("predict: standard input is closed; give a file of queries")
        return iter([Source("standard input", cast("BufferedReader[Any]", sys.stdin.buffer), 0)])
    return sources([Path(path)], lambda name: True) if Path(path).is_file() else _open_pipe(path)


def _open_pipe(path: str) -> Iterator[Source]:
    check_exists(Path(path), "a file of queries", may_be_run=False)
    if Path(path).is_dir():
        raise DataError(f"{path}: is a folder; give a file of queries")
    try:
        with open(path, "rb") as stream:
            yield Source(path, stream, 0)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be read: {error.strerror or error}") from error


def format_text(prediction: Prediction) -> str:
    """Format a prediction as lines for a terminal."""
    head = plain(prediction.query) + (f"  ({plain(prediction.place)})" if prediction.place else "")
    if prediction.facts and not prediction.answers:
        head += f": {_facts(prediction)}"
    note = [f"     {plain(prediction.note)}"] if prediction.note else []
    return "\n".join([head, *note, *_columns(prediction.answers)])


def _columns(answers: Sequence[Answer]) -> Iterator[str]:
    wide = max((cells(plain(answer.name)) for answer in answers), default=0)
    for i, answer in enumerate(answers, 1):
        name = plain(answer.name)
        line = f"{i:>3}  {name}{' ' * (wide - cells(name))}"
        line += "" if answer.score is None else f"  {number(answer.score):>9}"
        line += "" if answer.probability is None else f"  p {number(answer.probability):>8}"
        yield (line + ("  in training" if answer.known else "")).rstrip()


def _facts(prediction: Prediction) -> str:
    facts, known = prediction.facts, ", in training" if prediction.facts.get("known") else ""
    if "holds" in facts:
        return (f"{'yes' if facts['holds'] else 'no'}, score {number(facts['score'])}, threshold "
                f"{number(facts['threshold'])} (right for {facts['valid_accuracy']:.1%} of validation pairs){known}")
    return (f"score {number(facts['score'])}, tail ranks {facts['tail_rank']:g} of {facts['tail_candidates']:,}, head "
            f"{facts['head_rank']:g} of {facts['head_candidates']:,}{known}")
