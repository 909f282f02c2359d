"""Translation: predict the next word from a source and the words before it; evaluated by BLEU and vector accuracy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self, cast, get_args

import numpy as np
import torch

from embtrain.common import machine, shipped
from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.files import read_json, write_json, write_text
from embtrain.common.types import ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import CorpusRecipe, load_recipe
from embtrain.data.parallel import corpus as parallel_corpus, own_test_set
from embtrain.data.parallel.batches import SentencePairs, TranslationBatch, make_batch
from embtrain.data.parallel.corpus import EOS, UNKNOWN, ParallelConfig, ParallelCorpus
from embtrain.data.parallel.files import ParallelLayout
from embtrain.data.parallel.pieces import Pieces
from embtrain.data.parallel.tokenize import Tokenizer, detokenize, tokenize_source
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import heldout
from embtrain.evaluate.translation import scores as translation_scores
from embtrain.evaluate.translation.scores import BLEU_STATISTICS, TranslationEvaluate
from embtrain.experiment.run import scoring as scoring
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.run.scoring import Items
from embtrain.experiment.tasks import translate_words
from embtrain.experiment.tasks.base import Task, corpus_name, find_corpus
from embtrain.losses import base as losses
from embtrain.train.engines.false_negatives import KnownPositives

SIDES = ("source", "target")  # SIDE.vocabulary.txt in a run folder


_log = logging.getLogger("embtrain")
N_PROBE = 128                     # held-out sentences that are measured to estimate memory


class TranslationTask(Task):
    """Task for translate_words."""

    name = "translation"
    section = "translation"
    recipe_readers, corpus_kind = frozenset({"parallel", "grammar"}), "pairs of sentences"
    Config = ParallelConfig
    Evaluate: ClassVar[type[TranslationEvaluate]] = TranslationEvaluate
    stopping_metric = "valid/accuracy@1"
    metric = "test/bleu"
    text: ParallelCorpus
    examples: SentencePairs

    def __init__(self, settings: Settings, source: Vocabulary, target: Vocabulary, tokenizer: Tokenizer,
                 pieces: str = "none"):
        """pieces: kind of word pieces that are joined in source lines (data/parallel/pieces.py)."""
        self.settings, self.tokenizer, self.pieces = settings, tokenizer, pieces
        self.config, self.evaluate = (cast(ParallelConfig, settings.data),
                                      cast(TranslationEvaluate, settings.evaluate))
        self.source, self.target = source, target

    @classmethod
    def check(cls, settings: Settings) -> None:
        train, config = settings.train, cast(ParallelConfig, settings.data)
        judged = cast(TranslationEvaluate, settings.evaluate)
        rounded = judged.table == "bfloat16"
        wrong = [reason for refused, reason in (
            (rounded and judged.beam > 1,
             "evaluate.table: bfloat16: finds only the best word, but a beam needs several; set evaluate.beam: 1"),
            (rounded and losses.find(settings.loss.name).traits.estimates_log_odds,
             f"evaluate.table: bfloat16: loss.name: {settings.loss.name} ranks words by score and frequency, but the "
             "table gives only scores; set evaluate.table: float32"),
            (settings.negatives.filter == "observed",
             "negatives.filter: observed: each context occurs once, so it has no other observed positives; set "
             "negatives.filter: none or target"),
            (train.chunk is None,
             "train.chunk: null: a block consists of complete sentences; set it to a number of words, e.g. 600"),
            (train.chunk is not None and train.batch < train.chunk,
             f"train.batch: {train.batch}: sentences are not split, so a block of them is one update; set train.batch: "
             f"{train.chunk}"),
            (train.chunk is not None and train.chunk <= config.max_length,
             f"train.chunk: {train.chunk}: a sentence of translation.max_length: {config.max_length} words and its "
             "end do not fit; set a larger block, or a smaller translation.max_length")) if refused]
        if wrong:
            raise UsageError(*wrong)

    @classmethod
    def read(cls, settings: Settings) -> TranslationTask:
        config, source, cache = cast(ParallelConfig, settings.data), find_corpus(settings), fetch.cache_folder()
        folder, name = cache / "parallel", corpus_name(settings)
        tokenizer = config.tokenizer
        if not isinstance(source, Path):
            tokenizer = cast(Tokenizer, source.tokenizer) if tokenizer == "auto" else tokenizer
        tokenizer = "whitespace" if tokenizer == "whitespace" else "signs"
        if not isinstance(source, Path) and source.grammar is not None:
            return cls.from_corpus(
                settings, parallel_corpus.load_synthetic(source.grammar, config, folder, name), tokenizer
            )
        where = [source] if isinstance(source, Path) else fetch.corpus_paths(source)
        layout = _layout(config, None if isinstance(source, Path) else source)
        return cls.from_corpus(
            settings, parallel_corpus.load(where, layout, config, tokenizer, folder, name), tokenizer
        )

    @classmethod
    def from_corpus(cls, settings: Settings, text: ParallelCorpus, tokenizer: Tokenizer) -> TranslationTask:
        task = cls(settings, text.source.vocabulary, text.target.vocabulary, tokenizer, text.identity["pieces"][0])
        task.text, task.examples = text, SentencePairs(text, settings.train.seed)
        task.identity = {**text.identity, "tokenizer": tokenizer}
        return task

    @classmethod
    def from_run_folder(cls, settings: Settings, folder: Path) -> Self:
        """Rebuild the task from a run folder: the vocabularies of both sides, and the settings of the tokenizer."""
        path = folder / "identity.json"
        try:
            find_corpus = read_json(path)["corpus"]
            tokenizer, pieces = find_corpus["tokenizer"], find_corpus.get("pieces", ["none", "none"])[0]
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise read_error(path, error, f"does not contain how lines are split into words: {error}; restore the file "
                                          "of the run") from error
        if tokenizer not in ("signs", "whitespace"):
            raise DataError(f"{path}: corpus.tokenizer: {str(tokenizer)[:20]!r} is neither signs nor whitespace")
        if pieces not in get_args(Pieces):
            raise DataError(f"{path}: corpus.pieces: {str(pieces)[:20]!r} is not one of {', '.join(get_args(Pieces))}")
        source, target = (_vocabulary(folder / f"{side}.vocabulary.txt") for side in SIDES)
        return cls(settings, source, target, cast(Tokenizer, tokenizer), pieces)

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        source = find_corpus(settings)
        has_parts = not isinstance(source, Path) and (source.parts is not None or source.grammar is not None)
        if cast(TranslationEvaluate, settings.evaluate).sentences and (has_parts or getattr(settings.data, part)):
            return ""
        return f"nothing is held out; set evaluate.sentences and translation.{part} above 0"

    def problem_spec(self, device: str) -> ProblemSpec:
        """Return the properties of the data. A context is the previous word; V, the beginning, is also one."""
        v, settings = len(self.target), self.settings
        return ProblemSpec(n_candidates=v, counts=torch.from_numpy(self.target.counts).double(), n_contexts=v + 1,
                     n_features=len(self.source), dim=settings.model.dim, seed=settings.train.seed, device=device,
                     words=self.target.words)

    def candidate_names(self) -> Sequence[str]:
        return self.target.words

    def describe_queries(self, query: Query) -> list[str]:
        """Return the previous word of each query, the only part with an id; "" at the beginning of a sentence."""
        words = self.target.words
        return [words[i] if i < len(words) else "" for i in query.context.tolist()]

    def known_positives(self, max_bytes: int) -> KnownPositives:
        raise UsageError("negatives.filter: observed: a translator stores no positives; set negatives.filter: none")

    def _heldout(self, part: str) -> TranslationBatch:
        return make_batch(self.text, np.array(self.text.part(part)[:self.evaluate.sentences], dtype=np.int64))

    def summary(self) -> str:
        n = {part: len(self.text.part(part)) for part in ("train", "valid", "test")}
        return (f"{n['train']:,} training pairs, {n['valid']:,} and {n['test']:,} held out, {len(self.source):,} "
                f"source words, {len(self.target):,} target words")

    def describe(self, folder: Path) -> None:
        for side in SIDES:
            getattr(self, side).write(folder / f"{side}.vocabulary.txt")

    def check_ids(self, folder: Path) -> None:
        for side in SIDES:
            if _vocabulary(folder / f"{side}.vocabulary.txt").words != getattr(self, side).words:
                raise self.ids_changed(folder, f"{side}.vocabulary.txt")

    def validate(self, components: ModelParts) -> list[Score]:
        config = self.evaluate.model_copy(update={"resamples": 0})
        rows = self._vectors(components, "valid", config, None)
        if config.valid_sentences:
            rows += self._translations(
                components, "valid", config.model_copy(update={"sentences": config.valid_sentences}), None
            )[0]
        return [row._replace(benchmark="valid") for row in rows]

    def score_run(self, components: ModelParts, folder: Path, items: Items) -> list[Score]:
        table = components.model.vectors().detach().cpu().float().numpy()
        vector_files.write(folder / "vectors.safetensors", Vectors(self.target.words, table), "safetensors")
        rows: list[Score] = []
        for part in ("valid", "test"):
            bleu, lines = self._translations(components, part, self.evaluate, items)
            rows += [row._replace(benchmark=part)
                     for row in (*bleu, *self._vectors(components, part, self.evaluate, items))]
            write_text(folder / f"{part}.translations.txt", "".join(f"{line}\n" for line in lines))
        write_json(folder / "examples.json", translate_words.examples(components, self, self.evaluate.examples))
        return rows

    def score_file(self, components: ModelParts, where: Path, folder: Path | None = None) -> list[Score]:
        """Return scores on another test set, under its name. No file of the run changes, and its corpus is not needed.

        components: the translator, as `translation.load` returns it. where: two files, given by one of them or by their
        common name, a table, or a folder (data/parallel/own_test_set.py). folder: receives NAME.translations.txt; None:
        no file is written. DataError if there is no test set.
        """
        name = self.settings.corpus
        recipe = load_recipe("corpora", name) if name in shipped.names("corpora") else None
        own_task = type(self)(self.settings, self.source, self.target, self.tokenizer, self.pieces)
        own_task.text = own_test_set.load(where, _layout(self.config, recipe), self.config, self.tokenizer, self.source,
                                         self.target)
        if (n := len(own_task.text.part("test"))) > self.evaluate.sentences:
            _log.warning("%s: the first %s of %s pairs are evaluated; to evaluate more, set evaluate.sentences", where,
                         f"{self.evaluate.sentences:,}", f"{n:,}")
        bleu, lines = own_task._translations(components, "test", self.evaluate, None)
        if folder is not None:
            write_text(folder / f"{where.name}.translations.txt", "".join(f"{line}\n" for line in lines))
        return [row._replace(benchmark=where.name)
                for row in (*bleu, *own_task._vectors(components, "test", self.evaluate, None))]

    def answer_sentences(self, components: ModelParts, part: str, n: int) -> list[list[str]]:
        return translate_words.answers(components, self, part, n)

    def source_tokens(self, i: int) -> list[str]:
        """Return the source words of held-out pair i as written, rare ones included: one for each of its ids."""
        return tokenize_source(self.text.pair(i)[0], self.tokenizer, self.config.lower)[:self.config.max_length]

    def detokenize(self, words: list[str]) -> str:
        """Return the text of these words; its first letter is capitalized if the model was trained in lower case."""
        return detokenize(words, self.config.lower, self.tokenizer)

    def evaluation_bytes(self, components: ModelParts) -> int:
        """Return the larger of the peak memory of translating the longest sentences of a batch and that of scoring
        queries together with rows of length 1."""
        part = max(("valid", "test"), key=lambda part: len(self.heldout(part)))
        chosen = self.text.part(part)[:self.evaluate.sentences]
        query_bytes = scoring.evaluation_bytes(
            components, make_batch(self.text, np.array(chosen[:N_PROBE], dtype=np.int64)), len(self.heldout(part))
        )
        longest = sorted((self.text.source.sentence(i) for i in chosen), key=len)[-self.evaluate.batch:]
        _, translation_bytes = machine.measure_peak(
            lambda: translate_words.translate(components, self, longest, [()] * len(longest), self.evaluate)
        )
        return max(translation_bytes, query_bytes + 4 * components.problem.n_candidates * components.problem.dim)

    def _translations(self, components: ModelParts, part: str, config: TranslationEvaluate, items: Items | None
                      ) -> tuple[list[Score], list[str]]:
        """Return the BLEU scores and the translations as running text."""
        chosen = self.text.part(part)[:config.sentences]
        translations = translate_words.translate(components, self, [self.text.source.sentence(i) for i in chosen],
                                                 [self.source_tokens(i) for i in chosen], config)
        lines = [self.detokenize(words) for words in translations]
        rows, statistics = translation_scores.bleu_scores(lines, [self.text.pair(i)[1] for i in chosen], config)
        if items is not None and len(statistics):
            columns = np.ascontiguousarray(statistics.T)     # written as it is in memory
            items |= {f"{part}/bleu_{name}": column for name, column in zip(BLEU_STATISTICS, columns, strict=True)}
        steps = _search_note(config)
        return [row._replace(note=f"{row.note}; {steps}") for row in rows], lines

    def _vectors(
        self, components: ModelParts, part: str, config: TranslationEvaluate, items: Items | None
    ) -> list[Score]:
        query = scoring.encode_heldout(components, self.heldout(part))
        if len(query) == 0:
            return [Score("heldout", name, None, note="no held-out sentences") for name in translation_scores.ACCURACY]
        ranks, clusters = (
            heldout.ranks(scoring.logits(components, corrected=True), query),
            query.windows().cpu().numpy(),
        )
        if items is not None:
            items |= {f"{part}/log_p": ranks.log_p, f"{part}/rank": ranks.rank, f"{part}/cluster": clusters,
                      f"{part}/correct": (ranks.rank <= 1).astype(np.float64)}
        seen = translation_scores.nearest_rows(query.vector, query.target, components.model.table().detach())
        return translation_scores.vector_scores(ranks, seen, clusters, config)


def _layout(config: ParallelConfig, recipe: CorpusRecipe | None) -> ParallelLayout:
    """Return the layout of the corpus files, from the settings, else from the recipe."""
    languages = recipe.languages if recipe is not None else None
    columns = config.columns or (languages.columns if languages else None) or ("source", "target")
    return ParallelLayout(config.source or (languages.source if languages else None),
                  config.target or (languages.target if languages else None), tuple(columns),
                  recipe.parts if recipe is not None else None, config.pieces)


def _search_note(config: TranslationEvaluate) -> str:
    """Describe how translations were searched, because scores of different searches cannot be compared."""
    search = "greedy" if config.beam == 1 else f"beam {config.beam}"
    table = "" if config.table == "float32" else f", table: {config.table}"
    return f"{search}, unknown: {config.unknown}, duplicates: {config.duplicates}{table}"


def _vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary. DataError if its first two rows are not <eos> and <unk>."""
    vocabulary = Vocabulary.read(path)
    if vocabulary.words[:2] != [EOS, UNKNOWN]:
        raise DataError(f"{path}: should begin with the rows {EOS} and {UNKNOWN}; begins with "
                        f"{', '.join(vocabulary.words[:2]) or 'nothing'}")
    return vocabulary

