"""Contexts of a word, or of a node of a graph, by the score of the model: s(a, b) = u_a · v_b for skip-gram.

This is not the cosine of two words (`embtrain neighbours`): high scores mean that b is seen near a, not that b is used
like a. P(b|a) is given if the loss estimates it. A word is looked up in its exact spelling, then in lower case if the
text was folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from embtrain.data.text.windows import SkipGramBatch
from embtrain.experiment.prediction.base import LinePredictor, Malformed, Prediction, Unknown


class Query(NamedTuple):
    word: int
    note: str


class WordPredictor(LinePredictor[Query]):
    name = "windows"
    form = "words of the training text (in a file one a line)"
    kind = "word"

    def split(self, words: Sequence[str]) -> list[list[str]]:
        return [[word] for word in words]

    def parse(self, fields: Sequence[str]) -> Query:
        [word] = fields
        index, config = self.index, self.made.task.settings.data
        if not word:
            raise Malformed("the word is empty")
        if word in index:
            return Query(index[word], "")
        folded = word.lower()
        if getattr(config, "lower", False) and folded in index:
            return Query(index[folded], f"read as {folded!r}, because training folded the text to lower case")
        raise Unknown(self.kind, word, index)

    @property
    def index(self) -> dict[str, int]:
        task: Any = self.made.task
        return task.corpus.vocabulary.index

    def of(self, queries: Sequence[Query]) -> list[Prediction]:
        if not queries:
            return []
        centre = torch.tensor([query.word for query in queries])
        batch = SkipGramBatch(torch.zeros_like(centre), torch.zeros_like(centre), centre, torch.arange(len(centre)))
        score, z, log_p = self.scores(batch)
        key = score if self.made.loss.monotone else z
        return [Prediction(self.names[query.word], self.answers(key[i], score[i], None if log_p is None else log_p[i]),
                           note=query.note) for i, query in enumerate(queries)]


class NodePredictor(WordPredictor):
    name = "walks"
    form = "nodes of the graph (in a file one a line)"
    kind = "node"
