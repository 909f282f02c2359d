"""Shared by the predictors of all tasks: records, top answers, and reading queries line by line."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from embtrain.common import registry
from embtrain.common.config.arguments import whole_number
from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.errors import DataError, UsageError, did_you_mean
from embtrain.common.types import Batch
from embtrain.data.storage.containers import Source
from embtrain.data.storage.lines import read_nonblank_lines
from embtrain.experiment.run import scoring
from embtrain.experiment.run.components import Components

OPEN = "_"            # marks the part of a query to predict
MAX_SCORES = 1 << 22  # maximal number of scores in memory
MAX_CHUNK = 1024      # maximal number of queries in a chunk
DEFAULT_TOP = 5       # answers for each query
PACKAGE = "embtrain.experiment.prediction"
Q = TypeVar("Q")


class NotAQuery(UsageError):
    """A text that is no query of the task. On a command line it may be meant as the name of a file."""


class UnknownName(Exception):
    """A query contains a name that the model does not have."""

    def __init__(self, kind: str, name: str, known: Collection[str]):
        super().__init__(f"there is no {kind} {name!r}")
        self.kind, self.name, self.known = kind, name, known


class MalformedQuery(Exception):
    """A query does not have the form that the task requires; str(error) gives the reason."""


def check_names(names: Sequence[str], n: int, kind: str) -> None:
    """Raise MalformedQuery unless there are n names, none of them empty. kind: of the query, in the error."""
    if len(names) != n:
        raise MalformedQuery(f"{len(names)} name{'s' * (len(names) != 1)}, but a {kind} has {n}")
    if not all(names):
        raise MalformedQuery(f"a {kind} of {', '.join(f'{name[:40]!r}' for name in names)}, but no name may be empty")


class Answer(NamedTuple):
    """A candidate with its score."""

    name: str
    score: float | None = None        # None: the task has no scores
    probability: float | None = None  # None: the loss does not estimate probabilities
    known: bool | None = None         # whether the answer is a training positive; None: not checked


@dataclass(frozen=True)
class Prediction:
    """The answers to one query, best first."""

    query: str
    answers: list[Answer] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)  # for a query without an open part: score, rank, threshold
    place: str = ""                                      # FILE:LINE
    note: str = ""                                       # warning about this query
    unseen: bool = False                                 # the query has a name, word or feature that is not in training
    missing: str = ""                                    # if there is no answer: the kind of the unknown name

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as a JSON-serializable dict."""
        answers = [{key: _finite(value) for key, value in answer._asdict().items() if value is not None}
                   for answer in self.answers]
        more = {"place": self.place, "note": self.note, "missing": self.missing}
        facts = {key: _finite(value) for key, value in self.facts.items()}
        return {"query": self.query, **facts, "answers": answers,
                **{key: value for key, value in more.items() if value}}


