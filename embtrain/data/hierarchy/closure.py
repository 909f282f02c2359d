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

from embtrain.common import machine
from embtrain.common.errors import DataError, ResourceError

MAX_PAIRS = 20_000_000  # of a closure, and paths of all its pairs together
PAIR_BYTES = 100        # memory that a pair takes at most until it is trained on, with the copies that are split
MAX_SHOWN = 8          # concepts of a cycle


class CountedClosure(NamedTuple):
    """All (hyponym, hypernym) of a closure, in the order of their ids, and the number of paths of each."""

    pairs: np.ndarray  # (m, 2) int64
    paths: np.ndarray  # (m,) int64


def closure_with_paths(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> CountedClosure:
    """Return the closure of pairs (e, 2) of n concepts, and how many paths lead from one to the other.

    DataError where they have a cycle, ResourceError where the pairs or all their paths are too many.
    """
    order = topological_order(pairs, n, names, where)
    parents, most = Parents(pairs, n), _most_pairs(pairs, n, order, where)
    over, ways = ([np.zeros(0, np.int32)] * n for _ in range(2))  # of each concept: those above it, and their paths
    total = paths = 0
    for u in order:
        of = parents.parents_of(u)
        if of:
            ids, at = np.unique(np.concatenate([of, *(over[v] for v in of)]), return_inverse=True)
            count = np.bincount(at, np.concatenate([np.ones(len(of)), *(ways[v] for v in of)]))
            total, paths = total + len(ids), paths + count.sum()
            if paths > MAX_PAIRS or total > most:
                raise _too_large(where, most)
            over[u], ways[u] = ids.astype(np.int32), count.astype(np.int32)
    return CountedClosure(_as_pairs(over, total), np.concatenate([np.zeros(0, np.int64), *ways]))


def closure(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> np.ndarray:
    """Return every pair that holds, once, (m, 2), in the order of ids. Errors as `above`, paths apart."""
    over = _ancestors(pairs, n, topological_order(pairs, n, names, where), where)
    return _as_pairs(over, sum(map(len, over)))


def reduction(pairs: np.ndarray, whole: np.ndarray, n: int) -> np.ndarray:
    """Those of `pairs` that do not follow from the others; `whole` is their closure, in the order of ids."""
    parents, begin = Parents(pairs, n), np.searchsorted(whole[:, 0], np.arange(n + 1))
    kept = []
    for u in range(n):
        of = parents.parents_of(u)
        if len(of) > 1:  # v follows where another parent of u lies below it
            implied = np.concatenate([whole[begin[w]:begin[w + 1], 1] for w in of])
            of = np.array(of)[~np.isin(of, implied)].tolist()
        kept += [(u, v) for v in of]
    return np.array(kept, np.int64).reshape(-1, 2)


def is_implied(train: np.ndarray, asked: np.ndarray, n: int) -> np.ndarray:
    """Which of the pairs `asked` (m, 2) are in the closure of `train`, (m,) bool; neither has a cycle."""
    over = _ancestors(train, n, _order(train, n), "")
    return PairSet(_as_pairs(over, sum(map(len, over))), n).contains(asked)


def _ancestors(pairs: np.ndarray, n: int, order: Sequence[int], where: str) -> list[np.ndarray]:
    """The concepts above each of n, ascending, int32. A parent that another parent lies below brings nothing new and is
    passed over, so a file that lists its whole closure costs no more than its reduction."""
    most = _most_pairs(pairs, n, order, where)
    parents, over, total = Parents(pairs, n), [np.zeros(0, np.int32)] * n, 0
    place, seen = np.empty(n, np.int64), np.full(n, -1, np.int64)
    place[order] = np.arange(n)
    for u in order:
        of = parents.parent_array(u)
        found = [of.astype(np.int32)]
        for v in of[np.argsort(-place[of])].tolist() if len(of) > 1 else of:  # the nearest first: none is below another
            if seen[v] != u and len(over[v]):
                found.append(over[v])
                seen[over[v]] = u
        if len(of):
            over[u] = np.unique(np.concatenate(found)) if len(of) > 1 else np.sort(np.concatenate(found))
            total += len(over[u])
            if total > most:
                raise _too_large(where, most)
    return over


def _most_pairs(pairs: np.ndarray, n: int, order: Sequence[int], where: str) -> int:
    """How many pairs a closure may have. ResourceError, before memory is taken, where the longest path above each
    concept alone makes more: its closure has at least as many."""
    most = min(MAX_PAIRS, machine.free() // PAIR_BYTES)
    parents, depth = Parents(pairs, n), np.zeros(n, np.int64)
    for u in order:
        if len(of := parents.parent_array(u)):
            depth[u] = depth[of].max() + 1
    if depth.sum() > most:
        raise _too_large(where, most)
    return most


def _too_large(where: str, most: int) -> ResourceError:
    return ResourceError(f"{where}: more than {most:,} pairs follow from it, or as many paths; give a smaller "
                         "hierarchy, or free memory")


def _as_pairs(over: Sequence[np.ndarray], total: int) -> np.ndarray:
    """(m, 2) int64: each concept with every one above it."""
    found = np.empty((total, 2), np.int64)
    found[:, 0] = np.repeat(np.arange(len(over)), list(map(len, over)))
    np.concatenate([np.zeros(0, np.int64), *over], out=found[:, 1], casting="unsafe")
    return found


def topological_order(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> list[int]:
    """All concepts, hypernyms before their hyponyms; DataError that shows a cycle where there is one."""
    order = _order(pairs, n)
    if len(order) == n:
        return order
    rest = np.ones(n, bool)
    rest[order] = False                                      # in a cycle, or below one
    graph = networkx.DiGraph(list(map(tuple, pairs[rest[pairs].all(1)][:, ::-1].tolist())))
    found = [names[v] for v, _ in reversed(networkx.find_cycle(graph))]
    shown = [*found[:MAX_SHOWN], *(["..."] if len(found) > MAX_SHOWN else []), found[0]]
    raise DataError(f"{where}: has a cycle: {' < '.join(shown)}; take one of its pairs out")


def _order(pairs: np.ndarray, n: int) -> list[int]:
    """The concepts with no cycle above them, hypernyms before their hyponyms. In arrays: networkx takes 300 bytes for
    each pair."""
    below, open_ = Parents(pairs[:, ::-1], n), np.bincount(pairs[:, 0], minlength=n)  # parents that are still to come
    order = np.flatnonzero(open_ == 0).tolist()
    for v in order:                                          # grows while it is read
        of, times = np.unique(below.parent_array(v), return_counts=True)
        open_[of] -= times
        order += of[open_[of] == 0].tolist()
    return order


def add_root(pairs: np.ndarray, n: int, root: int) -> np.ndarray:
    """`pairs` and the concept `root` above each of the n that has no hypernym."""
    top = np.setdiff1d(np.arange(n), [*pairs[:, 0].tolist(), root])
    return np.concatenate([pairs, np.stack([top, np.full(len(top), root)], 1)])


def unique_pairs(pairs: np.ndarray, n: int) -> np.ndarray:
    """Each pair once, in the order of ids."""
    key = np.sort(pairs[:, 0] * n + pairs[:, 1])
    key = key[np.append(True, key[1:] != key[:-1])[:len(key)]]  # numpy's own unique hashes, ten times slower
    return np.stack([key // n, key % n], 1)


class PairSet:
    """A set of pairs, asked for many at once."""

    def __init__(self, pairs: np.ndarray, n: int):
        self.n, self.keys = n, np.sort(pairs[:, 0] * n + pairs[:, 1])

    def contains(self, asked: np.ndarray) -> np.ndarray:
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

    def parent_array(self, u: int) -> np.ndarray:
        return self.above[self.begin[u]:self.begin[u + 1]]

    def parents_of(self, u: int) -> list[int]:
        return self.parent_array(u).tolist()
