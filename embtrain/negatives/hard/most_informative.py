"""The candidate that lies where the prediction strays from the right answer (Lazaridou, Dinu and Baroni 2015).

    b* = argmax_{b ≠ t} e_b · (ĥ − e_t)          e: unit rows of the table, ĥ: the unit vector of the question

It is near what is predicted and far from what is right; the k best where k > 1. One product with the table a row, so a
draw costs as much as a pass of the softmax. The target is never chosen, nor are the words of `never`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource

CELLS = 8_000_000  # products held at once


class MostInformativeConfig(NegativesConfig):
    never: list[str] = Field(["<unk>", "UNK"], description="candidates that are never chosen: rows that are no word")


class MostInformative(NegativeSource):
    name = "most_informative"
    Config = MostInformativeConfig
    density = "none"
    iid = False
    geometry: frozenset[str] = frozenset({"dot", "cosine"})
    uses_model: ClassVar[bool] = True
    redraws_each_update: ClassVar[bool] = True
    standard_layout: ClassVar[bool] = False
    sharing_modes: ClassVar[tuple[str, ...]] = ("row",)
    sharing_limit: ClassVar[str] = "chooses for each row and its target"
    config: MostInformativeConfig

    def __init__(self, config: MostInformativeConfig, world: ProblemSpec):
        super().__init__(config, world)
        never = [i for i, word in enumerate(world.words or ()) if word in config.never]
        self.never = torch.tensor(never, dtype=torch.int64, device=world.device)
        if config.k > (n := world.n_candidates - len(never) - 1):
            raise UsageError(f"negatives.k: {config.k} candidates other than the target, and there are {max(0, n):,}; "
                             "lower it")

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        e = view.table()                                                         # (V, D)
        e = e if view.has_frozen_table else torch.nn.functional.normalize(e, dim=1)
        astray = torch.nn.functional.normalize(query.vector, dim=1) - e[query.target]          # (B, D)
        step = max(1, CELLS // len(e))
        ids = [self._best(part, target, e, k) for part, target in
               zip(astray.split(step), query.target.split(step), strict=True)]
        return Negatives(torch.cat(ids), total_weight=torch.full((1, 1), float(k), device=query.target.device))

    def _best(self, astray: Tensor, target: Tensor, e: Tensor, k: int) -> Tensor:
        """(b, k) int64."""
        found = astray @ e.T                                                     # (b, V)
        found[:, self.never] = -torch.inf
        found.scatter_(1, target.unsqueeze(1), -torch.inf)
        return found.argmax(1, keepdim=True) if k == 1 else found.topk(k, dim=1).indices
