"""NumPy reference implementations: the fallback without the compiled library, and the oracle of its tests.

Same folders and function names as the wrappers. No file may load the library.

    sampling/    draws from cells, trees and the adversarial generator; int8 rows
    scoring/     dot products, ranks, von Mises-Fisher normalizer
    text/        scanning, subsampling, windows
    training/    updates of skip-gram, triples and hierarchies
    roofline.py  micro-benchmarks
"""

from __future__ import annotations

import numpy as np

ZERO_POINT = 128  # the stored byte of the value 0
_STEP = 0x9E3779B97F4A7C15


def splitmix64(seed: int, i: np.ndarray) -> np.ndarray:
    """Numbers i of the stream `seed`, uint64 of i's shape; u64_at of source/core/core.h.

        z = seed + (i+1) 9e3779b97f4a7c15; z = (z ⊕ z/2³⁰) bf58476d1ce4e5b9; z = (z ⊕ z/2²⁷) 94d049bb133111eb; z ⊕ z/2³¹
        (mod 2⁶⁴; Steele, Lea and Flood 2014)
    """
    first = np.asarray([(seed + _STEP) % 2 ** 64], dtype=np.uint64)  # an array, because scalars warn on overflow
    z = first + np.asarray(i).astype(np.uint64) * np.uint64(_STEP)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z.reshape(np.shape(i))


def uniform01(seed: int, i: np.ndarray) -> np.ndarray:
    """The upper 53 bits of these numbers as float64 in [0, 1), of i's shape."""
    return (splitmix64(seed, i) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize rows x (..., n) to z (..., n) int64 in −127 … 127 and s (...), with x = s z up to half of s."""
    scale = np.abs(x).max(-1) / np.float32(127)
    return np.rint(x / np.where(scale > 0, scale, np.float32(1))[..., None]).astype(np.int64), scale
