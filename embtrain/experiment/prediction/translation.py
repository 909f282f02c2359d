"""Translations of lines, as `embtrain translate` gives them: one answer each, without a score."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from embtrain.data.storage.containers import Source
from embtrain.experiment.prediction.base import Answer, Prediction, Predictor
from embtrain.experiment.run import translation
from embtrain.experiment.tasks.translation import Translation

AT_ONCE = 100  # lines read before they are translated, as the command does


class TranslationPredictor(Predictor):
    name = "translation"
    form = "a line of the source language"

    def given(self, words: Sequence[str]) -> list[Prediction]:
        return list(self._of([" ".join(words).encode()], "the line", ""))

    def read(self, source: Source) -> Iterator[Prediction]:
        return self._of(translation.bounded_lines(source.stream), source.name, source.name)

    def _of(self, stream: Iterable[bytes], name: str, place: str) -> Iterator[Prediction]:
        """One prediction for each line; `name` is that of the stream in errors."""
        lines, again = itertools.tee(stream)
        found = translation.translate_lines(self.made, cast(Translation, self.made.task), again, AT_ONCE, name)
        for number, (text, line) in enumerate(zip(found, lines, strict=False), 1):
            yield Prediction(line.decode("utf-8-sig").rstrip("\r\n"), [Answer(text)], place=place and
                             f"{place}:{number}")
