"""node2vec walks: gensim's Word2Vec against embtrain's with a changed import, from lists of nodes to vectors.

PRIVATE   negatives for each pair, as in gensim
SHARED    negatives for each window
SHARED10  10 for each window, weighted to a noise mass of 5

The graph has communities of equal size; a node has edges to nodes of its own community and of others. Both programs
receive the same walks as lists of strings and call the constructor alone, so reading the vocabulary is timed too.
`neighbours` is the share of right neighbours: nodes of the own community among the 10 nearest of each node.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gensim.models import KeyedVectors, Word2Vec as GensimWord2Vec

from embtrain.cli.bench.harness.base import Group, Timed, choose, run, timed
from embtrain.data.walks.walks import WalksConfig, draw_walks, edges_from_pairs
from embtrain.gensim import Word2Vec

NODES, COMMUNITY, INSIDE, OUTSIDE = 3000, 30, 6, 2  # edges drawn for each node to its own community and to any
WALKS = WalksConfig(per_node=10, length=40)
SETTINGS: dict[str, Any] = {"vector_size": 128, "window": 10, "min_count": 1, "sg": 1, "epochs": 1, "seed": 1}
BY_WINDOW: dict[str, Any] = {"negatives.share_draws_by": "window"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "PRIVATE": {}, "SHARED": BY_WINDOW, "SHARED10": {**BY_WINDOW, "negatives.k": 10, "negatives.total_weight": 5}}
TOP = 10


def bench(rounds: int, threads: Sequence[int], only: Sequence[str] | None) -> dict[str, Any]:
    """Rounds of both layouts; `only` names some, for example SHARED."""
    known = {f"{layout}-t{n}": (n, sets) for n in threads for layout, sets in LAYOUTS.items()}
    chosen = {name: known[name] for name in choose(known, only)}
    walks = planted_walks()
    groups = [Group(n, {name: partial(train, Word2Vec, walks, n, sets=sets)
                        for name, (threads_of, sets) in chosen.items() if threads_of == n},
                    {"gensim": partial(train, GensimWord2Vec, walks, n)})
              for n in dict.fromkeys(n for n, _ in chosen.values())]
    about = {"corpus": "planted communities", "nodes": NODES, "community": COMMUNITY, "walks": len(walks),
             "tokens": sum(map(len, walks)), "settings": SETTINGS, "measured": "the call of Word2Vec"}
    return run("walks", "s", groups, rounds, about)


def planted_walks() -> list[list[str]]:
    """Draw the graph and walks over it; the names of nodes are their numbers."""
    draw = np.random.default_rng(1)
    node = np.arange(NODES)
    own = node[:, None] // COMMUNITY * COMMUNITY + draw.integers(COMMUNITY, size=(NODES, INSIDE))
    ends = np.concatenate([own, draw.integers(NODES, size=(NODES, OUTSIDE))], axis=1)       # (N, edges of a node)
    pairs = np.stack([np.repeat(node, ends.shape[1]), ends.reshape(-1)], axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    graph = edges_from_pairs(list(map(str, node)), pairs, np.ones(len(pairs)), False, "the planted graph")
    tables = (table for table in draw_walks(graph, WALKS))
    return [list(map(str, walk)) for walk in itertools.chain.from_iterable(table.tolist() for table in tables)]


def train(word2vec: type[GensimWord2Vec], walks: list[list[str]], threads: int, **more: Any) -> Timed:
    """Train one program on the walks."""
    seconds, cpu, model = timed(lambda: word2vec(walks, workers=threads, **SETTINGS, **more))
    return Timed(seconds, cpu, {"neighbours": right_neighbours(model.wv)})


def right_neighbours(vectors: KeyedVectors) -> float:
    """Return the share of nodes of the own community among the TOP nearest of each node."""
    community = np.array(vectors.index_to_key, dtype=np.int64) // COMMUNITY
    unit = vectors.get_normed_vectors()
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    nearest = np.argpartition(-similarity, TOP, axis=1)[:, :TOP]
    return float((community[nearest] == community[:, None]).mean())
