"""The candidate in the direction of the prediction error (Lazaridou, Dinu and Baroni 2015).

    b* = argmax_{b ≠ t} e_b · (ĥ − e_t)          e: unit rows of the table, ĥ: the unit vector of the query

It is near the prediction and far from the target. If k > 1, the k best are taken. Each row needs one product with the
table, so a draw costs as much as a softmax. The target and the words of `never` are never chosen.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits

MAX_SCORES = 8_000_000  # scores held in memory at once


class MostInformativeConfig(NegativesConfig):
    """Settings of `most_informative`."""

    excluded: list[str] = Field(
        ["<unk>", "UNK"], description="candidates that are never chosen: rows that are not words")


class MostInformative(NegativeSource):
    """Selects the k candidates with the largest e_b · (ĥ − e_t)."""

    name = "most_informative"
    Config = MostInformativeConfig
    traits = Traits(density="none", iid=False, geometry=frozenset({"dot", "cosine"}), uses_model=True,
                    redraws_each_update=True, standard_layout=False, sharing_modes=("row",),
                    sharing_limit="chooses for each row and its target")
    config: MostInformativeConfig

    def __init__(self, config: MostInformativeConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        excluded = [i for i, word in enumerate(problem.words or ()) if word in config.excluded]
        self.excluded_ids = torch.tensor(excluded, dtype=torch.int64, device=problem.device)
        if config.k > (n := problem.n_candidates - len(excluded) - 1):
            raise UsageError(f"{key('k')}: {config.k} candidates other than the target are needed, but there are "
                             f"{max(0, n):,}; lower it")

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        e = view.table()                                                         # (V, D)
        e = e if view.has_frozen_table else torch.nn.functional.normalize(e, dim=1)
        residual = torch.nn.functional.normalize(query.vector, dim=1) - e[query.target]          # (B, D)
        step = max(1, MAX_SCORES // len(e))
        ids = [self._top_candidates(part, target, e, k) for part, target in
               zip(residual.split(step), query.target.split(step), strict=True)]
        mass = torch.full((1, 1), float(k), dtype=torch.float32, device=query.target.device)
        return Negatives(torch.cat(ids), total_weight=mass)

    def _top_candidates(self, residual: Tensor, target: Tensor, e: Tensor, k: int) -> Tensor:
        """ids of the best candidates for the residuals (b, D): (b, k) int64."""
        scores = residual @ e.T                                                     # (b, V)
        scores[:, self.excluded_ids] = -torch.inf
        scores.scatter_(1, target.unsqueeze(1), -torch.inf)
        return scores.argmax(1, keepdim=True) if k == 1 else scores.topk(k, dim=1).indices
