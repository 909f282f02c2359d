"""Draws from a fixed categorical in O(1) each (Walker 1977), with one random number u < 2⁶⁴ per draw.

    u V = 2⁶⁴ column + remainder        drawn: column if remainder < accept[column], else alias[column]

accept is the probability of keeping a column times 2⁶⁴, rounded down. A column that is always kept has 2⁶⁴ − 1 and is
its own alias.
"""

from __future__ import annotations

import ctypes

import numpy as np

from embtrain.kernels.core.library import core
from embtrain.kernels.core.parallel import parallel_for
from embtrain.kernels.reference.sampling import alias as reference

GRAIN = 1 << 17  # draws per thread that pay for the thread


def draw(accept: np.ndarray, alias: np.ndarray, n: int, seed: int, threads: int = 1) -> np.ndarray:
    """Draw n ids, int64 (n,), from accept (V,) uint64 and alias (V,) int64. Independent of the number of threads."""
    for name, array, dtype in (("accept", accept, np.uint64), ("alias", alias, np.int64)):
        if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
            raise TypeError(f"alias: {name} must be a contiguous array of {np.dtype(dtype)} with one axis")
    if not 0 < len(accept) == len(alias) < 2 ** 31:
        raise ValueError(f"alias: tables of {len(accept)} and {len(alias)} columns")
    if n < 0 or not 0 <= seed < 2 ** 64:
        raise ValueError(f"alias: {n} draws from seed {seed}")
    if (library := core()) is None:
        return reference.draw(accept, alias, n, seed)
    out = np.empty(n, dtype=np.int64)

    def part(begin: int, end: int) -> None:
        library.embtrain_alias_draw(
            ctypes.c_void_p(accept.ctypes.data), ctypes.c_void_p(alias.ctypes.data), ctypes.c_int64(len(accept)),
            ctypes.c_uint64(seed), ctypes.c_int64(begin), ctypes.c_int64(end), ctypes.c_void_p(out.ctypes.data))

    parallel_for(part, n, max(1, min(threads, n // GRAIN)))
    return out
