"""Lists of candidates by query, as sources receive them: mined elsewhere, or seen in the training data.

    list i belongs to the queries whose context has keys[i] in `columns`; its entries are offsets[i] .. offsets[i + 1]
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, Protocol, Self

import numpy as np

ListKey = Literal["query", "entity", "relation", "side"]  # queries that share a list; side: relation and open side
ARRAYS = ("columns", "keys", "offsets", "ids", "weights")


@dataclass(frozen=True)
class CandidateLists:
    """L lists with N entries. No list is empty, and the ids of a list are ascending and distinct."""

    columns: np.ndarray  # (C,) int64    columns of Query.context that make up a key; 0 if it has one column
    keys: np.ndarray     # (L, C) int64  the key of each list, distinct
    offsets: np.ndarray  # (L + 1,) int64
    ids: np.ndarray      # (N,) int64    candidates
    weights: np.ndarray  # (N,) float64  above 0

    @classmethod
    def from_entries(cls, columns: tuple[int, ...], keys: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> Self:
        """Sort entries into lists: keys (n, C), ids (n,), weights (n,). The weights of equal entries are added."""
        order = np.lexsort((ids, *keys.T[::-1]))
        keys, ids, weights = keys[order], ids[order], weights[order]
        is_new_list = np.ones(len(ids), dtype=bool)
        is_new_list[1:] = (keys[1:] != keys[:-1]).any(1)
        is_new_entry = is_new_list.copy()
        is_new_entry[1:] |= ids[1:] != ids[:-1]
        first = np.flatnonzero(is_new_entry)
        starts = np.flatnonzero(is_new_list[first])
        total = np.add.reduceat(weights, first) if len(first) else np.zeros(0)
        offsets = np.append(starts, len(first)).astype(np.int64)
        return cls(np.array(columns, np.int64), keys[is_new_list].astype(np.int64), offsets,
                   ids[first].astype(np.int64), total.astype(np.float64))

    def __len__(self) -> int:
        return len(self.keys)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the five arrays by name, for storage."""
        return {name: getattr(self, name) for name in ARRAYS}

    def sha256(self) -> str:
        """Return a hash over shapes and bytes of the arrays."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name} {array.shape}\0".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


class ListReader(Protocol):
    """Protocol of the lists that a problem offers to sources."""

    def from_file(self, file: str | None, by: ListKey) -> CandidateLists: ...  # UsageError or DataError
    def observed(self) -> CandidateLists: ...   # candidates seen on each side of each relation, with their counts
    def itself(self, max_symmetric: float) -> CandidateLists: ...  # the entity of each query of a graph


@dataclass(frozen=True)
class FixedLists:
    """A ListReader that returns the same lists for any file, for lists that are computed in Python."""

    lists: CandidateLists

    def from_file(self, file: str | None, by: ListKey) -> CandidateLists:
        return self.lists

    def observed(self) -> CandidateLists:
        return self.lists

    def itself(self, max_symmetric: float) -> CandidateLists:
        return self.lists
