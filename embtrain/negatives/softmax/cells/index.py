"""Candidates in cells, sorted by cell, with the data that draws inside a cell need."""

from __future__ import annotations

import torch
from torch import Tensor

from embtrain.common.types import ModelView
from embtrain.negatives.sampling.row_store import RowStore
from embtrain.negatives.sampling.within_cell import CellCore, CellCoreCache


class CellIndex:
    """Cells 0..C-1 of V candidates: cell c contains order[start[c]:start[c + 1]].

    labels (V,): candidates with equal labels form a cell, but those of singleton_mask (V,) form cells of their own, and
    a cell of more than max_size candidates is split. candidate_weights (V,) float64: w of each, r ∝ w if not by score.
    """

    order: Tensor       # (V,)            the candidates, cell by cell
    start: Tensor       # (C + 1,)        where each cell begins in `order`
    cell: Tensor        # (V,)            cell of each candidate
    place: Tensor       # (V,)            index of each candidate in `order`
    log_size: Tensor    # (C,) float32    log of the number of candidates of each cell
    weights: Tensor     # (C, L) float64  w of the members of each cell, 0 after the last
    totals: Tensor      # (C,) float64    their sum

    def __init__(self, labels: Tensor, singleton_mask: Tensor | None, max_size: int, candidate_weights: Tensor):
        v, device = len(labels), labels.device
        if singleton_mask is not None:
            labels = torch.where(singleton_mask, labels.amax() + 1 + torch.arange(v, device=device), labels)
        order = torch.argsort(labels, stable=True)
        run = torch.unique_consecutive(labels[order], return_inverse=True)[1]
        count = torch.bincount(run)
        rank = torch.arange(v, device=device) - (count.cumsum(0) - count)[run]
        cell = torch.unique_consecutive(run * v + rank // max_size, return_inverse=True)[1]
        self.order, self.start = order, torch.cat([cell.new_zeros(1), torch.bincount(cell).cumsum(0)])
        self.log_size = (self.start[1:] - self.start[:-1]).float().log()
        self.n_cells = len(self.log_size)
        self.cell, self.place = torch.empty_like(cell), torch.empty_like(order)
        self.cell[order], self.place[order] = cell, torch.arange(v, device=device)
        # One row of weights per cell: a single global cumulative sum would lose small weights to rounding.
        longest = int(torch.bincount(cell).amax())
        self.weights = candidate_weights.new_zeros(self.n_cells, longest)
        self.weights[cell, torch.arange(v, device=device) - self.start[cell]] = candidate_weights[order]
        self.totals = self.weights.sum(1)
        self.copy: RowStore | None = None           # (V, D)  int8 copy of c in `order`, read in place of the table
        self._core_cache = CellCoreCache(self.order, self.start)

    def use_copy(self, copy: RowStore) -> None:
        """Score the candidates from a copy (V, D) of their vectors, in `order`."""
        if self.copy is not copy:
            self.copy, self._core_cache = copy, CellCoreCache(self.order, self.start, copy)

    def core(self, view: ModelView) -> CellCore | None:
        """The compiled sampler inside cells by score, on the current model; None if it cannot be used."""
        return self._core_cache.find(view)
