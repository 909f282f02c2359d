"""Pairs of concepts in a hierarchy: predict either end; evaluated by separating held-out pairs from negatives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common import machine
from embtrain.common.candidate_lists import CandidateLists, ListKey
from embtrain.common.errors import DataError, UsageError, read_error
from embtrain.common.files import write_text
from embtrain.common.types import ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.formats.candidate_files import QueryNames
from embtrain.data.hierarchy import (
    closure,
    examples as hierarchy_examples,
    own_pairs as own_pair_files,
    query_names,
    senses,
    splits,
    store,
)
from embtrain.data.hierarchy.closure import PairSet
from embtrain.data.hierarchy.examples import HYPERNYM, Hierarchy, PairBatch, PairsConfig
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.hierarchy.store import StoredHierarchy
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.storage import stored_corpus
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import PairsEvaluate, words_config
from embtrain.evaluate.pairs import hypernymy, own_pairs
from embtrain.evaluate.pairs.hypernymy import PairScores
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.experiment.run import scoring as scoring
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.run.scoring import Items
from embtrain.experiment.tasks.base import Task, corpus_name, find_corpus, read_identity, require_file

MAX_NUMBERS = 1 << 20  # coordinates of the pairs scored at once: larger arrays leave the caches


class PairsTask(Task):
    """Task for hierarchies."""

    name = "pairs"
    section = "pairs"
    recipe_readers, corpus_kind = frozenset({"hierarchy"}), "a hierarchy"
    Config = PairsConfig
    Evaluate: ClassVar[type[PairsEvaluate]] = PairsEvaluate
    stopping_metric = "valid/accuracy"
    metric = "test/accuracy"

    def __init__(self, settings: Settings, hierarchy: Hierarchy):
        self.settings, self.hierarchy, self.identity = settings, hierarchy, hierarchy.identity
        self.config, self.evaluate = cast(PairsConfig, settings.data), cast(PairsEvaluate, settings.evaluate)
        self.train, self.held = hierarchy.split.train, hierarchy.split.held
        self.rows = hierarchy_examples.PairExamples(self.train, self.config.slot, settings.train.seed)

    @classmethod
    def check(cls, settings: Settings) -> None:
        scoring.check_names(cls.benchmarks(settings), "entailment")
        observed = cast(PairsConfig, settings.data).observed
        if observed != "train" and settings.negatives.filter != "observed":
            raise UsageError(f"pairs.observed: {observed}: has no effect with negatives.filter: "
                             f"{settings.negatives.filter}; set negatives.filter: observed")

    @classmethod
    def read(cls, settings: Settings) -> PairsTask:
        source, root = find_corpus(settings), None
        if isinstance(source, Path):
            where = [source]
        else:
            where, root = fetch.corpus_paths(source), source.root
        return cls(
            settings,
            hierarchy_examples.load(
                where,
                cast(PairsConfig, settings.data),
                corpus_name(settings),
                root,
                fetch.cache_folder() / "hierarchies",
            ),
        )

    def stored_arrays(self) -> dict[str, np.ndarray]:
        hierarchy = self.hierarchy
        return store.to_arrays(
            StoredHierarchy(hierarchy.concepts, hierarchy.words, hierarchy.split, len(hierarchy.split.train))
        )

    @classmethod
    def from_run_folder(cls, settings: Settings, folder: Path) -> PairsTask:
        arrays, identity = stored_corpus.read(folder) or {}, read_identity(folder)
        try:
            stored = store.from_arrays(arrays)
        except (KeyError, ValueError, TypeError) as error:
            raise DataError(f"{folder / stored_corpus.FILE}: contains no hierarchy ({error}); restore the file that "
                            "training wrote") from error
        task = cls(settings, Hierarchy(stored.concepts, stored.split, identity, stored.words))
        task.check_ids(folder)
        return task

    @classmethod
    def benchmarks(cls, settings: Settings) -> list[str]:
        return cast(PairsEvaluate, settings.evaluate).benchmarks

    @property
    def examples(self) -> hierarchy_examples.PairExamples:  # type: ignore[override]
        return self.rows

    def problem_spec(self, device: str) -> ProblemSpec:
        v = len(self.hierarchy.concepts)
        return ProblemSpec(n_candidates=v, counts=self.rows.counts(v), dim=self.settings.model.dim,
                     seed=self.settings.train.seed, device=device, context_sizes=(v, 2))

    def candidate_names(self) -> Sequence[str]:
        return self.hierarchy.concepts

    def describe_queries(self, query: Query) -> list[str]:
        names = self.hierarchy.concepts
        return [f"{names[i]} is a ?" if slot == HYPERNYM else f"? is a {names[i]}"
                for i, slot in query.context.tolist()]

    def query_names(self, by: ListKey) -> QueryNames:
        return query_names.query_names(self.hierarchy.concepts, by)

    def observed_lists(self) -> CandidateLists:
        return query_names.observed_by_side(self.train)

    def known_positives(self, max_bytes: int) -> KnownPairs:
        return hierarchy_examples.known_pairs(self.train, len(self.hierarchy.concepts), max_bytes)

    def masked_positives(self, max_bytes: int) -> KnownPairs:
        if self.config.observed == "train":
            return self.known_positives(max_bytes)
        n = len(self.hierarchy.concepts)
        return hierarchy_examples.known_pairs(closure.all_implied(self.train, n), n, max_bytes)

    def known_answers(self, context: Tensor) -> Tensor:
        pairs = np.concatenate([self.train, *(held_out.pairs for held_out in self.held.values())])
        n = len(self.hierarchy.concepts)
        known = hierarchy_examples.known_pairs(pairs, n, machine.free())
        return known.contains(context, torch.arange(n).unsqueeze(0))

    def answer_scores(self, components: ModelParts, query: Query) -> Tensor:
        return score_ends(components, query.context)

    def _heldout(self, part: str) -> PairBatch:
        """Return the held-out pairs, with alternating open ends."""
        pairs = torch.from_numpy(self.held[part].pairs)
        return hierarchy_examples.make_batch(pairs, torch.arange(len(pairs)) % 2)

    def summary(self) -> str:
        held_out = ", ".join(f"{len(pairs):,} {part}" for part, pairs in self.held.items())
        return (f"{len(self.hierarchy.concepts):,} concepts, {len(self.train):,} training pairs, {held_out}; "
                f"{self.rows.n:,} rows per epoch")

    def describe(self, folder: Path) -> None:
        write_text(folder / "concepts.txt", "".join(f"{name}\n" for name in self.hierarchy.concepts))
        if self.hierarchy.words:
            senses.write(folder / senses.FILE, self.hierarchy.words, self.hierarchy.concepts)

    def check_ids(self, folder: Path) -> None:
        path = folder / "concepts.txt"
        try:
            written = path.read_bytes().decode("utf-8").split("\n")[:-1]  # a name may contain other line-end characters
        except (OSError, UnicodeDecodeError) as error:
            raise read_error(path, error, f"cannot be read: {error}") from error
        if written != self.hierarchy.concepts:
            raise self.ids_changed(folder, "concepts.txt")

    def validate(self, components: ModelParts) -> list[Score]:
        valid = self.score_held_out(components, "valid")
        return hypernymy.scores("valid", valid, valid, self.evaluate.model_copy(update={"resamples": 0}))

    def score_run(self, components: ModelParts, folder: Path, items: Items) -> list[Score]:
        table = Vectors(self.hierarchy.concepts, components.model.vectors().detach().cpu().float().numpy())
        vector_files.write(folder / "vectors.safetensors", table, "safetensors")
        scorer = Scorer(table, type(components.model), self.hierarchy.words, components.model.config)
        rows = scoring.benchmarks(table, self.evaluate.benchmarks, words_config(self.evaluate), items, scorer)
        valid = self.score_held_out(components, "valid")
        for part in ("valid", "test"):
            scores, held_out = self.score_held_out(components, part), self.held[part]
            note = (
                f"{100 * held_out.leak:.1f} % of the pairs occur in train, {100 * held_out.implied:.1f} % follow from "
                f"it, {100 * held_out.false_negatives:.1f} % of the negatives are false"
            )
            rows += hypernymy.scores(part, scores, valid, self.evaluate, note)
            items |= {f"{part}/correct": hypernymy.correct(scores, valid),
                      f"{part}/cluster": np.arange(len(held_out), dtype=np.int64)}
        return rows

    def score_file(self, components: ModelParts, where: Path, folder: Path | None = None) -> list[Score]:
        """Score the pairs of a file: with labels, with grades, or positives only.

        For positives, negatives are drawn that neither hold in the hierarchy nor are in the file. Thresholds are chosen
        on validation pairs.
        """
        concepts, split = self.hierarchy.concepts, self.hierarchy.split
        own = own_pair_files.read(require_file(where), {name: i for i, name in enumerate(concepts)},
                                    Senses(concepts, self.hierarchy.words))
        valid = self.score_held_out(components, "valid")
        best, s = [], []
        for u, v in own.pairs:
            readings = np.array([(a, b) for a in u for b in v], np.int64)
            reading_scores = score_pairs(components, readings)
            best.append(readings[int(reading_scores.argmax())])
            s.append(float(reading_scores.max()))
        pairs, scores = np.array(best), np.array(s)
        train = int(PairSet(split.train, len(concepts)).contains(pairs).sum())
        note = own.note() + (f"; {train:,} of them in train" if train else "")
        if own.kind == "scores":
            return own_pairs.graded_scores(where.name, scores, own.gold, self.evaluate, note)
        if own.kind == "labels":
            return own_pairs.labelled_scores(
                where.name, scores, own.gold == 1, valid.one_negative_each(), self.evaluate, note
            )
        true_pairs = np.concatenate([split.train, *(held_out.pairs for held_out in self.held.values()), pairs])
        negatives = splits.negatives(pairs, true_pairs, concepts, self.config.split_seed, str(where))
        file_scores = PairScores(scores, score_pairs(components, negatives.reshape(-1, 2)).reshape(negatives.shape[:2]))
        drawn = f"{note}; negatives are drawn so that none follows from train, valid, test or the file"
        return hypernymy.scores(where.name, file_scores, valid, self.evaluate, drawn)

    def evaluation_bytes(self, components: ModelParts) -> int:
        """Measure the memory of one chunk of pairs."""
        pairs = max((held_out.negatives.reshape(-1, 2) for held_out in self.held.values()), key=len)
        return machine.measure_peak(lambda: score_pairs(components, pairs[:_pairs_at_once(components)]))[1]

    def score_held_out(self, components: ModelParts, part: str) -> PairScores:
        """Return the scores of the pairs of `valid` or `test`, and of their negatives."""
        held_out = self.held[part]
        return PairScores(
            score_pairs(components, held_out.pairs),
            score_pairs(components, held_out.negatives.reshape(-1, 2)).reshape(held_out.negatives.shape[:2]),
        )


@torch.no_grad()
def score_pairs(components: ModelParts, pairs: np.ndarray) -> np.ndarray:
    """Return the model's score of each pair (n, 2), (n,) float64."""
    model, scores = components.model, []
    table = model.vectors()
    for chunk in torch.from_numpy(pairs).to(components.problem.device).split(_pairs_at_once(components)):
        scores.append(model.entailment_score(table[chunk[:, 0]], table[chunk[:, 1]], model.config).double().cpu())
    return torch.cat(scores).numpy()


@torch.no_grad()
def score_ends(components: ModelParts, context: Tensor) -> Tensor:
    """Score every candidate as the open end of the queries (concept, slot) (n, 2): (n, V) float64.

    By the same formula as `score_pairs`, up to rounding.
    """
    model, rows = components.model, []
    table = model.vectors()
    for concept, slot in context.tolist():
        given, scores = table[concept].unsqueeze(0), []                                         # (1, D)
        for candidates in table.split(_pairs_at_once(components)):
            u, v = (given, candidates) if slot == HYPERNYM else (candidates, given)
            scores.append(model.entailment_score(u, v, model.config).double().cpu())
        rows.append(torch.cat(scores))
    return torch.stack(rows)


def _pairs_at_once(components: ModelParts) -> int:
    return max(1, MAX_NUMBERS // components.problem.dim)
