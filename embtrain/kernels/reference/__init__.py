"""Slow and obvious twins of the kernels in NumPy: what runs where there is no core, and what the core is held to."""

from __future__ import annotations

import numpy as np

ZERO = 128  # what 0 is stored as in eight bits
_STEP = 0x9E3779B97F4A7C15


def splitmix64(seed: int, i: np.ndarray) -> np.ndarray:
    """uint64 of i's shape: number i of the stream `seed`; u64_at of source/core.h.

    z = seed + (i+1) 9e3779b97f4a7c15; z = (z ⊕ z/2³⁰) bf58476d1ce4e5b9; z = (z ⊕ z/2²⁷) 94d049bb133111eb; z ⊕ z/2³¹
    (mod 2⁶⁴; Steele, Lea and Flood 2014)
    """
    first = np.asarray([(seed + _STEP) % 2 ** 64], dtype=np.uint64)  # an array: scalars warn where they wrap around
    z = first + np.asarray(i).astype(np.uint64) * np.uint64(_STEP)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z.reshape(np.shape(i))


def uniform01(seed: int, i: np.ndarray) -> np.ndarray:
    """float64 of [0, 1), of i's shape: the upper 53 bits of those numbers."""
    return (splitmix64(seed, i) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def quantize(x: np.ndarray) -> tuple[np.ndarray, float]:
    """z (n,) int64 in −127 … 127 and s with x = s z, up to half of s."""
    scale = np.abs(x).max() / np.float32(127)
    return np.rint(x / (scale if scale > 0 else np.float32(1))).astype(np.int64), float(scale)
