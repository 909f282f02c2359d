"""Counts the candidates that score better than a target, and those that score the same, in NumPy.

    cost(q, c) = Σ_k |q_k − c_k|: l1    Σ_k (q_k − c_k)²: l2    −Σ_k q_k c_k: dot    Σ_k |q_k − c_k|, complex: modulus
    better = #{c: cost(q, c) < cost(q, t)}        equal = #{c ≠ t: cost(q, c) = cost(q, t)}

over all candidates c except the known positives of the query q. `counts` returns both (targets,) int64; better is −1 if
the cost of the target is NaN. Sums run over the dimensions in order, in float32, so that the compiled core agrees to
the bit. kernels/scoring/ranking.py runs this file if the core is missing.
"""

from __future__ import annotations

import numpy as np


def costs(query: np.ndarray, table: np.ndarray, geometry: str) -> np.ndarray:
    """The cost of each row of `table` (n, D) for one query (D,), float32 (n,), summed over the dimensions in order."""
    total = np.zeros(len(table), dtype=np.float32)
    if geometry == "modulus":
        half = len(query) // 2
        for d, e in zip(query[:half, None] - table.T[:half], query[half:, None] - table.T[half:], strict=True):
            total += np.sqrt(d * d + e * e)
        return total
    for q, c in zip(query, table.T, strict=True):
        d = q - c
        total += -(q * c) if geometry == "dot" else np.abs(d) if geometry == "l1" else d * d
    return total


def counts(query: np.ndarray, table: np.ndarray, geometry: str, target_offsets: np.ndarray, targets: np.ndarray,
           known_offsets: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    better, equal = np.zeros(len(targets), dtype=np.int64), np.zeros(len(targets), dtype=np.int64)
    for i, q in enumerate(query):
        with np.errstate(over="ignore", invalid="ignore"):
            cost = costs(q, table, geometry)                                    # (V,)
        rivals = np.ones(len(table), dtype=bool)
        rivals[known[known_offsets[i]:known_offsets[i + 1]]] = False
        for a in range(target_offsets[i], target_offsets[i + 1]):
            rival = rivals.copy()
            rival[targets[a]] = False
            better[a] = -1 if np.isnan(cost[targets[a]]) else (cost[rival] < cost[targets[a]]).sum()
            equal[a] = (cost[rival] == cost[targets[a]]).sum()
    return better, equal
