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
from embtrain.data.hierarchy.closure import Keys
from embtrain.data.hierarchy.examples import HYPERNYM, Hierarchy, PairBatch, PairsConfig
from embtrain.data.hierarchy.senses import Senses
from embtrain.data.hierarchy.store import Stored
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.text import stored_corpus
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate.config import PairsEvaluate, of_words
from embtrain.evaluate.pairs import hypernymy, own_pairs
from embtrain.evaluate.pairs.hypernymy import Judged
from embtrain.evaluate.pairs.scorer import Scorer
from embtrain.experiment.run import scoring as judge
from embtrain.experiment.tasks.base import Task, corpus, name_of, one_file, stored_identity

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components
    from embtrain.experiment.run.scoring import Items
    from embtrain.experiment.run.settings import Settings

CELLS = 1 << 16  # pairs scored at once


class Pairs(Task):
    name = "pairs"
    section = "pairs"
    readers, learns = frozenset({"hierarchy"}), "a hierarchy"
    Config = PairsConfig
    Evaluate: ClassVar[type[PairsEvaluate]] = PairsEvaluate
    better = "valid/accuracy"
    metric = "test/accuracy"

    def __init__(self, settings: Settings, whole: Hierarchy):
        self.settings, self.hierarchy, self.identity = settings, whole, whole.identity
        self.config, self.evaluate = cast(PairsConfig, settings.data), cast(PairsEvaluate, settings.evaluate)
        self.train, self.held = whole.split.train, whole.split.held
        self.rows = data.Examples(self.train, self.config.slot, settings.train.seed)

    @classmethod
    def check(cls, settings: Settings) -> None:
        judge.check_names(cls.benchmarks(settings), "entailment")

    @classmethod
    def read(cls, settings: Settings) -> Pairs:
        found, root = corpus(settings), None
        if isinstance(found, Path):
            where = [found]
        else:
            where, root = fetch.corpus_paths(found), found.root
        return cls(settings, data.load(where, cast(PairsConfig, settings.data), name_of(settings), root,
                                       fetch.cache_folder() / "hierarchies"))

    def kept(self) -> dict[str, np.ndarray]:
        whole = self.hierarchy
        return store.arrays(Stored(whole.concepts, whole.words, whole.split, len(whole.split.train)))

    @classmethod
    def stored(cls, settings: Settings, folder: Path) -> Pairs:
        arrays, identity = stored_corpus.read(folder) or {}, stored_identity(folder)
        try:
            found = store.of_arrays(arrays)
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
    def examples(self) -> data.Examples:  # type: ignore[override]
        return self.rows

    def world(self, device: str) -> ProblemSpec:
        v = len(self.hierarchy.concepts)
        return ProblemSpec(n_candidates=v, counts=self.rows.counts(v), dim=self.settings.model.dim,
                     seed=self.settings.train.seed, device=device, context_sizes=(v, 2))

    def candidates(self) -> Sequence[str]:
        return self.hierarchy.concepts

    def asked(self, query: Query) -> list[str]:
        names = self.hierarchy.concepts
        return [f"{names[i]} is a ?" if slot == HYPERNYM else f"? is a {names[i]}"
                for i, slot in query.context.tolist()]

    def answers(self, most: int) -> KnownPairs:
        return data.observed(self.train, len(self.hierarchy.concepts), most)

    def _heldout(self, part: str) -> PairBatch:
        """Each held-out pair asks for one of its ends, by turns."""
        pairs = torch.from_numpy(self.held[part].pairs)
        return data.of_pairs(pairs, torch.arange(len(pairs)) % 2)

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
            raise self.unlike(folder, "concepts.txt")

    def during(self, made: Components) -> list[Score]:
        valid = self.judged(made, "valid")
        return hypernymy.rows("valid", valid, valid, self.evaluate.model_copy(update={"resamples": 0}))

    def judge(self, made: Components, folder: Path, items: Items) -> list[Score]:
        table = Vectors(self.hierarchy.concepts, made.model.vectors().detach().cpu().float().numpy())
        files_of_vectors.write(folder / "vectors.safetensors", table, "safetensors")
        scorer = Scorer(table, type(made.model), self.hierarchy.words)
        rows = judge.benchmarks(table, self.evaluate.on, of_words(self.evaluate), items, scorer)
        valid = self.judged(made, "valid")
        for part in ("valid", "test"):
            of, held = self.judged(made, part), self.held[part]
            note = (f"{100 * held.leak:.1f} % of the pairs stand in train, {100 * held.implied:.1f} % follow from it, "
                    f"{100 * held.right:.1f} % of the wrong ones are right")
            rows += hypernymy.rows(part, of, valid, self.evaluate, note)
            items |= {f"{part}/correct": hypernymy.correct(of, valid),
                      f"{part}/cluster": np.arange(len(held), dtype=np.int64)}
        return rows

    def judge_on(self, made: Components, where: Path, folder: Path | None = None) -> list[Score]:
        """Scores of the pairs of a file: with labels, with grades, or positives, for which negatives are drawn that
        neither hold in the hierarchy nor stand in the file. Thresholds are those of validation."""
        concepts, split = self.hierarchy.concepts, self.hierarchy.split
        other = data_of_others.read(one_file(where), {name: i for i, name in enumerate(concepts)},
                                    Senses(concepts, self.hierarchy.words))
        valid = self.judged(made, "valid")
        best, s = [], []
        for u, v in other.pairs:
            every = np.array([(a, b) for a in u for b in v], np.int64)
            of = score(made, every)
            best.append(every[int(of.argmax())])
            s.append(float(of.max()))
        pairs, scores = np.array(best), np.array(s)
        train = int(Keys(split.train, len(concepts)).hold(pairs).sum())
        note = other.note() + (f"; {train:,} of them in train" if train else "")
        if other.kind == "scores":
            return own_pairs.graded(where.name, scores, other.gold, self.evaluate, note)
        if other.kind == "labels":
            return own_pairs.labelled(where.name, scores, other.gold == 1, valid.one(), self.evaluate, note)
        everything = np.concatenate([split.train, *(held.pairs for held in self.held.values()), pairs])
        wrong = splits.negatives(pairs, everything, concepts, self.config.split_seed, str(where))
        of_file = Judged(scores, score(made, wrong.reshape(-1, 2)).reshape(wrong.shape[:2]))
        drawn = f"{note}; negatives are drawn, none follows from train, valid, test or the file"
        return hypernymy.rows(where.name, of_file, valid, self.evaluate, drawn)

    def judging(self, made: Components) -> int:
        """As many pairs as are scored at once."""
        pairs = max((of.wrong.reshape(-1, 2) for of in self.held.values()), key=len)
        return machine.most_of(lambda: score(made, pairs[:CELLS]))[1]

    def judged(self, made: Components, part: str) -> Judged:
        """Scores of the pairs of `valid` or `test`, and of their negatives."""
        of = self.held[part]
        return Judged(score(made, of.pairs), score(made, of.wrong.reshape(-1, 2)).reshape(of.wrong.shape[:2]))


@torch.no_grad()
def score(made: Components, pairs: np.ndarray) -> np.ndarray:
    """The model's score of each pair (n, 2): (n,) float64."""
    found = []
    for some in torch.from_numpy(pairs).to(made.world.device).split(CELLS):
        batch = data.of_pairs(some, torch.full_like(some[:, 0], HYPERNYM))
        query = made.model.encode(batch)
        found.append(made.model.score(query, batch.target.unsqueeze(1)).squeeze(1).double().cpu())
    return torch.cat(found).numpy()
