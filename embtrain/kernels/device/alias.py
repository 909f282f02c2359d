"""Draws from an alias table on a device, with the random numbers and the ids of kernels/sampling/alias.py.

    u V = 2⁶⁴ column + remainder        drawn: column if remainder < accept[column], else alias[column]

u is number i of the counter-based stream `seed`, which each program computes by itself. The seed is read from the
device, so that the host does not wait for the generator that gave it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor

BLOCK = 1024  # draws of a program


def draw(accept: Tensor, alias: Tensor, n: int, seed: Tensor) -> Tensor:
    """Draw n ids, (n,) int64.

    accept, alias: (V,) int64 each; accept holds the bits of uint64. seed: (1,) int64, the bits of uint64. All are on
    one device. Raises ValueError if shapes or types differ.
    """
    v = len(alias)
    if accept.dtype != torch.int64 or alias.dtype != torch.int64 or accept.shape != (v,) or not 0 < v < 2 ** 31:
        raise ValueError(f"alias: two tables (V,) int64 expected, got {accept.dtype} {tuple(accept.shape)} and "
                         f"{alias.dtype} {tuple(alias.shape)}")
    if n < 0 or seed.dtype != torch.int64 or seed.shape != (1,):
        raise ValueError(f"alias: {n} draws from a seed {seed.dtype} {tuple(seed.shape)}; a seed (1,) int64 expected")
    out = torch.empty(n, dtype=torch.int64, device=alias.device)
    if n:
        _draw[(triton.cdiv(n, BLOCK),)](accept, alias, seed, out, n, v, BLOCK=BLOCK)
    return out


@triton.jit(do_not_specialize=["n", "v"])    # else compiled again for multiples of 16; 1 fails
def _draw(accept: tensor, alias: tensor, seed: tensor, out: tensor, n: tensor, v: tensor, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    u = _splitmix64(tl.load(seed).to(tl.uint64), i.to(tl.uint64))
    # u V in halves: V < 2³¹
    half = tl.full((), 32, tl.uint64)
    low_bits = tl.full((), 0xFFFFFFFF, tl.uint64)
    size = v.to(tl.uint64)
    low = (u & low_bits) * size
    high = (u >> half) * size + (low >> half)
    column = (high >> half).to(tl.int64)
    remainder = (high << half) | (low & low_bits)
    is_drawn = i < n
    kept = tl.load(accept + column, mask=is_drawn, other=0).to(tl.uint64)
    other = tl.load(alias + column, mask=is_drawn, other=0)
    tl.store(out + i, tl.where(remainder < kept, column, other), mask=is_drawn)


@triton.jit
def _splitmix64(seed: tensor, i: tensor) -> tensor:
    """Numbers i of the stream `seed`; u64_at of source/core/core.h."""
    z = seed + (i + tl.full((), 1, tl.uint64)) * tl.full((), 0x9E3779B97F4A7C15, tl.uint64)
    z = (z ^ (z >> tl.full((), 30, tl.uint64))) * tl.full((), 0xBF58476D1CE4E5B9, tl.uint64)
    z = (z ^ (z >> tl.full((), 27, tl.uint64))) * tl.full((), 0x94D049BB133111EB, tl.uint64)
    return z ^ (z >> tl.full((), 31, tl.uint64))
