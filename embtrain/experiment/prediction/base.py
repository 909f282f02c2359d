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
from embtrain.common.errors import DataError, UsageError, meant
from embtrain.common.types import Batch
from embtrain.data.storage.containers import Source
from embtrain.data.storage.lines import numbered
from embtrain.experiment.run import scoring
from embtrain.experiment.run.components import Components
from embtrain.models.base import AbstractMethod

OPEN = "_"           # the part of a query that is predicted
CELLS = 1 << 22      # scores held at once
AT_ONCE = 1024       # most queries of a chunk
PACKAGE = "embtrain.experiment.prediction"
Q = TypeVar("Q")


class Unknown(Exception):
    """A query with a name that the model does not have."""

    def __init__(self, kind: str, name: str, known: Collection[str]):
        super().__init__(f"no {kind} is called {name!r}")
        self.kind, self.name, self.known = kind, name, known


class Malformed(Exception):
    """A query that does not have the form that the task needs; str(error) says why."""


class Answer(NamedTuple):
    """A candidate with its score."""

    name: str
    score: float | None = None        # None: the task gives none
    probability: float | None = None  # None: the loss does not estimate one
    known: bool | None = None         # whether training has the answer as a positive; None: not checked


@dataclass(frozen=True)
class Prediction:
    """The answers to one query, best first."""

    query: str
    answers: list[Answer] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)  # of a query without an open part: score, rank, threshold
    place: str = ""    # FILE:LINE
    note: str = ""     # a warning about this query
    unseen: bool = False  # the query has a name, word or feature that no training example has
    missing: str = ""  # why there is no answer: the kind of name that the model does not have

    def tree(self) -> dict[str, Any]:
        """The same for JSON."""
        answers = [{key: _finite(value) for key, value in answer._asdict().items() if value is not None}
                   for answer in self.answers]
        more = {"place": self.place, "note": self.note, "missing": self.missing}
        facts = {key: _finite(value) for key, value in self.facts.items()}
        return {"query": self.query, **facts, "answers": answers,
                **{key: value for key, value in more.items() if value}}


def _finite(value: Any) -> Any:
    """The value, or None for a number that JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Predictor:
    """Base of the predictors. A sub-class has the `name` of its task."""

    name: ClassVar[str]
    form: ClassVar[str]                # how a query is written, for errors
    hides: ClassVar[bool] = False      # whether --hide-known applies

    def __init__(self, made: Components, top: int, hide_known: bool):
        if hide_known and not self.hides:
            raise UsageError(f"--hide-known: model.name: {made.task.settings.model.name} keeps no known positives; "
                             "leave the option out, or use it with graphs and hierarchies")
        self.made, self.top, self.hide_known = made, top, hide_known
        self.names = made.task.candidates()
        self.at_once = max(1, min(AT_ONCE, CELLS // max(1, len(self.names))))

    def given(self, words: Sequence[str]) -> list[Prediction]:
        """Predictions for the words of a command line. UsageError for a malformed query or an unknown name."""
        raise AbstractMethod(self, "given")

    def read(self, source: Source) -> Iterator[Prediction]:
        """Predictions for the queries of a file, in their order, computed in chunks. DataError names the line of a
        malformed query; one with an unknown name gives a prediction without answers."""
        raise AbstractMethod(self, "read")

    @torch.no_grad()
    def scores(self, batch: Batch, rows: slice = slice(None)) -> tuple[Tensor, Tensor, Tensor | None]:
        """Of some rows (B,) of a batch: scores (B, V), logits (B, V), which evaluation ranks by, and log P (B, V) or
        None if the loss estimates no probability."""
        made = self.made
        query = made.model.encode(batch).detach().rows(rows)
        everyone = torch.arange(made.world.n_candidates).unsqueeze(0)
        s = made.model.score(query, everyone).double()
        z = scoring.logits(made, corrected=True)(query).double()
        return s, z, z.log_softmax(1) if scoring.estimates_probabilities(made) else None

    def answers(self, key: Tensor, score: Tensor, log_p: Tensor | None = None, known: Tensor | None = None,
                without: Tensor | None = None) -> list[Answer]:
        """The best candidates by `key` (V,); equal ones in the order of their ids. known, without (V,) bool: positives
        of training, and candidates that are no answers."""
        key = key.nan_to_num(nan=-math.inf)
        if without is not None:
            key = key.masked_fill(without, -math.inf)
        k = min(self.top, len(key))
        least = key.topk(k).values[-1]
        near = (key >= least).nonzero()[:, 0]
        order = near[torch.argsort(key[near], descending=True, stable=True)][:k]
        if without is not None:
            order = order[~without[order]]
        return [Answer(self.names[i], float(score[i]), None if log_p is None else math.exp(float(log_p[i])),
                       None if known is None else bool(known[i])) for i in order.tolist()]


class LinePredictor(Predictor, Generic[Q]):
    """Predictors whose queries are lines of text. Sub-classes parse a query and answer several at once."""

    def split(self, words: Sequence[str]) -> list[list[str]]:
        """The queries of a command line."""
        return [list(words)]

    def fields(self, line: str) -> list[str]:
        """The fields of a line of a file."""
        return [line.strip()]

    def parse(self, fields: Sequence[str]) -> Q:
        """A query of its fields. Raises Unknown or Malformed."""
        raise AbstractMethod(self, "parse")

    def of(self, queries: Sequence[Q]) -> list[Prediction]:
        """Predictions for some queries, in their order."""
        raise AbstractMethod(self, "of")

    def given(self, words: Sequence[str]) -> list[Prediction]:
        try:
            queries = [self.parse(fields) for fields in self.split(words)]
        except Unknown as error:
            raise UsageError(f"predict: {error}{meant(error.name, error.known)}") from error
        except Malformed as error:
            raise UsageError(f"predict: {' '.join(words)}: {error}; write {self.form}") from error
        return self.of(queries)

    def read(self, source: Source) -> Iterator[Prediction]:
        lines = numbered(source)
        while some := list(itertools.islice(lines, self.at_once)):
            found: dict[int, Prediction] = {}
            queries: list[tuple[int, Q]] = []
            for i, (number, line) in enumerate(some):
                place, fields = f"{source.name}:{number}", self.fields(line)
                try:
                    queries.append((i, self.parse(fields)))
                except Unknown as error:
                    found[i] = Prediction(" ".join(fields), place=place, note=str(error), missing=error.kind)
                except Malformed as error:
                    raise DataError(f"{place}: {line[:80]!r}: {error}; write {self.form}") from error
            for (i, _), one in zip(queries, self.of([query for _, query in queries]), strict=True):
                found[i] = replace(one, place=f"{source.name}:{some[i][0]}")
            yield from (found[i] for i in range(len(some)))


def find(task: str) -> type[Predictor]:
    """The predictor of a task."""
    return registry.find(PACKAGE, Predictor, task, "task")
