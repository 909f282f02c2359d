"""Predicts the contexts of a word, or of a node of a graph, by the model's score: s(a, b) = u_a · v_b for skip-gram.

This is not the cosine of two words (`embtrain neighbours`): a high score means that b occurs near a, not that b is used
like a. P(b|a) is included if the loss estimates it. A word is looked up in its exact spelling, then in lower case if
the text was folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from embtrain.data.text.windows import SkipGramBatch
from embtrain.experiment.prediction.base import LinePredictor, MalformedQuery, Prediction, UnknownName


class WordQuery(NamedTuple):
    """Id of a word, and a note on its spelling."""

    word: int
    note: str


class WordPredictor(LinePredictor[WordQuery]):
    """Predictor of context words."""

    name = "windows"
    query_form = "words of the training text (in a file: one a line)"
    kind = "word"

    def split(self, words: Sequence[str]) -> list[list[str]]:
        return [[word] for word in words]

    def parse(self, fields: Sequence[str]) -> WordQuery:
        [word] = fields
        index, config = self.index, self.components.task.settings.data
        if not word:
            raise MalformedQuery("the word is empty")
        if word in index:
            return WordQuery(index[word], "")
        folded = word.lower()
        if getattr(config, "lower", False) and folded in index:
            return WordQuery(index[folded], f"read as {folded!r}, because training lowercased the text")
        raise UnknownName(self.kind, word, index)

    @property
    def index(self) -> dict[str, int]:
        task: Any = self.components.task
        return task.corpus.vocabulary.index

    def predict(self, queries: Sequence[WordQuery]) -> list[Prediction]:
        if not queries:
            return []
        centre = torch.tensor([query.word for query in queries])
        batch = SkipGramBatch(torch.zeros_like(centre), torch.zeros_like(centre), centre, torch.arange(len(centre)))
        score, z, log_p = self.scores(batch)
        key = score if self.components.loss.traits.monotone else z
        return [
            Prediction(
                self.names[query.word],
                self.top_answers(key[i], score[i], None if log_p is None else log_p[i]),
                note=query.note,
            )
            for i, query in enumerate(queries)
        ]


class NodePredictor(WordPredictor):
    """Predictor of nodes near a node on walks."""

    name = "walks"
    query_form = "nodes of the graph (in a file: one a line)"
    kind = "node"
