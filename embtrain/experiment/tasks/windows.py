"""Windows of text: word ids, pairs (centre word, context word), judged by held-out pairs and by what the vectors know
of words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast, get_args

import numpy as np
import torch

from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import write_json
from embtrain.common.types import ProblemSpec, Score
from embtrain.data.catalogue import fetch
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.text import corpus as text, windows
from embtrain.data.text.corpus import Corpus, TextConfig, WindowsConfig
from embtrain.data.text.readers import Reader
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.text.windows import SkipGramBatch
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.evaluate.words.neighbours import PMI, Neighbours, neighbours
from embtrain.experiment.run import downstream, scoring as judge
from embtrain.experiment.tasks.base import Task, corpus, name_of, stored_identity

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components
    from embtrain.experiment.run.scoring import Items
    from embtrain.experiment.run.settings import Settings


FEW = 4096  # held-out examples that stand for all where memory is told


class Windows(Task):
    name = "windows"
    section = "text"
    readers, learns = frozenset(get_args(Reader)), "text"
    Config: ClassVar[type[WindowsConfig]] = TextConfig
    Evaluate: ClassVar[type[WordsConfig]] = WordsConfig

    def __init__(self, settings: Settings, whole: Corpus):
        self.settings, self.corpus = settings, whole
        self.config, self.evaluate = cast(WindowsConfig, settings.data), cast(WordsConfig, settings.evaluate)
        if len(whole.vocabulary) < 2:
            lower = f"lower {self.section}.min_count or " if self.config.min_count > 1 else ""
            if isinstance(self.config, TextConfig) and whole.identity.get("counts", {}).get("types") == 1:
                lower = "if its words are ids, set text.tokenizer=whitespace; else "  # min_count is not why
            raise DataError(f"corpus: {settings.corpus}: {len(whole.vocabulary)} words occur {self.config.min_count} "
                            f"times or more, which leaves nothing to tell apart; {lower}give more")
        self.train, self.valid, self.test = text.split(whole, self.config)
        self.windows = windows.Windows(self.train, self.config, settings.train.seed)

    @classmethod
    def check(cls, settings: Settings) -> None:
        config = cast(WordsConfig, settings.evaluate)
        judge.check_names(config.on)
        judge.check_names(config.every, flag="evaluate.every")
        if training := downstream.training_recipes(config.every):
            raise UsageError(f"evaluate.every: {training[0].name}: trains a translator, which is done once, at the "
                             "end; name it under evaluate.on")

    @classmethod
    def read(cls, settings: Settings) -> Windows:
        config, found, own = cast(TextConfig, settings.data), corpus(settings), None
        if isinstance(found, Path):
            where, reader = [found], "auto"
        else:
            where, reader, own = fetch.corpus_paths(found), found.reader, found.parts
            if config.tokenizer == "auto":
                config = config.model_copy(update={"tokenizer": found.tokenizer})
        return cls(settings, text.load(where, reader, config, fetch.cache_folder() / "text", name_of(settings), own,
                                       guess=isinstance(found, Path)))

    @classmethod
    def stored(cls, settings: Settings, folder: Path) -> Self:
        none = np.zeros(1, np.int64)
        return cls(settings, Corpus(np.zeros(0, np.int32), none, none, Vocabulary.read(folder / "vocabulary.txt"),
                                    stored_identity(folder), (0, 0)))

    @classmethod
    def benchmarks(cls, settings: Settings) -> list[str]:
        return cast(WordsConfig, settings.evaluate).on

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        if cast(WordsConfig, settings.evaluate).heldout_pairs and getattr(settings.data, part):
            return ""
        return f"nothing is held out; set evaluate.heldout_pairs and {cls.section}.{part} above 0"

    @property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        return self.corpus.identity

    @property
    def examples(self) -> windows.Windows:  # type: ignore[override]
        return self.windows

    def world(self, device: str) -> ProblemSpec:
        v, settings = len(self.corpus.vocabulary), self.settings
        if self.windows.examples_per_epoch < 1:
            raise DataError(f"corpus: {settings.corpus}: gives no pairs to train on: {self._pairless()}")
        return ProblemSpec(n_candidates=v, counts=torch.from_numpy(self.windows.target_counts), n_contexts=v,
                     raw_counts=torch.from_numpy(self.windows.raw_counts), dim=settings.model.dim,
                     seed=settings.train.seed, device=device, words=self.corpus.vocabulary.words)

    def _pairless(self) -> str:
        if (np.diff(self.train.sequence) < 2).all():
            by_line = isinstance(self.config, TextConfig) and self.config.sequence == "line"
            return f"no line has two words; {'set text.sequence: document' if by_line else 'give longer ones'}"
        return f"words so frequent are thinned out; set {self.section}.sample: 0, or give more text"

    def candidates(self) -> Sequence[str]:
        return self.corpus.vocabulary.words

    def answers(self, most: int) -> KnownPairs:
        return KnownPairs.from_corpus(self.train, self.config, most)

    def _heldout(self, part: str) -> SkipGramBatch:
        of = self.valid if part == "valid" else self.test
        return windows.heldout(of, self.config, self.evaluate.heldout_pairs, self.config.split_seed)

    def summary(self) -> str:
        return (f"{len(self.train):,} training tokens, {len(self.corpus.vocabulary):,} words, "
                f"about {self.windows.examples_per_epoch:,.0f} pairs an epoch")

    def describe(self, folder: Path) -> None:
        self.corpus.vocabulary.write(folder / "vocabulary.txt")

    def check_ids(self, folder: Path) -> None:
        if Vocabulary.read(folder / "vocabulary.txt").words != self.corpus.vocabulary.words:
            raise self.unlike(folder, "vocabulary.txt")

    def during(self, made: Components) -> list[Score]:
        config = self.evaluate
        rows = judge.likelihood(made, self.heldout("valid"), "valid", config.model_copy(update={"resamples": 0}))
        if config.every:
            rows += judge.benchmarks(self._vectors(made), config.every, config)
        return rows

    def judge(self, made: Components, folder: Path, items: Items) -> list[Score]:
        table = self._vectors(made)
        files_of_vectors.write(folder / "vectors.safetensors", table, "safetensors")
        rows = judge.benchmarks(table, self.evaluate.on, self.evaluate, items)
        for part in ("valid", "test"):
            rows += judge.likelihood(made, self.heldout(part), part, self.evaluate, items)
        found = self._neighbours(table)
        write_json(folder / "neighbours.json", found.tree())
        return [*rows, Score("neighbours 45-50", "mean frequency rank", found.far_rank, n=len(found.far),
                           note=found.note),
                Score("neighbours 45-50", "mean PMI", found.far_pmi, n=len(found.far), note=found.note)]

    def judging(self, made: Components) -> int:
        """Vectors of length 1 for the benchmarks, beside the scores of held-out questions."""
        held = max((self.heldout(part) for part in ("valid", "test")), key=len)
        return 4 * made.model.vectors().numel() + judge.evaluation_bytes(made, held.rows(slice(0, FEW)), len(held))

    def _vectors(self, made: Components) -> Vectors:
        table = made.model.vectors(self.evaluate.vectors).detach().cpu().float().numpy()
        return Vectors(self.corpus.vocabulary.words, table)

    def _neighbours(self, table: Vectors) -> Neighbours:
        """Neighbours 1-5 and 45-50 of the configured words, and how common and how related the far ones are."""
        train = self.train
        pmi = PMI(train.ids, train.sequence, train.vocabulary.index, self.config.window)
        return neighbours(table, self.evaluate.neighbours, train.vocabulary.counts, pmi)
