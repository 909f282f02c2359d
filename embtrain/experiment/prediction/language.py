"""Predicts the next words of a language model, by P(w | context) if the loss estimates it, else by score.

A context starts after an end of text and is tokenized like the training text, by query_words.py. Words that are not in
the vocabulary become <unk>, and the note lists them, and what the tokenizer leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, cast

import torch

from embtrain.data.text.streams import UNKNOWN, LanguageBatch
from embtrain.experiment.prediction.base import OPEN, Answer, LinePredictor, Prediction, UnknownName
from embtrain.experiment.prediction.query_words import QueryWords
from embtrain.experiment.tasks.language import LanguageTask


class ContextQuery(NamedTuple):
    """Word ids of a context, its text, a note on what was not read as written, and whether a word is unknown."""

    ids: tuple[int, ...]
    text: str
    note: str
    has_unknown: bool


class LanguagePredictor(LinePredictor[ContextQuery]):
    """Predictor of next words."""

    name = "language"
    query_form = "the words of a context (in a file: one context a line)"

    @cached_property
    def query_words(self) -> QueryWords:
        task = cast(LanguageTask, self.components.task)
        return QueryWords(task.identity, task.section, task.corpus.vocabulary.index, task.corpus.phrases)

    def split(self, words: Sequence[str]) -> list[list[str]]:
        words = words[:-1] if words and words[-1] == OPEN else words
        return [[" ".join(words)]]

    def parse(self, fields: Sequence[str]) -> ContextQuery:
        index = cast(LanguageTask, self.components.task).corpus.vocabulary.index
        words, lost = self.query_words.split(fields[0])
        lacking = [word for word in words if word not in index]
        if lacking and UNKNOWN not in index:
            raise UnknownName("word", lacking[0], index)
        notes = {f"not in the vocabulary, read as {UNKNOWN}": lacking,
                 "left out by the tokenizer, wholly or in part": lost}
        note = "; ".join(f"{what}: {', '.join(dict.fromkeys(which))}" for what, which in notes.items() if which)
        return ContextQuery(
            tuple(index.get(word, index.get(UNKNOWN, -1)) for word in words), " ".join([*words, "?"]), note,
            bool(lacking)
        )

    def predict(self, queries: Sequence[ContextQuery]) -> list[Prediction]:
        """Return predictions for the queries, in order. Contexts of the same length are encoded in one batch."""
        by_length: dict[int, list[int]] = {}
        for i, query in enumerate(queries):
            by_length.setdefault(len(query.ids), []).append(i)
        predictions: dict[int, Prediction] = {}
        for rows in by_length.values():
            for i, answers in zip(rows, self._predict_one_length([queries[i].ids for i in rows]), strict=True):
                predictions[i] = Prediction(
                    queries[i].text, answers, note=queries[i].note, unseen=queries[i].has_unknown
                )
        return [predictions[i] for i in range(len(queries))]

    def _predict_one_length(self, contexts: Sequence[tuple[int, ...]]) -> list[list[Answer]]:
        eos = cast(LanguageTask, self.components.task).eos
        word = torch.tensor([(eos, *ids) for ids in contexts]).T.reshape(-1)  # (T S,) time-major, as in training
        begins = torch.zeros(len(word), dtype=torch.bool)
        begins[:len(contexts)] = True
        batch = LanguageBatch(torch.zeros_like(word), torch.zeros_like(word), word, begins, len(contexts))
        score, z, log_p = self.scores(batch, slice(len(word) - len(contexts), None))
        return [self.top_answers(z[i], score[i], None if log_p is None else log_p[i]) for i in range(len(contexts))]
