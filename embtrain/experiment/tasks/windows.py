"""Windows of text: pairs (centre word, context word); evaluated by held-out pairs and word benchmarks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast, get_args

import numpy as np
import torch

from embtrain.common.errors import DataError, ResourceError, UsageError
from embtrain.common.files import write_json
from embtrain.common.terminal import format_count
from embtrain.common.types import ProblemSpec, Score
from embtrain.data.catalogue import fetch
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.storage.skipped import counted
from embtrain.data.text import corpus as text_corpus, windows
from embtrain.data.text.corpus import Corpus, TextConfig, WindowsConfig
from embtrain.data.text.readers import Reader
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.text.windows import SkipGramBatch
from embtrain.data.vectors import subword_table, vectors as vector_files
from embtrain.data.vectors.subword_table import SubwordTable
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import WordsConfig
from embtrain.evaluate.heldout import DRIFT, FAR_NEIGHBOURS
from embtrain.evaluate.words.alignment import align
from embtrain.evaluate.words.neighbours import PMI, NeighbourReport, neighbours, query_words
from embtrain.experiment.run import downstream, scoring as scoring
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.run.scoring import Items
from embtrain.experiment.tasks import parent_text
from embtrain.experiment.tasks.base import Task, corpus_name, read_identity
from embtrain.experiment.tasks.parent_text import ParentText
from embtrain.experiment.tasks.texts import find_text
from embtrain.models.base import Model
from embtrain.models.words.skipgram import SkipGram

_log = logging.getLogger("embtrain")

N_PROBE = 4096  # held-out examples that are measured to estimate memory


def subwords_of(model: Model, words: Sequence[str]) -> SubwordTable | None:
    """Return the rows that pool the vectors of any word, of a model of V words; None if it has no subwords."""
    if not isinstance(model, SkipGram) or model.pool is None:
        return None
    config, u = model.pool.config, model.u.detach().cpu().numpy()
    ngrams = subword_table.make_ngrams(config.min_n, config.max_n, config.buckets, words)
    return SubwordTable(ngrams, u[len(words):], words, u[:len(words)], config.pooling)


class WindowsTask(Task):
    """Task for skip-gram models."""

    name = "windows"
    section = "text"
    recipe_readers, corpus_kind = frozenset(get_args(Reader)), "text"
    Config: ClassVar[type[WindowsConfig]] = TextConfig
    token_list_keys: ClassVar[dict[str, Any]] = {"format": "tokens", "tokenizer": "whitespace", "lower": False}
    Evaluate: ClassVar[type[WordsConfig]] = WordsConfig
    Windows: ClassVar[type[windows.SkipGramWindows]] = windows.SkipGramWindows  # form of the examples

    def __init__(self, settings: Settings, corpus: Corpus, parent: ParentText | None = None):
        self.settings, self.corpus, self.parent = settings, corpus, parent
        self.config, self.evaluate = cast(WindowsConfig, settings.data), cast(WordsConfig, settings.evaluate)
        if len(corpus.vocabulary) < 2:
            lower = f"lower {self.section}.min_count or " if self.config.min_count > 1 else ""
            if isinstance(self.config, TextConfig) and corpus.identity.get("counts", {}).get("types") == 1:
                lower = "if its words are ids, set text.tokenizer=whitespace; otherwise "  # min_count is not the reason
            few, times = counted(len(corpus.vocabulary), "word occurs", "words occur"), self.config.min_count
            raise DataError(f"corpus: {settings.corpus}: {few} {format_count(times, 'time')} or more, so there are no "
                            f"negatives; {lower}give more text")
        self.train, self.valid, self.test = text_corpus.split(corpus, self.config)
        self.windows = self.Windows(self.train, self.config, settings.train.seed)

    @classmethod
    def check(cls, settings: Settings) -> None:
        config = cast(WordsConfig, settings.evaluate)
        scoring.check_names(config.benchmarks)
        scoring.check_names(config.during_training, flag="evaluate.during_training")
        if training := downstream.training_recipes(config.during_training):
            raise UsageError(f"evaluate.during_training: {training[0].name}: trains a translator, which is possible "
                             "only at the end; set it in evaluate.benchmarks")

    @classmethod
    def read(cls, settings: Settings) -> WindowsTask:
        parent = None if settings.train.parent is None else parent_text.read(Path(settings.train.parent))
        corpus = cls.load_corpus(settings, parent)
        return cls(settings, corpus, parent)

    @classmethod
    def load_corpus(cls, settings: Settings, parent: ParentText | None = None) -> Corpus:
        text = find_text(settings, TextConfig)
        config = text.config if parent is None else parent.continued_reading(text.config, text.is_auto)
        corpus = text_corpus.load(text.where, text.reader, config, fetch.cache_folder() / "text",
                                  corpus_name(settings), text.parts, parts_by_name=text.is_own,
                                  earlier=None if parent is None else parent.vocabulary)
        return corpus if parent is None else parent.extended(corpus)

    @classmethod
    def from_run_folder(cls, settings: Settings, folder: Path) -> Self:
        none = np.zeros(1, np.int64)
        return cls(settings, Corpus(np.zeros(0, np.int32), none, none, Vocabulary.read(folder / "vocabulary.txt"),
                                    read_identity(folder), (0, 0)))

    @classmethod
    def benchmarks(cls, settings: Settings) -> list[str]:
        return cast(WordsConfig, settings.evaluate).benchmarks

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        if cast(WordsConfig, settings.evaluate).heldout_pairs and getattr(settings.data, part):
            return ""
        return f"nothing is held out; set evaluate.heldout_pairs and {cls.section}.{part} above 0"

    @property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        return self.corpus.identity

    @property
    def examples(self) -> windows.SkipGramWindows:  # type: ignore[override]
        return self.windows

    def problem_spec(self, device: str) -> ProblemSpec:
        v, settings = len(self.corpus.vocabulary), self.settings
        if self.windows.examples_per_epoch < 1:
            raise DataError(f"corpus: {settings.corpus}: gives no training pairs: {self._why_no_pairs()}")
        words, counts, raw_counts = self.corpus.vocabulary.words, self.windows.target_counts, self.windows.raw_counts
        if self.parent is not None:
            counts = counts + self.parent.spread(self.parent.target_counts, words)
            raw_counts = raw_counts + self.parent.spread(self.parent.raw_counts, words)
        return ProblemSpec(n_candidates=v, counts=torch.from_numpy(counts), n_contexts=v,
                           raw_counts=torch.from_numpy(raw_counts), dim=settings.model.dim,
                           seed=settings.train.seed, device=device, words=words)

    def _why_no_pairs(self) -> str:
        if (np.diff(self.train.sequence) < 2).all():
            by_line = isinstance(self.config, TextConfig) and self.config.sequence == "line"
            return f"no line has two words; {'set text.sequence: document' if by_line else 'give longer ones'}"
        return f"subsampling removed all words; set {self.section}.sample: 0, or give more text"

    def candidate_names(self) -> Sequence[str]:
        return self.corpus.vocabulary.words

    def known_positives(self, max_bytes: int) -> KnownPairs:
        return KnownPairs.from_corpus(self.train, self.config, max_bytes)

    def _heldout(self, part: str) -> SkipGramBatch:
        text_part = self.valid if part == "valid" else self.test
        return windows.heldout(text_part, self.config, self.evaluate.heldout_pairs, self.config.split_seed)

    @property
    def n_words(self) -> int:
        return len(self.train)

    def summary(self) -> str:
        return (f"{len(self.train):,} training tokens, {len(self.corpus.vocabulary):,} words, about "
                f"{self.windows.examples_per_epoch:,.0f} pairs per epoch")

    def describe(self, folder: Path) -> None:
        self.corpus.vocabulary.write(folder / "vocabulary.txt")

    def check_ids(self, folder: Path) -> None:
        if Vocabulary.read(folder / "vocabulary.txt").words != self.corpus.vocabulary.words:
            raise self.ids_changed(folder, "vocabulary.txt")

    def validate(self, components: ModelParts) -> list[Score]:
        config = self.evaluate
        rows = scoring.likelihood(
            components, self.heldout("valid"), "valid", config.model_copy(update={"resamples": 0})
        )
        if config.during_training:
            rows += scoring.benchmarks(self.word_vectors(components), config.during_training, config)
        return rows

    def score_run(self, components: ModelParts, folder: Path, items: Items) -> list[Score]:
        table = self.word_vectors(components)
        vector_files.write(folder / "vectors.safetensors", table, "safetensors")
        if table.subwords is not None:
            table.subwords.save(folder / subword_table.FILE)
        rows = scoring.benchmarks(table, self.evaluate.benchmarks, self.evaluate, items)
        for part in ("valid", "test"):
            rows += scoring.likelihood(components, self.heldout(part), part, self.evaluate, items)
        rows += self._drift(table, folder)
        neighbour_lists = self._neighbours(table)
        write_json(folder / "neighbours.json", neighbour_lists.tree())
        return [
            *rows,
            Score(
                FAR_NEIGHBOURS,
                "mean frequency rank",
                neighbour_lists.far_rank,
                n=len(neighbour_lists.far),
                note=neighbour_lists.note,
            ),
            Score(
                FAR_NEIGHBOURS,
                "mean PMI",
                neighbour_lists.far_pmi,
                n=len(neighbour_lists.far),
                note=neighbour_lists.note,
            ),
        ]

    def _drift(self, table: Vectors, folder: Path) -> list[Score]:
        """Return how far the words of the parent run have moved, and write the words that moved most to drift.json."""
        if self.parent is None:
            return []
        try:
            before = vector_files.read(self.parent.folder / "vectors.safetensors")
        except (DataError, ResourceError) as error:
            _log.warning("the drift of the earlier words is not measured: %s", error)
            return []
        moved = align(before, table)
        write_json(folder / "drift.json", moved.tree())
        most = ", ".join(f"{change.word} {change.cosine:.2f}" for change in moved.by_cosine)
        return [Score(DRIFT, "mean cosine", moved.cosine_before, n=moved.n_common),
                Score(DRIFT, "aligned mean cosine", moved.cosine_after, n=moved.n_common,
                      note=f"moved most of the {moved.n_frequent:,} most frequent: {most}")]

    def evaluation_bytes(self, components: ModelParts) -> int:
        """Return the memory of unit and centred vectors for the benchmarks plus that of scores of held-out queries."""
        heldout = max((self.heldout(part) for part in ("valid", "test")), key=len)
        pooled = 1 if getattr(self.settings.model, "subword", None) else 0  # vectors that are not rows of a table
        copies = 1 + self.evaluate.centred
        in_memory = pooled + copies * (components.problem.new_table is None)
        return 4 * in_memory * components.model.vectors().numel() + scoring.evaluation_bytes(
            components, heldout.rows(slice(0, N_PROBE)), len(heldout)
        )

    def word_vectors(self, components: ModelParts) -> Vectors:
        """Return the vectors of the words.

        Input vectors with subwords are composed from their rows, bitwise as fastText composes those of an exported run.
        """
        which, words = self.evaluate.vectors, self.corpus.vocabulary.words
        subwords = subwords_of(components.model, words) if which == "input" else None
        if subwords is not None:
            return Vectors(words, subwords.compose(words), subwords)
        return Vectors(words, components.model.vectors(which).detach().cpu().float().numpy(),
                       new_table=components.problem.new_table)

    def _neighbours(self, table: Vectors) -> NeighbourReport:
        """Return neighbours 1-5 and 45-50 of the configured words, and the frequency and PMI of the far ones.

        If the vocabulary lacks most of these words, as a text in another language does, frequent words are added.
        """
        train = self.train
        pmi = PMI(train.ids, train.sequence, train.vocabulary.index, self.config.window)
        words = query_words(table, self.evaluate.neighbours)
        report = neighbours(table, words, train.vocabulary.counts, pmi)
        return replace(report, missing=[*report.missing, *(w for w in self.evaluate.neighbours if w not in words)],
                       added=[word for word in words if word not in self.evaluate.neighbours])
