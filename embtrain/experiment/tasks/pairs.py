"""Pairs of concepts in a hierarchy: trained by asking for either end, judged by telling held-out pairs from wrong ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch

from embtrain.common import machine
from embtrain.common.errors import DataError
from embtrain.common.files import write_text
from embtrain.common.types import ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.hierarchy import examples as data, own_pairs as data_of_others, senses, splits, store
from embtrain.data.hierarchy.closure import PairSet
from embtrain.data.hierarchy.examples import HYPERNYM, Hierarchy, PairBatch, PairsConfig
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.hierarchy.store import StoredHierarchy
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.text import stored_corpus
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import PairsEvaluate, of_words
from embtrain.evaluate.pairs import hypernymy, own_pairs
from embtrain.evaluate.pairs.hypernymy import Judged
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.experiment.run import scoring as judge
from embtrain.experiment.tasks.base import Task, find_corpus, corpus_name, require_file, read_identity

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Parts
    from embtrain.experiment.run.scoring import Items
    from embtrain.experiment.run.settings import Settings

MAX_PAIRS = 1 << 16  # pairs scored at once


class PairsTask(Task):
    name = "pairs"
    section = "pairs"
    readers, learns = frozenset({"hierarchy"}), "a hierarchy"
    Config = PairsConfig
    Evaluate: ClassVar[type[PairsEvaluate]] = PairsEvaluate
    stopping_metric = "valid/accuracy"
    metric = "test/accuracy"

    def __init__(self, settings: Settings, whole: Hierarchy):
        self.settings, self.hierarchy, self.identity = settings, whole, whole.identity
        self.config, self.evaluate = cast(PairsConfig, settings.data), cast(PairsEvaluate, settings.evaluate)
        self.train, self.held = whole.split.train, whole.split.held
        self.rows = data.PairExamples(self.train, self.config.slot, settings.train.seed)

    @classmethod
    def check(cls, settings: Settings) -> None:
        judge.check_names(cls.benchmarks(settings), "entailment")

    @classmethod
    def read(cls, settings: Settings) -> PairsTask:
        found, root = find_corpus(settings), None
        if isinstance(found, Path):
            where = [found]
        else:
            where, root = fetch.corpus_paths(found), found.root
        return cls(settings, data.load(where, cast(PairsConfig, settings.data), corpus_name(settings), root,
                                       fetch.cache_folder() / "hierarchies"))

    def stored_arrays(self) -> dict[str, np.ndarray]:
        whole = self.hierarchy
        return store.to_arrays(StoredHierarchy(whole.concepts, whole.words, whole.split, len(whole.split.train)))

    @classmethod
    def from_run_folder(cls, settings: Settings, folder: Path) -> PairsTask:
        arrays, identity = stored_corpus.read(folder) or {}, read_identity(folder)
        try:
            found = store.from_arrays(arrays)
        except (KeyError, ValueError, TypeError) as error:
            raise DataError(f"{folder / stored_corpus.FILE}: does not hold a hierarchy ({error}); put back the file "
                            "that training wrote") from error
        task = cls(settings, Hierarchy(found.concepts, found.split, identity, found.words))
        task.check_ids(folder)
        return task

    @classmethod
    def benchmarks(cls, settings: Settings) -> list[str]:
        return cast(PairsEvaluate, settings.evaluate).on

    @property
    def examples(self) -> data.PairExamples:  # type: ignore[override]
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

    def known_positives(self, most: int) -> KnownPairs:
        return data.known_pairs(self.train, len(self.hierarchy.concepts), most)

    def _heldout(self, part: str) -> PairBatch:
        """Each held-out pair asks for one of its ends, by turns."""
        pairs = torch.from_numpy(self.held[part].pairs)
        return data.make_batch(pairs, torch.arange(len(pairs)) % 2)

    def summary(self) -> str:
        held = ", ".join(f"{len(of):,} {part}" for part, of in self.held.items())
        return (f"{len(self.hierarchy.concepts):,} concepts, {len(self.train):,} pairs to train on, {held}; "
                f"{self.rows.n:,} rows an epoch")

    def describe(self, folder: Path) -> None:
        write_text(folder / "concepts.txt", "".join(f"{name}\n" for name in self.hierarchy.concepts))
        if self.hierarchy.words:
            senses.write(folder / senses.FILE, self.hierarchy.words, self.hierarchy.concepts)

    def check_ids(self, folder: Path) -> None:
        path = folder / "concepts.txt"
        try:
            was = path.read_bytes().decode("utf-8").split("\n")[:-1]   # a name may hold what else ends a line
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot be read: {error}") from error
        if was != self.hierarchy.concepts:
            raise self.ids_changed(folder, "concepts.txt")

    def validate(self, made: Parts) -> list[Score]:
        valid = self.score_held_out(made, "valid")
        return hypernymy.rows("valid", valid, valid, self.evaluate.model_copy(update={"resamples": 0}))

    def score_run(self, made: Parts, folder: Path, items: Items) -> list[Score]:
        table = Vectors(self.hierarchy.concepts, made.model.vectors().detach().cpu().float().numpy())
        files_of_vectors.write(folder / "vectors.safetensors", table, "safetensors")
        scorer = Scorer(table, type(made.model), self.hierarchy.words)
        rows = judge.benchmarks(table, self.evaluate.on, of_words(self.evaluate), items, scorer)
        valid = self.score_held_out(made, "valid")
        for part in ("valid", "test"):
            of, held = self.score_held_out(made, part), self.held[part]
            note = (f"{100 * held.leak:.1f} % of the pairs stand in train, {100 * held.implied:.1f} % follow from it, "
                    f"{100 * held.false_negatives:.1f} % of the wrong ones are right")
            rows += hypernymy.rows(part, of, valid, self.evaluate, note)
            items |= {f"{part}/correct": hypernymy.correct(of, valid),
                      f"{part}/cluster": np.arange(len(held), dtype=np.int64)}
        return rows

    def score_file(self, made: Parts, where: Path, folder: Path | None = None) -> list[Score]:
        """Scores of the pairs of a file: with labels, with grades, or positives, for which negatives are drawn that
        neither hold in the hierarchy nor stand in the file. Thresholds are those of validation."""
        concepts, split = self.hierarchy.concepts, self.hierarchy.split
        other = data_of_others.read(require_file(where), {name: i for i, name in enumerate(concepts)},
                                    Senses(concepts, self.hierarchy.words))
        valid = self.score_held_out(made, "valid")
        best, s = [], []
        for u, v in other.pairs:
            every = np.array([(a, b) for a in u for b in v], np.int64)
            of = score_pairs(made, every)
            best.append(every[int(of.argmax())])
            s.append(float(of.max()))
        pairs, scores = np.array(best), np.array(s)
        train = int(PairSet(split.train, len(concepts)).contains(pairs).sum())
        note = other.note() + (f"; {train:,} of them in train" if train else "")
        if other.kind == "scores":
            return own_pairs.graded(where.name, scores, other.gold, self.evaluate, note)
        if other.kind == "labels":
            return own_pairs.labelled(where.name, scores, other.gold == 1, valid.one(), self.evaluate, note)
        everything = np.concatenate([split.train, *(held.pairs for held in self.held.values()), pairs])
        wrong = splits.negatives(pairs, everything, concepts, self.config.split_seed, str(where))
        of_file = Judged(scores, score_pairs(made, wrong.reshape(-1, 2)).reshape(wrong.shape[:2]))
        drawn = f"{note}; negatives are drawn, none follows from train, valid, test or the file"
        return hypernymy.rows(where.name, of_file, valid, self.evaluate, drawn)

    def evaluation_bytes(self, made: Parts) -> int:
        """As many pairs as are scored at once."""
        pairs = max((of.negatives.reshape(-1, 2) for of in self.held.values()), key=len)
        return machine.most_of(lambda: score_pairs(made, pairs[:MAX_PAIRS]))[1]

    def score_held_out(self, made: Parts, part: str) -> Judged:
        """Scores of the pairs of `valid` or `test`, and of their negatives."""
        of = self.held[part]
        return Judged(score_pairs(made, of.pairs), score_pairs(made, of.negatives.reshape(-1, 2)).reshape(of.negatives.shape[:2]))


@torch.no_grad()
def score_pairs(made: Parts, pairs: np.ndarray) -> np.ndarray:
    """The model's score of each pair (n, 2): (n,) float64."""
    found = []
    for some in torch.from_numpy(pairs).to(made.world.device).split(MAX_PAIRS):
        batch = data.make_batch(some, torch.full_like(some[:, 0], HYPERNYM))
        query = made.model.encode(batch)
        found.append(made.model.score(query, batch.target.unsqueeze(1)).squeeze(1).double().cpu())
    return torch.cat(found).numpy()
