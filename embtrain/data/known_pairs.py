"""The set of known positives: every (context, target) pair that was observed.

One sorted int64 key per distinct pair, context * V + target, found by binary search: exact, and 8 bytes a pair. A
context of several ids is first combined into one number, ((c_0 S_1 + c_1) S_2 + c_2) ..., for column i of S_i ids.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import torch
from torch import Tensor

from embtrain.common.errors import ResourceError
from embtrain.data.text.corpus import Corpus, WindowsConfig

CHUNK = 1 << 20   # positions whose pairs are sorted at once


class KnownPairs:
    """A set of (context, target) pairs. Contexts and targets are ids; only targets are bounded by V.

    contexts: (n,), or (n, C) if a context has C columns. targets: (n,). n_candidates: V.
    sizes: number of ids of each column of a context of several columns, else None.
    Raises ResourceError if there are more possible pairs than 64 bits can distinguish.
    """

    def __init__(self, contexts: Tensor, targets: Tensor, n_candidates: int, sizes: tuple[int, ...] | None = None):
        if sizes is not None and math.prod(sizes) * n_candidates >= 1 << 63:
            raise ResourceError(f"the set of observed pairs: contexts of {' × '.join(f'{s:,}' for s in sizes)} ids and "
                                f"{n_candidates:,} candidates are more pairs than 64 bits can distinguish")
        self.n_candidates, self.sizes = n_candidates, sizes
        self.keys = torch.unique(self.context_key(contexts.to(torch.int64)) * n_candidates + targets.to(torch.int64))

    @classmethod
    def from_keys(cls, keys: Tensor, n_candidates: int, sizes: tuple[int, ...] | None = None) -> Self:
        """Wrap keys that are already ascending and distinct, (P,) int64."""
        pairs = cls.__new__(cls)
        pairs.n_candidates, pairs.sizes, pairs.keys = n_candidates, sizes, keys
        return pairs

    def context_key(self, context: Tensor) -> Tensor:
        """Return each context, (n,) or (n, C), as one number, (n,)."""
        if self.sizes is None:
            return context
        key = context[:, 0]
        for column, size in enumerate(self.sizes[1:], 1):
            key = key * size + context[:, column]
        return key

    @classmethod
    def from_corpus(cls, corpus: Corpus, config: WindowsConfig, max_bytes: int | None = None) -> Self:
        """Collect every pair within `window` words of each other, nothing subsampled.

        Raises ResourceError as soon as the set exceeds `max_bytes`. Peak memory is about three times the set plus a few
        hundred MB; `estimate_bytes` bounds the set beforehand.
        """
        ids, sequence, v = corpus.ids, corpus.sequence, len(corpus.vocabulary)
        merged, unmerged = np.zeros(0, dtype=np.int64), list[np.ndarray]()
        for begin in range(0, len(ids), CHUNK):
            end = min(begin + CHUNK, len(ids))
            centres = np.arange(begin, end)
            stop = sequence[np.searchsorted(sequence, centres, side="right")]  # end of the sequence of each centre
            for d in range(1, config.window + 1):
                first = centres[centres + d < stop]
                a, b = ids[first].astype(np.int64), ids[first + d].astype(np.int64)
                # A full window is symmetric: (a, b) was seen if and only if (b, a) was.
                unmerged.append(distinct(np.minimum(a, b) * v + np.maximum(a, b)))
            if end == len(ids) or sum(map(len, unmerged)) > max(len(merged), 1 << 23):
                merged = distinct(np.concatenate([merged, *unmerged]))
                unmerged.clear()
                n_both = 2 * len(merged) - int((merged // v == merged % v).sum()) if len(merged) else 0
                if max_bytes is not None and 8 * n_both > max_bytes:
                    raise ResourceError(f"the set of observed pairs takes more than {max_bytes:,} bytes; raise "
                                        f"{config.section}.min_count, or set negatives.filter: target")
        mirrored = merged % max(v, 1) * v + merged // max(v, 1)
        return cls.from_keys(torch.from_numpy(distinct(np.concatenate([merged, mirrored]))), v)

    @staticmethod
    def estimate_bytes(corpus: Corpus, config: WindowsConfig) -> int:
        """Return an upper bound of the set in bytes: 8 for each pair of positions, or for each pair of words."""
        length = np.diff(corpus.sequence)
        w = np.minimum(config.window, length)
        pairs = int((2 * w * length - w * (w + 1)).sum())
        return 8 * min(pairs, len(corpus.vocabulary) ** 2)

    @property
    def n(self) -> int:
        """Return the number of pairs."""
        return self.keys.shape[0]

    @property
    def nbytes(self) -> int:
        """Return the size of the set in bytes."""
        return self.keys.nbytes

    def __len__(self) -> int:
        return self.n

    def to(self, device: torch.device | str) -> Self:
        """Return a copy on another device."""
        return self.from_keys(self.keys.to(device), self.n_candidates, self.sizes)

    def contains(self, context: Tensor, ids: Tensor) -> Tensor:
        """Return whether each pair was observed, (n, K) bool.

        context: (n,) or (n, C). ids: (n, K) or (1, K).
        """
        keys = self.context_key(context)[:, None] * self.n_candidates + ids   # (n, K)
        if self.n == 0:
            return torch.zeros_like(keys, dtype=torch.bool)
        position = torch.searchsorted(self.keys, keys).clamp_(max=self.n - 1)
        return self.keys[position] == keys

    def targets_of(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return all observed targets of each context, (n,) or (n, C).

        Returns (row, target), both (N,): the index of the context, ascending, and the target.
        """
        context = self.context_key(context)
        first = torch.searchsorted(self.keys, context * self.n_candidates)
        size = torch.searchsorted(self.keys, (context + 1) * self.n_candidates) - first   # (n,)
        row = torch.repeat_interleave(torch.arange(len(context), device=context.device), size)
        within = torch.arange(len(row), device=context.device) - torch.repeat_interleave(size.cumsum(0) - size, size)
        return row, self.keys[first[row] + within] - context[row] * self.n_candidates


def distinct(keys: np.ndarray) -> np.ndarray:
    """Return the distinct keys, ascending, and sort `keys` in place.

    np.unique uses a hash table for this, which is ten times slower.
    """
    keys.sort()
    if len(keys) == 0:
        return keys
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
