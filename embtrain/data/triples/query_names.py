"""Queries of a graph as a file of candidates names them, and lists of candidates that are read from its triples.

    query      HEAD RELATION _   or   _ RELATION TAIL       `_` marks the open side, as in `embtrain predict`
    side       RELATION _        or   _ RELATION
    relation   RELATION                                     both sides
    entity     ENTITY                                       all relations and sides
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from embtrain.common.candidate_lists import CandidateLists, ListKey
from embtrain.data.formats.candidate_files import QueryNames
from embtrain.data.known_pairs import KnownPairs
from embtrain.data.triples.graph import Graph

OPEN = "_"
ENTITY, RELATION = 0, 1     # columns of a context: the known entity, and the relation, + R if the head is open
Keys = list[tuple[int, ...]]


def query_names(graph: Graph, by: ListKey) -> QueryNames:
    """Return the names of the queries that share a list."""
    entities, relations, n = graph.entities.index, graph.relations.index, len(graph.relations)

    def find_query(fields: Sequence[str]) -> Keys | None:
        head, relation, tail = fields
        if (head == OPEN) == (tail == OPEN):
            raise ValueError(f"{' '.join(fields)!r}: either the head or the tail should be {OPEN}, the open side")
        entity = entities.get(tail if head == OPEN else head)
        known = entity is not None and relation in relations
        return [(entity, relations[relation] + n * (head == OPEN))] if known else None  # type: ignore[list-item]

    def find_side(fields: Sequence[str]) -> Keys | None:
        if (fields[0] == OPEN) == (fields[1] == OPEN):
            raise ValueError(f"{' '.join(fields)!r}: either side of the relation should be {OPEN}, the open one")
        relation = relations.get(fields[fields[0] == OPEN])
        return None if relation is None else [(relation + n * (fields[0] == OPEN),)]

    def find_relation(fields: Sequence[str]) -> Keys | None:
        relation = relations.get(fields[0])
        return None if relation is None else [(relation,), (relation + n,)]

    def find_entity(fields: Sequence[str]) -> Keys | None:
        return [(entities[fields[0]],)] if fields[0] in entities else None

    return {"query": QueryNames((ENTITY, RELATION), ("HEAD", "RELATION", OPEN), find_query),
            "side": QueryNames((RELATION,), ("RELATION", OPEN), find_side),
            "relation": QueryNames((RELATION,), ("RELATION",), find_relation),
            "entity": QueryNames((ENTITY,), ("ENTITY",), find_entity)}[by]


def observed_by_side(graph: Graph) -> CandidateLists:
    """Return the entities seen on each side of each relation in the training triples, weighted by their counts."""
    head, relation, tail = graph.part("train").T
    directed = np.concatenate([relation, relation + len(graph.relations)]).astype(np.int64)  # tail open, head open
    return CandidateLists.from_entries((RELATION,), directed[:, None], np.concatenate([tail, head]).astype(np.int64),
                                       np.ones(len(directed)))


def entity_itself(graph: Graph, max_symmetric: float) -> CandidateLists:
    """Return for each query of training a list of its known entity, except for symmetric relations.

    max_symmetric: relations with a larger share of triples whose reverse is in training too are left out.
    """
    triples, n = graph.part("train"), len(graph.relations)
    head, relation, tail = triples.T
    kept = symmetric_share(triples, len(graph.entities), n)[relation] <= max_symmetric
    head, relation, tail = head[kept], relation[kept], tail[kept]
    entity = np.concatenate([head, tail])
    directed = np.concatenate([relation, relation + n])                                      # tail open, head open
    return CandidateLists.from_entries((ENTITY, RELATION), np.stack([entity, directed], 1), entity,
                                       np.ones(len(entity)))


def symmetric_share(triples: np.ndarray, n_entities: int, n_relations: int) -> np.ndarray:
    """Share of the triples (h, r, t) of each relation for which (t, r, h) is a triple too, (R,); 0 without triples."""
    head, relation, tail = torch.from_numpy(triples).T
    known = KnownPairs(torch.stack([head, relation], 1), tail, n_entities, (n_entities, n_relations))
    reversed_too = known.contains(torch.stack([tail, relation], 1), head.unsqueeze(1))[:, 0].numpy()
    count = np.bincount(triples[:, 1], minlength=n_relations)
    return np.bincount(triples[:, 1], weights=reversed_too, minlength=n_relations) / np.maximum(count, 1)
