"""Running text: each word asks for the next one, judged by how likely held-out text is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast, get_args

import numpy as np
import torch

from embtrain.common.errors import DataError, UsageError
from embtrain.common.types import ProblemSpec, Score
from embtrain.data.catalogue import fetch
from embtrain.data.text import corpus as text, streams as language
from embtrain.data.text.corpus import Corpus
from embtrain.data.text.readers import Reader
from embtrain.data.text.streams import EOS, LanguageBatch, LanguageConfig, Streams
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.language import PerplexityConfig, pieces, with_perplexity
from embtrain.experiment.run import scoring as judge
from embtrain.experiment.tasks.base import Task, corpus, name_of, stored_identity
from embtrain.train.engines.false_negatives import KnownPositives

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components
    from embtrain.experiment.run.scoring import Items
    from embtrain.experiment.run.settings import Settings


FEW = 4096  # held-out words that stand for all where memory is told


class Language(Task):
    name = "language"
    section = "language"
    readers, learns = frozenset(get_args(Reader)), "text"
    Config = LanguageConfig
    Evaluate: ClassVar[type[PerplexityConfig]] = PerplexityConfig
    metric = "test/perplexity"
    examples: Streams

    def __init__(self, settings: Settings, whole: Corpus, trains: bool = True):
        """trains: false for a run that was rebuilt without its corpus, which has no examples."""
        self.settings, self.corpus = settings, whole
        self.config, self.evaluate = cast(LanguageConfig, settings.data), cast(PerplexityConfig, settings.evaluate)
        self.train, self.valid, self.test = text.split(whole, self.config)
        self.identity = whole.identity
        self.eos, streams = whole.vocabulary.index[EOS], self.config.streams
        if not trains:
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
            (negatives.mask == "observed",
             "negatives.mask: observed: what was read is asked about once, so no other answers to it were seen; set "
             "negatives.mask: none or target"),
            (train.block is None or train.block < streams,
             f"train.block: {train.block}: a block holds a stretch of each of the {streams} streams; set it to "
             f"language.streams times the length of a stretch, such as {35 * streams}"),
            (train.block is not None and train.batch < train.block and train.batch % streams != 0,
             f"train.batch: {train.batch}: an update is a whole block, or as many words of each of the {streams} "
             f"streams; set train.batch: {train.block}")) if refused]
        if wrong:
            raise UsageError(*wrong)

    @classmethod
    def read(cls, settings: Settings) -> Language:
        config, found, own = cast(LanguageConfig, settings.data), corpus(settings), None
        if isinstance(found, Path):
            where, reader = [found], "auto"
        else:
            where, reader, own = fetch.corpus_paths(found), found.reader, found.parts
            if config.tokenizer == "auto":
                config = config.model_copy(update={"tokenizer": found.tokenizer})
            if config.min_count is None and found.chosen:
                config = config.model_copy(update={"min_count": 1})
        return cls(settings, language.load(where, reader, config, fetch.cache_folder() / "text", name_of(settings),
                                           own, guess=isinstance(found, Path)))

    @classmethod
    def stored(cls, settings: Settings, folder: Path) -> Language:
        none, vocabulary = np.zeros(1, np.int64), Vocabulary.read(folder / "vocabulary.txt")
        if EOS not in vocabulary.index:
            raise DataError(f"{folder / 'vocabulary.txt'}: has no {EOS}; put back the file that training wrote")
        return cls(settings, Corpus(np.zeros(0, np.int32), none, none, vocabulary, stored_identity(folder), (0, 0)),
                   trains=False)

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        found = corpus(settings)
        own = not isinstance(found, Path) and found.parts is not None
        if cast(PerplexityConfig, settings.evaluate).words and (own or getattr(settings.data, part)):
            return ""
        return f"nothing is held out; set evaluate.words and language.{part} above 0"

    def world(self, device: str) -> ProblemSpec:
        """A context is the word before: what is known of a question by a number."""
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

    def candidates(self) -> Sequence[str]:
        return self.corpus.vocabulary.words

    def answers(self, most: int) -> KnownPositives:
        raise UsageError("negatives.mask: observed: a language model has no set of answers; set negatives.mask: none")

    def _heldout(self, part: str) -> LanguageBatch:
        of = self.valid if part == "valid" else self.test
        return language.heldout(of.ids, self.eos, self.evaluate.words)

    def summary(self) -> str:
        return (f"{len(self.train):,} training words in {self.examples.streams:,} streams, {len(self.valid):,} and "
                f"{len(self.test):,} held out, {len(self.corpus.vocabulary):,} in the vocabulary")

    def describe(self, folder: Path) -> None:
        self.corpus.vocabulary.write(folder / "vocabulary.txt")

    def check_ids(self, folder: Path) -> None:
        if Vocabulary.read(folder / "vocabulary.txt").words != self.corpus.vocabulary.words:
            raise self.unlike(folder, "vocabulary.txt")

    def during(self, made: Components) -> list[Score]:
        return self._part(made, "valid", self.evaluate.model_copy(update={"resamples": 0}))

    def judge(self, made: Components, folder: Path, items: Items) -> list[Score]:
        table = made.model.vectors().detach().cpu().float().numpy()
        files_of_vectors.write(folder / "vectors.safetensors", Vectors(self.corpus.vocabulary.words, table),
                               "safetensors")
        return [row for part in ("valid", "test") for row in self._part(made, part, self.evaluate, items)]

    def judging(self, made: Components) -> int:
        n = max(len(self.heldout(part)) for part in ("valid", "test"))
        of = self.valid if len(self.valid) else self.test
        return judge.evaluation_bytes(made, language.heldout(of.ids, self.eos, min(n, FEW)), n)

    def _part(self, made: Components, part: str, config: PerplexityConfig, items: Items | None = None) -> list[Score]:
        batch = self.heldout(part)
        rows = judge.likelihood(made, batch, part, config, items, pieces(len(batch), config.piece))
        note = f"{len(batch):,} words, {made.world.n_candidates:,} in the vocabulary, pieces of {config.piece:,}"
        return with_perplexity([row._replace(note=note if len(batch) else "no held-out words") for row in rows])
