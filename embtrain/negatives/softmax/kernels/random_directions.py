"""Random directions w_1 … w_D for random features, and their products with many vectors at once.

    plain        w_i ~ N(0, I), independent
    orthogonal   blocks of d directions at right angles, each of length χ_d: every single w_i is still N(0, I)
                 (Yu et al., Orthogonal Random Features, 2016)
    structured   blocks √d H S₁ H S₂ H S₃, with H the Hadamard matrix (orthonormal) and S random signs, after padding
                 vectors to a power of two: O(D log d) instead of O(D d) per vector, and 3 D signs of memory (ibid.)

Drawn once from the seed, on the CPU, so that all devices have the same; they are part of a source's state.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

DirectionKind = Literal["plain", "orthogonal", "structured"]


class RandomDirections:
    """n random directions in `dim` dimensions."""

    def __init__(self, n: int, dim: int, kind: DirectionKind, random: torch.Generator, device: str):
        self.n, self.dim, self.kind = n, dim, kind
        if kind == "structured":
            self.padded_dim = 1 << (dim - 1).bit_length()
            blocks = math.ceil(n / self.padded_dim)
            signs = torch.randint(0, 2, (3, blocks, self.padded_dim), generator=random, device="cpu")
            w = (2 * signs - 1).float()                                      # (3, blocks, d') signs
        elif kind == "orthogonal":
            w = orthogonal(n, dim, random)                                  # (D, d)
        else:
            w = torch.randn(n, dim, generator=random, dtype=torch.float32, device="cpu")
        self.w = w.to(device)

    def project(self, x: Tensor) -> Tensor:
        """Products w_i · x with vectors x (n, d): (n, D)."""
        if self.kind != "structured":
            return x @ self.w.to(x.dtype).T
        x = torch.nn.functional.pad(x, (0, self.padded_dim - self.dim)).unsqueeze(1)      # (n, 1, d')
        for signs in self.w.to(x.dtype):
            x = hadamard(x * signs)                                         # (n, blocks, d')
        return x.flatten(1)[:, :self.n] * math.sqrt(self.padded_dim)

    def squared_norms(self) -> Tensor:
        """‖w_i‖², (D,) float64."""
        if self.kind == "structured":
            return torch.full((self.n,), float(self.padded_dim), dtype=torch.float64, device=self.w.device)
        return self.w.double().square().sum(1)


def orthogonal(n: int, dim: int, random: torch.Generator) -> Tensor:
    """n directions (n, dim): orthogonal in blocks of `dim`, with χ-distributed lengths."""
    blocks = math.ceil(n / dim)
    q, r = torch.linalg.qr(torch.randn(blocks, dim, dim, generator=random, dtype=torch.float64, device="cpu"))
    q = q * r.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)                  # makes q uniform (Haar)
    w = torch.randn(blocks, dim, dim, generator=random, dtype=torch.float64, device="cpu")
    return (q.mT * w.norm(dim=2, keepdim=True)).reshape(-1, dim)[:n].float()


def hadamard(x: Tensor) -> Tensor:
    """H x along the last dimension, a power of two; H orthonormal. Fast Walsh-Hadamard transform."""
    d = x.shape[-1]
    shape, step = x.shape, 1
    while step < d:
        pairs = x.reshape(*shape[:-1], d // (2 * step), 2, step)
        a, b = pairs.unbind(-2)
        x = torch.stack([a + b, a - b], -2).reshape(shape)
        step *= 2
    return x / math.sqrt(d)
