"""Running text: predict the next word; evaluated by the likelihood of held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast, get_args

import numpy as np
import torch
from torch import Tensor

from embtrain.common.errors import DataError, UsageError
from embtrain.common.terminal import format_count
from embtrain.common.types import Batch, ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.storage import stored_corpus
from embtrain.data.storage.cache import pack_lines, unpack_lines
from embtrain.data.text import corpus as text_corpus, streams as streams_of_text
from embtrain.data.text.corpus import Corpus
from embtrain.data.text.readers import Reader
from embtrain.data.text.streams import EOS, LanguageBatch, LanguageConfig, Streams
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.language import PerplexityConfig, piece_ids, with_perplexity
from embtrain.experiment.run import scoring as scoring
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.run.scoring import Items
from embtrain.experiment.tasks.base import Task, corpus_name, find_corpus, read_identity
from embtrain.experiment.tasks.texts import find_text
from embtrain.train.engines.false_negatives import KnownPositives

N_PROBE = 4096  # held-out words that are measured to estimate memory
N_SHOWN = 6     # previous words in the text of a query
PHRASES = "phrases"  # PHRASES/1 in corpus.safetensors: the pairs that the first pass joins, one a line


class LanguageTask(Task):
    """Task for language models."""

    name = "language"
    section = "language"
    recipe_readers, corpus_kind = frozenset(get_args(Reader)), "text"
    Config = LanguageConfig
    token_list_keys: ClassVar[dict[str, Any]] = {"format": "tokens", "tokenizer": "whitespace", "lower": False}
    Evaluate: ClassVar[type[PerplexityConfig]] = PerplexityConfig
    metric = "test/perplexity"
    examples: Streams

    def __init__(self, settings: Settings, corpus: Corpus, has_examples: bool = True):
        """has_examples: False for a run that is rebuilt without its corpus."""
        self.settings, self.corpus = settings, corpus
        self.config, self.evaluate = cast(LanguageConfig, settings.data), cast(PerplexityConfig, settings.evaluate)
        self.train, self.valid, self.test = text_corpus.split(corpus, self.config)
        self.identity = corpus.identity
        self.eos, streams = corpus.vocabulary.index[EOS], self.config.streams
        if not has_examples:
            return
        if len(self.train) < streams:
            raise DataError(f"corpus: {settings.corpus}: {len(self.train):,} training words are too few for "
                            f"{streams:,} streams; lower language.streams")
        self.examples = Streams(self.train.ids, self.eos, streams, settings.train.seed)

    @classmethod
    def check(cls, settings: Settings) -> None:
        train, negatives = settings.train, settings.negatives
        streams = cast(LanguageConfig, settings.data).streams
        wrong = [reason for refused, reason in (
            (negatives.filter == "observed",
             "negatives.filter: observed: each context occurs once, so it has no other observed positives; set "
             "negatives.filter: none or target"),
            (train.chunk is None or train.chunk < streams,
             f"train.chunk: {train.chunk}: a block contains a chunk of each of the {streams} streams; set it to "
             f"language.streams times the length of a chunk, e.g. {35 * streams}"),
            (train.chunk is not None and train.batch < train.chunk and train.batch % streams != 0,
             f"train.batch: {train.batch}: an update takes a whole block, or the same number of words of each of the "
             f"{streams} streams; set train.batch: {train.chunk}")) if refused]
        if wrong:
            raise UsageError(*wrong)

    @classmethod
    def read(cls, settings: Settings) -> LanguageTask:
        return cls(settings, cls.load_corpus(settings))

    @classmethod
    def load_corpus(cls, settings: Settings) -> Corpus:
        text = find_text(settings, LanguageConfig)
        config = text.config
        if config.min_count is None and text.is_rare_replaced:
            config = config.model_copy(update={"min_count": 1})
        return streams_of_text.load(text.where, text.reader, config, fetch.cache_folder() / "text",
                                    corpus_name(settings), text.parts, parts_by_name=text.is_own)

    @classmethod
    def from_run_folder(cls, settings: Settings, folder: Path) -> LanguageTask:
        none, vocabulary = np.zeros(1, np.int64), Vocabulary.read(folder / "vocabulary.txt")
        if EOS not in vocabulary.index:
            raise DataError(f"{folder / 'vocabulary.txt'}: has no {EOS}; restore the file that training wrote")
        arrays, passes = stored_corpus.read(folder) or {}, cast(LanguageConfig, settings.data).phrases
        names = [f"{PHRASES}/{number}" for number in range(1, passes + 1)]
        phrases = [{line.partition(" ")[::2] for line in unpack_lines(arrays[name])} for name in names] \
            if arrays.keys() >= set(names) else None                              # of an older run
        identity = read_identity(folder)
        return cls(settings, Corpus(np.zeros(0, np.int32), none, none, vocabulary, identity, (0, 0), phrases),
                   has_examples=False)

    def stored_arrays(self) -> dict[str, np.ndarray]:
        return {f"{PHRASES}/{number}": pack_lines(map(" ".join, sorted(pairs)))   # no word contains a blank
                for number, pairs in enumerate(self.corpus.phrases or (), 1)}

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        source = find_corpus(settings)
        has_parts = not isinstance(source, Path) and source.parts is not None
        if cast(PerplexityConfig, settings.evaluate).words and (has_parts or getattr(settings.data, part)):
            return ""
        return f"nothing is held out; set evaluate.words and language.{part} above 0"

    def problem_spec(self, device: str) -> ProblemSpec:
        """Return the properties of the data. A context is the previous word, the part of a query that has an id."""
        v, settings = len(self.corpus.vocabulary), self.settings
        return ProblemSpec(
            n_candidates=v,
            counts=torch.from_numpy(self.corpus.vocabulary.counts).double(),
            n_contexts=v,
            dim=settings.model.dim,
            seed=settings.train.seed,
            device=device,
            words=self.corpus.vocabulary.words,
        )

    def candidate_names(self) -> Sequence[str]:
        return self.corpus.vocabulary.words

    def known_positives(self, max_bytes: int) -> KnownPositives:
        raise UsageError("negatives.filter: observed: a language model has no set of observed positives; set "
                         "negatives.filter: none")

    def _heldout(self, part: str) -> LanguageBatch:
        text_part = self.valid if part == "valid" else self.test
        return streams_of_text.heldout(text_part.ids, self.eos, self.evaluate.words)

    def describe_heldout(self, batch: Batch, query: Query, rows: Tensor) -> list[str]:
        """Return the last N_SHOWN words before each target."""
        previous, words = cast(LanguageBatch, batch).word.tolist(), self.corpus.vocabulary.words
        return [" ".join(words[i] for i in previous[max(0, row + 1 - N_SHOWN):row + 1]) + " _" for row in rows.tolist()]

    def summary(self) -> str:
        return (f"{len(self.train):,} training words in {self.examples.streams:,} streams, {len(self.valid):,} and "
                f"{len(self.test):,} held out, {len(self.corpus.vocabulary):,} in the vocabulary")

    def describe(self, folder: Path) -> None:
        self.corpus.vocabulary.write(folder / "vocabulary.txt")

    def check_ids(self, folder: Path) -> None:
        if Vocabulary.read(folder / "vocabulary.txt").words != self.corpus.vocabulary.words:
            raise self.ids_changed(folder, "vocabulary.txt")

    def validate(self, components: ModelParts) -> list[Score]:
        return self._part(components, "valid", self.evaluate.model_copy(update={"resamples": 0}))

    def score_run(self, components: ModelParts, folder: Path, items: Items) -> list[Score]:
        table = components.model.vectors().detach().cpu().float().numpy()
        vector_files.write(folder / "vectors.safetensors", Vectors(self.corpus.vocabulary.words, table),
                               "safetensors")
        return [row for part in ("valid", "test") for row in self._part(components, part, self.evaluate, items)]

    def evaluation_bytes(self, components: ModelParts) -> int:
        n = max(len(self.heldout(part)) for part in ("valid", "test"))
        text_part = self.valid if len(self.valid) else self.test
        return scoring.evaluation_bytes(
            components, streams_of_text.heldout(text_part.ids, self.eos, min(n, N_PROBE)), n
        )

    def _part(
        self, components: ModelParts, part: str, config: PerplexityConfig, items: Items | None = None
    ) -> list[Score]:
        batch = self.heldout(part)
        rows = scoring.likelihood(components, batch, part, config, items, piece_ids(len(batch), config.piece))
        v = components.problem.n_candidates
        note = f"{format_count(len(batch), 'word')}, {v:,} in the vocabulary, pieces of {config.piece:,}"
        return with_perplexity([row._replace(note=note if len(batch) else "no held-out words") for row in rows])
