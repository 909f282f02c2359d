"""Reference for kernels/sampling/alias.py."""

from __future__ import annotations

import numpy as np

from embtrain.kernels.reference import splitmix64

_HALF, _LOW = np.uint64(32), np.uint64(2 ** 32 - 1)


def draw(accept: np.ndarray, alias: np.ndarray, n: int, seed: int) -> np.ndarray:
    u, v = splitmix64(seed, np.arange(n)), np.uint64(len(accept))                   # (n,)
    low = (u & _LOW) * v                                                            # the product u V in halves: V < 2³²
    high = (u >> _HALF) * v + (low >> _HALF)
    column, remainder = (high >> _HALF).astype(np.int64), (high << _HALF) | (low & _LOW)
    return np.where(remainder < accept[column], column, alias[column])                   # (n,)
