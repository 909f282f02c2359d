"""Triples of a graph: predict the entity on the open side; evaluated by its filtered rank among all entities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from embtrain.common.candidate_lists import CandidateLists, ListKey
from embtrain.common.errors import DataError, ResourceError
from embtrain.common.types import ProblemSpec, Query, Score
from embtrain.data.catalogue import fetch
from embtrain.data.formats.candidate_files import QueryNames
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.storage import stored_corpus
from embtrain.data.text.vocabulary import Vocabulary
from embtrain.data.triples import graph, own_triples, query_names
from embtrain.data.triples.examples import (
    HEAD,
    TAIL,
    KnownTriples,
    TripleBatch,
    TripleExamples as Examples,
    tails_and_heads_per_entity,
)
from embtrain.data.triples.graph import Graph, TriplesConfig
from embtrain.data.vectors import vectors as vector_files
from embtrain.data.vectors.vectors import Vectors
from embtrain.evaluate import link_prediction
from embtrain.evaluate.link_prediction import RankingConfig, Ranks
from embtrain.experiment.run import scoring
from embtrain.experiment.run.model_parts import ModelParts
from embtrain.experiment.run.schema import Settings
from embtrain.experiment.run.scoring import Items
from embtrain.experiment.tasks.base import Task, corpus_name, find_corpus, read_identity, require_file

NAME_BYTES = 200  # bytes of a name, its written copy and its index entry
# Parts to filter by: a model is selected by ranks that do not depend on test triples.
FILTER_PARTS = {"valid": ("train", "valid"), "test": PARTS}


class TriplesTask(Task):
    """Task for knowledge graphs."""

    name = "triples"
    section = "triples"
    recipe_readers, corpus_kind = frozenset(graph.READERS), "triples"
    strategy_keys = frozenset({"triples.slot", "triples.weights"})
    Config = TriplesConfig
    Evaluate: ClassVar[type[RankingConfig]] = RankingConfig
    stopping_metric = "valid/mrr"
    metric = "test/mrr"

    def __init__(self, settings: Settings, graph: Graph):
        self.settings, self.graph = settings, graph
        self.config, self.evaluate = cast(TriplesConfig, settings.data), cast(RankingConfig, settings.evaluate)
        self.triples = Examples(graph.part("train"), len(graph.entities), len(graph.relations), self.config,
                                settings.train.seed)
        self.relations = self._relation_names()

    @classmethod
    def read(cls, settings: Settings) -> TriplesTask:
        where, reader = _locate_files(settings)
        return cls(settings, graph.load(where, reader, cast(TriplesConfig, settings.data),
                                        fetch.cache_folder() / "graphs", corpus_name(settings)))

    def stored_arrays(self) -> dict[str, np.ndarray]:
        return {part: self.graph.part(part).astype(np.int32) for part in PARTS}

    @classmethod
    def from_run_folder(cls, settings: Settings, folder: Path) -> TriplesTask:
        arrays = stored_corpus.read(folder) or {}
        entities, relations = (Vocabulary.read(folder / name) for name in ("entities.txt", "relations.txt"))
        triples = [arrays.get(part, np.zeros((0, 3), np.int32)) for part in PARTS]
        n_ids = np.array([len(entities), len(relations), len(entities)])
        for part in triples:
            if part.ndim != 2 or part.shape[1] != 3 or part.dtype != np.int32 or (part < 0).any() or \
                    (part >= n_ids).any():
                raise DataError(f"{folder / stored_corpus.FILE}: its triples do not fit entities.txt and "
                                "relations.txt; restore the files that training wrote")
        first = len(triples[0]), len(triples[0]) + len(triples[1])
        return cls(settings, Graph(np.concatenate(triples), first, entities, relations, read_identity(folder)))

    @classmethod
    def missing_split_reason(cls, settings: Settings, part: str) -> str:
        config = cast(TriplesConfig, settings.data)
        if getattr(config, part) or graph.has_file(_locate_files(settings)[0], config, part):
            return ""
        return f"nothing is held out; set triples.{part} above 0, or give a file of that split"

    @property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        return self.graph.identity

    @property
    def examples(self) -> Examples:  # type: ignore[override]
        return self.triples

    def problem_spec(self, device: str) -> ProblemSpec:
        examples, settings = self.triples, self.settings
        return ProblemSpec(n_candidates=examples.n_entities, counts=torch.from_numpy(examples.target_counts),
                     context_sizes=(examples.n_entities, 2 * examples.n_relations), dim=settings.model.dim,
                     seed=settings.train.seed, device=device)

    def candidate_names(self) -> Sequence[str]:
        return self.graph.entities.words

    def describe_queries(self, query: Query) -> list[str]:
        names, relations, n = self.graph.entities.words, self.relations, self.triples.n_relations
        return [f"? {relations[r - n]} {names[e]}" if r >= n else f"{names[e]} {relations[r]} ?"
                for e, r in query.context.tolist()]

    def query_names(self, by: ListKey) -> QueryNames:
        return query_names.query_names(self.graph, by)

    def observed_lists(self) -> CandidateLists:
        return query_names.observed_by_side(self.graph)

    def reflexive_lists(self, max_symmetric: float) -> CandidateLists:
        return query_names.entity_itself(self.graph, max_symmetric)

    def known_positives(self, max_bytes: int) -> KnownTriples:
        known = self._known(("train",))
        if known.nbytes > max_bytes:
            raise ResourceError(
                f"the set of training triples takes {known.nbytes:,} bytes, but {max_bytes:,} are available; set "
                "negatives.filter: target"
            )
        return known

    def known_answers(self, context: Tensor) -> Tensor:
        return self.filter_for("test").contains(context, torch.arange(self.triples.n_entities).unsqueeze(0))

    def _heldout(self, part: str) -> TripleBatch:
        return self.triples.both(self.graph.part(part))

    def summary(self) -> str:
        counts = self.graph.identity["counts"]
        return (f"{counts['train']:,} training triples, {counts['entities']:,} entities, {counts['relations']:,} "
                f"relations, {self.triples.examples_per_epoch:,} examples per epoch; {counts['valid']:,} and "
                f"{counts['test']:,} triples held out")

    def describe(self, folder: Path) -> None:
        for name, vocabulary in self._vocabularies().items():
            vocabulary.write(folder / name)

    def check_ids(self, folder: Path) -> None:
        for name, vocabulary in self._vocabularies().items():
            if Vocabulary.read(folder / name).words != vocabulary.words:
                raise self.ids_changed(folder, name)

    def validate(self, components: ModelParts) -> list[Score]:
        triples, max_triples = self.graph.part("valid"), self.evaluate.valid_triples
        if 0 < max_triples < len(triples):
            chosen = np.random.default_rng(self.config.split_seed).permutation(len(triples))[:max_triples]
            triples = triples[np.sort(chosen)]
        batch, known = self.triples.both(triples), self._filters["valid"]
        ranks = link_prediction.ranks(components.model, batch, known, torch.get_num_threads())
        return link_prediction.mean_scores("valid", ranks, self.evaluate, self._note("valid", len(triples)))

    def score_run(self, components: ModelParts, folder: Path, items: Items) -> list[Score]:
        table = components.model.vectors().detach().cpu().float().numpy()
        vector_files.write(folder / "vectors.safetensors", Vectors(self.graph.entities.words, table), "safetensors")
        if (of_relations := components.model.relations()) is not None:
            vector_files.write(folder / "relations.safetensors", Vectors(
                self.relations, of_relations.detach().cpu().float().numpy()), "safetensors")
        rows = list[Score]()
        for part in ("valid", "test"):
            triples = self.graph.part(part)
            batch = cast(TripleBatch, self.heldout(part))
            ranks = link_prediction.ranks(components.model, batch, self._filters[part], torch.get_num_threads())
            rows += self._rows(part, ranks, triples, self._note(part, len(triples)))
            if len(triples):
                items |= {f"{part}/rank": ranks.realistic,
                          f"{part}/cluster": np.repeat(np.arange(len(triples)), 2)}
        return rows

    def score_file(self, components: ModelParts, where: Path, folder: Path | None = None) -> list[Score]:
        """Return filtered ranks of the triples of a file, in the names of the run.

        Known triples of any part and triples of the file are excluded from the ranked candidates.
        """
        own = own_triples.read(require_file(where), self.config, self.graph)
        parts = [self.graph.part(part) for part in PARTS]
        known = KnownTriples.from_triples(self.triples, [*parts, own.triples])
        batch = self.triples.both(own.triples)
        ranks = link_prediction.ranks(components.model, batch, known, torch.get_num_threads())
        seen = KnownTriples.from_triples(self.triples, parts[:1])
        n_seen = int(seen.contains(batch.context(self.triples.n_relations), batch.target.unsqueeze(1))[::2].sum())
        untrained = (self.graph.entities.counts[own.triples[:, [0, 2]]] == 0).any(1) | (
            self.graph.relations.counts[own.triples[:, 1]] == 0)
        note = f"{own.note()}; both sides, {len(self.graph.entities):,} entities, filtered by " \
               f"{', '.join(PARTS)} and the file"
        note += f"; {n_seen:,} of them in train" if n_seen else ""
        note += f"; {untrained.sum():,} of them with a name unknown to training" if untrained.any() else ""
        return self._rows(where.name, ranks, own.triples, note)

    def _rows(self, benchmark: str, ranks: Ranks, triples: np.ndarray, note: str) -> list[Score]:
        """Return scores from the ranks of both sides of triples (n, 3)."""
        tph, hpt = tails_and_heads_per_entity(self.graph.part("train"), len(self.graph.relations))
        kinds = link_prediction.categories(tph, hpt, self.evaluate.threshold)
        cluster, side = np.repeat(np.arange(len(triples)), 2), np.tile([TAIL, HEAD], len(triples))
        kind = np.repeat(kinds[triples[:, 1]], 2)
        return link_prediction.scores(benchmark, ranks, cluster, side, kind, self.evaluate, note)

    def evaluation_bytes(self, components: ModelParts) -> int:
        """Return the peak extra memory of evaluation, in bytes.

        The known triples of both sides, 8 bytes each, for both parts. In addition the largest of: the unsorted keys;
        the finiteness check and the names of the written vectors; the vectors or scores of a chunk of queries; the
        likelihood by which results/divergence.py judges the run.
        """
        part = max(("valid", "test"), key=lambda part: len(self.graph.part(part)))
        n, written = len(self.graph.part(part)), components.model.vectors()
        checked = self.heldout(part).rows(slice(0, scoring.CHECKED_EXAMPLES))
        known = 2 * 8 * len(self.graph.triples)
        return 2 * known + max(
            known, written.numel() + NAME_BYTES * len(written), link_prediction.query_bytes(components.model, 2 * n),
            scoring.evaluation_bytes(components, checked, len(checked))
        )

    def _relation_names(self) -> list[str]:
        """Return the name of each relation, (R,), followed by those of the inverses if the data are reciprocal."""
        names = self.graph.relations.words
        inverses = [f"inverse of {name}" for name in names[:self.triples.n_relations - len(names)]]
        if taken := set(names) & set(inverses):
            raise DataError(
                f"{corpus_name(self.settings)}: a relation has the name {min(taken)!r}, which triples.reciprocal gives "
                "to an inverse; rename it"
            )
        return names + inverses

    @cached_property
    def _filters(self) -> dict[str, KnownTriples]:
        return {part: self._known(self._filtered(part)) for part in FILTER_PARTS}

    def filter_for(self, part: str) -> KnownTriples:
        """Return the positives that are excluded when triples of `part` are ranked."""
        return self._filters[part]

    def _filtered(self, part: str) -> tuple[str, ...]:
        """Return the parts whose triples are excluded when `part` is ranked."""
        return PARTS if self.evaluate.valid_filter == "all" else FILTER_PARTS[part]

    def _known(self, parts: tuple[str, ...]) -> KnownTriples:
        return KnownTriples.from_triples(self.triples, map(self.graph.part, parts))

    def _vocabularies(self) -> dict[str, Vocabulary]:
        return {"entities.txt": self.graph.entities, "relations.txt": self.graph.relations}

    def _note(self, part: str, n: int) -> str:
        return (f"{n:,} triples, both sides, {len(self.graph.entities):,} entities, filtered by "
                f"{', '.join(self._filtered(part)[:-1])} and {self._filtered(part)[-1]}"
                f"{'; inverse relations have their own vectors' if self.config.reciprocal else ''}")


def _locate_files(settings: Settings) -> tuple[list[Path], str]:
    """Return the paths of a run's graph, and their reader."""
    source = find_corpus(settings)
    return ([source], "triples") if isinstance(source, Path) else (fetch.corpus_paths(source), source.reader)
