"""Transitive closure and reduction of hierarchies, given as pairs (u, v) of hyponym and hypernym ids, (n, 2).

    closure      all u < v with a path u -> ... -> v
    paths        the number of these paths: how often a search that does not mark visited nodes meets the pair
    reduction    the smallest subset of the pairs with the same closure

A hierarchy must be acyclic; a cycle is reported as a DataError that shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from embtrain.common import machine
from embtrain.common.errors import DataError, ResourceError

MAX_PAIRS = 20_000_000  # pairs of a closure; also the limit of their total number of paths
PAIR_BYTES = 100        # peak bytes for each pair, including the copies made by the split
MAX_SHOWN = 8           # concepts of a cycle in an error


class CountedClosure(NamedTuple):
    """All pairs of a closure in the order of their ids, and the number of paths of each."""

    pairs: np.ndarray  # (m, 2) int64
    paths: np.ndarray  # (m,) int64


def closure_with_paths(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> CountedClosure:
    """Return the closure of pairs (e, 2) over n concepts, with the number of paths of each pair.

    DataError if there is a cycle, ResourceError if there are too many pairs or paths.
    """
    order = topological_order(pairs, n, names, where)
    parents, max_pairs = Parents(pairs, n), _max_pairs(pairs, n, order, where)
    ancestors, path_counts = (
        [np.zeros(0, np.int32)] * n for _ in range(2)
    )  # by concept: its ancestors, and the number of paths to each
    n_pairs = n_paths = 0
    for u in order:
        direct = parents.parents_of(u)
        if direct:
            ids, inverse = np.unique(np.concatenate([direct, *(ancestors[v] for v in direct)]), return_inverse=True)
            count = np.bincount(inverse, np.concatenate([np.ones(len(direct)), *(path_counts[v] for v in direct)]))
            n_pairs, n_paths = n_pairs + len(ids), n_paths + count.sum()
            if n_paths > MAX_PAIRS or n_pairs > max_pairs:
                raise _too_large(where, max_pairs)
            ancestors[u], path_counts[u] = ids.astype(np.int32), count.astype(np.int32)
    return CountedClosure(_as_pairs(ancestors, n_pairs), np.concatenate([np.zeros(0, np.int64), *path_counts]))


def closure(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> np.ndarray:
    """Return the distinct pairs of the closure, (m, 2) int64, in the order of ids. DataError if there is a cycle,
    ResourceError if there are too many pairs."""
    ancestors = _ancestors(pairs, n, topological_order(pairs, n, names, where), where)
    return _as_pairs(ancestors, sum(map(len, ancestors)))


def reduction(pairs: np.ndarray, closed: np.ndarray, n: int) -> np.ndarray:
    """Return those of `pairs` that the others do not imply. closed: their closure (m, 2), in the order of ids."""
    parents, begin = Parents(pairs, n), np.searchsorted(closed[:, 0], np.arange(n + 1))
    kept = []
    for u in range(n):
        direct = parents.parents_of(u)
        if len(direct) > 1:  # v is implied if another parent of u is below v
            implied = np.concatenate([closed[begin[w]:begin[w + 1], 1] for w in direct])
            direct = np.array(direct)[~np.isin(direct, implied)].tolist()
        kept += [(u, v) for v in direct]
    return np.array(kept, np.int64).reshape(-1, 2)


def is_implied(train: np.ndarray, pairs: np.ndarray, n: int) -> np.ndarray:
    """Return which of `pairs` (m, 2) are in the closure of `train`, (m,) bool. Neither may have a cycle."""
    return PairSet(all_implied(train, n), n).contains(pairs)


def all_implied(train: np.ndarray, n: int) -> np.ndarray:
    """Return the distinct pairs of the closure of `train`, which has no cycle, (m, 2) int64, in the order of ids."""
    ancestors = _ancestors(train, n, _acyclic_order(train, n), "")
    return _as_pairs(ancestors, sum(map(len, ancestors)))


def _ancestors(pairs: np.ndarray, n: int, order: Sequence[int], where: str) -> list[np.ndarray]:
    """Return the ancestors of each of n concepts, ascending int32.

    A parent that is an ancestor of another parent adds nothing and is skipped, so a file that lists its whole closure
    costs no more than its reduction.
    """
    max_pairs = _max_pairs(pairs, n, order, where)
    parents, ancestors, total = Parents(pairs, n), [np.zeros(0, np.int32)] * n, 0
    rank, seen = np.empty(n, np.int64), np.full(n, -1, np.int64)
    rank[order] = np.arange(n)
    for u in order:
        direct = parents.parent_array(u)
        pieces = [direct.astype(np.int32)]
        for v in (
            direct[np.argsort(-rank[direct])].tolist() if len(direct) > 1 else direct
        ):  # deepest first: a parent above another is skipped
            if seen[v] != u and len(ancestors[v]):
                pieces.append(ancestors[v])
                seen[ancestors[v]] = u
        if len(direct):
            ancestors[u] = np.unique(np.concatenate(pieces)) if len(direct) > 1 else np.sort(np.concatenate(pieces))
            total += len(ancestors[u])
            if total > max_pairs:
                raise _too_large(where, max_pairs)
    return ancestors


def _max_pairs(pairs: np.ndarray, n: int, order: Sequence[int], where: str) -> int:
    """Return the maximal number of pairs of a closure, by `MAX_PAIRS` and free memory.

    ResourceError, before memory is allocated, if the sum over concepts of the longest path above each exceeds it: the
    closure has at least that many pairs.
    """
    max_pairs = min(MAX_PAIRS, machine.free() // PAIR_BYTES)
    parents, depth = Parents(pairs, n), np.zeros(n, np.int64)
    for u in order:
        if len(direct := parents.parent_array(u)):
            depth[u] = depth[direct].max() + 1
    if depth.sum() > max_pairs:
        raise _too_large(where, max_pairs)
    return max_pairs


def _too_large(where: str, max_pairs: int) -> ResourceError:
    return ResourceError(f"{where}: more than {max_pairs:,} pairs or paths follow from it; give a smaller hierarchy, "
                         "or free memory")


def _as_pairs(ancestors: Sequence[np.ndarray], total: int) -> np.ndarray:
    """Return pairs (m, 2) int64: each concept with each of its ancestors."""
    pairs = np.empty((total, 2), np.int64)
    pairs[:, 0] = np.repeat(np.arange(len(ancestors)), list(map(len, ancestors)))
    np.concatenate([np.zeros(0, np.int64), *ancestors], out=pairs[:, 1], casting="unsafe")
    return pairs


def topological_order(pairs: np.ndarray, n: int, names: Sequence[str], where: str) -> list[int]:
    """Return all concepts, hypernyms before their hyponyms. DataError shows a cycle if there is one."""
    order = _acyclic_order(pairs, n)
    if len(order) == n:
        return order
    rest = np.ones(n, bool)
    rest[order] = False                                      # in a cycle or below one
    import networkx  # imported here: it takes a tenth of a second, and only an error needs it

    graph = networkx.DiGraph(list(map(tuple, pairs[rest[pairs].all(1)][:, ::-1].tolist())))
    cycle = [names[v] for v, _ in reversed(networkx.find_cycle(graph))]
    shown = [*cycle[:MAX_SHOWN], *(["..."] if len(cycle) > MAX_SHOWN else []), cycle[0]]
    raise DataError(f"{where}: has a cycle: {' < '.join(shown)}; remove one of its pairs")


def _acyclic_order(pairs: np.ndarray, n: int) -> list[int]:
    """Return the concepts with no cycle above them, hypernyms first. Uses arrays, because networkx takes 300 bytes a
    pair."""
    below, n_open = Parents(pairs[:, ::-1], n), np.bincount(pairs[:, 0], minlength=n)  # number of parents to come
    order = np.flatnonzero(n_open == 0).tolist()
    for v in order:                                          # the list grows during the iteration
        children, times = np.unique(below.parent_array(v), return_counts=True)
        n_open[children] -= times
        order += children[n_open[children] == 0].tolist()
    return order


def add_root(pairs: np.ndarray, n: int, root: int) -> np.ndarray:
    """Return `pairs` plus a pair (u, root) for each of the n concepts u without a hypernym."""
    top = np.setdiff1d(np.arange(n), [*pairs[:, 0].tolist(), root])
    return np.concatenate([pairs, np.stack([top, np.full(len(top), root)], 1)])


def unique_pairs(pairs: np.ndarray, n: int) -> np.ndarray:
    """Return the distinct pairs, in the order of ids."""
    key = np.sort(pairs[:, 0] * n + pairs[:, 1])
    key = key[np.append(True, key[1:] != key[:-1])[:len(key)]]  # np.unique uses hashing here, which is ten times slower
    return np.stack([key // n, key % n], 1)


class PairSet:
    """A set of pairs with vectorized membership tests."""

    def __init__(self, pairs: np.ndarray, n: int):
        self.n, self.keys = n, np.sort(pairs[:, 0] * n + pairs[:, 1])

    def contains(self, pairs: np.ndarray) -> np.ndarray:
        """Return which of the pairs (..., 2) are in the set, (...) bool."""
        return _contains_keys(self.keys, pairs[..., 0] * self.n + pairs[..., 1])


def _contains_keys(sorted_keys: np.ndarray, keys: np.ndarray) -> np.ndarray:
    if len(sorted_keys) == 0:
        return np.zeros(keys.shape, bool)
    position = np.searchsorted(sorted_keys, keys)
    return sorted_keys[np.minimum(position, len(sorted_keys) - 1)] == keys


class Parents:
    """Direct hypernyms of each concept, from pairs (e, 2) over n concepts."""

    def __init__(self, pairs: np.ndarray, n: int):
        order = np.argsort(pairs[:, 0], kind="stable")
        self.above = pairs[order, 1]
        self.begin = np.searchsorted(pairs[order, 0], np.arange(n + 1)).tolist()

    def parent_array(self, u: int) -> np.ndarray:
        return self.above[self.begin[u]:self.begin[u + 1]]

    def parents_of(self, u: int) -> list[int]:
        return self.parent_array(u).tolist()
