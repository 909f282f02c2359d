"""Draws from a fixed categorical in O(1) each (Walker 1977), with one random number u < 2⁶⁴ per draw.

    u V = 2⁶⁴ column + remainder        drawn: column if remainder < accept[column], else alias[column]

accept is the probability of keeping a column times 2⁶⁴, rounded down. A column that is always kept has 2⁶⁴ − 1 and is
its own alias.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.core.binding import array_arg, call, parallel_for, pointer
from embtrain.kernels.core.loader import core
from embtrain.kernels.reference.sampling import alias as reference

GRAIN = 1 << 17  # draws per thread that pay for the thread


def draw(accept: np.ndarray, alias: np.ndarray, n: int, seed: int, threads: int = 1) -> np.ndarray:
    """Draw n ids, int64 (n,), from accept (V,) uint64 and alias (V,) int64. Independent of the number of threads."""
    v = accept.size
    tables = [array_arg("alias: accept", accept, np.uint64, (v,)), array_arg("alias: alias", alias, np.int64, (v,))]
    if not 0 < v < 2 ** 31:
        raise ValueError(f"alias: tables of {v} columns")
    if n < 0 or not 0 <= seed < 2 ** 64:
        raise ValueError(f"alias: {n} draws from seed {seed}")
    if (library := core()) is None:
        return reference.draw(accept, alias, n, seed)
    out = np.empty(n, dtype=np.int64)

    def part(begin: int, end: int) -> None:
        call("alias", library.embtrain_alias_draw, *tables, v, seed, begin, end, pointer(out))

    parallel_for(part, n, max(1, min(threads, n // GRAIN)))
    return out
