"""Hierarchies: pairs (u, v), u the hyponym and v its hypernym, as arrays (n, 2) of ids. What follows from them, and
what stands in them twice.

    closure      u < v  where a path u → ... → v exists
    paths        how many such paths there are: how often a search without a memory meets the pair
    reduction    the pairs that do not follow from others: the least that has the same closure

A hierarchy has no cycle; one that has is refused, with a cycle shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import networkx
import numpy as np

from embtrain.errors import DataError, ResourceError

MAX_PAIRS = 20_000_000  # of a closure: each takes about 100 bytes while it is made
MOST_SHOWN = 8          # concepts of a cycle


class Above(NamedTuple):
    """All (hyponym, hypernym) of a closure, in the order of their ids, and the number of paths of each."""

    pairs: np.ndarray  # (m, 2) int64
    paths: np.ndarray  # (m,) int64


def above(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> Above:
    """The closure of pairs of n concepts. DataError where they have a cycle, ResourceError where it is too large."""
    parents = Parents(pairs, n)
    over: list[dict[int, int]] = [{} for _ in range(n)]  # of each concept: those above it, and their paths
    total = 0
    for u in topdown(pairs, n, names, where):
        mine: dict[int, int] = {}
        for v in parents.of(u):
            mine[v] = mine.get(v, 0) + 1
            for w, paths in over[v].items():
                mine[w] = mine.get(w, 0) + paths
        over[u] = mine
        total += len(mine)
        if total > MAX_PAIRS or max(mine.values(), default=0) > MAX_PAIRS:
            raise ResourceError(f"{where}: more than {MAX_PAIRS:,} pairs follow from it, or paths lead to one; give a "
                                "smaller hierarchy")
    found = np.empty((total, 2), np.int64)
    ways, at = np.empty(total, np.int64), 0
    for u, mine in enumerate(over):
        ids = np.fromiter(mine, np.int64, len(mine))
        order, end = np.argsort(ids), at + len(mine)
        found[at:end, 0], found[at:end, 1] = u, ids[order]
        ways[at:end] = np.fromiter(mine.values(), np.int64, len(mine))[order]
        at = end
    return Above(found, ways)


def closure(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> np.ndarray:
    """Every pair that holds, once, (m, 2), in the order of ids."""
    return above(pairs, n, names, where).pairs


def reduction(pairs: np.ndarray, whole: np.ndarray, n: int) -> np.ndarray:
    """Those of `pairs` that do not follow from the others; `whole` is their closure, in the order of ids."""
    key, parents = whole[:, 0] * n + whole[:, 1], Parents(pairs, n)
    kept = []
    for u in range(n):
        of = parents.of(u)
        others, implied = np.array(of, np.int64), np.zeros(len(of), bool)
        for w in of:  # v follows where another parent of u lies below it
            implied |= _in(key, w * n + others)
        kept += [(u, v) for v, no in zip(of, implied.tolist(), strict=True) if not no]
    return np.array(kept, np.int64).reshape(-1, 2)


def follows(train: np.ndarray, asked: np.ndarray, n: int) -> np.ndarray:
    """Which of the pairs `asked` (m, 2) are in the closure of `train`, (m,) bool."""
    parents, known = Parents(train, n), dict[int, set[int]]()
    def over(u: int) -> set[int]:
        if u not in known:
            open_ = parents.of(u)
            found = set(open_)
            while open_:
                more = [v for v in parents.of(open_.pop()) if v not in found]
                found.update(more)
                open_ += more
            known[u] = found
        return known[u]
    return np.array([v in over(u) for u, v in asked.tolist()], bool)


def topdown(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> list[int]:
    """All concepts, hypernyms before their hyponyms; DataError that shows a cycle where there is one."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(map(tuple, pairs[:, ::-1].tolist()))
    try:
        return list(networkx.topological_sort(graph))
    except networkx.NetworkXUnfeasible as error:
        found = [names[v] for v, _ in reversed(networkx.find_cycle(graph))]
        shown = [*found[:MOST_SHOWN], *(["..."] if len(found) > MOST_SHOWN else []), found[0]]
        raise DataError(f"{where}: has a cycle: {' < '.join(shown)}; take one of its pairs out") from error


def rooted(pairs: np.ndarray, n: int, root: int) -> np.ndarray:
    """`pairs` and the concept `root` above each of the n that has no hypernym."""
    top = np.setdiff1d(np.arange(n), [*pairs[:, 0].tolist(), root])
    return np.concatenate([pairs, np.stack([top, np.full(len(top), root)], 1)])


def distinct(pairs: np.ndarray, n: int) -> np.ndarray:
    """Each pair once, in the order of ids."""
    key = np.sort(pairs[:, 0] * n + pairs[:, 1])
    key = key[np.append(True, key[1:] != key[:-1])[:len(key)]]  # numpy's own unique hashes, ten times slower
    return np.stack([key // n, key % n], 1)


class Keys:
    """A set of pairs, asked for many at once."""

    def __init__(self, pairs: np.ndarray, n: int):
        self.n, self.keys = n, np.sort(pairs[:, 0] * n + pairs[:, 1])

    def hold(self, asked: np.ndarray) -> np.ndarray:
        """Which of the pairs (..., 2) are in the set: (...) bool."""
        return _in(self.keys, asked[..., 0] * self.n + asked[..., 1])


def _in(sorted_keys: np.ndarray, asked: np.ndarray) -> np.ndarray:
    if len(sorted_keys) == 0:
        return np.zeros(asked.shape, bool)
    at = np.searchsorted(sorted_keys, asked)
    return sorted_keys[np.minimum(at, len(sorted_keys) - 1)] == asked


class Parents:
    """The direct hypernyms of each concept."""

    def __init__(self, pairs: np.ndarray, n: int):
        order = np.argsort(pairs[:, 0], kind="stable")
        self.above = pairs[order, 1]
        self.begin = np.searchsorted(pairs[order, 0], np.arange(n + 1)).tolist()

    def of(self, u: int) -> list[int]:
        return self.above[self.begin[u]:self.begin[u + 1]].tolist()
