"""Draws from a fixed categorical distribution by an alias table (Walker 1977), in NumPy.

    u V = 2⁶⁴ column + remainder        drawn: column if remainder < accept[column], else alias[column]

u is a random number below 2⁶⁴, and accept[column] is 2⁶⁴ times the probability of keeping a column. `draw` takes
accept (V,) uint64 and alias (V,) int64 and returns n ids, int64 (n,). kernels/sampling/alias.py runs this file if the
compiled core is missing; the tests compare the two, bit for bit.
"""

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
