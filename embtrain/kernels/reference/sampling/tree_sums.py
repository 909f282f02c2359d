"""Reference for kernels/sampling/tree_sums.py."""

from __future__ import annotations

import numpy as np

from embtrain.kernels.arguments.trees import TreeLevels
from embtrain.kernels.reference import ZERO
from embtrain.kernels.reference.sampling.int8_rows import write


def add(levels: TreeLevels, level: int, nodes: np.ndarray) -> None:
    """Recompute nodes of a level from their children."""
    children = nodes[:, None] * levels.fan + np.arange(levels.fan)                  # (n, fan)
    sums = levels.sums[level + 1][children].astype(np.float64)
    if levels.scale is not None:
        sums = (sums - ZERO) * levels.scale[level + 1][children].astype(np.float64)[..., None]
    node_sums = sums.sum(1).astype(np.float32)
    if levels.scale is None:
        levels.sums[level][nodes] = node_sums
    else:
        write(levels.sums[level], levels.scale[level], nodes, node_sums)


def fourier(angle: np.ndarray, weight: np.ndarray) -> np.ndarray:
    x = angle.astype(np.float64).reshape(*weight.shape, -1)
    phi = np.concatenate([np.cos(x), np.sin(x)], -1) / np.sqrt(x.shape[-1])         # (n, L, 2D)
    return np.einsum("nl,nlw->nw", weight.astype(np.float64), phi).astype(np.float32)
