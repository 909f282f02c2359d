"""Walker's alias table: one draw from a fixed categorical in O(1).

Column i is kept with probability accept[i], else alias[i] is taken (Vose 1991). Built in float64, so that what is
drawn is q to about 1e-16. On the CPU kernels/sampling/alias.py draws, elsewhere torch.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from embtrain.kernels.sampling import alias as kernel
from embtrain.negatives.sampling.inverse_cdf import draw_seed


def build_alias_table(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How likely each column of q (n,) is kept, float64, and which one is taken in its place, int64."""
    n = len(q)
    scaled = q * n
    accept, alias = np.ones(n), np.arange(n)
    small = list(np.flatnonzero(scaled < 1)[::-1])
    large = list(np.flatnonzero(scaled >= 1)[::-1])
    while small and large:
        low, high = small.pop(), large[-1]
        accept[low], alias[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
        if scaled[high] < 1:
            small.append(large.pop())
    for low in small:  # rounding left these; an id of mass 0 must still never be kept
        if scaled[low] <= 0:
            accept[low], alias[low] = 0.0, int(np.argmax(q))
    return accept, alias


def acceptance_bits(accept: np.ndarray) -> np.ndarray:
    """In units of 2⁻⁶⁴, uint64: what the kernels take. 1 is no number of 64 bits, and becomes the greatest."""
    always = accept >= 1
    bits = np.ldexp(np.where(always, 0, accept), 64).astype(np.uint64)
    bits[always] = 2 ** 64 - 1
    return bits


class AliasTable:
    def __init__(self, q: Tensor, device: str):
        accept, alias = build_alias_table(q.double().cpu().numpy())
        self.device = torch.device(device)
        if self.device.type == "cpu":
            self.accept_bits, self.alias_ids = acceptance_bits(accept), alias           # (V,) uint64 and int64
        else:
            self.accept = torch.from_numpy(accept).to(device)        # (V,) float64
            self.alias = torch.from_numpy(alias).to(device)          # (V,) int64

    def draw(self, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
        """int64 ids of the given shape."""
        if self.device.type == "cpu":
            ids = kernel.draw(self.accept_bits, self.alias_ids, math.prod(shape), draw_seed(random),
                              torch.get_num_threads())
            return torch.from_numpy(ids).view(shape)
        column = torch.randint(len(self.accept), shape, generator=random, device=self.device)
        toss = torch.rand(shape, generator=random, device=self.device, dtype=torch.float64)
        return torch.where(toss < self.accept[column], column, self.alias[column])
