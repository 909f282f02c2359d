"""The text of a run's corpus: a recipe's files and reader, or the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from embtrain.common.errors import UsageError
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import CorpusParts
from embtrain.data.text.corpus import ReadingConfig
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.tasks.base import find, find_corpus

C = TypeVar("C", bound=ReadingConfig)


@dataclass(frozen=True)
class CorpusText(Generic[C]):
    """Where a text is, and how it is read."""

    where: list[Path]
    reader: str
    config: C                   # with the tokenizer of the recipe
    parts: CorpusParts | None   # of the recipe
    is_own: bool                # the user's files: their names give their parts
    is_auto: bool               # the settings do not choose the tokenizer
    is_rare_replaced: bool = False   # the recipe says that rare words are <unk> already


def find_text(settings: Settings, kind: type[C]) -> CorpusText[C]:
    """Return the text of a run; a recipe's files are downloaded. kind: of the section of its settings.

    Raises UsageError if the model does not learn from text, and as `find_corpus`.
    """
    if not isinstance(settings.data, kind):
        raise UsageError(f"model.name: {settings.model.name}: learns from {find(settings).corpus_kind}, not from text; "
                         "choose a model of text")
    config, source = settings.data, find_corpus(settings)
    is_auto = config.tokenizer == "auto"
    if isinstance(source, Path):
        return CorpusText([source], "auto", config, None, True, is_auto)
    if is_auto:
        config = config.model_copy(update={"tokenizer": source.tokenizer})
    return CorpusText(fetch.corpus_paths(source), source.reader, config, source.parts, False, is_auto,
                      bool(source.chosen))
