"""The candidates of a sum tree in its order, block by block, and the model that their vectors come from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from embtrain.common.types import ModelView
from embtrain.negatives.sampling import inner_product
from embtrain.negatives.sampling.row_store import RowStore
from embtrain.negatives.sampling.within_cell import CellCore, CellCoreCache


@dataclass(frozen=True)
class ScaledView:
    """The current model, and the scales x = s h, y = s c; o = logit · x·y."""

    view: ModelView
    scale: float

    @property
    def logit(self) -> float:
        return self.view.tau / self.scale ** 2

    def class_vectors(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """y of candidates (n,): (n, d)."""
        return inner_product.candidate_rows(self.view, ids).to(dtype) * self.scale


class CandidateBlocks:
    """V candidates in blocks of `leaf`, the lowest nodes of a tree. The last block may have fewer.

    order (V,): candidate at each place. prior (V,) float64: π by place. copy: int8 copy of c (V, D) by place, read in
    place of the model's table for draws inside a block.
    """

    def __init__(self, order: Tensor, prior: Tensor, leaf: int, copy: RowStore | None):
        self.order, self.prior, self.leaf, self.copy = order, prior, leaf, copy
        self.n, self.n_blocks = len(order), -(-len(order) // leaf)
        self.place = torch.argsort(order)                                         # (V,) place of each candidate
        start = torch.arange(self.n_blocks + 1, device=order.device) * leaf
        self._core_cache = CellCoreCache(order, start.clamp(max=self.n), copy)

    def sha256(self) -> str:
        """Checksum of the order and of π: sums of blocks with another one are of other candidates or weights."""
        return hashlib.sha256(self.order.cpu().numpy().tobytes() + self.prior.cpu().numpy().tobytes()).hexdigest()

    def core(self, view: ModelView) -> CellCore | None:
        """The compiled sampler inside blocks by score, on the current model; None if it cannot be used."""
        return self._core_cache.find(view)

    def places(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Places of blocks (n,) and their π, (n, leaf) each.

        After the last candidate its place is repeated, with π = 0.
        """
        place = blocks.unsqueeze(1) * self.leaf + torch.arange(self.leaf, device=blocks.device)
        is_candidate = place < self.n
        place = place.clamp(max=self.n - 1)
        return place, self.prior[place].masked_fill(~is_candidate, 0.0)

    def vectors(self, place: Tensor, scaled: ScaledView) -> Tensor:
        """y of places (n,) for draws inside a block, from the copy if there is one: (n, d) float64."""
        if self.copy is None:
            return scaled.class_vectors(self.order[place], torch.float64)
        return self.copy.read(place) * scaled.scale
