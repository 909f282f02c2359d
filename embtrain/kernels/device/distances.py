"""Distances of all pairs of two lists of vectors on a device, and their gradients.

    l1       s_bk = −Σ_d |x_bd − y_kd|
    modulus  s_bk = −Σ_d |x_bd − y_kd| of complex numbers: a vector has its real parts first, then its imaginary parts

    ∂L/∂x_b = −Σ_k g_bk (x_b − y_k) / |x_b − y_k|, by element; 0 where they are equal        g = ∂L/∂s, (B, K)

No difference (B, K, D) is stored. Programs share a sum: each adds up a part of the dimensions, or of the k, and PyTorch
adds the parts in a fixed order, so that results repeat bit for bit.
"""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor

BLOCK = 32            # rows and columns of a program's tile
PROGRAMS = 1024       # programs that keep a device busy
MIN_STEPS = 32        # dimensions, or rows, that a program adds up at least

Geometry = Literal["l1", "modulus"]


def scores(x: Tensor, y: Tensor, geometry: Geometry) -> Tensor:
    """Return s (B, K) for float32 vectors x (B, D) and y (K, D). ValueError if shapes or types do not fit."""
    n, k, dim = _check(x, y, geometry)
    n_tiles, steps = triton.cdiv(n, BLOCK) * triton.cdiv(k, BLOCK), dim
    parts = _n_parts(n_tiles, steps)
    out = x.new_empty(parts, n, k)
    if out.numel():
        # programs read one dimension of many rows at a time
        _scores[(triton.cdiv(k, BLOCK), triton.cdiv(n, BLOCK), parts)](         # only the first axis has no limit
            x.t().contiguous(), y.t().contiguous(), out, n, k, dim, triton.cdiv(steps, parts),
            IS_COMPLEX=geometry == "modulus", BLOCK=BLOCK)
    return out[0] if parts == 1 else out.sum(0)


def gradient(g: Tensor, x: Tensor, y: Tensor, geometry: Geometry) -> Tensor:
    """Return ∂L/∂x (B, D) for g = ∂L/∂s (B, K). That of y is gradient(g.T, y, x)."""
    n, k, dim = _check(x, y, geometry)
    if g.shape != (n, k) or g.dtype != torch.float32:
        raise ValueError(f"distances: a gradient ({n}, {k}) of float32 expected, got {g.dtype} {tuple(g.shape)}")
    parts = _n_parts(triton.cdiv(n, BLOCK) * triton.cdiv(dim, BLOCK), k)
    out = x.new_empty(parts, *x.shape)
    if out.numel():
        _gradient[(triton.cdiv(n, BLOCK), triton.cdiv(dim, BLOCK), parts)](
            g.t().contiguous(), x.contiguous(), y.contiguous(), out, n, k, dim, triton.cdiv(k, parts),
            IS_COMPLEX=geometry == "modulus", BLOCK=BLOCK)
    return out[0] if parts == 1 else out.sum(0)


def _check(x: Tensor, y: Tensor, geometry: Geometry) -> tuple[int, int, int]:
    """Return B, K and the number of dimensions, complex ones for a modulus."""
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or x.dtype != torch.float32 or y.dtype != torch.float32:
        raise ValueError(f"distances: two lists of float32 vectors of one length expected, got {x.dtype} "
                         f"{tuple(x.shape)} and {y.dtype} {tuple(y.shape)}")
    if geometry == "modulus" and x.shape[1] % 2:
        raise ValueError(f"distances: complex vectors have an even number of floats, got {x.shape[1]}")
    return len(x), len(y), x.shape[1] // 2 if geometry == "modulus" else x.shape[1]


def _n_parts(n_tiles: int, steps: int) -> int:
    """Return into how many parts a sum of `steps` terms is cut, so that about PROGRAMS programs run."""
    return max(1, min(PROGRAMS // max(1, n_tiles), steps // MIN_STEPS))


@triton.jit(do_not_specialize=["n", "k", "dim", "steps"])
def _scores(x: tensor, y: tensor, out: tensor, n: tensor, k: tensor, dim: tensor, steps: tensor,
            IS_COMPLEX: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """A tile of s over a part of the dimensions: x (D, B), y (D, K), out (parts, B, K)."""
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2).to(tl.int64)
    is_row, is_column = row < n, column < k
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for d in range(part * steps, tl.minimum((part + 1) * steps, dim)):
        re = (tl.load(x + d * n + row, mask=is_row, other=0.0)[:, None]
              - tl.load(y + d * k + column, mask=is_column, other=0.0)[None, :])
        if IS_COMPLEX:
            im = (tl.load(x + (dim + d) * n + row, mask=is_row, other=0.0)[:, None]
                  - tl.load(y + (dim + d) * k + column, mask=is_column, other=0.0)[None, :])
            total += tl.sqrt(re * re + im * im)
        else:
            total += tl.abs(re)
    tl.store(out + (part * n + row[:, None]) * k + column[None, :], -total, mask=is_row[:, None] & is_column[None, :])


@triton.jit(do_not_specialize=["n", "k", "dim", "steps"])
def _gradient(g: tensor, x: tensor, y: tensor, out: tensor, n: tensor, k: tensor, dim: tensor, steps: tensor,
              IS_COMPLEX: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """A tile of the gradient over a part of the k: g (K, B), x (B, D), y (K, D), out (parts, B, D)."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.program_id(2).to(tl.int64)
    is_row, is_dim = row < n, d < dim
    mask, width = is_row[:, None] & is_dim[None, :], dim
    if IS_COMPLEX:
        width = 2 * dim
    place = row[:, None] * width + d[None, :]
    x_re = tl.load(x + place, mask=mask, other=0.0)
    sum_re = tl.zeros((BLOCK, BLOCK), tl.float32)
    if IS_COMPLEX:
        x_im = tl.load(x + place + dim, mask=mask, other=0.0)
        sum_im = tl.zeros((BLOCK, BLOCK), tl.float32)
    for j in range(part * steps, tl.minimum((part + 1) * steps, k)):
        slope = tl.load(g + j * n + row, mask=is_row, other=0.0)[:, None]
        re = x_re - tl.load(y + j * width + d, mask=is_dim, other=0.0)[None, :]
        if IS_COMPLEX:
            im = x_im - tl.load(y + j * width + dim + d, mask=is_dim, other=0.0)[None, :]
            slope = slope * tl.rsqrt(tl.maximum(re * re + im * im, 1.1754943508222875e-38))
            sum_re += slope * re
            sum_im += slope * im
        else:
            sum_re += tl.where(re > 0.0, slope, 0.0) - tl.where(re < 0.0, slope, 0.0)
    place += part * n * width
    tl.store(out + place, -sum_re, mask=mask)
    if IS_COMPLEX:
        tl.store(out + place + dim, -sum_im, mask=mask)
