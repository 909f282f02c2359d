"""Alias tables of many lists of candidates, one after the other: one draw from any of them in O(1).

    p(b|i) = w_ib^α / Σ_j w_ij^α        for the candidates b of list i, 0 for all others

A candidate's p is found by binary search among the sorted keys i V + b. Lists of one candidate need neither a draw nor
a search.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embtrain.common.candidate_lists import CandidateLists
from embtrain.common.config.setting_keys import section
from embtrain.common.errors import ResourceError
from embtrain.negatives.sampling.alias import build_alias_table


class AliasLists:
    """The distributions of L lists, possibly none, over V candidates, on a device. power: α."""

    def __init__(self, lists: CandidateLists, n_candidates: int, power: float, device: str):
        if len(lists) * n_candidates >= 1 << 63:
            raise ResourceError(f"{section()}: {len(lists):,} lists and {n_candidates:,} candidates are more pairs "
                                "than 64 bits can distinguish")
        if not len(lists):  # `draw` reads row 0 for queries without a list
            lists = CandidateLists.from_entries((0,), np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.ones(1))
        size = np.diff(lists.offsets)
        largest = np.maximum.reduceat(lists.weights, lists.offsets[:-1])
        p = (lists.weights / np.repeat(largest, size)) ** power            # relative, so that no power overflows
        p /= np.repeat(np.add.reduceat(p, lists.offsets[:-1]), size)
        accept, alias = _alias_tables(p, lists.offsets)
        row = np.repeat(np.arange(len(lists)), size)
        self.n_candidates, self.single = n_candidates, bool((size == 1).all())
        self.start, self.size, self.ids, self.keys, self.p, self.accept, self.alias = (
            torch.from_numpy(x).to(device)
            for x in (lists.offsets[:-1], size, lists.ids, row * n_candidates + lists.ids, p, accept, alias))

    def draw(self, row: Tensor, random: torch.Generator) -> Tensor:
        """Draw a candidate from each of the lists `row`, of any shape: int64 ids of that shape."""
        if self.single:
            return self.ids[row]
        size, device = self.size[row], row.device
        u = torch.rand(row.shape, generator=random, device=device, dtype=torch.float64)
        column = self.start[row] + torch.minimum((u * size).long(), size - 1)
        toss = torch.rand(row.shape, generator=random, device=device, dtype=torch.float64)
        return self.ids[torch.where(toss < self.accept[column], column, self.alias[column])]

    def probability(self, row: Tensor, ids: Tensor) -> Tensor:
        """p of ids under the lists `row`, float64; both are broadcast. 0 where row is -1, no list."""
        if self.single:
            return ((self.ids[row] == ids) & (row >= 0)).double()
        keys = row * self.n_candidates + ids
        position = torch.searchsorted(self.keys, keys).clamp_(max=len(self.keys) - 1)
        return torch.where((self.keys[position] == keys) & (row >= 0), self.p[position], 0.0)


def _alias_tables(p: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Acceptance probability of each entry, float64, and its alias, the index of an entry of the same list: (N,) each.

    Lists of equal probabilities, the usual case, need no table.
    """
    accept, alias = np.ones(len(p)), np.arange(len(p))
    unequal = np.maximum.reduceat(p, offsets[:-1]) > np.minimum.reduceat(p, offsets[:-1])
    for i in np.flatnonzero(unequal):
        part = slice(offsets[i], offsets[i + 1])
        accept[part], alias[part] = build_alias_table(p[part])
        alias[part] += offsets[i]
    return accept, alias
