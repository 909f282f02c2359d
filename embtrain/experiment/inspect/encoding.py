"""`embtrain data encode`: read the text of a corpus into the cache, or estimate what that costs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from embtrain.data.storage.folders import read_into_cache
from embtrain.data.text.corpus import ReadingConfig, find_files
from embtrain.data.text.shards.estimate import ReadingEstimate, estimate
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.tasks import base as tasks
from embtrain.experiment.tasks.texts import find_text


@dataclass(frozen=True)
class EncodedText:
    """Counts of a text that is in the cache."""

    corpus: str
    sha256: str        # of its files
    files: str         # which file is which part; '' for a single one
    documents: int
    tokens: int
    types: int         # distinct words
    words: int         # words with an id
    kept: int          # tokens of those words
    seconds: float

    def __str__(self) -> str:
        return "\n".join(filter(None, (
            self.files,
            f"{self.corpus}: {self.documents:,} documents, {self.tokens:,} tokens, {self.types:,} distinct words; "
            f"{self.words:,} words with an id, {self.kept:,} tokens of them; {self.seconds:,.1f} s")))


def encode_text(settings: Settings) -> EncodedText:
    """Read the corpus of a run into the cache, where `fit` with the same settings finds it.

    Raises UsageError if the model does not learn from text, DataError and ResourceError as reading does.
    """
    begun = time.monotonic()
    task = tasks.find(settings)
    corpus = read_into_cache(lambda: task.load_corpus(settings))
    counts = corpus.identity["counts"]
    return EncodedText(settings.corpus, corpus.identity["sha256"], tasks.describe_files(settings, corpus.identity),
                       counts["documents"], counts["tokens"], counts["types"], counts["words"], counts["kept"],
                       time.monotonic() - begun)


def estimate_encoding(settings: Settings) -> ReadingEstimate:
    """Estimate seconds, memory and disk of `encode_text` from a sample of the text. Raises the same errors."""
    text = find_text(settings, ReadingConfig)
    kind, files = find_files(text.where, text.reader, text.config, settings.corpus, text.parts, text.is_own)
    limit = getattr(text.config, "max_sequence", 1 << 62)
    return estimate(settings.corpus, files, text.config.rules(kind, limit), text.config.workers)
