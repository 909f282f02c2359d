"""Walker's alias table: one draw from a fixed categorical distribution in O(1).

Column i is accepted with probability accept[i]; otherwise alias[i] is drawn (Vose 1991). Built in float64, so the draws
follow q to about 1e-16. On the CPU kernels/sampling/alias.py draws, on a GPU kernels/device/alias.py if Triton is
installed, elsewhere PyTorch.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embtrain.kernels.device.support import has_triton
from embtrain.kernels.sampling import alias as kernel
from embtrain.negatives.sampling.inverse_cdf import draw_seed


def build_alias_table(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Acceptance probability of each column of q (n,), float64, and its alias, int64: (n,) each."""
    n = len(q)
    scaled = q * n
    small = np.flatnonzero(scaled < 1)[::-1].tolist()
    large = np.flatnonzero(scaled >= 1)[::-1].tolist()
    rest = scaled.tolist()                     # Python reads its own floats faster than those of an array
    accept, alias = [1.0] * n, list(range(n))
    while small and large:
        low, high = small.pop(), large[-1]
        accept[low], alias[low] = rest[low], high
        rest[high] -= 1 - rest[low]
        if rest[high] < 1:
            small.append(large.pop())
    for low in small:  # left by rounding; an id of weight 0 must still never be accepted
        if rest[low] <= 0:
            accept[low], alias[low] = 0.0, int(np.argmax(q))
    return np.array(accept), np.array(alias, dtype=np.int64)


def acceptance_bits(accept: np.ndarray) -> np.ndarray:
    """Acceptance probabilities in units of 2⁻⁶⁴, uint64, as the kernels read them.

    1 has no 64-bit representation and becomes the largest number.
    """
    always = accept >= 1
    bits = np.ldexp(np.where(always, 0, accept), 64).astype(np.uint64)
    bits[always] = 2 ** 64 - 1
    return bits


class AliasTable:
    """Alias table of q (V,) on a device."""

    def __init__(self, q: Tensor, device: str):
        accept, alias = build_alias_table(q.double().cpu().numpy())
        self.device = torch.device(device)
        self.kernel: Any = None
        if self.device.type == "cpu":
            self.accept_bits, self.alias_ids = acceptance_bits(accept), alias           # (V,) uint64 and int64
        else:
            self.accept = torch.from_numpy(accept).to(device)        # (V,) float64
            self.alias = torch.from_numpy(alias).to(device)          # (V,) int64
            if self.device.type == "cuda" and has_triton():
                self.kernel = import_module("embtrain.kernels.device.alias")
                self.accept_words = torch.from_numpy(acceptance_bits(accept).view(np.int64)).to(device)  # (V,) int64

    def draw(self, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
        """int64 ids of the given shape."""
        if self.device.type == "cpu":
            ids = kernel.draw(self.accept_bits, self.alias_ids, math.prod(shape), draw_seed(random),
                              torch.get_num_threads())
            return torch.from_numpy(ids).view(shape)
        if self.kernel is not None:
            seed = torch.randint(-2 ** 63, 2 ** 63 - 1, (1,), generator=random, device=self.device)
            return self.kernel.draw(self.accept_words, self.alias, math.prod(shape), seed).view(shape)
        column = torch.randint(len(self.accept), shape, generator=random, device=self.device)
        toss = torch.rand(shape, generator=random, device=self.device, dtype=torch.float64)
        return torch.where(toss < self.accept[column], column, self.alias[column])
