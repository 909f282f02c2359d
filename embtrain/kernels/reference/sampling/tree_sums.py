"""Recomputes the sums of a tree in NumPy: of blocks by Fourier features, of inner nodes from their children.

    S of a block = Σ_i π_i φ(c_i)         S of a node = Σ S of its children, added in float64
    φ = D^{-1/2} [cos a_1, …, cos a_D, sin a_1, …, sin a_D]         a_j = w_j·y, `angle`; `weight` (n, L) holds π

`add` writes into the levels of the tree, `fourier` returns the sums (n, 2D) float32 of n blocks of L candidates.
kernels/sampling/tree_sums.py runs this file if the compiled core is missing; the tests compare the two.
"""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.trees import SumLevels
from embtrain.kernels.reference import ZERO_POINT
from embtrain.kernels.reference.sampling.int8_rows import write


def add(levels: SumLevels, level: int, nodes: np.ndarray) -> None:
    """Recompute nodes of a level from their children."""
    children = nodes[:, None] * levels.fan + np.arange(levels.fan)                  # (n, fan)
    sums = levels.sums[level + 1][children].astype(np.float64)
    if levels.scale is not None:
        sums = (sums - ZERO_POINT) * levels.scale[level + 1][children].astype(np.float64)[..., None]
    node_sums = sums.sum(1).astype(np.float32)
    if levels.scale is None:
        levels.sums[level][nodes] = node_sums
    else:
        write(levels.sums[level], levels.scale[level], nodes, node_sums)


def fourier(angle: np.ndarray, weight: np.ndarray) -> np.ndarray:
    x = angle.astype(np.float64).reshape(*weight.shape, -1)
    phi = np.concatenate([np.cos(x), np.sin(x)], -1) / np.sqrt(x.shape[-1])         # (n, L, 2D)
    return np.einsum("nl,nlw->nw", weight.astype(np.float64), phi).astype(np.float32)
