"""No negatives: K = 0. For losses that use only the target."""

from __future__ import annotations

import torch

from embtrain.common.types import ModelView, Negatives, Query
from embtrain.negatives.base import NegativeSource, Traits


class NoNegatives(NegativeSource):
    """Draws nothing."""

    name = "none"
    traits = Traits(density="none", iid=False, components=())

    def draw(self, query: Query, k: int, view: ModelView) -> Negatives:
        device = query.target.device
        return Negatives(
            torch.empty(1, 0, dtype=torch.int64, device=device),
            total_weight=torch.zeros(1, 1, dtype=torch.float32, device=device)
        )
