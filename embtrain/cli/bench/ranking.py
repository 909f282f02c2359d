"""Ranking: filtered link prediction on the test triples of a graph, both sides, by embtrain and others.

Vectors are random and the same for all programs; the score is −‖h + r − t‖, l1 or l2. Rivals rank the first 1,024
triples, and their times are scaled to all, because their time is proportional to the number of queries.

pykeen   its RankBasedEvaluator with its own TransE, where it is installed; 32 triples at once
torch    torch.cdist over all entities, without the known positives: our fallback without the compiled core
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embtrain.cli.bench.harness.base import Group, Timed, Work, choose, find_rival, run, timed
from embtrain.common import shipped
from embtrain.common.types import Batch, ProblemSpec, Query
from embtrain.data.catalogue import fetch
from embtrain.data.catalogue.recipes import load_recipe
from embtrain.data.inventory.part_names import PARTS
from embtrain.data.triples import graph
from embtrain.data.triples.examples import KnownTriples, TripleBatch, TripleExamples
from embtrain.data.triples.graph import Graph, TriplesConfig
from embtrain.evaluate import link_prediction
from embtrain.experiment.run import components
from embtrain.models.base import Model, ModelConfig

CORPUS, DIM, SAMPLE, BATCH = "fb15k-237", 50, 1024, 32
NORMS = {"l1": 1, "l2": 2}


class RankingCase(NamedTuple):
    """The triples to rank and the vectors of the model."""

    examples: TripleExamples
    test: np.ndarray       # (n, 3)
    filtered: np.ndarray   # (N, 3)
    known: KnownTriples
    entities: Tensor       # (E, D)
    relations: Tensor      # (R, D)


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None, corpus: str | None) -> dict[str, Any]:
    """Rounds of every case; `only` names some, for example l1."""
    names = {(norm, n): f"{norm}-d{DIM}-t{n}" for norm in NORMS for n in threads}
    chosen = choose(names.values(), only)
    has_pykeen, version = find_rival("pykeen", "pykeen")
    found = _graph(corpus or CORPUS)
    case, groups = _case(found), []
    for (norm, n), name in names.items():
        if name in chosen:
            rivals: dict[str, Work] = {"pykeen": partial(_pykeen, case, norm, n)} if has_pykeen else {}
            rivals |= {"torch": partial(_torch, case, norm, n)}
            groups.append(Group(n, {name: partial(_ours, case, norm, n)}, rivals))
    return run("ranking", "s", groups, rounds, {
        "corpus": corpus or CORPUS, "entities": len(found.entities), "triples": len(case.test), "dim": DIM,
        "sample": min(SAMPLE, len(case.test)), "pykeen": version, "torch": torch.__version__})


def _graph(name: str) -> Graph:
    if name in shipped.names("corpora"):
        recipe = load_recipe("corpora", name)
        where, reader = fetch.corpus_paths(recipe), recipe.reader
    else:
        where, reader = [Path(name)], "triples"
    return graph.load(where, reader, TriplesConfig(), fetch.cache_folder() / "graphs", name)


def _case(found: Graph) -> RankingCase:
    E, R = len(found.entities), len(found.relations)
    examples = TripleExamples(found.part("train"), E, R, TriplesConfig(), 0)
    every = np.concatenate([found.part(part) for part in PARTS])
    random = torch.Generator().manual_seed(0)
    entities, relations = (torch.randn(n, DIM, generator=random) for n in (E, R))
    return RankingCase(examples, found.part("test"), every, KnownTriples.from_triples(examples, [every]), entities,
                relations)


class Translation(Model):
    """s = −‖h + r − t‖ on given vectors. by_torch: declare a geometry that the ranking kernel does not support."""

    def __init__(self, case: RankingCase, norm: str, by_torch: bool = False):
        E = len(case.entities)
        super().__init__(ModelConfig(dim=DIM), ProblemSpec(E, torch.ones(E)))
        self.norm, self.case = norm, case
        self.geometry = "order" if by_torch else "l1" if norm == "l1" else "l2"

    def encode(self, batch: Batch) -> Query:
        assert isinstance(batch, TripleBatch)
        step = (1 - 2 * batch.slot).unsqueeze(1) * self.case.relations[batch.relation]
        return Query(self.case.entities[batch.entity] + step, batch.entity, batch.target, batch.slot)

    def score(self, query: Query, candidates: Tensor) -> Tensor:
        return -torch.cdist(query.vector, self.case.entities[candidates[0]], p=NORMS[self.norm],
                            compute_mode="donot_use_mm_for_euclid_dist")

    def table(self) -> Tensor:
        return self.case.entities


def _ours(case: RankingCase, norm: str, threads: int) -> Timed:
    components.use_threads(threads)
    model, batch = Translation(case, norm), case.examples.both(case.test)
    seconds, cpu, found = timed(lambda: link_prediction.ranks(model, batch, case.known, threads))
    return Timed(seconds, cpu, _quality(found.realistic[:2 * SAMPLE]))


def _torch(case: RankingCase, norm: str, threads: int) -> Timed:
    components.use_threads(threads)
    model, batch = Translation(case, norm, by_torch=True), case.examples.both(case.test[:SAMPLE])
    return _scaled(case, *timed(lambda: link_prediction.ranks(model, batch, case.known)))


def _scaled(case: RankingCase, seconds: float, cpu: float, found: link_prediction.Ranks) -> Timed:
    times = len(case.test) / min(SAMPLE, len(case.test))
    return Timed(seconds * times, cpu * times, _quality(found.realistic))


def _quality(ranks: np.ndarray) -> dict[str, float]:
    """Metrics on the sample; they must be equal to four digits, or the programs do not compute the same."""
    return {"mrr": float((1 / ranks).mean()), "mr": float(ranks.mean())}


def _pykeen(case: RankingCase, norm: str, threads: int) -> Timed:
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import TransE
    from pykeen.triples import CoreTriplesFactory

    components.use_threads(threads)
    E, R = len(case.entities), len(case.relations)
    every, sample = torch.from_numpy(case.filtered), torch.from_numpy(case.test[:SAMPLE])
    model = TransE(triples_factory=CoreTriplesFactory(every, num_entities=E, num_relations=R), embedding_dim=DIM,
                   scoring_fct_norm=NORMS[norm], random_seed=0)
    for table, vectors in ((model.entity_representations[0], case.entities),
                           (model.relation_representations[0], case.relations)):
        table._embeddings.weight.data.copy_(vectors)
    model.eval()
    evaluator = RankBasedEvaluator(filtered=True)
    seconds, cpu, found = timed(lambda: evaluator.evaluate(
        model, sample, batch_size=BATCH, use_tqdm=False, additional_filter_triples=[every]))
    times = len(case.test) / len(sample)
    return Timed(seconds * times, cpu * times,
                 {"mrr": float(found.get_metric("both.realistic.inverse_harmonic_mean_rank")),
                  "mr": float(found.get_metric("both.realistic.arithmetic_mean_rank"))})
