"""Log-uniform (Zipfian) noise over frequency ranks r = 0, 1, …, V-1.

    Q(r) = log((r + 2) / (r + 1)) / log(V + 1)

One of the common choices in Rawat et al. 2019, section 1. Candidates are ranked by their frequency as targets, so ids
need not be sorted by frequency; ties keep the order of the ids.
"""

from __future__ import annotations

import torch
from torch import Tensor

from embtrain.negatives.static.base import StaticSource


class LogUniform(StaticSource):
    """Noise by frequency rank."""

    name = "log_uniform"

    def masses(self) -> Tensor:
        v = self.problem.n_candidates
        rank = torch.empty(v, dtype=torch.float64, device="cpu")
        order = torch.argsort(self.problem.counts.cpu(), descending=True, stable=True)
        rank[order] = torch.arange(v, dtype=torch.float64, device="cpu")
        return torch.log((rank + 2) / (rank + 1))
