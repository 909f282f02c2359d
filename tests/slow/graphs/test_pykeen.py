"""Ranks equal to those of PyKEEN's evaluator, triple by triple, under three ways to count ties.

Its TransE has our vectors and its evaluator filters by the same triples. If tables contain few integers, sums are
exact in any order and every rank must agree. If they are drawn from a normal distribution, the two programs add in
another order, and candidates whose distances differ only by rounding may change places.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.graphs import PYKEEN, Toy, digest, toy

from embtrain.data.inventory.part_names import PARTS
from embtrain.data.triples import graph
from embtrain.data.triples.examples import KnownTriples, TripleExamples
from embtrain.data.triples.graph import Graph, TriplesConfig
from embtrain.evaluate.link_prediction import Ranks, ranks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # warnings of PyKEEN and of its imports

TIES = ("optimistic", "pessimistic", "realistic")


def load(name: str) -> Graph:
    place = Path(os.environ.get("EMBTRAIN_DATA_MIRROR", ""), "kg", f"{name}.tar.gz")
    if not os.environ.get("EMBTRAIN_DATA_MIRROR") or not place.is_file():
        pytest.skip("data: EMBTRAIN_DATA_MIRROR does not contain this graph")
    return graph.load([place], "triples", TriplesConfig(), None, name)


def theirs(model: Toy, loaded: Graph, triples: np.ndarray) -> dict[str, np.ndarray]:
    """Return PyKEEN's ranks (2n,) of triples, tail and head of each, per way to count ties."""
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.models import TransE
    from pykeen.triples import CoreTriplesFactory

    every = torch.from_numpy(np.concatenate([loaded.part(part) for part in PARTS]))
    factory = CoreTriplesFactory(every, num_entities=len(loaded.entities), num_relations=len(loaded.relations))
    other = TransE(triples_factory=factory, embedding_dim=model.config.dim, scoring_fct_norm=int(model.geometry[1]),
                   random_seed=0)
    for table, vectors in ((other.entity_representations[0], model.e), (other.relation_representations[0], model.r)):
        table._embeddings.weight.data.copy_(vectors.data)
    other.eval()
    evaluator = RankBasedEvaluator(filtered=True, clear_on_finalize=False)
    evaluator.evaluate(other, torch.from_numpy(triples), batch_size=64, use_tqdm=False,
                       additional_filter_triples=[every])
    sides = {side: {ties: np.concatenate(evaluator.ranks[side, ties]) for ties in TIES} for side in ("tail", "head")}
    return {ties: np.stack([sides["tail"][ties], sides["head"][ties]], 1).ravel() for ties in TIES}


def ours(model: Toy, loaded: Graph, triples: np.ndarray) -> Ranks:
    E, R = len(loaded.entities), len(loaded.relations)
    examples = TripleExamples(loaded.part("train"), E, R, TriplesConfig(), 0)
    every = np.concatenate([loaded.part(part) for part in PARTS])
    return ranks(model, examples.both(triples), KnownTriples.from_triples(examples, [every]))


@pytest.mark.parametrize("name", ["umls", "nations", "kinship"])
@pytest.mark.parametrize("levels", [0, 3])
def test_every_triple_of_a_small_graph(name: str, levels: int) -> None:
    loaded = load(name)
    model = toy(len(loaded.entities), len(loaded.relations), "l1", dim=20, levels=levels)
    for part in PARTS:
        triples = loaded.part(part)
        mine, other = ours(model, loaded, triples), theirs(model, loaded, triples)
        for ties in TIES:
            assert np.array_equal(getattr(mine, ties), other[ties]), (part, ties)
    assert (mine.equal > 0).any() == (levels > 0)


@pytest.mark.parametrize("name", ["umls", "nations", "kinship"])
@pytest.mark.parametrize("geometry", ["l1", "l2"])
def test_the_stored_reference_ranks_equal_pykeens(name: str, geometry: str) -> None:
    """tests/helpers/pykeen_ranks.json: digests for every triple, per part and way to count ties."""
    loaded = load(name)
    model = toy(len(loaded.entities), len(loaded.relations), geometry, dim=20, levels=3)  # type: ignore[arg-type]
    computed = {part: {ties: digest(x) for ties, x in theirs(model, loaded, loaded.part(part)).items()}
                for part in PARTS}
    assert computed == json.loads(PYKEEN.read_text())[f"{name} {geometry}"]


@pytest.mark.parametrize(("geometry", "levels"), [("l1", 0), ("l1", 2), ("l2", 0), ("l2", 2)])
def test_2000_triples_of_fb15k_237(geometry: str, levels: int) -> None:
    loaded = load("FB15k-237")
    model = toy(len(loaded.entities), len(loaded.relations), geometry, dim=50, levels=levels)  # type: ignore[arg-type]
    triples = loaded.part("test")[np.random.default_rng(0).permutation(20_466)[:2000]]
    mine, other = ours(model, loaded, triples), theirs(model, loaded, triples)
    for ties in TIES:
        off = np.abs(getattr(mine, ties) - other[ties])
        if levels:
            assert off.max() == 0, (ties, off.max())
        else:  # some of 14,541 candidates differ by less than float32 resolves
            assert (off > 0).mean() < (0.01 if geometry == "l1" else 0.5) and off.max() <= 20, (ties, off.max())
            assert abs((1 / getattr(mine, ties)).mean() - (1 / other[ties]).mean()) < 1e-6
