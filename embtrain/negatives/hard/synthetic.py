"""Synthetic negatives: vectors constructed from the query's direction ĥ and its target e (Bhat et al. 2019).

    ĥ = cos θ e + sin θ o,   o ⊥ e,  ‖o‖ = 1                 the error of ĥ is along o
    projection   u = o = unit(ĥ − (ĥ·e) e)                   its score: sin θ
    difference   u = unit(ĥ − e)                             its score: sin θ/2

u is constant: through a gradient it would move away from ĥ. The margin loss η + u·ĥ − e·ĥ therefore turns ĥ by

    projection   dL/dθ = cos θ + sin θ,  which is below 0 beyond 135°: there it would turn ĥ away from e
    difference   dL/dθ = cos θ/2 + sin θ > 0

Beyond 135° the difference replaces the projection; `metrics` reports how often. If ĥ = e neither exists, and the
negative has weight 0. Nothing is drawn, and only the row e of the table is read, so the cost does not depend on V.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from embtrain.common.config.foreign_classes import AbstractMethod
from embtrain.common.config.setting_keys import key
from embtrain.common.errors import UsageError
from embtrain.common.types import SYNTHETIC, ModelView, Negatives, ProblemSpec, Query
from embtrain.negatives.base import NegativesConfig, NegativeSource, Traits

MIN_LENGTH = {torch.float32: 1e-4, torch.float64: 1e-10}  # below this length, a difference is mostly rounding error


class SyntheticConfig(NegativesConfig):
    """Settings of the synthetic sources."""

    k: int = Field(1, description="synthetic vectors per row; always 1")


class Synthetic(NegativeSource):
    """Base of the synthetic sources. A subclass implements `synthesize`."""

    Config = SyntheticConfig
    traits = Traits(density="none", iid=False, geometry=frozenset({"cosine"}), needs_frozen_table=True,
                    components=("synthetic",), uses_model=True, redraws_each_update=True, standard_layout=False,
                    sharing_modes=("row",), sharing_limit="computes its vector from the target of each row")

    def __init__(self, config: NegativesConfig, problem: ProblemSpec):
        super().__init__(config, problem)
        if config.k != 1:
            raise UsageError(f"{key('k')}: {config.k}: {self.name} computes one vector for each row; set {key('k')}: "
                             "1")

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        h, e = normalize(query.vector, dim=1), normalize(view.table()[query.target], dim=1)   # (B, D)
        u, length = self.synthesize(h, e)
        weight = (~(length <= MIN_LENGTH[h.dtype])).to(h.dtype)                     # (B, 1); 1 for NaN, not a loss of 0
        origin = torch.full((1, 1), SYNTHETIC, dtype=torch.int8, device=h.device)
        return Negatives(vectors=u.unsqueeze(1), weight=weight, origin=origin, total_weight=weight)

    def synthesize(self, h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors u (B, D), and their lengths before normalization (B, 1), from unit h and e (B, D) each."""
        raise AbstractMethod(self, "synthesize")


def difference(h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    """unit(h − e) (B, D), and the length before normalization (B, 1)."""
    u = h - e
    return normalize(u, dim=1), u.norm(dim=1, keepdim=True)


def projection(h: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    """unit(h − (h·e) e) (B, D), and the length before normalization (B, 1)."""
    u = h - (h * e).sum(1, keepdim=True) * e
    return normalize(u, dim=1), u.norm(dim=1, keepdim=True)
