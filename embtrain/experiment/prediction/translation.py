"""Predicts translations of lines, like `embtrain translate`: one answer a line, without a score."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from embtrain.data.storage.containers import Source
from embtrain.experiment.prediction import translator
from embtrain.experiment.prediction.base import Answer, Prediction, Predictor
from embtrain.experiment.tasks.translation import TranslationTask


class TranslationPredictor(Predictor):
    """Predictor of translations."""

    name = "translation"
    query_form = "a line of the source language"
    has_one_answer = True

    def predict_words(self, words: Sequence[str]) -> list[Prediction]:
        return list(self._predict_lines([" ".join(words).encode()], "the line", ""))

    def predict_file(self, source: Source) -> Iterator[Prediction]:
        return self._predict_lines(translator.bounded_lines(source.stream), source.name, source.name)

    def _predict_lines(self, stream: Iterable[bytes], name: str, place: str) -> Iterator[Prediction]:
        """Yield one prediction a line; `name` is the name of the stream in errors."""
        lines, lines_to_read = itertools.tee(stream)
        translations = translator.translate_lines(
            self.components, cast(TranslationTask, self.components.task), lines_to_read, translator.BATCH, name
        )
        for number, (text, line) in enumerate(zip(translations, lines, strict=False), 1):
            yield Prediction(line.decode("utf-8-sig").rstrip("\r\n"), [Answer(text)], place=place and
                             f"{place}:{number}")