def _finite(value: Any) -> Any:
    """Return the value, or None for a number that JSON cannot represent."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Predictor:
    """Base class of the predictors. `name` is the name of the task."""

    name: ClassVar[str]
    query_form: ClassVar[str]               # syntax of a query, for errors
    can_hide_known: ClassVar[bool] = False  # whether --hide-known applies
    has_one_answer: ClassVar[bool] = False  # for each query, so that --top does not apply

    def __init__(self, components: Components, top: int | None, hide_known: bool):
        """top: answers for each query; None: DEFAULT_TOP. UsageError for an option that is wrong or does not apply."""
        if top is not None:
            top = whole_number("--top", top, 1)
        if top is not None and self.has_one_answer:
            raise UsageError(f"--top: {top}: a run of {self.name} has one answer for each query; remove the option")
        if hide_known and not self.can_hide_known:
            raise UsageError(
                f"--hide-known: model.name: {components.task.settings.model.name} stores no known positives; remove "
                "the option, or use it with graphs and hierarchies"
            )
        self.components, self.top, self.hide_known = components, DEFAULT_TOP if top is None else top, hide_known
        self.names = components.task.candidate_names()
        self.at_once = max(1, min(MAX_CHUNK, MAX_SCORES // max(1, len(self.names))))

    def predict_words(self, words: Sequence[str]) -> list[Prediction]:
        """Return predictions for the words of a command line. UsageError for a malformed query or an unknown name."""
        raise AbstractMethod(self, "predict_words")

    def predict_file(self, source: Source) -> Iterator[Prediction]:
        """Yield predictions for the queries of a file in order, computed in chunks.

        DataError names the line of a malformed query. A query with an unknown name gives a prediction without answers.
        """
        raise AbstractMethod(self, "predict_file")

    @torch.no_grad()
    def scores(self, batch: Batch, rows: slice = slice(None)) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores (n, V), logits (n, V) and log P (n, V) of the rows `rows` of a batch.

        Evaluation ranks by the logits. log P is None if the loss does not estimate probabilities.
        """
        components = self.components
        query = components.model.encode(batch).detach().rows(rows)
        all_candidates = torch.arange(components.problem.n_candidates).unsqueeze(0)
        s = components.model.score(query, all_candidates).double()
        z = scoring.logits(components, corrected=True)(query).double()
        return s, z, z.log_softmax(1) if scoring.estimates_probabilities(components) else None

    def top_answers(self, key: Tensor, score: Tensor, log_p: Tensor | None = None, known: Tensor | None = None,
                without: Tensor | None = None) -> list[Answer]:
        """Return the best candidates by `key` (V,), ties in the order of their ids.

        known (V,) bool: training positives. without (V,) bool: candidates to leave out.
        """
        key = key.nan_to_num(nan=-math.inf)
        if without is not None:
            key = key.masked_fill(without, -math.inf)
        k = min(self.top, len(key))
        threshold = key.topk(k).values[-1]
        near = (key >= threshold).nonzero()[:, 0]
        order = near[torch.argsort(key[near], descending=True, stable=True)][:k]
        if without is not None:
            order = order[~without[order]]
        return [Answer(self.names[i], float(score[i]), None if log_p is None else math.exp(float(log_p[i])),
                       None if known is None else bool(known[i])) for i in order.tolist()]


class LinePredictor(Predictor, Generic[Q]):
    """Base class of predictors whose queries are lines of text. Subclasses parse a query and predict for several at
    once."""

    def split(self, words: Sequence[str]) -> list[list[str]]:
        """Return the queries of a command line, each as fields."""
        return [list(words)]

    def fields(self, line: str) -> list[str]:
        """Return the fields of a line of a file."""
        return [line.strip()]

    def parse(self, fields: Sequence[str]) -> Q:
        """Parse the fields of a query. Raises UnknownName or MalformedQuery."""
        raise AbstractMethod(self, "parse")

    def predict(self, queries: Sequence[Q]) -> list[Prediction]:
        """Return predictions for the queries, in order."""
        raise AbstractMethod(self, "predict")

    def predict_words(self, words: Sequence[str]) -> list[Prediction]:
        try:
            queries = [self.parse(fields) for fields in self.split(words)]
        except UnknownName as error:
            raise UsageError(f"predict: {error}{did_you_mean(error.name, error.known)}") from error
        except MalformedQuery as error:
            raise UsageError(f"predict: {' '.join(words)}: {error}; write {self.query_form}") from error
        return self.predict(queries)

    def predict_file(self, source: Source) -> Iterator[Prediction]:
        lines = read_nonblank_lines(source)
        while chunk := list(itertools.islice(lines, self.at_once)):
            predictions: dict[int, Prediction] = {}
            queries: list[tuple[int, Q]] = []
            for i, (number, line) in enumerate(chunk):
                place, fields = f"{source.name}:{number}", self.fields(line)
                try:
                    queries.append((i, self.parse(fields)))
                except UnknownName as error:
                    predictions[i] = Prediction(" ".join(fields), place=place, note=str(error), missing=error.kind)
                except MalformedQuery as error:
                    raise DataError(f"{place}: {line[:80]!r}: {error}; write {self.query_form}") from error
            for (i, _), prediction in zip(queries, self.predict([query for _, query in queries]), strict=True):
                predictions[i] = replace(prediction, place=f"{source.name}:{chunk[i][0]}")
            yield from (predictions[i] for i in range(len(chunk)))


def find(task: str) -> type[Predictor]:
    """Return the predictor of a task."""
    return registry.find(PACKAGE, Predictor, task, "task")
