"""Triples of a graph: which entity fills the open side, judged by its filtered rank among all entities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch

from embtrain.data import fetch, graph, triple_files
from embtrain.data import vectors as files_of_vectors
from embtrain.data.graph import Graph, TriplesConfig
from embtrain.data.triple_files import PARTS
from embtrain.data.triples import HEAD, TAIL, KnownTriples, TripleBatch, per_entity
from embtrain.data.triples import Triples as Examples
from embtrain.data.vectors import Vectors
from embtrain.data.vocabulary import Vocabulary
from embtrain.errors import DataError, ResourceError, UsageError
from embtrain.evaluate import ranking
from embtrain.evaluate.ranking import RankingConfig
from embtrain.experiment.tasks.base import Task, corpus, id_of, name_of
from embtrain.types import Query, Row, World

if TYPE_CHECKING:
    from embtrain.experiment.judge import Items
    from embtrain.experiment.parts import Parts
    from embtrain.experiment.settings import Settings

NAME = 200  # bytes of a name, of its copy that is written, and of what finds it
# What is filtered: a model is chosen by ranks that have not seen a test triple.
FILTERED = {"valid": ("train", "valid"), "test": PARTS}


class Triples(Task):
    name = "triples"
    section = "triples"
    readers, learns = frozenset(graph.READERS), "triples"
    chosen = frozenset({"triples.slot"})
    Config = TriplesConfig
    Evaluate: ClassVar[type[RankingConfig]] = RankingConfig
    better = "valid/mrr"
    metric = "test/mrr"

    def __init__(self, settings: Settings, whole: Graph):
        self.settings, self.graph = settings, whole
        self.config, self.evaluate = cast(TriplesConfig, settings.data), cast(RankingConfig, settings.evaluate)
        self.triples = Examples(whole.part("train"), len(whole.entities), len(whole.relations), self.config,
                                settings.train.seed)
        self.relations = self._called()

    @classmethod
    def read(cls, settings: Settings) -> Triples:
        where, reader = _place(settings)
        return cls(settings, graph.load(where, reader, cast(TriplesConfig, settings.data),
                                        fetch.cache_folder() / "graphs", name_of(settings)))

    @classmethod
    def unheld(cls, settings: Settings, part: str) -> str:
        if getattr(settings.data, part) or triple_files.has(_place(settings)[0], part):
            return ""
        return f"nothing is held out; set triples.{part} above 0, or give a file of that part"

    @property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        return self.graph.identity

    @property
    def examples(self) -> Examples:  # type: ignore[override]
        return self.triples

    def world(self, device: str) -> World:
        examples, settings = self.triples, self.settings
        return World(n_candidates=examples.n_entities, counts=torch.from_numpy(examples.target_counts),
                     context_sizes=(examples.n_entities, 2 * examples.n_relations), dim=settings.model.dim,
                     seed=settings.train.seed, device=device)

    def candidates(self) -> Sequence[str]:
        return self.graph.entities.words

    def asked(self, query: Query) -> list[str]:
        names, relations, n = self.graph.entities.words, self.relations, self.triples.n_relations
        return [f"? {relations[r - n]} {names[e]}" if r >= n else f"{names[e]} {relations[r]} ?"
                for e, r in query.context.tolist()]

    def question(self, words: Sequence[str]) -> TripleBatch:
        if len(words) != 3 or [words[0], words[2]].count("_") != 1:
            raise UsageError(f"ask: {' '.join(words)}: a graph is asked HEAD RELATION _, or _ RELATION TAIL")
        head, relation, tail = words
        relations, entities = self.graph.relations.index, self.graph.entities.index
        ids = [0 if name == "_" else id_of(name, entities, "entity") for name in (head, tail)]
        return self.triples.batch(np.array([[ids[0], id_of(relation, relations, "relation"), ids[1]]]),
                                  np.array([HEAD if head == "_" else TAIL]))

    def answers(self, most: int) -> KnownTriples:
        known = self._known(("train",))
        if known.nbytes > most:
            raise ResourceError(f"the set of training triples takes {known.nbytes:,} bytes, and {most:,} are allowed; "
                                "do without it (negatives.mask: target)")
        return known

    def _heldout(self, part: str) -> TripleBatch:
        return self.triples.both(self.graph.part(part))

    def summary(self) -> str:
        counts = self.graph.identity["counts"]
        return (f"{counts['train']:,} training triples, {counts['entities']:,} entities, {counts['relations']:,} "
                f"relations, {self.triples.examples_per_epoch:,} examples an epoch; {counts['valid']:,} and "
                f"{counts['test']:,} triples held out")

    def describe(self, folder: Path) -> None:
        for name, of in self._named().items():
            of.write(folder / name)

    def check_ids(self, folder: Path) -> None:
        for name, of in self._named().items():
            if Vocabulary.read(folder / name).words != of.words:
                raise self.unlike(folder, name)

    def during(self, made: Parts) -> list[Row]:
        triples, some = self.graph.part("valid"), self.evaluate.during
        if 0 < some < len(triples):
            chosen = np.random.default_rng(self.config.split_seed).permutation(len(triples))[:some]
            triples = triples[np.sort(chosen)]
        found = ranking.ranks(made.model, self.triples.both(triples), self._filters["valid"], torch.get_num_threads())
        return ranking.means("valid", found, self.evaluate, self._note("valid", len(triples)))

    def judge(self, made: Parts, folder: Path, items: Items) -> list[Row]:
        table = made.model.vectors().detach().cpu().float().numpy()
        files_of_vectors.write(folder / "vectors.safetensors", Vectors(self.graph.entities.words, table), "safetensors")
        if (of_relations := made.model.relations()) is not None:
            files_of_vectors.write(folder / "relations.safetensors", Vectors(
                self.relations, of_relations.detach().cpu().float().numpy()), "safetensors")
        tph, hpt = per_entity(self.graph.part("train"), len(self.graph.relations))
        kinds, rows = ranking.categories(tph, hpt, self.evaluate.threshold), list[Row]()
        for part in ("valid", "test"):
            triples = self.graph.part(part)
            asked = cast(TripleBatch, self.heldout(part))
            found = ranking.ranks(made.model, asked, self._filters[part], torch.get_num_threads())
            cluster, side = np.repeat(np.arange(len(triples)), 2), np.tile([TAIL, HEAD], len(triples))
            rows += ranking.rows(part, found, cluster, side, np.repeat(kinds[triples[:, 1]], 2), self.evaluate,
                                 self._note(part, len(triples)))
            if len(triples):
                items |= {f"{part}/rank": found.realistic, f"{part}/cluster": cluster}
        return rows

    def judging(self, made: Parts) -> int:
        """The known triples from both sides, a number each, for both parts; beside these one after another: those that
        are not yet sorted; of the vectors that are written which are finite, and names; vectors or scores of some
        questions."""
        n, written = max(len(self.graph.part(part)) for part in ("valid", "test")), made.model.vectors()
        known = 2 * 8 * len(self.graph.triples)
        return 2 * known + max(known, written.numel() + NAME * len(written), ranking.asking(made.model, 2 * n))

    def _called(self) -> list[str]:
        """What each relation is called, (R,); where the data are reciprocal, their inverses follow."""
        names = self.graph.relations.words
        inverses = [f"inverse of {name}" for name in names[:self.triples.n_relations - len(names)]]
        if taken := set(names) & set(inverses):
            raise DataError(f"{name_of(self.settings)}: a relation is called {min(taken)!r}, which triples.reciprocal "
                            "calls an inverse; rename it")
        return names + inverses

    @cached_property
    def _filters(self) -> dict[str, KnownTriples]:
        return {part: self._known(self._filtered(part)) for part in FILTERED}

    def _filtered(self, part: str) -> tuple[str, ...]:
        """The parts whose triples are no rivals where `part` is ranked."""
        return PARTS if self.evaluate.valid_filter == "all" else FILTERED[part]

    def _known(self, parts: tuple[str, ...]) -> KnownTriples:
        return KnownTriples.from_triples(self.triples, map(self.graph.part, parts))

    def _named(self) -> dict[str, Vocabulary]:
        return {"entities.txt": self.graph.entities, "relations.txt": self.graph.relations}

    def _note(self, part: str, n: int) -> str:
        return (f"{n:,} triples, both sides, {len(self.graph.entities):,} entities, filtered by "
                f"{', '.join(self._filtered(part)[:-1])} and {self._filtered(part)[-1]}"
                f"{'; inverse relations have vectors of their own' if self.config.reciprocal else ''}")


def _place(settings: Settings) -> tuple[list[Path], str]:
    """Where the files of a run's graph lie, and their reader."""
    found = corpus(settings)
    return ([found], "triples") if isinstance(found, Path) else (fetch.corpus_paths(found), found.reader)
