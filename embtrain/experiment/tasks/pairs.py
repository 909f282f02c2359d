"""Pairs of concepts in a hierarchy: trained by asking for either end, judged by telling held-out pairs from wrong ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch

from embtrain import machine
from embtrain.data import fetch, senses
from embtrain.data import pairs as data
from embtrain.data import vectors as files_of_vectors
from embtrain.data.known import Known
from embtrain.data.pairs import HYPERNYM, HYPONYM, Hierarchy, PairBatch, PairsConfig
from embtrain.data.vectors import Vectors
from embtrain.errors import DataError, UsageError
from embtrain.evaluate import hypernymy
from embtrain.evaluate.config import PairsEvaluate, of_words
from embtrain.evaluate.hypernymy import Judged
from embtrain.evaluate.scorer import Scorer
from embtrain.experiment import judge
from embtrain.experiment.tasks.base import Task, corpus, id_of, name_of
from embtrain.files import write_text
from embtrain.types import Query, Row, World

if TYPE_CHECKING:
    from embtrain.experiment.judge import Items
    from embtrain.experiment.parts import Parts
    from embtrain.experiment.settings import Settings

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

    @classmethod
    def benchmarks(cls, settings: Settings) -> list[str]:
        return cast(PairsEvaluate, settings.evaluate).on

    @property
    def examples(self) -> data.Examples:  # type: ignore[override]
        return self.rows

    def world(self, device: str) -> World:
        v = len(self.hierarchy.concepts)
        return World(n_candidates=v, counts=self.rows.counts(v), dim=self.settings.model.dim,
                     seed=self.settings.train.seed, device=device, context_sizes=(v, 2))

    def candidates(self) -> Sequence[str]:
        return self.hierarchy.concepts

    def asked(self, query: Query) -> list[str]:
        names = self.hierarchy.concepts
        return [f"{names[i]} is a ?" if slot == HYPERNYM else f"? is a {names[i]}"
                for i, slot in query.context.tolist()]

    def question(self, words: Sequence[str]) -> PairBatch:
        if len(words) != 2 or list(words).count("_") != 1:
            raise UsageError(f"ask: {' '.join(words)}: a hierarchy is asked CONCEPT _ for what stands above it, or "
                             "_ CONCEPT for what stands below")
        index = {name: i for i, name in enumerate(self.hierarchy.concepts)}
        pair = [0 if name == "_" else id_of(name, index, "concept") for name in words]
        return data.of_pairs(torch.tensor([pair]), torch.tensor([HYPERNYM if words[1] == "_" else HYPONYM]))

    def answers(self, most: int) -> Known:
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

    def during(self, made: Parts) -> list[Row]:
        valid = self._judged(made, "valid")
        return hypernymy.rows("valid", valid, valid, self.evaluate.model_copy(update={"resamples": 0}))

    def judge(self, made: Parts, folder: Path, items: Items) -> list[Row]:
        table = Vectors(self.hierarchy.concepts, made.model.vectors().detach().cpu().float().numpy())
        files_of_vectors.write(folder / "vectors.safetensors", table, "safetensors")
        scorer = Scorer(table, type(made.model), self.hierarchy.words)
        rows = judge.benchmarks(table, self.evaluate.on, of_words(self.evaluate), items, scorer)
        valid = self._judged(made, "valid")
        for part in ("valid", "test"):
            of, held = self._judged(made, part), self.held[part]
            note = (f"{100 * held.leak:.1f} % of the pairs stand in train, {100 * held.implied:.1f} % follow from it, "
                    f"{100 * held.right:.1f} % of the wrong ones are right")
            rows += hypernymy.rows(part, of, valid, self.evaluate, note)
            items |= {f"{part}/correct": hypernymy.correct(of, valid),
                      f"{part}/cluster": np.arange(len(held), dtype=np.int64)}
        return rows

    def judging(self, made: Parts) -> int:
        """As many pairs as are scored at once."""
        pairs = max((of.wrong.reshape(-1, 2) for of in self.held.values()), key=len)
        return machine.most_of(lambda: score(made, pairs[:CELLS]))[1]

    def _judged(self, made: Parts, part: str) -> Judged:
        of = self.held[part]
        return Judged(score(made, of.pairs), score(made, of.wrong.reshape(-1, 2)).reshape(of.wrong.shape[:2]))


@torch.no_grad()
def score(made: Parts, pairs: np.ndarray) -> np.ndarray:
    """The model's score of each pair (n, 2): (n,) float64."""
    found = []
    for some in torch.from_numpy(pairs).to(made.world.device).split(CELLS):
        batch = data.of_pairs(some, torch.full_like(some[:, 0], HYPERNYM))
        query = made.model.encode(batch)
        found.append(made.model.score(query, batch.target.unsqueeze(1)).squeeze(1).double().cpu())
    return torch.cat(found).numpy()
