"""Predicts the contexts of a word, or of a node of a graph, by the model's score: s(a, b) = u_a · v_b for skip-gram.

CBOW predicts the word between given words.

This is not the cosine of two words (`embtrain neighbours`): a high score means that b occurs near a, not that b is used
like a. P(b|a) is included if the loss estimates it. A word is looked up in its exact spelling, then in lower case if
the text was folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from embtrain.common.types import Batch
from embtrain.data.text.windows import ContextBatch, SkipGramBatch
from embtrain.experiment.prediction.base import LinePredictor, MalformedQuery, Prediction, UnknownName


class WordQuery(NamedTuple):
    """Ids of words, and a note on their spelling."""

    words: list[int]
    note: str


class WordPredictor(LinePredictor[WordQuery]):
    """Predictor of context words."""

    name = "windows"
    query_form = "words of the training text (in a file: one a line)"
    kind = "word"

    def split(self, words: Sequence[str]) -> list[list[str]]:
        return [[word] for word in words]

    def parse(self, fields: Sequence[str]) -> WordQuery:
        if not all(fields):
            raise MalformedQuery("the word is empty")
        index, lowers = self.index, getattr(self.components.task.settings.data, "lower", False)
        words, notes = list[int](), list[str]()
        for word in fields:
            folded = word if word in index or not lowers else word.lower()
            if folded not in index:
                raise UnknownName(self.kind, word, index)
            words.append(index[folded])
            notes += [f"read as {folded!r}, because training lowercased the text"] if folded != word else []
        return WordQuery(words, "; ".join(notes))

    @property
    def index(self) -> dict[str, int]:
        task: Any = self.components.task
        return task.corpus.vocabulary.index

    def predict(self, queries: Sequence[WordQuery]) -> list[Prediction]:
        if not queries:
            return []
        score, z, log_p = self.scores(self.batch(queries))
        key = score if self.components.loss.traits.monotone else z
        return [
            Prediction(
                " ".join(self.names[word] for word in query.words),
                self.top_answers(key[i], score[i], None if log_p is None else log_p[i]),
                note=query.note,
            )
            for i, query in enumerate(queries)
        ]

    def batch(self, queries: Sequence[WordQuery]) -> Batch:
        """Return the examples of queries; their targets do not matter."""
        centre = torch.tensor([query.words[0] for query in queries])
        return SkipGramBatch(torch.zeros_like(centre), torch.zeros_like(centre), centre, torch.arange(len(centre)))


class ContextPredictor(WordPredictor):
    """Predictor of the word between words: all words of a command line, or of a line of a file."""

    name = "contexts"
    query_form = "words of the training text, the context of one word (in a file: one context a line)"

    def split(self, words: Sequence[str]) -> list[list[str]]:
        return [[word for text in words for word in text.split()]]

    def fields(self, line: str) -> list[str]:
        return line.split()

    def batch(self, queries: Sequence[WordQuery]) -> Batch:
        sizes = torch.tensor([0, *(len(query.words) for query in queries)])
        none = torch.zeros(len(queries), dtype=torch.int64)
        words = torch.tensor([word for query in queries for word in query.words])
        return ContextBatch(none, none, sizes.cumsum(0), words)


class NodePredictor(WordPredictor):
    """Predictor of nodes near a node on walks."""

    name = "walks"
    query_form = "nodes of the graph (in a file: one a line)"
    kind = "node"
