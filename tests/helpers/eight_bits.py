"""Quantize tree sums to int8, S = s (b − 128), in plain NumPy."""

from __future__ import annotations

import numpy as np


def scale_of(sums: np.ndarray) -> np.ndarray:
    """s (n,) of S (n, W)."""
    return (np.abs(sums).max(1) / np.float32(127)).astype(np.float32)


def in_eight_bits(sums: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """b (n, W)."""
    return np.rint(sums / np.where(scale > 0, scale, np.float32(1))[:, None] + 128).astype(np.uint8)
