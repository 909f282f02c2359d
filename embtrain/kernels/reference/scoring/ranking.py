"""Twin of kernels/scoring/ranking.py."""

from __future__ import annotations

import numpy as np


def costs(query: np.ndarray, table: np.ndarray, geometry: str) -> np.ndarray:
    """float32 (n,): the cost of each row of `table` (n, D) for one question (D,), summed dimension after dimension."""
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


def counts(query: np.ndarray, table: np.ndarray, geometry: str, first: np.ndarray, target: np.ndarray,
           first_right: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    better, equal = np.zeros(len(target), dtype=np.int64), np.zeros(len(target), dtype=np.int64)
    for i, q in enumerate(query):
        with np.errstate(over="ignore", invalid="ignore"):
            cost = costs(q, table, geometry)                                    # (V,)
        rivals = np.ones(len(table), dtype=bool)
        rivals[right[first_right[i]:first_right[i + 1]]] = False
        for a in range(first[i], first[i + 1]):
            rival = rivals.copy()
            rival[target[a]] = False
            better[a] = -1 if np.isnan(cost[target[a]]) else (cost[rival] < cost[target[a]]).sum()
            equal[a] = (cost[rival] == cost[target[a]]).sum()
    return better, equal
