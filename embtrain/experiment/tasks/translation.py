"""Translation: a source and the words before ask for the next word; judged by BLEU, and by how near answers come."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, cast, get_args

import numpy as np
import torch

from embtrain.common import machine, shipped
from embtrain.common.errors import DataError, UsageError
from embtrain.common.files import read_json, write_json, write_text
from embtrain.common.types import ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import CorpusRecipe, load_recipe
from embtrain.data.parallel import corpus as parallel, own_test_set
from embtrain.data.parallel.batches import Sentences, TranslationBatch, batch_of
from embtrain.data.parallel.corpus import EOS, UNKNOWN, Parallel, TranslationConfig
from embtrain.data.parallel.files import Layout
from embtrain.data.parallel.pieces import Pieces
from embtrain.data.parallel.tokenize import Tokenizer, source_words, untokenised
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import heldout
from embtrain.evaluate.translation import scores as translation
from embtrain.evaluate.translation.scores import NUMBERS, TranslationEvaluate
from embtrain.experiment.run import scoring as judge, translation as translate
from embtrain.experiment.tasks.base import Task, corpus, name_of
from embtrain.losses import base as losses
from embtrain.train.engines.false_negatives import KnownPositives

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components
    from embtrain.experiment.run.scoring import Items
    from embtrain.experiment.run.settings import Settings

SIDES = ("source", "target")  # SIDE.vocabulary.txt in the folder of a run


_log = logging.getLogger("embtrain")
FEW = 128                     # held-out sentences that stand for all where memory is told


class Translation(Task):
    name = "translation"
    section = "translation"
    readers, learns = frozenset({"parallel", "grammar"}), "pairs of sentences"
    Config = TranslationConfig
    Evaluate: ClassVar[type[TranslationEvaluate]] = TranslationEvaluate
    better = "valid/accuracy@1"
    metric = "test/bleu"
    text: Parallel
    examples: Sentences

    def __init__(self, settings: Settings, source: Vocabulary, target: Vocabulary, tokenizer: Tokenizer,
                 pieces: str = "none"):
        """pieces: kind of the pieces of words that are joined in source lines (parallel_pieces)."""
        self.settings, self.tokenizer, self.pieces = settings, tokenizer, pieces
        self.config, self.evaluate = (cast(TranslationConfig, settings.data),
                                      cast(TranslationEvaluate, settings.evaluate))
        self.source, self.target = source, target

    @classmethod
    def check(cls, settings: Settings) -> None:
        train, config = settings.train, cast(TranslationConfig, settings.data)
        judged = cast(TranslationEvaluate, settings.evaluate)
        rounded = judged.table == "bfloat16"
        wrong = [reason for refused, reason in (
            (rounded and judged.beam > 1,
             "evaluate.table: bfloat16: finds the best word, and a beam wants several; set evaluate.beam: 1"),
            (rounded and losses.find(settings.loss.name).estimates_log_odds,
             f"evaluate.table: bfloat16: loss.name: {settings.loss.name} ranks words by score and frequency, and the "
             "table knows scores alone; set evaluate.table: float32"),
            (settings.negatives.mask == "observed",
             "negatives.mask: observed: what stands before an answer stands there once, so no other answers to it were "
             "seen; set negatives.mask: none or target"),
            (train.block is None,
             "train.block: null: a block is some whole sentences; set it to a number of words, such as 600"),
            (train.block is not None and train.batch < train.block,
             f"train.batch: {train.batch}: sentences are not parted, so a block of them is one update; set "
             f"train.batch: {train.block}"),
            (train.block is not None and train.block <= config.longest,
             f"train.block: {train.block}: a sentence of translation.longest: {config.longest} words and its end do "
             "not fit; set a larger block, or a smaller longest")) if refused]
        if wrong:
            raise UsageError(*wrong)

    @classmethod
    def read(cls, settings: Settings) -> Translation:
        config, found, cache = cast(TranslationConfig, settings.data), corpus(settings), fetch.cache_folder()
        folder, name = cache / "parallel", name_of(settings)
        tokenizer = config.tokenizer
        if not isinstance(found, Path):
            tokenizer = cast(Tokenizer, found.tokenizer) if tokenizer == "auto" else tokenizer
        tokenizer = "whitespace" if tokenizer == "whitespace" else "signs"
        if not isinstance(found, Path) and found.grammar is not None:
            return cls.of(settings, parallel.make(found.grammar, config, folder, name), tokenizer)
        where = [found] if isinstance(found, Path) else fetch.corpus_paths(found)
        layout = _layout(config, None if isinstance(found, Path) else found)
        return cls.of(settings, parallel.load(where, layout, config, tokenizer, folder, name), tokenizer)

    @classmethod
    def of(cls, settings: Settings, text: Parallel, tokenizer: Tokenizer) -> Translation:
        made = cls(settings, text.source.vocabulary, text.target.vocabulary, tokenizer, text.identity["pieces"][0])
        made.text, made.examples = text, Sentences(text, settings.train.seed)
        made.identity = {**text.identity, "tokenizer": tokenizer}
        return made

    @classmethod
    def stored(cls, settings: Settings, folder: Path) -> Self:
        """What a run knows without its corpus: the words of both sides, and how lines are parted into them."""
        path = folder / "identity.json"
        try:
            corpus = read_json(path)["corpus"]
            tokenizer, pieces = corpus["tokenizer"], corpus.get("pieces", ["none", "none"])[0]
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path}: does not contain how lines are split into words: {error}; put back the file of "
                            "the run") from error
        if tokenizer not in ("signs", "whitespace"):
            raise DataError(f"{path}: corpus.tokenizer: {str(tokenizer)[:20]!r} is neither signs nor whitespace")
        if pieces not in get_args(Pieces):
            raise DataError(f"{path}: corpus.pieces: {str(pieces)[:20]!r} is none of {', '.join(get_args(Pieces))}")
        source, target = (_vocabulary(folder / f"{side}.vocabulary.txt") for side in SIDES)
        return cls(settings, source, target, cast(Tokenizer, tokenizer), pieces)

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        found = corpus(settings)
        own = not isinstance(found, Path) and (found.parts is not None or found.grammar is not None)
        if cast(TranslationEvaluate, settings.evaluate).sentences and (own or getattr(settings.data, part)):
            return ""
        return f"nothing is held out; set evaluate.sentences and translation.{part} above 0"

    def world(self, device: str) -> ProblemSpec:
        """A context is the word before: what is known of a question by a number. V, the beginning, is one of them."""
        v, settings = len(self.target), self.settings
        return ProblemSpec(n_candidates=v, counts=torch.from_numpy(self.target.counts).double(), n_contexts=v + 1,
                     n_features=len(self.source), dim=settings.model.dim, seed=settings.train.seed, device=device,
                     words=self.target.words)

    def candidates(self) -> Sequence[str]:
        return self.target.words

    def asked(self, query: Query) -> list[str]:
        """The word before, which is all that a question's number tells; "" where a sentence begins."""
        words = self.target.words
        return [words[i] if i < len(words) else "" for i in query.context.tolist()]

    def answers(self, most: int) -> KnownPositives:
        raise UsageError("negatives.mask: observed: a translator has no set of answers; set negatives.mask: none")

    def _heldout(self, part: str) -> TranslationBatch:
        return batch_of(self.text, np.array(self.text.part(part)[:self.evaluate.sentences], dtype=np.int64))

    def summary(self) -> str:
        n = {part: len(self.text.part(part)) for part in ("train", "valid", "test")}
        return (f"{n['train']:,} training pairs, {n['valid']:,} and {n['test']:,} held out, {len(self.source):,} words "
                f"that are read and {len(self.target):,} that are written")

    def describe(self, folder: Path) -> None:
        for side in SIDES:
            getattr(self, side).write(folder / f"{side}.vocabulary.txt")

    def check_ids(self, folder: Path) -> None:
        for side in SIDES:
            if _vocabulary(folder / f"{side}.vocabulary.txt").words != getattr(self, side).words:
                raise self.unlike(folder, f"{side}.vocabulary.txt")

    def during(self, made: Components) -> list[Score]:
        config = self.evaluate.model_copy(update={"resamples": 0})
        rows = self._vectors(made, "valid", config, None)
        if config.during:
            rows += self._translations(made, "valid", config.model_copy(update={"sentences": config.during}), None)[0]
        return [row._replace(benchmark="valid") for row in rows]

    def judge(self, made: Components, folder: Path, items: Items) -> list[Score]:
        table = made.model.vectors().detach().cpu().float().numpy()
        files_of_vectors.write(folder / "vectors.safetensors", Vectors(self.target.words, table), "safetensors")
        rows: list[Score] = []
        for part in ("valid", "test"):
            bleu, lines = self._translations(made, part, self.evaluate, items)
            rows += [row._replace(benchmark=part) for row in (*bleu, *self._vectors(made, part, self.evaluate, items))]
            write_text(folder / f"{part}.translations.txt", "".join(f"{line}\n" for line in lines))
        write_json(folder / "examples.json", translate.examples(made, self, self.evaluate.examples))
        return rows

    def judge_on(self, made: Components, where: Path, folder: Path | None = None) -> list[Score]:
        """Scores on another test set, under its name; no file of the run changes, and its corpus is not needed.

        made: the translator, as `translate.load` returns it. where: two files, of which it names one or what their
        names have in common, a table, or a folder (parallel_other). folder: receives NAME.translations.txt; None: no
        file is written. DataError where there is no test set.
        """
        name = self.settings.corpus
        recipe = load_recipe("corpora", name) if name in shipped.names("corpora") else None
        other = type(self)(self.settings, self.source, self.target, self.tokenizer, self.pieces)
        other.text = own_test_set.load(where, _layout(self.config, recipe), self.config, self.tokenizer, self.source,
                                         self.target)
        if (n := len(other.text.part("test"))) > self.evaluate.sentences:
            _log.warning("%s: the first %s of %s pairs are judged; to judge more, set evaluate.sentences", where,
                         f"{self.evaluate.sentences:,}", f"{n:,}")
        bleu, lines = other._translations(made, "test", self.evaluate, None)
        if folder is not None:
            write_text(folder / f"{where.name}.translations.txt", "".join(f"{line}\n" for line in lines))
        return [row._replace(benchmark=where.name) for row in (*bleu, *other._vectors(made, "test", self.evaluate,
                                                                                      None))]

    def written(self, i: int) -> list[str]:
        """The words of the source of a held-out pair as they are written, rare ones too: one for each of its ids."""
        return source_words(self.text.pair(i)[0], self.tokenizer, self.config.lower)[:self.config.longest]

    def line(self, words: list[str]) -> str:
        """Detokenised text. What was learnt in lower case gets a capital at its beginning."""
        return untokenised(words, self.config.lower, self.tokenizer)

    def judging(self, made: Components) -> int:
        """The longest sentences that are translated at once; or those that are asked at once, and rows of length 1."""
        held = max(("valid", "test"), key=lambda part: len(self.heldout(part)))
        chosen = self.text.part(held)[:self.evaluate.sentences]
        asked = judge.evaluation_bytes(made, batch_of(self.text, np.array(chosen[:FEW], dtype=np.int64)),
                                       len(self.heldout(held)))
        longest = sorted((self.text.source.sentence(i) for i in chosen), key=len)[-self.evaluate.batch:]
        _, written = machine.most_of(lambda: translate.translate(made, self, longest, [()] * len(longest),
                                                                 self.evaluate))
        return max(written, asked + 4 * made.world.n_candidates * made.world.dim)

    def _translations(self, made: Components, part: str, config: TranslationEvaluate, items: Items | None
                      ) -> tuple[list[Score], list[str]]:
        """How good they are, and they themselves as running text."""
        chosen = self.text.part(part)[:config.sentences]
        found = translate.translate(made, self, [self.text.source.sentence(i) for i in chosen],
                                    [self.written(i) for i in chosen], config)
        lines = [self.line(words) for words in found]
        rows, statistics = translation.bleu_rows(lines, [self.text.pair(i)[1] for i in chosen], config)
        if items is not None and len(statistics):
            columns = np.ascontiguousarray(statistics.T)     # each is written as it lies in memory
            items |= {f"{part}/bleu_{name}": column for name, column in zip(NUMBERS, columns, strict=True)}
        steps = _steps(config)
        return [row._replace(note=f"{row.note}; {steps}") for row in rows], lines

    def _vectors(self, made: Components, part: str, config: TranslationEvaluate, items: Items | None) -> list[Score]:
        query = judge.encode_heldout(made, self.heldout(part))
        if len(query) == 0:
            return [Score("heldout", name, None, note="no held-out sentences") for name in translation.ACCURACY]
        found, clusters = heldout.ranks(judge.logits(made, corrected=True), query), query.windows().cpu().numpy()
        if items is not None:
            items |= {f"{part}/log_p": found.log_p, f"{part}/rank": found.rank, f"{part}/cluster": clusters,
                      f"{part}/correct": (found.rank <= 1).astype(np.float64)}
        seen = translation.near(query.vector, query.target, made.model.table().detach())
        return translation.vector_rows(found, seen, clusters, config)


def _layout(config: TranslationConfig, recipe: CorpusRecipe | None) -> Layout:
    """How the pairs of a corpus lie in its files: as the settings say, else its recipe."""
    languages = recipe.languages if recipe is not None else None
    columns = config.columns or (languages.columns if languages else None) or ("source", "target")
    return Layout(config.source or (languages.source if languages else None),
                  config.target or (languages.target if languages else None), tuple(columns),
                  recipe.parts if recipe is not None else None, config.pieces)


def _steps(config: TranslationEvaluate) -> str:
    """How translations were found, in words: figures with another way cannot be compared."""
    way = "greedy" if config.beam == 1 else f"beam {config.beam}"
    table = "" if config.table == "float32" else f", table: {config.table}"
    return f"{way}, unknown: {config.unknown}, duplicates: {config.duplicates}{table}"


def _vocabulary(path: Path) -> Vocabulary:
    """DataError where the first two rows are not those that ids of this task begin with."""
    found = Vocabulary.read(path)
    if found.words[:2] != [EOS, UNKNOWN]:
        raise DataError(f"{path}: should begin with the rows {EOS} and {UNKNOWN}; begins with "
                        f"{', '.join(found.words[:2]) or 'nothing'}")
    return found

