"""Predictions of a trained model for queries of a command line, a file or standard input. The corpus is not needed.

    labels       a document: its labels                       graph        HEAD RELATION _ and the like; a triple's rank
    hierarchy    CONCEPT _ and the like; is X a kind of Y?    text, walks  a word or node: its contexts
    language     a context: the next word                     translation  a line: its translation
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.progress import Progress
from embtrain.common.terminal import plain
from embtrain.data.storage.containers import Source, sources
from embtrain.experiment.prediction import base
from embtrain.experiment.prediction.base import Answer, Prediction, Predictor
from embtrain.experiment.run import stored
from embtrain.report.format import cells, number

STDIN = "-"


class Predictions:
    """The predictions for some queries, computed while they are iterated over; afterwards their counts."""

    def __init__(self, folder: Path, queries: Sequence[Sequence[str]] = (), file: str | None = None, top: int = 5,
                 hide_known: bool = False, sets: Sequence[str] = ()):
        """queries: each in words; or file: a path, or `-` for standard input. sets: corpus=PATH, for a run whose folder
        lacks what is needed of its corpus. UsageError, DataError or ResourceError if the run cannot predict or a query
        in words is wrong."""
        made = stored.open_run(folder, sets)
        self.predictor: Predictor = base.find(made.task.name)(made, top, hide_known)
        self.file = file
        self._given = [one for words in queries for one in self.predictor.given(words)]
        self.n, self.missing, self.unseen = 0, Counter[str](), 0

    def __iter__(self) -> Iterator[Prediction]:
        for one in self._given if self.file is None else self._read(self.file):
            self.n += 1
            self.missing[one.missing] += bool(one.missing)
            self.unseen += one.unseen
            yield one
        if self.n == 0:
            raise DataError(f"{self.file}: holds no query")

    def check(self) -> None:
        """DataError if no query of a file has an answer."""
        if self.n and self.answered == 0:
            raise DataError(f"{self.file}: no query has an answer: {self.summary()}")

    @property
    def answered(self) -> int:
        return self.n - self.missing.total()

    def summary(self) -> str:
        """How many queries of a file were passed over, or have names or features that no training example has, and
        why; empty if none has, and for queries in words."""
        if self.file is None:
            return ""
        passed = [f"{n:,} with a name that no {kind} of the run has" for kind, n in self.missing.items() if n]
        total = f"{self.missing.total():,} of {self.n:,} queries were passed over"
        said = [f"{total}: {', '.join(passed)}"] if passed else []
        if self.unseen:
            said.append(f"{self.unseen:,} of {self.n:,} queries have names, words or features of no training example")
        return "; ".join(said)

    def counts(self) -> dict[str, Any]:
        """For JSON: queries, those passed over by the kind of the unknown name, those with unseen names or features."""
        return {"queries": self.n, "passed_over": {kind: n for kind, n in self.missing.items() if n},
                "unseen": self.unseen}

    def _read(self, path: str) -> Iterator[Prediction]:
        with Progress("predicting", unit="queries") as progress:
            for source in _opened(path):
                for one in self.predictor.read(source):
                    yield one
                    progress.add(1)


def of_words(folder: Path, words: Sequence[str], top: int = 5, hide_known: bool = False, sets: Sequence[str] = ()
             ) -> Predictions:
    """Of a command line: the words of a query, or the path of a file of queries, or `-` for standard input."""
    if not words:
        raise UsageError("predict: needs a query, the path of a file of queries, or - for standard input")
    if len(words) == 1 and is_file(words[0]):
        return Predictions(folder, file=words[0], top=top, hide_known=hide_known, sets=sets)
    try:
        return Predictions(folder, [words], top=top, hide_known=hide_known, sets=sets)
    except UsageError as error:
        if len(words) == 1 and ("/" in words[0] or Path(words[0]).suffix) and ":" not in words[0]:
            raise UsageError(f"{error}; there is no file {words[0]!r} either") from error
        raise


def of_run(folder: Path, queries: Sequence[str | Sequence[str]], file: str | Path | None = None, top: int = 5,
           hide_known: bool = False, corpus: str | Path | None = None) -> list[Prediction]:
    """All predictions for queries of Python: the words of one query, or a sequence of words for each of several; or for
    those of a file.

    hide_known: leave out positives of training. corpus: where the corpus is now, for a run whose folder lacks what is
    needed of it. UsageError for a wrong query, DataError for a damaged file.
    """
    if (file is None) == (not queries):
        raise UsageError("predict: needs either queries or file=")
    sets = [] if corpus is None else [f"corpus={corpus}"]
    if file is not None:
        return list(Predictions(folder, (), str(file), top, hide_known, sets))
    some = [queries] if isinstance(queries[0], str) else queries
    return list(Predictions(folder, [[str(word) for word in query] for query in some], None, top, hide_known, sets))


def is_file(query: str) -> bool:
    """Whether a query is the name of a file, or standard input."""
    if query == STDIN:
        return True
    try:
        return Path(query).exists() and not Path(query).is_dir()
    except (OSError, ValueError):    # too long, or NUL inside
        return False


def _opened(path: str) -> Iterator[Source]:
    """The streams of a file, packed or not; of a pipe or standard input that stream."""
    if path == STDIN:
        if sys.stdin is None:
            raise UsageError("predict: standard input is closed; name a file of queries")
        return iter([Source("standard input", cast("BufferedReader[Any]", sys.stdin.buffer), 0)])
    return sources([Path(path)], lambda name: True) if Path(path).is_file() else _of_pipe(path)


def _of_pipe(path: str) -> Iterator[Source]:
    try:
        with open(path, "rb") as stream:
            yield Source(path, stream, 0)
    except OSError as error:
        raise ResourceError(f"{path}: cannot be read: {error.strerror or error}") from error


def lines(one: Prediction) -> str:
    """A prediction as lines for a terminal."""
    head = plain(one.query) + (f"  ({plain(one.place)})" if one.place else "")
    if one.facts and not one.answers:
        head += f": {_facts(one)}"
    note = [f"     {plain(one.note)}"] if one.note else []
    return "\n".join([head, *note, *_columns(one.answers)])


def _columns(answers: Sequence[Answer]) -> Iterator[str]:
    wide = max((cells(plain(answer.name)) for answer in answers), default=0)
    for i, answer in enumerate(answers, 1):
        name = plain(answer.name)
        line = f"{i:>3}  {name}{' ' * (wide - cells(name))}"
        line += "" if answer.score is None else f"  {number(answer.score):>9}"
        line += "" if answer.probability is None else f"  p {number(answer.probability):>8}"
        yield (line + ("  in training" if answer.known else "")).rstrip()


def _facts(one: Prediction) -> str:
    facts, known = one.facts, ", in training" if one.facts.get("known") else ""
    if "holds" in facts:
        return (f"{'yes' if facts['holds'] else 'no'}, score {number(facts['score'])}, threshold "
                f"{number(facts['threshold'])} (right for {facts['valid_accuracy']:.1%} of validation pairs){known}")
    return (f"score {number(facts['score'])}, tail ranks {facts['tail_rank']:g} of {facts['tail_candidates']:,}, head "
            f"{facts['head_rank']:g} of {facts['head_candidates']:,}{known}")
