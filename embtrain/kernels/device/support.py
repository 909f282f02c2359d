"""Support for kernels on a GPU: whether Triton is installed, and which sizes the kernels take."""

from __future__ import annotations

from importlib.util import find_spec

MAX_TILE = 16_384  # float32 values of the negatives of one draw, which stay in registers: a quarter of a multiprocessor


def has_triton() -> bool:
    """Whether the package triton is installed. Does not import it."""
    spec = find_spec("triton")
    return spec is not None and spec.origin is not None     # a folder of that name is not the package


def next_power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n; 1 for n < 1."""
    return 1 << max(0, n - 1).bit_length()


def max_negatives(dim: int) -> int:
    """Return how many negatives of D dimensions a draw may have."""
    return max(1, MAX_TILE // next_power_of_two(dim))
