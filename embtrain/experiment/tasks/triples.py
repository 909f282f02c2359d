"""Triples of a graph: which entity fills the open side, judged by its filtered rank among all entities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch

from embtrain.common.errors import DataError, ResourceError
from embtrain.common.types import ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.text import stored_corpus
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.triples import graph, own_triples
from embtrain.data.triples.examples import HEAD, TAIL, KnownTriples, TripleBatch, Triples as Examples, per_entity
from embtrain.data.triples.graph import Graph, TriplesConfig
from embtrain.data.vectors import vectors as files_of_vectors
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import link_prediction
from embtrain.evaluate.link_prediction import RankingConfig, Ranks
from embtrain.experiment.tasks.base import Task, corpus, name_of, one_file, stored_identity

if TYPE_CHECKING:
    from embtrain.experiment.run.components import Components
    from embtrain.experiment.run.scoring import Items
    from embtrain.experiment.run.settings import Settings

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

    def kept(self) -> dict[str, np.ndarray]:
        return {part: self.graph.part(part).astype(np.int32) for part in PARTS}

    @classmethod
    def stored(cls, settings: Settings, folder: Path) -> Triples:
        arrays = stored_corpus.read(folder) or {}
        entities, relations = (Vocabulary.read(folder / name) for name in ("entities.txt", "relations.txt"))
        triples = [arrays.get(part, np.zeros((0, 3), np.int32)) for part in PARTS]
        most = np.array([len(entities), len(relations), len(entities)])
        for part in triples:
            if part.ndim != 2 or part.shape[1] != 3 or part.dtype != np.int32 or (part < 0).any() or \
                    (part >= most).any():
                raise DataError(f"{folder / stored_corpus.FILE}: its triples do not fit entities.txt and "
                                "relations.txt; put back the files that training wrote")
        first = len(triples[0]), len(triples[0]) + len(triples[1])
        return cls(settings, Graph(np.concatenate(triples), first, entities, relations, stored_identity(folder)))

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        config = cast(TriplesConfig, settings.data)
        if getattr(config, part) or graph.has_file(_place(settings)[0], config, part):
            return ""
        return f"nothing is held out; set triples.{part} above 0, or give a file of that part"

    @property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        return self.graph.identity

    @property
    def examples(self) -> Examples:  # type: ignore[override]
        return self.triples

    def world(self, device: str) -> ProblemSpec:
        examples, settings = self.triples, self.settings
        return ProblemSpec(n_candidates=examples.n_entities, counts=torch.from_numpy(examples.target_counts),
                     context_sizes=(examples.n_entities, 2 * examples.n_relations), dim=settings.model.dim,
                     seed=settings.train.seed, device=device)

    def candidates(self) -> Sequence[str]:
        return self.graph.entities.words

    def asked(self, query: Query) -> list[str]:
        names, relations, n = self.graph.entities.words, self.relations, self.triples.n_relations
        return [f"? {relations[r - n]} {names[e]}" if r >= n else f"{names[e]} {relations[r]} ?"
                for e, r in query.context.tolist()]

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

    def during(self, made: Components) -> list[Score]:
        triples, some = self.graph.part("valid"), self.evaluate.during
        if 0 < some < len(triples):
            chosen = np.random.default_rng(self.config.split_seed).permutation(len(triples))[:some]
            triples = triples[np.sort(chosen)]
        both, known = self.triples.both(triples), self._filters["valid"]
        found = link_prediction.ranks(made.model, both, known, torch.get_num_threads())
        return link_prediction.means("valid", found, self.evaluate, self._note("valid", len(triples)))

    def judge(self, made: Components, folder: Path, items: Items) -> list[Score]:
        table = made.model.vectors().detach().cpu().float().numpy()
        files_of_vectors.write(folder / "vectors.safetensors", Vectors(self.graph.entities.words, table), "safetensors")
        if (of_relations := made.model.relations()) is not None:
            files_of_vectors.write(folder / "relations.safetensors", Vectors(
                self.relations, of_relations.detach().cpu().float().numpy()), "safetensors")
        rows = list[Score]()
        for part in ("valid", "test"):
            triples = self.graph.part(part)
            asked = cast(TripleBatch, self.heldout(part))
            found = link_prediction.ranks(made.model, asked, self._filters[part], torch.get_num_threads())
            rows += self._rows(part, found, triples, self._note(part, len(triples)))
            if len(triples):
                items |= {f"{part}/rank": found.realistic,
                          f"{part}/cluster": np.repeat(np.arange(len(triples)), 2)}
        return rows

    def judge_on(self, made: Components, where: Path, folder: Path | None = None) -> list[Score]:
        """Filtered ranks of the triples of a file in the names of the run; rivals that are known triples of any part or
        of the file are left out."""
        other = own_triples.read(one_file(where), self.config, self.graph)
        parts = [self.graph.part(part) for part in PARTS]
        known = KnownTriples.from_triples(self.triples, [*parts, other.triples])
        batch = self.triples.both(other.triples)
        found = link_prediction.ranks(made.model, batch, known, torch.get_num_threads())
        seen = KnownTriples.from_triples(self.triples, parts[:1])
        n_seen = int(seen.contains(batch.context(self.triples.n_relations), batch.target.unsqueeze(1))[::2].sum())
        untrained = (self.graph.entities.counts[other.triples[:, [0, 2]]] == 0).any(1) | (
            self.graph.relations.counts[other.triples[:, 1]] == 0)
        note = f"{other.note()}; both sides, {len(self.graph.entities):,} entities, filtered by " \
               f"{', '.join(PARTS)} and the file"
        note += f"; {n_seen:,} of them in train" if n_seen else ""
        note += f"; {untrained.sum():,} of them with a name of no training triple" if untrained.any() else ""
        return self._rows(where.name, found, other.triples, note)

    def _rows(self, benchmark: str, found: Ranks, triples: np.ndarray, note: str) -> list[Score]:
        """Rows of the ranks of both sides of triples (n, 3)."""
        tph, hpt = per_entity(self.graph.part("train"), len(self.graph.relations))
        kinds = link_prediction.categories(tph, hpt, self.evaluate.threshold)
        cluster, side = np.repeat(np.arange(len(triples)), 2), np.tile([TAIL, HEAD], len(triples))
        kind = np.repeat(kinds[triples[:, 1]], 2)
        return link_prediction.rows(benchmark, found, cluster, side, kind, self.evaluate, note)

    def judging(self, made: Components) -> int:
        """The known triples from both sides, a number each, for both parts; beside these one after another: those that
        are not yet sorted; of the vectors that are written which are finite, and names; vectors or scores of some
        questions."""
        n, written = max(len(self.graph.part(part)) for part in ("valid", "test")), made.model.vectors()
        known = 2 * 8 * len(self.graph.triples)
        return 2 * known + max(known, written.numel() + NAME * len(written), link_prediction.asking(made.model, 2 * n))

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

    def filter_of(self, part: str) -> KnownTriples:
        """The positives that are left out when triples of `part` are ranked."""
        return self._filters[part]

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
